package agent

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
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// wrapCmd is the wrapper with no terminal: in a session of its own, so that
// the one that the tests run on plays no part.
func wrapCmd(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(testBinary(t), append([]string{"@wrap"}, args...)...)
	cmd.Env = append(os.Environ(), "BIN="+testBinary(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// sh runs a script by sh, with $BIN the test binary, and gives its output and
// status.
func sh(t *testing.T, script string) (out string, status int) {
	t.Helper()
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = append(os.Environ(), "BIN="+testBinary(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	b, err := cmd.CombinedOutput()
	return string(b), shellStatus(t, cmd, err)
}

func TestDirect(t *testing.T) {
	dir := t.TempDir()
	noexec, dead, plain := filepath.Join(dir, "noexec"), filepath.Join(dir, "dead"), filepath.Join(dir, "plain")
	binary, none := filepath.Join(dir, "binary"), filepath.Join(dir, "none")
	for name, content := range map[string]string{
		noexec: "#!/bin/sh\n", dead: "#!/no/such/interpreter -x\n", plain: "echo plain $0 $1\n",
		binary: "\x7fNOT\x00AN\x01ELF",
	} {
		if err := os.WriteFile(name, []byte(content), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(noexec, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, script, out string
		status            int
	}{
		{"stdin to stdout", `printf x | $BIN @wrap cat`, "x", 0},
		{"exit code", `$BIN @wrap sh -c 'exit 7'`, "", 7},
		{"killed by TERM", `exec $BIN @wrap sh -c 'kill -TERM $$'`, "", 143},
		{"killed by SEGV", `exec $BIN @wrap sh -c 'kill -SEGV $$'`, "", 139},
		{"killed by KILL", `exec $BIN @wrap sh -c 'kill -KILL $$'`, "", 137},
		{"a shell sees the signal", `$BIN @wrap sh -c 'kill -TERM $$'; kill -l $?`, "Terminated\nTERM\n", 0},
		{"same group and descriptors", `$BIN @wrap sh -c 'ps -o pgid= -p $$; ps -o pgid= -p $PPID' | uniq | wc -l | tr -d " "; true`, "1\n", 0},
		{"arguments that are no text", `$BIN @wrap printf %s "$(printf 'a\377b')" "" "c d" | od -An -tx1 | tr -d ' \n'`, "61ff62632064", 0},
		{"argv[0] as typed", `PATH=` + dir + `:$PATH; $BIN @wrap sh -c 'echo $0'`, "sh\n", 0},
		{"not found", `$BIN @wrap no-such-command-here`, "wrap: no-such-command-here: command not found: no such file on PATH (a shell alias or function is not a command: give its file)\n", 127},
		{"no such file", `$BIN @wrap ` + none, "wrap: " + none + ": command not found: no such file\n", 127},
		{"a directory", `$BIN @wrap ` + dir, "wrap: " + dir + ": cannot be executed: " + dir + " is a directory\n", 126},
		{"permission denied", `$BIN @wrap ` + noexec, "wrap: " + noexec + ": cannot be executed: permission denied for " + noexec + " (is it executable, and its filesystem not mounted noexec?)\n", 126},
		{"permission denied on PATH", `PATH=` + dir + `; $BIN @wrap noexec`, "wrap: noexec: cannot be executed: permission denied for " + noexec + " (is it executable, and its filesystem not mounted noexec?)\n", 126},
		{"no interpreter", `$BIN @wrap ` + dead, "wrap: " + dead + ": cannot be executed: the interpreter that " + dead + " names, /no/such/interpreter, is not there\n", 126},
		{"not a program", `$BIN @wrap ` + binary, "wrap: " + binary + ": cannot be executed: " + binary + " is not a program of this system (exec format error)\n", 126},
		{"a script without its line", `$BIN @wrap ` + plain + ` arg`, "plain " + plain + " arg\n", 0},
		{"inherited descriptors", `exec 5>&1 9>&1; $BIN @wrap sh -c 'echo five >&5; echo nine >&9; (echo six >&6) 2>/dev/null || echo closed'`, "five\nnine\nclosed\n", 0},
		{"stdout closed by its reader", `$BIN @wrap yes | head -1; exit 0`, "y\n", 0},
		{"stderr and stdout apart", `$BIN @wrap sh -c 'echo o; echo e >&2' 2>/dev/null`, "o\n", 0},
		{"an ignored SIGHUP", `nohup $BIN @wrap sh -c 'kill -HUP $$; echo lives' 2>/dev/null`, "lives\n", 0},
		{"the wrapper ignores it too", `nohup $BIN @wrap sh -c 'kill -HUP $PPID; sleep 0.2; echo lives' 2>/dev/null`, "lives\n", 0},
		{"an ignored SIGINT", `trap "" INT; $BIN @wrap sh -c 'kill -INT $$; echo lives'`, "lives\n", 0},
		{"default dispositions", `$BIN @wrap grep -E "^Sig(Ign|Blk)" /proc/self/status`, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n", 0},
		{"the limits of open files", `a=$(ulimit -n); $BIN @wrap sh -c 'test $(ulimit -n) = '$a' && echo same'`, "same\n", 0},
		{"the environment", `env -i A=1 B= $BIN @wrap /usr/bin/env | sort`, "A=1\nB=\n", 0},
		{"a child that outlives it", `$BIN @wrap sh -c '(sleep 0.3; echo late) & echo early'`, "early\nlate\n", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			out, status := sh(t, c.script)
			if out != c.out || status != c.status {
				t.Errorf("%q, exit %d; want %q, exit %d", out, status, c.out, c.status)
			}
		})
	}
}

func TestDirectSignals(t *testing.T) {
	cmd := wrapCmd(t, play(t, "report")...)
	out := &lines{}
	cmd.Stderr = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	out.expect(t, "ready.")
	// Without a terminal all of them were meant for the agent.
	for sig, want := range map[syscall.Signal]string{
		syscall.SIGINT: "got interrupt.", syscall.SIGQUIT: "got quit.", syscall.SIGHUP: "got hangup.", syscall.SIGUSR2: "got user defined signal 2.",
	} {
		_ = cmd.Process.Signal(sig)
		out.expect(t, want)
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	out.expect(t, "got terminated.")
	if got := shellStatus(t, cmd, cmd.Wait()); got != 42 {
		t.Errorf("exit %d, want the agent's 42", got)
	}
}

// Under a shell, with no PTY of ours, what the terminal sends comes once.
func TestDirectInterruptComesOnce(t *testing.T) {
	s := shell(t)
	s.send("$BIN @wrap $BIN @play report </dev/null\n")
	s.expect("ready.")
	s.send("\x03")
	s.expect("got interrupt.")
	time.Sleep(300 * time.Millisecond)
	if n := strings.Count(s.rest(), "got interrupt."); n != 0 {
		t.Errorf("it came %d times", n+1)
	}
	s.send("\x1c")
	s.expect("got quit.")
	s.send("\x1a")
	s.expect("Stopped")
	s.expect("$ ")
	s.fg()
	s.send("\x03")
	s.expect("got interrupt.")
	s.send("\x1abg\n")
	s.expect("$ ")
	s.send("kill %1\n")
	s.expect("got terminated.")
}

// An agent that stops itself alone is seen to stop, as without us.
func TestDirectStop(t *testing.T) {
	s := shell(t)
	s.send("$BIN @wrap sh -c 'kill -STOP $$; echo on-again' </dev/null\n")
	s.expect("Stopped")
	s.expect("$ ")
	s.send("fg\n")
	s.expect("on-again")
	s.expect("$ ")
}

// Who stops the agent right after it was continued means that: the news of our
// own continuation, which comes late, does not undo it.
func TestStoppedAnew(t *testing.T) {
	cmd := exec.Command("sleep", "1000")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	p := &Process{pid: cmd.Process.Pid}
	stop := func() {
		_ = cmd.Process.Signal(syscall.SIGSTOP)
		eventually(t, "its stop", p.halted)
	}
	taken := func() {
		if st, err := p.waitAgent(); err != nil || !st.Stopped() {
			t.Fatalf("%v, %v", st, err)
		}
	}
	stop()
	taken()
	_ = cmd.Process.Signal(syscall.SIGCONT) // the group
	stop()
	if p.continued(1); !p.halted() {
		t.Fatal("a stop that nobody has heard of is undone")
	}
	taken()
	if p.continued(1); !p.halted() {
		t.Fatal("a stop that is about to be heard of is undone")
	}
	p.continued(2) // us alone
	eventually(t, "it goes on", func() bool { return !p.halted() })
}

func TestTee(t *testing.T) {
	t.Run("copies", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "tee")
		out, status := sh(t, `$BIN @wrap tee=`+file+` -- sh -c 'echo out; echo err >&2; exit 4'`)
		b, _ := os.ReadFile(file)
		if status != 4 || string(b) != "out\n" || !strings.Contains(out, "out\n") || !strings.Contains(out, "err\n") {
			t.Errorf("out %q, copy %q, exit %d", out, b, status)
		}
	})
	t.Run("the agent gets its SIGPIPE", func(t *testing.T) {
		out, _ := sh(t, `($BIN @wrap tee=/dev/null -- yes; echo $? >&2) | head -1; sleep 0.1`)
		if out != "y\n141\n" {
			t.Errorf("%q", out)
		}
	})
	t.Run("at once, though it only writes later", func(t *testing.T) {
		out, _ := sh(t, `($BIN @wrap tee=/dev/null -- $BIN @play late-word; echo $? >&2) | true`)
		direct, _ := sh(t, `($BIN @play late-word; echo $? >&2) | true`)
		if out != "141\n" || out != direct {
			t.Errorf("%q, and without us %q", out, direct)
		}
	})
	t.Run("a child that outlives it keeps its output", func(t *testing.T) {
		out, status := sh(t, `$BIN @wrap tee=/dev/null -- sh -c '(sleep 0.5; echo late; sleep 0.1; echo later) & echo early'`)
		if out != "early\nlate\nlater\n" || status != 0 {
			t.Errorf("%q, exit %d", out, status)
		}
	})
	t.Run("bulk", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "tee")
		out, status := sh(t, `$BIN @wrap tee=`+file+` -- $BIN @play flood 5000000 | cksum; cksum <`+file)
		if l := strings.SplitN(out, "\n", 3); status != 0 || len(l) < 2 || l[0] != l[1] || !strings.HasSuffix(l[0], " 5000000") {
			t.Errorf("%q, exit %d", out, status)
		}
	})
	t.Run("a reader that does not read", func(t *testing.T) {
		defer leaks(t)()
		block := make(chan struct{})
		slow := writer(func(b []byte) (int, error) { <-block; return len(b), nil })
		out, err := os.CreateTemp(t.TempDir(), "out")
		if err != nil {
			t.Fatal(err)
		}
		const n = 3 * spillLimit
		p := start(t, Spec{Stdout: out, TeeStdout: slow}, play(t, "flood", strconv.Itoa(n))...)
		if x := p.Wait(); x.Code != 0 {
			t.Errorf("%+v", x)
		}
		if info, _ := out.Stat(); info.Size() != n {
			t.Errorf("%d bytes came out", info.Size())
		}
		if d := p.TeeDropped(); d == 0 || d > n {
			t.Errorf("%d bytes dropped", d)
		}
		close(block)
	})
}

type writer func([]byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

// lines is what a process wrote, to wait for.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *lines) expect(t *testing.T, text string) {
	t.Helper()
	eventually(t, fmt.Sprintf("%q in %q", text, l), func() bool { return strings.Contains(l.String(), text) })
}

// start starts an agent from this very process, without a terminal.
func start(t *testing.T, s Spec, args ...string) *Process {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	for _, f := range []**os.File{&s.Stdin, &s.Stdout, &s.Stderr} {
		if *f == nil {
			*f = null
		}
	}
	if s.Env == nil {
		s.Env = os.Environ()
	}
	if s.Path, err = LookPath(args[0], os.Getenv("PATH")); err != nil {
		t.Fatal(err)
	}
	s.Args = args
	p, err := Start(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// startOnTerminal starts an agent from this process on a terminal of the
// test's.
func startOnTerminal(t *testing.T, args ...string) (*Process, *screen) {
	t.Helper()
	s := newScreen(t)
	go s.read()
	t.Cleanup(func() { s.slave.Close(); s.master.Close() })
	p := start(t, Spec{Stdin: s.slave, Stdout: s.slave, Stderr: s.slave}, args...)
	if !p.HasTerminal() {
		t.Fatal("no PTY")
	}
	return p, s
}

func TestExtraFiles(t *testing.T) {
	for _, onTerminal := range []bool{false, true} {
		t.Run(fmt.Sprint("terminal=", onTerminal), func(t *testing.T) {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			spec := Spec{ExtraFiles: []*os.File{w}}
			if onTerminal {
				s := newScreen(t)
				go s.read()
				defer s.master.Close()
				defer s.slave.Close()
				spec.Stdin, spec.Stdout, spec.Stderr = s.slave, s.slave, s.slave
			}
			p := start(t, spec, "sh", "-c", fmt.Sprintf("echo hello >&%d; sleep 0.2", ExtraFD(0)))
			w.Close()
			b, _ := io.ReadAll(r) // to its end: nobody else holds it
			if x := p.Wait(); x.Code != 0 || string(b) != "hello\n" {
				t.Errorf("%+v, %q", x, b)
			}
		})
	}
}

func TestTerminate(t *testing.T) {
	const tree = `
		trap 'echo asked >&3' TERM
		setsid sh -c 'trap "" TERM HUP; echo one=$$ >&3; while :; do sleep 1; done' &
		(setsid sh -c 'echo two=$$ >&3; exec sleep 100' &)
		sleep 100 & echo three=$! >&3
		while :; do sleep 0.05; done`
	for _, onTerminal := range []bool{false, true} {
		t.Run(fmt.Sprint("terminal=", onTerminal), func(t *testing.T) {
			defer leaks(t)()
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			spec := Spec{ExtraFiles: []*os.File{w}}
			if onTerminal {
				s := newScreen(t)
				done := make(chan struct{})
				go func() { defer close(done); s.read() }()
				defer func() { s.slave.Close(); s.master.Close(); <-done }()
				spec.Stdin, spec.Stdout, spec.Stderr = s.slave, s.slave, s.slave
			}
			p := start(t, spec, "sh", "-c", strings.ReplaceAll(tree, "&3", fmt.Sprint("&", ExtraFD(0))))
			w.Close()
			told := &lines{}
			copied := make(chan struct{})
			go func() { defer close(copied); _, _ = io.Copy(told, r) }()
			for _, name := range []string{"one=", "two=", "three="} {
				told.expect(t, name)
			}
			var all []int
			for _, line := range strings.Fields(told.String()) {
				if _, pid, ok := strings.Cut(line, "="); ok {
					all = append(all, atoi(t, pid))
				}
			}
			eventually(t, "all are the agent's", func() bool {
				for _, pid := range all {
					if !p.Owns(pid) {
						return false
					}
				}
				return true
			})
			if p.Owns(os.Getpid()) || p.Owns(1) {
				t.Error("we are the agent's")
			}
			begun := time.Now()
			if err := p.Terminate(t.Context(), syscall.SIGTERM, 200*time.Millisecond); err != nil {
				t.Error(err)
			}
			if d := time.Since(begun); d > patience {
				t.Errorf("it took %v", d)
			}
			x := p.Wait()
			if !x.Terminated || x.Signal != syscall.SIGKILL {
				t.Errorf("%+v", x)
			}
			for _, pid := range append(all, p.Pid()) {
				if running(pid) {
					t.Errorf("%d is left", pid)
				}
			}
			<-copied
			if !strings.Contains(told.String(), "asked") {
				t.Error("it was not asked first")
			}
			if err := p.Signal(syscall.SIGTERM); !errors.Is(err, ErrEnded) {
				t.Errorf("a signal to what has ended: %v", err)
			}
			if err := p.Pause(); !errors.Is(err, ErrEnded) {
				t.Errorf("a pause of what has ended: %v", err)
			}
		})
	}
}

func TestTerminateGivesUpWithItsContext(t *testing.T) {
	p := start(t, Spec{}, "sh", "-c", "trap '' TERM; while :; do sleep 0.1; done")
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_ = p.Terminate(ctx, syscall.SIGTERM, 10*time.Second)
	p.Wait() // the end of ctx is the end of the grace
}

func TestPause(t *testing.T) {
	for _, onTerminal := range []bool{false, true} {
		t.Run(fmt.Sprint("terminal=", onTerminal), func(t *testing.T) {
			script := "(setsid sleep 100 &) ; sleep 100 & read x; echo got-$x; kill $!; exit 6"
			var p *Process
			var s *screen
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			if onTerminal {
				p, s = startOnTerminal(t, "sh", "-c", script)
			} else {
				p = start(t, Spec{Stdin: r}, "sh", "-c", script)
			}
			r.Close()
			// As it stays: a child of vfork that is stopped before its exec, and its
			// parent with it, are not seen to stop.
			eventually(t, "its tree", func() bool {
				sleeping := 0
				for _, q := range p.Descendants() {
					if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", q.Pid)); string(name) != "sleep\n" {
						return false
					}
					sleeping++
				}
				return sleeping == 2
			})
			for range 3 {
				if err := p.Pause(); err != nil {
					t.Fatal(err)
				}
				if !p.Paused() {
					t.Error("it is not paused")
				}
				if err := p.Pause(); !errors.Is(err, ErrPaused) {
					t.Errorf("paused twice: %v", err)
				}
				eventually(t, "all are stopped", func() bool {
					return !slices.ContainsFunc(p.tree(), func(q Proc) bool { return !q.stopped() })
				})
				time.Sleep(100 * time.Millisecond) // for the news of the stop to do harm
				if err := p.Resume(); err != nil {
					t.Fatal(err)
				}
				if err := p.Resume(); !errors.Is(err, ErrNotPaused) {
					t.Errorf("resumed twice: %v", err)
				}
				eventually(t, "all go on", func() bool {
					for _, q := range p.tree() {
						if q.stopped() {
							return false
						}
					}
					return true
				})
			}
			left := p.Descendants()
			if onTerminal {
				if !isRaw(s.settings()) {
					t.Error("the terminal is not the agent's any more")
				}
				s.send("word\n")
				s.expect("got-word")
			} else {
				fmt.Fprintln(w, "word")
			}
			if x := p.Wait(); x.Code != 6 {
				t.Errorf("%+v", x)
			}
			for _, q := range left {
				_ = signalProc(q, syscall.SIGKILL)
			}
		})
	}
}

// What is paused hears of a signal that asks it to end.
func TestPausedIsAskedToEnd(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		p := start(t, Spec{Stdin: r}, "sh", "-c", "trap 'exit 9' TERM HUP INT QUIT; echo; read x")
		if err := p.Pause(); err != nil {
			t.Fatal(err)
		}
		eventually(t, "it is stopped", p.halted)
		p.pass(sig, p.signalAgent)
		select {
		case <-p.Done():
		case <-time.After(20 * time.Second):
			t.Errorf("%v: it stands still", sig)
			_ = p.Resume()
		}
		p.Wait()
		r.Close()
		w.Close()
	}
}

// A shell waits for its job while that is paused by us.
func TestPauseDoesNotSuspendTheJob(t *testing.T) {
	p, s := startOnTerminal(t, play(t, "tui")...)
	s.expect("ui-on.")
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	s.send("a") // kept for later
	time.Sleep(100 * time.Millisecond)
	if me, _ := procByID(os.Getpid()); me.stopped() {
		t.Error("we are stopped")
	}
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	s.expect("key=61.")
	s.send("q")
	if x := p.Wait(); x.Code != 0 {
		t.Errorf("%+v", x)
	}
}

func TestInject(t *testing.T) {
	if err := start(t, Spec{}, "true").Inject([]byte("x")); !errors.Is(err, ErrNoTerminal) {
		t.Errorf("without a terminal: %v", err)
	}
	p, s := startOnTerminal(t, play(t, "echo-hex", "2")...)
	s.expect("ready.")
	if err := p.Inject([]byte("\x1b")); err != nil {
		t.Fatal(err)
	}
	s.send("z")
	s.expect("<1b7a>")
	p.Wait()
	if err := p.Inject([]byte("x")); !errors.Is(err, ErrEnded) {
		t.Errorf("after the end: %v", err)
	}
}

// In the middle of a paste, and of a key, ours waits: but not for the rest of one
// that does not come.
func TestInjectBetweenKeys(t *testing.T) {
	for name, tt := range map[string]struct {
		begun string
		then  time.Duration
		rest  string
		want  string
	}{
		"a paste":           {"\x1b[200~pas", 900 * time.Millisecond, "te\x1b[201~", "\x1b[200~paste\x1b[201~!"},
		"half a paste":      {"\x1b[200~pas", 1100 * time.Millisecond, "te\x1b[201~", "\x1b[200~pas!te\x1b[201~"},
		"a key":             {"\x1b[", 40 * time.Millisecond, "A", "\x1b[A!"},
		"the Escape key":    {"\x1b", 60 * time.Millisecond, "A", "\x1b!A"},
		"nothing underway":  {"a", time.Millisecond, "b", "a!b"},
		"a key of one byte": {"\x1bO", 40 * time.Millisecond, "P", "\x1bOP!"},
	} {
		t.Run(name, func(t *testing.T) {
			r, w, err := pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(r)
			defer unix.Close(w)
			synctest.Test(t, func(t *testing.T) {
				term := &terminal{p: &Process{done: make(chan struct{})}, master: w, typing: make(chan struct{}, 1)}
				term.typed([]byte(tt.begun))
				done := make(chan error)
				go func() { done <- term.inject([]byte("!")) }()
				time.Sleep(tt.then)
				term.typed([]byte(tt.rest))
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
			buf := make([]byte, 64)
			if n, err := unix.Read(r, buf); err != nil || string(buf[:n]) != tt.want {
				t.Errorf("%q, %v; want %q", buf[:max(n, 0)], err, tt.want)
			}
		})
	}
}

func TestInjectIntoAnAgentThatReadsNothing(t *testing.T) {
	p, s := startOnTerminal(t, "sh", "-c", "stty raw -echo; echo on; sleep 100")
	s.expect("on")
	big := bytes.Repeat([]byte("x"), 1<<20)
	go func() { _, _ = s.master.Write(big) }()
	eventually(t, "nothing more fits", func() bool {
		err := p.Inject([]byte("x"))
		if errors.Is(err, ErrEnded) {
			t.Fatal(err)
		}
		return err != nil
	})
	if err := p.Terminate(t.Context(), syscall.SIGTERM, time.Second); err != nil {
		t.Error(err)
	}
}

// As PID 1 we reap strangers, leave os/exec its children, and have an exit code
// for what we cannot die by.
func TestPID1(t *testing.T) {
	if err := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").Run(); err != nil {
		t.Skip("no PID namespace may be made here, so PID 1 is not tried: ", err)
	}
	out, status := sh(t, `unshare --pid --fork --mount-proc $BIN @wrap sh -c '
		for i in 1 2 3; do (setsid sh -c "exit 3" &); done
		sleep 0.5; for i in $(seq 600); do test $(ps -eo stat= | grep -c Z) = 0 && break; sleep 0.1; done; ps -eo stat= | grep -c Z; kill -TERM $$'`)
	if out != "0\n" || status != 143 {
		t.Errorf("%q, exit %d", out, status)
	}
	// A PID 1 cannot be stopped; the agent stays so until somebody continues it.
	out, status = sh(t, `unshare --pid --fork --mount-proc $BIN @wrap sh -c '
		(while sleep 0.3; do kill -CONT $$ 2>/dev/null; done) & kill -STOP $$; echo on again; exit 5'`)
	if out != "on again\n" || status != 5 {
		t.Errorf("%q, exit %d", out, status)
	}
}

func TestReaperLeavesOthersTheirChildren(t *testing.T) {
	adoptOrphans()
	stop := reapStrangers()
	defer stop()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			for range 10 {
				cmd := exec.Command("sh", "-c", fmt.Sprintf("(sleep 0.0%d; exit 1) & exit %d", i%10, i))
				if err := cmd.Start(); err != nil {
					t.Error(err)
					return
				}
				time.Sleep(10 * time.Millisecond) // it is over long before it is waited for
				if err := cmd.Wait(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != i {
					t.Errorf("%v, %v", err, cmd.ProcessState)
				}
			}
		})
	}
	wg.Wait()
	eventually(t, "no zombie of ours", func() bool {
		all, err := snapshot()
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			if p.Parent == os.Getpid() && p.State == 'Z' {
				return false
			}
		}
		return true
	})
}

func TestLookPath(t *testing.T) {
	dir := t.TempDir()
	a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
	for _, d := range []string{a, b, filepath.Join(a, "dir")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for file, mode := range map[string]os.FileMode{a + "/x": 0o600, b + "/x": 0o700, b + "/dir": 0o700, a + "/only": 0o600} {
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(b)
	path := a + ":" + b
	for _, c := range []struct {
		name, path, want string
		kind             error
	}{
		{"x", path, b + "/x", nil}, // what cannot be run is passed over
		{"dir", path, b + "/dir", nil},
		{"only", path, "", ErrNotExecutable},
		{"y", path, "", ErrNotFound},
		{"dir", a, "", ErrNotFound},
		{"x", a + ":", "./x", nil}, // an empty element is here
		{"x", ".", "./x", nil},
		{"./x", "", "./x", nil},
		{"../a/x", "", "", ErrNotExecutable},
		{a, "", "", ErrNotExecutable},
		{b + "/x/y", "", "", ErrNotFound},
		{"", path, "", ErrNotFound},
	} {
		got, err := LookPath(c.name, c.path)
		if got != c.want || !errors.Is(err, c.kind) || (err == nil) != (c.kind == nil) {
			t.Errorf("LookPath(%q, %q) = %q, %v; want %q, %v", c.name, c.path, got, err, c.want, c.kind)
		}
	}
}

// leaks gives what looks for goroutines that are left: those of now are not.
func leaks(t *testing.T) (check func()) {
	before := goleak.IgnoreCurrent()
	return func() {
		t.Helper()
		var err error
		for end := time.Now().Add(patience); time.Now().Before(end); { // each look takes half a second
			if err = goleak.Find(before); err == nil {
				return
			}
		}
		t.Error(err)
	}
}

func TestNoGoroutineIsLeft(t *testing.T) {
	defer leaks(t)()
	for range 3 {
		if x := start(t, Spec{TeeStdout: io.Discard}, "true").Wait(); x.Code != 0 {
			t.Errorf("%+v", x)
		}
		s := newScreen(t)
		p := start(t, Spec{Stdin: s.slave, Stdout: s.slave, Stderr: s.slave}, "true")
		if x := p.Wait(); x.Code != 0 {
			t.Errorf("%+v", x)
		}
		s.slave.Close()
		s.master.Close()
	}
}

// A pause that is over at once is no stop of the agent's own: the wrapper does
// not stop with it.
func TestShortPauses(t *testing.T) {
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("no /proc")
	}
	// Somebody else has to see that we are stopped.
	watch := exec.Command("sh", "-c", `while read _ _ state _ </proc/$0/stat; do case $state in T) echo stopped; kill -CONT $0;; esac; sleep 0.02; done`, strconv.Itoa(os.Getpid()))
	var seen bytes.Buffer
	watch.Stdout = &seen
	if err := watch.Start(); err != nil {
		t.Fatal(err)
	}
	p, _ := startOnTerminal(t, "sleep", "100000")
	for i := range 150 {
		_ = syscall.Kill(p.root, syscall.SIGSTOP) // the shim tells of it late
		if err := p.Pause(); err != nil {
			t.Fatal(err)
		}
		_ = syscall.Kill(p.root, syscall.SIGCONT)
		for begun := time.Now(); time.Since(begun) < time.Duration(i%30)*20*time.Microsecond; {
		}
		if err := p.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	_ = p.Signal(syscall.SIGKILL)
	p.Wait()
	_ = watch.Process.Kill()
	_ = watch.Wait()
	if seen.Len() > 0 {
		t.Errorf("we were stopped %d times", strings.Count(seen.String(), "stopped"))
	}
}
