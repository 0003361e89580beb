package queue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"aep-wrap/queue/jsonl"
)

// maxActive bounds the logs of dead owners that are sent at a time.
const maxActive = 8

// Resume finds the logs under root that owe this sink something: the sink is
// one of theirs, their end was not acknowledged, and their owner is gone. They
// are sent a few at a time, each with its ownership taken, so that nobody else
// sends or writes them meanwhile. It gives how many there may be; a log that
// turns out to be owned is left alone.
func (f *Feed) Resume(root string) (int, error) {
	if f.o.Sink == "" {
		return 0, errors.New("a feed without a name for its sink has no saved positions to go on from")
	}
	paths, err := filepath.Glob(filepath.Join(escape(root), "*", "*.jsonl"))
	if err != nil {
		return 0, fmt.Errorf("log directory %s: %w", root, err)
	}
	var owing []string
	for _, path := range paths {
		if f.own(path) {
			continue
		}
		at, ours, _ := jsonl.LoadPosition(path, f.o.Sink)
		st, err := os.Stat(path)
		if err != nil || !ours || st.Size() == 0 || at.ID != "" && at.Offset == st.Size() {
			continue
		}
		owing = append(owing, path)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return 0, ErrClosed
	}
	n := 0
	for _, path := range owing {
		if f.logs[path] == nil && !slices.Contains(f.orphans, path) {
			f.orphans = append(f.orphans, path)
			n++
		}
	}
	if n > 0 {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	return n, nil
}

func (f *Feed) own(path string) bool { return f.o.Own != nil && f.o.Own(path) }

// escape makes a path safe in a glob pattern.
func escape(path string) string {
	var b []rune
	for _, r := range path {
		switch r {
		case '*', '?', '[', '\\':
			b = append(b, '\\')
		}
		b = append(b, r)
	}
	return string(b)
}

// adopt takes the next dead owner's log on, if there is one and its turn has
// come. It says whether it did anything.
func (f *Feed) adopt() bool {
	f.mu.Lock()
	if f.closed || len(f.orphans) == 0 || f.active >= maxActive {
		f.mu.Unlock()
		return false
	}
	path := f.orphans[0]
	f.orphans = f.orphans[1:]
	if f.own(path) {
		f.mu.Unlock()
		return true
	}
	f.active++
	f.mu.Unlock()

	o, err := f.open(path)

	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && !f.closed && f.lanes[o.head.Agent+"\x00"+o.head.Session] == nil && f.logs[path] == nil && o.off < o.end {
		l := f.lane(o.head.Agent, o.head.Session)
		f.setLog(l, path)
		l.acked, l.orphan, l.done, l.end = o.at, o.lock, true, o.end
		f.push(l, &entry{lane: l, span: true, off: o.off, end: o.end})
		return true
	}
	f.active--
	if o.lock != nil {
		o.lock.Release()
	}
	if owned := (*jsonl.ErrOwned)(nil); err != nil && !errors.As(err, &owned) {
		f.o.Log.Warn("a log with unsent events cannot be taken on", "log", path, "error", err)
	}
	return true
}

type orphan struct {
	lock *jsonl.Lock
	head jsonl.Head
	at   jsonl.Position
	off  int64
	end  int64
}

// open makes sure that a log's owner is gone, mends what it left, and takes
// the right to send the rest to this sink. The session itself is not held: who
// resumes it is not kept waiting for a collector that is away. Its owner will
// then send the same tail from the same position, which is redelivery.
func (f *Feed) open(path string) (o orphan, err error) {
	if o.lock, err = jsonl.LockSink(path, f.o.Sink); err != nil {
		return o, err
	}
	if _, err := os.Stat(path); err != nil { // it was pruned: opening it would make it
		return o, err
	}
	if o.end, err = jsonl.Settle(path); err != nil {
		return o, err
	}
	if o.off, o.at, err = f.locate(path); err != nil {
		return o, err
	}
	r, err := jsonl.OpenReader(path, 0)
	if err != nil {
		return o, err
	}
	defer r.Close()
	for {
		line, _, err := r.Next()
		if err != nil && !errors.Is(err, jsonl.ErrLong) {
			return o, err
		}
		h, ok := jsonl.ReadHead(line)
		if ok && h.Session != "" && !h.Foreign() {
			o.head = h
			return o, nil
		}
	}
}
