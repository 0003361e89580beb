package event

import (
	"crypto/sha256"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// What a Stream remembers at most. A longer stream is still held to all
// rules, but over that many facts back: what is forgotten is never held
// against an event.
const (
	streamFacts    = 1 << 20 // ids, terminals and acks: about 80 MB when all are used
	streamSessions = 1 << 14 // sessions
	streamRequests = 1 << 8  // attention requests of one session
)

// Stream holds the rules that only several events together can break:
//
//   - one (source, id) is one event; the same event again is redelivery, and
//     is judged once (AEP-0001 §7.4);
//   - positions rise within a session of a source, and an epoch never goes
//     back; gaps are legal (AEP-0001 §7.2);
//   - a run has at most one terminal and a session one session.ended, over
//     all epochs; late events after it are legal, and so is no terminal at all
//     (AEP-0002 §2);
//   - a command has at most one ack (AEP-0004 §3);
//   - pending attention requests are closed before session.ended (AEP-0002
//     §7.2);
//   - a form's answers fit its fields (AEP-0002 §5.3).
//
// Events are added in the order in which the stream has them. Memory is
// bounded. The zero Stream is not usable; a Stream is one goroutine's.
type Stream struct {
	facts    map[fact]fact // what was seen, by what it is about
	order    []fact        // facts' keys, as a ring: the oldest is forgotten first
	next     int
	sessions map[string]*sessionFacts
	queue    []string // the sessions, oldest first
	forgot   bool     // something was forgotten: an unknown id may be a redelivery
	limit    int      // streamFacts, less in tests
	buf      []byte
}

// fact is a hash: of what a fact is about, or of what it says.
type fact [16]byte

type sessionFacts struct {
	begun    bool
	high     Position
	requests map[string]*request
	asked    []string // the requests, oldest first
}

type request struct {
	open   bool
	fields []FormField
}

// NewStream is a stream of which nothing was seen yet.
func NewStream() *Stream {
	return &Stream{facts: make(map[fact]fact), sessions: make(map[string]*sessionFacts), limit: streamFacts}
}

// Add takes the stream's next event and says which rules it breaks together
// with those before it. It is for events that Parse let through.
func (s *Stream) Add(e Event) []Violation {
	c := checker{capture: e.Capture}
	content := s.content(&e)
	if before, seen := s.remember(s.about("id", e.Source, e.ID), content); seen {
		if before != content {
			c.add(RuleIdentity, "AEP-0001 §7.4", "id %s of source %s was another event before", quote(e.ID), quote(e.Source))
		}
		return c.found
	}
	if e.Session == "" {
		return nil
	}
	if ScopeOf(e.Type) == CommandScope {
		// Not the session's own event. Two senders may use one id.
		if Category(e.Type) != "attention" {
			s.commands(e.ID, 1)
		}
		return nil
	}
	session := s.session(e.Source, e.Session)
	s.position(&c, session, &e)
	self := s.about("self", e.Source, e.ID)
	switch e.Type {
	case "run.finished", "run.failed", "run.cancelled":
		if e.Run == "" {
			break
		}
		if first, twice := s.remember(s.about("run", e.Source, e.Session, e.Run), self); twice && first != self {
			c.add(RuleTerminal, "AEP-0002 §2", "run %s has a second terminal: %s", quote(e.Run), e.Type)
		}
	case "session.ended":
		if first, twice := s.remember(s.about("session", e.Source, e.Session), self); twice && first != self {
			c.add(RuleTerminal, "AEP-0002 §2", "session %s ended twice", quote(e.Session))
		}
		for _, id := range session.asked {
			if session.requests[id].open {
				c.add(RuleAttention, "AEP-0002 §7.2", "session %s ended before request %s was resolved or timed out", quote(e.Session), quote(id))
			}
		}
	case "control.accepted", "control.rejected":
		s.ack(&c, &e)
	case "attention.requested":
		session.ask(e.ID, formFields(e.Data))
	case "attention.answered":
		if r := session.requests[e.Subject]; r != nil && r.fields != nil {
			c.answers(r.fields, e.Data)
		}
	case "attention.resolved", "attention.timeout":
		if r := session.requests[e.Subject]; r != nil {
			r.open = false
		}
	}
	return c.found
}

// position holds the event to its session's order.
func (s *Stream) position(c *checker, session *sessionFacts, e *Event) {
	if !e.Sequenced {
		return
	}
	p, high := e.Position(), session.high
	if !session.begun || high.Less(p) {
		session.begun, session.high = true, p
		return
	}
	if s.forgot {
		return // it may be an event that was forgotten, once more
	}
	const section = "AEP-0001 §7.2"
	switch {
	case p == high:
		c.add(RulePosition, section, "position (epoch %d, seq %d) of session %s is another event's", p.Epoch, p.Seq, quote(e.Session))
	case p.Epoch < high.Epoch:
		c.add(RulePosition, section, "epoch %d of session %s is back behind %d", p.Epoch, quote(e.Session), high.Epoch)
	default:
		c.add(RulePosition, section, "seq %d of session %s is back behind %d within epoch %d", p.Seq, quote(e.Session), high.Seq, p.Epoch)
	}
}

// commands counts the commands of one id: by different senders there may be
// several.
func (s *Stream) commands(id string, more uint64) uint64 {
	key := s.about("command", id)
	n := s.facts[key]
	count := uint64(n[0]) | uint64(n[1])<<8
	if more > 0 && count < 1<<16-1 {
		count += more
		n[0], n[1] = byte(count), byte(count>>8)
		s.put(key, n)
	}
	return count
}

// ack holds a target to one ack for each command that it may mean.
func (s *Stream) ack(c *checker, e *Event) {
	if e.Cause == "" || s.forgot {
		return
	}
	key := s.about("ack", e.Source, e.Session, e.Cause)
	n := s.facts[key]
	if count := uint64(n[0]) | uint64(n[1])<<8; count >= max(1, s.commands(e.Cause, 0)) {
		c.add(RuleAck, "AEP-0004 §3", "command %s is acknowledged a second time, by %s; repeat the first ack instead", quote(e.Cause), e.Type)
		return
	}
	if n[0]++; n[0] == 0 {
		n[1]++
	}
	s.put(key, n)
}

// about is the key of a fact about something.
func (s *Stream) about(kind string, names ...string) fact {
	s.buf = append(s.buf[:0], kind...)
	for _, n := range names {
		s.buf = strconv.AppendInt(append(s.buf, 0), int64(len(n)), 36)
		s.buf = append(append(s.buf, ' '), n...)
	}
	return hashed(s.buf)
}

func hashed(b []byte) (f fact) {
	sum := sha256.Sum256(b)
	copy(f[:], sum[:])
	return f
}

// content is the hash of all that an event says, however it is spelt.
func (s *Stream) content(e *Event) fact {
	h := Event{Header: e.Header}
	s.buf = h.AppendJSON(s.buf[:0])
	s.buf = e.Time.UTC().AppendFormat(s.buf, time.RFC3339Nano)
	if e.Data != nil {
		if data, err := ParseJSON(e.Data); err == nil {
			w := writer{buf: s.buf, canonical: true}
			w.value(data)
			s.buf = w.buf
		} else {
			s.buf = append(s.buf, e.Data...)
		}
	}
	return hashed(s.buf)
}

// remember keeps what a fact says, unless it is known already.
func (s *Stream) remember(key, says fact) (before fact, known bool) {
	if before, known = s.facts[key]; known {
		return before, true
	}
	s.put(key, says)
	return says, false
}

func (s *Stream) put(key, says fact) {
	if _, known := s.facts[key]; !known {
		if len(s.order) < s.limit {
			s.order = append(s.order, key)
		} else {
			s.forgot = true
			delete(s.facts, s.order[s.next])
			s.order[s.next] = key
			s.next = (s.next + 1) % s.limit
		}
	}
	s.facts[key] = says
}

func (s *Stream) session(source, name string) *sessionFacts {
	key := source + "\x00" + name
	if f := s.sessions[key]; f != nil {
		return f
	}
	if len(s.queue) >= streamSessions {
		delete(s.sessions, s.queue[0])
		s.queue = s.queue[1:]
	}
	key = strings.Clone(key)
	f := &sessionFacts{}
	s.sessions[key] = f
	s.queue = append(s.queue, key)
	return f
}

func (f *sessionFacts) ask(id string, fields []FormField) {
	if f.requests == nil {
		f.requests = make(map[string]*request)
	}
	if len(f.asked) >= streamRequests {
		delete(f.requests, f.asked[0])
		f.asked = f.asked[1:]
	}
	id = strings.Clone(id)
	f.requests[id] = &request{open: true, fields: fields}
	f.asked = append(f.asked, id)
}

// formFields reads a request's form, as far as answers are held to it.
func formFields(data json.RawMessage) []FormField {
	members, err := ParseObject(data)
	if err != nil {
		return nil
	}
	list, _ := members["fields"].([]any)
	var fields []FormField
	for _, f := range list {
		f, _ := f.(map[string]any)
		var field FormField
		field.ID, _ = f["id"].(string)
		field.Type, _ = f["type"].(string)
		field.Multi, _ = f["multi"].(bool)
		field.Other, _ = f["other"].(bool)
		choices, _ := f["choices"].([]any)
		for _, ch := range choices {
			ch, _ := ch.(map[string]any)
			id, _ := ch["id"].(string)
			field.Choices = append(field.Choices, FormChoice{ID: id})
		}
		fields = append(fields, field)
	}
	return fields
}

// answers holds the values of an answer to the fields of its form.
func (c *checker) answers(fields []FormField, data json.RawMessage) {
	members, err := ParseObject(data)
	if err != nil {
		return
	}
	answer, _ := members["answer"].(map[string]any)
	values, _ := answer["values"].(map[string]any)
	for _, name := range sortedNames(values) {
		v := values[name]
		i := slices.IndexFunc(fields, func(f FormField) bool { return f.ID == name })
		if i < 0 {
			c.freeText(name, v)
			continue
		}
		if why := c.answer(&fields[i], v); why != "" {
			c.add(RuleAnswer, "AEP-0002 §5.3", "data.answer.values: %s %s", quote(name), why)
		}
	}
}

// answer says why a value is no answer to a field; "" when it is one.
func (c *checker) answer(f *FormField, v any) string {
	wrong := func(want string) string { return "is " + kindOf(v) + ", want " + want }
	switch f.Type {
	case "number":
		if !is(v, Number) {
			return wrong("a number")
		}
	case "boolean":
		if !is(v, Boolean) {
			return wrong("a boolean")
		}
	case "string":
		if !is(v, String) {
			return wrong("a string")
		}
		c.freeText(f.ID, v)
	case "select":
		chosen := []any{v}
		if list, ok := v.([]any); ok {
			if !f.Multi {
				return wrong("one choice")
			}
			chosen = list
		}
		for _, v := range chosen {
			id, ok := v.(string)
			if !ok {
				return "holds " + kindOf(v) + ", want a choice's id"
			}
			if slices.ContainsFunc(f.Choices, func(ch FormChoice) bool { return ch.ID == id }) {
				continue
			}
			if !f.Other {
				return "is none of the choices' ids, and the field takes no other answer"
			}
			c.freeText(f.ID, v)
		}
	}
	return ""
}

// freeText holds text in answers to the capture level.
func (c *checker) freeText(name string, v any) {
	if _, ok := v.(string); ok && c.capture < Redacted {
		c.add(RuleCapture, "AEP-0002 §5.3", "data.answer.values: %s is free text, for capture redacted and above", quote(name))
	}
}

func sortedNames(m map[string]any) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}
