package agent

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// ObserveLine takes one line of a channel of lines: an object whose "type" is
// the moment's name.
func (r *Road) ObserveLine(c adapters.Channel, session string, line []byte) {
	payload, err := event.ParseObject(line)
	if err != nil {
		r.Refuse(Refusal{Channel: c, Reason: refusalReason(err), Bytes: len(line)})
		return
	}
	name, _ := payload["type"].(string)
	r.Observe(adapters.Moment{Channel: c, Name: name, Payload: payload, Raw: line, Time: r.cfg.Now(), Session: session}, len(line))
}

// Lines is a writer that cuts what is written into lines for a road. It is one
// writer's; a line over the bound is passed over and told.
type Lines struct {
	road    *Road
	channel adapters.Channel
	cut     cutter
}

// NewLines makes a writer of lines. Its Close tells a last line that is whole
// but for its newline.
func (r *Road) NewLines(c adapters.Channel, session string) *Lines {
	l := &Lines{road: r, channel: c}
	l.cut.tell = func(line []byte) { r.ObserveLine(c, session, line) }
	l.cut.skip = func(n int) { r.Refuse(Refusal{Channel: c, Reason: "too_large", Bytes: n}) }
	return l
}

// Write never fails.
func (l *Lines) Write(b []byte) (int, error) {
	l.cut.take(b)
	return len(b), nil
}

// Close tells what is left. Lost is how many bytes never came.
func (l *Lines) Close(lost uint64) {
	l.cut.end()
	if lost > 0 {
		l.road.Refuse(Refusal{Channel: l.channel, Reason: "busy", Bytes: int(lost)})
	}
}

// pipeQuiet is how long a pipe must have had nothing before it counts as read
// empty, pipeLast how long it is read at most once its agent has ended.
const (
	pipeQuiet = 50 * time.Millisecond
	pipeLast  = 2 * time.Second
)

// ReadPipe copies from a pipe whose writing end the agent has, until its end.
// A descendant may keep that end open for ever: after stop the pipe is read
// empty and no longer waited for.
func (l *Lines) ReadPipe(f *os.File, stop <-chan struct{}) {
	defer f.Close()
	over := make(chan struct{})
	defer close(over)
	go func() { // a read that waits already
		select {
		case <-stop:
			f.SetReadDeadline(time.Now().Add(pipeQuiet))
		case <-over:
		}
	}()
	defer l.Close(0)
	buf := make([]byte, 64<<10)
	var last time.Time
	for {
		// Taking in what was read may have lasted beyond any deadline: what is
		// in the pipe by now is read all the same.
		select {
		case <-stop:
			now := time.Now()
			if last.IsZero() {
				last = now.Add(pipeLast)
			}
			if now.After(last) {
				return
			}
			f.SetReadDeadline(now.Add(pipeQuiet))
		default:
		}
		n, err := f.Read(buf)
		_, _ = l.Write(buf[:n]) // never fails
		if err == nil {
			continue
		}
		if !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrDeadlineExceeded) {
			l.road.cfg.Log.Debug("events pipe", "err", err)
		}
		return
	}
}

// cutter cuts bytes into lines without their ends and the white space around
// them. Empty lines are not told.
type cutter struct {
	tell func(line []byte)
	skip func(bytes int) // a line over maxLine was passed over

	begun []byte
	over  int // bytes of a line that is not told, begun
}

func (l *cutter) take(b []byte) {
	for len(b) > 0 {
		end := bytes.IndexByte(b, '\n')
		piece := b
		if end >= 0 {
			piece = b[:end]
		}
		switch {
		case l.over > 0:
			l.over += len(piece)
		case len(l.begun)+len(piece) > maxLine:
			l.over = len(l.begun) + len(piece)
			l.begun = nil
		case end >= 0 && len(l.begun) == 0:
			l.whole(piece)
		default:
			l.begun = append(l.begun, piece...)
			if end >= 0 {
				l.whole(l.begun)
				l.begun = l.begun[:0]
				if cap(l.begun) > 1<<20 {
					l.begun = nil
				}
			}
		}
		if end < 0 {
			return
		}
		if l.over > maxLine {
			l.skip(l.over)
		}
		l.over = 0
		b = b[end+1:]
	}
}

func (l *cutter) whole(line []byte) {
	if line = bytes.TrimSpace(line); len(line) > 0 {
		l.tell(line)
	}
}

// end tells a last line that is a whole object but for its newline. A torn one
// is nobody's.
func (l *cutter) end() {
	if bytes.HasSuffix(bytes.TrimSpace(l.begun), []byte("}")) {
		l.whole(l.begun)
	}
	l.begun = nil
}

// reset forgets a line that was begun; with inside the rest of the line at
// hand is not told.
func (l *cutter) reset(inside bool) {
	l.begun, l.over = nil, 0
	if inside {
		l.over = 1
	}
}

// reasonOf is what the system said, without call and path.
func reasonOf(err error) error {
	var p *os.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}
