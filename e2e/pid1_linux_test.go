package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// asPID1 starts aep-wrap as the first process of a container: PID 1 of a PID
// namespace with a /proc of its own.
func asPID1(t *testing.T, home, script string) (cmd *exec.Cmd, out *bytes.Buffer) {
	t.Helper()
	bin := wrapper(t)
	out = &bytes.Buffer{}
	cmd = exec.Command("sh", "-c", `mount --make-rprivate / && mount -t proc proc /proc && exec "$@"`, "sh", bin, "--", "sh", "-c", script)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "AEP_LISTEN=off", "XDG_RUNTIME_DIR="}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Skipf("no PID namespace can be made here: %v", err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, out
}

func TestPID1(t *testing.T) {
	gate(t)
	for _, c := range []struct {
		name, script string
		signal       syscall.Signal // sent to PID 1 when the agent says ready
		code         int
		says         string
	}{
		{name: "the agent's exit code", script: "echo $PPID; exit 7", code: 7, says: "1"},
		{name: "an agent that a signal ends", script: "kill -KILL $$", code: 137},
		{name: "SIGTERM is handed on", script: "trap 'echo bye; exit 42' TERM; >ready; while :; do sleep 0.1; done", signal: syscall.SIGTERM, code: 42, says: "bye"},
		{name: "an agent that SIGTERM ends", script: ">ready; exec sleep 60", signal: syscall.SIGTERM, code: 143},
		// Ten orphans, each dead before anybody asks for it.
		{name: "orphans are reaped", script: `for i in 1 2 3 4 5 6 7 8 9 10; do sh -c 'sleep 0.1 & echo $!' ; done >pids
			for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
				left=; while read -r p; do [ -e "/proc/$p" ] && left="$left $p"; done <pids
				[ -z "$left" ] && echo none left && exit 0
				sleep 0.5
			done; echo "left: $left"; grep -h State $(for p in $left; do echo /proc/$p/status; done); exit 1`, code: 0, says: "none left"},
	} {
		t.Run(c.name, func(t *testing.T) {
			home := t.TempDir()
			cmd, out := asPID1(t, home, "cd \"$HOME\"; "+c.script)
			done := make(chan error, 1)
			if c.signal != 0 {
				waitFor(t, "the agent is ready", func() bool {
					_, err := os.Stat(filepath.Join(home, "ready"))
					return err == nil
				})
				if err := cmd.Process.Signal(c.signal); err != nil {
					t.Fatal(err)
				}
			}
			go func() { done <- cmd.Wait() }()
			select {
			case err := <-done:
				if strings.Contains(out.String(), "mount:") {
					t.Skipf("no /proc can be mounted here: %s", out)
				}
				if got := exitCode(t, err); got != c.code {
					t.Errorf("exit code %d, want %d: %s", got, c.code, out)
				}
			case <-time.After(patience):
				t.Fatalf("it does not end: %s", out)
			}
			if !strings.Contains(out.String(), c.says) {
				t.Errorf("it says %q, want %q", out, c.says)
			}
		})
	}
}
