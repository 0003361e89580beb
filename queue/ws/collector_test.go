package ws

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"aep-wrap/event/eventtest"
)

// collector is an endpoint that remembers what it was sent, and misbehaves as
// it is told. It dedupes nothing: what it got is what was sent.
type collector struct {
	*httptest.Server
	t       *testing.T
	ctx     context.Context // of every socket
	end     context.CancelFunc
	scripts sync.WaitGroup // the server does not wait for those who took its connection over

	// discovery answers GET; nil serves the usual document.
	discovery http.HandlerFunc
	// upgrade may answer instead of the socket (true: it did).
	upgrade func(n int, w http.ResponseWriter, r *http.Request) bool
	// script drives the n-th socket (from 1); nil behaves.
	script func(n int, p *peer)

	mu      sync.Mutex
	sockets int
	gets    int
	taken   []string            // ids, by socket or POST
	by      map[string][]string // ids by binding
	lines   map[string]string   // by id
	hellos  []map[string]any
	heads   []http.Header
	closes  []string // closing frames' reasons
	codes   []websocket.StatusCode
	peers   map[*peer]bool
}

func newCollector(t *testing.T) *collector {
	c := &collector{t: t, by: map[string][]string{}, lines: map[string]string{}, peers: map[*peer]bool{}}
	c.ctx, c.end = context.WithCancel(context.Background())
	c.Server = httptest.NewUnstartedServer(http.HandlerFunc(c.serve))
	return c
}

func (c *collector) start() *collector {
	c.Start()
	c.t.Cleanup(c.stop)
	return c
}

// startInside starts it on a network of its own, in memory, and gives who reaches
// it there.
func (c *collector) startInside() *http.Client {
	network := eventtest.NewNetwork()
	c.Listener.Close()
	c.Listener = network
	tr := &http.Transport{DialContext: network.Dial}
	c.t.Cleanup(tr.CloseIdleConnections)
	c.start()
	return &http.Client{Transport: tr}
}

// stop ends it, and comes back when nothing of it is left: a bubble that ends
// before is one that fails.
func (c *collector) stop() {
	c.end()
	c.Close()
	ended := make(chan struct{})
	go func() { c.scripts.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(time.Minute):
		c.t.Error("a script goes on after its socket")
	}
}

// kill breaks every socket.
func (c *collector) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.peers {
		p.cancel()
	}
}

func (c *collector) serve(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodPost:
		c.post(w, r)
	case r.URL.Path == "/socket":
		c.socket(w, r)
	case c.discovery != nil:
		c.discovery(w, r)
	case r.URL.Path == "/events":
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"aep":["0.1"],"role":"collector","endpoints":{"events":"/events","socket":"/socket"},"x":1}`)
	default:
		http.NotFound(w, r)
	}
}

func (c *collector) post(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	if err != nil {
		return // half a request, of a sender that is gone
	}
	for _, l := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
		c.take("post", []byte(l))
	}
	w.WriteHeader(http.StatusAccepted)
}

func (c *collector) take(by string, line []byte) string {
	var h struct{ ID string }
	_ = json.Unmarshal(line, &h)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken = append(c.taken, h.ID)
	c.by[by] = append(c.by[by], h.ID)
	c.lines[h.ID] = string(line)
	return h.ID
}

func (c *collector) socket(w http.ResponseWriter, r *http.Request) {
	c.scripts.Add(1)
	defer c.scripts.Done()
	c.mu.Lock()
	c.gets++
	n := c.gets
	c.heads = append(c.heads, r.Header.Clone())
	c.mu.Unlock()
	if c.upgrade != nil && c.upgrade(n, w, r) {
		return
	}
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	ws.SetReadLimit(64 << 20)
	ctx, cancel := context.WithCancel(c.ctx)
	p := &peer{c: c, ws: ws, ctx: ctx, cancel: cancel, r: r}
	c.mu.Lock()
	c.sockets++
	n = c.sockets
	c.peers[p] = true
	c.mu.Unlock()
	defer func() {
		cancel()
		_ = ws.CloseNow()
		c.mu.Lock()
		delete(c.peers, p)
		c.mu.Unlock()
	}()
	if c.script != nil {
		c.script(n, p)
		return
	}
	p.behave()
}

// peer is the collector's end of a socket.
type peer struct {
	c      *collector
	ws     *websocket.Conn
	ctx    context.Context
	cancel context.CancelFunc
	r      *http.Request
}

func (p *peer) send(s string) { _ = p.ws.Write(p.ctx, websocket.MessageText, []byte(s)) }

// next reads a message; "" is the end.
func (p *peer) next() string {
	_, raw, err := p.ws.Read(p.ctx)
	if err != nil {
		p.c.mu.Lock()
		p.c.codes = append(p.c.codes, websocket.CloseStatus(err))
		p.c.mu.Unlock()
		return ""
	}
	return string(raw)
}

const helloBack = `{"type":"hello","versions":["0.1"],"role":"both","identity":{"agent":"fake"},"capabilities":{"zz":1}}`

// hello reads one and says one.
func (p *peer) hello() bool {
	m := map[string]any{}
	if json.Unmarshal([]byte(p.next()), &m) != nil || m["type"] != "hello" {
		return false
	}
	p.c.mu.Lock()
	p.c.hellos = append(p.c.hellos, m)
	p.c.mu.Unlock()
	p.send(helloBack)
	return true
}

// pongs answers pings until n of them were, or until the end; events between
// are taken in.
func (p *peer) pongs(n int) bool {
	for range n {
		for {
			m := p.next()
			if m == "" {
				return false
			}
			if t, ok := p.message(m); ok {
				p.send(`{"type":"pong","t":` + t + `}`)
				break
			}
		}
	}
	return true
}

// message takes a message in, and gives the t of a ping.
func (p *peer) message(m string) (t string, ping bool) {
	var f struct {
		Type   string
		T      json.RawMessage
		Reason string
	}
	_ = json.Unmarshal([]byte(m), &f)
	switch {
	case strings.Contains(f.Type, "."):
		p.c.take("socket", []byte(m))
	case f.Type == "ping":
		return string(f.T), true
	case f.Type == "closing":
		p.c.mu.Lock()
		p.c.closes = append(p.c.closes, f.Reason)
		p.c.mu.Unlock()
	}
	return "", false
}

func (p *peer) behave() {
	if p.hello() {
		for p.pongs(1) {
		}
	}
}

func (c *collector) got() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.taken)
}

func (c *collector) via(by string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.by[by])
}

func (c *collector) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sockets
}

// manual is a clock that is moved by hand.
type manual struct {
	mu     sync.Mutex
	now    time.Time
	timers map[*timer]bool
}

type timer struct {
	at time.Time
	f  func()
}

func newManual() *manual { return &manual{now: time.Unix(1e9, 0), timers: map[*timer]bool{}} }

func (m *manual) clock() Clock {
	return Clock{
		Now: func() time.Time { m.mu.Lock(); defer m.mu.Unlock(); return m.now },
		After: func(d time.Duration, f func()) func() bool {
			m.mu.Lock()
			defer m.mu.Unlock()
			t := &timer{m.now.Add(d), f}
			m.timers[t] = true
			return func() bool {
				m.mu.Lock()
				defer m.mu.Unlock()
				armed := m.timers[t]
				delete(m.timers, t)
				return armed
			}
		},
	}
}

// next is how far off the next timer is; 0 is none.
func (m *manual) next() (d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for t := range m.timers {
		if left := t.at.Sub(m.now); d == 0 || left < d {
			d = left
		}
	}
	return d
}

func (m *manual) advance(d time.Duration) {
	m.mu.Lock()
	m.now = m.now.Add(d)
	var due []*timer
	for t := range m.timers {
		if !t.at.After(m.now) {
			due = append(due, t)
			delete(m.timers, t)
		}
	}
	m.mu.Unlock()
	for _, t := range due {
		go t.f()
	}
}

// until waits for something to become so.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
	}
}

// deduped keeps the first of each id.
func deduped(ids []string) (out []string) {
	seen := map[string]bool{}
	for _, id := range ids {
		if !seen[id] {
			seen[id] = true
			out = append(out, id)
		}
	}
	return out
}

func line(session string, n int, typ string) []byte {
	return fmt.Appendf(nil, `{"aep":"0.1","id":"%s-%d","type":%q,"time":"2026-01-01T00:00:00.000Z","source":"aep://h/agent/a/session/%s","agent":"a","session":%q,"seq":%d,"capture":"metadata","data":{"text":"%s"}}`,
		session, n, typ, session, session, n, strings.Repeat("x", n%50))
}

func commandLine(id, typ string) string {
	return fmt.Sprintf(`{"aep":"0.1","id":%q,"type":%q,"time":"2026-01-01T00:00:00Z","source":"aep://h/agent/sink","agent":"sink","session":"s","data":{}}`, id, typ)
}
