package agent

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/opencode"
	"aep-wrap/control"
	"aep-wrap/event"
	"aep-wrap/event/eventtest"
	"aep-wrap/redaction"
)

// fakeServer is a runtime's server: the test, which is a bubble, puts items into
// its stream.
type fakeServer struct {
	t *testing.T
	*httptest.Server
	at      *eventtest.Network
	mu      sync.Mutex
	streams int               // opened so far
	push    chan string       // raw bytes of the stream; "" ends it
	bodies  map[string]string // answers to GET
	posts   chan string       // "PATH BODY"
	status  map[string]int    // by path
	auth    string            // what every request must have, user:password
	deaf    map[string]int    // requests, by path, that are taken and never answered
	ill     map[string][]ill  // what the next requests, by path, come to
}

func newFakeServer(t *testing.T) *fakeServer {
	f := &fakeServer{t: t, at: eventtest.NewNetwork(), push: make(chan string, 100), bodies: map[string]string{"/session/status": "{}", "/permission": "[]", "/question": "[]"},
		posts: make(chan string, 10), status: map[string]int{}, deaf: map[string]int{}, ill: map[string][]ill{}}
	f.Server = &httptest.Server{Listener: f.at, Config: &http.Server{Handler: f}}
	f.Start()
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	return f
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	auth, code, body := f.auth, f.status[r.URL.Path], f.bodies[r.URL.Path]
	f.deaf[r.URL.Path]--
	deaf := f.deaf[r.URL.Path] >= 0
	f.mu.Unlock()
	if deaf {
		<-r.Context().Done()
		return
	}
	if user, password, _ := r.BasicAuth(); auth != "" && user+":"+password != auth {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	if i, any := f.nextIll(r.URL.Path); any && i.slow == 0 {
		i.serve(f, w, r)
		return
	} else if any {
		time.Sleep(i.slow)
	}
	switch {
	case r.Method == http.MethodPost:
		b, _ := io.ReadAll(r.Body)
		if code != 0 {
			w.WriteHeader(code)
		}
		f.posts <- r.URL.RequestURI() + " " + string(b)
	case r.URL.Path == "/event":
		f.mu.Lock()
		f.streams++
		f.mu.Unlock()
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"type\":\"server.connected\",\"properties\":{}}\n\n")
		w.(http.Flusher).Flush()
		for {
			select {
			case s := <-f.push:
				if s == "" {
					return
				}
				fmt.Fprint(w, s)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	case body != "":
		fmt.Fprint(w, body)
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (f *fakeServer) item(typ, properties string) {
	f.push <- `data: {"type":"` + typ + `","properties":` + properties + "}\n\n"
}

func (f *fakeServer) opened() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.streams
}

// ill is how a server does not answer as it should.
type ill struct {
	code  int    // it answers that
	torn  string // it says so much, and closes the connection
	hangs string // or says no more, and keeps it
	slow  time.Duration
	done  bool // having done what it was asked to
}

// serve does it.
func (i ill) serve(f *fakeServer, w http.ResponseWriter, r *http.Request) {
	if i.done {
		b, _ := io.ReadAll(r.Body)
		f.posts <- r.URL.RequestURI() + " " + string(b)
	}
	if i.code != 0 {
		w.WriteHeader(i.code)
		return
	}
	part := i.torn + i.hangs
	w.Header().Set("Content-Length", "1000")
	fmt.Fprint(w, part)
	w.(http.Flusher).Flush()
	if i.torn == "" {
		<-r.Context().Done()
	}
}

// nextIll is what a request comes to.
func (f *fakeServer) nextIll(path string) (i ill, any bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if q := f.ill[path]; len(q) > 0 {
		f.ill[path] = q[1:]
		return q[0], true
	}
	return ill{}, false
}

// serverWorld is a launch's road with a server followed onto it.
type serverWorld struct {
	t      *testing.T
	fake   *fakeServer
	road   *Road
	basket *basket
	target *control.Dispatcher
	server *Server
	said   chan string
}

func newServerWorld(t *testing.T, f *fakeServer, change func(*ServerConfig)) *serverWorld {
	t.Helper()
	w := &serverWorld{t: t, fake: f, basket: &basket{}, said: make(chan string, 10)}
	a := opencode.Adapter()
	w.target = control.New(control.Config{
		Vendor: a.Name, Accepts: []string{control.Respond, control.Cancel},
		Clock: control.Clock{Now: time.Now, After: func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }},
		Emit:  func(s string, c []byte, d []event.Draft) error { return w.road.Control(s, c, d) },
		Do:    func(control.Effect) {},
	})
	w.road = NewRoad(RoadConfig{
		Adapter: a, Agent: a.Name, Host: "h", Session: "launch", Start: time.Now(), LogDir: t.TempDir(),
		Gate:  redaction.NewGate(redaction.DefaultPolicy(), redaction.NewPipeline(redaction.Options{})),
		Sinks: []Sink{w.basket}, Control: w.target, Patience: Patience{Both: time.Minute},
	})
	c := ServerConfig{Serving: a.Server, At: adapters.Served{URL: f.URL}, Road: w.road, Say: func(s string) { w.said <- s }, dial: f.at.Dial}
	if change != nil {
		change(&c)
	}
	var err error
	if w.server, err = FollowServer(c); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.close(); exit(t, w.road) })
	return w
}

func (w *serverWorld) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	w.server.Close(ctx)
}

// types are the protocol's events so far, without x.*.
func (w *serverWorld) types() (out []string) {
	w.basket.mu.Lock()
	defer w.basket.mu.Unlock()
	for _, it := range w.basket.items {
		e, err := event.Parse(it.Line)
		if err != nil {
			w.t.Fatalf("%v: %s", err, it.Line)
		}
		if !strings.HasPrefix(e.Type, "x.") && event.Category(e.Type) != "control" {
			out = append(out, e.Type)
		}
	}
	return out
}

// data is that of one of them.
func (w *serverWorld) data(n int) (d map[string]any) {
	w.t.Helper()
	w.basket.mu.Lock()
	defer w.basket.mu.Unlock()
	for _, it := range w.basket.items {
		e, err := event.Parse(it.Line)
		if err != nil {
			w.t.Fatal(err)
		}
		if strings.HasPrefix(e.Type, "x.") || event.Category(e.Type) == "control" {
			continue
		}
		if n--; n < 0 {
			if err := json.Unmarshal(e.Data, &d); err != nil {
				w.t.Fatal(err)
			}
			return d
		}
	}
	return nil
}

func (w *serverWorld) sees(want string) {
	w.t.Helper()
	got := ""
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if got = strings.Join(w.types(), " "); got == want {
			return
		}
	}
	w.t.Fatalf("events\n%s\nwant\n%s", got, want)
}

// answer sends a control.attention.respond to the first request that waits.
func (w *serverWorld) answer(answer string) {
	w.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		for _, p := range w.target.Holds().Pending() {
			if !p.Remote {
				continue
			}
			line := fmt.Sprintf(`{"aep":"0.1","id":%q,"type":"control.attention.respond","subject":%q,"time":%q,"source":"aep://h/console","agent":"console","session":%q,"capture":"redacted","data":{"answer":%s}}`,
				event.NewID(time.Now()), p.ID, time.Now().UTC().Format(time.RFC3339), p.Session, answer)
			r := w.target.Handle(control.Origin{Authenticated: true, Peer: "test"}, []byte(line))
			if r.Refusal != nil {
				w.t.Fatalf("refused: %s", r.Refusal.AppendJSON(nil))
			}
			return
		}
	}
	w.t.Fatal("nothing waits for an answer")
}

func (f *fakeServer) posted(want string) {
	f.t.Helper()
	select {
	case got := <-f.posts:
		if got != want {
			f.t.Errorf("it was told %s\nwant %s", got, want)
		}
	case <-time.After(20 * time.Second):
		f.t.Fatalf("it was not told %s", want)
	}
}

const (
	askedBash   = `{"id":"per_1","sessionID":"ses_1","permission":"bash","patterns":["ls"],"metadata":{"command":"ls"},"tool":{"callID":"c1"}}`
	promptOne   = `{"sessionID":"ses_1","info":{"id":"msg_1","role":"user","sessionID":"ses_1"}}`
	runningBash = `{"sessionID":"ses_1","part":{"id":"prt_1","type":"tool","tool":"bash","callID":"c1","state":{"status":"running","input":{"command":"ls"}}}}`
)

// What a server asks is answered by a request to it, and the answer is told
// once, whoever says it first.
func TestServerIsAnswered(t *testing.T) { synctest.Test(t, serverIsAnswered) }

func serverIsAnswered(t *testing.T) {
	f := newFakeServer(t)
	f.auth = "opencode:secret"
	w := newServerWorld(t, f, func(c *ServerConfig) { c.At.User, c.At.Password, c.At.Query = "opencode", "secret", "directory=/d" })
	f.item("message.updated", promptOne)
	f.item("message.part.updated", runningBash)
	f.item("permission.asked", askedBash)
	f.item("permission.asked", askedBash) // once more, as after a reconnect
	w.sees("session.started run.started tool.requested attention.requested")
	w.answer(`{"option":"once"}`)
	f.posted(`/permission/per_1/reply?directory=/d {"reply":"once"}`)
	f.item("permission.replied", `{"sessionID":"ses_1","requestID":"per_1","reply":"once"}`)
	f.item("session.idle", `{"sessionID":"ses_1"}`)
	w.sees("session.started run.started tool.requested attention.requested attention.answered attention.resolved run.finished")
	synctest.Wait()
	var via any
	for _, it := range w.basket.items {
		e, _ := event.Parse(it.Line)
		if e.Type == "attention.answered" {
			var d map[string]any
			_ = json.Unmarshal(e.Data, &d)
			via = d["via"]
		}
	}
	if via != "control" {
		t.Errorf("answered via %v", via)
	}
}

// An answer in the runtime's own screen ends the wait; one that the server does
// not take is told as not applied.
func TestServerAnswersElsewhere(t *testing.T) { synctest.Test(t, serverAnswersElsewhere) }

func serverAnswersElsewhere(t *testing.T) {
	f := newFakeServer(t)
	f.status["/permission/per_2/reply"] = http.StatusNotFound
	w := newServerWorld(t, f, nil)
	f.item("message.updated", promptOne)
	f.item("permission.asked", askedBash)
	w.sees("session.started run.started attention.requested")
	f.item("permission.replied", `{"sessionID":"ses_1","requestID":"per_1","reply":"reject"}`)
	w.sees("session.started run.started attention.requested attention.answered attention.resolved")
	f.item("permission.asked", strings.ReplaceAll(askedBash, "per_1", "per_2"))
	w.answer(`{"option":"reject","text":"no"}`)
	f.posted(`/permission/per_2/reply {"message":"no","reply":"reject"}`)
	w.sees("session.started run.started attention.requested attention.answered attention.resolved attention.requested attention.answered attention.resolved")
}

// A server that answers for itself takes none of ours.
func TestServerSettled(t *testing.T) { synctest.Test(t, serverSettled) }

func serverSettled(t *testing.T) {
	f := newFakeServer(t)
	w := newServerWorld(t, f, func(c *ServerConfig) { c.At.Settled = true })
	f.item("permission.asked", askedBash)
	w.sees("session.started attention.requested")
	for _, p := range w.target.Holds().Pending() {
		if p.Remote {
			t.Errorf("%+v waits for an answer", p)
		}
	}
}

// A stream that ends, or falls silent, is opened again, and what happened
// meanwhile is asked for.
func TestServerReconnects(t *testing.T) {
	for name, cut := range map[string]func(f *fakeServer){
		"it ends":         func(f *fakeServer) { f.push <- "" },
		"it falls silent": func(*fakeServer) {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				w := newServerWorld(t, f, func(c *ServerConfig) {
					v := *c.Serving
					v.Quiet = 300 * time.Millisecond
					c.Serving = &v
				})
				f.item("message.updated", promptOne)
				w.sees("session.started run.started")
				n := f.opened()
				f.mu.Lock()
				f.bodies["/permission"] = "[" + askedBash + "]" // asked while nobody listened
				f.bodies["/session/status"] = `{"ses_1":{"type":"busy"}}`
				f.mu.Unlock()
				cut(f)
				w.sees("session.started run.started attention.requested")
				if f.opened() <= n {
					t.Error("the stream was not opened again")
				}
				f.mu.Lock()
				f.bodies["/permission"], f.bodies["/session/status"] = "[]", "{}" // and came to rest
				f.bodies["/session/ses_1/message"] = promptAndAnswer(time.Now(), `"finish":"stop"`)
				f.mu.Unlock()
				cut(f)
				w.sees("session.started run.started attention.requested attention.resolved run.finished")
			})
		})
	}
}

// promptAndAnswer are the messages of ses_1: the prompt of promptOne, and an
// answer that ended so.
func promptAndAnswer(at time.Time, end string) string {
	ms := at.UnixMilli()
	return fmt.Sprintf(`[{"info":{"id":"msg_1","role":"user","time":{"created":%d}}},{"info":{"id":"msg_2","role":"assistant","parentID":"msg_1","time":{"created":%d,"completed":%d},%s}}]`,
		ms, ms+1, ms+2, end)
}

// However badly a server answers after a time in which nobody listened, what
// happened then is told as it was, or not claimed: a run that was cancelled is
// none that finished.
func TestServerIsUnwell(t *testing.T) {
	const aborted, stopped = `"error":{"name":"MessageAbortedError"}`, `"finish":"stop"`
	history, whole := "/session/ses_1/message", http.StatusOK
	for name, tt := range map[string]struct {
		ill   map[string][]ill
		clock time.Duration // the server's, beside ours
		quiet time.Duration
		end   string // of the run, by the messages; "" is that it did not
		code  int    // of the messages
		want  string
	}{
		"cancelled":                          {end: aborted, want: "run.cancelled user"},
		"finished":                           {end: stopped, want: "run.finished"},
		"killed, and back":                   {end: `"cost":0`, want: "run.cancelled"},
		"without messages":                   {code: http.StatusNotFound, want: "run.cancelled"},
		"errors for a while":                 {ill: map[string][]ill{history: {{code: 500}, {code: 503}, {code: 429}}, "/session/status": {{code: 500}, {code: 502}}}, end: aborted, want: "run.cancelled user"},
		"answers that are torn":              {ill: map[string][]ill{history: {{torn: "[{"}, {torn: "["}}, "/session/status": {{torn: "{"}}}, end: aborted, want: "run.cancelled user"},
		"an answer that hangs in the middle": {ill: map[string][]ill{history: {{hangs: "[{"}}}, end: aborted, want: "run.cancelled user"},
		"slower than its heart":              {ill: map[string][]ill{history: {{slow: time.Second}}}, quiet: 300 * time.Millisecond, end: aborted, want: "run.cancelled user"},
		"a clock behind":                     {clock: -time.Hour, end: aborted, want: "run.cancelled user"},
		"a clock ahead":                      {clock: time.Hour, end: aborted, want: "run.cancelled user"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				w := newServerWorld(t, f, func(c *ServerConfig) {
					v := *c.Serving
					v.Quiet = cmp.Or(tt.quiet, time.Minute)
					c.Serving = &v
				})
				at := time.Now().Add(tt.clock)
				f.item("message.updated", strings.Replace(promptOne, `"role"`, fmt.Sprintf(`"time":{"created":%d},"role"`, at.UnixMilli()), 1))
				w.sees("session.started run.started")
				n := f.opened()
				f.mu.Lock()
				f.ill = tt.ill
				if f.bodies[history] = promptAndAnswer(at, tt.end); cmp.Or(tt.code, whole) != whole {
					delete(f.bodies, history)
				}
				f.mu.Unlock()
				f.push <- ""
				word, by, _ := strings.Cut(tt.want, " ")
				w.sees("session.started run.started " + word)
				if got := w.data(2)["by"]; by == "" && got != nil || by != "" && got != by {
					t.Errorf("cancelled by %v", got)
				}
				f.item("session.idle", `{"sessionID":"ses_1"}`) // the stream is read on
				if w.sees("session.started run.started " + word); f.opened() != n+1 {
					t.Errorf("it was opened %d times", f.opened()-n)
				}
			})
		})
	}
}

// A clock that differs does not have what was told be told again, and end the
// run that is open.
func TestServerClockGoesOn(t *testing.T) {
	for _, clock := range []time.Duration{-time.Hour, 0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			w := newServerWorld(t, f, nil)
			at := time.Now().Add(clock)
			then := func(id string, after time.Duration) string {
				return fmt.Sprintf(`{"sessionID":"ses_1","info":{"id":%q,"role":"user","time":{"created":%d}}}`, id, at.Add(after).UnixMilli())
			}
			f.item("message.updated", then("msg_1", 0))
			f.item("session.idle", `{"sessionID":"ses_1"}`)
			f.item("message.updated", then("msg_3", time.Minute))
			w.sees("session.started run.started run.finished run.started")
			f.mu.Lock()
			f.bodies["/session/status"] = `{"ses_1":{"type":"busy"}}`
			f.bodies["/session/ses_1/message"] = strings.TrimSuffix(promptAndAnswer(at, `"finish":"stop"`), "]") +
				fmt.Sprintf(`,{"info":{"id":"msg_3","role":"user","time":{"created":%d}}}]`, at.Add(time.Minute).UnixMilli())
			f.bodies["/permission"] = "[" + askedBash + "]"
			f.mu.Unlock()
			f.push <- ""
			w.sees("session.started run.started run.finished run.started attention.requested")
		})
	}
}

// An answer reaches a server that is ill for a while, and is told as what is
// known of it.
func TestServerIsToldAgain(t *testing.T) {
	const reply = "/permission/per_1/reply"
	for name, tt := range map[string]struct {
		ill    []ill
		status int
		posts  int
		want   string // the resolution
	}{
		"errors for a while":           {ill: []ill{{code: 500}, {code: 503}}, posts: 1, want: "answered"},
		"torn":                         {ill: []ill{{torn: "t"}}, posts: 1, want: "answered"},
		"done, and the answer torn":    {ill: []ill{{torn: "t", done: true}}, status: http.StatusNotFound, posts: 2, want: "answered"},
		"done, and never answered":     {ill: []ill{{hangs: "t", done: true}}, status: http.StatusNotFound, posts: 2, want: "answered"},
		"it knows of no such request":  {status: http.StatusNotFound, posts: 1, want: "dismissed"},
		"errors, and it does not know": {ill: []ill{{code: 500}}, status: http.StatusNotFound, posts: 1, want: "dismissed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				f.ill[reply] = tt.ill
				f.status[reply] = tt.status
				w := newServerWorld(t, f, nil)
				f.item("message.updated", promptOne)
				f.item("permission.asked", askedBash)
				w.answer(`{"option":"once"}`)
				for range tt.posts {
					f.posted(reply + ` {"reply":"once"}`)
				}
				const asked = "session.started run.started attention.requested attention.answered"
				w.sees(asked + " attention.resolved")
				if got := w.data(4)["resolution"]; got != tt.want {
					t.Errorf("resolved as %v", got)
				}
			})
		})
	}
}

// Connections that are cut over and over double nothing and lose nothing, and an
// answer is handed over once.
func TestServerStorm(t *testing.T) { synctest.Test(t, serverStorm) }

func serverStorm(t *testing.T) {
	f := newFakeServer(t)
	w := newServerWorld(t, f, nil)
	f.item("message.updated", promptOne)
	w.sees("session.started run.started")
	f.mu.Lock()
	f.bodies["/session/status"] = `{"ses_1":{"type":"busy"}}`
	f.bodies["/permission"] = "[" + askedBash + "," + strings.ReplaceAll(askedBash, "per_1", "per_2") + "]"
	f.mu.Unlock()
	f.push <- ""
	const asked = "session.started run.started attention.requested attention.requested"
	w.sees(asked)
	for range 5 {
		f.CloseClientConnections()
		time.Sleep(20 * time.Millisecond)
	}
	w.answer(`{"option":"once"}`)
	f.CloseClientConnections()
	got := <-f.posts
	f.mu.Lock()
	f.bodies["/permission"] = "[" + strings.ReplaceAll(askedBash, "per_1", map[bool]string{true: "per_2", false: "per_1"}[strings.Contains(got, "per_1")]) + "]"
	f.mu.Unlock()
	w.sees(asked + " attention.answered attention.resolved")
	f.CloseClientConnections()
	w.answer(`{"option":"reject"}`)
	w.sees(asked + " attention.answered attention.resolved attention.answered attention.resolved")
}

// What waits in one of many sessions that are at work is found.
func TestServerOfManySessions(t *testing.T) { synctest.Test(t, serverOfManySessions) }

func serverOfManySessions(t *testing.T) {
	f := newFakeServer(t)
	busy := map[string]any{}
	for i := range 300 {
		busy[fmt.Sprintf("ses_%d", i)] = map[string]any{"type": "busy"}
	}
	status, _ := json.Marshal(busy)
	f.bodies["/session/status"] = string(status)
	f.bodies["/permission"] = "[" + askedBash + "]"
	newServerWorld(t, f, nil).sees("session.started attention.requested")
}

// An item that comes in drips is waited for.
func TestServerDrips(t *testing.T) { synctest.Test(t, serverDrips) }

func serverDrips(t *testing.T) {
	f := newFakeServer(t)
	w := newServerWorld(t, f, func(c *ServerConfig) {
		v := *c.Serving
		v.Quiet = 300 * time.Millisecond
		c.Serving = &v
	})
	raw := `data: {"type":"message.updated","properties":` + promptOne + "}\n\n"
	for len(raw) > 0 {
		n := min(len(raw), 10)
		f.push <- raw[:n]
		raw = raw[n:]
		time.Sleep(60 * time.Millisecond)
	}
	if w.sees("session.started run.started"); f.opened() != 1 {
		t.Errorf("it was opened %d times", f.opened())
	}
}

// What is no event stream is no server of the runtime's, whatever it says.
func TestServerOfAnother(t *testing.T) {
	f := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "<html>data: {}\n\n") }))
	defer f.Close()
	s, err := FollowServer(ServerConfig{Serving: opencode.Adapter().Server, At: adapters.Served{URL: f.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	select {
	case <-s.Up():
		t.Error("it is taken for one")
	case <-time.After(200 * time.Millisecond):
	}
}

// A server that is not there yet is waited for; one that wants another password
// is told of once.
func TestServerComesLateOrRefuses(t *testing.T) { synctest.Test(t, serverComesLateOrRefuses) }

func serverComesLateOrRefuses(t *testing.T) {
	f := newFakeServer(t)
	f.at.Refuses.Store(true)
	late := newServerWorld(t, f, nil)
	time.Sleep(10 * time.Second)
	select {
	case <-late.server.Up():
		t.Fatal("it is up before there is one")
	default:
	}
	f.at.Refuses.Store(false)
	f.item("message.updated", promptOne)
	late.sees("session.started run.started")

	f2 := newFakeServer(t)
	f2.auth = "opencode:right"
	w := newServerWorld(t, f2, func(c *ServerConfig) { c.At.User, c.At.Password = "opencode", "wrong" })
	select {
	case s := <-w.said:
		if !strings.Contains(s, "password") || strings.Contains(s, "wrong") {
			t.Errorf("said: %s", s)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("nothing is said of the password")
	}
}

// A server that takes a request and never answers it, as one does that is about
// to start, is asked again: nothing is lost by that.
func TestServerDeaf(t *testing.T) {
	for _, path := range []string{"/event", "/session/status", "/permission"} {
		t.Run(path, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				f.deaf[path] = 1
				f.bodies["/session/status"] = `{"ses_1":{"type":"busy"}}`
				f.bodies["/session/ses_1"] = `{"id":"ses_1"}`
				f.bodies["/session/ses_1/message"] = `[{"info":{"id":"msg_1","role":"user"}}]`
				f.bodies["/permission"] = "[" + askedBash + "]"
				w := newServerWorld(t, f, nil)
				w.sees("session.started run.started attention.requested")
			})
		})
	}
}

// A server that is not there for long is told of, and when it comes.
func TestServerSilent(t *testing.T) {
	for name, tt := range map[string]struct {
		after time.Duration // it comes, where it does
		waits time.Duration
		said  string // to the user, where something is
		noted bool
	}{
		"for a moment":    {waits: 5 * time.Second},
		"to the end":      {waits: time.Minute, said: "no answer in 1m0s", noted: true},
		"for a while":     {after: 25 * time.Second, waits: time.Minute, said: "answered after 2[5-7]s only", noted: true},
		"for a little":    {after: 10 * time.Second, waits: time.Minute},
		"but for another": {waits: time.Minute, said: "another password"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				if tt.said == "another password" {
					f.auth = "opencode:right"
				} else {
					f.at.Refuses.Store(true)
				}
				var said []string
				var log bytes.Buffer
				s, err := FollowServer(ServerConfig{Serving: opencode.Adapter().Server, At: adapters.Served{URL: f.URL}, dial: f.at.Dial, Log: slog.New(slog.NewTextHandler(&log, nil)),
					Say: func(line string) { said = append(said, line) }})
				if err != nil {
					t.Fatal(err)
				}
				if tt.after > 0 {
					time.Sleep(tt.after)
					f.at.Refuses.Store(false)
					<-s.Up()
				} else {
					time.Sleep(tt.waits)
				}
				s.Close(t.Context())
				synctest.Wait()
				if len(said) > 1 || (len(said) == 1) != (tt.said != "") || tt.said != "" && !regexp.MustCompile(tt.said).MatchString(said[0]) {
					t.Errorf("said: %q, want %q", said, tt.said)
				}
				if strings.Contains(log.String(), "does not answer") != tt.noted {
					t.Errorf("noted: %s", log.String())
				}
			})
		})
	}
}

// What comes after the agent's end is still taken in.
func TestServerLastWords(t *testing.T) { synctest.Test(t, serverLastWords) }

func serverLastWords(t *testing.T) {
	f := newFakeServer(t)
	w := newServerWorld(t, f, nil)
	f.item("message.updated", promptOne)
	w.sees("session.started run.started")
	go func() {
		time.Sleep(50 * time.Millisecond)
		f.item("session.idle", `{"sessionID":"ses_1"}`)
		f.push <- ""
	}()
	w.close()
	w.sees("session.started run.started run.finished")
}

// A server that hangs with an answer does not keep the launch from its end.
func TestServerHangsAtTheEnd(t *testing.T) { synctest.Test(t, serverHangsAtTheEnd) }

func serverHangsAtTheEnd(t *testing.T) {
	f := newFakeServer(t)
	f.posts = make(chan string)
	w := newServerWorld(t, f, nil)
	f.item("message.updated", promptOne)
	f.item("message.part.updated", runningBash)
	f.item("permission.asked", askedBash)
	w.sees("session.started run.started tool.requested attention.requested")
	w.answer(`{"option":"once"}`)
	synctest.Wait() // it is on its way
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	from := time.Now()
	w.server.Close(ctx)
	if d := time.Since(from); d != 300*time.Millisecond {
		t.Errorf("the end took %v", d)
	}
	<-f.posts // it was
}

func TestServerBeside(t *testing.T) { synctest.Test(t, serverBeside) }

func serverBeside(t *testing.T) {
	f := newFakeServer(t)
	w := newServerWorld(t, f, func(c *ServerConfig) { c.Beside = func() bool { return true } })
	f.item("message.updated", promptOne)
	f.item("permission.asked", askedBash)
	w.sees("session.started") // of the session, at the first x.* event
}

func TestBadServerURL(t *testing.T) {
	for _, u := range []string{"", "127.0.0.1:1", "http://", "::"} {
		if _, err := FollowServer(ServerConfig{Serving: opencode.Adapter().Server, At: adapters.Served{URL: u}}); err == nil {
			t.Errorf("%q is followed", u)
		}
	}
}

func TestReadEvents(t *testing.T) {
	long := strings.Repeat("x", 100<<10)
	for name, tt := range map[string]struct {
		in      string
		want    []string
		skipped int
	}{
		"items":              {"data: a\n\ndata: b\n\n", []string{"a", "b"}, 0},
		"CRLF":               {"data: a\r\n\r\n", []string{"a"}, 0},
		"several lines":      {"event: x\ndata: a\ndata:b\nid: 1\n\n", []string{"a\nb"}, 0},
		"comments":           {": hello\n\ndata: a\n\n", []string{"a"}, 0},
		"longer than a page": {"data: " + long + "\n\n", []string{long}, 0},
		"torn":               {"data: a\n\ndata: b", []string{"a"}, 0},
		"one over the bound": {"data: " + strings.Repeat("x", maxLine) + "\n\ndata: a\n\n", []string{"a"}, 1},
		"several over it":    {"data: " + strings.Repeat("x", maxLine/2) + "\ndata: " + strings.Repeat("x", maxLine/2) + "\n\ndata: a\n\n", []string{"a"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			skipped := 0
			_ = readEvents(strings.NewReader(tt.in), func(b []byte) { got = append(got, string(b)) }, func(int) { skipped++ })
			if strings.Join(got, "|") != strings.Join(tt.want, "|") || skipped != tt.skipped {
				t.Errorf("%d items, %d passed over", len(got), skipped)
			}
		})
	}
}

func FuzzReadEvents(f *testing.F) {
	f.Add("data: a\n\n: c\r\ndata: b\r\n\r\n")
	f.Fuzz(func(t *testing.T, in string) {
		n := 0
		_ = readEvents(strings.NewReader(in), func(b []byte) { n += len(b) }, func(int) { t.Fatal("passed over") })
		if n > len(in) {
			t.Fatalf("%d bytes of %d", n, len(in))
		}
	})
}

// A server of ours ends with what it started, also what left its group.
func TestBacking(t *testing.T) {
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	b, err := StartBacking(Spec{Path: sh, Args: []string{"sh", "-c", "setsid sleep 300 & sleep 300"}})
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); len(b.tree()) < 3; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("it has %v", b.tree())
		}
	}
	procs := b.tree()
	b.Stop()
	for _, p := range procs {
		if now, ok := procByID(p.Pid); ok && now.Start == p.Start && !now.over() {
			t.Errorf("process %d is left", p.Pid)
		}
	}
}
