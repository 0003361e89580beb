package jsonl

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Position is how far a sink has taken a log in: up to and with the event ID
// at (Epoch, Seq). It is the event that counts; Offset, the place behind its
// line, is where to look first, and may be wrong after the log was rewritten.
// The zero Position is the log's start.
type Position struct {
	ID     string `json:"id,omitempty"`
	Epoch  int64  `json:"epoch"`
	Seq    int64  `json:"seq"`
	Offset int64  `json:"offset"`
}

// sinkPath is a file of a log's sink. A sink's name has no dot, so that no
// session's name can look like one.
func sinkPath(path, sink, end string) string {
	return beside(path, "."+strings.ReplaceAll(SafeName(sink), ".", "_")+end)
}

// ParsePosition reads a saved position.
func ParsePosition(raw []byte) (Position, error) {
	var p Position
	if len(raw) > 4<<10 {
		return p, errors.New("a position of more than 4 KiB")
	}
	if err := json.Unmarshal(raw, &p); err != nil {
		return Position{}, err
	}
	if p.Epoch < 0 || p.Seq < 0 || p.Offset < 0 {
		return Position{}, errors.New("a position below zero")
	}
	return p, nil
}

// LoadPosition reads a sink's position in the log at path. Without one, ok is
// false. A position that cannot be read is an error: going on from the log's
// start sends events again, which loses nothing.
func LoadPosition(path, sink string) (p Position, ok bool, err error) {
	return loadPosition(sinkPath(path, sink, ".pos"))
}

func loadPosition(name string) (p Position, ok bool, err error) {
	raw, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return p, false, nil
	}
	if err == nil {
		p, err = ParsePosition(raw)
	}
	if err != nil {
		return Position{}, true, fmt.Errorf("position %s: %w", name, err)
	}
	return p, true, nil
}

// SavePosition keeps a sink's position in the log at path.
func SavePosition(path, sink string, p Position) error {
	return savePosition(sinkPath(path, sink, ".pos"), p)
}

func savePosition(name string, p Position) error {
	raw, err := json.Marshal(p)
	if err != nil {
		return err
	}
	tmp := name + ".tmp"
	if err := os.WriteFile(tmp, append(raw, '\n'), 0o600); err != nil {
		return fmt.Errorf("position %s: %w", name, err)
	}
	if err := os.Rename(tmp, name); err != nil {
		return fmt.Errorf("position %s: %w", name, err)
	}
	return nil
}

// Locate gives the offset from which a sink at p goes on in the log at path.
func Locate(path string, p Position) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if p.ID == "" {
		return 0, nil
	}
	if st, err := f.Stat(); err == nil && p.Offset > 0 && p.Offset <= st.Size() && endsAt(f, p) {
		return p.Offset, nil
	}
	r, err := OpenReader(path, 0)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	after := int64(-1) // the first line that is later than p
	end := int64(0)
	for {
		line, ref, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, ErrLong) {
			return 0, err
		}
		end = ref.End()
		h, ok := ReadHead(line)
		if ok && h.ID == p.ID {
			return ref.End(), nil
		}
		if after < 0 && ok && h.Sequenced && (h.Epoch > p.Epoch || h.Epoch == p.Epoch && h.Seq > p.Seq) {
			after = ref.Off
		}
	}
	if after < 0 {
		after = end
	}
	return after, nil
}

// endsAt says whether the line of p's event ends at p's offset.
func endsAt(f *os.File, p Position) bool {
	start, err := lineStart(f, p.Offset-1)
	if err != nil || p.Offset-start > MaxLine {
		return false
	}
	line := make([]byte, p.Offset-start)
	if _, err := f.ReadAt(line, start); err != nil || line[len(line)-1] != '\n' {
		return false
	}
	h, ok := ReadHead(line)
	return ok && h.ID == p.ID
}

// LastOwn gives the last line up to and with p's that is an event of its
// session's own (see Head.Foreign), with its head. It looks no further back
// than maxBytes; ok is false where there is none.
func LastOwn(path string, p Position, maxBytes int64) (line []byte, h Head, ref Ref, ok bool, err error) {
	end, err := Locate(path, p)
	if err != nil {
		return nil, h, ref, false, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, h, ref, false, err
	}
	defer f.Close()
	return lastOwn(f, path, end, maxBytes)
}

// Last is LastOwn of the whole log, as far as its lines are whole.
func Last(path string, maxBytes int64) (line []byte, h Head, ref Ref, ok bool, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, h, ref, false, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, h, ref, false, err
	}
	from := max(0, st.Size()-maxBytes)
	end, err := lineStart(io.NewSectionReader(f, from, st.Size()-from), st.Size()-from)
	if err != nil || end == 0 {
		return nil, h, ref, false, err
	}
	return lastOwn(f, path, from+end, maxBytes)
}

func lastOwn(f *os.File, path string, end, maxBytes int64) (line []byte, h Head, ref Ref, ok bool, err error) {
	for left := maxBytes; end > 0; {
		start, err := lineStart(io.NewSectionReader(f, max(0, end-1-left), min(left, end-1)), min(left, end-1))
		if err != nil {
			return nil, h, ref, false, err
		}
		start += max(0, end-1-left)
		if left -= end - start; left < 0 {
			break
		}
		line = make([]byte, end-start)
		if _, err := f.ReadAt(line, start); err != nil {
			return nil, h, ref, false, err
		}
		if h, ok := ReadHead(line); ok && h.Sequenced && h.Session != "" {
			return line[:len(line)-1], h, Ref{Path: path, Off: start, Len: len(line)}, true, nil
		}
		end = start
	}
	return nil, h, ref, false, nil
}
