package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"aep-wrap/agent/hookclient"
	"aep-wrap/event/eventtest"
)

// largeMemory is what serve may take, in bytes, whatever hooks bring.
const largeMemory = 80 << 20

// Hooks that bring much, many at once and by each way, are answered with no
// decision, and do not take the memory that a sidecar has.
func TestServeLargeHooks(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	if raceDetector {
		t.Skip("slow under the race detector, which sees nothing of another process: ./test runs it without")
	}
	home := t.TempDir()
	bin := buildWrap(t, home)
	port, socket, dir := eventtest.Address(t), filepath.Join(home, "h.sock"), filepath.Join(home, "hooks")
	cmd := exec.Command(bin, "serve", "--quiet", "--hook-listen", port, "--hook-socket", socket, "--hooks", dir, "--health-listen", "off", "--listen", "off", "--capture", "full")
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer kill(cmd)
	secret := waitSecret(t, filepath.Join(home, ".aep", "hook-secret"), port)

	var n atomic.Int64
	head := func() string {
		return fmt.Sprintf(`{"session_id":"large","hook_event_name":"PreToolUse","cwd":"/work","tool_name":"Write","tool_use_id":"call-%d","tool_input":{"content":`, n.Add(1))
	}
	mib := func(n int) io.Reader { return io.LimitReader(endless('x'), int64(n)<<20) }
	shapes := map[string]func() io.Reader{
		"one string of 30 MiB": func() io.Reader {
			return io.MultiReader(strings.NewReader(head()+`"`), mib(30), strings.NewReader(`"}}`))
		},
		"a string of 200 MiB": func() io.Reader {
			return io.MultiReader(strings.NewReader(head()+`"`), mib(200), strings.NewReader(`"}}`))
		},
		"many small members": func() io.Reader {
			return strings.NewReader(head() + `[` + strings.Repeat("1,", 60<<10) + `1]}}`)
		},
		"too many members": func() io.Reader {
			return strings.NewReader(head() + `[` + strings.Repeat("1,", 9<<20) + `1]}}`)
		},
		"many strings": func() io.Reader {
			return strings.NewReader(head() + `[` + strings.Repeat(`"`+strings.Repeat("x", 1000)+`",`, 2000) + `1]}}`)
		},
		"just whole": func() io.Reader {
			return io.MultiReader(strings.NewReader(head()+`"`), io.LimitReader(endless('x'), 1<<20-300), strings.NewReader(`"}}`))
		},
	}
	post := func(body io.Reader) error {
		resp, err := http.Post("http://"+port+"/hook/"+secret+"/claude-code", "application/json", body)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err == nil && (resp.StatusCode != 200 || len(answer) > 0) {
			err = fmt.Errorf("%s %q", resp.Status, answer)
		}
		return err
	}
	ask := func(body io.Reader) error {
		answer, err := hookclient.Ask(socket, []string{"claude-code"}, body)
		if err == nil && len(answer) > 0 {
			err = fmt.Errorf("%q", answer)
		}
		return err
	}
	for name, shape := range shapes {
		begun := time.Now()
		var agents sync.WaitGroup
		for i := range 12 {
			agents.Go(func() {
				send := []func(io.Reader) error{post, ask}[i%2]
				if err := send(shape()); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			})
		}
		raw, err := io.ReadAll(io.LimitReader(shape(), 40<<20))
		if err != nil {
			t.Fatal(err)
		}
		tmp := filepath.Join(dir, ".tmp")
		if err := os.WriteFile(tmp, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, filepath.Join(dir, fmt.Sprintf("%d.claude-code.PreToolUse.json", n.Load()))); err != nil {
			t.Fatal(err)
		}
		agents.Wait()
		for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			if left, _ := filepath.Glob(filepath.Join(dir, "*.json")); len(left) == 0 {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s: the hook in the directory is not taken", name)
			}
		}
		t.Logf("%s: %s, peak so far %d KiB", name, time.Since(begun).Round(time.Millisecond), status(cmd.Process.Pid, "VmHWM")>>10)
	}
	raw, err := os.ReadFile(filepath.Join(home, ".aep", "logs", "claude-code", "large.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	// On a busy machine one may not get its turn; that is told.
	own, err := os.ReadFile(filepath.Join(home, ".aep", "logs", "aep-wrap", "watch.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	got, busy, large := bytes.Count(raw, []byte(`"type":"tool.requested"`)), bytes.Count(own, []byte(`"reason":"busy"`)), bytes.Count(own, []byte(`"reason":"too_large"`))
	if got+busy+large != 6*13 || got < 3*13 || got > 4*13 {
		t.Errorf("%d calls are told, of %d that they had no turn, of %d that they are too large: want 52 and 26", got, busy, large)
	}
	if !bytes.Contains(raw, []byte(" bytes not read]")) {
		t.Error("no string is told by its length")
	}

	// Many at once that are small, but for what is in them.
	var agents sync.WaitGroup
	for i := range 150 {
		agents.Go(func() {
			send := []func(io.Reader) error{post, ask}[i%2]
			values := []string{"{},", `{"a":[]},`}[i/2%2]
			if err := send(strings.NewReader(head() + `[` + strings.Repeat(values, 60<<10/len(values)) + `1]}}`)); err != nil {
				t.Errorf("a small one with many values: %v", err)
			}
		})
	}
	agents.Wait()
	peak := status(cmd.Process.Pid, "VmHWM")
	t.Logf("150 small ones: peak %d KiB", peak>>10)
	if peak > largeMemory {
		t.Errorf("serve took %d KiB", peak>>10)
	}
}

// endless is a reader of one byte again and again.
type endless byte

func (e endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(e)
	}
	return len(b), nil
}
