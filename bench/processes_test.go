package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"aep-wrap/adapters"
	"aep-wrap/agent"
)

// build builds the binaries as they are shipped, once, and gives their
// directory.
var build = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "aep-bench-")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", dir+"/", "./cmd/aep-wrap", "./cmd/aep-hook")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return dir, fmt.Errorf("%w: %s", err, out)
	}
	return dir, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if built { // else this would build them
		dir, _ := build()
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

var built bool

func binary(b *testing.B, name string) string {
	b.Helper()
	built = true
	dir, err := build()
	if err != nil {
		b.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// environ is an environment in which a wrapper writes below b's directory
// alone and speaks to no collector.
func environ(b *testing.B) []string {
	home := b.TempDir()
	return []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TERM=xterm", "LANG=C.UTF-8", "AEP_LISTEN=off"}
}

// median of durations; they are sorted in place.
func median(d []time.Duration) time.Duration {
	if len(d) == 0 {
		return 0
	}
	slices.Sort(d)
	return d[len(d)/2]
}

// compare runs two commands in turns, b.N times each, and reports for both the
// medians of the wall time and of the processor time that they and their
// children took, and the ratio of the wall times.
func compare(b *testing.B, base, ours func() (*os.ProcessState, error)) {
	b.Helper()
	type times struct{ wall, cpu []time.Duration }
	var x, y times
	timed := func(f func() (*os.ProcessState, error), to *times) {
		start := time.Now()
		state, err := f()
		if err != nil {
			b.Fatal(err)
		}
		to.wall = append(to.wall, time.Since(start))
		to.cpu = append(to.cpu, state.UserTime()+state.SystemTime())
	}
	for b.Loop() {
		timed(base, &x)
		timed(ours, &y)
	}
	ms := func(d []time.Duration) float64 { return float64(median(d).Microseconds()) / 1000 }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms(x.wall), "base-ms")
	b.ReportMetric(ms(y.wall), "ours-ms")
	b.ReportMetric(ms(x.cpu), "base-cpu-ms")
	b.ReportMetric(ms(y.cpu), "ours-cpu-ms")
	b.ReportMetric(ms(y.wall)/ms(x.wall), "ratio")
}

// observer takes moments and does nothing with them.
type observer struct{}

func (observer) Observe(adapters.Moment, int)          {}
func (observer) Hook(adapters.Moment, int) *agent.Held { return nil }
func (observer) Refuse(agent.Refusal)                  {}

func hookServer(b *testing.B) adapters.Endpoint {
	b.Helper()
	dir, err := os.MkdirTemp("", "aep-b-") // short: a socket's path is
	if err != nil {
		b.Fatal(err)
	}
	h, err := agent.ServeHooks(agent.HookConfig{Adapter: "claude-code", Dir: dir, Observer: observer{}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		h.Close(ctx)
		os.RemoveAll(dir)
	})
	var e adapters.Endpoint
	h.Endpoint(&e)
	return e
}

// The helper, from its start to its end, beside a shell that does nothing.
func BenchmarkHookHelper(b *testing.B) {
	for _, c := range []struct {
		name string
		argv []string
	}{
		{"tiny", []string{binary(b, "aep-hook"), "claude-code", "PreToolUse"}},
		{"fallback", []string{binary(b, "aep-wrap"), "hook", "claude-code", "PreToolUse"}},
	} {
		b.Run(c.name, func(b *testing.B) {
			e := hookServer(b)
			payload := payloads(b)[1]
			env := append(environ(b), "AEP_HOOK_SOCKET="+e.Socket)
			run := func(argv ...string) func() (*os.ProcessState, error) {
				return func() (*os.ProcessState, error) {
					cmd := exec.Command(argv[0], argv[1:]...)
					cmd.Env = env
					cmd.Stdin = bytes.NewReader(payload)
					err := cmd.Run()
					return cmd.ProcessState, err
				}
			}
			compare(b, run("/bin/sh", "-c", "true"), run(c.argv...))
		})
	}
}

// A whole wrapped run of the smallest command, beside the command.
func BenchmarkLaunch(b *testing.B) {
	env := environ(b)
	run := func(argv ...string) func() (*os.ProcessState, error) {
		return func() (*os.ProcessState, error) {
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Env = env
			err := cmd.Run()
			return cmd.ProcessState, err
		}
	}
	compare(b, run("true"), run(binary(b, "aep-wrap"), "--", "true"))
}

// Output through the wrapper's terminal, beside the same through a bare one.
func BenchmarkPTY(b *testing.B) {
	const size = 32 << 20
	env := environ(b)
	line := strings.Repeat("x", 79) + "\n"
	file := filepath.Join(b.TempDir(), "output")
	if err := os.WriteFile(file, bytes.Repeat([]byte(line), size/len(line)), 0o600); err != nil {
		b.Fatal(err)
	}
	run := func(argv ...string) func() (*os.ProcessState, error) {
		return func() (*os.ProcessState, error) {
			cmd := exec.Command(argv[0], argv[1:]...)
			cmd.Env = env
			f, err := pty.Start(cmd)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, f, make([]byte, 64<<10))
			if err != nil && !errors.Is(err, syscall.EIO) {
				return nil, err
			}
			if n < size/int64(len(line))*int64(len(line)) {
				return nil, fmt.Errorf("%d bytes of %d came through", n, size)
			}
			err = cmd.Wait()
			return cmd.ProcessState, err
		}
	}
	compare(b, run("cat", file), run(binary(b, "aep-wrap"), "--quiet", "--", "cat", file))
}

// The shipped binaries, in MB.
func BenchmarkBinarySize(b *testing.B) {
	wrap, hook := binary(b, "aep-wrap"), binary(b, "aep-hook")
	for b.Loop() {
		for path, unit := range map[string]string{wrap: "aep-wrap-MB", hook: "aep-hook-MB"} {
			fi, err := os.Stat(path)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(fi.Size())/(1<<20), unit)
		}
	}
	b.ReportMetric(0, "ns/op")
}

// What a wrapper holds in memory while its agent does nothing, once with the
// agent on a pipe and once on a terminal, where a shim stands between. The
// shim's own memory is told apart. RSS counts the pages of the binary's file that
// were touched, which all wrappers have in common; own is what each has alone.
func BenchmarkIdleMemory(b *testing.B) {
	for _, on := range []string{"pipe", "terminal"} {
		b.Run(on, func(b *testing.B) {
			for b.Loop() {
				wrapper, shim := idle(b, on == "terminal")
				b.ReportMetric(wrapper["VmRSS"], "RSS-MB")
				b.ReportMetric(wrapper["RssAnon"], "own-MB")
				if shim != nil {
					b.ReportMetric(shim["VmRSS"], "shim-RSS-MB")
					b.ReportMetric(shim["RssAnon"], "shim-own-MB")
				}
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func idle(b *testing.B, terminal bool) (wrapper, shim map[string]float64) {
	cmd := exec.Command(binary(b, "aep-wrap"), "--quiet", "--", "sh", "-c", "echo ready; exec sleep 1000")
	cmd.Env = environ(b)
	var out io.ReadCloser
	var err error
	if terminal {
		out, err = pty.Start(cmd)
	} else {
		if out, err = cmd.StdoutPipe(); err == nil {
			err = cmd.Start()
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	defer out.Close()
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	}()
	buf := make([]byte, 64)
	if n, err := out.Read(buf); err != nil || !bytes.Contains(buf[:n], []byte("ready")) {
		b.Fatalf("%q, %v", buf[:n], err)
	}
	// The start's garbage is held for a while; a second later it is idle.
	time.Sleep(time.Second)
	wrapper = memory(b, cmd.Process.Pid)
	for _, child := range children(cmd.Process.Pid) {
		name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child))
		if strings.HasPrefix(string(name), "aep-wrap") {
			shim = memory(b, child)
		}
	}
	return wrapper, shim
}

// memory is what a process holds, in MB, by the kernel's names.
func memory(b *testing.B, pid int) map[string]float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	out := map[string]float64{}
	for _, name := range []string{"VmRSS", "RssAnon"} {
		_, rest, _ := strings.Cut(string(status), name+":")
		kb, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
		if err != nil {
			b.Fatal(err)
		}
		out[name] = kb / 1024
	}
	return out
}

func children(pid int) []int {
	var out []int
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, f := range files {
		text, _ := os.ReadFile(f)
		for _, w := range strings.Fields(string(text)) {
			if n, err := strconv.Atoi(w); err == nil {
				out = append(out, n)
			}
		}
	}
	return out
}
