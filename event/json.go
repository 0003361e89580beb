package event

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
)

// ParseJSON reads one JSON value into a tree of nil, bool, string,
// json.Number, []any and map[string]any. Numbers keep their spelling.
func ParseJSON(raw []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one JSON value")
	}
	return v, nil
}

// AppendCanonical appends v as canonical JSON (RFC 8785).
func AppendCanonical(dst []byte, v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return dst, err
	}
	return append(dst, bytes.TrimSuffix(b.Bytes(), []byte("\n"))...), nil
}

// Digest is the digest of an original value (AEP-0003 §9.3): the first 16
// bytes of the SHA-256 of its canonical JSON, in hex.
func Digest(v any) string {
	b, err := AppendCanonical(nil, v)
	if err != nil {
		return ""
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:16])
}
