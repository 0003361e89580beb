package session

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"aep-wrap/event"
)

// Config is what a Session is made of.
type Config struct {
	Agent       string // the envelope's agent: "claude-code"
	Host        string
	Session     string
	Traceparent string // given to every event that has none of its own

	// Start is when the emitter started: the epoch of a session whose earlier
	// positions nobody remembers.
	Start time.Time

	// State is what the session's log says: NewState() for an empty log, the
	// folded events otherwise. Nil says that there is no log: what was sent
	// before is unknown, and Start becomes the epoch.
	State *State

	// Overlap says that this runtime may have several runs open at once. When
	// false, a run still open when the next one starts was cut off unseen, and
	// is drained.
	Overlap bool

	// History says that what is bound may be history that is read again.
	History bool

	// Steer says that what would start another run while one is open goes into
	// the open one: a prompt of the user's in between steers it.
	Steer bool
}

// Exit is how the agent's process ended. Code is what a shell would call it,
// or negative where it is not known; Signal is the name ("SIGTERM") of the one
// that it died of. By says who ended it, where that is known: "user",
// "control", "policy" or "shutdown". Cause is the id of the command that asked
// for it. Left says that it ran the session elsewhere, in a server that goes
// on: nothing ended but our view of it.
type Exit struct {
	Code   int
	Signal string
	By     string
	Cause  string
	Left   bool
}

// Session binds the drafts of one session. It is not safe for concurrent use.
type Session struct {
	cfg    Config
	st     *State
	source string
	vendor string // the vendor token for what becomes an x.* event

	placed bool // a position of this emitter's lifetime was used
	fresh  bool // the log was there, and empty
	blind  bool // there was no log
	pos    event.Position
	began  bool          // session.started was bound by us
	exited bool          // session.ended, or its stand-in, was bound by us
	settle []string      // requests answered out of band in this Bind
	out    []event.Draft // what this Bind gives
	idle   []*work       // for the drafts to come
}

// work is a draft on its way through the rules.
type work struct {
	d event.Draft
	f facts
}

// maxInt is the greatest integer that survives every JSON reader.
const maxInt = 1<<53 - 1

// New is a session about to be bound.
func New(c Config) *Session {
	s := &Session{cfg: c, st: c.State, source: event.Source(c.Host, c.Agent, c.Session), vendor: vendorToken(c.Agent)}
	if s.st == nil {
		s.st, s.blind = NewState(), true
	}
	s.fresh = !s.st.any
	return s
}

// State is the session's memory: for pending requests, and for tests.
func (s *Session) State() *State { return s.st }

// Bind makes drafts of the session into drafts that are ready for the gate:
// joined with what was remembered, each fact once, with id, run, cause and
// position. What follows from them (a session's start at first sight, the end
// of a stale run, the close of a request) is added where it belongs. now is
// the time of drafts that carry none.
func (s *Session) Bind(now time.Time, drafts []event.Draft) []event.Draft {
	s.out = make([]event.Draft, 0, len(drafts))
	for i := range drafts {
		s.bind(now, &drafts[i])
	}
	s.settleAnswered(now)
	return s.take()
}

// Recover closes the requests that an earlier emitter of this session left
// waiting: whoever held them is gone. A wrapper that starts on a log calls it;
// a watcher, whose requests live in the agent's own screen, does not.
func (s *Session) Recover(now time.Time) []event.Draft {
	s.closeRequests(now, everyRequest)
	return s.take()
}

// Waiting gives the id of the waiting request that a draft of one repeats, ""
// where there is none, and whether an answer to it was told.
func (s *Session) Waiting(d *event.Draft) (id string, answered bool) {
	x := *d
	if x.Subject = d.Key; x.Subject == "" {
		x.Subject = d.Place
	}
	if r := s.requestOf(&x); r != nil {
		return r.id, r.answer != ""
	}
	return "", false
}

// Exit closes what the agent's end leaves open: requests, runs, and the
// session. Tools are left without an outcome, for none was seen. A session
// that was ended in an earlier epoch, and resumed, is not ended again:
// x.aep-wrap.session.exited says that its process went.
func (s *Session) Exit(now time.Time, x Exit) []event.Draft {
	if x.Left {
		return nil
	}
	s.closeRequests(now, everyRequest)
	out := outcomeOf(x)
	s.st.open.all(func(id string, r *run) bool {
		d := event.Draft{Header: event.Header{Type: out.typ, Run: id, Time: now, Severity: out.severity, Cause: x.Cause}, Fields: out.fields}
		if !s.placed || r.epoch != s.pos.Epoch { // another process's, that went unseen: this one's end says nothing of it
			d = event.Draft{Header: event.Header{Type: "run.cancelled", Run: id, Time: now, Severity: event.Notice}}
		}
		s.rule(now, &d)
		return true
	})
	if s.exited {
		return s.take()
	}
	if s.st.ended {
		s.exited = true
		f := event.Fields{}
		if x.Signal != "" {
			f = append(f, event.Meta("signal", x.Signal))
		} else if x.Code >= 0 {
			f = append(f, event.Meta("code", x.Code))
		}
		s.place(&event.Draft{Header: event.Header{Type: "x.aep-wrap.session.exited", Time: now, Cause: x.Cause}, Fields: f}, &facts{})
		return s.take()
	}
	d := event.Draft{Header: event.Header{Type: "session.ended", Time: now, Cause: x.Cause}}
	if out.reason != "" {
		d.Fields = event.Fields{event.Meta("reason", out.reason)}
	}
	s.rule(now, &d)
	return s.take()
}

func (s *Session) take() []event.Draft {
	out := s.out
	s.out = nil
	return out
}

// outcome is what a process's end says of an open run and of the session.
type outcome struct {
	typ      string
	severity event.Severity
	fields   event.Fields
	reason   string // of session.ended
}

// stops are the signals by which someone asks a process to go, and who that
// is: the user at the terminal, or whoever shuts the place down.
var stops = map[string]string{"SIGINT": "user", "SIGQUIT": "user", "SIGTERM": "shutdown", "SIGHUP": "shutdown"}

// stopCodes are the exit codes of a process that handled such a signal.
var stopCodes = map[int]string{128 + 1: "SIGHUP", 128 + 2: "SIGINT", 128 + 3: "SIGQUIT", 128 + 15: "SIGTERM"}

func outcomeOf(x Exit) outcome {
	sig := x.Signal
	if sig == "" {
		sig = stopCodes[x.Code]
	}
	by := x.By
	if by == "" {
		by = stops[sig]
	}
	o := outcome{typ: "run.cancelled", severity: event.Notice, reason: "normal"}
	switch {
	case sig != "" || by == "control" || by == "policy" || by == "shutdown":
		o.reason = "killed"
	case x.Code > 0:
		o.reason = "error"
	case x.Code < 0:
		o.reason = "" // how it went is not known
	}
	switch {
	case by != "":
		o.fields = event.Fields{event.Meta("by", by)}
	case sig != "":
		o.typ, o.severity = "run.failed", event.Error
		o.fields = event.Fields{event.Meta("reason", "signal "+sig), event.Meta("error", event.Fields{event.Meta("type", "signal")})}
	case x.Code > 0:
		o.typ, o.severity = "run.failed", event.Error
		o.fields = event.Fields{event.Meta("reason", "exit "+strconv.Itoa(x.Code)), event.Meta("error", event.Fields{event.Meta("type", "exit")})}
	}
	// Code 0 with a run open: it was cut off, and nothing says by whom.
	return o
}

// bind takes one draft through join, dedupe and its type's rule.
func (s *Session) bind(now time.Time, d *event.Draft) {
	if foreign(d.Type) {
		return
	}
	if event.Category(d.Type) == "agent" {
		s.bindAgent(now, *d)
		return
	}
	s.rule(now, d)
}

// rule applies the rule of a draft's type, then places it. It works on a copy:
// d is left as it is.
func (s *Session) rule(now time.Time, d *event.Draft) {
	var w *work
	if n := len(s.idle); n > 0 {
		w, s.idle = s.idle[n-1], s.idle[:n-1]
	} else {
		w = new(work)
	}
	w.d = *d
	if w.d.Time.IsZero() {
		w.d.Time = now
	}
	w.f = draftFacts(&w.d)
	if s.admit(&w.d, &w.f) {
		s.place(&w.d, &w.f)
	}
	*w = work{}
	s.idle = append(s.idle, w)
}

// admit joins a draft with what was remembered; false drops it.
func (s *Session) admit(d *event.Draft, f *facts) bool {
	typ, key, id := d.Type, d.Key, ""
	r := rules[typ]
	if key == "" {
		key = d.Place
	}
	if d.ID == "" && key != "" {
		// A fact that was told before joins nothing: what it was about may be
		// over, and forgotten.
		if id = event.DeriveID(s.cfg.Agent, s.cfg.Session, typ, key); s.st.seen.has(id) {
			return false
		}
	}
	if r.join != nil && !r.join(s, d, f) {
		return false
	}
	if d.Type != typ {
		r = rules[d.Type]
	}
	if d.Key == "" {
		d.Key = d.Place
	}
	if d.ID == "" && d.Key != "" {
		if d.ID = id; d.Type != typ || d.Key != key {
			d.ID = event.DeriveID(s.cfg.Agent, s.cfg.Session, d.Type, d.Key)
		}
	}
	if d.ID != "" && s.st.seen.has(d.ID) {
		return false
	}
	if r.apply != nil && !r.apply(s, d, f) {
		return false
	}
	if d.Run == "" && !r.sessionWide && s.st.open.len() == 1 { // the only one that is open
		o, _ := s.st.open.oldest()
		d.Run = o.id
	}
	return true
}

// bindAgent is for agent.* events: they speak of no session and have no place
// in its order.
func (s *Session) bindAgent(now time.Time, d event.Draft) {
	if d.Time.IsZero() {
		d.Time = now
	}
	if d.Key != "" && d.ID == "" {
		d.ID = event.DeriveID(s.cfg.Agent, "", d.Type, d.Key)
	}
	if d.ID != "" && s.st.seen.has(d.ID) {
		return
	}
	if d.ID == "" {
		d.ID = event.NewID(d.Time)
	}
	s.st.seen.addAt(d.ID, d.Time)
	d.Agent, d.Source = s.cfg.Agent, strings.TrimSuffix(event.Source(s.cfg.Host, s.cfg.Agent, ""), "/session/")
	d.Session, d.Run, d.Step, d.Sequenced, d.Epoch, d.Seq = "", "", "", false, 0, 0
	if d.Traceparent == "" {
		d.Traceparent = s.cfg.Traceparent
	}
	s.out = append(s.out, d)
}

// place gives a draft its id and its position, and remembers it. At first
// sight of a session it is told that it started.
func (s *Session) place(d *event.Draft, f *facts) {
	if d.Type != "session.started" {
		s.greet(d.Time)
	}
	if d.Type == "session.started" {
		s.began = true
	}
	if d.ID == "" && d.Key != "" {
		d.ID = event.DeriveID(s.cfg.Agent, s.cfg.Session, d.Type, d.Key)
	}
	if d.ID == "" {
		d.ID = event.NewID(d.Time)
	}
	d.Agent, d.Source, d.Session = s.cfg.Agent, s.source, s.cfg.Session
	if d.Traceparent == "" {
		d.Traceparent = s.cfg.Traceparent
	}
	p := s.next(d)
	d.Sequenced, d.Epoch, d.Seq = true, p.Epoch, p.Seq
	s.st.seen.addAt(d.ID, d.Time)
	s.st.note(&d.Header, f)
	s.out = append(s.out, *d)
}

// greet tells that the session started, where nothing has told it yet.
func (s *Session) greet(at time.Time) {
	if s.st.started == "" {
		s.place(&event.Draft{Header: event.Header{Type: "session.started", Time: at}, Key: s.cfg.Session}, &facts{})
	}
}

// next is the next position: of a new session (0, 0); after a restart the
// epoch after the log's last; and where nobody remembers what was used before,
// the start time as epoch.
func (s *Session) next(first *event.Draft) event.Position {
	if s.placed {
		s.pos.Seq++
		return s.pos
	}
	s.placed = true
	last, any := s.st.Position()
	switch {
	case any && last.Epoch >= maxInt:
		s.pos = event.Position{Epoch: last.Epoch, Seq: last.Seq + 1}
	case any:
		s.pos = event.Position{Epoch: last.Epoch + 1}
	case s.blind, s.fresh && resumes(first):
		// A resumed session whose log is gone was numbered before.
		start := s.cfg.Start
		if start.IsZero() {
			start = first.Time
		}
		s.pos = event.Position{Epoch: max(start.UnixMilli(), 0)}
	}
	return s.pos
}

// resumes says whether a session's first event tells that it began earlier.
func resumes(d *event.Draft) bool {
	return d.Type == "session.started" && (str(d.Fields, "trigger") == "resume" || str(d.Fields, "source") == "resume")
}

// demote makes a draft that cannot say what its type promises (the name of the
// tool, the request that was answered) into a vendor's event: the fact stays,
// with the members that a vendor's event may carry.
func (s *Session) demote(d *event.Draft) {
	d.Type = "x." + s.vendor + "." + d.Type
	d.Subject = ""
	d.Fields = structural(d.Fields)
}

// structural keeps the members that carry no content at any depth.
func structural(f event.Fields) event.Fields {
	out := make(event.Fields, 0, len(f))
	for _, m := range f {
		if m.Kind != event.Plain || m.Level > event.Metadata {
			continue
		}
		switch v := m.Value.(type) {
		case event.Fields:
			m.Value = structural(v)
		case []event.Fields:
			list := make([]event.Fields, len(v))
			for i := range v {
				list[i] = structural(v[i])
			}
			m.Value = list
		}
		out = append(out, m)
	}
	return out
}

// settleAnswered resolves the requests that were answered in the agent's own
// screen: nothing is left to apply. An answer through us is resolved by who
// applies it.
func (s *Session) settleAnswered(now time.Time) {
	for _, id := range s.settle {
		if r, ok := s.st.requests.get(id); ok {
			s.resolve(now, r, "answered")
		}
	}
	s.settle = s.settle[:0]
}

func everyRequest(*request) bool { return true }

// closeRequests closes the waiting requests that which picks.
func (s *Session) closeRequests(at time.Time, which func(*request) bool) {
	s.st.requests.all(func(_ string, r *request) bool {
		if which(r) {
			s.closeOne(at, r)
		}
		return true
	})
}

func (s *Session) closeOne(at time.Time, r *request) {
	if r.answer != "" {
		s.resolve(at, r, "answered")
		return
	}
	s.resolve(at, r, "dismissed")
}

func (s *Session) resolve(at time.Time, r *request, resolution string) {
	s.rule(at, &event.Draft{
		Header: event.Header{Type: "attention.resolved", Subject: r.id, Time: at, Run: r.run, Step: r.step}, Key: r.id,
		Fields: event.Fields{event.Meta("resolution", resolution)},
	})
}

// answeredLocally tells that a permission was given or refused in the agent's
// own screen, which is known by what became of the tool.
func (s *Session) answeredLocally(at time.Time, r *request, option string) {
	answer := event.Fields{}
	if slices.Contains(r.options, option) {
		answer = event.Fields{event.Meta("option", option)}
	}
	s.rule(at, &event.Draft{
		Header: event.Header{Type: "attention.answered", Subject: r.id, Time: at, Run: r.run, Step: r.step}, Key: r.id,
		Fields: event.Fields{event.Meta("answer", answer), event.Meta("via", "oob")},
	})
	s.resolve(at, r, "answered")
}

// foreign says that events of a type belong to other senders: commands, and
// what a router says. They are never bound to a session that is ours.
func foreign(typ string) bool { return event.ScopeOf(typ) == event.CommandScope }

// vendorToken makes a name fit for x.{vendor}.
func vendorToken(name string) string {
	t := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		case r >= 'A' && r <= 'Z':
			return r + 'a' - 'A'
		}
		return '-'
	}, name)
	if t == "" {
		return "aep-wrap"
	}
	return t
}
