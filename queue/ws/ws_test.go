package ws

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"aep-wrap/event"
	"aep-wrap/queue"
	"aep-wrap/queue/jsonl"
	"aep-wrap/queue/post"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func item(n int) queue.Item {
	return queue.Item{Agent: "a", Session: "s", ID: fmt.Sprint("s-", n), Severity: event.Info, Sequenced: true,
		Position: event.Position{Seq: int64(n)}, Line: line("s", n, "progress.status")}
}

func offer(f *queue.Feed, from, to int) {
	for i := from; i < to; i++ {
		f.Offer(item(i))
	}
}

func numbers(session string, from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("%s-%d", session, i))
	}
	return out
}

func byPost(t testing.TB, url string, made *atomic.Int32) func(*queue.Feed) (Poster, error) {
	return func(f *queue.Feed) (Poster, error) {
		if made != nil {
			made.Add(1)
		}
		return post.New(post.Config{URL: url, MinWait: 2 * time.Millisecond, MaxWait: 10 * time.Millisecond}, f)
	}
}

// start runs an emitter quickly, for as long as the test.
func start(t *testing.T, c Config, f *queue.Feed) *Emitter {
	t.Helper()
	for v, d := range map[*time.Duration]time.Duration{
		&c.MinWait: 2 * time.Millisecond, &c.MaxWait: 20 * time.Millisecond, &c.Hello: 20 * time.Second,
		&c.RetryRefused: time.Hour, &c.RetrySocket: time.Hour, &c.CloseWait: 300 * time.Millisecond,
	} {
		if *v == 0 {
			*v = d
		}
	}
	if c.Agent == "" {
		c.Agent = "a"
	}
	e, err := New(c, f)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		if err := e.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-finished; f.Close() })
	return e
}

func flush(t *testing.T, e *Emitter) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := e.Flush(ctx); err != nil {
		t.Fatalf("flush: %v (%+v)", err, e.Stats())
	}
}

func same(t *testing.T, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %d: %.300v, want %d: %.300v", len(got), got, len(want), want)
	}
}

func TestSends(t *testing.T) {
	c := newCollector(t).start()
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 2500)
	e := start(t, Config{URL: c.URL, Token: "tok", Agent: "claude-code", Instance: "h/1",
		Capabilities: func() Capabilities {
			return Capabilities{Emits: []string{"run"}, Capture: []string{"none", "metadata"}, Control: &Control{Accepts: []string{"control.cancel"}, AckWindowMS: 10000}}
		}}, f)
	flush(t, e)
	same(t, c.got(), numbers("s", 0, 2500))
	if got := c.lines["s-42"]; got != string(item(42).Line) {
		t.Errorf("the bytes changed: %s", got)
	}
	want := map[string]any{
		"type": "hello", "versions": []any{"0.1"}, "role": "emitter",
		"identity":     map[string]any{"agent": "claude-code", "instance": "h/1"},
		"capabilities": map[string]any{"emits": []any{"run"}, "capture": []any{"none", "metadata"}}, // and no control: nobody takes commands
	}
	if got, _ := json.Marshal(c.hellos[0]); string(got) != string(must(json.Marshal(want))) {
		t.Errorf("hello: %s", got)
	}
	if got := c.heads[0].Get("Authorization"); got != "Bearer tok" {
		t.Errorf("authorization: %q", got)
	}
	if s := e.Stats(); s.State != Connected || s.Word != "" || s.Events != 2500 || s.Batches != 3 || s.Hellos != 1 || s.InFlight != 0 || s.Returned != 0 {
		t.Errorf("%+v", s)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestConfig(t *testing.T) {
	for name, c := range map[string]Config{
		"no host":         {URL: "http://", Agent: "a"},
		"another scheme":  {URL: "ftp://h", Agent: "a"},
		"token in clear":  {URL: "http://example.org", Token: "t", Agent: "a"},
		"token in clear2": {URL: "ws://example.org", Token: "t", Agent: "a"},
		"token two lines": {URL: "https://example.org", Token: "t\nx", Agent: "a"},
		"no agent":        {URL: "http://localhost"},
	} {
		if _, err := New(c, queue.NewFeed(queue.Options{})); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, u := range []string{"http://127.0.0.1:1", "ws://[::1]:1", "wss://h/x/", "https://user:secret@h/events?access_token=secret"} {
		e, err := New(Config{URL: u, Token: "t", Agent: "a"}, queue.NewFeed(queue.Options{}))
		if err != nil {
			t.Errorf("%s: %v", u, err)
		} else if strings.Contains(e.URL(), "secret") {
			t.Errorf("shown: %s", e.URL())
		}
	}
}

// TestFindsTheSocket is discovery in all its forms.
func TestFindsTheSocket(t *testing.T) {
	doc := func(s string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, s) }
	}
	known := func(path, s string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == path {
				_, _ = io.WriteString(w, s)
				return
			}
			http.NotFound(w, r)
		}
	}
	for name, x := range map[string]struct {
		base      string
		discovery http.HandlerFunc
		at        string // where it is
		word      string // or why it is not
	}{
		"at the base":            {"", nil, "/socket", ""},
		"from the events URL":    {"/events", nil, "/socket", ""},
		"the socket itself":      {"/deep/socket", doc(`nonsense`), "/deep/socket", ""},
		"somewhere":              {"", doc(`{"aep":["0.1"],"endpoints":{"socket":"/some/where?a=b"}}`), "/some/where", ""},
		"well known":             {"", known("/.well-known/aep", `{"aep":["0.1","0.0"],"endpoints":{"socket":"/w"}}`), "/w", ""},
		"nothing is said":        {"", known("/none", ``), "/socket", ""},
		"nonsense is said":       {"", doc(`<html>`), "/socket", ""},
		"other types":            {"", doc(`{"aep":"0.1","endpoints":[]}`), "/socket", ""},
		"behind a prefix":        {"/p", known("/p/events", `{"aep":["0.1"],"endpoints":{"socket":"/nowhere"}}`), "/p/socket", ""},
		"none":                   {"", doc(`{"aep":["0.1"],"endpoints":{"events":"/events"}}`), "", "no socket"},
		"of another version":     {"", doc(`{"aep":["0.9"],"endpoints":{"socket":"/socket"}}`), "", `"0.9"`},
		"at another's":           {"", doc(`{"aep":["0.1"],"endpoints":{"socket":"wss://evil.example/socket"}}`), "", "elsewhere"},
		"an unreadable endpoint": {"", doc(`{"aep":["0.1"],"endpoints":{"socket":"http://[::1"}}`), "", "readable"},
		"not with this token":    {"", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(401) }, "", "token"},
		"moved": {"", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://evil.example/", http.StatusFound)
		}, "/socket", ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollector(t)
			c.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if x.at != "" && r.URL.Path == x.at {
					c.socket(w, r)
					return
				}
				if r.Header.Get("Upgrade") != "" {
					http.NotFound(w, r)
					return
				}
				if x.discovery != nil {
					x.discovery(w, r)
					return
				}
				c.serve(w, r)
			})
			c.start()
			f := queue.NewFeed(queue.Options{})
			offer(f, 0, 3)
			e := start(t, Config{URL: c.URL + x.base, Token: "t"}, f)
			if x.word == "" {
				flush(t, e)
				same(t, c.got(), numbers("s", 0, 3))
				return
			}
			until(t, "a word", func() bool { s := e.Stats(); return strings.Contains(s.Word, x.word) && s.State != Connecting })
			if c.count() != 0 {
				t.Error("a socket was made all the same")
			}
		})
	}
}

// TestUnixSocket reaches a collector by a transport of the caller's.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := newCollector(t)
	c.Listener.Close()
	c.Listener = l
	c.start()
	tr := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", path)
	}}
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 10)
	e := start(t, Config{URL: "http://aep-collector", Client: &http.Client{Transport: tr, Timeout: 50 * time.Millisecond}}, f)
	flush(t, e)
	time.Sleep(80 * time.Millisecond) // a client's timeout is of requests
	offer(f, 10, 20)
	flush(t, e)
	same(t, c.got(), numbers("s", 0, 20))
	if c.count() != 1 {
		t.Errorf("%d sockets", c.count())
	}
}

// TestTLS also has a client that would rather speak HTTP/2.
func TestTLS(t *testing.T) {
	c := newCollector(t)
	c.EnableHTTP2 = true
	c.StartTLS()
	t.Cleanup(c.stop)
	tr := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: c.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs}, ForceAttemptHTTP2: true}
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 10)
	e := start(t, Config{URL: strings.Replace(c.URL, "https", "wss", 1), Token: "t", Client: &http.Client{Transport: tr}}, f)
	flush(t, e)
	same(t, c.got(), numbers("s", 0, 10))
}

// TestFaultsPass has the collector fail in each way that passes: everything
// arrives, in order, and the trouble is told once.
func TestFaultsPass(t *testing.T) {
	answer := func(code int) func(int, http.ResponseWriter, *http.Request) bool {
		return func(n int, w http.ResponseWriter, _ *http.Request) bool {
			if n > 5 {
				return false
			}
			w.WriteHeader(code)
			return true
		}
	}
	for name, x := range map[string]struct {
		upgrade func(int, http.ResponseWriter, *http.Request) bool
		script  func(*peer)
	}{
		"500":           {answer(500), nil},
		"503":           {answer(503), nil},
		"404, no POST":  {answer(404), nil},
		"426, no POST":  {answer(426), nil},
		"a page":        {answer(200), nil},
		"hangs up":      {func(n int, w http.ResponseWriter, r *http.Request) bool { return n <= 5 && hangUp(w) }, nil},
		"not websocket": {func(n int, w http.ResponseWriter, r *http.Request) bool { return n <= 5 && other(w) }, nil},

		"accepts and dies":     {nil, func(p *peer) {}},
		"dies after hello":     {nil, func(p *peer) { p.hello() }},
		"hello comes last":     {nil, func(p *peer) { p.send(`{"type":"ping","t":1}`); p.next(); p.next() }},
		"an event for hello":   {nil, func(p *peer) { p.send(commandLine("1", "control.cancel")); p.next(); p.next() }},
		"garbage for hello":    {nil, func(p *peer) { p.send("\x00{{{"); p.next(); p.next() }},
		"binary for hello":     {nil, func(p *peer) { _ = p.ws.Write(p.ctx, websocket.MessageBinary, []byte(helloBack)); p.next(); p.next() }},
		"huge for hello":       {nil, func(p *peer) { p.send(`{"type":"hello","x":"` + strings.Repeat("x", 2<<20) + `"}`); p.next(); p.next() }},
		"selects no version":   {nil, func(p *peer) { p.next(); p.send(`{"type":"hello","versions":["0.1","0.2"]}`); p.next() }},
		"refuses for now":      {nil, func(p *peer) { p.next(); p.send(`{"type":"error","code":"limit-exceeded","detail":"later"}`) }},
		"closes at once":       {nil, func(p *peer) { p.hello(); p.pongs(1); p.ws.Close(websocket.StatusTryAgainLater, "busy") }},
		"one frame":            {nil, func(p *peer) { p.hello(); p.pongs(1); p.next() }},
		"dies before the pong": {nil, func(p *peer) { p.hello(); p.pongs(1); p.eat(2) }},
		"closing, then no answer": {nil, func(p *peer) {
			p.hello()
			p.pongs(1)
			p.eat(5)
			p.send(`{"type":"closing","reason":"drain","delivered":[{"sub":"s","session":"s","epoch":0,"seq":4},5]}`)
			p.eat(1000)
		}},
		"binary later": {nil, func(p *peer) {
			p.hello()
			p.pongs(1)
			_ = p.ws.Write(p.ctx, websocket.MessageBinary, []byte("x"))
			p.eat(1000)
		}},
		"huge later": {nil, func(p *peer) {
			p.hello()
			p.pongs(1)
			p.send(`{"type":"x","x":"` + strings.Repeat("x", 2<<20) + `"}`)
			p.eat(1000)
		}},
		"an error of its own": {nil, func(p *peer) { p.hello(); p.pongs(1); p.send(`{"type":"error","code":"internal"}`); p.behaveOn() }},
		"refuses one, for now": {nil, func(p *peer) {
			p.hello()
			p.pongs(1)
			p.next()
			p.send(`{"type":"error","code":"limit-exceeded","cause":"s-0"}`)
			p.refuse()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCollector(t)
			c.upgrade = x.upgrade
			if x.script != nil {
				c.script = func(n int, p *peer) {
					if n <= 5 {
						x.script(p)
						return
					}
					p.behave()
				}
			}
			c.start()
			var said safe
			f := queue.NewFeed(queue.Options{})
			offer(f, 0, 40)
			e := start(t, Config{URL: c.URL, MaxEvents: 20, Log: slog.New(slog.NewTextHandler(&said, nil)), RetryRefused: 5 * time.Millisecond}, f)
			flush(t, e)
			same(t, deduped(c.got()), numbers("s", 0, 40))
			s := e.Stats()
			if s.State != Connected || s.Word != "" || s.Events != 40 || s.Refused != 0 || s.Attempts < 2 {
				t.Errorf("%+v", s)
			}
			if n := strings.Count(said.String(), "level=WARN"); n < 1 || n > 2 || !strings.Contains(said.String(), "again") {
				t.Errorf("told %d times: %s", n, said.String())
			}
		})
	}
}

// eat takes messages in, and says nothing.
func (p *peer) eat(n int) {
	for range n {
		m := p.next()
		if m == "" {
			return
		}
		p.message(m)
	}
}

// refuse takes nothing in, and pongs all the same: it is not to be believed.
func (p *peer) refuse() {
	for s := p.next(); s != ""; s = p.next() {
		if _, id, ping := strings.Cut(s, `"ping","t":`); ping {
			p.send(`{"type":"pong","t":` + id)
		}
	}
}

func (p *peer) behaveOn() {
	for p.pongs(1) {
	}
}

func hangUp(w http.ResponseWriter) bool {
	conn, _, _ := w.(http.Hijacker).Hijack()
	conn.Close()
	return true
}

func other(w http.ResponseWriter) bool {
	conn, b, _ := w.(http.Hijacker).Hijack()
	_, _ = b.WriteString("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tea\r\n\r\n")
	_ = b.Flush()
	conn.Close()
	return true
}

type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) { s.mu.Lock(); defer s.mu.Unlock(); return s.b.Write(p) }
func (s *safe) String() string              { s.mu.Lock(); defer s.mu.Unlock(); return s.b.String() }

// TestAbsent has nobody there at first: nothing falls back to POST, which
// would reach nobody either.
func TestAbsent(t *testing.T) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	place := os.NewFile(uintptr(fd), "a port that nobody else gets") // nor answers at, before Listen
	defer place.Close()
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	url := fmt.Sprintf("http://127.0.0.1:%d", at.(*unix.SockaddrInet4).Port)
	var made atomic.Int32
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 5)
	e := start(t, Config{URL: url, Fallback: byPost(t, url, &made)}, f)
	until(t, "some tries", func() bool { return e.Stats().Attempts > 6 })
	if s := e.Stats(); s.State != Retrying || s.Word == "" || made.Load() != 0 {
		t.Errorf("%+v, %d POST emitters", s, made.Load())
	}
	c := newCollector(t)
	c.Listener.Close()
	if err := unix.Listen(fd, 16); err != nil {
		t.Fatal(err)
	}
	if c.Listener, err = net.FileListener(place); err != nil {
		t.Fatal(err)
	}
	c.start()
	flush(t, e)
	same(t, c.got(), numbers("s", 0, 5))
}

// TestRefusals are those that asking again does not help: the emitter says so,
// Flush gives up at once, nothing is lost, and it is asked again slowly.
func TestRefusals(t *testing.T) {
	for name, x := range map[string]struct {
		status int
		reply  string // to our hello
		later  bool   // after the agreement
		word   string
	}{
		"401":             {401, "", false, "--token"},
		"403, no POST":    {403, "", false, "may emit"},
		"302":             {302, "", false, "evil.example"},
		"newer version":   {0, `{"type":"error","code":"version-unsupported","versions":["0.3","0.2"]}`, false, `"0.3, 0.2" and not 0.1`},
		"no versions":     {0, `{"type":"error","code":"version-unsupported","versions":{"a":1}}`, false, "does not speak"},
		"newer hello":     {0, `{"type":"hello","versions":["0.2"]}`, false, `"0.2" and not 0.1`},
		"unauthorized":    {0, `{"type":"error","code":"unauthorized","detail":"no"}`, false, `"unauthorized": "no"`},
		"may only watch":  {0, `{"type":"error","code":"unauthorized","cause":"s-1","detail":"no"}`, true, `"unauthorized": "no"`},
		"may not, unsaid": {0, `{"type":"error","code":"unauthorized"}`, true, `"unauthorized"`},
	} {
		t.Run(name, inside(func(t *testing.T) {
			m := newManual()
			var better atomic.Bool
			c := newCollector(t)
			c.upgrade = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
				if x.status == 0 || better.Load() {
					return false
				}
				w.Header().Set("Location", "http://evil.example/x")
				w.WriteHeader(x.status)
				return true
			}
			c.script = func(_ int, p *peer) {
				switch {
				case better.Load():
					p.behave()
				case x.later:
					p.hello()
					p.pongs(1)
					p.next()
					p.send(x.reply)
					p.refuse()
				default:
					p.next()
					p.send(x.reply)
					_ = p.ws.Close(websocket.StatusProtocolError, "")
				}
			}
			client := c.startInside()
			f := queue.NewFeed(queue.Options{})
			offer(f, 0, 3)
			e := start(t, Config{URL: c.URL, Client: client, Token: "t", Clock: m.clock(), RetryRefused: 5 * time.Minute}, f)
			until(t, "stopped", func() bool { return e.Stats().State == Stopped })
			s := e.Stats()
			if !strings.Contains(s.Word, x.word) || s.Attempts != 1 || s.Events != 0 {
				t.Errorf("%+v", s)
			}
			var stopped *StoppedError
			if err := e.Flush(t.Context()); !errors.As(err, &stopped) || stopped.Status != x.status {
				t.Errorf("flush: %v", err)
			}
			synctest.Wait()
			if d := m.next(); d < 4*time.Minute || d > 6*time.Minute || e.Stats().Attempts != 1 {
				t.Errorf("it is asked again in %v: %+v", d, e.Stats())
			}
			better.Store(true)
			m.advance(6 * time.Minute)
			until(t, "goes on", func() bool { return e.Stats().State == Connected })
			flush(t, e)
			same(t, deduped(c.got()), numbers("s", 0, 3))
		}))
	}
}

// TestFlushSaysWhy the emitter stopped while it waited, also where that goes on
// before the reason is read.
func TestFlushSaysWhy(t *testing.T) {
	for range 200 {
		f := queue.NewFeed(queue.Options{})
		offer(f, 0, 1)
		e, err := New(Config{URL: "http://localhost", Agent: "a"}, f)
		if err != nil {
			t.Fatal(err)
		}
		flushed := make(chan error, 1)
		go func() { flushed <- e.Flush(t.Context()) }()
		until(t, "it waits", func() bool { e.mu.Lock(); defer e.mu.Unlock(); return e.flushing == 1 })
		e.stop(&fault{word: "no"})
		e.mu.Lock()
		e.resume()
		e.mu.Unlock()
		var stopped *StoppedError
		if err := <-flushed; !errors.As(err, &stopped) {
			t.Fatalf("flush: %v", err)
		}
		if len(e.hurry) != 0 {
			t.Fatal("its hurry outlives it")
		}
		f.Close()
	}
}

// TestFallsBackToPOST and back again, where there is no socket.
func TestFallsBackToPOST(t *testing.T) {
	status := func(code int) func(w http.ResponseWriter) { return func(w http.ResponseWriter) { w.WriteHeader(code) } }
	for name, x := range map[string]struct {
		upgrade func(http.ResponseWriter)
		script  func(*peer)
	}{
		"400":               {status(400), nil},
		"403":               {status(403), nil},
		"404":               {status(404), nil},
		"405":               {status(405), nil},
		"426":               {status(426), nil},
		"200":               {status(200), nil},
		"500 all the time":  {status(500), nil},
		"502 all the time":  {status(502), nil},
		"not websocket":     {func(w http.ResponseWriter) { other(w) }, nil},
		"hangs up":          {func(w http.ResponseWriter) { hangUp(w) }, nil},
		"never says hello":  {nil, func(p *peer) { p.eat(1000) }},
		"never pongs":       {nil, func(p *peer) { p.hello(); p.eat(1000) }},
		"dies with events":  {nil, func(p *peer) { p.hello(); p.pongs(1); p.eat(1) }},
		"selects nothing":   {nil, func(p *peer) { p.next(); p.send(`{"type":"hello","versions":[]}`); p.next() }},
		"events too big":    {nil, func(p *peer) { p.hello(); p.pongs(1); p.ws.SetReadLimit(40); p.eat(1000) }},
		"closes each frame": {nil, func(p *peer) { p.next() }},
	} {
		t.Run(name, func(t *testing.T) {
			m := newManual()
			var better atomic.Bool
			var made atomic.Int32
			c := newCollector(t)
			c.upgrade = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
				if x.upgrade == nil || better.Load() {
					return false
				}
				x.upgrade(w)
				return true
			}
			c.script = func(_ int, p *peer) {
				if x.script == nil || better.Load() {
					p.behave()
					return
				}
				x.script(p)
			}
			c.start()
			f := queue.NewFeed(queue.Options{})
			offer(f, 0, 30)
			clock := m.clock()
			after := clock.After
			clock.After = func(d time.Duration, f func()) func() bool { // only the long waits are by hand
				if d < time.Second {
					return time.AfterFunc(d, f).Stop
				}
				return after(d, f)
			}
			e := start(t, Config{URL: c.URL, Clock: clock, RetrySocket: time.Minute, Hello: 30 * time.Millisecond, Fallback: byPost(t, c.URL, &made)}, f)
			until(t, "posting", func() bool { return e.Stats().State == Posting })
			flush(t, e)
			same(t, deduped(c.got()), numbers("s", 0, 30))
			if s := e.Stats(); s.Word == "" || s.Fallbacks != 1 {
				t.Errorf("%+v", s)
			}
			// A minute later it is no better: POST goes on, undisturbed.
			failed := e.Stats().Failed
			until(t, "waits a minute", func() bool { return m.next() == time.Minute })
			m.advance(time.Minute)
			until(t, "a try", func() bool { s := e.Stats(); return s.Failed > failed || s.State == Connected }) // to come to nothing with the events
			offer(f, 30, 40)
			flush(t, e)
			// Then it is.
			better.Store(true)
			n := c.count()
			until(t, "connected", func() bool {
				if m.next() == time.Minute {
					m.advance(time.Minute)
				}
				return c.count() > n && e.Stats().State == Connected
			})
			before := len(c.via("post"))
			offer(f, 40, 50)
			flush(t, e)
			same(t, deduped(c.got()), numbers("s", 0, 50))
			if got := len(c.via("post")); got != before {
				t.Errorf("%d more went by POST", got-before)
			}
		})
	}
}

// While events go by POST, the word is why there is no socket now, and not why
// there was none at first.
func TestWhyThereIsNoSocketNow(t *testing.T) {
	m := newManual()
	c := newCollector(t)
	var status atomic.Int32
	status.Store(http.StatusNotFound)
	c.upgrade = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(int(status.Load()))
		return true
	}
	c.start()
	e := start(t, Config{URL: c.URL, Clock: m.clock(), RetrySocket: time.Minute, Fallback: byPost(t, c.URL, nil)}, queue.NewFeed(queue.Options{}))
	until(t, "posting", func() bool { return e.Stats().State == Posting && m.next() == time.Minute })
	first := e.Stats()
	status.Store(http.StatusServiceUnavailable)
	m.advance(time.Minute)
	until(t, "a new word", func() bool { return strings.Contains(e.Stats().Word, "503") })
	if s := e.Stats(); s.State != Posting || s.Failed != first.Failed+1 || !s.Since.Equal(first.Since) || s.Class != queue.Broken {
		t.Errorf("%+v after %+v", s, first)
	}
}

// TestPOSTIsRefusedToo stops, with the word of POST.
func TestPOSTIsRefusedToo(t *testing.T) {
	m := newManual()
	c := newCollector(t)
	var better atomic.Bool
	c.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if better.Load() {
			c.serve(w, r)
			return
		}
		w.WriteHeader(403)
	})
	c.start()
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 3)
	e := start(t, Config{URL: c.URL, Clock: m.clock(), RetryRefused: 5 * time.Minute, Fallback: byPost(t, c.URL, nil)}, f)
	until(t, "stopped", func() bool { return e.Stats().State == Stopped })
	if err := e.Flush(t.Context()); err == nil || !strings.Contains(err.Error(), "may not send events") {
		t.Errorf("flush: %v", err)
	}
	better.Store(true)
	until(t, "waits", func() bool { return m.next() == 5*time.Minute })
	m.advance(5 * time.Minute)
	until(t, "connected", func() bool { return e.Stats().State == Connected })
	flush(t, e)
	same(t, c.via("socket"), numbers("s", 0, 3))
}

// TestTheFirstRetryIsAtOnce, and the next is not.
func TestTheFirstRetryIsAtOnce(t *testing.T) {
	m := newManual()
	c := newCollector(t)
	c.script = func(n int, p *peer) {
		if n <= 2 {
			p.behave()
			return
		}
		_ = p.ws.CloseNow()
	}
	c.start()
	f := queue.NewFeed(queue.Options{})
	e := start(t, Config{URL: c.URL, Clock: m.clock(), MinWait: time.Second, MaxWait: 30 * time.Second}, f)
	until(t, "connected", func() bool { return e.Stats().State == Connected })
	m.advance(20 * time.Second)
	c.kill()
	until(t, "connected again, without a wait", func() bool { return e.Stats().Hellos == 2 })
	m.advance(20 * time.Second)
	c.kill()
	until(t, "a third try, without a wait", func() bool { return c.count() == 3 })
	var longest time.Duration
	for range 40 { // from here on it is the backoff's
		until(t, "a wait", func() bool { return e.Stats().State == Retrying && m.next() > 0 })
		d := m.next()
		longest = max(longest, d)
		n := e.Stats().Attempts
		if d < 500*time.Millisecond || d > 30*time.Second {
			t.Fatalf("waits %v", d)
		}
		m.advance(d)
		until(t, "a try", func() bool { return e.Stats().Attempts > n })
	}
	if longest < 15*time.Second {
		t.Errorf("never waits longer than %v", longest)
	}
}

// TestRetryAfter is honoured, and bounded.
func TestRetryAfter(t *testing.T) {
	for v, want := range map[string]time.Duration{"7": 7 * time.Second, "9000000000": 0, "86400": 5 * time.Minute, "-3": 0, "x": 0} {
		m := newManual()
		c := newCollector(t)
		c.upgrade = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Retry-After", v)
			w.WriteHeader(503)
			return true
		}
		c.start()
		e := start(t, Config{URL: c.URL, Clock: m.clock()}, queue.NewFeed(queue.Options{}))
		until(t, "a wait", func() bool { return e.Stats().State == Retrying && m.next() > 0 })
		if d := m.next(); want > 0 && d != want || want == 0 && d > time.Second {
			t.Errorf("%s: waits %v, want %v", v, d, want)
		}
	}
}

// TestLiveness pings an idle connection each twenty seconds, and leaves one that
// does not answer for as long, whatever else it says.
func TestLiveness(t *testing.T) { inside(liveness)(t) }

func liveness(t *testing.T) {
	m := newManual()
	c := newCollector(t)
	var pings atomic.Int32
	var mute atomic.Bool
	c.script = func(n int, p *peer) {
		p.hello()
		p.pongs(1)
		for {
			s := p.next()
			if s == "" {
				return
			}
			if id, ping := p.message(s); ping {
				pings.Add(1)
				if mute.Load() && n == 1 {
					p.send(`{"type":"ping","t":"still here"}`)
					continue
				}
				p.send(`{"type":"pong","t":` + id + `}`)
			}
		}
	}
	client := c.startInside()
	e := start(t, Config{URL: c.URL, Client: client, Clock: m.clock()}, queue.NewFeed(queue.Options{}))
	until(t, "connected", func() bool { return e.Stats().State == Connected && m.next() > 0 })
	third := func(pinged int32) { // of a minute
		t.Helper()
		until(t, "a tick is due", func() bool { return m.next() == 20*time.Second })
		m.advance(20 * time.Second)
		until(t, "a ping", func() bool { return pings.Load() == pinged })
		synctest.Wait() // its pong
	}
	for i := range int32(3) {
		third(i + 1)
	}
	mute.Store(true)
	third(4)
	if c.count() != 1 {
		t.Fatal("left too early")
	}
	until(t, "a tick is due", func() bool { return m.next() == 20*time.Second })
	m.advance(20 * time.Second)
	until(t, "another connection", func() bool { return e.Stats().Hellos == 2 })
}

// TestSlowButHealthy has pongs come late and one by one: nothing is sent
// twice, and no more is under way than may be.
func TestSlowButHealthy(t *testing.T) { inside(slowButHealthy)(t) }

func slowButHealthy(t *testing.T) {
	c := newCollector(t)
	worst := 0
	c.script = func(_ int, p *peer) {
		p.hello()
		p.pongs(1)
		var owed []string
		for n := 0; n < 100; {
			s := ""
			got := make(chan string, 1)
			go func() { got <- p.next() }()
			for wait := true; wait; {
				select {
				case s = <-got:
					wait = false
				case <-time.After(10 * time.Millisecond): // it sends no more on its own
					if len(owed) > 0 {
						p.send(`{"type":"pong","t":` + owed[0] + `}`)
						owed = owed[1:]
					}
				}
			}
			if s == "" {
				return
			}
			if id, ping := p.message(s); ping {
				owed = append(owed, id)
				worst = max(worst, len(owed))
			} else {
				n++
			}
		}
		for _, id := range owed {
			p.send(`{"type":"pong","t":` + id + `}`)
		}
		p.behaveOn()
	}
	client := c.startInside()
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 100)
	e := start(t, Config{URL: c.URL, Client: client, MaxEvents: 5, InFlight: 3}, f)
	flush(t, e)
	same(t, c.got(), numbers("s", 0, 100))
	if worst != 3 {
		t.Errorf("%d batches under way", worst)
	}
}

// TestNeverReads is a collector that takes nothing at all: the road is never
// held up, memory stays within its bounds, and the end comes in time.
func TestNeverReads(t *testing.T) {
	c := newCollector(t)
	var asked atomic.Int64
	c.script = func(_ int, p *peer) {
		p.hello()
		p.pongs(1)
		for { // asks, and does not listen
			err := p.ws.Write(p.ctx, websocket.MessageText, []byte(`{"type":"ping","t":"`+strings.Repeat("x", 500)+`"}`))
			if err != nil {
				return
			}
			asked.Add(1)
			time.Sleep(100 * time.Microsecond)
		}
	}
	c.start()
	f := queue.NewFeed(queue.Options{LooseEvents: 1000})
	e, err := New(Config{URL: c.URL, Agent: "a", CloseWait: 100 * time.Millisecond}, f)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _ = e.Run(ctx); close(ended) }()
	until(t, "connected", func() bool { return e.Stats().State == Connected })
	big := item(0)
	big.Line = append(bytes.TrimSuffix(big.Line, []byte("}")), `,"x":"`+strings.Repeat("y", 100_000)+`"}`...)
	from := time.Now()
	for i := range 20_000 {
		it := big
		it.ID = fmt.Sprint(i)
		f.Offer(it)
	}
	if d := time.Since(from); d > 30*time.Second {
		t.Errorf("offering took %v", d)
	}
	e.mu.Lock()
	conn := e.live
	e.mu.Unlock()
	if conn == nil {
		t.Fatal("it was left")
	}
	until(t, "nothing more goes out", conn.net.full)
	more := asked.Load() + 2*outboxFull/500
	until(t, "much more is asked", func() bool { return asked.Load() > more })
	conn.net.mu.Lock()
	n := len(conn.net.buf)
	conn.net.mu.Unlock()
	if n > 2*outboxFull {
		t.Errorf("%d bytes wait to be written", n)
	}
	if s := f.Stats(); s.LooseEvents > 2000 || s.LooseBytes > 20<<20 {
		t.Errorf("%+v", s)
	}
	from = time.Now()
	cancel()
	<-ended
	if d := time.Since(from); d > 20*time.Second {
		t.Errorf("the end took %v", d)
	}
	f.Close()
}

// TestEndsInOrder says closing, then 1001; and what was under way is
// acknowledged if it comes at once.
func TestEndsInOrder(t *testing.T) {
	c := newCollector(t).start()
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 5)
	e, _ := New(Config{URL: c.URL, Agent: "a", CloseWait: time.Minute}, f)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _ = e.Run(ctx); close(ended) }()
	flush(t, e)
	cancel()
	<-ended
	f.Close()
	until(t, "the code", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.codes) == 1 })
	if fmt.Sprint(c.closes) != "[shutdown]" || c.codes[0] != websocket.StatusGoingAway {
		t.Errorf("%v %v", c.closes, c.codes)
	}
	if err := e.Flush(t.Context()); err == nil { // the feed is closed
		t.Error("flush after the end")
	}
}

// TestEndsWithTheFeed, too.
func TestEndsWithTheFeed(t *testing.T) {
	for _, fall := range []bool{false, true} {
		c := newCollector(t)
		if fall {
			c.upgrade = func(_ int, w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(404); return true }
		}
		c.start()
		f := queue.NewFeed(queue.Options{})
		e, _ := New(Config{URL: c.URL, Agent: "a", Fallback: byPost(t, c.URL, nil)}, f)
		ended := make(chan struct{})
		go func() { _ = e.Run(t.Context()); close(ended) }()
		until(t, "under way", func() bool { s := e.Stats().State; return s == Connected || s == Posting })
		f.Close()
		select {
		case <-ended:
		case <-time.After(time.Minute):
			t.Fatal("it goes on")
		}
	}
}

// TestClosingFrame is honoured: what was sent is acknowledged if the pongs
// come, the handshake is ours to begin, and another connection is made at
// once.
func TestClosingFrame(t *testing.T) {
	c := newCollector(t)
	c.script = func(n int, p *peer) {
		if n > 1 {
			p.behave()
			return
		}
		p.hello()
		p.pongs(1)
		p.next() // the first event
		p.send(`{"type":"closing","reason":"restart","delivered":[]}`)
		p.behaveOn()
	}
	c.start()
	f := queue.NewFeed(queue.Options{})
	e := start(t, Config{URL: c.URL, MaxEvents: 1, InFlight: 1, CloseWait: time.Minute}, f)
	offer(f, 0, 20)
	flush(t, e)
	same(t, deduped(append([]string{"s-0"}, c.got()...)), numbers("s", 0, 20))
	until(t, "the code", func() bool { c.mu.Lock(); defer c.mu.Unlock(); return len(c.codes) == 1 })
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sockets != 2 || c.codes[0] != websocket.StatusNormalClosure {
		t.Errorf("%d sockets, %v", c.sockets, c.codes)
	}
}

// TestRenew says another hello.
func TestRenew(t *testing.T) {
	c := newCollector(t).start()
	f := queue.NewFeed(queue.Options{})
	var accepts atomic.Value
	accepts.Store([]string{"control.cancel"})
	e := start(t, Config{URL: c.URL, OnCommand: func([]byte, event.Header) {},
		Capabilities: func() Capabilities { return Capabilities{Control: &Control{Accepts: accepts.Load().([]string)}} }}, f)
	until(t, "connected", func() bool { return e.Stats().Hellos == 1 })
	accepts.Store([]string{})
	e.Renew()
	until(t, "connected again", func() bool { return e.Stats().Hellos == 2 })
	for i, want := range []string{`{"control":{"accepts":["control.cancel"]}}`, `{"control":{"accepts":[]}}`} {
		if got, _ := json.Marshal(c.hellos[i]["capabilities"]); string(got) != want {
			t.Errorf("%d: %s", i, got)
		}
	}
}

// TestCommands hands over what is a command and nothing else, byte for byte,
// and never on the connection's time.
func TestCommands(t *testing.T) {
	good := []string{
		commandLine("c1", "control.cancel"), commandLine("c2", "x.v.control.instruct"),
		" " + commandLine("c3", "control.attention.respond") + " ",
	}
	bad := []string{
		string(line("s", 1, "run.started")), string(line("s", 2, "control.accepted")),
		commandLine("c4", "attention.routed"), commandLine("c5", "run.started"), commandLine("c6", "control.frobnicate"),
		strings.Replace(commandLine("c7", "control.cancel"), `"session":"s",`, ``, 1),
		strings.Replace(commandLine("c8", "control.cancel"), `"aep":"0.1"`, `"aep":"1.0"`, 1),
		strings.Replace(commandLine("c9", "control.cancel"), `"data":{}`, `"data":{},"id":"c1"`, 1),
		`{"type":"control.cancel"}`, `{"type":"roster","id":"r"}`, `{"type":"what"}`, `{"type":7}`, `[]`, `null`, `"x"`, ``, `{`, "\xff",
		`{"type":"pong","t":99999}`, `{"type":"pong","t":-1}`, `{"type":"pong"}`, `{"type":"pong","t":"1"}`, `{"type":"pong","t":1e400}`,
		`{"type":"error"`, `{"type":"error","code":"no-route","cause":"unheard of"}`, `{"type":"error","code":"invalid-event"}`,
		strings.Repeat(`[`, 100_000), `{"type":"x","y":` + strings.Repeat(`[`, 5000) + strings.Repeat(`]`, 5000) + `}`,
	}
	c := newCollector(t)
	var pongs safe
	c.script = func(n int, p *peer) {
		p.hello()
		p.pongs(1)
		for _, s := range append(slices.Clone(bad), good...) {
			p.send(s)
		}
		for _, id := range []string{`1`, `"two"`, `{"a":[1.50,null]}`, `null`} {
			p.send(`{"type":"ping","t":` + id + `}`)
		}
		p.send(`{"type":"ping"}`)
		for {
			s := p.next()
			if s == "" {
				return
			}
			if id, ping := p.message(s); ping {
				p.send(`{"type":"pong","t":` + id + `}`)
			} else if strings.HasPrefix(s, `{"type":"pong"`) {
				fmt.Fprintln(&pongs, s)
			}
		}
	}
	c.start()
	f := queue.NewFeed(queue.Options{})
	got := make(chan string, 100)
	release := make(chan struct{})
	e := start(t, Config{URL: c.URL, OnCommand: func(line []byte, h event.Header) {
		got <- string(line)
		if h.ID == "c1" {
			<-release // takes its time
		}
	}}, f)
	if s := <-got; s != good[0] {
		t.Errorf("%s", s)
	}
	offer(f, 0, 10)
	flush(t, e) // the road goes on meanwhile
	close(release)
	for _, want := range good[1:] {
		if s := <-got; s != want {
			t.Errorf("%s", s)
		}
	}
	same(t, c.got(), numbers("s", 0, 10))
	want := `{"type":"pong","t":1}` + "\n" + `{"type":"pong","t":"two"}` + "\n" + `{"type":"pong","t":{"a":[1.50,null]}}` + "\n" + `{"type":"pong","t":null}` + "\n" + `{"type":"pong"}` + "\n"
	until(t, "the pongs", func() bool { return pongs.String() == want })
	s := e.Stats()
	if s.Commands != 3 || s.Hellos != 1 || len(got) != 0 || s.Invalid == 0 || s.Ignored == 0 {
		t.Errorf("%+v", s)
	}
}

// TestTooManyCommands are turned away, each with a word.
func TestTooManyCommands(t *testing.T) {
	c := newCollector(t)
	var busy atomic.Int32
	c.script = func(n int, p *peer) {
		p.hello()
		p.pongs(1)
		for i := range maxCommands + 6 {
			p.send(commandLine(fmt.Sprint(i), "control.pause"))
		}
		for s := p.next(); s != ""; s = p.next() {
			if strings.Contains(s, `"code":"busy"`) {
				busy.Add(1)
			}
		}
	}
	c.start()
	release := make(chan struct{})
	e := start(t, Config{URL: c.URL, OnCommand: func([]byte, event.Header) { <-release }}, queue.NewFeed(queue.Options{}))
	until(t, "all are in", func() bool { s := e.Stats(); return s.Commands+s.Busy == maxCommands+6 })
	until(t, "some are turned away", func() bool { return int64(busy.Load()) == e.Stats().Busy })
	close(release)
	if s := e.Stats(); s.Busy < 5 {
		t.Errorf("%+v", s)
	}
}

// TestSend passes by the feed, and only on a connection.
func TestSend(t *testing.T) {
	c := newCollector(t).start()
	e := start(t, Config{URL: c.URL}, queue.NewFeed(queue.Options{}))
	ack := line("s", 7, "control.accepted")
	until(t, "sent", func() bool { return e.Send(ack) })
	until(t, "arrived", func() bool { return len(c.got()) == 1 })
	if c.lines["s-7"] != string(ack) {
		t.Errorf("%s", c.lines["s-7"])
	}
	idle, _ := New(Config{URL: c.URL, Agent: "a"}, queue.NewFeed(queue.Options{}))
	if idle.Send(ack) {
		t.Error("sent on no connection")
	}
}

// TestRefusedEvent is given up alone, counted, and what is around it arrives.
func TestRefusedEvent(t *testing.T) {
	c := newCollector(t)
	c.script = func(n int, p *peer) {
		p.hello()
		for s := p.next(); s != ""; s = p.next() {
			if strings.Contains(s, `"id":"s-7"`) {
				p.send(`{"type":"error","code":"invalid-event","detail":"no","cause":"s-7"}`)
			} else if id, ping := p.message(s); ping {
				p.send(`{"type":"pong","t":` + id + `}`)
			}
		}
	}
	c.start()
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 9)
	bad := item(9)
	bad.Line = append(bad.Line, "\xff"...)
	f.Offer(bad)
	offer(f, 10, 12)
	e := start(t, Config{URL: c.URL}, f)
	flush(t, e)
	same(t, c.got(), append(numbers("s", 0, 7), "s-8", "s-10", "s-11"))
	if d := f.Stats().Dropped[queue.Dropped{Severity: event.Info, Reason: ReasonRefused}]; d != 2 || e.Stats().Refused != 2 {
		t.Errorf("%d dropped, %+v", d, e.Stats())
	}
}

// TestTooLarge finds the one event that is more than the collector takes.
func TestTooLarge(t *testing.T) {
	c := newCollector(t)
	c.script = func(n int, p *peer) {
		p.ws.SetReadLimit(2000)
		p.behave()
	}
	c.start()
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 50)
	big := item(50)
	big.Line = append(bytes.TrimSuffix(big.Line, []byte("}")), `,"x":"`+strings.Repeat("y", 3000)+`"}`...)
	f.Offer(big)
	offer(f, 51, 100)
	e := start(t, Config{URL: c.URL, MaxEvents: 30}, f)
	flush(t, e)
	same(t, deduped(c.got()), append(numbers("s", 0, 50), numbers("s", 51, 100)...))
	if d := f.Stats().Dropped[queue.Dropped{Severity: event.Info, Reason: ReasonTooLarge}]; d != 1 || e.Stats().TooLarge != 1 {
		t.Errorf("%d dropped, %+v", d, e.Stats())
	}
}

// logs are sessions with real logs.
type logs struct {
	t    testing.TB
	root string
	feed *queue.Feed
	open map[string]*jsonl.Log
	n    map[string]int
}

func (l *logs) attach(session string) {
	l.t.Helper()
	log, err := jsonl.Open(l.root, "a", session)
	if err != nil {
		l.t.Fatal(err)
	}
	n := 0
	_ = log.Replay(func([]byte) error { n++; return nil })
	l.open[session], l.n[session] = log, n
	if err := l.feed.Attach("a", session, log); err != nil {
		l.t.Fatal(err)
	}
}

func (l *logs) emit(session, typ string) {
	l.t.Helper()
	n := l.n[session]
	l.n[session]++
	it := queue.Item{Agent: "a", Session: session, ID: fmt.Sprintf("%s-%d", session, n), Severity: event.Info, Sequenced: true, Position: event.Position{Seq: int64(n)}, Line: line(session, n, typ)}
	ref, err := l.open[session].Append(it.Line)
	if err != nil {
		l.t.Fatal(err)
	}
	it.Log = ref
	l.feed.Offer(it)
}

// TestClaims sends the last acknowledged event of each session that lives once
// more after a reconnect, and of no other.
func TestClaims(t *testing.T) {
	c := newCollector(t).start()
	f := queue.NewFeed(queue.Options{Sink: "w"})
	l := &logs{t: t, root: t.TempDir(), feed: f, open: map[string]*jsonl.Log{}, n: map[string]int{}}
	for _, s := range []string{"live", "quiet", "ended", "exited", "done", "denied", "empty", "command"} {
		l.attach(s)
		if s == "empty" {
			continue
		}
		l.emit(s, "session.started")
		l.emit(s, "run.started")
	}
	l.emit("ended", "session.ended")
	l.emit("exited", "x.aep-wrap.session.exited")
	// A command may stand in the log behind the last event of the session's own.
	if _, err := l.open["command"].Append([]byte(strings.Replace(commandLine("cmd", "control.cancel"), `"session":"s"`, `"session":"command"`, 1))); err != nil {
		t.Fatal(err)
	}
	var loose = item(0) // a session without a log
	loose.Session = "loose"
	f.Offer(loose)
	e := start(t, Config{URL: c.URL, Live: func(agent, session string) bool { return agent == "a" && session != "denied" }}, f)
	flush(t, e)
	f.Done("a", "done")
	if n := e.Stats().Claims; n != 0 {
		t.Fatalf("%d claims on the first connection", n)
	}
	for round := range 2 {
		c.mu.Lock()
		c.taken = nil
		c.mu.Unlock()
		c.kill()
		until(t, "again", func() bool { return e.Stats().Hellos == int64(round+2) })
		until(t, "claims", func() bool { return e.Stats().Claims == int64(3*(round+1)) })
		l.emit("live", "run.finished")
		flush(t, e)
		got := c.got()
		same(t, got, []string{"command-1", fmt.Sprint("live-", round+1), "quiet-1", fmt.Sprint("live-", round+2)})
	}
	if got := c.lines["quiet-1"]; got != string(line("quiet", 1, "run.started")) {
		t.Errorf("the bytes changed: %s", got)
	}
	for _, log := range l.open {
		log.Close()
	}
}

// TestClaimsAfterARestart: a session that is gone on with, and has nothing to
// say yet, is claimed all the same.
func TestClaimsAfterARestart(t *testing.T) {
	c := newCollector(t).start()
	root := t.TempDir()
	for round := range 2 {
		f := queue.NewFeed(queue.Options{Sink: "w"})
		l := &logs{t: t, root: root, feed: f, open: map[string]*jsonl.Log{}, n: map[string]int{}}
		l.attach("s")
		if round == 0 {
			l.emit("s", "session.started")
		}
		e, _ := New(Config{URL: c.URL, Agent: "a"}, f)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { _ = e.Run(ctx); close(ended) }()
		until(t, "it arrives", func() bool { return len(c.got()) == round+1 })
		flush(t, e)
		cancel()
		<-ended
		f.Close()
		l.open["s"].Close()
		if n := e.Stats().Claims; n != int64(round) {
			t.Errorf("%d claims in round %d", n, round)
		}
	}
	same(t, c.got(), []string{"s-0", "s-0"})
}

// TestPositionMovesWithThePong, and with nothing else.
func TestPositionMovesWithThePong(t *testing.T) {
	c := newCollector(t)
	pong := make(chan struct{})
	c.script = func(_ int, p *peer) {
		p.hello()
		p.pongs(1)
		for s := p.next(); s != ""; s = p.next() {
			if id, ping := p.message(s); ping {
				<-pong
				p.send(`{"type":"pong","t":` + id + `}`)
			}
		}
	}
	c.start()
	f := queue.NewFeed(queue.Options{Sink: "w", SaveEvery: time.Millisecond})
	l := &logs{t: t, root: t.TempDir(), feed: f, open: map[string]*jsonl.Log{}, n: map[string]int{}}
	l.attach("s")
	l.emit("s", "session.started")
	e := start(t, Config{URL: c.URL}, f)
	until(t, "it arrives", func() bool { return len(c.got()) == 1 })
	time.Sleep(20 * time.Millisecond)
	if at, _, _ := jsonl.LoadPosition(l.open["s"].Path(), "w"); at.ID != "" {
		t.Errorf("saved without a pong: %+v", at)
	}
	close(pong)
	flush(t, e)
	until(t, "it is saved", func() bool { at, _, _ := jsonl.LoadPosition(l.open["s"].Path(), "w"); return at.ID == "s-0" })
	l.open["s"].Close()
}

func TestFlushIsBounded(t *testing.T) {
	c := newCollector(t)
	c.script = func(_ int, p *peer) { p.hello(); p.pongs(1); p.eat(1000) }
	c.start()
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 1)
	e := start(t, Config{URL: c.URL}, f)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := e.Flush(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("flush: %v", err)
	}
}

func TestFlushDoesNotWaitOutABackoff(t *testing.T) {
	c := newCollector(t)
	c.upgrade = func(n int, w http.ResponseWriter, _ *http.Request) bool {
		if n > 2 {
			return false
		}
		w.Header().Set("Retry-After", "100")
		w.WriteHeader(503)
		return true
	}
	c.start()
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 1)
	e := start(t, Config{URL: c.URL}, f)
	until(t, "waits", func() bool { return e.Stats().State == Retrying })
	flush(t, e)
	same(t, c.got(), numbers("s", 0, 1))
}
