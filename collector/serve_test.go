package collector

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"aep-wrap/event"
)

func TestDiscovery(t *testing.T) {
	s := serve(t, Config{Limits: Limits{SessionEvents: 77}})
	for _, path := range []string{"/events", "/.well-known/aep"} {
		a := s.do("GET", path, nil, nil)
		if a.status != 200 || a.header.Get("Content-Type") != "application/json" {
			t.Fatalf("%s: %d %s", path, a.status, a.header)
		}
		var d struct {
			AEP          []string
			Endpoints    map[string]string
			Capabilities struct {
				Filters []string
				Replay  struct {
					Buffer int
					All    bool
				}
			}
		}
		if err := json.Unmarshal([]byte(a.body), &d); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(d.AEP, []string{"0.1"}) || d.Endpoints["events"] != "/events" || d.Endpoints["stream"] != "/stream" ||
			d.Capabilities.Replay.Buffer != 77 || !d.Capabilities.Replay.All || !slices.Equal(d.Capabilities.Filters, []string{"attr-match"}) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
}

func TestRoutes(t *testing.T) {
	s := serve(t, Config{})
	for _, tt := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/healthz", 200}, {"HEAD", "/healthz", 200}, {"GET", "/readyz", 200}, {"GET", "/", 200}, {"GET", "/page/app.js", 200},
		{"HEAD", "/events", 200}, {"GET", "/nowhere", 404}, {"GET", "/events/", 404}, {"GET", "//events", 404},
		{"DELETE", "/events", 405}, {"POST", "/stream", 405}, {"HEAD", "/stream", 405}, {"POST", "/", 405}, {"OPTIONS", "/events", 204},
	} {
		if a := s.do(tt.method, tt.path, nil, nil); a.status != tt.status {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, a.status, tt.status)
		}
	}
}

func TestToken(t *testing.T) {
	const token = "s3cret-token-value"
	s := serve(t, Config{Token: token})
	bearer := func(v string) http.Header { return head("Authorization", v) }
	for _, tt := range []struct {
		name   string
		path   string
		header http.Header
		status int
	}{
		{"none", "/events", nil, 401},
		{"bearer", "/events", bearer("Bearer " + token), 200},
		{"bearer in another case", "/events", bearer("bearer " + token), 200},
		{"another bearer", "/events", bearer("Bearer " + token + "x"), 401},
		{"an empty bearer", "/events", bearer("Bearer "), 401},
		{"another scheme", "/events", bearer("Basic " + token), 401},
		{"in the query", "/events?access_token=" + token, nil, 200},
		{"another in the query", "/events?access_token=x", nil, 401},
		{"a wrong header is not helped by the query", "/events?access_token=" + token, bearer("Bearer x"), 401},
		{"the stream", "/stream?live=0", nil, 401},
		{"the stream with the query", "/stream?live=0&access_token=" + token, nil, 200},
		{"health is open", "/healthz", nil, 200},
		{"so is the page", "/", nil, 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := s.do("GET", tt.path, tt.header, nil)
			if a.status != tt.status {
				t.Errorf("%d %s, want %d", a.status, a.body, tt.status)
			}
			if a.status == 401 && a.header.Get("WWW-Authenticate") == "" {
				t.Error("no WWW-Authenticate")
			}
		})
	}
	if a := s.do("POST", "/events", ndjson, strings.NewReader(ev("s", 0, 1))); a.status != 401 {
		t.Errorf("POST: %d", a.status)
	}
	if a := s.do("GET", "/healthz", nil, nil); strings.Contains(a.body, "sessions") {
		t.Errorf("counts are told to strangers: %s", a.body)
	}
	if a := s.do("GET", "/healthz", bearer("Bearer "+token), nil); !strings.Contains(a.body, `"sessions":0`) {
		t.Errorf("no counts: %s", a.body)
	}
	// A broken request must not bring the token into a log either.
	s.do("GET", "/stream?access_token="+token+"&filter=x", nil, nil)
	if strings.Contains(s.log.String(), token) {
		t.Errorf("the token is in the log:\n%s", s.log)
	}
}

func TestHostAndOrigin(t *testing.T) {
	s := serve(t, Config{Origins: []string{"https://watch.example"}, Hosts: []string{"Box.Example"}})
	own := strings.TrimPrefix(s.base, "http://")
	for _, tt := range []struct {
		name         string
		host, origin string
		status       int
		cors         string
	}{
		{"our address", own, "", 200, ""},
		{"localhost", "localhost:8787", "", 200, ""},
		{"a name below localhost", "aep.localhost:8787", "", 200, ""},
		{"IPv6", "[::1]:8787", "", 200, ""},
		{"a configured name", "box.example:8787", "", 200, ""},
		{"a rebound name", "evil.example:8787", "", 403, ""},
		{"a name like an address", "127.0.0.1.evil.example", "", 403, ""},
		{"our own page", own, "http://" + own, 200, ""},
		{"a configured origin", own, "https://watch.example", 200, "https://watch.example"},
		{"a foreign origin", own, "https://evil.example", 403, ""},
		{"no origin at all", own, "null", 403, ""},
		{"the same name on another port", "localhost:8787", "http://localhost:9999", 403, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, path := range []string{"/events", "/stream?live=0", "/"} {
				h := head("Host", tt.host)
				if tt.origin != "" {
					h.Set("Origin", tt.origin)
				}
				a := s.do("GET", path, h, nil)
				if a.status != tt.status || a.header.Get("Access-Control-Allow-Origin") != tt.cors {
					t.Errorf("%s: %d, CORS %q; want %d, %q", path, a.status, a.header.Get("Access-Control-Allow-Origin"), tt.status, tt.cors)
				}
			}
			h := head("Host", tt.host, "Origin", tt.origin, "AEP-Version", "0.1", "Content-Type", "application/x-ndjson")
			if tt.origin == "" {
				h.Del("Origin")
			}
			if a := s.do("POST", "/events", h, strings.NewReader("")); (a.status == 403) != (tt.status == 403) {
				t.Errorf("POST: %d", a.status)
			}
		})
	}
	a := s.do("OPTIONS", "/events", head("Origin", "https://watch.example", "Access-Control-Request-Method", "POST"), nil)
	if a.status != 204 || !strings.Contains(a.header.Get("Access-Control-Allow-Headers"), "Authorization") {
		t.Errorf("preflight: %d %v", a.status, a.header)
	}
	// A refusal can be read by the page that is allowed to ask.
	a = s.do("GET", "/stream?filter=x", head("Origin", "https://watch.example"), nil)
	if a.status != 400 || a.header.Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("refusal: %d %v", a.status, a.header)
	}
}

type fakeListener struct {
	net.Listener
	addr net.Addr
}

func (f fakeListener) Addr() net.Addr { return f.addr }
func (f fakeListener) Close() error   { return nil }

func TestOpenAddressesAreRefused(t *testing.T) {
	open := fakeListener{addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 8787}}
	all := fakeListener{addr: &net.TCPAddr{IP: net.IPv6unspecified, Port: 8787}}
	for _, tt := range []struct {
		name string
		cfg  Config
		l    net.Listener
		want string
	}{
		{"no token", Config{TLS: &tls.Config{}}, open, "set a token"},
		{"no TLS", Config{Token: "t"}, open, "TLS"},
		{"every address", Config{}, all, "set a token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := New(tt.cfg).Serve(t.Context(), tt.l)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v", err)
			}
		})
	}
	for _, cfg := range []Config{{Token: "t", TLS: &tls.Config{}}, {Token: "t", BehindProxy: true}} {
		if err := New(cfg).Check(open); err != nil {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}

func TestTLS(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"box.example"}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Token: "t", TLS: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}}
	s := serveOn(t, cfg, "https://"+l.Addr().String(), l)
	s.http.Transport.(*http.Transport).TLSClientConfig = &tls.Config{InsecureSkipVerify: true}
	a := s.do("GET", "/events", head("Authorization", "Bearer t", "Host", "box.example"), nil)
	if a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := s.do("GET", "/events", nil, nil); a.status != 401 {
		t.Errorf("without a token: %d", a.status)
	}
}

// The socket's clients need no token and no name.
func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c.sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := serveOn(t, Config{Token: "t"}, "http://aep-collector", l)
	s.http.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	s.post(ev("s", 0, 1))
	if got := dataLines(s.replay("from=all")); len(got) != 1 {
		t.Errorf("got %q", got)
	}
}

func TestIdleExit(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const idle = time.Second
	// before comes when others can connect, and the time has not begun. It does
	// not run before in says that who came is in: a busy machine takes its time.
	start := func(t *testing.T, before func(tcp net.Listener, path string), in func(*Collector) bool) chan error {
		tcp, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, strings.ReplaceAll(t.Name(), "/", "-"))
		unix, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		before(tcp, path)
		c := New(Config{IdleExit: idle})
		done := make(chan error, 1)
		go func() { done <- c.Serve(t.Context(), tcp, unix) }()
		within(t, "who came is in", func() bool { c.touch(); return in(c) })
		return done
	}
	ended := func(done chan error, within time.Duration) bool {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			return true
		case <-time.After(within):
			return false
		}
	}
	t.Run("nobody", func(t *testing.T) {
		done := start(t, func(net.Listener, string) {}, func(c *Collector) bool { return c.ready.Load() })
		if !ended(done, time.Minute) {
			t.Error("it goes on")
		}
	})
	t.Run("a quiet wrapper", func(t *testing.T) {
		var conn net.Conn
		done := start(t, func(_ net.Listener, path string) {
			var err error
			if conn, err = net.Dial("unix", path); err != nil {
				t.Fatal(err)
			}
		}, func(c *Collector) bool { return c.local.Load() > 0 })
		if ended(done, 2*idle) {
			t.Error("it ended under a wrapper")
		}
		conn.Close()
		if !ended(done, time.Minute) {
			t.Error("it goes on")
		}
	})
	t.Run("a watcher", func(t *testing.T) {
		var conn net.Conn
		done := start(t, func(tcp net.Listener, _ string) {
			var err error
			if conn, err = net.Dial("tcp", tcp.Addr().String()); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(conn, "GET /stream HTTP/1.1\r\nHost: %s\r\n\r\n", tcp.Addr())
		}, func(c *Collector) bool { return c.hub.watching() > 0 })
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		if ended(done, 2*idle) {
			t.Error("it ended under a watcher")
		}
		conn.Close()
		if !ended(done, time.Minute) {
			t.Error("it goes on")
		}
	})
}

// Slow senders are given up, and hold nobody up.
func TestSlowSenders(t *testing.T) {
	const soon = 100 * time.Millisecond
	for _, tt := range []struct {
		name       string
		limits     Limits
		send, want string
	}{
		{"a header that does not end", Limits{Header: soon}, "GET /events HTTP/1.1\r\nHost: localhost\r\nX-A: ", ""},
		{"a body that does not end", Limits{BodyTimeout: soon}, "POST /events HTTP/1.1\r\nHost: localhost\r\nAEP-Version: 0.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n{", "400 Bad Request"},
		{"nothing at all", Limits{Header: soon}, "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := serve(t, Config{Limits: tt.limits})
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			io.WriteString(conn, tt.send)
			got, err := io.ReadAll(conn)
			if err != nil {
				t.Errorf("the connection stays open: %v", err)
			}
			if !strings.Contains(string(got), tt.want) {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestConnectionLimit(t *testing.T) {
	s := serve(t, Config{Limits: Limits{Connections: 2}})
	a, b := s.open("", nil), s.open("", nil)
	addr := strings.TrimPrefix(s.base, "http://")
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
	_ = conn.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 1)); n > 0 {
		t.Fatalf("a third connection is served: %v", err)
	}
	a.resp.Body.Close()
	_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
	if got, err := io.ReadAll(conn); err != nil || !strings.Contains(string(got), "200 OK") {
		t.Errorf("%v %q", err, got)
	}
	_ = b
}

func TestReadyWhileDraining(t *testing.T) {
	c := New(Config{})
	ask := func() int {
		rec := newRecorder()
		req, _ := http.NewRequest("GET", "http://localhost/readyz", nil)
		c.Handler().ServeHTTP(rec, req)
		return rec.status
	}
	if got := ask(); got != 503 {
		t.Errorf("before Serve: %d", got)
	}
	c.ready.Store(true)
	if got := ask(); got != 200 {
		t.Errorf("serving: %d", got)
	}
	close(c.draining)
	if got := ask(); got != 503 {
		t.Errorf("draining: %d", got)
	}
}

type recorder struct {
	h      http.Header
	status int
}

func newRecorder() *recorder                    { return &recorder{h: http.Header{}} }
func (r *recorder) Header() http.Header         { return r.h }
func (r *recorder) Write(p []byte) (int, error) { return len(p), nil }
func (r *recorder) WriteHeader(s int)           { r.status = s }

func writeLog(t *testing.T, dir, agent, session string, age time.Duration, lines ...string) {
	t.Helper()
	path := filepath.Join(dir, agent, session+".jsonl")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	when := time.Now().Add(-age)
	if err := os.Chtimes(path, when, when); err != nil {
		t.Fatal(err)
	}
}

func TestReload(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lo[g]s")
	writeLog(t, dir, "a", "old", time.Hour, ev("old", 0, 0), ev("old", 0, 1))
	writeLog(t, dir, "a", "new", time.Minute, ev("new", 0, 0), "junk", "", ev("new", 1, 0), ev("new", 1, 0), `{"aep":"0.1","torn`)
	s := serve(t, Config{LogDir: dir})
	want := []string{ev("old", 0, 0), ev("old", 0, 1), ev("new", 0, 0), ev("new", 1, 0)}
	if got := dataLines(s.replay("from=all")); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	// The wrapper goes on, and sends again what it is not sure of.
	live := s.open("", nil)
	s.post(ev("new", 1, 0), ev("new", 1, 1))
	live.data(ev("new", 1, 0), ev("new", 1, 1))
	if got := dataLines(s.replay(from("new", 0, 0))); !slices.Equal(got, []string{ev("new", 1, 0), ev("new", 1, 1)}) {
		t.Errorf("got %q", got)
	}
}

// Of a log too long its end is read, and a consumer that was before it hears so.
func TestReloadIsBounded(t *testing.T) {
	dir := t.TempDir()
	var lines []string
	for i := range int64(1000) {
		lines = append(lines, ev("s", 0, i))
	}
	writeLog(t, dir, "a", "s", 0, lines...)
	writeLog(t, dir, "a", "ancient", time.Hour, ev("ancient", 0, 0))
	size := int64(len(lines[999])+1) * 10
	c := New(Config{Limits: Limits{ReloadBytes: size}})
	if err := c.Reload(dir); err != nil {
		t.Fatal(err)
	}
	b := c.hub.store.sessions["s"]
	if b == nil || len(b.items) != 10 || b.items[0].Seq != 990 || c.hub.store.sessions["ancient"] != nil {
		t.Fatalf("%d sessions, %+v", len(c.hub.store.sessions), b)
	}
	for _, tt := range []struct {
		seq       int64
		exhausted bool
	}{{988, true}, {989, false}, {990, false}} {
		_, earliest, exhausted := b.resume(event.Position{Seq: tt.seq})
		if exhausted != tt.exhausted || earliest.Seq != 990 {
			t.Errorf("from %d: %v, earliest %v", tt.seq, exhausted, earliest)
		}
	}
	if err := c.Reload(filepath.Join(dir, "missing")); err != nil {
		t.Errorf("a directory that is not there: %v", err)
	}
}

// The page is static: whatever agents send never becomes part of it.
func TestPagePolicy(t *testing.T) {
	s := serve(t, Config{})
	a := s.do("GET", "/", nil, nil)
	csp := a.header.Get("Content-Security-Policy")
	if a.status != 200 || !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") {
		t.Fatalf("%d, CSP %q", a.status, csp)
	}
	if m := regexp.MustCompile(`(?is)<script(?:\s[^>]*)?>\s*[^<\s]|\son\w+\s*=|<style|\sstyle\s*=|javascript:|https?://`).FindString(a.body); m != "" {
		t.Errorf("the page holds %q", m)
	}
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"]+)"`).FindAllStringSubmatch(a.body, -1) {
		if a := s.do("GET", m[1], nil, nil); a.status != 200 {
			t.Errorf("%s: %d", m[1], a.status)
		}
	}
	js := s.do("GET", "/page/app.js", nil, nil).body
	for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "localStorage", "new Function"} {
		if strings.Contains(js, bad) {
			t.Errorf("the script uses %s", bad)
		}
	}
}

func TestManySessionsStayBounded(t *testing.T) {
	s := newStore(Limits{SessionEvents: 10, SessionBytes: 1 << 20, Sessions: 100, HeldBytes: 200 << 10}.withDefaults())
	for i := range 10_000 {
		s.admit(mustItem(t, ev(fmt.Sprint("s", i), 0, 0)), uint64(i+1))
	}
	if len(s.sessions) > 100 || s.bytes > 200<<10 || s.events != len(s.seen) || s.events != len(s.sessions) {
		t.Errorf("%d sessions, %d bytes, %d events, %d remembered", len(s.sessions), s.bytes, s.events, len(s.seen))
	}
	if s.newest.session != "s9999" || s.sessions["s9999"] == nil {
		t.Errorf("the newest is %s", s.newest.session)
	}
	// Written last, kept longest.
	first := s.oldest.session
	s.admit(mustItem(t, ev(first, 0, 1)), 20_000)
	for i := range 50 {
		s.admit(mustItem(t, ev(fmt.Sprint("x", i), 0, 0)), uint64(30_000+i))
	}
	if s.sessions[first] == nil {
		t.Error("the session written last went first")
	}
	// One event larger than its session may hold leaves the floor behind it.
	if _, held := s.admit(mustItem(t, ev(first, 0, 2, `"data":{"x":"`+strings.Repeat("x", 2<<20)+`"}`)), 40_000); held != nil {
		t.Error("it is held")
	}
	if b := s.sessions[first]; b != nil && (len(b.items) != 0 || b.floor.Seq != 2) {
		t.Errorf("%+v", b)
	}
}
