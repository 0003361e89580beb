package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Spec says what to start and on which descriptors.
type Spec struct {
	Path string   // the file to run, as LookPath gives it
	Args []string // argv; Args[0] is the command as the user typed it
	Env  []string
	Dir  string // "" is the current directory

	// Where Stdin and Stdout are the same terminal the agent gets a PTY in its
	// place, else these very descriptors. Stderr that is not that terminal is
	// handed on as it is.
	Stdin, Stdout, Stderr *os.File
	// TeeStdout, where it is set, gets a copy of what the agent writes on its
	// standard output; it may be as slow as it likes, see Process.TeeDropped.
	// The agent's output must not be turned from a terminal into a pipe for it:
	// where Stdout alone is a terminal there is no copy. On a PTY the copy is
	// what the terminal is sent, with lines that end in CR LF.
	TeeStdout io.Writer
	// ExtraFiles are open in the agent under the numbers that ExtraFD says.
	ExtraFiles []*os.File

	Log *slog.Logger
}

func (s *Spec) name() string {
	if len(s.Args) > 0 {
		return s.Args[0]
	}
	return s.Path
}

// How long what the agent leaves behind has to go, when it did not end by
// itself.
const descendantsGrace = 2 * time.Second

// ErrEnded is what a call about an agent gives when that has ended.
var ErrEnded = errors.New("the agent has ended")

// Process is an agent that was started. Its methods may be called from any
// goroutine.
type Process struct {
	spec Spec
	pid  int
	// start is when the agent, or the shim, began: in the kernel's own clock.
	start uint64
	root  int // on a PTY the shim, below which the agent's processes are; else 0
	sigs  *caught
	term  *terminal // nil without a PTY
	tee   *tee      // nil without a copy

	mu         sync.Mutex
	reaped     bool // the agent's pid is no longer ours
	stops      int  // of an agent without a PTY, as far as they were taken from the kernel
	passed     syscall.Signal
	passedAt   time.Time
	terminated bool
	paused     []Proc // what Pause stopped
	isPaused   bool
	remembered map[procID]Proc // of the tree, from when it was looked at

	pausing sync.Mutex // Pause and Resume, one at a time
	exit    Exit
	done    chan struct{}
}

// Start starts the agent and, until it has ended, takes over this process's
// signals and the user's terminal. Who starts an agent must Wait for it. A
// process of the wrapper's own that outlives its start must be waited for by
// its os.Process, not released: a child that nobody waits for counts as one
// that the agent left behind.
//
// A PTY that cannot be had, or a shim that cannot be started, is logged, and
// the agent is started without. An agent that cannot be started is a
// *LaunchError.
func Start(s Spec) (*Process, error) {
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	if s.Dir != "" {
		if info, err := os.Stat(s.Dir); err != nil {
			return nil, fmt.Errorf("the directory to start in: %w", err)
		} else if !info.IsDir() {
			return nil, fmt.Errorf("the directory to start in: %s is none", s.Dir)
		}
	}
	p := &Process{spec: s, done: make(chan struct{}), remembered: map[procID]Proc{}}
	if dev, ok := terminalDev(fdOf(s.Stdin)); ok {
		if out, ok := terminalDev(fdOf(s.Stdout)); ok && out == dev {
			err := startTerminal(p)
			var cannot *noPTYError
			if !errors.As(err, &cannot) {
				return p.started(err)
			}
			s.Log.Warn("the agent runs without a terminal of its own", "err", cannot.err)
		}
	}
	return p.started(p.startDirect())
}

func (p *Process) started(err error) (*Process, error) {
	if err != nil {
		return nil, err
	}
	p.spec.Log.Debug("agent started", "pid", p.pid, "pty", p.term != nil)
	return p, nil
}

// startDirect starts the agent on our descriptors and in our process group.
func (p *Process) startDirect() error {
	s := &p.spec
	std := [3]int{fdOf(s.Stdin), fdOf(s.Stdout), fdOf(s.Stderr)}
	if s.TeeStdout != nil && !isTerminal(std[1]) {
		t, childEnd, err := newTee(std[1], s.TeeStdout)
		if err != nil {
			return fmt.Errorf("a pipe for the agent's output: %w", err)
		}
		defer unix.Close(childEnd)
		p.tee, std[1] = t, childEnd
	}
	extra := make([]int, len(s.ExtraFiles))
	for i, f := range s.ExtraFiles {
		extra[i] = fdOf(f)
	}
	files, _ := table(std, extra...)

	p.sigs = catch(append(passedOn, syscall.SIGTSTP)...)
	adoptOrphans()
	_, hadTTY := inForeground()
	pid, err := spawn(s.Path, s.Args, s.Env, s.Dir, files, nil)
	if err != nil {
		p.sigs.stop()
		if p.tee != nil {
			p.tee.abandon()
		}
		return launchError(s.name(), s.Path, err)
	}
	p.pid = pid
	if self, ok := procByID(pid); ok {
		p.start = self.Start
	}
	if p.tee != nil {
		go p.tee.run()
	}
	go p.runDirect(hadTTY)
	return nil
}

// runDirect looks after an agent without a PTY until its end.
func (p *Process) runDirect(hadTTY bool) {
	stopReaper := reapStrangers()
	changes := make(chan syscall.WaitStatus)
	over := make(chan error, 1)
	go func() {
		for {
			st, err := p.waitAgent()
			if err != nil {
				over <- err
				return
			}
			changes <- st
			if !st.Stopped() {
				return
			}
		}
	}()
	var st syscall.WaitStatus
	stops := 0 // heard of
	for ended := false; !ended; {
		select {
		case sig := <-p.sigs.ch:
			p.passDirect(sig.(syscall.Signal), hadTTY)
		case <-p.sigs.cont:
			p.continued(stops)
		case err := <-over:
			p.spec.Log.Error("the agent's end was taken by somebody else", "err", err)
			p.mu.Lock()
			p.reaped = true
			p.mu.Unlock()
			st, ended = 255<<8, true
		case st = <-changes:
			if st.Stopped() {
				stops++
				p.mirrorStop(st.StopSignal(), stops)
			} else {
				ended = true
			}
		}
	}
	disown(p.pid)
	x := p.ended(st)
	if p.unnatural(x) {
		p.endDescendants()
	}
	if p.tee != nil {
		p.tee.finish(p.spec.Log)
	}
	stopReaper()
	p.sigs.stop()
	p.finish(x)
}

// passDirect passes a signal on to an agent in our process group, unless the
// terminal gave it that already.
func (p *Process) passDirect(sig syscall.Signal, hadTTY bool) {
	switch sig {
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP:
		if fg, _ := inForeground(); !fg {
			p.pass(sig, p.signalAgent)
		}
	case syscall.SIGHUP:
		if _, has := inForeground(); has || !hadTTY {
			p.pass(sig, p.signalAgent)
		}
	default:
		p.pass(sig, p.signalAgent)
	}
}

// mirrorStop stops us because the agent was stopped. We do not stop before it
// does, and not when it ignores the request: the shell then sees of its job
// what it would see of the agent.
func (p *Process) mirrorStop(sig syscall.Signal, stops int) {
	// We may have been stopped with it, by a signal to the group that cannot be
	// caught, and hear of it only now that both go on.
	for range 2 {
		time.Sleep(2 * time.Millisecond)
		if !p.haltedByOthers() {
			return
		}
	}
	if p.sigs.suspend(sig, false) {
		p.continued(stops)
	}
}

// continued is called when we were continued, and had heard of so many stops.
// A shell continues the group, and the agent with us; who continued us alone
// meant the agent. One that has stopped anew since is left to its stop.
func (p *Process) continued(stops int) {
	time.Sleep(10 * time.Millisecond)
	if p.haltedByOthers() && !p.stoppedSince(stops) {
		_ = p.signalAgent(syscall.SIGCONT)
	}
}

// stoppedSince says whether the agent has stopped more than so many times.
func (p *Process) stoppedSince(stops int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stops > stops || !p.reaped && stopUntaken(p.pid)
}

// halted says whether the agent is stopped right now.
func (p *Process) halted() bool {
	if now, ok := procByID(p.pid); ok {
		return now.stopped()
	}
	return !errors.Is(syscall.Kill(p.pid, 0), syscall.ESRCH) // where processes cannot be seen, what was told holds
}

// haltedByOthers says whether the agent is stopped, and not by Pause: which does
// not begin between the two looks, nor end.
func (p *Process) haltedByOthers() bool {
	if p.Paused() {
		return false
	}
	p.pausing.Lock()
	defer p.pausing.Unlock()
	return !p.Paused() && p.halted()
}

// pass hands a signal to the agent, and remembers one that asks it to end.
func (p *Process) pass(sig syscall.Signal, send func(syscall.Signal) error) {
	switch sig {
	case syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM:
		p.mu.Lock()
		p.passed, p.passedAt = sig, time.Now()
		p.mu.Unlock()
		defer func() { _ = p.Resume() }() // what is paused hears no signal, and would never end
	}
	if err := send(sig); err != nil && !errors.Is(err, ErrEnded) {
		p.spec.Log.Warn("a signal could not be passed on to the agent", "signal", sig.String(), "err", err)
	}
}

// signalAgent sends to the agent's process alone.
func (p *Process) signalAgent(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return ErrEnded
	}
	return syscall.Kill(p.pid, sig)
}

// Signal sends a signal to the agent: to its process group where it has its
// own, which is what a terminal does, else to its process, for our own group
// holds others.
func (p *Process) Signal(sig syscall.Signal) error {
	if p.term == nil {
		return p.signalAgent(sig)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return ErrEnded
	}
	err := syscall.Kill(-p.pid, sig)
	if err == syscall.ESRCH { // it has moved to another group
		err = syscall.Kill(p.pid, sig)
	}
	return err
}

// signalTree sends a signal to the agent and to all that came of it.
func (p *Process) signalTree(sig syscall.Signal) error {
	if p.ownEnded() {
		return ErrEnded
	}
	var err error
	for _, q := range p.tree() {
		if e := syscall.Kill(q.Pid, sig); e != nil && e != syscall.ESRCH {
			err = e
		}
	}
	return err
}

// ended is the agent's exit as far as the kernel and what we did tell it.
func (p *Process) ended(st syscall.WaitStatus) Exit {
	x := exitOf(st)
	p.mu.Lock()
	defer p.mu.Unlock()
	x.Passed, x.Terminated = p.passed, p.terminated
	return x
}

// unnatural says whether the agent was ended, rather than ended by itself: by
// us, by a signal, or as an answer to a signal that was passed on and asks to
// end. Only then is what it leaves behind ended too, and are its modes taken
// from the terminal. SIGPIPE is how a pipeline ends; nobody meant it.
func (p *Process) unnatural(x Exit) bool {
	if x.Terminated || (x.Signal != 0 && x.Signal != syscall.SIGPIPE) {
		return true
	}
	if x.Passed == 0 {
		return false
	}
	p.mu.Lock()
	since := time.Since(p.passedAt)
	p.mu.Unlock()
	if x.Code == 128+int(x.Passed) {
		return true
	}
	asked := x.Passed == syscall.SIGTERM || x.Passed == syscall.SIGHUP || x.Passed == syscall.SIGQUIT
	return asked && since < 15*time.Second
}

func (p *Process) finish(x Exit) {
	p.exit = x
	close(p.done)
	p.spec.Log.Debug("agent ended", "code", x.Code, "signal", int(x.Signal), "passed", int(x.Passed))
}

// Wait waits until the agent has ended, its last output is written, the
// terminal is as it was before, and what had to be ended has ended.
func (p *Process) Wait() Exit {
	<-p.done
	return p.exit
}

// Done is closed when Wait would return.
func (p *Process) Done() <-chan struct{} { return p.done }

// Pid is the agent's process id.
func (p *Process) Pid() int { return p.pid }

// HasTerminal says whether the agent runs on a PTY of ours, which Inject needs.
func (p *Process) HasTerminal() bool { return p.term != nil }

// TeeDropped is how many bytes Spec.TeeStdout was not given, because it was too
// slow. What it is given is cut out in whole pieces, not in whole lines.
func (p *Process) TeeDropped() uint64 {
	if p.tee == nil {
		return 0
	}
	return p.tee.dropped.Load()
}

// Teed says whether Spec.TeeStdout gets anything.
func (p *Process) Teed() bool { return p.tee != nil }

// tree lists the agent and all that came of it, parents first: other sessions
// too, and those whose parents are gone.
func (p *Process) tree() []Proc {
	all, err := snapshot()
	if err != nil {
		p.spec.Log.Warn("the agent's processes cannot be listed", "err", err)
		return nil
	}
	orphans := map[int]bool{}
	for _, q := range strangers(all) {
		orphans[q.Pid] = q.Start >= p.start // what we started before the agent is not the agent's
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	list := descend(all, func(q Proc) bool {
		_, known := p.remembered[q.id()]
		return known || orphans[q.Pid] || q.Pid == p.pid && !p.reaped || p.root != 0 && q.Parent == p.root
	})
	for _, q := range list {
		p.remembered[q.id()] = q
	}
	return list
}

// Descendants lists the processes that came of the agent and still run, itself
// left out.
func (p *Process) Descendants() []Proc {
	var out []Proc
	for _, q := range p.tree() {
		if q.Pid != p.pid {
			out = append(out, q)
		}
	}
	return out
}

// Owns says whether a process is the agent or came of it.
func (p *Process) Owns(pid int) bool {
	for _, q := range p.tree() {
		if q.Pid == pid {
			return true
		}
	}
	return false
}

// endDescendants ends what is left of the agent.
func (p *Process) endDescendants() {
	if left := p.tree(); len(left) > 0 {
		p.spec.Log.Info("ending what the agent left behind", "pids", pids(left))
		endAll(p.tree, descendantsGrace, p.spec.Log)
	}
}

// Terminate ends the agent and all that came of it: sig, which is the signal
// that its vendor handles cleanly, then after grace SIGKILL; then what is left.
// It returns when everything has ended, with ctx's error when that was before.
func (p *Process) Terminate(ctx context.Context, sig syscall.Signal, grace time.Duration) error {
	p.mu.Lock()
	p.terminated = true
	p.mu.Unlock()
	p.tree() // remembered, while its links hold
	if err := p.Signal(sig); err != nil && !errors.Is(err, ErrEnded) {
		p.spec.Log.Warn("the agent could not be signalled", "err", err)
	}
	_ = p.Resume() // what is stopped hears no signal
	_ = p.Signal(syscall.SIGCONT)
	wait, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	select {
	case <-p.done:
		return nil
	case <-wait.Done():
	}
	p.spec.Log.Info("the agent did not end when asked to", "signal", sig.String(), "grace", grace)
	_ = p.signalAgent(syscall.SIGKILL)
	_ = p.Signal(syscall.SIGKILL)
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// ErrPaused and ErrNotPaused refuse a pause of what is paused and a resumption
// of what is not.
var (
	ErrPaused    = errors.New("the agent is paused already")
	ErrNotPaused = errors.New("the agent is not paused")
)

// Pause stops the agent and all that came of it. It does not suspend the
// wrapper: the shell goes on waiting for its job.
func (p *Process) Pause() error {
	p.pausing.Lock()
	defer p.pausing.Unlock()
	p.mu.Lock()
	if p.reaped || p.isPaused {
		err := ErrPaused
		if p.reaped {
			err = ErrEnded
		}
		p.mu.Unlock()
		return err
	}
	p.isPaused = true // before anything stops, so that the news of it is known for ours
	p.mu.Unlock()
	stopped := freeze(p.tree)
	p.mu.Lock()
	p.paused = stopped
	p.mu.Unlock()
	if len(stopped) == 0 {
		p.mu.Lock()
		p.isPaused = false
		p.mu.Unlock()
		return fmt.Errorf("nothing of the agent could be stopped")
	}
	return nil
}

// Resume continues what Pause stopped.
func (p *Process) Resume() error {
	p.pausing.Lock()
	defer p.pausing.Unlock()
	p.mu.Lock()
	if !p.isPaused {
		p.mu.Unlock()
		return ErrNotPaused
	}
	stopped := p.paused
	p.mu.Unlock()
	// First: an agent that is stopped, and not by us, has us stop with it, and
	// the news of our stop may come only now.
	thaw(stopped)
	p.mu.Lock()
	p.paused, p.isPaused = nil, false
	p.mu.Unlock()
	return nil
}

// Paused says whether Pause holds the agent.
func (p *Process) Paused() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.isPaused
}

// ErrNoTerminal refuses keys for an agent that has no terminal of ours.
var ErrNoTerminal = errors.New("the agent has no terminal of ours to type into")

// Inject types keys into the agent's terminal: between two of the user's, never
// into a key, a paste or a terminal's answer that is on its way. It gives up
// after two seconds when the agent takes no input.
func (p *Process) Inject(keys []byte) error {
	if p.term == nil {
		return ErrNoTerminal
	}
	return p.term.inject(keys)
}

// tee copies an agent's output, from a pipe, to where it belongs and to a
// reader of ours.
type tee struct {
	in, out int
	copy    *spill
	dropped *atomic.Uint64
	wake    *waker
	over    chan struct{} // the copying has stopped
	eof     bool          // read after over: the pipe is at its end, and closed
}

// newTee gives a tee to out and to, and the end of its pipe that the agent
// writes to.
func newTee(out int, to io.Writer) (*tee, int, error) {
	wake, err := newWaker()
	if err != nil {
		return nil, -1, err
	}
	r, w, err := pipe()
	if err != nil {
		wake.close()
		return nil, -1, err
	}
	t := &tee{in: r, out: out, copy: newSpill(to), wake: wake, over: make(chan struct{})}
	t.dropped = &t.copy.dropped
	return t, w, nil
}

// run copies until the pipe's end, or until it was woken and the pipe is
// empty. When our output is closed by its reader, so is the pipe: the agent
// then gets its SIGPIPE as without us.
func (t *tee) run() {
	defer close(t.over)
	end := func() {
		t.eof = true
		unix.Close(t.in)
	}
	buf := make([]byte, 64<<10)
	for leaving := false; ; {
		data, wake := waitFD{fd: t.in, read: true}, waitFD{fd: t.wake.r, read: true}
		out := waitFD{fd: t.out} // only for the news that its reader is gone
		timeout := time.Duration(-1)
		if leaving {
			timeout, wake.fd = 0, -1
		}
		if waitFDs(timeout, &data, &out, &wake) != nil || out.bad {
			end()
			return
		}
		switch {
		case data.ready || data.bad:
			n, err := unix.Read(t.in, buf)
			if err == unix.EINTR || err == unix.EAGAIN {
				continue
			}
			if n <= 0 {
				end()
				return
			}
			t.copy.put(buf[:n])
			if writeAll(t.out, buf[:n]) != nil {
				end()
				return
			}
		case wake.ready:
			leaving = true
		case leaving:
			return
		}
	}
}

// abandon is finish for an agent that was not started.
func (t *tee) abandon() {
	unix.Close(t.in)
	t.wake.close()
	t.copy.close(time.Second)
}

// finish is called when the agent has ended: what it wrote is copied. If some
// process that it left behind holds the pipe, a copy of this program goes on
// copying for as long as that lasts, and we do not wait.
func (t *tee) finish(log *slog.Logger) {
	t.wake.wake()
	<-t.over
	if !t.eof {
		if err := leaveCopier(t.in, t.out); err != nil {
			log.Warn("a process that the agent left behind loses its output", "err", err)
		}
		unix.Close(t.in)
	}
	t.wake.close()
	t.copy.close(time.Second)
}

// spill hands bytes to a writer that may be slow, from a bounded buffer, and
// never blocks who puts them.
type spill struct {
	to      io.Writer
	mu      sync.Mutex
	buf     []byte
	closing bool
	news    chan struct{}
	over    chan struct{}
	dropped atomic.Uint64
}

const spillLimit = 8 << 20

func newSpill(to io.Writer) *spill {
	s := &spill{to: to, news: make(chan struct{}, 1), over: make(chan struct{})}
	go s.run()
	return s
}

// put takes a copy of b, or counts it as dropped.
func (s *spill) put(b []byte) {
	s.mu.Lock()
	if len(s.buf)+len(b) > spillLimit {
		s.dropped.Add(uint64(len(b)))
	} else {
		s.buf = append(s.buf, b...)
	}
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
}

func (s *spill) run() {
	defer close(s.over)
	var out []byte
	for {
		s.mu.Lock()
		out, s.buf = s.buf, out[:0]
		closing := s.closing
		s.mu.Unlock()
		if len(out) > 0 {
			if _, err := s.to.Write(out); err != nil {
				s.dropped.Add(uint64(len(out)))
			}
			continue
		}
		if closing {
			return
		}
		if cap(out) > 1<<20 {
			out = nil
		}
		<-s.news
	}
}

// close waits until the writer has everything, for a bounded time.
func (s *spill) close(patience time.Duration) {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	select {
	case s.news <- struct{}{}:
	default:
	}
	select {
	case <-s.over:
	case <-time.After(patience):
	}
}
