package ws

import (
	"io"
	"net/http"
	"sync"
	"time"
)

// outbox stands between the WebSocket library and the network. Its Write never
// blocks, so that a peer which does not read holds up neither the answer to its
// pings nor our look at the clock; and what is written in one go leaves in one
// go, where the library would make a system call of every frame. Whoever writes
// much asks full first, and waits for room.
type outbox struct {
	io.ReadWriteCloser
	wake chan struct{} // something is to be written
	room chan struct{} // it is no longer full
	done chan struct{} // the writer has ended
	now  func() time.Time

	mu     sync.Mutex
	buf    []byte
	held   bool // more is coming
	err    error
	moved  time.Time // when something went out last, of more
	ending bool
	once   sync.Once
}

const (
	outboxFull  = 256 << 10 // beyond it nothing more should be written
	outboxWrite = 64 << 10  // beyond it there is no waiting for more
	linger      = 500 * time.Millisecond
)

func newOutbox(rwc io.ReadWriteCloser, now func() time.Time) *outbox {
	o := &outbox{ReadWriteCloser: rwc, now: now, wake: make(chan struct{}, 1), room: make(chan struct{}, 1), done: make(chan struct{})}
	go o.run()
	return o
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (o *outbox) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return 0, o.err
	}
	if o.ending {
		return 0, io.ErrClosedPipe
	}
	o.buf = append(o.buf, p...)
	if !o.held || len(o.buf) >= outboxWrite {
		signal(o.wake)
	}
	return len(p), nil
}

// hold keeps what is written until release.
func (o *outbox) hold() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = true
}

func (o *outbox) release() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.held = false
	signal(o.wake)
}

func (o *outbox) full() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.buf) >= outboxFull && o.err == nil
}

// movedAt is when something went out last with more behind it. What goes out
// whole says nothing: the system takes it, whether or not anybody is there.
func (o *outbox) movedAt() time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.moved
}

func (o *outbox) run() {
	defer close(o.done)
	var spare []byte
	for range o.wake {
		o.mu.Lock()
		out, ending := o.buf, o.ending
		if cap(spare) > 4*outboxFull { // one long line is no reason to keep so much
			spare = nil
		}
		o.buf = spare[:0]
		o.mu.Unlock()
		for rest := out; len(rest) > 0; { // in pieces, for who asks whether anything moves
			n, err := o.ReadWriteCloser.Write(rest[:min(len(rest), outboxWrite)])
			rest = rest[n:]
			o.mu.Lock()
			if len(rest)+len(o.buf) > 0 {
				o.moved = o.now()
			}
			if err != nil {
				o.err, o.buf = err, nil
			}
			o.mu.Unlock()
			if err != nil {
				signal(o.room)
				return
			}
		}
		spare = out
		signal(o.room)
		if ending {
			return
		}
	}
}

// Close lets the rest go out, for as long as that takes no time to speak of.
func (o *outbox) Close() error {
	o.mu.Lock()
	o.ending = true
	signal(o.wake)
	o.mu.Unlock()
	t := time.NewTimer(linger)
	defer t.Stop()
	select {
	case <-o.done:
	case <-t.C:
	}
	return o.kill()
}

// kill ends the connection now: whoever reads or writes gets an error.
func (o *outbox) kill() (err error) {
	o.once.Do(func() {
		err = o.ReadWriteCloser.Close()
		o.mu.Lock()
		o.ending = true
		signal(o.wake)
		o.mu.Unlock()
		<-o.done
	})
	return err
}

// tap puts an outbox onto the connection that an upgrade gives.
type tap struct {
	http.RoundTripper
	now func() time.Time
	out *outbox
}

func (t *tap) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := t.RoundTripper.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		if rwc, ok := resp.Body.(io.ReadWriteCloser); ok {
			t.out = newOutbox(rwc, t.now)
			resp.Body = t.out
		}
	}
	return resp, err
}
