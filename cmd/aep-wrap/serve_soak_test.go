package main

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"aep-wrap/agent/hookclient"
	"aep-wrap/event/eventtest"
)

// serveMemory is what serve may take, in bytes.
const serveMemory = 64 << 20

// TestServeSoak has serve hear 50 sessions that tell 20 events a second each: a
// third of them by the port, a third by the socket, the rest by logs. Nothing may
// be lost, and memory must stay where it is. AEP_SOAK says for how long.
func TestServeSoak(t *testing.T) {
	length := 15 * time.Second
	if v := os.Getenv("AEP_SOAK"); v != "" {
		d, err := time.ParseDuration(v)
		if err != nil {
			t.Fatal(err)
		}
		length = d
	} else if testing.Short() {
		t.Skip("short")
	}
	const sessions, pause = 50, 100 * time.Millisecond // two events each
	home := t.TempDir()
	bin := filepath.Join(home, "aep-wrap")
	if out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	got := &taker{ids: map[string]int{}, calls: map[string]int{}}
	srv := httptest.NewServer(got)
	defer srv.Close()

	port := eventtest.Address(t)
	socket := filepath.Join(home, "h.sock")
	logs := filepath.Join(home, ".claude", "projects", "-work")
	if err := os.MkdirAll(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	inside, _ := inCgroup(t, serveMemory)
	args := append(inside, bin, "serve", "--quiet", "--hook-listen", port, "--hook-socket", socket, "--health-listen", "off",
		"--collector", srv.URL, logs)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer kill(cmd)
	secret := waitSecret(t, filepath.Join(home, ".aep", "hook-secret"), port)

	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: sessions}}
	ways := []func(record string) error{
		func(record string) error {
			resp, err := client.Post("http://"+port+"/hook/"+secret+"/claude-code", "application/json", strings.NewReader(record))
			if err != nil {
				return err
			}
			_, err = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
			return err
		},
		func(record string) error {
			_, err := hookclient.Ask(socket, []string{"claude-code"}, strings.NewReader(record))
			return err
		},
	}
	var work sync.WaitGroup
	told := make([]int, sessions)
	end := time.Now().Add(length)
	for i := range sessions {
		work.Go(func() {
			session := fmt.Sprintf("soak-%d", i)
			var send func(string) error
			if i%3 < len(ways) {
				send = ways[i%3]
			} else {
				f, err := os.Create(filepath.Join(logs, session+".jsonl"))
				if err != nil {
					t.Error(err)
					return
				}
				defer f.Close()
				send = func(record string) error { _, err := f.WriteString(record + "\n"); return err }
			}
			time.Sleep(time.Duration(i) * pause / sessions)
			tick := time.NewTicker(pause)
			defer tick.Stop()
			for n := 0; time.Now().Before(end); n++ {
				for _, record := range call(i%3 < len(ways), session, n) {
					if err := send(record); err != nil {
						t.Errorf("%s: %v", session, err)
						return
					}
				}
				told[i] = n + 1
				<-tick.C
			}
		})
	}
	var rss []int64
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		for time.Now().Before(end) {
			time.Sleep(max(length/30, 250*time.Millisecond))
			rss = append(rss, status(cmd.Process.Pid, "VmRSS"))
		}
	}()
	work.Wait()
	<-watched
	peak, anon := status(cmd.Process.Pid, "VmHWM"), status(cmd.Process.Pid, "RssAnon")
	time.Sleep(500 * time.Millisecond) // of the last records in the logs
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := cmd.Wait(); err != nil {
		t.Errorf("serve ended by %v", err)
	}

	got.mu.Lock() // a request of its last moment may not be over
	defer got.mu.Unlock()
	want := 0
	for i, n := range told {
		want += n
		for k := range n {
			name := fmt.Sprintf("soak-%d/call-%d", i, k)
			if got.calls[name] != 2 {
				t.Errorf("%s: %d events of it, want its request and its end", name, got.calls[name])
				break
			}
		}
	}
	t.Logf("%s: %d calls, %d events; drained in %s; peak %d KiB, at the end %d KiB of its own (limited by a cgroup: %v), over time %v KiB",
		length, want, len(got.ids), time.Since(begun).Round(time.Millisecond), peak>>10, anon>>10, inside != nil, kib(rss))
	// The cgroup ends who takes more; without one the peak says it, with what is
	// mapped of the binary.
	if inside == nil && peak > serveMemory {
		t.Errorf("serve took %d KiB", peak>>10)
	}
	// Once it has warmed up it grows no more.
	if third := len(rss) / 3; third > 3 {
		early, late := average(rss[third:2*third]), average(rss[2*third:])
		if length > time.Minute && late > early+early/5 {
			t.Errorf("memory grows: %d KiB in the second third, %d KiB in the last", early>>10, late>>10)
		}
	}
}

// call is a tool call and its end, as hooks or as a session log tell them.
func call(hook bool, session string, n int) []string {
	if hook {
		return []string{
			fmt.Sprintf(`{"session_id":%q,"hook_event_name":"PreToolUse","cwd":"/work","tool_name":"Bash","tool_use_id":"call-%d","tool_input":{"command":"make %d","description":"Build"}}`, session, n, n),
			fmt.Sprintf(`{"session_id":%q,"hook_event_name":"PostToolUse","cwd":"/work","tool_name":"Bash","tool_use_id":"call-%d","tool_input":{"command":"make %d"},"tool_response":{"stdout":"%s","stderr":"","interrupted":false}}`,
				session, n, n, strings.Repeat("done ", 100)),
		}
	}
	at := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	return []string{
		fmt.Sprintf(`{"type":"assistant","uuid":"%s-a%d","sessionId":%q,"timestamp":%q,"cwd":"/work","version":"2.1.197","isSidechain":false,"message":{"id":"%s-m%d","role":"assistant","model":"m","content":[{"type":"tool_use","id":"call-%d","name":"Bash","input":{"command":"make %d"}}],"stop_reason":"tool_use","usage":{"input_tokens":10,"output_tokens":5}}}`,
			session, n, session, at, session, n, n, n),
		fmt.Sprintf(`{"type":"user","uuid":"%s-u%d","sessionId":%q,"timestamp":%q,"cwd":"/work","version":"2.1.197","isSidechain":false,"message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"call-%d","content":"%s"}]}}`,
			session, n, session, at, n, strings.Repeat("done ", 100)),
	}
}

// taker is a collector that takes events in, and counts what they tell of each
// tool call, each event once.
type taker struct {
	mu    sync.Mutex
	ids   map[string]int
	calls map[string]int
}

func (k *taker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.NotFound(w, r)
		return
	}
	in := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(in)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		in = z
	}
	lines := bufio.NewReader(in)
	k.mu.Lock()
	defer k.mu.Unlock()
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var e struct {
				ID, Type, Session string
				Data              struct {
					Tool struct {
						CallID string `json:"call_id"`
					}
				}
			}
			if json.Unmarshal(line, &e) == nil {
				if k.ids[e.ID]++; k.ids[e.ID] == 1 && (e.Type == "tool.requested" || e.Type == "tool.completed") {
					k.calls[e.Session+"/"+e.Data.Tool.CallID]++
				}
			}
		}
		if err != nil {
			break
		}
	}
	w.WriteHeader(http.StatusAccepted)
}

// waitSecret waits until serve takes hooks, and gives the secret of its URL.
func waitSecret(t *testing.T, file, addr string) string {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			continue
		}
		c.Close()
		if raw, err := os.ReadFile(file); err == nil { // whole: it is written before the port is there
			return strings.TrimSpace(string(raw))
		}
	}
	t.Fatal("serve takes no hooks")
	return ""
}

// kill ends a process, and waits until it writes no more in what is swept away.
func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// status is a number of /proc/PID/status, in bytes; 0 where there is none.
func status(pid int, name string) int64 {
	raw, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(raw), name+":")
	f := strings.Fields(rest)
	if len(f) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(f[0], 10, 64)
	return n << 10
}

func average(n []int64) (sum int64) {
	for _, v := range n {
		sum += v
	}
	return sum / int64(max(len(n), 1))
}

func kib(n []int64) (out []int64) {
	for _, v := range n {
		out = append(out, v>>10)
	}
	return out
}
