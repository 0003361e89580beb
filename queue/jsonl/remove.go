package jsonl

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"aep-wrap/event"
)

// Kept is what a directory of logs keeps of one session.
type Kept struct {
	Path    string // of the log, also where it is gone and only other files are left
	Log     bool   // it is there
	Size    int64  // of all the files, but for what a removal leaves
	Changed time.Time
	Rest    time.Time // of what a removal left; zero where there is nothing

	sinks []string // with a position, as they are written in names of files
	bytes int64    // of the log
}

// List finds what is kept of sessions under root, in no order.
func List(root string) ([]Kept, error) {
	agents, err := os.ReadDir(root)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	var out []Kept
	for _, agent := range agents {
		if !agent.IsDir() || strings.HasPrefix(agent.Name(), ".") {
			continue
		}
		dir := filepath.Join(root, agent.Name())
		files, err := os.ReadDir(dir)
		if err != nil {
			return nil, err
		}
		at := map[string]int{}
		for _, f := range files {
			fi, err := f.Info()
			if err != nil || !fi.Mode().IsRegular() {
				continue // it has gone meanwhile, or is not ours
			}
			name, end, sink := companion(f.Name())
			if name == "" {
				continue
			}
			i, known := at[name]
			if !known {
				i = len(out)
				at[name] = i
				out = append(out, Kept{Path: filepath.Join(dir, name+".jsonl")})
			}
			out[i].add(fi, end, sink)
		}
	}
	return out, nil
}

func (k *Kept) add(fi fs.FileInfo, end, sink string) {
	switch {
	case end == restEnd:
		k.Rest = fi.ModTime()
		return
	case end == ".jsonl":
		k.Log, k.bytes, k.Changed = true, fi.Size(), fi.ModTime()
	case !k.Log && fi.ModTime().After(k.Changed):
		k.Changed = fi.ModTime()
	}
	if end == ".pos" {
		k.sinks = append(k.sinks, sink)
	}
	k.Size += fi.Size()
}

// The ends of a session's files, but for those of sinks.
const restEnd = ".pruned"

var ends = []string{".jsonl", ".watched", ".lock", ".torn", ".want", ".erasing", restEnd + ".tmp", restEnd}

// sinkEnds are those of a sink's.
var sinkEnds = []string{".pos.tmp", ".pos", ".sending"}

// companion says whose a file is, by its name; "" is nobody's.
func companion(file string) (name, end, sink string) {
	for _, end := range ends {
		if name, ok := strings.CutSuffix(file, end); ok {
			return name, end, ""
		}
	}
	for _, end := range sinkEnds {
		if name, ok := strings.CutSuffix(file, end); ok {
			if i := strings.LastIndexByte(name, '.'); i > 0 {
				return name[:i], end, name[i+1:]
			}
		}
	}
	return "", "", ""
}

// IsLog says whether a file is a session log: whether the first of its lines
// that are events is of the agent and the session that its path names.
// A file without an event is none.
func IsLog(path string) (bool, error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	agent, session := filepath.Base(filepath.Dir(path)), strings.TrimSuffix(filepath.Base(path), ".jsonl")
	in := bufio.NewReaderSize(io.LimitReader(f, firstEvent), 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if e, perr := event.Parse(bytes.TrimSpace(line)); perr == nil && (e.Sequenced || e.Session == "") {
			return SafeName(e.Agent) == agent && (e.Session == "" || SafeName(e.Session) == session), nil
		}
		if errors.Is(err, io.EOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// firstEvent is how much of a file is looked through for its first event.
const firstEvent = 4 << 20

// Owed counts the events that a log holds and a sink of its has not
// acknowledged: of the sink that lacks most.
func (k *Kept) Owed() (events int, err error) {
	for _, sink := range k.sinks {
		p, ok, err := loadPosition(beside(k.Path, "."+sink+".pos"))
		if !ok {
			continue // it was removed meanwhile
		}
		if err != nil {
			p = Position{} // then it gets all of it again
		}
		off, err := Locate(k.Path, p)
		if err != nil {
			return 0, err
		}
		n, err := countFrom(k.Path, off)
		if err != nil {
			return 0, err
		}
		events = max(events, n)
	}
	return events, nil
}

// countFrom counts the events of a session's own from an offset of its log on.
func countFrom(path string, off int64) (n int, err error) {
	r, err := OpenReader(path, off)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	for {
		line, _, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case errors.Is(err, ErrLong):
			n++
			continue
		case err != nil:
			return 0, err
		}
		if h, ok := ReadHead(line); ok && !h.Foreign() {
			n++
		}
	}
}

// ErrChanged says that a log is not as it was when it was listed.
var ErrChanged = errors.New("the log has changed meanwhile")

// Removal is the right to remove what is kept of a session: while it is held,
// nobody writes the log, or sends it on for an owner that died.
type Removal struct {
	kept  Kept
	locks []*Lock
	done  func() // of our turn
}

// Take takes the right to remove. The error is an *ErrOwned where the session
// has an owner, or somebody sends its log, and ErrChanged where it had one
// since it was listed.
func (k *Kept) Take() (*Removal, error) {
	done, ok := takeTurn(k.Path)
	if !ok {
		done()
		return nil, &ErrOwned{Path: k.Path, Pid: os.Getpid()}
	}
	r := &Removal{kept: *k, done: done}
	files := []string{".lock"}
	for _, sink := range k.sinks {
		files = append(files, "."+sink+".sending")
	}
	for _, end := range files {
		l, _, err := take(beside(k.Path, end), k.Path)
		if err != nil {
			r.Release()
			return nil, err
		}
		r.locks = append(r.locks, l)
	}
	fi, err := os.Lstat(k.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = nil
		if k.Log {
			err = ErrChanged
		}
	case err == nil && (!k.Log || fi.Size() != k.bytes || !fi.ModTime().Equal(k.Changed)):
		err = ErrChanged
	}
	if err != nil {
		r.Release()
		return nil, err
	}
	return r, nil
}

// Locked says whether the right holds: false where the file system has no
// locks, and an owner would not be noticed.
func (r *Removal) Locked() bool { return r.locks[0].holds }

// Remove removes the log and what is beside it, and leaves rest in its place:
// lines that Replay gives before those of a log that comes after it. Nil leaves
// what was left before.
//
// It may be ended at any step. What is left is then either all of the log, or
// files that say nothing without one; the rest is there before the log goes.
func (r *Removal) Remove(rest []byte) error {
	for _, step := range r.steps(rest) {
		if err := step(); err != nil {
			return fmt.Errorf("removing %s: %w", r.kept.Path, err)
		}
	}
	return nil
}

func (r *Removal) steps(rest []byte) (steps []func() error) {
	path := r.kept.Path
	remove := func(end string) {
		steps = append(steps, func() error {
			if err := os.Remove(beside(path, end)); !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		})
	}
	if rest != nil {
		tmp := beside(path, restEnd+".tmp")
		steps = append(steps,
			func() error { return writeSynced(tmp, rest) },
			func() error { return os.Rename(tmp, beside(path, restEnd)) },
			func() error { return syncDir(filepath.Dir(path)) })
	}
	remove(".jsonl")
	for _, sink := range r.kept.sinks {
		remove("." + sink + ".pos")
		remove("." + sink + ".pos.tmp")
	}
	for _, end := range []string{".watched", ".torn", ".erasing", restEnd + ".tmp"} {
		remove(end)
	}
	return steps
}

// Forget removes what a removal left.
func (r *Removal) Forget() error {
	if err := os.Remove(beside(r.kept.Path, restEnd)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Release gives the right up.
func (r *Removal) Release() {
	for i := len(r.locks) - 1; i >= 0; i-- {
		r.locks[i].Release()
	}
	r.locks = nil
	r.done()
}

func writeSynced(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	_ = d.Sync() // not every file system can
	return nil
}

// Rest gives the lines that a removal left of the log at path.
func Rest(path string, fn func(line []byte) error) error {
	r, err := OpenReader(beside(path, restEnd), 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		line, _, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = fn(line)
		}
		if err != nil {
			return err
		}
	}
}
