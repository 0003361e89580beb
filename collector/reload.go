package collector

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
)

// Reload takes the newest events of the session logs {dir}/{agent}/{session}.jsonl
// into the buffers, newest sessions first, as far as the bounds go. Nobody is
// told of them as new. A line that is not an event is passed over. Of a log
// that its owner has not sent to its end, little more is taken than was sent:
// the rest is still to come, and would otherwise stand in the buffer before
// what comes first.
func (c *Collector) Reload(dir string) error {
	logs, err := sessionLogs(dir)
	if err != nil {
		return err
	}
	var chosen []sessionLog
	rest := c.limits.ReloadBytes
	for _, l := range logs {
		if rest <= 0 || len(chosen) >= c.limits.Sessions {
			break
		}
		l.want = min(l.size, rest, int64(c.limits.SessionBytes))
		rest -= l.want
		chosen = append(chosen, l)
	}
	// Oldest first, so that the newest session is the last to give way.
	var errs []error
	for _, l := range slices.Backward(chosen) {
		if err := c.reloadLog(l); err != nil && !errors.Is(err, fs.ErrNotExist) { // it may be pruned meanwhile
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

type sessionLog struct {
	path    string
	size    int64 // of what is there for us
	more    bool  // and there is more
	changed int64
	want    int64 // how much of its end is read
}

// sessionLogs finds the logs of a directory, the one written last first.
func sessionLogs(dir string) ([]sessionLog, error) {
	paths, err := filepath.Glob(filepath.Join(escapeGlob(dir), "*", "*.jsonl"))
	if err != nil {
		return nil, err
	}
	var logs []sessionLog
	for _, p := range paths {
		fi, err := os.Stat(p)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if fi.Mode().IsRegular() && fi.Size() > 0 {
			size := sent(p, fi.Size())
			logs = append(logs, sessionLog{path: p, size: size, more: size < fi.Size(), changed: fi.ModTime().UnixNano()})
		}
	}
	slices.SortFunc(logs, func(a, b sessionLog) int {
		return cmp.Or(cmp.Compare(b.changed, a.changed), cmp.Compare(a.path, b.path))
	})
	return logs, nil
}

// unsaved is how much of a log may have been sent since that was last written
// down beside it.
const unsaved = 2 << 20

// sent is how much of a log of that size its owner may have sent: up to the
// furthest of the positions beside it, and what is not written down yet. A log
// without positions is sent nowhere, and is taken whole.
func sent(path string, size int64) int64 {
	base := strings.TrimSuffix(path, ".jsonl")
	files, _ := filepath.Glob(escapeGlob(base) + ".*.pos")
	end := int64(-1)
	for _, file := range files {
		sink := strings.TrimSuffix(file[len(base)+1:], ".pos")
		if strings.Contains(sink, ".") {
			continue // of another session, whose name begins as this one's
		}
		raw, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		if at, err := jsonl.ParsePosition(raw); err == nil {
			end = max(end, at.Offset)
		}
	}
	if end < 0 {
		return size
	}
	return min(size, end+unsaved)
}

func escapeGlob(dir string) string {
	var b []byte
	for i := range len(dir) {
		switch dir[i] {
		case '*', '?', '[', '\\':
			b = append(b, '\\')
		}
		b = append(b, dir[i])
	}
	return string(b)
}

func (c *Collector) reloadLog(l sessionLog) error {
	f, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer f.Close()
	start := l.size - l.want
	if start > 0 {
		// One byte earlier, so that a line that begins at start is whole.
		if _, err := f.Seek(start-1, io.SeekStart); err != nil {
			return err
		}
	}
	r := bufio.NewReaderSize(io.LimitReader(f, l.size-max(start-1, 0)), 64<<10)
	if start > 0 {
		if err := skipLine(r); err != nil {
			return nil
		}
	}
	session := ""
	for first := true; ; {
		line, err := readLine(r, c.limits.Line)
		if errors.Is(err, io.EOF) {
			if l.more {
				c.hub.inPart(session)
			}
			return nil // a last line without its end is still being written
		}
		if err != nil {
			return err
		}
		line = bytes.TrimSpace(line)
		h, _, err := event.ParseHeader(line)
		if err != nil || h.Session == "" {
			continue
		}
		if first && start > 0 && h.Sequenced {
			c.hub.cutOff(h.Session, h.Position())
		}
		first = false
		if h.Sequenced {
			session = h.Session
		}
		c.hub.hold(newItem(h, line))
	}
}

// readLine reads one line; one that is longer than limit comes back empty.
func readLine(r *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for over := false; ; {
		part, err := r.ReadSlice('\n')
		if over = over || len(line)+len(part) > limit; over {
			line = nil
		} else {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err
		}
	}
}

func skipLine(r *bufio.Reader) error {
	_, err := readLine(r, 0)
	return err
}

// cutOff says that a session had events before p that were not read.
func (h *hub) cutOff(session string, p event.Position) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.store
	b := s.sessions[session]
	if b == nil {
		b = &buffer{session: session}
		s.sessions[session] = b
		s.touch(b)
	}
	b.raise(before(p))
}

// inPart says that a session's log had more than was read of it.
func (h *hub) inPart(session string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b := h.store.sessions[session]; b != nil {
		b.partial = true
	}
}

// before is the position right below p.
func before(p event.Position) event.Position {
	return event.Position{Epoch: p.Epoch, Seq: p.Seq - 1}
}
