package control

import (
	"fmt"
	"time"

	"aep-wrap/event"
)

// Effect is what an accepted command asks to be done, as a value. Who carries
// it out calls Done at its end.
type Effect struct {
	Type    string // the command's
	Session string
	Run     string         // of a cancel with scope run: the run that is meant
	Whole   bool           // of a cancel: the session, with all its processes
	Stopped bool           // of a cancel: the tree is paused, and must go on to hear a signal
	Text    string         // of an instruct, which also waits in the queue: see Take
	Data    map[string]any // the command's payload
	Command string         // the command's id
	From    string         // the sender's agent name, asserted
}

// Verb is the command's: "cancel".
func (e *Effect) Verb() string { return verb(e.Type) }

func effectOf(c *Command) Effect {
	return Effect{Type: c.Type, Session: c.Session, Data: c.Data, Command: c.ID, From: c.Agent}
}

// treeState is the launch's process tree, as far as commands changed it.
type treeState int

const (
	running treeState = iota
	pausing
	paused
	resuming
)

var treeWords = [...]string{"running", "being paused", "paused", "being resumed"}

// flight is a cancel that was begun and of which no end was seen.
type flight struct {
	session, run string
	whole        bool
	command      string
	reason       string
	at           time.Time
	told         bool // its ack has its place in the session: what ends after it may be its doing
	done         bool // carried out: another may be tried
}

func (d *Dispatcher) pause(c *Command, _ *target, _ time.Time) verdict {
	return d.turn(c, running, pausing, paused)
}

func (d *Dispatcher) resume(c *Command, _ *target, _ time.Time) verdict {
	return d.turn(c, paused, resuming, running)
}

// turn begins to stop the tree, or to let it go on. The state is the launch's:
// sessions of one process stop together.
func (d *Dispatcher) turn(c *Command, from, during, after treeState) verdict {
	switch d.tree {
	case from:
	case during, after:
		return no(Refused, "the session is "+treeWords[d.tree]+" already")
	default:
		return no(Busy, "the session is "+treeWords[d.tree])
	}
	d.tree = during
	e := effectOf(c)
	return verdict{effect: &e, undo: func() { d.tree = from }}
}

func (d *Dispatcher) cancel(c *Command, s *target, now time.Time) verdict {
	f := &flight{session: c.Session, command: c.ID, reason: c.text("reason"), at: now, whole: c.text("scope") == "session"}
	if !f.whole {
		run, bad := s.run(c.Run)
		if bad != nil {
			return *bad
		}
		f.run = run
	}
	d.expire(now)
	for _, o := range d.flights {
		if !o.done && o.session == f.session && o.run == f.run && o.whole == f.whole {
			return no(Busy, "it is being cancelled, by command "+name(o.command))
		}
	}
	if len(d.flights) >= maxFlights {
		return no(Busy, "too many cancels are being carried out")
	}
	e := effectOf(c)
	e.Run, e.Whole, e.Stopped = f.run, f.whole, d.tree == paused || d.tree == pausing
	d.flights = append(d.flights, f)
	last := d.last
	d.last = c.ID
	return verdict{effect: &e, undo: func() {
		d.last = last
		d.landed(func(o *flight) bool { return o == f })
	}}
}

// run is the run that a cancel means: the one that it names, else the only one
// that is open.
func (s *target) run(named string) (string, *verdict) {
	bad := func(reason, detail string) (string, *verdict) { v := no(reason, detail); return "", &v }
	if named != "" {
		if _, ok := s.open.get(named); ok {
			return named, nil
		}
		if _, ok := s.over.get(named); ok {
			return bad(Refused, "the run is over")
		}
		return bad(Invalid, "no such run in this session")
	}
	switch s.open.len() {
	case 0:
		return bad(Refused, "no run is open")
	case 1:
		s.open.all(func(id string, _ bool) bool { named = id; return false })
		return named, nil
	}
	return bad(Invalid, fmt.Sprintf("%d runs are open: name one in the envelope's run", s.open.len()))
}

func (d *Dispatcher) expire(now time.Time) {
	d.landed(func(f *flight) bool { return now.Sub(f.at) > flightLife })
}

// landed forgets the flights that which picks.
func (d *Dispatcher) landed(which func(*flight) bool) {
	left := d.flights[:0]
	for _, f := range d.flights {
		if !which(f) {
			left = append(left, f)
		}
	}
	clear(d.flights[len(left):])
	d.flights = left
}

// Landed says whether there is nothing left to do for a cancel: its run or
// session was seen to end. Who carries it out asks before each harder means.
func (d *Dispatcher) Landed(e Effect) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, f := range d.flights {
		if f.command == e.Command {
			return false
		}
	}
	return true
}

// Done says that an effect was carried out, or why it was not. Nil claims what
// was observed: of a pause, that the whole tree stands still; of a resume, that
// it goes on; of a cancel, that all was tried, while its outcome is seen in
// the session's events. What failed is told as error.raised, citing the
// command.
func (d *Dispatcher) Done(e Effect, err error) {
	now := d.c.Clock.Now()
	d.mu.Lock()
	phase, failed := "", err != nil
	switch e.Type {
	case Pause:
		d.tree, phase = paused, "paused"
		if failed {
			d.tree = running
		}
	case Resume:
		d.tree, phase = running, "resumed"
		if failed {
			d.tree = paused
		}
	case Cancel:
		if e.Stopped && !failed && d.tree != running {
			d.tree, phase = running, "resumed"
		}
		found := false
		for _, f := range d.flights {
			if f.command == e.Command {
				f.done, f.at, found = true, now, true
			}
		}
		if failed {
			failed = found // its outcome was seen all the same
			d.landed(func(f *flight) bool { return f.command == e.Command })
		}
	}
	d.mu.Unlock()

	out := event.Draft{Header: event.Header{Session: e.Session, Cause: e.Command, Time: now}}
	switch {
	case failed:
		out.Type, out.Severity = "error.raised", event.Warning
		out.Fields = event.Fields{
			event.Meta("error", event.Fields{event.Meta("type", "control"), event.Text("message", err.Error())}),
			event.Meta("code", e.Verb()+"_failed"),
			event.Meta("fatal", false),
		}
	case err == nil && phase != "":
		out.Type = "progress.status"
		out.Fields = event.Fields{event.Meta("phase", phase)}
	default:
		return
	}
	_ = d.c.Emit(e.Session, nil, []event.Draft{out}) // no room: nothing is claimed
}

// Before takes the drafts of a session on their way to be bound, and puts down
// to commands what came of them: a run.cancelled while a cancel of that run is
// under way is by control and cites the command; so is the end of a session
// that is being cancelled, or whose process went for the cancel of a run, and
// the end of its runs; before session.ended, what the queue of instructions
// still holds is told as dropped. The given drafts stay as they are.
func (d *Dispatcher) Before(session string, drafts []event.Draft) []event.Draft {
	var out []event.Draft // nil while nothing differs
	for i, x := range drafts {
		var front []event.Draft
		before := x.Cause
		switch x.Type {
		case "run.cancelled":
			x = d.attributed(session, x)
		case "session.ended":
			front = d.Ending(session)
			f := d.flightOf(session, func(f *flight) bool { return f.whole })
			if f.command == "" {
				f = d.flightOf(session, func(*flight) bool { return true })
			}
			if f.command != "" && x.Cause == "" {
				x.Cause = f.command
				if f.whole { // whatever the agent says of its own reason
					x.Fields = with(x.Fields, event.Meta("reason", "killed"))
				}
				front = append(front, d.cutOff(session)...)
			}
		}
		if out == nil && (x.Cause != before || front != nil) {
			out = append(make([]event.Draft, 0, len(drafts)+len(front)), drafts[:i]...)
		}
		if out != nil {
			out = append(append(out, front...), x)
		}
	}
	if out == nil {
		return drafts
	}
	return out
}

// with sets a member; the given fields stay as they are.
func with(fields event.Fields, m event.Field) event.Fields {
	out := event.Fields{m}
	for _, f := range fields {
		if f.Name != m.Name {
			out = append(out, f)
		}
	}
	return out
}

// cutOff are the ends of the runs that a session's end cuts off.
func (d *Dispatcher) cutOff(session string) (out []event.Draft) {
	d.mu.Lock()
	var runs []string
	if s, ok := d.sessions.get(session); ok {
		s.open.all(func(run string, _ bool) bool { runs = append(runs, run); return true })
	}
	d.mu.Unlock()
	for _, run := range runs {
		out = append(out, d.attributed(session, event.Draft{Header: event.Header{Type: "run.cancelled", Session: session, Run: run, Severity: event.Notice}}))
	}
	return out
}

// attributed makes a run's end the outcome of the cancel that is under way for
// it.
func (d *Dispatcher) attributed(session string, x event.Draft) event.Draft {
	f := d.flightOf(session, func(f *flight) bool { return f.whole || x.Run == "" || f.run == x.Run })
	if f.command == "" || x.Cause != "" && x.Cause != f.command {
		return x
	}
	x.Cause = f.command
	fields := event.Fields{event.Meta("by", "control")}
	if f.reason != "" {
		fields = append(fields, event.Text("reason", f.reason))
	}
	for _, m := range x.Fields {
		if m.Name != "by" && (m.Name != "reason" || f.reason == "") {
			fields = append(fields, m)
		}
	}
	x.Fields = fields
	return x
}

// flightOf is the first cancel under way in a session that which picks; zero
// where there is none.
func (d *Dispatcher) flightOf(session string, which func(*flight) bool) flight {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expire(d.c.Clock.Now())
	for _, f := range d.flights {
		if f.told && f.session == session && which(f) {
			return *f
		}
	}
	return flight{}
}

// Exit says who ended the launch's process, for session.Exit: "control" and
// the command's id while a cancel is under way whose outcome was not seen, a
// session's before a run's; else "" and "".
func (d *Dispatcher) Exit() (by, cause string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.expire(d.c.Clock.Now())
	for _, f := range d.flights {
		if f.told && (cause == "" || f.whole) {
			by, cause = "control", f.command
			if f.whole {
				break
			}
		}
	}
	return by, cause
}

// LastCancel is the id of the cancel that was accepted last, "" where there was
// none: why a process went that was ended by command, once its run was seen to
// end.
func (d *Dispatcher) LastCancel() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.last
}
