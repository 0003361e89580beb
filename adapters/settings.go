package adapters

import (
	"bytes"

	"aep-wrap/event"
)

// Settings reads an object in JSON with comments, as runtimes let people write
// their settings.
func Settings(raw []byte) (map[string]any, error) {
	return event.ParseObject(uncommented(bytes.TrimPrefix(raw, []byte("\ufeff"))))
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
