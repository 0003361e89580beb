package redaction

import (
	"strings"
	"testing"

	"aep-wrap/event"
)

// plant reads an example: the text without «», what it must become, and the
// pieces that must go.
func plant(example string, mark func(string) string) (in, want string, secrets []string) {
	var a, b strings.Builder
	rest := example
	for {
		before, after, ok := strings.Cut(rest, "«")
		a.WriteString(before)
		b.WriteString(before)
		if !ok {
			return a.String(), b.String(), secrets
		}
		secret, after, _ := strings.Cut(after, "»")
		a.WriteString(secret)
		b.WriteString(mark(secret))
		secrets = append(secrets, secret)
		rest = after
	}
}

// runRule is the pipeline as a rule's examples need it.
func runRule(t *testing.T, r *Rule, in string) (string, []Finding) {
	t.Helper()
	p := NewPipeline(Options{})
	switch r {
	case ruleKey:
		v, found := p.ExplainValue(parse(t, in))
		return string(event.AppendValue(nil, v)), found
	case ruleListed:
		p = NewPipeline(Options{Secrets: []Secret{{"DEPLOY", "s3cr3t-deploy"}}})
	}
	out, found := p.Explain(in)
	if text := p.Text(in); text != out {
		t.Errorf("Explain and Text differ on %q: %q", in, text)
	}
	return out, found
}

func TestRules(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Rules() {
		if seen[r.ID] || r.What == "" {
			t.Errorf("rule %q: its id must be its own, and it must say what it is", r.ID)
		}
		seen[r.ID] = true
		if len(r.Yes) == 0 || len(r.No) == 0 {
			t.Errorf("rule %s: it must carry examples of what it hides and of what it leaves", r.ID)
		}
		for _, y := range r.Yes {
			t.Run(r.ID+"/yes", func(t *testing.T) {
				in, want, secrets := plant(y, func(string) string { return r.Mark() })
				got, findings := runRule(t, r, in)
				if got != want {
					t.Errorf("Text(%q)\n got %q\nwant %q", in, got, want)
				}
				if len(secrets) == 0 {
					t.Fatalf("example %q marks nothing", y)
				}
				named := false
				for _, f := range findings {
					named = named || f.Rule == r.ID
				}
				if !named {
					t.Errorf("%q: found by %v, not by %s", in, findings, r.ID)
				}
			})
		}
		for _, n := range r.No {
			t.Run(r.ID+"/no", func(t *testing.T) {
				if got, found := runRule(t, r, n); got != n {
					t.Errorf("%q became %q by %v, want it whole", n, got, found)
				}
			})
		}
	}
}
