package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"aep-wrap/event"
)

// events reads the one log that a run left, and has the real binary judge it.
func (w *world) events() []event.Event {
	w.t.Helper()
	files := w.logFiles()
	if len(files) != 1 {
		w.t.Fatalf("want one session log, have %q", files)
	}
	if r := w.run(wrapper(w.t), "validate", files[0]); r.code != 0 {
		w.t.Errorf("validate: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	return w.parse(files[0])
}

// told waits until the log has n events of a type.
func (w *world) told(typ string, n int) {
	w.t.Helper()
	deadline := time.After(patience)
	for {
		have := 0
		for _, f := range w.logFiles() {
			b, err := os.ReadFile(f)
			if err != nil {
				w.t.Fatal(err)
			}
			have += bytes.Count(b, []byte(`"type":"`+typ+`"`))
		}
		if have >= n {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-deadline:
			w.t.Fatalf("the log has %d of %s, want %d", have, typ, n)
		}
	}
}

func (w *world) parse(file string) []event.Event {
	w.t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	if len(b) > 0 && b[len(b)-1] != '\n' {
		w.t.Errorf("%s ends in the middle of a line", file)
	}
	var events []event.Event
	for i, line := range bytes.Split(bytes.TrimSuffix(b, []byte("\n")), []byte("\n")) {
		e, err := event.Parse(line)
		if err != nil {
			w.t.Fatalf("%s:%d: %v\n%s", file, i+1, err, line)
		}
		events = append(events, e)
	}
	return events
}

// types lists the types of events, leaving out vendor types and the ones
// whose number is the agent's mood.
func types(events []event.Event) []string {
	var out []string
	for _, e := range events {
		switch event.Category(e.Type) {
		case "x", "progress":
		default:
			out = append(out, e.Type)
		}
	}
	return out
}

// data reads an event's payload.
func data(t *testing.T, e event.Event) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal(e.Data, &m); err != nil {
		t.Fatalf("%s: %v", e.Type, err)
	}
	return m
}

// only gives the one event of a type.
func only(t *testing.T, events []event.Event, typ string) event.Event {
	t.Helper()
	var found []event.Event
	for _, e := range events {
		if e.Type == typ {
			found = append(found, e)
		}
	}
	if len(found) != 1 {
		t.Fatalf("want one %s, have %d in %s", typ, len(found), strings.Join(types(events), " "))
	}
	return found[0]
}
