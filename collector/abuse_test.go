package collector

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"aep-wrap/event"
)

// prompt is a connection that says hello with its request: no patience is too
// short for it, however slow the machine.
type prompt struct {
	net.Conn
	hello []byte
}

func (c *prompt) Write(p []byte) (int, error) {
	hello := c.hello
	c.hello = nil
	n, err := c.Conn.Write(append(bytes.Clone(p), hello...))
	return min(n, len(p)), err
}

// lives wants the endpoint to answer everybody else as ever.
func (s *server) lives() {
	s.t.Helper()
	tr := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, network, address)
		return &prompt{conn, masked(`{"type":"hello","versions":["0.1"],"role":"both"}`)}, err
	}}
	defer tr.CloseIdleConnections()
	at := *s
	at.http = &http.Client{Transport: tr}
	p := at.dial("", nil)
	p.wants(`{"type":"hello"}`)
	p.say(`{"type":"subscribe","id":"lives","filter":{"session":"lives"}}`)
	p.wants(`{"type":"subscribed","id":"lives"}`)
	line := ev("lives", 0, time.Now().UnixNano())
	line = strings.Replace(line, `"id":"lives-0-`, `"id":"l`, 1)
	s.post(line)
	if got := p.line(); got != line {
		s.t.Fatalf("got %s", got)
	}
	p.ws.Close(websocket.StatusNormalClosure, "")
}

// dialRaw is a TCP connection to the endpoint.
func (s *server) dialRaw() net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

const upgrade = "GET /socket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n"

func TestAThousandSocketsWithoutHello(t *testing.T) {
	s := serve(t, Config{Limits: Limits{Hello: time.Second}})
	const n = 1000
	conns := make([]net.Conn, n)
	for i := range conns {
		conns[i] = s.dialRaw()
		io.WriteString(conns[i], upgrade)
	}
	s.lives()
	for _, c := range conns {
		c.SetReadDeadline(time.Now().Add(2 * time.Minute))
		all, err := io.ReadAll(c)
		if err != nil || !bytes.Contains(all, []byte("hello-required")) {
			t.Fatalf("%v: %q", err, all)
		}
	}
	if left := s.open_(); left > 1 {
		t.Errorf("%d sockets are left", left)
	}
	s.lives()
}

// Requests, heads and frames that come byte by byte end by their deadlines.
func TestSlowloris(t *testing.T) {
	s := serve(t, Config{Limits: Limits{Header: 300 * time.Millisecond, BodyTimeout: 300 * time.Millisecond, Hello: 300 * time.Millisecond, Ping: 50 * time.Millisecond, Silence: 300 * time.Millisecond}})
	hello := string(masked(`{"type":"hello","versions":["0.1"],"role":"both"}`))
	for name, c := range map[string]struct{ first, drip string }{
		"head":       {"GET /stream HTTP/1.1\r\nHost: localhost\r\n", "X-A: b\r\n"},
		"body":       {"POST /events HTTP/1.1\r\nHost: localhost\r\nAEP-Version: 0.1\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n", " "},
		"hello":      {upgrade + hello[:9], " "},
		"next frame": {upgrade + hello + "\x81\xfe\xff\xff\x00\x00\x00\x00", " "},
		"control":    {upgrade + hello + "\x81\xfe\xff\xff\x00\x00\x00\x00", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := s.dialRaw()
			io.WriteString(conn, c.first)
			var wg sync.WaitGroup
			wg.Go(func() {
				for range 3000 { // a minute
					if _, err := io.WriteString(conn, c.drip); err != nil {
						return
					}
					time.Sleep(20 * time.Millisecond)
				}
			})
			conn.SetReadDeadline(time.Now().Add(time.Minute))
			_, err := io.Copy(io.Discard, conn)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("it is let on")
			}
			conn.Close()
			wg.Wait()
		})
	}
}

// Frames that the WebSocket protocol does not have.
func TestBrokenWebSocketFrames(t *testing.T) {
	s := serve(t, Config{})
	hello := string(masked(`{"type":"hello","versions":["0.1"],"role":"both"}`))
	for name, frames := range map[string]string{
		"unmasked":          "\x81\x02{}",
		"reserved bits":     "\xf1\x80\x00\x00\x00\x00",
		"unknown opcode":    "\x83\x80\x00\x00\x00\x00",
		"long control":      "\x89\xfe\x00\xff\x00\x00\x00\x00",
		"a size of 2^63":    "\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff\x00\x00\x00\x00",
		"stray fragment":    "\x80\x80\x00\x00\x00\x00",
		"fragment in two":   "\x01\x80\x00\x00\x00\x00\x81\x80\x00\x00\x00\x00",
		"short close":       "\x88\x81\x00\x00\x00\x00x",
		"a close code of 0": "\x88\x82\x00\x00\x00\x00\x00\x00",
	} {
		t.Run(name, func(t *testing.T) {
			conn := s.dialRaw()
			io.WriteString(conn, upgrade+hello+frames+strings.Repeat("x", 100))
			conn.SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := io.Copy(io.Discard, conn); err != nil {
				if errors.Is(err, os.ErrDeadlineExceeded) {
					t.Error("it is let on")
				}
			}
		})
	}
	s.lives()
	if n := s.open_(); n > 1 {
		t.Errorf("%d sockets are left", n)
	}
}

// A message in fragments, with control frames between them, is one message.
func TestFragments(t *testing.T) {
	s := serve(t, Config{})
	conn := s.dialRaw()
	hello := masked(`{"type":"hello","versions":["0.1"],"role":"emitter"}`)
	io.WriteString(conn, upgrade)
	conn.Write(hello)
	line := ev("ß", 0, 0)
	for i := range len(line) { // also inside a character
		op := byte(0)
		if i == 0 {
			op = 1
		}
		if i == len(line)-1 {
			op |= 0x80
		}
		conn.Write([]byte{op, 0x81, 0, 0, 0, 0, line[i]})
		if i%50 == 0 {
			conn.Write([]byte{0x89, 0x80, 0, 0, 0, 0})
		}
	}
	within(t, "it arrives", func() bool { return len(dataLines(s.replay("from=all"))) > 0 })
	if got := dataLines(s.replay("from=all")); len(got) != 1 || got[0] != line {
		t.Errorf("%q", got)
	}
}

// Every member, of every kind of value, is answered; the endpoint lives.
func TestMembersOfEveryKind(t *testing.T) {
	s := serve(t, Config{})
	values := []string{`null`, `true`, `0`, `-0`, `-1`, `1.5`, `1e400`, `-1e400`, `9223372036854775807`, `9223372036854775808`, `""`, `"x"`, `"all"`, `"\u0000"`, `"\ud800"`, `"a\nb"`, `[]`, `[null]`, `[[]]`, `{}`, `{"a":null}`, `{"gte":"info"}`}
	p := s.hello("both")
	for _, base := range []string{
		`{"type":"subscribe","id":"a","filter":{},"from":[{"session":"s","epoch":0,"seq":0}],"capture":"full"}`,
		`{"type":"unsubscribe","id":"a"}`, `{"type":"roster","id":"a"}`, `{"type":"ping","t":1}`, `{"type":"pong","t":1}`,
		`{"type":"error","code":"x","cause":"y","detail":"z"}`, `{"type":"closing","reason":"x","delivered":[]}`, `{"type":"hello","versions":[],"role":"x"}`,
		ev("s", 0, 1, `"run":"r"`, `"cause":"c"`, `"severity":"info"`, `"capture":"full"`, `"traceparent":"t"`, `"ext":1`, `"data":{}`),
		command("c", "s", "control.pause"),
	} {
		var members map[string]json.RawMessage
		if err := json.Unmarshal([]byte(base), &members); err != nil {
			t.Fatal(err)
		}
		for name, was := range members {
			for _, v := range values {
				if name == "t" && strings.HasSuffix(v, "1e400") {
					continue // comes back as it is, and encoding/json does not read it
				}
				members[name] = json.RawMessage(v)
				raw, _ := json.Marshal(members)
				p.say(string(raw), `{"type":"ping","t":"here"}`)
				for m := p.hear(); m["t"] != "here"; m = p.hear() {
					if m["type"] == "error" && (m["code"] == nil || m["code"] == "") {
						t.Errorf("%s: %v", raw, m)
					}
				}
				if name == "id" || name == "filter" || name == "from" || name == "capture" {
					p.say(`{"type":"unsubscribe","id":"a"}`, `{"type":"unsubscribe","id":"x"}`, `{"type":"unsubscribe","id":"all"}`, `{"type":"unsubscribe","id":"\u0000"}`, `{"type":"unsubscribe","id":"\ufffd"}`, `{"type":"unsubscribe","id":"a\nb"}`, `{"type":"ping","t":"there"}`)
					for p.hear()["t"] != "there" {
					}
				}
			}
			members[name] = was
		}
	}
	for _, name := range []string{"filter", "from", "capture", "live"} {
		for _, v := range values {
			q := url.Values{name: {v}}
			if name != "live" {
				q.Set("live", "0")
			}
			a := s.do("GET", "/stream?"+q.Encode()+"&x", head("Last-Event-ID", ":::"), nil)
			if name == "live" && a.status == 200 || a.status != 200 && a.status != 400 {
				t.Errorf("%s=%s: %d", name, v, a.status)
			}
		}
	}
	s.lives()
}

// Fifty thousand events pass a consumer that reads nothing and one that reads
// late; what is held, and so what they cost, stays bounded.
func TestFiftyThousandEventsPass(t *testing.T) {
	l := Limits{SessionEvents: 2000, HeldBytes: 4 << 20, Silence: time.Hour}
	s := serve(t, Config{Limits: l})
	mute, late := s.hello("consumer"), s.hello("consumer")
	for _, p := range []*peer{mute, late} {
		p.say(`{"type":"subscribe","id":"a","filter":{"severity":"debug"}}`)
		p.wants(`{"type":"subscribed","id":"a"}`)
	}
	em := s.hello("emitter")
	const n = 50_000
	for i := range int64(n) {
		em.say(ev(fmt.Sprint("s", i%7), 0, i, `"severity":"debug"`, `"subject":"`+strings.Repeat("x", 200)+`"`))
	}
	em.barrier()
	s.hub.mu.Lock()
	held, behind := s.hub.store.bytes, len(s.hub.behind)
	queued := 0
	for _, c := range s.hub.consumers {
		queued += c.queued
	}
	s.hub.mu.Unlock()
	if held > 4<<20 || queued > 4<<20 {
		t.Errorf("held %d, queued %d bytes", held, queued)
	}
	t.Logf("held %d, queued %d, behind %d, dropped %d", held, queued, behind, s.hub.counts.dropped.Load())
	// It missed debug events alone, so it goes on, in order.
	last := map[string]int64{}
	for i := 0; i < 2000; i++ {
		var h struct {
			Session string
			Seq     int64
		}
		if err := json.Unmarshal([]byte(late.line()), &h); err != nil {
			t.Fatal(err)
		}
		if was, ok := last[h.Session]; ok && h.Seq <= was {
			t.Fatalf("%s: %d after %d", h.Session, h.Seq, was)
		}
		last[h.Session] = h.Seq
	}
	s.lives()
}

func TestManySessionsAndFilters(t *testing.T) {
	s := serve(t, Config{Limits: Limits{Sessions: 3000, Subscriptions: 2000}})
	p := s.hello("consumer")
	for i := range 2000 {
		p.say(fmt.Sprintf(`{"type":"subscribe","id":"%d","filter":{"session":"s%d"}}`, i, i*5))
		p.wants(fmt.Sprintf(`{"type":"subscribed","id":"%d"}`, i))
	}
	p.say(`{"type":"subscribe","id":"more"}`)
	p.wants(`{"type":"error","id":"more","code":"limit-exceeded"}`)
	em := s.hello("emitter", accepts("control.pause"))
	for i := range 10_000 {
		em.say(ev(fmt.Sprint("s", i), 0, 0))
		if i%500 != 499 {
			continue
		}
		em.barrier()
		for range 100 { // in time: who reads too slowly misses what is not important
			if got := p.line(); !strings.Contains(got, `"aep"`) {
				t.Fatal(got)
			}
		}
	}
	p.barrier()
	s.hub.mu.Lock()
	n := len(s.hub.store.sessions)
	s.hub.mu.Unlock()
	if n > 3000 {
		t.Errorf("%d sessions are held", n)
	}
	p.say(`{"type":"roster","id":"r"}`)
	if n := len(p.hear()["entries"].([]any)); n != 10_000 {
		t.Errorf("%d claims", n)
	}
	em.ws.Close(websocket.StatusNormalClosure, "")
	within(t, "no claim is left", func() bool { return s.claims.count() == 0 })
}

func TestTooMuchAtOnce(t *testing.T) {
	s := serve(t, Config{})
	many := bytes.Repeat([]byte(ev("s", 0, 1)+"\n"), 100_000)
	for _, c := range []struct {
		name   string
		body   []byte
		status int
		says   string
	}{
		{"a line of 10 MB", []byte(ev("s", 0, 1, `"data":{"x":"`+strings.Repeat("x", 10<<20)+`"}`)), 413, `"limit":"line"`},
		{"nested 100,000 deep", []byte(ev("s", 0, 1, `"data":`+strings.Repeat(`{"a":`, 100_000)+`1`+strings.Repeat("}", 100_000))), 400, `nested deeper`},
		{"a batch of 100,000", many[:min(len(many), 16<<20)], 413, `"limit":"batch"`},
		{"32 MB", bytes.Repeat([]byte(" "), 32<<20), 413, `"limit":"body"`},
		{"a line that is none", []byte(ev("s", 0, 1) + "\n" + ev("s", 0, 2) + "\n" + strings.Replace(ev("s", 0, 3), `"agent":"a"`, `"Agent":"a"`, 1) + "\n"), 400, `"line":3`},
	} {
		a := s.do("POST", "/events", ndjson, bytes.NewReader(c.body))
		if a.status != c.status || !strings.Contains(a.body, c.says) {
			t.Errorf("%s: %d %.300s", c.name, a.status, a.body)
		}
	}
	if s.hub.store.events != 0 {
		t.Error("something of a refused batch was taken in")
	}
	s.lives()
}

// FuzzFrame: whatever a frame is, it is answered, ignored or an event; the
// reader does not panic, and nothing that is answered is more than JSON.
func FuzzFrame(f *testing.F) {
	for _, seed := range []string{
		`{"type":"hello","versions":["0.1"],"role":"both","identity":{"agent":"a"},"capabilities":{"control":{"accepts":["control.pause"]},"emits":["x"]}}`,
		`{"type":"subscribe","id":"a","filter":{"type":["attention.*"],"severity":{"gte":"notice"}},"from":[{"session":"s","epoch":3,"seq":187}],"capture":"metadata"}`,
		`{"type":"subscribe","id":"a","from":"all"}`, `{"type":"unsubscribe","id":"a"}`, `{"type":"roster","id":"r"}`, `{"type":"ping","t":[1e3]}`,
		`{"type":"error","cause":"x","code":"busy"}`, `{"type":"zigzag"}`, ev("s", 0, 0), command("c", "s", "control.pause"), `{"type":"x.y"}`, "\x00", `{"type":"pi\u006eg"}`,
	} {
		f.Add([]byte(seed))
	}
	c := New(Config{Token: "t"})
	f.Fuzz(func(t *testing.T, raw []byte) {
		if tree, err := event.ParseObject(raw); err == nil {
			if g, err := parseHello(raw, tree); err == nil {
				for _, m := range []json.RawMessage{g.control, g.emits} {
					if m != nil && !json.Valid(m) {
						t.Errorf("declared %q", m)
					}
				}
			}
		}
		s := &socket{c: c, may: AllRoles, hello: greeting{role: roleBoth}, wire: &wire{}, claimed: map[string]*claim{}, subs: map[string]*sub{}, wake: make(chan struct{}, 1)}
		s.room = sync.NewCond(&s.mu)
		s.take(bytes.Clone(raw))
		s.publish()
		for out := s.out; len(out) > 0; {
			n, payload := frameOf(out)
			if !json.Valid(payload) {
				t.Fatalf("%q: said %q", raw, payload)
			}
			out = out[n:]
		}
		for _, sb := range s.subs {
			c.hub.unsubscribe(&sb.consumer)
		}
		for _, cl := range s.claimed {
			c.claims.drop(cl)
		}
	})
}

// frameOf is the first text frame of b.
func frameOf(b []byte) (n int, payload []byte) {
	head, size := 2, int(b[1])
	switch size {
	case 126:
		head, size = 4, int(b[2])<<8|int(b[3])
	case 127:
		head, size = 10, 0
		for _, c := range b[2:10] {
			size = size<<8 | int(c)
		}
	}
	return head + size, b[head : head+size]
}
