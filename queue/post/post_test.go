package post

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"aep-wrap/event"
	"aep-wrap/queue"
	"aep-wrap/queue/jsonl"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector is a server that remembers what it was sent, and answers as told.
type collector struct {
	*httptest.Server
	mu       sync.Mutex
	requests []*http.Request
	bodies   [][]string
	taken    []string // ids of lines taken in
	answer   func(n int, lines []string, w http.ResponseWriter) (took bool)
}

// newCollector answers each request by answer; nil takes everything in.
func newCollector(t *testing.T, answer func(n int, lines []string, w http.ResponseWriter) bool) *collector {
	c := &collector{answer: answer}
	c.Server = httptest.NewServer(http.HandlerFunc(c.serve))
	t.Cleanup(c.Close)
	return c
}

func (c *collector) serve(w http.ResponseWriter, r *http.Request) {
	body := io.Reader(r.Body)
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			http.Error(w, "gzip", 400)
			return
		}
		body = z
	}
	var lines []string
	s := bufio.NewScanner(body)
	for s.Scan() {
		lines = append(lines, s.Text())
	}
	if s.Err() != nil {
		return // half a request, of a sender that is gone
	}
	c.mu.Lock()
	c.requests = append(c.requests, r)
	c.bodies = append(c.bodies, lines)
	n := len(c.requests)
	c.mu.Unlock()
	if c.answer == nil || c.answer(n, lines, w) {
		c.mu.Lock()
		for _, l := range lines {
			h, _ := jsonl.ReadHead([]byte(l))
			c.taken = append(c.taken, h.ID)
		}
		c.mu.Unlock()
		if c.answer == nil {
			w.WriteHeader(http.StatusAccepted)
		}
	}
}

func (c *collector) got() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.taken)
}

func (c *collector) attempts() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.requests)
}

func accept(w http.ResponseWriter) bool { w.WriteHeader(http.StatusAccepted); return true }
func status(w http.ResponseWriter, code int, body string) bool {
	w.WriteHeader(code)
	_, _ = io.WriteString(w, body)
	return false
}

func offer(f *queue.Feed, from, to int) {
	for i := from; i < to; i++ {
		f.Offer(item(i))
	}
}

func item(i int) queue.Item {
	it := queue.Item{Agent: "a", Session: "s", ID: fmt.Sprint("e", i), Severity: event.Info, Sequenced: true, Position: event.Position{Seq: int64(i)}}
	it.Line = fmt.Appendf(nil, `{"aep":"0.1","id":%q,"type":"progress.status","agent":"a","session":"s","seq":%d}`, it.ID, i)
	return it
}

func numbers(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprint("e", i))
	}
	return out
}

// start runs an emitter quickly, for as long as the test.
func start(t *testing.T, c Config, f *queue.Feed) (*Emitter, chan error) {
	t.Helper()
	for v, d := range map[*time.Duration]time.Duration{&c.MinWait: 2 * time.Millisecond, &c.MaxWait: 10 * time.Millisecond, &c.Timeout: time.Minute} {
		if *v == 0 {
			*v = d
		}
	}
	e, err := New(c, f)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	finished := make(chan struct{})
	go func() { ended <- e.Run(ctx); close(finished) }()
	t.Cleanup(func() { cancel(); <-finished; f.Close() })
	return e, ended
}

func flush(t *testing.T, e *Emitter) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := e.Flush(ctx); err != nil {
		t.Fatalf("flush: %v (%+v)", err, e.Stats())
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

func same(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSends(t *testing.T) {
	c := newCollector(t, nil)
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 2500)
	e, _ := start(t, Config{URL: c.URL, Token: "tok"}, f)
	flush(t, e)
	same(t, c.got(), numbers(0, 2500))
	r := c.requests[0]
	for name, want := range map[string]string{"Authorization": "Bearer tok", "Content-Type": "application/x-ndjson", "AEP-Version": "0.1", "Content-Encoding": ""} {
		if got := r.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if r.Method != "POST" || r.URL.Path != "/events" || r.URL.RawQuery != "" {
		t.Errorf("%s %s", r.Method, r.URL)
	}
	if s := e.Stats(); s.State != Idle || s.Events != 2500 || s.Batches != 3 || s.Retries != 0 || s.Bytes == 0 {
		t.Errorf("%+v", s)
	}
}

func TestGzip(t *testing.T) {
	for name, takes := range map[string]bool{"taken": true, "not supported": false} {
		t.Run(name, func(t *testing.T) {
			c := newCollector(t, nil)
			c.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Content-Encoding") != "" && !takes {
					w.WriteHeader(http.StatusUnsupportedMediaType)
					return
				}
				c.serve(w, r)
			})
			f := queue.NewFeed(queue.Options{})
			offer(f, 0, 10)
			e, _ := start(t, Config{URL: c.URL, Gzip: true}, f)
			flush(t, e)
			same(t, c.got(), numbers(0, 10))
			if got := c.requests[0].Header.Get("Content-Encoding") == "gzip"; got != takes {
				t.Errorf("gzip: %v", got)
			}
		})
	}
}

// TestRetries has the collector fail in each way that passes: the same bytes
// come again, in order, and nothing is lost.
func TestRetries(t *testing.T) {
	die := func(w http.ResponseWriter) bool {
		conn, _, _ := w.(http.Hijacker).Hijack()
		conn.Close()
		return false
	}
	for name, fail := range map[string]func(http.ResponseWriter) bool{
		"500":              func(w http.ResponseWriter) bool { return status(w, 500, "oops") },
		"503":              func(w http.ResponseWriter) bool { return status(w, 503, "") },
		"404":              func(w http.ResponseWriter) bool { return status(w, 404, "") },
		"429":              func(w http.ResponseWriter) bool { return status(w, 429, "") },
		"accepts and dies": die,
		"a web page": func(w http.ResponseWriter) bool {
			w.Header().Set("Content-Type", "text/html")
			return status(w, 200, "<html>")
		},
		"half an answer": func(w http.ResponseWriter) bool {
			w.Header().Set("Content-Length", "100")
			status(w, 202, "x")
			return false
		},
		"garbage for an HTTP": func(w http.ResponseWriter) bool {
			conn, b, _ := w.(http.Hijacker).Hijack()
			_, _ = b.WriteString("\x00\x01garbage\r\n\r\n")
			_ = b.Flush()
			conn.Close()
			return false
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollector(t, func(n int, _ []string, w http.ResponseWriter) bool {
				if n <= 3 {
					return fail(w)
				}
				return accept(w)
			})
			var said bytes.Buffer
			f := queue.NewFeed(queue.Options{})
			offer(f, 0, 5)
			e, _ := start(t, Config{URL: c.URL, Log: slog.New(slog.NewTextHandler(&said, nil))}, f)
			flush(t, e)
			same(t, c.got(), numbers(0, 5))
			for _, b := range c.bodies[1:4] {
				same(t, b, c.bodies[0])
			}
			if s := e.Stats(); s.State != Idle || s.Retries != 3 || s.Events != 5 || s.Word != "" {
				t.Errorf("%+v", s)
			}
			if n := strings.Count(said.String(), "level=WARN"); n != 1 || !strings.Contains(said.String(), "again") {
				t.Errorf("told %d times: %s", n, said.String())
			}
		})
	}
}

func TestSlowCollector(t *testing.T) {
	release := make(chan struct{})
	c := newCollector(t, func(n int, _ []string, w http.ResponseWriter) bool {
		if n == 1 {
			<-release
			return false
		}
		return accept(w)
	})
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 3)
	e, _ := start(t, Config{URL: c.URL, Timeout: time.Second}, f)
	for end := time.Now().Add(time.Minute); c.attempts() < 2 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	close(release)
	flush(t, e)
	same(t, deduped(c.got()), numbers(0, 3)) // a machine may be so slow that more answers come late
}

func TestFlushIsBounded(t *testing.T) {
	hang := make(chan struct{})
	c := newCollector(t, func(int, []string, http.ResponseWriter) bool { <-hang; return false })
	t.Cleanup(func() { close(hang) }) // runs before the server closes
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 1)
	e, _ := start(t, Config{URL: c.URL}, f)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	from := time.Now()
	if err := e.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("flush: %v", err)
	}
	if d := time.Since(from); d > 20*time.Second {
		t.Errorf("flush took %v", d)
	}
}

func TestFlushDoesNotWaitOutABackoff(t *testing.T) {
	c := newCollector(t, func(n int, _ []string, w http.ResponseWriter) bool {
		if n == 1 {
			w.Header().Set("Retry-After", "100")
			return status(w, 503, "")
		}
		return accept(w)
	})
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 1)
	e, _ := start(t, Config{URL: c.URL}, f)
	for e.Stats().State != Retrying {
		time.Sleep(time.Millisecond)
	}
	flush(t, e)
	same(t, c.got(), numbers(0, 1))
}

func TestRetryAfterIsHonoured(t *testing.T) {
	var times []time.Time
	c := newCollector(t, func(n int, _ []string, w http.ResponseWriter) bool {
		times = append(times, time.Now())
		if n == 1 {
			w.Header().Set("Retry-After", "1")
			return status(w, 429, "")
		}
		return accept(w)
	})
	f := queue.NewFeed(queue.Options{})
	e, _ := start(t, Config{URL: c.URL}, f)
	offer(f, 0, 1)
	for len(c.got()) == 0 {
		time.Sleep(10 * time.Millisecond)
	}
	if d := times[1].Sub(times[0]); d < 990*time.Millisecond || d > 30*time.Second {
		t.Errorf("came again after %v", d)
	}
	flush(t, e)
	now := time.Date(2026, 7, 3, 10, 0, 0, 0, time.UTC)
	for v, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, " 3 ": 3 * time.Second, "-1": 0, "soon": 0, "99999999999": 0,
		now.Add(90 * time.Second).Format(http.TimeFormat): 90 * time.Second, now.Add(-time.Hour).Format(http.TimeFormat): 0,
	} {
		if got := retryAfter(v, now); got != want {
			t.Errorf("Retry-After %q: %v, want %v", v, got, want)
		}
	}
}

func TestTooLargeSplits(t *testing.T) {
	const most = 700
	c := newCollector(t, func(_ int, lines []string, w http.ResponseWriter) bool {
		if len(strings.Join(lines, "\n"))+1 > most {
			return status(w, 413, "")
		}
		return accept(w)
	})
	f := queue.NewFeed(queue.Options{})
	big := item(50)
	big.Line = append(big.Line[:len(big.Line)-1], `,"data":{"x":"`+strings.Repeat("x", most)+`"}}`...)
	offer(f, 0, 50)
	f.Offer(big)
	offer(f, 51, 100)
	e, _ := start(t, Config{URL: c.URL}, f)
	flush(t, e)
	same(t, c.got(), slices.Concat(numbers(0, 50), numbers(51, 100)))
	loss := f.TakeLosses("a", "s")
	if len(loss) != 1 || loss[0].Reason != ReasonTooLarge || loss[0].Events[event.Info] != 1 {
		t.Errorf("%v", loss)
	}
	if s := e.Stats(); s.TooLarge != 1 || s.State != Idle || s.Events != 99 {
		t.Errorf("%+v", s)
	}
	// What was learnt spares the next batches the refusal.
	before := c.attempts()
	offer(f, 100, 150)
	flush(t, e)
	n := c.attempts() - before
	if n > 20 || e.size() >= 1<<20 {
		t.Errorf("%d requests for 50 events, limit %d", n, e.size())
	}
}

// TestInvalidIsIsolated has a collector that refuses a batch whole, in each
// way of saying where.
func TestInvalidIsIsolated(t *testing.T) {
	bad := map[string]bool{"e0": true, "e17": true, "e18": true, "e63": true}
	for name, say := range map[string]func(i int) string{
		"not saying where":   func(int) string { return `{"error":"invalid-event","detail":"bad type"}` },
		"by index":           func(i int) string { return fmt.Sprintf(`{"error":"invalid-event","index":%d}`, i) },
		"by line":            func(i int) string { return fmt.Sprintf(`{"error":"invalid-event","line":%d,"detail":"x"}`, i+1) },
		"by index in detail": func(i int) string { return fmt.Sprintf(`{"error":"invalid-event","detail":{"index":%d}}`, i) },
		"lying":              func(i int) string { return fmt.Sprintf(`{"index":%d}`, (i+5)%64) },
		"nonsense":           func(int) string { return `{"index":-3,"line":1e9,` },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollector(t, func(_ int, lines []string, w http.ResponseWriter) bool {
				for i, l := range lines {
					if h, _ := jsonl.ReadHead([]byte(l)); bad[h.ID] {
						return status(w, 400, say(i))
					}
				}
				return accept(w)
			})
			f := queue.NewFeed(queue.Options{})
			offer(f, 0, 64)
			e, _ := start(t, Config{URL: c.URL}, f)
			flush(t, e)
			same(t, c.got(), slices.DeleteFunc(numbers(0, 64), func(id string) bool { return bad[id] }))
			loss := f.TakeLosses("a", "s")
			if len(loss) != 1 || loss[0].Reason != ReasonRefused || loss[0].Total() != 4 {
				t.Errorf("%v", loss)
			}
			if s := e.Stats(); s.Refused != 4 || s.Events != 60 {
				t.Errorf("%+v", s)
			}
			if name == "by index" && c.attempts() > 13 {
				t.Errorf("%d requests", c.attempts())
			}
		})
	}
}

func TestMultiStatus(t *testing.T) {
	c := newCollector(t, func(_ int, lines []string, w http.ResponseWriter) bool {
		w.WriteHeader(207)
		for _, l := range lines {
			if strings.Contains(l, `"e2"`) {
				_, _ = io.WriteString(w, `{"results":[{"error":"invalid-event"}]}`)
			}
		}
		return true
	})
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 4)
	e, _ := start(t, Config{URL: c.URL}, f)
	flush(t, e)
	if s := e.Stats(); s.Refused != 1 || s.Events != 3 {
		t.Errorf("%+v", s)
	}
}

func TestStops(t *testing.T) {
	for code, word := range map[int]string{401: "token", 403: "token", 426: "AEP 0.1", 415: "x-ndjson"} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			root := t.TempDir()
			log, err := jsonl.Open(root, "a", "s")
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			c := newCollector(t, func(_ int, _ []string, w http.ResponseWriter) bool { return status(w, code, `{"versions":["0.9"]}`) })
			f := queue.NewFeed(queue.Options{Sink: "p"})
			if err := f.Attach("a", "s", log); err != nil {
				t.Fatal(err)
			}
			for i := range 5 {
				it := item(i)
				it.Log, _ = log.Append(it.Line)
				f.Offer(it)
			}
			e, ended := start(t, Config{URL: c.URL, Token: "sesame"}, f)
			stop := (*StoppedError)(nil)
			if err := <-ended; !errors.As(err, &stop) || stop.Status != code || !strings.Contains(err.Error(), word) || strings.Contains(err.Error(), "sesame") {
				t.Errorf("ended with %v", err)
			}
			if n := c.attempts(); n != 1 {
				t.Errorf("%d requests", n)
			}
			if s := e.Stats(); s.State != Stopped || !strings.Contains(s.Word, word) {
				t.Errorf("%+v", s)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := e.Flush(ctx); !errors.As(err, &stop) || ctx.Err() != nil {
				t.Errorf("flush: %v", err)
			}
			f.Close()
			// A right token later: nothing was lost.
			good := newCollector(t, nil)
			f = queue.NewFeed(queue.Options{Sink: "p"})
			if err := f.Attach("a", "s", log); err != nil {
				t.Fatal(err)
			}
			e, _ = start(t, Config{URL: good.URL}, f)
			flush(t, e)
			same(t, good.got(), numbers(0, 5))
		})
	}
}

func TestRedirects(t *testing.T) {
	stranger := newCollector(t, nil)
	for _, c := range []struct {
		code   int
		to     func(own string) string
		follow bool
	}{
		{307, func(string) string { return stranger.URL + "/events" }, false},
		{308, func(own string) string { return own + "/new/events" }, true},
		{307, func(own string) string { return strings.Replace(own, "http:", "https:", 1) + "/events" }, false},
		{302, func(own string) string { return own + "/new/events" }, false},
		{301, func(own string) string { return own + "/new/events" }, false},
	} {
		t.Run(fmt.Sprint(c.code, c.follow), func(t *testing.T) {
			own := newCollector(t, nil)
			own.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/events" {
					http.Redirect(w, r, c.to(own.URL), c.code)
					return
				}
				own.serve(w, r)
			})
			f := queue.NewFeed(queue.Options{})
			offer(f, 0, 2)
			e, ended := start(t, Config{URL: own.URL, Token: "tok"}, f)
			if c.follow {
				flush(t, e)
				same(t, own.got(), numbers(0, 2))
				return
			}
			stop := (*StoppedError)(nil)
			if err := <-ended; !errors.As(err, &stop) || !strings.Contains(err.Error(), "moved to") {
				t.Errorf("ended with %v", err)
			}
			if n := stranger.attempts(); n != 0 || len(own.got()) != 0 {
				t.Errorf("the stranger was sent %d requests, we %v", n, own.got())
			}
		})
	}
}

func TestAnswersAreBounded(t *testing.T) {
	c := newCollector(t, func(n int, _ []string, w http.ResponseWriter) bool {
		w.WriteHeader(http.StatusAccepted)
		if n == 1 {
			for range 1 << 10 {
				if _, err := w.Write(make([]byte, 64<<10)); err != nil {
					break
				}
			}
		}
		return true
	})
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 2)
	e, _ := start(t, Config{URL: c.URL}, f)
	flush(t, e)
	if s := e.Stats(); s.Events != 2 || s.Attempts != 1 {
		t.Errorf("%+v", s)
	}
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{}
	c.Server = &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(c.serve)}}
	c.Start()
	t.Cleanup(c.Close)
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 3)
	e, _ := start(t, Config{URL: "http://collector.sock/events/", Client: &http.Client{Transport: tr}}, f)
	flush(t, e)
	same(t, c.got(), numbers(0, 3))
}

func TestNew(t *testing.T) {
	for _, c := range []struct {
		conf Config
		url  string // where events go, as shown; or what the error says
		err  bool
	}{
		{Config{URL: "http://127.0.0.1:8787"}, "http://127.0.0.1:8787/events", false},
		{Config{URL: "http://127.0.0.1:8787/", Token: "t"}, "http://127.0.0.1:8787/events", false},
		{Config{URL: "http://[::1]:1/events", Token: "t"}, "http://[::1]:1/events", false},
		{Config{URL: "http://localhost/base/", Token: "t"}, "http://localhost/base/events", false},
		{Config{URL: "https://c.example/base/events/", Token: "t"}, "https://c.example/base/events", false},
		{Config{URL: "https://u:secret@c.example/?q=secret"}, "https://c.example/events", false},
		{Config{URL: "http://c.example", Token: "t", Insecure: true}, "http://c.example/events", false},
		{Config{URL: "http://c.example"}, "http://c.example/events", false},
		{Config{URL: "http://c.example", Token: "t"}, "without TLS", true},
		{Config{URL: "http://127.0.0.1.evil.example", Token: "t"}, "without TLS", true},
		{Config{URL: "https://c.example", Token: "a\nb"}, "line break", true},
		{Config{URL: ""}, "want http", true},
		{Config{URL: "127.0.0.1:8787"}, "want http", true},
		{Config{URL: "ftp://h"}, "want http", true},
		{Config{URL: "http://"}, "want http", true},
	} {
		e, err := New(c.conf, queue.NewFeed(queue.Options{}))
		switch {
		case c.err && (err == nil || !strings.Contains(err.Error(), c.url)):
			t.Errorf("%q: error %v, want %q", c.conf.URL, err, c.url)
		case !c.err && (err != nil || e.URL() != c.url):
			t.Errorf("%q: %v, want %s", c.conf.URL, err, c.url)
		}
	}
}

// TestOutage: the collector is away while events pass the window many times
// over; when it is back, it has everything once, in order, and the memory was
// bounded all along.
func TestOutage(t *testing.T) {
	const events = 5000
	var mu sync.Mutex
	away := true
	c := newCollector(t, func(n int, _ []string, w http.ResponseWriter) bool {
		mu.Lock()
		defer mu.Unlock()
		if away || n%7 == 0 {
			return status(w, 503, "")
		}
		return accept(w)
	})
	log, err := jsonl.Open(t.TempDir(), "a", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	f := queue.NewFeed(queue.Options{Sink: "p", MaxEvents: 100})
	if err := f.Attach("a", "s", log); err != nil {
		t.Fatal(err)
	}
	e, _ := start(t, Config{URL: c.URL, MaxEvents: 50}, f)
	for i := range events {
		it := item(i)
		if it.Log, err = log.Append(it.Line); err != nil {
			t.Fatal(err)
		}
		f.Offer(it)
		if s := f.Stats(); s.Events > 150 {
			t.Fatalf("%d events in memory", s.Events)
		}
	}
	mu.Lock()
	away = false
	mu.Unlock()
	flush(t, e)
	same(t, c.got(), numbers(0, events))
	if l := f.TakeLosses("", ""); len(l) != 0 {
		t.Errorf("lost %v", l)
	}
}

func FuzzFailingLine(f *testing.F) {
	f.Add([]byte(`{"error":"invalid-event","detail":{"line":3}}`))
	f.Add([]byte(`{"index":0}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if n := failingLine(raw); n < -1 || n >= 0 && !json.Valid(raw) {
			t.Errorf("line %d of %q", n, raw)
		}
		said(raw)
	})
}

func BenchmarkPost(b *testing.B) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusAccepted)
	}))
	defer s.Close()
	f := queue.NewFeed(queue.Options{LooseEvents: 1 << 20, LooseBytes: 1 << 40})
	e, err := New(Config{URL: s.URL}, f)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { _ = e.Run(ctx); close(done) }()
	line := bytes.Repeat([]byte("x"), 420)
	b.SetBytes(421)
	for b.Loop() {
		f.Offer(queue.Item{Agent: "a", Session: "s", ID: "01JX9YB3P4T90000000000GOLD", Line: line})
	}
	_ = e.Flush(ctx)
	cancel()
	<-done
	f.Close()
}
