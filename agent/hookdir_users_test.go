package agent

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Who writes hooks may be another user, and must not have us write elsewhere.
func TestAReplyFollowsNoLink(t *testing.T) {
	h, _ := newTestHookDir(t, HookDirConfig{})
	ours := filepath.Join(t.TempDir(), "ours")
	writeFile(t, ours, "kept")
	if err := os.Symlink(ours, filepath.Join(h.cfg.Dir, ".x.claude-code.held.reply.tmp")); err != nil {
		t.Fatal(err)
	}
	if err := h.reply("x.claude-code.held.json", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	reply := filepath.Join(h.cfg.Dir, "x.claude-code.held.reply")
	for path, want := range map[string]string{ours: "kept", reply: "{}"} {
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		}
	}
	if fi, err := os.Lstat(reply); err != nil || fi.Mode() != 0o644 {
		t.Errorf("the reply: %v, %v; want a file that others read", fi.Mode(), err)
	}
}

// A hook that waits goes on where nobody takes it, long before its time.
func TestWhoTakesHooksIsGone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	begun := time.Now()
	heard, _ := hookScript(t, dir, "PermissionRequest", "120", `{}`)
	if got := heard(); got != "" {
		t.Errorf("heard %q", got)
	}
	if d := time.Since(begun); d > time.Minute {
		t.Errorf("it waited %v", d)
	}
	if left := names(t, dir); len(left) != 1 || strings.Contains(left[0], ".held.") {
		t.Errorf("left: %q; want the hook, which no longer waits", left)
	}
}

// The beat tells that somebody is there.
func TestHooksHaveABeat(t *testing.T) {
	t.Parallel()
	h, _ := newTestHookDir(t, HookDirConfig{})
	ctx, end := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- h.Run(ctx, false) }()
	seen := map[string]bool{}
	for deadline := time.Now().Add(patience); len(seen) < 3 && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		b, err := os.ReadFile(filepath.Join(h.cfg.Dir, HookDirMark))
		if err != nil {
			t.Fatal(err)
		}
		seen[string(b)] = true
	}
	if len(seen) < 3 || seen[""] {
		t.Errorf("the mark says %v", seen)
	}
	end()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
