package agent

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The shim is this program, started again as the leader of the session that
// the agent's PTY controls. It stands where a shell would stand: the agent is
// its job, in a process group of its own in the terminal's foreground. Started
// as the session's leader itself, an agent could not be stopped by Ctrl-Z: no
// shell looks after its group, so the kernel discards the signal.
//
// It tells the wrapper of stops and of the end, moves the agent to its
// terminal's foreground and continues it when told to, and is the parent of
// what the agent leaves behind, so that this is found. Two things are its own
// to do. When the wrapper dies without a word, by a crash or SIGKILL, it
// restores the user's terminal, and hangs up on the agent as a shell does that
// goes down with its window. And when a process that the agent left behind
// still has the terminal at the end, it goes on carrying that process's output
// to the user's terminal after the wrapper has gone: nothing is killed, and
// nothing loses its terminal.

// shimName is the argv[0] that makes a process of this program the shim.
const shimName = "aep-wrap: shim"

// IsShim says whether args, a process's own, are the shim's; main then calls
// ShimMain, and nothing else.
func IsShim(args []string) bool { return len(args) > 0 && args[0] == shimName }

// copyWord makes the shim a copier from descriptor 0 to 1, see leaveCopier.
const copyWord = "copy"

// self is the file to start this program again from, and the reason to start
// another by it is that nobody can have replaced it meanwhile.
func self() (string, error) {
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		return "/proc/self/exe", nil
	}
	return os.Executable()
}

// startShim starts the shim with the descriptors of files; at are the numbers
// of its socket and of the user's terminal. Its own environment is small: the
// agent's comes by the socket.
func startShim(files []uintptr, at []int, sys *syscall.SysProcAttr) (pid int, err error) {
	file, err := self()
	if err != nil {
		return 0, err
	}
	return spawn(file, []string{shimName, strconv.Itoa(at[0]), strconv.Itoa(at[1])}, shimEnv(), "", files, sys)
}

func shimEnv() []string {
	env := []string{"GOMAXPROCS=2", "GOTRACEBACK=none"}
	for _, name := range []string{"GOCOVERDIR", "GORACE"} { // of a binary that is tested
		if value, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// leaveCopier leaves a process behind that copies from one descriptor to
// another until the end of the one or the other.
func leaveCopier(from, to int) error {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	file, err := self()
	if err != nil {
		return err
	}
	pid, err := spawn(file, []string{shimName, copyWord}, shimEnv(), "/",
		[]uintptr{uintptr(from), uintptr(to), uintptr(fdOf(null))}, nil)
	if err == nil {
		disown(pid)
	}
	return err
}

// ShimMain is the shim's main. The result is its exit code, which nobody
// reads.
func ShimMain(args []string) int {
	_ = os.WriteFile("/proc/self/comm", []byte("aep-wrap-shim"), 0) // else it is called "exe"
	if len(args) == 2 && args[1] == copyWord {
		closeInherited()
		carry(0, 1)
		return 0
	}
	if len(args) != 3 {
		return 2
	}
	sock, err1 := strconv.Atoi(args[1])
	tty, err2 := strconv.Atoi(args[2])
	if err1 != nil || err2 != nil {
		return 2
	}
	unix.CloseOnExec(sock) // what is not so marked is the agent's
	unix.CloseOnExec(tty)
	w, err := newWire(sock)
	if err != nil {
		return 2
	}
	s := &shim{w: w, tty: tty, parent: os.Getppid()}
	return s.run()
}

type shim struct {
	w   *wire
	tty int // the user's terminal
	pid int // the agent, 0 when it has ended

	parent int  // the wrapper
	told   bool // the wrapper told us to continue the agent

	undo        []byte // what to write to tty should the wrapper die
	raw         bool   // the wrapper has made tty raw
	saved, ours unix.Termios
}

type shimMessage struct {
	kind byte
	body []byte
	fd   int
	err  error
}

type childChange struct {
	pid int
	st  syscall.WaitStatus
}

func (s *shim) run() int {
	if s.w.send(msgReady, nil) != nil {
		return 1
	}
	var order launchOrder
	for kind := byte(0); kind != msgLaunch; {
		k, body, _, err := s.w.receive()
		if err != nil {
			return s.abandoned()
		}
		if kind = k; kind != msgLaunch {
			s.note(kind, body)
			continue
		}
		if order, err = decodeLaunch(body); err != nil {
			return 1
		}
	}
	// What a hangup or a stray kill sends must not end the one process that
	// everything here hangs on. Signals with a handler are at their default in
	// the agent; those that we were started with ignored stay ignored there.
	ignored := ignoring()
	for _, sig := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM} {
		if !ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	adoptOrphans()
	sys := &syscall.SysProcAttr{Setpgid: true}
	if order.foreground {
		sys.Foreground, sys.Ctty = true, 0
	}
	pid, err := spawn(order.path, order.args, order.env, order.dir, []uintptr{0, 1, 2}, sys)
	if err != nil {
		errno := syscall.ENOEXEC
		_ = errors.As(err, &errno)
		_ = s.w.send(msgFailed, putInt(int32(errno)))
		return 1
	}
	s.pid = pid
	// After the agent's start, so that it does not inherit any of this: the
	// terminal's foreground may be set from its background, and no descriptor
	// but our own three is held open.
	signal.Ignore(syscall.SIGTTOU, syscall.SIGTTIN, syscall.SIGTSTP)
	closeInherited()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err == nil {
		_ = dup2(fdOf(null), 1)
		_ = dup2(fdOf(null), 2)
	}
	if s.w.send(msgStarted, putInt(int32(pid))) != nil {
		return s.abandoned()
	}

	messages := make(chan shimMessage)
	go func() {
		for {
			kind, body, fd, err := s.w.receive()
			messages <- shimMessage{kind, body, fd, err}
			if err != nil {
				return
			}
		}
	}()
	changes := make(chan childChange)
	go func() {
		for {
			var st syscall.WaitStatus
			pid, err := syscall.Wait4(-1, &st, syscall.WUNTRACED|syscall.WCONTINUED, nil)
			if err == syscall.EINTR {
				continue
			}
			if err != nil {
				return // there is nobody left
			}
			changes <- childChange{pid, st}
		}
	}()
	for {
		select {
		case c := <-changes:
			if c.pid != s.pid {
				continue // adopted; taking it was all
			}
			switch {
			case c.st.Stopped():
				s.told = false
				_ = s.w.send(msgStopped, putInt(int32(c.st.StopSignal())))
			case c.st.Continued():
				// Should the wrapper have stopped with the agent, whoever continued
				// the agent meant both.
				if !s.told && os.Getppid() == s.parent {
					_ = syscall.Kill(s.parent, syscall.SIGCONT)
				}
				s.told = false
			default:
				s.pid = 0
				s.foreground(unix.Getpgrp())
				if null != nil {
					_ = dup2(fdOf(null), 0) // who else has the PTY open is now told by its end
				}
				_ = s.w.send(msgEnded, putInt(int32(c.st)))
			}
		case m := <-messages:
			if m.err != nil {
				return s.abandoned()
			}
			switch m.kind {
			case msgForeground:
				s.resume(s.pid)
			case msgBackground:
				s.resume(unix.Getpgrp())
			case msgUndo, msgModes:
				s.note(m.kind, m.body)
			case msgLinger:
				s.linger(m.fd, changes)
				return 0
			case msgGoodbye:
				return 0
			}
		}
	}
}

// note takes what to do should the wrapper die.
func (s *shim) note(kind byte, body []byte) {
	switch kind {
	case msgUndo:
		s.undo = body
	case msgModes:
		s.saved, s.ours, s.raw = decodeModes(body)
	}
}

// resume continues the agent with group in the terminal's foreground.
func (s *shim) resume(group int) {
	if s.pid == 0 {
		return
	}
	s.told = true
	s.foreground(group)
	_ = syscall.Kill(-s.pid, syscall.SIGCONT)
}

// foreground makes group the foreground one of our terminal.
func (s *shim) foreground(group int) {
	_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, group)
}

// abandoned is called when the wrapper has died without a goodbye.
func (s *shim) abandoned() int {
	// At once, before the shell looks at the terminal; but not over settings
	// that somebody has made since.
	if s.raw {
		if now, err := unix.IoctlGetTermios(s.tty, getTermios); err == nil && *now == s.ours {
			_ = unix.IoctlSetTermios(s.tty, setTermios, &s.saved)
		}
	}
	if len(s.undo) > 0 {
		room := waitFD{fd: s.tty, write: true}
		if waitFDs(time.Second, &room) == nil && room.ready {
			_, _ = unix.Write(s.tty, s.undo)
		}
	}
	if s.pid != 0 {
		_ = syscall.Kill(-s.pid, syscall.SIGHUP)
		_ = syscall.Kill(-s.pid, syscall.SIGCONT)
	}
	return 0
}

// linger carries the output of what the agent left behind to the user's
// terminal for as long as anybody there has the PTY open, or until the user's
// terminal is gone.
func (s *shim) linger(master int, changes <-chan childChange) {
	s.w.close()
	go func() {
		for range changes {
		}
	}()
	if master >= 0 {
		carry(master, s.tty)
		unix.Close(master)
	}
}

// carry copies from one descriptor to another until the end of either.
func carry(from, to int) {
	buf := make([]byte, 32<<10)
	for {
		data, dest := waitFD{fd: from, read: true}, waitFD{fd: to}
		if waitFDs(-1, &data, &dest) != nil || dest.bad {
			return
		}
		n, err := unix.Read(from, buf)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		if n <= 0 || writeAll(to, buf[:n]) != nil {
			return
		}
	}
}

// closeInherited closes what was handed to us above 2: the agent's.
func closeInherited() {
	for fd := range inherited() {
		unix.Close(fd)
	}
}

// The words between wrapper and shim: a byte for the kind, four for the
// length, and the body. A descriptor may come with one.
const (
	msgLaunch     = 'L' // to the shim: a launchOrder
	msgForeground = 'F' // to the shim: the agent to its terminal's foreground, and go on
	msgBackground = 'B' // to the shim: out of it, and go on
	msgUndo       = 'U' // to the shim: what to write to the user's terminal should we die
	msgModes      = 'M' // to the shim: the user's terminal is raw, and what it was; or is not
	msgLinger     = 'K' // to the shim, with the master: carry on what comes
	msgGoodbye    = 'G' // to the shim: all is done
	msgReady      = 'R' // from the shim: it is there
	msgStarted    = 'P' // from the shim: the agent's pid
	msgFailed     = 'E' // from the shim: the errno that it could not be started for
	msgStopped    = 'T' // from the shim: the signal that stopped the agent
	msgEnded      = 'X' // from the shim: its wait status
)

const maxMessage = 64 << 20 // arguments and environment have their own, smaller limit

// wire is one end of the socket between wrapper and shim.
type wire struct {
	conn *net.UnixConn
	mu   sync.Mutex // of sending
}

// newWire takes over a connected socket.
func newWire(fd int) (*wire, error) {
	f := os.NewFile(uintptr(fd), "shim")
	if f == nil {
		return nil, os.ErrInvalid
	}
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		c.Close()
		return nil, errors.New("not a unix socket")
	}
	return &wire{conn: u}, nil
}

func (w *wire) close() { w.conn.Close() }

func (w *wire) send(kind byte, body []byte) error { return w.sendFile(kind, -1, body...) }

// sendFile sends a message, with a descriptor unless that is negative.
func (w *wire) sendFile(kind byte, fd int, body ...byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	b := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(body)))
	b = append(b, body...)
	_ = w.conn.SetWriteDeadline(time.Now().Add(5 * time.Second))
	n, _, err := w.conn.WriteMsgUnix(b, rights, nil)
	if err == nil && n < len(b) {
		_, err = w.conn.Write(b[n:])
	}
	return err
}

// receive reads a message; fd is -1 without a descriptor.
func (w *wire) receive() (kind byte, body []byte, fd int, err error) {
	fd = -1
	var head [5]byte
	oob := make([]byte, unix.CmsgSpace(4))
	for got := 0; got < len(head); {
		n, oobn, _, _, err := w.conn.ReadMsgUnix(head[got:], oob)
		if err == nil && n == 0 {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, nil, -1, err
		}
		got += n
		if oobn > 0 {
			if msgs, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil && len(msgs) == 1 {
				if fds, err := unix.ParseUnixRights(&msgs[0]); err == nil && len(fds) == 1 {
					fd = fds[0]
				}
			}
		}
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size > maxMessage {
		return 0, nil, fd, fmt.Errorf("a message of %d bytes", size)
	}
	body = make([]byte, size)
	_, err = io.ReadFull(w.conn, body)
	return head[0], body, fd, err
}

func putInt(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

func getInt(b []byte) int32 {
	if len(b) < 4 {
		return 0
	}
	return int32(binary.BigEndian.Uint32(b))
}

// launchOrder is what to start. Its strings may hold any byte, so they travel
// with their lengths.
type launchOrder struct {
	path, dir  string
	args, env  []string
	foreground bool
}

func (o *launchOrder) encode() []byte {
	var b []byte
	str := func(s string) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	list := func(l []string) {
		b = binary.BigEndian.AppendUint32(b, uint32(len(l)))
		for _, s := range l {
			str(s)
		}
	}
	if b = append(b, 0); o.foreground {
		b[0] = 1
	}
	str(o.path)
	str(o.dir)
	list(o.args)
	list(o.env)
	return b
}

func decodeLaunch(b []byte) (o launchOrder, err error) {
	num := func() int {
		if len(b) < 4 {
			err = io.ErrUnexpectedEOF
			return 0
		}
		n := binary.BigEndian.Uint32(b)
		if b = b[4:]; int64(n) > int64(len(b)) {
			err = io.ErrUnexpectedEOF
			return 0
		}
		return int(n)
	}
	str := func() string {
		n := num()
		s := string(b[:n])
		b = b[n:]
		return s
	}
	list := func() (l []string) {
		for n := num(); n > 0 && err == nil; n-- {
			l = append(l, str())
		}
		return l
	}
	if len(b) == 0 {
		return o, io.ErrUnexpectedEOF
	}
	o.foreground = b[0] != 0
	b = b[1:]
	o.path, o.dir, o.args, o.env = str(), str(), list(), list()
	if err == nil && len(b) > 0 {
		err = errors.New("bytes after the order")
	}
	return o, err
}

// encodeModes carries termios as they lie in memory: both ends are one
// program.
func encodeModes(saved, ours unix.Termios) []byte {
	const n = unsafe.Sizeof(saved)
	b := append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&saved)), n)...)
	return append(b, unsafe.Slice((*byte)(unsafe.Pointer(&ours)), n)...)
}

func decodeModes(b []byte) (saved, ours unix.Termios, ok bool) {
	const n = int(unsafe.Sizeof(saved))
	if len(b) != 2*n {
		return saved, ours, false
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&saved)), n), b)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(&ours)), n), b[n:])
	return saved, ours, true
}
