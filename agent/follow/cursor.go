package follow

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// Cursor is how far a file was read. A file is known by its inode and by a
// hash of its head; what stands before Offset is known by Tail. So a file that
// was renamed, moved to another disk or packed is still the same, and one that
// was written anew under its name is not.
type Cursor struct {
	Path   string `json:"path"`
	Dev    uint64 `json:"dev"`
	Ino    uint64 `json:"ino"`
	Head   string `json:"head"`
	Offset int64  `json:"off"`
	Tail   string `json:"tail"`
}

// Store keeps cursors in one file, as lines of which the last of a head and
// tail-end counts. Several watchers may write to it at once.
type Store struct {
	path string

	mu   sync.Mutex
	by   map[string][]Cursor // by head
	f    *os.File
	size int64
}

// compactAt is the size from which the file is written anew, without what is
// out of date, when it is opened.
const compactAt = 4 << 20

// OpenStore opens, or makes, the file of the cursors.
func OpenStore(path string) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("cursors: %w", err)
	}
	s := &Store{path: path, by: map[string][]Cursor{}}
	if err := s.load(); err != nil {
		return nil, fmt.Errorf("cursors %s: %w", path, err)
	}
	if s.size > compactAt {
		if err := s.compact(); err != nil {
			return nil, fmt.Errorf("cursors %s: %w", path, err)
		}
	}
	return s, nil
}

func (s *Store) load() error {
	f, err := os.Open(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		s.size += int64(len(line))
		var c Cursor
		// A line that a crash tore is a cursor that was not saved.
		if json.Unmarshal(bytes.TrimSpace(line), &c) == nil && c.Head != "" && c.Offset >= 0 {
			s.put(c)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// put keeps the newest cursor of each file of a head.
func (s *Store) put(c Cursor) {
	have := s.by[c.Head]
	if i := slices.IndexFunc(have, func(o Cursor) bool { return o.Ino == c.Ino && o.Dev == c.Dev }); i >= 0 {
		have[i] = c
		return
	}
	if len(have) >= 8 { // copies of copies
		have = have[1:]
	}
	s.by[c.Head] = append(have, c)
}

// compact writes the file anew, unless another watcher is doing it.
func (s *Store) compact() error {
	lock, err := os.OpenFile(s.path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	defer lock.Close()
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil
	}
	var b []byte
	for _, cs := range s.by {
		for _, c := range cs {
			raw, err := json.Marshal(c)
			if err != nil {
				return err
			}
			b = append(append(b, raw...), '\n')
		}
	}
	tmp := s.path + ".tmp"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	s.size = int64(len(b))
	return os.Rename(tmp, s.path)
}

// of gives the cursors of a head.
func (s *Store) of(head string) []Cursor {
	if s == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.by[head])
}

// save appends cursors in one write.
func (s *Store) save(cs []Cursor) error {
	if s == nil || len(cs) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var b []byte
	for _, c := range cs {
		raw, err := json.Marshal(c)
		if err != nil {
			return err
		}
		b = append(append(b, raw...), '\n')
		s.put(c)
	}
	// Another watcher may have written the file anew.
	if s.f != nil {
		have, err := s.f.Stat()
		now, err2 := os.Stat(s.path)
		if err != nil || err2 != nil || !os.SameFile(have, now) {
			s.f.Close()
			s.f = nil
		}
	}
	if s.f == nil {
		f, err := os.OpenFile(s.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return err
		}
		s.f = f
	}
	n, err := s.f.Write(b)
	s.size += int64(n)
	if err == nil && s.size > 4*compactAt {
		err = s.compact()
	}
	return err
}

// Close closes the file.
func (s *Store) Close() error {
	if s == nil || s.f == nil {
		return nil
	}
	return s.f.Close()
}
