package jsonl

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// Head is what a sink needs to know of a logged line: the envelope's
// attributes that tell where the event belongs.
type Head struct {
	ID, Type, Agent, Session, Severity string

	Epoch, Seq int64
	Sequenced  bool // seq is there
}

// Foreign says that an event is about a session that its sender does not own:
// a command, or a router's word. Such lines may stand in a log, but they are
// not the session's own to send.
func (h *Head) Foreign() bool { return h.Session != "" && !h.Sequenced }

// ReadHead reads a line's top-level members without building the rest. It
// says false for a line that is no JSON object, and is not meant to find every
// fault: whoever takes the line in does that.
func ReadHead(line []byte) (h Head, ok bool) {
	s := scanner{b: line}
	s.space()
	if !s.take('{') {
		return h, false
	}
	s.space()
	if s.take('}') {
		s.space()
		return h, s.i == len(s.b)
	}
	for {
		s.space()
		name, ok := s.string()
		if s.space(); !ok || !s.take(':') {
			return h, false
		}
		s.space()
		from := s.i
		if !s.value() {
			return h, false
		}
		v := s.b[from:s.i]
		switch string(name) {
		case `"id"`:
			h.ID = text(v)
		case `"type"`:
			h.Type = text(v)
		case `"agent"`:
			h.Agent = text(v)
		case `"session"`:
			h.Session = text(v)
		case `"severity"`:
			h.Severity = text(v)
		case `"epoch"`:
			h.Epoch, _ = strconv.ParseInt(string(v), 10, 64)
		case `"seq"`:
			var err error
			h.Seq, err = strconv.ParseInt(string(v), 10, 64)
			h.Sequenced = err == nil
		}
		s.space()
		if s.take(',') {
			continue
		}
		if !s.take('}') {
			return h, false
		}
		s.space()
		return h, s.i == len(s.b)
	}
}

func text(v []byte) string {
	if len(v) < 2 || v[0] != '"' {
		return ""
	}
	if bytes.IndexByte(v, '\\') < 0 {
		return string(v[1 : len(v)-1])
	}
	var s string
	_ = json.Unmarshal(v, &s)
	return s
}

type scanner struct {
	b []byte
	i int
}

func (s *scanner) space() {
	for s.i < len(s.b) && (s.b[s.i] == ' ' || s.b[s.i] == '\t' || s.b[s.i] == '\r' || s.b[s.i] == '\n') {
		s.i++
	}
}

func (s *scanner) take(c byte) bool {
	if s.i < len(s.b) && s.b[s.i] == c {
		s.i++
		return true
	}
	return false
}

// string passes over a string and gives it with its quotes.
func (s *scanner) string() ([]byte, bool) {
	from := s.i
	if !s.take('"') {
		return nil, false
	}
	for {
		n := bytes.IndexByte(s.b[s.i:], '"')
		if n < 0 {
			return nil, false
		}
		end := s.i + n
		s.i = end + 1
		slashes := 0
		for end-1-slashes > from && s.b[end-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return s.b[from:s.i], true
		}
	}
}

// value passes over any value, objects and arrays by counting their brackets.
func (s *scanner) value() bool {
	depth := 0
	for s.i < len(s.b) {
		switch c := s.b[s.i]; c {
		case '"':
			if _, ok := s.string(); !ok {
				return false
			}
		case '{', '[':
			depth++
			s.i++
			continue
		case '}', ']':
			if depth == 0 {
				return false
			}
			depth--
			s.i++
		case ',', ':', ' ', '\t', '\r', '\n':
			if depth == 0 {
				return false
			}
			s.i++
			continue
		default:
			for s.i < len(s.b) && bytes.IndexByte([]byte(",:]}[{\" \t\r\n"), s.b[s.i]) < 0 {
				s.i++
			}
		}
		if depth == 0 {
			return true
		}
	}
	return false
}
