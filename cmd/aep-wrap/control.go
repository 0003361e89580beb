package main

import (
	"slices"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/agent"
	"aep-wrap/control"
	"aep-wrap/event"
	"aep-wrap/queue/ws"
)

// The windows in which an answer from afar is waited for, where --hold does
// not say.
const (
	holdAlone = 8 * time.Second // the runtime's own dialog is locked meanwhile
	holdLong  = time.Hour       // it is not, or there is none: a gate's
)

// reachWait is how long the first hook of a gated tool waits for the
// connection to the collector, on which an answer would come.
const reachWait = 3 * time.Second

// makeControl makes the target of this launch's commands. There is none where
// no command can come: without a collector.
func (l *launch) makeControl() error {
	c := &l.app.cfg
	can := c.can(&l.adapter)
	can.Process = true
	if c.GateRule != "" {
		if !holds(&l.adapter) {
			return usageError("--gate-rule: the tool calls of %s cannot be held", l.adapter.Title)
		}
		var err error
		if l.rule, err = agent.OpenRule(l.app.paths.expand(c.GateRule)); err != nil {
			return usageError("--gate-rule: %v", err)
		}
	}
	types, notes, err := control.Accepts(can, c.Allow, c.Deny)
	if err != nil {
		return usageError("%w", err)
	}
	if c.Collector == "" && c.Listen == off {
		l.gateless("there is no collector (--listen off)")
		return nil
	}
	for _, n := range notes {
		l.say(n)
	}
	if !c.trusted() {
		types = nil
	}
	switch {
	case can.Respond && !slices.Contains(types, control.Respond):
		l.gateless("answers from afar are not accepted")
	case c.Hold == 0:
		l.gateless("no hook waits (--hold 0)")
	case !can.Respond:
		l.gateless(l.adapter.Title + " waits for nobody")
	}
	l.effects = &agent.Effects{Cancel: l.adapter.Cancel, Log: l.log}
	l.target = control.New(control.Config{
		Vendor: l.adapter.Name, Accepts: types, Policy: c.policyOfAnswers(),
		Clock: control.Clock{Now: time.Now, After: func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }},
		Emit: func(session string, command []byte, drafts []event.Draft) error {
			return l.road.Control(session, command, drafts)
		},
		Do: l.effects.Do,
	})
	l.effects.Control = l.target
	return nil
}

// holds says whether an adapter's runtime waits before it uses a tool.
func holds(ad *adapters.Adapter) bool { return ad.Asks != nil && ad.Reply != nil && ad.Launch != nil }

// can is what hooks of an adapter's runtime can carry out.
func (c *config) can(ad *adapters.Adapter) control.Can {
	return control.Can{Vendor: ad.Name, Respond: ad.Asks != nil && ad.Reply != nil && c.Hold != 0, Instruct: ad.Instruct != nil}
}

// trusted says whether whoever commands by the collector is proven to be
// somebody (AEP-0004 §4.1).
func (c *config) trusted() bool { return c.Collector == "" || c.Token != "" }

// gateless tells an operator who gates tools that nobody can be asked.
func (l *launch) gateless(why string) {
	if len(l.app.cfg.Gate) > 0 {
		l.trouble("--gate gates nothing in this launch: %s; %s decides by itself", why, l.adapter.Title)
	}
}

// policyOfAnswers is what the operator wants refused beyond the gates.
func (c *config) policyOfAnswers() control.Policy {
	var all []control.Policy
	if c.AnswerAfter > 0 {
		all = append(all, control.TooFast(c.AnswerAfter))
	}
	if len(c.Senders) > 0 {
		all = append(all, control.OnlyFrom(c.Senders...))
	}
	return control.Policies(all...)
}

// command takes a command from the collector, which has let its sender in.
func (l *launch) command(line []byte, _ event.Header) {
	l.sink.reply(l.target.Handle(control.Origin{Authenticated: true, Peer: l.sink.socket.URL()}, line))
}

// reply tells who sent a command what it hears at once.
func (s *sink) reply(r control.Reply) {
	switch {
	case r.Ack != nil:
		s.socket.Send(r.Ack)
	case r.Refusal != nil:
		s.socket.Send(r.Refusal.AppendJSON(nil))
	}
}

// pendingAgain tells a collector that may be a new one what waits for an
// answer.
func (l *launch) pendingAgain() {
	for _, p := range l.target.Holds().Pending() {
		if p.Remote && p.Line != nil {
			l.sink.socket.Send(p.Line)
		}
	}
}

// patience is how long hooks may wait for an answer from afar.
func (l *launch) patience() agent.Patience {
	var p agent.Patience
	if l.target != nil {
		p = l.app.cfg.patience()
		p.Reachable = l.reachable
	}
	p.Rule = l.rule
	return p
}

// patience is how long the operator lets hooks wait.
func (c *config) patience() agent.Patience {
	if c.Hold == 0 {
		return agent.Patience{}
	}
	window := func(d time.Duration) time.Duration {
		if c.Hold > 0 {
			return c.Hold
		}
		return d
	}
	return agent.Patience{
		Hold: window(holdAlone), Both: window(holdLong), Lone: window(0), Gate: window(holdLong),
		Gated: func(tool string) bool { return adapters.Gated(c.Gate, tool) },
	}
}

// reachable says whether an answer could come at present. A gate waits a
// moment for it: its tool may be the first thing that the agent does.
func (l *launch) reachable(gated bool) bool {
	connected := func() bool { return l.sink != nil && l.sink.socket.Stats().State == ws.Connected }
	if !gated || connected() {
		return connected()
	}
	for end := time.Now().Add(reachWait); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if connected() {
			return true
		}
	}
	l.trouble("nobody can be asked about the gated tools: there is no connection to the collector; %s decides", l.adapter.Title)
	return false
}

// allowed tells an adapter what others may do in this launch.
func (l *launch) allowed(seen *adapters.Launch) {
	p := l.patience()
	seen.Hold, seen.Both = p.Hold, p.Both
	if p.Gate > 0 {
		seen.Gate = l.app.cfg.Gate
	}
	if l.rule != nil {
		seen.Gate = []string{"*"}
	}
}
