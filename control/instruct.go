package control

import (
	"fmt"
	"time"

	"aep-wrap/event"
)

// instruction is the type of the event that tells of an instruction's end
// (AEP-0004 §5): x.{vendor}.instruction.delivered {queued_ms} or
// x.{vendor}.instruction.dropped {reason}, each citing the command.
func (d *Dispatcher) instruction(end string) string {
	return "x." + d.c.Vendor + ".instruction." + end
}

func (d *Dispatcher) instruct(c *Command, s *target, now time.Time) verdict {
	if len(s.queue)+s.taken >= maxQueue {
		return no(Busy, fmt.Sprintf("%d instructions wait already", maxQueue))
	}
	s.queue = append(s.queue, instruction{c.text("text"), c.ID, now})
	e := effectOf(c)
	e.Text = c.text("text")
	return verdict{effect: &e, undo: func() { s.drop(c.ID) }}
}

func (s *target) drop(command string) {
	for i := range s.queue {
		if s.queue[i].command == command {
			s.queue = append(s.queue[:i:i], s.queue[i+1:]...)
			return
		}
	}
}

// Delivery is what is on its way to the agent. Texts are in the order in which
// they came.
type Delivery struct {
	Texts []string

	d     *Dispatcher
	s     *target
	items []instruction
}

// Take hands over the instructions that wait in a session, when the agent is
// about to read; nil where none does. Done says how it went.
func (d *Dispatcher) Take(session string) *Delivery {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok := d.sessions.get(session)
	if !ok || len(s.queue) == 0 {
		return nil
	}
	y := &Delivery{d: d, s: s, items: s.queue}
	for _, in := range s.queue {
		y.Texts = append(y.Texts, in.text)
	}
	s.queue, s.taken = nil, s.taken+len(y.items)
	return y
}

// Done tells of each instruction that it was delivered, when the agent took
// the bytes, and puts it back to the head of the queue when it did not. A nil
// Delivery is nothing to tell. It is called once.
func (y *Delivery) Done(delivered bool) {
	if y == nil {
		return
	}
	d, s := y.d, y.s
	now := d.c.Clock.Now()
	d.mu.Lock()
	s.taken -= len(y.items)
	back := !delivered && !s.ended
	if back {
		s.queue = append(y.items, s.queue...)
	}
	d.mu.Unlock()
	if back {
		return
	}
	var out []event.Draft
	for _, in := range y.items {
		if !delivered {
			out = append(out, d.dropped(s.name, in.command, "session_ended"))
			continue
		}
		out = append(out, event.Draft{
			Header: event.Header{Type: d.instruction("delivered"), Session: s.name, Cause: in.command, Time: now},
			Fields: event.Fields{event.Meta("queued_ms", max(now.Sub(in.at).Milliseconds(), 0))},
		})
	}
	_ = d.c.Emit(s.name, nil, out) // no room: nothing is claimed
}

// Ending empties the queue of a session that is about to end, and gives the
// drafts that say so: they are bound before session.ended. From here on
// commands are refused, until a run or a request shows that it goes on. Before does it for
// an end that the agent tells; whoever ends a session by session.Exit does it
// first.
func (d *Dispatcher) Ending(session string) []event.Draft {
	d.mu.Lock()
	defer d.mu.Unlock()
	s, ok := d.sessions.get(session)
	if !ok {
		return nil
	}
	var out []event.Draft
	for _, in := range s.queue {
		out = append(out, d.dropped(session, in.command, "session_ended"))
	}
	s.queue, s.ended = nil, true
	return out
}

func (d *Dispatcher) dropped(session, command, reason string) event.Draft {
	return event.Draft{
		Header: event.Header{Type: d.instruction("dropped"), Session: session, Cause: command, Severity: event.Notice, Time: d.c.Clock.Now()},
		Fields: event.Fields{event.Meta("reason", reason)},
	}
}
