package copilot

import (
	"strings"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
)

const byLog = "the session log tells it, with the call that it is about"

// hooks is the vocabulary of the hook events. A payload does not name its
// event, a tool no call, a turn nothing; a subagent's payload names the
// subagent as its session, and the session as its parent.
func hooks() *Table {
	notification := Switch("notification_type", map[string]Row{
		"permission_prompt":  Nothing(byLog),
		"elicitation_dialog": Nothing("its answer is seen nowhere: the dialog is the terminal's"),
	}, Emit("progress.status", Subject("notification_type"), Text("message", "message")))
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.Hook,
		Session: "parentAgentId|sessionId",
		Step:    "agentId",
		Time:    "timestamp",
		Rows: map[string]Row{
			"sessionStart": Switch("source", map[string]Row{
				"resume": Emit("session.started", append(sessionStart, Unnamed)...).Note("each resumption is a fact of its own"),
			}, Emit("session.started", sessionStart...)),
			"sessionEnd": Emit("session.ended", Key("sessionId"),
				Enum("reason", "reason", map[string]string{"error": "error", "abort": "killed", "timeout": "timeout"}, "normal")),

			"userPromptSubmitted": ofSession(Emit("run.started", Const("trigger", "user"), Text("prompt", "prompt"))),
			"agentStop":           ofSession(Emit("run.finished", Str("stop_reason", "stopReason"))),

			"preToolUse": Gated("toolName", "toolArgs",
				Emit("tool.requested", Tool("toolName", ""), Content("args", "toolArgs"), Open("toolName", "toolArgs"))),
			"postToolUse": Switch("toolResult.resultType", map[string]Row{
				"success": SwitchOn("toolResult.textResultForLlm ends with", exitCode("toolResult.textResultForLlm"), map[string]Row{
					"failed": Emit("tool.failed", Tool("toolName", ""), Open("toolName", "toolArgs"), Fault(Const("type", "exit_code"), "toolResult.textResultForLlm")).
						Note("a command's exit code other than 0 is a success to Copilot"),
				}, Emit("tool.completed", Tool("toolName", ""), Open("toolName", "toolArgs"), Content("result", "toolResult.textResultForLlm"))),
				"rejected": Nothing(byLog),
				"denied":   Nothing(byLog),
			}, failed("toolResult.textResultForLlm")),
			"postToolUseFailure": failed("error"),

			"permissionRequest": Nothing("it runs for every tool that may need a permission, also where none is asked for"),
			"notification":      notification,
			"Notification":      notification.Note("as the payload names itself"),
			"errorOccurred":     Emit("error.raised", Fault(Word("type", "errorContext", "error"), "error.message"), Const("fatal", false)),

			"subagentStart": Emit("delegation.subagent.started", Subject("agentId"), Pair("agentId"), OfParent, Str("agent_type", "agentName")),
			"subagentStop":  Emit("delegation.subagent.stopped", Subject("agentId"), Pair("agentId"), OfParent, Str("agent_type", "agentName")),
			"preCompact":    Nothing("session.compacted is told once, by the session log"),
		},
	})
}

var sessionStart = []Fact{
	Key("sessionId"),
	Object("client", Const("name", name)),
	Str("trigger", "source"),
	Text("cwd", "cwd"),
}

// ofSession: a subagent's turn is no run, its start and stop are told as a
// delegation's.
func ofSession(r Row) Row {
	return When(Has("agentId"), Nothing("a subagent's own turn: subagentStart and subagentStop tell it"), r)
}

func failed(message Path) Row {
	return Emit("tool.failed", Tool("toolName", ""), Open("toolName", "toolArgs"), Fault(Const("type", "tool_error"), message))
}

// exitCode reads whether a shell tool's result ends with the words for an exit
// code other than 0.
func exitCode(p Path) func(*In) string {
	return func(in *In) string {
		s := in.Str(p)
		last := s[strings.LastIndexByte(s, '\n')+1:]
		_, code, ok := strings.Cut(last, " completed with exit code ")
		if !ok || !strings.HasPrefix(last, "<") || !strings.HasSuffix(code, ">") || code == "0>" {
			return ""
		}
		return "failed"
	}
}
