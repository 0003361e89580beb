package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"aep-wrap/adapters/aeprpc"
	"aep-wrap/control"
	"aep-wrap/event"
	"aep-wrap/redaction"
)

// foreign is a runtime of somebody else's with one run; the test puts events
// into its stream.
type foreign struct {
	t *testing.T
	*httptest.Server
	offers   bool        // self.modify_prompt
	refuses  string      // the error that an approval hears; "" is none
	says     string      // the result of one
	events   chan string // data; "" ends the stream
	approved chan string // params
}

func newForeign(t *testing.T) *foreign {
	f := &foreign{t: t, offers: true, says: `{"applied":true}`, events: make(chan string, 10), approved: make(chan string, 1)}
	f.Server = httptest.NewServer(f)
	t.Cleanup(func() { f.CloseClientConnections(); f.Close() })
	return f
}

func (f *foreign) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		w.Header().Set("Content-Type", "text/event-stream")
		for {
			_ = http.NewResponseController(w).Flush()
			select {
			case data := <-f.events:
				fmt.Fprintf(w, "data: %s\n\n", data)
			case <-r.Context().Done():
				return
			}
		}
	}
	var call struct {
		ID     json.RawMessage
		Method string
		Params json.RawMessage
	}
	if err := json.NewDecoder(r.Body).Decode(&call); err != nil {
		f.t.Error(err)
	}
	answer := `"result":{}`
	switch call.Method {
	case "initialize":
		answer = fmt.Sprintf(`"result":{"session_id":"ses_1","capabilities":{"streaming.sse":true,"self.modify_prompt":%v}}`, f.offers)
	case "run.get":
		answer = `"result":{"agent_id":"agt_1"}`
	case rpcApprove:
		f.approved <- string(call.Params)
		if answer = `"result":` + f.says; f.refuses != "" {
			answer = `"error":` + f.refuses
		}
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,%s}`, call.ID, answer)
}

func (f *foreign) tell(n int, typ, payload string) {
	f.events <- fmt.Sprintf(`{"event_id":"evt_%d","run_id":"run_1","type":%q,"emitted_at":"2026-04-24T12:00:00.000Z","payload":%s}`, n, typ, payload)
}

// attached follows the run, and takes answers where the runtime does.
func attached(t *testing.T, f *foreign) *serverWorld {
	t.Helper()
	w := &serverWorld{t: t, basket: &basket{}, said: make(chan string, 10)}
	a := aeprpc.Adapter()
	far, err := NewRuntime(RuntimeConfig{URL: f.URL, Run: "run_1", Reply: a.Reply, Say: func(s string) { w.said <- s }})
	if err != nil {
		t.Fatal(err)
	}
	offers, err := far.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	accepts, _, err := control.Accepts(control.Can{Vendor: a.Name, Respond: offers[ModifyPrompt], More: []string{control.Cancel}}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	w.target = control.New(control.Config{
		Vendor: a.Name, Accepts: accepts, Do: func(control.Effect) {},
		Clock: control.Clock{Now: time.Now, After: func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }},
		Emit:  func(s string, c []byte, d []event.Draft) error { return w.road.Control(s, c, d) },
	})
	w.road = NewRoad(RoadConfig{
		Adapter: a, Agent: a.Name, Host: "h", Session: "launch", Start: time.Now(), LogDir: t.TempDir(),
		Gate:  redaction.NewGate(redaction.DefaultPolicy(), redaction.NewPipeline(redaction.Options{})),
		Sinks: []Sink{w.basket}, Control: w.target, Patience: Patience{Both: time.Minute},
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- far.Follow(ctx, w.road) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return w
}

// attention is what was told of requests, with what says by whom and how.
func (w *serverWorld) attention() (out []string) {
	w.basket.mu.Lock()
	defer w.basket.mu.Unlock()
	for _, it := range w.basket.items {
		e, _ := event.Parse(it.Line)
		var d map[string]any
		_ = json.Unmarshal(e.Data, &d)
		switch e.Type {
		case "attention.requested":
			out = append(out, fmt.Sprint(d["kind"], d["respond_via"], " ", d["prompt"], " of ", e.Session))
		case "attention.answered":
			out = append(out, fmt.Sprint(d["answer"].(map[string]any)["option"], " ", d["via"]))
		case "attention.resolved":
			out = append(out, fmt.Sprint(d["resolution"]))
		}
	}
	return out
}

func (w *serverWorld) hears(want ...string) {
	w.t.Helper()
	got, end := "", time.Now().Add(patience)
	for time.Now().Before(end) {
		if got = strings.Join(w.attention(), " | "); got == strings.Join(want, " | ") {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	w.t.Fatalf("told\n%s\nwant\n%s", got, strings.Join(want, " | "))
}

// A change of a prompt that waits for approval is decided from afar or at the
// runtime, and told as it came out.
func TestRuntimePromptChange(t *testing.T) {
	const (
		change = `{"pending_change_id":"pch_1","diff":"+ be brief","reason":"nobody reads it"}`
		asks   = "review[control] The agent wants to change its own prompt: nobody reads it\n+ be brief of agt_1"
	)
	for _, c := range []struct {
		name, answer   string
		refuses, says  string
		params         string
		then, thenSays string // an event that comes next
		want           []string
	}{
		{name: "approved", answer: `{"option":"approve"}`, params: `{"agent_id":"agt_1","approve":true,"pending_change_id":"pch_1"}`,
			then: "prompt.modified", thenSays: `{"diff":"+ be brief","approved_by":"ann"}`, want: []string{asks, "approve control", "answered"}},
		{name: "approved, and told by name", answer: `{"option":"approve"}`, params: `{"agent_id":"agt_1","approve":true,"pending_change_id":"pch_1"}`,
			then: "prompt.modified", thenSays: `{"pending_change_id":"pch_1"}`, want: []string{asks, "approve control", "answered"}},
		{name: "rejected", answer: `{"text":"Not that brief."}`, params: `{"agent_id":"agt_1","approve":false,"comment":"Not that brief.","pending_change_id":"pch_1"}`,
			says: `{"applied":false}`, then: "prompt.change_rejected", thenSays: `{"pending_change_id":"pch_1"}`, want: []string{asks, "reject control", "answered"}},
		{name: "decided elsewhere", then: "prompt.change_rejected", thenSays: `{"pending_change_id":"pch_1","rejected_by":"ann"}`, want: []string{asks, "reject oob", "answered"}},
		{name: "refused", answer: `{"option":"approve"}`, params: `{"agent_id":"agt_1","approve":true,"pending_change_id":"pch_1"}`,
			refuses: `{"code":-32011,"message":"already resolved"}`, want: []string{asks, "approve control", "dismissed"}},
		{name: "not applied", answer: `{"option":"approve"}`, params: `{"agent_id":"agt_1","approve":true,"pending_change_id":"pch_1"}`,
			says: `{"applied":false}`, want: []string{asks, "approve control", "dismissed"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newForeign(t)
			if f.refuses = c.refuses; c.says != "" {
				f.says = c.says
			}
			w := attached(t, f)
			f.tell(1, "run.started", `{}`)
			f.tell(2, "prompt.change_queued", change)
			w.hears(asks)
			if c.answer != "" {
				w.answer(c.answer)
				select {
				case got := <-f.approved:
					if got != c.params {
						t.Errorf("the runtime was told %s, want %s", got, c.params)
					}
				case <-time.After(patience):
					t.Fatal("the runtime was told nothing")
				}
			}
			if c.then != "" {
				f.tell(3, c.then, c.thenSays)
			}
			w.hears(c.want...)
			f.tell(4, "run.ended", `{"state":"complete"}`)
			w.hears(c.want...)
		})
	}
}

// Where the runtime does not offer it, a change is told and cannot be answered.
func TestRuntimePromptChangeIsNotOffered(t *testing.T) {
	f := newForeign(t)
	f.offers = false
	w := attached(t, f)
	f.tell(1, "prompt.change_queued", `{"pending_change_id":"pch_1","reason":"so"}`)
	w.hears("review[oob] The agent wants to change its own prompt: so of agt_1")
	if got := fmt.Sprint(w.target.Accepts()); got != "[control.cancel]" {
		t.Errorf("it accepts %s", got)
	}
	f.tell(2, "prompt.modified", `{"pending_change_id":"pch_1"}`)
	w.hears("review[oob] The agent wants to change its own prompt: so of agt_1", "approve oob", "answered")
}
