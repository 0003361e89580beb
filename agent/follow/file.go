package follow

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"compress/gzip"

	"github.com/klauspost/compress/zstd"
)

const (
	headSize = 1 << 10 // bytes of a file's beginning that it is known by, at most
	tailSize = 512     // bytes before a cursor that it is known by, at most: records end alike
	chunk    = 256 << 10
)

// File is a file that is followed.
type File struct {
	Path  string // as it was found; the newest, when it was renamed
	Head  string // the hash of its head
	First []byte // its first record, nil where that could not be read; until Open returns
	Data  any    // the Handler's

	dev, ino uint64
	opened   bool // the Handler knows it
	f        *os.File
	pos      int64 // up to which it is read: what is begun behind offset is in split
	offset   int64 // behind the last record that was taken
	headLen  int64
	tail     [tailSize]byte // what stands before offset
	tailLen  int
	torn     []byte // what stands before pos, where a record is begun
	split    *splitter
	size     int64
	mod      time.Time
	gone     bool // nothing leads to it any more
	goneAt   time.Time
	past     int64 // bytes that it held already, and that are not told
	unsaved  bool
	caught   bool      // its history is read
	later    time.Time // a record was not taken: not before then

	// Of a packed one.
	packed string // its last extension, "" for a plain one
	unpack io.Reader
	end    func()
}

// packers are how packed logs are read, by their extension.
var packers = map[string]func(io.Reader) (io.Reader, func(), error){
	".zst": func(r io.Reader) (io.Reader, func(), error) {
		d, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(64<<20), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, nil, err
		}
		return d, d.Close, nil
	},
	".gz": func(r io.Reader) (io.Reader, func(), error) {
		z, err := gzip.NewReader(r)
		return z, func() {}, err
	},
}

// IsLog says whether a name is that of a log of JSON lines: x.jsonl, x.ndjson,
// a rotated x.jsonl.1, a packed x.jsonl.zst.
func IsLog(name string) bool {
	name = strings.ToLower(filepath.Base(name))
	for _, ext := range []string{".jsonl", ".ndjson"} {
		_, end, ok := strings.Cut(name, ext)
		if !ok {
			continue
		}
		end = strings.TrimLeft(end, ".-0123456789")
		if end == "" || packers["."+end] != nil {
			return true
		}
	}
	return false
}

func fileID(fi os.FileInfo) (dev, ino uint64) {
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Dev), st.Ino //nolint:unconvert // an int32 on other systems
	}
	return 0, 0
}

// open opens the file at its path, unless that leads to another one by now.
func (f *File) open() error {
	if f.f != nil {
		return nil
	}
	// What is a pipe must not be waited for.
	h, err := os.OpenFile(f.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	fi, err := h.Stat()
	if err == nil {
		if dev, ino := fileID(fi); dev != f.dev || ino != f.ino || !fi.Mode().IsRegular() {
			err = os.ErrNotExist
		}
	}
	if err != nil {
		h.Close()
		return err
	}
	f.f = h
	return nil
}

func (f *File) close() {
	f.stopUnpacking()
	if f.f != nil {
		f.f.Close()
		f.f = nil
	}
}

func (f *File) stopUnpacking() {
	if f.end != nil {
		f.end()
	}
	f.unpack, f.end = nil, nil
}

// read reads on at pos. For a packed file that is a place in what it unpacks
// to.
func (f *File) read(b []byte) (int, error) {
	if f.packed == "" {
		return f.f.ReadAt(b, f.pos)
	}
	if f.unpack == nil {
		if _, err := f.f.Seek(0, io.SeekStart); err != nil {
			return 0, err
		}
		r, end, err := packers[f.packed](f.f)
		if err != nil {
			return 0, err
		}
		f.unpack, f.end = r, end
		if _, err := io.CopyN(io.Discard, r, f.pos); err != nil {
			f.stopUnpacking()
			return 0, err
		}
	}
	n, err := io.ReadFull(f.unpack, b)
	if err != nil {
		f.stopUnpacking()
		if errors.Is(err, io.ErrUnexpectedEOF) {
			err = io.EOF // also of one that is still being written
		}
	}
	return n, err
}

// piece reads n bytes at an offset, of a packed file as well.
func (f *File) piece(off, n int64) ([]byte, error) {
	b := make([]byte, n)
	if f.packed == "" {
		_, err := f.f.ReadAt(b, off)
		return b, err
	}
	at := f.pos
	f.stopUnpacking()
	f.pos = off
	got, err := f.read(b)
	f.stopUnpacking()
	f.pos = at
	if int64(got) == n {
		err = nil
	}
	return b, err
}

// look finds the file's first record, and with it the head that it is known
// by. False says that it is not there yet.
func (f *File) look(buf []byte) (bool, error) {
	var first *Record
	var line []byte
	s := &splitter{emit: func(r Record) {
		if first == nil {
			line = append([]byte(nil), r.Line...)
			first = &r
		}
	}}
	defer func() { f.pos = 0; f.stopUnpacking() }()
	f.pos = 0
	for first == nil {
		n, err := f.read(buf[:min(len(buf), 16<<10)])
		s.feed(buf[:n])
		f.pos += int64(n)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			if first == nil {
				return false, err
			}
		}
	}
	f.headLen = min(first.End, headSize)
	raw, err := f.piece(0, f.headLen)
	if err != nil {
		return false, err
	}
	f.Head = hash(raw)
	f.First = nil
	if first.Fault == "" {
		f.First = line
	}
	return true, nil
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// same says whether the file still begins, and stands before its cursor, as it
// did: one that was written anew does not.
func (f *File) same() bool {
	if f.packed != "" || f.Head == "" {
		return true
	}
	raw, err := f.piece(0, f.headLen)
	if err != nil || hash(raw) != f.Head {
		return false
	}
	if f.tailLen == 0 {
		return true
	}
	raw, err = f.piece(f.offset-int64(f.tailLen), int64(f.tailLen))
	return err == nil && string(raw) == string(f.tail[:f.tailLen])
}

// sameTorn says whether what was read of a record that is not whole stands there
// still: who finds a torn line at the end of its log may cut it off.
func (f *File) sameTorn() bool {
	n := min(int64(len(f.torn)), f.pos-f.offset)
	if f.packed != "" || n == 0 {
		return true
	}
	raw, err := f.piece(f.pos-n, n)
	return err == nil && string(raw) == string(f.torn[int64(len(f.torn))-n:])
}

// passOver goes to where what the file held already ends. A record that had no
// end there is yet to come.
func (f *File) passOver(buf []byte) error {
	s := &splitter{emit: func(Record) {}}
	if f.packed != "" { // of which past says nothing
		for f.pos = 0; ; {
			n, err := f.read(buf)
			s.feed(buf[:n])
			f.pos += int64(n)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
		}
		f.seek(s.end())
		return nil
	}
	fi, err := f.f.Stat()
	if err != nil {
		return err
	}
	if fi.Size() < f.past { // it was written anew
		f.seek(0)
		return nil
	}
	line, err := f.lineAt(f.past, buf)
	if err != nil {
		return err
	}
	for s.reset(line); s.off < f.past; {
		n := min(f.past-s.off, int64(len(buf)))
		if _, err := f.f.ReadAt(buf[:n], s.off); err != nil {
			return err
		}
		s.feed(buf[:n])
	}
	f.seek(s.end())
	return nil
}

// lineAt is where the line begins that an offset is in.
func (f *File) lineAt(off int64, buf []byte) (int64, error) {
	for off > 0 {
		n := min(off, int64(len(buf)))
		if _, err := f.f.ReadAt(buf[:n], off-n); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return off - n + int64(i) + 1, nil
		}
		off -= n
	}
	return 0, nil
}

// tailAt reads what stands before an offset.
func (f *File) tailAt(off int64) (string, error) {
	n := min(off, tailSize)
	raw, err := f.piece(off-n, n)
	if err != nil {
		return "", err
	}
	f.tailLen = copy(f.tail[:], raw)
	return hash(raw), nil
}

// seek goes to an offset where a record ended, or begins.
func (f *File) seek(off int64) {
	f.offset, f.pos = off, off
	f.torn = f.torn[:0]
	f.split.reset(off)
	f.stopUnpacking()
}

func (f *File) cursor() Cursor {
	return Cursor{Path: f.Path, Dev: f.dev, Ino: f.ino, Head: f.Head, Offset: f.offset, Tail: hash(f.tail[:f.tailLen])}
}
