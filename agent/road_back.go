package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/control"
	"aep-wrap/event"
	"aep-wrap/session"
)

// The road back: what a dispatcher tells goes on its session's road, and the
// runtime's hooks hear what was answered from afar.

// Patience says how long the runtime may be kept waiting for an answer from
// afar. A window of 0 is not at all.
type Patience struct {
	Hold  time.Duration // where the runtime's own dialog is locked meanwhile
	Both  time.Duration // where it is not
	Gate  time.Duration // of a tool that the operator gates
	Gated func(tool string) bool

	// Reachable says whether an answer could come at all. For a gated tool it
	// may take a moment to find out, for others it must not. It is not asked
	// where a hold takes nothing from anybody. Nil is always.
	Reachable func(gated bool) bool
}

// Control puts what a dispatcher has to tell on a session's road: the
// command's own line, which goes to the log alone, then the drafts. An error
// is that nothing of it was taken.
func (r *Road) Control(name string, command []byte, drafts []event.Draft) error {
	r.mu.Lock()
	l := r.lanes[name]
	if l == nil && !r.closed && r.parked[name] {
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

// record puts a command's line into the log, as far as the log's ceiling lets
// it: the log alone then says who commanded what.
func (l *lane) record(line []byte) {
	line, err := l.road.cfg.Gate.Line(line)
	if err != nil {
		l.road.cfg.Log.Warn("a command could not be put into the log", "session", l.name, "err", err)
		return
	}
	l.items = append(l.items, outgoing{local: true})
	l.lines = append(l.lines, line)
	l.pending += len(line)
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

// Held is what a hook of the runtime's hears beyond "go on". Nil is nothing.
type Held struct {
	wait  func(context.Context) []byte // nil where bytes are it
	bytes []byte
	told  func(error)
}

// Waits says whether Answer takes its time.
func (h *Held) Waits() bool { return h != nil && h.wait != nil }

// Answer waits for what the runtime is to hear; empty is no decision. ctx ends
// when the runtime has gone away. Told is called next.
func (h *Held) Answer(ctx context.Context) []byte {
	switch {
	case h == nil:
		return nil
	case h.wait != nil:
		return h.wait(ctx)
	}
	return h.bytes
}

// Told says whether the runtime has heard it.
func (h *Held) Told(err error) {
	if h != nil && h.told != nil {
		h.told(err)
	}
}

// Hook takes a hook's moment, as Observe does. What it gives is what the hook
// hears: a decision to wait for, or a text on the model's way.
func (r *Road) Hook(m adapters.Moment, size int) *Held {
	window := r.weigh(&m)
	var reply func(adapters.Answer) []byte
	if window > 0 {
		reply = func(a adapters.Answer) []byte { return r.cfg.Adapter.Reply(m, a) }
	}
	name, hold := r.observe(m, size, window, reply)
	if hold != nil {
		return &Held{wait: hold.Wait, told: func(err error) {
			if err != nil {
				hold.Undelivered()
			}
		}}
	}
	return r.instruct(m, name)
}

// Ask takes a moment that a runtime's server told of, and in which the runtime
// waits: for at most window, for an answer that reply makes bytes of. reply is
// pure, and nil bytes are that the runtime cannot be told so. Nothing waits on
// the runtime's side: the caller Waits for the hold on a goroutine of its own,
// and then has its Answer. A nil hold is that nobody can answer, or that the
// moment asks nothing.
func (r *Road) Ask(m adapters.Moment, size int, reply func(adapters.Answer) []byte) *control.Hold {
	window := r.weigh(&m)
	_, hold := r.observe(m, size, window, reply)
	return hold
}

// weigh finds out whether the runtime waits in a moment for an answer that can
// come, marks the moment so, and says for how long.
func (r *Road) weigh(m *adapters.Moment) (window time.Duration) {
	m.Held, m.Gated = false, false
	if !r.responds || r.cfg.Adapter.Asks == nil || r.cfg.Adapter.Reply == nil {
		return 0
	}
	ask, err := guarded(func() adapters.Ask { return r.cfg.Adapter.Asks(*m) })
	if err != nil {
		r.cfg.Log.Error("the adapter failed", "adapter", r.cfg.Adapter.Name, "moment", m.Name, "err", err)
		return 0
	}
	p := &r.cfg.Patience
	free := false // a hold takes nothing from anybody
	switch {
	case ask.Gate != "" && p.Gated != nil && p.Gated(ask.Gate):
		m.Gated, window = true, p.Gate
	case ask.Held && ask.Both:
		free, window = true, p.Both
	case ask.Held:
		window = p.Hold
	}
	if window > 0 && (free || p.Reachable == nil || p.Reachable(m.Gated)) {
		m.Held = true
		return window
	}
	m.Gated = false
	return 0
}

// guarded calls a part of the adapter's: a fault in a table must not end the
// agent.
func guarded[T any](f func() T) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f(), nil
}

// hold begins to hold the moment whose drafts these are, where one of them
// asks something; nil where none does. It gives the index of the one that does.
func (r *Road) hold(m adapters.Moment, drafts []event.Draft, window time.Duration, reply func(adapters.Answer) []byte) (*control.Hold, int) {
	i := slices.IndexFunc(drafts, func(d event.Draft) bool { return d.Type == "attention.requested" })
	if window <= 0 || reply == nil || i < 0 {
		return nil, -1
	}
	h := r.cfg.Control.Holds().Hold(control.Holding{
		Window: window,
		Args:   cmp.Or(drafts[i].Link.Args, argsOf(drafts)),
		Reply: func(a control.Answer) []byte {
			b, err := guarded(func() []byte { return reply(adapters.Answer(a)) })
			if err != nil {
				r.cfg.Log.Error("the adapter failed", "adapter", r.cfg.Adapter.Name, "moment", m.Name, "err", err)
			}
			return b
		},
	})
	h.Expires(drafts)
	return h, i
}

// argsOf is the digest of the arguments of the tool that a moment asks for.
func argsOf(drafts []event.Draft) string {
	for _, d := range drafts {
		if d.Type != "tool.requested" {
			continue
		}
		for _, f := range d.Fields {
			if f.Name == "args" && f.Kind == event.Content {
				return cmp.Or(f.Alt, event.Digest(f.Value))
			}
		}
	}
	return ""
}

// instruct gives a hook the texts that wait for the model, where the runtime
// reads one there.
func (r *Road) instruct(m adapters.Moment, session string) *Held {
	if r.cfg.Control == nil || r.cfg.Adapter.Instruct == nil || session == "" {
		return nil
	}
	y := r.cfg.Control.Take(session)
	if y == nil {
		return nil
	}
	b, err := guarded(func() []byte { return r.cfg.Adapter.Instruct(m, strings.Join(y.Texts, "\n\n")) })
	if err != nil {
		r.cfg.Log.Error("the adapter failed", "adapter", r.cfg.Adapter.Name, "moment", m.Name, "err", err)
	}
	if len(b) == 0 {
		y.Done(false)
		return nil
	}
	return &Held{bytes: b, told: func(err error) { y.Done(err == nil) }}
}
