package agent

import (
	"cmp"
	"errors"
	"slices"
	"strconv"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/control"
	"aep-wrap/event"
)

// The road back of a watch: hooks that come from elsewhere hear what was
// answered from afar.

// answering is how an adapter's hooks are asked.
func (w *Watch) answering(a *adapters.Adapter) *answering {
	return &answering{adapter: a, patience: &w.cfg.Patience, note: w.cfg.Log}
}

// accepts are the types of commands that sessions of an adapter take.
func (w *Watch) accepts(a *adapters.Adapter) []string {
	if a == nil || w.cfg.Accepts == nil {
		return nil
	}
	return w.cfg.Accepts(a)
}

// target makes the target of a session's commands; nil where it takes none.
func (w *Watch) target(d *watched) *control.Dispatcher {
	types := w.accepts(d.adapter)
	if len(types) == 0 {
		return nil
	}
	return control.New(control.Config{
		Vendor: d.adapter.Name, Accepts: types, Policy: w.cfg.Policy,
		Clock: control.Clock{Now: w.cfg.Now, After: func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }},
		Emit: func(_ string, command []byte, drafts []event.Draft) error {
			w.work.Lock()
			defer w.work.Unlock()
			return w.write(d, entry{at: w.cfg.Now(), command: command, drafts: drafts})
		},
		Do: func(control.Effect) {}, // an instruction waits for the next hook
	})
}

// Hook takes a hook's moment. It comes with Held where the runtime hears what
// it is answered; its Time is since when. A fact without a name of its own is
// known by key. All of it is told where again is zero; else it is to be brought
// again, after that time. Held is what the hook hears, as from Road.Hook.
func (w *Watch) Hook(a *adapters.Adapter, m adapters.Moment, key string) (again time.Duration, held *Held) {
	x, agent := w.answering(a), cmp.Or(w.cfg.Agent, a.Name)
	hears := m.Held
	w.heard(a.Name, m.Channel, w.cfg.Now())
	window := w.window(x, agent, &m)
	drafts, err := x.drafts(m)
	if err != nil {
		return 0, nil
	}
	var told *watched // the first session that it told of
	w.work.Lock()
	for i := 0; i < len(drafts); {
		name := cmp.Or(drafts[i].Session, m.Session, "unknown")
		n := i
		for ; n < len(drafts) && cmp.Or(drafts[n].Session, m.Session, "unknown") == name; n++ {
			d := &drafts[n]
			placed(d, "hook "+key+"/"+strconv.Itoa(n))
			if d.Time.IsZero() {
				d.Time = m.Time
			}
		}
		d := w.session(a, agent, name)
		if w.ready(d) != nil {
			again = d.asks()
			break
		}
		hold, _ := x.hold(d.control, m, drafts[i:n], window, x.replyTo(m))
		if w.write(d, entry{at: m.Time, drafts: drafts[i:n], hold: hold, hook: true}) != nil {
			again = d.asks()
			break
		}
		switch b := x.taken(d, m, drafts[i:n], hold); {
		case b != nil:
			held = &Held{bytes: b}
		case hold != nil:
			held = d.heldBy(hold)
		}
		d.heardHook(drafts[i:n], m.Time)
		if told == nil {
			told = d
		}
		i = n
	}
	w.tidy(w.cfg.Now())
	w.work.Unlock()
	if m.Cut > 0 && again == 0 {
		w.stats.cut.Add(1)
	}
	if held == nil && hears && again == 0 && told != nil {
		held = x.instruct(told.control, m, told.session)
	}
	return again, held
}

// asks is in how long the session's log is asked for again.
func (d *watched) asks() time.Duration { return max(d.ask.Sub(d.now()), time.Millisecond) }

// window is how long a moment may still wait for an answer: it has since it
// was told, however long it took to be read.
func (w *Watch) window(x *answering, agent string, m *adapters.Moment) time.Duration {
	x.responds = m.Held && !w.draining.Load() && slices.Contains(w.accepts(x.adapter), control.Respond)
	p := w.cfg.Patience
	p.Blind = true
	if w.cfg.Reachable != nil {
		p.Reachable = func(gated bool) bool { return w.cfg.Reachable(agent, gated) }
	}
	x.patience = &p
	window := x.weigh(m)
	if window <= 0 {
		return 0
	}
	return min(window, max(window-w.cfg.Now().Sub(m.Time), time.Millisecond))
}

func (d *watched) heldBy(hold *control.Hold) *Held {
	h := heldBy(hold)
	told := h.told
	d.held.Add(1)
	h.told = func(err error) {
		told(err)
		d.held.Add(-1)
	}
	return h
}

func asks(d event.Draft) bool { return d.Type == "attention.requested" }

// taken is what a hook hears whose request was answered, by a watch that was
// ended before the runtime heard it; nil where there is no such answer. A request
// that was told just now is another one, however alike: nobody has answered it.
func (x *answering) taken(d *watched, m adapters.Moment, drafts []event.Draft, hold *control.Hold) []byte {
	i := slices.IndexFunc(drafts, asks)
	if hold == nil || i < 0 || hold.Asked() {
		return nil
	}
	id, answered := d.sess.Waiting(&drafts[i])
	if !answered {
		return nil
	}
	a, ok := d.control.Holds().Taken(id)
	if !ok {
		return nil
	}
	b, err := guarded(func() []byte { return x.adapter.Reply(m, adapters.Answer(a)) })
	if err != nil {
		x.fault(m, err)
	}
	return b
}

// again is for a hook that asks and was told before: by a watch that was ended
// while it was held. Its request waits on, under the new hold; where the
// runtime no longer waits, it is over.
func (d *watched) again(e entry) []event.Draft {
	i := slices.IndexFunc(e.drafts, asks)
	if i < 0 {
		return nil
	}
	id, answered := d.sess.Waiting(&e.drafts[i])
	switch {
	case d.control == nil || id == "" || answered || !d.control.Holds().Orphan(id):
		e.abandon()
		return nil
	case e.hold == nil:
		return d.sess.Bind(d.now(), []event.Draft{{Header: event.Header{Type: "attention.resolved", Subject: id},
			Fields: event.Fields{event.Meta("resolution", "dismissed")}}})
	}
	x := e.drafts[i]
	x.ID, x.Session = id, d.session
	more := e.hold.Open(&x)
	told := event.Draft{Header: event.Header{Type: "x.aep-wrap.attention.resumed", Subject: id, Cause: id}}
	return d.sess.Bind(d.now(), append([]event.Draft{told}, more...))
}

// expireOrphans sees to it that requests which an earlier watch held come to an
// end in their time, also where their hooks do not come back.
func (d *watched) expireOrphans(now time.Time) {
	for _, p := range d.control.Holds().Orphans() {
		if p.Until.IsZero() {
			continue
		}
		time.AfterFunc(max(p.Until.Sub(now), 0)+unread, func() {
			d.w.work.Lock()
			defer d.w.work.Unlock()
			if d.control == nil || !d.control.Holds().Orphan(p.ID) {
				return
			}
			over := event.Draft{Header: event.Header{Type: "attention.timeout", Subject: p.ID, Time: d.now()}}
			if err := d.w.write(d, entry{at: d.now(), drafts: []event.Draft{over}}); err != nil {
				d.note.Warn("a request that nobody holds was not closed", "session", d.session, "err", err)
			}
		})
	}
}

// Command takes a command to a session of an agent's.
func (w *Watch) Command(o control.Origin, agent string, line []byte, h event.Header) control.Reply {
	w.work.Lock()
	var target *control.Dispatcher
	err := errors.New("no such session here")
	if d := w.sessions[agent+"\x00"+h.Session]; d != nil {
		if err = w.ready(d); err == nil {
			target = d.control
		}
	}
	w.work.Unlock()
	switch {
	case err != nil:
		return control.Reply{Refusal: &control.Refusal{Cause: h.ID, Code: control.NoRoute, Detail: err.Error()}}
	case target == nil:
		return control.Reply{Refusal: &control.Refusal{Cause: h.ID, Code: control.Unsupported, Detail: "this session accepts no commands"}}
	}
	return target.Handle(o, line)
}

// Pending gives the events of an agent's requests that wait for an answer, to
// be told to a collector that may be a new one.
func (w *Watch) Pending(agent string) (lines [][]byte) {
	for _, d := range w.holding() {
		if d.agent != agent {
			continue
		}
		for _, p := range d.control.Holds().Pending() {
			if p.Remote && p.Line != nil {
				lines = append(lines, p.Line)
			}
		}
	}
	return lines
}

func (w *Watch) holding() (out []*watched) {
	w.work.Lock()
	defer w.work.Unlock()
	for _, d := range w.sessions {
		if d.control != nil && d.held.Load() > 0 {
			out = append(out, d)
		}
	}
	return out
}

// Drain holds nothing more, and lets go of what is held: the agents decide by
// themselves.
func (w *Watch) Drain() {
	w.draining.Store(true)
	for _, d := range w.holding() {
		d.control.Holds().Close("")
	}
}
