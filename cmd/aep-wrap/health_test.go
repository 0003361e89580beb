package main

import (
	"context"
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
// metrics tell the same, and count what went by POST in the socket's place. It is
// so too while POST has stopped, and the socket has not heard of it.
func TestOneStoryOfEachWay(t *testing.T) {
	t.Run("told", func(t *testing.T) { testOneStory(t, func(p ws.Poster) ws.Poster { return p }) })
	t.Run("untold", func(t *testing.T) { testOneStory(t, func(p ws.Poster) ws.Poster { return untold{p} }) })
}

// untold is a poster of which nobody hears that it has stopped.
type untold struct{ ws.Poster }

func (u untold) Run(ctx context.Context) error {
	err := u.Poster.Run(ctx)
	<-ctx.Done()
	return err
}

func testOneStory(t *testing.T, by func(ws.Poster) ws.Poster) {
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
	c := ws.Config{Agent: "codex", Log: log, MinWait: time.Millisecond, Capabilities: func() ws.Capabilities { return ws.Capabilities{} }}
	x, err := a.newSocketSink(c, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	c.URL, c.Client = x.target.URL, x.target.Client
	c.Fallback = func(f *queue.Feed) (ws.Poster, error) {
		p, err := x.fallback(f)
		return by(p), err
	}
	if x.socket, err = ws.New(c, x.Feed); err != nil {
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
