package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
)

// mcpEnv has the test's own binary be an MCP server.
const mcpEnv = "AEP_E2E_MCP"

// mcpServer has one tool, which asks the user for a name and a number, and
// gives back what it heard.
func mcpServer(in io.Reader, out io.Writer) {
	type object = map[string]any
	enc := json.NewEncoder(out)
	var call any // the id of the call that waits
	for sc := bufio.NewScanner(in); sc.Scan(); {
		var m struct {
			ID     any
			Method string
			Params object
			Result object
		}
		if json.Unmarshal(sc.Bytes(), &m) != nil {
			continue
		}
		answer := func(id any, result any) {
			_ = enc.Encode(object{"jsonrpc": "2.0", "id": id, "result": result})
		}
		switch m.Method {
		case "initialize":
			answer(m.ID, object{"protocolVersion": m.Params["protocolVersion"], "capabilities": object{"tools": object{}},
				"serverInfo": object{"name": "elic", "version": "1"}})
		case "tools/list":
			answer(m.ID, object{"tools": []any{object{"name": "ask", "description": "Asks for a name.",
				"inputSchema": object{"type": "object", "properties": object{}}}}})
		case "tools/call":
			call = m.ID
			_ = enc.Encode(object{"jsonrpc": "2.0", "id": "elicit-1", "method": "elicitation/create", "params": object{
				"message": "Who goes there?",
				"requestedSchema": object{"type": "object", "required": []any{"name"}, "properties": object{
					"name": object{"type": "string", "title": "Name"},
					"age":  object{"type": "integer", "title": "Age", "minimum": 1, "maximum": 150},
				}}}})
		case "ping":
			answer(m.ID, object{})
		case "":
			if m.ID == "elicit-1" && call != nil {
				raw, _ := json.Marshal(m.Result)
				answer(call, object{"content": []any{object{"type": "text", "text": "heard " + string(raw)}}})
				call = nil
			}
		}
	}
}

// A form of an MCP server's is filled in from afar, also after one that does
// not fit, and refused.
func TestElicitation(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		words []string
		heard string
	}{
		{"accepted", []string{"--values", `{"name":"Zed","age":42}`}, `\"action\":\"accept\"`},
		{"declined", []string{"--option", "decline"}, `\"action\":\"decline\"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			config, _ := json.Marshal(map[string]any{"mcpServers": map[string]any{"elic": map[string]any{
				"command": self, "args": []string{}, "env": map[string]any{mcpEnv: "1"}}}})
			w := commanded(t)
			p := w.open(wrapper(t), "--hold", hold, "--", claude(t), "--session-id", sessionID, "--mcp-config", string(config), "--strict-mcp-config",
				"--allowedTools", "mcp__elic__ask")
			p.see(prompted)
			p.enter("one [[script:elicit]]")
			s, id := w.asks(1)
			if r := w.send("respond", s, id, "--values", `{"name":"Zed","age":"old"}`); r.code == 0 {
				t.Errorf("a form that does not fit: %+v", r)
			}
			w.must(append([]string{"respond", s, id}, c.words...)...)
			p.see("The server has its answer")
			w.told("attention.resolved", 1)
			p.see(prompted)
			p.enter("/exit")
			p.wait()
			if !w.heard(strings.ReplaceAll(c.heard, `\"`, `\\"`)) && !w.heard(c.heard) {
				t.Errorf("the server did not hear %s", c.heard)
			}
			events := w.events()
			if d := data(t, only(t, events, "attention.requested")); d["kind"] != "form" || len(d["fields"].([]any)) != 2 {
				t.Errorf("%v", d)
			}
			if d := data(t, only(t, events, "attention.answered")); d["via"] != "control" {
				t.Errorf("%v", d)
			}
			if d := data(t, only(t, events, "attention.resolved")); d["resolution"] != "answered" {
				t.Errorf("%v", d)
			}
			t.Log(fmt.Sprint(types(events)))
		})
	}
}
