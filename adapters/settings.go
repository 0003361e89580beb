package adapters

import (
	"bytes"
	"path"
	"strings"

	"aep-wrap/event"
)

// Settings reads an object in JSON with comments, as runtimes let people write
// their settings.
func Settings(raw []byte) (map[string]any, error) {
	return event.ParseObject(uncommented(bytes.TrimPrefix(raw, []byte("\ufeff"))))
}

// Trusted says whether a folder, or one above it, is among those that a user
// trusts: Gemini's list, and that of what was made of it.
func Trusted(dir string, folders map[string]any) bool {
	for of, how := range folders {
		if how == "TRUST_PARENT" {
			of = path.Dir(of)
		}
		if how != "DO_NOT_TRUST" && strings.HasPrefix(dir+"/", strings.TrimSuffix(of, "/")+"/") {
			return true
		}
	}
	return false
}

// uncommented has spaces where there are comments.
func uncommented(raw []byte) []byte {
	out := make([]byte, len(raw))
	const code, text, line, block = 0, 1, 2, 3
	in := code
	for i := 0; i < len(raw); i++ {
		c, pair := raw[i], ""
		if i+1 < len(raw) {
			pair = string(raw[i : i+2])
		}
		out[i] = c
		switch {
		case in == text && c == '\\' && pair != "":
			i++
			out[i] = raw[i]
		case in == text && c == '"':
			in = code
		case in == text:
		case in == code && c == '"':
			in = text
		case in == code && (pair == "//" || pair == "/*"):
			in = line
			if pair == "/*" {
				in = block
			}
			out[i], out[i+1] = ' ', ' '
			i++
		case in == line && (c == '\n' || c == '\r'):
			in = code
		case in == block && pair == "*/":
			in = code
			out[i], out[i+1] = ' ', ' '
			i++
		case in != code && c != '\n':
			out[i] = ' '
		}
	}
	return out
}
