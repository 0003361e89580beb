package agent

import (
	"os"
	"path/filepath"
	"testing"
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
