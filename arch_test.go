// Package aepwrap_test holds the house to its plan: who may import whom, and
// what each room must not do. The linter says the same of each import while
// one types; this says it of the tree as a whole, and needs no linter.
package aepwrap_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "aep-wrap"

// pkg is a package as `go list` tells it; Imports are those of its non-test
// files.
type pkg struct {
	ImportPath string
	Dir        string
	Name       string
	Doc        string
	GoFiles    []string
	Imports    []string
}

// rel is the package's path inside the module.
func (p pkg) rel() string { return strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/") }

// packages lists the module's packages as they are for one system.
func packages(t *testing.T, goos string) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Name,Doc,GoFiles,Imports", "./...")
	cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		err := d.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("go list: %v", err)
		}
		if len(p.GoFiles) > 0 { // a package of tests alone is nobody's import
			all = append(all, p)
		}
	}
}

// A rule says which of the module's own packages a room may import. Patterns
// are of path.Match; the first rule that matches a package holds.
type rule struct {
	room   string
	may    []string
	reason string
}

var rules = []rule{
	{"event", nil,
		"everyone speaks event, so event knows no one"},
	{"event/eventtest", []string{"event"},
		"a helper of tests, beside what it helps to test"},
	{"redaction", []string{"event"},
		"the gate judges drafts by their levels alone; a vendor's name in it would be a second place that decides what leaves the machine"},
	{"session", []string{"event"},
		"runs, pairs and causes key on AEP types, so that they are written once and not per vendor"},
	{"queue/jsonl", []string{"event"},
		"the log is the lowest of the queue: it keeps lines, and reads them back"},
	{"queue", []string{"event", "queue/jsonl"},
		"a queue carries bytes and positions; who made them is not its business"},
	{"queue/*", []string{"event", "queue"},
		"a sink knows the queue it drains and nothing of where events come from"},
	{"control", []string{"event"},
		"commands are judged by declared facts, not by vendors"},
	{"adapters", []string{"event"},
		"adapters describe, agent does: an adapter that could reach a gate or a process would start to decide"},
	{"adapters/hook", []string{"event", "adapters"},
		"the engine knows the contract, never a vendor"},
	{"adapters/adaptertest", []string{"event", "event/eventtest", "adapters", "adapters/hook", "redaction", "session"},
		"the suite runs an adapter's drafts through the real session and gate"},
	{"adapters/all", []string{"adapters", "adapters/*"},
		"the explicit list; only here do adapters meet"},
	{"adapters/kilo", []string{"adapters", "adapters/hook", "adapters/opencode"},
		"a fork is a parameter of what it was forked from, and the rows that differ"},
	{"adapters/*", []string{"event", "adapters", "adapters/hook"},
		"one vendor never leans on another: shared words belong to the engine"},
	{"agent", []string{"agent/hookclient", "agent/follow", "event", "redaction", "session", "queue", "queue/*", "control", "adapters", "adapters/*"},
		"the one room that touches processes and channels is driven by cmd and knows no collector"},
	{"collector", []string{"event", "redaction", "session", "queue", "queue/*", "control"},
		"a collector takes anybody's events: it must work with no adapter and no agent in its process"},
	{"agent/follow", nil,
		"files that grow are followed for their own sake: what stands in them is others' business"},
	{"agent/hookclient", nil,
		"the body of the hook helper, which runs before every tool call: a little of the standard library and nothing else"},
	{"execution", []string{"event"},
		"the Agent Execution Protocol's other role: it is handed who carries runs out, and knows no vendor and no process"},
	{"execution/executiontest", nil,
		"the contract asks over a socket, and takes nothing from who is asked"},
	{"collector/client", []string{"event"},
		"the consumer's side of any AEP endpoint, not of ours alone"},
	{"collector/pagetest", nil,
		"a helper of tests: it drives a browser, which no program of ours does"},
	{"cmd/aep-hook", []string{"agent/hookclient"},
		"it runs before every tool call: a tiny binary of the standard library"},
	{"cmd/aep-wrap", []string{"*", "*/*"},
		"the one place that wires everything"},
	{"bench", []string{"*", "*/*"}, "it measures the rooms"},
	{"bench/collector", []string{"event"}, "a load on any endpoint, over the wire alone"},
	{"e2e", []string{"*", "*/*", "testdata/mockmodel"}, "it tries the whole"},
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		ok, err := path.Match(p, name)
		return ok && err == nil
	})
}

func TestImportsPointDown(t *testing.T) {
	for _, goos := range []string{"linux", "darwin"} {
		for _, p := range packages(t, goos) {
			i := slices.IndexFunc(rules, func(r rule) bool { return matches([]string{r.room}, p.rel()) })
			if i < 0 {
				t.Errorf("%s is a room that the plan does not know: give it a rule here, with its reason, or put its code into one that stands", p.ImportPath)
				continue
			}
			for _, imp := range p.Imports {
				own, ok := strings.CutPrefix(imp, module+"/")
				if ok && !matches(rules[i].may, own) {
					t.Errorf("%s (%s) imports %s: %s", p.ImportPath, goos, imp, rules[i].reason)
				}
			}
		}
	}
}

// forbidden are imports that a room must not have at all.
var forbidden = []struct {
	room    string
	imports []string
	reason  string
}{
	{"event", []string{"os", "os/exec", "net", "net/http", "io/fs", "log", "log/slog", "syscall"},
		"event is the language, not a speaker: it does no I/O"},
	{"redaction", []string{"os", "os/exec", "net", "net/http", "syscall"},
		"what leaves the machine is decided from values alone; the caller reads the environment"},
	{"session", []string{"os", "os/exec", "net", "net/http", "syscall"},
		"a session is a value that is told of moments: no clock, no files"},
	{"adapters", []string{"os", "os/exec", "net", "net/http", "syscall", "io/ioutil", "path/filepath"},
		"adapters describe, agent does"},
	{"adapters/hook", []string{"os", "os/exec", "net", "net/http", "syscall", "io/ioutil", "path/filepath"},
		"the engine is as pure as what is written in it"},
	{"adapters/adaptertest", nil, "a suite of tests reads its fixtures"},
	{"adapters/*", []string{"os", "os/exec", "net", "net/http", "syscall", "io/ioutil"},
		"adapters describe, agent does: what an adapter needs of the outside it is handed"},
	{"agent/hookclient", []string{"net/http", "fmt", "log", "log/slog", "flag", "reflect", "encoding/json"},
		"each of these costs the start of a process that stands before every tool call"},
	{"cmd/aep-hook", []string{"net/http", "fmt", "log", "log/slog", "flag", "reflect", "encoding/json"},
		"each of these costs the start of a process that stands before every tool call"},
	{"collector", []string{"os/exec"},
		"a collector starts nothing"},
}

func TestRoomsDoWithout(t *testing.T) {
	for _, p := range packages(t, "linux") {
		for _, f := range forbidden {
			if !matches([]string{f.room}, p.rel()) {
				continue
			}
			for _, imp := range p.Imports {
				if slices.Contains(f.imports, imp) {
					t.Errorf("%s imports %s: %s", p.ImportPath, imp, f.reason)
				}
			}
			break
		}
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	for _, p := range packages(t, "linux") {
		if p.Doc == "" {
			t.Errorf("%s has no package comment: say what it is for and what it must not do", p.ImportPath)
		}
	}
}

// calls are functions that a room must not call, where the package that holds
// them is otherwise fine to import.
var calls = []struct {
	in     func(p pkg) bool
	pkg    string
	names  []string
	reason string
}{
	{func(p pkg) bool { return p.Name != "main" }, "os", []string{"Exit"},
		"only main ends the process: anything else returns an error, or nothing that was deferred runs and the terminal stays raw"},
	{func(p pkg) bool { return true }, "log", []string{"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"},
		"as os.Exit; logs go through slog"},
	{func(p pkg) bool { return pure(p.rel()) }, "time", []string{"Now", "Since", "Until"},
		"equal input, equal output: time is handed in"},
	{func(p pkg) bool { return pure(p.rel()) && p.rel() != "redaction" }, "time", []string{"Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"},
		"nothing here waits; redaction alone does, for more of a stream that it filters"},
	{func(p pkg) bool { return pure(p.rel()) && p.rel() != "event" }, "rand", []string{"Read", "Int", "IntN", "Reader"},
		"equal input, equal output: ids are derived, or made by the session"},
}

// pure says which rooms are functions of their input.
func pure(rel string) bool {
	if rel == "adapters/adaptertest" {
		return false
	}
	first, _, _ := strings.Cut(rel, "/")
	return slices.Contains([]string{"event", "redaction", "session", "adapters"}, first)
}

func TestCallsThatRoomsDoWithout(t *testing.T) {
	for _, p := range packages(t, "linux") {
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				sel, ok := n.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				x, ok := sel.X.(*ast.Ident)
				if !ok {
					return true
				}
				for _, c := range calls {
					if c.pkg == x.Name && slices.Contains(c.names, sel.Sel.Name) && c.in(p) {
						t.Errorf("%s: %s.%s: %s", fset.Position(n.Pos()), x.Name, sel.Sel.Name, c.reason)
					}
				}
				return true
			})
		}
	}
}

// Every folder of adapters is an adapter, and in the list. An adapter that
// nobody lists is dead code that looks alive.
func TestEveryAdapterIsListed(t *testing.T) {
	dirs, err := os.ReadDir("adapters")
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, p := range packages(t, "linux") {
		if p.rel() == "adapters/all" {
			list = p.Imports
		}
	}
	if list == nil {
		t.Fatal("adapters/all, the list of adapters, is not there")
	}
	found := 0
	for _, d := range dirs {
		if !d.IsDir() || slices.Contains([]string{"all", "hook", "adaptertest", "testdata"}, d.Name()) {
			continue
		}
		found++
		if !slices.Contains(list, module+"/adapters/"+d.Name()) {
			t.Errorf("adapters/%s is not in adapters/all", d.Name())
		}
		if _, err := os.Stat(filepath.Join("adapters", d.Name(), "doc.md")); err != nil {
			t.Errorf("adapters/%s has no doc.md: an undocumented adapter is not finished", d.Name())
		}
	}
	if found == 0 {
		t.Error("no adapter found")
	}
}

// The top level is a plan, not a drawer.
func TestTopLevel(t *testing.T) {
	rooms := []string{"adapters", "agent", "bench", "cmd", "collector", "control", "deploy", "docs", "e2e", "event", "execution", "queue", "redaction", "session", "testdata", "bin"}
	dirs, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if d.IsDir() && !strings.HasPrefix(d.Name(), ".") && !slices.Contains(rooms, d.Name()) {
			t.Errorf("%s/ is a new top-level folder: it needs a reason as good as the others', in docs/architecture.md and here", d.Name())
		}
	}
}
