package codex

import (
	"maps"
	"strings"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
	"aep-wrap/event"
)

// reading is how a rollout is read where no hooks ran.
var reading = &adapters.Reading{
	Paths:    []string{"sessions/*/*/*/rollout-*.jsonl", "archived_sessions/rollout-*.jsonl", "rollout-*.jsonl"},
	Beside:   []string{"history.jsonl", "session_index.jsonl"},
	Identify: identify,
}

// identify knows a rollout by its first line. That of a subagent names the
// session of its parent.
func identify(_ string, record map[string]any) (id adapters.Identity, ok bool) {
	p, _ := record["payload"].(map[string]any)
	if record["type"] != "session_meta" || p == nil {
		return id, false
	}
	str := func(name string) string { s, _ := p[name].(string); return s }
	id = adapters.Identity{Session: str("session_id"), Version: str("cli_version"), Fork: str("forked_from_id")}
	thread := str("id")
	if id.Session == "" {
		id.Session = thread
	}
	if id.Session != thread && str("thread_source") != "user" {
		id.Step = thread
	}
	id.Strange = id.Session == "" || !strings.HasPrefix(id.Version, "0.")
	return id, id.Session != "" || id.Version != ""
}

// alone is the vocabulary of the rollout where nothing else tells: the facts
// that the hooks would, under the same keys. Of a permission's request there is
// no word in it.
func alone() *Table {
	calls := Emit("tool.requested", Tool("payload.name", "payload.call_id"), OfRun(""), asHooks)
	rows := Passed("world_state", "compacted", "event_msg/token_count", "event_msg/thread_settings_applied",
		"event_msg/task_started", "event_msg/item_started", "event_msg/agent_message", "event_msg/agent_reasoning", "event_msg/user_message",
		"event_msg/entered_review_mode", "event_msg/exited_review_mode", "event_msg/context_compacted",
		"event_msg/item_completed/Reasoning", "event_msg/item_completed/AgentMessage", "event_msg/item_completed/CollabAgentToolCall",
		"event_msg/item_completed/Plan", "event_msg/item_completed/WebSearch", "event_msg/item_completed/ImageView",
		"response_item/message", "response_item/reasoning", "response_item/web_search_call", "response_item/ghost_snapshot", "response_item/compaction",
		"turn_context", "inter_agent_communication_metadata", "response_item/agent_message")
	maps.Copy(rows, map[string]Row{
		"session_meta": When(Is("a subagent's", sub),
			Emit("delegation.subagent.started", Subject("payload.id"), Pair("payload.id"), Str("agent_type", "payload.source.subagent.thread_spawn.agent_role")),
			Emit("session.started", Key("payload.session_id|payload.id"), Object("client", Const("name", name), Str("version", "payload.cli_version")),
				Const("trigger", "startup"), Text("cwd", "payload.cwd"))),
		"event_msg/item_completed/UserMessage": Emit("run.started", Need("payload.turn_id"), Key("payload.turn_id"), OfRun("payload.turn_id"),
			Const("trigger", "user"), Text("prompt", "payload.item.content")),
		"event_msg/item_completed/ContextCompaction": Emit("session.compacted", OfRun(""), Key("payload.item.id")),
		"response_item/function_call":                calls,
		"response_item/custom_tool_call":             Emit("tool.requested", Tool("payload.name", "payload.call_id"), OfRun(""), Content("args", "payload.input")),
		"response_item/custom_tool_call_output":      outputAlone,
		"response_item/local_shell_call":             Emit("tool.requested", Tool("payload.type", "payload.call_id"), OfRun(""), Content("args", "payload.action")),
		"response_item/function_call_output":         outputAlone,
		"event_msg/task_complete": When(inner,
			Emit("delegation.subagent.stopped", OfRun("")).Note("of the subagent whose log it is"),
			When(Has("payload.error"),
				Emit("run.failed", Key("payload.turn_id"), OfRun("payload.turn_id"), Word("reason", "payload.error.codex_error_info", "error"),
					Fault(Word("type", "payload.error.codex_error_info", "error"), "payload.error.message"), Dur("duration_ms", "payload.duration_ms")),
				When(Has("payload.last_agent_message"),
					Emit("run.finished", Key("payload.turn_id"), OfRun("payload.turn_id"), Text("summary", "payload.last_agent_message"), Dur("duration_ms", "payload.duration_ms")),
					Nothing("a compaction's turn: no prompt started it")))),
	})
	return rollout().Alone(rows)
}

func sub(in *In) bool {
	s, t := in.Str("payload.session_id"), in.Str("payload.id")
	return s != "" && s != t && in.Str("payload.thread_source") != "user"
}

// outputAlone is what a call came to that came to no item, and the end of one
// whose item told more.
var outputAlone = SwitchOn("output says", outcome, map[string]Row{
	"never":     Emit("tool.denied", Call("payload.call_id"), Const("by", "user_setting")),
	"policy":    Emit("tool.denied", Call("payload.call_id"), Const("by", "policy")),
	"rejected":  Emit("tool.failed", Call("payload.call_id"), Fault(Const("type", "rejected"), "payload.output")).Note("refused by who was asked"),
	"interrupt": Emit("tool.failed", Call("payload.call_id"), Fault(Const("type", "interrupted"), "payload.output")),
}, When(Prefix("payload.output", "unsupported "),
	Emit("tool.failed", Call("payload.call_id"), Fault(Const("type", "tool_not_registered"), "payload.output")),
	Emit("tool.completed", Call("payload.call_id"), Content("result", "payload.output")).Note("where no item told the outcome")))

// asHooks names the tool and its arguments as the hooks do: the model's
// exec_command is their Bash, with its words under "command".
var asHooks = Do("", []adapters.TermField{{Member: "args", From: "payload.arguments", Level: event.Redacted}}, func(in *In, d *event.Draft) bool {
	args := any(in.Str("payload.arguments"))
	if o, err := event.ParseObject([]byte(in.Str("payload.arguments"))); err == nil {
		args = o
		switch d.Subject {
		case "exec_command", "shell", "shell_command", "unified_exec":
			d.Subject = "Bash"
			rename(d, "Bash")
			if cmd, ok := o["cmd"].(string); ok {
				args = map[string]any{"command": cmd}
			}
		}
	}
	if o, ok := args.(map[string]any); ok {
		d.Fields = append(d.Fields, event.Family("args", o))
	}
	return true
})

func rename(d *event.Draft, name string) {
	for i := range d.Fields {
		if tool, ok := d.Fields[i].Value.(event.Fields); ok && d.Fields[i].Name == "tool" {
			tool[0].Value = name
		}
	}
}
