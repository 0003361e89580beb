package execution

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"aep-wrap/event"
)

// world is a server on a real socket, with a runner that the test plays.
type world struct {
	t      *testing.T
	dir    string
	runner *runner
	srv    *Server
	http   *httptest.Server
	mu     sync.Mutex
	now    time.Time
	asked  func() // called once, when the server next asks for the time
	ses    string
}

const full = "the-whole-token"

var tokens_ = map[string][]Scope{full: Scopes, "reader": {AgentRead, RunRead}}

// scopesOf knows, beside those, tokens that lack one scope: no-agent.read.
func scopesOf(token string) ([]Scope, bool) {
	if lacks, ok := strings.CutPrefix(token, "no-"); ok {
		return slices.DeleteFunc(slices.Clone(Scopes), func(s Scope) bool { return string(s) == lacks }), true
	}
	s, ok := tokens_[token]
	return s, ok
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: t.TempDir(), now: time.Date(2026, 4, 24, 12, 0, 0, 0, time.UTC)}
	w.runner = &runner{dir: w.dir, jobs: map[string]*job{}}
	w.open()
	t.Cleanup(w.close)
	return w
}

func (w *world) open() {
	w.t.Helper()
	store, err := OpenStore(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	w.srv, err = New(Config{
		Store: store, Runner: w.runner, Name: "aep-wrap", Version: "test",
		Capabilities: []Capability{SSE, GDPR, ExternalMCP},
		Scopes:       scopesOf,
		Now:          w.clock,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.http = httptest.NewServer(w.srv.Handler())
	w.ses = ""
	w.ses = w.must("initialize", map[string]any{"requested_versions": []string{Version}})["session_id"].(string)
}

func (w *world) close() {
	w.http.CloseClientConnections()
	w.srv.Close()
	w.http.Close()
	if err := w.srv.Store.Close(); err != nil {
		w.t.Error(err)
	}
}

// made puts a file into a run's directory.
func (w *world) made(run, name string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.dir, run, name), []byte("hello"), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	if f := w.asked; f != nil {
		w.asked = nil
		w.mu.Unlock()
		f()
		w.mu.Lock()
	}
	return w.now
}

func (w *world) sleep(d time.Duration) { w.mu.Lock(); w.now = w.now.Add(d); w.mu.Unlock() }

// headers are a good request's, but for what change says; "" takes one away.
func (w *world) headers(change map[string]string) http.Header {
	h := http.Header{}
	h.Set("Authorization", "Bearer "+full)
	h.Set(versionHeader, Version)
	if w.ses != "" {
		h.Set(sessionHeader, w.ses)
	}
	for k, v := range change {
		if v == "" {
			h.Del(k)
		} else {
			h.Set(k, v)
		}
	}
	return h
}

// post sends a body and gives the status and the answer.
func (w *world) post(body string, change map[string]string) (int, string) {
	w.t.Helper()
	req, _ := http.NewRequest("POST", w.http.URL+rpcPath, bytes.NewReader([]byte(body)))
	req.Header = w.headers(change)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

type reply struct {
	ID     any
	Result map[string]any
	Error  *struct {
		Code    Code
		Message string
		Data    map[string]any
	}
}

func (w *world) call(method string, params any) reply {
	w.t.Helper()
	b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
	if err != nil {
		w.t.Fatal(err)
	}
	_, body := w.post(string(b), nil)
	var r reply
	if err := json.Unmarshal([]byte(body), &r); err != nil {
		w.t.Fatalf("%s: %v in %q", method, err, body)
	}
	return r
}

func (w *world) must(method string, params any) map[string]any {
	w.t.Helper()
	r := w.call(method, params)
	if r.Error != nil {
		w.t.Fatalf("%s: %d %s", method, r.Error.Code, r.Error.Message)
	}
	return r.Result
}

func (w *world) fails(code Code, method string, params any) reply {
	w.t.Helper()
	r := w.call(method, params)
	if r.Error == nil || r.Error.Code != code {
		w.t.Fatalf("%s: %+v, want error %d", method, r, code)
	}
	if r.Error.Data["name"] != codes[code].name {
		w.t.Errorf("%s: data %v does not name %s", method, r.Error.Data, codes[code].name)
	}
	return r
}

// agent makes an agent; extra members win.
func (w *world) agent(extra map[string]any) string {
	w.t.Helper()
	p := map[string]any{"name": "a", "constitution": map[string]any{"immutable_directives": "be good"}, "toolset": []string{}}
	for k, v := range extra {
		p[k] = v
	}
	return w.must("agent.create", p)["id"].(string)
}

func (w *world) run(agent string) (string, *job) {
	w.t.Helper()
	id := w.must("run.create", map[string]any{"agent_id": agent, "goal": "do it"})["id"].(string)
	return id, w.runner.get(id)
}

func (w *world) state(run string) State {
	w.t.Helper()
	return State(w.must("run.get", map[string]any{"run_id": run})["state"].(string))
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("%s did not come", what)
		}
	}
}

// runner is a Runner of one profile that can everything, and of one that can
// nothing.
type runner struct {
	dir  string
	mu   sync.Mutex
	jobs map[string]*job
	fail error
	busy bool
	gone []string
	meet map[string]func(run string) // called once, when the server comes there
}

// reached lets a test act when the server is at a place, and nowhere else.
func (r *runner) reached(place, run string) {
	r.mu.Lock()
	f := r.meet[place]
	delete(r.meet, place)
	r.mu.Unlock()
	if f != nil {
		f(run)
	}
}

func (r *runner) when(place string, f func(run string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.meet == nil {
		r.meet = map[string]func(string){}
	}
	r.meet[place] = f
}

func (r *runner) Profiles() map[string]Profile {
	r.reached("Profiles", "")
	return map[string]Profile{
		"able":  {Tools: []string{"Bash", "Read"}, Prompt: true, MCP: true, Model: true, Resume: true, Gate: true},
		"plain": {},
	}
}
func (r *runner) Default() string { return "able" }
func (r *runner) Dir(run, _ string) (string, error) {
	r.reached("Dir", run)
	dir := filepath.Join(r.dir, run)
	return dir, os.MkdirAll(dir, 0o700)
}

func (r *runner) Start(_ context.Context, o Order) (Job, error) {
	r.reached("Start", o.Run)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return nil, r.fail
	}
	j := r.jobs[o.Run]
	if j == nil {
		j = &job{t0: time.Now()}
		r.jobs[o.Run] = j
	}
	j.more = sync.NewCond(&j.mu)
	j.order, j.over = o, false
	return j, nil
}

func (r *runner) Find(run string) Job { return r.get(run) }

func (r *runner) get(run string) *job {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.jobs[run]
}

func (r *runner) Forget(run string, _ bool) ([]Erased, []Retained, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy {
		return nil, nil, ErrBusy
	}
	r.gone = append(r.gone, run)
	return []Erased{{"session_log", run}}, []Retained{{"shipped_events", run, "sent to a collector"}}, nil
}

// job is a launch that the test plays.
type job struct {
	t0      time.Time
	mu      sync.Mutex
	more    *sync.Cond
	order   Order
	lines   [][]byte
	seq     int64
	over    bool
	outcome Outcome
	cancels []string
	held    *Calls
}

// tell adds an event to the session log.
func (j *job) tell(typ, run string, data map[string]any) string {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	e := event.Event{Header: event.Header{
		ID: fmt.Sprintf("e%d", j.seq), Type: typ, Time: j.t0, Source: "aep://h/agent/a/session/s", Agent: "a", Session: "s", Run: run,
		Sequenced: true, Epoch: 1, Seq: j.seq, Capture: event.Metadata,
	}}
	if typ == "attention.requested" {
		e.Subject, _ = data["subject"].(string)
		delete(data, "subject")
	}
	if data != nil {
		e.Data, _ = json.Marshal(data)
	}
	j.lines = append(j.lines, e.AppendJSON(nil))
	j.more.Broadcast()
	return e.ID
}

func (j *job) end(x Outcome) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.over, j.outcome = true, x
	j.more.Broadcast()
}

func (j *job) Follow(ctx context.Context, fn func([]byte) error) error {
	stop := context.AfterFunc(ctx, func() { j.mu.Lock(); j.more.Broadcast(); j.mu.Unlock() })
	defer stop()
	for i := 0; ; i++ {
		j.mu.Lock()
		for i >= len(j.lines) && !j.over && ctx.Err() == nil {
			j.more.Wait()
		}
		if ctx.Err() != nil || i >= len(j.lines) {
			j.mu.Unlock()
			return ctx.Err()
		}
		line := j.lines[i]
		j.mu.Unlock()
		if err := fn(line); err != nil {
			return err
		}
	}
}

func (j *job) Outcome() Outcome { j.mu.Lock(); defer j.mu.Unlock(); return j.outcome }

func (j *job) Cancel(_ context.Context, reason string) error {
	j.mu.Lock()
	j.cancels = append(j.cancels, reason)
	j.mu.Unlock()
	j.end(Outcome{Signal: "TERM"})
	return nil
}

func (j *job) Hold(c Calls) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.held = &c
	return nil
}

func (j *job) cancelled() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.cancels)
}

func (j *job) holds() Calls {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.held == nil {
		return Calls{}
	}
	return *j.held
}
