package jsonl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Ref is where a log holds a line: Len bytes from Off, the newline among them.
// The zero Ref is nowhere.
type Ref struct {
	Path string
	Off  int64
	Len  int
}

// End is the offset behind the line.
func (r Ref) End() int64 { return r.Off + int64(r.Len) }

// Log is a session's log, open for its one owner.
type Log struct {
	// Warning is what the user should know of this log, in one line; "" when
	// all is well.
	Warning string

	path string
	lock *Lock

	mu     sync.Mutex
	f      *os.File
	size   int64
	buf    []byte
	torn   bool // the file ends in the middle of a line that could not be cut off
	failed bool
	retry  time.Time
	lost   int64
	cap    int64
	every  time.Duration
	timer  *time.Timer
	dirty  bool
}

// retryAfter is how long a log that could not be written is left alone.
const retryAfter = time.Second

// syncEvery is how often a written log goes to the disk for good.
const syncEvery = 5 * time.Second

// The errors of Append, beside those of the file system. ErrSuspended and
// ErrCapped come again and again; the error before them told why.
var (
	ErrSuspended = errors.New("the log could not be written a moment ago and is left alone for a while")
	ErrCapped    = errors.New("the log has reached its size limit")
	ErrClosed    = errors.New("the log is closed")
	ErrLine      = errors.New("not one line")
)

// Path is where the log of a session is, or would be.
func Path(root, agent, session string) string {
	return filepath.Join(root, SafeName(agent), SafeName(session)+".jsonl")
}

// ownPatience is how long a session's owner waits for one that only looks
// whether there is an owner, that closes what a dead one left, or that watches
// the session's own logs.
const ownPatience = time.Second

// Open opens, or starts, the log of a session and takes its ownership. The
// error is an *ErrOwned where another process has it, and keeps it.
func Open(root, agent, session string) (*Log, error) {
	path := Path(root, agent, session)
	asked := false
	for deadline := time.Now().Add(ownPatience); ; time.Sleep(20 * time.Millisecond) {
		late := time.Now().After(deadline) // before the last try: who got no processor meanwhile has one all the same
		l, err := OpenPath(path)
		if owned := (*ErrOwned)(nil); !errors.As(err, &owned) || late {
			if err == nil {
				_ = os.Remove(beside(path, ".watched"))
			}
			return l, err
		}
		if !asked {
			asked = true
			if os.WriteFile(beside(path, ".want"), nil, 0o600) == nil {
				defer os.Remove(beside(path, ".want"))
			}
		}
	}
}

// Wanted says whether somebody whose session it is waits for the ownership of
// the log at path. Who only watches gives it up then.
func Wanted(path string) bool {
	fi, err := os.Lstat(beside(path, ".want"))
	return err == nil && time.Since(fi.ModTime()) < 2*ownPatience
}

// MarkWatched notes of a log that its owner only watches the session: nobody
// can say that it ended because that owner is gone. It holds until Open.
func MarkWatched(path string) error {
	f, err := os.OpenFile(beside(path, ".watched"), os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// MarkHooked notes of a log that is marked as watched from when to when hooks
// told of its session.
func MarkHooked(path string, from, to time.Time) error {
	f, err := os.OpenFile(beside(path, ".watched"), os.O_CREATE|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(f, "%013d %013d\n", from.UnixMilli(), to.UnixMilli()) // one write, of one length
	return errors.Join(err, f.Close())
}

// Hooked gives what MarkHooked noted; zero is never.
func Hooked(path string) (from, to time.Time) {
	var a, b int64
	raw, err := os.ReadFile(beside(path, ".watched"))
	if err != nil {
		return from, to
	}
	if n, err := fmt.Sscanf(string(raw), "%d %d\n", &a, &b); n != 2 || err != nil {
		return from, to
	}
	return time.UnixMilli(a), time.UnixMilli(b)
}

// IsWatched says whether a log is so marked.
func IsWatched(path string) bool {
	_, err := os.Lstat(beside(path, ".watched"))
	return err == nil
}

// OpenPath is Open for a log that was found by its path, for whoever does not
// own the session's process: it does not wait for an owner.
func OpenPath(path string) (*Log, error) {
	l, err := openPath(path)
	if errors.As(err, new(*ErrOwned)) {
		done, _ := takeTurn(path) // by who looked after it, perhaps
		defer done()
		l, err = openPath(path)
	}
	return l, err
}

func openPath(path string) (*Log, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("log directory: %w", err)
	}
	lk, warning, err := take(beside(path, ".lock"), path)
	if err != nil {
		return nil, err
	}
	l := &Log{path: path, lock: lk, Warning: warning, every: syncEvery}
	if err := l.open(); err != nil {
		lk.Release()
		return nil, fmt.Errorf("log %s: %w", path, err)
	}
	return l, nil
}

// beside is the path of a log's companion.
func beside(path, end string) string { return strings.TrimSuffix(path, ".jsonl") + end }

func (l *Log) open() error {
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if err != nil {
		return err
	}
	st, err := f.Stat()
	switch {
	case err != nil:
	case !st.Mode().IsRegular():
		err = errors.New("not a regular file")
	case st.Mode().Perm()&0o077 != 0:
		err = f.Chmod(0o600)
	}
	if err == nil {
		l.f, l.size = f, st.Size()
		err = l.mend()
	}
	if err != nil {
		f.Close()
	}
	return err
}

// mend repairs a log whose last line has no newline: a whole object gets one,
// half a line is moved to the file beside the log.
func (l *Log) mend() error {
	if l.size == 0 {
		return nil
	}
	start, err := lineStart(l.f, l.size)
	if err != nil || start == l.size {
		return err
	}
	n := l.size - start
	if n <= MaxLine {
		tail := make([]byte, n)
		if _, err := l.f.ReadAt(tail, start); err != nil {
			return err
		}
		if tail[0] == '{' && json.Valid(tail) {
			if _, err := l.f.Write([]byte{'\n'}); err != nil {
				return err
			}
			l.size++
			return nil
		}
	}
	aside, err := os.OpenFile(beside(l.path, ".torn"), os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		_, err = io.Copy(aside, io.MultiReader(io.NewSectionReader(l.f, start, min(n, MaxLine)), strings.NewReader("\n")))
		aside.Close()
	}
	if err != nil {
		l.Warning = fmt.Sprintf("log %s: half a line of %d bytes at its end could not be kept: %v", l.path, n, err)
	}
	if err := l.f.Truncate(start); err != nil {
		return fmt.Errorf("half a line at its end cannot be cut off: %w", err)
	}
	l.size = start
	return nil
}

// lineStart is the offset behind the last newline before end.
func lineStart(r io.ReaderAt, end int64) (int64, error) {
	var buf []byte
	for end > 0 {
		// Most lines are short; a long one is looked through in larger pieces.
		if len(buf) < 64<<10 {
			buf = make([]byte, max(4<<10, 4*len(buf)))
		}
		n := min(int64(len(buf)), end)
		if _, err := r.ReadAt(buf[:n], end-n); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return end - n + int64(i) + 1, nil
		}
		end -= n
	}
	return 0, nil
}

// Locked says whether the ownership holds: false where the file system has no
// locks, and another owner would not be noticed.
func (l *Log) Locked() bool { return l.lock.holds }

// Path is where the log is.
func (l *Log) Path() string { return l.path }

// Size is the log's length in bytes.
func (l *Log) Size() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size
}

// Lost counts the lines that could not be written.
func (l *Log) Lost() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lost
}

// Limit sets the size beyond which the log takes nothing more; 0 is no limit.
func (l *Log) Limit(bytes int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cap = bytes
}

// SyncEvery sets how often a written log goes to the disk for good; 0 is only
// when it closes, and below that is only when Sync says so.
func (l *Log) SyncEvery(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.every = d
}

// Append writes one line, given without its newline, in one write. After an
// error the log stays whole, without the line; it is left alone for a second
// (ErrSuspended) and then tried again.
func (l *Log) Append(line []byte) (Ref, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = l.buf[:0]
	if err := l.line(line); err != nil {
		return Ref{}, err
	}
	if err := l.write(1); err != nil {
		return Ref{}, err
	}
	return Ref{Path: l.path, Off: l.size - int64(len(line)) - 1, Len: len(line) + 1}, nil
}

// AppendBatch writes several whole lines in one write: all of them, or none.
// It appends their places to refs.
func (l *Log) AppendBatch(refs []Ref, lines [][]byte) ([]Ref, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = l.buf[:0]
	total := int64(0)
	for _, line := range lines {
		if err := l.line(line); err != nil {
			return refs, err
		}
		total += int64(len(line)) + 1
	}
	if len(lines) == 0 {
		return refs, nil
	}
	if err := l.write(len(lines)); err != nil {
		return refs, err
	}
	off := l.size - total
	for _, line := range lines {
		refs = append(refs, Ref{Path: l.path, Off: off, Len: len(line) + 1})
		off += int64(len(line)) + 1
	}
	return refs, nil
}

func (l *Log) line(line []byte) error {
	if len(line) == 0 || bytes.IndexByte(line, '\n') >= 0 {
		return fmt.Errorf("log %s: %w: %d bytes", l.path, ErrLine, len(line))
	}
	l.buf = append(append(l.buf, line...), '\n')
	return nil
}

// write appends l.buf, which holds n lines.
func (l *Log) write(n int) error {
	switch {
	case l.f == nil:
		l.lost += int64(n)
		return ErrClosed
	case l.cap > 0 && l.size+int64(len(l.buf)) > l.cap:
		l.lost += int64(n)
		return ErrCapped
	case l.failed && time.Now().Before(l.retry):
		l.lost += int64(n)
		return ErrSuspended
	}
	out := l.buf
	if l.torn { // set the half line apart, so that it spoils no whole one
		out = append([]byte{'\n'}, l.buf...)
	}
	done, err := l.f.Write(out)
	if err != nil {
		l.lost += int64(n)
		l.failed, l.retry = true, time.Now().Add(retryAfter)
		if done > 0 && l.f.Truncate(l.size) != nil {
			l.size += int64(done)
			l.torn = true
		}
		return fmt.Errorf("log %s: %w; events are not kept until it can be written again", l.path, err)
	}
	l.size += int64(done)
	l.torn, l.failed = false, false
	if cap(l.buf) > 1<<20 {
		l.buf = nil
	}
	if !l.dirty && l.every > 0 {
		l.timer = time.AfterFunc(l.every, l.sync)
	}
	l.dirty = true
	return nil
}

// Sync puts what was written on the disk for good.
func (l *Log) Sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil || !l.dirty {
		return nil
	}
	l.dirty = false
	return l.f.Sync()
}

func (l *Log) sync() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f != nil && l.dirty {
		l.dirty = false
		_ = l.f.Sync() // on an error the next write tells
	}
}

// Replay gives every line that the log holds, oldest first, without its
// newline; before them, what was left of a log that was removed here. The line
// is only good until fn returns. Lines beyond MaxLine are passed over.
func (l *Log) Replay(fn func(line []byte) error) error {
	if err := Rest(l.path, fn); err != nil {
		return fmt.Errorf("log %s: %w", l.path, err)
	}
	r, err := OpenReader(l.path, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	end := l.Size()
	for {
		line, ref, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, ErrLong):
			continue
		case err != nil:
			return fmt.Errorf("log %s: %w", l.path, err)
		case ref.End() > end:
			return nil
		}
		if err := fn(line); err != nil {
			return err
		}
	}
}

// Close writes the log to the disk for good and gives its ownership up.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.f == nil {
		return nil
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	var err error
	if l.dirty && l.every >= 0 {
		err = l.f.Sync()
	}
	if e := l.f.Close(); err == nil {
		err = e
	}
	l.f = nil
	l.lock.Release()
	if err != nil {
		return fmt.Errorf("log %s: %w", l.path, err)
	}
	return nil
}
