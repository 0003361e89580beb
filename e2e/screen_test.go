package e2e

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// screen is as much of a terminal as it takes to read what a person would see:
// a grid of characters, a cursor, clearing and scrolling. Colours, modes and
// widths are not its business.
type screen struct {
	rows, cols int
	cell       [][]rune
	y, x       int
	savedY     int
	savedX     int
	rest       []byte // an unfinished sequence or character
}

func newScreen(rows, cols int) *screen {
	s := &screen{rows: rows, cols: cols}
	s.clear()
	return s
}

func (s *screen) clear() {
	s.cell = make([][]rune, s.rows)
	for i := range s.cell {
		s.cell[i] = s.blank()
	}
}

func (s *screen) blank() []rune { return []rune(strings.Repeat(" ", s.cols)) }

// text is the screen as lines, without spaces at their ends.
func (s *screen) text() string {
	var b strings.Builder
	for _, row := range s.cell {
		b.WriteString(strings.TrimRight(string(row), " "))
		b.WriteByte('\n')
	}
	return b.String()
}

// Write feeds bytes of the agent to the screen.
func (s *screen) Write(p []byte) (int, error) {
	s.rest = append(s.rest, p...)
	for len(s.rest) > 0 {
		n := s.step(s.rest)
		if n == 0 {
			break
		}
		s.rest = s.rest[n:]
	}
	return len(p), nil
}

// step takes one character or sequence off b and gives its length, or 0 when
// it is not whole.
func (s *screen) step(b []byte) int {
	switch c := b[0]; {
	case c == 0x1b:
		return s.escape(b)
	case c == '\r':
		s.x = 0
	case c == '\n', c == 0x0b, c == 0x0c:
		s.down()
	case c == '\b':
		s.x = max(0, s.x-1)
	case c == '\t':
		s.x = min(s.cols-1, (s.x/8+1)*8)
	case c < 0x20 || c == 0x7f:
	default:
		if !utf8.FullRune(b) {
			return 0
		}
		r, n := utf8.DecodeRune(b)
		if s.x == s.cols {
			s.x = 0
			s.down()
		}
		s.cell[s.y][s.x] = r
		s.x++
		return n
	}
	return 1
}

func (s *screen) down() {
	if s.y < s.rows-1 {
		s.y++
		return
	}
	s.cell = append(s.cell[1:], s.blank())
}

func (s *screen) escape(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '[':
		for i := 2; i < len(b); i++ {
			if b[i] >= 0x40 && b[i] <= 0x7e {
				s.csi(string(b[2:i]), b[i])
				return i + 1
			}
		}
		return 0
	case ']', 'P', '_', '^': // strings, up to BEL or ST
		for i := 2; i < len(b); i++ {
			if b[i] == 0x07 {
				return i + 1
			}
			if b[i] == 0x1b && i+1 < len(b) && b[i+1] == '\\' {
				return i + 2
			}
		}
		return 0
	case '(', ')', '#', ' ':
		if len(b) < 3 {
			return 0
		}
		return 3
	case '7':
		s.savedY, s.savedX = s.y, s.x
	case '8':
		s.y, s.x = s.savedY, s.savedX
	case 'M':
		if s.y > 0 {
			s.y--
		}
	case 'c':
		s.clear()
		s.y, s.x = 0, 0
	}
	return 2
}

func (s *screen) csi(args string, final byte) {
	if strings.HasPrefix(args, "?") {
		if final == 'h' && (args == "?1049" || args == "?47") || final == 'l' && (args == "?1049" || args == "?47") {
			s.clear()
			s.y, s.x = 0, 0
		}
		return
	}
	if strings.ContainsAny(args, "<>=!\" $'") {
		return
	}
	parts := strings.Split(args, ";")
	num := func(i, def int) int {
		if i < len(parts) {
			if n, err := strconv.Atoi(parts[i]); err == nil && n > 0 {
				return n
			}
		}
		return def
	}
	at := min(s.x, s.cols-1)
	switch final {
	case 'A', 'F':
		s.y = max(0, s.y-num(0, 1))
	case 'B', 'E':
		s.y = min(s.rows-1, s.y+num(0, 1))
	case 'C':
		s.x = min(s.cols-1, s.x+num(0, 1))
	case 'D':
		s.x = max(0, s.x-num(0, 1))
	case 'G':
		s.x = min(s.cols, num(0, 1)) - 1
	case 'd':
		s.y = min(s.rows, num(0, 1)) - 1
	case 'H', 'f':
		s.y, s.x = min(s.rows, num(0, 1))-1, min(s.cols, num(1, 1))-1
	case 'J':
		switch num(0, 0) {
		case 0:
			s.erase(s.y, at, s.cols)
			for y := s.y + 1; y < s.rows; y++ {
				s.cell[y] = s.blank()
			}
		case 1:
			s.erase(s.y, 0, at+1)
			for y := range s.y {
				s.cell[y] = s.blank()
			}
		default:
			s.clear()
		}
	case 'K':
		switch num(0, 0) {
		case 0:
			s.erase(s.y, at, s.cols)
		case 1:
			s.erase(s.y, 0, at+1)
		default:
			s.erase(s.y, 0, s.cols)
		}
	case 'X':
		s.erase(s.y, at, min(s.cols, at+num(0, 1)))
	case 's':
		s.savedY, s.savedX = s.y, s.x
	case 'u':
		s.y, s.x = s.savedY, s.savedX
	}
	if final == 'E' || final == 'F' {
		s.x = 0
	}
}

func (s *screen) erase(y, from, to int) {
	for x := from; x < to; x++ {
		s.cell[y][x] = ' '
	}
}
