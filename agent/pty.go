package agent

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// terminal stands between the user's terminal and the PTY of an agent.
//
// Three goroutines touch it. The pumps move bytes, one each way. run is told
// by the shim, by signals and by the pumps what happens, and alone changes the
// user's terminal, but for RestoreTerminal, which may come from anywhere.
type terminal struct {
	p       *Process
	in, out int
	// master is the PTY's other side: non-blocking, ours alone, and read by poll
	// rather than by Go's poller, which would be woken for every byte too.
	master int
	shim   *wire
	shimID int

	mode struct {
		sync.Mutex
		raw         bool         // we have made the user's terminal raw
		saved, ours unix.Termios // as it was, and as we set it
		over        bool
	}

	gate      gate   // the input's
	inWake    *waker // for the pumps, out of their waiting
	outWake   *waker
	inDone    chan struct{}
	outDone   chan struct{}
	flushes   chan chan struct{}
	lost      chan struct{} // the user's terminal is gone, or takes no output
	lostOne   sync.Once
	inTrouble chan struct{}

	typing chan struct{} // a token: who has it writes to the master
	keys   keys          // under typing

	modesMu sync.Mutex
	modes   modes
	undone  string // their undoing, as the shim knows it; of pumpOut alone

	// Of run alone.
	background bool // our process group is not the terminal's foreground
	hungUp     bool
	given      *unix.Termios // the PTY's settings, until the agent first has the terminal
}

// noPTYError says that there can be no PTY, so that the agent is started
// without one.
type noPTYError struct{ err error }

func (e *noPTYError) Error() string { return "no PTY: " + e.err.Error() }
func (e *noPTYError) Unwrap() error { return e.err }

// active is the terminal that RestoreTerminal restores.
var active atomic.Pointer[terminal]

// RestoreTerminal gives the user's terminal its settings back if an agent has
// it: for the deferred calls of who is about to go down. It may be called at
// any time, from any goroutine; the agent, should it live on, finds its
// terminal changed. After a crash that runs nothing deferred, or our SIGKILL,
// the shim does the same.
func RestoreTerminal() {
	if t := active.Load(); t != nil {
		t.cook(true)
	}
}

func isTerminal(fd int) bool {
	if fd < 0 {
		return false
	}
	_, err := unix.IoctlGetTermios(fd, getTermios)
	return err == nil
}

// makeRaw gives termios that hand every byte through, as cfmakeraw(3).
func makeRaw(t unix.Termios) unix.Termios {
	t.Iflag &^= unix.IGNBRK | unix.BRKINT | unix.PARMRK | unix.ISTRIP | unix.INLCR | unix.IGNCR | unix.ICRNL | unix.IXON
	t.Oflag &^= unix.OPOST
	t.Lflag &^= unix.ECHO | unix.ECHONL | unix.ICANON | unix.ISIG | unix.IEXTEN
	t.Cflag &^= unix.CSIZE | unix.PARENB
	t.Cflag |= unix.CS8
	t.Cc[unix.VMIN] = 1
	t.Cc[unix.VTIME] = 0
	return t
}

// startTerminal starts the agent of p on a PTY. A *noPTYError is one that
// starting without a PTY may help.
func startTerminal(p *Process) (err error) {
	s := &p.spec
	t := &terminal{
		p: p, in: fdOf(s.Stdin), out: fdOf(s.Stdout),
		inDone: make(chan struct{}), outDone: make(chan struct{}),
		flushes: make(chan chan struct{}, 4), lost: make(chan struct{}),
		inTrouble: make(chan struct{}, 1),
		typing:    make(chan struct{}, 1),
	}
	var undo []func()
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				undo[i]()
			}
		}
	}()
	fail := func(what string, err error) error { return &noPTYError{fmt.Errorf("%s: %w", what, err)} }

	settings, err := unix.IoctlGetTermios(t.in, getTermios)
	if err != nil {
		return fail("the terminal's settings", err)
	}
	t.mode.saved = *settings

	master, slave, err := pty.Open()
	if err != nil {
		return fail("opening one", err)
	}
	defer slave.Close()
	t.master, err = unix.FcntlInt(uintptr(fdOf(master)), unix.F_DUPFD_CLOEXEC, 0)
	master.Close()
	if err != nil {
		return fail("its descriptor", err)
	}
	undo = append(undo, func() { unix.Close(t.master) })
	if err := unix.SetNonblock(t.master, true); err != nil {
		return fail("a non-blocking master", err)
	}
	if err := unix.IoctlSetTermios(fdOf(slave), setTermios, settings); err != nil {
		return fail("its settings", err)
	}
	if t.given, err = unix.IoctlGetTermios(fdOf(slave), getTermios); err != nil {
		return fail("its settings", err)
	}
	t.resize()

	pair, err := socketpair()
	if err != nil {
		return fail("a socket to the shim", err)
	}
	theirs := sync.OnceFunc(func() { unix.Close(pair[1]) })
	defer theirs()
	if t.shim, err = newWire(pair[0]); err != nil {
		return fail("a socket to the shim", err)
	}
	undo = append(undo, func() { t.shim.close() })
	if t.inWake, err = newWaker(); err != nil {
		return fail("a pipe", err)
	}
	undo = append(undo, t.inWake.close)
	if t.outWake, err = newWaker(); err != nil {
		return fail("a pipe", err)
	}
	undo = append(undo, t.outWake.close)

	// The agent's descriptors, then the shim's own two. The terminal is for the
	// shim to restore should we die, and to carry on what is left behind to.
	std := [3]int{fdOf(slave), fdOf(slave), fdOf(s.Stderr)}
	dev, _ := terminalDev(t.in)
	if d, ok := terminalDev(std[2]); ok && d == dev {
		std[2] = fdOf(slave)
	}
	var extra []int
	for _, f := range s.ExtraFiles {
		extra = append(extra, fdOf(f))
	}
	files, at := table(std, append(extra, pair[1], t.out)...)
	at = at[len(extra):]

	p.sigs = catch(append(passedOn, syscall.SIGTSTP, syscall.SIGWINCH)...)
	undo = append(undo, p.sigs.stop)
	adoptOrphans() // those of a shim that was killed
	if t.shimID, err = startShim(files, at, &syscall.SysProcAttr{Setsid: true, Setctty: true}); err != nil {
		return fail("starting the shim", err)
	}
	undo = append(undo, func() {
		t.shim.close()
		_ = syscall.Kill(t.shimID, syscall.SIGKILL)
		_, _ = syscall.Wait4(t.shimID, nil, 0, nil)
		disown(t.shimID)
	})
	theirs()
	if q, ok := procByID(t.shimID); ok {
		p.start = q.Start
	}

	undo = append(undo, func() { t.cook(true) })
	t.background = !t.foreground()
	if !t.background {
		ahead := t.typedLines()
		begun := t.uncook()
		t.adopt()
		t.typeAhead(ahead, begun, fdOf(slave))
	}
	active.Store(t)
	undo = append(undo, func() { active.CompareAndSwap(t, nil) })
	order := launchOrder{
		path: s.Path, args: s.Args, env: relocate(s.Env, dev, slave.Name()), dir: s.Dir,
		foreground: !t.background,
	}
	if err := t.shim.send(msgLaunch, order.encode()); err != nil {
		return fail("talking to the shim", err)
	}
	_ = t.shim.conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	if kind, _, _, err := t.shim.receive(); err != nil || kind != msgReady {
		return fail("hearing from the shim", fmt.Errorf("message %q: %w", kind, err))
	}
	// From here on the agent may have been started: there is no second try.
	kind, body, _, err := t.shim.receive()
	switch {
	case err == nil && kind == msgStarted:
		p.pid, p.root = int(getInt(body)), t.shimID
	case err == nil && kind == msgFailed:
		return launchError(s.name(), s.Path, syscall.Errno(getInt(body)))
	default:
		return fmt.Errorf("the shim that starts the agent failed: message %q: %w", kind, err)
	}
	_ = t.shim.conn.SetReadDeadline(time.Time{})
	if s.TeeStdout != nil {
		spill := newSpill(s.TeeStdout)
		p.tee = &tee{copy: spill, dropped: &spill.dropped}
	}
	p.term = t
	if !t.background {
		t.gate.open()
	}
	go t.pumpIn()
	go t.pumpOut()
	go t.run()
	return nil
}

// relocate gives the environment with GPG_TTY, which names the user's
// terminal to programs that then open it by name, naming the PTY.
func relocate(env []string, dev uint64, name string) []string {
	for i, kv := range env {
		file, ok := strings.CutPrefix(kv, "GPG_TTY=")
		if !ok || file == "" {
			continue
		}
		fd, err := unix.Open(file, unix.O_RDONLY|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		if d, ok := terminalDev(fd); ok && d == dev {
			env = append([]string(nil), env...)
			env[i] = "GPG_TTY=" + name
		}
		unix.Close(fd)
	}
	return env
}

// foreground says whether we may use the user's terminal: our group is its
// foreground one, or it controls no jobs of ours.
func (t *terminal) foreground() bool {
	group, err := unix.IoctlGetInt(t.in, unix.TIOCGPGRP)
	return err != nil || group == unix.Getpgrp()
}

func (t *terminal) alive() bool { return isTerminal(t.in) }

// resize gives the PTY the terminal's size, in pixels too; the kernel tells
// the agent when that changes anything.
func (t *terminal) resize() {
	for _, fd := range []int{t.out, t.in} {
		if ws, err := unix.IoctlGetWinsize(fd, unix.TIOCGWINSZ); err == nil {
			_ = unix.IoctlSetWinsize(t.master, unix.TIOCSWINSZ, ws)
			return
		}
	}
}

// uncook makes the user's terminal raw. What it was before is what the user
// gets back: the settings at hand now, which a shell may have changed while we
// were stopped, unless they are still ours. It gives the number of bytes that
// stood on a line that was begun: the terminal has echoed those, and none that
// come later.
func (t *terminal) uncook() (begun int) {
	t.mode.Lock()
	defer t.mode.Unlock()
	if t.mode.over {
		return 0
	}
	now, err := unix.IoctlGetTermios(t.in, getTermios)
	if err != nil {
		return 0
	}
	if !t.mode.raw || *now != t.mode.ours {
		t.mode.saved = *now
	}
	// A line that was begun can be counted only while lines do not matter, and
	// is all of what waits only as long as there is an echo.
	if half := *now; half.Lflag&unix.ICANON != 0 {
		half.Lflag &^= unix.ICANON
		half.Cc[unix.VMIN], half.Cc[unix.VTIME] = 1, 0
		if unix.IoctlSetTermios(t.in, setTermios, &half) == nil {
			begun, _ = unix.IoctlGetInt(t.in, inputQueued)
		}
	}
	want := makeRaw(t.mode.saved)
	if unix.IoctlSetTermios(t.in, setTermios, &want) != nil {
		_ = unix.IoctlSetTermios(t.in, setTermios, &t.mode.saved)
		return 0
	}
	t.mode.raw = true
	t.mode.ours = want
	if got, err := unix.IoctlGetTermios(t.in, getTermios); err == nil {
		t.mode.ours = *got // as the driver took it
	}
	_ = t.shim.send(msgModes, encodeModes(t.mode.saved, t.mode.ours))
	return begun
}

// adopt gives the PTY the user's settings when the agent first gets the
// terminal. Those that it was opened with may be a line editor's: a shell that
// starts a job in the background edits its next line meanwhile. What the agent
// has set itself by then stays, and so does what it leaves at a stop.
func (t *terminal) adopt() {
	given := t.given
	if given == nil {
		return
	}
	t.given = nil
	now, err := unix.IoctlGetTermios(t.master, getTermios)
	if err != nil || *now != *given {
		return
	}
	t.mode.Lock()
	users := t.mode.saved
	t.mode.Unlock()
	_ = unix.IoctlSetTermios(t.master, setTermios, &users)
}

// typedMost is what a terminal keeps of what nobody reads; should there be
// more, the pump moves it.
const typedMost = 4 << 10

// typedLines takes the lines that were typed before we came, and the ends of
// input among them, which a raw terminal would not tell any more.
func (t *terminal) typedLines() (b []byte) {
	now, err := unix.IoctlGetTermios(t.in, getTermios)
	if err != nil || now.Lflag&unix.ICANON == 0 || now.Lflag&unix.ECHO == 0 {
		return nil
	}
	line := make([]byte, typedMost)
	for len(b) < typedMost {
		data := waitFD{fd: t.in, read: true}
		if waitFDs(0, &data) != nil || !data.ready || data.bad {
			break
		}
		n, err := unix.Read(t.in, line)
		if err != nil {
			break
		}
		if b = append(b, line[:n]...); n == 0 || line[n-1] != '\n' {
			b = append(b, now.Cc[unix.VEOF])
		}
	}
	return b
}

// typeAhead hands the agent what was typed before we came: lines, and the n
// bytes that one was begun with. The user's terminal has echoed that, so the
// PTY does not. It is called before the agent is there to change the PTY's
// settings too.
func (t *terminal) typeAhead(lines []byte, n, slave int) {
	echoing, err := unix.IoctlGetTermios(slave, getTermios)
	if err != nil {
		return
	}
	var begun []byte
	if n > 0 && echoing.Lflag&unix.ECHO != 0 {
		begun = make([]byte, min(n, typedMost))
		data := waitFD{fd: t.in, read: true}
		if waitFDs(0, &data) == nil && data.ready {
			n, _ := unix.Read(t.in, begun)
			begun = begun[:max(n, 0)]
		} else {
			begun = nil
		}
	}
	if len(lines)+len(begun) == 0 {
		return
	}
	silent := *echoing
	silent.Lflag &^= unix.ECHO | unix.ECHONL
	_ = unix.IoctlSetTermios(slave, setTermios, &silent)
	_, _ = unix.Write(t.master, append(lines, begun...))
	// The kernel takes in later what was written, with the settings of then.
	// Looking for input hurries it where there is none yet; whole lines count
	// as input, without the ends.
	_ = waitFDs(0, &waitFD{fd: slave, read: true})
	whole := len(lines) - bytes.Count(lines, []byte{echoing.Cc[unix.VEOF]})
	for late := time.Now().Add(time.Second); time.Now().Before(late); time.Sleep(time.Millisecond) {
		if n, err := unix.IoctlGetInt(slave, inputQueued); err != nil || n >= whole {
			break
		}
	}
	_ = unix.IoctlSetTermios(slave, setTermios, echoing)
}

// cook restores the user's terminal if we made it raw. In the background it is
// somebody else's by now, and left alone unless it still is as we set it.
func (t *terminal) cook(over bool) {
	t.mode.Lock()
	defer t.mode.Unlock()
	t.mode.over = t.mode.over || over
	if !t.mode.raw {
		return
	}
	if !t.foreground() {
		now, err := unix.IoctlGetTermios(t.in, getTermios)
		if err != nil || *now != t.mode.ours {
			t.mode.raw = false
			return
		}
	}
	withoutTTOU(func() { _ = unix.IoctlSetTermios(t.in, setTermios, &t.mode.saved) })
	t.mode.raw = false
	_ = t.shim.send(msgModes, nil)
}

// run looks after the terminal until the agent's end.
func (t *terminal) run() {
	p := t.p
	stopReaper := reapStrangers()
	type message struct {
		kind byte
		body []byte
		err  error
	}
	messages := make(chan message)
	go func() {
		for {
			kind, body, _, err := t.shim.receive()
			messages <- message{kind, body, err}
			if err != nil || kind == msgEnded {
				return
			}
		}
	}()
	tick := time.NewTicker(100 * time.Millisecond)
	tick.Stop()
	defer tick.Stop()
	if t.background {
		tick.Reset(100 * time.Millisecond)
	}
	lost := t.lost
	var st syscall.WaitStatus
	for ended := false; !ended; {
		select {
		case m := <-messages:
			switch {
			case m.err != nil:
				st, ended = t.shimDied(), true
			case m.kind == msgEnded:
				st, ended = syscall.WaitStatus(getInt(m.body)), true
			case m.kind == msgStopped:
				t.stopped(syscall.Signal(getInt(m.body)))
			}
		case sig := <-p.sigs.ch:
			t.signalled(sig.(syscall.Signal))
		case <-p.sigs.cont:
			t.continued()
		case <-tick.C: // does the shell's fg, which may send no signal, make us the foreground?
			if t.background && t.foreground() && !t.hungUp {
				t.resume(false)
			}
		case <-t.inTrouble:
			// The terminal is gone, or we are in the background of one that lets
			// nobody there read.
			if !t.alive() {
				t.loseTerminal()
			} else {
				t.background = true
			}
		case <-lost:
			lost = nil
			t.hangUp()
		}
		if t.background {
			tick.Reset(100 * time.Millisecond)
		} else {
			tick.Stop()
		}
	}
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
	x := p.ended(st)
	x.Hangup = t.hungUp
	t.finish(p.unnatural(x))
	stopReaper()
	p.sigs.stop()
	p.finish(x)
}

// shimDied is the agent's status when the shim can tell none: it was killed,
// and the kernel has hung up on the agent.
func (t *terminal) shimDied() syscall.WaitStatus {
	t.p.spec.Log.Error("the agent's session leader was killed")
	_ = syscall.Kill(-t.p.pid, syscall.SIGHUP)
	_ = syscall.Kill(-t.p.pid, syscall.SIGCONT)
	return syscall.WaitStatus(syscall.SIGHUP)
}

// signalled takes a signal that was sent to us.
func (t *terminal) signalled(sig syscall.Signal) {
	switch sig {
	case syscall.SIGWINCH:
		t.resize()
	case syscall.SIGHUP:
		if !t.alive() {
			t.loseTerminal()
			return
		}
		t.p.pass(sig, t.p.Signal)
	case syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTSTP:
		t.p.pass(sig, t.p.Signal)
	default:
		t.p.pass(sig, t.p.signalAgent)
	}
}

// continued is called when we were continued and it was not us who asked for
// the stop. After one that could not be caught the terminal is as the shell
// left it. Who continued us alone meant the agent.
func (t *terminal) continued() {
	if t.hungUp {
		return
	}
	was := t.background
	t.reclaim()
	if !t.background && (was || t.p.haltedByOthers()) {
		_ = t.shim.send(msgForeground, nil)
	}
}

// stopped is called when the agent was stopped. Unless Pause did that, the
// user's terminal is given back and we stop ourselves, as the job that the
// shell knows; when we go on so does the agent.
func (t *terminal) stopped(sig syscall.Signal) {
	if !t.p.haltedByOthers() { // ours, or old news
		return
	}
	if t.hungUp { // there is no terminal to give back, and nobody to continue us
		_ = t.p.Signal(syscall.SIGCONT)
		return
	}
	t.gate.shut(t.inWake)
	t.flush(time.Second)
	t.cook(false)
	if stopped := t.p.sigs.suspend(sig, true); !stopped {
		if sig == syscall.SIGSTOP {
			// Nobody looks after us as a job, and somebody wants the agent stopped.
			t.reclaim()
			return
		}
		// Where nobody can continue a job the kernel discards such a stop.
		t.resume(true)
		return
	}
	t.resume(false)
}

// reclaim takes the user's terminal up again if we are in its foreground.
func (t *terminal) reclaim() {
	if t.background = !t.foreground(); t.background {
		t.gate.shut(t.inWake)
		return
	}
	t.uncook()
	t.adopt()
	t.resize()
	t.gate.open()
}

// resume continues the agent after we were: in the foreground of its own
// terminal if we are in the foreground of ours, or, as `bg` would have it, in
// its background, where reading stops it again. With always it is in the
// foreground whatever we are.
func (t *terminal) resume(always bool) {
	t.reclaim()
	if !t.background || always {
		_ = t.shim.send(msgForeground, nil)
	} else {
		_ = t.shim.send(msgBackground, nil)
	}
}

func (t *terminal) loseTerminal() { t.lostOne.Do(func() { close(t.lost) }) }

// hangUp does to the agent's terminal what happened to ours. The kernel tells
// the session's leader alone, and that tells its jobs: here we do.
func (t *terminal) hangUp() {
	t.hungUp = true
	t.p.mu.Lock()
	t.p.passed, t.p.passedAt = syscall.SIGHUP, time.Now()
	t.p.mu.Unlock()
	t.stopPumps()
	_ = t.p.Signal(syscall.SIGHUP)
	if !t.p.Paused() {
		_ = t.p.Signal(syscall.SIGCONT)
	}
}

// stopPumps ends both pumps and closes the PTY.
func (t *terminal) stopPumps() {
	t.endInput()
	t.typing <- struct{}{} // an injection that is under way
	select {
	case <-t.outDone:
	default:
		close(t.flushes)
		t.outWake.wake()
		<-t.outDone
	}
	t.closeMaster()
	<-t.typing
}

// closeMaster closes the PTY. Whoever has the token of typing afterwards finds
// no descriptor: its number is soon another's.
func (t *terminal) closeMaster() {
	unix.Close(t.master)
	t.master = -1
}

// endInput ends the pump of the input. Its read returns at once but where
// somebody else took what it was woken for; it then finds that it is over.
func (t *terminal) endInput() {
	t.gate.finish(t.inWake)
	select {
	case <-t.inDone:
	case <-time.After(300 * time.Millisecond):
	}
}

// finish is called when the agent has ended.
func (t *terminal) finish(unnatural bool) {
	p := t.p
	lingers := false
	if !t.hungUp {
		t.gate.shut(t.inWake) // what is typed from now on is for who comes after the agent
		if unnatural {
			p.endDescendants()
		}
		// The last output. The shim let go of the PTY before it told of the end,
		// so the pump reads up to its end, unless a process that the agent left
		// behind holds it open.
		if !t.flush(2 * time.Second) {
			// The terminal takes no output, and we wait for it as any program would:
			// a signal ends us then, and the shim restores what we cannot.
			p.sigs.stop()
		}
		held := true
		select {
		case <-t.outDone:
			held = false
		default:
		}
		if held {
			fd := waitFD{fd: t.master}
			_ = waitFDs(0, &fd)
			if fd.bad {
				<-t.outDone
				held = false
			}
		}
		t.endInput()
		if held && !unnatural {
			// The shim carries on what comes, for as long as it is held.
			t.typing <- struct{}{}
			t.stopOut()
			if err := t.shim.sendFile(msgLinger, t.master); err != nil {
				p.spec.Log.Warn("a process that the agent left behind loses its terminal", "err", err)
			} else {
				lingers = true
			}
			t.closeMaster()
			<-t.typing
		} else {
			t.stopPumps()
		}
		if unnatural && t.alive() {
			t.modesMu.Lock()
			undo := t.modes.undo(false)
			t.modesMu.Unlock()
			if t.foreground() {
				_ = writeAll(t.out, undo)
			}
		}
	} else if unnatural {
		p.endDescendants()
	}
	t.cook(true)
	active.CompareAndSwap(t, nil)
	_ = t.shim.send(msgGoodbye, nil)
	t.shim.close()
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		t.reapShim()
	}()
	if !lingers {
		select {
		case <-gone:
		case <-time.After(time.Second):
		}
	}
	t.closeWakers()
	if p.tee != nil {
		p.tee.copy.close(time.Second)
	}
}

// closeWakers closes the wakers, of which each is its pump's as long as that
// lives: the input's may still be on its way out, see endInput.
func (t *terminal) closeWakers() {
	t.outWake.close()
	select {
	case <-t.inDone:
		t.inWake.close()
	default:
		go func() {
			<-t.inDone
			t.inWake.close()
		}()
	}
}

// reapShim waits for the shim, which usually ends at once and, when it carries
// on a terminal, after us.
func (t *terminal) reapShim() {
	for {
		_, err := syscall.Wait4(t.shimID, nil, 0, nil)
		if err != syscall.EINTR {
			break
		}
	}
	disown(t.shimID)
}

// flush waits until the output that is there now is on the user's terminal,
// and says whether it is.
func (t *terminal) flush(patience time.Duration) bool {
	late := time.After(patience)
	done := make(chan struct{})
	select {
	case t.flushes <- done:
	case <-t.outDone:
		return true
	case <-late:
		return false
	}
	t.outWake.wake()
	select {
	case <-done:
	case <-t.outDone:
	case <-late:
		return false
	}
	return true
}

func (t *terminal) stopOut() {
	close(t.flushes)
	t.outWake.wake()
	<-t.outDone
}

// pumpOut moves the agent's output to the user's terminal, each piece at once.
// When the terminal is slow so is the reading, and at last the agent's writing,
// as without us.
func (t *terminal) pumpOut() {
	defer close(t.outDone)
	buf := make([]byte, 64<<10)
	var asked []chan struct{}
	var since time.Time
	for {
		// Who asks for a flush has seen the agent stop or end, so all that it
		// wrote is read before the PTY says that it is empty.
		select {
		case done, ok := <-t.flushes:
			if !ok {
				return
			}
			asked, since = append(asked, done), time.Now()
		default:
		}
		n, err := unix.Read(t.master, buf)
		// A read gives at most a page. What is there already goes out together:
		// a sixth of the work, for no wait.
		for n > 0 && n < len(buf)/2 {
			m, err := unix.Read(t.master, buf[n:])
			if err != nil || m <= 0 {
				break
			}
			n += m
		}
		if n > 0 {
			t.follow(buf[:n])
			if writeAll(t.out, buf[:n]) != nil {
				t.loseTerminal()
				return
			}
		}
		switch {
		case n <= 0 && err == unix.EINTR:
			continue
		case n <= 0 && err != unix.EAGAIN:
			return // EIO: nobody holds the other side any more
		case n <= 0 || time.Since(since) > 300*time.Millisecond: // somebody else may go on writing
			for _, done := range asked {
				close(done)
			}
			asked = nil
		}
		if n > 0 {
			continue
		}
		data, wake := waitFD{fd: t.master, read: true}, waitFD{fd: t.outWake.r, read: true}
		if waitFDs(-1, &data, &wake) != nil {
			return
		}
		if wake.ready {
			t.outWake.clear()
		}
	}
}

// follow keeps what is known of the output: the modes, and the copy. The shim
// hears how to undo what is not yet on the screen: we may be killed right after.
func (t *terminal) follow(b []byte) {
	t.modesMu.Lock()
	undo := t.undone
	if t.modes.feed(b) {
		undo = string(t.modes.undo(true))
	}
	t.modesMu.Unlock()
	if undo != t.undone {
		t.undone = undo
		_ = t.shim.send(msgUndo, []byte(undo))
	}
	if t.p.tee != nil {
		t.p.tee.copy.put(b)
	}
}

// pumpIn moves what the user types to the agent. It does not read ahead while
// the agent takes nothing, and reads nothing while the terminal is not ours.
func (t *terminal) pumpIn() {
	defer close(t.inDone)
	buf := make([]byte, 32<<10)
	for t.gate.pass() {
		data, wake := waitFD{fd: t.in, read: true}, waitFD{fd: t.inWake.r, read: true}
		if waitFDs(-1, &data, &wake) != nil {
			return
		}
		if wake.ready {
			t.inWake.clear()
			continue
		}
		n, err := unix.Read(t.in, buf)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if n <= 0 {
			t.gate.close()
			select {
			case t.inTrouble <- struct{}{}:
			default:
			}
			continue
		}
		if t.gate.isOver() || !t.typed(buf[:n]) {
			return
		}
	}
}

// typed writes what the user typed, however long the agent takes; false when
// it is no longer wanted.
func (t *terminal) typed(b []byte) bool {
	t.typing <- struct{}{}
	defer func() { <-t.typing }()
	t.keys.feed(b, time.Now())
	for len(b) > 0 {
		n, err := unix.Write(t.master, b)
		if n > 0 {
			b = b[n:]
			continue
		}
		if err == unix.EINTR {
			continue
		}
		if err != unix.EAGAIN {
			return true // the agent is gone, or has closed its terminal; run hears of it
		}
		room, wake := waitFD{fd: t.master, write: true}, waitFD{fd: t.inWake.r, read: true}
		if waitFDs(-1, &room, &wake) != nil {
			return false
		}
		if wake.ready {
			t.inWake.clear()
			if !t.gate.pass() {
				return false
			}
		}
	}
	return true
}

// inject types keys of ours; see Process.Inject.
func (t *terminal) inject(b []byte) error {
	deadline := time.Now().Add(2 * time.Second)
	late := errors.New("the agent takes no input at present")
	for {
		select {
		case t.typing <- struct{}{}:
		case <-t.p.done:
			return ErrEnded
		case <-time.After(time.Until(deadline)):
			return late
		}
		if t.keys.between(time.Now()) {
			break
		}
		<-t.typing
		if time.Now().After(deadline) {
			return late
		}
		time.Sleep(5 * time.Millisecond)
	}
	defer func() { <-t.typing }()
	for len(b) > 0 {
		n, err := unix.Write(t.master, b)
		if n > 0 {
			b = b[n:]
			continue
		}
		if err == unix.EINTR {
			continue
		}
		if err != unix.EAGAIN {
			return ErrEnded
		}
		if t.gate.isOver() {
			return ErrEnded
		}
		if time.Now().After(deadline) {
			return late
		}
		room := waitFD{fd: t.master, write: true}
		if waitFDs(50*time.Millisecond, &room) != nil {
			return ErrEnded
		}
	}
	return nil
}

// writeAll writes b to a descriptor that others may have made non-blocking.
func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if n > 0 {
			b = b[n:]
			continue
		}
		switch err {
		case unix.EINTR:
		case unix.EAGAIN:
			room := waitFD{fd: fd, write: true}
			if err := waitFDs(-1, &room); err != nil {
				return err
			}
		case nil:
			return errors.New("nothing could be written")
		default:
			return err
		}
	}
	return nil
}

// gate lets the input through, or not. Who shuts it knows afterwards that
// nothing is read any more.
type gate struct {
	mu         sync.Mutex
	cond       sync.Cond
	opened     bool
	over, idle bool
}

func (g *gate) lock() {
	g.mu.Lock()
	g.cond.L = &g.mu
}

// pass waits until the gate is open; false is that it never will be.
func (g *gate) pass() bool {
	g.lock()
	defer g.mu.Unlock()
	g.idle = true
	g.cond.Broadcast()
	for !g.opened && !g.over {
		g.cond.Wait()
	}
	g.idle = false
	return !g.over
}

func (g *gate) open() {
	g.lock()
	defer g.mu.Unlock()
	g.opened = true
	g.cond.Broadcast()
}

func (g *gate) close() {
	g.lock()
	defer g.mu.Unlock()
	g.opened = false
}

func (g *gate) isOver() bool {
	g.lock()
	defer g.mu.Unlock()
	return g.over
}

// shut closes the gate and waits until the pump stands before it; not for
// ever, see endInput.
func (g *gate) shut(w *waker) {
	g.lock()
	defer g.mu.Unlock()
	g.opened = false
	w.wake()
	late := false
	timer := time.AfterFunc(300*time.Millisecond, func() {
		g.lock()
		defer g.mu.Unlock()
		late = true
		g.cond.Broadcast()
	})
	defer timer.Stop()
	for !g.idle && !g.over && !late {
		g.cond.Wait()
	}
}

// finish lets the pump go, for good.
func (g *gate) finish(w *waker) {
	g.lock()
	defer g.mu.Unlock()
	g.over = true
	g.cond.Broadcast()
	w.wake()
}

// waker is a pipe that brings a goroutine out of waitFDs.
type waker struct{ r, w int }

func newWaker() (*waker, error) {
	r, w, err := pipe()
	if err != nil {
		return nil, err
	}
	_ = unix.SetNonblock(r, true)
	_ = unix.SetNonblock(w, true) // a full pipe wakes as well as another byte
	return &waker{r, w}, nil
}

func (w *waker) wake() { _, _ = unix.Write(w.w, []byte{0}) }
func (w *waker) clear() {
	var b [64]byte
	_, _ = unix.Read(w.r, b[:])
}
func (w *waker) close() {
	unix.Close(w.r)
	unix.Close(w.w)
}

// pipe is os.Pipe for descriptors that Go's poller has no part in.
func pipe() (r, w int, err error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	var fds [2]int
	if err := syscall.Pipe(fds[:]); err != nil {
		return -1, -1, err
	}
	unix.CloseOnExec(fds[0])
	unix.CloseOnExec(fds[1])
	return fds[0], fds[1], nil
}

// socketpair is a pair of connected sockets, close-on-exec.
func socketpair() ([2]int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(pair[0])
		unix.CloseOnExec(pair[1])
	}
	return pair, err
}
