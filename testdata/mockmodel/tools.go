package mockmodel

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
)

// request is a request of any dialect, as far as it matters to its answer.
type request struct {
	model    string
	stream   bool
	messages []message
	tools    []tool
}

// message is one contribution to the conversation. What several items of a
// dialect say in the assistant's one turn is one message.
type message struct {
	role string // "user", "assistant"; others do not count
	text string
}

// tool is a tool that the request offers.
type tool struct {
	name      string
	params    map[string]any // the schema's properties
	freeform  bool           // called with a text instead of arguments
	namespace string
}

// offered reads a tool of which the name and the schema stand where a dialect
// has them.
func offered(name string, schema json.RawMessage) tool {
	var s struct {
		Properties map[string]any `json:"properties"`
	}
	_ = json.Unmarshal(schema, &s) // a schema that cannot be read has no properties
	return tool{name: name, params: s.Properties}
}

// piece is a part of an answer: a text or a call.
type piece struct {
	text string
	call *call
}

type call struct {
	id, name  string
	input     map[string]any
	text      string // of a freeform tool
	namespace string
}

// arguments are a call's input as JSON text.
func (c *call) arguments() string {
	b, err := json.Marshal(c.input)
	if err != nil {
		return "{}"
	}
	return string(b)
}

// The scripts speak of tools and parameters as Claude Code names them. What an
// agent calls them is taken from what it offers: the first of these.
var (
	toolNames = map[string][]string{
		"Bash":  {"Bash", "bash", "run_shell_command", "exec_command", "shell_command", "shell"},
		"Write": {"Write", "write_file", "write", "create"},
		"Agent": {"Agent", "Task", "agent", "task", "spawn_agent"},
	}
	paramNames = map[string][]string{
		"command":   {"command", "cmd"},
		"file_path": {"file_path", "filePath", "path"},
		"content":   {"content", "file_text"},
		"prompt":    {"prompt", "message"},
	}
)

// pieces puts a turn into the words of who asks.
func (r request) pieces(turn Turn, key []string) []piece {
	out := make([]piece, 0, len(turn.Blocks))
	for i, b := range turn.Blocks {
		if b.Tool == "" {
			out = append(out, piece{text: b.Text})
			continue
		}
		c := r.call(b)
		c.id = id("", append(key, fmt.Sprint(i))...)
		out = append(out, piece{call: &c})
	}
	return out
}

func (r request) find(names ...string) (tool, bool) {
	for _, n := range names {
		if i := slices.IndexFunc(r.tools, func(t tool) bool { return t.name == n }); i >= 0 {
			return r.tools[i], true
		}
	}
	return tool{}, false
}

func (r request) call(b Block) call {
	t, ok := r.find(append(slices.Clone(toolNames[b.Tool]), b.Tool)...)
	if !ok && b.Tool == "Write" {
		// An agent without such a tool writes by a patch, else by its shell.
		path, _ := b.Input["file_path"].(string)
		content, _ := b.Input["content"].(string)
		if p, ok := r.find("apply_patch"); ok && p.freeform {
			return call{name: p.name, namespace: p.namespace, text: "*** Begin Patch\n*** Add File: " + filepath.Base(path) + "\n+" + content + "*** End Patch\n"}
		}
		return r.call(Block{Tool: "Bash", Ask: b.Ask, Input: map[string]any{"command": "printf '" + content + "' > " + path, "description": "write a file"}})
	}
	if !ok {
		return call{name: b.Tool, input: b.Input}
	}
	in := make(map[string]any, len(b.Input))
	for k, v := range b.Input {
		if names := paramNames[k]; names != nil {
			for _, n := range names {
				if _, has := t.params[n]; has {
					k = n
					break
				}
			}
		} else if _, has := t.params[k]; !has && t.params != nil {
			continue // it knows no such parameter
		}
		in[k] = v
	}
	if _, has := t.params["sandbox_permissions"]; has && b.Ask {
		in["sandbox_permissions"], in["justification"] = "require_escalated", "it needs to be outside of the sandbox"
	}
	return call{name: t.name, namespace: t.namespace, input: in}
}
