package agent

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"aep-wrap/adapters"
	"aep-wrap/control"
)

// asker is a ServerRoad of a test's.
type asker struct{ seen chan adapters.Moment }

func newAsker() *asker { return &asker{make(chan adapters.Moment, 10)} }

func (a *asker) Observe(m adapters.Moment, _ int) { a.seen <- m }
func (a *asker) Refuse(Refusal)                   {}
func (a *asker) Ask(m adapters.Moment, _ int, _ func(adapters.Answer) []byte) *control.Hold {
	a.seen <- m
	return nil
}

// jsonRPC is a server that speaks JSON-RPC: the test says its messages, and
// reads ours.
func jsonRPC(t *testing.T, password string) (url string, say chan string, heard chan string) {
	say, heard = make(chan string, 10), make(chan string, 10)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+password {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		c, err := websocket.Accept(w, r, nil)
		if err != nil {
			return
		}
		defer func() { _ = c.CloseNow() }()
		go func() {
			for s := range say {
				if s == "" {
					_ = c.CloseNow()
					return
				}
				_ = c.Write(r.Context(), websocket.MessageText, []byte(s))
			}
		}()
		for {
			_, b, err := c.Read(r.Context())
			if err != nil {
				return
			}
			heard <- string(b)
		}
	}))
	t.Cleanup(srv.Close)
	return "ws" + strings.TrimPrefix(srv.URL, "http"), say, heard
}

func next(t *testing.T, heard chan string, want string) {
	t.Helper()
	select {
	case got := <-heard:
		if got != want {
			t.Fatalf("it heard %s; want %s", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("it did not hear %s", want)
	}
}

// callServing is a made-up runtime that speaks JSON-RPC.
var callServing = &adapters.Serving{
	Hello: []adapters.Request{{Path: "hello", Body: []byte(`{"v":1}`)}, {Body: []byte(`{"method":"ready"}`)}},
	Known: []adapters.Query{{Path: "list", Read: func(body any, _ adapters.Past) ([]adapters.Moment, []adapters.Query) {
		return []adapters.Moment{{Name: "known", Session: body.(string)}}, nil
	}}},
	Item: func(o map[string]any) []adapters.Moment {
		m, _ := o["method"].(string)
		return []adapters.Moment{{Name: m, Session: "inner", Payload: o}}
	},
	More: func(o map[string]any) []adapters.Query {
		if o["method"] != "waits" {
			return nil
		}
		return []adapters.Query{{Path: "listen", Body: []byte(`{}`)}}
	},
	Part: func(o map[string]any) (part, of string) {
		if o["method"] == "born" {
			return "inner", "outer"
		}
		return "", ""
	},
}

// A server that speaks JSON-RPC is greeted before it is asked, asked what items
// give reason for, and told what is to be told as it stands; a session that is a
// part of another is told of as that one; a connection that broke is taken up
// anew.
func TestServerCalls(t *testing.T) {
	url, say, heard := jsonRPC(t, "word")
	road := newAsker()
	s, err := FollowServer(ServerConfig{Serving: callServing, At: adapters.Served{URL: url, Password: "word"}, Road: road})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	moment := func(name, session string) {
		t.Helper()
		select {
		case m := <-road.seen:
			if m.Name != name || m.Session != session {
				t.Fatalf("%s of %s; want %s of %s", m.Name, m.Session, name, session)
			}
		case <-time.After(patience):
			t.Fatalf("no %s", name)
		}
	}
	next(t, heard, `{"jsonrpc":"2.0","id":"aep-1","method":"hello","params":{"v":1}}`)
	select {
	case <-s.Up():
		t.Fatal("it is up before it answered")
	case <-time.After(50 * time.Millisecond):
	}
	say <- `{"id":"aep-1","result":{}}`
	next(t, heard, `{"method":"ready"}`)
	next(t, heard, `{"jsonrpc":"2.0","id":"aep-2","method":"list"}`)
	<-s.Up()
	say <- `{"id":"aep-2","result":"s"}`
	moment("known", "s")
	say <- `{"method":"note"}`
	moment("note", "inner")
	say <- `{"method":"born"}`
	moment("born", "outer")
	say <- `{"method":"waits"}`
	moment("waits", "outer")
	next(t, heard, `{"jsonrpc":"2.0","id":"aep-3","method":"listen","params":{}}`)

	if err := s.Request(context.Background(), adapters.Request{Body: []byte(`{"id":0,"result":1}`)}); err != nil {
		t.Fatal(err)
	}
	next(t, heard, `{"id":0,"result":1}`)
	refused := make(chan error, 1)
	go func() {
		refused <- s.Request(context.Background(), adapters.Request{Path: "stop", Body: []byte(`{"run":"r"}`)})
	}()
	next(t, heard, `{"jsonrpc":"2.0","id":"aep-4","method":"stop","params":{"run":"r"}}`)
	say <- `{"id":"aep-4","error":{"code":-32600,"message":"no such run"}}`
	if err := <-refused; err == nil || !strings.Contains(err.Error(), "no such run") {
		t.Errorf("a refusal is %v", err)
	}

	say <- "" // the connection breaks
	next(t, heard, `{"jsonrpc":"2.0","id":"aep-5","method":"hello","params":{"v":1}}`)
}

// Who is not let in sees nothing, and has no connection to ask on.
func TestServerCallsRefused(t *testing.T) {
	url, _, _ := jsonRPC(t, "word")
	s, err := FollowServer(ServerConfig{Serving: callServing, At: adapters.Served{URL: url, Password: "other"}, Road: newAsker()})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	select {
	case <-s.Up():
		t.Error("it is up")
	case <-time.After(100 * time.Millisecond):
	}
	if err := s.Request(context.Background(), adapters.Request{Path: "stop"}); err == nil {
		t.Error("a request without a connection succeeds")
	}
}

// A runtime that writes lines is followed by them, and told things by others.
func TestServerLines(t *testing.T) {
	dir := t.TempDir()
	writes, reads := filepath.Join(dir, "w"), filepath.Join(dir, "r")
	for _, f := range []string{writes, reads} {
		if err := os.WriteFile(f, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	road := newAsker()
	v := &adapters.Serving{Lines: true, Item: func(o map[string]any) []adapters.Moment {
		n, _ := o["type"].(string)
		return []adapters.Moment{{Name: n, Payload: o}}
	}}
	s, err := FollowServer(ServerConfig{Serving: v, At: adapters.Served{Writes: writes, Reads: reads}, Road: road})
	if err != nil {
		t.Fatal(err)
	}
	<-s.Up()
	f, err := os.OpenFile(writes, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, line := range []string{"{\"type\":\"one\"}\n", "{\"type\":\"tw", "o\"}\n"} {
		if _, err := f.WriteString(line); err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"one", "two"} {
		select {
		case m := <-road.seen:
			if m.Name != want {
				t.Fatalf("%s; want %s", m.Name, want)
			}
		case <-time.After(patience):
			t.Fatalf("no %s", want)
		}
	}
	for _, line := range []string{`{"a":1}`, `{"a":2}`} {
		if err := s.Request(context.Background(), adapters.Request{Body: []byte(line)}); err != nil {
			t.Fatal(err)
		}
	}
	if b, _ := os.ReadFile(reads); string(b) != "{\"a\":1}\n{\"a\":2}\n" {
		t.Errorf("it is told %q", b)
	}
	_, _ = f.WriteString("{\"type\":\"last\"}\n")
	s.Close(context.Background())
	if m := <-road.seen; m.Name != "last" {
		t.Errorf("%s; want the last", m.Name)
	}
}
