package e2e

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// terminal is a person at a terminal: a PTY, what it shows, and keys.
type terminal struct {
	t   *testing.T
	cmd *exec.Cmd
	pty *os.File

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
	const rows, cols = 40, 100
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = w.dir(), w.environ()
	f, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: rows, Cols: cols})
	if err != nil {
		w.t.Fatal(err)
	}
	term := &terminal{t: w.t, cmd: cmd, pty: f, screen: newScreen(rows, cols),
		changed: make(chan struct{}), ended: make(chan struct{})}
	go term.read()
	go func() {
		term.err = cmd.Wait()
		close(term.ended)
	}()
	w.t.Cleanup(func() {
		select {
		case <-term.ended:
		default:
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGHUP)
			_ = f.Close()
			select {
			case <-term.ended:
			case <-time.After(5 * time.Second):
				_ = cmd.Process.Kill()
			}
		}
		_ = f.Close()
		if w.t.Failed() {
			w.t.Logf("the screen at the end:\n%s", term.text())
		}
	})
	return term
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

// see no more waits until the screen shows it no longer.
func (p *terminal) seeNoMore(pattern string) {
	p.t.Helper()
	re := regexp.MustCompile(pattern)
	p.until("the screen to show no more "+pattern, func() bool { return !re.MatchString(p.screen.text()) })
}

func (p *terminal) until(what string, ok func() bool) {
	p.t.Helper()
	deadline := time.After(patience)
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
		case <-deadline:
			p.t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// keys types.
func (p *terminal) keys(s string) {
	p.t.Helper()
	if _, err := io.WriteString(p.pty, s); err != nil {
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
	keyEsc    = "\x1b"
	keyCtrlC  = "\x03"
	keyCtrlZ  = "\x1a"
	keyReturn = "\r"
)

// lineDiscipline is the terminal's mode: a program that ends must leave it as
// it found it.
func (p *terminal) lineDiscipline() string {
	p.t.Helper()
	out, err := exec.Command("stty", "-g", "-F", ptsName(p.t, p.pty)).Output()
	if err != nil {
		p.t.Fatalf("stty: %v", err)
	}
	return strings.TrimSpace(string(out))
}

func ptsName(t *testing.T, f *os.File) string {
	t.Helper()
	// The slave's name, by the master's number.
	n, err := ptsNumber(f)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join("/dev/pts", n)
}

func ptsNumber(f *os.File) (string, error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return "", err
	}
	var n string
	var ioctlErr error
	err = raw.Control(func(fd uintptr) { n, ioctlErr = slaveNumber(fd) })
	return n, errors.Join(err, ioctlErr)
}
