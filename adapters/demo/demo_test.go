package demo

import (
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/adaptertest"
	"aep-wrap/event"
	"aep-wrap/session"
)

// moments are the script's, each branch of it.
func moments(t testing.TB) (ms []adapters.Moment) {
	var add func([]Step)
	add = func(steps []Step) {
		for _, s := range steps {
			raw := s.JSON("demo-1", "run-1")
			p, err := event.ParseObject(raw)
			if err != nil {
				t.Fatalf("%s: %v", s.Event, err)
			}
			ms = append(ms, adapters.Moment{Channel: adapters.Hook, Name: s.Event, Payload: p, Raw: raw, Held: s.Wait > 0})
			for _, k := range []string{"", "allow", "deny", "values", "decline"} {
				add(s.Then[k])
			}
		}
	}
	add(Script)
	return ms
}

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Spec{Adapter: Adapter(), Pins: []string{"pins.json"}, Captures: moments})
}

func FuzzMap(f *testing.F) { adaptertest.Fuzz(f, Adapter(), moments(f)) }

// The script, where nobody answers: it shows everything that it is there to
// show, in seconds, and ends with nothing open.
func TestScript(t *testing.T) {
	s := session.New(session.Config{Agent: name, Host: "h", Session: "demo-1", State: session.NewState()})
	now := time.Date(2026, 7, 3, 10, 0, 0, 0, time.UTC)
	seen := map[string]int{}
	var total time.Duration
	var play func([]Step)
	play = func(steps []Step) {
		for _, st := range steps {
			total += st.After + st.Wait
			raw := st.JSON("demo-1", "run-1")
			p, err := event.ParseObject(raw)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range s.Bind(now.Add(total), mapMoment(adapters.Moment{Channel: adapters.Hook, Name: st.Event, Payload: p, Raw: raw})) {
				seen[d.Type]++
			}
			play(st.Then[Answer(nil)])
		}
	}
	play(Script)
	for typ, n := range map[string]int{
		"session.started": 1, "run.started": 2, "run.finished": 2, "tool.requested": 5, "tool.completed": 2, "tool.failed": 1, "tool.denied": 1,
		"attention.requested": 2, "attention.timeout": 1, "attention.answered": 1, "attention.resolved": 1, "session.compacted": 1,
		"delegation.subagent.started": 1, "delegation.subagent.stopped": 1, "progress.task.planned": 1, "progress.task.completed": 1,
		"progress.status": 1, "session.ended": 1,
	} {
		if seen[typ] != n {
			t.Errorf("%d %s; want %d", seen[typ], typ, n)
		}
	}
	if total > 6*time.Second {
		t.Errorf("it takes %s", total)
	}
	if p := s.State().Pending(); len(p) > 0 {
		t.Errorf("still waiting: %v", p)
	}
}

func TestAnswer(t *testing.T) {
	for body, want := range map[string]string{
		"": "", "garbage": "", "{}": "", `{"option":"allow"}`: "allow", `{"values":{"target":"staging"}}`: "values", `{"option":7}`: "",
	} {
		if got := Answer([]byte(body)); got != want {
			t.Errorf("Answer(%s) = %q; want %q", body, got, want)
		}
	}
}
