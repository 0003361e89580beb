package collector

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
)

// peer is the other side of a socket.
type peer struct {
	t     *testing.T
	ws    *websocket.Conn
	pings bool // they are heard too
}

func (s *server) dial(query string, header http.Header) *peer {
	s.t.Helper()
	p, resp, err := s.tryDial(query, header)
	if err != nil {
		s.t.Fatalf("dial: %v (%v)", err, resp)
	}
	return p
}

func (s *server) tryDial(query string, header http.Header) (*peer, *http.Response, error) {
	ws, resp, err := websocket.Dial(s.t.Context(), s.base+"/socket?"+query, &websocket.DialOptions{HTTPClient: s.http, HTTPHeader: header})
	if err != nil {
		return nil, resp, err
	}
	ws.SetReadLimit(64 << 20)
	s.t.Cleanup(func() { _ = ws.CloseNow() })
	return &peer{t: s.t, ws: ws}, resp, nil
}

// hello is a peer that has said and heard hello.
func (s *server) hello(role string, more ...string) *peer {
	s.t.Helper()
	p := s.dial("", nil)
	p.greet(role, more...)
	return p
}

func (p *peer) greet(role string, more ...string) map[string]any {
	p.t.Helper()
	p.say(fmt.Sprintf(`{"type":"hello","versions":["0.1"],"role":%q%s}`, role, strings.Join(append([]string{""}, more...), ",")))
	h := p.hear()
	if h["type"] != "hello" {
		p.t.Fatalf("hello: %v", h)
	}
	return h
}

func accepts(types ...string) string {
	raw, _ := json.Marshal(types)
	return fmt.Sprintf(`"identity":{"agent":"a","instance":"i"},"capabilities":{"emits":["session"],"control":{"accepts":%s,"ack_window_ms":10000}}`, raw)
}

func (p *peer) say(frames ...string) {
	p.t.Helper()
	for _, f := range frames {
		if err := p.ws.Write(p.t.Context(), websocket.MessageText, []byte(f)); err != nil {
			p.t.Fatalf("say %.100s: %v", f, err)
		}
	}
}

func (p *peer) raw() (string, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
	defer cancel()
	_, raw, err := p.ws.Read(ctx)
	return string(raw), err
}

// next reads what comes, and answers pings as whoever lives does: a test that
// takes long is not taken for silent.
func (p *peer) next() (string, error) {
	for {
		raw, err := p.raw()
		if err != nil || p.pings || !strings.HasPrefix(raw, `{"type":"ping",`) {
			return raw, err
		}
		_ = p.ws.Write(p.t.Context(), websocket.MessageText, []byte(`{"type":"pong"}`)) // where that fails, so does the next read
	}
}

func (p *peer) line() string {
	p.t.Helper()
	raw, err := p.next()
	if err != nil {
		p.t.Fatalf("nothing came: %v", err)
	}
	return raw
}

func (p *peer) hear() map[string]any {
	p.t.Helper()
	var m map[string]any
	raw := p.line()
	if err := json.Unmarshal([]byte(raw), &m); err != nil {
		p.t.Fatalf("%s: %v", raw, err)
	}
	return m
}

// wants wants frames with these members next.
func (p *peer) wants(frames ...string) {
	p.t.Helper()
	for _, f := range frames {
		var want map[string]any
		if err := json.Unmarshal([]byte(f), &want); err != nil {
			p.t.Fatal(err)
		}
		got := p.hear()
		for k := range got {
			if _, ok := want[k]; !ok {
				delete(got, k)
			}
		}
		if d := cmp.Diff(want, got); d != "" {
			p.t.Fatalf("want %s:\n%s", f, d)
		}
	}
}

// barrier wants everything that was said to be taken in, with no other answer
// than those given.
func (p *peer) barrier(answers ...string) {
	p.t.Helper()
	p.say(`{"type":"ping","t":"barrier"}`)
	p.wants(append(answers, `{"type":"pong","t":"barrier"}`)...)
}

// closes wants the connection to end with a code.
func (p *peer) closes(code websocket.StatusCode) {
	p.t.Helper()
	raw, err := p.raw()
	if err == nil {
		p.t.Fatalf("it goes on: %s", raw)
	}
	if got := websocket.CloseStatus(err); got != code {
		p.t.Fatalf("it ended with %v (%v), want %v", got, err, code)
	}
}

func (p *peer) claims(session string) {
	p.t.Helper()
	p.say(ev(session, 0, 0))
	p.barrier()
}

func command(id, session, typ string) string {
	return fmt.Sprintf(`{"aep":"0.1", "id":%q,"type":%q,"time":"2026-01-02T03:04:05Z","source":"aep://h/agent/me","agent":"me","session":%q,"data":{ "x" : 1 }}`, id, typ, session)
}

// A collector with a token, and sockets that bring it.
func (s *server) as(token string) *server {
	c := *s
	tr := &bearer{token, &http.Transport{}}
	c.http = &http.Client{Transport: tr}
	s.t.Cleanup(tr.base.CloseIdleConnections)
	return &c
}

type bearer struct {
	token string
	base  *http.Transport
}

func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.token)
	return b.base.RoundTrip(r)
}

func TestSocketHello(t *testing.T) {
	t.Parallel()
	const patience = 3 * time.Second
	s := serve(t, Config{Limits: Limits{Hello: patience}})
	for _, c := range []struct{ name, say, want string }{
		{"an event first", ev("s", 0, 0), `{"type":"error","code":"hello-required"}`},
		{"a frame first", `{"type":"ping"}`, `{"type":"error","code":"hello-required"}`},
		{"no JSON", `hello`, `{"type":"error","code":"hello-required"}`},
		{"an array", `[{"type":"hello"}]`, `{"type":"error","code":"hello-required"}`},
		{"silence", "", `{"type":"error","code":"hello-required"}`},
		{"another version", `{"type":"hello","versions":["9.9"],"role":"consumer"}`, `{"type":"error","code":"version-unsupported","versions":["0.1"]}`},
		{"no version", `{"type":"hello","role":"consumer"}`, `{"type":"error","code":"version-unsupported","versions":["0.1"]}`},
		{"versions no array", `{"type":"hello","versions":"0.1","role":"consumer"}`, `{"type":"error","code":"version-unsupported","versions":["0.1"]}`},
		{"versions of numbers", `{"type":"hello","versions":[0.1],"role":"consumer"}`, `{"type":"error","code":"version-unsupported","versions":["0.1"]}`},
		{"no role", `{"type":"hello","versions":["0.1"]}`, `{"type":"error","code":"invalid-hello"}`},
		{"another role", `{"type":"hello","versions":["0.1"],"role":7}`, `{"type":"error","code":"invalid-hello"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := s.dial("", nil)
			if c.say != "" {
				p.say(c.say)
			}
			p.wants(c.want)
			p.closes(websocket.StatusPolicyViolation)
		})
	}
	var greeted []*peer
	for _, hello := range []string{
		`{"type":"hello","versions":["0.2","0.1"],"role":"both","identity":{"agent":"a"},"capabilities":{"futurecap":{"x":[1]}},"more":null}`,
		`{"type":"hello","versions":["0.1"],"role":"consumer"}`,
		`{"type":"hello","versions":["0.1"],"role":"emitter","identity":"me","capabilities":[1]}`,
		`{"type":"hello","versions":["0.1"],"role":"emitter","identity":{"agent":7},"capabilities":{"control":{"accepts":[1,"x"]},"emits":"all"}}`,
	} {
		p := s.dial("", nil)
		p.say(hello)
		got := p.hear()
		if got["type"] != "hello" || !cmp.Equal(got["versions"], []any{"0.1"}) || got["role"] != "both" {
			t.Errorf("%s: %v", hello, got)
		}
		caps := got["capabilities"].(map[string]any)
		if caps["roster"] == nil || caps["control"] != nil || !cmp.Equal(caps["replay"], map[string]any{"buffer": 10000.0, "all": true}) {
			t.Errorf("capabilities: %v", caps)
		}
		greeted = append(greeted, p)
	}
	time.Sleep(patience + patience/4)
	for _, p := range greeted {
		p.barrier() // the hello's deadline is not the connection's
	}
}

func TestSocketFrames(t *testing.T) {
	s := serve(t, Config{Limits: Limits{From: 3, Subscriptions: 4, Line: 100_000}})
	p := s.hello("both")
	for _, c := range []struct{ say, want string }{
		{`{"type":"zigzag","id":7}`, ""},
		{`{"type":"zigzag","aep":"0.1"}`, ""},
		{`{"type":"hello","versions":["9"]}`, ""},
		{`{"type":"pong","t":[]}`, ""},
		{`{"type":"closing","delivered":7}`, ""},
		{`{"type":"error"}`, ""},
		{`{"type":"error","cause":"x","code":"y"}`, ""},
		{`{"type":"ping"}`, `{"type":"pong"}`},
		{`{"type":"ping","t":{"a":[1.50]}}`, `{"type":"pong","t":{"a":[1.5]}}`},
		{`{"type":"ping","t":"` + strings.Repeat("x", 2000) + `"}`, `{"type":"pong"}`},
		{`x`, `{"type":"error","code":"invalid-json"}`},
		{``, `{"type":"error","code":"invalid-json"}`},
		{`[]`, `{"type":"error","code":"invalid-json"}`},
		{`null`, `{"type":"error","code":"invalid-json"}`},
		{`{"type":"ping"}{"type":"ping"}`, `{"type":"error","code":"invalid-json"}`},
		{`{"type":"ping","type":"pong"}`, `{"type":"error","code":"invalid-json"}`},
		{"{\"type\":\"ping\",\"t\":\"\xff\"}", `{"type":"error","code":"invalid-json"}`},
		{strings.Repeat(`{"type":`, 1000) + `1` + strings.Repeat("}", 1000), `{"type":"error","code":"invalid-json"}`},
		{strings.Repeat("[", 99_999), `{"type":"error","code":"invalid-json"}`},
		{`{}`, `{"type":"error","code":"invalid-event"}`},
		{`{"type":7,"id":8}`, `{"type":"error","code":"invalid-event"}`},
		{`{"type":"tool.completed","id":"e"}`, `{"type":"error","code":"invalid-event","cause":"e"}`},
		{strings.Replace(ev("s", 0, 1), `"seq":1`, `"seq":-1`, 1), `{"type":"error","code":"invalid-event","cause":"s-0-1"}`},
		{`{"type":"roster"}`, `{"type":"error","code":"invalid-frame"}`},
		{`{"type":"roster","id":7}`, `{"type":"error","code":"invalid-frame"}`},
		{`{"type":"roster","id":"r"}`, `{"type":"roster","id":"r","entries":[]}`},
		{`{"type":"unsubscribe"}`, `{"type":"error","code":"invalid-frame"}`},
		{`{"type":"unsubscribe","id":"never"}`, `{"type":"unsubscribed","id":"never"}`},
		{`{"type":"subscribe"}`, `{"type":"error","code":"invalid-filter"}`},
		{`{"type":"subscribe","id":7}`, `{"type":"error","code":"invalid-filter"}`},
		{`{"type":"subscribe","id":""}`, `{"type":"error","code":"invalid-filter"}`},
		{`{"type":"subscribe","id":"a","filter":null}`, `{"type":"error","code":"invalid-filter","id":"a"}`},
		{`{"type":"subscribe","id":"a","filter":[]}`, `{"type":"error","code":"invalid-filter","id":"a"}`},
		{`{"type":"subscribe","id":"a","filter":{"data":1}}`, `{"type":"error","code":"invalid-filter","id":"a"}`},
		{`{"type":"subscribe","id":"a","filter":{"type":"*"}}`, `{"type":"error","code":"invalid-filter","id":"a"}`},
		{`{"type":"subscribe","id":"a","filter":{"epoch":1.5}}`, `{"type":"error","code":"invalid-filter","id":"a"}`},
		{`{"type":"subscribe","id":"a","from":{}}`, `{"type":"error","code":"invalid-filter","id":"a"}`},
		{`{"type":"subscribe","id":"a","from":null}`, `{"type":"error","code":"invalid-filter","id":"a"}`},
		{`{"type":"subscribe","id":"a","from":"none"}`, `{"type":"error","code":"invalid-filter","id":"a"}`},
		{`{"type":"subscribe","id":"a","from":[{"session":"s","seq":-1}]}`, `{"type":"error","code":"invalid-filter","id":"a"}`},
		{`{"type":"subscribe","id":"a","from":[{"session":"s","seq":1e99}]}`, `{"type":"error","code":"invalid-filter","id":"a"}`},
		{`{"type":"subscribe","id":"a","from":[{"session":7,"seq":1}]}`, `{"type":"error","code":"invalid-filter","id":"a"}`},
		{`{"type":"subscribe","id":"a","from":[` + strings.Repeat(`{"session":"s","seq":1},`, 3) + `{"session":"s","seq":1}]}`, `{"type":"error","code":"limit-exceeded","id":"a"}`},
		{`{"type":"subscribe","id":"a","capture":"all"}`, `{"type":"error","code":"invalid-filter","id":"a"}`},
		{`{"type":"subscribe","id":"a","capture":7}`, `{"type":"error","code":"invalid-filter","id":"a"}`},
		{`{"type":"subscribe","id":"a","future":{}}`, `{"type":"subscribed","id":"a"}`},
		{`{"type":"subscribe","id":"a"}`, `{"type":"error","code":"invalid-filter","id":"a"}`},
		{`{"type":"subscribe","id":"b","from":[]}`, `{"type":"subscribed","id":"b"}`},
		{`{"type":"subscribe","id":"c","from":"all"}`, `{"type":"subscribed","id":"c"}`},
		{`{"type":"subscribe","id":"d","capture":"none"}`, `{"type":"subscribed","id":"d"}`},
		{`{"type":"subscribe","id":"e"}`, `{"type":"error","code":"limit-exceeded","id":"e"}`},
		{`{"type":"unsubscribe","id":"a"}`, `{"type":"unsubscribed","id":"a"}`},
		{`{"type":"subscribe","id":"e"}`, `{"type":"subscribed","id":"e"}`},
	} {
		p.say(c.say)
		if c.want == "" {
			p.barrier()
		} else {
			p.barrier(c.want)
		}
	}
	t.Run("binary", func(t *testing.T) {
		p := s.hello("emitter")
		if err := p.ws.Write(t.Context(), websocket.MessageBinary, []byte(ev("s", 0, 0))); err != nil {
			t.Fatal(err)
		}
		p.wants(`{"type":"error","code":"binary-unsupported"}`)
		p.closes(websocket.StatusUnsupportedData)
	})
	t.Run("too big", func(t *testing.T) {
		p := s.hello("emitter")
		_ = p.ws.Write(t.Context(), websocket.MessageText, bytes.Repeat([]byte("x"), 10<<20))
		p.closes(websocket.StatusMessageTooBig)
	})
	t.Run("no upgrade", func(t *testing.T) {
		a := s.do("GET", "/socket", nil, nil)
		if a.status != http.StatusUpgradeRequired || !strings.Contains(a.body, `"upgrade-required"`) {
			t.Errorf("%d %s", a.status, a.body)
		}
	})
	if n := s.open_(); n > 1 {
		t.Errorf("%d sockets are open", n)
	}
}

func (s *server) open_() int {
	n := 0
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if n = s.Collector.open.count(); n <= 1 {
			break
		}
	}
	return n
}

func TestSocketSubscriptions(t *testing.T) {
	s := serve(t, Config{Limits: Limits{SessionEvents: 4}})
	var lines []string
	for i := range int64(8) {
		lines = append(lines, ev("s", 1, i))
	}
	s.post(lines...)
	s.post(ev("t", 0, 0, `"subject":"x"`))
	p := s.hello("consumer")
	// In one burst: each is answered in order, and its events come behind.
	p.say(`{"type":"subscribe","id":"gap","filter":{"session":"s"},"from":[{"session":"s","epoch":1,"seq":0}]}`)
	p.wants(`{"type":"subscribed","id":"gap"}`, `{"type":"replay-exhausted","sub":"gap","session":"s","earliest":{"epoch":1,"seq":4}}`)
	for _, l := range lines[4:] {
		if got := p.line(); got != l {
			t.Fatalf("got %s want %s", got, l)
		}
	}
	p.say(`{"type":"unsubscribe","id":"gap"}`, `{"type":"subscribe","id":"all","from":"all","filter":{"session":"t"}}`)
	p.wants(`{"type":"unsubscribed","id":"gap"}`, `{"type":"subscribed","id":"all"}`)
	if got := p.line(); got != ev("t", 0, 0, `"subject":"x"`) {
		t.Fatal(got)
	}
	// A ceiling is the subscription's own.
	p.say(`{"type":"subscribe","id":"low","filter":{"session":"u"},"capture":"metadata"}`, `{"type":"unsubscribe","id":"all"}`)
	p.wants(`{"type":"subscribed","id":"low"}`, `{"type":"unsubscribed","id":"all"}`)
	run := strings.Replace(ev("u", 0, 0, `"run":"r"`, `"capture":"redacted"`, `"data":{"trigger":"user","prompt":"CANARY"}`), "progress.status", "run.started", 1)
	s.post(run)
	got := p.line()
	if strings.Contains(got, "CANARY") || !strings.Contains(got, `"capture":"metadata"`) || !strings.Contains(got, `"trigger":"user"`) {
		t.Error(got)
	}
	// Two subscriptions are two streams; a redelivery traverses them.
	p.say(`{"type":"subscribe","id":"full","filter":{"session":"u"}}`)
	p.wants(`{"type":"subscribed","id":"full"}`)
	s.post(run)
	a, b := p.line(), p.line()
	if (a == run) == (b == run) {
		t.Errorf("got %s\nand %s", a, b)
	}
	p.barrier()
}

// The bytes in are the bytes out, from every binding to every binding.
func TestSocketBytes(t *testing.T) {
	s := serve(t, Config{})
	odd := `{ "id":"1","aep":"0.1", "type":"tool.completed","time":"2026-01-02T03:04:05.000000001+02:00","source":"aep://h/agent/a","agent":"\u0061","session":"s\u00e9ß\/","seq":1e2,"x9":12345678901234567890,"data":{"z":1.50,"a":"\ud83d\ude00<>&` + "\u2028" + `"}}`
	watch, sse := s.hello("consumer"), s.open("", nil)
	watch.say(`{"type":"subscribe","id":"a"}`)
	watch.wants(`{"type":"subscribed","id":"a"}`)
	em := s.hello("emitter")
	em.say(odd)
	em.barrier()
	s.post(odd)
	for range 2 {
		if got := watch.line(); got != odd {
			t.Errorf("socket:\n%s\n%s", got, odd)
		}
		sse.data(odd)
	}
	if got := dataLines(s.replay("from=all")); !cmp.Equal(got, []string{odd}) {
		t.Errorf("replay: %s", got)
	}
}

func TestRoster(t *testing.T) {
	s := serve(t, Config{Token: "t", Limits: Limits{Probe: time.Hour}}).as("t")
	roster := func(p *peer) []any {
		t.Helper()
		p.say(`{"type":"roster","id":"r"}`)
		got := p.hear()
		if got["id"] != "r" {
			t.Fatal(got)
		}
		return got["entries"].([]any)
	}
	watch := s.hello("consumer")
	s.post(ev("posted", 0, 0))
	if got := roster(watch); len(got) != 0 {
		t.Errorf("a POST claims: %v", got)
	}
	a := s.dial("", nil)
	a.greet("emitter", `"identity":{"agent":"a","instance":"h/1","card":null},"capabilities":{"control":{ "ack_window_ms":10000, "accepts":["control.pause"],"x.y":{"n":1.50} },"emits":["session","x"]}`)
	if got := roster(watch); len(got) != 0 {
		t.Errorf("a hello claims: %v", got)
	}
	a.claims("s1")
	b := s.hello("both")
	b.claims("s1")

	watch.say(`{"type":"roster","id":"v"}`)
	raw := watch.line()
	verbatim := `{"session":"s1","agent":"a","instance":"h/1","control":{ "ack_window_ms":10000, "accepts":["control.pause"],"x.y":{"n":1.50} },"emits":["session","x"]}`
	var compact bytes.Buffer
	_ = json.Compact(&compact, []byte(verbatim))
	if !strings.Contains(raw, verbatim) && !strings.Contains(raw, compact.String()) || !strings.Contains(raw, `{"session":"s1"}`) {
		t.Errorf("roster: %s", raw)
	}
	a.pings = true
	a.wants(`{"type":"ping"}`)
	// Commands, attention.routed and redeliveries by POST claim nothing.
	b.say(strings.Replace(ev("s9", 0, 0), `"seq":0,"epoch":0`, `"subject":"q"`, 1))
	b.wants(`{"type":"error","code":"invalid-event"}`)
	b.say(strings.Replace(strings.Replace(ev("s9", 0, 0), `"seq":0,"epoch":0`, `"subject":"q"`, 1), "progress.status", "attention.routed", 1))
	b.barrier()
	if got := roster(watch); len(got) != 2 {
		t.Errorf("routed claims: %v", got)
	}
	// The end of a session ends its claim, and so does the end of a connection.
	a.say(strings.Replace(ev("s1", 0, 5), "progress.status", "session.ended", 1))
	a.barrier()
	if got := roster(watch); !cmp.Equal(got, []any{map[string]any{"session": "s1"}}) {
		t.Errorf("after session.ended: %v", got)
	}
	b.ws.Close(websocket.StatusNormalClosure, "")
	within(t, "a claim ends with its connection", func() bool { return len(roster(watch)) == 0 })
	a.say(`{"type":"roster","id":"no"}`)
	a.wants(`{"type":"error","id":"no","code":"unauthorized"}`)
	a.say(`{"type":"subscribe","id":"no"}`)
	a.wants(`{"type":"error","id":"no","code":"unauthorized"}`)
	a.barrier()
	watch.say(ev("s", 0, 0))
	watch.wants(`{"type":"error","cause":"s-0-0","code":"unauthorized"}`)
	watch.barrier()
}

func TestCommands(t *testing.T) {
	s := serve(t, Config{Token: "t", Limits: Limits{Probe: time.Hour}}).as("t")
	target := s.hello("emitter", accepts("control.pause"))
	target.claims("s")
	other := s.hello("emitter", accepts("control.pause"))
	other.claims("o")
	watch := s.open("", nil)
	sender := s.hello("consumer")

	pause := command("c1", "s", "control.pause")
	for range 2 { // a retry is the same command, and is delivered again
		sender.say(pause)
		if got := target.line(); got != pause {
			t.Fatalf("forwarded: %s", got)
		}
		watch.data(pause)
	}
	sender.barrier()
	for _, c := range []struct{ name, say, want string }{
		{"not accepted", command("c2", "s", "control.resume"), `{"type":"error","cause":"c2","code":"unsupported"}`},
		{"a vendor's", command("c3", "s", "x.acme.control.instruct"), `{"type":"error","cause":"c3","code":"unsupported"}`},
		{"nobody's", command("c4", "none", "control.pause"), `{"type":"error","cause":"c4","code":"no-route"}`},
		{"with seq", strings.Replace(command("c5", "s", "control.pause"), `"data"`, `"seq":1,"data"`, 1), `{"type":"error","cause":"c5","code":"invalid-event"}`},
	} {
		sender.say(c.say)
		sender.barrier(c.want)
	}
	second := s.hello("emitter", accepts("control.pause"))
	second.claims("s")
	sender.say(command("c6", "s", "control.pause"))
	sender.barrier(`{"type":"error","cause":"c6","code":"ambiguous"}`)
	second.ws.Close(websocket.StatusNormalClosure, "")
	for i := 0; ; i++ {
		sender.say(command(fmt.Sprint("c7-", i), "s", "control.pause"))
		sender.say(`{"type":"ping"}`)
		if sender.hear()["type"] == "pong" {
			break
		}
		sender.wants(`{"type":"pong"}`)
		if i == 100 {
			t.Fatal("it stays ambiguous")
		}
	}
	// History holds what was routed, once, and no refusal.
	var types []string
	for _, l := range dataLines(s.replay("from=all&filter=" + url.QueryEscape(`{"session":"s"}`))) {
		var e struct{ Type, ID string }
		_ = json.Unmarshal([]byte(l), &e)
		if !strings.HasPrefix(e.ID, "c7") {
			types = append(types, e.Type+" "+e.ID)
		}
	}
	if want := []string{"progress.status s-0-0", "control.pause c1"}; !cmp.Equal(types, want) {
		t.Errorf("history: %q, want %q", types, want)
	}
	// What a target cannot take comes back to who sent it.
	target.say(`{"type":"error","cause":"c1","code":"busy","detail":"later"}`)
	sender.wants(`{"type":"error","cause":"c1","code":"busy","detail":"later"}`)
	other.barrier()
	// Not by POST.
	a := s.do("POST", "/events", head("AEP-Version", "0.1", "Content-Type", "application/json"), strings.NewReader(pause))
	if a.status != http.StatusForbidden || !strings.Contains(a.body, `"unauthorized"`) {
		t.Errorf("POST: %d %s", a.status, a.body)
	}
}

func TestCommandsWantAToken(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    Config
		token  string
		detail string
	}{
		{"none configured", Config{}, "", ""},
		{"of another role", Config{Tokens: []Token{{Value: "w", Roles: Watch | Emit}}}, "w", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, c.cfg).as(c.token)
			target := s.hello("emitter", accepts("control.pause"))
			target.claims("s")
			sender := s.hello("consumer")
			sender.say(command("c", "s", "control.pause"))
			sender.barrier(`{"type":"error","cause":"c","code":"unauthorized"}`)
			target.barrier() // nothing came before the pong
			if got := s.replay("from=all"); strings.Contains(got, "control.pause") {
				t.Error(got)
			}
		})
	}
}

func TestSocketTokens(t *testing.T) {
	s := serve(t, Config{Token: "root", Tokens: []Token{{Value: "e", Roles: Emit}, {Value: "w", Roles: Watch}, {Value: "c", Roles: Control}}, Origins: []string{"https://watch.example"}})
	for _, c := range []struct {
		query  string
		header http.Header
		status int
	}{
		{"", nil, 401},
		{"access_token=no", nil, 401},
		{"access_token=root", head("Authorization", "Bearer no"), 401},
		{"access_token=root", head("Origin", "https://evil.example"), 403},
		{"access_token=root", head("Host", "evil.example"), 403},
		{"access_token=root", nil, 101},
		{"access_token=root", head("Origin", "https://watch.example"), 101},
		{"", head("Authorization", "Bearer e"), 101},
	} {
		opts := &websocket.DialOptions{HTTPClient: s.http, HTTPHeader: c.header, Host: c.header.Get("Host")}
		ws, resp, err := websocket.Dial(t.Context(), s.base+"/socket?"+c.query, opts)
		if resp == nil || resp.StatusCode != c.status {
			t.Errorf("%q %v: %v %v, want %d", c.query, c.header, resp, err, c.status)
		}
		if err == nil {
			ws.CloseNow()
		}
	}
	for _, c := range []struct {
		token, role, say, want string
	}{
		{"w", "emitter", "", `{"type":"error","code":"unauthorized"}`},
		{"e", "consumer", "", `{"type":"error","code":"unauthorized"}`},
		{"e", "both", `{"type":"subscribe","id":"a"}`, `{"type":"error","id":"a","code":"unauthorized"}`},
		{"e", "both", `{"type":"roster","id":"a"}`, `{"type":"error","id":"a","code":"unauthorized"}`},
		{"c", "consumer", `{"type":"subscribe","id":"a"}`, `{"type":"error","id":"a","code":"unauthorized"}`},
		{"c", "consumer", command("x", "s", "control.pause"), `{"type":"error","cause":"x","code":"no-route"}`},
		{"w", "both", ev("s", 0, 0), `{"type":"error","cause":"s-0-0","code":"unauthorized"}`},
		{"w", "consumer", `{"type":"subscribe","id":"a"}`, `{"type":"subscribed","id":"a"}`},
	} {
		p := s.dial("access_token="+c.token, nil)
		if c.say == "" {
			p.say(fmt.Sprintf(`{"type":"hello","versions":["0.1"],"role":%q}`, c.role))
			p.wants(c.want)
			p.closes(websocket.StatusPolicyViolation)
			continue
		}
		p.greet(c.role)
		p.say(c.say)
		p.barrier(c.want)
	}
	for _, c := range []struct {
		token, method, path string
		status              int
	}{
		{"e", "GET", "/stream?live=0", 403}, {"e", "GET", "/metrics", 403}, {"e", "POST", "/events", 426}, {"e", "GET", "/events", 200},
		{"w", "POST", "/events", 403}, {"w", "GET", "/metrics", 200}, {"w", "GET", "/stream?live=0", 200},
		{"c", "GET", "/stream?live=0", 403}, {"", "GET", "/metrics", 401}, {"", "GET", "/readyz", 200},
	} {
		if a := s.do(c.method, c.path, head("Authorization", "Bearer "+c.token), nil); a.status != c.status {
			t.Errorf("%s %s %s: %d %s, want %d", c.token, c.method, c.path, a.status, a.body, c.status)
		}
	}
	s.SetTokens([]Token{{Value: "new", Roles: Watch}})
	if a := s.do("GET", "/stream?live=0", head("Authorization", "Bearer root"), nil); a.status != 401 {
		t.Errorf("an old token: %d", a.status)
	}
	s.SetTokens(nil)
	if a := s.do("GET", "/stream?live=0", nil, nil); a.status != 401 {
		t.Errorf("with the tokens gone everybody is let in: %d", a.status)
	}
	if strings.Contains(s.log.String(), "root") {
		t.Error("a token is in the log")
	}
}

func TestParseTokens(t *testing.T) {
	got, err := ParseTokens([]byte("# mine\n\nabc emit\n  def\twatch,control # a page\r\n"))
	if want := []Token{{Value: "abc", Roles: Emit}, {Value: "def", Roles: Watch | Control}}; err != nil || !cmp.Equal(got, want) {
		t.Errorf("%v %v", got, err)
	}
	for text, want := range map[string]string{
		"secret":                     "line 1",
		"\nsecret all":               "line 2",
		"secret emit watch":          "line 1",
		"secret emit\nsecret watch":  "twice",
		"s\u00e9cret emit":           "ASCII",
		"secret ,emit":               "want one or more",
		"secret emit,\nother watch,": "line 1",
	} {
		if _, err := ParseTokens([]byte(text)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// half is a connection whose network is gone: the kernel takes what is sent.
func (s *server) half(session string) net.Conn {
	s.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(s.base, "http://"))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { conn.Close() })
	fmt.Fprintf(conn, "GET /socket?access_token=t HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n\r\n")
	for _, m := range []string{`{"type":"hello","versions":["0.1"],"role":"emitter",` + accepts("control.pause") + `}`, ev(session, 0, 0)} {
		conn.Write(masked(m))
	}
	return conn
}

// masked is a client's text frame.
func masked(payload string) []byte {
	b := appendText(nil, []byte(payload))
	head := b[: len(b)-len(payload) : len(b)-len(payload)]
	head[1] |= 0x80
	return append(append(head, 0, 0, 0, 0), payload...) // a mask of zeros is one
}

// A wrapper that comes again is not held up by what its network left behind.
func TestAnOlderClaimIsPinged(t *testing.T) {
	t.Parallel()
	const probe = 2 * time.Second
	s := serve(t, Config{Token: "t", Limits: Limits{Probe: probe}}).as("t")
	s.half("s")
	sender := s.hello("consumer")
	route := func(id string) map[string]any {
		sender.say(command(id, "s", "control.pause"), `{"type":"ping"}`)
		got := sender.hear()
		if got["type"] != "pong" {
			sender.wants(`{"type":"pong"}`)
		}
		return got
	}
	for i := 0; route(fmt.Sprint("a", i))["code"] == "no-route"; i++ {
		time.Sleep(10 * time.Millisecond)
	}
	again := s.hello("emitter", accepts("control.pause"))
	began := time.Now()
	again.claims("s")
	if got := route("b"); got["code"] != "ambiguous" && time.Since(began) < probe {
		t.Errorf("two claims: %v", got)
	}
	n := 0
	within(t, "the dead connection loses its claim", func() bool { n++; return route(fmt.Sprint("c", n))["type"] == "pong" })
	again.line() // the command
	// One that lives answers, and stays.
	third := s.hello("emitter", accepts("control.pause"))
	began = time.Now()
	third.claims("s")
	again.pings = true
	again.wants(`{"type":"ping"}`)
	again.say(`{"type":"pong"}`)
	again.barrier()
	late := time.Since(began) >= probe // a busy machine answers too late
	time.Sleep(probe + probe/4)
	if got := route("d"); got["code"] != "ambiguous" && !late {
		t.Errorf("a live claim was dropped: %v", got)
	}
}

func TestSilenceEndsASocket(t *testing.T) {
	t.Parallel()
	const silence = 2 * time.Second
	s := serve(t, Config{Limits: Limits{Ping: silence / 10, Silence: silence}})
	p := s.hello("consumer")
	p.pings = true
	var answered time.Time
	pings := 0
	for {
		m := p.hear()
		if m["type"] == "closing" {
			if m["reason"] != "silent" {
				t.Error(m)
			}
			break
		}
		if m["type"] != "ping" || m["t"] == nil {
			t.Fatal(m)
		}
		if pings++; pings == 1 {
			time.Sleep(silence / 4)
			answered = time.Now()
			p.say(`{"type":"pong"}`)
		}
	}
	if d := time.Since(answered); pings < 2 || d < silence-silence/10 { // one that answers lives on
		t.Errorf("%d pings, and it ended %v after an answer", pings, d)
	}
	p.closes(websocket.StatusPolicyViolation)
}

func TestDrainOfSockets(t *testing.T) {
	s := serve(t, Config{})
	p, em, mute := s.hello("consumer"), s.hello("emitter"), s.dial("", nil)
	p.say(`{"type":"subscribe","id":"a","filter":{"session":"s"}}`, `{"type":"subscribe","id":"b"}`)
	p.wants(`{"type":"subscribed","id":"a"}`, `{"type":"subscribed","id":"b"}`)
	em.say(ev("s", 2, 7))
	em.barrier()
	p.line()
	p.line()
	stall := s.half("h") // answers no close frame
	for end := time.Now().Add(time.Minute); s.Collector.open.count() < 4 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	start := time.Now()
	s.stop()
	em.wants(`{"type":"closing","reason":"shutting-down","delivered":[]}`)
	em.closes(websocket.StatusGoingAway)
	got := p.hear()
	for got["type"] != "closing" { // an event of the connection that stalls may come first
		got = p.hear()
	}
	if len(got["delivered"].([]any)) < 2 || !strings.Contains(fmt.Sprint(got["delivered"]), "map[epoch:2 seq:7 session:s sub:a]") {
		t.Errorf("closing: %v", got)
	}
	p.closes(websocket.StatusGoingAway)
	mute.hear()
	mute.closes(websocket.StatusGoingAway)
	select {
	case err := <-s.done:
		s.done <- err
	case <-time.After(time.Minute):
		t.Fatal("Serve does not end")
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Logf("the end took %v: the machine is busy, or it is not bounded", d)
	}
	stall.Close()
	if s.claims.count() != 0 || s.Collector.open.count() != 0 {
		t.Error("something is left")
	}
}

// Who reads nothing is ended with its positions, and delays nobody.
func TestASocketThatDoesNotRead(t *testing.T) {
	s := serve(t, Config{Limits: Limits{SessionEvents: 50, QueueEvents: 10, QueueBytes: 10 << 10}})
	slow, quick := s.hello("consumer"), s.hello("consumer")
	for _, p := range []*peer{slow, quick} {
		p.say(`{"type":"subscribe","id":"a"}`)
		p.wants(`{"type":"subscribed","id":"a"}`)
	}
	fat := `"subject":"` + strings.Repeat("x", 60_000) + `"`
	const n = 400
	got := make(chan int, 1)
	go func() {
		i := 0
		for ; i < n; i++ {
			raw, err := quick.next()
			if err != nil || !strings.Contains(raw, `"aep"`) {
				break
			}
		}
		got <- i
	}()
	em := s.hello("emitter")
	for i := range int64(n) {
		em.say(notice("s", i, fat))
		em.barrier()
	}
	if i := <-got; i != n {
		t.Errorf("the quick one got %d of %d", i, n)
	}
	seen := -1.0
	for {
		raw, err := slow.next()
		if err != nil {
			var ce websocket.CloseError
			if errors.As(err, &ce) {
				t.Fatalf("closed with %v before a word", ce.Code)
			}
			break // it was cut in the middle of a write: it knows its own position
		}
		var m struct {
			Type      string
			Seq       float64
			Delivered []delivered
		}
		if err := json.Unmarshal([]byte(raw), &m); err != nil {
			t.Fatal(err)
		}
		if m.Type == "closing" {
			if len(m.Delivered) != 1 || float64(m.Delivered[0].Seq) != seen {
				t.Errorf("closing says %v, seen %v", m.Delivered, seen)
			}
			break
		}
		if m.Seq != seen+1 {
			t.Fatalf("seq %v after %v: lost without a word", m.Seq, seen)
		}
		seen = m.Seq
	}
	if seen == n-1 {
		t.Error("it was not slow")
	}
	if s.hub.counts.cut.Load() == 0 {
		t.Error("not counted")
	}
}

// Who asks and does not listen is not read any more.
func TestASocketThatOnlyAsks(t *testing.T) {
	s := serve(t, Config{Limits: Limits{Stall: 500 * time.Millisecond}})
	p := s.hello("consumer")
	ping := `{"type":"ping","t":"` + strings.Repeat("x", 900) + `"}`
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sent := 0
	for ; sent < 1_000_000; sent++ {
		if p.ws.Write(ctx, websocket.MessageText, []byte(ping)) != nil {
			break
		}
	}
	if ctx.Err() != nil || sent == 1_000_000 {
		t.Errorf("it was let on for %d pings", sent)
	}
	if n := s.open_(); n > 1 {
		t.Errorf("%d sockets open", n)
	}
}

func TestSocketsKeepAnIdleCollector(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const idle = 2 * time.Second
	s := serveOn(t, Config{IdleExit: idle}, "http://"+l.Addr().String(), l)
	within(t, "readiness", func() bool { s.touch(); return s.ready.Load() })
	p := s.dial("", nil)
	s.touch()
	p.greet("emitter")
	time.Sleep(idle + idle/2)
	p.barrier()
	p.ws.Close(websocket.StatusNormalClosure, "")
	select {
	case err := <-s.done:
		s.done <- err
	case <-time.After(time.Minute):
		t.Error("it does not end")
	}
}

func TestMetricsAndFindings(t *testing.T) {
	s := serve(t, Config{Token: "t"}).as("t")
	em := s.hello("emitter")
	em.claims("s")
	end := strings.Replace(ev("s", 0, 9), "progress.status", "session.ended", 1)
	wrong := strings.Replace(ev("p", 0, 0, `"data":{"status":7}`), "progress.status", "tool.completed", 1)
	s.post(ev("s", 0, 5), ev("s", 0, 3), strings.Replace(ev("s", 0, 5), `"id":"s-0-5"`, `"id":"other"`, 1), end, ev("s", 0, 10), wrong)
	sender := s.hello("consumer")
	sender.say(command("c", "none", "control.pause"))
	sender.barrier(`{"type":"error","code":"no-route"}`)
	for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		a := s.do("GET", "/metrics", nil, nil)
		missing := ""
		for _, want := range []string{
			`aep_collector_events_received_total{binding="post"} 6`,
			`aep_collector_events_received_total{binding="socket"} 1`,
			`aep_collector_findings_total{rule="late-position"} 1`,
			`aep_collector_findings_total{rule="position-taken"} 1`,
			`aep_collector_findings_total{rule="after-terminal"} 1`,
			`aep_collector_findings_total{rule="payload"}`,
			`aep_collector_commands_total{outcome="no-route"} 1`,
			`aep_collector_sockets 2`, `aep_collector_claims 1`, `aep_collector_sessions_held 2`,
			`go_goroutines`, `process_cpu_seconds_total`,
		} {
			if !strings.Contains(a.body, want) {
				missing += want + "\n"
			}
		}
		if missing == "" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("missing:\n%s\n%s", missing, a.body)
		}
	}
	if len(dataLines(s.replay("from=all"))) != 7 {
		t.Error("something was not taken in")
	}
}
