package collector

import (
	"bytes"
	"strconv"
	"strings"

	"aep-wrap/event"
)

// item is one event on its way through. It is written once, before anyone
// else sees it, and shared by all who send it.
type item struct {
	event.Header
	key   key
	hash  uint64 // of source and id, once it is held
	frame []byte // the whole SSE message, encoded once
	at, n int    // frame[at:at+n] is the event as it was received
}

// key is an item's place in its session's buffer: by position, then by
// arrival. An event without a position stands behind the newest one that had
// one when it arrived.
type key struct {
	event.Position
	arrival uint64
}

func (k key) less(o key) bool {
	if k.Position != o.Position {
		return k.Position.Less(o.Position)
	}
	return k.arrival < o.arrival
}

// itemOverhead is about what an item costs beyond its bytes.
const itemOverhead = 512

func (it *item) cost() int { return len(it.frame) + itemOverhead }

// line is the event as it was received.
func (it *item) line() []byte { return it.frame[it.at : it.at+it.n : it.at+it.n] }

// loud says that the event must be delivered, or the stream ended: AEP-0003
// §8.4 lets only debug and info be dropped.
func (it *item) loud() bool { return it.Severity >= event.Notice }

// newItem makes an item of a received line and its header. The line is copied.
func newItem(h event.Header, line []byte) *item {
	it := &item{Header: h}
	it.frame, it.at = appendFrame(nil, &it.Header, line)
	it.n = len(line)
	return it
}

// appendFrame appends an event as one SSE message and says where in it the
// event stands. A line break between two members of the event's JSON would
// end the data field, and begin one of the sender's choice: it becomes a
// space.
func appendFrame(dst []byte, h *event.Header, line []byte) (frame []byte, at int) {
	if dst == nil {
		dst = make([]byte, 0, len("event: \ndata: \nid: ::\n\n")+len(h.Type)+len(line)+len(h.Session)+24)
	}
	dst = append(dst, "event: "...)
	dst = append(dst, h.Type...)
	dst = append(dst, "\ndata: "...)
	at = len(dst)
	dst = append(dst, line...)
	if body := dst[at:]; bytes.IndexByte(body, '\n') >= 0 || bytes.IndexByte(body, '\r') >= 0 {
		for i, b := range body {
			if b == '\n' || b == '\r' {
				body[i] = ' '
			}
		}
	}
	if h.Sequenced && fitsField(h.Session) {
		dst = append(dst, "\nid: "...)
		dst = append(dst, h.Session...)
		dst = append(dst, ':')
		dst = strconv.AppendInt(dst, h.Epoch, 10)
		dst = append(dst, ':')
		dst = strconv.AppendInt(dst, h.Seq, 10)
	}
	return append(dst, "\n\n"...), at
}

// fitsField says whether an identifier can stand in an SSE field and come back
// in a Last-Event-ID header as it was. One that cannot has no id: its session
// is resumed by from, where JSON carries it.
func fitsField(s string) bool {
	for i := range len(s) {
		if s[i] < 0x20 || s[i] == 0x7f {
			return false
		}
	}
	return s == strings.TrimSpace(s)
}
