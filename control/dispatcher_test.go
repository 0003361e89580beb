package control

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"aep-wrap/event"
	"aep-wrap/session"
)

func must(t *testing.T, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func raw(typ, data string, set ...func(*event.Event)) event.Event {
	e := me.command(t0, typ, "s", nil, false)
	if data != "" {
		e.Data = []byte(data)
	}
	for _, fn := range set {
		fn(&e)
	}
	return e
}

func subject(id string) func(*event.Event) { return func(e *event.Event) { e.Subject = id } }

// The gates, in order: the first that is shut decides.
func TestGates(t *testing.T) {
	strange := func(e *event.Event) { e.Agent = "stranger" }
	old := func(e *event.Event) { e.Time = t0.Add(-100 * time.Hour) }
	elsewhere := func(e *event.Event) { e.Session = "other" }
	for _, tc := range []struct {
		name   string
		origin Origin
		cmd    event.Event
		want   string // the ack, or "frame" and its code
	}{
		{"no authentication", Origin{}, raw(Pause, ""), "frame unauthorized"},
		{"no authentication, undeclared", Origin{}, raw("x.acme.control.fly", ""), "frame unauthorized"},
		{"a watcher", Origin{Authenticated: true, Denied: "the token is for watching"}, raw("control.fly", "", func(e *event.Event) { e.Sequenced = true }), "unauthorized: the token is for watching"},
		{"undeclared", auth, raw("x.acme.control.fly", "{}"), "unsupported: this session accepts"},
		{"undeclared, and no such session", auth, raw("x.acme.control.fly", "", elsewhere), "frame unsupported"},
		{"undeclared core", auth, raw("control.fly", "", func(e *event.Event) { e.Sequenced = true }), "unsupported: this session accepts"},
		{"no such session", auth, raw(Pause, "", elsewhere), "frame no-route"},
		{"no such session for a watcher", Origin{Authenticated: true, Denied: "x"}, raw(Pause, "", elsewhere), "frame no-route"},
		{"not a command", auth, raw("attention.routed", ""), "frame invalid"},
		{"an ack", auth, raw("control.accepted", "", func(e *event.Event) { e.Sequenced = true }), "frame invalid"},

		{"respond without answer", auth, raw(Respond, "{}", subject("q")), "invalid: data.answer is missing"},
		{"respond without data", auth, raw(Respond, "", subject("q")), "invalid: data.answer is missing"},
		{"respond hiding its data", auth, raw(Respond, "", subject("q"), func(e *event.Event) { e.Capture = event.None }), "invalid: data.answer is missing"},
		{"respond to nothing", auth, raw(Respond, `{"answer":{"option":"allow"}}`), "invalid: subject is missing"},
		{"respond with a word", auth, raw(Respond, `{"answer":"allow"}`, subject("q")), "invalid: data.answer is a string"},
		{"respond to an unknown request", auth, raw(Respond, `{"answer":{"option":"allow"}}`, subject("q")), "invalid: no such request"},
		{"cancel without scope", auth, raw(Cancel, "{}"), "invalid: data.scope is missing"},
		{"cancel of the world", auth, raw(Cancel, `{"scope":"world"}`), "invalid: data.scope is \"world\""},
		{"cancel with a number for reason", auth, raw(Cancel, `{"scope":"run","reason":3}`), "invalid: data.reason is a number"},
		{"cancel with a reason labelled too low", auth, raw(Cancel, `{"scope":"run","reason":"enough"}`), "accepted"},
		{"instruct without text", auth, raw(Instruct(agent), `{}`), "invalid: data.text is missing"},
		{"instruct with blanks", auth, raw(Instruct(agent), `{"text":" "}`), "invalid: data.text is missing"},
		{"instruct at length", auth, raw(Instruct(agent), `{"text":"`+strings.Repeat("x", maxText+1)+`"}`), "invalid: data.text has"},
		{"members that are not known", auth, raw(Pause, `{"why":{"a":[1]}}`), "accepted"},

		{"too old", auth, raw(Pause, "", old), "refused: the command's time is 100h0m0s ago"},
		{"the policy", auth, raw(Pause, "", strange), "refused: strangers wait outside"},
		{"the policy comes after the payload", auth, raw(Cancel, "", strange), "invalid: data.scope is missing"},
		{"a vendor's", auth, raw("x.demo.control.rewind", `{"by":3}`), "accepted"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, func(w *world) {
				w.policy = func(q Question) string {
					if q.Command.Agent == "stranger" {
						return "strangers wait outside"
					}
					return ""
				}
			})
			w.run("s", "r1")
			n := w.count()
			line := tc.cmd.AppendJSON(nil)
			if tc.cmd.Sequenced {
				w.stream = event.NewStream() // its sender numbers what it must not
			}
			got := ""
			if r := w.Handle(tc.origin, line); r.Refusal != nil {
				got = "frame " + r.Refusal.Code
				if r.Refusal.Cause != tc.cmd.ID {
					t.Errorf("the frame's cause is %q", r.Refusal.Cause)
				}
				if w.count() != n {
					t.Errorf("a frame went with %v", w.since(n))
				}
			} else {
				got = w.ackOf(tc.cmd.ID)
				if !bytes.Equal(w.log[n], line) {
					t.Errorf("the command is not in the log: %s", w.log[n])
				}
				if got != "accepted" && len(w.effects) > 0 {
					t.Errorf("rejected, and %v", w.effects)
				}
			}
			if !strings.HasPrefix(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
	w := newWorld(t)
	for _, line := range []string{"", "{", `{"aep":"0.1"}`, strings.Repeat(" ", maxLine+1)} {
		if r := w.Handle(auth, []byte(line)); r.Refusal == nil || r.Refusal.Code != InvalidEvent {
			t.Errorf("%.20q: %+v", line, r)
		}
	}
}

// The round trip that the protocol's golden stream shows.
func TestAttentionRoundTrip(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	n := w.count()
	h, id := w.ask("s", "k1", time.Hour, permission(), nil)
	cmd := me.Respond(w.Now(), "s", id, Answer{Option: "allow"}, nil, "d1")
	if r := w.send(cmd); r.Ack != nil || r.Refusal != nil {
		t.Fatalf("%+v", r)
	}
	must(t, string(h.Wait(t.Context())), `{"Option":"allow","Text":"","Values":null}`)
	w.tell("s", event.Draft{Header: event.Header{Type: "tool.completed"}, Pair: "k1",
		Fields: event.Fields{event.Meta("tool", event.Fields{event.Meta("name", "Bash"), event.Meta("call_id", "k1")})}})
	w.Holds().Resolve(id, "answered") // as an adapter that has evidence does
	equal(t, w.since(n), []string{
		"attention.requested <- run.started",
		"control.attention.respond of attention.requested <- attention.requested",
		"control.accepted <- attention.respond",
		`attention.answered of attention.requested <- attention.respond {"answer":{"option":"allow"},"by":"cli","via":"control"}`,
		`tool.completed of ?Bash {"tool":{"call_id":"k1","name":"Bash"}}`,
		`attention.resolved of attention.requested <- attention.answered {"resolution":"answered"}`,
	})
	late := you.Respond(w.Now(), "s", id, Answer{Option: "deny"}, nil, "")
	w.send(late)
	must(t, w.ackOf(late.ID), "refused: the request was closed: answered by cli: option allow")
	if p := w.Holds().Pending(); len(p) != 0 {
		t.Errorf("still pending: %v", p)
	}
}

// One ack for each (source, id), and the same bytes again.
func TestRedelivery(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	cmd := me.Pause(w.Now(), "s")
	w.send(cmd)
	n := w.count()
	first := w.send(cmd).Ack
	if first == nil || !bytes.Contains(first, []byte(`"cause":"`+cmd.ID+`"`)) {
		t.Fatalf("the ack again: %s", first)
	}
	if !bytes.Equal(first, w.log[len(w.log)-1]) {
		t.Errorf("the ack again is not the ack:\n%s\n%s", first, w.log[len(w.log)-1])
	}
	other := cmd
	other.Source, other.Agent = you.Source, you.Agent
	w.mu.Lock()
	w.stream = event.NewStream()
	w.mu.Unlock()
	if r := w.send(other); r.Ack != nil { // another sender's command of that id
		t.Errorf("another's ack: %s", r.Ack)
	}
	w.clock.move(time.Hour)
	if again := w.send(cmd).Ack; !bytes.Equal(again, first) {
		t.Errorf("later: %s", again)
	}
	if len(w.take()) != 1 {
		t.Error("carried out more than once")
	}
	if r := w.Handle(Origin{Authenticated: true, Denied: "watch only"}, cmd.AppendJSON(nil)); !bytes.Equal(r.Ack, first) {
		t.Errorf("replayed by a watcher: %+v", r)
	}
	if r := w.Handle(Origin{}, cmd.AppendJSON(nil)); r.Ack != nil || r.Refusal == nil {
		t.Errorf("replayed by nobody: %+v", r)
	}

	// A restart on the session's log, the events of the log alone telling.
	w.start()
	w.tell("s", event.Draft{Header: event.Header{Type: "progress.status"}})
	if again := w.send(cmd).Ack; !bytes.Equal(again, first) {
		t.Errorf("after a restart: %s", again)
	}
	if len(w.take()) != 0 {
		t.Error("carried out again after a restart")
	}
	_ = n
}

// A duplicate that comes while the decision is on its way needs no ack of its
// own; what was lost on the way is told once more after the window.
func TestRedeliveryWhilePending(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	n := w.count()
	cmd := me.Pause(w.Now(), "s")
	w.deaf = true
	w.send(cmd)
	if r := w.send(cmd); r.Ack != nil || r.Refusal != nil {
		t.Errorf("while pending: %+v", r)
	}
	w.deaf = false
	if r := w.send(cmd); r.Ack != nil || r.Refusal != nil || w.count() != n {
		t.Errorf("while pending: %+v, %v", r, w.since(n))
	}
	w.clock.move(DefaultWindow)
	w.send(cmd)
	equal(t, w.since(n), []string{"control.accepted <- ?" + cmd.ID})
	if w.send(cmd).Ack == nil {
		t.Error("no ack after all")
	}
	if e := w.take(); len(e) != 1 {
		t.Errorf("effects: %v", e)
	}
}

// What could not be told is not done.
func TestNothingIsDoneUntold(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	h, id := w.ask("s", "k1", time.Hour, permission(), nil)
	n := w.count()
	w.full = true
	cmds := []event.Event{
		me.Respond(w.Now(), "s", id, Answer{Option: "allow"}, nil, ""),
		me.Pause(w.Now(), "s"), me.CancelRun(w.Now(), "s", "r1", ""), me.CancelSession(w.Now(), "s", ""),
		me.Instruct(w.Now(), Instruct(agent), "s", "hello"),
	}
	for _, c := range cmds {
		if r := w.send(c); r.Refusal == nil || r.Refusal.Code != Busy || r.Refusal.Cause != c.ID {
			t.Errorf("%s: %+v", c.Type, r)
		}
	}
	if b := h.Wait(t.Context()); b != nil {
		t.Errorf("an unrecorded answer was applied: %s", b)
	}
	if e := w.take(); len(e) != 0 {
		t.Errorf("effects: %v", e)
	}
	w.full = false
	equal(t, w.since(n), nil)
	by, _ := w.Exit()
	if y := w.Take("s"); y != nil || by != "" {
		t.Errorf("left over: %v, %q", y, by)
	}
	// A retry is a new command then.
	for _, c := range cmds[1:] {
		w.send(c)
		must(t, w.ackOf(c.ID), "accepted")
	}
	w.send(cmds[0])
	must(t, w.ackOf(cmds[0].ID), "refused: the request is settled: an answer that could not be recorded, and was not applied")
}

func TestPauseAndResume(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	send := func(e event.Event, want string) Effect {
		t.Helper()
		w.send(e)
		must(t, w.ackOf(e.ID), want)
		if got := w.take(); want == "accepted" && len(got) == 1 {
			if got[0].Type != e.Type || got[0].Command != e.ID || got[0].Session != "s" || got[0].From != "cli" {
				t.Errorf("%+v", got[0])
			}
			return got[0]
		} else if want == "accepted" || len(got) > 0 {
			t.Fatalf("%s: effects %v", e.Type, got)
		}
		return Effect{}
	}
	pause := func() event.Event { return me.Pause(w.Now(), "s") }
	resume := func() event.Event { return me.Resume(w.Now(), "s") }

	send(resume(), "refused: the session is running already")
	n := w.count()
	p := send(pause(), "accepted")
	send(pause(), "refused: the session is being paused already")
	send(resume(), "busy: the session is being paused")
	m := w.count()
	w.Done(p, nil)
	equal(t, w.since(m), []string{`progress.status <- pause {"phase":"paused"}`})
	send(pause(), "refused: the session is paused already")
	r := send(resume(), "accepted")
	send(resume(), "refused: the session is being resumed already")
	send(pause(), "busy: the session is being resumed")
	m = w.count()
	w.Done(r, nil)
	equal(t, w.since(m), []string{`progress.status <- resume {"phase":"resumed"}`})

	// What failed is said to have failed, and nothing is claimed.
	p = send(pause(), "accepted")
	m = w.count()
	w.Done(p, errors.New("no permission"))
	equal(t, w.since(m), []string{`error.raised <- pause {"code":"pause_failed","error":{"message":"no permission","type":"control"},"fatal":false}`})
	send(resume(), "refused: the session is running already")
	w.Done(send(pause(), "accepted"), nil)

	// A session's end takes the commands with it.
	w.exit("s", session.Exit{})
	send(resume(), "refused: the session has ended")
	_ = n
}

func TestCancel(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	cancelled := func(run string) event.Draft {
		return event.Draft{Header: event.Header{Type: "run.cancelled", Run: run}, Fields: event.Fields{event.Meta("by", "user"), event.Meta("duration_ms", 3)}}
	}
	no := func(e event.Event, want string) {
		t.Helper()
		w.send(e)
		must(t, w.ackOf(e.ID), want)
		if got := w.take(); len(got) > 0 {
			t.Errorf("%s: effects %v", want, got)
		}
	}
	no(me.CancelRun(w.Now(), "s", "nobody", ""), "invalid: no such run in this session")

	cmd := me.CancelRun(w.Now(), "s", "", "stuck")
	w.send(cmd)
	e := w.take()
	if len(e) != 1 || e[0].Run != "r1" || e[0].Whole || e[0].Stopped {
		t.Fatalf("%+v", e)
	}
	no(me.CancelRun(w.Now(), "s", "r1", ""), "busy: it is being cancelled, by command "+cmd.ID)
	w.Done(e[0], nil)
	again := me.CancelRun(w.Now(), "s", "r1", "") // the first swallowed signal is no verdict
	w.send(again)
	must(t, w.ackOf(again.ID), "accepted")
	second := w.take()[0]

	n := w.count()
	if w.Landed(e[0]) || w.Landed(second) {
		t.Error("landed before the run's end was seen")
	}
	w.tell("s", cancelled(""))
	if !w.Landed(e[0]) || !w.Landed(second) {
		t.Error("not landed by the run's end")
	}
	equal(t, w.since(n), []string{`run.cancelled <- cancel {"by":"control","reason":"stuck"}`})
	if c := w.events[n].Cause; c != cmd.ID {
		t.Errorf("cites %s, want the first cancel, %s", c, cmd.ID)
	}
	no(me.CancelRun(w.Now(), "s", "r1", ""), "refused: the run is over")
	no(me.CancelRun(w.Now(), "s", "", ""), "refused: no run is open")

	// A run that the user cancels is the user's.
	w.run("s", "r2")
	n = w.count()
	w.tell("s", cancelled("r2"))
	equal(t, w.since(n), []string{`run.cancelled <- run.started {"by":"user"}`})

	// So is one long after a cancel that did not work.
	w.run("s", "r3")
	cmd = me.CancelRun(w.Now(), "s", "r3", "")
	w.send(cmd)
	w.Done(w.take()[0], nil)
	w.clock.move(time.Hour)
	n = w.count()
	w.tell("s", cancelled("r3"))
	equal(t, w.since(n), []string{`run.cancelled <- run.started {"by":"user"}`})

	// What cannot be carried out says so; what was over anyway does not.
	w.run("s", "r4")
	w.send(me.CancelRun(w.Now(), "s", "r4", ""))
	n = w.count()
	w.Done(w.take()[0], errors.New("gone"))
	equal(t, w.since(n), []string{`error.raised <- cancel {"code":"cancel_failed","error":{"message":"gone","type":"control"},"fatal":false}`})
	w.send(me.CancelRun(w.Now(), "s", "r4", ""))
	w.tell("s", cancelled("r4"))
	n = w.count()
	w.Done(w.take()[0], errors.New("gone"))
	equal(t, w.since(n), nil)
}

func TestCancelSession(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	w.ask("s", "k1", time.Hour, permission(), nil)
	w.send(me.Instruct(w.Now(), Instruct(agent), "s", "hello"))
	w.send(me.Pause(w.Now(), "s"))
	for _, e := range w.take() {
		if e.Type == Pause {
			w.Done(e, nil)
		}
	}
	cmd := me.CancelSession(w.Now(), "s", "enough")
	w.send(cmd)
	e := w.take()
	if len(e) != 1 || !e[0].Whole || !e[0].Stopped {
		t.Fatalf("%+v", e)
	}
	n := w.count()
	w.Done(e[0], nil)
	w.exit("s", session.Exit{Signal: "SIGTERM"})
	equal(t, w.since(n), []string{
		`progress.status <- cancel {"phase":"resumed"}`,
		`x.demo.instruction.dropped <- x.demo.control.instruct {"reason":"session_ended"}`,
		`attention.resolved of attention.requested <- attention.requested {"resolution":"dismissed"}`,
		`run.cancelled <- cancel {"by":"control"}`,
		`session.ended <- cancel {"reason":"killed","runs":1}`,
	})
	late := me.CancelSession(w.Now(), "s", "")
	w.send(late)
	must(t, w.ackOf(late.ID), "refused: the session has ended")
	if by, cause := w.Exit(); by != "" || cause != "" {
		t.Errorf("after the end: %q %q", by, cause)
	}
}

// A session.ended that the agent tells is the outcome too, and comes after
// what the queue held.
func TestBeforeAnEnd(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	w.send(me.Instruct(w.Now(), Instruct(agent), "s", "one"))
	w.send(me.CancelSession(w.Now(), "s", "enough"))
	n := w.count()
	w.tell("s", event.Draft{Header: event.Header{Type: "progress.status"}}, event.Draft{Header: event.Header{Type: "session.ended"}},
		event.Draft{Header: event.Header{Type: "x.demo.a.b"}})
	equal(t, w.since(n), []string{
		"progress.status",
		`x.demo.instruction.dropped <- x.demo.control.instruct {"reason":"session_ended"}`,
		`run.cancelled <- cancel {"by":"control","reason":"enough"}`,
		`session.ended <- cancel {"reason":"killed","runs":1}`,
		"x.demo.a.b",
	})
	given := []event.Draft{{Header: event.Header{Type: "progress.status"}}}
	if got := w.Before("s", given); &got[0] != &given[0] {
		t.Error("drafts were copied for nothing")
	}
}

func TestInstruct(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	if w.Take("s") != nil || w.Take("nobody") != nil {
		t.Error("something waits")
	}
	w.Take("s").Done(true) // nothing to tell
	var cmds []event.Event
	for i := range maxQueue {
		c := me.Instruct(w.Now(), Instruct(agent), "s", fmt.Sprint("text ", i))
		w.send(c)
		must(t, w.ackOf(c.ID), "accepted")
		cmds = append(cmds, c)
		w.clock.move(time.Millisecond)
	}
	over := me.Instruct(w.Now(), Instruct(agent), "s", "too much")
	w.send(over)
	must(t, w.ackOf(over.ID), "busy: 20 instructions wait already")
	if e := w.take(); len(e) != maxQueue || e[3].Text != "text 3" || e[3].Verb() != "instruct" {
		t.Errorf("effects: %v", e)
	}

	y := w.Take("s")
	if len(y.Texts) != maxQueue || y.Texts[0] != "text 0" {
		t.Fatalf("taken: %q", y.Texts)
	}
	full := me.Instruct(w.Now(), Instruct(agent), "s", "meanwhile")
	w.send(full)
	must(t, w.ackOf(full.ID), "busy: 20 instructions wait already")
	n := w.count()
	y.Done(false) // the agent went away before it read
	equal(t, w.since(n), nil)
	y = w.Take("s")
	if len(y.Texts) != maxQueue || y.Texts[0] != "text 0" {
		t.Fatalf("taken again: %q", y.Texts)
	}
	y.Done(true)
	got := w.since(n)
	if len(got) != maxQueue {
		t.Fatalf("told: %v", got)
	}
	must(t, got[0], `x.demo.instruction.delivered <- x.demo.control.instruct {"queued_ms":20}`)
	if w.events[n].Cause != cmds[0].ID {
		t.Error("cites another")
	}

	// A delivery that fails as the session ends is lost with it.
	w.send(me.Instruct(w.Now(), Instruct(agent), "s", "last"))
	y = w.Take("s")
	w.exit("s", session.Exit{})
	n = w.count()
	y.Done(false)
	equal(t, w.since(n), []string{`x.demo.instruction.dropped <- x.demo.control.instruct {"reason":"session_ended"}`})
}

// What an earlier emitter accepted and never delivered is told as dropped.
func TestRestartDropsInstructions(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	kept := me.Instruct(w.Now(), Instruct(agent), "s", "delivered")
	w.send(kept)
	w.Take("s").Done(true)
	lost := me.Instruct(w.Now(), Instruct(agent), "s", "lost")
	w.send(lost)
	w.send(raw(Instruct(agent), "{}")) // rejected
	w.ask("s", "k1", time.Hour, permission(), nil)
	n := w.count()
	w.start()
	w.tell("s", event.Draft{Header: event.Header{Type: "progress.status"}})
	equal(t, w.since(n), []string{
		`attention.resolved of attention.requested <- attention.requested {"resolution":"dismissed"}`,
		`x.demo.instruction.dropped <- x.demo.control.instruct {"reason":"restart"}`,
		"progress.status",
	})
	if w.events[n+1].Cause != lost.ID {
		t.Error("cites another")
	}
	// And what it held is closed, and what it ran is over.
	late := me.Respond(w.Now(), "s", w.events[n].Subject, Answer{Option: "allow"}, nil, "")
	w.send(late)
	must(t, w.ackOf(late.ID), "refused: the request was closed: resolved dismissed")
	c := me.CancelRun(w.Now(), "s", "r1", "")
	w.send(c)
	must(t, w.ackOf(c.ID), "accepted") // it was seen to go on: progress.status is of r1
	w.start()
	w.tell("s", event.Draft{Header: event.Header{Type: "x.demo.a.b", Run: "r9"}})
	c = me.CancelRun(w.Now(), "s", "r1", "")
	w.send(c)
	must(t, w.ackOf(c.ID), "refused: the run is over")
	n = w.count()
	w.start()
	w.tell("s", event.Draft{Header: event.Header{Type: "progress.status"}})
	equal(t, w.since(n), []string{"progress.status"})
}

func TestPolicies(t *testing.T) {
	w := newWorld(t, func(w *world) { w.policy = Policies(OnlyFrom("cli"), TooFast(time.Second)) })
	w.run("s", "r1")
	h, id := w.ask("s", "k1", time.Hour, permission(), nil)
	defer h.Abandon()
	w.clock.move(300 * time.Millisecond)
	fast := me.Respond(w.Now(), "s", id, Answer{Option: "allow"}, nil, "")
	w.send(fast)
	must(t, w.ackOf(fast.ID), "refused: answered 300 ms after it was asked; at least 1000 ms are expected")
	stranger := you.Respond(w.Now(), "s", id, Answer{Option: "allow"}, nil, "")
	w.send(stranger)
	must(t, w.ackOf(stranger.ID), "refused: the sender is not known here")
	w.clock.move(time.Second)
	ok := me.Respond(w.Now(), "s", id, Answer{Option: "allow"}, nil, "")
	w.send(ok)
	must(t, w.ackOf(ok.ID), "accepted")
	unknown := me.Respond(w.Now(), "s", "nothing", Answer{Option: "allow"}, nil, "")
	w.send(unknown)
	must(t, w.ackOf(unknown.ID), "invalid: no such request in this session")
}

// Memory is bounded, by count and by time.
func TestForgets(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	w.stream = event.NewStream()
	for range maxSeen + 10 {
		w.Dispatcher.record(&event.Event{Header: event.Header{ID: event.NewID(t0), Time: t0}}, nil)
	}
	if n := w.seen.len(); n != maxSeen {
		t.Errorf("%d decisions are remembered", n)
	}
	cmd := me.Pause(w.Now(), "s")
	w.send(cmd)
	w.clock.move(DefaultKeep + time.Minute)
	w.send(cmd)
	if n := w.seen.len(); n != 1 {
		t.Errorf("%d decisions are remembered after their time", n)
	}
	if e := w.take(); len(e) != 1 {
		t.Errorf("a command that was forgotten was carried out again: %v", e)
	}
}

func TestRefusalFrame(t *testing.T) {
	r := Refusal{Cause: "c", Code: NoRoute, Detail: `"x"`}
	must(t, string(r.AppendJSON(nil)), `{"cause":"c","code":"no-route","detail":"\"x\"","type":"error"}`)
	r = Refusal{Code: InvalidEvent}
	must(t, string(r.AppendJSON(nil)), `{"code":"invalid-event","type":"error"}`)
}

// Whatever comes as a command is acked at most once, or refused, and never
// breaks the stream.
func FuzzHandle(f *testing.F) {
	for _, e := range []event.Event{
		raw(Pause, ""), raw(Cancel, `{"scope":"run"}`), raw(Cancel, `{"scope":"session","reason":"x"}`),
		raw(Respond, `{"answer":{"option":"allow"}}`, subject("q")), raw(Respond, `{"answer":{"values":{"a":[1,null]}}}`, subject("q")),
		raw(Instruct(agent), `{"text":"hello"}`), raw("x.demo.control.rewind", `{"a":{}}`), raw("attention.routed", ""),
	} {
		f.Add(e.AppendJSON(nil))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		w := newWorld(t)
		w.run("s", "r1")
		h, id := w.ask("s", "k1", time.Hour, permission(), nil)
		defer h.Abandon()
		line = bytes.ReplaceAll(line, []byte(`"q"`), []byte(`"`+id+`"`))
		c, err := event.Parse(line)
		if err == nil && (c.Source == event.Source(host, agent, "s") || c.Sequenced) {
			return // an impostor under the target's own name: the stream is broken by it, not by us
		}
		n := w.count()
		r := w.Handle(auth, line)
		if (r.Refusal != nil) == (w.count() > n) {
			t.Fatalf("refused %v, and told %v", r.Refusal, w.since(n))
		}
		if r.Refusal != nil {
			return
		}
		m := w.count()
		if r := w.Handle(auth, line); r.Ack == nil || w.count() != m {
			t.Fatalf("the second delivery: %+v, %v", r, w.since(m))
		}
		w.exit("s", session.Exit{})
	})
}

// A session that only its log knows is not ours until it goes on; and a log
// that is read back while its session lives changes nothing.
func TestFoldAndLife(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	in := me.Instruct(w.Now(), Instruct(agent), "s", "waiting")
	w.send(in)
	fold := func() {
		for _, line := range w.log {
			if e, err := event.Parse(line); err == nil {
				w.Fold(&e, line)
			}
		}
	}
	fold()
	if owed := w.Recover("s"); len(owed) > 0 {
		t.Errorf("what waits was given up: %v", owed)
	}
	if y := w.Take("s"); y == nil || len(y.Texts) != 1 {
		t.Errorf("taken: %v", y)
	}
	w.start()
	fold()
	if r := w.send(me.Pause(w.Now(), "s")); r.Refusal == nil || r.Refusal.Code != NoRoute {
		t.Errorf("%+v", r)
	}
	if owed := w.Recover("s"); len(owed) != 1 || owed[0].Cause != in.ID {
		t.Errorf("owed: %v", owed)
	}
}

// A run that ends while its cancel is on its way to be told is not ended by
// it, and nothing is done to what runs next.
func TestCancelOvertaken(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	emit := w.c.Emit
	w.c.Emit = func(name string, line []byte, drafts []event.Draft) error {
		w.c.Emit = emit
		w.tell(name, event.Draft{Header: event.Header{Type: "run.cancelled", Run: "r1"}, Fields: event.Fields{event.Meta("by", "user")}})
		return emit(name, line, drafts)
	}
	n := w.count()
	c := me.CancelRun(w.Now(), "s", "r1", "")
	w.send(c)
	equal(t, w.since(n), []string{`run.cancelled <- run.started {"by":"user"}`, "control.cancel", "control.accepted <- cancel"})
	if e := w.take(); len(e) != 0 {
		t.Errorf("carried out: %v", e)
	}
}

// A session that ended goes on when a run of it starts.
func TestEndedGoesOn(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	w.tell("s", event.Draft{Header: event.Header{Type: "session.ended"}})
	c := me.Pause(w.Now(), "s")
	w.send(c)
	must(t, w.ackOf(c.ID), "refused: the session has ended")
	w.run("s", "r2")
	c = me.Pause(w.Now(), "s")
	w.send(c)
	must(t, w.ackOf(c.ID), "accepted")
}

// An end that knows its cause keeps it.
func TestKnownCauseStays(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	w.send(me.CancelRun(w.Now(), "s", "r1", ""))
	d := event.Draft{Header: event.Header{Type: "run.cancelled", Run: "r1", Cause: "policy"}, Fields: event.Fields{event.Meta("by", "policy")}}
	if got := w.Before("s", []event.Draft{d}); got[0].Cause != "policy" || got[0].Fields.Str("by") != "policy" {
		t.Errorf("%+v", got[0])
	}
	d.Run, d.Cause = "r2", ""
	if got := w.Before("s", []event.Draft{d}); got[0].Cause != "" {
		t.Errorf("another run's end cites the command: %+v", got[0])
	}
}

func BenchmarkHandle(b *testing.B) {
	w := newWorld(b)
	w.run("s", "r1")
	d := New(Config{Vendor: agent, Accepts: w.accepts, Clock: Clock{w.Now, w.After}, Do: func(Effect) {},
		Emit: func(string, []byte, []event.Draft) error { return nil }})
	d.Observe(&w.events[0], w.log[0])
	b.ReportAllocs()
	for b.Loop() {
		c := me.command(t0, "x.demo.control.rewind", "s", nil, false)
		if r := d.Handle(auth, c.AppendJSON(nil)); r.Refusal != nil {
			b.Fatal(r.Refusal)
		}
	}
}
