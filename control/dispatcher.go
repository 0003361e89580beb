package control

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"aep-wrap/event"
)

// The bounds of what a Dispatcher remembers.
const (
	maxSeen     = 1 << 13 // commands that were decided
	maxSessions = 1 << 10
	maxRuns     = 1 << 10 // of a session, open and over each
	maxQueue    = 20      // instructions that wait in a session
	maxFlights  = 64      // cancels that were begun and not yet seen to work
	// flightLife is for how long a run's end is still put down to a cancel.
	flightLife = 2 * time.Minute
)

// The defaults of Config.
const (
	DefaultWindow = 10 * time.Second // AEP-0004 §3
	DefaultKeep   = 72 * time.Hour
)

// Config is what a Dispatcher is made of.
type Config struct {
	Vendor  string   // the token of x.{vendor}.instruction.delivered
	Accepts []string // see the function Accepts
	Clock   Clock
	Holds   *Holds // nil for a launch of which nothing can be answered

	// Emit puts on the session's road: first the command's line where it is
	// not nil (see the package comment), then the drafts, in order, to be
	// bound and sealed. It may wait a moment for room. An error is that they
	// were not taken: then nothing of the command is done.
	Emit func(session string, command []byte, drafts []event.Draft) error
	// Do begins what an accepted command asks for and returns; Done is called
	// at its end, on another goroutine.
	Do func(Effect)
	// Policy is the last gate; nil lets pass.
	Policy Policy

	Window time.Duration // in which an ack is due: hello's ack_window_ms
	Keep   time.Duration // for how long a decision is remembered
}

// Origin is what the binding knows of a command's bearer.
type Origin struct {
	Authenticated bool
	// Denied says why this peer, though authenticated, may not command: a
	// token for watching only, a process of the session's own tree. "" if it
	// may.
	Denied string
	Peer   string // for policies and logs
}

// Reply is what the connection that brought a command hears at once. Both nil
// is the usual case: the ack comes by the session's stream.
type Reply struct {
	Ack     []byte   // the recorded ack, once more and byte-identical (AEP-0004 §3)
	Refusal *Refusal // a connection-scoped error frame
}

// Dispatcher is the target of the commands to one launch (AEP-0004 §7). It is
// safe for concurrent use.
//
// Gates, in order: an authenticated binding, an accepted type, a session of
// ours, a valid payload, the policy; then what the command asks for must be
// possible now. Exactly one ack is decided for each (source, id). Its id is
// derived from the pair, so that a session's log restores the decisions: Fold
// its events, in order, before the session's first live one.
type Dispatcher struct {
	c       Config
	accepts []string

	mu       sync.Mutex
	seen     *table[*record] // by the ack's id
	sessions *table[*target]
	tree     treeState
	flights  []*flight
	last     string // the cancel that was accepted last
}

// record is a decision. Drafts are what was told of it and not yet seen sealed.
type record struct {
	at     time.Time
	line   []byte // the sealed ack
	drafts []event.Draft
}

// target is what is known of a session.
type target struct {
	name  string
	live  bool // something was told in this emitter's life
	ended bool
	open  *table[bool] // runs
	over  *table[bool] // true: its terminal was told; false: cut off by a restart, as far as is known

	queue []instruction
	taken int // instructions on their way to the agent

	// Of the log: instruct commands, and those accepted of which no end was told.
	asked *table[bool]
	owed  *table[bool]
}

type instruction struct {
	text    string
	command string
	at      time.Time
}

// New makes a dispatcher.
func New(c Config) *Dispatcher {
	if c.Window <= 0 {
		c.Window = DefaultWindow
	}
	if c.Keep <= 0 {
		c.Keep = DefaultKeep
	}
	if c.Holds == nil {
		c.Holds = NewHolds(HoldsConfig{Clock: c.Clock, Emit: func(s string, d []event.Draft) error { return c.Emit(s, nil, d) }})
	}
	return &Dispatcher{c: c, accepts: slices.Clone(c.Accepts), seen: newTable[*record](maxSeen), sessions: newTable[*target](maxSessions)}
}

// Accepts is what hello declares as capabilities.control.accepts.
func (d *Dispatcher) Accepts() []string { return slices.Clone(d.accepts) }

// Holds are the launch's attention requests.
func (d *Dispatcher) Holds() *Holds { return d.c.Holds }

// ackID names the one ack of a command.
func ackID(source, id string) string { return event.DeriveID("control.ack", source, id) }

// Handle takes a command as it was received. It decides, tells, lets happen,
// in this order, and returns when Emit has taken what is to be told.
func (d *Dispatcher) Handle(o Origin, line []byte) Reply {
	c, bad := read(line)
	if bad != nil {
		return Reply{Refusal: bad}
	}
	if !o.Authenticated {
		// Not an event: whoever is nobody leaves no trace in a history, and
		// cannot use up the id of someone else's command.
		return refuse(c, Unauthorized, "commands need an authenticated connection")
	}
	now := d.c.Clock.Now()
	id := ackID(c.Source, c.ID)

	d.mu.Lock()
	s, owned := d.sessions.get(c.Session)
	if !owned || !s.live {
		d.mu.Unlock()
		if o.Denied == "" && !slices.Contains(d.accepts, c.Type) {
			return refuse(c, Unsupported, d.supported())
		}
		return refuse(c, NoRoute, "no such session here")
	}
	d.forget(now)
	if r, ok := d.seen.get(id); ok {
		again, line := d.again(r, now), r.line
		d.mu.Unlock()
		if again != nil {
			_ = d.c.Emit(c.Session, nil, again) // no room: the next delivery asks again
		}
		return Reply{Ack: line}
	}
	r := &record{at: now}
	d.seen.put(id, r)
	d.mu.Unlock()

	v := d.decide(o, c, s, now)
	drafts := append([]event.Draft{ack(c, id, v, now)}, v.drafts...)
	if err := d.c.Emit(c.Session, bytes.Clone(line), drafts); err != nil {
		d.mu.Lock()
		d.seen.del(id)
		if v.undo != nil {
			v.undo()
		}
		d.mu.Unlock()
		if v.answer != nil {
			v.answer.release(false)
		}
		return refuse(c, Busy, fmt.Sprintf("the command could not be recorded: %v", err))
	}
	d.mu.Lock()
	if r.line == nil {
		r.drafts = drafts // until they are seen sealed
	}
	d.mu.Unlock()
	if v.answer != nil {
		v.answer.release(true)
	}
	if v.effect != nil && (c.Type != Cancel || !d.Landed(*v.effect)) { // a run may have ended meanwhile
		d.c.Do(*v.effect)
	}
	return Reply{}
}

// again gives the drafts of a decision once more whose ack was not seen sealed
// within the window: something was lost on the way. Their ids are the same, so
// that the session drops what did pass.
func (d *Dispatcher) again(r *record, now time.Time) []event.Draft {
	if r.line != nil || r.drafts == nil || now.Sub(r.at) < d.c.Window {
		return nil
	}
	r.at = now
	return r.drafts
}

// forget drops what was decided longer ago than is kept.
func (d *Dispatcher) forget(now time.Time) {
	d.seen.all(func(id string, r *record) bool {
		old := now.Sub(r.at) > d.c.Keep
		if old {
			d.seen.del(id)
		}
		return old
	})
}

func refuse(c *Command, code, detail string) Reply {
	return Reply{Refusal: &Refusal{Cause: c.ID, Code: code, Detail: detail}}
}

func (d *Dispatcher) supported() string {
	if len(d.accepts) == 0 {
		return "this session accepts no commands"
	}
	return "this session accepts " + strings.Join(d.accepts, ", ")
}

// verdict is a decision before it is told.
type verdict struct {
	reason, detail string // of a rejection
	drafts         []event.Draft
	effect         *Effect
	answer         *settlement
	undo           func() // under mu: what Emit could not take did not happen
}

func no(reason, detail string) verdict { return verdict{reason: reason, detail: detail} }

// decide passes a command through the gates.
func (d *Dispatcher) decide(o Origin, c *Command, s *target, now time.Time) verdict {
	if o.Denied != "" {
		return no(Unauthorized, o.Denied)
	}
	if !slices.Contains(d.accepts, c.Type) {
		return no(Unsupported, d.supported())
	}
	if why := c.fault(); why != "" {
		return no(Invalid, why)
	}
	if age := now.Sub(c.Time); age > d.c.Keep {
		// What is this old may have been decided and forgotten.
		return no(Refused, fmt.Sprintf("the command's time is %v ago: send a new one, by a right clock", age.Round(time.Minute)))
	}
	if d.c.Policy != nil {
		q := Question{Command: c, Origin: o, Age: -1}
		if c.Type == Respond {
			if at := d.c.Holds.asked(c.Subject); !at.IsZero() {
				q.Age = max(now.Sub(at), 0)
			}
		}
		if why := d.c.Policy(q); why != "" {
			return no(Refused, why)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.ended && c.Type != Respond {
		return no(Refused, "the session has ended")
	}
	fn := handlers[c.Type]
	switch {
	case fn != nil:
	case isInstruct(c.Type):
		fn = (*Dispatcher).instruct
	default:
		fn = (*Dispatcher).other
	}
	return fn(d, c, s, now)
}

// handlers judge a valid command against the present state, and change it, in
// one step. They hold mu.
var handlers = map[string]func(*Dispatcher, *Command, *target, time.Time) verdict{
	Respond: (*Dispatcher).respond,
	Cancel:  (*Dispatcher).cancel,
	Pause:   (*Dispatcher).pause,
	Resume:  (*Dispatcher).resume,
}

func (d *Dispatcher) respond(c *Command, _ *target, now time.Time) verdict {
	s, reason, detail := d.c.Holds.decide(c, c.Agent)
	if s == nil {
		return no(reason, detail)
	}
	return verdict{answer: s, drafts: []event.Draft{s.answered(c, now)}}
}

// other is a vendor's command that its adapter carries out.
func (d *Dispatcher) other(c *Command, _ *target, _ time.Time) verdict {
	e := effectOf(c)
	return verdict{effect: &e}
}

// ack is the draft of a command's one ack:
//
//	control.accepted {}                     cause: the command's id
//	control.rejected {reason, detail?}      detail from capture redacted on
func ack(c *Command, id string, v verdict, now time.Time) event.Draft {
	a := event.Draft{Header: event.Header{Type: "control.accepted", ID: id, Session: c.Session, Cause: c.ID, Time: now}}
	if v.reason != "" {
		a.Type = "control.rejected"
		a.Fields = event.Fields{event.Meta("reason", v.reason)}
		if v.detail != "" {
			a.Fields = append(a.Fields, event.Text("detail", v.detail))
		}
	}
	return a
}

// Observe takes in every sealed event of the launch's sessions, as it goes on
// the road and before anyone else can see it: acks are recorded here, runs and
// requests followed. It never calls Emit.
func (d *Dispatcher) Observe(e *event.Event, line []byte) { d.observe(e, line, true) }

// Fold takes in a line of a session's log, before the session's first live
// event; after it, it changes nothing.
func (d *Dispatcher) Fold(e *event.Event, line []byte) { d.observe(e, line, false) }

func (d *Dispatcher) observe(e *event.Event, line []byte, live bool) {
	if e.Session == "" || !e.Sequenced && (live || !isInstruct(e.Type)) {
		return
	}
	if !live && d.lives(e.Session) {
		return // its log is read back once more, by a lane that was parked
	}
	if event.Category(e.Type) == "attention" {
		d.c.Holds.observe(e, line)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok := d.sessions.get(e.Session)
	if !ok {
		s = &target{name: e.Session, open: newTable[bool](maxRuns), over: newTable[bool](maxRuns),
			asked: newTable[bool](maxQueue * 4), owed: newTable[bool](maxQueue * 4)}
		d.sessions.put(e.Session, s)
	}
	if live && !s.live {
		// What the log says had ended goes on; what it says was running does
		// not, unless it is seen to.
		s.live, s.ended = true, false
		s.open.all(func(run string, _ bool) bool {
			s.open.del(run)
			s.over.put(run, false)
			return true
		})
	}
	if told, over := s.over.get(e.Run); live && over && !told && event.Category(e.Type) != "attention" {
		s.over.del(e.Run)
		s.open.put(e.Run, true)
	}
	switch e.Type {
	case "control.accepted", "control.rejected":
		d.record(e, line)
		for _, f := range d.flights {
			f.told = f.told || f.command == e.Cause
		}
		if _, asked := s.asked.get(e.Cause); asked && e.Type == "control.accepted" && !live {
			s.owed.put(e.Cause, true)
		}
	case "run.started":
		s.ended = false
		if _, over := s.over.get(e.Run); e.Run != "" && !over {
			s.open.put(e.Run, true)
		}
	case "run.finished", "run.failed", "run.cancelled":
		s.open.del(e.Run)
		s.over.put(e.Run, true)
		d.landed(func(f *flight) bool { return f.session == e.Session && f.run == e.Run && !f.whole })
	case "attention.requested":
		s.ended = false
	case "session.ended", "x.aep-wrap.session.exited":
		s.ended = true
		d.landed(func(f *flight) bool { return f.session == e.Session })
	default:
		d.fold(s, e, live)
	}
}

func (d *Dispatcher) lives(session string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok := d.sessions.get(session)
	return ok && s.live
}

// fold follows instructions through a log: what was accepted and not told to
// be delivered or dropped is owed a word.
func (d *Dispatcher) fold(s *target, e *event.Event, live bool) {
	switch {
	case live:
	case isInstruct(e.Type):
		s.asked.put(e.ID, true)
	case e.Type == d.instruction("delivered"), e.Type == d.instruction("dropped"):
		s.owed.del(e.Cause)
	}
}

// record keeps a sealed ack.
func (d *Dispatcher) record(e *event.Event, line []byte) {
	r, ok := d.seen.get(e.ID)
	if !ok {
		r = &record{at: e.Time}
		d.seen.put(e.ID, r)
	}
	if r.line == nil {
		r.line, r.drafts = bytes.Clone(line), nil
	}
}

// Recover gives the drafts that a restart owes a session: instructions that an
// earlier emitter accepted are lost with it.
func (d *Dispatcher) Recover(session string) []event.Draft {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok := d.sessions.get(session)
	if !ok {
		return nil
	}
	var out []event.Draft
	s.owed.all(func(id string, _ bool) bool {
		out = append(out, d.dropped(session, id, "restart"))
		s.owed.del(id)
		return true
	})
	return out
}
