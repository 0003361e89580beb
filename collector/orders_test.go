package collector

import (
	"errors"
	"fmt"
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
	l := newGate(tcp, 2)
	s := serveOn(t, Config{Limits: Limits{Drain: time.Minute}}, "http://"+tcp.Addr().String(), l)
	defer l.opened()
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
	l.opened()
	st := <-got
	if m := st.next(); m.Comment != "shutting-down" {
		t.Errorf("got %+v", m)
	}
	if err := st.ends(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
}

// A token that is taken away between the check and the start of what it let in
// ends that, too.
func TestATokenThatIsTakenAwayMeanwhile(t *testing.T) {
	for _, tt := range []struct {
		name string
		at   int32
		open func(*server) string
	}{
		{"stream", 2, func(s *server) string { return s.open("access_token=old", nil).next().Comment }},
		{"socket", 1, func(s *server) string { return fmt.Sprint(s.dial("access_token=old", nil).hear()["reason"]) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tcp, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			l := newGate(tcp, tt.at)
			defer l.opened()
			s := serveOn(t, Config{Tokens: []Token{{Value: "old", Roles: AllRoles}}, Limits: Limits{Heartbeat: reviewEvery / 3}}, "http://"+tcp.Addr().String(), l)
			got := make(chan string, 1)
			go func() { got <- tt.open(s) }()
			<-l.reached
			s.SetTokens([]Token{{Value: "new", Roles: AllRoles}})
			l.opened()
			if word := <-got; !strings.HasPrefix(word, "unauthorized") {
				t.Errorf("it hears %q", word)
			}
		})
	}
}

// gate holds whoever takes a connection over from net/http: as that hands it
// over, which is the first time, or as it has it, the second.
type gate struct {
	net.Listener
	at      int32
	reached chan struct{}
	open    chan struct{}
	opened  func()
}

func newGate(l net.Listener, at int32) *gate {
	g := &gate{Listener: l, at: at, reached: make(chan struct{}), open: make(chan struct{})}
	g.opened = sync.OnceFunc(func() { close(g.open) })
	return g
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
// then by a stream that has it.
func (c *gated) SetDeadline(t time.Time) error {
	if c.times.Add(1) == c.gate.at {
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
