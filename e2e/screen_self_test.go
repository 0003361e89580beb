package e2e

import (
	"strings"
	"testing"
)

// The screen is an instrument: it is tried before it is believed.
func TestScreen(t *testing.T) {
	for _, c := range []struct{ name, in, want string }{
		{"lines", "one\r\ntwo", "one\ntwo\n"},
		{"over", "abcdef\rXY", "XYcdef\n"},
		{"wrap", "0123456789abc", "0123456789\nabc\n"},
		{"move", "\x1b[2;3Hx\x1b[1;1Hy\x1b[Cz", "y z\n  x\n"},
		{"erase line", "abcdef\x1b[3D\x1b[K", "abc\n"},
		{"erase screen", "abc\r\ndef\x1b[2J\x1b[Hx", "x\n"},
		{"scroll", "1\r\n2\r\n3\r\n4", "2\n3\n4\n"},
		{"colours and titles", "\x1b[1;31mred\x1b[0m\x1b]0;title\x07!\x1b]8;;u\x1b\\.", "red!.\n"},
		{"questions", "a\x1b[?u\x1b[>0q\x1b[cb", "ab\n"},
		{"wide text", "❯ über", "❯ über\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			whole := newScreen(3, 10)
			_, _ = whole.Write([]byte(c.in))
			split := newScreen(3, 10)
			for i := range len(c.in) { // split at every byte
				_, _ = split.Write([]byte{c.in[i]})
			}
			for how, s := range map[string]*screen{"whole": whole, "split": split} {
				if got := strings.TrimRight(s.text(), "\n") + "\n"; got != c.want {
					t.Errorf("%s: %q, want %q", how, got, c.want)
				}
			}
		})
	}
}
