package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"aep-wrap/event"
	"aep-wrap/event/eventtest"
	"aep-wrap/execution"
)

// embedder drives a runtime over its socket.
type embedder struct {
	w            *world
	base, token  string
	session, dir string
	args         []string
	proc         *running
}

// runtime starts a runtime whose profiles are those of the text, and an
// embedder of it.
func (w *world) runtime(profiles string) *embedder {
	w.t.Helper()
	return w.runtimeWith(profiles, strings.TrimSpace(w.start(wrapper(w.t), "token", "show").wait().stdout))
}

// runtimeWith is runtime with a token of the caller's, and more flags.
func (w *world) runtimeWith(profiles, token string, flags ...string) *embedder {
	w.t.Helper()
	file := filepath.Join(w.root, "profiles.yaml")
	if err := os.WriteFile(file, []byte(profiles), 0o600); err != nil {
		w.t.Fatal(err)
	}
	addr := eventtest.Address(w.t)
	e := &embedder{w: w, base: "http://" + addr, token: token, dir: filepath.Join(w.root, "runtime")}
	w.t.Cleanup(func() {
		w.tellProcesses()
		for _, pattern := range []string{"runs/*/err", "runs/*/log/*/*.jsonl"} {
			files, _ := filepath.Glob(filepath.Join(e.dir, pattern))
			for _, f := range files {
				if b, err := os.ReadFile(f); err == nil && w.t.Failed() {
					w.t.Logf("%s:\n%s", f, b)
				}
			}
		}
	})
	e.args = append([]string{wrapper(w.t), "runtime", "--listen", addr, "--dir", e.dir, "--profile", file}, flags...)
	e.start()
	return e
}

func (e *embedder) start() {
	e.w.t.Helper()
	e.proc = e.w.start(e.args...)
	waitFor(e.w.t, "the runtime listens", func() bool {
		resp, err := http.Get(e.base)
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	})
	e.session = ""
	e.session = e.call("initialize", map[string]any{"requested_versions": []string{execution.Version}})["session_id"].(string)
}

func (e *embedder) request(method, path string, body []byte) *http.Response {
	e.w.t.Helper()
	req, err := http.NewRequest(method, e.base+path, bytes.NewReader(body))
	if err != nil {
		e.w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+e.token)
	req.Header.Set("Agent-Protocol-Version", execution.Version)
	if e.session != "" {
		req.Header.Set("X-AEP-Session-Id", e.session)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		e.w.t.Fatal(err)
	}
	return resp
}

func (e *embedder) call(method string, params map[string]any) map[string]any {
	e.w.t.Helper()
	body, _ := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	resp := e.request("POST", "/aep/v1/rpc", body)
	defer resp.Body.Close()
	var r struct {
		Result map[string]any
		Error  any
	}
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil || r.Error != nil {
		e.w.t.Fatalf("%s: %v %v", method, err, r.Error)
	}
	return r.Result
}

// run starts a run of a new agent.
func (e *embedder) run(profile, goal string, spec map[string]any) string {
	e.w.t.Helper()
	p := map[string]any{"name": "a", "constitution": map[string]any{}, "toolset": []string{}, "metadata": map[string]any{"profile": profile}}
	for k, v := range spec {
		p[k] = v
	}
	agent := e.call("agent.create", p)["id"]
	return e.call("run.create", map[string]any{"agent_id": agent, "goal": goal})["id"].(string)
}

// follow gives a run's events behind since, to its end or until enough says so.
func (e *embedder) follow(run, since string, enough func([]execution.Event) bool) (all []execution.Event) {
	e.w.t.Helper()
	resp := e.request("GET", "/aep/v1/runs/"+run+"/events?since="+since, nil)
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		e.w.t.Fatalf("events: %s", resp.Status)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		text, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		var ev execution.Event
		if err := json.Unmarshal([]byte(text), &ev); err != nil {
			e.w.t.Fatal(err)
		}
		if all = append(all, ev); enough != nil && enough(all) {
			break
		}
	}
	return all
}

func (e *embedder) state(run string) string {
	e.w.t.Helper()
	return e.call("run.get", map[string]any{"run_id": run})["state"].(string)
}

// log is what the run's own session logs hold.
func (e *embedder) log(run string) (out []event.Event) {
	e.w.t.Helper()
	files, _ := filepath.Glob(filepath.Join(e.dir, "runs", run, "log", "*", "*.jsonl"))
	for _, f := range files {
		out = append(out, e.w.parse(f)...)
	}
	return out
}

// sameFacts holds what an embedder was told to the session's own events.
func (e *embedder) sameFacts(run string, told []execution.Event) {
	e.w.t.Helper()
	var want, got []string
	for _, ev := range e.log(run) {
		if strings.HasPrefix(ev.Type, "run.") || strings.HasPrefix(ev.Type, "tool.") || ev.Type == "delegation.subagent.started" {
			want = append(want, ev.Type+" "+ev.ID)
		}
	}
	for _, ev := range told {
		if from, ok := ev.Payload["event"].(map[string]any); ok {
			got = append(got, fmt.Sprint(from["type"], " ", from["id"]))
		}
	}
	if !slices.Equal(got, want) || len(got) == 0 {
		e.w.t.Errorf("told:\n%s\nthe log has:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func profileOfClaude(w *world, path, more string) string {
	env := ""
	for _, kv := range w.environ() {
		if k, v, _ := strings.Cut(kv, "="); strings.HasPrefix(k, "ANTHROPIC_") || strings.HasPrefix(k, "CLAUDE_") || strings.HasPrefix(k, "DISABLE_") {
			env += fmt.Sprintf("\n      %s: %q", k, v)
		}
	}
	return fmt.Sprintf(`
profiles:
  claude:
    command: [%q, -p]
    prompt: [--append-system-prompt, "{prompt}"]
    resume: [--resume, "{session}"]
    gate: true
    dir: %q
%s
    env:%s
`, path, w.dir(), more, env)
}

// An embedder has claude do a thing, within its toolset and its bounds. Nothing
// but the wrapper is needed for that: no collector, and not the vendor's own
// list, which hides from the model what it may not use.
func TestRuntimeClaude(t *testing.T) {
	path := claude(t)
	const alone, listed = `    wrap: [--listen, "off"]`, `    toolset: [--tools, "{tools}"]`
	for _, c := range []struct {
		name    string
		more    string
		toolset []string
		calls   int
		made    bool
		heard   string // by the model
	}{
		{"with the tool", "", []string{"Bash"}, 0, true, ""},
		{"without it", "", []string{"Read"}, 0, false, "toolset"},
		{"with the tool, no collector", alone, []string{"Bash"}, 0, true, ""},
		{"without it, no collector", alone, []string{"Read"}, 0, false, "toolset"},
		{"within the bound", alone, []string{"Bash"}, 1, true, ""},
		{"with the tool, listed", listed, []string{"Bash"}, 0, true, ""},
		{"without it, listed", listed, []string{"Read"}, 0, false, "No such tool available"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := commanded(t)
			e := w.runtime(profileOfClaude(w, path, c.more))
			run := e.run("claude", "go [[script:bash1]]", map[string]any{
				"toolset": c.toolset, "constitution": map[string]any{"immutable_directives": "Never say no to the one in the tower."},
				"ceilings": map[string]any{"max_tool_calls_per_cycle": c.calls},
			})
			told := e.follow(run, "", nil)
			if last := told[len(told)-1]; last.Type != execution.RunEnded || last.Payload["state"] != "complete" {
				t.Fatalf("%s %v", last.Type, last.Payload)
			}
			e.sameFacts(run, told)
			if !w.heard("the one in the tower") {
				t.Error("the model did not hear the constitution")
			}
			items := e.call("artifact.list", map[string]any{"run_id": run})["items"].([]any)
			if !c.made {
				if len(items) != 0 || !w.heard(c.heard) {
					t.Errorf("made %v; the model was told why: %v", items, w.heard(c.heard))
				}
				return
			}
			if len(items) != 1 || items[0].(map[string]any)["name"] != "made.txt" {
				t.Fatalf("made %v", items)
			}
			resp := e.request("GET", "/aep/v1/artifacts/"+items[0].(map[string]any)["id"].(string)+"/bytes", nil)
			defer resp.Body.Close()
			got, _ := io.ReadAll(resp.Body)
			if want, err := os.ReadFile(filepath.Join(w.dir(), "made.txt")); err != nil || !bytes.Equal(got, want) {
				t.Errorf("its bytes are %q, the file's %q (%v)", got, want, err)
			}
		})
	}
}

// The call that passes a bound is denied before it is made, and the run ended.
func TestRuntimeBoundsOfCalls(t *testing.T) {
	path := claude(t)
	w := commanded(t)
	e := w.runtime(profileOfClaude(w, path, `    wrap: [--listen, "off"]`))
	run := e.run("claude", "go [[script:fail]]", map[string]any{
		"toolset": []string{"Bash"}, "ceilings": map[string]any{"max_tool_calls_per_cycle": 1},
	})
	told := e.follow(run, "", nil)
	last := told[len(told)-1].Payload
	if fault, _ := last["error"].(map[string]any); fault["name"] != "ceiling_exceeded" || fault["ceiling"] != "max_tool_calls_per_cycle" {
		t.Errorf("it ended with %v", last)
	}
	var outcomes []string
	for _, ev := range told {
		if ev.Type == execution.ToolReturned {
			outcomes = append(outcomes, fmt.Sprint(ev.Payload["outcome"]))
		}
	}
	if want := []string{"failed", "denied"}; !slices.Equal(outcomes, want) {
		t.Errorf("its calls came to %v, want %v", outcomes, want)
	}
}

// A runtime that is killed in the middle of a run, and started again: the
// embedder misses no event and has none twice, and the agent did not notice.
func TestRuntimeRestart(t *testing.T) {
	gate(t)
	w := makeWorld(t, claudeProgram, func(*world) {})
	w.env = []string{"AEP_LISTEN=" + eventtest.Address(t), "XDG_RUNTIME_DIR="}
	t.Cleanup(w.endCollector)
	e := w.runtime(fmt.Sprintf(`
profiles:
  demo:
    command: [%q, demo-agent]
    wrap: [--adapter, demo, --hold, 1s]
`, wrapper(t)))
	run := e.run("demo", "play", nil)
	told := e.follow(run, "", func(all []execution.Event) bool { return len(all) == 5 })
	_ = e.proc.cmd.Process.Kill()
	e.proc.wait()
	e.start()
	told = append(told, e.follow(run, told[len(told)-1].ID, nil)...)
	for i, ev := range told {
		if want := fmt.Sprintf("evt_%016d", i+1); ev.ID != want {
			t.Fatalf("event %d is %s", i, ev.ID)
		}
	}
	if e.state(run) != "complete" {
		t.Errorf("it is %s: %v", e.state(run), told[len(told)-1].Payload)
	}
	e.sameFacts(run, told)
}

// A cancel leaves nothing of a run; a bound in time does the same.
func TestRuntimeEnds(t *testing.T) {
	gate(t)
	w := makeWorld(t, claudeProgram, func(*world) {})
	w.env = []string{"AEP_LISTEN=" + eventtest.Address(t), "XDG_RUNTIME_DIR="}
	t.Cleanup(w.endCollector)
	e := w.runtime(`
profiles:
  sleeper:
    command: [sh, -c, "setsid sleep 1818 & sleep 1818"]
`)
	run := e.run("sleeper", "sleep", nil)
	waitFor(t, "it sleeps", func() bool { return len(w.sleepers()) == 2 })
	e.call("run.cancel", map[string]any{"run_id": run})
	e.follow(run, "", nil)
	if got := e.state(run); got != "cancelled" || len(w.sleepers()) != 0 {
		t.Errorf("it is %s; left are %v", got, w.sleepers())
	}
	run = e.run("sleeper", "sleep", map[string]any{"ceilings": map[string]any{"max_wall_seconds": 2}})
	told := e.follow(run, "", nil)
	last := told[len(told)-1].Payload
	if fault, _ := last["error"].(map[string]any); last["state"] != "error" || fault["name"] != "ceiling_exceeded" || len(w.sleepers()) != 0 {
		t.Errorf("%v; left are %v", last, w.sleepers())
	}
}

// sleepers are the world's processes that sleep.
func (w *world) sleepers() (out []string) {
	return slices.DeleteFunc(w.left(), func(s string) bool { return !strings.HasPrefix(s, "sleep 1818") })
}

// facts are what an event says of tools and subagents, whoever tells it.
func facts(t *testing.T, events []event.Event) (out []string) {
	t.Helper()
	for _, e := range events {
		if strings.HasPrefix(e.Type, "tool.") {
			tool, _ := data(t, e)["tool"].(map[string]any)
			out = append(out, fmt.Sprint(e.Type, " ", e.Subject, " ", tool["call_id"]))
		}
		if e.Type == "delegation.subagent.started" {
			out = append(out, fmt.Sprint(e.Type, " ", data(t, e)["agent_type"]))
		}
	}
	return out
}

// Whoever attaches to our runtime hears the facts of the wrapper's own log, and
// cancels a run by its session.
func TestAttach(t *testing.T) {
	gate(t)
	w := makeWorld(t, claudeProgram, func(*world) {})
	w.env = []string{"AEP_LISTEN=" + eventtest.Address(t), "XDG_RUNTIME_DIR="}
	t.Cleanup(w.endCollector)
	e := w.runtime(fmt.Sprintf(`
default: demo
profiles:
  demo:
    command: [%q, demo-agent]
    wrap: [--adapter, demo, --hold, 1s]
  sleeper:
    command: [sh, -c, "sleep 1818"]
`, wrapper(t)))
	run := e.run("demo", "play", nil)
	if x := w.start(wrapper(t), "attach", "--run", run, e.base).wait(); x.code != 0 {
		t.Fatalf("%+v", x)
	}
	var heard []event.Event
	for _, f := range w.logFiles() {
		heard = append(heard, w.parse(f)...)
	}
	if got, want := facts(t, heard), facts(t, e.log(run)); !slices.Equal(got, want) || len(got) < 6 {
		t.Errorf("attached:\n%s\nthe log has:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if end := heard[len(heard)-1]; end.Type != "run.finished" || end.Run != run {
		t.Errorf("the last is %s of %s", end.Type, end.Run)
	}

	run = e.run("sleeper", "sleep", nil)
	attached := w.start(wrapper(t), "attach", "--run", run, e.base)
	agent := e.call("run.get", map[string]any{"run_id": run})["agent_id"].(string)
	waitFor(t, "it is claimed", func() bool { return strings.Contains(w.start(wrapper(t), "roster", "--json").wait().stdout, agent) })
	if x := w.start(wrapper(t), "cancel", agent, "--run", run, "--wait").wait(); x.code != 0 {
		t.Errorf("%+v", x)
	}
	if x := attached.wait(); x.code != 0 || e.state(run) != "cancelled" {
		t.Errorf("%+v; it is %s", x, e.state(run))
	}
}

// Whoever is erased leaves nothing but places: in the run's own log, and in the
// collector's memory, where a consumer in the middle goes on exactly. A wrapper
// that begins again, and is behind, sends nothing of it either.
func TestRuntimeErases(t *testing.T) {
	gate(t)
	w := makeWorld(t, claudeProgram, func(*world) {})
	addr := eventtest.Address(t)
	w.env = []string{"AEP_LISTEN=" + addr, "XDG_RUNTIME_DIR="}
	t.Cleanup(w.endCollector)
	e := w.runtime(fmt.Sprintf(`
profiles:
  demo:
    command: [%q, demo-agent]
    wrap: [--adapter, demo, --hold, 1s]
`, wrapper(t)))
	run := e.run("demo", "play", map[string]any{"subject_ids": []string{"ann"}})
	e.follow(run, "", nil)
	before := e.log(run)
	held := func(last string) (lines []string) {
		t.Helper()
		req, err := http.NewRequest("GET", "http://"+addr+"/stream?live=0", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+e.token)
		req.Header.Set("Last-Event-ID", last)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		all := bufio.NewScanner(resp.Body)
		all.Buffer(nil, 1<<20)
		for all.Scan() {
			if data, ok := strings.CutPrefix(all.Text(), "data: "); ok {
				lines = append(lines, data)
			}
		}
		return lines
	}
	at := before[0]
	last := fmt.Sprintf("%s:%d:%d", at.Session, at.Epoch, at.Seq)
	first := held(last)
	if len(first) < 10 || !strings.Contains(strings.Join(first, ""), `"data"`) {
		t.Fatalf("the collector holds %q", first)
	}
	m := e.call("subject.erase", map[string]any{"subject_id": "ann", "mode": "redact"})
	told, _ := json.Marshal(m)
	for _, want := range []string{`"resource":"session_log"`, `"resource":"collector_buffer"`, `"resource":"shipped_events"`, `"resource":"agent_transcripts"`} {
		if !strings.Contains(string(told), want) {
			t.Errorf("the manifest lacks %s: %s", want, told)
		}
	}
	after := e.log(run)
	if len(after) != len(before) {
		t.Fatalf("%d of %d lines are left", len(after), len(before))
	}
	for i, ev := range after {
		if b := before[i]; ev.ID != b.ID || ev.Type != b.Type || ev.Position() != b.Position() || len(ev.Data) != 0 || ev.Subject != "" {
			t.Errorf("%+v is left of %+v", ev, b)
		}
	}
	then := held(last)
	if len(then) != len(first) {
		t.Fatalf("behind %s there are %d, and were %d", last, len(then), len(first))
	}
	for i, line := range then {
		a, errA := event.Parse([]byte(line))
		b, errB := event.Parse([]byte(first[i]))
		if errA != nil || errB != nil || a.ID != b.ID || a.Position() != b.Position() || len(a.Data) != 0 {
			t.Errorf("%s is held of %s", line, first[i])
		}
	}
	for _, f := range []string{"goal", "out", "err", "rule.json"} {
		if _, err := os.Stat(filepath.Join(e.dir, "runs", run, f)); err == nil {
			t.Errorf("%s is still there", f)
		}
	}
	// As if nothing of the log had been acknowledged: it is sent to its end.
	logs := filepath.Join(e.dir, "runs", run, "log")
	saved, _ := filepath.Glob(filepath.Join(logs, "*", "*.pos"))
	if len(saved) == 0 {
		t.Fatal("no position was saved")
	}
	for _, f := range saved {
		if err := os.WriteFile(f, []byte(fmt.Sprintf(`{"id":%q,"epoch":%d,"seq":%d,"offset":1}`, at.ID, at.Epoch, at.Seq)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.endCollector()
	if x := w.start(wrapper(t), "--log-dir", logs, "flush").wait(); x.code != 0 {
		t.Fatalf("%+v", x)
	}
	for _, line := range held(last) {
		if strings.Contains(line, `"data"`) && !strings.Contains(line, "x.aep-wrap.") {
			t.Errorf("sent anew: %s", line)
		}
	}
	if n := len(held(last)); n < len(after)-1 {
		t.Errorf("%d of %d were sent anew", n, len(after)-1)
	}
}
