package agent

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/all"
	"aep-wrap/control"
	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
)

func newTestHookDir(t *testing.T, c HookDirConfig) (*HookDir, string) {
	t.Helper()
	logs := t.TempDir()
	c.Watch, c.Adapters = newAnsweringWatch(t, logs, time.Minute), all.List()
	if c.Dir == "" {
		c.Dir = filepath.Join(t.TempDir(), "hooks")
	}
	h, err := NewHookDir(c)
	if err != nil {
		t.Fatal(err)
	}
	return h, logs
}

// putHook writes a hook as an agent does, renamed into place.
func putHook(t *testing.T, dir, name, payload string) {
	t.Helper()
	tmp := filepath.Join(dir, "."+name)
	writeFile(t, tmp, payload)
	if err := os.Rename(tmp, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func names(t testing.TB, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != HookDirMark {
			out = append(out, e.Name())
		}
	}
	return out
}

func TestHooksOfADirectory(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "taken")
	h, logs := newTestHookDir(t, HookDirConfig{Archive: archive})
	dir := h.cfg.Dir
	// Names say nothing of the order; the time of writing does.
	tool := `"session_id":"s","prompt_id":"p","tool_name":"Bash","tool_use_id":"t1","tool_input":{"command":"x"}`
	for i, hook := range [][2]string{
		{"9.claude-code.UserPromptSubmit.json", `{"session_id":"s","prompt_id":"p","prompt":"go"}`},
		{"5.claude-code.json", `{"hook_event_name":"PreToolUse",` + tool + `}`},
		{"1.host.example.claude-code.PostToolUse.json", `{` + tool + `,"tool_response":{}}`},
	} {
		putHook(t, dir, hook[0], hook[1])
		at := time.Now().Add(time.Duration(i-10) * time.Second) // however coarse the file system's clock is
		if err := os.Chtimes(filepath.Join(dir, hook[0]), at, at); err != nil {
			t.Fatal(err)
		}
	}
	putHook(t, dir, "2.claude-code.Stop.json", `{"session_id":"s","prompt_id":"p"}`)
	putHook(t, dir, "3.claude-code.Stop.json", `{"session_id":`)
	putHook(t, dir, "4.nobody.Stop.json", `{}`)
	writeFile(t, filepath.Join(dir, ".claude-code.half.json"), `{"session_id":"s"}`)
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "6.claude-code.Stop.json")); err != nil {
		t.Fatal(err)
	}
	if err := h.Run(context.Background(), true); err != nil {
		t.Fatal(err)
	}
	h.cfg.Watch.CloseAll()
	got := sessionLogs(t, logs)
	if want := []string{"session.started", "run.started", "tool.requested", "tool.completed", "run.finished"}; !slices.Equal(types(got["claude-code/s"]), want) {
		t.Errorf("got %q, want %q", types(got["claude-code/s"]), want)
	}
	if n := len(got["aep-wrap/watch"]); n != 4 { // its start, and three refusals
		t.Errorf("the watch tells %q", types(got["aep-wrap/watch"]))
	}
	if left := names(t, dir); !slices.Equal(left, []string{".claude-code.half.json", "3.claude-code.Stop.json.refused", "4.nobody.Stop.json.refused", "6.claude-code.Stop.json.refused"}) {
		t.Errorf("left: %q", left)
	}
	if kept := names(t, archive); len(kept) != 4 {
		t.Errorf("archived: %q", kept)
	}
	// A crash before the removal has them taken again: nothing new.
	for _, name := range names(t, archive) {
		if err := os.Rename(filepath.Join(archive, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	h.cfg.Watch = newTestWatch(t, logs)
	if err := h.Run(context.Background(), true); err != nil {
		t.Fatal(err)
	}
	h.cfg.Watch.CloseAll()
	if again := sessionLogs(t, logs); len(again["claude-code/s"]) != 5 {
		t.Errorf("taken again: %q", types(again["claude-code/s"]))
	}
}

// newAnsweringWatch is a watch whose hooks are held for window.
func newAnsweringWatch(t testing.TB, logs string, window time.Duration) *Watch {
	return NewWatch(WatchConfig{Adapters: all.List(), Host: "h", LogDir: logs, Gate: testGate(event.Full), Say: func(line string) { t.Log(line) },
		Accepts:  func(*adapters.Adapter) []string { return []string{control.Respond} },
		Patience: Patience{Hold: window, Both: window, Gate: window}})
}

// hookScript runs the script of the agent's side; what it heard comes when it
// has ended.
func hookScript(t testing.TB, dir, name, wait, payload string, env ...string) (heard func() string, cmd *exec.Cmd) {
	t.Helper()
	cmd = exec.Command("sh", filepath.Join("..", "cmd", "aep-wrap", "hookdir.sh"), "claude-code", name)
	cmd.Env = append(append(os.Environ(), "AEP_HOOK_DIR="+dir, "AEP_HOOK_WAIT="+wait), env...)
	cmd.Stdin = strings.NewReader(payload)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() string {
		t.Helper()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the script: %v: %s", err, errs.String())
		}
		if errs.Len() > 0 {
			t.Errorf("the script says %s", errs.String())
		}
		return out.String()
	}, cmd
}

// hurry is a PATH for the script with a sleep that takes no time once it is late:
// all the time that the script waits is over then.
func hurry(t *testing.T) (path string, late func()) {
	t.Helper()
	dir := t.TempDir()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	is := filepath.Join(dir, "late")
	script := fmt.Sprintf("#!/bin/sh\ntest -e %s || exec %s \"$1\"\n", is, sleep)
	if err := os.WriteFile(filepath.Join(dir, "sleep"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return "PATH=" + dir + ":" + os.Getenv("PATH"), func() {
		if err := os.WriteFile(is, nil, 0o600); err != nil {
			t.Error(err)
		}
	}
}

// pendingRequest waits for a request that can be answered, and gives it.
func pendingRequest(t testing.TB, w *Watch) event.Event {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if lines := w.Pending("claude-code"); len(lines) > 0 {
			e, err := event.Parse(lines[0])
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
	}
	t.Fatal("nothing is held")
	return event.Event{}
}

// respond answers a request from afar.
func respond(t testing.TB, w *Watch, request event.Event, option string) control.Reply {
	t.Helper()
	c := control.NewFrom("h", "tester").Respond(time.Now(), request.Session, request.ID, control.Answer{Option: option}, nil, "")
	return w.Command(control.Origin{Authenticated: true}, request.Agent, c.AppendJSON(nil), c.Header)
}

// runHookDir takes hooks until the test stops it.
func runHookDir(t testing.TB, h *HookDir) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx, false) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		h.cfg.Watch.CloseAll()
	}
}

func waitEmpty(t testing.TB, dir string) {
	t.Helper()
	for deadline := time.Now().Add(patience); len(names(t, dir)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left: %q", names(t, dir))
		}
	}
}

// attention are the types of a session's attention events and acks, with what
// they say became of the request.
func attention(es []event.Event) (out []string) {
	for _, e := range es {
		c := event.Category(e.Type)
		if c != "attention" && c != "control" && e.Type != "x.aep-wrap.attention.resumed" {
			continue
		}
		data, _ := event.ParseObject(e.Data)
		word, _ := data["resolution"].(string)
		if answer, ok := data["answer"].(map[string]any); ok {
			word, _ = answer["option"].(string)
		}
		if reason, ok := data["reason"].(string); ok {
			word = reason
		}
		out = append(out, strings.TrimSpace(e.Type+" "+word))
	}
	return out
}

const heldTool = `{"session_id":"s","prompt_id":"p","tool_name":"Bash","tool_use_id":"t1","tool_input":{"command":"x"}}`

// The script that an agent's container has, against a directory that is
// watched: a hook waits, is answered from afar, and hears the answer.
func TestHookDirScript(t *testing.T) {
	h, logs := newTestHookDir(t, HookDirConfig{Poll: 10 * time.Millisecond})
	stop := runHookDir(t, h)
	hook := func(name, wait, payload string) string {
		t.Helper()
		heard, _ := hookScript(t, h.cfg.Dir, name, wait, payload)
		return heard()
	}
	if got := hook("PreToolUse", "20", heldTool); got != "" {
		t.Errorf("a hook that nobody answers heard %q", got)
	}
	heard, _ := hookScript(t, h.cfg.Dir, "PermissionRequest", "20", heldTool)
	request := pendingRequest(t, h.cfg.Watch)
	if r := respond(t, h.cfg.Watch, request, "no-such-option"); r.Ack != nil || r.Refusal != nil {
		t.Errorf("a wrong answer: %+v", r)
	}
	if r := respond(t, h.cfg.Watch, request, "allow"); r.Ack != nil || r.Refusal != nil {
		t.Errorf("an answer: %+v", r)
	}
	if got := heard(); !strings.Contains(got, `"behavior":"allow"`) {
		t.Errorf("allowed, the hook heard %q", got)
	}
	if r := respond(t, h.cfg.Watch, request, "deny"); r.Ack != nil || r.Refusal != nil {
		t.Errorf("a second answer: %+v", r)
	}
	done := strings.Replace(heldTool, `"tool_input"`, `"tool_response":{},"tool_input"`, 1)
	if got := hook("PostToolUse", "0", done); got != "" {
		t.Errorf("got %q", got)
	}
	second := strings.ReplaceAll(heldTool, "t1", "t2")
	hook("PreToolUse", "0", second)
	heard, _ = hookScript(t, h.cfg.Dir, "PermissionRequest", "20", second)
	respond(t, h.cfg.Watch, pendingRequest(t, h.cfg.Watch), "deny")
	if got := heard(); !strings.Contains(got, `"behavior":"deny"`) {
		t.Errorf("denied, the hook heard %q", got)
	}
	hook("Stop", "0", `{"session_id":"s","prompt_id":"p"}`)
	waitEmpty(t, h.cfg.Dir)
	stop()
	es := sessionLogs(t, logs)["claude-code/s"]
	want := []string{
		"attention.requested", "control.rejected invalid", "control.accepted", "attention.answered allow", "control.rejected refused",
		"attention.resolved answered", "attention.requested", "control.accepted", "attention.answered deny", "attention.resolved answered",
	}
	if got := attention(es); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, want := range []string{"run.started", "tool.requested", "tool.completed", "run.finished"} {
		if !slices.Contains(types(es), want) {
			t.Errorf("%s is not told: %q", want, types(es))
		}
	}
	// Without a directory the agent goes on.
	if got := withoutDir(t, filepath.Join(h.cfg.Dir, "gone")); got != "" {
		t.Errorf("without a directory: %q", got)
	}
}

func withoutDir(t *testing.T, dir string) string {
	cmd := exec.Command("sh", filepath.Join("..", "cmd", "aep-wrap", "hookdir.sh"), "claude-code", "Stop")
	cmd.Env = append(os.Environ(), "AEP_HOOK_DIR="+dir)
	cmd.Stdin = strings.NewReader("{}")
	out, err := cmd.Output()
	if err != nil {
		t.Error(err)
	}
	return string(out)
}

// However a hold ends without an answer, the agent goes on and the request has
// an end: its time is over, the agent has given up, the watch drains.
func TestHeldHooksFailOpen(t *testing.T) {
	for _, c := range []struct {
		name   string
		window time.Duration
		end    func(h *HookDir, script *exec.Cmd, late func())
		want   string
	}{
		{"its time", 300 * time.Millisecond, func(*HookDir, *exec.Cmd, func()) {}, "attention.timeout"},
		{"the agent gives up", time.Minute, func(_ *HookDir, _ *exec.Cmd, late func()) { late() }, "attention.resolved dismissed"},
		{"the agent is ended", time.Minute, func(_ *HookDir, script *exec.Cmd, _ func()) { _ = script.Process.Signal(syscall.SIGTERM) }, "attention.resolved dismissed"},
		{"draining", time.Minute, func(h *HookDir, _ *exec.Cmd, _ func()) { h.cfg.Watch.Drain() }, "attention.resolved dismissed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			h, logs := newTestHookDir(t, HookDirConfig{Poll: 10 * time.Millisecond})
			h.cfg.Watch = newAnsweringWatch(t, logs, c.window)
			stop := runHookDir(t, h)
			path, late := hurry(t)
			heard, script := hookScript(t, h.cfg.Dir, "PermissionRequest", "20", heldTool, path)
			request := event.Event{}
			if c.window > time.Second {
				request = pendingRequest(t, h.cfg.Watch)
			}
			c.end(h, script, late)
			if got := heard(); got != "" {
				t.Errorf("the hook heard %q", got)
			}
			waitEmpty(t, h.cfg.Dir)
			if request.ID != "" { // a late answer
				respond(t, h.cfg.Watch, request, "allow")
			}
			stop()
			want := []string{"attention.requested", c.want}
			if request.ID != "" {
				want = append(want, "control.rejected refused")
			}
			if got := attention(sessionLogs(t, logs)["claude-code/s"]); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// A watch that is killed while it holds a hook is followed by one that holds it
// on: under the same request, which is answered then. An answer that was told
// and not heard is heard.
func TestHeldHooksOutliveTheWatch(t *testing.T) {
	for _, answered := range []bool{false, true} {
		t.Run(fmt.Sprintf("answered=%v", answered), func(t *testing.T) {
			t.Parallel()
			dir, logs := filepath.Join(t.TempDir(), "hooks"), t.TempDir()
			open := func() *HookDir {
				h, err := NewHookDir(HookDirConfig{Dir: dir, Adapters: all.List(), Watch: newAnsweringWatch(t, logs, time.Minute), Poll: 10 * time.Millisecond})
				if err != nil {
					t.Fatal(err)
				}
				return h
			}
			first := open()
			heard, _ := hookScript(t, dir, "PermissionRequest", "20", heldTool)
			eventually(t, "a hook", func() bool {
				hooks, err := filepath.Glob(filepath.Join(dir, "*.held.json"))
				return err == nil && len(hooks) > 0
			})
			// What a killed watch leaves: its log, the hook, and no lock.
			if err := takeAndDie(first, answered); err != nil {
				t.Fatal(err)
			}
			second := open()
			stop := runHookDir(t, second)
			want := []string{"attention.requested"}
			if answered {
				want = append(want, "control.accepted", "attention.answered allow")
			} else {
				respond(t, second.cfg.Watch, pendingRequest(t, second.cfg.Watch), "allow")
				want = append(want, "x.aep-wrap.attention.resumed", "control.accepted", "attention.answered allow")
			}
			if got := heard(); !strings.Contains(got, `"behavior":"allow"`) {
				t.Errorf("the hook heard %q", got)
			}
			waitEmpty(t, dir)
			stop()
			if got := attention(sessionLogs(t, logs)["claude-code/s"]); !slices.Equal(got, want) {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
}

// An answer is for the request that it was given to: another one for the same
// command, asked of the next watch, waits for its own.
func TestAnAnswerIsForOneRequest(t *testing.T) {
	t.Parallel()
	dir, logs := filepath.Join(t.TempDir(), "hooks"), t.TempDir()
	ask := func(call string, end func(*Watch, event.Event)) (request event.Event, got string) {
		h, err := NewHookDir(HookDirConfig{Dir: dir, Adapters: all.List(), Watch: newAnsweringWatch(t, logs, time.Minute), Poll: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		stop := runHookDir(t, h)
		defer stop()
		payload := strings.ReplaceAll(heldTool, "t1", call)
		before, _ := hookScript(t, dir, "PreToolUse", "20", payload)
		before()
		heard, _ := hookScript(t, dir, "PermissionRequest", "20", payload)
		request = pendingRequest(t, h.cfg.Watch)
		end(h.cfg.Watch, request)
		got = heard()
		waitEmpty(t, dir)
		return request, got
	}
	first, got := ask("t1", func(w *Watch, request event.Event) { respond(t, w, request, "allow") })
	if !strings.Contains(got, `"behavior":"allow"`) {
		t.Errorf("the first heard %q", got)
	}
	second, got := ask("t2", func(w *Watch, _ event.Event) { w.Drain() })
	if got != "" || first.ID == second.ID {
		t.Errorf("the second, %s after %s, heard %q", second.ID, first.ID, got)
	}
	want := []string{"attention.requested", "control.accepted", "attention.answered allow", "attention.requested", "attention.resolved dismissed"}
	if got := attention(sessionLogs(t, logs)["claude-code/s"]); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A request whose hook is gone with the watch that held it comes to an end in
// its time.
func TestALostHookTimesOut(t *testing.T) {
	t.Parallel()
	dir, logs := filepath.Join(t.TempDir(), "hooks"), t.TempDir()
	open := func() *HookDir {
		h, err := NewHookDir(HookDirConfig{Dir: dir, Adapters: all.List(), Watch: newAnsweringWatch(t, logs, time.Second), Poll: 10 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	h := open()
	putHook(t, dir, "1.claude-code.PermissionRequest.held.json", heldTool)
	if err := takeAndDie(h, false); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "1.claude-code.PermissionRequest.held.json")); err != nil {
		t.Fatal(err)
	}
	stop := runHookDir(t, open())
	putHook(t, dir, "2.claude-code.Notification.json", `{"session_id":"s","message":"m"}`)
	want := []string{"attention.requested", "attention.timeout"}
	for deadline := time.Now().Add(patience); !slices.Equal(attention(sessionLogs(t, logs)["claude-code/s"]), want); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("got %q, want %q", attention(sessionLogs(t, logs)["claude-code/s"]), want)
			break
		}
	}
	stop()
}

// takeAndDie takes the hook that is there, has it answered, and drops the watch
// where it stands: nothing of it runs on.
func takeAndDie(h *HookDir, answer bool) error {
	entries, err := os.ReadDir(h.cfg.Dir)
	if err != nil {
		return err
	}
	w := h.cfg.Watch
	for _, e := range entries {
		a, name, held := h.parse(e.Name())
		if filepath.Ext(e.Name()) != ".json" || !held {
			continue
		}
		fi, err := e.Info()
		if err != nil {
			return err
		}
		raw, err := os.ReadFile(filepath.Join(h.cfg.Dir, e.Name()))
		if err != nil {
			return err
		}
		payload, err := event.ParseObject(raw)
		if err != nil {
			return err
		}
		m := adapters.Moment{Channel: adapters.Hook, Name: name, Payload: payload, Raw: raw, Time: fi.ModTime(), Held: true}
		if again, answer := w.Hook(a, m, strings.TrimSuffix(e.Name(), ".held.json")); again > 0 || !answer.Waits() {
			return fmt.Errorf("%s is not held", e.Name())
		}
	}
	if answer {
		e, err := event.Parse(w.Pending("claude-code")[0])
		if err != nil {
			return err
		}
		c := control.NewFrom("h", "tester").Respond(time.Now(), e.Session, e.ID, control.Answer{Option: "allow"}, nil, "")
		w.Command(control.Origin{Authenticated: true}, e.Agent, c.AppendJSON(nil), c.Header)
	}
	for _, d := range w.sessions {
		d.close()
	}
	return nil
}

// Many hooks at once keep their order.
func TestManyHooks(t *testing.T) {
	h, logs := newTestHookDir(t, HookDirConfig{})
	for i := range 200 {
		putHook(t, h.cfg.Dir, fmt.Sprintf("%03d.codex.PreToolUse.json", i),
			fmt.Sprintf(`{"session_id":"s","turn_id":"t","tool_name":"Bash","tool_use_id":"c%03d","tool_input":{}}`, i))
	}
	if err := h.Run(context.Background(), true); err != nil {
		t.Fatal(err)
	}
	h.cfg.Watch.CloseAll()
	var calls []string
	for _, e := range sessionLogs(t, logs)["codex/s"] {
		if e.Type == "tool.requested" {
			calls = append(calls, callOf(e))
		}
	}
	if len(calls) != 200 || !slices.IsSorted(calls) {
		t.Errorf("%d hooks, in order: %v", len(calls), slices.IsSorted(calls))
	}
}

// A hook that cannot be told yet is not overtaken by what came after it, of its
// session; those of others are.
func TestHooksKeepTheirOrder(t *testing.T) {
	h, logs := newTestHookDir(t, HookDirConfig{})
	dir := h.cfg.Dir
	owner, err := jsonl.Open(logs, "claude-code", "s")
	if err != nil {
		t.Fatal(err)
	}
	free := sync.OnceFunc(func() { owner.Close() })
	now := time.Now()
	h.cfg.Watch.cfg.Now = func() time.Time { now = now.Add(time.Second); return now } // its turn to ask again has always come
	for i := range h.cfg.Adapters {
		a := &h.cfg.Adapters[i]
		told := a.Map
		a.Map = func(m adapters.Moment) []event.Draft {
			if m.Name == "Stop" {
				free()
			}
			return told(m)
		}
	}
	for i, hook := range []string{"UserPromptSubmit", "Stop"} {
		putHook(t, dir, fmt.Sprintf("%d.claude-code.%s.json", i, hook), `{"session_id":"s","prompt_id":"p","prompt":"go"}`)
	}
	putHook(t, dir, "3.claude-code.UserPromptSubmit.json", `{"session_id":"other","prompt_id":"p","prompt":"go"}`)
	for i := range 2 {
		if err := h.Run(context.Background(), true); err != nil {
			t.Fatal(err)
		}
		if left := names(t, dir); i == 0 && len(left) != 2 {
			t.Errorf("left: %q", left)
		}
		free()
	}
	h.cfg.Watch.CloseAll()
	if got := types(sessionLogs(t, logs)["claude-code/s"]); !slices.Equal(got, []string{"session.started", "run.started", "run.finished"}) {
		t.Errorf("got %q", got)
	}
}
