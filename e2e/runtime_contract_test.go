package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"aep-wrap/event/eventtest"
	"aep-wrap/execution"
	"aep-wrap/execution/executiontest"
)

// post is the contract's way to a runtime.
func (e *embedder) post(body string, change map[string]string) (int, string) {
	e.w.t.Helper()
	req, err := http.NewRequest("POST", e.base+"/aep/v1/rpc", bytes.NewReader([]byte(body)))
	if err != nil {
		e.w.t.Fatal(err)
	}
	for k, v := range map[string]string{"Authorization": "Bearer " + e.token, "Agent-Protocol-Version": execution.Version, "X-AEP-Session-Id": e.session} {
		if c, ok := change[k]; ok {
			v = c
		}
		if v != "" {
			req.Header.Set(k, v)
		}
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		e.w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		e.w.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// things are what one method's row speaks of, made when it does.
type things struct {
	*embedder
	ids map[string]string
}

func (x *things) id(name string) string {
	x.w.t.Helper()
	if id, ok := x.ids[name]; ok {
		return id
	}
	agentOf := func(run string) string {
		return x.call("run.get", map[string]any{"run_id": run})["agent_id"].(string)
	}
	agent := func() string {
		return x.call("agent.create", map[string]any{"name": "a", "constitution": map[string]any{}, "toolset": []string{}})["id"].(string)
	}
	switch name {
	case "$agent":
		x.ids[name] = agent()
	case "$archived":
		x.ids[name] = agent()
		x.call("agent.archive", map[string]any{"agent_id": x.ids[name]})
	case "$busy", "$running", "$bob":
		x.ids["$bob"] = "bob"
		x.ids["$running"] = x.run("sleeper", "sleep", map[string]any{"subject_ids": []string{"bob"}})
		x.ids["$busy"] = agentOf(x.ids["$running"])
	case "$run", "$ann", "$artifact":
		x.ids["$ann"] = "ann"
		x.ids["$run"] = x.run("demo", "play", map[string]any{"subject_ids": []string{"ann"}})
		x.follow(x.ids["$run"], "", nil)
		items := x.call("artifact.list", map[string]any{"run_id": x.ids["$run"]})["items"].([]any)
		if len(items) != 1 {
			x.w.t.Fatalf("the demo made %v", items)
		}
		x.ids["$artifact"] = items[0].(map[string]any)["id"].(string)
	default:
		x.w.t.Fatalf("the table speaks of %s", name)
	}
	return x.ids[name]
}

// The contract holds of the binary as of the server alone: over a socket, with
// tokens of its file, with agents that run.
func TestRuntimeContract(t *testing.T) {
	gate(t)
	w := makeWorld(t, claudeProgram, func(*world) {})
	w.env = []string{"AEP_LISTEN=" + eventtest.Address(t), "XDG_RUNTIME_DIR="}
	t.Cleanup(w.endCollector)
	tokens := "whole *\n"
	for _, lacks := range execution.Scopes {
		tokens += "no-" + string(lacks)
		for i, s := range slices.DeleteFunc(slices.Clone(execution.Scopes), func(s execution.Scope) bool { return s == lacks }) {
			tokens += string(" ,"[min(i, 1)]) + string(s)
		}
		tokens += "\n"
	}
	file := filepath.Join(w.root, "tokens")
	if err := os.WriteFile(file, []byte(tokens), 0o600); err != nil {
		t.Fatal(err)
	}
	e := w.runtimeWith(fmt.Sprintf(`
default: able
profiles:
  able:
    command: [%[1]q, demo-agent]
    wrap: [--adapter, demo, --hold, 1s]
    prompt: [--prompt, "{prompt}"]
    gate: true
    tools: [Bash, Read]
  demo:
    command: [sh, -c, "echo made > made.txt; exec %[1]s demo-agent"]
    wrap: [--adapter, demo, --hold, 1s]
  sleeper:
    command: [sh, -c, "exec sleep 1818"]
  plain:
    command: [sh, -c, "exec sleep 1818"]
`, wrapper(t)), "whole", "--tokens", file)
	without := func(scope string) map[string]string {
		change := map[string]string{"Authorization": "Bearer no-" + scope}
		_, body := e.post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"requested_versions":["`+execution.Version+`"]}}`, change)
		_, rest, _ := strings.Cut(body, `"session_id":"`)
		change["X-AEP-Session-Id"], _, _ = strings.Cut(rest, `"`)
		return change
	}
	for _, method := range executiontest.Methods() {
		if method == "run.continue" {
			continue // it wants a run whose end nobody saw: the server's own suite plays that
		}
		t.Run(method, func(t *testing.T) {
			x := &things{e, map[string]string{}}
			if strings.HasPrefix(method, "subject.") {
				x.id("$ann") // gone with the erasure
			}
			s := &executiontest.Suite{Post: e.post, ID: x.id, Without: without}
			s.Check(t, method)
			if run := x.ids["$running"]; run != "" && method != "run.cancel" {
				e.call("run.cancel", map[string]any{"run_id": run})
			}
		})
	}
	waitFor(t, "the runs are over", func() bool { return len(w.sleepers()) == 0 })
}
