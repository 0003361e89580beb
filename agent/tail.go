package agent

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	maxLine = 32 << 20 // bytes of one line; a longer one is passed over and told
	// pollBusy is how often a followed file is looked at where no change is
	// announced (network mounts, no inotify left), pollIdle where it is.
	pollBusy = 200 * time.Millisecond
	pollIdle = 2 * time.Second
	// rewind is how much of a log that changed since the launch is read again:
	// it can hold lines of ours from before its name was known. What is older
	// than the launch is history, which its lines' own times say.
	rewind = 1 << 20
)

// TailConfig says what a Tail follows.
type TailConfig struct {
	Path  string
	Since time.Time // the launch: a file unchanged since then is followed from its end
	Line  func(line []byte)
	Skip  func(bytes int) // a line over the bound was passed over
	Log   *slog.Logger
}

// Tail follows one file that grows by lines. It gives whole lines only: a torn
// last one is waited for. A file that is not there yet, is truncated or is
// replaced is read from its start.
//
// It is no follow.Follower, which reads what it finds on a goroutine of its own,
// in whatever order, and keeps where it was. A launch knows its files by name,
// is over with them at its end, and must have one read now: a hook that comes
// waits until what its log told of before is taken in (CatchUp).
type Tail struct {
	cfg  TailConfig
	stop chan struct{}
	done chan struct{}
	now  chan chan struct{} // who wants it read at once

	file   *os.File
	offset int64
	cut    cutter
	buf    []byte
}

// Follow starts following a file.
func Follow(c TailConfig) *Tail {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	t := &Tail{cfg: c, stop: make(chan struct{}), done: make(chan struct{}), now: make(chan chan struct{}), cut: cutter{tell: c.Line, skip: c.Skip}}
	t.open(true)
	go t.run()
	return t
}

// CatchUp has what the file holds right now told, and waits for that no longer
// than patience.
func (t *Tail) CatchUp(patience time.Duration) {
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	read := make(chan struct{})
	select {
	case t.now <- read:
	case <-t.done:
		return
	case <-timeout.C:
		return
	}
	select {
	case <-read:
	case <-timeout.C:
	}
}

// Drain reads what is still there and ends the tail; ctx bounds the wait.
func (t *Tail) Drain(ctx context.Context) {
	close(t.stop)
	select {
	case <-t.done:
	case <-ctx.Done():
	}
}

func (t *Tail) run() {
	defer close(t.done)
	defer func() {
		if t.file != nil {
			t.file.Close()
		}
	}()
	var changed <-chan fsnotify.Event
	var missed <-chan error // must be read, or nothing more is announced
	poll := pollBusy
	// The directory is watched, not the file: that tells of a file that is yet
	// to come and of one that takes its place.
	if w, err := fsnotify.NewWatcher(); err != nil {
		t.cfg.Log.Warn("no change notices: the file is polled", "path", t.cfg.Path, "err", err)
	} else {
		defer w.Close()
		if err := w.Add(filepath.Dir(t.cfg.Path)); err == nil {
			changed, missed, poll = w.Events, w.Errors, pollIdle
		}
	}
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		t.read()
		select {
		case <-t.stop:
			t.read()
			t.cut.end()
			return
		case read := <-t.now:
			t.read()
			close(read)
			continue
		case <-tick.C:
		case _, ok := <-missed:
			if !ok {
				missed = nil
			}
		case e, ok := <-changed:
			if !ok {
				changed = nil
				tick.Reset(pollBusy)
			} else if filepath.Base(e.Name) != filepath.Base(t.cfg.Path) {
				continue
			}
		}
	}
}

// open opens the file where there is one. The first time it goes to where
// this launch begins.
func (t *Tail) open(first bool) {
	// What is a pipe must not be waited for.
	f, err := os.OpenFile(t.cfg.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			t.cfg.Log.Debug("cannot follow", "path", t.cfg.Path, "err", err)
		}
		return
	}
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		f.Close()
		return
	}
	t.file, t.offset = f, 0
	t.cut.reset(false)
	if !first {
		return
	}
	switch {
	case fi.ModTime().Before(t.cfg.Since):
		t.offset = fi.Size()
	case fi.Size() > rewind:
		t.offset = fi.Size() - rewind
		t.cut.reset(true) // somewhere inside a line: its rest is not told
	}
}

// read takes what the file has grown by, and where another stands at its path by
// now, what that holds.
func (t *Tail) read() {
	if t.replaced() {
		t.readOn() // what was written to it last
		t.file.Close()
		t.file = nil
	}
	if t.file == nil {
		if t.open(false); t.file == nil {
			return
		}
	}
	t.readOn()
}

// readOn takes what is there behind what was read.
func (t *Tail) readOn() {
	if t.buf == nil {
		t.buf = make([]byte, 64<<10)
	}
	for {
		n, err := t.file.ReadAt(t.buf, t.offset)
		t.offset += int64(n)
		t.cut.take(t.buf[:n])
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.cfg.Log.Debug("cannot read on", "path", t.cfg.Path, "err", err)
			}
			return
		}
	}
}

// replaced says whether the path now names another file, or the file lost
// what was already read of it.
func (t *Tail) replaced() bool {
	if t.file == nil {
		return false
	}
	have, err := t.file.Stat()
	if err != nil {
		return true
	}
	now, err := os.Stat(t.cfg.Path)
	if err == nil && !os.SameFile(have, now) {
		return true
	}
	return have.Size() < t.offset
}
