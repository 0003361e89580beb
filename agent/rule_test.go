package agent

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
	"aep-wrap/session"
)

// A rule answers at once what it allows and denies, tells who denied, leaves
// the rest to the runtime, and reads its terms before each call.
func TestRule(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rule.json")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"tools":["Shell"],"calls":{"most":2}}`)
	rule, err := OpenRule(path)
	if err != nil {
		t.Fatal(err)
	}
	b := newBack(t, func(b *back) { b.patience = Patience{Rule: rule} })
	n := 0
	hook := func(name string) string {
		n++
		h := b.Hook(hooked(name, "key", fmt.Sprint("k", n)), 10)
		if h.Waits() {
			t.Fatal("it waits for somebody")
		}
		return string(h.Answer(t.Context()))
	}
	for i, c := range []struct{ name, terms, want string }{
		{"run", "", ""},
		{"tool", "", "allow"},
		{"tool", "", "allow"},
		{"tool", "", "deny"}, // most
		{"tool", `{"tools":["Shell"],"calls":{"most":9}}`, "allow"},
		{"tool", `{"tools":["Shell"`, "allow"}, // what was read before stands
		{"tool", `{"tools":["Read"]}`, "deny"}, // toolset
		{"tool", `{"calls":{"most":9}}`, ""},   // its own to decide
		{"ask", "", ""},                        // not a rule's
	} {
		if c.terms != "" {
			write(c.terms)
		}
		if got := hook(c.name); got != c.want {
			t.Errorf("%d, %s: %q, want %q", i, c.name, got, c.want)
		}
	}
	b.Exit(t.Context(), session.Exit{})
	var told []string
	raw, err := os.ReadFile(jsonl.Path(b.dir, "plain", "s"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		e, err := event.Parse(bytes.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		if e.Type == "tool.requested" || e.Type == "tool.denied" {
			data, _ := event.ParseObject(e.Data)
			rule, _ := data["rule"].(string)
			told = append(told, e.Type+" "+rule)
		}
	}
	want := []string{"tool.requested ", "tool.requested ", "tool.requested ", "tool.denied most", "tool.requested ", "tool.requested ", "tool.requested ", "tool.denied toolset", "tool.requested "}
	if !slices.Equal(told, want) {
		t.Errorf("told %q", told)
	}
}

func TestRuleThatCannotBeRead(t *testing.T) {
	for name, text := range map[string]string{"not JSON": "{", "another shape": `{"tools":5}`} {
		path := filepath.Join(t.TempDir(), "rule.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenRule(path); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := OpenRule(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("no file: no error")
	}
}
