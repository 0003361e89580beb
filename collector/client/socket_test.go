package client

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// wsEndpoint is a /socket that plays a script: each line that begins with < is
// a frame that is waited for, and has to hold the text behind it; each other
// line is sent.
func wsEndpoint(t *testing.T, script ...string) SocketConfig {
	t.Helper()
	done := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer close(done)
		if r.URL.Path != "/socket" || r.Header.Get("Authorization") != "Bearer tok" {
			t.Errorf("%s %s", r.URL, r.Header)
		}
		ws, err := websocket.Accept(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer ws.CloseNow()
		for _, line := range script {
			want, wait := strings.CutPrefix(line, "<")
			if !wait {
				if err := ws.Write(r.Context(), websocket.MessageText, []byte(line)); err != nil {
					t.Error(err)
				}
				continue
			}
			_, raw, err := ws.Read(r.Context())
			if err != nil || !strings.Contains(string(raw), want) {
				t.Errorf("read %s, %v; want %s", raw, err, want)
				return
			}
		}
		ws.Close(websocket.StatusTryAgainLater, "come again")
	}))
	t.Cleanup(func() { <-done; s.Close() })
	return SocketConfig{Base: s.URL + "/", Token: "tok", HTTP: s.Client(), Agent: "me"}
}

const (
	wsHello = `{"type":"hello","versions":["0.1"],"role":"both","capabilities":{"control":{"accepts":[]}}}`
	wsEvent = `{"aep":"0.1","id":"1","type":"control.accepted","time":"2026-07-03T10:00:00Z","source":"aep://h/agent/a/session/s","agent":"a","session":"s","seq":1,"cause":"c"}`
)

func TestSocket(t *testing.T) {
	s, err := DialSocket(t.Context(), wsEndpoint(t,
		`<"role":"consumer"`, `{"type":"ping","t":7}`, `<{"t":7,"type":"pong"}`, wsHello,
		`<"roster"`, `{"type":"something-new"}`,
		`{"type":"roster","id":"roster","entries":[{"session":"s","agent":"a","instance":"i","control":{"accepts":["control.pause"],"ack_window_ms":1500},"emits":["run.*"]},{"session":"t"}]}`,
		`<"from":"all"`, `{"type":"error","id":"other","code":"x"}`, `{"type":"subscribed","id":"sub"}`,
		`<the command`, `{"type":"ping"}`, `<{"type":"pong"}`, `{"type":"notice"}`, `not JSON`, wsEvent,
		`{"type":"error","cause":"c","code":"no-route","detail":"nobody"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !s.Control {
		t.Error("commands are routed, and it is not told")
	}
	claims, err := s.Roster(t.Context())
	if err != nil || len(claims) != 2 || claims[0].Session != "s" || claims[0].Agent != "a" {
		t.Fatalf("%+v %v", claims, err)
	}
	if a := claims[0].Accepts(); len(a) != 1 || a[0] != "control.pause" || claims[0].Window() != 1500*time.Millisecond {
		t.Errorf("%v %v", a, claims[0].Window())
	}
	if claims[1].Accepts() != nil || claims[1].Window() != 0 {
		t.Errorf("%+v", claims[1])
	}
	if err := s.Subscribe(t.Context(), "sub", map[string]any{"session": "s"}, true); err != nil {
		t.Fatal(err)
	}
	if err := s.Send(t.Context(), []byte("the command")); err != nil {
		t.Fatal(err)
	}
	if f, err := s.Receive(t.Context()); err != nil || f.Event == nil || f.Event.Cause != "c" {
		t.Fatalf("%+v %v", f, err)
	}
	f, err := s.Receive(t.Context())
	if err != nil || f.Error == nil || f.Error.Cause != "c" || f.Error.Error() != "the collector refuses: no-route: nobody" {
		t.Fatalf("%+v %v", f, err)
	}
	if _, err := s.Receive(t.Context()); err == nil || !strings.Contains(err.Error(), "come again") {
		t.Errorf("%v", err)
	}
}

func TestSocketRefused(t *testing.T) {
	_, err := DialSocket(t.Context(), wsEndpoint(t, `<hello`, `{"type":"error","code":"version-unsupported","detail":"0.2"}`))
	var frame *ErrorFrame
	if !errors.As(err, &frame) || frame.Code != "version-unsupported" {
		t.Errorf("%v", err)
	}
	s, err := DialSocket(t.Context(), wsEndpoint(t, `<hello`, `{"type":"hello","versions":["0.1"]}`, `<roster`, `{"type":"error","id":"roster","code":"unauthorized"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Control {
		t.Error("no control was declared")
	}
	if _, err := s.Roster(t.Context()); !errors.As(err, &frame) || frame.Code != "unauthorized" {
		t.Errorf("%v", err)
	}
	for status, want := range map[int]string{401: "another token", 403: "refuses (403)", 404: "no AEP stream", 200: "no AEP stream", 503: "answers 503"} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(map[string]string{"error": "because"})
		}))
		_, err := DialSocket(t.Context(), SocketConfig{Base: srv.URL, HTTP: srv.Client()})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%d: %v", status, err)
		}
		srv.Close()
	}
	// What never greets is not waited for without end.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	hangs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if ws, err := websocket.Accept(w, r, nil); err == nil {
			_, _, _ = ws.Read(r.Context())
			_, _, _ = ws.Read(r.Context())
		}
	}))
	defer hangs.Close()
	if _, err := DialSocket(ctx, SocketConfig{Base: hangs.URL, HTTP: hangs.Client()}); err == nil {
		t.Error("connected to what does not greet")
	}
}
