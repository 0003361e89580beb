package acp

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/adaptertest"
	"aep-wrap/event"
	"aep-wrap/session"
)

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Spec{
		Adapter: Adapter(), Corpus: []string{"acp.json"}, Moments: adapters.Stream, Pins: []string{"pins.json"},
		// A message that no row knows is called by its method.
		Declared: adaptertest.NamedBy("method", "params.update.sessionUpdate"),
	})
}

func FuzzMap(f *testing.F) {
	adaptertest.Fuzz(f, Adapter(), []adapters.Moment{
		message(f, `{"kind":"request","method":"session/prompt","run":"r","call":"c","params":{"sessionId":"s","prompt":[{"type":"text","text":"x"}]}}`),
		message(f, `{"kind":"notification","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t","title":"x","rawInput":{}}}}`),
		message(f, `{"kind":"request","method":"session/request_permission","call":"c","params":{"sessionId":"s","toolCall":{"toolCallId":"t","title":"x"},"options":[{"optionId":"a","name":"A"}]}}`),
	})
}

func message(t testing.TB, raw string) adapters.Moment {
	t.Helper()
	p, err := event.ParseObject([]byte(raw))
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return adapters.Moment{Channel: adapters.Stream, Payload: p, Raw: []byte(raw), Session: "s"}
}

// A turn as the tee shows it.
func TestTurn(t *testing.T) {
	prompt := message(t, `{"kind":"request","method":"session/prompt","run":"l.1","call":"l.1","params":{"sessionId":"s","prompt":[]}}`)
	call := message(t, `{"kind":"notification","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t1","title":"ls","kind":"execute","status":"pending","rawInput":{"command":"ls"}}}}`)
	ask := message(t, `{"kind":"request","method":"session/request_permission","call":"l.a.7","params":{"sessionId":"s","toolCall":{"toolCallId":"t1","title":"ls"},"options":[{"optionId":"yes","name":"Allow","kind":"allow_once"},{"optionId":"no","name":"Deny","kind":"reject_once"}]}}`)
	outcome := func(o string) adapters.Moment {
		return message(t, `{"kind":"response","method":"session/request_permission","call":"l.a.7","request":{"sessionId":"s","toolCall":{"toolCallId":"t1"}},"result":{"outcome":`+o+`}}`)
	}
	update := func(status string) adapters.Moment {
		return message(t, `{"kind":"notification","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"`+status+`"}}}`)
	}
	end := func(reason string) adapters.Moment {
		return message(t, `{"kind":"response","method":"session/prompt","run":"l.1","request":{"sessionId":"s"},"result":{"stopReason":"`+reason+`"}}`)
	}
	for _, tt := range []struct {
		name    string
		moments []adapters.Moment
		want    string
	}{
		{"allowed", []adapters.Moment{prompt, call, ask, outcome(`{"outcome":"selected","optionId":"yes"}`), update("completed"), end("end_turn")},
			"session.started; run.started l.1; tool.requested l.1; attention.requested l.1; attention.answered l.1; attention.resolved l.1; tool.completed l.1; run.finished l.1"},
		{"cancelled while asked", []adapters.Moment{prompt, call, ask, outcome(`{"outcome":"cancelled"}`), update("failed"), end("cancelled")},
			"session.started; run.started l.1; tool.requested l.1; attention.requested l.1; attention.resolved l.1; tool.failed l.1; run.cancelled l.1"},
		{"a request that fails", []adapters.Moment{prompt, message(t, `{"kind":"response","method":"session/prompt","run":"l.1","request":{"sessionId":"s"},"error":{"code":-32603,"message":"m"}}`)},
			"session.started; run.started l.1; run.failed l.1"},
		{"loaded", []adapters.Moment{message(t, `{"kind":"response","method":"session/load","request":{"sessionId":"s","cwd":"/p"},"result":{}}`), prompt, end("max_tokens")},
			"session.started; run.started l.1; run.finished l.1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := session.New(session.Config{Agent: name, Host: "h", Session: "s", State: session.NewState()})
			var got []string
			for _, m := range tt.moments {
				for _, d := range s.Bind(time.Date(2026, 7, 3, 10, 0, 0, 0, time.UTC), mapMoment(m)) {
					got = append(got, strings.TrimSpace(d.Type+" "+d.Run))
				}
			}
			if s := strings.Join(got, "; "); s != tt.want {
				t.Errorf("got  %s\nwant %s", s, tt.want)
			}
		})
	}
}

func TestAnswer(t *testing.T) {
	ask := message(t, `{"kind":"request","method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t1","title":"ls"},"options":[{"optionId":"yes","name":"Allow","kind":"allow_once"}]}}`)
	if got := asks(ask); got != (adapters.Ask{Held: true, Both: true}) {
		t.Errorf("%+v", got)
	}
	if got := asks(message(t, `{"kind":"response","method":"session/request_permission"}`)); got != (adapters.Ask{}) {
		t.Errorf("%+v", got)
	}
	if got, want := string(Reply(ask, adapters.Answer{Option: "yes"})), `{"outcome":{"optionId":"yes","outcome":"selected"}}`; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	for _, a := range []adapters.Answer{{Option: "no"}, {}, {Text: "yes"}} {
		if got := Reply(ask, a); got != nil {
			t.Errorf("%+v: %s", a, got)
		}
	}
	ask.Held = true
	d := mapMoment(ask)[0]
	if d.Fields.Get("options") == nil || d.Fields.Get("options_count") != nil || d.Link.Args != "" {
		t.Errorf("%+v", d)
	}
	ask.Payload["params"].(map[string]any)["toolCall"].(map[string]any)["rawInput"] = "x"
	if d := mapMoment(ask)[0]; d.Link.Args != event.Digest("x") {
		t.Errorf("it is bound to %q", d.Link.Args)
	}
	ask.Payload["input"] = "told"
	if d := mapMoment(ask)[0]; d.Link.Args != "told" {
		t.Errorf("it is bound to %q", d.Link.Args)
	}
	acts := Cancel(adapters.Target{Session: "s"})
	if len(acts) != 1 || acts[0].Request.Method != "session/cancel" || string(acts[0].Request.Body) != `{"sessionId":"s"}` {
		t.Errorf("%+v", acts)
	}
}

// What real agents and editors said maps to valid events, message by message.
func TestCaptures(t *testing.T) {
	n := 0
	for _, vendor := range []string{"copilot", "gemini-cli", "kimi-code", "cline"} {
		for _, m := range adaptertest.Captures(t, adapters.Stream, vendor, "acp", "*.ndjson") {
			kind := map[bool]string{true: "request", false: "notification"}[m.Payload["id"] != nil]
			if m.Payload["method"] == nil {
				kind = "response"
			}
			m.Payload["kind"] = json.RawMessage(nil)
			m.Payload["kind"] = kind
			m.Session = "s"
			s := session.New(session.Config{Agent: name, Host: "h", Session: "s"})
			s.Bind(time.Now(), mapMoment(m))
			n++
		}
	}
	if n == 0 {
		t.Skip("there are no captures at " + filepath.Join("..", "captures"))
	}
}
