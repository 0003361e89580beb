package pagetest

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// target is an emitter that takes commands: it stands for a wrapped agent. It
// acks what it is told to, and tells what came of it.
type target struct {
	t       *testing.T
	ws      *websocket.Conn
	agent   string
	session string

	mu       sync.Mutex
	seq      int
	commands chan map[string]any
}

// patient is an ack window in which no command is sent again, however slow the
// machine: a target would hear it twice, and take it for the next.
const patient = 120_000

type obj = map[string]any

var everything = []string{"control.attention.respond", "control.cancel", "control.pause", "control.resume", "x.fake.control.instruct"}

// emitter connects a target; accepts are the commands that it takes.
func (w *world) emitter(agent, session string, accepts ...string) *target {
	w.t.Helper()
	ws, _, err := websocket.Dial(w.t.Context(), w.base+"/socket", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + token}}})
	if err != nil {
		w.t.Fatal(err)
	}
	ws.SetReadLimit(1 << 20)
	tg := &target{t: w.t, ws: ws, agent: agent, session: session, commands: make(chan map[string]any, 64)}
	hello := obj{"type": "hello", "versions": []string{"0.1"}, "role": "emitter", "identity": obj{"agent": agent, "instance": "fake"}, "capabilities": obj{"emits": []string{"session", "run", "tool", "attention"}}}
	if accepts != nil {
		hello["capabilities"].(obj)["control"] = obj{"accepts": accepts, "ack_window_ms": cmp.Or(w.window, patient)}
	}
	tg.write(hello)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			_, raw, err := ws.Read(ctx)
			if err != nil {
				return
			}
			var m obj
			if json.Unmarshal(raw, &m) != nil {
				continue
			}
			typ, _ := m["type"].(string)
			if typ == "ping" {
				_ = ws.Write(ctx, websocket.MessageText, []byte(`{"type":"pong"}`))
			}
			if strings.HasPrefix(typ, "control.") || strings.Contains(typ, ".control.") {
				tg.commands <- m
			}
		}
	}()
	w.t.Cleanup(func() { stop(); ws.CloseNow(); <-done })
	return tg
}

func (tg *target) write(v any) {
	tg.t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		tg.t.Fatal(err)
	}
	if err := tg.ws.Write(tg.t.Context(), websocket.MessageText, raw); err != nil {
		tg.t.Fatalf("the target cannot send: %v", err)
	}
}

// emit sends an event of the session, and gives its id.
func (tg *target) emit(typ string, data any, more ...obj) string {
	tg.t.Helper()
	tg.mu.Lock()
	seq := tg.seq
	tg.seq++
	tg.mu.Unlock()
	ev := obj{
		"aep": "0.1", "id": fmt.Sprintf("%s-%06d", tg.session, seq), "type": typ, "time": time.Now().UTC().Format("2006-01-02T15:04:05.000Z"),
		"source": "aep://host-a/agent/" + url.PathEscape(tg.agent) + "/session/" + url.PathEscape(tg.session), "agent": tg.agent, "session": tg.session, "seq": seq, "capture": "full",
	}
	if data != nil {
		ev["data"] = data
	}
	if strings.HasPrefix(typ, "attention.requested") {
		ev["severity"] = "notice"
	}
	for _, m := range more {
		for k, v := range m {
			ev[k] = v
		}
	}
	tg.write(ev)
	return ev["id"].(string)
}

// begin starts the session and a run in it.
func (tg *target) begin(cwd string) {
	tg.emit("session.started", obj{"cwd": cwd, "client": obj{"name": tg.agent}})
	tg.emit("run.started", obj{"trigger": "user", "prompt": "tidy up"}, obj{"run": "r1", "subject": "r1"})
}

const digest = "0123456789abcdef0123456789abcdef"

// ask has the agent want to use a tool, and ask about it.
func (tg *target) ask(tool string, args obj, more obj) (call, request string) {
	tg.t.Helper()
	call = tg.emit("tool.requested", obj{"tool": obj{"name": tool, "call_id": "c1"}, "args_digest": digest, "args": args}, obj{"run": "r1", "subject": tool})
	data := obj{
		"kind": "permission", "prompt": "Permission requested: " + tool + " — " + fmt.Sprint(args["command"]),
		"options": []obj{{"id": "allow", "label": "Allow"}, {"id": "deny", "label": "Deny"}}, "respond_via": []string{"control"},
		"expires_at": time.Now().Add(2 * time.Minute).UTC().Format(time.RFC3339),
	}
	for k, v := range more {
		data[k] = v
	}
	return call, tg.emit("attention.requested", data, obj{"run": "r1", "subject": tool, "cause": call, "capture": "redacted"})
}

// hear waits for the next command.
func (tg *target) hear() obj {
	tg.t.Helper()
	select {
	case c := <-tg.commands:
		return c
	case <-time.After(time.Minute):
		tg.t.Fatal("the target heard no command")
		return nil
	}
}

func (tg *target) accept(c obj) string {
	return tg.emit("control.accepted", obj{}, obj{"cause": c["id"]})
}

func (tg *target) reject(c obj, reason, detail string) {
	tg.emit("control.rejected", obj{"reason": reason, "detail": detail}, obj{"cause": c["id"]})
}

// settle tells what an answer came to.
func (tg *target) settle(c obj) {
	request := c["subject"]
	tg.emit("attention.answered", obj{"answer": c["data"].(obj)["answer"], "by": c["agent"], "via": "control"}, obj{"subject": request, "cause": c["id"]})
	tg.emit("attention.resolved", obj{"resolution": "answered", "latency_ms": 1200}, obj{"subject": request, "cause": c["id"]})
}

// post sends n lines by POST: they claim nothing.
func (w *world) post(t *testing.T, n int, line func() string) {
	t.Helper()
	for n > 0 {
		var b strings.Builder
		for range min(n, 5000) {
			b.WriteString(line())
			b.WriteByte('\n')
			n--
		}
		req, err := http.NewRequestWithContext(t.Context(), "POST", w.base+"/events", strings.NewReader(b.String()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Authorization": {"Bearer " + token}, "Aep-Version": {"0.1"}, "Content-Type": {"application/x-ndjson"}}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusAccepted {
			t.Fatalf("POST /events: %s", resp.Status)
		}
	}
}
