package claudecode

import (
	"maps"
	"path"
	"strings"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
	"aep-wrap/event"
)

// reading is how a transcript is read where no hooks ran.
var reading = &adapters.Reading{
	Paths:    []string{"projects/*/*.jsonl", "projects/*/*/subagents/*.jsonl"},
	Beside:   []string{"history.jsonl"},
	Identify: identify,
}

// identify knows a transcript by what all of its lines carry. The first ones
// may be of the session list's own, without a version.
func identify(file string, record map[string]any) (id adapters.Identity, ok bool) {
	session, _ := record["sessionId"].(string)
	version, _ := record["version"].(string)
	_, typed := record["type"].(string)
	if session == "" || !typed {
		return id, false
	}
	base := strings.TrimSuffix(path.Base(file), ".jsonl")
	if _, user := record["userType"]; !user && (base != session || record["provenance"] != nil) {
		return id, false // a line of some other runtime's could say as much
	}
	id = adapters.Identity{Session: session, Version: version, Strange: version != "" && !strings.HasPrefix(version, "2.")}
	if side, _ := record["isSidechain"].(bool); side {
		id.Step, _ = record["agentId"].(string)
		id.Run, _ = record["promptId"].(string)
	}
	if from, _ := record["forkedFrom"].(map[string]any); from != nil {
		id.Fork, _ = from["sessionId"].(string)
	}
	return id, true
}

// alone is the vocabulary of the transcript where nothing else tells: the facts
// that the hooks would, under the same keys. Of a permission's request there is
// no word in it.
func alone() *Table {
	rows := Passed("mode", "permission-mode", "ai-title", "custom-title", "agent-name", "summary", "last-prompt", "queue-operation",
		"file-history-snapshot", "system", "attachment", "progress", "pr-link", "tag", "forked", "saved_hook_context",
		"system/turn_duration", "system/stop_hook_summary", "system/informational", "system/local_command", "system/away_summary",
		// What a request was made of, and Claude Code's own bookkeeping, by its list of them in 2.1.332.
		"api-request", "api-request-shape", "api-request-blob", "api-request-resumed", "tools-used", "cost-state", "atis-latch",
		"agent-color", "agent-setting", "artifact-autoreact-ledger", "artifact-comment-monitor", "attribution-snapshot", "bridge-session",
		"content-replacement", "continued-in", "data-flow-incomplete", "data-flow-records", "derived-from", "dev-mods", "ended-by-model",
		"file-history-delta", "fork-context-ref", "frame-link", "history-suppression", "host-row", "hybrid-organization", "isolation-latch",
		"memory-mode", "observer-ref", "relocated", "repl-mode", "resume-head-vouch", "session-owner", "worktree-state")
	maps.Copy(rows, map[string]Row{
		"user": When(submitted, submission,
			When(Prefix("message.content", "[Request interrupted by user"), interrupt,
				Many(
					When(begun, Emit("delegation.subagent.started", Subject("agentId"), Pair("agentId"), OfParent), Nothing("not the first")),
					Switch("toolUseResult.status", map[string]Row{
						"completed": When(Has("toolUseResult.agentId"), Emit("delegation.subagent.stopped", Subject("toolUseResult.agentId"),
							Pair("toolUseResult.agentId"), Str("agent_type", "toolUseResult.agentType")), Nothing("no subagent")),
					}, Nothing("no subagent")),
					When(Has("toolUseResult.task.id"), Emit("progress.task.planned", Subject("toolUseResult.task.id"), Pair("toolUseResult.task.id"),
						Object("task", Str("id", "toolUseResult.task.id"), Text("title", "toolUseResult.task.subject"))), Nothing("no task")),
					Switch("toolUseResult.statusChange.to", map[string]Row{
						"completed": Emit("progress.task.completed", Subject("toolUseResult.taskId"), Pair("toolUseResult.taskId"),
							Object("task", Str("id", "toolUseResult.taskId")), Const("status", "completed")),
					}, Nothing("no task's end")),
					Each("message.content", Switch("type", map[string]Row{
						"tool_result": Switch("is_error", map[string]Row{"true": failedAlone},
							Emit("tool.completed", Call("tool_use_id"), Content("result", "$.toolUseResult|content"))),
						"text": When(interrupted, interrupt, Nothing("a prompt is told where it was submitted")),
					}, Nothing("no outcome")), Nothing("a command's output, or a subagent's prompt"))))),
		"assistant": Switch("message.model", map[string]Row{
			"<synthetic>": Switch("isApiErrorMessage", map[string]Row{
				"true": When(Is("apiErrorStatus or error", func(in *In) bool { return in.Get("apiErrorStatus") != nil || in.Get("error") != nil }),
					Emit("run.failed", Word("reason", "error", "unknown"), Fault(Word("type", "error", "unknown"), "message.content")),
					Nothing("what was said up to an interrupt")),
			}, Nothing("Claude Code's own words")),
		}, Many(
			Each("message.content", Switch("type", map[string]Row{"tool_use": Emit("tool.requested", Tool("name", "id"), renamed, Content("args", "input"))},
				Nothing("what the agent says is not told")), Nothing("no content")),
			modelUsage,
			When(inBackground, Emit("delegation.subagent.stopped", Subject("agentId"), Pair("agentId"), OfParent, Str("agent_type", "attributionAgent")),
				Nothing("no subagent's last words, or its tool tells the end")),
			Switch("message.stop_reason", map[string]Row{
				"end_turn":   finished,
				"refusal":    finished,
				"max_tokens": finished,
			}, Nothing("the turn goes on")))),
		"attachment/hook_permission_decision": Nothing("of a request the log says nothing"),
		"system/compact_boundary":             Emit("session.compacted", Key("uuid"), Str("trigger", "compactMetadata.trigger")),
	})
	return transcript().Alone(rows).NamedBy(func(in *In) string {
		switch n := lineName(in); {
		case in.Moment.Payload["forkedFrom"] != nil:
			return "forked"
		case strings.HasPrefix(n, "attachment/") && n != "attachment/hook_permission_decision":
			return "attachment"
		default:
			return n
		}
	})
}

// finished is the end of a turn: the words with which the model gives it back.
var finished = Emit("run.finished", Text("summary", "message.content"))

var modelUsage = VendorAs("model.usage", Need("message.id"), Key("message.id"), Str("gen_ai.response.model", "message.model"),
	Int("gen_ai.usage.input_tokens", "message.usage.input_tokens"), Int("gen_ai.usage.output_tokens", "message.usage.output_tokens"),
	Int("cache_read_tokens", "message.usage.cache_read_input_tokens"), Int("cache_creation_tokens", "message.usage.cache_creation_input_tokens"),
	Str("stop_reason", "message.stop_reason"))

// begun: the first line of a subagent's own log.
var begun = Is("the first of a subagent's log", func(in *In) bool {
	side, _ := in.Moment.Payload["isSidechain"].(bool)
	return side && in.Moment.Payload["parentUuid"] == nil && in.Str("agentId") != ""
})

// inBackground: the last words of a subagent, which newer versions name; most
// run in the background there, and the tool that starts one tells no end.
var inBackground = Is("a subagent's last words", func(in *In) bool {
	side, _ := in.Moment.Payload["isSidechain"].(bool)
	return side && in.Str("attributionAgent") != "" && in.Str("message.stop_reason") == "end_turn"
})

// failedAlone reads why a tool gave no result.
var failedAlone = When(textHas("content",
	"The user doesn't want to proceed with this tool use.",
	"The user doesn't want to take this action right now."),
	Emit("tool.failed", Call("tool_use_id"), Fault(Const("type", "user_rejected"), "content")).
		Note("refused in the dialog, or interrupted while it ran: the words are the same"),
	When(deniedKind, notLetRun, When(textHas("content", notAllowed...), notLetRun,
		Emit("tool.failed", Call("tool_use_id"), Fault(Const("type", "tool_error"), "content")))))

// renamed: the hooks call the tool that starts a subagent by its new name.
var renamed = Do("", nil, func(_ *In, d *event.Draft) bool {
	if d.Subject != "Task" {
		return true
	}
	d.Subject = "Agent"
	for i := range d.Fields {
		if tool, ok := d.Fields[i].Value.(event.Fields); ok && d.Fields[i].Name == "tool" {
			tool[0].Value = "Agent"
		}
	}
	return true
})
