package agent

import (
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// backingGrace is how long a server of ours may take to end when asked to.
const backingGrace = 3 * time.Second

// Backing is a server of the runtime's that we started, for a command of it
// that has none inside. It has no terminal, and a process group of its own: what
// is typed at the terminal is the command's. Where the system can do that, it
// ends with us however we end.
type Backing struct {
	cmd  *exec.Cmd
	log  *slog.Logger
	gone chan struct{}
	seen map[procID]bool
	mu   sync.Mutex
}

// StartBacking starts a server.
func StartBacking(s Spec) (*Backing, error) {
	b := &Backing{cmd: &exec.Cmd{Path: s.Path, Args: s.Args, Env: s.Env, Dir: s.Dir, SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}, log: s.Log,
		gone: make(chan struct{}), seen: map[procID]bool{}}
	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}
	endWithUs(b.cmd.SysProcAttr)
	started := make(chan error)
	go func() {
		// What ends with its parent ends with the parent's thread that started
		// it: this one must be there as long as the server.
		runtime.LockOSThread()
		err := b.cmd.Start()
		started <- err
		if err != nil {
			return
		}
		err = b.cmd.Wait()
		b.log.Debug("the server ended", "err", err)
		close(b.gone)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("the server could not be started: %w", err)
	}
	return b, nil
}

// Gone is closed when the server has ended.
func (b *Backing) Gone() <-chan struct{} { return b.gone }

// Pid is the server's.
func (b *Backing) Pid() int { return b.cmd.Process.Pid }

// tree lists the server and all that came of it.
func (b *Backing) tree() []Proc {
	all, err := snapshot()
	if err != nil {
		b.log.Warn("the server's processes cannot be listed", "err", err)
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	ended := false
	select {
	case <-b.gone:
		ended = true
	default:
	}
	list := descend(all, func(p Proc) bool { return b.seen[p.id()] || p.Pid == b.Pid() && !ended })
	for _, p := range list {
		b.seen[p.id()] = true
	}
	return list
}

// Stop ends the server and what it started.
func (b *Backing) Stop() {
	endAll(b.tree, backingGrace, b.log)
	select {
	case <-b.gone:
	case <-time.After(time.Second): // the kernel holds it
	}
}

// FreePort is a port of loopback that nobody listens at right now.
func FreePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("no free port on loopback: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// Adopt makes a process, and all that comes of it, one of the agent's: it is
// paused and ended with it.
func (p *Process) Adopt(pid int) {
	q, ok := procByID(pid)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.remembered[q.id()] = q
}
