package qwen

import (
	"strings"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
	"aep-wrap/event"
)

const byHooks = "no fact of its own; the hooks are the authority"

// stream is the vocabulary of --output-format stream-json. Beside the hooks it
// confirms, and tells of a turn that failed; where no hooks run it is the only
// source.
func stream() *Table { return streamOn(adapters.Stream, streamRows()) }

// dual is that of the same stream where the screen writes it beside itself, and
// is answered by another file (--dual).
func dual() *Table {
	rows := streamRows()
	rows["control_request"] = Switch("request.subtype", map[string]Row{
		"can_use_tool": Emit("attention.requested", Need("request_id"), Permission("request.tool_name", "request.input"), ofCall, Pair("request_id")),
	}, Nothing("no question"))
	settled := func(option string) Row {
		return Many(Answered("response.request_id", option), Resolved("response.request_id", "answered"))
	}
	rows["control_response"] = Switch("response.response.allowed", map[string]Row{"true": settled("allow"), "false": settled("deny")},
		Nothing("an answer that came too late"))
	return streamOn(adapters.ServerBeside, rows)
}

var ofCall = Do("", nil, func(in *In, d *event.Draft) bool {
	d.Link.Call = in.Str("request.tool_use_id")
	return true
})

func streamOn(c adapters.Channel, rows map[string]Row) *Table {
	return New(Vocabulary{
		Vendor:  name,
		Channel: c,
		Name: func(in *In) string {
			if sub := in.Str("subtype"); in.Str("type") == "system" && sub != "" {
				return "system/" + sub
			}
			return in.Str("type")
		},
		Session: "session_id",
		Other:   Nothing(byHooks),
		Rows:    rows,
	})
}

func streamRows() map[string]Row {
	return map[string]Row{
		"system/init": Many(
			Emit("session.started", Key("session_id"), Object("client", Const("name", name), Str("version", "qwen_code_version")),
				Str("gen_ai.request.model", "model"), Str("permission_mode", "permission_mode"), Text("cwd", "cwd")),
			VendorAs("session.init", Key("session_id"), Str("version", "qwen_code_version"), Str("gen_ai.request.model", "model"), Str("permission_mode", "permission_mode")).
				Note("what is lost where the session was told as started before")),
		"assistant": Each("message.content", Switch("type", map[string]Row{
			"tool_use": Emit("tool.requested", Tool("name", "id"), Content("args", "input")),
		}, Nothing("what the agent says is not told")), Nothing("no content")),
		"user": Each("message.content", Switch("type", map[string]Row{
			"tool_result": Switch("is_error", map[string]Row{
				"true": refusal("content", When(Prefix("content", "[Operation Cancelled]"),
					Emit("tool.failed", Call("tool_use_id"), Fault(Const("type", "cancelled"), "content")),
					Emit("tool.failed", Call("tool_use_id"), Fault(Const("type", "tool_error"), "content")))),
			}, Emit("tool.completed", Call("tool_use_id"), Content("result", "content"))),
		}, Nothing("a prompt: UserPromptSubmit tells it")), Nothing("a prompt: UserPromptSubmit tells it")),
		"result": Many(
			Switch("is_error", map[string]Row{
				"true": Emit("run.failed", Word("reason", "subtype", "error"), Fault(Word("type", "subtype", "error"), "error.message"), Dur("duration_ms", "duration_ms")),
			}, Emit("run.finished", Text("summary", "result"), Dur("duration_ms", "duration_ms"),
				Int("gen_ai.usage.input_tokens", "usage.input_tokens"), Int("gen_ai.usage.output_tokens", "usage.output_tokens"))),
			VendorAs("run.usage", Key("uuid"), Word("result", "subtype", "unknown"),
				Int("gen_ai.usage.input_tokens", "usage.input_tokens"), Int("gen_ai.usage.output_tokens", "usage.output_tokens"),
				Int("cache_read_tokens", "usage.cache_read_input_tokens"), Int("turns", "num_turns"), Dur("duration_ms", "duration_ms"))),
		"control_request": Nothing("PermissionRequest tells it, and can be answered"),
	}
}

// chat is the vocabulary of the session log: what each model call used, and
// what went wrong with one.
func chat() *Table {
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.Transcript,
		Name: func(in *In) string {
			s := in.Str("type")
			for _, p := range []Path{"subtype", `systemPayload.uiEvent.event\.name`} {
				if sub := in.Str(p); sub != "" {
					s += "/" + sub
				}
			}
			return s
		},
		Session: "sessionId",
		Time:    "timestamp",
		Other:   Nothing(byHooks),
		Rows: map[string]Row{
			"system/ui_telemetry/qwen-code.api_response": VendorAs("model.usage", Need("uuid"), Key("uuid"), ofPrompt, Str("gen_ai.response.model", "systemPayload.uiEvent.model"),
				Int("gen_ai.usage.input_tokens", "systemPayload.uiEvent.input_token_count"), Int("gen_ai.usage.output_tokens", "systemPayload.uiEvent.output_token_count"),
				Int("cache_read_tokens", "systemPayload.uiEvent.cached_content_token_count"), Int("reasoning_tokens", "systemPayload.uiEvent.thoughts_token_count"),
				Dur("duration_ms", "systemPayload.uiEvent.duration_ms")),
			"system/ui_telemetry/qwen-code.api_error": Emit("error.raised", Key("uuid"), ofPrompt, Severity(event.Warning),
				Fault(Str("type", "systemPayload.uiEvent.error_type"), "systemPayload.uiEvent.error_message")).
				Note("a turn that ends by it fires no hook"),
		},
	})
}

// ofPrompt: a helper's calls carry prompt ids of their own, which are no run's.
var ofPrompt = Do("", []adapters.TermField{{Member: "(run)", From: "systemPayload.uiEvent.prompt_id", Level: event.Metadata}}, func(in *In, d *event.Draft) bool {
	if p := in.Str("systemPayload.uiEvent.prompt_id"); strings.HasPrefix(p, d.Session+"########") {
		d.Run = p
	}
	return true
})
