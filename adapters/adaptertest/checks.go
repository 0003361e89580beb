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
