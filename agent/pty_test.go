package agent

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// screen is the terminal that a user sits at, in a test: the outer side of a
// PTY, and what came out of it.
type screen struct {
	t      *testing.T
	master *os.File
	slave  *os.File // kept open to read its settings
	cmd    *exec.Cmd
	ended  chan error

	mu   sync.Mutex
	out  []byte
	at   int // of the last thing seen
	more *sync.Cond
}

// sit starts a command as the leader of a session on a new terminal.
func sit(t *testing.T, name string, args ...string) *screen {
	t.Helper()
	s := newScreen(t)
	s.cmd = exec.Command(name, args...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.slave, s.slave, s.slave
	s.cmd.Env = append(os.Environ(), "PS1=$ ", "TERM=xterm", "HISTFILE=", "BIN="+testBinary(t))
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	s.run()
	return s
}

func newScreen(t *testing.T) *screen {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	// A file that blocks in a read is not closed by Close before the next byte.
	fd, err := unix.FcntlInt(master.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	master.Close()
	master = os.NewFile(uintptr(fd), "screen")
	s := &screen{t: t, master: master, slave: slave, ended: make(chan error, 1)}
	s.more = sync.NewCond(&s.mu)
	s.resize(80, 24, 800, 480)
	return s
}

func (s *screen) run() {
	s.t.Helper()
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	go s.read()
	go func() { s.ended <- s.cmd.Wait() }()
	s.t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		s.slave.Close()
		s.master.Close()
		if s.t.Failed() {
			s.mu.Lock()
			defer s.mu.Unlock()
			tail := s.out
			if len(tail) > 4000 {
				tail = tail[len(tail)-4000:]
			}
			s.t.Logf("the screen held %d bytes, at last %q", len(s.out), tail)
		}
	})
}

func (s *screen) read() {
	buf := make([]byte, 64<<10)
	for {
		n, err := s.master.Read(buf)
		s.mu.Lock()
		s.out = append(s.out, buf[:n]...)
		s.more.Broadcast()
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func testBinary(t *testing.T) string {
	t.Helper()
	file, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// wrapped starts the wrapper itself on a new terminal.
func wrapped(t *testing.T, args ...string) *screen {
	t.Helper()
	return sit(t, testBinary(t), append([]string{"@wrap"}, args...)...)
}

// play gives the words that start one of the test's own agents.
func play(t *testing.T, args ...string) []string {
	return append([]string{testBinary(t), "@play"}, args...)
}

// shell starts a shell with job control on a new terminal.
func shell(t *testing.T) *screen {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip("bash is not installed: no shell with job control to try this under")
	}
	s := sit(t, "bash", "--norc", "--noprofile", "-i")
	s.expect("$ ")
	return s
}

func (s *screen) send(keys string) {
	s.t.Helper()
	if _, err := s.master.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// expect waits until text stands on the screen after what was expected last.
func (s *screen) expect(text string) {
	s.t.Helper()
	s.expectRE(regexp.QuoteMeta(text))
}

func (s *screen) expectRE(pattern string) []string {
	s.t.Helper()
	re := regexp.MustCompile(pattern)
	deadline := time.Now().Add(patience)
	stop := time.AfterFunc(time.Until(deadline), s.more.Broadcast)
	defer stop.Stop()
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if m := re.FindSubmatchIndex(s.out[s.at:]); m != nil {
			var groups []string
			for i := 0; i < len(m); i += 2 {
				groups = append(groups, string(s.out[s.at+m[i]:s.at+m[i+1]]))
			}
			s.at += m[1]
			return groups
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("%q did not come; after what came before: %q", pattern, s.out[s.at:])
		}
		s.more.Wait()
	}
}

// since is what stands on the screen after what was expected last.
func (s *screen) rest() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.out[s.at:])
}

func (s *screen) resize(cols, rows, x, y uint16) {
	s.t.Helper()
	if err := pty.Setsize(s.slave, &pty.Winsize{Cols: cols, Rows: rows, X: x, Y: y}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) settings() unix.Termios {
	s.t.Helper()
	t, err := unix.IoctlGetTermios(fdOf(s.slave), getTermios)
	if err != nil {
		s.t.Fatal(err)
	}
	return *t
}

// foreground is the process group that has the terminal.
func (s *screen) foreground() (group int) {
	s.t.Helper()
	conn, err := s.master.SyscallConn()
	if err == nil {
		_ = conn.Control(func(fd uintptr) { group, err = unix.IoctlGetInt(int(fd), unix.TIOCGPGRP) })
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return group
}

// fg has the shell, which has the terminal, give it to its job.
func (s *screen) fg() {
	s.t.Helper()
	own := s.foreground()
	s.send("fg\n")
	eventually(s.t, "the job's foreground", func() bool { return s.foreground() != own })
}

func isRaw(t unix.Termios) bool { return t.Lflag&(unix.ICANON|unix.ECHO|unix.ISIG) == 0 }

func (s *screen) waitRaw(want bool) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("the terminal raw: %v", want), func() bool { return isRaw(s.settings()) == want })
}

// status waits for the command's end, as a shell would tell it.
func (s *screen) status() int {
	s.t.Helper()
	select {
	case err := <-s.ended:
		s.ended <- err
		return shellStatus(s.t, s.cmd, err)
	case <-time.After(patience):
		s.t.Fatalf("the command goes on")
		return -1
	}
}

func shellStatus(t *testing.T, cmd *exec.Cmd, err error) int {
	t.Helper()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return exitOf(cmd.ProcessState.Sys().(syscall.WaitStatus)).Code
}

func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("never came: %s", what)
}

func running(pid int) bool {
	p, ok := procByID(pid)
	return ok && !p.over()
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(strings.TrimSpace(s))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// patience is how long a test waits for what comes at once on an idle machine:
// so long that only what never comes fails it.
const patience = time.Minute

// settle is for what should not happen to happen.
const settle = 100 * time.Millisecond

// sleeps waits until a script has started its sleep: a child of vfork that is
// stopped before its exec, and its parent with it, show as running to any shell.
func sleeps(t *testing.T, script int) {
	t.Helper()
	eventually(t, "its sleep", func() bool {
		all, _ := snapshot()
		for _, p := range descend(all, func(p Proc) bool { return p.Pid == script }) {
			if name, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.Pid)); string(name) == "sleep\n" {
				return true
			}
		}
		return false
	})
}

// fifo makes a pipe by name, at which a script can be kept without a child; open
// lets it go on.
func fifo(t *testing.T) (name string, open func()) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	return name, func() {
		t.Helper()
		eventually(t, "somebody at the pipe", func() bool {
			f, err := os.OpenFile(name, os.O_WRONLY|unix.O_NONBLOCK, 0)
			if err == nil {
				f.Close()
			}
			return err == nil
		})
	}
}

func TestTerminalKeepsEveryByte(t *testing.T) {
	t.Run("in", func(t *testing.T) {
		var all []byte
		for i := range 256 {
			all = append(all, byte(i))
		}
		all = append(all, "\x1b[200~p\xc3\xa4ste \xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x92\xbb\r\n\x1b[201~\x1b[97;5u\x1b[<0;10;10M"...)
		s := wrapped(t, play(t, "echo-hex", strconv.Itoa(len(all)))...)
		s.expect("ready.")
		s.send(string(all))
		s.expect(fmt.Sprintf("<%x>", all))
		if got := s.status(); got != 0 {
			t.Errorf("exit %d", got)
		}
	})
	t.Run("out", func(t *testing.T) {
		s := wrapped(t, play(t, "all-bytes")...)
		got := s.expectRE(`(?s)BEGIN(.*)END`)[1]
		for i := range 256 {
			if i >= len(got) || got[i] != byte(i) {
				t.Fatalf("byte %d is not itself in %q", i, got)
			}
		}
		if len(got) != 256 {
			t.Errorf("%d bytes came", len(got))
		}
	})
}

// With AEP_LONG set it is a hundred megabytes.
func TestTerminalFlood(t *testing.T) {
	n := 8 << 20
	if os.Getenv("AEP_LONG") != "" {
		n = 100 << 20
	}
	s := wrapped(t, play(t, "flood", strconv.Itoa(n))...)
	// However slow it is, as long as something comes.
	for seen := 0; seen < n; {
		eventually(t, "more of the flood", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			more := len(s.out) > seen
			seen = len(s.out)
			return more
		})
	}
	if got := s.status(); got != 0 {
		t.Fatalf("exit %d", got)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.out) != n {
		t.Fatalf("%d bytes of %d", len(s.out), n)
	}
	for i, b := range s.out {
		if b != floodByte(i) {
			t.Fatalf("byte %d is %#x, want %#x", i, b, floodByte(i))
		}
	}
}

func TestTerminalSize(t *testing.T) {
	s := wrapped(t, play(t, "sizes")...)
	s.expect("size=80x24/800x480.")
	for _, c := range []uint16{100, 33, 250} {
		s.resize(c, 40, c*10, 400)
		s.expect(fmt.Sprintf("size=%dx40/%dx400.", c, c*10))
	}
}

func TestTerminalSettingsAreTheUsers(t *testing.T) {
	s := newScreen(t)
	mine := s.settings()
	mine.Cc[unix.VERASE], mine.Cc[unix.VINTR] = 8, 7
	mine.Lflag &^= unix.ECHOCTL
	mine.Iflag |= unix.IUTF8
	if err := unix.IoctlSetTermios(fdOf(s.slave), setTermios, &mine); err != nil {
		t.Fatal(err)
	}
	mine = s.settings()
	s.cmd = exec.Command(testBinary(t), append([]string{"@wrap"}, play(t, "settings")...)...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.slave, s.slave, s.slave
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	s.run()
	s.expect(fmt.Sprintf("settings=%+v.", mine))
	if got := s.status(); got != 0 {
		t.Errorf("exit %d", got)
	}
	if now := s.settings(); now != mine {
		t.Errorf("the terminal was left with %+v, had %+v", now, mine)
	}
}

func TestTerminalExit(t *testing.T) {
	for _, c := range []struct {
		name, script string
		want         int
	}{
		{"zero", "exit 0", 0},
		{"code", "exit 7", 7},
		{"255", "exit 255", 255},
		{"term", "kill -TERM $$", 143},
		{"int", "kill -INT $$", 130},
		{"quit", "kill -QUIT $$", 131},
		{"segv", "kill -SEGV $$", 139},
		{"abrt", "kill -ABRT $$", 134},
		{"kill", "kill -KILL $$", 137},
		{"hup", "kill -HUP $$", 129},
		{"pipe", "kill -PIPE $$", 141},
		{"usr1", "kill -USR1 $$", 138},
		{"last words", "printf 'last words'", 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newScreen(t)
			before := s.settings()
			s.cmd = exec.Command(testBinary(t), "@wrap", "sh", "-c", c.script)
			s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.slave, s.slave, s.slave
			s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			s.run()
			if got := s.status(); got != c.want {
				t.Errorf("exit %d, want %d", got, c.want)
			}
			if c.name == "last words" {
				s.expect("last words")
			}
			if s.settings() != before {
				t.Error("the terminal's settings are not what they were")
			}
			if strings.Contains(s.rest(), "goroutine") {
				t.Errorf("a traceback: %q", s.rest())
			}
		})
	}
}

func TestTerminalStderrElsewhere(t *testing.T) {
	file := filepath.Join(t.TempDir(), "err")
	s := sit(t, "sh", "-c", `exec "$BIN" @wrap sh -c 'test ! -t 2 && test -t 0 && test -t 1 && echo to-err >&2; echo to-out' 2>`+file)
	s.expect("to-out")
	if got := s.status(); got != 0 {
		t.Errorf("exit %d", got)
	}
	if b, _ := os.ReadFile(file); string(b) != "to-err\n" {
		t.Errorf("stderr got %q", b)
	}
	if strings.Contains(s.rest(), "to-err") {
		t.Error("stderr came to the terminal")
	}
}

// A shell sees of the job what it would see of the agent.
func TestSuspend(t *testing.T) {
	t.Run("a program that catches nothing", func(t *testing.T) {
		s := shell(t)
		gate, open := fifo(t)
		s.send("$BIN @wrap sh -c 'echo me=$$; : <" + gate + "; read x; echo got-$x; exit 9'\n")
		pid := atoi(t, s.expectRE(`me=(\d+)`)[1])
		s.waitRaw(true)
		for i := range 3 {
			if i == 1 {
				open()
			}
			s.send("\x1a")
			s.expect("Stopped")
			s.expect("$ ")
			s.send("echo sh-$((40+2))\n") // the shell has its terminal back
			s.expect("sh-42")
			s.send("fg\n")
			s.expect("$BIN")
			s.waitRaw(true)
			eventually(t, "the agent goes on", func() bool { p, ok := procByID(pid); return ok && !p.stopped() })
		}
		s.send("hello\n")
		s.expect("got-hello")
		s.expect("$ ")
		s.send("echo =$?=\n")
		s.expect("=9=")
	})
	t.Run("a TUI that stops its group", func(t *testing.T) {
		s := shell(t)
		s.send("$BIN @wrap $BIN @play tui\n")
		s.expect("ui-on.")
		for range 3 {
			s.send("a")
			s.expect("key=61.")
			s.send("\x1a")
			s.expect("\x1b[?2004l\x1b[?1049lui-off.") // its last output is there before the shell speaks
			s.expect("Stopped")
			s.expect("$ ")
			s.resize(90, 30, 0, 0)
			s.send("fg\n")
			s.expect("back.")
			s.expect("ui-on.")
		}
		s.send("q")
		s.expect("ui-off.")
		s.expect("$ ")
		s.send("echo =$?=\n")
		s.expect("=0=")
	})
	t.Run("in the background and back", func(t *testing.T) {
		s := shell(t)
		gate, open := fifo(t)
		s.send("$BIN @wrap sh -c 'echo on$((1+1)); : <" + gate + "; echo sti''ll; read x; echo got-$x; exit 8'\n")
		s.expect("on2")
		s.waitRaw(true)
		s.send("\x1a")
		s.expect("Stopped")
		s.expect("$ ")
		s.send("bg\n")
		open()
		s.expect("still") // its output goes on
		s.send("echo sh-$((40+2))\n")
		s.expect("sh-42")
		eventually(t, "a stop by reading from the background", func() bool {
			s.send("jobs\n")
			time.Sleep(100 * time.Millisecond)
			return strings.Contains(s.rest(), "Stopped")
		})
		s.send("fg\n")
		s.waitRaw(true)
		s.send("hello\n")
		s.expect("got-hello")
		s.expect("$ ")
		s.send("echo =$?=\n")
		s.expect("=8=")
	})
	t.Run("started in the background", func(t *testing.T) {
		s := shell(t)
		s.send("$BIN @wrap sh -c 'read x; echo got-$x; exit 8' &\n")
		eventually(t, "a stop by reading from the background", func() bool {
			s.send("jobs\n")
			time.Sleep(100 * time.Millisecond)
			return strings.Contains(s.rest(), "Stopped")
		})
		s.send("fg\n")
		s.waitRaw(true)
		s.send("hello\n")
		s.expect("got-hello")
		s.expect("$ ")
		s.send("echo =$?=\n")
		s.expect("=8=")
	})
	t.Run("by fg while it runs in the background", func(t *testing.T) {
		s := shell(t)
		gate, open := fifo(t)
		s.send("$BIN @wrap sh -c 'echo on$((1+1)); : <" + gate + "; read x; echo got-$x' &\n")
		s.expect("on2")
		s.send("fg\n")
		s.waitRaw(true)
		open()
		s.send("hello\n")
		s.expect("got-hello")
	})
	t.Run("a stop that cannot be caught", func(t *testing.T) {
		s := shell(t)
		s.send("$BIN @wrap sh -c 'echo me=$$; read x; echo got-$x'\n")
		pid := atoi(t, s.expectRE(`me=(\d+)`)[1])
		s.waitRaw(true)
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		s.expect("Stopped")
		s.send("fg\n")
		s.waitRaw(true)
		s.send("hello\n")
		s.expect("got-hello")
	})
	t.Run("the wrapper is stopped", func(t *testing.T) {
		s := shell(t)
		s.send("$BIN @wrap sh -c 'echo parent=$PPID; read x; echo got-$x'\n")
		shim := atoi(t, s.expectRE(`parent=(\d+)`)[1])
		s.waitRaw(true)
		p, _ := procByID(shim)
		for _, sig := range []syscall.Signal{syscall.SIGTSTP, syscall.SIGSTOP} {
			_ = syscall.Kill(p.Parent, sig)
			s.expect("Stopped")
			s.expect("$ ")
			s.send("fg\n")
			s.expect("$BIN")
			s.waitRaw(true)
		}
		s.send("hello\n")
		s.expect("got-hello")
	})
	t.Run("where no shell looks after us", func(t *testing.T) {
		s := wrapped(t, "sh", "-c", "echo on; read x; echo got-$x")
		s.expect("on")
		s.waitRaw(true)
		s.send("\x1a")
		time.Sleep(300 * time.Millisecond)
		s.send("hello\n")
		s.expect("got-hello")
	})
}

// An agent that was started in the background finds, when it first gets the
// terminal, the settings that it would find without us: those of a shell's
// command, not of the shell's line editor, who had the terminal meanwhile.
func TestSettingsOfTheFirstForeground(t *testing.T) {
	// Starts body in the background while the shell edits, and calls fg when
	// it runs. At is what it prints after "a2:", of its own terminal.
	run := func(t *testing.T, wrap, body string, fg func(s *screen)) (at string) {
		dir := t.TempDir()
		exists := func(name string) bool {
			_, err := os.Stat(filepath.Join(dir, name))
			return err == nil
		}
		s := shell(t)
		s.send("cd " + dir + "; (until test -e edits; do sleep 0.02; done; exec " + wrap + " sh -c '" + body + "') &\n")
		s.expectRE(`\[1\] \d+`)
		editing := func() bool { t := s.settings(); return t.Lflag&unix.ICANON == 0 && t.Lflag&unix.ISIG != 0 }
		eventually(t, "the shell edits", editing)
		if err := os.WriteFile(filepath.Join(dir, "edits"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the agent's start", func() bool { return exists("runs") })
		if !editing() {
			t.Error("the shell does not edit")
		}
		fg(s)
		return s.expectRE(`a2:(\S+)`)[1]
	}
	stopped := func(s *screen) {
		eventually(s.t, "a stop by reading from the background", func() bool {
			s.send("jobs\n")
			time.Sleep(settle)
			return strings.Contains(s.rest(), "Stopped")
		})
		s.fg()
		s.send("word\n")
	}
	running := func(s *screen) { s.send("fg\n") } // of which nobody tells a wrapper
	const inForeground = "until test $(ps -o tpgid= -p $$) -eq $(ps -o pgid= -p $$); do sleep 0.02; done; "
	for _, c := range []struct {
		name, body string
		fg         func(*screen)
	}{
		{"stopped", ": >runs; read x; echo a$((1+1)):$(stty -g)", stopped},
		{"running", ": >runs; " + inForeground + "echo a$((1+1)):$(stty -g)", running},
	} {
		t.Run(c.name, func(t *testing.T) {
			bare := run(t, "", c.body, c.fg)
			if got := run(t, "$BIN @wrap", c.body, c.fg); got != bare {
				t.Errorf("settings %s, without us %s", got, bare)
			}
		})
	}
	t.Run("but what it has set itself stays", func(t *testing.T) {
		body := `trap "" TTOU; stty intr ^X -echo; stty -g >set; : >runs; ` + inForeground + `test $(stty -g) = $(cat set) && echo a$((1+1)):kept || echo a$((1+1)):lost`
		if got := run(t, "$BIN @wrap", body, running); got != "kept" {
			t.Error("they are lost")
		}
	})
	t.Run("keys", func(t *testing.T) {
		run(t, "$BIN @wrap", ": >runs; cat; echo a$((1+1)):its-end", func(s *screen) {
			stopped(s)
			s.expect("word\r\nword\r\n") // echoed, and by cat
			s.send("\x04")
		})
	})
	t.Run("after a later stop they are the agent's", func(t *testing.T) {
		s := shell(t)
		s.send("$BIN @wrap sh -c 'stty -echo intr ^X; stty -g; echo me=$$; read x; stty -g; echo end'\n")
		m := s.expectRE(`([0-9a-f:]{40,})\s+me=(\d+)`)
		s.waitRaw(true)
		s.send("\x1a")
		s.expect("Stopped")
		s.expect("$ ")
		s.send("fg\n")
		s.waitRaw(true)
		s.send("word\n")
		if got := s.expectRE(`([0-9a-f:]{40,})\s+end`)[1]; got != m[1] {
			t.Errorf("settings %s, were %s", got, m[1])
		}
	})
}

// What was typed before the wrapper came is the agent's, and on the screen
// once.
func TestTypedAhead(t *testing.T) {
	line := strings.Repeat("a line of twenty ch\n", 150)
	lines := strings.ReplaceAll(line, "\n", "\r\n")
	for _, c := range []struct{ name, early, seen, then, at string }{
		{"lines", "one\ntwo\n", "one\r\ntwo\r\none\r\ntwo\r\n", "\x04", ""},
		{"the beginning of one", "one\ntw", "one\r\ntwone\r\n", "o\n\x04", "o\r\ntwo\r\n"},
		{"nothing but a beginning", "on", "on", "e\n\x04", "e\r\none\r\n"},
		{"an end", "one\n\x04", "one\r\none\r\n", "", ""},
		{"an end within a line", "on\x04", "onon", "e\n\x04", "e\r\ne\r\n"},
		{"a correction", "oxx\x7f\x7fne", "oxx\b \b\b \bne", "x\x7f\n\x04", "x\b \b\r\none\r\n"},
		{"many", line, lines + lines, "\x04", ""},
	} {
		for _, command := range [][]string{{"cat"}, {testBinary(t), "@wrap", "cat"}} {
			t.Run(fmt.Sprintf("%s, wrapped: %v", c.name, len(command) > 1), func(t *testing.T) {
				t.Parallel()
				s := newScreen(t)
				s.send(c.early)
				s.cmd = exec.Command(command[0], command[1:]...)
				s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.slave, s.slave, s.slave
				s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
				s.run()
				s.expect(c.seen)
				if c.then != "" {
					s.waitRaw(len(command) > 1)
					s.send(c.then)
				}
				if got := s.status(); got != 0 {
					t.Errorf("exit %d", got)
				}
				s.expect(c.at)
				time.Sleep(settle)
				if s.at != len(c.seen)+len(c.at) || s.rest() != "" {
					t.Errorf("the screen has %q, want %q", s.out, c.seen+c.at)
				}
			})
		}
	}
}

func TestInterrupt(t *testing.T) {
	s := shell(t)
	s.send("$BIN @wrap sh -c 'echo on$((1+1)); exec sleep 1000'; echo =$?=\n")
	s.expect("on2")
	s.waitRaw(true)
	s.send("\x03")
	// bash abandons the list when its command died of the signal, as it does
	// without us.
	s.expect("$ ")
	s.send("echo =$?=\n")
	s.expect("=130=")
}

func TestSignalsArePassedOn(t *testing.T) {
	s := wrapped(t, play(t, "report")...)
	s.expect("ready.")
	for _, c := range []struct {
		sig  syscall.Signal
		want string
	}{
		{syscall.SIGINT, "got interrupt."}, {syscall.SIGQUIT, "got quit."}, {syscall.SIGHUP, "got hangup."},
		{syscall.SIGUSR1, "got user defined signal 1."}, {syscall.SIGTERM, "got terminated."},
	} {
		_ = s.cmd.Process.Signal(c.sig)
		s.expect(c.want)
	}
	if got := s.status(); got != 42 {
		t.Errorf("exit %d, want the agent's 42", got)
	}
	if isRaw(s.settings()) {
		t.Error("the terminal is raw")
	}
}

// What the agent leaves running at a normal end keeps running, and keeps its
// terminal.
func TestBackgroundSurvivesANormalEnd(t *testing.T) {
	s := shell(t)
	gate, open := fifo(t)
	s.send("$BIN @wrap sh -c '(: <" + gate + "; echo late-$((40+2)); tty <&1; exec sleep 1000) & echo pid=$!; exit 3'; echo =$?=\n")
	pid := atoi(t, s.expectRE(`pid=(\d+)`)[1])
	s.expect("=3=") // at once
	open()
	s.expect("late-42")
	s.expectRE(`/dev/\w+`)
	if !running(pid) {
		t.Error("it was ended")
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	eventually(t, "the shim's end", func() bool {
		all, _ := snapshot()
		for _, p := range all {
			if b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.Pid)); bytes.HasPrefix(b, []byte(shimName)) && p.Start > 0 && p.Parent == s.cmd.Process.Pid {
				return false
			}
		}
		return true
	})
}

// One that never stops writing does not keep the wrapper.
func TestEndWhileAnotherWrites(t *testing.T) {
	s := shell(t)
	s.send("$BIN @wrap sh -c 'yes & echo pid=$!; sleep 0.3; exit 3'; echo =$?=\n")
	pid := atoi(t, s.expectRE(`pid=(\d+)`)[1])
	s.expect("=3=")
	if !running(pid) {
		t.Error("it was ended")
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// After an end by a signal nothing of it is left, in other sessions neither,
// and the terminal has its modes back.
func TestSignalledEndLeavesNothing(t *testing.T) {
	s := wrapped(t, "sh", "-c", `
		setsid sh -c 'echo one=$$; trap "" TERM; while :; do sleep 1; done' &
		(setsid sh -c 'echo two=$$; exec sleep 100' &)
		sleep 0.5
		printf '\033[?1049h\033[?2004h\033[?25l'; echo up; exec sleep 100`)
	one := atoi(t, s.expectRE(`one=(\d+)`)[1])
	s.mu.Lock()
	s.at = 0
	s.mu.Unlock()
	two := atoi(t, s.expectRE(`two=(\d+)`)[1])
	s.expect("up")
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	if got := s.status(); got != 143 {
		t.Errorf("exit %d", got)
	}
	for _, pid := range []int{one, two} {
		if running(pid) {
			t.Errorf("%d is left", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	for _, seq := range []string{"\x1b[?1049l", "\x1b[?2004l", "\x1b[?25h"} {
		s.expect(seq)
	}
	if isRaw(s.settings()) {
		t.Error("the terminal is raw")
	}
}

func TestNothingIsUndoneAtANormalEnd(t *testing.T) {
	s := wrapped(t, "sh", "-c", `printf '\033[?1049h\033[?25lup'`)
	s.expect("up")
	if got := s.status(); got != 0 {
		t.Errorf("exit %d", got)
	}
	time.Sleep(settle)
	if s.rest() != "" {
		t.Errorf("the wrapper wrote %q", s.rest())
	}
}

// The shim knows how to undo what the agent did to the screen before that is
// there: the wrapper may be killed right after.
func TestTheShimIsAheadOfTheScreen(t *testing.T) {
	pair, err := socketpair()
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*wire
	for i := range pair {
		if ends[i], err = newWire(pair[i]); err != nil {
			t.Fatal(err)
		}
		defer ends[i].close()
	}
	term := &terminal{p: &Process{}, shim: ends[0]}
	const on, off = "\x1b[?1049h", "\x1b[?1049l"
	for _, out := range []string{on, off} {
		term.follow([]byte(out + "text"))
		_ = ends[1].conn.SetReadDeadline(time.Now().Add(time.Second)) // it is there, or never
		if kind, body, _, err := ends[1].receive(); err != nil || kind != msgUndo || bytes.Contains(body, []byte(off)) != (out == on) {
			t.Errorf("%q: the shim hears %q %q, %v", out, kind, body, err)
		}
	}
}

// The wrapper's death, which it cannot help, leaves a usable terminal, and the
// agent is hung up on.
func TestWrapperDies(t *testing.T) {
	crash := filepath.Join(t.TempDir(), "now")
	for _, c := range []struct {
		name string
		args []string
		die  func(wrapper *os.Process) error
	}{
		{"by SIGKILL", nil, func(wrapper *os.Process) error { return wrapper.Kill() }},
		{"by a crash", []string{"panic=" + crash}, func(*os.Process) error { return os.WriteFile(crash, nil, 0o600) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScreen(t)
			before := s.settings()
			s.cmd = exec.Command(testBinary(t), append(append([]string{"@wrap"}, c.args...), play(t, "mess")...)...)
			s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.slave, s.slave, s.slave
			s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
			s.run()
			s.expect("mess.")
			all, _ := snapshot()
			tree := descend(all, func(p Proc) bool { return p.Parent == s.cmd.Process.Pid })
			if len(tree) != 2 {
				t.Fatalf("a shim and an agent: %v", tree)
			}
			if err := c.die(s.cmd.Process); err != nil {
				t.Fatal(err)
			}
			s.status()
			eventually(t, "the settings as before", func() bool { return s.settings() == before })
			s.expect("\x1b[?1049l")
			s.expect("\x1b[?25h")
			eventually(t, "the end of agent and shim", func() bool { return !running(tree[0].Pid) && !running(tree[1].Pid) })
		})
	}
}

// When the user's window is closed the agent hears of it as without us.
func TestHangup(t *testing.T) {
	file := filepath.Join(t.TempDir(), "hup")
	s := newScreen(t)
	s.cmd = exec.Command(testBinary(t), append([]string{"@wrap"}, play(t, "hup-file", file)...)...)
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.slave, s.slave, s.slave
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	s.run()
	s.expect("ready.")
	s.slave.Close()
	s.master.Close()
	if got := s.status(); got != 5 {
		t.Errorf("exit %d, want the agent's 5", got)
	}
	if b, _ := os.ReadFile(file); string(b) != "hup, then true" {
		t.Errorf("the agent was told %q", b)
	}
}

// A window that is closed over a suspended job ends it.
func TestHangupWhileSuspended(t *testing.T) {
	s := shell(t)
	s.send("$BIN @wrap sh -c 'echo me=$$; sleep 1000; echo'\n")
	pid := atoi(t, s.expectRE(`me=(\d+)`)[1])
	s.waitRaw(true)
	sleeps(t, pid)
	s.send("\x1a")
	s.expect("Stopped")
	agent, _ := procByID(pid)
	shim, _ := procByID(agent.Parent)
	s.slave.Close()
	s.master.Close()
	for _, pid := range []int{agent.Pid, shim.Pid, shim.Parent} {
		eventually(t, "the end of all", func() bool { return !running(pid) })
	}
}

// Without its session's leader the agent is hung up on.
func TestShimDies(t *testing.T) {
	s := newScreen(t)
	before := s.settings()
	s.cmd = exec.Command(testBinary(t), "@wrap", "sh", "-c", "setsid sleep 100 & trap '' HUP; echo bg=$!,me=$$,; while :; do sleep 0.1; done")
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = s.slave, s.slave, s.slave
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	s.run()
	m := s.expectRE(`bg=(\d+),me=(\d+),`)
	agent, _ := procByID(atoi(t, m[2]))
	_ = syscall.Kill(agent.Parent, syscall.SIGKILL)
	if got := s.status(); got != 129 {
		t.Errorf("exit %d", got)
	}
	for _, pid := range []string{m[1], m[2]} {
		if running(atoi(t, pid)) {
			t.Errorf("%s is left", pid)
		}
	}
	if s.settings() != before {
		t.Error("the terminal's settings are not what they were")
	}
}

func TestTerminalTee(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tee")
	s := wrapped(t, "tee="+file, "--", "sh", "-c", "test -t 1 && printf 'a line'")
	s.expect("a line")
	if got := s.status(); got != 0 {
		t.Errorf("exit %d", got)
	}
	if b, _ := os.ReadFile(file); string(b) != "a line" {
		t.Errorf("the copy is %q", b)
	}
}
