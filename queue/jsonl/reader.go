package jsonl

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// MaxLine is the longest line that is read back.
const MaxLine = 64 << 20

// ErrLong says that a line is beyond MaxLine; the reader goes on behind it.
var ErrLong = fmt.Errorf("a line beyond %d MiB", MaxLine>>20)

// Reader reads whole lines of a log, from any line's start on. It sees what is
// appended while it reads.
type Reader struct {
	f    *os.File
	path string
	base int64 // the file's offset of buf[0]
	buf  []byte
	pos  int // the next line's start in buf
	scan int // up to here no newline was found
	skip bool
	max  int
}

// OpenReader opens the log at path. off is where a line starts.
func OpenReader(path string, off int64) (*Reader, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	return &Reader{f: f, path: path, base: off, max: MaxLine}, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.f.Close() }

// Next gives the next line that is whole, without its newline, and where it
// is. The line is good until the next call. The error is io.EOF where there is
// none yet; a later call may find one. Blank lines are passed over.
func (r *Reader) Next() ([]byte, Ref, error) {
	for {
		if i := bytes.IndexByte(r.buf[r.scan:], '\n'); i >= 0 {
			end := r.scan + i
			line, ref := r.buf[r.pos:end], Ref{Path: r.path, Off: r.base + int64(r.pos), Len: end + 1 - r.pos}
			r.pos, r.scan = end+1, end+1
			if r.skip {
				r.skip = false
				return nil, ref, ErrLong
			}
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			return line, ref, nil
		}
		r.scan = len(r.buf)
		if err := r.fill(); err != nil {
			return nil, Ref{}, err
		}
	}
}

// fill reads on, making room first.
func (r *Reader) fill() error {
	if r.pos > 0 {
		n := copy(r.buf, r.buf[r.pos:])
		r.base += int64(r.pos)
		r.buf, r.scan, r.pos = r.buf[:n], n, 0
	}
	if len(r.buf) > r.max {
		r.skip = true
	}
	if r.skip { // of a line this long only its end matters
		r.base += int64(len(r.buf))
		r.buf, r.scan = r.buf[:0], 0
	}
	if len(r.buf) == cap(r.buf) {
		r.buf = append(make([]byte, 0, max(64<<10, 2*cap(r.buf))), r.buf...)
	}
	n, err := r.f.ReadAt(r.buf[len(r.buf):cap(r.buf)], r.base+int64(len(r.buf)))
	r.buf = r.buf[:len(r.buf)+n]
	if n > 0 {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.EOF
	}
	return err
}
