package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"aep-wrap/event"
	"aep-wrap/event/eventtest"
	"aep-wrap/testdata/mockmodel"
)

// commanded is a world with a collector of its own, by which others send
// commands.
func commanded(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.env = []string{"AEP_LISTEN=" + eventtest.Address(t), "XDG_RUNTIME_DIR="}
	t.Cleanup(func() {
		w.endCollector()
		for _, f := range w.logFiles() {
			if b, err := os.ReadFile(f); err == nil && t.Failed() {
				t.Logf("%s:\n%s", f, b)
			}
		}
	})
	return w
}

// endCollector ends the per-user collector of the world.
func (w *world) endCollector() {
	raw, err := os.ReadFile(filepath.Join(w.home(), ".aep", "run", "collector.json"))
	var info struct{ PID int }
	if err == nil && json.Unmarshal(raw, &info) == nil && info.PID > 1 {
		_ = syscall.Kill(info.PID, syscall.SIGKILL)
		waitFor(w.t, "the collector is gone", func() bool {
			return !slices.ContainsFunc(w.processes(), func(p seen) bool { return p.pid == info.PID })
		})
	}
}

// asks waits for a request, and gives the words that name it.
func (w *world) asks(n int) (session, id string) {
	w.t.Helper()
	w.told("attention.requested", n)
	var last event.Event
	for _, f := range w.logFiles() {
		for _, e := range w.parseWhole(f) {
			if e.Type == "attention.requested" {
				last = e
			}
		}
	}
	// Who answers has heard of it from the collector, which then has a way back.
	waitFor(w.t, last.Session+" is claimed", func() bool {
		return strings.Contains(w.start(wrapper(w.t), "roster", "--json").wait().stdout, last.Session)
	})
	return last.Session, last.ID
}

// parseWhole is parse of a log that is being written.
func (w *world) parseWhole(file string) (out []event.Event) {
	w.t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		w.t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		if e, err := event.Parse(bytes.TrimSuffix(line, []byte("\n"))); err == nil {
			out = append(out, e)
		}
	}
	return out
}

// send runs one of the sender's commands.
func (w *world) send(words ...string) result {
	w.t.Helper()
	return w.run(append([]string{wrapper(w.t)}, words...)...)
}

func (w *world) must(words ...string) {
	w.t.Helper()
	if r := w.send(words...); r.code != 0 {
		w.t.Fatalf("aep-wrap %v: exit %d\n%s%s", words, r.code, r.stdout, r.stderr)
	}
}

// attention are the later attention events of a session, in short.
func attention(t *testing.T, events []event.Event) []string {
	t.Helper()
	var out []string
	for _, e := range events {
		if event.Category(e.Type) != "attention" && event.Category(e.Type) != "control" || e.Type == "attention.requested" {
			continue
		}
		s := strings.TrimPrefix(e.Type, "attention.")
		if len(e.Data) > 0 {
			d := data(t, e)
			for _, k := range []string{"via", "resolution", "reason"} {
				if v, ok := d[k]; ok {
					s += fmt.Sprint(" ", v)
				}
			}
			if a, ok := d["answer"].(map[string]any); ok {
				b, _ := json.Marshal(a)
				s += " " + string(b)
			}
		}
		out = append(out, s)
	}
	return out
}

func wantAttention(t *testing.T, events []event.Event, want ...string) {
	t.Helper()
	got := attention(t, events)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("attention:\n\t%s\nwant\n\t%s", strings.Join(got, "\n\t"), strings.Join(want, "\n\t"))
	}
}

// cited says whether an event cites a command, or its ack or answer.
func cited(events []event.Event, e event.Event) bool {
	for range 3 {
		for _, o := range events {
			if o.ID == e.Cause {
				if strings.HasPrefix(o.Type, "control.") {
					return true
				}
				e = o
				break
			}
		}
	}
	return false
}

// Somebody in another terminal answers what claude asks on its screen, and the
// person before the screen does; whoever is first counts.
func TestAnswerTUI(t *testing.T) {
	argv := append([]string{wrapper(t), "--hold", hold, "--"}, claude(t), "--session-id", sessionID)
	w := commanded(t)
	p := w.open(argv...)
	p.see(prompted)

	p.enter("one [[script:bash1]]")
	p.see("Do you want to proceed")
	s, id := w.asks(1)
	w.must("respond", s, id, "--option", "allow")
	p.see("The file is made")
	w.told("attention.resolved", 1)
	if r := w.send("respond", s, id, "--option", "deny"); r.code != 3 || !strings.Contains(r.stderr, "allow") {
		t.Errorf("a second answer: %+v", r)
	}

	p.see(prompted)
	p.enter("two [[script:write1]]")
	p.see("Do you want to create")
	s, id = w.asks(2)
	w.must("respond", s, id, "--text", "Write it elsewhere, please.")
	p.see("The file is written|elsewhere")
	w.told("attention.resolved", 2)

	p.see(prompted)
	p.enter("three [[script:write1]]")
	p.see("Do you want to create")
	s, id = w.asks(3)
	p.press("Do you want to create", "1")
	w.told("attention.resolved", 3)
	if r := w.send("respond", s, id, "--option", "deny"); r.code != 3 {
		t.Errorf("an answer after the screen's: %+v", r)
	}

	p.see(prompted)
	p.enter("four [[script:bash1]]")
	p.see("Do you want to proceed")
	s, id = w.asks(4)
	p.press("Do you want to proceed", keyEsc)
	w.told("attention.resolved", 4)
	if r := w.send("respond", s, id, "--option", "allow"); r.code != 3 {
		t.Errorf("an answer after Esc: %+v", r)
	}

	p.see(prompted)
	p.enter("five [[script:ask]]")
	p.see("Which colour")
	s, id = w.asks(5)
	if r := w.send("respond", s, id, "--values", `{"1":"2"}`); r.code == 0 {
		t.Errorf("a form that lacks a field was taken: %+v", r)
	}
	w.must("respond", s, id, "--values", `{"1":"2","2":["1"]}`)
	p.see("Thanks for the answer")
	w.told("attention.resolved", 5)

	p.see(prompted)
	p.enter("/exit")
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	p.restored()
	events := w.events()
	wantAttention(t, events,
		"control.attention.respond {\"option\":\"allow\"}", "control.accepted", "answered control {\"option\":\"allow\"}", "resolved answered",
		"control.attention.respond {\"option\":\"deny\"}", "control.rejected refused",
		"control.attention.respond {\"text\":\"Write it elsewhere, please.\"}", "control.accepted",
		"answered control {\"option\":\"deny\",\"text\":\"Write it elsewhere, please.\"}", "resolved answered",
		"answered oob {\"option\":\"allow\"}", "resolved answered", "control.attention.respond {\"option\":\"deny\"}", "control.rejected refused",
		"resolved dismissed", "control.attention.respond {\"option\":\"allow\"}", "control.rejected refused",
		"control.attention.respond {\"values\":{\"1\":\"2\",\"2\":[\"1\"]}}", "control.accepted",
		"answered control {\"values\":{\"1\":\"2\",\"2\":[\"1\"]}}", "resolved answered")
	if !w.heard("Write it elsewhere, please.") {
		t.Error("the model was not told why it was refused")
	}
	rs := runs(events)
	if len(rs) != 5 {
		t.Fatalf("%d runs: %v", len(rs), rs)
	}
	for i, ending := range []string{"tool.completed", "tool.failed", "tool.completed", "run.cancelled", "tool.completed"} {
		if !slices.Contains(rs[i], ending) {
			t.Errorf("run %d has no %s: %v", i+1, ending, rs[i])
		}
	}
}

// asked waits until the model is asked to play a script.
func (w *world) asked(script string) {
	w.t.Helper()
	waitFor(w.t, "the model is asked", func() bool {
		all, _ := w.model.Heard()
		return slices.ContainsFunc(all, func(h mockmodel.Heard) bool { return h.Script == script })
	})
}

// heard says whether the model was sent a text.
func (w *world) heard(text string) bool {
	all, _ := w.model.Heard()
	for _, h := range all {
		if bytes.Contains(h.Body, []byte(text)) {
			return true
		}
	}
	return false
}

// A question that nobody answers in time is the screen's alone again.
func TestAnswerTimeoutTUI(t *testing.T) {
	argv := append([]string{wrapper(t), "--hold", "2s", "--"}, claude(t), "--session-id", sessionID)
	w := commanded(t)
	p := w.open(argv...)
	p.see(prompted)
	p.enter("one [[script:bash1]]")
	p.see("Do you want to proceed")
	s, id := w.asks(1)
	w.told("attention.timeout", 1)
	if r := w.send("respond", s, id, "--option", "allow"); r.code != 3 || !strings.Contains(r.stderr, "timed out") {
		t.Errorf("an answer after its time: %+v", r)
	}
	p.press("Do you want to proceed", "1")
	p.see("The file is made")
	p.see(prompted)
	p.enter("/exit")
	p.wait()
	wantAttention(t, w.events(), "timeout", "control.attention.respond {\"option\":\"allow\"}", "control.rejected refused")
}

// Headless claude asks nobody, unless the operator gates the tool.
func TestGateHeadless(t *testing.T) {
	for _, c := range []struct {
		name, reply string
		words       []string
		made        bool
	}{
		{"allowed", "allow", []string{"--option", "allow"}, true},
		{"refused", "deny", []string{"--text", "Not this file."}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			argv := []string{wrapper(t), "--gate", "bash", "--", claude(t), "-p", "--session-id", sessionID, "go [[script:bash1]]"}
			w := commanded(t)
			r := w.start(argv...)
			s, id := w.asks(1)
			w.must(append([]string{"respond", s, id}, c.words...)...)
			if x := r.wait(); x.code != 0 || !strings.Contains(x.stdout, "The file is made.") {
				t.Errorf("%+v", x)
			}
			if _, err := os.Stat(filepath.Join(w.dir(), "made.txt")); (err == nil) != c.made {
				t.Errorf("the file is there: %v", err == nil)
			}
			events := w.events()
			if e := only(t, events, "attention.requested"); e.Cause != only(t, events, "tool.requested").ID {
				t.Errorf("the request is not about the tool: %s", e.Cause)
			}
			if !c.made && !w.heard("Not this file.") {
				t.Error("the model was not told why it was refused")
			}
			only(t, events, "attention.answered")
			if d := data(t, only(t, events, "attention.resolved")); d["resolution"] != "answered" {
				t.Errorf("resolved: %v", d)
			}
		})
	}
}

// A run is cancelled from afar, and the screen stays; a session is cancelled,
// and nothing of it is left.
func TestCancelTUI(t *testing.T) {
	argv := []string{wrapper(t), "--", claude(t), "--session-id", sessionID, "--allowedTools=Bash(sleep:*)"}
	w := commanded(t)
	p := w.open(argv...)
	p.see(prompted)

	p.enter("one [[script:slowtext]]")
	p.see("slow words")
	w.must("cancel", sessionID, "--reason", "wrong way", "--wait")
	p.see("Interrupted")

	p.see(prompted)
	p.enter("two [[script:bash1]]")
	p.see("Do you want to proceed")
	w.asks(1)
	w.must("cancel", sessionID, "--wait")
	p.see(prompted)

	p.enter("three [[script:hello]]")
	p.see("Hello there")
	p.see(prompted)
	w.told("run.finished", 1)
	if r := w.send("cancel", sessionID); r.code != 3 {
		t.Errorf("a cancel where nothing runs: %+v", r)
	}

	p.enter("four [[script:slowbash]]")
	p.see("Sleeping")
	w.told("tool.requested", 2)
	waitFor(t, "the tool's process", func() bool { return strings.Contains(strings.Join(w.left(), "\n"), "sleep 120") })
	w.must("cancel", sessionID, "--scope", "session", "--wait")
	p.wait()
	p.restored()
	w.nothingLeft()
	events := w.events()
	n := 0
	for _, e := range events {
		switch e.Type {
		case "run.cancelled":
			n++
			if by := data(t, e)["by"]; by != "control" || !cited(events, e) {
				t.Errorf("run.cancelled by %v, because of %s", by, e.Cause)
			}
		case "session.ended":
			if d := data(t, e); d["reason"] != "killed" || !cited(events, e) {
				t.Errorf("session.ended %v because of %s", d, e.Cause)
			}
		}
	}
	if n != 3 {
		t.Errorf("%d runs were cancelled: %v", n, types(events))
	}
}

// start starts a command of the world in the background, with nothing on
// stdin.
func (w *world) start(argv ...string) *running {
	w.t.Helper()
	r := &running{w: w, cmd: exec.Command(argv[0], argv[1:]...)}
	r.cmd.Dir, r.cmd.Env = w.dir(), w.environ()
	r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.errs
	r.cmd.WaitDelay = 5 * time.Second
	if err := r.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = r.cmd.Process.Kill() })
	return r
}

type running struct {
	w         *world
	cmd       *exec.Cmd
	out, errs bytes.Buffer
}

// wait waits for its end. What is bounded is the wait: others run for as long as
// their test does.
func (r *running) wait() result {
	r.w.t.Helper()
	stop := time.AfterFunc(2*patience, func() { _ = r.cmd.Process.Kill() })
	err := r.cmd.Wait()
	if !stop.Stop() {
		r.w.t.Fatalf("%v did not end in %v\nstdout: %s\nstderr: %s", r.cmd.Args, 2*patience, r.out.String(), r.errs.String())
	}
	return result{r.out.String(), r.errs.String(), exitCode(r.w.t, err)}
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	waitIn(t, patience, what, is)
}

func waitIn(t *testing.T, bound time.Duration, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// left are the processes of the world but its collector, by command line.
func (w *world) left() (out []string) {
	for _, p := range w.processes() {
		if !strings.Contains(p.line, " collect ") {
			out = append(out, p.line)
		}
	}
	return out
}

// soon is by when the kernel has done what it was told, however busy it is, and
// a tool's sleep of two minutes is not over by itself.
const soon = patience / 4

// nothingLeft waits until all of the world's processes have ended.
func (w *world) nothingLeft() {
	w.t.Helper()
	defer w.tellProcesses()
	waitIn(w.t, soon, "nothing is left", func() bool { return len(w.left()) == 0 })
}

// standsStill waits until all that came of the agent does.
func (w *world) standsStill() {
	w.t.Helper()
	defer w.tellProcesses()
	waitIn(w.t, soon, "all stands still", w.stopped)
}

func (w *world) tellProcesses() {
	if w.t.Failed() {
		w.t.Logf("processes: %v", w.processes())
	}
}

type seen struct {
	pid   int
	line  string
	state byte
}

// processes have the world's home in their environment.
func (w *world) processes() (out []seen) {
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(b), "HOME="+w.home()+"\x00") {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "cmdline"))
		stat, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "stat"))
		if i := bytes.LastIndexByte(stat, ')'); len(line) > 0 && i > 0 && i+2 < len(stat) && stat[i+2] != 'Z' {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
			out = append(out, seen{pid, strings.TrimSpace(strings.ReplaceAll(string(line), "\x00", " ")), stat[i+2]})
		}
	}
	return out
}

// stopped says whether all that came of the agent stands still.
func (w *world) stopped() bool {
	n := 0
	for _, p := range w.processes() {
		if program, _, _ := strings.Cut(p.line, " "); filepath.Base(program) == "aep-wrap" || strings.HasPrefix(p.line, "aep-wrap") {
			continue
		}
		if p.state != 'T' {
			return false
		}
		n++
	}
	return n > 0
}

// Headless claude is cancelled in the midst of an answer and of a tool, by the
// run and by the session.
func TestCancelHeadless(t *testing.T) {
	for _, c := range []struct {
		name, script, ready string
		words               []string
	}{
		{"run, while it answers", "slowtext", "run.started", nil},
		{"run, in a tool", "slowbash", "tool.requested", nil},
		{"session, in a tool", "slowbash", "tool.requested", []string{"--scope", "session"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			argv := []string{wrapper(t), "--", claude(t), "-p", "--session-id", sessionID, "--allowedTools=Bash(sleep:*)", "go [[script:" + c.script + "]]"}
			w := commanded(t)
			r := w.start(argv...)
			w.told(c.ready, 1)
			if c.script == "slowbash" {
				waitFor(t, "the tool's process", func() bool { return strings.Contains(strings.Join(w.left(), "\n"), "sleep 120") })
			} else {
				w.asked(c.script)
			}
			w.must(append([]string{"cancel", sessionID, "--wait"}, c.words...)...)
			x := r.wait()
			w.nothingLeft()
			events := w.events()
			e := only(t, events, "run.cancelled")
			if by := data(t, e)["by"]; by != "control" || !cited(events, e) {
				t.Errorf("by %v, because of %s", by, e.Cause)
			}
			t.Logf("exit code %d; %v", x.code, types(events))
		})
	}
}

// Everything that came of the agent stands still while it is paused, and goes
// on where it was.
func TestPause(t *testing.T) {
	t.Run("headless", func(t *testing.T) {
		argv := []string{wrapper(t), "--", claude(t), "-p", "--session-id", sessionID, "--allowedTools=Bash(sleep:*)", "go [[script:slowbash]]"}
		w := commanded(t)
		r := w.start(argv...)
		w.told("tool.requested", 1)
		waitFor(t, "the tool's process", func() bool { return strings.Contains(strings.Join(w.left(), "\n"), "sleep 120") })
		w.must("pause", sessionID, "--wait")
		w.standsStill()
		if x := w.send("pause", sessionID); x.code != 3 || !strings.Contains(x.stderr, "paused already") {
			t.Errorf("a pause of a paused session: %+v", x)
		}
		w.must("resume", sessionID, "--wait")
		if w.stopped() {
			t.Error("resumed, and it stands still")
		}
		if x := w.send("resume", sessionID); x.code != 3 {
			t.Errorf("a resumption of a running session: %+v", x)
		}
		w.must("pause", sessionID, "--wait")
		w.must("cancel", sessionID, "--scope", "session", "--wait") // what stands still is ended too
		r.wait()
		w.nothingLeft()
		var phases []any
		events := w.events()
		for _, e := range events {
			if e.Type == "progress.status" && data(t, e)["phase"] != nil {
				phases = append(phases, data(t, e)["phase"])
				if !cited(events, e) {
					t.Errorf("%v because of %s", data(t, e), e.Cause)
				}
			}
		}
		if got := fmt.Sprint(phases); !strings.HasPrefix(got, "[paused resumed paused") {
			t.Errorf("phases %v", got)
		}
	})
	t.Run("TUI", func(t *testing.T) {
		argv := []string{wrapper(t), "--", claude(t), "--session-id", sessionID}
		w := commanded(t)
		p := w.open(argv...)
		p.see(prompted)
		p.enter("one [[script:slowtext]]")
		p.see("slow words")
		w.must("pause", sessionID, "--wait")
		w.standsStill()
		w.must("resume", sessionID, "--wait")
		p.keys(keyEsc)
		p.see("Interrupted")
		p.see(prompted)
		p.enter("/exit")
		if code := p.wait(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		p.restored()
	})
}

// A text reaches the model with the next hook that it reads, where the
// operator has allowed it.
func TestInstruct(t *testing.T) {
	argv := []string{wrapper(t), "--allow", "instruct", "--", claude(t), "--session-id", sessionID}
	w := commanded(t)
	p := w.open(argv...)
	p.see(prompted)
	p.enter("one [[script:bash1]]")
	p.see("Do you want to proceed")
	w.must("instruct", sessionID, "Mind the gap, please.")
	p.press("Do you want to proceed", "1")
	p.see("The file is made")
	if !w.heard("Mind the gap, please.") {
		t.Error("the model did not hear it")
	}
	p.see(prompted)
	w.must("instruct", sessionID, "Too late.")
	p.enter("/exit")
	p.wait()
	events := w.events()
	only(t, events, "x.claude-code.instruction.delivered")
	only(t, events, "x.claude-code.instruction.dropped")
}

// A wrapper that is killed while a question waits: an agent on a terminal of
// somebody else's asks on in its own dialog; one on the wrapper's PTY is hung
// up, as by a closed window. The next start closes what waited.
func TestKilledWhileAsking(t *testing.T) {
	for _, c := range []struct {
		name  string
		apart bool // input and output are two terminals, so that none is put between
	}{{"terminal of another's", true}, {"terminal of ours", false}} {
		t.Run(c.name, func(t *testing.T) {
			argv := []string{"sh", "-c", `"$@"; echo wrapper-gone; sleep 30`, "sh", wrapper(t), "--", claude(t), "--session-id", sessionID}
			w := commanded(t)
			open := w.open
			if c.apart {
				open = w.openApart
			}
			p := open(argv...)
			p.see(prompted)
			p.enter("one [[script:bash1]]")
			p.see("Do you want to proceed")
			_, id := w.asks(1)
			if !w.killWrapper(t) {
				t.Fatal("there is no wrapper")
			}
			if c.apart {
				time.Sleep(500 * time.Millisecond)
				p.press("Do you want to proceed", "1")
				p.see("The file is made")
				if _, err := os.Stat(filepath.Join(w.dir(), "made.txt")); err != nil {
					t.Error(err)
				}
			} else {
				waitFor(t, "the agent is hung up", func() bool { return !strings.Contains(strings.Join(w.left(), "\n"), "--settings") })
			}
			w.must("flush")
			events := w.parse(w.logFiles()[0])
			e := only(t, events, "attention.resolved")
			if d := data(t, e); e.Subject != id || d["resolution"] != "dismissed" {
				t.Errorf("%s %v", e.Subject, d)
			}
			if last := events[len(events)-1]; last.Type != "session.ended" {
				t.Errorf("the log ends with %s", last.Type)
			}
		})
	}
}

// killWrapper kills the wrapper, and nothing else.
func (w *world) killWrapper(t *testing.T) bool {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, f := range files {
		line, err := os.ReadFile(f)
		if err != nil || !bytes.HasPrefix(line, []byte(wrapper(t)+"\x00--\x00")) {
			continue
		}
		env, _ := os.ReadFile(filepath.Join(filepath.Dir(f), "environ"))
		if !bytes.Contains(env, []byte("HOME="+w.home()+"\x00")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		return syscall.Kill(pid, syscall.SIGKILL) == nil
	}
	return false
}
