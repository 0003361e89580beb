package copilot

import (
	"strings"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
)

const byHooks = "no fact of its own; the hooks are the authority"

// log is the vocabulary of the session log, events.jsonl. It is written a
// moment behind the hooks, and knows what they do not: the ids of calls, what
// became of a permission, a refused tool, an interrupt, a failed turn, usage.
func log() *Table {
	v := Vocabulary{
		Vendor:  name,
		Channel: adapters.Transcript,
		Step:    "agentId",
		Time:    "timestamp",
		Other:   Nothing(byHooks),
		Rows: map[string]Row{
			"permission.requested": When(Is("resolvedByHook", func(in *In) bool { return in.Get("data.resolvedByHook") == true }),
				Nothing("a hook answered it: nobody was asked"),
				Emit("attention.requested", Kind("permission"), Key("data.requestId"), Pair("data.permissionRequest.toolCallId"),
					Prompt("data.permissionRequest.fullCommandText|data.permissionRequest.fileName|data.permissionRequest.path|data.permissionRequest.url|data.permissionRequest.intention"),
					Options(Option{ID: "allow", Label: "Allow"}, Option{ID: "deny", Label: "Deny"}), Observed)),
			"permission.completed": SwitchOn("data.result.kind", permission, map[string]Row{
				"allow": answered("allow"),
				"deny":  answered("deny"),
				"":      Nothing("a hook answered it"),
			}, Emit("attention.resolved", Need("data.toolCallId"), Pair("data.toolCallId"), Const("resolution", "dismissed"))),

			"abort": Switch("data.reason", map[string]Row{
				"autopilot_credit_limit": Emit("run.cancelled", OfStep(""), Const("by", "policy")),
			}, Emit("run.cancelled", OfStep(""), Const("by", "user"))),
			"session.error": Emit("run.failed", OfStep(""), Const("reason", "error"), Fault(Word("type", "data.errorType", "error"), "data.message")).
				Note("agentStop does not fire"),
			"session.compaction_complete": Switch("data.success", map[string]Row{
				"true": Emit("session.compacted", OfStep(""), Key("id"), Str("trigger", "data.trigger")),
			}, Nothing("nothing was compacted")),
			"session.usage_record": VendorAs("model.usage", Key("id"), Str("gen_ai.response.model", "data.usage.model"),
				Int("gen_ai.usage.input_tokens", "data.usage.inputTokens"), Int("gen_ai.usage.output_tokens", "data.usage.outputTokens"),
				Int("cache_read_tokens", "data.usage.cacheReadTokens"), Int("cache_creation_tokens", "data.usage.cacheWriteTokens")),
		},
	}
	for n, r := range tools {
		v.Rows[n] = r
	}
	return New(v)
}

// tools are the rows about tools, which the JSON output has too. Beside the
// hooks the start of a call tells its id alone: the session knows the call by
// its looks.
var tools = map[string]Row{
	"tool.execution_start": Emit("tool.requested", Tool("data.toolName", "data.toolCallId"), Content("args", "data.arguments"),
		Open("data.toolName", "data.arguments")),
	"tool.execution_complete": Switch("data.success", map[string]Row{
		"true": Switch("data.shellExecution.exitCode", map[string]Row{
			"0": ended,
			"":  ended,
		}, Emit("tool.failed", Call("data.toolCallId"), Fault(Const("type", "exit_code"), "data.result.content"))),
	}, Switch("data.error.code", map[string]Row{
		"denied": SwitchOn("data.error.message says", denial, map[string]Row{
			"rejected": Emit("tool.failed", Call("data.toolCallId"), Fault(Const("type", "rejected"), "data.error.message")).Note("refused by who was asked"),
			"policy":   Emit("tool.denied", Call("data.toolCallId"), Const("by", "policy")).Note("by a hook of the user's"),
			"rule":     Emit("tool.denied", Call("data.toolCallId"), Const("by", "user_setting")).Note("by a rule of the user's"),
		}, Emit("tool.denied", Call("data.toolCallId"), Const("by", "runtime"))),
	}, Emit("tool.failed", Call("data.toolCallId"), Fault(Const("type", "tool_error"), "data.error.message")))),
}

var ended = Emit("tool.completed", Call("data.toolCallId"), Content("result", "data.result.content"))

func answered(option string) Row {
	return Emit("attention.answered", Need("data.toolCallId"), Pair("data.toolCallId"), Key("data.requestId"),
		Object("answer", Const("option", option), Text("text", "data.result.feedback")), Const("via", "oob"))
}

// permission reads how a permission ended: allow and deny are a person's.
func permission(in *In) string {
	kind := in.Str("data.result.kind")
	switch {
	case kind == "denied-by-permission-request-hook", in.Str("data.toolCallId") == "":
		return ""
	case strings.HasPrefix(kind, "approved"):
		return "allow"
	case kind == "denied-interactively-by-user":
		return "deny"
	}
	return "gone"
}

// denial reads by whom a tool was refused, in Copilot's own words.
func denial(in *In) string {
	s := in.Str("data.error.message")
	switch {
	case strings.HasPrefix(s, "The user rejected this tool call"), strings.HasPrefix(s, "Denied by preToolUse hook: "+refusal):
		return "rejected"
	case strings.HasPrefix(s, "Denied by preToolUse hook"), strings.HasPrefix(s, "Permission denied by a PermissionRequest hook"):
		return "policy"
	case strings.HasPrefix(s, "Permission to run this tool was denied due to the following rules"):
		return "rule"
	}
	return ""
}

// stream is the vocabulary of --output-format json, whose lines are those of
// the session log and more. It is read only where no hook can be installed.
func stream() *Table {
	v := Vocabulary{
		Vendor:  name,
		Channel: adapters.Stream,
		Step:    "agentId",
		Time:    "timestamp",
		Other:   Nothing("no fact of its own"),
		Rows: map[string]Row{
			"user.message": When(Has("agentId"), Nothing("a subagent's own turn"),
				Emit("run.started", Key("id"), Const("trigger", "user"), Text("prompt", "data.content"))),
			"session.error": Emit("run.failed", OfStep(""), Const("reason", "error"), Fault(Word("type", "data.errorType", "error"), "data.message")),
			"abort":         Emit("run.cancelled", OfStep(""), Const("by", "user")),
			"result": Switch("exitCode", map[string]Row{
				"0": Emit("run.finished"),
			}, Emit("run.failed", Const("reason", "error"))).Note("the last line, and the only one that names the session"),
		},
	}
	for n, r := range tools {
		v.Rows[n] = r
	}
	return New(v)
}
