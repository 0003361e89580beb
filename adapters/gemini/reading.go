package gemini

import (
	"maps"
	"strings"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
)

// reading is how a chat is read where no hooks ran.
var reading = &adapters.Reading{
	Paths:    []string{"tmp/*/chats/session-*.jsonl", "chats/session-*.jsonl"},
	Identify: identify,
	Apart:    true,
}

// identify knows a chat by its header.
func identify(_ string, record map[string]any) (id adapters.Identity, ok bool) {
	session, _ := record["sessionId"].(string)
	_, hash := record["projectHash"].(string)
	if session == "" || !hash {
		return id, false
	}
	return adapters.Identity{Session: session}, true
}

// alone is the vocabulary of the chat where nothing else tells. It names no
// turn and tells no turn's end: a prompt comes after the turn before. The last
// one stays open. Messages that are written again, or set anew in a whole list,
// tell nothing twice: their ids name their facts.
func alone() *Table {
	reply := Many(
		When(Has("tokens"), VendorAs("model.usage", Need("id"), Key("id"), At("timestamp"), Str("gen_ai.response.model", "model"),
			Int("gen_ai.usage.input_tokens", "tokens.input"), Int("gen_ai.usage.output_tokens", "tokens.output"),
			Int("cache_read_tokens", "tokens.cached"), Int("reasoning_tokens", "tokens.thoughts")), Nothing("no model call of its own")),
		Each("toolCalls", Many(
			Emit("tool.requested", Tool("name", "id"), Content("args", "args"), At("timestamp")),
			SwitchOn("it came to", came, map[string]Row{
				"success":   Emit("tool.completed", Call("id"), Content("result", said2), At("timestamp")),
				"exit":      Emit("tool.failed", Call("id"), Fault(Const("type", "exit_code"), said2), At("timestamp")),
				"unknown":   Emit("tool.failed", Call("id"), Fault(Const("type", "tool_not_registered"), said), At("timestamp")),
				"params":    Emit("tool.failed", Call("id"), Fault(Const("type", "invalid_tool_params"), said), At("timestamp")),
				"policy":    Emit("tool.denied", Call("id"), Const("by", "policy"), At("timestamp")),
				"rejected":  Emit("tool.failed", Call("id"), Fault(Const("type", "rejected"), said), At("timestamp")),
				"cancelled": Emit("tool.failed", Call("id"), Fault(Const("type", "cancelled"), said), At("timestamp")),
				"error":     Emit("tool.failed", Call("id"), Fault(Const("type", "tool_error"), said), At("timestamp")),
			}, Nothing("no outcome yet"))), Nothing("no calls")))
	rows := Passed("info", "error", "warning")
	maps.Copy(rows, map[string]Row{
		"header": Emit("session.started", Key("sessionId"), Object("client", Const("name", name)), At("startTime")),
		"user": When(Is("it is a prompt", prompted), Many(Before,
			Emit("run.started", Need("id"), Key("id"), Const("trigger", "user"), Text("prompt", "content"))), Nothing("a tool's result, or the context of the session")),
		"gemini": reply,
		"$set":   Each("$set.messages", Switch("type", map[string]Row{"gemini": reply}, Nothing("a prompt has a line of its own")), Nothing("no messages")),
	})
	return chat().Alone(rows).NamedBy(func(in *In) string {
		typ, _ := in.Moment.Payload["type"].(string)
		switch {
		case typ != "":
			return typ
		case in.Moment.Payload["$set"] != nil:
			return "$set"
		case in.Moment.Payload["projectHash"] != nil:
			return "header"
		}
		return "unknown"
	})
}

const said2 = "result.0.functionResponse.response.output|resultDisplay"

func prompted(in *In) bool {
	s := in.Str("content.0.text")
	if s == "" {
		s = in.Str("content")
	}
	return s != "" && !strings.HasPrefix(s, "<session_context>")
}

// fault tells a tool's error by Gemini CLI's words.
var fault = Begins(said,
	[2]string{`Tool "`, "unknown"},
	[2]string{"Path not in workspace:", "params"}, [2]string{"params ", "params"},
	[2]string{"Tool execution denied by policy.", "policy"},
	[2]string{"[Operation Cancelled] Reason: User denied execution.", "rejected"},
	[2]string{"[Operation Cancelled]", "cancelled"},
)

// came reads what a call came to.
func came(in *In) string {
	if f := fault(in); f != "" {
		return f
	}
	switch in.Str("status") {
	case "success":
		if in.Str("name") == "run_shell_command" && exitCode.MatchString(in.Str("result.0.functionResponse.response.output")) {
			return "exit"
		}
		return "success"
	case "error", "cancelled":
		return in.Str("status")
	}
	return ""
}
