package aepwrap_test

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"aep-wrap/event"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the generated parts of docs/ anew")

// generated holds the part of a page between its two marks to what the code
// says. With -update the page is written.
func generated(t *testing.T, file, name, want string) {
	t.Helper()
	begin, end := "<!-- generated: "+name+" -->\n", "<!-- end: "+name+" -->\n"
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(page), begin)
	have, tail, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s lacks the marks of its generated part %q", file, name)
	}
	want = "\n" + strings.TrimSpace(want) + "\n\n"
	if have == want {
		return
	}
	if !*update {
		t.Errorf("%s is not what the code says: run go test . -run %s -update\n%s", file, t.Name(), cmp.Diff(have, want))
		return
	}
	if err := os.WriteFile(file, []byte(head+begin+want+end+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}

// The table of what an event of each type may say at each level comes from
// the registry that the gate goes by.
func TestCapturePageIsCurrent(t *testing.T) {
	var b strings.Builder
	b.WriteString("| type | from metadata | from redacted | at full |\n|---|---|---|---|\n")
	for _, typ := range event.Types() {
		info, ok := event.Lookup(typ)
		if !ok || info.Status == event.Reserved {
			continue
		}
		by := map[event.Level][]string{}
		collect(info.Data, "", func(path string, f event.Fact) {
			if f.Star || f.PerKey {
				path += "*"
			}
			by[f.Level] = append(by[f.Level], "`"+path+"`")
		})
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", typ,
			strings.Join(by[event.Metadata], " "), strings.Join(by[event.Redacted], " "), strings.Join(by[event.Full], " "))
	}
	generated(t, "docs/capture.md", "types", b.String())
}

// collect calls f for every member that holds a value, by its path.
func collect(f *event.Fact, path string, each func(string, event.Fact)) {
	if f == nil {
		return
	}
	for i := range f.Members {
		m := f.Members[i]
		p := m.Name
		if path != "" {
			p = path + "." + m.Name
		}
		switch {
		case len(m.Members) > 0:
			collect(&m, p, each)
		case m.Item != nil && len(m.Item.Members) > 0:
			collect(m.Item, p+"[]", each)
		default:
			each(p, m)
		}
	}
}

var link = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)

// A link of the docs to a file of the tree leads somewhere.
func TestLinksLeadSomewhere(t *testing.T) {
	pages := []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "bench/README.md"}
	docs, err := os.ReadDir("docs")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range docs {
		pages = append(pages, "docs/"+d.Name())
	}
	for _, page := range pages {
		b, err := os.ReadFile(page)
		if err != nil {
			t.Error(err)
			continue
		}
		dir := page[:strings.LastIndex(page, "/")+1]
		for _, m := range link.FindAllStringSubmatch(string(b), -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			if _, err := os.Stat(dir + m[1]); err != nil {
				t.Errorf("%s links to %s: %v", page, m[1], err)
			}
		}
	}
}
