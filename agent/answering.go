package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/control"
	"aep-wrap/event"
)

// Patience says how long the runtime may be kept waiting for an answer from
// afar. A window of 0 is not at all.
type Patience struct {
	Hold  time.Duration // where the runtime's own dialog is locked meanwhile
	Both  time.Duration // where it is not
	Lone  time.Duration // where there is none, and the runtime would go on at once
	Gate  time.Duration // of a tool that the operator gates
	Gated func(tool string) bool
	Rule  *Rule // decides about tools before anybody is asked; nil is none

	// Reachable says whether an answer could come at all. For a gated tool it
	// may take a moment to find out, for others it must not. It is not asked
	// where a hold takes nothing from anybody, unless Blind. Nil is always.
	Reachable func(gated bool) bool
	Blind     bool // whether there is a screen is not known: a hold may be all that anybody can say
}

// Held is what a hook of the runtime's hears beyond "go on". Nil is nothing.
type Held struct {
	wait  func(context.Context) []byte // nil where bytes are it
	bytes []byte
	told  func(error)
}

// heldBy is what a hook hears that is held.
func heldBy(hold *control.Hold) *Held {
	return &Held{wait: hold.Wait, told: func(err error) {
		if err != nil {
			hold.Undelivered()
		}
	}}
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

// answering is how the hooks of an adapter's runtime are asked and answered. A
// fault in its tables must not end the agent.
type answering struct {
	adapter  *adapters.Adapter
	patience *Patience
	responds bool // answers from afar are accepted
	note     *slog.Logger
}

// drafts are what the adapter makes of a moment.
func (a *answering) drafts(m adapters.Moment) (drafts []event.Draft, err error) {
	if a.adapter.Map == nil {
		return nil, nil
	}
	if drafts, err = guarded(func() []event.Draft { return a.adapter.Map(m) }); err != nil {
		a.fault(m, err)
	}
	return drafts, err
}

func (a *answering) fault(m adapters.Moment, err error) {
	a.note.Error("the adapter failed", "adapter", a.adapter.Name, "moment", m.Name, "err", err)
}

// weigh finds out whether the runtime waits in a moment for an answer that can
// come, marks the moment so, and says for how long.
func (a *answering) weigh(m *adapters.Moment) (window time.Duration) {
	m.Held, m.Gated = false, false
	if !a.responds || a.adapter.Asks == nil || a.adapter.Reply == nil {
		return 0
	}
	ask, err := guarded(func() adapters.Ask { return a.adapter.Asks(*m) })
	if err != nil {
		a.fault(*m, err)
		return 0
	}
	p := a.patience
	free := false // a hold takes nothing from anybody
	switch {
	case ask.Gate != "" && p.Gated != nil && p.Gated(ask.Gate):
		m.Gated, window = true, p.Gate
	case m.Cut > 0: // nobody could be shown what is asked
	case ask.Held && ask.Both:
		free, window = !p.Blind, p.Both
	case ask.Held && ask.Lone:
		window = p.Lone
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

// replyTo is how a hook is answered in a moment.
func (a *answering) replyTo(m adapters.Moment) func(adapters.Answer) []byte {
	m.Raw = nil // it may wait for long
	return func(x adapters.Answer) []byte { return a.adapter.Reply(m, x) }
}

// guarded calls a part of the adapter's.
func guarded[T any](f func() T) (v T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return f(), nil
}

// hold begins to hold the moment whose drafts these are, where one of them
// asks something; nil where none does. It gives the index of the one that does.
func (a *answering) hold(d *control.Dispatcher, m adapters.Moment, drafts []event.Draft, window time.Duration, reply func(adapters.Answer) []byte) (*control.Hold, int) {
	i := slices.IndexFunc(drafts, func(d event.Draft) bool { return d.Type == "attention.requested" })
	if d == nil || window <= 0 || reply == nil || i < 0 {
		return nil, -1
	}
	h := d.Holds().Hold(control.Holding{
		Window: window,
		Args:   cmp.Or(drafts[i].Link.Args, argsOf(drafts)),
		Reply: func(x control.Answer) []byte {
			b, err := guarded(func() []byte { return reply(adapters.Answer(x)) })
			if err != nil {
				a.fault(m, err)
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
func (a *answering) instruct(d *control.Dispatcher, m adapters.Moment, session string) *Held {
	if d == nil || a.adapter.Instruct == nil || session == "" {
		return nil
	}
	y := d.Take(session)
	if y == nil {
		return nil
	}
	b, err := guarded(func() []byte { return a.adapter.Instruct(m, strings.Join(y.Texts, "\n\n")) })
	if err != nil {
		a.fault(m, err)
	}
	if len(b) == 0 {
		y.Done(false)
		return nil
	}
	return &Held{bytes: b, told: func(err error) { y.Done(err == nil) }}
}
