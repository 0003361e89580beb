package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"aep-wrap/event"
)

// editor is an editor that has started an agent by the Agent Client Protocol:
// it says what its script says, and chooses a permission's option, or leaves
// its dialog open.
type editor struct {
	t      *testing.T
	in     io.WriteCloser
	choose string // the kind of option; "" leaves the dialog open
	heard  chan map[string]any
	notes  []string
}

func (e *editor) say(m map[string]any) {
	e.t.Helper()
	m["jsonrpc"] = "2.0"
	b, err := json.Marshal(m)
	if err != nil {
		e.t.Fatal(err)
	}
	if _, err := e.in.Write(append(b, '\n')); err != nil {
		e.t.Fatal(err)
	}
}

// call waits for the result of a request, answering what the agent asks
// meanwhile.
func (e *editor) call(id int, method string, params any) map[string]any {
	e.t.Helper()
	e.say(map[string]any{"id": id, "method": method, "params": params})
	timeout := time.After(2 * patience)
	for {
		select {
		case m, ok := <-e.heard:
			if !ok {
				e.t.Fatalf("the agent has ended without an answer to %s", method)
			}
			if m["method"] == nil && m["id"] == float64(id) {
				result, ok := m["result"].(map[string]any)
				if !ok {
					e.t.Fatalf("%s: %v", method, m)
				}
				return result
			}
			e.asked(m)
		case <-timeout:
			e.t.Fatalf("no answer to %s", method)
		}
	}
}

func (e *editor) asked(m map[string]any) {
	e.t.Helper()
	method, _ := m["method"].(string)
	switch {
	case m["id"] == nil:
		e.notes = append(e.notes, method)
	case method != "session/request_permission":
		e.say(map[string]any{"id": m["id"], "error": map[string]any{"code": -32601, "message": "not here"}})
	case e.choose != "":
		params, _ := m["params"].(map[string]any)
		options, _ := params["options"].([]any)
		for _, o := range options {
			if o, _ := o.(map[string]any); o["kind"] == e.choose {
				e.say(map[string]any{"id": m["id"], "result": map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": o["optionId"]}}})
				return
			}
		}
		e.t.Errorf("no option of kind %s: %v", e.choose, options)
	}
}

// acpAgent is a real agent that speaks the protocol.
type acpAgent struct {
	agentCase
	args []string // what makes it speak
	mode string   // the session mode in which it asks; "" is the one that it starts in
	mute bool     // it tells nothing of a tool that was refused
}

func acpAgents() (all []acpAgent) {
	speaking := map[string]acpAgent{
		"copilot":  {args: []string{"--acp"}},
		"kimi":     {args: []string{"acp"}},
		"gemini":   {args: []string{"--acp", "-m", "gemini-2.5-flash"}, mute: true},
		"qwen":     {args: []string{"--acp"}, mode: "default"},
		"opencode": {args: []string{"acp"}},
	}
	for _, c := range agentCases {
		if a, ok := speaking[c.program.command]; ok {
			a.agentCase = c
			all = append(all, a)
		}
	}
	return append(all, acpAgent{mode: "default", agentCase: agentCase{
		program: program{command: "claude-agent-acp", npm: "@agentclientprotocol/claude-agent-acp", version: "0.101.0", node: 22},
		files:   claudeFiles,
		env:     func(*world) []string { return nil },
	}})
}

// acpVisit is an editor at work with an agent behind the tee.
type acpVisit struct {
	*editor
	w             *world
	cmd           *exec.Cmd
	session       any
	sent, written bytes.Buffer // what the editor said, and what it heard
}

// acpOpen starts an agent behind the tee, and opens a session.
func acpOpen(t *testing.T, a acpAgent, w *world, choose string, words ...string) *acpVisit {
	t.Helper()
	v := &acpVisit{w: w, editor: &editor{t: t, choose: choose, heard: make(chan map[string]any, 1<<14)}}
	v.cmd = exec.Command(wrapper(t), append(append([]string{"acp"}, words...), a.args...)...)
	v.cmd.Dir, v.cmd.Env = w.dir(), w.environ()
	in, err := v.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	v.in = struct {
		io.Writer
		io.Closer
	}{io.MultiWriter(in, &v.sent), in}
	out, err := v.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := v.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.cmd.Process.Kill() })
	go func() {
		defer close(v.heard)
		r := bufio.NewReader(out)
		for {
			line, err := r.ReadBytes('\n')
			v.written.Write(line)
			var m map[string]any
			if json.Unmarshal(line, &m) == nil {
				v.heard <- m
			}
			if err != nil {
				return
			}
		}
	}()
	v.call(1, "initialize", map[string]any{"protocolVersion": 1, "clientCapabilities": map[string]any{"fs": map[string]any{"readTextFile": false, "writeTextFile": false}}})
	v.session = v.call(2, "session/new", map[string]any{"cwd": w.dir(), "mcpServers": []any{}})["sessionId"]
	if a.mode != "" {
		v.call(3, "session/set_mode", map[string]any{"sessionId": v.session, "modeId": a.mode})
	}
	return v
}

func (v *acpVisit) prompt(script string) map[string]any {
	v.t.Helper()
	return v.call(4, "session/prompt", map[string]any{"sessionId": v.session, "prompt": []any{map[string]any{"type": "text", "text": "go [[script:" + script + "]]"}}})
}

// close ends the agent as an editor does: its input first, then a signal.
func (v *acpVisit) close() error {
	v.in.Close()
	signal := time.AfterFunc(10*time.Second, func() { _ = v.cmd.Process.Signal(syscall.SIGTERM) })
	defer signal.Stop()
	for range v.heard { // to the end of its output
	}
	return v.cmd.Wait()
}

// tells compares what was told, whatever the order of a request and its tool.
func (v *acpVisit) tells(want ...string) {
	v.t.Helper()
	got := slices.DeleteFunc(types(v.w.events()), func(typ string) bool { return event.Category(typ) == "control" })
	for i := 1; i < len(got); i++ {
		if got[i-1] == "attention.requested" && got[i] == "tool.requested" {
			got[i-1], got[i] = got[i], got[i-1]
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		v.t.Errorf("events (- want + got):\n%s", d)
	}
}

// An editor, the tee and a real agent: the editor allows a command; it is
// refused from afar while the editor's dialog is open; a turn is cancelled from
// afar; the agent is killed.
func TestACP(t *testing.T) {
	for _, a := range acpAgents() {
		t.Run(a.program.command, func(t *testing.T) {
			path := a.program.path(t)
			world := func(t *testing.T) *world {
				w := makeWorld(t, a.program, a.files)
				w.env = a.env(w)
				return w
			}
			answered := []string{"session.started", "run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved"}

			// Between two tees of the system's: what one side wrote is what the
			// other read, to the byte, and a message of 1 MB with it.
			t.Run("editor", func(t *testing.T) {
				w := world(t)
				heard, said := filepath.Join(w.root, "heard"), filepath.Join(w.root, "said")
				between := filepath.Join(w.root, "between")
				if err := os.WriteFile(between, []byte("#!/bin/sh\ntee "+heard+" | \"$@\" | tee "+said+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
				v := acpOpen(t, a, w, "allow_once", "--", between, path)
				v.say(map[string]any{"method": "_test/big", "params": map[string]any{"pad": strings.Repeat("x", 1<<20)}})
				if result := v.prompt("bash1"); result["stopReason"] != "end_turn" {
					t.Errorf("%v", result)
				}
				_ = v.close()
				for file, want := range map[string]*bytes.Buffer{heard: &v.sent, said: &v.written} {
					got, err := os.ReadFile(file)
					if err != nil || !bytes.Equal(got, want.Bytes()) {
						t.Errorf("%s: %v: %d bytes, %d at the editor, and they differ", file, err, len(got), want.Len())
					}
				}
				v.tells(append(answered, "tool.completed", "run.finished", "session.ended")...)
			})

			t.Run("afar", func(t *testing.T) {
				w := world(t)
				stop := w.collect()
				v := acpOpen(t, a, w, "", "--answer", "--", path)
				done := make(chan struct{})
				go func() {
					defer close(done)
					(&stage{world: w}).respondBy("reject", "cancel", "deny")
				}()
				result := v.prompt("bash1")
				<-done
				if result["stopReason"] == nil {
					t.Errorf("%v", result)
				}
				if !slices.Contains(v.notes, "$/cancel_request") {
					t.Errorf("the editor was not told: %s", strings.Join(v.notes, " "))
				}
				_ = v.close()
				stop()
				ended := "run.finished"
				if result["stopReason"] == "cancelled" { // to some, a refusal ends the turn
					ended = "run.cancelled"
				}
				want := append(answered, "tool.failed", ended, "session.ended")
				if a.mute {
					want = slices.DeleteFunc(want, func(typ string) bool { return typ == "tool.failed" })
				}
				v.tells(want...)
			})

			t.Run("cancel", func(t *testing.T) {
				w := world(t)
				stop := w.collect()
				v := acpOpen(t, a, w, "", "--answer", "--", path)
				done := make(chan struct{})
				go func() {
					defer close(done)
					cancelled(&stage{world: w})
				}()
				if result := v.prompt("slowtext"); result["stopReason"] != "cancelled" {
					t.Errorf("%v", result)
				}
				<-done
				_ = v.close()
				stop()
				v.tells("session.started", "run.started", "run.cancelled", "session.ended")
				checkBy("control")(&stage{world: w}, w.events())
			})

			// The agent and all that came of it is killed in the middle of a turn:
			// the editor sees what it would see without a tee.
			t.Run("killed", func(t *testing.T) {
				if runtime.GOOS != "linux" {
					t.Skip("the agent's processes are found by /proc")
				}
				w := world(t)
				v := acpOpen(t, a, w, "", "--", path)
				v.say(map[string]any{"id": 4, "method": "session/prompt", "params": map[string]any{"sessionId": v.session, "prompt": []any{map[string]any{"type": "text", "text": "go [[script:slowtext]]"}}}})
				w.told("run.started", 1)
				w.kill(v.cmd.Process.Pid)
				v.ends()
				if code := exitCode(t, v.cmd.Wait()); code != 137 {
					t.Errorf("exit code %d, want that of SIGKILL, 137", code)
				}
				w.nobodyLeft()
				v.tells("session.started", "run.started", "run.failed", "session.ended")
			})
		})
	}
}

// ends reads to the end of the agent's output.
func (v *acpVisit) ends() {
	v.t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case _, ok := <-v.heard:
			if !ok {
				return
			}
		case <-timeout:
			v.t.Fatal("the editor does not see the end of the agent's output")
		}
	}
}

// kill kills all of the world's processes but one: first the one that it has
// started, so that this one is seen to be killed, and then what came of it.
func (w *world) kill(but int) {
	w.t.Helper()
	var first, rest []int
	files, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || !strings.Contains(string(b), "HOME="+w.home()+"\x00") {
			continue
		}
		dir := filepath.Dir(f)
		pid, _ := strconv.Atoi(filepath.Base(dir))
		stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
		_, after, _ := strings.Cut(string(stat), ") ")
		switch fields := strings.Fields(after); {
		case pid == but:
		case len(fields) > 1 && fields[1] == strconv.Itoa(but):
			first = append(first, pid)
		default:
			rest = append(rest, pid)
		}
	}
	if len(first) == 0 {
		w.t.Fatal("the agent's process is not seen")
	}
	for _, pid := range append(first, rest...) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// respondBy answers the request that waits with the first option whose id
// holds one of the words.
func (s *stage) respondBy(words ...string) {
	s.eventually("a request that can be answered", func() bool {
		for line := range strings.Lines(s.run(wrapper(s.world.t), "pending", "--json").stdout) {
			var p struct {
				ID, Session string
				Answerable  bool
				Options     []struct{ ID string }
			}
			if json.Unmarshal([]byte(line), &p) != nil || !p.Answerable {
				continue
			}
			for _, o := range p.Options {
				if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(o.ID, w) }) {
					s.command("respond", p.Session, p.ID, "--option", o.ID)
					return true
				}
			}
		}
		return false
	})
}
