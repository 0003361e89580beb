package adaptertest

import (
	"path"
	"slices"
	"strings"
	"testing"

	"aep-wrap/adapters"
)

// Checked is what a check finds for a user who has these files.
type Checked struct {
	Name  string // of the check
	Files map[string]string
	Env   []string
	Want  string // words of what is found; "" is nothing
}

// Checks holds an adapter's checks to what they find.
func Checks(t *testing.T, a adapters.Adapter, cases []Checked) {
	for _, c := range cases {
		i := slices.IndexFunc(a.Checks, func(k adapters.Check) bool { return k.Name == c.Name })
		if i < 0 {
			t.Fatalf("there is no check %q", c.Name)
		}
		launch := Launch(c.Files, c.Env, a.Command[0])
		files := map[string][]byte{}
		for _, pattern := range a.Checks[i].Files(launch) {
			for name, content := range c.Files {
				if ok, _ := path.Match(pattern, name); ok {
					files[name] = []byte(content)
				}
			}
		}
		if len(files) != len(c.Files) {
			t.Errorf("%s: it looks at %d of %v", c.Name, len(files), c.Files)
		}
		if got := a.Checks[i].Found(launch, files); (got == "") != (c.Want == "") || !strings.Contains(got, c.Want) {
			t.Errorf("%s of %v %v: %q, want %q", c.Name, c.Files, c.Env, got, c.Want)
		}
	}
}

// Heard holds the check by which an adapter's runtime is asked to what it takes
// for its answer: the runtime's output → words of what is found; "" is that
// nothing is wrong, "?" that there is no answer.
func Heard(t *testing.T, a adapters.Adapter, cases map[string]string) {
	i := slices.IndexFunc(a.Checks, func(k adapters.Check) bool { return k.Ask != nil })
	if i < 0 {
		t.Fatal("it asks nothing")
	}
	for output, want := range cases {
		got := "?"
		for line := range strings.Lines(output) {
			if what, done := a.Checks[i].Heard(strings.TrimSuffix(line, "\n")); done {
				got = what
				break
			}
		}
		if (got == "") != (want == "") || (got == "?") != (want == "?") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", output, got, want)
		}
	}
}
