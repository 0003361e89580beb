package agent

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"aep-wrap/adapters/all"
	"aep-wrap/agent/follow"
	"aep-wrap/event"
)

// watchMain watches a directory of logs and one of hooks, until a signal.
func watchMain(dir, hooks, logDir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	fail := func(err error) int { fmt.Fprintln(os.Stderr, err); return 1 }
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	w := NewWatch(WatchConfig{Adapters: all.List(), Host: "h", LogDir: logDir, Gate: testGate(event.Metadata), Log: log,
		Say: func(line string) { fmt.Fprintln(os.Stderr, line) }})
	store, err := follow.OpenStore(filepath.Join(logDir, ".watch", "cursors"))
	if err != nil {
		return fail(err)
	}
	fo, err := follow.New(follow.Config{Paths: []string{dir}, Handler: w, Store: store, SaveEvery: 100 * time.Millisecond, Log: log})
	if err != nil {
		return fail(err)
	}
	var work sync.WaitGroup
	if hooks != "-" {
		h, err := NewHookDir(HookDirConfig{Dir: hooks, Adapters: all.List(), Watch: w, Log: log})
		if err != nil {
			return fail(err)
		}
		work.Go(func() { _ = h.Run(ctx, false) })
	}
	if err := fo.Run(ctx); err != nil {
		return fail(err)
	}
	work.Wait()
	w.CloseAll()
	return 0
}

func startWatch(t testing.TB, dir, hooks, logDir string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "@watch", dir, hooks, logDir)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// kills is how often the watch is killed; AEP_WATCH_KILLS says another number.
func kills() int {
	if n, err := strconv.Atoi(os.Getenv("AEP_WATCH_KILLS")); err == nil {
		return n
	}
	return 10
}

// A watch that is killed again and again, while logs grow and hooks come, in
// the end has told everything, and nothing twice.
func TestWatchIsKilled(t *testing.T) {
	logs, dir, hooks := t.TempDir(), t.TempDir(), t.TempDir()
	stop := make(chan struct{})
	var writers sync.WaitGroup
	for i := range 5 {
		writers.Go(func() {
			name := fmt.Sprintf("s%d", i)
			path := filepath.Join(dir, "projects", "p", name+".jsonl")
			writeFile(t, path, "")
			for n := 1; ; n++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(rand.IntN(8)) * time.Millisecond):
				}
				line := claudePrompt(name, n) + claudeTool(name, n) + claudeEnd(name, n)
				half := rand.IntN(len(line))
				appendFile(t, path, line[:half]) // torn, for a moment
				appendFile(t, path, line[half:])
				if n%100 == 50 && i == 0 { // and moved
					to := filepath.Join(dir, "projects", "p", fmt.Sprintf("%s.%d.jsonl", name, n))
					if err := os.Rename(path, to); err != nil {
						t.Error(err)
					}
					path = to
				}
			}
		})
	}
	written := 0
	writers.Go(func() {
		for ; ; written++ {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rand.IntN(10)) * time.Millisecond):
			}
			name := fmt.Sprintf("%08d-1", written)
			payload := fmt.Sprintf(`{"session_id":"hooked","turn_id":"t1","tool_name":"Bash","tool_use_id":"c%d","tool_input":{"command":"x"}}`, written/2)
			kind := "PreToolUse"
			if written%2 == 1 {
				kind = "PreModelRequest" // which nobody names
			}
			tmp := filepath.Join(hooks, "."+name)
			writeFile(t, tmp, payload)
			if err := os.Rename(tmp, filepath.Join(hooks, name+".codex."+kind+".json")); err != nil {
				t.Error(err)
			}
		}
	})
	for range kills() {
		cmd := startWatch(t, dir, hooks, logs)
		time.Sleep(time.Duration(30+rand.IntN(300)) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
	}
	close(stop)
	writers.Wait()
	cmd := startWatch(t, dir, hooks, logs)
	want := readOnce(t, t.TempDir(), nil, dir)
	ids := func(m map[string][]event.Event) map[string][]string {
		out := map[string][]string{}
		for key, es := range m {
			for _, e := range es {
				out[key] = append(out[key], e.ID+" "+e.Type)
			}
			slices.Sort(out[key])
		}
		return out
	}
	expect := ids(want)
	deadline := time.Now().Add(60 * time.Second)
	for {
		left, err := filepath.Glob(filepath.Join(hooks, "*.json"))
		if err != nil {
			t.Fatal(err)
		}
		got := ids(sessionLogs(t, logs))
		hooked := len(got["codex/hooked"])
		delete(got, "codex/hooked")
		if len(left) == 0 && maps.EqualFunc(got, expect, slices.Equal) {
			// Its start, the run's, and each hook's.
			if hooked != written+2 {
				t.Errorf("%d hooks became %d events", written, hooked)
			}
			break
		}
		if time.Now().After(deadline) {
			for key := range expect {
				t.Errorf("%s: %d events, want %d; twice: %q", key, len(got[key]), len(expect[key]), twice(got[key]))
			}
			t.Fatalf("%d hooks are left", len(left))
		}
		time.Sleep(100 * time.Millisecond)
	}
	total := 0
	for _, es := range expect {
		total += len(es)
	}
	t.Logf("%d kills, %d events by logs, %d hooks", kills(), total, written)
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("a watch that is asked to end: %v", err)
	}
}

func twice(ids []string) (out []string) {
	for i := 1; i < len(ids); i++ {
		if ids[i] == ids[i-1] {
			out = append(out, ids[i])
		}
	}
	return out
}

// needProc has /proc been read: elsewhere than on Linux there is none, and there
// a process that is not in it has ended.
func needProc(t testing.TB, err error) {
	t.Helper()
	switch {
	case err == nil:
	case runtime.GOOS != "linux":
		t.Skip("no /proc")
	default:
		t.Fatal(err)
	}
}

// status reads a number of kB from /proc/PID/status.
func status(t testing.TB, pid int, name string) int {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	needProc(t, err)
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			n, _ := strconv.Atoi(strings.Fields(rest)[0])
			return n
		}
	}
	return 0
}
