package e2e

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"aep-wrap/event"
)

var update = flag.Bool("update", false, "record what the agents were seen to do, in testdata/agents")

// agentCase is a real agent and what it is seen to do. A new one is one value
// in agentCases and its recording, made by
//
//	AEP_E2E=1 go test ./e2e -run 'TestAgents/NAME' -update
//
// from which `go test . -run Page -update` makes docs/agents.md.
type agentCase struct {
	adapter string // the adapter's name
	program program
	files   func(w *world)          // the user's files before a run
	env     func(w *world) []string // added to the environment
	print   func(prompt string) []string
	tui     []string // the arguments that open its screen
	ready   string   // what its screen shows when it waits for a prompt
	owns    []string // files of the user's that the agent itself writes anew, bare too
	scenes  []scene
	missing []string // what cannot be seen or done, for docs/agents.md
}

// scene is one visit to an agent. Where play is nil the agent is run headless
// with the script's prompt, else a person sits at its screen.
type scene struct {
	name   string
	script string
	args   []string // before those of print or tui
	wrap   []string // flags of the wrapper's
	play   func(s *stage)
	want   []string // the types of the protocol's events, in order; x.* and progress are left out
	check  func(s *stage, events []event.Event)
	same   bool   // run bare too: the output and the exit code are the same
	column string // of docs/agents.md, which this scene proves: answerable, cancel, pause or instruct
	shows  string // what stands there
}

// recording is what the scenes of an agent were seen to be: the row of
// docs/agents.md.
type recording struct {
	Agent   string              `json:"agent"`
	Version string              `json:"version"`
	Scenes  map[string][]string `json:"scenes"` // the types of its events
	Shows   map[string][]string `json:"shows"`  // column → what was shown to work
	Missing []string            `json:"missing"`
}

// stage is a scene being played.
type stage struct {
	*world
	*terminal
	agent agentCase
}

var agentCases []agentCase

// Every agent, each scene in a home of its own: what the protocol tells of it
// is valid, complete and as recorded; the user's files are as they were, and
// no process is left.
func TestAgents(t *testing.T) {
	for _, a := range agentCases {
		t.Run(a.program.command, func(t *testing.T) {
			path := a.program.path(t)
			rec := recording{Agent: a.adapter, Version: a.program.version, Scenes: map[string][]string{}, Shows: map[string][]string{}, Missing: a.missing}
			whole := true
			for _, sc := range a.scenes {
				ran := false
				t.Run(strings.ReplaceAll(sc.name, " ", "-"), func(t *testing.T) {
					defer func() { ran = !t.Failed() && !t.Skipped() }()
					rec.Scenes[sc.name] = playScene(t, a, sc, path)
				})
				if whole = whole && ran; ran && sc.column != "" {
					rec.Shows[sc.column] = append(rec.Shows[sc.column], sc.shows)
				}
			}
			if whole { // not where -run picked some
				checkRecording(t, rec)
			}
		})
	}
}

func playScene(t *testing.T, a agentCase, sc scene, path string) []string {
	w := makeWorld(t, a.program, a.files)
	w.env = a.env(w)
	before := w.snapshot()
	s := &stage{world: w, agent: a}
	argv := append([]string{path}, sc.args...)
	if sc.play != nil {
		argv = append(argv, a.tui...)
	} else {
		argv = append(argv, a.print("go [[script:"+sc.script+"]]")...)
	}
	var bare result
	if sc.same {
		bare = w.run(argv...)
		w.reset()
	}
	argv = append(append(append([]string{wrapper(t)}, sc.wrap...), "--"), argv...)
	if sc.play != nil {
		s.terminal = w.open(argv...)
		if a.ready != "" {
			s.see(a.ready)
		}
		sc.play(s)
		s.wait()
		s.restored()
	} else {
		wrapped := w.run(argv...)
		if sc.same {
			if d := cmp.Diff(lines(bare.stdout), lines(wrapped.stdout)); d != "" {
				t.Errorf("stdout differs (- bare + wrapped):\n%s", d)
			}
			if bare.code != wrapped.code {
				t.Errorf("exit code %d, bare %d", wrapped.code, bare.code)
			}
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("exit code %d\nstdout: %s\nstderr: %s", wrapped.code, wrapped.stdout, wrapped.stderr)
			}
		})
	}
	w.untouched(before, a.owns)
	w.nobodyLeft()
	events := w.events()
	got := types(events)
	if d := cmp.Diff(sc.want, got); d != "" {
		t.Errorf("events (- want + got):\n%s", d)
	}
	if sc.check != nil {
		sc.check(s, events)
	}
	return got
}

// untouched fails where a run changed a file that was there before, or left
// one that speaks of us.
func (w *world) untouched(before map[string]string, owns []string) {
	w.t.Helper()
	after := w.snapshot()
	for name, content := range before {
		if after[name] != content && !slices.Contains(owns, name) {
			w.t.Errorf("%s was changed:\n%s\nit was\n%s", name, after[name], content)
		}
	}
	for name, content := range after {
		if !strings.HasPrefix(name, ".aep/") && ours.MatchString(content) {
			w.t.Errorf("%s speaks of us: %q", name, ours.FindString(content))
		}
	}
}

// ours is what the wrapper puts into a launch: the helper's command, the
// address of the hooks.
var ours = regexp.MustCompile(`.{0,60}(aep-hook|AEP_HOOK_SOCKET|/hook/[0-9a-f]{48}).{0,60}`)

// nobodyLeft waits until no process of the world's is there any more: each has
// its home in its environment.
func (w *world) nobodyLeft() {
	w.t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	var left []string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		left = nil
		files, _ := filepath.Glob("/proc/[0-9]*/environ")
		for _, f := range files {
			b, err := os.ReadFile(f)
			if err != nil || !strings.Contains(string(b), "HOME="+w.home()+"\x00") {
				continue
			}
			line, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
			left = append(left, strings.ReplaceAll(string(line), "\x00", " "))
		}
		if left == nil {
			return
		}
	}
	w.t.Errorf("processes are left: %q", left)
}

// checkRecording holds what was seen against testdata/agents.
func checkRecording(t *testing.T, rec recording) {
	t.Helper()
	path := filepath.Join("testdata", "agents", rec.Agent+".json")
	got, err := json.MarshalIndent(rec, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (-update records it)", err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s differs (-update records it anew):\n%s", path, d)
	}
}
