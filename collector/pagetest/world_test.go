package pagetest

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	"aep-wrap/collector"
	"aep-wrap/event/eventtest"
)

const (
	token   = "page-test-token-all-roles"
	watches = "page-test-token-watch-only"
)

func TestMain(m *testing.M) {
	code := m.Run()
	Close()
	os.Exit(code)
}

// world is a collector with its log, and the tabs that look at it.
type world struct {
	t    *testing.T
	base string
	log  *syncBuffer
	c    *collector.Collector
	stop func()

	window int // the targets' ack window, in ms; 0 is patient
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// newWorld starts a collector, or skips where there is no browser.
func newWorld(t *testing.T, limits collector.Limits) *world {
	t.Helper()
	t.Parallel()
	return newWorldAlone(t, limits)
}

func newWorldAlone(t *testing.T, limits collector.Limits) *world {
	t.Helper()
	w := &world{t: t, log: &syncBuffer{}}
	Need(t)
	w.serve(limits, eventtest.Address(t))
	t.Cleanup(func() { w.stop() })
	return w
}

// serve runs a collector of its own at an address, until it is stopped.
func (w *world) serve(limits collector.Limits, address string) {
	w.t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		w.t.Fatal(err)
	}
	w.base = "http://" + l.Addr().String()
	w.c = collector.New(collector.Config{
		Tokens: []collector.Token{{Value: token, Roles: collector.AllRoles}, {Value: watches, Roles: collector.Watch}},
		Log:    slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Limits: limits,
	})
	w.c.SetLinkKey([]byte("a key that signs the devices' tokens"))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.c.Serve(ctx, elsewhere{l}) }()
	w.stop = sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			w.t.Errorf("the collector: %v", err)
		}
	})
}

// metrics is what the collector counts.
func (w *world) metrics() string {
	rec := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(w.t.Context(), http.MethodGet, "http://127.0.0.1/metrics", nil)
	req.Header.Set("Authorization", "Bearer "+token)
	w.c.Handler().ServeHTTP(rec, req)
	return rec.Body.String()
}

// open opens the page with a token in its fragment.
func (w *world) open(tok string, s Size) *Tab {
	w.t.Helper()
	return Open(w.t, w.base+"/#token="+tok, s)
}

// elsewhere is a listener whose clients come from another machine: here the
// target is the browser's parent, and an agent's own processes command nothing.
type elsewhere struct{ net.Listener }

func (l elsewhere) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return visitor{conn}, nil
}

type visitor struct{ net.Conn }

func (v visitor) RemoteAddr() net.Addr {
	return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: v.Conn.RemoteAddr().(*net.TCPAddr).Port}
}
