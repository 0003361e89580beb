package collector

import (
	"bufio"
	"encoding/binary"
	"net"
	"net/http"
	"sync"
	"time"
)

// wire is a socket's connection. The WebSocket library reads from it, and
// writes its control frames, each in one Write; text frames we write ourselves,
// many at once and encoded once for all who get them. A write is whole, so
// frames never mix.
type wire struct {
	net.Conn
	in    *bufio.Reader
	stall time.Duration

	mu sync.Mutex // of writes

	dmu     sync.Mutex // of the two below: expire comes from another goroutine
	set     time.Time
	expired bool
}

func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.extend()
	return w.Conn.Write(p)
}

// extend moves the deadline on, at most every tenth of stall.
func (w *wire) extend() {
	w.dmu.Lock()
	defer w.dmu.Unlock()
	if now := time.Now(); !w.expired && now.Sub(w.set) > w.stall/10 {
		w.set = now
		_ = w.SetWriteDeadline(now.Add(w.stall))
	}
}

// expire gives what is being written a last moment to get through.
func (w *wire) expire() {
	w.dmu.Lock()
	defer w.dmu.Unlock()
	w.expired = true
	_ = w.SetWriteDeadline(time.Now().Add(lastMoment))
}

// appendText appends a text frame (RFC 6455 §5.2), unmasked as a server's are.
func appendText(dst, payload []byte) []byte {
	dst = append(dst, 0x81)
	switch n := len(payload); {
	case n < 126:
		dst = append(dst, byte(n))
	case n < 1<<16:
		dst = binary.BigEndian.AppendUint16(append(dst, 126), uint16(n))
	default:
		dst = binary.BigEndian.AppendUint64(append(dst, 127), uint64(n))
	}
	return append(dst, payload...)
}

// more says whether another whole text frame has been read already, so that
// reading it waits for nobody.
func (w *wire) more() bool {
	n := w.in.Buffered()
	if n < 6 {
		return false
	}
	head, err := w.in.Peek(min(n, 14))
	if err != nil || head[0] != 0x81 {
		return false
	}
	switch size := int(head[1] & 0x7f); {
	case size < 126:
		return n >= 6+size
	case size == 126:
		return n >= 8+int(binary.BigEndian.Uint16(head[2:]))
	}
	return false // longer than what is buffered
}

// hijacker hands a connection over as a wire.
type hijacker struct {
	http.ResponseWriter
	stall time.Duration
	wire  *wire
}

func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, brw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.wire = &wire{Conn: conn, in: brw.Reader, stall: h.stall}
	// The library writes nothing but control frames, and they are small.
	return h.wire, bufio.NewReadWriter(brw.Reader, bufio.NewWriterSize(h.wire, 256)), nil
}
