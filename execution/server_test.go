package execution

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// The checks come in the protocol's order: a request that fails several hears
// of the first.
func TestOrderOfChecks(t *testing.T) {
	w := newWorld(t)
	bad := map[string]string{"Authorization": "Bearer nobody", versionHeader: "aep-1999-01-01", sessionHeader: "ses_x"}
	reader := map[string]string{"Authorization": "Bearer reader"}
	ofReader := func() map[string]string {
		_, body := w.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"requested_versions":["`+Version+`"]}}`, reader)
		var r reply
		if err := json.Unmarshal([]byte(body), &r); err != nil {
			t.Fatal(err)
		}
		return map[string]string{"Authorization": "Bearer reader", sessionHeader: r.Result["session_id"].(string)}
	}()
	call := func(method, params string) string {
		return `{"jsonrpc":"2.0","id":7,"method":"` + method + `","params":` + params + `}`
	}
	for _, c := range []struct {
		name   string
		body   string
		change map[string]string
		want   Code
		status int
	}{
		{"token", call("no.such", "[]"), bad, AuthnFailed, 401},
		{"no token", call("agent.list", "{}"), map[string]string{"Authorization": ""}, AuthnFailed, 401},
		{"another scheme", call("agent.list", "{}"), map[string]string{"Authorization": "Basic " + full}, AuthnFailed, 401},
		{"a bad token before bad JSON", "{", bad, AuthnFailed, 401},
		{"version", call("no.such", "[]"), map[string]string{versionHeader: "aep-1999-01-01", sessionHeader: "ses_x"}, VersionMismatch, 400},
		{"no version", call("agent.list", "{}"), map[string]string{versionHeader: ""}, VersionMismatch, 400},
		{"session", call("no.such", "[]"), map[string]string{sessionHeader: "ses_x"}, SessionExpired, 401},
		{"no session", call("agent.list", "{}"), map[string]string{sessionHeader: ""}, SessionExpired, 401},
		{"another token's session", call("agent.list", "{}"), reader, SessionExpired, 401},
		{"method", call("no.such", "[]"), ofReader, MethodNotFound, 200},
		{"capability", call("memory.write", "[]"), ofReader, CapabilityNotSupported, 200},
		{"scope", call("agent.create", "[]"), ofReader, AuthzDenied, 403},
		{"params", call("run.get", "[]"), ofReader, InvalidParams, 200},
		{"params of a wrong type", call("agent.get", `{"agent_id":5}`), nil, InvalidParams, 200},
		{"state", call("run.get", `{"run_id":"run_01"}`), nil, InvalidParams, 200},
		{"JSON", "{", nil, ParseError, 400},
		{"no request", "[]", nil, InvalidRequest, 400},
		{"a number", "5", nil, InvalidRequest, 400},
		{"no version of JSON-RPC", `{"id":1,"method":"agent.list"}`, nil, InvalidRequest, 400},
		{"an id that is none", `{"jsonrpc":"2.0","id":{},"method":"agent.list"}`, nil, InvalidRequest, 400},
		{"depth", strings.Repeat("[", 100_000), nil, ParseError, 400},
		{"a batch too large", "[" + strings.Repeat(call("agent.list", "{}")+",", 10_000) + call("agent.list", "{}") + "]", nil, InvalidRequest, 400},
		{"a body too large", `"` + strings.Repeat("x", maxBody) + `"`, nil, InvalidRequest, 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			status, body := w.post(c.body, c.change)
			var r reply
			if err := json.Unmarshal([]byte(body), &r); err != nil {
				t.Fatalf("%v in %.200q", err, body)
			}
			if r.Error == nil || r.Error.Code != c.want || status != c.status {
				t.Errorf("status %d, error %+v; want %d and %d", status, r.Error, c.status, c.want)
			}
			if want := any(float64(7)); strings.HasPrefix(c.body, `{"jsonrpc":"2.0","id":7`) && r.ID != want {
				t.Errorf("id %v, want %v", r.ID, want)
			}
		})
	}
}

// Ids of every kind come back as they went; a notification has no answer.
func TestJSONRPC(t *testing.T) {
	w := newWorld(t)
	for _, id := range []string{`1`, `"a"`, `-1`, `1.5`, `"\u0000"`, `""`, `9007199254740993`, `null`} {
		_, body := w.post(`{"jsonrpc":"2.0","id":`+id+`,"method":"agent.list"}`, nil)
		var r struct{ ID json.RawMessage }
		if err := json.Unmarshal([]byte(body), &r); err != nil || string(r.ID) != id {
			t.Errorf("id %s came back as %s", id, r.ID)
		}
	}
	if status, body := w.post(`{"jsonrpc":"2.0","method":"agent.list"}`, nil); status != 204 || body != "" {
		t.Errorf("a notification: %d %q", status, body)
	}
	status, body := w.post(`[{"jsonrpc":"2.0","id":1,"method":"agent.list"},{"jsonrpc":"2.0","method":"agent.list"},5,{"jsonrpc":"2.0","id":2,"method":"no"}]`, nil)
	var batch []reply
	if err := json.Unmarshal([]byte(body), &batch); err != nil || status != 200 || len(batch) != 3 {
		t.Fatalf("a batch: %d, %v, %s", status, err, body)
	}
	if batch[0].Error != nil || batch[1].Error.Code != InvalidRequest || batch[1].ID != nil || batch[2].Error.Code != MethodNotFound {
		t.Errorf("a batch: %s", body)
	}
}

func TestInitialize(t *testing.T) {
	w := newWorld(t)
	r := w.must("initialize", map[string]any{
		"client_info": map[string]any{"name": "c", "version": "1"}, "requested_versions": []string{"aep-2030-01-01", Version},
		"requested_capabilities": map[string]bool{"streaming.sse": true, "self.learning_memory": true},
	})
	caps := r["capabilities"].(map[string]any)
	if r["protocol_version"] != Version || len(caps) != 8 || caps["streaming.sse"] != true || caps["self.learning_memory"] != false {
		t.Errorf("%v", r)
	}
	w.fails(VersionMismatch, "initialize", map[string]any{"requested_versions": []string{"aep-2030-01-01"}})
	w.fails(InvalidParams, "initialize", map[string]any{})
	w.sleep(sessionLife + time.Second)
	w.fails(SessionExpired, "agent.list", nil)
}

// A method without a scope is one that anybody could call.
func TestEveryMethodHasItsScope(t *testing.T) {
	for name, m := range methods {
		switch {
		case name == "initialize":
		case m.scope == "":
			t.Errorf("%s has no scope", name)
		case m.call == nil && m.needs == "":
			t.Errorf("%s is not served, and no capability says so", name)
		}
	}
}

// Whatever a body is, it is requests or a refusal, and each request that is
// one has an id that can be told as it came.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"jsonrpc":"2.0","id":7,"method":"agent.list","params":{}}`, `{"jsonrpc":"2.0","method":"agent.list"}`, `[]`, `[1]`, `[[]]`, `{}`, `null`, `"x"`,
		`[{"jsonrpc":"2.0","id":1,"method":"a"},{"jsonrpc":"2.0","method":"b"},5,{"jsonrpc":"2.0","id":null,"method":"c"}]`,
		`{"jsonrpc":"2.0","id":{},"method":"a"}`, `{"jsonrpc":"2.0","id":1e400,"method":"a"}`, `{"jsonrpc":"2.0","id":"\ud800","method":"a"}`,
		`{"jsonrpc":"2.0","id":true,"method":"a","params":"x"}`, `{"jsonrpc":"1.0","id":1,"method":5}`, `{"id":1,"id":2,"method":"a"}`, "{\"jsonrpc\":\"2.0\"", "\xff",
	} {
		f.Add([]byte(s))
	}
	s := &Server{Config: Config{Log: slog.New(slog.DiscardHandler)}}
	f.Fuzz(func(t *testing.T, body []byte) {
		requests, err := parse(body)
		if (err == nil) != (len(requests) > 0) {
			t.Fatalf("%d requests and %v", len(requests), err)
		}
		if err != nil {
			if c := codeOf(err); c != ParseError && c != InvalidRequest {
				t.Fatalf("it is refused as %d", c)
			}
			return
		}
		for _, q := range requests {
			if len(q.ID) > 0 && !json.Valid([]byte(q.ID)) {
				t.Fatalf("the id %q", q.ID)
			}
			b, err := json.Marshal(s.answer(q.ID, struct{}{}, nil))
			if err != nil {
				t.Fatalf("the answer to %q: %v", q.ID, err)
			}
			var back struct{ ID json.RawMessage }
			if err := json.Unmarshal(b, &back); err != nil {
				t.Fatal(err)
			}
			_ = decode(q.Params, &Spec{})
		}
	})
}

// Who names a thing by another word than the protocol's hears the right one.
func TestWrongNameOfAParam(t *testing.T) {
	w := newWorld(t)
	for method, want := range map[string]string{
		"agent.get": "agent_id", "agent.update": "agent_id", "agent.cancel": "agent_id", "agent.archive": "agent_id",
		"run.create": "agent_id", "run.get": "run_id", "run.cancel": "run_id", "run.continue": "run_id",
		"artifact.get": "artifact_id", "artifact.delete": "artifact_id",
		"subject.read": "subject_id", "subject.export": "subject_id", "subject.erase": "subject_id",
	} {
		params := map[string]any{"id": "x", "goal": "g"}
		if method == "subject.erase" {
			params["mode"] = "hard_delete"
		}
		if r := w.fails(InvalidParams, method, params); !strings.Contains(r.Error.Message, want+" is missing") {
			t.Errorf("%s: %q does not name %s", method, r.Error.Message, want)
		}
	}
}
