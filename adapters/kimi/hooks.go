package kimi

import (
	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
)

// hooks is the vocabulary of the hook events. A turn has no name that all of
// them know: it is from UserPromptSubmit to its end.
func hooks() *Table {
	return New(Vocabulary{
		Vendor:    name,
		Channel:   adapters.Hook,
		Session:   "session_id",
		NoSession: "unknown",
		Rows: map[string]Row{
			"SessionStart": Switch("source", map[string]Row{
				"resume": Emit("session.started", append(sessionStart, Unnamed)...).Note("each resumption is a fact of its own"),
			}, Emit("session.started", sessionStart...)),
			"SessionEnd": Emit("session.ended", Key("session_id"), Const("reason", "normal")),

			"UserPromptSubmit": Switch("is_steer", map[string]Row{"true": VendorAs("run.steer_submitted")},
				Emit("run.started", Const("trigger", "user"), Text("prompt", "prompt"))),
			"TurnStarted": Switch("origin_kind", map[string]Row{"user": Nothing("UserPromptSubmit tells it")},
				Emit("run.started", Const("trigger", "agent"), Text("prompt", "prompt")).Note("no person typed it")),
			"Stop":        Emit("run.finished"),
			"StopFailure": Emit("run.failed", Str("reason", "error_type"), Fault(Str("type", "error_type"), "error_message")),
			"Interrupt":   Emit("run.cancelled", Const("by", "user")),

			"PreToolUse":         Gated("tool_name", "tool_input", Emit("tool.requested", Tool("tool_name", "tool_call_id"), Content("args", "tool_input"))),
			"PostToolUse":        Emit("tool.completed", Tool("tool_name", "tool_call_id"), Content("result", "tool_output")),
			"PostToolUseFailure": Emit("tool.failed", Tool("tool_name", "tool_call_id"), Fault(Str("type", "error.name|error.code"), "error.message")),

			"PermissionRequest": Emit("attention.requested", Kind("permission"), Subject("tool_name"), Prompt("display|action"), Observed, Pair("tool_call_id")).
				Note("fired and not waited for: it is answered in the terminal"),
			"PermissionResult": Switch("decision", map[string]Row{
				"approved":  answered("approved"),
				"rejected":  answered("rejected"),
				"cancelled": Emit("attention.resolved", Pair("tool_call_id"), Const("resolution", "dismissed")),
			}, Unmapped),

			"SubagentStart": Emit("delegation.subagent.started", Subject("agent_name")),
			"SubagentStop":  Emit("delegation.subagent.stopped", Subject("agent_name")),
			"PreCompact":    Vendor(Str("trigger", "trigger"), Int("token_count", "token_count")),
			"PostCompact":   Emit("session.compacted", Str("trigger", "trigger"), Int("estimated_token_count", "estimated_token_count")),
			"Notification":  Emit("progress.status", Subject("notification_type"), Str("severity", "severity"), Text("message", "title")),
		},
	})
}

var sessionStart = []Fact{
	Key("session_id"),
	Str("trigger", "source"),
	Str("gen_ai.request.model", "model"),
	Text("cwd", "cwd"),
}

func answered(option string) Row {
	return Emit("attention.answered", Need("tool_call_id"), Pair("tool_call_id"),
		Object("answer", Const("option", option), Text("text", "feedback")), Const("via", "oob"), Label("label", "selected_label"))
}
