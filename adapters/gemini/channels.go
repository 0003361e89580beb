package gemini

import (
	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
)

// chat is the vocabulary of the session log: what each model call used, and
// the ends that fire no hook: of tools that were refused, cancelled or unknown. A
// message is written again whenever it changes: its id names its facts.
func chat() *Table {
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.Transcript,
		Time:    "timestamp",
		Other:   Nothing("the hooks tell it"),
		Rows: map[string]Row{
			"info": Switch("content", map[string]Row{
				"Request cancelled.": Emit("run.cancelled", Key("id"), Const("by", "user")).Note("an Esc, or a refusal in the dialog: no hook tells it"),
			}, Nothing("no fact of its own")),
			"gemini": Many(
				When(Has("tokens"), VendorAs("model.usage", Need("id"), Key("id"), Str("gen_ai.response.model", "model"),
					Int("gen_ai.usage.input_tokens", "tokens.input"), Int("gen_ai.usage.output_tokens", "tokens.output"),
					Int("cache_read_tokens", "tokens.cached"), Int("reasoning_tokens", "tokens.thoughts")), Nothing("no model call of its own")),
				Each("toolCalls", SwitchOn("its error says", Begins("result.0.functionResponse.response.error",
					[2]string{`Tool "`, "unknown"},
					[2]string{"Path not in workspace:", "params"}, [2]string{"params ", "params"},
					[2]string{"Tool execution denied by policy.", "policy"},
					[2]string{"Tool execution blocked: ", "blocked"},
					[2]string{"[Operation Cancelled] Reason: User denied execution.", "rejected"},
					[2]string{"[Operation Cancelled] Reason: User cancelled tool execution.", "cancelled"},
				), map[string]Row{
					"unknown":   refused(Emit("tool.failed", Tool("name", "id"), Fault(Const("type", "tool_not_registered"), said))),
					"params":    refused(Emit("tool.failed", Tool("name", "id"), Fault(Const("type", "invalid_tool_params"), said))),
					"policy":    Emit("tool.denied", Tool("name", ""), Key("id"), Const("by", "policy"), told),
					"rejected":  Emit("tool.failed", Tool("name", ""), Key("id"), Fault(Const("type", "rejected"), said), told),
					"blocked":   Emit("tool.failed", Tool("name", ""), Key("id"), Fault(Const("type", "blocked"), said), told).Note("a BeforeTool hook refused it: ours, for who answered no, or the user's own"),
					"cancelled": Emit("tool.failed", Tool("name", ""), Key("id"), Fault(Const("type", "cancelled"), said), told),
				}, Nothing("AfterTool tells it")), Nothing("no calls"))),
		},
	})
}

const said = "result.0.functionResponse.response.error"

// told is the open tool of which BeforeTool has told, and named no call.
var told = Open("name", "args")

// refused tells also the request: a tool that is unknown, or called wrongly,
// fires no hook.
func refused(end Row) Row {
	return Many(Emit("tool.requested", Tool("name", "id"), Content("args", "args")), end)
}

// stream is the vocabulary of -o stream-json. It is read only where no hook can
// be installed: its calls have ids that the hooks do not know.
func stream() *Table {
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.Stream,
		Session: "session_id",
		Time:    "timestamp",
		Other:   Nothing("no fact of its own"),
		Rows: map[string]Row{
			"init": Emit("session.started", Key("session_id"), Object("client", Const("name", name)), Str("gen_ai.request.model", "model")),
			"message": Switch("role", map[string]Row{"user": Emit("run.started", Const("trigger", "user"), Text("prompt", "content"))},
				Nothing("what the agent says is not told")),
			"tool_use": Emit("tool.requested", Tool("tool_name", "tool_id"), Content("args", "parameters")),
			"tool_result": Switch("status", map[string]Row{
				"error": Emit("tool.failed", Call("tool_id"), Fault(Word("type", "error.type", "tool_error"), "error.message|output")),
			}, Emit("tool.completed", Call("tool_id"), Content("result", "output"))),
			"result": Switch("status", map[string]Row{
				"error": Emit("run.failed", Const("reason", "error"), Fault(Str("type", "error.type"), "error.message"), Dur("duration_ms", "stats.duration_ms")),
			}, Emit("run.finished", Dur("duration_ms", "stats.duration_ms"),
				Int("gen_ai.usage.input_tokens", "stats.input_tokens"), Int("gen_ai.usage.output_tokens", "stats.output_tokens"))),
		},
	})
}
