package e2e

import (
	"io"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// terminal is a person at a terminal: a PTY, what it shows, and keys.
type terminal struct {
	t      *testing.T
	pty    *os.File // the window's side
	typing *os.File // where keys go, when that is another terminal
	slave  *os.File // the program's side
	before unix.Termios

	mu      sync.Mutex
	screen  *screen
	raw     []byte
	changed chan struct{}
	closed  bool

	ended chan struct{}
	err   error
}

// open runs a command of the world on a terminal of 100 columns.
func (w *world) open(argv ...string) *terminal {
	w.t.Helper()
	return w.openOn(nil, nil, argv...)
}

// openApart is open for a command whose input is another terminal than its
// output.
func (w *world) openApart(argv ...string) *terminal {
	w.t.Helper()
	opened, slave, err := pty.Open()
	if err != nil {
		w.t.Fatal(err)
	}
	master := pollable(w.t, opened)
	w.t.Cleanup(func() { _, _ = slave.Close(), master.Close() })
	return w.openOn(master, slave, argv...)
}

func (w *world) openOn(typing, input *os.File, argv ...string) *terminal {
	w.t.Helper()
	const rows, cols = 40, 100
	opened, slave, err := pty.Open()
	if err != nil {
		w.t.Fatal(err)
	}
	master := pollable(w.t, opened)
	if err := pty.Setsize(master, &pty.Winsize{Rows: rows, Cols: cols}); err != nil {
		w.t.Fatal(err)
	}
	term := &terminal{t: w.t, pty: master, typing: typing, slave: slave, screen: newScreen(rows, cols),
		changed: make(chan struct{}), ended: make(chan struct{})}
	term.before = term.mode()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = w.dir(), w.environ()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if input != nil {
		cmd.Stdin = input
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go term.read()
	go func() {
		term.err = cmd.Wait()
		close(term.ended)
	}()
	w.t.Cleanup(func() {
		select {
		case <-term.ended:
		default:
			term.hangUp()
			select {
			case <-term.ended:
			case <-time.After(5 * time.Second):
				_ = cmd.Process.Kill()
			}
		}
		_ = master.Close()
		if w.t.Failed() {
			w.t.Logf("the screen at the end:\n%s", term.text())
		}
	})
	return term
}

// pollable gives f's descriptor to Go's poller: closing a file that is being
// read in the ordinary way waits for the read, and a window would never close.
func pollable(t *testing.T, f *os.File) *os.File {
	t.Helper()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	_ = f.Close()
	return os.NewFile(uintptr(fd), f.Name())
}

// hangUp closes the window.
func (p *terminal) hangUp() {
	_ = p.slave.Close()
	_ = p.pty.Close()
}

// mode is the terminal's line discipline: a program that ends must leave it as
// it found it. The test holds the terminal open, or the kernel would put it
// right by itself.
func (p *terminal) mode() unix.Termios {
	p.t.Helper()
	m, err := unix.IoctlGetTermios(int(p.slave.Fd()), getTermios)
	if err != nil {
		p.t.Fatal(err)
	}
	return *m
}

// restored fails the test when the command left the terminal's mode changed.
func (p *terminal) restored() {
	p.t.Helper()
	if after := p.mode(); after != p.before {
		p.t.Errorf("the terminal is left as %+v, it was %+v", after, p.before)
	}
}

func (p *terminal) read() {
	b := make([]byte, 32<<10)
	for {
		n, err := p.pty.Read(b)
		p.mu.Lock()
		_, _ = p.screen.Write(b[:n])
		p.raw = append(p.raw, b[:n]...)
		p.closed = err != nil
		close(p.changed)
		p.changed = make(chan struct{})
		p.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (p *terminal) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.screen.text()
}

// see waits until the screen shows what the pattern says.
func (p *terminal) see(pattern string) {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	p.until("the screen to show "+pattern, func() bool { return re.MatchString(p.screen.text()) })
}

func (p *terminal) until(what string, ok func() bool) {
	p.t.Helper()
	deadline, ended, why := time.After(patience), p.ended, ""
	for {
		p.mu.Lock()
		done, closed, changed := ok(), p.closed, p.changed
		p.mu.Unlock()
		if done {
			return
		}
		if closed {
			p.t.Fatalf("the terminal was closed; waited for %s", what)
		}
		select {
		case <-changed:
		case <-ended: // what it wrote last may still be on its way
			ended, deadline, why = nil, time.After(2*time.Second), "the command has ended; "
		case <-deadline:
			p.t.Fatalf("%swaited up to %v for %s", why, patience, what)
		}
	}
}

// keys types.
func (p *terminal) keys(s string) {
	p.t.Helper()
	to := p.pty
	if p.typing != nil {
		to = p.typing
	}
	if _, err := io.WriteString(to, s); err != nil {
		p.t.Fatal(err)
	}
}

// enter types a line: the words, seen on the screen, and then Return, as a
// person does; words and Return in one burst are a paste to some programs.
func (p *terminal) enter(s string) {
	p.t.Helper()
	p.keys(s)
	p.see(regexp.QuoteMeta(s))
	p.keys("\r")
}

// press answers a dialog as a person does: some take no key in their first
// moment, lest one that was meant for something else approves. It is pressed
// anew only when the first surely was not taken: a second would be typed into
// what comes after the dialog.
func (p *terminal) press(dialog, key string) {
	p.t.Helper()
	p.see(dialog)
	re := regexp.MustCompile(dialog)
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		p.keys(key)
		for range 50 {
			if !re.MatchString(p.text()) {
				return
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	p.t.Fatalf("waited %v for the dialog to go: %s", patience, dialog)
}

// wait waits for the command's end and gives its exit code.
func (p *terminal) wait() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(patience):
		p.t.Fatalf("the command did not end in %v", patience)
	}
	return exitCode(p.t, p.err)
}

const (
	keyEsc   = "\x1b"
	keyRight = "\x1b[C"
	keyCtrlZ = "\x1a"
)
