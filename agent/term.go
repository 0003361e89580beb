package agent

import (
	"bytes"
	"strconv"
	"time"
)

// modes follows what an agent's output does to the terminal, so far as a
// killed agent would leave it behind: the alternate screen, mouse reports,
// keyboard protocols, a hidden cursor. It is told every byte and looks at few:
// those of escape sequences. It is used for one thing, the undoing; events are
// never read from a screen.
type modes struct {
	p       parser
	private [len(privateModes)]bool // away from the default
	insert  bool
	alt     int    // the number that the alternate screen was entered by, or 0
	kitty   [2]int // keyboard flags pushed, on the main and the alternate screen
	kittyOn [2]bool
	other   bool // modifyOtherKeys
	keypad  bool
	margins bool
	charset bool // G0 holds another than ASCII
	style   bool // of the cursor
	titles  int
	busy    bool // the taskbar's progress
	link    bool
	colour  bool // any rendition but the plain one
}

// privateModes are those of `CSI ? n h` and `l` that outlive a program, with
// what a terminal starts with. quick are those that programs switch with every
// frame that they draw.
var privateModes = [...]struct {
	n         int
	on, quick bool
}{
	{n: 1},                         // application cursor keys
	{n: 5},                         // reverse video
	{n: 6},                         // origin
	{n: 7, on: true},               // wrap at the margin
	{n: 9},                         // mouse: X10
	{n: 12},                        // cursor: blink
	{n: 45},                        // reverse wrap
	{n: 66},                        // application keypad
	{n: 69},                        // left and right margins
	{n: 1000},                      // mouse: buttons
	{n: 1001},                      // mouse: highlights
	{n: 1002},                      // mouse: drags
	{n: 1003},                      // mouse: all motion
	{n: 1004},                      // focus
	{n: 1005},                      // mouse: UTF-8
	{n: 1006},                      // mouse: SGR
	{n: 1007},                      // wheel as cursor keys
	{n: 1015},                      // mouse: urxvt
	{n: 1016},                      // mouse: pixels
	{n: 2004},                      // bracketed paste
	{n: 2027},                      // grapheme clusters
	{n: 2031},                      // colour scheme reports
	{n: 2048},                      // size reports
	{n: 9001},                      // win32 input
	{n: 2026, quick: true},         // synchronised output
	{n: 25, on: true, quick: true}, // cursor
}

// feed takes the next bytes, cut anywhere. It says whether something changed
// that is not switched all the time.
func (m *modes) feed(b []byte) (changed bool) {
	for len(b) > 0 {
		if m.p.state == ground {
			i := bytes.IndexByte(b, 0x1b)
			if i < 0 {
				return changed
			}
			b = b[i:]
		}
		n, seq := m.p.next(b)
		b = b[n:]
		switch seq {
		case seqEsc:
			changed = m.esc() || changed
		case seqCSI:
			changed = m.csi() || changed
		case seqOSC:
			changed = m.osc() || changed
		}
	}
	return changed
}

func (m *modes) esc() bool {
	switch text := string(m.p.text()); text {
	case "=", ">":
		m.keypad = text == "="
	case "c":
		*m = modes{}
	case "n", "o", "N", "O", "7", "8", "M", "D", "E", "H", "\\":
		return false
	default:
		if len(text) != 2 || text[0] != '(' {
			return false
		}
		m.charset = text[1] != 'B'
	}
	return true
}

func (m *modes) screen() int {
	if m.alt != 0 {
		return 1
	}
	return 0
}

func (m *modes) csi() bool {
	text := m.p.text()
	if len(text) == 0 {
		return false
	}
	final, body := text[len(text)-1], text[:len(text)-1]
	var intro byte
	if len(body) > 0 && body[0] >= '<' && body[0] <= '?' {
		intro, body = body[0], body[1:]
	}
	switch string([]byte{intro, final}) {
	case "?h", "?l":
		return m.setPrivate(body, final == 'h')
	case "\x00h", "\x00l":
		if string(body) == "4" {
			m.insert = final == 'h'
			return true
		}
	case ">u":
		m.kitty[m.screen()]++
		return true
	case "<u":
		s := m.screen()
		m.kitty[s] = max(0, m.kitty[s]-number(body, 1))
		return true
	case "=u":
		flags, how, _ := bytes.Cut(body, []byte(";"))
		if string(how) != "3" { // 3 takes flags away
			m.kittyOn[m.screen()] = number(flags, 0) != 0
		}
		return true
	case ">m":
		res, value, _ := bytes.Cut(body, []byte(";"))
		if string(res) == "4" {
			m.other = number(value, 0) > 0
			return true
		}
	case ">n":
		m.other = m.other && string(body) != "4"
		return true
	case "\x00m":
		m.colour = len(body) > 0 && string(body) != "0"
	case "\x00r":
		m.margins = len(body) > 0
		return true
	case "\x00q":
		if style, ok := bytes.CutSuffix(body, []byte(" ")); ok {
			m.style = number(style, 0) != 0
			return true
		}
	case "\x00p":
		if string(body) == "!" { // a soft reset
			m.insert, m.keypad, m.margins, m.charset, m.colour = false, false, false, false, false
			for i := range privateModes {
				switch privateModes[i].n {
				case 1, 6, 25, 66:
					m.private[i] = false
				}
			}
			return true
		}
	case "\x00t":
		switch op, _, _ := bytes.Cut(body, []byte(";")); string(op) {
		case "22":
			m.titles++
			return true
		case "23":
			m.titles = max(0, m.titles-1)
			return true
		}
	}
	return false
}

func (m *modes) setPrivate(body []byte, on bool) (changed bool) {
	for part := range bytes.SplitSeq(body, []byte(";")) {
		switch n := number(part, -1); n {
		case 47, 1047, 1049:
			if m.alt = 0; on {
				m.alt = n
			}
			changed = true
		default:
			for i := range privateModes {
				if privateModes[i].n == n {
					m.private[i] = on != privateModes[i].on
					changed = changed || !privateModes[i].quick
				}
			}
		}
	}
	return changed
}

func (m *modes) osc() bool {
	kind, rest, _ := bytes.Cut(m.p.text(), []byte(";"))
	switch string(kind) {
	case "8":
		_, uri, _ := bytes.Cut(rest, []byte(";"))
		m.link = len(uri) > 0
	case "9":
		if progress, ok := bytes.CutPrefix(rest, []byte("4;")); ok {
			m.busy = len(progress) > 0 && progress[0] != '0'
			return true
		}
	}
	return false
}

// number reads the decimal at the start of b, def where it is empty.
func number(b []byte, def int) int {
	n, any := 0, false
	for _, c := range b {
		if c < '0' || c > '9' || n > 1e6 {
			break
		}
		n, any = n*10+int(c-'0'), true
	}
	if !any {
		return def
	}
	return n
}

// undo is what to write to the terminal to have it as the agent found it. With
// nothing to undo it is empty, unless always asks for what is never wrong: the
// cursor and plain text.
func (m *modes) undo(always bool) []byte {
	var b []byte
	add := func(when bool, s string) {
		if when {
			b = append(b, s...)
		}
	}
	add(m.p.state != ground, "\x18") // CAN ends a sequence that was cut short, without carrying it out
	add(m.link, "\x1b]8;;\x1b\\")
	keyboard := func(screen int) {
		add(m.kittyOn[screen], "\x1b[=0u")
		add(m.kitty[screen] > 0, "\x1b[<"+strconv.Itoa(m.kitty[screen])+"u")
	}
	if m.alt != 0 {
		keyboard(1)
		add(true, "\x1b[?"+strconv.Itoa(m.alt)+"l")
	}
	keyboard(0)
	for i, on := range m.private {
		mode := privateModes[i]
		switch {
		case on && mode.on:
			add(true, "\x1b[?"+strconv.Itoa(mode.n)+"h")
		case on:
			add(true, "\x1b[?"+strconv.Itoa(mode.n)+"l")
		case mode.n == 25:
			add(always, "\x1b[?25h")
		}
	}
	add(m.insert, "\x1b[4l")
	add(m.other, "\x1b[>4m")
	add(m.keypad, "\x1b>")
	add(m.margins, "\x1b7\x1b[r\x1b8")
	add(m.charset, "\x0f\x1b(B")
	add(m.style, "\x1b[0 q")
	for range min(m.titles, 10) {
		add(true, "\x1b[23;0t")
	}
	add(m.busy, "\x1b]9;4;0\x1b\\")
	add(m.colour || always, "\x1b[0m")
	return b
}

// parser finds the escape sequences of a terminal's language in a stream that
// is cut anywhere. It keeps the beginning of one; of a longer one, a picture
// say, it knows where it ends.
type parser struct {
	state state
	buf   [64]byte
	n     int
}

type state uint8

const (
	ground state = iota
	escape
	csi    // CSI
	single // SS3: one byte follows
	osc
	text   // DCS, SOS, PM, APC: up to ST
	oscEsc // an ESC within: ST, or the next sequence
	textEsc
)

type sequence uint8

const (
	seqNone sequence = iota
	seqEsc
	seqCSI
	seqOSC
	seqOther
)

func (p *parser) text() []byte { return p.buf[:p.n] }

func (p *parser) keep(c byte) {
	if p.n < len(p.buf) {
		p.buf[p.n] = c
		p.n++
	}
}

// next takes bytes up to the end of a sequence, or all of them. The sequence's
// text is without its introducer, and holds until the next call.
func (p *parser) next(b []byte) (n int, _ sequence) {
	for i := 0; i < len(b); i++ {
		c := b[i]
		if c == 0x18 || c == 0x1a { // CAN, SUB
			p.state = ground
			continue
		}
		switch p.state {
		case ground:
			if c != 0x1b {
				j := bytes.IndexByte(b[i:], 0x1b)
				if j < 0 {
					return len(b), seqNone
				}
				i += j
			}
			p.state, p.n = escape, 0
		case escape:
			switch {
			case c == 0x1b:
				p.n = 0
			case c < 0x20: // a control within a sequence is carried out, the sequence goes on
			case p.n == 0 && c == '[':
				p.state = csi
			case p.n == 0 && c == ']':
				p.state = osc
			case p.n == 0 && (c == 'P' || c == 'X' || c == '^' || c == '_'):
				p.state = text
			case c < 0x30:
				p.keep(c)
			default:
				p.keep(c)
				p.state = ground
				return i + 1, seqEsc
			}
		case csi:
			switch {
			case c == 0x1b:
				p.state, p.n = escape, 0
			case c < 0x20:
			case c >= 0x40 && c <= 0x7e:
				over := p.n == len(p.buf)
				p.keep(c)
				p.state = ground
				if over {
					return i + 1, seqOther
				}
				return i + 1, seqCSI
			default:
				p.keep(c)
			}
		case single:
			p.keep(c)
			p.state = ground
			return i + 1, seqOther
		case osc, text:
			switch {
			case c == 0x07 && p.state == osc:
				p.state = ground
				return i + 1, seqOSC
			case c == 0x1b:
				p.state += oscEsc - osc
			default:
				p.keep(c)
			}
		case oscEsc, textEsc:
			was := p.state
			if c == '\\' {
				p.state = ground
				if was == oscEsc {
					return i + 1, seqOSC
				}
				return i + 1, seqOther
			}
			p.state, p.n = escape, 0 // an ESC that is not of ST begins anew
			i--
		}
	}
	return len(b), seqNone
}

// keys follows what the user, and the terminal on its own behalf, type, to
// know when something stands between two keys.
type keys struct {
	p     parser
	paste bool
	last  time.Time
}

func (k *keys) feed(b []byte, now time.Time) {
	k.last = now
	for len(b) > 0 {
		n, seq := k.p.next(b)
		b = b[n:]
		switch {
		case seq == seqCSI && string(k.p.text()) == "200~":
			k.paste = true
		case seq == seqCSI && string(k.p.text()) == "201~":
			k.paste = false
		case seq == seqEsc && string(k.p.text()) == "O": // SS3
			k.p.state, k.p.n = single, 0
		}
	}
}

// between says whether another key may be put in now. A lone ESC is the
// Escape key when nothing follows it for a while, and a paste that has stopped
// in its middle is given up for lost.
func (k *keys) between(now time.Time) bool {
	quiet := now.Sub(k.last)
	switch {
	case k.paste:
		return quiet > time.Second
	case k.p.state != ground:
		if quiet > 50*time.Millisecond {
			k.p.state = ground
			return true
		}
		return false
	}
	return true
}
