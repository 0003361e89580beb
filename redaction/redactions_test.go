package redaction

import (
	"testing"

	"aep-wrap/event"
)

// What was hidden is counted once, by its rule, however often the event was
// gone over; of what its level leaves out nothing is counted.
func TestRedactionsAreCounted(t *testing.T) {
	gate := NewGate(Policy{Ceiling: event.Redacted}, NewPipeline(Options{Home: "/home/dev", Secrets: []Secret{{Name: "DEPLOY", Value: "s3cr3t-deploy"}}}))
	seal := func(text string) {
		t.Helper()
		d := event.Draft{Header: event.Header{Type: "tool.requested", Session: "s", Severity: event.Info}, Fields: event.Fields{{Name: "args", Kind: event.Content, Value: map[string]any{"command": text}}}}
		if _, err := gate.Seal(&d); err != nil {
			t.Fatal(err)
		}
	}
	seal("ls -l")
	for rule, n := range gate.Redactions() {
		if n != 0 {
			t.Errorf("%s: %d of a text without secrets", rule, n)
		}
	}
	for _, r := range Rules() {
		if _, ok := gate.Redactions()[r.ID]; !ok {
			t.Errorf("%s is not among the counters", r.ID)
		}
	}
	seal("use s3cr3t-deploy in /home/dev/app")
	seal("mail ann@example.com")
	seal("export API_KEY=sk_abcdef123456; echo sk_abcdef123456")
	got := gate.Redactions()
	for rule, want := range map[string]int64{"listed": 1, "home": 1, "pii.email": 1, "secret.named": 1, "secret.again": 1} {
		if got[rule] != want {
			t.Errorf("%s: %d, want %d", rule, got[rule], want)
		}
	}
	total := int64(0)
	for _, n := range got {
		total += n
	}
	if total != 5 {
		t.Errorf("%d in all, want 5: %v", total, got)
	}
}
