// Package executiontest is the contract of the Agent Execution Protocol as a
// table: of each method a good call, its scope, and what it can be refused for.
// It asks over a socket and knows nothing of the server, not even its constants.
// Only tests import it.
package executiontest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
)

const (
	version = "aep-2026-04-24"
	memory  = "self.learning_memory"
	peers   = "messaging.peer"
)

// Error is how an error is told.
type Error struct{ Code, Status int }

// Errors are the protocol's, by their names.
var Errors = map[string]Error{
	"parse_error": {-32700, 400}, "invalid_request": {-32600, 400}, "method_not_found": {-32601, 200}, "invalid_params": {-32602, 200}, "internal_error": {-32603, 200},
	"authn_failed": {-32000, 401}, "authz_denied": {-32001, 403}, "capability_not_supported": {-32002, 200}, "ceiling_exceeded": {-32003, 200},
	"budget_exhausted": {-32004, 200}, "tree_boundary_violation": {-32005, 200}, "subject_not_found": {-32006, 200}, "constitution_policy_violation": {-32007, 200},
	"tool_not_found": {-32008, 200}, "version_mismatch": {-32009, 400}, "session_expired": {-32010, 401}, "lifecycle_conflict": {-32011, 200},
}

// Fault is a thing that can be wrong with a call's headers.
type Fault struct{ Name, Error, Header, Value string }

// Faults are all, in the order in which they are looked for.
var Faults = []Fault{
	{"token", "authn_failed", "Authorization", "Bearer nobody"},
	{"version", "version_mismatch", "Agent-Protocol-Version", "aep-1999-01-01"},
	{"session", "session_expired", "X-AEP-Session-Id", "ses_none"},
}

// Row says of a method what a good call is, and what else it can be refused
// for. A value "$agent" and the like is an id of the world that is asked.
type Row struct {
	Needs string           // the capability of a method that is not served without
	Scope string           // of the token
	Good  map[string]any   // nil where the capability is not served
	Wrong []map[string]any // params that do not fit
	Fails map[string]map[string]any
}

// Rows are the protocol's methods.
var Rows = map[string]Row{
	"initialize": {Good: map[string]any{"requested_versions": []any{version}},
		Wrong: []map[string]any{{}, {"requested_versions": version}, {"requested_versions": []any{5}}},
		Fails: map[string]map[string]any{"version_mismatch": {"requested_versions": []any{"aep-1999-01-01"}}}},

	"agent.create": {Scope: "agent.write", Good: map[string]any{"name": "a", "constitution": map[string]any{}, "toolset": []any{}},
		Wrong: []map[string]any{{}, {"name": 5}, {"name": "a", "toolset": "Bash"}, {"name": "a", "ceilings": map[string]any{"max_cycles": -1}}},
		Fails: map[string]map[string]any{
			"tool_not_found":                {"name": "a", "toolset": []any{"Nuke"}},
			"constitution_policy_violation": {"name": "a", "constitution": map[string]any{"mutable_prompt": "x"}, "metadata": map[string]any{"profile": "plain"}},
			"capability_not_supported":      {"name": "a", "toolset": []any{"Bash"}, "metadata": map[string]any{"profile": "plain"}},
		}},
	"agent.get":  {Scope: "agent.read", Good: map[string]any{"agent_id": "$agent"}, Wrong: ofID("agent_id")},
	"agent.list": {Scope: "agent.read", Good: map[string]any{}, Wrong: ofList},
	"agent.update": {Scope: "agent.write", Good: map[string]any{"agent_id": "$agent", "name": "b"}, Wrong: append(ofID("agent_id"), map[string]any{"agent_id": "$agent", "name": ""}),
		Fails: map[string]map[string]any{
			"lifecycle_conflict": {"agent_id": "$archived", "name": "b"},
			"tool_not_found":     {"agent_id": "$agent", "toolset": []any{"Nuke"}},
		}},
	"agent.cancel":                {Scope: "run.cancel", Good: map[string]any{"agent_id": "$agent"}, Wrong: ofID("agent_id"), Fails: map[string]map[string]any{"lifecycle_conflict": {"agent_id": "$archived"}}},
	"agent.archive":               {Scope: "agent.write", Good: map[string]any{"agent_id": "$agent"}, Wrong: ofID("agent_id"), Fails: map[string]map[string]any{"lifecycle_conflict": {"agent_id": "$busy"}}},
	"agent.approve_prompt_change": {Needs: "self.modify_prompt"},

	"run.create": {Scope: "run.create", Good: map[string]any{"agent_id": "$agent", "goal": "x"},
		Wrong: append(ofID("agent_id"), map[string]any{"agent_id": "$agent"}, map[string]any{"agent_id": "$agent", "goal": 5}),
		Fails: map[string]map[string]any{"lifecycle_conflict": {"agent_id": "$archived", "goal": "x"}}},
	"run.get":      {Scope: "run.read", Good: map[string]any{"run_id": "$run"}, Wrong: ofID("run_id")},
	"run.list":     {Scope: "run.read", Good: map[string]any{"agent_id": "$busy"}, Wrong: append(ofID("agent_id"), map[string]any{"agent_id": "$busy", "limit": 0})},
	"run.cancel":   {Scope: "run.cancel", Good: map[string]any{"run_id": "$running"}, Wrong: ofID("run_id"), Fails: map[string]map[string]any{"lifecycle_conflict": {"run_id": "$run"}}},
	"run.continue": {Scope: "run.create", Good: map[string]any{"run_id": "$sleeping"}, Wrong: ofID("run_id"), Fails: map[string]map[string]any{"lifecycle_conflict": {"run_id": "$run"}}},

	"artifact.get":    {Scope: "run.read", Good: map[string]any{"artifact_id": "$artifact"}, Wrong: ofID("artifact_id")},
	"artifact.list":   {Scope: "run.read", Good: map[string]any{}, Wrong: ofList},
	"artifact.delete": {Scope: "agent.write", Good: map[string]any{"artifact_id": "$artifact"}, Wrong: ofID("artifact_id")},

	"memory.write": {Needs: memory}, "memory.read": {Needs: memory}, "memory.search": {Needs: memory}, "memory.delete": {Needs: memory},
	"message.send": {Needs: peers}, "message.inbox": {Needs: peers}, "message.list": {Needs: peers},

	"subject.export": {Scope: "subject.export", Good: map[string]any{"subject_id": "$ann"}, Wrong: []map[string]any{{"subject_id": 5}}, Fails: map[string]map[string]any{"subject_not_found": {"subject_id": "eve"}}},
	"subject.read":   {Scope: "subject.read", Good: map[string]any{"subject_id": "$ann"}, Wrong: []map[string]any{{"subject_id": 5}}, Fails: map[string]map[string]any{"subject_not_found": {"subject_id": "eve"}}},
	"subject.erase": {Scope: "subject.erase", Good: map[string]any{"subject_id": "$ann", "mode": "redact"}, Wrong: []map[string]any{{"subject_id": "$ann"}, {"subject_id": "$ann", "mode": "all"}},
		Fails: map[string]map[string]any{"subject_not_found": {"subject_id": "eve", "mode": "redact"}, "lifecycle_conflict": {"subject_id": "$bob", "mode": "redact"}}},
}

var ofList = []map[string]any{{"limit": 0}, {"limit": 201}, {"limit": "x"}, {"cursor": "../x"}}

// ofID are params whose id is none, of another kind, or unknown.
func ofID(name string) (out []map[string]any) {
	out = append(out, map[string]any{})
	for _, id := range []any{5, nil, "", "x", "../../etc/passwd", "agt_../x", "ses_01", "agt_00000000000000000000000000", "run_00000000000000000000000000", "art_00000000000000000000000000"} {
		out = append(out, map[string]any{name: id})
	}
	return out
}

// Methods are the rows' names, in order.
func Methods() []string {
	return slices.Sorted(maps.Keys(Rows))
}

// Suite is a runtime with something of every kind in it.
type Suite struct {
	// Post sends a body with the headers of a good request but for what change
	// says ("" takes one away), and gives status and answer.
	Post func(body string, change map[string]string) (int, string)
	// ID is the id that a "$name" of the table stands for.
	ID func(name string) string
	// Without are the headers of a token that has every scope but this one.
	Without func(scope string) map[string]string
}

// Hears sends a call and checks what it hears; "" is that it is served.
func (s *Suite) Hears(t testing.TB, want, method, params string, change map[string]string) {
	t.Helper()
	status, body := s.Post(fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, params), change)
	var r struct {
		JSONRPC string
		ID      any
		Result  json.RawMessage
		Error   *struct {
			Code int
			Data map[string]any
		}
	}
	if err := json.Unmarshal([]byte(body), &r); err != nil || r.JSONRPC != "2.0" || r.ID != 7.0 || status >= 500 {
		t.Fatalf("%s %s: %d %s", method, params, status, body)
	}
	e := Errors[want]
	switch {
	case want == "" && (r.Error != nil || status != 200 || r.Result == nil):
		t.Errorf("%s %s: %d %s", method, params, status, body)
	case want != "" && (r.Error == nil || r.Error.Code != e.Code || r.Error.Data["name"] != want || status != e.Status):
		t.Errorf("%s %s: %d %s, want %s", method, params, status, body, want)
	}
}

// Params has the world's ids put in.
func (s *Suite) Params(p map[string]any) string {
	p = maps.Clone(p)
	for k, v := range p {
		if name, ok := v.(string); ok && len(name) > 1 && name[0] == '$' {
			p[k] = s.ID(name)
		}
	}
	b, err := json.Marshal(p)
	if err != nil {
		panic(err) // of the table's own
	}
	return string(b)
}

// Check asks a method for every error that it can hear, and for its service
// when nothing is wrong. It gives the errors that were shown.
func (s *Suite) Check(t testing.TB, method string) (shown []string) {
	t.Helper()
	row, ok := Rows[method]
	if !ok {
		t.Fatalf("the suite has no row for %s", method)
	}
	hears := func(want, params string, change map[string]string) {
		t.Helper()
		s.Hears(t, want, method, params, change)
		shown = append(shown, want)
	}
	good := "{}"
	if row.Good != nil {
		good = s.Params(row.Good)
	}
	for _, f := range Faults {
		if f.Name == "session" && method == "initialize" {
			continue
		}
		hears(f.Error, good, map[string]string{f.Header: f.Value})
		hears(f.Error, good, map[string]string{f.Header: ""})
	}
	if row.Needs != "" {
		hears("capability_not_supported", good, nil)
		return shown
	}
	if row.Scope != "" {
		hears("authz_denied", good, s.Without(row.Scope))
	}
	hears("invalid_params", `[]`, nil)
	hears("invalid_request", `"x"`, nil) // JSON-RPC has no such params
	for _, p := range row.Wrong {
		hears("invalid_params", s.Params(p), nil)
	}
	for name, p := range row.Fails {
		hears(name, s.Params(p), nil)
	}
	hears("", good, nil)
	return shown
}
