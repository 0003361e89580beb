package agent

import (
	"strings"
	"testing"
	"time"
)

func TestModesUndo(t *testing.T) {
	for _, c := range []struct{ name, out, undo string }{
		{"plain text", "hello\r\n\x1b[H\x1b[2J", ""},
		{"what was put back", "\x1b[?1049h\x1b[?25l\x1b[31mx\x1b[0m\x1b[?25h\x1b[?1049l", ""},
		{"alternate screen", "\x1b[?1049h", "\x1b[?1049l"},
		{"its older numbers", "\x1b[?47h", "\x1b[?47l"},
		{"several in one", "\x1b[?1000;1006;2004h", "\x1b[?1000l\x1b[?1006l\x1b[?2004l"},
		{"cursor", "\x1b[?25l", "\x1b[?25h"},
		{"wrap", "\x1b[?7l", "\x1b[?7h"},
		{"focus and paste", "\x1b[?1004h\x1b[?2004h", "\x1b[?1004l\x1b[?2004l"},
		{"mouse", "\x1b[?1003h\x1b[?1015h\x1b[?1005h\x1b[?1002h", "\x1b[?1002l\x1b[?1003l\x1b[?1005l\x1b[?1015l"},
		{"kitty keys", "\x1b[>1u\x1b[>5u", "\x1b[<2u"},
		{"kitty keys popped", "\x1b[>1u\x1b[>5u\x1b[<u\x1b[<9u", ""},
		{"kitty keys of each screen", "\x1b[>1u\x1b[?1049h\x1b[>1u\x1b[>3u", "\x1b[<2u\x1b[?1049l\x1b[<1u"},
		{"kitty keys set", "\x1b[=5;1u", "\x1b[=0u"},
		{"modifyOtherKeys", "\x1b[>4;2m", "\x1b[>4m"},
		{"modifyOtherKeys off", "\x1b[>4;2m\x1b[>4m\x1b[>4;1m\x1b[>4n", ""},
		{"cursor keys and keypad", "\x1b[?1h\x1b=", "\x1b[?1l\x1b>"},
		{"rendition", "\x1b[1;31mred", "\x1b[0m"},
		{"rendition reset", "\x1b[1;31mred\x1b[m", ""},
		{"margins", "\x1b[5;10r", "\x1b7\x1b[r\x1b8"},
		{"line drawing", "\x1b(0", "\x0f\x1b(B"},
		{"cursor shape", "\x1b[6 q", "\x1b[0 q"},
		{"title stack", "\x1b[22;0t\x1b]0;title\x07", "\x1b[23;0t"},
		{"progress", "\x1b]9;4;3;\x07", "\x1b]9;4;0\x1b\\"},
		{"progress over", "\x1b]9;4;3;\x07\x1b]9;4;0;\x1b\\", ""},
		{"link", "\x1b]8;;https://a.example/\x1b\\text", "\x1b]8;;\x1b\\"},
		{"link closed", "\x1b]8;id=1;https://a.example/\x07text\x1b]8;;\x07", ""},
		{"insert", "\x1b[4h", "\x1b[4l"},
		{"synchronised output", "\x1b[?2026h", "\x1b[?2026l"},
		{"cut short in a sequence", "\x1b[?25", "\x18"},
		{"cut short in a string", "\x1b]0;tit", "\x18"},
		{"full reset", "\x1b[?1049h\x1b[?25l\x1b[>1u\x1bc", ""},
		{"soft reset", "\x1b[?25l\x1b[?2004h\x1b[1m\x1b[!p", "\x1b[?2004l"},
		{"a string holds no sequences", "\x1bPq\x1b[?1049h\x1b\\", "\x1b[?1049l"}, // an ESC ends it
		{"a picture holds none", "\x1b_Gf=100;?25l[?25l" + strings.Repeat("A", 5000) + "\x1b\\", ""},
		{"what is unknown", "\x1b[?99999h\x1b[>77;1x\x1b[999$~\x1b#8\x1b%G", ""},
		{"a very long sequence", "\x1b[" + strings.Repeat("1;", 3000) + "?25l", ""},
		{"cancelled", "\x1b[?25\x18l", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var whole modes
			whole.feed([]byte(c.out))
			if got := string(whole.undo(false)); got != c.undo {
				t.Errorf("undo %q, want %q", got, c.undo)
			}
			var cut modes
			for i := range c.out {
				cut.feed([]byte{c.out[i]})
			}
			if got := string(cut.undo(false)); got != c.undo {
				t.Errorf("byte by byte: undo %q, want %q", got, c.undo)
			}
			if again := whole; true {
				again.feed(again.undo(false))
				if rest := again.undo(false); len(rest) > 0 {
					t.Errorf("after the undoing %q is left to undo", rest)
				}
			}
		})
	}
}

func TestModesChangedIsRare(t *testing.T) {
	var m modes
	if m.feed([]byte("\x1b[?2026h\x1b[?25l\x1b[1;31mframe\x1b[0m\x1b[?25h\x1b[?2026l")) {
		t.Error("what is switched with every frame counts as a change")
	}
	if !m.feed([]byte("\x1b[?1049h")) {
		t.Error("the alternate screen does not")
	}
	if got := string(m.undo(true)); got != "\x1b[?1049l\x1b[?25h\x1b[0m" {
		t.Errorf("undo for the worst case: %q", got)
	}
}

func TestKeysBetween(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		typed        string
		now, shortly bool
	}{
		{"a", true, true},
		{"\x1b[A", true, true},
		{"\x1bOA", true, true},
		{"\x1b", false, true}, // the Escape key, as it turns out
		{"\x1b[1;", false, true},
		{"\x1bO", false, true},
		{"\x1b]11;rgb:ff", false, true},
		{"\x1b[200~half a paste", false, false},
		{"\x1b[200~a paste\x1b[201~", true, true},
		{"\x1b[?62;c", true, true},
		{"\xf0\x9f\x91", true, true},
	} {
		var k keys
		k.feed([]byte(c.typed), now)
		if got := k.between(now); got != c.now {
			t.Errorf("%q at once: %v", c.typed, got)
		}
		k = keys{}
		k.feed([]byte(c.typed), now)
		if got := k.between(now.Add(60 * time.Millisecond)); got != c.shortly {
			t.Errorf("%q a little later: %v", c.typed, got)
		}
		k = keys{}
		k.feed([]byte(c.typed), now)
		if !k.between(now.Add(2 * time.Second)) {
			t.Errorf("%q blocks for ever", c.typed)
		}
	}
}

func FuzzModes(f *testing.F) {
	f.Add([]byte("\x1b[?1049h\x1b[>1u\x1b]8;;x\x07\x1b[1;2;3m"), 3)
	f.Add([]byte("\x1b\x1b[\x18\x1a\x1bP\x1b\\\x1b_\x9b"), 1)
	f.Fuzz(func(t *testing.T, b []byte, cut int) {
		var whole, parts modes
		whole.feed(b)
		if cut < 0 || cut > len(b) {
			cut = len(b) / 2
		}
		parts.feed(b[:cut])
		parts.feed(b[cut:])
		// What is kept of an unfinished sequence may differ in what it was before.
		if w, p := string(whole.undo(true)), string(parts.undo(true)); w != p {
			t.Errorf("cut at %d: %q, whole: %q", cut, p, w)
		}
		whole.feed(whole.undo(false))
		if rest := whole.undo(false); len(rest) > 0 {
			t.Errorf("after the undoing %q is left", rest)
		}
	})
}

func BenchmarkModes(b *testing.B) {
	plain := []byte(strings.Repeat("a line of plain output of some length, as a build prints it\r\n", 1000))
	tui := []byte(strings.Repeat("\x1b[38;5;12m\x1b[1mword\x1b[0m \x1b[2K\x1b[1G", 2000))
	for _, c := range []struct {
		name string
		in   []byte
	}{{"plain", plain}, {"tui", tui}} {
		b.Run(c.name, func(b *testing.B) {
			var m modes
			b.SetBytes(int64(len(c.in)))
			b.ReportAllocs()
			for b.Loop() {
				m.feed(c.in)
			}
		})
	}
}
