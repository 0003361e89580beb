package event

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"
)

// AppendCanonical appends v as canonical JSON (RFC 8785): members by their
// names' UTF-16 code units, numbers as ECMAScript writes a double, minimal
// escapes, no white space. v is a tree of ParseJSON's, which may also hold
// Go's ints, floats and json.RawMessage; any other value goes through
// encoding/json first. A number beyond a double's range and a string that is
// not UTF-8 have no canonical form: they are an error.
func AppendCanonical(dst []byte, v any) ([]byte, error) {
	n := len(dst)
	w := writer{buf: dst, canonical: true}
	w.value(v)
	if w.err != nil {
		return dst[:n], w.err
	}
	return w.buf, nil
}

// AppendValue appends v, a tree as for AppendCanonical, as compact JSON:
// members sorted, numbers as they are spelt, nothing escaped that need not be.
// What JSON cannot say becomes the nearest that it can: bytes that are not
// UTF-8 U+FFFD, infinities and NaN null.
func AppendValue(dst []byte, v any) []byte {
	w := writer{buf: dst}
	w.value(v)
	return w.buf
}

// Digest is the digest of an original value (AEP-0003 §9.3): the first 16
// bytes of the SHA-256 of its canonical JSON, in hex. A bare string is hashed
// in its JSON form, quotes included. Values without a canonical form still
// have a digest, by the nearest form (AppendValue's), so that a fact is never
// left without its key.
func Digest(v any) string {
	w := writers.Get().(*writer)
	defer writers.Put(w)
	return w.digest(v)
}

// flushAt is the size at which a digest's text is handed to the hash, so that
// a digest of a 50 MB result needs no second 50 MB.
const flushAt = 16 << 10

var writers = sync.Pool{New: func() any { return newDigester() }}

func newDigester() *writer {
	return &writer{buf: make([]byte, 0, 2*flushAt), canonical: true, sum: sha256.New()}
}

// writer writes a tree as JSON.
type writer struct {
	buf       []byte
	canonical bool
	sum       hash.Hash // where buf goes when it is full, or nil
	err       error     // the first thing that canonical JSON cannot say
}

// digest is Digest by a writer of newDigester's, which it leaves ready for the
// next one.
func (w *writer) digest(v any) string {
	w.buf = w.buf[:0]
	w.err = nil
	w.sum.Reset()
	w.value(v)
	w.sum.Write(w.buf)
	sum := w.sum.Sum(w.buf[:0])
	var out [32]byte
	hex.Encode(out[:], sum[:16])
	return string(out[:])
}

func (w *writer) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("canonical JSON: "+format, args...)
	}
}

func (w *writer) flush() {
	if w.sum != nil && len(w.buf) >= flushAt {
		w.sum.Write(w.buf)
		w.buf = w.buf[:0]
	}
}

func (w *writer) value(v any) {
	switch v := v.(type) {
	case nil:
		w.buf = append(w.buf, "null"...)
	case bool:
		w.buf = strconv.AppendBool(w.buf, v)
	case string:
		w.string(v)
	case json.Number:
		w.number(string(v))
	case map[string]any:
		w.object(v)
	case []any:
		w.buf = append(w.buf, '[')
		for i, e := range v {
			if i > 0 {
				w.buf = append(w.buf, ',')
			}
			w.value(e)
		}
		w.buf = append(w.buf, ']')
	case int:
		w.int(int64(v))
	case int64:
		w.int(v)
	case float64:
		w.float(v)
	default:
		w.other(v)
	}
	w.flush()
}

// other writes what is not of the tree: raw JSON, and Go values by
// encoding/json.
func (w *writer) other(v any) {
	raw, ok := v.(json.RawMessage)
	if !ok {
		var err error
		if raw, err = json.Marshal(v); err != nil {
			w.fail("%v", err)
			w.buf = append(w.buf, "null"...)
			return
		}
	} else if raw == nil {
		raw = json.RawMessage("null")
	}
	tree, err := ParseJSON(raw)
	if err != nil {
		w.fail("raw value: %v", err)
	}
	w.value(tree)
}

func (w *writer) object(m map[string]any) {
	var few [24]string
	names := few[:0]
	for name := range m {
		names = append(names, name)
	}
	slices.SortFunc(names, compareUTF16)
	w.buf = append(w.buf, '{')
	for i, name := range names {
		if i > 0 {
			w.buf = append(w.buf, ',')
		}
		w.string(name)
		w.buf = append(w.buf, ':')
		w.value(m[name])
	}
	w.buf = append(w.buf, '}')
}

// compareUTF16 orders UTF-8 strings by their UTF-16 code units. That is the
// order of their bytes but for characters beyond U+FFFF, whose surrogates
// (U+D800 …) stand before U+E000 … U+FFFF.
func compareUTF16(a, b string) int {
	n := min(len(a), len(b))
	for i := range n {
		x, y := a[i], b[i]
		if x == y {
			continue
		}
		if x >= 0xEE && y >= 0xEE && (x >= 0xF0) != (y >= 0xF0) {
			x, y = y, x
		}
		return int(x) - int(y)
	}
	return len(a) - len(b)
}

func (w *writer) string(s string) {
	w.buf = append(w.buf, '"')
	for w.sum != nil && len(s) > flushAt {
		cut := flushAt
		for cut > flushAt-utf8.UTFMax && !utf8.RuneStart(s[cut]) {
			cut--
		}
		w.text(s[:cut])
		w.flush()
		s = s[cut:]
	}
	w.text(s)
	w.buf = append(w.buf, '"')
}

func (w *writer) text(s string) {
	var ok bool
	if w.buf, ok = appendText(w.buf, s); !ok {
		w.fail("a string that is not UTF-8")
	}
}

func appendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	dst, _ = appendText(dst, s)
	return append(dst, '"')
}

// appendText appends s as it stands between quotes, with as few escapes as
// JSON allows; ok is false when bytes that are not UTF-8 became U+FFFD.
func appendText(dst []byte, s string) (_ []byte, ok bool) {
	clean := 0
	for clean < len(s) && plain[s[clean]] {
		clean++
	}
	if clean == len(s) {
		return append(dst, s...), true
	}
	const digits = "0123456789abcdef"
	if ok = utf8.ValidString(s); !ok {
		s = strings.ToValidUTF8(s, "\ufffd")
	}
	start := 0
	for i := clean; i < len(s); i++ {
		c := s[i]
		if plain[c] || c >= utf8.RuneSelf {
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
		start = i + 1
	}
	return append(dst, s[start:]...), ok
}

// number writes a number from its spelling.
func (w *writer) number(s string) {
	if !w.canonical || shortInt(s) {
		w.buf = append(w.buf, s...)
		return
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		w.fail("the number %.40s is no double", s)
		w.buf = append(w.buf, s...)
		return
	}
	w.buf = appendFloat(w.buf, f)
}

// shortInt says whether s is spelt as its canonical form is: an integer that
// every double holds exactly.
func shortInt(s string) bool {
	if len(s) > 1 && s[0] == '-' {
		s = s[1:]
		if s == "0" {
			return false
		}
	}
	if len(s) == 0 || len(s) > 15 {
		return false
	}
	for i := range len(s) {
		if s[i]-'0' > 9 {
			return false
		}
	}
	return true
}

func (w *writer) int(n int64) {
	const exact = 1 << 53
	if w.canonical && (n > exact || n < -exact) {
		w.buf = appendFloat(w.buf, float64(n))
		return
	}
	w.buf = strconv.AppendInt(w.buf, n, 10)
}

func (w *writer) float(f float64) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		w.fail("the number %v", f)
		w.buf = append(w.buf, "null"...)
		return
	}
	w.buf = appendFloat(w.buf, f)
}

// appendFloat writes a finite double as ECMAScript's Number::toString does.
func appendFloat(dst []byte, f float64) []byte {
	if f == 0 {
		return append(dst, '0') // -0 too
	}
	format := byte('f')
	if abs := math.Abs(f); abs < 1e-6 || abs >= 1e21 {
		format = 'e'
	}
	n := len(dst)
	dst = strconv.AppendFloat(dst, f, format, -1, 64)
	if format == 'e' {
		// e-07 is e-7 in ECMAScript; a positive exponent has two digits.
		if end := len(dst); end-n >= 4 && dst[end-4] == 'e' && dst[end-3] == '-' && dst[end-2] == '0' {
			dst[end-2] = dst[end-1]
			dst = dst[:end-1]
		}
	}
	return dst
}
