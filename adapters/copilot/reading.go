package copilot

import (
	"encoding/json"
	"maps"
	"path"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
	"aep-wrap/event"
)

// reading is how a session's events are read where no hooks ran.
var reading = &adapters.Reading{
	Paths:    []string{"session-state/*/events.jsonl"},
	Identify: identify,
	Apart:    true,
}

// identify knows the events of a session by the first of them.
func identify(file string, record map[string]any) (id adapters.Identity, ok bool) {
	data, _ := record["data"].(map[string]any)
	if record["type"] != "session.start" || data == nil {
		return id, false
	}
	id.Session, _ = data["sessionId"].(string)
	id.Version, _ = data["copilotVersion"].(string)
	layout, _ := data["version"].(json.Number)
	id.Strange = layout != "1"
	if id.Session == "" {
		id.Session, id.Strange = path.Base(path.Dir(file)), true
	}
	return id, true
}

// alone is the vocabulary of a session's events where nothing else tells.
func alone() *Table {
	rows := Passed("hook.start", "hook.end", "system.message", "assistant.turn_start", "assistant.turn_end", "assistant.intent",
		"assistant.reasoning", "session.info", "session.model_change", "session.mode_changed", "session.title_changed", "session.idle",
		"session.context_changed", "session.compaction_start", "session.truncation", "tool.user_requested", "tool.execution_progress",
		"tool.execution_partial_result")
	maps.Copy(rows, map[string]Row{
		"session.start": Emit("session.started", Key("data.sessionId"), Object("client", Const("name", name), Str("version", "data.copilotVersion")),
			Const("trigger", "startup"), Str("gen_ai.request.model", "data.selectedModel"), Text("cwd", "data.context.cwd")),
		"user.message": When(Has("agentId"), Nothing("a subagent's own turn"),
			Emit("run.started", Need("id"), Key("id"), Const("trigger", "user"), Text("prompt", "data.content"))),
		"assistant.message": When(Is("a subagent's, or with tools to run", goesOn), Nothing("the turn goes on"),
			Emit("run.finished", Text("summary", "data.content"))),
		"session.shutdown": Emit("session.ended", OfStep(""), bySession, Const("reason", "normal")),
	})
	return log().Alone(rows)
}

func goesOn(in *In) bool {
	calls, _ := in.Get("data.toolRequests").([]any)
	return len(calls) > 0 || in.Get("agentId") != nil
}

// bySession names the fact by the session, as the hooks do.
var bySession = Do("", nil, func(in *In, d *event.Draft) bool {
	d.Key = in.Moment.Session
	return true
})
