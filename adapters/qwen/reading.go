package qwen

import (
	"maps"
	"strings"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
)

// reading is how a chat is read where no hooks ran.
var reading = &adapters.Reading{
	Paths:    []string{"projects/*/chats/*.jsonl", "projects/*/subagents/*/*.jsonl"},
	Beside:   []string{"usage/*.jsonl", "usage_record.jsonl"},
	Identify: identify,
	Apart:    true,
}

// identify knows a chat by what all of its lines carry.
func identify(_ string, record map[string]any) (id adapters.Identity, ok bool) {
	session, _ := record["sessionId"].(string)
	version, _ := record["version"].(string)
	_, chain := record["parentUuid"]
	_, from := record["provenance"].(string)
	agent, _ := record["agentId"].(string)
	if session == "" || version == "" || !chain || !from && agent == "" || record["userType"] != nil {
		return id, false
	}
	return adapters.Identity{Session: session, Step: agent, Version: version, Strange: !strings.HasPrefix(version, "0.")}, true
}

// alone is the vocabulary of the chat where nothing else tells. Its prompts
// have no ids that the hooks know.
func alone() *Table {
	rows := Passed("system/attribution_snapshot", "system/ui_telemetry/qwen-code.tool_call", "system/ui_telemetry", "system/slash_command",
		"system/at_command", "user/notification")
	maps.Copy(rows, map[string]Row{
		"user": When(Has("message.parts.0.text"),
			Emit("run.started", Key("uuid"), Const("trigger", "user"), Text("prompt", "message.parts")), Nothing("a tool's result")),
		"assistant": Many(
			Each("message.parts", When(Has("functionCall.id"),
				Emit("tool.requested", Tool("functionCall.name", "functionCall.id"), Content("args", "functionCall.args")),
				Nothing("what the agent says is not told")), Nothing("no content")),
			When(Is("it calls no tool", final), Emit("run.finished", Text("summary", "message.parts")), Nothing("the turn goes on"))),
		"tool_result": Each("message.parts", When(Has("functionResponse.id"),
			When(Has("functionResponse.response.error"),
				When(Prefix("functionResponse.response.error", "[Operation Cancelled]"),
					Emit("tool.failed", Call("functionResponse.id"), Fault(Const("type", "cancelled"), "functionResponse.response.error")),
					Emit("tool.failed", Call("functionResponse.id"), Fault(Const("type", "tool_error"), "functionResponse.response.error"))),
				Emit("tool.completed", Call("functionResponse.id"), Content("result", "functionResponse.response.output"))),
			Nothing("no result")), Nothing("no result")),
		"system/chat_compression": Emit("session.compacted", Key("uuid")),
	})
	return chat().Alone(rows)
}

func final(in *In) bool {
	parts, _ := in.Get("message.parts").([]any)
	for _, p := range parts {
		if o, ok := p.(map[string]any); ok && o["functionCall"] != nil {
			return false
		}
	}
	return len(parts) > 0
}
