package agent

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/all"
)

func newTestHookDir(t *testing.T, c HookDirConfig) (*HookDir, string) {
	t.Helper()
	logs := t.TempDir()
	c.Watch, c.Adapters = newTestWatch(t, logs), all.List()
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

func names(t *testing.T, dir string) (out []string) {
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
	putHook(t, dir, "9.claude-code.UserPromptSubmit.json", `{"session_id":"s","prompt_id":"p","prompt":"go"}`)
	time.Sleep(10 * time.Millisecond)
	putHook(t, dir, "5.claude-code.json", `{"hook_event_name":"PreToolUse",`+tool+`}`)
	time.Sleep(10 * time.Millisecond)
	putHook(t, dir, "1.host.example.claude-code.PostToolUse.json", `{`+tool+`,"tool_response":{}}`)
	time.Sleep(10 * time.Millisecond)
	putHook(t, dir, "2.claude-code.Stop.json", `{"session_id":"s","prompt_id":"p"}`)
	putHook(t, dir, "3.claude-code.Stop.json", `{"session_id":`)
	putHook(t, dir, "4.nobody.Stop.json", `{}`)
	writeFile(t, filepath.Join(dir, ".claude-code.half.json"), `{"session_id":"s"}`)
	if err := h.Run(context.Background(), true); err != nil {
		t.Fatal(err)
	}
	h.cfg.Watch.CloseAll()
	got := sessionLogs(t, logs)
	if want := []string{"session.started", "run.started", "tool.requested", "tool.completed", "run.finished"}; !slices.Equal(types(got["claude-code/s"]), want) {
		t.Errorf("got %q, want %q", types(got["claude-code/s"]), want)
	}
	if n := len(got["aep-wrap/watch"]); n != 3 { // its start, and two refusals
		t.Errorf("the watch tells %q", types(got["aep-wrap/watch"]))
	}
	if left := names(t, dir); !slices.Equal(left, []string{".claude-code.half.json", "3.claude-code.Stop.json.refused", "4.nobody.Stop.json.refused"}) {
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

// The script that an agent's container has, against a directory that is
// watched: the hook waits, is answered, and hears the answer.
func TestHookDirScript(t *testing.T) {
	script := filepath.Join("..", "cmd", "aep-wrap", "hookdir.sh")
	answer := `{"hookSpecificOutput":{"hookEventName":"PermissionRequest","decision":{"behavior":"allow"}}}`
	h, logs := newTestHookDir(t, HookDirConfig{
		Poll: 10 * time.Millisecond,
		Held: func(m adapters.Moment) bool { return m.Name == "PermissionRequest" },
		Hold: func(ctx context.Context, m adapters.Moment) []byte {
			select {
			case <-time.After(200 * time.Millisecond):
				return []byte(answer)
			case <-ctx.Done():
				return nil
			}
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx, false) }()
	defer func() { cancel(); <-done }()
	hook := func(event, wait, payload string) string {
		t.Helper()
		cmd := exec.Command("sh", script, "claude-code", event)
		cmd.Env = append(os.Environ(), "AEP_HOOK_DIR="+h.cfg.Dir, "AEP_HOOK_WAIT="+wait)
		cmd.Stdin = strings.NewReader(payload)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		return string(out)
	}
	tool := `{"session_id":"s","prompt_id":"p","tool_name":"Bash","tool_use_id":"t1","tool_input":{"command":"x"}}`
	if got := hook("PreToolUse", "20", tool); got != "" {
		t.Errorf("a hook that nobody answers heard %q", got)
	}
	if got := hook("PermissionRequest", "20", tool); got != answer {
		t.Errorf("got %q", got)
	}
	if got := hook("Stop", "0", `{"session_id":"s","prompt_id":"p"}`); got != "" {
		t.Errorf("got %q", got)
	}
	for deadline := time.Now().Add(10 * time.Second); len(names(t, h.cfg.Dir)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left: %q", names(t, h.cfg.Dir))
		}
	}
	got := types(sessionLogs(t, logs)["claude-code/s"])
	for _, want := range []string{"run.started", "tool.requested", "attention.requested", "run.finished"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not told: %q", want, got)
		}
	}
	// Without a directory the agent goes on.
	cmd := exec.Command("sh", script, "claude-code", "Stop")
	cmd.Env = append(os.Environ(), "AEP_HOOK_DIR="+filepath.Join(h.cfg.Dir, "gone"))
	cmd.Stdin = strings.NewReader("{}")
	if out, err := cmd.Output(); err != nil || len(out) > 0 {
		t.Errorf("without a directory: %v, %q", err, out)
	}
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
