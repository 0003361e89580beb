package e2e

import (
	"bytes"
	"encoding/json"
	"flag"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"aep-wrap/event"
	"aep-wrap/event/eventtest"
	"aep-wrap/testdata/mockmodel"
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
	tui     []string       // the arguments that open its screen
	ready   string         // what its screen shows when it waits for the first prompt
	first   func(s *stage) // what a person answers before that; nil is nothing
	exit    string         // what a person types to leave
	owns    []string       // files of the user's that the agent itself writes anew, bare too
	logs    string         // the folder of its session logs, where it writes which hooks it ran
	either  bool           // its request may come before its tool or after it: the tool is taken as first
	scenes  []scene
	missing []string // what cannot be seen or done, for docs/agents.md
}

// scene is one visit to an agent. With a script the agent is run headless with
// its prompt; else a person sits at its screen.
type scene struct {
	name   string
	script string
	args   []string // before those of print or tui
	wrap   []string // flags of the wrapper's
	play   func(s *stage)
	want   []string // the types of the protocol's events, in order; x.*, progress and control.* are left out
	check  func(s *stage, events []event.Event)
	same   bool // run bare too: the output and the exit code are the same
	remote bool // with a collector, through which others answer and command
	// shows are the cells of docs/agents.md that this scene proves, by column:
	// answerable, cancel, pause or instruct.
	shows map[string]string
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
	*terminal // nil where there is no screen
	turns     int
}

// ask types a prompt with a script, until its run is told of: some screens take
// a Return that comes soon after words for a line of a paste.
func (s *stage) ask(script string) {
	s.world.t.Helper()
	s.turns++
	s.enter("go " + strconv.Itoa(s.turns) + " [[script:" + script + "]]")
	again := time.Now().Add(5 * time.Second)
	s.eventually("the run of prompt "+strconv.Itoa(s.turns), func() bool {
		if time.Now().After(again) {
			again = again.Add(5 * time.Second)
			s.keys("\r")
		}
		return s.tells("run.started") >= s.turns
	})
}

// leave types what ends the agent, until it has ended.
func (s *stage) leave(words string) {
	s.world.t.Helper()
	s.enter(words)
	again := time.Now().Add(10 * time.Second)
	s.eventually("the agent to end", func() bool {
		select {
		case <-s.ended:
			return true
		default:
		}
		if time.Now().After(again) {
			again = again.Add(10 * time.Second)
			_, _ = s.pty.WriteString("\r") // it may be ending just now
		}
		return false
	})
}

// tells counts the events of a type in the logs so far.
func (w *world) tells(typ string) (n int) {
	w.t.Helper()
	for _, f := range w.logFiles() {
		b, err := os.ReadFile(f)
		if err != nil {
			w.t.Fatal(err)
		}
		n += strings.Count(string(b), `"type":"`+typ+`"`)
	}
	return n
}

// pendingRecord is a request as aep-wrap pending --json tells it.
type pendingRecord struct {
	ID, Session, Kind string
	Answerable        bool
}

// respond waits for a request that can be answered from afar, and answers it.
func (s *stage) respond(answer ...string) {
	s.world.t.Helper()
	var p pendingRecord
	var last result
	s.world.t.Cleanup(func() {
		if s.world.t.Failed() {
			s.world.t.Logf("pending: %+v", last)
		}
	})
	s.eventually("a request that can be answered", func() bool {
		last = s.run(wrapper(s.world.t), "pending", "--json")
		for line := range strings.Lines(last.stdout) {
			if err := json.Unmarshal([]byte(line), &p); err != nil {
				s.world.t.Fatalf("%v: %s", err, line)
			}
			if p.Answerable {
				return true
			}
		}
		return false
	})
	s.command("respond", append([]string{p.Session, p.ID}, answer...)...)
}

// reachable waits until the collector has a way back to the session: an agent
// that is quick has done its first turn before.
func (s *stage) reachable() {
	s.eventually("a way back", func() bool {
		return strings.Contains(s.run(wrapper(s.world.t), "roster", "--json").stdout, s.session())
	})
}

// command gives a command from another terminal, and follows it to its end.
func (s *stage) command(verb string, args ...string) {
	s.reachable()
	s.world.t.Helper()
	if r := s.run(append([]string{wrapper(s.world.t), verb, "--wait", "--timeout", "30s"}, args...)...); r.code != 0 {
		s.world.t.Fatalf("%s: exit %d\n%s%s", verb, r.code, r.stdout, r.stderr)
	}
}

// session is the one that is told of.
func (s *stage) session() (id string) {
	s.world.t.Helper()
	s.eventually("a session", func() bool {
		for _, f := range s.logFiles() {
			id = strings.TrimSuffix(filepath.Base(f), ".jsonl")
		}
		return id != ""
	})
	return id
}

func (s *stage) eventually(what string, ok func() bool) {
	s.world.t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.world.t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// collect runs a collector for the world's user; stop ends it.
func (w *world) collect() (stop func()) {
	w.t.Helper()
	addr := eventtest.Address(w.t)
	w.env = append(w.env, "AEP_LISTEN="+addr)
	cmd := exec.Command(wrapper(w.t), "collect")
	cmd.Dir, cmd.Env = w.root, w.environ()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		if c, err := net.Dial("tcp", addr); err == nil {
			c.Close()
			break
		} else if time.Now().After(deadline) {
			w.t.Fatal("the collector does not listen")
		}
	}
	stop = sync.OnceFunc(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	w.t.Cleanup(func() {
		stop()
		if w.t.Failed() {
			w.t.Logf("the collector: %s", errs.String())
		}
	})
	return stop
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
				whole = whole && ran
				for column, what := range sc.shows {
					rec.Shows[column] = append(rec.Shows[column], what)
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
	s := &stage{world: w}
	t.Cleanup(func() {
		for _, f := range append(w.logFiles(), filepath.Join(w.home(), ".aep", "aep-wrap.log")) {
			if b, err := os.ReadFile(f); err == nil && t.Failed() {
				t.Logf("%s:\n%s", f, b)
			}
		}
	})
	stop := func() {}
	if sc.remote {
		stop = w.collect()
	}
	argv := append([]string{path}, sc.args...)
	if sc.script == "" {
		argv = append(argv, a.tui...)
	} else {
		argv = append(argv, a.print("go [[script:"+sc.script+"]]")...)
	}
	wrapped := append(append([]string{wrapper(t)}, sc.wrap...), "--")
	if sc.script == "" {
		s.terminal = w.open(append(wrapped, argv...)...)
		if a.first != nil {
			a.first(s)
		}
		if a.ready != "" {
			s.see(a.ready)
		}
		sc.play(s)
		s.leave(a.exit)
		s.restored()
	} else {
		var bare result
		if sc.same {
			bare = w.run(argv...)
			w.reset()
		}
		end := w.begin(append(wrapped, argv...)...)
		if sc.play != nil {
			sc.play(s)
		}
		r := end()
		if sc.same {
			if d := cmp.Diff(lines(bare.stdout), lines(r.stdout)); d != "" {
				t.Errorf("stdout differs (- bare + wrapped):\n%s", d)
			}
			if bare.code != r.code {
				t.Errorf("exit code %d, bare %d", r.code, bare.code)
			}
		}
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("exit code %d\nstdout: %s\nstderr: %s", r.code, r.stdout, r.stderr)
			}
		})
	}
	stop()
	w.untouched(before, a)
	w.nobodyLeft()
	events := w.events()
	got := slices.DeleteFunc(types(events), func(typ string) bool { return event.Category(typ) == "control" })
	for i := 1; a.either && i < len(got); i++ {
		for j := i; j > 0 && got[j] == "tool.requested" && event.Category(got[j-1]) == "attention"; j-- {
			got[j-1], got[j] = got[j], got[j-1]
		}
	}
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
func (w *world) untouched(before map[string]string, a agentCase) {
	w.t.Helper()
	after := w.snapshot()
	own := func(name string) bool {
		return slices.ContainsFunc(a.owns, func(o string) bool { return name == o || strings.HasSuffix(o, "/") && strings.HasPrefix(name, o) })
	}
	for name, content := range before {
		if after[name] != content && !own(name) {
			w.t.Errorf("%s was changed:\n%s\nit was\n%s", name, after[name], content)
		}
	}
	for name, content := range after {
		if strings.HasPrefix(name, ".aep/") || own(name) {
			continue
		}
		if a.logs != "" && strings.HasPrefix(name, a.logs) {
			content = hookRan.ReplaceAllString(content, "")
		}
		if at := ours.FindStringIndex(content); at != nil {
			w.t.Errorf("%s speaks of us: %q", name, content[max(at[0]-60, 0):min(at[1]+60, len(content))])
		}
	}
}

// ours is what the wrapper puts into a launch: the helper's command, the
// address of the hooks.
var ours = regexp.MustCompile(`aep-hook|AEP_HOOK_SOCKET|/hook/[0-9a-f]{48}`)

// hookRan is how a session log names a hook of ours that was run: by an
// address that died with the launch.
var hookRan = regexp.MustCompile(`"command":"http://127\.0\.0\.1:\d+/hook/[0-9a-f]{48}/[a-z-]+/[A-Za-z.]+"`)

// nobodyLeft waits until no process of the world's is there any more: each has
// its home in its environment.
func (w *world) nobodyLeft() {
	w.t.Helper()
	if runtime.GOOS != "linux" {
		return
	}
	var left []string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
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

// fromAfar is a visit in which somebody allows a command, refuses one, and
// pauses, resumes and cancels a run, all from another terminal.
func fromAfar(s *stage) { fromAfarBy(s, "allow", "deny") }

// fromAfarBy is the same where the options are called otherwise.
func fromAfarBy(s *stage, yes, no string) {
	s.ask("bash1")
	s.respond("--option", yes)
	s.told("run.finished", 1)
	s.ask("bash1")
	s.respond("--option", no, "--text", "not today")
	s.told("run.finished", 2)
	s.ask("slowtext")
	s.see("slow words")
	s.command("pause", s.session())
	s.command("resume", s.session())
	s.command("cancel", s.session())
	s.told("run.cancelled", 1)
}

// atTheScreen is a visit in which the person allows a command in the agent's
// own dialog, refuses one, and stops an answer. A refusal ends the run in some
// agents, in others the model goes on.
func atTheScreen(dialog, yes, no, refused string) func(*stage) {
	return func(s *stage) {
		s.ask("bash1")
		s.press(dialog, yes)
		s.told("run.finished", 1)
		s.ask("bash1")
		s.press(dialog, no)
		ended := map[string]int{"run.finished": 1, "run.cancelled": 0}
		ended[refused]++
		s.told(refused, ended[refused])
		s.ask("slowtext")
		s.see("slow words")
		s.keys(keyEsc)
		s.told("run.cancelled", ended["run.cancelled"]+1)
	}
}

// instruction is what a model is told from afar.
const instruction = "Mind the harbour lights."

// instructed is a visit in which a text is given from another terminal, and is
// in what the model is asked next.
func instructed(s *stage) {
	s.ask("hello")
	s.told("run.finished", 1)
	s.reachable()
	if r := s.run(wrapper(s.world.t), "instruct", s.session(), instruction); r.code != 0 {
		s.world.t.Fatalf("instruct: exit %d\n%s%s", r.code, r.stdout, r.stderr)
	}
	s.ask("hello")
	s.told("run.finished", 2)
	heard, _ := s.model.Heard()
	if !slices.ContainsFunc(heard, func(h mockmodel.Heard) bool { return strings.Contains(string(h.Body), instruction) }) {
		s.world.t.Error("the model did not hear the instruction")
	}
}

// cancelled ends a headless run that has begun, from another terminal.
func cancelled(s *stage) {
	s.told("run.started", 1)
	s.asked("slowtext")
	s.command("cancel", s.session())
}

// checkBy asserts who is said to have cancelled each run.
func checkBy(want ...any) func(*stage, []event.Event) {
	return func(s *stage, events []event.Event) {
		var got []any
		for _, e := range events {
			if e.Type == "run.cancelled" {
				got = append(got, data(s.world.t, e)["by"])
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			s.world.t.Errorf("runs cancelled by (- want + got):\n%s", d)
		}
	}
}
