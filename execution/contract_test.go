package execution

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"testing"
)

// faults are what can be wrong with a call's headers, in the order in which it
// is looked for.
var faults = []struct {
	name          string
	code          Code
	header, value string
}{
	{"token", AuthnFailed, "Authorization", "Bearer nobody"},
	{"version", VersionMismatch, versionHeader, "aep-1999-01-01"},
	{"session", SessionExpired, sessionHeader, "ses_none"},
}

// rows says of each method what a good call is, and what else it can be refused
// for. A value "$agent" and the like is an id of the world.
var rows = map[string]struct {
	good  map[string]any   // nil where its capability is not served
	wrong []map[string]any // params that do not fit
	fails map[Code]map[string]any
}{
	"initialize": {good: map[string]any{"requested_versions": []any{Version}},
		wrong: []map[string]any{{}, {"requested_versions": Version}, {"requested_versions": []any{5}}},
		fails: map[Code]map[string]any{VersionMismatch: {"requested_versions": []any{"aep-1999-01-01"}}}},

	"agent.create": {good: map[string]any{"name": "a", "constitution": map[string]any{}, "toolset": []any{}},
		wrong: []map[string]any{{}, {"name": 5}, {"name": "a", "toolset": "Bash"}, {"name": "a", "ceilings": map[string]any{"max_cycles": -1}}},
		fails: map[Code]map[string]any{
			ToolNotFound:           {"name": "a", "toolset": []any{"Nuke"}},
			PolicyViolation:        {"name": "a", "constitution": map[string]any{"mutable_prompt": "x"}, "metadata": map[string]any{"profile": "plain"}},
			CapabilityNotSupported: {"name": "a", "toolset": []any{"Bash"}, "metadata": map[string]any{"profile": "plain"}},
		}},
	"agent.get":  {good: map[string]any{"agent_id": "$agent"}, wrong: ofID("agent_id")},
	"agent.list": {good: map[string]any{}, wrong: ofList},
	"agent.update": {good: map[string]any{"agent_id": "$agent", "name": "b"}, wrong: append(ofID("agent_id"), map[string]any{"agent_id": "$agent", "name": ""}),
		fails: map[Code]map[string]any{
			LifecycleConflict: {"agent_id": "$archived", "name": "b"},
			ToolNotFound:      {"agent_id": "$agent", "toolset": []any{"Nuke"}},
		}},
	"agent.cancel":                {good: map[string]any{"agent_id": "$agent"}, wrong: ofID("agent_id"), fails: map[Code]map[string]any{LifecycleConflict: {"agent_id": "$archived"}}},
	"agent.archive":               {good: map[string]any{"agent_id": "$agent"}, wrong: ofID("agent_id"), fails: map[Code]map[string]any{LifecycleConflict: {"agent_id": "$busy"}}},
	"agent.approve_prompt_change": {},

	"run.create": {good: map[string]any{"agent_id": "$agent", "goal": "x"},
		wrong: append(ofID("agent_id"), map[string]any{"agent_id": "$agent"}, map[string]any{"agent_id": "$agent", "goal": 5}),
		fails: map[Code]map[string]any{LifecycleConflict: {"agent_id": "$archived", "goal": "x"}}},
	"run.get":      {good: map[string]any{"run_id": "$run"}, wrong: ofID("run_id")},
	"run.list":     {good: map[string]any{"agent_id": "$busy"}, wrong: append(ofID("agent_id"), map[string]any{"agent_id": "$busy", "limit": 0})},
	"run.cancel":   {good: map[string]any{"run_id": "$running"}, wrong: ofID("run_id"), fails: map[Code]map[string]any{LifecycleConflict: {"run_id": "$run"}}},
	"run.continue": {good: map[string]any{"run_id": "$sleeping"}, wrong: ofID("run_id"), fails: map[Code]map[string]any{LifecycleConflict: {"run_id": "$run"}}},

	"artifact.get":    {good: map[string]any{"artifact_id": "$artifact"}, wrong: ofID("artifact_id")},
	"artifact.list":   {good: map[string]any{}, wrong: ofList},
	"artifact.delete": {good: map[string]any{"artifact_id": "$artifact"}, wrong: ofID("artifact_id")},

	"memory.write": {}, "memory.read": {}, "memory.search": {}, "memory.delete": {},
	"message.send": {}, "message.inbox": {}, "message.list": {},

	"subject.export": {good: map[string]any{"subject_id": "ann"}, wrong: []map[string]any{{"subject_id": 5}}, fails: map[Code]map[string]any{SubjectNotFound: {"subject_id": "eve"}}},
	"subject.read":   {good: map[string]any{"subject_id": "ann"}, wrong: []map[string]any{{"subject_id": 5}}, fails: map[Code]map[string]any{SubjectNotFound: {"subject_id": "eve"}}},
	"subject.erase": {good: map[string]any{"subject_id": "ann", "mode": "redact"}, wrong: []map[string]any{{"subject_id": "ann"}, {"subject_id": "ann", "mode": "all"}},
		fails: map[Code]map[string]any{SubjectNotFound: {"subject_id": "eve", "mode": "redact"}, LifecycleConflict: {"subject_id": "bob", "mode": "redact"}}},
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

// contract is a world with something of every kind in it.
type contract struct {
	*world
	ids map[string]string
}

func newContract(t *testing.T) *contract {
	w := &contract{world: newWorld(t), ids: map[string]string{}}
	w.ids["$agent"] = w.agent(nil)
	w.ids["$archived"] = w.agent(nil)
	w.must("agent.archive", map[string]any{"agent_id": w.ids["$archived"]})
	w.ids["$busy"] = w.agent(map[string]any{"subject_ids": []string{"bob"}})
	w.ids["$running"], _ = w.run(w.ids["$busy"])
	ofAnn := w.agent(map[string]any{"subject_ids": []string{"ann"}})
	var j *job
	w.ids["$run"], j = w.run(ofAnn)
	w.made(w.ids["$run"], "made.txt")
	w.done(w.ids["$run"], j)
	w.ids["$artifact"] = w.must("artifact.list", map[string]any{})["items"].([]any)[0].(map[string]any)["id"].(string)
	w.ids["$sleeping"], j = w.run(w.agent(nil))
	j.tell("session.started", "", nil)
	j.end(Outcome{Lost: true})
	w.eventually("sleep", func() bool { return w.state(w.ids["$sleeping"]) == Sleeping })
	return w
}

// params has the world's ids put in.
func (w *contract) params(p map[string]any) string {
	w.t.Helper()
	p = maps.Clone(p)
	for k, v := range p {
		if s, ok := v.(string); ok && w.ids[s] != "" {
			p[k] = w.ids[s]
		}
	}
	b, err := json.Marshal(p)
	if err != nil {
		w.t.Fatal(err)
	}
	return string(b)
}

// hears sends a call and checks what it hears; 0 is that it is served.
func (w *contract) hears(want Code, method, params string, change map[string]string) {
	w.t.Helper()
	status, body := w.post(fmt.Sprintf(`{"jsonrpc":"2.0","id":7,"method":%q,"params":%s}`, method, params), change)
	var r struct {
		JSONRPC string
		ID      any
		Result  json.RawMessage
		Error   *struct {
			Code Code
			Data map[string]any
		}
	}
	if err := json.Unmarshal([]byte(body), &r); err != nil || r.JSONRPC != "2.0" || r.ID != 7.0 || status >= 500 {
		w.t.Fatalf("%s %s: %d %s", method, params, status, body)
	}
	switch {
	case want == 0 && (r.Error != nil || status != 200 || r.Result == nil):
		w.t.Errorf("%s %s: %d %s", method, params, status, body)
	case want != 0 && (r.Error == nil || r.Error.Code != want || r.Error.Data["name"] != codes[want].name || status != codes[want].status):
		w.t.Errorf("%s %s: %d %s, want %d", method, params, status, body, want)
	}
}

// Every method hears every error that it can, and is served when nothing is
// wrong. A method without a row fails, as does a code that no row shows.
func TestContract(t *testing.T) {
	shown := map[Code]bool{ParseError: true, InvalidRequest: true, // of a request, not of a method: TestOrderOfChecks
		InternalError:         true, // of a run that cannot be started
		CeilingExceeded:       true, // of a run's end: TestEndsOfARun
		BudgetExhausted:       true,
		TreeBoundaryViolation: true, // there are no trees: an agent's root is itself
	}
	for _, name := range slices.Sorted(maps.Keys(methods)) {
		t.Run(name, func(t *testing.T) {
			row, ok := rows[name]
			if !ok {
				t.Fatal("the suite has no row for it")
			}
			w := newContract(t)
			m := methods[name]
			good := "{}"
			if row.good != nil {
				good = w.params(row.good)
			}
			for _, f := range faults {
				if f.name == "session" && name == "initialize" {
					continue
				}
				w.hears(f.code, name, good, map[string]string{f.header: f.value})
				w.hears(f.code, name, good, map[string]string{f.header: ""})
				shown[f.code] = true
			}
			if m.needs != "" {
				offered := w.srv.offered[m.needs]
				w.srv.offered[m.needs] = false
				w.hears(CapabilityNotSupported, name, good, nil)
				w.srv.offered[m.needs] = offered
			}
			if m.call == nil {
				return
			}
			if m.scope != "" {
				w.hears(AuthzDenied, name, good, w.without(m.scope))
				shown[AuthzDenied] = true
			}
			w.hears(InvalidParams, name, `[]`, nil)
			w.hears(InvalidRequest, name, `"x"`, nil) // JSON-RPC has no such params
			for _, p := range row.wrong {
				w.hears(InvalidParams, name, w.params(p), nil)
				shown[InvalidParams] = true
			}
			for code, p := range row.fails {
				w.hears(code, name, w.params(p), nil)
				shown[code] = true
			}
			w.hears(0, name, good, nil)
		})
	}
	shown[MethodNotFound], shown[CapabilityNotSupported] = true, true // below, and above
	for code := range codes {
		if !shown[code] {
			t.Errorf("nothing shows %s", codes[code].name)
		}
	}
	for name := range rows {
		if _, ok := methods[name]; !ok {
			t.Errorf("the suite has a row for %s, which is no method", name)
		}
	}
}

// without are the headers of a token that has every scope but one.
func (w *contract) without(sc Scope) map[string]string {
	w.t.Helper()
	token := "no-" + string(sc)
	_, body := w.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"requested_versions":["`+Version+`"]}}`, map[string]string{"Authorization": "Bearer " + token})
	var r reply
	if err := json.Unmarshal([]byte(body), &r); err != nil || r.Error != nil {
		w.t.Fatal(body)
	}
	return map[string]string{"Authorization": "Bearer " + token, sessionHeader: r.Result["session_id"].(string)}
}

// Of two things that are wrong the one is told that is looked for first: token,
// version, session, method, capability, scope, params, state.
func TestOrderOfChecksPairwise(t *testing.T) {
	w := newContract(t)
	less := w.without(AgentWrite)
	type fault struct {
		name   string
		code   Code
		header map[string]string
	}
	var headers []fault
	for _, f := range faults {
		headers = append(headers, fault{f.name, f.code, map[string]string{f.header: f.value}})
	}
	// What is wrong with the call itself, each with the token that lacks a scope
	// where that is the fault, from the first that is looked for on.
	calls := []struct {
		name, method, params string
		code                 Code
		less                 bool
	}{
		{"method", "no.such", "[]", MethodNotFound, true},
		{"capability", "message.send", "[]", CapabilityNotSupported, true}, // its scope is lacking too
		{"scope", "agent.update", "[]", AuthzDenied, true},
		{"params", "agent.update", "[]", InvalidParams, false},
		{"state", "agent.update", w.params(map[string]any{"agent_id": "$archived", "name": "b"}), LifecycleConflict, false},
		{"params before state", "agent.update", w.params(map[string]any{"agent_id": "$archived", "name": 5}), InvalidParams, false},
	}
	for i, a := range headers {
		for _, b := range headers[i+1:] {
			both := maps.Clone(a.header)
			maps.Copy(both, b.header)
			t.Run(a.name+" before "+b.name, func(t *testing.T) { w.hears(a.code, "agent.list", "{}", both) })
		}
		for _, c := range calls {
			t.Run(a.name+" before "+c.name, func(t *testing.T) { w.hears(a.code, c.method, c.params, a.header) })
		}
	}
	for _, c := range calls {
		t.Run(c.name, func(t *testing.T) {
			change := map[string]string(nil)
			if c.less {
				change = less
			}
			w.hears(c.code, c.method, c.params, change)
		})
	}
}
