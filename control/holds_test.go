package control

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"aep-wrap/event"
	"aep-wrap/session"
)

func formFields() event.Fields {
	return event.Fields{event.Meta("kind", "form"), event.Labelled("prompt", "Where to?", "demo asks"),
		event.Meta("fields", []event.Fields{
			{event.Meta("id", "name"), event.Meta("type", "string"), event.Labelled("label", "Name", "name"), event.Meta("required", true)},
			{event.Meta("id", "db"), event.Meta("type", "select"), event.Labelled("label", "DB", "db"),
				event.Meta("choices", []event.Fields{{event.Meta("id", "1"), event.Labelled("label", "PostgreSQL", "1")}})},
		}),
		event.Meta("respond_via", []any{"control"})}
}

// An invalid form is rejected, the request stays, and then it is answered.
func TestFormIsRejectedAndThenAnswered(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	h, id := w.ask("s", "k1", time.Hour, formFields(), nil)
	n := w.count()
	for _, tc := range []struct {
		a    Answer
		want string
	}{
		{Answer{Values: map[string]any{"db": "1"}}, "invalid: data.answer.values.name is missing: it is required"},
		{Answer{Values: map[string]any{"name": "x", "db": "MariaDB"}}, "invalid: data.answer.values.db is none of the choices"},
		{Answer{Option: "allow"}, `invalid: data.answer.option "allow" is none of the request's options`},
		{Answer{Values: map[string]any{"name": "x", "db": "1", "who": "me"}}, "accepted"},
		{Answer{Values: map[string]any{"name": "y"}}, "refused: the request is settled: answered by cli: 2 values"},
	} {
		c := me.Respond(w.Now(), "s", id, tc.a, nil, "")
		w.send(c)
		must(t, w.ackOf(c.ID), tc.want)
	}
	must(t, string(h.Wait(t.Context())), `{"Option":"","Text":"","Values":{"db":"1","name":"x"}}`)
	got := strings.Join(w.since(n), "\n")
	if want := `attention.answered of attention.requested <- attention.respond {"answer":{"values":{"db":"1","name":"x"}},"by":"cli","via":"control"}`; strings.Count(got, "attention.answered") != 1 || !strings.Contains(got, want) {
		t.Errorf("told\n%s", got)
	}
}

// What the agent cannot be told is not taken.
func TestAnswerWithoutReply(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	h, id := w.ask("s", "k1", time.Hour, permission(), func(a Answer) []byte {
		if a.Option == "deny" {
			return []byte("no")
		}
		return nil
	})
	c := me.Respond(w.Now(), "s", id, Answer{Option: "allow"}, nil, "")
	w.send(c)
	must(t, w.ackOf(c.ID), "invalid: the agent cannot be told this answer")
	c = me.Respond(w.Now(), "s", id, Answer{Text: "use rg"}, nil, "")
	w.send(c)
	must(t, w.ackOf(c.ID), "accepted")
	must(t, string(h.Wait(t.Context())), "no")
}

// An answer is bound to its request, its session and its arguments.
func TestAnswerIsBound(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	w.run("s2", "r2")
	h, id := w.ask("s", "k1", time.Hour, permission(), nil)
	defer h.Abandon()
	for _, tc := range []struct{ session, request, args, want string }{
		{"s2", id, "", "invalid: no such request in this session"},
		{"s", "k1", "", "invalid: no such request in this session"},
		{"s", id + "0", "", "invalid: no such request in this session"},
		{"s", id, "d2", "refused: the request is about other arguments than those that were answered"},
	} {
		c := me.Respond(w.Now(), tc.session, tc.request, Answer{Option: "allow"}, nil, tc.args)
		w.send(c)
		must(t, w.ackOf(c.ID), tc.want)
	}
	// A moment whose request is about other arguments than it shows.
	other := w.Holds().Hold(Holding{Window: time.Hour, Args: "d2", Reply: func(Answer) []byte { return []byte("x") }})
	d := event.Draft{Header: event.Header{ID: "q2", Session: "s", Type: "attention.requested"}, Link: event.Link{Args: "d1"}}
	if more := other.Open(&d); more != nil {
		t.Errorf("%v", more)
	}
	if b := other.Wait(t.Context()); b != nil {
		t.Errorf("it was answered with %s", b)
	}
	// A second moment with the first one's request.
	second := w.Holds().Hold(Holding{Window: time.Hour, Args: "d1", Reply: func(Answer) []byte { return []byte("x") }})
	second.Open(&event.Draft{Header: event.Header{ID: id, Session: "s", Type: "attention.requested"}})
	if b := second.Wait(t.Context()); b != nil {
		t.Errorf("it was answered with %s", b)
	}
}

// Whoever comes first settles, and the second hears what was decided.
func TestSettledElsewhere(t *testing.T) {
	oob := func(id string) event.Draft {
		return event.Draft{Header: event.Header{Type: "attention.answered", Subject: id}, Fields: event.Fields{
			event.Meta("answer", event.Fields{event.Meta("option", "deny")}), event.Meta("via", "oob")}}
	}
	for _, tc := range []struct {
		name  string
		do    func(w *world, h *Hold, id string, gone context.CancelFunc)
		told  []string
		later string
	}{
		{"an answer in the agent's screen", func(w *world, _ *Hold, id string, _ context.CancelFunc) { w.tell("s", oob(id)) },
			[]string{`attention.answered of attention.requested <- attention.requested {"answer":{"option":"deny"},"via":"oob"}`,
				`attention.resolved of attention.requested <- attention.answered {"resolution":"answered"}`},
			"refused: the request was closed: answered in the agent's own screen: option deny"},
		{"the runtime went away", func(w *world, _ *Hold, _ string, gone context.CancelFunc) { gone() },
			[]string{`attention.resolved of attention.requested <- attention.requested {"resolution":"dismissed"}`},
			"refused: the request was closed: dismissed in the agent's own screen"},
		{"the time ran out", func(w *world, _ *Hold, _ string, _ context.CancelFunc) { w.clock.move(time.Hour) },
			[]string{`attention.timeout of attention.requested <- attention.requested`},
			"refused: the request was closed: timed out"},
		{"the run was cancelled", func(w *world, _ *Hold, _ string, _ context.CancelFunc) {
			w.tell("s", event.Draft{Header: event.Header{Type: "run.cancelled", Run: "r1"}})
		},
			[]string{`attention.resolved of attention.requested <- attention.requested {"resolution":"dismissed"}`, `run.cancelled <- run.started`},
			"refused: the request was closed: resolved dismissed"},
		{"the wrapper ends", func(w *world, _ *Hold, _ string, _ context.CancelFunc) { w.Holds().Close("") },
			[]string{`attention.resolved of attention.requested <- attention.requested {"resolution":"dismissed"}`},
			"refused: the request was closed: dismissed: the session is ending"},
		{"it was seen otherwise", func(w *world, _ *Hold, id string, _ context.CancelFunc) { w.Holds().Resolve(id, "dismissed") },
			[]string{`attention.resolved of attention.requested <- attention.requested {"resolution":"dismissed"}`},
			"refused: the request was closed: resolved dismissed"},
		{"the process ended", func(w *world, _ *Hold, _ string, _ context.CancelFunc) { w.exit("s", session.Exit{}) },
			[]string{`attention.resolved of attention.requested <- attention.requested {"resolution":"dismissed"}`,
				`run.cancelled <- run.started`, `session.ended {"reason":"normal","runs":1}`},
			"refused: the request was closed: resolved dismissed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.run("s", "r1")
			h, id := w.ask("s", "k1", time.Hour, permission(), nil)
			n := w.count()
			ctx, gone := context.WithCancel(t.Context())
			defer gone()
			heard := make(chan []byte)
			go func() { heard <- h.Wait(ctx) }()
			tc.do(w, h, id, gone)
			if b := <-heard; b != nil {
				t.Errorf("the runtime heard %s", b)
			}
			// A runtime that went away is told of by its own goroutine.
			for end := time.Now().Add(time.Minute); w.count() < n+len(tc.told) && time.Now().Before(end); {
				time.Sleep(time.Millisecond)
			}
			equal(t, w.since(n), tc.told)
			c := me.Respond(w.Now(), "s", id, Answer{Option: "allow"}, nil, "")
			w.send(c)
			must(t, w.ackOf(c.ID), tc.later)
			w.clock.move(24 * time.Hour) // no timer is left that would tell more
			if got := w.since(n + len(tc.told)); len(got) != 2 {
				t.Errorf("told after the end: %v", got)
			}
		})
	}
}

// A hold that was over before its request was placed closes it at once.
func TestOverBeforeItIsPlaced(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(*world, *Hold)
		want string
	}{
		{"timed out", func(w *world, _ *Hold) { w.clock.move(time.Minute) }, "attention.timeout"},
		{"gone", func(w *world, h *Hold) {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			h.Wait(ctx)
		}, "attention.resolved"},
	} {
		w := newWorld(t)
		w.run("s", "r1")
		h := w.Holds().Hold(Holding{Window: time.Minute, Reply: func(Answer) []byte { return []byte("x") }})
		tc.do(w, h)
		d := event.Draft{Header: event.Header{ID: "q", Session: "s", Type: "attention.requested", Time: t0}, Fields: permission()}
		more := h.Open(&d)
		if len(more) != 1 || more[0].Type != tc.want || more[0].Subject != "q" {
			t.Errorf("%s: %v", tc.name, more)
		}
		c := me.Respond(w.Now(), "s", "q", Answer{Option: "allow"}, nil, "")
		w.send(c)
		if got := w.ackOf(c.ID); !strings.HasPrefix(got, "refused: the request is settled") {
			t.Errorf("%s: %s", tc.name, got)
		}
		if b := h.Wait(t.Context()); b != nil {
			t.Errorf("%s: %s", tc.name, b)
		}
	}
}

func TestInformationOnly(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	oob := permission()
	oob[len(oob)-1] = event.Meta("respond_via", []any{"oob"})
	told := w.tell("s",
		event.Draft{Header: event.Header{Type: "attention.requested"}, Key: "a", Pair: "a", Fields: oob},
		event.Draft{Header: event.Header{Type: "attention.requested"}, Key: "b", Pair: "b", Fields: permission()})
	for i, want := range []string{
		"refused: the request can only be answered in the agent's own screen",
		"refused: nothing waits for an answer to this request any more",
	} {
		c := me.Respond(w.Now(), "s", told[i].ID, Answer{Option: "allow"}, nil, "")
		w.send(c)
		must(t, w.ackOf(c.ID), want)
	}
	p := w.Holds().Pending()
	if len(p) != 2 || p[0].Remote || p[1].Remote || p[0].ID != told[0].ID || !p[0].Until.IsZero() {
		t.Errorf("%+v", p)
	}
}

func TestPendingAndExpiry(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	h, id := w.ask("s", "k1", 90*time.Second, permission(), nil)
	defer h.Abandon()
	p := w.Holds().Pending()
	if len(p) != 1 || !p[0].Remote || p[0].ID != id || p[0].Kind != "permission" || !p[0].Until.Equal(t0.Add(90*time.Second)) {
		t.Fatalf("%+v", p)
	}
	e, err := event.Parse(p[0].Line)
	if err != nil {
		t.Fatal(err)
	}
	var data struct {
		ExpiresAt time.Time `json:"expires_at"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil || !data.ExpiresAt.Equal(h.Deadline()) {
		t.Errorf("expires_at %v, %v", data.ExpiresAt, err)
	}
	// The draft's own fields are not touched.
	f := permission()
	ds := []event.Draft{{Header: event.Header{Type: "attention.requested"}, Fields: f[:2:3]}}
	before := f[2]
	h.Expires(ds)
	if f[2].Name != before.Name || len(ds[0].Fields) != 3 {
		t.Error("the draft's own fields were changed")
	}
}

// An answer that was taken and never reached the agent is not claimed as
// applied.
func TestUndelivered(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	h, id := w.ask("s", "k1", time.Hour, permission(), nil)
	w.send(me.Respond(w.Now(), "s", id, Answer{Option: "allow"}, nil, ""))
	n := w.count()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if h.Wait(ctx) == nil {
		t.Fatal("the answer was settled before")
	}
	h.Undelivered()
	equal(t, w.since(n), []string{`attention.resolved of attention.requested <- attention.answered {"resolution":"dismissed"}`})
}

// 500 concurrent double answers, the timer and the agent's own screen: exactly
// one decision.
func TestOneDecision(t *testing.T) {
	const pairs = 500
	for round := range 4 {
		w := newWorld(t)
		w.run("s", "r1")
		var replies atomic.Int64
		h, id := w.ask("s", "k1", time.Hour, permission(), func(a Answer) []byte { return []byte(a.Option) })
		ctx, gone := context.WithCancel(t.Context())
		heard := make(chan []byte, 1)
		go func() { heard <- h.Wait(ctx) }()
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range pairs {
			for _, from := range []From{me, you} {
				c := from.Respond(t0, "s", id, Answer{Option: []string{"allow", "deny"}[i%2]}, nil, "")
				for range 2 { // each delivered twice
					wg.Go(func() {
						<-start
						w.send(c)
					})
				}
			}
		}
		if round%2 == 1 {
			wg.Go(func() { <-start; w.clock.move(time.Hour) })
			wg.Go(func() { <-start; gone() })
		}
		close(start)
		wg.Wait()
		if b := <-heard; b != nil {
			replies.Add(1)
		}
		gone()
		accepted, rejected, answered := 0, 0, 0
		for _, s := range w.since(0) {
			switch {
			case strings.HasPrefix(s, "control.accepted"):
				accepted++
			case strings.HasPrefix(s, "control.rejected"):
				rejected++
			case strings.HasPrefix(s, "attention.answered"):
				answered++
			}
		}
		if accepted+rejected != 2*pairs || accepted != int(replies.Load()) || answered > accepted || round%2 == 0 && accepted != 1 {
			t.Errorf("%d accepted, %d rejected, %d answered, %d heard", accepted, rejected, answered, replies.Load())
		}
	}
}

// Requests that are too many let the oldest go, never its agent hang.
func TestTooManyRequests(t *testing.T) {
	w := newWorld(t)
	w.run("s", "r1")
	var holds []*Hold
	for i := range maxRequests + 3 {
		h := w.Holds().Hold(Holding{Window: time.Hour, Reply: func(Answer) []byte { return []byte("x") }})
		h.Open(&event.Draft{Header: event.Header{ID: "q" + strings.Repeat("x", i), Session: "s", Type: "attention.requested"}, Fields: permission()})
		holds = append(holds, h)
	}
	for _, h := range holds[:3] {
		if b := h.Wait(t.Context()); b != nil {
			t.Errorf("%s", b)
		}
	}
	if n := len(w.Holds().Pending()); n != maxRequests {
		t.Errorf("%d wait", n)
	}
	w.Holds().Close("")
	if n := len(w.Holds().Pending()); n != 0 {
		t.Errorf("%d wait after the close", n)
	}
}

// A runtime that hears an answer otherwise than by the bytes asks the hold for
// it, and says what became of it.
func TestAnswerOfAServer(t *testing.T) {
	for _, tc := range []struct {
		name  string
		after func(*Hold)
		want  string
	}{
		{"it took the answer", (*Hold).Applied, `attention.resolved of attention.requested <- attention.answered {"resolution":"answered"}`},
		{"it could not be told", (*Hold).Undelivered, `attention.resolved of attention.requested <- attention.answered {"resolution":"dismissed"}`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.run("s", "r1")
			h, id := w.ask("s", "k1", time.Hour, permission(), nil)
			if a, ok := h.Answer(); ok {
				t.Errorf("answered before anybody did: %v", a)
			}
			w.send(me.Respond(w.Now(), "s", id, Answer{Option: "deny", Text: "no"}, nil, ""))
			h.Wait(t.Context())
			if a, ok := h.Answer(); !ok || a.Option != "deny" || a.Text != "no" {
				t.Errorf("%v, %v", a, ok)
			}
			n := w.count()
			tc.after(h)
			equal(t, w.since(n), []string{tc.want})
		})
	}
	w := newWorld(t)
	w.run("s", "r1")
	h, _ := w.ask("s", "k1", time.Minute, permission(), nil)
	w.move(time.Minute)
	h.Wait(t.Context())
	if a, ok := h.Answer(); ok {
		t.Errorf("nobody answered, and there is %v", a)
	}
}
