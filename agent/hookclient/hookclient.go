// Package hookclient is the hook helper: what a runtime runs for each of its
// hooks where it cannot call the wrapper by HTTP. It carries the payload from
// stdin to the wrapper's unix socket, and the answer to stdout.
//
// It stands between an agent and each of its tool calls, so it is small (no
// net, no fmt) and fails open: whatever goes wrong, nothing is printed and the
// exit code is 0, which every runtime takes for "no decision". It must not
// parse the payload, log it, or keep it.
package hookclient

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// The protocol: the client sends one line, Greeting and the adapter's and the
// event's names with spaces between them, and the payload up to its end (the
// end of a JSON object will do, stdin may stay open). The server answers
// Waiting any number of times, each of which says that the moment is held and
// an answer may take long, and at last Answering, the answer's length in
// decimal, a newline and the answer. A connection that ends before is no
// decision.
const (
	Greeting  = "AEP-HOOK/1"
	Waiting   = 'w'
	Answering = '='
)

// SocketEnv names the environment variable that holds the socket's path.
const SocketEnv = "AEP_HOOK_SOCKET"

// patience is how long the helper stays when nothing moves: neither a byte of
// the payload nor a word from the wrapper. heldFor is how long after a Waiting.
const (
	patience = 3 * time.Second
	heldFor  = 24 * time.Hour
)

// maxAnswer bounds what is printed for the agent.
const maxAnswer = 16 << 20

// Main is the helper's main: args are the adapter's and the event's names. It
// always gives 0.
func Main(args []string) int {
	if len(args) == 0 || len(args) > 2 {
		return 0
	}
	answer, err := Ask(os.Getenv(SocketEnv), args, os.Stdin)
	if err == nil {
		_, _ = os.Stdout.Write(answer) // whoever closed it wants no answer
	}
	return 0
}

// Ask sends the payload and gives the answer; an empty one is no decision.
func Ask(socket string, names []string, payload io.Reader) ([]byte, error) {
	conn, err := dial(socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	c := &call{File: conn}
	c.moved()
	if _, err := conn.WriteString(Greeting + " " + strings.Join(names, " ") + "\n"); err != nil {
		return nil, err
	}
	go c.send(payload)
	return c.receive()
}

// call is one exchange with the wrapper.
type call struct {
	*os.File
	mu   sync.Mutex
	held bool
}

// moved renews the patience: something passed.
func (c *call) moved() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.SetWriteDeadline(time.Now().Add(patience))
	if !c.held {
		c.SetReadDeadline(time.Now().Add(patience))
	}
}

// hold waits for the answer as long as the wrapper lives.
func (c *call) hold() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = true
	c.SetReadDeadline(time.Now().Add(heldFor))
}

// send copies the payload.
func (c *call) send(payload io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := payload.Read(buf)
		if n > 0 {
			c.moved()
			if _, werr := c.Write(buf[:n]); werr != nil {
				return // the other side has heard enough: its answer is on the way
			}
		}
		if err != nil {
			c.closeWrite()
			return
		}
	}
}

func (c *call) closeWrite() {
	raw, err := c.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_WR) })
	}
}

func (c *call) receive() ([]byte, error) {
	var length []byte
	var b [1]byte
	for answering := false; ; {
		if _, err := io.ReadFull(c, b[:]); err != nil {
			return nil, err
		}
		switch {
		case !answering && b[0] == Waiting:
			c.hold()
		case !answering && b[0] == Answering:
			answering = true
		case answering && b[0] == '\n':
			n, err := strconv.Atoi(string(length))
			if err != nil || n < 0 || n > maxAnswer {
				return nil, errBadAnswer
			}
			answer := make([]byte, n)
			_, err = io.ReadFull(c, answer)
			return answer, err
		case answering && len(length) < 10:
			length = append(length, b[0])
		default:
			return nil, errBadAnswer
		}
	}
}

var errBadAnswer = errors.New("not an answer")

// dial connects to a unix socket without package net, whose start costs more
// than the rest of the helper.
func dial(path string) (*os.File, error) {
	if path == "" {
		return nil, errors.New(SocketEnv + " is not set")
	}
	fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		return nil, err
	}
	syscall.CloseOnExec(fd)
	// A wrapper that is stopped accepts nothing: its backlog fills, and connect
	// waits. On Linux the send timeout bounds that.
	tv := syscall.NsecToTimeval(int64(patience))
	_ = syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_SNDTIMEO, &tv)
	if err := syscall.Connect(fd, &syscall.SockaddrUnix{Name: path}); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	// Nonblocking from here on: deadlines need it.
	if err := syscall.SetNonblock(fd, true); err != nil {
		syscall.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}
