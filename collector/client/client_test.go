package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"time"

	"github.com/cenkalti/backoff/v4"
	"go.uber.org/goleak"

	"aep-wrap/event"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReader(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     []string // event|id|data, or #comment
	}{
		{"a message", "event: a.b\ndata: {}\nid: s:0:1\n\n", []string{"a.b|s:0:1|{}"}},
		{"no space after the colon", "data:x\n\n", []string{"||x"}},
		{"only one space is taken", "data:  x\n\n", []string{"|| x"}},
		{"two data lines", "data: a\ndata: b\n\n", []string{"||a\nb"}},
		{"an empty data line", "data\n\n", []string{"||"}},
		{"CRLF", "event: a\r\ndata: x\r\n\r\n", []string{"a||x"}},
		{"CR", "event: a\rdata: x\r\rdata: y\r\r", []string{"a||x", "||y"}},
		{"a byte order mark", "\xef\xbb\xbfdata: x\n\n", []string{"||x"}},
		{"comments", ": ping\n\n:\n\n: replay-exhausted s 0:1\n\ndata: x\n\n", []string{"#ping", "#", "#replay-exhausted s 0:1", "||x"}},
		{"a comment within a message", "event: a\n: c\ndata: x\n\n", []string{"a||x"}},
		{"no data, no message", "event: a\n\nid: 5\n\ndata: x\n\n", []string{"|5|x"}},
		{"the id stays", "id: 1\ndata: x\n\ndata: y\n\n", []string{"|1|x", "|1|y"}},
		{"an id with NUL is none", "id: 1\ndata: x\n\nid: 2\x00\ndata: y\n\n", []string{"|1|x", "|1|y"}},
		{"unknown fields", "retry: 5\nfoo: bar\nnothing\ndata: x\n\n", []string{"||x"}},
		{"cut short", "data: x\n\ndata: half\n", []string{"||x"}},
		{"nothing", "", nil},
	} {
		for _, pace := range []struct {
			name string
			wrap func(io.Reader) io.Reader
		}{
			{"at once", func(r io.Reader) io.Reader { return r }},
			{"byte by byte", iotest.OneByteReader},
		} {
			t.Run(tt.name+"/"+pace.name, func(t *testing.T) {
				r := NewReader(pace.wrap(strings.NewReader(tt.in)), 1<<10)
				var got []string
				for {
					m, err := r.Next()
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						t.Fatal(err)
					}
					if m.Data == nil {
						got = append(got, "#"+m.Comment)
					} else {
						got = append(got, m.Event+"|"+m.ID+"|"+string(m.Data))
					}
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("got %q, want %q", got, tt.want)
				}
			})
		}
	}
}

func TestReaderIsBounded(t *testing.T) {
	for _, in := range []string{
		"data: " + strings.Repeat("x", 1<<20),
		strings.Repeat("data: "+strings.Repeat("x", 100)+"\n", 1<<12),
		": " + strings.Repeat("x", 1<<20),
	} {
		if _, err := NewReader(strings.NewReader(in), 1<<10).Next(); !errors.Is(err, ErrTooLong) {
			t.Errorf("got %v", err)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte("event: a\r\ndata: x\n\n: c\n\n"))
	f.Add([]byte("id: \x00\ndata\n\n\r\r\r"))
	f.Fuzz(func(t *testing.T, in []byte) {
		read := func(r io.Reader) (out []string) {
			sse := NewReader(r, 1<<16)
			for {
				m, err := sse.Next()
				if err != nil {
					return out
				}
				if strings.ContainsAny(m.Event+m.ID, "\r\n") || bytes.ContainsAny(m.Data, "\r") {
					t.Fatalf("%+v", m)
				}
				out = append(out, fmt.Sprintf("%q", []any{m.Event, m.ID, string(m.Data), m.Comment}))
			}
		}
		if a, b := read(bytes.NewReader(in)), read(iotest.OneByteReader(bytes.NewReader(in))); !slices.Equal(a, b) {
			t.Fatalf("at once %q, byte by byte %q", a, b)
		}
	})
}

func TestSeen(t *testing.T) {
	s := NewSeen(10)
	for i := range 1000 {
		id := fmt.Sprint(i)
		if !s.Add("a", id) || s.Add("a", id) || !s.Add("b", id) {
			t.Fatalf("at %d", i)
		}
		if len(s.now)+len(s.old) > 10 {
			t.Fatalf("%d are remembered", len(s.now)+len(s.old))
		}
	}
	if !s.Add("a", "0") {
		t.Error("the first is still remembered")
	}
}

// line is one event.
func line(session string, epoch, seq int64) string {
	return fmt.Sprintf(`{"aep":"0.1","id":"%s-%d-%d","type":"progress.status","time":"2026-01-02T03:04:05Z","source":"aep://h/agent/a","agent":"a","session":%q,"seq":%d,"epoch":%d}`,
		session, epoch, seq, session, seq, epoch)
}

func message(l string) string { return "event: progress.status\ndata: " + l + "\n\n" }

// endpoint answers each connection by the next of its scripts; the last one
// again and again.
type endpoint struct {
	t       *testing.T
	mu      sync.Mutex
	queries []string
	scripts []func(w http.ResponseWriter, r *http.Request)

	again func(w http.ResponseWriter, r *http.Request) // answers what is asked beside the stream
	asked []string
}

func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	if q := r.URL.Query(); e.again != nil && q.Get("live") == "0" {
		e.asked = append(e.asked, q.Get("from")+q.Get("inclusive"))
		e.mu.Unlock()
		e.again(w, r)
		return
	}
	n := min(len(e.queries), len(e.scripts)-1)
	e.queries = append(e.queries, r.URL.RawQuery)
	e.mu.Unlock()
	e.scripts[n](w, r)
}

func says(parts ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for _, p := range parts {
			io.WriteString(w, p)
		}
	}
}

func refuses(status int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		io.WriteString(w, body)
	}
}

func hangs(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.(http.Flusher).Flush()
	<-r.Context().Done()
}

func follow(t *testing.T, e *endpoint, cfg Config, want int) (got []string, notices []Notice, err error) {
	t.Helper()
	e.t = t
	srv := httptest.NewServer(e)
	defer srv.Close()
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	cfg.Base, cfg.HTTP = srv.URL, &http.Client{Transport: tr}
	cfg.Told = func(n Notice) { notices = append(notices, n) }
	cfg.retry = func() backoff.BackOff { return backoff.NewConstantBackOff(time.Millisecond) }
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = Follow(ctx, cfg, func(ev Event) error {
		got = append(got, string(ev.Line))
		if len(got) == want {
			cancel()
		}
		return nil
	})
	return got, notices, err
}

func positions(t *testing.T, query string) string {
	t.Helper()
	r, err := http.NewRequest("GET", "/?"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r.URL.Query().Get("from")
}

func TestFollowResumes(t *testing.T) {
	e := &endpoint{scripts: []func(http.ResponseWriter, *http.Request){
		says(message(line("a", 0, 0)), message(line("b", 2, 5)), message(line("a", 0, 1))),
		refuses(503, "later"),
		says(message(line("a", 0, 1)), message(line("a", 0, 2)), "event: x\ndata: {\"half\":"),
		says(": ping\n\n", message(line("b", 2, 6))),
		hangs,
	}}
	got, notices, err := follow(t, e, Config{}, 5)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	want := []string{line("a", 0, 0), line("b", 2, 5), line("a", 0, 1), line("a", 0, 2), line("b", 2, 6)}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	wantFrom := []string{"",
		`[{"session":"a","epoch":0,"seq":1},{"session":"b","epoch":2,"seq":5}]`,
		`[{"session":"a","epoch":0,"seq":1},{"session":"b","epoch":2,"seq":5}]`,
		`[{"session":"a","epoch":0,"seq":2},{"session":"b","epoch":2,"seq":5}]`}
	for i, w := range wantFrom {
		if f := positions(t, e.queries[i]); f != w {
			t.Errorf("connection %d asks from %s, want %s", i, f, w)
		}
	}
	if notices[0].Kind != Connected || notices[1].Kind != Lost {
		t.Errorf("told %+v", notices)
	}
}

// With all, every connection asks for all again: a session that began and
// ended while there was none is in it. What we were in the midst of comes
// first, from where we were; and so does what lies between that and the first
// that is held.
func TestFollowAll(t *testing.T) {
	held := map[string]string{
		`[{"session":"a","epoch":0,"seq":1}]`:                                     "",
		`[{"session":"a","epoch":0,"seq":2},{"session":"new","epoch":0,"seq":0}]`: message(line("a", 0, 3)),
		`[{"session":"a","epoch":0,"seq":3}]`:                                     message(line("a", 0, 5)) + message(line("a", 0, 6)),
		`[{"session":"a","epoch":0,"seq":7},{"session":"new","epoch":0,"seq":0}]`: ": replay-exhausted new 0:9\n\n",
		`[{"session":"new","epoch":0,"seq":0}]`:                                   ": replay-exhausted new 0:9\n\n",
	}
	e := &endpoint{
		scripts: []func(http.ResponseWriter, *http.Request){
			says(message(line("a", 0, 0)), message(line("a", 0, 1))),
			says(message(line("a", 0, 0)), message(line("a", 0, 1)), message(line("new", 0, 0)), message(line("a", 0, 2))),
			says(message(line("a", 0, 7))),
			says(message(line("new", 0, 9))),
			hangs,
		},
		again: func(w http.ResponseWriter, r *http.Request) { says(held[r.URL.Query().Get("from")])(w, r) },
	}
	got, notices, err := follow(t, e, Config{All: true}, 9)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	want := []string{line("a", 0, 0), line("a", 0, 1), line("new", 0, 0), line("a", 0, 2), line("a", 0, 3), line("a", 0, 5), line("a", 0, 6), line("a", 0, 7), line("new", 0, 9)}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q\nasked %q", got, want, e.asked)
	}
	var gaps []Notice
	for _, n := range notices {
		if n.Kind == Gap {
			gaps = append(gaps, n)
		}
	}
	if len(gaps) == 0 || gaps[0].Session != "new" || gaps[0].After != (event.Position{}) || gaps[0].Before != (event.Position{Seq: 9}) {
		t.Errorf("gaps %+v", gaps)
	}
	if positions(t, e.queries[1]) != "all" {
		t.Errorf("asks %q", e.queries[1])
	}
}

// An endpoint that gives the stream and refuses what is asked beside it: then
// what may be missing is told.
func TestFollowAllOfWhoRefuses(t *testing.T) {
	e := &endpoint{
		scripts: []func(http.ResponseWriter, *http.Request){says(message(line("a", 0, 0))), says(message(line("a", 0, 7))), hangs},
		again:   refuses(400, `{"error":"limit-exceeded"}`),
	}
	got, notices, err := follow(t, e, Config{All: true}, 2)
	if !errors.Is(err, context.Canceled) || len(got) != 2 {
		t.Fatal(err, got)
	}
	i := slices.IndexFunc(notices, func(n Notice) bool { return n.Kind == Gap })
	if i < 0 || notices[i].Session != "a" || notices[i].Before != (event.Position{Seq: 7}) {
		t.Errorf("told %+v", notices)
	}
}

// Who wants sessions whole asks for the start of one that it meets in its
// midst.
func TestFollowWhole(t *testing.T) {
	e := &endpoint{
		scripts: []func(http.ResponseWriter, *http.Request){says(message(line("b", 3, 0)), message(line("a", 0, 7)), message(line("a", 0, 8))), hangs},
		again:   says(message(line("a", 0, 0)), message(line("a", 0, 6)), message(line("a", 0, 7))),
	}
	got, _, err := follow(t, e, Config{All: true, Whole: true}, 5)
	if !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if want := []string{line("b", 3, 0), line("a", 0, 0), line("a", 0, 6), line("a", 0, 7), line("a", 0, 8)}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if want := []string{`[{"session":"a","epoch":0,"seq":0}]1`}; !slices.Equal(e.asked, want) {
		t.Errorf("asked %q", e.asked)
	}
	// Where that breaks off, the stream is begun again, and nothing was given
	// before its time.
	broken := true
	e = &endpoint{
		scripts: []func(http.ResponseWriter, *http.Request){says(message(line("a", 0, 7))), says(message(line("a", 0, 7))), hangs},
		again: func(w http.ResponseWriter, r *http.Request) {
			if broken {
				broken = false
				says(message(line("a", 0, 0)))(w, r)
				w.(http.Flusher).Flush()
				panic(http.ErrAbortHandler)
			}
			says(message(line("a", 0, 1)))(w, r)
		},
	}
	if got, _, _ = follow(t, e, Config{All: true, Whole: true}, 3); !slices.Equal(got, []string{line("a", 0, 0), line("a", 0, 1), line("a", 0, 7)}) {
		t.Errorf("got %q", got)
	}
}

func TestFollowRefusals(t *testing.T) {
	for _, tt := range []struct {
		name   string
		answer func(http.ResponseWriter, *http.Request)
		want   string
	}{
		{"bad filter", refuses(400, `{"error":"invalid-filter","detail":"filter: no"}`), "invalid-filter: filter: no"},
		{"no token", refuses(401, `{"error":"unauthorized"}`), "wants another token (401)"},
		{"forbidden", refuses(403, ``), "403"},
		{"nothing there", refuses(404, ``), "give the collector's origin"},
		{"a page", refuses(200, `<html>`), "give the collector's origin"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := &endpoint{scripts: []func(http.ResponseWriter, *http.Request){tt.answer}}
			_, _, err := follow(t, e, Config{}, 1)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
			if len(e.queries) != 1 {
				t.Errorf("tried %d times", len(e.queries))
			}
		})
	}
}

func TestFollowOnce(t *testing.T) {
	e := &endpoint{scripts: []func(http.ResponseWriter, *http.Request){
		says(": replay-exhausted a b 3:4\n\n", message(line("a b", 3, 4)), "data: junk\n\n", ": replay-complete\n\n"),
	}}
	got, notices, err := follow(t, e, Config{Once: true, From: map[string]event.Position{"a b": {Epoch: 1, Seq: 2}}}, 99)
	if err != nil || !slices.Equal(got, []string{line("a b", 3, 4)}) {
		t.Errorf("%v %q", err, got)
	}
	want := Notice{Kind: Gap, Session: "a b", After: event.Position{Epoch: 1, Seq: 2}, Before: event.Position{Epoch: 3, Seq: 4}}
	if len(notices) != 3 || notices[1] != want || notices[2].Kind != Unreadable {
		t.Errorf("told %+v", notices)
	}
	if !strings.Contains(e.queries[0], "live=0") {
		t.Errorf("asks %q", e.queries[0])
	}
	// A connection that breaks is no whole replay.
	e = &endpoint{scripts: []func(http.ResponseWriter, *http.Request){func(w http.ResponseWriter, _ *http.Request) {
		says(message(line("a", 0, 0)))(w, nil)
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}}}
	if _, _, err := follow(t, e, Config{Once: true}, 99); err == nil {
		t.Error("a broken replay passes for a whole one")
	}
}

func TestFollowStops(t *testing.T) {
	broken := errors.New("disk full")
	for _, cfg := range []Config{{Flush: func() error { return broken }}, {}, {Once: true}} {
		e := &endpoint{scripts: []func(http.ResponseWriter, *http.Request){says(message(line("a", 0, 0)))}}
		srv := httptest.NewServer(e)
		tr := &http.Transport{}
		cfg.Base, cfg.HTTP = srv.URL, &http.Client{Transport: tr}
		err := Follow(t.Context(), cfg, func(Event) error {
			if cfg.Flush == nil {
				return broken
			}
			return nil
		})
		if err != broken {
			t.Errorf("got %v", err)
		}
		tr.CloseIdleConnections()
		srv.Close()
	}
}

// An endpoint that says nothing at all is left.
func TestFollowLeavesSilence(t *testing.T) {
	var n atomic.Int32
	e := &endpoint{scripts: []func(http.ResponseWriter, *http.Request){
		func(w http.ResponseWriter, r *http.Request) { n.Add(1); hangs(w, r) },
		says(message(line("a", 0, 0))),
	}}
	got, notices, _ := follow(t, e, Config{Silence: 50 * time.Millisecond}, 1)
	if len(got) != 1 || n.Load() != 1 {
		t.Fatalf("got %q", got)
	}
	if notices[1].Kind != Lost || !strings.Contains(notices[1].Err.Error(), "nothing was heard") {
		t.Errorf("told %+v", notices)
	}
}

// What a resume names is bounded, and is the newest.
func TestPositionsAreBounded(t *testing.T) {
	f := &follower{at: map[string]place{}}
	for i := range 2 * fromSessions {
		f.at[fmt.Sprint(i)] = place{event.Position{Seq: int64(i)}, i}
	}
	var got []struct{ Session string }
	if err := json.Unmarshal(f.positions(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != fromSessions || got[0].Session != fmt.Sprint(2*fromSessions-1) {
		t.Errorf("%d positions, the first %+v", len(got), got[0])
	}
}
