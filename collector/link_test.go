package collector

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aep-wrap/event"
)

var linkKey = []byte(strings.Repeat("k", 32))

func linkCall(t *testing.T, s *server, path, body string, header ...string) (answer, map[string]string) {
	t.Helper()
	h := head(append([]string{"Content-Type", "application/json"}, header...)...)
	a := s.do("POST", path, h, strings.NewReader(body))
	out := map[string]string{}
	_ = json.Unmarshal([]byte(a.body), &out)
	return a, out
}

// A link's code gives a device a token of its own, once: to watch and to
// command, and for nothing else.
func TestLink(t *testing.T) {
	s := serve(t, Config{Token: "own", Tokens: []Token{{Value: "boss", Roles: Watch | Control}}, LinkKey: linkKey})
	own := []string{"Authorization", "Bearer own"}

	made, link := linkCall(t, s, "/link", `{"seconds":3600}`, own...)
	if made.status != 200 || len(link["code"]) < 20 || link["roles"] != "watch,control" || made.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %s", made.status, made.body)
	}
	got, device := linkCall(t, s, "/link/exchange", `{"code":"`+link["code"]+`"}`)
	if got.status != 200 || device["roles"] != "watch,control" || got.header.Get("Cache-Control") != "no-store" {
		t.Fatalf("%d %s", got.status, got.body)
	}
	until, err := time.Parse(time.RFC3339, device["expires_at"])
	if left := time.Until(until); err != nil || left < 59*time.Minute || left > time.Hour {
		t.Errorf("expires_at %q", device["expires_at"])
	}
	// Once.
	if a, p := linkCall(t, s, "/link/exchange", `{"code":"`+link["code"]+`"}`); a.status != http.StatusGone || p["error"] != "link-used" {
		t.Errorf("a second time: %d %s", a.status, a.body)
	}
	bearer := []string{"Authorization", "Bearer " + device["token"]}
	if a := s.do("GET", "/stream?live=0", head(bearer...), nil); a.status != 200 {
		t.Errorf("the device watches: %d %s", a.status, a.body)
	}
	if a := s.do("GET", "/events", head(bearer...), nil); a.status != 200 || !strings.Contains(a.body, `"control"`) {
		t.Errorf("the device is told that it may command: %d %s", a.status, a.body)
	}
	h := head(append(bearer, "AEP-Version", event.Version, "Content-Type", "application/json")...)
	if a := s.do("POST", "/events", h, strings.NewReader(ev("s", 0, 0))); a.status != http.StatusForbidden {
		t.Errorf("the device emits: %d %s", a.status, a.body)
	}
	// Only the endpoint's own token makes links.
	for _, who := range [][]string{bearer, {"Authorization", "Bearer boss"}} {
		if a, _ := linkCall(t, s, "/link", `{}`, who...); a.status != http.StatusForbidden {
			t.Errorf("%s makes a link: %d %s", who[1], a.status, a.body)
		}
	}
	if a, _ := linkCall(t, s, "/link", `{}`); a.status != http.StatusUnauthorized {
		t.Errorf("nobody makes a link: %d %s", a.status, a.body)
	}
	// Neither codes nor tokens are in the log.
	if log := s.log.String(); !strings.Contains(log, "a device was let in") || strings.Contains(log, link["code"]) || strings.Contains(log, device["token"]) {
		t.Errorf("the log:\n%s", log)
	}
	// Another key, another world: what is open ends too.
	stream := s.open("", head(bearer...))
	defer stream.resp.Body.Close()
	_, link = linkCall(t, s, "/link", `{}`, own...)
	s.SetLinkKey([]byte(strings.Repeat("j", 32)))
	for open, late := true, time.After(time.Minute); open; {
		select {
		case <-stream.got:
		case <-stream.err:
			open = false
		case <-late:
			t.Fatal("the device's stream goes on")
		}
	}
	if a := s.do("GET", "/stream?live=0", head(bearer...), nil); a.status != http.StatusUnauthorized {
		t.Errorf("a token of the key before: %d", a.status)
	}
	if a, _ := linkCall(t, s, "/link/exchange", `{"code":"`+link["code"]+`"}`); a.status != http.StatusGone {
		t.Errorf("a code of the key before: %d", a.status)
	}
	s.SetLinkKey(linkKey)
	if a := s.do("GET", "/stream?live=0", head(bearer...), nil); a.status != 200 {
		t.Errorf("the key is back, as after a restart: %d", a.status)
	}
}

func TestLinkRefusals(t *testing.T) {
	s := serve(t, Config{Token: "own", LinkKey: linkKey})
	own := []string{"Authorization", "Bearer own"}
	for _, tt := range []struct {
		path, body string
		header     []string
		status     int
		says       string
	}{
		{"/link", `{"roles":"emit"}`, own, 400, "want watch"},
		{"/link", `{"roles":"watch,emit"}`, own, 400, "want watch"},
		{"/link", `{"roles":"root"}`, own, 400, "roles"},
		{"/link", `{"seconds":0}`, own, 400, "seconds"},
		{"/link", `{"seconds":1e9}`, own, 400, "seconds"},
		{"/link", `[]`, own, 400, "JSON object"},
		{"/link/exchange", `{"code":"` + strings.Repeat("x", 5000) + `"}`, nil, 400, "small"},
		{"/link/exchange", `{"code":""}`, nil, 410, "aep-wrap link"},
		{"/link/exchange", `{}`, nil, 410, "aep-wrap link"},
		{"/link/exchange", `{"code":"x"}`, []string{"Content-Type", "text/plain"}, 415, "application/json"},
		{"/link/exchange", `{"code":"x"}`, []string{"Origin", "https://evil.example"}, 403, "forbidden-origin"},
		{"/link/exchange", `{"code":"x"}`, []string{"Host", "evil.example"}, 403, "forbidden-host"},
	} {
		if a, _ := linkCall(t, s, tt.path, tt.body, tt.header...); a.status != tt.status || !strings.Contains(a.body, tt.says) {
			t.Errorf("%s %s %v: %d %s", tt.path, clip(tt.body), tt.header, a.status, a.body)
		}
	}
	if a := s.do("GET", "/link/exchange?code=x", nil, nil); a.status != 405 {
		t.Errorf("GET: %d", a.status)
	}
	none := serve(t, Config{Token: "own"})
	for _, path := range []string{"/link", "/link/exchange"} {
		if a, _ := linkCall(t, none, path, `{}`, own...); a.status != 404 {
			t.Errorf("without a key %s: %d %s", path, a.status, a.body)
		}
	}
	// Nobody's token is forged, nor another's roles or time.
	now := time.Now()
	l := &s.links
	good := sign(linkKey, Watch, now.Add(time.Hour))
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(good, devicePrefix))
	if err != nil {
		t.Fatal(err)
	}
	if l.roles(good, now) != Watch || l.roles(good, now.Add(time.Hour)) != 0 {
		t.Error("a good token is not good, or too long")
	}
	for i := range raw {
		bad := append([]byte(nil), raw...)
		bad[i] ^= 1
		if r := l.roles(devicePrefix+base64.RawURLEncoding.EncodeToString(bad), now); r != 0 {
			t.Errorf("byte %d changed: %v", i, r)
		}
	}
	for _, bad := range []string{"", devicePrefix, good[:len(good)-2], good + "A", good + "\n", strings.TrimPrefix(good, devicePrefix),
		sign([]byte(strings.Repeat("x", 32)), Watch, now.Add(time.Hour))} {
		if r := l.roles(bad, now); r != 0 {
			t.Errorf("%q: %v", bad, r)
		}
	}
	if r := l.roles(sign(linkKey, AllRoles, now.Add(time.Hour)), now); r&Emit != 0 {
		t.Error("a device emits")
	}
}

// Codes end, and there are never many.
func TestLinkCodes(t *testing.T) {
	l := &links{key: linkKey}
	now := time.Now()
	old, _ := l.mint(grant{roles: Watch, life: time.Hour}, now.Add(-codeLife))
	if _, _, _, ok := l.exchange(old, now); ok {
		t.Error("a code of five minutes ago is taken")
	}
	first, _ := l.mint(grant{roles: Watch, life: time.Hour}, now)
	for i := range maxCodes {
		l.mint(grant{roles: Watch, life: time.Hour}, now.Add(time.Duration(i+1)*time.Millisecond))
	}
	if len(l.codes) != maxCodes {
		t.Errorf("%d codes", len(l.codes))
	}
	if _, _, _, ok := l.exchange(first, now); ok {
		t.Error("the oldest code has not given way")
	}
	l.mint(grant{roles: Watch, life: time.Hour}, now.Add(2*codeLife))
	if len(l.codes) != 1 {
		t.Errorf("%d codes after they ended", len(l.codes))
	}
	if _, ok := (&links{}).mint(grant{}, now); ok {
		t.Error("a code without a key")
	}
}

// The local socket makes links too: its file mode is the proof.
func TestLinkByTheLocalSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := serveOn(t, Config{LinkKey: linkKey, Token: "own"}, "http://local", l)
	s.http.Transport.(*http.Transport).DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", path)
	}
	if a, link := linkCall(t, s, "/link", `{"roles":"watch"}`); a.status != 200 || link["roles"] != "watch" {
		t.Errorf("%d %s", a.status, a.body)
	} else if a, device := linkCall(t, s, "/link/exchange", fmt.Sprintf(`{"code":%q}`, link["code"])); a.status != 200 || device["roles"] != "watch" {
		t.Errorf("%d %s", a.status, a.body)
	}
}
