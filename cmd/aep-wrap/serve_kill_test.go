package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"aep-wrap/agent/hookclient"
	"aep-wrap/event/eventtest"
)

// serveKills is how often serve is killed; AEP_SERVE_KILLS says another number.
func serveKills() int {
	if n, err := strconv.Atoi(os.Getenv("AEP_SERVE_KILLS")); err == nil {
		return n
	}
	return 6
}

// A serve that is killed again and again while hooks come loses none that it
// has answered: each is in its session's log, once.
func TestServeIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	const sessions = 6
	home := t.TempDir()
	bin := buildWrap(t, home)
	// A collector that is slow, so that each kill leaves something to be sent.
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Duration(rand.IntN(80)) * time.Millisecond)
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusAccepted)
	}))
	defer srv.Close()
	port, socket := eventtest.Address(t), filepath.Join(home, "h.sock")
	start := func() *exec.Cmd {
		cmd := exec.Command(bin, "serve", "--quiet", "--hook-listen", port, "--hook-socket", socket, "--health-listen", "off", "--collector", srv.URL)
		cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { kill(cmd) })
		return cmd
	}
	cmd := start()
	secret := waitSecret(t, filepath.Join(home, ".aep", "hook-secret"), port)

	var answered sync.Map // the call of each hook that was
	var n, heard atomic.Int64
	stop := make(chan struct{})
	var agents sync.WaitGroup
	for i := range sessions {
		agents.Go(func() {
			client := &http.Client{Timeout: 10 * time.Second}
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(rand.IntN(4)) * time.Millisecond):
				}
				id := n.Add(1)
				record := fmt.Sprintf(`{"session_id":"kill-%d","hook_event_name":"PreToolUse","cwd":"/work","tool_name":"Bash","tool_use_id":"call-%d-end","tool_input":{"command":"make"}}`, i, id)
				if i%2 == 0 {
					resp, err := client.Post("http://"+port+"/hook/"+secret+"/claude-code", "application/json", strings.NewReader(record))
					if err != nil {
						continue
					}
					_, err = io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
					if err == nil && resp.StatusCode == http.StatusOK {
						answered.Store(id, true)
						heard.Add(1)
					}
				} else if _, err := hookclient.Ask(socket, []string{"claude-code"}, strings.NewReader(record)); err == nil {
					answered.Store(id, true)
					heard.Add(1)
				}
			}
		})
	}
	some := func() { // each start answers some, however slow the machine is
		t.Helper()
		for want, end := heard.Load()+20, time.Now().Add(patience); heard.Load() < want; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("hooks are not answered")
			}
		}
	}
	for range serveKills() {
		some()
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		cmd = start()
	}
	some()
	close(stop)
	agents.Wait()

	told := map[string]int{}
	for i := range sessions {
		raw, err := os.ReadFile(filepath.Join(home, ".aep", "logs", "claude-code", fmt.Sprintf("kill-%d.jsonl", i)))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if _, rest, ok := strings.Cut(line, `"call-`); ok && strings.Contains(line, `"type":"tool.requested"`) {
				call, _, _ := strings.Cut(rest, "-end")
				told[call]++
			}
		}
	}
	count := 0
	answered.Range(func(id, _ any) bool {
		count++
		if c := told[fmt.Sprint(id)]; c != 1 {
			t.Errorf("the hook of call %d was answered, and is told %d times", id, c)
		}
		return true
	})
	t.Logf("%d kills: %d hooks of %d were answered", serveKills(), count, n.Load())
}

// buildWrap builds the binary.
func buildWrap(t *testing.T, dir string) string {
	t.Helper()
	bin := filepath.Join(dir, "aep-wrap")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}
