package main

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"aep-wrap/event"
	"aep-wrap/queue"
	"aep-wrap/queue/ws"
)

// Of each way to the collector one story is told, that of now: what carries
// events, since when, why nothing gets through, and why not by the socket. The
// metrics tell the same, and count what went by POST in the socket's place.
func TestOneStoryOfEachWay(t *testing.T) {
	var answer atomic.Int64
	answer.Store(http.StatusServiceUnavailable)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if r.Method != http.MethodPost {
			http.NotFound(w, r) // no socket, ever
			return
		}
		w.WriteHeader(int(answer.Load()))
	}))
	defer srv.Close()
	a := &app{Getenv: func(string) string { return "" }}
	a.cfg.Collector = srv.URL
	log := slog.New(slog.DiscardHandler)
	x, err := a.newSocketSink(ws.Config{Agent: "codex", Log: log, MinWait: time.Millisecond, Capabilities: func() ws.Capabilities { return ws.Capabilities{} }}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	s := &watchSinks{socket: map[string]*socketOf{"codex": {sink: x}, "pi": nil}}
	if s.post, err = a.newSender(log, nil, nil); err != nil {
		t.Fatal(err)
	}
	began := time.Now().Truncate(time.Second)
	x.start()
	defer x.close()
	offer := func(n int) {
		x.Offer(queue.Item{Agent: "codex", Session: "s", ID: fmt.Sprint(n), Position: event.Position{Epoch: 1, Seq: int64(n)}, Line: fmt.Appendf(nil, `{"id":"%d"}`, n)})
	}
	for n, tt := range []struct {
		answer    int
		by, state string
		word      string
		events    int64
	}{
		{http.StatusServiceUnavailable, "post", "retrying", "503", 0},
		{http.StatusAccepted, "post", "posting", "", 2},
		{http.StatusForbidden, "", "stopped", "403", 2},
	} {
		answer.Store(int64(tt.answer))
		offer(n)
		var c collectorState
		for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			c = s.states()["codex"]
			if c.State == tt.state && s.ways()[1].events == tt.events {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%d: %+v", tt.answer, c)
			}
			if tt.answer == http.StatusAccepted {
				_ = x.socket.Flush(t.Context()) // waits out no backoff
			}
		}
		w := s.ways()[1]
		since, err := time.Parse(time.RFC3339, c.Since)
		if err != nil || since.Before(began) || w.state != tt.state || w.attempts == 0 || w.failed == 0 {
			t.Errorf("%d: %+v, %+v", tt.answer, c, w)
		}
		if c.By != tt.by || (c.Word == "") != (tt.word == "") || !strings.Contains(c.Word, tt.word) || (c.NoSocket == "") != (tt.by != "post") {
			t.Errorf("%d: %+v", tt.answer, c)
		}
	}
	if got := s.states(); len(got) != 1 {
		t.Errorf("a way that carries nothing is told: %+v", got)
	}
}
