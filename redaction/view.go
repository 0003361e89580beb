package redaction

import (
	"slices"
	"strings"
	"unicode/utf8"
)

// view is a text with something decoded or taken out of it, and where each of
// its bytes came from, so that what is found in it can be hidden in the source.
type view struct {
	text  string
	edits []edit
}

// edit: n bytes of the source at src became out bytes of the view at pos.
type edit struct{ pos, out, src, n int }

// source maps a piece of the view to the source.
func (v *view) source(start, end int) (int, int) {
	return v.origin(start, false), v.origin(end-1, true)
}

func (v *view) origin(x int, after bool) int {
	i, _ := slices.BinarySearchFunc(v.edits, x, func(e edit, x int) int {
		if e.pos+e.out <= x {
			return -1
		}
		return 1
	})
	// edits[i] is the first that ends after x.
	if i < len(v.edits) && v.edits[i].pos <= x {
		if after {
			return v.edits[i].src + v.edits[i].n
		}
		return v.edits[i].src
	}
	d := 0
	if i > 0 {
		e := v.edits[i-1]
		d = e.src + e.n - (e.pos + e.out)
	}
	if after {
		return x + d + 1
	}
	return x + d
}

// viewer writes a view.
type viewer struct {
	s     string
	b     strings.Builder
	from  int
	edits []edit
}

func (w *viewer) replace(src, n int, out string) {
	w.b.WriteString(w.s[w.from:src])
	w.edits = append(w.edits, edit{w.b.Len(), len(out), src, n})
	w.b.WriteString(out)
	w.from = src + n
}

func (w *viewer) view() *view {
	if len(w.edits) == 0 {
		return nil
	}
	w.b.WriteString(w.s[w.from:])
	return &view{w.b.String(), w.edits}
}

// plainView takes terminal sequences out (also spelt as escapes inside a
// string); nil when there are none.
func plainView(s string) *view {
	esc := strings.IndexByte(s, 0x1b) >= 0
	spelt := strings.IndexByte(s, '\\') >= 0 && (strings.Contains(s, `1b[`) || strings.Contains(s, `1B[`) || strings.Contains(s, `033[`) || strings.Contains(s, `\e[`))
	if !esc && !spelt && strings.IndexByte(s, '\b') < 0 {
		return nil
	}
	w := viewer{s: s}
	for i := 0; i < len(s); {
		n := 0
		switch c := s[i]; {
		case c == 0x1b:
			n = 1
		case c == '\b' && i > 0:
			w.replace(i, 1, "")
			i++
			continue
		case c == '\\' && spelt:
			for _, p := range [...]string{`\u001b`, `\u001B`, `\x1b`, `\x1B`, `\033`, `\e`} {
				if strings.HasPrefix(s[i:], p) {
					n = len(p)
					break
				}
			}
		}
		if n == 0 {
			i++
			continue
		}
		e := i + n
		switch at(s, e) {
		case '[':
			k := e + 1
			for k < len(s) && k-e < 64 && s[k] >= 0x20 && s[k] < 0x40 {
				k++
			}
			if k < len(s) && s[k] >= 0x40 && s[k] <= 0x7e {
				e = k + 1
			}
		case ']':
			k := e + 1
			for k < len(s) && k-e < 2048 && s[k] != 7 && s[k] != 0x1b && s[k] != '\n' {
				k++
			}
			if at(s, k) == 7 {
				e = k + 1
			} else if at(s, k) == 0x1b && at(s, k+1) == '\\' {
				e = k + 2
			}
		case '(', ')':
			e = min(len(s), e+2)
		}
		if e == i+n && s[i] != 0x1b {
			i++
			continue
		}
		w.replace(i, e-i, "")
		i = e
	}
	return w.view()
}

// unescapedView decodes the escapes of strings in strings by one level.
func unescapedView(s string) *view {
	// Quotes within strings are read as they are; lines and spelt characters
	// are not.
	if !strings.Contains(s, `\n`) && !strings.Contains(s, `\r`) && !strings.Contains(s, `\u00`) {
		return nil
	}
	w := viewer{s: s}
	for i := 0; ; {
		n := strings.IndexByte(s[i:], '\\')
		if n < 0 || i+n+1 >= len(s) {
			return w.view()
		}
		i += n
		run := i
		for run < len(s) && s[run] == '\\' {
			run++
		}
		if r := run - i; r%2 == 0 && at(s, run) == '"' {
			i = run // the end of a string of this level
			continue
		}
		switch s[i+1] {
		case 'n':
			w.replace(i, 2, "\n")
		case 'r':
			w.replace(i, 2, "\r")
		case 't':
			w.replace(i, 2, "\t")
		case '"', '\\', '/', '\'':
			w.replace(i, 2, s[i+1:i+2])
		case 'u':
			if r, ok := hex4(s, i+2); ok && r < 0xd800 {
				w.replace(i, 6, string(r))
				i += 4
			}
		}
		i += 2
	}
}

func hex4(s string, i int) (rune, bool) {
	if i+4 > len(s) {
		return 0, false
	}
	r := rune(0)
	for _, c := range []byte(s[i : i+4]) {
		d, ok := unhex(c)
		if !ok {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}

func unhex(c byte) (byte, bool) {
	switch {
	case isDigit(c):
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// percentView decodes %xx; nil when what is encoded holds no separator.
func percentView(s string) *view {
	if strings.IndexByte(s, '%') < 0 {
		return nil
	}
	telling := false
	w := viewer{s: s}
	for i := 0; ; {
		n := strings.IndexByte(s[i:], '%')
		if n < 0 || i+n+2 >= len(s) {
			break
		}
		i += n
		a, ok1 := unhex(s[i+1])
		b, ok2 := unhex(s[i+2])
		if !ok1 || !ok2 {
			i++
			continue
		}
		c := a<<4 | b
		if c < 0x20 && c != '\n' && c != '\r' && c != '\t' {
			i += 3
			continue
		}
		switch c {
		case '=', ':', '"', '&', ' ', '\n', '{':
			telling = true
		}
		var buf [1]byte
		buf[0] = c
		w.replace(i, 3, string(buf[:]))
		i += 3
	}
	if !telling {
		return nil
	}
	return w.view()
}

var entities = map[string]string{
	"quot": "\"", "amp": "&", "apos": "'", "lt": "<", "gt": ">", "equals": "=", "colon": ":", "nbsp": " ", "newline": "\n",
	"#34": "\"", "#39": "'", "#38": "&", "#60": "<", "#62": ">", "#61": "=", "#58": ":", "#10": "\n", "#x22": "\"", "#x27": "'", "#x26": "&", "#x3d": "=", "#x3a": ":", "#x2f": "/", "#47": "/", "#64": "@", "#x40": "@", "#43": "+", "#x2b": "+", "#45": "-",
}

// entityView decodes the entities of HTML and XML.
func entityView(s string) *view {
	if strings.IndexByte(s, '&') < 0 {
		return nil
	}
	w := viewer{s: s}
	for i := 0; ; {
		n := strings.IndexByte(s[i:], '&')
		if n < 0 {
			return w.view()
		}
		i += n
		e := strings.IndexByte(s[i:min(len(s), i+10)], ';')
		if e < 2 {
			i++
			continue
		}
		if out, ok := entities[strings.ToLower(s[i+1:i+e])]; ok {
			w.replace(i, e+1, out)
		}
		i += e + 1
	}
}

// runeStart moves i back to where a rune begins.
func runeStart(s string, i int) int {
	for i > 0 && i < len(s) && !utf8.RuneStart(s[i]) {
		i--
	}
	return i
}
