package event

import (
	"crypto/rand"
	"crypto/sha256"
	"net/url"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// NewID makes a fresh ULID for a fact that its vendor gives no name to.
func NewID(t time.Time) string {
	return ulid.MustNew(ulid.Timestamp(t), rand.Reader).String()
}

// DeriveID gives the same id, of a ULID's shape, for the same parts: the way
// in which two channels, or two readings, name one fact alike.
func DeriveID(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		var n [8]byte
		for i := range n {
			n[i] = byte(len(p) >> (8 * i))
		}
		h.Write(n[:])
		h.Write([]byte(p))
	}
	var u ulid.ULID
	copy(u[:], h.Sum(nil))
	return u.String()
}

// Source is the recommended source URI (AEP-0001 §5): constant for a session,
// over restarts too.
func Source(host, agent, session string) string {
	return "aep://" + url.PathEscape(host) + "/agent/" + url.PathEscape(agent) + "/session/" + url.PathEscape(session)
}

// Category is the first token of a type: "tool" of "tool.requested", "x" of a
// vendor's.
func Category(typ string) string {
	c, _, _ := strings.Cut(typ, ".")
	return c
}
