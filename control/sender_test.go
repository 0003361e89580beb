package control

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"aep-wrap/event"
	"aep-wrap/session"
)

func answerEvent(typ, cause, data string, set ...func(*event.Event)) *event.Event {
	e := &event.Event{Header: event.Header{ID: event.NewID(t0), Type: typ, Time: t0, Source: "aep://h/agent/demo/session/s", Agent: "demo",
		Session: "s", Sequenced: true, Cause: cause, Capture: event.Redacted}}
	if data != "" {
		e.Data = []byte(data)
	}
	for _, fn := range set {
		fn(e)
	}
	return e
}

// A command's life, told as what comes in at which second.
func TestSender(t *testing.T) {
	type step struct {
		at   time.Duration
		in   func(s *Sender) *event.Event // nil with again: the link is a new one
		err  *Refusal
		sent bool // Next says so at that time
	}
	again := func(s *Sender) *event.Event { s.Reconnected(); return nil }
	ack := func(s *Sender) *event.Event { return answerEvent("control.accepted", s.cmd.ID, "") }
	sec := func(f float64) time.Duration { return time.Duration(f * float64(time.Second)) }
	by := func(typ, data string, set ...func(*event.Event)) func(s *Sender) *event.Event {
		return func(s *Sender) *event.Event { return answerEvent(typ, s.cmd.ID, data, set...) }
	}
	plain := func(typ, data string, set ...func(*event.Event)) func(s *Sender) *event.Event {
		return func(*Sender) *event.Event { return answerEvent(typ, "", data, set...) }
	}
	byAck := func(typ, data string) func(s *Sender) *event.Event {
		return func(s *Sender) *event.Event { return answerEvent(typ, s.res.Ack.ID, data) }
	}
	of := func(id string) func(*event.Event) { return func(e *event.Event) { e.Subject = id } }
	run := func(id string) func(*event.Event) { return func(e *event.Event) { e.Run = id } }
	pause := me.Pause(t0, "s")
	gone := &Refusal{pause.ID, NoRoute, "nobody has it"}
	respond := me.Respond(t0, "s", "q", Answer{Option: "allow"}, nil, "")
	for _, tc := range []struct {
		name   string
		cmd    event.Event
		follow bool
		steps  []step
		want   string
		exit   int
	}{
		{"accepted", pause, false, []step{{0, nil, nil, true}, {sec(1), ack, nil, false}}, "accepted", 0},
		{"rejected", pause, false, []step{{0, nil, nil, true}, {sec(1), by("control.rejected", `{"reason":"refused","detail":"not now"}`), nil, false}}, "refused (refused): not now", 3},
		{"rejected without a word", pause, true, []step{{0, nil, nil, true}, {sec(1), by("control.rejected", `{"reason":"busy"}`), nil, false}}, "refused (busy)", 3},
		{"a relay refuses", pause, true, []step{{0, nil, nil, true}, {sec(1), nil, &Refusal{pause.ID, "ambiguous", "two claim it"}, false}}, "refused (ambiguous): two claim it", 3},
		{"a frame for another", pause, false, []step{{0, nil, nil, true}, {sec(1), nil, &Refusal{"x", "no-route", ""}, false}, {sec(2), ack, nil, false}}, "accepted", 0},
		{"not back yet", pause, false, []step{{0, nil, nil, true}, {sec(1), again, nil, true}, {sec(1.1), nil, gone, false}, {sec(1.6), nil, nil, true}, {sec(1.7), nil, gone, false}, {sec(2.1), nil, nil, true}, {sec(3), ack, nil, false}}, "accepted", 0},
		{"never back", pause, false, []step{{0, nil, nil, true}, {sec(1), again, nil, true}, {sec(1.1), nil, gone, false}, {sec(9.9), nil, nil, true}, {sec(9.95), nil, gone, false}, {sec(10), nil, nil, false}},
			"no answer (timeout): the connection was lost, and is back, but nobody has it", 4},
		{"back, and against it", pause, false, []step{{0, nil, nil, true}, {sec(1), again, nil, true}, {sec(1.1), nil, gone, false}, {sec(1.2), by("control.rejected", `{"reason":"busy"}`), nil, false}}, "refused (busy)", 3},
		{"lost, and another refusal", pause, false, []step{{0, nil, nil, true}, {sec(1), again, nil, true}, {sec(1.1), nil, &Refusal{pause.ID, "ambiguous", ""}, false}}, "refused (ambiguous)", 3},
		{"no way at all", pause, false, []step{{0, again, nil, true}, {sec(1), nil, gone, false}}, "refused (no-route): nobody has it", 3},
		{"silence, and retries", pause, false, []step{{0, nil, nil, true}, {sec(1), nil, nil, false}, {sec(2.5), nil, nil, true}, {sec(5), nil, nil, true}, {sec(7.5), nil, nil, true}, {sec(10), nil, nil, false}}, "no answer (timeout)", 4},
		{"the retry finds the lost ack", pause, false, []step{{0, nil, nil, true}, {sec(2.5), nil, nil, true}, {sec(3), ack, nil, false}}, "accepted", 0},
		{"another session's ack", pause, false, []step{{0, nil, nil, true}, {sec(1), by("control.accepted", "", func(e *event.Event) { e.Session = "z" }), nil, false}, {sec(10), nil, nil, false}}, "no answer (timeout)", 4},
		{"an impostor's ack", pause, false, []step{{0, nil, nil, true}, {sec(1), by("control.accepted", "", func(e *event.Event) { e.Source = "aep://evil/agent/demo/session/s" }), nil, false}, {sec(10), nil, nil, false}}, "no answer (timeout)", 4},
		{"another command's ack", pause, false, []step{{0, nil, nil, true}, {sec(1), plain("control.accepted", ""), nil, false}, {sec(10), nil, nil, false}}, "no answer (timeout)", 4},
		{"the ack is lost, the outcome is not", pause, false, []step{{0, nil, nil, true}, {sec(1), by("progress.status", `{"phase":"paused"}`), nil, false}, {sec(10), nil, nil, false}}, "accepted", 0},

		{"paused", pause, true, []step{{0, nil, nil, true}, {sec(1), ack, nil, false}, {sec(2), plain("progress.status", `{"phase":"paused"}`), nil, false}, {sec(3), by("progress.status", `{"phase":"paused"}`), nil, false}}, "accepted: paused", 0},
		{"paused, citing the ack", pause, true, []step{{0, nil, nil, true}, {sec(1), ack, nil, false}, {sec(3), byAck("progress.status", `{"phase":"paused"}`), nil, false}}, "accepted: paused", 0},
		{"not paused", pause, true, []step{{0, nil, nil, true}, {sec(1), ack, nil, false}, {sec(3), by("error.raised", `{"code":"pause_failed","error":{"message":"EPERM"}}`), nil, false}}, "accepted, but it did not come to it: EPERM", 3},
		{"no outcome", pause, true, []step{{0, nil, nil, true}, {sec(1), ack, nil, false}, {sec(30), nil, nil, false}, {sec(61), nil, nil, false}}, "accepted, with no outcome yet", 4},

		{"answered", respond, true, []step{{0, nil, nil, true}, {sec(1), ack, nil, false}, {sec(2), by("attention.answered", `{"answer":{},"via":"control"}`, of("q")), nil, false}, {sec(3), plain("attention.resolved", `{"resolution":"answered"}`, of("q")), nil, false}}, "accepted: answered", 0},
		{"answered locally", respond, true, []step{{0, nil, nil, true}, {sec(1), ack, nil, false}, {sec(2), plain("attention.answered", `{"answer":{},"via":"oob"}`, of("q")), nil, false}, {sec(3), plain("attention.resolved", `{"resolution":"answered"}`, of("q")), nil, false}}, "accepted, but it did not come to it: the request was resolved otherwise (answered)", 3},
		{"another request", respond, true, []step{{0, nil, nil, true}, {sec(1), ack, nil, false}, {sec(3), plain("attention.timeout", ``, of("q0")), nil, false}, {sec(4), plain("attention.timeout", ``, of("q")), nil, false}}, "accepted, but it did not come to it: the request timed out", 3},

		{"run cancelled", me.CancelRun(t0, "s", "r1", ""), true, []step{{0, nil, nil, true}, {sec(1), ack, nil, false}, {sec(2), plain("run.cancelled", "", run("r0")), nil, false}, {sec(3), plain("run.cancelled", "", run("r1")), nil, false}}, "accepted: the run was cancelled", 0},
		{"run finished", me.CancelRun(t0, "s", "r1", ""), true, []step{{0, nil, nil, true}, {sec(1), ack, nil, false}, {sec(3), plain("run.finished", "", run("r1")), nil, false}}, "accepted, but it did not come to it: the run ended otherwise (finished)", 3},
		{"the open run cancelled", me.CancelRun(t0, "s", "", ""), true, []step{{0, nil, nil, true}, {sec(1), ack, nil, false}, {sec(2), plain("run.cancelled", "", run("r0")), nil, false}, {sec(3), by("run.cancelled", "", run("r1")), nil, false}}, "accepted: the run was cancelled", 0},
		{"session ended", me.CancelSession(t0, "s", ""), true, []step{{0, nil, nil, true}, {sec(1), ack, nil, false}, {sec(2), by("run.cancelled", ""), nil, false}, {sec(3), plain("session.ended", ""), nil, false}}, "accepted: the session ended", 0},
		{"delivered", me.Instruct(t0, Instruct("demo"), "s", "x"), true, []step{{0, nil, nil, true}, {sec(1), ack, nil, false}, {sec(2), by("x.demo.instruction.delivered", ""), nil, false}}, "accepted: delivered", 0},
		{"dropped", me.Instruct(t0, Instruct("demo"), "s", "x"), true, []step{{0, nil, nil, true}, {sec(1), ack, nil, false}, {sec(2), by("x.demo.instruction.dropped", `{"reason":"session_ended"}`), nil, false}}, "accepted, but it did not come to it: dropped (session_ended)", 3},
		{"a vendor's", me.command(t0, "x.demo.control.rewind", "s", nil, false), true, []step{{0, nil, nil, true}, {sec(1), ack, nil, false}, {sec(2), by("x.demo.rewind.done", ""), nil, false}}, "accepted: x.demo.rewind.done", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := NewSender(tc.cmd, SenderConfig{Follow: tc.follow, Wait: time.Minute, Source: "aep://h/agent/demo/session/s"})
			for _, st := range tc.steps {
				if s.Result().Status != Open {
					t.Fatalf("at %v: settled already, as %v", st.at, s.Result())
				}
				now := t0.Add(st.at)
				if st.in != nil {
					if e := st.in(s); e != nil {
						s.Event(e, now)
					}
				}
				if st.err != nil {
					s.Refusal(st.err)
				}
				if sent, _ := s.Next(now); sent != st.sent {
					t.Errorf("at %v: sent %v", st.at, sent)
				}
			}
			must(t, s.Result().String(), tc.want)
			if got := s.Result().ExitCode(); got != tc.exit {
				t.Errorf("exit %d, want %d", got, tc.exit)
			}
		})
	}
}

// Commands are labelled by what they carry, and are the target's to read.
func TestBuilders(t *testing.T) {
	fields := []event.FormField{{ID: "db", Type: "select", Choices: []event.FormChoice{{ID: "1"}}}, {ID: "n", Type: "number"}, {ID: "name", Type: "string"}}
	vals := func(v ...any) Answer {
		m := map[string]any{}
		for i := 0; i < len(v); i += 2 {
			m[v[i].(string)] = v[i+1]
		}
		return Answer{Values: m}
	}
	for _, tc := range []struct {
		name    string
		e       event.Event
		capture event.Level
		data    string
	}{
		{"option", me.Respond(t0, "s", "q", Answer{Option: "allow"}, nil, ""), event.Metadata, `{"answer":{"option":"allow"}}`},
		{"args", me.Respond(t0, "s", "q", Answer{Option: "allow"}, nil, "d"), event.Metadata, `{"answer":{"option":"allow"},"args_digest":"d"}`},
		{"text", me.Respond(t0, "s", "q", Answer{Text: "x"}, nil, ""), event.Redacted, `{"answer":{"text":"x"}}`},
		{"closed values", me.Respond(t0, "s", "q", vals("db", "1", "n", 3), fields, ""), event.Metadata, `{"answer":{"values":{"db":"1","n":3}}}`},
		{"closed values in a list", me.Respond(t0, "s", "q", vals("db", []any{"1"}), fields, ""), event.Metadata, `{"answer":{"values":{"db":["1"]}}}`},
		{"other in a list", me.Respond(t0, "s", "q", vals("db", []any{"1", "x"}), fields, ""), event.Redacted, `{"answer":{"values":{"db":["1","x"]}}}`},
		{"free values", me.Respond(t0, "s", "q", vals("name", "x"), fields, ""), event.Redacted, `{"answer":{"values":{"name":"x"}}}`},
		{"unknown fields", me.Respond(t0, "s", "q", vals("db", "1"), nil, ""), event.Redacted, `{"answer":{"values":{"db":"1"}}}`},
		{"cancel", me.CancelRun(t0, "s", "r", ""), event.Metadata, `{"scope":"run"}`},
		{"cancel with a reason", me.CancelSession(t0, "s", "x"), event.Redacted, `{"reason":"x","scope":"session"}`},
		{"pause", me.Pause(t0, "s"), event.Metadata, ``},
		{"resume", me.Resume(t0, "s"), event.Metadata, ``},
		{"instruct", me.Instruct(t0, Instruct("claude-code"), "s", "x"), event.Redacted, `{"text":"x"}`},
	} {
		e, err := event.Parse(tc.e.AppendJSON(nil))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if v := event.Check(e); len(v) > 0 {
			t.Errorf("%s: %v", tc.name, v)
		}
		if e.Capture != tc.capture || string(e.Data) != tc.data || e.Sequenced || e.Source != "aep://h/agent/cli" || !IsCommand(e.Type) {
			t.Errorf("%s: %s", tc.name, e.AppendJSON(nil))
		}
		if c, bad := read(tc.e.AppendJSON(nil)); bad != nil || c.fault() != "" {
			t.Errorf("%s: the target says %v %v", tc.name, bad, c.fault())
		}
		if e.Type == Respond && (e.Subject != "q" || e.Cause != "q") {
			t.Errorf("%s: subject %q, cause %q", tc.name, e.Subject, e.Cause)
		}
	}
	must(t, InstructType([]string{Pause, Instruct("kimi")}), Instruct("kimi"))
	must(t, InstructType([]string{Pause}), "")
}

// pipe is a link to a world.
type pipe struct {
	w    *world
	in   chan Message
	lose int // sends that are lost on the way
	sent []string
}

func (p *pipe) Send(_ context.Context, line []byte) error {
	p.sent = append(p.sent, string(line))
	if p.lose > 0 {
		p.lose--
		return nil
	}
	n := p.w.count()
	r := p.w.Handle(auth, line)
	var ms []Message
	if r.Refusal != nil {
		ms = append(ms, Message{Refusal: r.Refusal})
	}
	if r.Ack != nil {
		e, err := event.Parse(r.Ack)
		if err != nil {
			return err
		}
		ms = append(ms, Message{Event: &e})
	}
	p.w.mu.Lock()
	for _, e := range p.w.events[n:] {
		ms = append(ms, Message{Event: &e})
	}
	p.w.mu.Unlock()
	for _, m := range ms {
		p.in <- m
	}
	return nil
}

func (p *pipe) Receive(ctx context.Context) (Message, error) {
	select {
	case m, ok := <-p.in:
		if !ok {
			return m, io.ErrUnexpectedEOF
		}
		return m, nil
	case <-ctx.Done():
		return Message{}, ctx.Err()
	}
}

// real is a clock that goes.
func real() Clock {
	return Clock{Now: time.Now, After: func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }}
}

// TestRun is in a bubble, where no machine is too slow for a window.
func TestRun(t *testing.T) { synctest.Test(t, run) }

func run(t *testing.T) {
	setup := func(c SenderConfig, cmd func(now time.Time) event.Event) (*world, *pipe, *Sender) {
		w := newWorld(t)
		w.clock.now = time.Now()
		w.run("s", "r1")
		c.Clock = real()
		return w, &pipe{w: w, in: make(chan Message, 64)}, NewSender(cmd(time.Now()), c)
	}
	pause := func(now time.Time) event.Event { return me.Pause(now, "s") }

	_, p, s := setup(SenderConfig{}, pause)
	if r, err := s.Run(t.Context(), p); err != nil || r.Status != Accepted {
		t.Errorf("%v, %v", r, err)
	}

	_, p, s = setup(SenderConfig{}, func(now time.Time) event.Event { return me.Pause(now, "nobody") })
	if r, err := s.Run(t.Context(), p); err != nil || r.Status != Rejected || r.Reason != NoRoute {
		t.Errorf("%v, %v", r, err)
	}

	// Lost twice, and sent again, the same.
	_, p, s = setup(SenderConfig{Window: 2 * time.Second, Retry: 5 * time.Millisecond}, pause)
	p.lose = 2
	if r, err := s.Run(t.Context(), p); err != nil || r.Status != Accepted || len(p.sent) < 3 || p.sent[0] != p.sent[2] {
		t.Errorf("%v, %v, sent %q", r, err, p.sent)
	}

	_, p, s = setup(SenderConfig{Window: 20 * time.Millisecond}, pause)
	p.lose = 1 << 20
	if r, err := s.Run(t.Context(), p); err != nil || r.Status != TimedOut || r.ExitCode() != ExitTimeout {
		t.Errorf("%v, %v", r, err)
	}

	// The link breaks after the ack was sent, and before it came.
	_, p, s = setup(SenderConfig{}, pause)
	p.lose = 1
	close(p.in)
	if r, err := s.Run(t.Context(), p); !errors.Is(err, ErrLink) || !errors.Is(err, io.ErrUnexpectedEOF) || r.Status != Open {
		t.Errorf("%v, %v", r, err)
	}
	p.in = make(chan Message, 64)
	s.Reconnected()
	if r, err := s.Run(t.Context(), p); err != nil || r.Status != Accepted {
		t.Errorf("%v, %v", r, err)
	}

	// Followed to the outcome.
	w, p, s := setup(SenderConfig{Follow: true}, func(now time.Time) event.Event { return me.CancelSession(now, "s", "") })
	go func() {
		for len(w.take()) == 0 {
			time.Sleep(time.Millisecond)
		}
		for _, e := range w.exit("s", session.Exit{Signal: "SIGTERM"}) {
			p.in <- Message{Event: &e}
		}
	}()
	if r, err := s.Run(t.Context(), p); err != nil || r.Status != Accepted || r.Outcome == nil || !strings.HasPrefix(r.Outcome.Type, "session.") {
		t.Errorf("%v, %v", r, err)
	}

	_, p, s = setup(SenderConfig{}, pause)
	p.lose = 1
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Run(ctx, p); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
