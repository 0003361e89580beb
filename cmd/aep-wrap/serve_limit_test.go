package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"aep-wrap/event/eventtest"
)

// tight is a cgroup's limit, in bytes, of which serve needs most.
const tight = 40 << 20

// Hooks of 200 MiB, twelve at once and again and again, in a cgroup with little
// memory: serve knows what it may take, answers them all, is not ended for what
// it takes, and collects hardly more often than where it may take what it wants.
func TestServeHeedsItsCgroup(t *testing.T) {
	if testing.Short() {
		t.Skip("short")
	}
	if raceDetector {
		t.Skip("slow under the race detector, which sees nothing of another process: ./test runs it without")
	}
	inside, dir := inCgroup(t, tight)
	if inside == nil {
		t.Skip("no cgroup can be made here")
	}
	bin := buildWrap(t, t.TempDir())
	free := serveLargeHooks(t, bin, nil, "off")
	t.Logf("free: %s", free)
	held := serveLargeHooks(t, bin, inside, os.Getenv("AEP_TEST_GOMEMLIMIT")) // to compare with
	t.Logf("held: %s; in the cgroup %s", held, cgroupPeak(dir))
	if held.limit > tight || held.limit < tight/2 {
		t.Errorf("it collects to stay within %.0f bytes, where the cgroup allows %d", held.limit, tight)
	}
	if held.collections > 2*free.collections {
		t.Errorf("%.0f collections, %.0f where there is room", held.collections, free.collections)
	}
}

// served is what serve did for the large hooks.
type served struct {
	hooks              int64
	took, used         time.Duration
	collections, limit float64 // limit is what it collects to stay within
}

func (s served) String() string {
	return fmt.Sprintf("%d hooks in %s, %s of CPU, %.0f collections", s.hooks, s.took.Round(time.Millisecond), s.used.Round(time.Millisecond), s.collections)
}

// serveLargeHooks has a serve, started by the words of inside, take large hooks.
func serveLargeHooks(t *testing.T, bin string, inside []string, gomemlimit string) (s served) {
	t.Helper()
	home := t.TempDir()
	port, healthAt := eventtest.Address(t), eventtest.Address(t)
	args := append(slices.Clone(inside), bin, "serve", "--quiet", "--hook-listen", port, "--health-listen", healthAt, "--listen", "off", "--capture", "full")
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
	if gomemlimit != "" {
		cmd.Env = append(cmd.Env, "GOMEMLIMIT="+gomemlimit)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer kill(cmd)
	secret := waitSecret(t, filepath.Join(home, ".aep", "hook-secret"), port)
	metric := func(name string) float64 {
		t.Helper()
		resp, err := http.Get("http://" + healthAt + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(text)
		if m == nil {
			t.Fatalf("there is no %s", name)
		}
		v, err := strconv.ParseFloat(string(m[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	awaitMetric(t, healthAt, "aep_wrap_draining 0")
	s.limit = metric("go_gc_gomemlimit_bytes")
	var n atomic.Int64
	inputs := []func() io.Reader{ // of a tool: refused for its size, thinned, and as much as is taken in strings and in values
		func() io.Reader {
			return io.MultiReader(strings.NewReader(`"`), io.LimitReader(endless('x'), 200<<20), strings.NewReader(`"`))
		},
		func() io.Reader {
			return io.MultiReader(strings.NewReader(`"`), io.LimitReader(endless('x'), 31<<20), strings.NewReader(`"`))
		},
		func() io.Reader {
			return strings.NewReader(`[` + strings.Repeat(`"`+strings.Repeat("x", 1000)+`",`, 2000) + `1]`)
		},
		func() io.Reader { return strings.NewReader(`[` + strings.Repeat("1,", 60<<10) + `1]`) },
	}
	begun := time.Now()
	for range 2 {
		var agents sync.WaitGroup
		for i := range 12 {
			agents.Go(func() {
				body := io.MultiReader(strings.NewReader(fmt.Sprintf(`{"session_id":"large","hook_event_name":"PreToolUse","tool_name":"Write","tool_use_id":"call-%d","tool_input":{"content":`, n.Add(1))),
					inputs[i%len(inputs)](), strings.NewReader(`}}`))
				resp, err := http.Post("http://"+port+"/hook/"+secret+"/claude-code", "application/json", body)
				if err != nil {
					t.Error(err)
					return
				}
				resp.Body.Close()
				if resp.StatusCode != http.StatusOK {
					t.Error(resp.Status)
				}
			})
		}
		agents.Wait()
	}
	s.hooks, s.took, s.collections = n.Load(), time.Since(begun), metric("go_gc_duration_seconds_count")
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("serve ended by %v", err)
	}
	s.used = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return s
}

// The collector knows what it may take too.
func TestCollectorHeedsItsCgroup(t *testing.T) {
	inside, _ := inCgroup(t, 256<<20)
	if inside == nil {
		t.Skip("no cgroup can be made here")
	}
	for given, want := range map[string]string{"": fmt.Sprintf("limit=%d", 256<<20*9/10), "200MiB": "collector at"} {
		w := newWorld(t)
		args := append(slices.Clone(inside), "aep-wrap", "collect", "--listen", eventtest.Address(t))
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Env = append(w.env, "GOMEMLIMIT="+given)
		if given == "" {
			cmd.Env = w.env
		}
		errs, err := cmd.StderrPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines, said := bufio.NewScanner(errs), ""
		for lines.Scan() {
			if said += lines.Text() + "\n"; strings.Contains(said, "collector at") {
				break
			}
		}
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if !strings.Contains(said, want) || (given != "" && strings.Contains(said, "limit=")) {
			t.Errorf("GOMEMLIMIT=%q: it says %q, want %q", given, said, want)
		}
	}
}

// inCgroup makes a cgroup that allows so much memory, and gives what is put
// before a command so that it starts inside; nil where none can be made.
func inCgroup(t *testing.T, limit int) (inside []string, dir string) {
	t.Helper()
	for _, v := range []struct{ root, limit string }{{"/sys/fs/cgroup/memory", "memory.limit_in_bytes"}, {"/sys/fs/cgroup", "memory.max"}} {
		dir := filepath.Join(v.root, fmt.Sprintf("aep-test-%d-%d", os.Getpid(), time.Now().UnixNano()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() { os.Remove(dir) })
		if os.WriteFile(filepath.Join(dir, v.limit), []byte(strconv.Itoa(limit)), 0o644) == nil {
			return []string{"sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, dir}, dir
		}
	}
	return nil, ""
}

// cgroupPeak tells the most that a cgroup held, and how often it was at its
// limit.
func cgroupPeak(dir string) string {
	var out []string
	for _, name := range []string{"memory.max_usage_in_bytes", "memory.failcnt", "memory.peak", "memory.events"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			out = append(out, name+" "+strings.Join(strings.Fields(string(b)), " "))
		}
	}
	return strings.Join(out, ", ")
}
