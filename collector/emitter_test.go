package collector

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"aep-wrap/event"
	"aep-wrap/queue"
	"aep-wrap/queue/ws"
)

// emit runs our own emitter against an endpoint.
func emit(tb testing.TB, base string, cfg ws.Config, opts queue.Options) (*ws.Emitter, *queue.Feed) {
	tb.Helper()
	feed := queue.NewFeed(opts)
	cfg.URL, cfg.Agent = base, "a"
	e, err := ws.New(cfg, feed)
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = e.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		<-ended
		feed.Close()
	})
	return e, feed
}

func itemOf(tb testing.TB, line string) queue.Item {
	tb.Helper()
	h, _, err := event.ParseHeader([]byte(line))
	if err != nil {
		tb.Fatal(err)
	}
	return queue.Item{Agent: h.Agent, Session: h.Session, ID: h.ID, Severity: h.Severity, Sequenced: h.Sequenced, Position: h.Position(), Line: []byte(line)}
}

// The two halves of the socket understand each other: what is acknowledged is
// held, commands come through, and a refused event is the emitter's loss alone.
func TestOurEmitter(t *testing.T) {
	s := serve(t, Config{Token: "t"}).as("t")
	commands := make(chan string, 1)
	e, feed := emit(t, s.base, ws.Config{
		Token: "t",
		Capabilities: func() ws.Capabilities {
			return ws.Capabilities{Control: &ws.Control{Accepts: []string{"control.pause"}}}
		},
		OnCommand: func(line []byte, _ event.Header) { commands <- string(line) },
	}, queue.Options{})
	const n = 500
	var want []string
	for i := range int64(n) {
		line := ev("s", 0, i)
		want = append(want, line)
		feed.Offer(itemOf(t, line))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := e.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	// Acknowledged is held: no wait.
	got := dataLines(s.replay("from=all"))
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%d of %d are held, or in another order", len(got), n)
	}
	sender := s.hello("consumer")
	pause := command("c", "s", "control.pause")
	sender.say(pause)
	select {
	case got := <-commands:
		if got != pause {
			t.Error(got)
		}
	case <-ctx.Done():
		t.Error("no command came")
	}
	bad := itemOf(t, ev("s", 0, n))
	bad.Line = []byte(strings.Replace(string(bad.Line), `"agent":"a"`, `"agent":""`, 1))
	feed.Offer(bad)
	feed.Offer(itemOf(t, ev("s", 0, n+1)))
	if err := e.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if st := e.Stats(); st.Refused != 1 {
		t.Errorf("refused: %+v", st)
	}
	if got := dataLines(s.replay(from("s", 0, n-1))); len(got) != 2 || got[1] != ev("s", 0, n+1) {
		t.Errorf("after a refusal: %q", got)
	}
}

// BenchmarkSocketEmit is an emitter's events, from its writes to the pong. The
// client's part is in its cpu-ns/event.
func BenchmarkSocketEmit(b *testing.B) {
	base := serveBench(b, Config{})
	var many []byte
	const batch = 1000
	for l := range strings.Lines(string(body("s_8f2c", 0, batch))) {
		many = append(many, masked(strings.TrimSpace(l))...)
	}
	many = append(many, masked(`{"type":"ping"}`)...)
	conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	buf := make([]byte, 4096)
	io.WriteString(conn, upgrade)
	conn.Write(masked(`{"type":"hello","versions":["0.1"],"role":"emitter"}`))
	for got := ""; !strings.Contains(got, `"hello"`); {
		n, err := conn.Read(buf)
		if err != nil {
			b.Fatal(err)
		}
		got += string(buf[:n])
	}
	start := cpu()
	for b.Loop() {
		if _, err := conn.Write(many); err != nil {
			b.Fatal(err)
		}
		if _, err := conn.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpu()-start).Nanoseconds())/float64(b.N*batch), "cpu-ns/event")
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "events/s")
}
