package agent

import (
	"errors"

	"aep-wrap/adapters"
	"aep-wrap/control"
	"aep-wrap/event"
	"aep-wrap/session"
)

// The road back: what a dispatcher tells goes on its session's road, and the
// runtime's hooks hear what was answered from afar.

// Control puts what a dispatcher has to tell on a session's road: the
// command's own line, which goes to the log alone, then the drafts. An error
// is that nothing of it was taken.
func (r *Road) Control(name string, command []byte, drafts []event.Draft) error {
	r.mu.Lock()
	l := r.lanes[name]
	if l == nil && !r.closed && r.parked[name] != nil {
		l = r.newLane(name)
	}
	if l != nil {
		l.used = r.tick
	}
	r.mu.Unlock()
	switch {
	case l == nil:
		return errors.New("nothing more is told of the session")
	case l.muted.Load():
		return errors.New("another aep-wrap tells of the session")
	case !l.put(entry{at: r.cfg.Now(), command: command, drafts: drafts, size: len(command)}, hookPatience):
		return errors.New("there is no room")
	}
	return nil
}

// exitOf is how an exit is told of where a command led to it.
func (r *Road) exitOf(x session.Exit) session.Exit {
	if d := r.cfg.Control; d != nil && (x.By == "" || x.By == "control") {
		by, cause := d.Exit()
		switch {
		case by != "":
			x.By, x.Cause = by, cause
		case x.By != "":
			x.Cause = d.LastCancel()
		}
	}
	return x
}

// ---- moments that wait

// Hook takes a hook's moment, as Observe does. What it gives is what the hook
// hears: a decision to wait for, or a text on the model's way.
func (r *Road) Hook(m adapters.Moment, size int) *Held {
	if h, ok := r.ruled(m, size); ok {
		return h
	}
	window := r.weigh(&m)
	name, hold := r.observe(m, size, window, r.replyTo(m), nil)
	if hold != nil {
		return heldBy(hold)
	}
	return r.instruct(r.cfg.Control, m, name)
}

// Ask takes a moment that a runtime's server told of, and in which the runtime
// waits: for at most window, for an answer that reply makes bytes of. reply is
// pure, and nil bytes are that the runtime cannot be told so. Nothing waits on
// the runtime's side: the caller Waits for the hold on a goroutine of its own,
// and then has its Answer. A nil hold is that nobody can answer, or that the
// moment asks nothing.
func (r *Road) Ask(m adapters.Moment, size int, reply func(adapters.Answer) []byte) *control.Hold {
	window := r.weigh(&m)
	_, hold := r.observe(m, size, window, reply, nil)
	return hold
}
