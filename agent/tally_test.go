package agent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"aep-wrap/event"
)

// What is told is counted where it is sealed, under few names.
func TestTally(t *testing.T) {
	var c counters
	day := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	seal := func(typ, verb string, fields ...event.Field) {
		d := event.Draft{Header: event.Header{Type: typ, Severity: event.Info}, Fields: fields}
		c.sealed(&event.Event{Header: d.Header}, &d, verb)
	}
	seal("tool.requested", "")
	seal("tool.completed", "")
	seal("x.anthropic.hook.seen", "")
	seal("attention.requested", "")
	seal("attention.requested", "")
	seal("attention.answered", "")
	seal("attention.resolved", "", event.Meta("resolution", "answered"))
	seal("attention.timeout", "")
	seal("control.accepted", verbOf("control.attention.respond"))
	seal("control.rejected", verbOf("control.cancel"), event.Meta("reason", "unsupported"))
	seal("control.accepted", verbOf("x.codex.control.instruct"))
	seal("control.accepted", verbOf("x.codex.control.whatever"))
	c.heard("codex", "hook", day.Add(0))
	c.heard("codex", "log", day.Add(0))
	c.refused("hook", "too_large")
	got := c.Tally()
	c.heard("codex", "hook", day.Add(1)) // a snapshot stays what it was
	want := Tally{
		Events:   map[Told]int64{{"tool", event.Info}: 2, {"x", event.Info}: 1, {"attention", event.Info}: 5, {"control", event.Info}: 4},
		Requests: map[string]int64{"requested": 2, "answered": 1, "timeout": 1},
		Commands: map[Commanded]int64{{"respond", "accepted"}: 1, {"cancel", "unsupported"}: 1, {"instruct", "accepted"}: 1, {"other", "accepted"}: 1},
		Refused:  map[RefusedFor]int64{{"hook", "too_large"}: 1},
		Hooks:    map[string]int64{"codex": 1},
	}
	spoke := got.Spoke
	got.Spoke = nil
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if len(spoke) != 2 || !spoke[Voice{"codex", "hook"}].Equal(day.Add(0)) {
		t.Error(spoke)
	}
}
