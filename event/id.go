package event

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// NewID makes a fresh ULID for a fact that its vendor gives no name to.
func NewID(t time.Time) string {
	ms := min(max(t.UnixMilli(), 0), int64(ulid.MaxTime()))
	return ulid.MustNew(uint64(ms), rand.Reader).String()
}

// DeriveID gives the same id, of a ULID's shape, for the same parts: the way
// in which two channels, or two readings, name one fact alike. Where one part
// ends and the next begins counts.
func DeriveID(parts ...string) string {
	var few [512]byte
	b := few[:0]
	for _, p := range parts {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(p)))
		b = append(b, p...)
	}
	sum := sha256.Sum256(b)
	u := ulid.ULID(sum[:len(ulid.ULID{})])
	return u.String()
}

// Source is the recommended source URI (AEP-0001 §5): constant for a session,
// over restarts too. What a URI's host or segment cannot hold is
// percent-encoded.
func Source(host, agent, session string) string {
	dst := append(make([]byte, 0, 64), "aep://"...)
	dst = appendSegment(dst, host)
	dst = appendSegment(append(dst, "/agent/"...), agent)
	dst = appendSegment(append(dst, "/session/"...), session)
	return string(dst)
}

// appendSegment appends s with all but RFC 3986's unreserved characters
// percent-encoded.
func appendSegment(dst []byte, s string) []byte {
	const digits = "0123456789ABCDEF"
	for i := range len(s) {
		if c := s[i]; letter(c) || c-'0' <= 9 || c == '-' || c == '.' || c == '_' || c == '~' {
			dst = append(dst, c)
		} else {
			dst = append(dst, '%', digits[c>>4], digits[c&15])
		}
	}
	return dst
}

// Category is the first token of a type: "tool" of "tool.requested", "x" of a
// vendor's.
func Category(typ string) string {
	c, _, _ := strings.Cut(typ, ".")
	return c
}
