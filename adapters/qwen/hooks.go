package qwen

import (
	"strings"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
	"aep-wrap/event"
)

// call is the id that the model gave the call, which every channel knows;
// tool_use_id is the hooks' own.
const call = "tool_call_id|tool_use_id"

// hooks is the vocabulary of the hook events.
func hooks() *Table {
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.Hook,
		Session: "session_id",
		Run:     "prompt_id",
		Step:    "agent_id",
		Time:    "timestamp",
		Rows: map[string]Row{
			"SessionStart": Switch("source", map[string]Row{
				"compact": Nothing("the session goes on; PostCompact tells of the compaction"),
				"resume":  Emit("session.started", append(sessionStart, Unnamed)...).Note("each resumption is a fact of its own"),
			}, Emit("session.started", sessionStart...)),
			"SessionEnd": Emit("session.ended", Key("session_id"), Const("reason", "normal")).Note("none in headless mode: the process's exit tells it"),

			"UserPromptSubmit": Switch("prompt", map[string]Row{"": Nothing("fired again, with an empty prompt, after each batch of tools")},
				Emit("run.started", Key("prompt_id"), Const("trigger", "user"), Text("prompt", "submitted_prompt|prompt"))),
			"Stop":        Emit("run.finished", Key("prompt_id"), Int("gen_ai.usage.input_tokens", "input_tokens"), Text("summary", "last_assistant_message")),
			"StopFailure": Emit("run.failed", Key("prompt_id"), Word("reason", "error", "unknown"), Object("error", Text("message", "error_details"))),

			"PreToolUse":  Gated("tool_name", "tool_input", Emit("tool.requested", Tool("tool_name", call), Content("args", "tool_input"))),
			"PostToolUse": Emit("tool.completed", Tool("tool_name", call), Content("result", "tool_response"), Dur("duration_ms", "duration_ms")),
			"PostToolUseFailure": Emit("tool.failed", Tool("tool_name", call),
				Fault(Enum("type", "is_interrupt", map[string]string{"true": "interrupt"}, "tool_error"), "error"), Dur("duration_ms", "duration_ms")),
			"PostToolBatch": Each("tool_calls", Switch("status", map[string]Row{
				"error":     asked(refusal("tool_response.error", Emit("tool.failed", Tool("tool_name", call), Fault(Word("type", "tool_response.error_type", "tool_error"), "tool_response.error")))),
				"cancelled": asked(refusal(partText, Emit("tool.failed", Tool("tool_name", call), Fault(Const("type", "cancelled"), partText)))),
			}, Nothing("PostToolUse tells it")), Nothing("no calls")).
				Note("the only hook that tells of a tool that was not let run, or could not"),

			"PermissionRequest": Emit("attention.requested", Permission("tool_name", "tool_input")).
				Note("comes before PreToolUse, which fires once the tool may run"),

			"SubagentStart": Emit("delegation.subagent.started", Subject("agent_id"), Pair("agent_id"), OfParent, Str("agent_type", "agent_type")),
			"SubagentStop":  Emit("delegation.subagent.stopped", Subject("agent_id"), Pair("agent_id"), OfParent, Str("agent_type", "agent_type")),
			"TodoCreated":   todo("progress.task.planned"),
			"TodoCompleted": todo("progress.task.completed"),

			"PreCompact":  Nothing("session.compacted is told once, at PostCompact"),
			"PostCompact": Emit("session.compacted", Str("trigger", "trigger")),
			"Notification": Switch("notification_type", map[string]Row{
				"permission_prompt": Nothing("PermissionRequest carries it"),
				"idle_prompt": When(Has("timestamp"), Many(
					Emit("run.cancelled", openRun).Note("it waits for the next prompt: a turn that has begun before, and that no Stop ended, was interrupted"),
					waiting), waiting),
			}, notified),

			"InstructionsLoaded":  Vendor(Str("memory_type", "memory_type"), Str("load_reason", "load_reason")),
			"MessageDisplay":      Vendor(Str("message_id", "message_id"), Bool("final", "is_final")),
			"UserPromptExpansion": Vendor(),
		},
	})
}

// openRun: this hook's own prompt_id is often that of an earlier turn, or not
// there at all. What it speaks of is the run that was open at its time.
var openRun = Do("", nil, func(_ *In, d *event.Draft) bool {
	d.Run, d.Link.Dated = "", true
	return true
})

var waiting = Emit("progress.status", Subject("notification_type"), openRun, Text("message", "message"))

var notified = Emit("progress.status", Subject("notification_type"), Text("message", "message"))

var sessionStart = []Fact{
	Key("session_id"),
	Object("client", Const("name", name)),
	Str("trigger", "source"),
	Str("gen_ai.request.model", "model"),
	Str("permission_mode", "permission_mode"),
	Text("cwd", "cwd"),
}

// asked tells the request of a tool first, for which PreToolUse may not have
// fired; one that was told is told already.
func asked(outcome Row) Row {
	return Many(Emit("tool.requested", Tool("tool_name", call), Content("args", "tool_input")), outcome)
}

const partText = "tool_response.response_parts.0.functionResponse.response.error"

// refusal reads by Qwen Code's own words, which stand at a path, who kept a
// tool from running: a rule, the mode (which does not ask in headless runs),
// or the user in the dialog. Where none did, other is what happened.
func refusal(p Path, other Row) Row {
	named := []Fact{Tool("tool_name|name", call)}
	if p == "content" {
		named = []Fact{Call("tool_use_id")}
	}
	denied := func(by string) Row { return Emit("tool.denied", append(named, Const("by", by))...) }
	return SwitchOn(p+" says", func(in *In) string {
		switch s := in.Str(p); {
		case strings.HasPrefix(s, "[Operation Cancelled] Reason: User did not allow tool call"):
			return "rejected"
		case !strings.HasPrefix(s, "Qwen Code requires permission to use "):
			return ""
		case strings.Contains(s, "Matching deny rule: "):
			return "rule"
		}
		return "mode"
	}, map[string]Row{
		"rejected": Emit("tool.failed", append(named, Fault(Const("type", "rejected"), p))...),
		"rule":     denied("user_setting"),
		"mode":     denied("runtime"),
	}, other)
}

// A todo hook fires twice, first for validation.
func todo(typ string) Row {
	return Switch("phase", map[string]Row{"validation": Nothing("told once it is written")},
		Emit(typ, Subject("todo_id"), Pair("todo_id"), Object("task", Text("title", "todo_content"))))
}
