package collector

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"aep-wrap/event"
)

// phone is what people are called by: it keeps what it is sent.
type phone struct {
	*httptest.Server
	mu     sync.Mutex
	calls  []phoneCall
	answer func(n int, w http.ResponseWriter, r *http.Request) // of the nth call, nil is 200
}

type phoneCall struct {
	path, auth string
	body       map[string]any
	raw        string
}

func newPhone(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) *phone {
	p := &phone{answer: answer}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		c := phoneCall{path: r.URL.Path, auth: r.Header.Get("Authorization"), raw: string(raw)}
		_ = json.Unmarshal(raw, &c.body)
		p.mu.Lock()
		p.calls = append(p.calls, c)
		n := len(p.calls)
		p.mu.Unlock()
		if p.answer != nil {
			p.answer(n, w, r)
		}
	}))
	t.Cleanup(p.Close)
	return p
}

func (p *phone) all() []phoneCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]phoneCall(nil), p.calls...)
}

func within(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// requestLine is an attention.requested.
func requestLine(id string, seq int, more string) string {
	now := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	return fmt.Sprintf(`{"aep":"0.1","id":%q,"type":"attention.requested","subject":"Bash","time":%q,"source":"aep://hosta/agent/demo/session/s","agent":"demo","session":"s","seq":%d,"severity":"notice","capture":"redacted","data":{"kind":"permission","prompt":"rm -rf \u202e/srv","options":[{"id":"allow","label":"Allow it"}]%s}}`, id, now, seq, more)
}

func settledLine(id, typ string, seq int) string {
	return fmt.Sprintf(`{"aep":"0.1","id":"%s-%d","type":%q,"subject":%q,"time":"2026-01-02T03:04:05Z","source":"aep://hosta/agent/demo/session/s","agent":"demo","session":"s","seq":%d}`, id, seq, typ, id, seq)
}

func quick() backoff.BackOff {
	return backoff.WithMaxRetries(backoff.NewConstantBackOff(time.Millisecond), 3)
}

// What is told, in the words of each place, and at which level.
func TestNotify(t *testing.T) {
	for _, tt := range []struct {
		name    string
		scheme  string
		path    string
		capture event.Level
		want    string
		not     string
		at      string
		auth    string
	}{
		{"ntfy", "ntfy+http", "/base/my-topic", event.Metadata,
			`{"topic":"my-topic","title":"demo on hosta asks: permission","message":"demo requests permission: Bash","priority":4,"tags":["raised_hand"],"click":"https://page.example/#request=q1\u0026session=s"}`, "", "/base/", ""},
		{"ntfy-redacted", "ntfy+http", "/my-topic", event.Redacted,
			"{\"topic\":\"my-topic\",\"title\":\"demo on hosta asks: permission\",\"message\":\"rm -rf \uFFFD/srv\",", "", "/", ""},
		{"webhook", "http", "/hook", event.Metadata,
			`{"type":"attention.requested","id":"q1","session":"s","agent":"demo","host":"hosta","kind":"permission","prompt":"demo requests permission: Bash","options":[{"id":"allow","label":"allow"}],"link":"https://page.example/#request=q1\u0026session=s"}`, "", "/hook", ""},
		{"nothing", "http", "/hook", event.None, `"kind":"","prompt":"demo waits for an answer","options":[]`, "permission", "/hook", ""},
		{"full is never", "http", "/hook", event.Full, `"label":"Allow it"`, "", "/hook", ""},
		{"bearer", "http://:tk_1@", "/hook", event.Metadata, `"id":"q1"`, "", "/hook", "Bearer tk_1"},
		{"basic", "ntfy+http://me:pw@", "/topic", event.Metadata, `"topic":"topic"`, "", "/", "Basic bWU6cHc="},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPhone(t, nil)
			host := strings.TrimPrefix(p.URL, "http://")
			scheme := tt.scheme
			if !strings.Contains(scheme, "://") {
				scheme += "://"
			}
			s := serve(t, Config{Notify: Notify{URL: scheme + host + tt.path, Capture: tt.capture, Page: "https://page.example/"}})
			s.post(requestLine("q1", 0, ""), ev("s", 0, 1))
			within(t, "a call", func() bool { return len(p.all()) == 1 })
			c := p.all()[0]
			if !strings.Contains(c.raw, tt.want) || tt.not != "" && strings.Contains(c.raw, tt.not) || c.path != tt.at || c.auth != tt.auth {
				t.Errorf("%s %q\n%s\nwant %s", c.path, c.auth, c.raw, tt.want)
			}
			within(t, "the count", func() bool {
				return strings.Contains(s.do("GET", "/metrics", nil, nil).body, `aep_collector_notifications_total{outcome="sent"} 1`)
			})
		})
	}
}

// Once: not for what is sent again, for what is old, nor for what a log held
// before the start.
func TestNotifyOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "demo"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "demo", "s.jsonl"), []byte(requestLine("q0", 0, "")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := newPhone(t, nil)
	s := serve(t, Config{LogDir: dir, Notify: Notify{URL: p.URL, Capture: event.Metadata}})
	within(t, "readiness", func() bool { return s.do("GET", "/readyz", nil, nil).status == 200 })
	old := strings.Replace(requestLine("q9", 9, ""), `"time":"2`, `"time":"1`, 1)
	again := requestLine("q1", 1, "")
	s.post(requestLine("q0", 0, ""), again, again, old)
	s.post(again, requestLine("q2", 2, ""))
	// They are told one after the other, and the last comes last.
	within(t, "two calls", func() bool { return s.notify.sent.Load() >= 2 && strings.Contains(p.all()[len(p.all())-1].raw, `"q2"`) })
	var ids []string
	for _, c := range p.all() {
		ids = append(ids, c.body["id"].(string))
	}
	if got := strings.Join(ids, " "); got != "q1 q2" {
		t.Errorf("called for %s", got)
	}
}

// A place that fails is tried again; one that refuses is not; both are
// counted, and what is told of it names neither topic nor token.
func TestNotifyTrouble(t *testing.T) {
	p := newPhone(t, func(n int, w http.ResponseWriter, r *http.Request) {
		switch {
		case n <= 2:
			w.WriteHeader(http.StatusServiceUnavailable)
		case n >= 4:
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}
	})
	s := serve(t, Config{Notify: Notify{URL: "ntfy+http://:tk_secret@" + strings.TrimPrefix(p.URL, "http://") + "/my-topic", Capture: event.Metadata}})
	s.notify.retry = quick
	s.post(requestLine("q1", 0, ""))
	within(t, "a third try", func() bool { return s.notify.sent.Load() == 1 })
	s.post(requestLine("q2", 1, ""), requestLine("q3", 2, ""))
	within(t, "two failures", func() bool { return s.notify.failed.Load() == 2 })
	if n := len(p.all()); n != 5 {
		t.Errorf("%d tries", n)
	}
	log := s.log.String()
	if strings.Count(log, "could not be sent") != 1 || !strings.Contains(log, "answers 307") || strings.Contains(log, "tk_secret") || strings.Contains(log, "my-topic") {
		t.Errorf("the log:\n%s", log)
	}
	// Nobody there: the road goes on, and the end comes at once.
	p.Close()
	s.post(requestLine("q4", 3, ""))
	within(t, "a failure", func() bool { return s.notify.failed.Load() == 3 })
}

// What is answered before it was told is not told, and a place that hangs
// holds nothing up: of what waits for it the oldest gives way.
func TestNotifyQueue(t *testing.T) {
	hold := make(chan struct{})
	p := newPhone(t, func(n int, _ http.ResponseWriter, r *http.Request) {
		if n == 1 {
			select {
			case <-hold:
			case <-r.Context().Done():
			}
		}
	})
	s := serve(t, Config{Notify: Notify{URL: p.URL, Capture: event.Metadata}})
	s.post(requestLine("first", 0, ""))
	within(t, "the first call", func() bool { return len(p.all()) == 1 })
	s.post(requestLine("second", 1, ""), requestLine("third", 2, ""), settledLine("second", "attention.answered", 3))
	// The first is answered while it is told: that is given up.
	s.post(settledLine("first", "attention.timeout", 4))
	within(t, "the third call", func() bool { return len(p.all()) == 2 })
	if id := p.all()[1].body["id"]; id != "third" {
		t.Errorf("called for %v", id)
	}
	within(t, "the counts", func() bool { return s.notify.dropped.Load() == 1 && s.notify.sent.Load() == 1 })
	close(hold)

	stuck := newPhone(t, func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s = serve(t, Config{Notify: Notify{URL: stuck.URL, Capture: event.Metadata}})
	start := time.Now()
	for i := range maxNotes + 10 {
		s.post(requestLine(fmt.Sprint("q", i), i, ""))
	}
	if d := time.Since(start); d > time.Minute { // a call takes ten seconds, and its turn never comes
		t.Errorf("taking in was held up: %v", d)
	}
	within(t, "the oldest give way", func() bool { return s.notify.dropped.Load() >= 9 })
	// What has expired is not told.
	if n := s.notify; n != nil {
		n.mu.Lock()
		if len(n.queue) > maxNotes {
			t.Errorf("%d wait", len(n.queue))
		}
		n.mu.Unlock()
	}
}

func TestNotifyExpired(t *testing.T) {
	p := newPhone(t, nil)
	s := serve(t, Config{Notify: Notify{URL: p.URL, Capture: event.Metadata}})
	s.post(requestLine("q1", 0, `,"expires_at":"2020-01-01T00:00:00Z"`), requestLine("q2", 1, ""))
	within(t, "the second", func() bool { return s.notify.sent.Load() == 1 })
	if c := p.all(); len(c) != 1 || c[0].body["id"] != "q2" || s.notify.dropped.Load() != 1 {
		t.Errorf("%v", c)
	}
}

func TestParseNotify(t *testing.T) {
	for _, ok := range []string{"ntfy://ntfy.example/topic", "ntfy+https://h/t", "ntfy+http://127.0.0.1:8080/t", "ntfy+http://192.168.1.4/t",
		"https://hooks.example/x?y=z", "http://localhost:1/x", "http://[::1]:1/", "ntfy://me:pw@h/t", "ntfy://:tk@h/base/t"} {
		if err := ParseNotify(ok); err != nil {
			t.Errorf("%s: %v", ok, err)
		}
	}
	for _, bad := range []string{"", "topic", "ntfy://h", "ntfy://h/", "ntfy://h/t?x=1", "http://hooks.example/x", "ntfy+http://ntfy.example/t", "ntfy+http://8.8.8.8/t",
		"ftp://h/t", "ntfy+ftp://h/t", "https://", "://", "https://:a%0ab@h/s3cret", "https://h/x#s3cret"} {
		if err := ParseNotify(bad); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
