package collector

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"aep-wrap/collector/client"
	"aep-wrap/event"
)

func TestMain(m *testing.M) {
	if os.Getenv(apartEnv) != "" {
		apartMain()
		return
	}
	goleak.VerifyTestMain(m)
}

// server is a collector that serves, and how a test speaks to it.
type server struct {
	*Collector
	t    *testing.T
	base string
	http *http.Client
	log  *logBuffer
	stop context.CancelFunc
	done chan error
}

// logBuffer is a log that can be read while it is written.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// serve runs a collector on loopback until the test ends.
func serve(t *testing.T, cfg Config) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveOn(t, cfg, "http://"+l.Addr().String(), l)
}

func serveOn(t *testing.T, cfg Config, base string, listeners ...net.Listener) *server {
	t.Helper()
	s := &server{t: t, base: base, log: &logBuffer{}, done: make(chan error, 1)}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	s.Collector = New(cfg)
	tr := &http.Transport{}
	s.http = &http.Client{Transport: tr}
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	go func() { s.done <- s.Serve(ctx, listeners...) }()
	t.Cleanup(func() {
		stop()
		tr.CloseIdleConnections()
		select {
		case err := <-s.done:
			if err != nil {
				t.Errorf("Serve: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("Serve did not end")
		}
	})
	return s
}

// ev is one event's line.
func ev(session string, epoch, seq int64, more ...string) string {
	line := fmt.Sprintf(`{"aep":"0.1","id":"%s-%d-%d","type":"progress.status","time":"2026-01-02T03:04:05.678Z","source":"aep://h/agent/a/session/s","agent":"a","session":%s,"seq":%d,"epoch":%d`,
		url.PathEscape(session), epoch, seq, quoted(session), seq, epoch)
	for _, m := range more {
		line += "," + m
	}
	return line + "}"
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

func notice(session string, seq int64, more ...string) string {
	return ev(session, 0, seq, append(more, `"severity":"notice"`)...)
}

type answer struct {
	status int
	header http.Header
	body   string
}

func (s *server) do(method, path string, header http.Header, body io.Reader) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, s.base+path, body)
	if err != nil {
		s.t.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if h := header.Get("Host"); h != "" {
		req.Host = h
	}
	resp, err := s.http.Do(req)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s %s: %v", method, path, err)
	}
	return answer{resp.StatusCode, resp.Header, string(b)}
}

func head(pairs ...string) http.Header {
	h := http.Header{}
	for i := 0; i < len(pairs); i += 2 {
		h.Set(pairs[i], pairs[i+1])
	}
	return h
}

var ndjson = head("AEP-Version", "0.1", "Content-Type", "application/x-ndjson")

// post sends lines and wants them taken in.
func (s *server) post(lines ...string) {
	s.t.Helper()
	a := s.do("POST", "/events", ndjson, strings.NewReader(strings.Join(lines, "\n")+"\n"))
	if a.status != http.StatusAccepted {
		s.t.Fatalf("POST /events: %d %s", a.status, a.body)
	}
}

// stream is an open /stream.
type stream struct {
	t      *testing.T
	resp   *http.Response
	reader *client.Reader
	got    chan client.Message
	err    chan error
}

func (s *server) open(query string, header http.Header) *stream {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), "GET", s.base+"/stream?"+query, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := s.http.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		s.t.Fatalf("GET /stream?%s: %d %s", query, resp.StatusCode, b)
	}
	st := &stream{t: s.t, resp: resp, reader: client.NewReader(resp.Body, 64<<20), got: make(chan client.Message), err: make(chan error, 1)}
	quit := make(chan struct{})
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		for {
			m, err := st.reader.Next()
			if err != nil {
				st.err <- err
				return
			}
			m.Data = bytes.Clone(m.Data)
			select {
			case st.got <- m:
			case <-quit:
				return
			}
		}
	}()
	s.t.Cleanup(func() {
		close(quit)
		resp.Body.Close()
		<-gone
	})
	return st
}

// next is the next message or comment.
func (st *stream) next() client.Message {
	st.t.Helper()
	select {
	case m := <-st.got:
		return m
	case err := <-st.err:
		st.t.Fatalf("stream: %v", err)
	case <-time.After(time.Minute):
		st.t.Fatal("stream: nothing came")
	}
	return client.Message{}
}

// event is the next message; a busy machine's heartbeat is none.
func (st *stream) event() client.Message {
	st.t.Helper()
	for {
		if m := st.next(); m.Comment != "ping" {
			return m
		}
	}
}

// data wants exactly these lines next.
func (st *stream) data(lines ...string) {
	st.t.Helper()
	for _, want := range lines {
		if m := st.event(); string(m.Data) != want {
			st.t.Fatalf("got  %s%s\nwant %s", m.Data, m.Comment, want)
		}
	}
}

// ends wants the stream to end.
func (st *stream) ends() error {
	st.t.Helper()
	select {
	case m := <-st.got:
		st.t.Fatalf("stream goes on: %q %s", m.Comment, m.Data)
	case err := <-st.err:
		return err
	case <-time.After(time.Minute):
		st.t.Fatal("stream does not end")
	}
	return nil
}

// replay is the body of a replay that ends.
func (s *server) replay(query string) string {
	s.t.Helper()
	a := s.do("GET", "/stream?live=0&"+query, nil, nil)
	if a.status != http.StatusOK {
		s.t.Fatalf("replay: %d %s", a.status, a.body)
	}
	return a.body
}

// dataLines are the events of a body.
func dataLines(body string) []string {
	var out []string
	for l := range strings.SplitSeq(body, "\n") {
		if d, ok := strings.CutPrefix(l, "data: "); ok {
			out = append(out, d)
		}
	}
	return out
}

func from(session string, epoch, seq int64) string {
	return "from=" + url.QueryEscape(fmt.Sprintf(`[{"session":%s,"epoch":%d,"seq":%d}]`, quoted(session), epoch, seq))
}

func mustItem(t testing.TB, line string) *item {
	t.Helper()
	h, _, err := event.ParseHeader([]byte(line))
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	return newItem(h, []byte(line))
}
