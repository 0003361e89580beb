package collector

import (
	"errors"
	"io"
	"os"
	"path/filepath"

	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
)

// A session whose log is on this machine reaches further back than its buffer:
// what was pushed out of the buffer is read from the log, a piece at a time, by
// who still wants it. So a slow consumer of a local session misses nothing, and
// costs no memory for it.

// archive finds and reads session logs. Its zero value finds none.
type archive struct{ dir string }

// of finds the log of a session that is held: the one by its name, if it is of
// the same source, and reaches up to a position. "" is none.
func (a archive) of(agent, session, source string, upTo event.Position) string {
	if a.dir == "" || agent == "" || session == "" {
		return ""
	}
	path := jsonl.Path(a.dir, agent, session)
	h, ok := firstOwn(path)
	if !ok || h.Session != session || h.Source != source {
		return ""
	}
	fi, err := os.Stat(path)
	if err != nil {
		return ""
	}
	if end, ok := last(path, fi.Size()); !ok || end.Less(upTo) {
		return ""
	}
	return path
}

// agents are the folders that logs are in.
func (a archive) agents() (dirs []string) {
	if a.dir == "" {
		return nil
	}
	found, err := os.ReadDir(a.dir)
	if err != nil {
		return nil
	}
	for _, d := range found {
		if d.IsDir() {
			dirs = append(dirs, filepath.Join(a.dir, d.Name()))
		}
	}
	return dirs
}

// find finds the log of a session that is not held, as a buffer of which all
// was pushed out. Where two agents have a session of that name nobody can say
// which is meant.
func (a archive) find(agents []string, session string) *buffer {
	path := ""
	for _, dir := range agents {
		p := filepath.Join(dir, jsonl.SafeName(session)+".jsonl")
		if fi, err := os.Lstat(p); err != nil || !fi.Mode().IsRegular() {
			continue
		}
		if path != "" {
			return nil
		}
		path = p
	}
	if path == "" {
		return nil
	}
	h, ok := firstOwn(path)
	if !ok || h.Session != session {
		return nil
	}
	fi, err := os.Stat(path)
	if err != nil {
		return nil
	}
	end, ok := last(path, sent(path, fi.Size()))
	if !ok {
		return nil
	}
	return &buffer{session: session, agent: h.Agent, source: h.Source, log: path, looked: true, floor: end, hasFloor: true}
}

// firstOwn is a log's first event of its own session.
func firstOwn(path string) (h event.Header, ok bool) {
	if fi, err := os.Lstat(path); err != nil || !fi.Mode().IsRegular() {
		return h, false
	}
	r, err := jsonl.OpenReader(path, 0)
	if err != nil {
		return h, false
	}
	defer r.Close()
	for range 16 {
		line, _, err := r.Next()
		if err != nil && !errors.Is(err, jsonl.ErrLong) {
			return h, false
		}
		if h, _, err := event.ParseHeader(line); err == nil && h.Session != "" && h.Sequenced {
			return h, true
		}
	}
	return h, false
}

// last is the position of the last event of its own in the first size bytes
// of a log.
func last(path string, size int64) (p event.Position, ok bool) {
	f, err := os.Open(path)
	if err != nil {
		return p, false
	}
	defer f.Close()
	for end := size; end > 0; {
		start, err := lineBefore(f, end)
		if err != nil {
			return p, false
		}
		if h, ok := headAt(f, start, end); ok && h.Sequenced {
			return event.Position{Epoch: h.Epoch, Seq: h.Seq}, true
		}
		if size-start > maxLookBack {
			return p, false
		}
		end = start
	}
	return p, false
}

// maxLookBack is how far from its end a log is searched for an event of its
// own.
const maxLookBack = 4 << 20

// lineBefore is the start of the line that ends at or holds end-1.
func lineBefore(f io.ReaderAt, end int64) (int64, error) {
	buf := make([]byte, 4<<10)
	for at := end - 1; at > 0; { // the byte at end-1 is the line's own newline
		n := min(int64(len(buf)), at)
		if _, err := f.ReadAt(buf[:n], at-n); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		for i := n - 1; i >= 0; i-- {
			if buf[i] == '\n' {
				return at - n + i + 1, nil
			}
		}
		at -= n
	}
	return 0, nil
}

func headAt(f io.ReaderAt, start, end int64) (h jsonl.Head, ok bool) {
	if end-start > jsonl.MaxLine {
		return h, false
	}
	line := make([]byte, end-start)
	if _, err := f.ReadAt(line, start); err != nil && !errors.Is(err, io.EOF) {
		return h, false
	}
	return jsonl.ReadHead(line)
}

// behindIn is the offset of the line in a log behind which everything is later
// than p. A log is in the order of its positions, so it is searched by halves.
func behindIn(path string, p event.Position) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	// Every event that begins before low is at or below p.
	low, high := int64(0), fi.Size()
	for high-low > 64<<10 {
		mid := low + (high-low)/2
		r, err := jsonl.OpenReader(path, mid)
		if err != nil {
			return 0, err
		}
		at, found, err := firstFrom(r, high)
		r.Close()
		if err != nil {
			return 0, err
		}
		if found == nil || p.Less(*found) {
			high = mid
			continue
		}
		low = at
	}
	return low, nil
}

// firstFrom is the first whole line of a reader that is an event of its
// session's own, and begins before end.
func firstFrom(r *jsonl.Reader, end int64) (at int64, p *event.Position, err error) {
	for first := true; ; first = false {
		line, ref, err := r.Next()
		switch {
		case errors.Is(err, io.EOF), err == nil && ref.Off >= end:
			return 0, nil, nil
		case errors.Is(err, jsonl.ErrLong):
			continue
		case err != nil:
			return 0, nil, err
		}
		if first {
			continue // the reader began within it
		}
		if h, ok := jsonl.ReadHead(line); ok && h.Sequenced {
			return ref.Off, &event.Position{Epoch: h.Epoch, Seq: h.Seq}, nil
		}
	}
}

// errNotThere says that a log does not hold what was pushed out.
var errNotThere = errors.New("the session's log ends before what is no longer held")

// piece is what is read of a log at once.
type piece struct {
	path            string
	session, source string
	off             int64          // where to go on; below 0 that is to be found
	at              event.Position // behind this
	to              event.Position // up to this
}

// read appends the events of a piece, and says where it came to, and whether
// that is all of it.
func (p *piece) read(into []*item) (items []*item, whole bool, err error) {
	if p.off < 0 {
		if p.off, err = behindIn(p.path, p.at); err != nil {
			return into, false, err
		}
	}
	begun := p.off > 0 // something at or below p.to was passed
	r, err := jsonl.OpenReader(p.path, p.off)
	if err != nil {
		return into, false, err
	}
	defer r.Close()
	n, size, looked := 0, 0, 0
	var series event.Series
	for {
		if n >= takeEvents || size >= takeBytes || looked >= maxLookBack {
			return into, false, nil
		}
		line, ref, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return into, false, errNotThere
		case errors.Is(err, jsonl.ErrLong):
			p.off = ref.End()
			continue
		case err != nil:
			return into, false, err
		}
		looked += ref.Len
		head, ok := jsonl.ReadHead(line)
		if !ok || !head.Sequenced || head.Session != p.session {
			p.off = ref.End()
			continue
		}
		pos := event.Position{Epoch: head.Epoch, Seq: head.Seq}
		if p.to.Less(pos) {
			if !begun { // the log was removed, and this is one that began after it
				return into, false, errNotThere
			}
			return into, true, nil
		}
		begun = true
		p.off = ref.End()
		if p.at.Less(pos) {
			h, _, err := series.ParseHeader(line)
			if err == nil && h.Source == p.source {
				it := newItem(h, line)
				it.key = key{Position: pos}
				into = append(into, it)
				n++
				size += it.cost()
			}
			p.at = pos
		}
		if pos == p.to {
			return into, true, nil
		}
	}
}
