package event

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/bits"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// MaxDepth is the deepest nesting of arrays and objects that is read. No
// runtime's payload comes near it; it bounds the stack that a hostile one can
// claim.
const MaxDepth = 512

// Fault is what is wrong with a JSON text.
type Fault string

// The faults.
const (
	FaultSyntax    Fault = "syntax"    // not JSON, or more than one value
	FaultDuplicate Fault = "duplicate" // an object names a member twice: readers would differ on which one counts
	FaultUTF8      Fault = "utf8"      // a string holds bytes that are not UTF-8
	FaultDepth     Fault = "depth"     // nested deeper than MaxDepth
)

// SyntaxError says what is wrong with a JSON text, and where. It never quotes
// the text, which may hold secrets.
type SyntaxError struct {
	Fault  Fault
	Offset int // the byte at which it was found
	Detail string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("JSON %s error at byte %d: %s", e.Fault, e.Offset, e.Detail)
}

// ParseJSON reads exactly one JSON value into a tree of nil, bool, string,
// json.Number, []any and map[string]any. Numbers keep their spelling.
//
// It is strict where readers differ: duplicate member names, bytes that are
// not UTF-8, anything after the value and nesting beyond MaxDepth are refused
// with a *SyntaxError. One thing is mended instead, since runtimes that cut
// text by UTF-16 units do write it: an escaped lone surrogate (\ud83d with no
// partner) reads as U+FFFD.
//
// The tree does not alias raw. Time and memory are linear in raw.
func ParseJSON(raw []byte) (any, error) {
	s := newScanner(raw)
	defer s.free()
	if len(raw) <= sharedLimit {
		s.text = string(raw)
	} else {
		s.names = new([32]string)
	}
	v, ok := s.value(0)
	if ok {
		ok = s.end()
	}
	if !ok {
		return nil, s.err
	}
	return v, nil
}

// ParseObject is ParseJSON for a text that must be an object.
func ParseObject(raw []byte) (map[string]any, error) {
	v, err := ParseJSON(raw)
	if err != nil {
		return nil, err
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, &SyntaxError{FaultSyntax, 0, "want an object"}
	}
	return m, nil
}

// OneLine gives a valid JSON text without its line breaks, which can only
// stand between tokens: the form that a line of JSONL or of SSE needs. A text
// without any is returned as it is.
func OneLine(raw []byte) []byte {
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return raw
	}
	out := make([]byte, 0, len(raw))
	for _, c := range raw {
		if c != '\n' && c != '\r' {
			out = append(out, c)
		}
	}
	return out
}

// sharedLimit is the size up to which a tree's strings are cut from one copy
// of the text. Above it each string is its own, so that a caller who remembers
// an id does not keep a 50 MB payload alive.
const sharedLimit = 2 << 10

// scanner reads one JSON text. Its methods report failure by false, with err
// set.
type scanner struct {
	b    []byte
	i    int
	text string // b as a string, or "" when strings are copied one by one
	err  *SyntaxError
	deep int // a bound on nesting below MaxDepth; 0 is none

	members []member    // a stack: the members of the objects and arrays that are open
	spans   [][]byte    // the names of the objects that skip is inside of
	used    int         // how deep the two stacks were at most
	names   *[32]string // recently seen member names of a big text, to share them
}

type member struct {
	name  string
	value any
	at    int
}

// scanners keeps the stacks of scanners for those to come.
var scanners = sync.Pool{New: func() any {
	return &scanner{members: make([]member, 0, 64), spans: make([][]byte, 0, 64)}
}}

func newScanner(raw []byte) *scanner {
	s := scanners.Get().(*scanner)
	s.b = raw
	return s
}

func (s *scanner) deepest() int {
	if s.deep > 0 {
		return s.deep
	}
	return MaxDepth
}

// free gives the stacks back, without what they held: it may be secret, and
// big.
func (s *scanner) free() {
	members, spans := s.members[:cap(s.members)], s.spans[:cap(s.spans)]
	if len(members) > 256 || len(spans) > 256 {
		return
	}
	clear(members[:min(s.used, len(members))])
	clear(spans[:min(s.used, len(spans))])
	*s = scanner{members: members[:0], spans: spans[:0]}
	scanners.Put(s)
}

func (s *scanner) fail(f Fault, at int, detail string) bool {
	if s.err == nil {
		s.err = &SyntaxError{f, at, detail}
	}
	return false
}

// space skips white space and gives the byte that follows, or 0 at the end.
func (s *scanner) space() byte {
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
			s.i++
		default:
			return c
		}
	}
	return 0
}

// end fails unless only white space is left.
func (s *scanner) end() bool {
	if s.space(); s.i < len(s.b) {
		return s.fail(FaultSyntax, s.i, "something follows the value")
	}
	return true
}

// unexpected fails at the present byte; want says what should stand there.
func (s *scanner) unexpected(want string) bool {
	switch {
	case s.i >= len(s.b):
		return s.fail(FaultSyntax, s.i, "the text ends where it wants "+want)
	case bytes.HasPrefix(s.b[s.i:], []byte("\xef\xbb\xbf")):
		return s.fail(FaultSyntax, s.i, "a byte order mark where it wants "+want)
	}
	return s.fail(FaultSyntax, s.i, fmt.Sprintf("%q where it wants %s", s.b[s.i], want))
}

// value reads any value into a tree.
func (s *scanner) value(depth int) (any, bool) {
	switch c := s.space(); {
	case c == '"':
		raw, escaped, ok := s.str()
		if !ok {
			return nil, false
		}
		return s.string(raw, escaped), true
	case c == '{':
		return s.object(depth + 1)
	case c == '[':
		return s.array(depth + 1)
	case c == '-' || c >= '0' && c <= '9':
		start := s.i
		if !s.number() {
			return nil, false
		}
		if s.text != "" {
			return json.Number(s.text[start:s.i]), true
		}
		return json.Number(s.b[start:s.i]), true
	case c == 't' && s.literal("true"):
		return true, true
	case c == 'f' && s.literal("false"):
		return false, true
	case c == 'n' && s.literal("null"):
		return nil, true
	}
	return nil, s.unexpected("a value")
}

func (s *scanner) object(depth int) (any, bool) {
	if depth > s.deepest() {
		return nil, s.fail(FaultDepth, s.i, fmt.Sprintf("nested deeper than %d", s.deepest()))
	}
	s.i++
	base := len(s.members)
	for first := true; ; first = false {
		if c := s.space(); first && c == '}' {
			break
		} else if c != '"' {
			return nil, s.unexpected("a member's name")
		}
		at := s.i
		raw, escaped, ok := s.str()
		if !ok {
			return nil, false
		}
		name := s.name(raw, escaped)
		if s.space() != ':' {
			return nil, s.unexpected("':'")
		}
		s.i++
		v, ok := s.value(depth)
		if !ok {
			return nil, false
		}
		s.members = append(s.members, member{name, v, at})
		s.used = max(s.used, len(s.members))
		if c := s.space(); c == ',' {
			s.i++
		} else if c == '}' {
			break
		} else {
			return nil, s.unexpected("',' or '}'")
		}
	}
	s.i++
	own := s.members[base:]
	m := make(map[string]any, len(own))
	for i := range own {
		m[own[i].name] = own[i].value
	}
	if len(m) != len(own) {
		return nil, s.twice(own)
	}
	s.members = s.members[:base]
	return m, true
}

// twice fails at the second of two members of one name.
func (s *scanner) twice(own []member) bool {
	seen := make(map[string]bool, len(own))
	for _, m := range own {
		if seen[m.name] {
			return s.fail(FaultDuplicate, m.at, "a member's name stands twice in one object")
		}
		seen[m.name] = true
	}
	panic("unreachable: no member stands twice")
}

func (s *scanner) array(depth int) (any, bool) {
	if depth > s.deepest() {
		return nil, s.fail(FaultDepth, s.i, fmt.Sprintf("nested deeper than %d", s.deepest()))
	}
	s.i++
	base := len(s.members)
	if s.space() == ']' {
		s.i++
		return []any{}, true
	}
	for {
		v, ok := s.value(depth)
		if !ok {
			return nil, false
		}
		s.members = append(s.members, member{value: v})
		s.used = max(s.used, len(s.members))
		if c := s.space(); c == ',' {
			s.i++
		} else if c == ']' {
			s.i++
			break
		} else {
			return nil, s.unexpected("',' or ']'")
		}
	}
	own := s.members[base:]
	a := make([]any, len(own))
	for i := range own {
		a[i] = own[i].value
	}
	s.members = s.members[:base]
	return a, true
}

func (s *scanner) literal(word string) bool {
	if len(s.b)-s.i >= len(word) && string(s.b[s.i:s.i+len(word)]) == word {
		s.i += len(word)
		return true
	}
	return false
}

// number scans a number of RFC 8259's grammar.
func (s *scanner) number() bool {
	digits := func() bool {
		start := s.i
		for s.i < len(s.b) && s.b[s.i]-'0' <= 9 {
			s.i++
		}
		return s.i > start || s.unexpected("a digit")
	}
	if s.b[s.i] == '-' {
		s.i++
	}
	if s.i < len(s.b) && s.b[s.i] == '0' {
		s.i++
	} else if !digits() {
		return false
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if !digits() {
			return false
		}
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		return digits()
	}
	return true
}

// plain marks the bytes that stand for themselves in a string and need no
// second look.
var plain = func() (t [256]bool) {
	for c := 0x20; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// plainRun is how many bytes at the start of b are plain for sure: it looks at
// eight at once, and stops in the last ones.
func plainRun(b []byte) int {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	for i := 0; len(b)-i >= 8; i += 8 {
		w := binary.LittleEndian.Uint64(b[i:])
		quote, slash := w^('"'*ones), w^('\\'*ones)
		// A byte's high bit is set where it is not plain; above the first
		// such byte the bits mean nothing.
		if hit := ((w-0x20*ones)&^w | (quote-ones)&^quote | (slash-ones)&^slash | w) & highs; hit != 0 {
			return i + bits.TrailingZeros64(hit)/8
		}
	}
	return len(b) &^ 7
}

// str scans the string that begins at the present quote: raw is what stands
// between the quotes, escaped whether it holds a backslash.
func (s *scanner) str() (raw []byte, escaped, ok bool) {
	start := s.i + 1
	ascii := true
	for i := start; i < len(s.b); i++ {
		if ascii {
			if i += plainRun(s.b[i:]); i >= len(s.b) {
				break
			}
		}
		c := s.b[i]
		if plain[c] {
			continue
		}
		switch {
		case c == '"':
			s.i = i + 1
			raw = s.b[start:i]
			if !ascii && !utf8.Valid(raw) {
				at := start
				for r, n := rune(0), 0; ; at += n {
					if r, n = utf8.DecodeRune(s.b[at:i]); r == utf8.RuneError && n == 1 {
						break
					}
				}
				return nil, false, s.fail(FaultUTF8, at, "a string that is not UTF-8")
			}
			return raw, escaped, true
		case c == '\\':
			escaped = true
			i++
			if i >= len(s.b) {
				break
			}
			switch s.b[i] {
			case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
			case 'u':
				if len(s.b)-i < 5 {
					i = len(s.b)
				} else if hex4(s.b[i+1:]) < 0 {
					return nil, false, s.fail(FaultSyntax, i-1, `\u wants four hex digits`)
				} else {
					i += 4
				}
			default:
				return nil, false, s.fail(FaultSyntax, i-1, "an escape that JSON does not have")
			}
		case c < 0x20:
			return nil, false, s.fail(FaultSyntax, i, "a control character in a string")
		default:
			ascii = false
		}
	}
	return nil, false, s.fail(FaultSyntax, len(s.b), "the text ends inside a string")
}

// string makes the string of scanned raw bytes.
func (s *scanner) string(raw []byte, escaped bool) string {
	switch {
	case escaped:
		return string(unquote(raw))
	case s.text != "" && len(raw) > 0:
		at := cap(s.b) - cap(raw) // raw is a slice of b
		return s.text[at : at+len(raw)]
	}
	return string(raw)
}

// name is string for a member's name: in a big text the same few names come
// again and again.
func (s *scanner) name(raw []byte, escaped bool) string {
	if escaped || s.names == nil || len(raw) == 0 || len(raw) > 32 {
		return s.string(raw, escaped)
	}
	slot := &s.names[(int(raw[0])+7*int(raw[len(raw)-1])+len(raw))%len(s.names)]
	if *slot != string(raw) {
		*slot = string(raw)
	}
	return *slot
}

// hex4 reads four hex digits; -1 when they are not.
func hex4(b []byte) rune {
	var r rune
	for _, c := range b[:4] {
		switch {
		case c-'0' <= 9:
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return -1
		}
	}
	return r
}

// unquote resolves the escapes of a scanned string. A lone surrogate becomes
// U+FFFD.
func unquote(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return append(out, raw...)
		}
		out = append(out, raw[:i]...)
		c := raw[i+1]
		raw = raw[i+2:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r := hex4(raw)
			raw = raw[4:]
			if utf16.IsSurrogate(r) {
				pair := utf8.RuneError
				if len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' {
					pair = utf16.DecodeRune(r, hex4(raw[2:]))
				}
				if r = pair; r != utf8.RuneError {
					raw = raw[6:]
				}
			}
			out = utf8.AppendRune(out, r)
			continue
		}
		out = append(out, c)
	}
}

// loneSurrogate says whether a scanned string holds an escaped surrogate
// without its partner.
func loneSurrogate(raw []byte) bool {
	for {
		i := bytes.IndexByte(raw, '\\')
		if i < 0 {
			return false
		}
		if raw[i+1] != 'u' {
			raw = raw[i+2:]
			continue
		}
		r := hex4(raw[i+2:])
		raw = raw[i+6:]
		if !utf16.IsSurrogate(r) {
			continue
		}
		if len(raw) < 6 || raw[0] != '\\' || raw[1] != 'u' || utf16.DecodeRune(r, hex4(raw[2:])) == utf8.RuneError {
			return true
		}
		raw = raw[6:]
	}
}

// skip reads any value as strictly as value does, and builds nothing.
func (s *scanner) skip(depth int) bool {
	switch c := s.space(); {
	case c == '"':
		_, _, ok := s.str()
		return ok
	case c == '{':
		return s.skipObject(depth + 1)
	case c == '[':
		return s.skipArray(depth + 1)
	case c == '-' || c >= '0' && c <= '9':
		return s.number()
	case c == 't' && s.literal("true"), c == 'f' && s.literal("false"), c == 'n' && s.literal("null"):
		return true
	}
	return s.unexpected("a value")
}

func (s *scanner) skipObject(depth int) bool {
	if depth > s.deepest() {
		return s.fail(FaultDepth, s.i, fmt.Sprintf("nested deeper than %d", s.deepest()))
	}
	s.i++
	if s.space() == '}' {
		s.i++
		return true
	}
	base := len(s.spans)
	var many map[string]struct{} // the names, once there are too many to walk
	for {
		if s.space() != '"' {
			return s.unexpected("a member's name")
		}
		at := s.i
		raw, escaped, ok := s.str()
		if !ok {
			return false
		}
		if escaped {
			raw = unquote(raw)
		}
		if many == nil {
			for _, sp := range s.spans[base:] {
				if string(sp) == string(raw) {
					return s.fail(FaultDuplicate, at, "a member's name stands twice in one object")
				}
			}
			s.spans = append(s.spans, raw)
			s.used = max(s.used, len(s.spans))
			if len(s.spans)-base == 32 {
				many = make(map[string]struct{}, 128)
				for _, sp := range s.spans[base:] {
					many[string(sp)] = struct{}{}
				}
			}
		} else {
			if _, twice := many[string(raw)]; twice {
				return s.fail(FaultDuplicate, at, "a member's name stands twice in one object")
			}
			many[string(raw)] = struct{}{}
		}
		if s.space() != ':' {
			return s.unexpected("':'")
		}
		s.i++
		if !s.skip(depth) {
			return false
		}
		if c := s.space(); c == ',' {
			s.i++
		} else if c == '}' {
			s.i++
			s.spans = s.spans[:base]
			return true
		} else {
			return s.unexpected("',' or '}'")
		}
	}
}

func (s *scanner) skipArray(depth int) bool {
	if depth > s.deepest() {
		return s.fail(FaultDepth, s.i, fmt.Sprintf("nested deeper than %d", s.deepest()))
	}
	s.i++
	if s.space() == ']' {
		s.i++
		return true
	}
	for {
		if !s.skip(depth) {
			return false
		}
		if c := s.space(); c == ',' {
			s.i++
		} else if c == ']' {
			s.i++
			return true
		} else {
			return s.unexpected("',' or ']'")
		}
	}
}
