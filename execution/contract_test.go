package execution

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"aep-wrap/execution/executiontest"
)

// contract is a world with something of every kind in it.
type contract struct {
	*world
	ids map[string]string
}

func newContract(t *testing.T) *contract {
	w := &contract{world: newWorld(t), ids: map[string]string{"$ann": "ann", "$bob": "bob"}}
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

// suite is the contract's table, asked of this world.
func (w *contract) suite() *executiontest.Suite {
	return &executiontest.Suite{Post: w.post, ID: func(name string) string { return w.ids[name] },
		Without: func(sc string) map[string]string { return w.without(Scope(sc)) }}
}

func (w *contract) params(p map[string]any) string { return w.suite().Params(p) }

// hears sends a call and checks what it hears; 0 is that it is served.
func (w *contract) hears(want Code, method, params string, change map[string]string) {
	w.t.Helper()
	w.suite().Hears(w.t, codes[want].name, method, params, change)
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
			w := newContract(t)
			m := methods[name]
			if m.needs != "" {
				offered := w.srv.offered[m.needs]
				w.srv.offered[m.needs] = false
				w.hears(CapabilityNotSupported, name, "{}", nil)
				w.srv.offered[m.needs] = offered
			}
			for _, e := range w.suite().Check(t, name) {
				shown[Code(executiontest.Errors[e].Code)] = true
			}
			if row := executiontest.Rows[name]; (row.Needs != "") != (m.call == nil) || m.call != nil && row.Scope != string(m.scope) {
				t.Errorf("the suite says %q %q of it, the server %q %q", row.Needs, row.Scope, m.needs, m.scope)
			}
		})
	}
	shown[MethodNotFound], shown[CapabilityNotSupported] = true, true // below, and above
	for code := range codes {
		if !shown[code] {
			t.Errorf("nothing shows %s", codes[code].name)
		}
		if e := executiontest.Errors[codes[code].name]; Code(e.Code) != code || e.Status != codes[code].status {
			t.Errorf("%s is %d with status %d", codes[code].name, code, codes[code].status)
		}
	}
	for name := range executiontest.Rows {
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
	for _, f := range executiontest.Faults {
		headers = append(headers, fault{f.Name, Code(executiontest.Errors[f.Error].Code), map[string]string{f.Header: f.Value}})
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
