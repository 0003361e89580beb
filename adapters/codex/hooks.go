package codex

import (
	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
)

// hooks is the vocabulary of the thirteen hook events. A subagent's hooks name
// the parent's session, and a turn of the subagent's own.
func hooks() *Table {
	return New(Vocabulary{
		Vendor:    name,
		Channel:   adapters.Hook,
		Session:   "session_id",
		Run:       "turn_id",
		Step:      "agent_id",
		StepAlone: true,
		Rows: map[string]Row{
			"SessionStart": Switch("source", map[string]Row{
				"compact": Nothing("the session goes on; PostCompact tells of the compaction"),
				"resume":  Emit("session.started", append(sessionStart, Unnamed)...).Note("each resumption is a fact of its own"),
			}, Emit("session.started", sessionStart...)),
			"SessionEnd": Emit("session.ended", Key("session_id"), Const("reason", "normal")),

			"UserPromptSubmit": ofTurn(Emit("run.started", Key("turn_id"), Const("trigger", "user"), Text("prompt", "prompt"))),
			"Stop":             ofTurn(Emit("run.finished", Key("turn_id"), Text("summary", "last_assistant_message"))),
			"Interrupt":        ofTurn(Emit("run.cancelled", Key("turn_id"), Const("by", "user"))),

			"PreToolUse": Gated("tool_name", "tool_input", Emit("tool.requested", Tool("tool_name", "tool_use_id"), Content("args", "tool_input"))),
			"PostToolUse": Emit("tool.completed", Tool("tool_name", "tool_use_id"), Content("result", "tool_response")).
				Note("also a command that failed: the rollout, which is ahead of it, tells tool.failed, and a tool has one outcome"),
			"PermissionRequest": Emit("attention.requested", Permission("tool_name", "tool_input"), Open("tool_name", "tool_input", "description")).
				Note("named by the PreToolUse before it: the hook gives no call id, and adds a description to the input"),

			"SubagentStart": Emit("delegation.subagent.started", Subject("agent_id"), Pair("agent_id"), OfParent, Str("agent_type", "agent_type")),
			"SubagentStop":  Emit("delegation.subagent.stopped", Subject("agent_id"), Pair("agent_id"), OfParent, Str("agent_type", "agent_type")),

			"PreCompact":  Nothing("session.compacted is told once, at PostCompact"),
			"PostCompact": Emit("session.compacted", OfRun(""), Str("trigger", "trigger")).Note("its turn is the compaction's own: no prompt started it"),

			"PreModelRequest": Vendor(Str("gen_ai.request.model", "model"), Str("kind", "kind"), Int("attempt", "attempt_number")),
		},
	})
}

var sessionStart = []Fact{
	Key("session_id"),
	Object("client", Const("name", name)),
	Str("trigger", "source"),
	Str("gen_ai.request.model", "model"),
	Str("permission_mode", "permission_mode"),
	Text("cwd", "cwd"),
}

// ofTurn: a subagent's turn is no run, its start and stop are told as a
// delegation's.
func ofTurn(r Row) Row {
	return When(Has("agent_id"), Nothing("a subagent's own turn: SubagentStart and SubagentStop tell it"), r)
}
