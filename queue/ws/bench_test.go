package ws

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/coder/websocket"

	"aep-wrap/queue"
	"aep-wrap/queue/post"
)

// sink takes everything in and does nothing with it: what is measured is the
// emitter, and the network.
func sink(b *testing.B) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method == http.MethodPost:
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusAccepted)
			return
		case r.URL.Path != "/socket":
			http.NotFound(w, r)
			return
		}
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer ws.CloseNow()
		ws.SetReadLimit(-1)
		ctx := context.Background()
		_, _, _ = ws.Read(ctx)
		_ = ws.Write(ctx, websocket.MessageText, []byte(helloBack))
		buf := make([]byte, 64<<10)
		for {
			_, rd, err := ws.Reader(ctx)
			if err != nil {
				return
			}
			n, err := rd.Read(buf)
			if t, ping := bytes.CutPrefix(buf[:n], []byte(`{"type":"ping"`)); ping {
				if ws.Write(ctx, websocket.MessageText, append([]byte(`{"type":"pong"`), t...)) != nil {
					return
				}
			}
			for err == nil {
				_, err = rd.Read(buf)
			}
		}
	}))
	b.Cleanup(s.Close)
	return s.URL
}

// BenchmarkEmit is events of some 400 bytes, from the feed to their
// acknowledgement over loopback, by either emitter.
func BenchmarkEmit(b *testing.B) {
	body := bytes.Replace(line("s", 1, "tool.completed"), []byte(`"text":"`), append([]byte(`"text":"`), bytes.Repeat([]byte("x"), 180)...), 1)
	for name, open := range map[string]func(string, *queue.Feed) (Poster, error){
		"ws":   func(u string, f *queue.Feed) (Poster, error) { return New(Config{URL: u, Agent: "a"}, f) },
		"post": func(u string, f *queue.Feed) (Poster, error) { return post.New(post.Config{URL: u}, f) },
	} {
		b.Run(name, func(b *testing.B) {
			f := queue.NewFeed(queue.Options{LooseEvents: b.N + 1, LooseBytes: 1 << 40})
			defer f.Close()
			e, err := open(sink(b), f)
			if err != nil {
				b.Fatal(err)
			}
			ctx, cancel := context.WithCancel(b.Context())
			ended := make(chan struct{})
			go func() { _ = e.Run(ctx); close(ended) }()
			it := item(1)
			it.Line = body
			f.Offer(it)
			_ = e.Flush(ctx) // connected
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			b.ResetTimer()
			from := time.Now()
			for range b.N {
				f.Offer(it)
			}
			if err := e.Flush(ctx); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/time.Since(from).Seconds(), "ev/s")
			b.StopTimer()
			cancel()
			<-ended
		})
	}
}
