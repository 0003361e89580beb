package collector

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"aep-wrap/event"
)

func TestStreamAnswers(t *testing.T) {
	s := serve(t, Config{Limits: Limits{From: 3}})
	esc := url.QueryEscape
	tests := []struct {
		name, query, lastID string
		status              int
		want                string
	}{
		{"nothing asked", "", "", 200, ""},
		{"a filter", "filter=" + esc(`{"session":"s"}`), "", 200, ""},
		{"unknown parameters", "nobody=knows&nobody=cares", "", 200, ""},
		{"from all", "from=all", "", 200, ""},
		{"from all as JSON", "from=" + esc(`"all"`), "", 200, ""},
		{"from nowhere", "from=" + esc(`[]`), "", 200, ""},
		{"a position", from("s", 0, 1), "", 200, ""},
		{"a position without an epoch", "from=" + esc(`[{"session":"s","seq":1}]`), "", 200, ""},
		{"a position with more members", "from=" + esc(`[{"session":"s","seq":1,"epoch":0,"sub":{}}]`), "", 200, ""},
		{"a last id", "", "a:b:0:7", 200, ""},
		{"from goes before a bad last id", "from=all", "junk", 200, ""},
		{"each ceiling", "capture=none", "", 200, ""},

		{"filter: not JSON", "filter=x", "", 400, `"error":"invalid-filter"`},
		{"filter: empty", "filter=", "", 400, `"error":"invalid-filter"`},
		{"filter: an array", "filter=[]", "", 400, `"error":"invalid-filter"`},
		{"filter: twice", "filter={}&filter={}", "", 400, `"error":"invalid-filter"`},
		{"filter: an illegal key", "filter=" + esc(`{"data":1}`), "", 400, `"error":"invalid-filter"`},
		{"from: empty", "from=", "", 400, `"error":"invalid-filter"`},
		{"from: an object", "from={}", "", 400, `"error":"invalid-filter"`},
		{"from: another word", "from=everything", "", 400, `"error":"invalid-filter"`},
		{"from: of numbers", "from=[1]", "", 400, "from[0]"},
		{"from: an empty entry", "from=[{}]", "", 400, "from[0]: session"},
		{"from: no seq", "from=" + esc(`[{"session":"s","epoch":0}]`), "", 400, "seq"},
		{"from: session a number", "from=" + esc(`[{"session":1,"epoch":0,"seq":1}]`), "", 400, "session"},
		{"from: seq a string", "from=" + esc(`[{"session":"s","epoch":0,"seq":"1"}]`), "", 400, "seq"},
		{"from: seq below 0", "from=" + esc(`[{"session":"s","epoch":0,"seq":-1}]`), "", 400, "seq"},
		{"from: seq a fraction", "from=" + esc(`[{"session":"s","epoch":0,"seq":1.5}]`), "", 400, "seq"},
		{"from: seq beyond 64 bits", "from=" + esc(`[{"session":"s","epoch":0,"seq":99999999999999999999}]`), "", 400, "seq"},
		{"from: epoch null", "from=" + esc(`[{"session":"s","epoch":null,"seq":1}]`), "", 400, "epoch"},
		{"from: too many", "from=" + esc(`[{"session":"a","seq":1},{"session":"b","seq":1},{"session":"c","seq":1},{"session":"d","seq":1}]`), "", 400, `"error":"limit-exceeded"`},
		{"capture: another word", "capture=some", "", 400, `"error":"invalid-filter"`},
		{"live: another word", "live=no", "", 400, `"error":"invalid-filter"`},
		{"a last id without its parts", "", "s:1", 400, "Last-Event-ID"},
		{"a last id of words", "", "s:a:b", 400, "Last-Event-ID"},
		{"a last id below 0", "", "s:0:-1", 400, "Last-Event-ID"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			query := tt.query
			if !strings.Contains(query, "live=") {
				query += "&live=0"
			}
			h := http.Header{}
			if tt.lastID != "" {
				h.Set("Last-Event-ID", tt.lastID)
			}
			a := s.do("GET", "/stream?"+query, h, nil)
			if a.status != tt.status || !strings.Contains(a.body, tt.want) {
				t.Errorf("got %d %s, want %d with %s", a.status, a.body, tt.status, tt.want)
			}
		})
	}
}

// A client that has our header has its place: what arrives from then on is its
// own, and the header waits for no event.
func TestHeaderComesAtOnce(t *testing.T) {
	s := serve(t, Config{})
	st := s.open("", nil)
	if ct := st.resp.Header.Get("Content-Type"); ct != "text/event-stream" {
		t.Errorf("Content-Type %q", ct)
	}
	s.post(ev("s", 0, 1))
	st.data(ev("s", 0, 1))
}

func TestMessageForm(t *testing.T) {
	s := serve(t, Config{})
	agentEvent := `{"aep":"0.1","id":"g","type":"agent.health","time":"2026-01-02T03:04:05Z","source":"aep://h/agent/a","agent":"a"}`
	for _, tt := range []struct{ name, line, want string }{
		{"sequenced", ev("a:b", 3, 7), "event: progress.status\ndata: " + ev("a:b", 3, 7) + "\nid: a:b:3:7\n\n"},
		{"seq 0", ev("s", 0, 0), "event: progress.status\ndata: " + ev("s", 0, 0) + "\nid: s:0:0\n\n"},
		{"without a position", agentEvent, "event: agent.health\ndata: " + agentEvent + "\n\n"},
		{"a session that would forge fields", ev("x\n\ndata: forged\r\nid: s:9:9", 0, 1),
			"event: progress.status\ndata: " + ev("x\n\ndata: forged\r\nid: s:9:9", 0, 1) + "\n\n"},
		{"a session that a header would trim", ev(" s", 0, 1), "event: progress.status\ndata: " + ev(" s", 0, 1) + "\n\n"},
		{"line breaks between members", strings.Replace(ev("s", 0, 2), ",", ",\r\n\n", 1),
			"event: progress.status\ndata: " + strings.Replace(ev("s", 0, 2), ",", ",   ", 1) + "\nid: s:0:2\n\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			st, err := http.Get(s.base + "/stream")
			if err != nil {
				t.Fatal(err)
			}
			defer http.DefaultClient.CloseIdleConnections()
			defer st.Body.Close()
			a := s.do("POST", "/events", head("AEP-Version", "0.1", "Content-Type", "application/json"), strings.NewReader(tt.line))
			if a.status != 202 {
				t.Fatal(a.body)
			}
			got := make([]byte, len(tt.want))
			if _, err := io.ReadFull(st.Body, got); err != nil {
				t.Fatal(err)
			}
			if string(got) != tt.want {
				t.Errorf("got  %q\nwant %q", got, tt.want)
			}
		})
	}
}

func TestReplay(t *testing.T) {
	s := serve(t, Config{Limits: Limits{SessionEvents: 5}})
	command := func(id string) string {
		return `{"aep":"0.1","id":"` + id + `","type":"attention.routed","time":"2026-01-02T03:04:05Z","source":"aep://h/agent/r","agent":"r","session":"s"}`
	}
	s.post(ev("s", 0, 1), ev("s", 0, 2), command("c1"), ev("s", 0, 2), ev("s", 0, 4), ev("t", 0, 0))

	want := func(query string, lines ...string) {
		t.Helper()
		if got := dataLines(s.replay(query)); !slices.Equal(got, lines) {
			t.Errorf("%s:\ngot  %s\nwant %s", query, strings.Join(got, "\n     "), strings.Join(lines, "\n     "))
		}
	}
	want("")
	want("from=all", ev("s", 0, 1), ev("s", 0, 2), command("c1"), ev("s", 0, 4), ev("t", 0, 0))
	want(from("s", 0, 1), ev("s", 0, 2), command("c1"), ev("s", 0, 4))
	want(from("s", 0, 2), command("c1"), ev("s", 0, 4))
	want(from("s", 0, 3), ev("s", 0, 4))
	want(from("s", 0, 4))
	want(from("s", 5, 0))
	want(from("nobody", 0, 0))
	want("from=all&filter="+url.QueryEscape(`{"session":"t"}`), ev("t", 0, 0))
	if a := s.do("GET", "/stream?live=0", head("Last-Event-ID", "s:0:2"), nil); !slices.Equal(dataLines(a.body), []string{command("c1"), ev("s", 0, 4)}) {
		t.Errorf("Last-Event-ID: %s", a.body)
	}
	if body := s.replay("from=all"); !strings.HasSuffix(body, "\n\n: replay-complete\n\n") {
		t.Errorf("the replay does not say that it is complete: %q", body)
	}

	// A late position is placed by its position, a new epoch behind the old; the
	// lowest gives way, and the session written last comes last.
	s.post(ev("s", 1, 0), ev("s", 0, 3))
	want("from=all", ev("t", 0, 0), ev("s", 0, 2), command("c1"), ev("s", 0, 3), ev("s", 0, 4), ev("s", 1, 0))
}

func TestReplayExhausted(t *testing.T) {
	for _, tt := range []struct {
		name    string
		posted  []string
		query   string
		comment string
		first   string
	}{
		{"evicted", []string{ev("s", 1, 0), ev("s", 1, 1), ev("s", 1, 2), ev("s", 1, 3), ev("s", 1, 4)}, from("s", 1, 0), ": replay-exhausted s 1:2\n\n", ev("s", 1, 2)},
		{"evicted, and nothing between", []string{ev("s", 1, 0), ev("s", 1, 1), ev("s", 1, 2), ev("s", 1, 3), ev("s", 1, 4)}, from("s", 1, 1), "", ev("s", 1, 2)},
		{"evicted up to a legal gap", []string{ev("s", 1, 0), ev("s", 1, 5), ev("s", 1, 6), ev("s", 1, 7)}, from("s", 1, 3), "", ev("s", 1, 5)},
		{"never held", []string{ev("s", 1, 5)}, from("s", 1, 0), ": replay-exhausted s 1:5\n\n", ev("s", 1, 5)},
		{"another epoch", []string{ev("s", 1, 0)}, from("s", 0, 9), ": replay-exhausted s 1:0\n\n", ev("s", 1, 0)},
		{"held", []string{ev("s", 1, 0), ev("s", 1, 1)}, from("s", 1, 0), "", ev("s", 1, 1)},
		{"all", []string{ev("s", 1, 0), ev("s", 1, 1), ev("s", 1, 2), ev("s", 1, 3)}, "from=all", "", ev("s", 1, 1)},
		{"a session that would forge a comment's end", []string{ev("s\n\nx", 1, 5)}, from("s\n\nx", 1, 0), ": replay-exhausted s%0A%0Ax 1:5\n\n", ev("s\n\nx", 1, 5)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, Config{Limits: Limits{SessionEvents: 3}})
			s.post(tt.posted...)
			body := s.replay(tt.query)
			if tt.comment == "" && strings.Contains(body, "exhausted") || !strings.HasPrefix(body, tt.comment+"event: ") {
				t.Errorf("body %q, want it to begin with %q", body, tt.comment)
			}
			if got := dataLines(body); len(got) == 0 || got[0] != tt.first {
				t.Errorf("first %q, want %q", got, tt.first)
			}
		})
	}
}

// What was pushed out does not come back as if nothing lay between.
func TestNothingBelowTheFloor(t *testing.T) {
	s := serve(t, Config{Limits: Limits{SessionEvents: 2}})
	s.post(ev("s", 0, 1), ev("s", 0, 2), ev("s", 0, 5), ev("s", 0, 6))
	live := s.open("", nil)
	s.post(ev("s", 0, 1), ev("s", 0, 2))
	live.data(ev("s", 0, 1), ev("s", 0, 2))
	if got := dataLines(s.replay("from=all")); !slices.Equal(got, []string{ev("s", 0, 5), ev("s", 0, 6)}) {
		t.Errorf("held %q", got)
	}
}

// A redelivery reaches those who listen, and is held once.
func TestRedelivery(t *testing.T) {
	s := serve(t, Config{})
	live := s.open("from=all", nil)
	s.post(ev("s", 0, 1), ev("s", 0, 1))
	live.data(ev("s", 0, 1), ev("s", 0, 1))
	if got := dataLines(s.replay("from=all")); len(got) != 1 {
		t.Errorf("held %d times", len(got))
	}
	// Two events on one position are two events.
	other := strings.Replace(ev("s", 0, 1), `"id":"s-0-1"`, `"id":"other"`, 1)
	s.post(other)
	if got := dataLines(s.replay("from=all")); !slices.Equal(got, []string{ev("s", 0, 1), other}) {
		t.Errorf("held %q", got)
	}
}

// Between replay and live nothing is lost and nothing comes twice, however the
// subscription falls among the writes.
func TestJoinIsExact(t *testing.T) {
	s := serve(t, Config{Limits: Limits{QueueEvents: 16}})
	const events, streams = 3000, 8
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := int64(0); i < events; i += 10 {
			var lines []string
			for j := i; j < i+10; j++ {
				lines = append(lines, notice("s", j))
			}
			s.post(lines...)
		}
	})
	for range streams {
		wg.Go(func() {
			st := s.open("from=all", nil)
			for i := int64(0); i < events; i++ {
				m := st.event()
				if string(m.Data) != notice("s", i) {
					t.Errorf("at %d: %s%s", i, m.Comment, m.Data)
					return
				}
			}
		})
		time.Sleep(5 * time.Millisecond)
	}
	wg.Wait()
	if n := s.hub.counts.cut.Load() + s.hub.counts.dropped.Load(); n != 0 {
		t.Errorf("%d losses", n)
	}
}

// rawStream opens a stream on a connection with a small window, which the test
// reads when it likes.
func rawStream(t *testing.T, s *server, query string) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	addr := strings.TrimPrefix(s.base, "http://")
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	tcp := conn.(*net.TCPConn)
	_ = tcp.SetReadBuffer(256 << 10)
	fmt.Fprintf(conn, "GET /stream?%s HTTP/1.1\r\nHost: %s\r\n\r\n", query, addr)
	br := bufio.NewReaderSize(conn, 512)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 {
		t.Fatal(resp.Status)
	}
	return tcp, bufio.NewReaderSize(resp.Body, 512)
}

// flood is how many events pass, more than sockets hold; with the race detector
// fewer do.
var flood = int64(50_000)

func init() {
	if raceDetector {
		flood = 30_000
	}
}

// floodSession sends a flood of events.
func floodSession(s *server, mk func(i int64) string) {
	const batch = 500
	for i := int64(0); i < flood; i += batch {
		lines := make([]string, 0, batch)
		for j := i; j < i+batch; j++ {
			lines = append(lines, mk(j))
		}
		s.post(lines...)
	}
}

// A reader that never reads delays nobody, and once it has lost what it must
// not lose its stream ends.
func TestReaderThatNeverReads(t *testing.T) {
	s := serve(t, Config{Limits: Limits{SessionEvents: 1000}})
	rawStream(t, s, "")
	good := s.open("", nil)
	seen := make(chan bool)
	var read atomic.Int64
	go func() {
		defer close(seen)
		for i := int64(0); i < flood; i++ {
			read.Store(i)
			if m := good.event(); string(m.Data) != notice("s", i) {
				t.Errorf("the other reader: at %d %s%s", i, m.Comment, m.Data)
				return
			}
		}
	}()
	floodSession(s, func(i int64) string {
		for more := true; more && read.Load() < i-500; { // on a slow machine it may be slow itself
			select {
			case <-seen:
				more = false
			case <-time.After(time.Millisecond):
			}
		}
		return notice("s", i)
	})
	<-seen
	deadline := time.Now().Add(time.Minute)
	for s.hub.watching() > 1 {
		if time.Now().After(deadline) {
			t.Fatal("the stream of the reader that never reads goes on")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if n := s.hub.counts.cut.Load(); n != 1 {
		t.Errorf("%d streams were ended", n)
	}
}

// One that reads again late gets all that is held, at its own pace: being slow
// costs nothing while the buffers reach.
func TestReaderThatReadsLate(t *testing.T) {
	s := serve(t, Config{Limits: Limits{SessionEvents: int(flood), SessionBytes: 100 << 20, QueueEvents: 100}})
	_, br := rawStream(t, s, "")
	floodSession(s, func(i int64) string { return notice("s", i) })
	next := int64(0)
	for next < flood {
		line, err := br.ReadString('\n')
		if err != nil {
			t.Fatalf("after %d events: %v", next, err)
		}
		if d, ok := strings.CutPrefix(line, "data: "); ok {
			if strings.TrimSuffix(d, "\n") != notice("s", next) {
				t.Fatalf("want event %d, got %s", next, d)
			}
			next++
		}
	}
	s.post(notice("s", flood))
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(line, "data: "+notice("s", flood)) {
			break
		}
	}
	deadline := time.Now().Add(time.Minute)
	for behind := true; behind; {
		s.hub.mu.Lock()
		behind = len(s.hub.behind) > 0
		s.hub.mu.Unlock()
		if time.Now().After(deadline) {
			t.Fatal("the reader is still behind")
		}
		time.Sleep(time.Millisecond)
	}
}

// A slow reader may miss debug and info, counted; its stream goes on, and what
// is notice and above is all there.
func TestSlowReaderMissesOnlyTheQuiet(t *testing.T) {
	s := serve(t, Config{Limits: Limits{SessionEvents: 500, QueueEvents: 100}})
	_, br := rawStream(t, s, "")
	floodSession(s, func(i int64) string {
		if i%500 == 0 && i < 2000 {
			return ev("loud"+fmt.Sprint(i), 0, i, `"severity":"error"`)
		}
		return ev("s", 0, i)
	})
	dropped := s.hub.counts.dropped.Load()
	if dropped == 0 {
		t.Error("nothing was dropped: the test shows nothing")
	}
	s.post(notice("end", 0))
	got, loud := int64(0), 0
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			t.Fatalf("after %d events: %v", got, err)
		}
		if strings.HasPrefix(line, "data: ") {
			got++
			if strings.Contains(line, `"severity":"error"`) {
				loud++
			}
		}
		if strings.Contains(line, `"session":"end"`) {
			break
		}
	}
	if loud != 4 {
		t.Errorf("%d loud events, want 4", loud)
	}
	if got+s.hub.counts.dropped.Load() < flood+1 {
		t.Errorf("%d came and %d were counted as dropped, of %d", got, s.hub.counts.dropped.Load(), flood+1)
	}
}

// A replay that cannot be complete does not look complete.
func TestReplayThatLosesItsPlace(t *testing.T) {
	s := serve(t, Config{Limits: Limits{SessionEvents: 5000}})
	for i := range int64(5000) {
		s.hub.hold(mustItem(t, ev("s", 0, i, `"data":{"x":"`+strings.Repeat("x", 2500)+`"}`)))
	}
	_, br := rawStream(t, s, "live=0&from=all")
	floodSession(s, func(i int64) string { return ev("s", 1, i) })
	body, err := io.ReadAll(br)
	if !errors.Is(err, io.ErrUnexpectedEOF) && err == nil {
		t.Errorf("a body of %d bytes ended as if it were whole", len(body))
	}
	if strings.Contains(string(body), "replay-complete") {
		t.Error("it says that it is complete")
	}
}

func TestHeartbeatAndStall(t *testing.T) {
	st := serve(t, Config{Limits: Limits{Heartbeat: 20 * time.Millisecond}}).open("", nil)
	for range 3 {
		if m := st.next(); m.Comment != "ping" {
			t.Fatalf("got %+v", m)
		}
	}
	// One that takes nothing at all is given up.
	s := serve(t, Config{Limits: Limits{Stall: time.Second}})
	rawStream(t, s, "filter="+url.QueryEscape(`{"session":"big"}`))
	for i := range int64(40) {
		s.post(ev("big", 0, i, `"data":{"x":"`+strings.Repeat("x", 1<<20)+`"}`))
	}
	within(t, "the end of the stalled stream", func() bool { return s.hub.watching() == 0 })
}

// A replay leaves no deadline of its own on the connection that served it.
func TestConnectionAfterReplay(t *testing.T) {
	t.Parallel()
	const stall = time.Second
	s := serve(t, Config{Limits: Limits{Stall: stall}})
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	br := bufio.NewReader(conn)
	for _, path := range []string{"/stream?live=0&from=all", "/healthz"} {
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path)
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		resp.Body.Close()
		time.Sleep(stall + stall/4)
	}
}

// A client that goes away leaves nothing behind.
func TestClientThatGoesAway(t *testing.T) {
	s := serve(t, Config{})
	for range 20 {
		st := s.open("from=all", nil)
		st.resp.Body.Close()
	}
	s.post(ev("s", 0, 1))
	deadline := time.Now().Add(time.Minute)
	for s.hub.watching() > 0 {
		if time.Now().After(deadline) {
			t.Fatalf("%d streams are still there", s.hub.watching())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestDrain(t *testing.T) {
	s := serve(t, Config{})
	st := s.open("", nil)
	s.stop()
	if m := st.next(); m.Comment != "shutting-down" {
		t.Fatalf("got %+v", m)
	}
	if err := st.ends(); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
}

// Who never reads does not hold up the end.
func TestDrainIsPrompt(t *testing.T) {
	s := serve(t, Config{})
	rawStream(t, s, "")
	for i := range int64(20) {
		s.post(ev("big", 0, i, `"data":{"x":"`+strings.Repeat("x", 1<<20)+`"}`))
	}
	start := time.Now()
	s.stop()
	select {
	case err := <-s.done:
		s.done <- err
	case <-time.After(time.Minute):
		t.Fatal("it goes on")
	}
	// A stall is 30 s, and the end waits for none.
	if d := time.Since(start); d > 20*time.Second {
		t.Errorf("it took %v", d)
	}
}

func FuzzFrom(f *testing.F) {
	for _, s := range []string{"all", `"all"`, "[]", "{}", `[{"session":"s","epoch":0,"seq":1}]`, `[{"session":"s","seq":1e3}]`, "[[[["} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, all, err := parseFrom(raw, 100)
		if err != nil && (all || got != nil) {
			t.Fatal("a refusal gives a subscription")
		}
		names := map[string]bool{}
		for _, r := range got {
			if r.session == "" || r.pos.Epoch < 0 || r.pos.Seq < 0 || names[r.session] {
				t.Fatalf("%+v", got)
			}
			names[r.session] = true
		}
	})
}

func FuzzLastEventID(f *testing.F) {
	for _, s := range []string{"s:0:1", "a:b:c:1:2", "::", ":0:0", "s:+1:1", "s:1:9223372036854775808", "s:0:1\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, id string) {
		r, err := parseEventID(id)
		if err != nil {
			return
		}
		if r.session == "" || r.pos.Epoch < 0 || r.pos.Seq < 0 || !strings.HasPrefix(id, r.session+":") {
			t.Fatalf("%q: %+v", id, r)
		}
	})
}

func FuzzSubscription(f *testing.F) {
	f.Add("filter={}&from=all&live=0&capture=none", "s:0:1")
	f.Add("filter=%7B%22type%22%3A%22tool.*%22%7D", "")
	f.Fuzz(func(t *testing.T, query, id string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		sub, err := parseSubscription(q, id, 100)
		if err == nil && (sub.filter == nil || sub.ceiling < event.None || sub.ceiling > event.Full) {
			t.Fatalf("%+v", sub)
		}
	})
}

func TestOrdinalEdges(t *testing.T) {
	r, err := parseEventID(fmt.Sprintf("s:%d:%d", int64(math.MaxInt64), int64(math.MaxInt64)))
	if err != nil || r.pos.Seq != math.MaxInt64 {
		t.Errorf("%+v %v", r, err)
	}
}
