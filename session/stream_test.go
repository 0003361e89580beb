package session

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"aep-wrap/event"
)

// words are what a random session is made of: few names, so that they clash.
var words = []string{
	"session.started", "session.ended", "run.started", "run.started", "run.finished", "run.failed", "run.cancelled",
	"tool.requested", "tool.requested", "tool.completed", "tool.failed", "tool.denied",
	"attention.requested", "attention.requested", "attention.answered", "attention.resolved", "attention.timeout",
	"delegation.subagent.started", "delegation.subagent.stopped", "run.step.started", "run.step.finished",
	"control.accepted", "control.rejected", "control.cancel", "agent.idle", "session.compacted", "x.acme.hook.fired",
	"progress.status", "state.snapshot", "attention.routed", "x.acme.control.instruct",
}

// randomDraft reads its choices from next, so that a seed and a fuzzer's bytes
// do alike.
func randomDraft(next func(n int) int) event.Draft {
	pick := func(list ...string) string { return list[next(len(list))] }
	d := event.Draft{Header: event.Header{Type: words[next(len(words))]}}
	d.Run = pick("", "", "r1", "r2", "r3")
	d.Key = pick("", "", "k1", "k2", "k3", "k4", "k5")
	d.Pair = pick("", "c1", "c2", "c3", "p1")
	d.Subject = pick("", "", "", "p1", "c1", "x")
	d.Cause = pick("", "", "", "cmd1", "cmd2")
	d.Severity = event.Severity(next(5) - 1)
	d.Time = t0.Add(time.Duration(next(100)-20) * time.Second)
	switch event.Category(d.Type) {
	case "control":
		d.Cause = "" // each command is decided once, by the dispatcher
	case "tool":
		// What a restart finds again is what the wire says: the call id and the cause.
		d.Pair, d.Cause = "", ""
		call(pick("", "A", "B", "unknown"), pick("", "c1", "c2", "c3"))(&d)
		if next(2) == 0 {
			args(map[string]any{"n": pick("1", "2")})(&d)
		}
		if d.Type == "tool.failed" {
			meta("error", event.Fields{event.Meta("type", pick("io", "interrupt"))})(&d)
		}
	case "attention":
		link(pick("", "A", "B"), map[string]any{"n": "1"})(&d)
		switch d.Type {
		case "attention.requested":
			d.Cause = ""
			meta("kind", pick("permission", "form"))(&d)
			if next(2) == 0 {
				options("allow", "deny")(&d)
			}
		case "attention.answered":
			meta("via", pick("control", "oob"))(&d)
			meta("answer", event.Fields{})(&d)
		case "attention.resolved":
			meta("resolution", pick("answered", "dismissed"))(&d)
		}
	}
	return d
}

// play binds a random story over several lives of the emitter and holds what
// comes out to the protocol's rules.
func play(t *testing.T, next func(n int) int, moments int) {
	t.Helper()
	stream := event.NewStream()
	ids := map[string]bool{}
	var log []event.Event
	var last event.Position
	began := false
	restart := func() *Session {
		c := conf()
		c.Overlap = next(4) == 0
		for _, e := range log {
			c.State.Fold(e)
		}
		return New(c)
	}
	s := restart()
	now := t0
	take := func(what string, ds []event.Draft) {
		t.Helper()
		for _, d := range ds {
			sealed := seal(d)
			line := sealed.AppendJSON(nil)
			e, err := event.Parse(line)
			if err != nil {
				t.Fatalf("%s gave %s\n%v", what, line, err)
			}
			for _, v := range stream.Add(e) {
				t.Fatalf("%s gave %s\n%v", what, line, v)
			}
			if ids[e.ID] {
				t.Fatalf("%s gave id %s twice", what, e.ID)
			}
			ids[e.ID] = true
			if e.Sequenced {
				if began && !last.Less(e.Position()) {
					t.Fatalf("%s gave %v after %v", what, e.Position(), last)
				}
				last, began = e.Position(), true
			} else if e.Session != "" {
				t.Fatalf("%s gave %s, which is not ours to send", what, e.Type)
			}
			log = append(log, e)
		}
	}
	for range moments {
		now = now.Add(time.Second)
		switch next(40) {
		case 0:
			take("an exit", s.Exit(now, Exit{Code: next(3) - 1, Signal: []string{"", "SIGINT", "SIGKILL"}[next(3)]}))
			if p := s.State().Pending(); len(p) > 0 {
				t.Fatalf("an exit left %v waiting", p)
			}
			if r := s.State().OpenRuns(); len(r) > 0 {
				t.Fatalf("an exit left %v running", r)
			}
			s = restart()
		case 1:
			s = restart()
		case 2:
			take("a recovery", s.Recover(now))
			if p := s.State().Pending(); len(p) > 0 {
				t.Fatalf("a recovery left %v waiting", p)
			}
		default:
			ds := make([]event.Draft, 1+next(3))
			for i := range ds {
				ds[i] = randomDraft(next)
			}
			take("a moment", s.Bind(now, ds))
		}
	}
	live, folded := s.State(), NewState()
	for _, e := range log {
		folded.Fold(e)
	}
	if d := cmp.Diff(summary(folded), summary(live)); d != "" {
		t.Fatalf("the log tells another state than the session has (-log +session)\n%s", d)
	}
}

// summary is what a restart must not forget.
func summary(st *State) map[string]any {
	m := map[string]any{
		"last": st.last, "ended": st.ended, "started": st.started, "runs": st.runs, "pending": st.Pending(), "open": st.OpenRuns(),
	}
	answers := map[string]string{}
	st.requests.all(func(id string, r *request) bool {
		answers[id] = fmt.Sprint(r.kind, r.options, r.run, r.answer, r.tool)
		return true
	})
	var tools []string
	st.tools.all(func(key string, o *tool) bool {
		tools = append(tools, fmt.Sprint(o.id, o.name, o.args, o.run, o.asked))
		return true
	})
	m["requests"], m["tools"] = answers, tools
	return m
}

func TestRandomStoriesAreLegal(t *testing.T) {
	rounds := 400
	if testing.Short() {
		rounds = 40
	}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		t.Run(fmt.Sprint(seed), func(t *testing.T) { play(t, r.IntN, 120) })
	}
}

func FuzzBind(f *testing.F) {
	f.Add([]byte("a session of no great length, but with every kind of word"))
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20})
	f.Fuzz(func(t *testing.T, raw []byte) {
		i := 0
		next := func(n int) int {
			if i >= len(raw) {
				i++
				return i % n
			}
			i++
			return int(raw[i-1]) % n
		}
		play(t, next, min(len(raw)/8, 200))
	})
}

func BenchmarkBind(b *testing.B) {
	s := New(conf())
	s.Bind(t0, []event.Draft{say("run.started", inRun("r1"))})
	ls := map[string]any{"command": "ls -la"}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		id := fmt.Sprintf("toolu_%d", n)
		n++
		s.Bind(t0, []event.Draft{say("tool.requested", call("Bash", id), args(ls), key(id), inRun("r1"))})
		s.Bind(t0, []event.Draft{say("tool.completed", call("Bash", id), key(id), inRun("r1"))})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*n), "ns/event")
}

func BenchmarkFold(b *testing.B) {
	s := New(conf())
	var log []event.Event
	for i := range 1000 {
		id := fmt.Sprint(i)
		for _, d := range s.Bind(t0, []event.Draft{say("tool.requested", call("Bash", id), key(id)), say("tool.completed", call("Bash", id), key(id))}) {
			log = append(log, seal(d))
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		st := NewState()
		for _, e := range log {
			st.Fold(e)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(log)), "ns/event")
}
