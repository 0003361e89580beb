package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"aep-wrap/event/eventtest"
	"aep-wrap/queue"
)

// Told to end, serve tries on until its time is over, unless the collector
// refuses for good, and says then what the collector said. Until it is gone it
// lives, and is not ready.
func TestServeDrains(t *testing.T) {
	bin := buildWrap(t, t.TempDir())
	for name, tt := range map[string]struct {
		drain    time.Duration
		first    int           // what the collector answers
		mended   time.Duration // and after that time it takes all; 0 is never
		from, to time.Duration // when it is over
		says     string        // "" is nothing
		class    string        // of the failure, in the metrics
	}{
		"it refuses for now":  {drain: 2 * time.Second, first: 503, from: 2 * time.Second, to: 9 * time.Second, says: "503", class: queue.Broken}, // 10 s are the default
		"it is mended":        {drain: 20 * time.Second, first: 503, mended: 2500 * time.Millisecond, from: 2 * time.Second, to: 15 * time.Second, class: queue.Broken},
		"it refuses for good": {drain: 20 * time.Second, first: 403, to: 15 * time.Second, says: "403", class: queue.NoLeave},
		"nobody is there":     {drain: 2 * time.Second, from: 2 * time.Second, to: 9 * time.Second, says: "connect", class: queue.Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var code atomic.Int64
			code.Store(int64(tt.first))
			var events atomic.Int64
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				switch c := int(code.Load()); {
				case r.Method != http.MethodPost:
					http.NotFound(w, r)
				case c == http.StatusAccepted:
					events.Add(1)
					w.WriteHeader(c)
				default:
					http.Error(w, "no", c)
				}
			}))
			defer srv.Close()
			if tt.first == 0 {
				srv.Close()
			}
			home := t.TempDir()
			port, healthAt := eventtest.Address(t), eventtest.Address(t)
			cmd := exec.Command(bin, "serve", "--hook-listen", port, "--health-listen", healthAt, "--collector", srv.URL, "--drain", tt.drain.String())
			cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			defer func() {
				_ = cmd.Process.Kill()
				<-ended
			}()
			go func() { ended <- cmd.Wait(); close(ended) }()
			secret := waitSecret(t, filepath.Join(home, ".aep", "hook-secret"), port)
			resp, err := http.Post("http://"+port+"/hook/"+secret+"/claude-code", "application/json",
				strings.NewReader(`{"session_id":"s","hook_event_name":"PreToolUse","tool_name":"Bash","tool_use_id":"c","tool_input":{"command":"make"}}`))
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			awaitMetric(t, healthAt, fmt.Sprintf(`aep_wrap_sink_last_failure{agent="",class=%q,sink="post"} 1`, tt.class))

			begun := time.Now()
			if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			if tt.mended > 0 {
				time.AfterFunc(tt.mended, func() { code.Store(http.StatusAccepted) })
			}
			draining, last := false, begun // it may not have heard of it at once
			for over := false; !over; {
				select {
				case err := <-ended:
					if err != nil {
						t.Errorf("it ended by %v", err)
					}
					over = true
				case <-time.After(50 * time.Millisecond):
					if alive, ready := probeHealth(healthAt); alive == 200 {
						last = time.Now()
						if draining && ready != "503 draining" {
							t.Errorf("readyz: %s", ready)
						}
						draining = draining || ready == "503 draining"
					}
				}
			}
			took := time.Since(begun)
			if took < tt.from || took > tt.to {
				t.Errorf("it took %s, want %s to %s", took, tt.from, tt.to)
			}
			if quiet := time.Since(last); tt.from > 0 && (!draining || quiet > took/2) {
				t.Errorf("it was seen to drain: %v; healthz answered the last time %s before the end", draining, quiet)
			}
			says := stderr.String()
			t.Logf("%s: %s", took.Round(time.Millisecond), says)
			switch {
			case tt.says == "" && (strings.Contains(says, "not all was sent") || events.Load() == 0):
				t.Errorf("%d requests were taken; it says %s", events.Load(), says)
			case tt.says != "" && (!strings.Contains(says, "not all was sent, the rest waits in the session logs: ") || !strings.Contains(says, tt.says)):
				t.Errorf("it says %s", says)
			case strings.Contains(says, "context "):
				t.Errorf("it says %s", says)
			}
		})
	}
}

// awaitMetric waits until /metrics is there and has a line.
func awaitMetric(t *testing.T, addr, line string) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		text := ""
		resp, err := http.Get("http://" + addr + "/metrics")
		if err == nil {
			var b []byte
			b, err = io.ReadAll(resp.Body)
			resp.Body.Close()
			text = string(b)
		}
		if strings.Contains(text, "\n"+line+"\n") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("/metrics has no %s: %v", line, err)
		}
	}
}

// probeHealth asks whether serve lives, and whether it is ready.
func probeHealth(addr string) (alive int, ready string) {
	client := &http.Client{Timeout: time.Second}
	resp, err := client.Get("http://" + addr + "/healthz")
	if err != nil {
		return 0, ""
	}
	resp.Body.Close()
	alive = resp.StatusCode
	if resp, err = client.Get("http://" + addr + "/readyz"); err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	var r readiness
	_ = json.NewDecoder(resp.Body).Decode(&r)
	return alive, strings.Fields(resp.Status)[0] + " " + r.Status
}
