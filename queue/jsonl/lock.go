package jsonl

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrOwned says that another process owns the session. Pid is 0 where the
// owner did not leave its number.
type ErrOwned struct {
	Path string
	Pid  int
}

func (e *ErrOwned) Error() string {
	if e.Pid == 0 {
		return fmt.Sprintf("log %s: the session is owned by another process", e.Path)
	}
	return fmt.Sprintf("log %s: the session is owned by process %d", e.Path, e.Pid)
}

// Lock is the ownership of a session, or of its sending to a sink. The kernel
// gives it up when its process dies, so a lock is never stale, whatever the
// file says.
type Lock struct {
	f     *os.File
	path  string
	holds bool // the file system has locks
}

// take locks the file at path. Where the file system has no locks, it gives a
// lock that holds nothing, with the reason.
func take(path, logPath string) (*Lock, string, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, "", err
		}
		switch err := flock(f); {
		case err == nil:
		case errors.Is(err, unix.EWOULDBLOCK):
			pid := owner(f)
			f.Close()
			return nil, "", &ErrOwned{Path: logPath, Pid: pid}
		case errors.Is(err, unix.ENOLCK), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL):
			return &Lock{f: f, path: path}, fmt.Sprintf("%s: the file system has no locks (%v): a second wrapper of this session would not be noticed", path, err), nil
		default:
			f.Close()
			return nil, "", fmt.Errorf("lock %s: %w", path, err)
		}
		// An owner removes the file as it goes. Who opened it just before then
		// holds a lock on a file that nobody else will find.
		if !same(f, path) {
			f.Close()
			continue
		}
		if err := f.Truncate(0); err == nil {
			_, _ = f.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0)
		}
		return &Lock{f: f, path: path, holds: true}, "", nil
	}
}

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func owner(f *os.File) int {
	b, _ := io.ReadAll(io.LimitReader(f, 32))
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}

func same(f *os.File, path string) bool {
	a, err := f.Stat()
	if err != nil {
		return false
	}
	b, err := os.Lstat(path)
	return err == nil && os.SameFile(a, b)
}

// LockSink takes the right to send the log at path to a sink on behalf of an
// owner that died. The error is an *ErrOwned where another process has it.
func LockSink(path, sink string) (*Lock, error) {
	l, _, err := take(sinkPath(path, sink, ".sending"), path)
	return l, err
}

// turns are of those in this process who take a log's lock for a moment, to look
// after it, and of those who would own it and found it taken: one at a time, in
// the order in which they came. So nobody's glance is taken for an owner.
var turns = struct {
	sync.Mutex
	of map[string]*turn
}{of: map[string]*turn{}}

type turn struct {
	c    chan struct{} // holds a token while somebody has it
	want int
}

// turnWait bounds the waiting for one.
const turnWait = 500 * time.Millisecond

// takeTurn waits for a turn at a log; ok is false where that takes too long,
// and done is to be called in any case.
func takeTurn(path string) (done func(), ok bool) {
	turns.Lock()
	t := turns.of[path]
	if t == nil {
		t = &turn{c: make(chan struct{}, 1)}
		turns.of[path] = t
	}
	t.want++
	turns.Unlock()
	late := time.NewTimer(turnWait)
	defer late.Stop()
	select {
	case t.c <- struct{}{}:
		ok = true
	case <-late.C:
	}
	return func() {
		if ok {
			<-t.c
		}
		turns.Lock()
		defer turns.Unlock()
		if t.want--; t.want == 0 {
			delete(turns.of, path)
		}
	}, ok
}

// Settle makes sure that a log's owner is gone, mends what it left, and gives
// the log's length.
func Settle(path string) (int64, error) {
	done, ok := takeTurn(path)
	defer done()
	if !ok {
		return 0, &ErrOwned{Path: path, Pid: os.Getpid()}
	}
	l, err := openPath(path)
	if err != nil {
		return 0, err
	}
	return l.Size(), l.Close()
}

// Release removes the file, then gives the lock up: in this order nobody can
// lock a file that is about to go.
func (l *Lock) Release() {
	if same(l.f, l.path) {
		_ = os.Remove(l.path)
	}
	l.f.Close()
}
