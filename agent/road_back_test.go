package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/control"
	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
	"aep-wrap/redaction"
	"aep-wrap/session"
)

// asking is a runtime that asks: in a hook "ask" of whoever is before its
// screen and of others, in "lock" of others alone, in "tool" only where the
// operator gates the tool. An answer is its option; "bad" cannot be told, and
// "panic" is a fault in the adapter.
var asking = adapters.Adapter{
	Name: "plain",
	Map: func(m adapters.Moment) []event.Draft {
		str := func(k string) string { s, _ := m.Payload[k].(string); return s }
		h := func(typ string) event.Header { return event.Header{Type: typ, Session: str("session"), Run: "r"} }
		via := "oob"
		if m.Held {
			via = "control"
		}
		ask := event.Draft{Header: h("attention.requested"), Key: str("key"), Pair: str("key"), Link: event.Link{Tool: "Shell", Args: str("args")},
			Fields: event.Fields{event.Meta("kind", "permission"), event.Labelled("prompt", "May I?", ""), event.Meta("respond_via", []any{via}),
				event.Meta("options", []event.Fields{{event.Meta("id", "allow"), event.Labelled("label", "Yes", "allow")}, {event.Meta("id", "bad"), event.Labelled("label", "No", "bad")},
					{event.Meta("id", "panic"), event.Labelled("label", "?", "panic")}})}}
		switch m.Name {
		case "run":
			return []event.Draft{{Header: h("run.started"), Key: "r"}}
		case "ask", "lock":
			return []event.Draft{ask}
		case "tool":
			out := []event.Draft{{Header: h("tool.requested"), Fields: event.Fields{event.Meta("tool", event.Fields{event.Meta("name", "Shell"), event.Meta("call_id", str("key"))})}}}
			if m.Gated {
				out = append(out, ask)
			}
			return out
		case "local":
			return []event.Draft{{Header: h("attention.answered"), Pair: str("key"), Fields: event.Fields{event.Meta("answer", event.Fields{event.Meta("option", "allow")}), event.Meta("via", "oob")}}}
		case "applied":
			return []event.Draft{{Header: h("attention.resolved"), Pair: str("key"), Fields: event.Fields{event.Meta("resolution", "answered")}}}
		case "end":
			return []event.Draft{{Header: event.Header{Type: "session.ended", Session: str("session")}, Key: "end"}}
		}
		return nil
	},
	Asks: func(m adapters.Moment) adapters.Ask {
		switch m.Name {
		case "ask":
			return adapters.Ask{Held: true, Both: true}
		case "lock":
			return adapters.Ask{Held: true}
		case "tool":
			return adapters.Ask{Gate: "Shell"}
		}
		return adapters.Ask{}
	},
	Reply: func(_ adapters.Moment, a adapters.Answer) []byte {
		switch a.Option {
		case "bad":
			return nil
		case "panic":
			panic("a fault")
		}
		return []byte(a.Option)
	},
	Instruct: func(m adapters.Moment, text string) []byte {
		if m.Name != "run" && m.Name != "note" {
			return nil
		}
		return []byte("hear: " + text)
	},
}

type back struct {
	*testing.T
	*Road
	d        *control.Dispatcher
	dir      string
	sink     *basket
	effects  chan control.Effect
	patience Patience
	me       control.From
}

func newBack(t *testing.T, set ...func(*back)) *back {
	t.Helper()
	b := &back{T: t, dir: t.TempDir(), sink: &basket{}, effects: make(chan control.Effect, 64), me: control.NewFrom("h", "phone"),
		patience: Patience{Hold: time.Minute, Both: time.Minute, Gate: time.Minute, Gated: func(string) bool { return false }}}
	for _, fn := range set {
		fn(b)
	}
	b.start()
	return b
}

// start begins the road anew, as a launch does.
func (b *back) start() {
	b.d = control.New(control.Config{
		Vendor: "plain", Accepts: []string{control.Respond, control.Cancel, control.Pause, control.Resume, control.Instruct("plain")},
		Clock: control.Clock{Now: time.Now, After: func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }},
		Emit:  func(s string, c []byte, d []event.Draft) error { return b.Control(s, c, d) },
		Do:    func(e control.Effect) { b.effects <- e },
	})
	b.Road = NewRoad(RoadConfig{
		Adapter: asking, Agent: "plain", Host: "h", Session: "launch", Start: time.Now(), LogDir: b.dir,
		Gate: redaction.NewGate(redaction.Policy{Ceiling: event.Metadata, For: map[string]event.Level{"attention": event.Redacted, "control": event.Redacted}},
			redaction.NewPipeline(redaction.Options{})),
		Sinks: []Sink{b.sink}, Control: b.d, Patience: b.patience,
	})
}

func hooked(name string, kv ...string) adapters.Moment {
	m := moment(append([]string{"session", "s"}, kv...)...)
	m.Name = name
	return m
}

// known runs something, so that the session is known, and waits until it is.
func (b *back) known() {
	b.Helper()
	b.Hook(hooked("run"), 1)
	b.until("a run", func(e event.Event) bool { return e.Type == "run.started" })
}

// until waits for an event in the log.
func (b *back) until(what string, is func(event.Event) bool) event.Event {
	b.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		raw, _ := os.ReadFile(jsonl.Path(b.dir, "plain", "s"))
		for line := range bytes.Lines(raw) {
			if e, err := event.Parse(bytes.TrimSpace(line)); err == nil && is(e) {
				return e
			}
		}
	}
	raw, _ := os.ReadFile(jsonl.Path(b.dir, "plain", "s"))
	b.Fatalf("in vain: %s\n%s", what, raw)
	return event.Event{}
}

func (b *back) asked(key string) event.Event {
	b.Helper()
	id := event.DeriveID("plain", "s", "attention.requested", key)
	return b.until("a request", func(e event.Event) bool { return e.ID == id })
}

func (b *back) send(e event.Event) control.Reply {
	return b.d.Handle(control.Origin{Authenticated: true}, e.AppendJSON(nil))
}

func (b *back) respond(request, option string) event.Event {
	return b.me.Respond(time.Now(), "s", request, control.Answer{Option: option}, nil, "")
}

// ackOf waits for a command's ack, as "accepted" or "reason: detail".
func (b *back) ackOf(id string) string {
	b.Helper()
	e := b.until("an ack", func(e event.Event) bool { return e.Cause == id && strings.HasPrefix(e.Type, "control.") })
	if e.Type == "control.accepted" {
		return "accepted"
	}
	d, _ := event.ParseObject(e.Data)
	return fmt.Sprintf("%v: %v", d["reason"], d["detail"])
}

// hear is what a hook hears, and when it heard it.
func hear(h *Held) <-chan string {
	c := make(chan string, 1)
	go func() {
		s := string(h.Answer(context.Background()))
		h.Told(nil)
		c <- s
	}()
	return c
}

func got(t *testing.T, c <-chan string) string {
	t.Helper()
	select {
	case s := <-c:
		return s
	case <-time.After(patience):
		t.Fatal("the hook hears nothing")
		return ""
	}
}

// An answer from afar reaches the hook that waits; the command is in the log
// and was offered to no sink; a second answer hears what was decided.
func TestHookIsAnswered(t *testing.T) {
	b := newBack(t)
	b.known()
	h := b.Hook(hooked("ask", "key", "k"), 1)
	if !h.Waits() {
		t.Fatal("nobody waits")
	}
	c := hear(h)
	e := b.asked("k")
	if d, _ := event.ParseObject(e.Data); fmt.Sprint(d["respond_via"]) != "[control]" || d["expires_at"] == nil {
		t.Errorf("the request is told as %v", d)
	}
	first := b.respond(e.ID, "allow")
	if r := b.send(first); r.Refusal != nil {
		t.Fatalf("%+v", r.Refusal)
	}
	if s := got(t, c); s != "allow" {
		t.Errorf("the hook heard %q", s)
	}
	if a := b.ackOf(first.ID); a != "accepted" {
		t.Error(a)
	}
	second := b.respond(e.ID, "bad")
	b.send(second)
	if a := b.ackOf(second.ID); !strings.HasPrefix(a, "refused: ") || !strings.Contains(a, "allow") {
		t.Error(a)
	}
	// Redelivery: the same bytes, and nothing more.
	r := b.send(first)
	ack := b.until("the ack", func(e event.Event) bool { return e.Cause == first.ID && e.Type == "control.accepted" })
	if string(r.Ack) != string(ack.AppendJSON(nil)) {
		t.Errorf("redelivered: %s", r.Ack)
	}
	b.Hook(hooked("applied", "key", "k"), 1)
	exit(t, b.Road)
	es := readLog(t, b.dir, "s")
	if n := count(es, control.Respond); n != 2 {
		t.Errorf("%d commands in the log", n)
	}
	if count(es, "attention.answered") != 1 || count(es, "attention.resolved") != 1 {
		t.Errorf("%d answered, %d resolved", count(es, "attention.answered"), count(es, "attention.resolved"))
	}
	for _, it := range b.sink.items {
		if !it.Sequenced {
			t.Errorf("a sink was offered %s", it.Line)
		}
	}
	if want := len(es) - 2; len(b.sink.items) != want {
		t.Errorf("%d events to the sink, want %d", len(b.sink.items), want)
	}
}

// Five hundred senders answer at once, each with another id: one is taken, and
// one decision reaches the hook.
func TestFiveHundredAnswers(t *testing.T) {
	b := newBack(t)
	b.known()
	h := b.Hook(hooked("ask", "key", "k"), 1)
	c := hear(h)
	e := b.asked("k")
	var accepted, refused atomic.Int64
	var wg sync.WaitGroup
	begin := make(chan struct{})
	cmds := make([]event.Event, 500)
	for i := range cmds {
		cmds[i] = control.NewFrom("h", fmt.Sprintf("phone%d", i)).Respond(time.Now(), "s", e.ID, control.Answer{Option: "allow"}, nil, "")
		wg.Go(func() {
			<-begin
			if r := b.send(cmds[i]); r.Refusal != nil {
				t.Errorf("%+v", r.Refusal)
			}
			b.send(cmds[i]) // and once more
		})
	}
	close(begin)
	wg.Wait()
	if s := got(t, c); s != "allow" {
		t.Errorf("the hook heard %q", s)
	}
	exit(t, b.Road)
	es := readLog(t, b.dir, "s")
	for _, x := range es {
		switch x.Type {
		case "control.accepted":
			accepted.Add(1)
		case "control.rejected":
			refused.Add(1)
		}
	}
	if accepted.Load() != 1 || refused.Load() != 499 {
		t.Errorf("%d accepted, %d refused", accepted.Load(), refused.Load())
	}
	if n := count(es, "attention.answered"); n != 1 {
		t.Errorf("%d times answered", n)
	}
}

// What else ends a hold: its time, an answer in the agent's own screen, the
// runtime's going away, the session's end. Each time the runtime goes on, and
// the request has one terminal.
func TestHoldEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(b *back, gone func())
		want []string // of attention, later than the request
	}{
		{"in time", func(*back, func()) {}, []string{"attention.timeout"}},
		{"locally", func(b *back, _ func()) { b.Hook(hooked("local", "key", "k"), 1) }, []string{"attention.answered", "attention.resolved"}},
		{"the runtime goes away", func(_ *back, gone func()) { gone() }, []string{"attention.resolved"}},
		{"the session ends", func(b *back, _ func()) { b.Hook(hooked("end"), 1) }, []string{"attention.resolved"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			b := newBack(t, func(b *back) {
				if tt.name == "in time" {
					b.patience.Both = 300 * time.Millisecond
				}
			})
			b.known()
			h := b.Hook(hooked("ask", "key", "k"), 1)
			ctx, gone := context.WithCancel(context.Background())
			defer gone()
			c := make(chan string, 1)
			go func() {
				c <- string(h.Answer(ctx))
				h.Told(nil)
			}()
			id := b.asked("k").ID
			tt.do(b, gone)
			if s := got(t, c); s != "" {
				t.Errorf("the hook heard %q", s)
			}
			b.until("the end", func(e event.Event) bool { return e.Type == tt.want[len(tt.want)-1] })
			late := b.respond(id, "allow")
			b.send(late)
			if a := b.ackOf(late.ID); !strings.HasPrefix(a, "refused: ") {
				t.Error(a)
			}
			exit(t, b.Road)
			var found []string
			for _, e := range readLog(t, b.dir, "s") {
				if e.Subject == id && !control.IsCommand(e.Type) {
					found = append(found, e.Type)
				}
			}
			if !slices.Equal(found, tt.want) {
				t.Errorf("%v, want %v", found, tt.want)
			}
		})
	}
}

// An answer that the runtime cannot be told is none, a fault in the adapter
// neither; and an answer that never reached the runtime is not applied.
func TestAnswersThatAreNone(t *testing.T) {
	b := newBack(t)
	b.known()
	h := b.Hook(hooked("ask", "key", "k"), 1)
	id := b.asked("k").ID
	for _, option := range []string{"bad", "panic", "maybe"} {
		cmd := b.respond(id, option)
		b.send(cmd)
		if a := b.ackOf(cmd.ID); !strings.HasPrefix(a, "invalid: ") {
			t.Errorf("%s: %s", option, a)
		}
	}
	other := b.me.Respond(time.Now(), "s", id, control.Answer{Option: "allow"}, nil, "otherdigest")
	b.send(other)
	if a := b.ackOf(other.ID); a != "accepted" { // the moment has no digest to compare
		t.Log(a)
	}
	if s := string(h.Answer(context.Background())); s != "allow" {
		t.Errorf("%q", s)
	}
	h.Told(errors.New("broken pipe"))
	e := b.until("the end", func(e event.Event) bool { return e.Type == "attention.resolved" })
	if d, _ := event.ParseObject(e.Data); d["resolution"] != "dismissed" {
		t.Errorf("%v", d)
	}
	exit(t, b.Road)
}

// An answer is bound to the arguments that it was given for.
func TestAnswerIsBoundToArguments(t *testing.T) {
	b := newBack(t)
	b.known()
	h := b.Hook(hooked("ask", "key", "k", "args", "aaaa"), 1)
	id := b.asked("k").ID
	wrong := b.me.Respond(time.Now(), "s", id, control.Answer{Option: "allow"}, nil, "bbbb")
	b.send(wrong)
	if a := b.ackOf(wrong.ID); !strings.HasPrefix(a, "refused: ") || !strings.Contains(a, "arguments") {
		t.Error(a)
	}
	right := b.me.Respond(time.Now(), "s", id, control.Answer{Option: "allow"}, nil, "aaaa")
	b.send(right)
	if s := string(h.Answer(context.Background())); s != "allow" {
		t.Errorf("%q", s)
	}
	exit(t, b.Road)
}

// Where nobody can be reached nothing is held that would lock a dialog, and
// nothing at all where nobody may answer; a gate is held for its tools alone.
func TestWhatIsHeld(t *testing.T) {
	for _, tt := range []struct {
		name  string
		hook  string
		set   func(*back)
		waits bool
	}{
		{"both can answer, nobody is reached", "ask", func(b *back) { b.patience.Reachable = func(bool) bool { return false } }, true},
		{"it would lock, nobody is reached", "lock", func(b *back) { b.patience.Reachable = func(bool) bool { return false } }, false},
		{"it would lock", "lock", func(*back) {}, true},
		{"no window", "ask", func(b *back) { b.patience.Both = 0 }, false},
		{"a tool", "tool", func(*back) {}, false},
		{"a gated tool", "tool", func(b *back) { b.patience.Gated = func(t string) bool { return t == "Shell" } }, true},
		{"a gated tool, nobody is reached", "tool", func(b *back) {
			b.patience.Gated = func(string) bool { return true }
			b.patience.Reachable = func(gated bool) bool { return !gated }
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBack(t, tt.set)
			h := b.Hook(hooked(tt.hook, "key", "k"), 1)
			if h.Waits() != tt.waits {
				t.Errorf("waits: %v", h.Waits())
			}
			ctx, gone := context.WithCancel(context.Background())
			gone()
			if s := h.Answer(ctx); len(s) > 0 {
				t.Errorf("heard %q", s)
			}
			h.Told(nil)
			exit(t, b.Road)
			for _, e := range readLog(t, b.dir, "s") {
				if e.Type != "attention.requested" {
					continue
				}
				d, _ := event.ParseObject(e.Data)
				want := "[oob]"
				if tt.waits {
					want = "[control]"
				}
				if fmt.Sprint(d["respond_via"]) != want {
					t.Errorf("told as answerable by %v", d["respond_via"])
				}
			}
		})
	}
}

// A second reading of a request, and one of a session that another wrapper
// tells, hold up nobody.
func TestHoldWithoutARequest(t *testing.T) {
	b := newBack(t)
	b.known()
	first := b.Hook(hooked("ask", "key", "k"), 1)
	b.asked("k")
	again := b.Hook(hooked("ask", "key", "k"), 1)
	if s := got(t, hear(again)); s != "" {
		t.Errorf("a second reading heard %q", s)
	}
	other := newBack(t, func(o *back) { o.dir = b.dir })
	if s := got(t, hear(other.Hook(hooked("ask", "key", "other"), 1))); s != "" {
		t.Errorf("in a session of another's: %q", s)
	}
	if err := other.Control("s", nil, nil); err == nil {
		t.Error("a session of another's takes commands")
	}
	ctx, gone := context.WithCancel(context.Background())
	gone()
	first.Answer(ctx)
	exit(t, other.Road)
	exit(t, b.Road)
	if h := b.Hook(hooked("ask", "key", "late"), 1); h.Waits() {
		if s := got(t, hear(h)); s != "" {
			t.Errorf("after the end: %q", s)
		}
	}
}

// A text waits for a hook that hands it on; at the end what still waits is told
// as dropped, and after a crash by the next who comes.
func TestInstructions(t *testing.T) {
	b := newBack(t)
	b.known()
	say := func(text string) event.Event {
		cmd := b.me.Instruct(time.Now(), control.Instruct("plain"), "s", text)
		b.send(cmd)
		if a := b.ackOf(cmd.ID); a != "accepted" {
			t.Fatal(a)
		}
		return cmd
	}
	one, two := say("one"), say("two")
	if h := b.Hook(hooked("applied"), 1); h != nil {
		t.Error("a hook that reads nothing was told something")
	}
	h := b.Hook(hooked("run"), 1)
	if s := string(h.Answer(context.Background())); s != "hear: one\n\ntwo" {
		t.Errorf("%q", s)
	}
	h.Told(errors.New("gone")) // it waits on
	h = b.Hook(hooked("run"), 1)
	h.Answer(context.Background())
	h.Told(nil)
	for _, cmd := range []event.Event{one, two} {
		b.until("the delivery", func(e event.Event) bool { return e.Type == "x.plain.instruction.delivered" && e.Cause == cmd.ID })
	}
	three := say("three")
	exit(t, b.Road)
	es := readLog(t, b.dir, "s")
	if i := slices.IndexFunc(es, func(e event.Event) bool { return e.Type == "x.plain.instruction.dropped" && e.Cause == three.ID }); i < 0 || i > len(es)-2 {
		t.Errorf("what was never heard is told at %d of %d", i, len(es))
	}
	if raw, _ := os.ReadFile(jsonl.Path(b.dir, "plain", "s")); bytes.Contains(raw, []byte("three")) {
		t.Error("the log holds an instruction's words at metadata")
	}
}

// A command's words go to the log as far as its ceiling lets them, and without
// the secrets in them.
func TestCommandInTheLog(t *testing.T) {
	b := newBack(t)
	b.known()
	secret := "sk-ant-api03-" + strings.Repeat("Ab3", 30)
	cmd := b.me.CancelRun(time.Now(), "s", "", "because "+secret)
	b.send(cmd)
	<-b.effects
	e := b.until("the command", func(e event.Event) bool { return e.ID == cmd.ID })
	if d, _ := event.ParseObject(e.Data); !strings.HasPrefix(fmt.Sprint(d["reason"]), "because [REDACTED") {
		t.Errorf("%v", d)
	}
	plain := b.me.CancelRun(time.Now(), "s", "", "as agreed")
	b.send(plain)
	line := string(plain.AppendJSON(nil))
	b.until("the command", func(e event.Event) bool { return e.ID == plain.ID })
	exit(t, b.Road)
	raw, _ := os.ReadFile(jsonl.Path(b.dir, "plain", "s"))
	if bytes.Contains(raw, []byte(secret)) {
		t.Error("the log holds the secret")
	}
	if !strings.Contains(string(raw), line+"\n") {
		t.Error("a command without anything to hide is not in the log as it came")
	}
}

// Decisions are kept over a restart, while the session lives, and what an
// earlier life left waiting is closed.
func TestDecisionsOutliveARestart(t *testing.T) {
	b := newBack(t)
	b.known()
	h := b.Hook(hooked("ask", "key", "k"), 1)
	e := b.asked("k")
	cmd := b.me.Pause(time.Now(), "s")
	b.send(cmd)
	<-b.effects
	ack := b.until("the ack", func(e event.Event) bool { return e.Cause == cmd.ID })
	text := b.me.Instruct(time.Now(), control.Instruct("plain"), "s", "lost")
	b.send(text)
	b.ackOf(text.ID)

	// The process is gone: its log is what is left of it.
	raw, err := os.ReadFile(jsonl.Path(b.dir, "plain", "s"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, gone := context.WithCancel(context.Background())
	gone()
	h.Answer(ctx)
	exit(t, b.Road)
	if err := os.WriteFile(jsonl.Path(b.dir, "plain", "s"), raw, 0o600); err != nil {
		t.Fatal(err)
	}

	b.start()
	b.Hook(hooked("applied"), 1) // a word of the session
	b.Hook(hooked("run"), 1)
	b.until("its request is closed", func(x event.Event) bool { return x.Type == "attention.resolved" && x.Subject == e.ID })
	b.until("its instruction is told as lost", func(x event.Event) bool { return x.Type == "x.plain.instruction.dropped" && x.Cause == text.ID })
	b.until("a new life", func(x event.Event) bool { return x.Epoch == 1 && x.Type != "attention.resolved" })
	if r := b.send(cmd); string(r.Ack) != string(ack.AppendJSON(nil)) {
		t.Errorf("redelivered after a restart: %+v", r)
	}
	late := b.respond(e.ID, "allow")
	b.send(late)
	if a := b.ackOf(late.ID); !strings.HasPrefix(a, "refused: ") {
		t.Error(a)
	}
	exit(t, b.Road)
	readLog(t, b.dir, "s")
}

// ---- effects

func startEffects(t *testing.T, b *back, acts []adapters.Act, script string) (*Process, *Effects) {
	t.Helper()
	x := &Effects{Control: b.d, Log: slog.New(slog.DiscardHandler)}
	if acts != nil {
		x.Cancel = func(adapters.Target) []adapters.Act { return acts }
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	p, err := Start(Spec{Path: sh, Args: []string{"sh", "-c", script}, Env: os.Environ(), Stdin: null, Stdout: null, Stderr: null})
	if err != nil {
		t.Fatal(err)
	}
	x.Started(p)
	go func() {
		for e := range b.effects {
			x.Do(e)
		}
	}()
	return p, x
}

// ended waits for the process, and ends the road as a launch does.
func (b *back) ended(p *Process) []event.Event {
	b.Helper()
	select {
	case <-p.Done():
	case <-time.After(patience):
		b.Fatal("the process runs on")
	}
	x := p.Wait()
	e := session.Exit{Code: x.Code}
	if x.Terminated {
		e.By = "control"
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	b.Exit(ctx, e)
	close(b.effects)
	eventually(b.T, "the end of what was killed", func() bool { return len(p.tree()) == 0 })
	return readLog(b.T, b.dir, "s")
}

func TestEffects(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		acts         []adapters.Act
		cmd          func(b *back) event.Event
		check        func(t *testing.T, es []event.Event, x Exit)
	}{
		{"a run, by its own signal", `trap "exit 7" USR1; sleep 100 & wait`, []adapters.Act{{Signal: "USR1", Patience: 5 * time.Second}},
			func(b *back) event.Event { return b.me.CancelRun(time.Now(), "s", "r", "") },
			func(t *testing.T, es []event.Event, x Exit) {
				if x.Code != 7 {
					t.Errorf("%+v", x)
				}
			}},
		{"a run that hears nothing", `trap "" INT TERM; sleep 100 & wait; sleep 100`, []adapters.Act{{Signal: "INT", Patience: 50 * time.Millisecond}},
			func(b *back) event.Event { return b.me.CancelRun(time.Now(), "s", "", "") },
			func(t *testing.T, es []event.Event, x Exit) {
				if x.Signal == 0 || !x.Terminated {
					t.Errorf("%+v", x)
				}
			}},
		{"a session with all that came of it", `setsid sleep 100 & sleep 100`, nil,
			func(b *back) event.Event { return b.me.CancelSession(time.Now(), "s", "") },
			func(t *testing.T, es []event.Event, x Exit) {
				last := es[len(es)-1]
				if d, _ := event.ParseObject(last.Data); last.Type != "session.ended" || d["reason"] != "killed" {
					t.Errorf("%s %v", last.Type, d)
				}
			}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if tt.name == "a run that hears nothing" && testing.Short() {
				t.Skip("waits for signals that are not heard")
			}
			b := newBack(t)
			p, _ := startEffects(t, b, tt.acts, tt.script)
			b.known()
			eventually(t, "the shell has set its traps", func() bool { // before it starts what sleeps
				for _, q := range p.tree() {
					if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", q.Pid)); string(name) == "sleep\n" {
						return true
					}
				}
				return false
			})
			cmd := tt.cmd(b)
			b.send(cmd)
			es := b.ended(p)
			i := slices.IndexFunc(es, func(e event.Event) bool { return e.Type == "run.cancelled" })
			if i < 0 || es[i].Cause != cmd.ID {
				t.Fatalf("no run.cancelled because of the command")
			}
			if d, _ := event.ParseObject(es[i].Data); d["by"] != "control" {
				t.Errorf("cancelled by %v", d["by"])
			}
			tt.check(t, es, p.Wait())
		})
	}
}

// A paused tree stands still, every process of it, and a second pause is
// refused; a session is cancelled out of its pause.
func TestPauseEffect(t *testing.T) {
	b := newBack(t)
	p, _ := startEffects(t, b, nil, `setsid sh -c "sleep 100; true" & sleep 100 & wait`)
	b.known()
	eventually(t, "its tree, and nobody about to run another program", func() bool {
		comms := map[string]int{}
		for _, q := range p.tree() {
			name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", q.Pid))
			comms[string(name)]++
		}
		return comms["sh\n"] == 2 && comms["sleep\n"] == 2
	})
	still := func() bool {
		return !slices.ContainsFunc(p.tree(), func(q Proc) bool { return !q.stopped() })
	}
	phase := func(want string, n int) {
		t.Helper()
		b.until(want, func(e event.Event) bool {
			d, _ := event.ParseObject(e.Data)
			if e.Type == "progress.status" && d["phase"] == want {
				n--
			}
			return n <= 0
		})
	}
	b.send(b.me.Pause(time.Now(), "s"))
	phase("paused", 1)
	if !still() {
		t.Errorf("paused: %v", p.tree())
	}
	again := b.me.Pause(time.Now(), "s")
	b.send(again)
	if a := b.ackOf(again.ID); !strings.HasPrefix(a, "refused: ") {
		t.Error(a)
	}
	b.send(b.me.Resume(time.Now(), "s"))
	phase("resumed", 1)
	if still() {
		t.Error("resumed, and it stands still")
	}
	again = b.me.Resume(time.Now(), "s")
	b.send(again)
	if a := b.ackOf(again.ID); !strings.HasPrefix(a, "refused: ") {
		t.Error(a)
	}
	b.send(b.me.Pause(time.Now(), "s"))
	b.until("paused again", func(e event.Event) bool { return p.Paused() })
	b.send(b.me.CancelSession(time.Now(), "s", ""))
	b.ended(p)
}
