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

	rmu  sync.Mutex // of reads without the library
	left bool       // there are none any more

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

// ahead gives the size of the next text frame's header and payload, when the
// whole of it has been read already. Longer ones than what is buffered, and
// all that is not one whole masked text frame, are the library's.
func (w *wire) ahead() (head, size int, ok bool) {
	if w.left { // the library has the buffer to itself
		return 0, 0, false
	}
	n := w.in.Buffered()
	if n < 6 {
		return 0, 0, false
	}
	h, err := w.in.Peek(4)
	if err != nil || h[0] != 0x81 || h[1]&0x80 == 0 {
		return 0, 0, false
	}
	switch head, size = 6, int(h[1]&0x7f); size {
	case 126:
		head, size = 8, int(binary.BigEndian.Uint16(h[2:]))
	case 127:
		return 0, 0, false
	}
	return head, size, n >= head+size
}

// more says whether reading the next text frame waits for nobody.
func (w *wire) more() bool {
	w.rmu.Lock()
	defer w.rmu.Unlock()
	_, _, ok := w.ahead()
	return ok
}

// take reads the next text frame into buf, if it is there already and has at
// most limit bytes: the library takes three reads and several locks for it.
func (w *wire) take(buf []byte, limit int) ([]byte, bool) {
	w.rmu.Lock()
	defer w.rmu.Unlock()
	head, size, ok := w.ahead()
	if !ok || size > limit {
		return buf, false
	}
	frame, err := w.in.Peek(head + size)
	if err != nil {
		return buf, false
	}
	buf = append(buf[:0], frame[head:]...)
	unmask(buf, [4]byte(frame[head-4:head]))
	_, _ = w.in.Discard(head + size)
	return buf, true
}

// unmask takes a frame's mask off (RFC 6455 §5.3).
func unmask(p []byte, mask [4]byte) {
	word := uint64(binary.LittleEndian.Uint32(mask[:]))
	word |= word << 32
	if word == 0 {
		return
	}
	for ; len(p) >= 8; p = p[8:] {
		binary.LittleEndian.PutUint64(p, binary.LittleEndian.Uint64(p)^word)
	}
	for i := range p {
		p[i] ^= mask[i&3]
	}
}

// leave gives reading over to the library: from now on it may read, for the
// close handshake, on another goroutine.
func (w *wire) leave() {
	w.rmu.Lock()
	defer w.rmu.Unlock()
	w.left = true
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
