package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/control"
	"aep-wrap/event"
)

// A text for a watched session's model goes with its next hook that can carry
// one. One that nobody heard is told as lost, by the next watch at the latest.
func TestWatchInstructs(t *testing.T) {
	logs := t.TempDir()
	start := func() *Watch {
		return NewWatch(WatchConfig{Adapters: []adapters.Adapter{asking}, Host: "h", LogDir: logs, Gate: testGate(event.Metadata),
			Accepts: func(*adapters.Adapter) []string { return []string{control.Respond, control.Instruct("plain")} }})
	}
	w := start()
	n := 0
	hook := func(name string) *Held {
		t.Helper()
		m := hooked(name, "key", fmt.Sprint("k", n))
		m.Held, m.Time = true, time.Now()
		n++
		again, held := w.Hook(&asking, m, fmt.Sprint("h", n))
		if again > 0 {
			t.Fatalf("%s is not told", name)
		}
		return held
	}
	me := control.NewFrom("h", "phone")
	say := func(text string) event.Event {
		t.Helper()
		cmd := me.Instruct(time.Now(), control.Instruct("plain"), "s", text)
		if r := w.Command(control.Origin{Authenticated: true}, "plain", cmd.AppendJSON(nil), cmd.Header); r.Refusal != nil {
			t.Fatal(r.Refusal.Detail)
		}
		return cmd
	}
	told := func(typ, cause string) bool {
		return slices.ContainsFunc(sessionLogs(t, logs)["plain/s"], func(e event.Event) bool { return e.Type == typ && e.Cause == cause })
	}
	if h := hook("run"); h != nil {
		t.Errorf("a hook hears %q", h.Answer(context.Background()))
	}
	one, two := say("one"), say("two")
	if h := hook("applied"); h != nil {
		t.Error("a hook that reads nothing was told something")
	}
	h := hook("run")
	if s := string(h.Answer(context.Background())); s != "hear: one\n\ntwo" {
		t.Errorf("%q", s)
	}
	h.Told(errors.New("gone")) // it waits on
	h = hook("run")
	h.Answer(context.Background())
	h.Told(nil)
	for _, cmd := range []event.Event{one, two} {
		if !told("x.plain.instruction.delivered", cmd.ID) {
			t.Errorf("%s is not told as delivered", cmd.ID)
		}
	}
	three := say("three")
	w.CloseAll() // as killed: nothing more is told
	w = start()
	hook("run")
	if !told("x.plain.instruction.dropped", three.ID) {
		t.Error("what nobody heard is not told as lost")
	}
	w.CloseAll()
}

// A prompt while a run is open goes into that run, where the runtime has it so,
// in a watched session as in a launched one.
func TestWatchSteers(t *testing.T) {
	for _, steer := range []bool{true, false} {
		ad := adapters.Adapter{Name: "plain", Steer: steer, Map: func(m adapters.Moment) []event.Draft {
			run, _ := m.Payload["run"].(string)
			return []event.Draft{{Header: event.Header{Type: m.Name, Session: "s", Run: run}, Key: run}}
		}}
		logs := t.TempDir()
		w := NewWatch(WatchConfig{Adapters: []adapters.Adapter{ad}, Host: "h", LogDir: logs, Gate: testGate(event.Metadata)})
		for i, step := range [][2]string{{"run.started", "1"}, {"run.started", "2"}, {"run.finished", "1"}, {"run.started", "2"}, {"run.started", "3"}} {
			if i == 1 {
				w.CloseAll()
				w = NewWatch(w.cfg) // which reads it back
			}
			m := adapters.Moment{Channel: adapters.Hook, Name: step[0], Payload: map[string]any{"run": step[1]}, Time: time.Now()}
			if again, _ := w.Hook(&ad, m, fmt.Sprint("h", i)); again > 0 {
				t.Fatal(step)
			}
		}
		w.CloseAll()
		var runs []string
		for _, e := range sessionLogs(t, logs)["plain/s"] {
			if e.Type == "run.started" {
				runs = append(runs, e.Run)
			}
		}
		want := []string{"1", "3"}
		if !steer {
			want = []string{"1", "2", "3"}
		}
		if !slices.Equal(runs, want) {
			t.Errorf("steers %v: runs %v, want %v", steer, runs, want)
		}
	}
}
