package collector

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// The page is static, and asks for nothing that is not its own: whatever agents
// send never becomes part of it, and no address that it was opened by goes
// anywhere.
func TestPageHeaders(t *testing.T) {
	s := serve(t, Config{Token: "secret"})
	paths := []string{"/"}
	files, err := pageFiles.ReadDir("page")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() != "index.html" {
			paths = append(paths, "/page/"+f.Name())
		}
	}
	for _, path := range paths {
		a := s.do("GET", path, nil, nil)
		if a.status != 200 || a.body == "" {
			t.Errorf("%s: %d", path, a.status)
		}
		for name, want := range map[string]string{
			"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-cache",
		} {
			if got := a.header.Get(name); got != want {
				t.Errorf("%s: %s is %q, want %q", path, name, got, want)
			}
		}
		csp := a.header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'", "script-src 'self'", "style-src 'self'", "connect-src 'self'", "base-uri 'none'", "form-action 'none'",
			"frame-ancestors 'none'", "require-trusted-types-for 'script'", "trusted-types 'none'"} {
			if !slices.Contains(strings.Split(csp, "; "), want) {
				t.Errorf("%s: the policy lacks %s: %q", path, want, csp)
			}
		}
		for _, bad := range []string{"unsafe", "*", "http:", "https:", "data:", "blob:"} {
			if strings.Contains(csp, bad) {
				t.Errorf("%s: the policy has %s: %q", path, bad, csp)
			}
		}
		// Nothing from elsewhere, nothing that makes text markup or code, and
		// nothing that is kept when the tab is closed.
		for _, bad := range []string{
			`innerHTML`, `outerHTML`, `insertAdjacentHTML`, `document\.write`, `\beval\(`, `new Function`, `createContextualFragment`, `setHTML`, `DOMParser`, `srcdoc`,
			`localStorage`, `indexedDB`, `document\.cookie`, `access_token`, `\bimport\(`, `serviceWorker`, `postMessage\(['"{]`,
			`(?:src|href)\s*=\s*["']?(?:https?:)?//`, `url\(\s*["']?(?:https?:)?//`, `@import`, `\bon(?:click|load|error|input|submit)\s*=\s*["']`, `<style`, `\sstyle\s*=`, `javascript:`,
		} {
			if m := regexp.MustCompile(bad).FindString(a.body); m != "" {
				t.Errorf("%s has %q", path, m)
			}
		}
		if m := regexp.MustCompile(`https?://[^"'\s]+`).FindAllString(a.body, -1); path != "/page/icon.svg" && len(m) > 0 {
			t.Errorf("%s names %q", path, m)
		}
	}
	index := s.do("GET", "/", nil, nil).body
	if regexp.MustCompile(`(?is)<script(?:\s[^>]*)?>\s*[^<\s]`).MatchString(index) {
		t.Error("the page has an inline script")
	}
	for _, want := range []string{`<html lang="en">`, `name="viewport"`, `name="referrer" content="no-referrer"`, `role="status"`, `<main`, `<nav`} {
		if !strings.Contains(index, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	// Each id that the scripts reach for is there.
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".js") {
			continue
		}
		src, err := pageFiles.ReadFile("page/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\$\('([^']+)'\)`).FindAllSubmatch(src, -1) {
			if !strings.Contains(index, `id="`+string(m[1])+`"`) {
				t.Errorf("%s: no element is called %s", f.Name(), m[1])
			}
		}
	}
}

func offer(token string) []string {
	return []string{subprotocol, tokenProtocol + base64.RawURLEncoding.EncodeToString([]byte(token))}
}

// browse dials as a browser does.
func (s *server) browse(offers ...string) (*websocket.Conn, *http.Response, error) {
	return websocket.Dial(s.t.Context(), s.base+"/socket", &websocket.DialOptions{
		HTTPClient: s.http, HTTPHeader: head("Origin", s.base), Subprotocols: offers,
	})
}

func (s *server) browser(token string) *peer {
	s.t.Helper()
	ws, _, err := s.browse(offer(token)...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = ws.CloseNow() })
	return &peer{t: s.t, ws: ws}
}

// A browser gives its token as a protocol that it offers: it decides what the
// connection may, and stands in no answer and no log.
func TestOfferedToken(t *testing.T) {
	const all, watcher = "all-ro!es~token", "watching-only"
	s := serve(t, Config{Tokens: []Token{{Value: all, Roles: AllRoles}, {Value: watcher, Roles: Watch}}})
	for _, tt := range []struct {
		name   string
		offers []string
		status int
	}{
		{"all roles", offer(all), 101},
		{"watch", offer(watcher), 101},
		{"another's", offer("guess"), 401},
		{"none", []string{"aep"}, 401},
		{"not base64", []string{"aep", "aep.bearer.$$$"}, 401},
		{"empty", []string{"aep", "aep.bearer."}, 401},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ws, resp, err := s.browse(tt.offers...)
			if resp == nil || resp.StatusCode != tt.status {
				t.Fatalf("%v, %v", resp, err)
			}
			if err != nil {
				return
			}
			defer func() { _ = ws.CloseNow() }()
			if got := resp.Header.Values("Sec-WebSocket-Protocol"); len(got) != 1 || got[0] != "aep" {
				t.Errorf("the protocol is %q", got)
			}
		})
	}
	// What is refused is logged: without the token.
	s.do("GET", "/stream", head("Authorization", "Bearer wrong-token-here"), nil)
	s.do("GET", "/stream?access_token=wrong-token-there", nil, nil)
	s.do("POST", "/link/exchange", head("Content-Type", "application/json"), strings.NewReader(`{"code":"a-code-that-was-used"}`))
	s.stop()
	s.done <- <-s.done // all that is logged is
	for _, secret := range []string{all, watcher, "wrong-token", "a-code-that", base64.RawURLEncoding.EncodeToString([]byte(all))} {
		if strings.Contains(s.log.String(), secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
}

// What pages elsewhere can try: to be taken for ours by another name for our
// address, or to have a visitor's browser send for them. The token is in no
// cookie, so nothing that a browser adds by itself is a proof; and what names
// another origin, or another host, is refused before it is looked at.
func TestForeignPages(t *testing.T) {
	s := serve(t, Config{Token: "secret"})
	own := strings.TrimPrefix(s.base, "http://")
	upgrade := func(h http.Header) http.Header {
		h.Set("Connection", "Upgrade")
		h.Set("Upgrade", "websocket")
		h.Set("Sec-WebSocket-Version", "13")
		h.Set("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
		return h
	}
	bearer := func(pairs ...string) http.Header { return head(append(pairs, "Authorization", "Bearer secret")...) }
	for _, tt := range []struct {
		name, method, path string
		header             http.Header
		status             int
	}{
		{"a name that was rebound", "GET", "/", head("Host", "evil.example"), 403},
		{"a name that was rebound, with our port", "GET", "/events", bearer("Host", "evil.example:8787"), 403},
		{"a name that looks like ours", "GET", "/", head("Host", "127.0.0.1.evil.example"), 403},
		{"a name that was rebound, on the socket", "GET", "/socket", upgrade(bearer("Host", "evil.example")), 403},
		{"a rebound name that names itself the origin", "GET", "/socket", upgrade(bearer("Host", "evil.example", "Origin", "http://evil.example")), 403},
		{"another origin's handshake", "GET", "/socket", upgrade(bearer("Origin", "https://evil.example")), 403},
		{"a sandbox's handshake", "GET", "/socket", upgrade(bearer("Origin", "null")), 403},
		{"another port's handshake", "GET", "/socket", upgrade(bearer("Origin", "http://127.0.0.1:1")), 403},
		{"another origin's form", "POST", "/events", bearer("Origin", "https://evil.example", "Content-Type", "text/plain", "AEP-Version", "0.1"), 403},
		{"another origin's form, without a token", "POST", "/events", head("Origin", "https://evil.example", "Content-Type", "application/x-www-form-urlencoded"), 403},
		{"another origin reads the stream", "GET", "/stream", bearer("Origin", "https://evil.example"), 403},
		{"another origin uses a link", "POST", "/link/exchange", head("Origin", "https://evil.example", "Content-Type", "application/json"), 403},
		{"another origin makes a link", "POST", "/link", bearer("Origin", "https://evil.example", "Content-Type", "application/json"), 403},
		{"a preflight", "OPTIONS", "/events", head("Origin", "https://evil.example", "Access-Control-Request-Method", "POST"), 403},
		{"our own page", "GET", "/events", bearer("Origin", "http://"+own), 200},
		{"a cookie is no proof", "GET", "/stream", head("Cookie", "token=secret; Authorization=Bearer secret", "Origin", "http://"+own), 401},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := s.do(tt.method, tt.path, tt.header, nil)
			if a.status != tt.status {
				t.Fatalf("%d %s", a.status, a.body)
			}
			if a.header.Get("Access-Control-Allow-Origin") != "" || a.header.Get("Set-Cookie") != "" {
				t.Errorf("headers: %v", a.header)
			}
		})
	}
}

// A token that only watches commands nothing, whatever it says in its hello,
// and the endpoint says so before anybody tries.
func TestWatcherCommandsNothing(t *testing.T) {
	var log bytes.Buffer
	s := serve(t, Config{Tokens: []Token{{Value: "all", Roles: AllRoles}, {Value: "watch", Roles: Watch}}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	target := s.dial("", head("Authorization", "Bearer all"))
	target.greet("emitter", accepts("control.attention.respond"))
	target.say(notice("s", 1))
	target.barrier() // what it claims it has claimed
	watcher := s.browser("watch")
	h := watcher.greet("consumer", accepts("control.attention.respond"))
	if caps, _ := h["capabilities"].(map[string]any); caps == nil || caps["control"] != nil {
		t.Errorf("the capabilities: %v", h)
	}
	watcher.say(`{"type":"roster","id":"r"}`)
	if r := watcher.hear(); len(r["entries"].([]any)) != 1 {
		t.Fatalf("the roster: %v", r)
	}
	command := `{"aep":"0.1","id":"c1","type":"control.attention.respond","subject":"q","time":"2026-01-02T03:04:05.678Z","source":"aep://browser/agent/aep-wrap-page","agent":"aep-wrap-page","session":"s","data":{"answer":{"option":"allow"}}}`
	watcher.say(command)
	if f := watcher.hear(); f["type"] != "error" || f["code"] != "unauthorized" || f["cause"] != "c1" {
		t.Errorf("the refusal: %v", f)
	}
	// By POST, as an event, it goes to nobody either.
	if a := s.do("POST", "/events", head("AEP-Version", "0.1", "Content-Type", "application/json", "Authorization", "Bearer watch"), strings.NewReader(command)); a.status != 403 {
		t.Errorf("POST: %d %s", a.status, a.body)
	}
	// The next thing that the target hears is what one with the right sends.
	sender := s.browser("all")
	sender.greet("consumer")
	sender.say(strings.Replace(command, `"c1"`, `"c2"`, 1))
	if got := target.hear(); got["id"] != "c2" {
		t.Errorf("the target heard %v", got)
	}
}

// A command that is sent again reaches its target byte by byte as it was, so
// that the target knows it again; and the ack that it repeats reaches the
// sender once more.
func TestReplayedCommand(t *testing.T) {
	s := serve(t, Config{Token: "secret"})
	target := s.dial("", head("Authorization", "Bearer secret"))
	target.greet("emitter", accepts("control.pause"))
	target.say(notice("s", 1))
	target.barrier() // what it claims it has claimed
	sender := s.browser("secret")
	sender.greet("consumer")
	sender.say(`{"type":"subscribe","id":"a","filter":{"type":["control.*"],"session":"s"}}`)
	if f := sender.hear(); f["type"] != "subscribed" {
		t.Fatalf("%v", f)
	}
	command := `{"aep":"0.1","id":"c1","type":"control.pause","time":"2026-01-02T03:04:05.678Z","source":"aep://browser/agent/aep-wrap-page","agent":"aep-wrap-page","session":"s","data":{}}`
	ack := ev("s", 0, 2, `"cause":"c1"`)
	ack = strings.Replace(ack, "progress.status", "control.accepted", 1)
	for range 3 {
		sender.say(command)
		if raw := target.line(); raw != command {
			t.Fatal(raw)
		}
		target.say(ack)
		acks := 0
		for acks == 0 {
			raw := sender.line()
			var m map[string]any
			if json.Unmarshal([]byte(raw), &m) != nil {
				t.Fatal(raw)
			}
			if m["type"] == "control.accepted" {
				acks++
				if raw != ack {
					t.Errorf("the ack is %s", raw)
				}
			}
		}
	}
}
