package client

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Message is one message of an event stream, or one comment: a message has
// data, a comment has none.
type Message struct {
	Event   string
	ID      string // the last id seen, as the WHATWG keeps it
	Data    []byte // valid until the next call of Next
	Comment string
}

// Reader reads an event stream (text/event-stream) as the WHATWG defines it.
type Reader struct {
	br     *bufio.Reader
	max    int
	line   []byte
	data   []byte
	id     string
	begun  bool
	skipLF bool // the last line ended with CR: a LF right behind it belongs to it
}

// ErrTooLong says that a line or a message was longer than the reader takes.
var ErrTooLong = errors.New("event stream: longer than is read")

// NewReader reads from r, messages of at most max bytes.
func NewReader(r io.Reader, max int) *Reader {
	return &Reader{br: bufio.NewReaderSize(r, 64<<10), max: max, data: []byte{}}
}

// Buffered says whether more has arrived than was read: without it the next
// call of Next may wait.
func (r *Reader) Buffered() bool { return r.br.Buffered() > 0 }

// Next gives the next message or comment. A message that the stream's end cut
// short is not given.
func (r *Reader) Next() (Message, error) {
	var m Message
	hasData := false
	r.data = r.data[:0]
	for {
		line, err := r.readLine()
		if err != nil {
			return Message{}, err
		}
		if len(line) == 0 {
			if hasData {
				m.ID = r.id
				m.Data = r.data
				return m, nil
			}
			m = Message{}
			continue
		}
		if line[0] == ':' {
			if m.Event != "" || hasData {
				continue // within a message it is nobody's
			}
			return Message{Comment: string(bytes.TrimPrefix(line[1:], []byte{' '})), ID: r.id}, nil
		}
		name, value, _ := bytes.Cut(line, []byte{':'})
		value = bytes.TrimPrefix(value, []byte{' '})
		switch string(name) {
		case "data":
			if len(r.data)+len(value) > r.max {
				return Message{}, fmt.Errorf("%w: a message of more than %d bytes", ErrTooLong, r.max)
			}
			if hasData {
				r.data = append(r.data, '\n')
			}
			r.data = append(r.data, value...)
			hasData = true
		case "event":
			m.Event = string(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				r.id = string(value)
			}
		}
	}
}

// bom is the byte order mark that may open a stream.
const bom = "\xef\xbb\xbf"

// readLine reads a line that ends with LF, CR or both, without its end.
func (r *Reader) readLine() ([]byte, error) {
	r.line = r.line[:0]
	for {
		c, err := r.br.Peek(1)
		if err != nil {
			return nil, err
		}
		if r.skipLF {
			r.skipLF = false
			if c[0] == '\n' {
				_, _ = r.br.Discard(1)
				continue
			}
		}
		if !r.begun {
			r.begun = true
			if c[0] == bom[0] {
				if start, _ := r.br.Peek(len(bom)); string(start) == bom {
					_, _ = r.br.Discard(len(bom))
					continue
				}
			}
		}
		buf, _ := r.br.Peek(r.br.Buffered())
		i := bytes.IndexAny(buf, "\r\n")
		if i < 0 {
			i = len(buf)
		}
		if len(r.line)+i > r.max+64 {
			return nil, fmt.Errorf("%w: a line of more than %d bytes", ErrTooLong, r.max)
		}
		r.line = append(r.line, buf[:i]...)
		if i == len(buf) {
			_, _ = r.br.Discard(i)
			continue
		}
		r.skipLF = buf[i] == '\r'
		_, _ = r.br.Discard(i + 1)
		return r.line, nil
	}
}
