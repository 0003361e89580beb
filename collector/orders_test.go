package collector

import (
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"aep-wrap/event"
)

// A stream that net/http has just let go of when the endpoint ends is waited
// for, and hears why it ends.
func TestAStreamThatBeginsAtTheEnd(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &gate{Listener: tcp, reached: make(chan struct{}), open: make(chan struct{})}
	s := serveOn(t, Config{Limits: Limits{Drain: time.Minute}}, "http://"+tcp.Addr().String(), l)
	opened := sync.OnceFunc(func() { close(l.open) })
	defer opened()
	got := make(chan *stream, 1)
	go func() { got <- s.open("", nil) }()
	<-l.reached
	s.stop()
	select {
	case err := <-s.done:
		s.done <- err
		t.Error("it ended before its stream")
	case <-time.After(200 * time.Millisecond): // where it does not wait, it ends at once
	}
	opened()
	st := <-got
	if m := st.next(); m.Comment != "shutting-down" {
		t.Errorf("got %+v", m)
	}
	if err := st.ends(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
}

// gate holds whoever takes a connection over from net/http.
type gate struct {
	net.Listener
	reached, open chan struct{}
}

func (g *gate) Accept() (net.Conn, error) {
	conn, err := g.Listener.Accept()
	return &gated{Conn: conn, gate: g}, err
}

type gated struct {
	net.Conn
	gate  *gate
	times atomic.Int32
}

// SetDeadline is called first by net/http as it hands the connection over, and
// then by who has it.
func (c *gated) SetDeadline(t time.Time) error {
	if c.times.Add(1) == 2 {
		close(c.gate.reached)
		<-c.gate.open
	}
	return c.Conn.SetDeadline(t)
}

// A session that begins again behind its end is claimed, also where both come
// in one piece.
func TestASessionThatBeginsAgainIsClaimed(t *testing.T) {
	again := strings.Replace(ev("s", 1, 0), "progress.status", "session.started", 1)
	for _, typ := range []string{"session.ended", "x.aep-wrap.session.exited"} {
		c := New(Config{})
		s := &socket{c: c, may: AllRoles, hello: greeting{role: roleEmitter}, wire: &wire{}, claimed: map[string]*claim{}, wake: make(chan struct{}, 1)}
		end := strings.Replace(ev("s", 0, 1), "progress.status", typ, 1)
		s.pending = itemsOf(t, ev("s", 0, 0), ev("o", 0, 0), end, ev("o", 0, 1))
		s.publish()
		if s.claimed["s"] != nil || s.claimed["o"] == nil || c.claims.count() != 1 {
			t.Errorf("behind %s: %d claims", typ, c.claims.count())
		}
		s.pending = itemsOf(t, ev("s", 0, 0), end, again)
		s.publish()
		if s.claimed["s"] == nil || c.claims.count() != 2 {
			t.Errorf("behind %s it began again: %d claims", typ, c.claims.count())
		}
		if n := c.hub.counts.received.Load(); n != 7 {
			t.Errorf("%d events were taken in", n)
		}
	}
}

// A session that is forgotten between the look for its log and the subscription
// is served from the log all the same.
func TestASessionThatIsForgottenMeanwhile(t *testing.T) {
	dir := t.TempDir()
	lines := locals("s", 100)
	writeLog(t, dir, "a", "s", 0, lines...)
	h := newHub(Limits{Sessions: 1}.withDefaults())
	h.logs.dir = dir
	h.publish(itemsOf(t, lines...))
	from := []resume{{"s", event.Position{Seq: 9}}}
	gone := h.prepare(from)
	h.publish(itemsOf(t, local("other", 0)))
	if h.store.sessions["s"] != nil {
		t.Fatal("it is held")
	}
	c := &consumer{live: true, ceiling: event.Full}
	h.subscribe(c, from, false, gone)
	if got := drainHub(h, c); !slices.Equal(got, lines[10:]) {
		t.Errorf("%d events", len(got))
	}
	h.unsubscribe(c)
}
