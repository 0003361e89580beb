package collector

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"aep-wrap/event"
)

// What is erased loses its content and keeps its place: a consumer whose last
// event was one of the erased goes on with the next, and an emitter that sends an
// erased event again adds nothing.
func TestErase(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "s")
	local, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := serveOn(t, Config{Token: "all"}, "http://"+tcp.Addr().String(), tcp, local)
	owner := &server{t: t, base: "http://local", http: &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}}}}
	defer owner.http.CloseIdleConnections()
	mk := func(session string, seq int64) string { return ev(session, 0, seq, `"data":{"status":"secret"}`) }
	for i := range int64(10) {
		owner.post(mk("s", i), mk("other", i))
	}
	const ask = `{"session":"s","source":"aep://h/agent/a/session/s"}`
	if a := s.do("POST", "/erase", head("Authorization", "Bearer all", "Content-Type", "application/json"), strings.NewReader(ask)); a.status != http.StatusForbidden {
		t.Errorf("over the network, with the token: %d", a.status)
	}
	for body, want := range map[string]int{`{}`: 400, `{"session":"s"}`: 400, `[]`: 400, `{`: 400} {
		if a := owner.do("POST", "/erase", head("Content-Type", "application/json"), strings.NewReader(body)); a.status != want {
			t.Errorf("%s: %d %s", body, a.status, a.body)
		}
	}
	erase := func(want string) {
		t.Helper()
		a := owner.do("POST", "/erase", head("Content-Type", "application/json"), strings.NewReader(ask))
		if a.status != 200 || !strings.Contains(a.body, want) {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	erase(`{"events":10}`)
	owner.post(mk("s", 3)) // sent again, by who did not hear that it arrived
	all := owner.do("GET", "/stream?live=0&from=all", nil, nil).body
	if n := strings.Count(all, "secret"); n != 10 || strings.Count(all, "id: other:") != 10 {
		t.Errorf("%d events have their content: %s", n, all)
	}
	for i := range int64(10) {
		a := owner.do("GET", "/stream?live=0", head("Last-Event-ID", fmt.Sprintf("s:0:%d", i)), nil)
		lines := dataLines(a.body)
		if len(lines) != int(9-i) {
			t.Fatalf("behind %d there are %d", i, len(lines))
		}
		for j, line := range lines {
			e, err := event.Parse([]byte(line))
			if err != nil || e.Seq != i+1+int64(j) || e.ID != fmt.Sprintf("s-0-%d", e.Seq) || len(e.Data) != 0 || e.Capture != event.None {
				t.Errorf("behind %d: %s %v", i, line, err)
			}
		}
	}
	owner.post(mk("s", 10))
	if lines := dataLines(owner.do("GET", "/stream?live=0", head("Last-Event-ID", "s:0:9"), nil).body); len(lines) != 1 || !strings.Contains(lines[0], "secret") {
		t.Errorf("what comes later: %q", lines)
	}
	if s.hub.store.bytes <= 0 || s.hub.store.sessions["s"].bytes <= 0 {
		t.Errorf("%d bytes are held", s.hub.store.bytes)
	}
}

// What waits for a consumer is erased too, and what is held keeps its sum.
func TestEraseWhatWaits(t *testing.T) {
	h := newHub(DefaultLimits())
	c := &consumer{live: true, wake: make(chan struct{}, 1), filter: &event.Filter{}, ceiling: event.Full}
	h.subscribe(c, nil, false, nil)
	var items []*item
	for i := range int64(5) {
		items = append(items, mustItem(t, ev("s", 0, i, `"data":{"status":"secret"}`)))
	}
	h.publish(items)
	waiting := len(c.queue)
	if n := h.erase("s", "aep://h/agent/a/session/s"); n != 5 || waiting != 5 {
		t.Fatalf("%d erased, %d wait", n, waiting)
	}
	bytes := 0
	for _, it := range c.queue {
		bytes += it.cost()
		if strings.Contains(string(it.frame), "secret") {
			t.Errorf("%s waits", it.frame)
		}
	}
	if bytes != c.queued || bytes != h.queued || h.store.bytes != h.store.sessions["s"].bytes || bytes != h.store.bytes {
		t.Errorf("sums: %d wait, %d and %d are counted; %d and %d are held", bytes, c.queued, h.queued, h.store.bytes, h.store.sessions["s"].bytes)
	}
}
