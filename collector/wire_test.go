package collector

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/coder/websocket"
)

// maskedBy is a client's text frame.
func maskedBy(payload string, mask [4]byte) []byte {
	b := []byte{0x81}
	if len(payload) < 126 {
		b = append(b, 0x80|byte(len(payload)))
	} else {
		b = append(b, 0x80|126, byte(len(payload)>>8), byte(len(payload)))
	}
	b = append(b, mask[:]...)
	for i := range len(payload) {
		b = append(b, payload[i]^mask[i%4])
	}
	return b
}

// Once it is left to the library, the buffer is read by nobody else.
func TestLeftToTheLibrary(t *testing.T) {
	in, out := io.Pipe()
	w := &wire{in: bufio.NewReader(in)}
	w.leave()
	go func() {
		defer out.Close()
		for range 1000 {
			if _, err := out.Write([]byte("x")); err != nil {
				return
			}
		}
	}()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, w.in)
	}()
	for {
		if w.more() {
			t.Fatal("a frame is there for us")
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// What is there whole is taken, byte for byte, and nothing else is touched.
func TestTakeFrames(t *testing.T) {
	var texts []string
	var stream []byte
	for i, n := range []int{0, 1, 7, 8, 9, 125, 126, 127, 200, 1000, 3000} {
		text := strings.Repeat(fmt.Sprint("é", i), n)[:n]
		texts = append(texts, text)
		stream = append(stream, maskedBy(text, [4]byte{byte(i), 2, 3, byte(i * 7)})...)
	}
	w := &wire{in: bufio.NewReaderSize(bytes.NewReader(stream), 1<<20)}
	_, _ = w.in.Peek(1)
	var buf []byte
	for i, want := range texts {
		if !w.more() {
			t.Fatalf("frame %d is not there", i)
		}
		got, ok := w.take(buf, 1<<20)
		if !ok || string(got) != want {
			t.Fatalf("frame %d: %v, %q", i, ok, got)
		}
		buf = got
	}
	if _, ok := w.take(buf, 1<<20); ok || w.more() {
		t.Error("one more comes")
	}
	for name, raw := range map[string][]byte{
		"unmasked":           {0x81, 2, 'h', 'i', 0, 0, 0, 0},
		"binary":             append([]byte{0x82}, maskedBy("hi", [4]byte{1})[1:]...),
		"a fragment":         append([]byte{0x01}, maskedBy("hi", [4]byte{1})[1:]...),
		"compressed":         append([]byte{0xc1}, maskedBy("hi", [4]byte{1})[1:]...),
		"a ping":             append([]byte{0x89}, maskedBy("hi", [4]byte{1})[1:]...),
		"half of one":        maskedBy("hello", [4]byte{1})[:9],
		"beyond the limit":   maskedBy(strings.Repeat("x", 101), [4]byte{1}),
		"a size of 64 bits":  {0x81, 0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 'x'},
		"a header that ends": {0x81},
	} {
		w := &wire{in: bufio.NewReader(bytes.NewReader(raw))}
		_, _ = w.in.Peek(1)
		if _, ok := w.take(nil, 100); ok || w.in.Buffered() != len(raw) {
			t.Errorf("%s: taken, or touched", name)
		}
	}
	w = &wire{in: bufio.NewReader(bytes.NewReader(maskedBy("x", [4]byte{})))}
	_, _ = w.in.Peek(1)
	w.leave()
	if _, ok := w.take(nil, 100); ok {
		t.Error("taken after it was left to the library")
	}
}

// However a burst of frames is cut, each is read once and in order, with
// control frames and long ones among them.
func TestBurstsOfFrames(t *testing.T) {
	s := serve(t, Config{})
	p := s.hello("consumer")
	p.say(`{"type":"subscribe","id":"1"}`)
	p.wants(`{"type":"subscribed","id":"1"}`)
	var want []string
	burst := []byte(upgrade)
	burst = append(burst, maskedBy(`{"type":"hello","versions":["0.1"],"role":"emitter"}`, [4]byte{9, 8, 7, 6})...)
	for i := range int64(300) {
		l := ev("s", 0, i, `"data":{"x":"`+strings.Repeat("y", int(i*i)%9000)+`"}`)
		want = append(want, l)
		burst = append(burst, maskedBy(l, [4]byte{byte(i), 5, 6, 7})...)
		if i%17 == 0 {
			burst = append(burst, 0x89, 0x80, 1, 2, 3, 4)
		}
	}
	conn := s.dialRaw()
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	if _, err := io.Copy(conn, iotest.DataErrReader(bytes.NewReader(burst))); err != nil {
		t.Fatal(err)
	}
	for i, l := range want {
		if got := p.line(); got != l {
			t.Fatalf("event %d: %.200s", i, got)
		}
	}
	p.ws.Close(websocket.StatusNormalClosure, "")
}
