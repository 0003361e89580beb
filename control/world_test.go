package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"aep-wrap/event"
	"aep-wrap/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var t0 = time.Date(2026, 7, 3, 10, 15, 0, 0, time.UTC)

// clock is a Clock that stands still until it is moved.
type clock struct {
	mu     sync.Mutex
	now    time.Time
	timers []*timer
}

type timer struct {
	at   time.Time
	f    func()
	gone bool
}

func (c *clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }

func (c *clock) After(d time.Duration, f func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{at: c.now.Add(d), f: f}
	c.timers = append(c.timers, t)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		first := !t.gone
		t.gone = true
		return first
	}
}

// move goes on by d, and runs what falls due, in order.
func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	c.now = c.now.Add(d)
	var due []*timer
	c.timers = slices.DeleteFunc(c.timers, func(t *timer) bool {
		if !t.gone && !t.at.After(c.now) {
			t.gone = true
			due = append(due, t)
		}
		return t.gone
	})
	c.mu.Unlock()
	slices.SortStableFunc(due, func(a, b *timer) int { return a.at.Compare(b.at) })
	for _, t := range due {
		t.f()
	}
}

// world is a launch: a road as the agent package builds it, in small, with a
// session of its own for each name, and the protocol's own rules held against
// all that goes on it.
type world struct {
	t testing.TB
	*clock
	*Dispatcher
	accepts []string
	policy  Policy

	mu       sync.Mutex
	stream   *event.Stream
	sessions map[string]*session.Session
	log      [][]byte // what a session's log holds, commands too
	events   []event.Event
	effects  []Effect
	full     bool // the road takes nothing
	deaf     bool // what the road takes is lost
}

const agent, host = "demo", "h"

func newWorld(t testing.TB, set ...func(*world)) *world {
	w := &world{t: t, clock: &clock{now: t0}, stream: event.NewStream(), sessions: map[string]*session.Session{},
		accepts: []string{Respond, Cancel, Pause, Resume, Instruct(agent), "x.demo.control.rewind"}}
	for _, fn := range set {
		fn(w)
	}
	w.start()
	return w
}

// start makes a dispatcher anew, as a restarted wrapper would, from the log.
func (w *world) start() {
	w.Dispatcher = New(Config{Vendor: agent, Accepts: w.accepts, Clock: Clock{w.Now, w.After}, Policy: w.policy,
		Emit: w.emit, Do: func(e Effect) { w.mu.Lock(); defer w.mu.Unlock(); w.effects = append(w.effects, e) }})
	w.sessions = map[string]*session.Session{}
}

func (w *world) session(name string) *session.Session {
	s := w.sessions[name]
	if s == nil {
		st := session.NewState()
		for _, line := range w.log {
			e, err := event.Parse(line)
			if err != nil {
				w.t.Fatalf("%s\n%v", line, err)
			}
			if e.Session == name {
				st.Fold(e)
				w.Fold(&e, line)
			}
		}
		s = session.New(session.Config{Agent: agent, Host: host, Session: name, Start: w.Now(), State: st})
		w.sessions[name] = s
		w.bound(s.Recover(w.Now()))
		w.bound(s.Bind(w.Now(), w.Recover(name)))
	}
	return s
}

func (w *world) emit(name string, command []byte, drafts []event.Draft) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.full:
		return errors.New("the road is full")
	case w.deaf:
		return nil
	}
	if command != nil {
		w.log = append(w.log, command)
		e, err := event.Parse(command)
		if err != nil {
			w.t.Fatalf("a command went on the road that is none: %s\n%v", command, err)
		}
		w.told(e)
	}
	w.bound(w.session(name).Bind(w.Now(), w.Before(name, drafts)))
	return nil
}

// tell puts drafts on the road as the agent's own moments.
func (w *world) tell(name string, drafts ...event.Draft) []event.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.bound(w.session(name).Bind(w.Now(), w.Before(name, drafts)))
}

// exit ends a session as the process's end does.
func (w *world) exit(name string, x session.Exit) []event.Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	x.By, x.Cause = w.Exit()
	s := w.session(name)
	return append(w.bound(s.Bind(w.Now(), w.Ending(name))), w.bound(s.Exit(w.Now(), x))...)
}

// bound seals what was bound.
func (w *world) bound(drafts []event.Draft) (out []event.Event) {
	for i := range drafts {
		e := seal(&drafts[i])
		line := e.AppendJSON(nil)
		w.Observe(&e, line)
		w.log = append(w.log, line)
		p, err := event.Parse(line)
		if err != nil {
			w.t.Fatalf("%s\n%v", line, err)
		}
		w.told(p)
		out = append(out, p)
	}
	return out
}

func (w *world) told(e event.Event) {
	found := w.stream.Add(e)
	if !IsCommand(e.Type) { // of a command, its sender is to blame
		found = append(found, event.Check(e)...)
	}
	for _, v := range found {
		w.t.Errorf("%s\n%v", e.AppendJSON(nil), v.Error())
	}
	w.events = append(w.events, e)
}

// seal shows all at redacted, as a gate with that ceiling would.
func seal(d *event.Draft) event.Event {
	var tree func(any) any
	tree = func(v any) any {
		switch v := v.(type) {
		case event.Fields:
			m := map[string]any{}
			for _, f := range v {
				if f.Level <= event.Redacted && f.Kind != event.Content {
					m[f.Name] = tree(f.Value)
				}
			}
			return m
		case []event.Fields:
			list := []any{}
			for _, f := range v {
				list = append(list, tree(f))
			}
			return list
		}
		return v
	}
	e := event.Event{Header: d.Header}
	e.Capture = event.Redacted
	if len(d.Fields) > 0 {
		raw, err := json.Marshal(tree(d.Fields))
		if err != nil {
			panic(err)
		}
		e.Data = raw
	}
	return e
}

// run opens a run, which also makes the session known.
func (w *world) run(name, run string) {
	w.tell(name, event.Draft{Header: event.Header{Type: "run.started", Run: run}, Key: run})
}

// ask puts a held request on the road, and gives it with its id.
func (w *world) ask(name, key string, window time.Duration, fields event.Fields, reply func(Answer) []byte) (*Hold, string) {
	w.t.Helper()
	if reply == nil {
		reply = func(a Answer) []byte {
			b, err := json.Marshal(a)
			if err != nil {
				w.t.Error(err)
			}
			return b
		}
	}
	h := w.Holds().Hold(Holding{Window: window, Args: "d1", Reply: reply})
	ds := []event.Draft{{Header: event.Header{Type: "attention.requested", Subject: "Bash"}, Key: key, Pair: key, Fields: fields}}
	h.Expires(ds)
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.session(name)
	id := ""
	for _, d := range s.Bind(w.Now(), ds) {
		var more []event.Draft
		if d.Type == "attention.requested" {
			id, more = d.ID, h.Open(&d)
		}
		w.bound([]event.Draft{d})
		w.bound(s.Bind(w.Now(), more))
	}
	if id == "" {
		h.Abandon()
	}
	return h, id
}

func permission() event.Fields {
	return event.Fields{event.Meta("kind", "permission"), event.Labelled("prompt", "May I?", "demo requests permission"),
		event.Meta("options", []event.Fields{
			{event.Meta("id", "allow"), event.Labelled("label", "Allow", "allow")},
			{event.Meta("id", "deny"), event.Labelled("label", "Deny", "deny")},
		}),
		event.Meta("respond_via", []any{"control"})}
}

var (
	me   = NewFrom("h", "cli")
	you  = NewFrom("h", "phone")
	auth = Origin{Authenticated: true}
)

func (w *world) send(e event.Event) Reply { return w.Handle(auth, e.AppendJSON(nil)) }

// since gives what was told from the nth event on, in short.
func (w *world) since(n int) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for _, e := range w.events[n:] {
		s := e.Type
		if e.Subject != "" && e.Type != "attention.requested" {
			s += " of " + w.name(e.Subject)
		}
		if e.Cause != "" {
			s += " <- " + w.name(e.Cause)
		}
		if len(e.Data) > 0 && e.Type != "attention.requested" && !IsCommand(e.Type) {
			data, _ := event.ParseObject(e.Data)
			delete(data, "latency_ms")
			delete(data, "after_ms")
			delete(data, "duration_ms")
			if len(data) > 0 {
				s += " " + string(event.AppendValue(nil, data))
			}
		}
		out = append(out, s)
	}
	return out
}

func (w *world) name(id string) string {
	for _, e := range w.events {
		if e.ID == id {
			return strings.TrimPrefix(e.Type, "control.")
		}
	}
	return "?" + id
}

func (w *world) count() int { w.mu.Lock(); defer w.mu.Unlock(); return len(w.events) }

// ackOf is what a command heard: "accepted", or "reason: detail".
func (w *world) ackOf(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.events {
		if e.Cause == id && isAck(e.Type) {
			if e.Type == "control.accepted" {
				return "accepted"
			}
			data, _ := event.ParseObject(e.Data)
			return fmt.Sprintf("%v: %v", data["reason"], data["detail"])
		}
	}
	return "nothing"
}

func (w *world) take() []Effect {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.effects
	w.effects = nil
	return e
}

func equal(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}
