package kimi

import (
	"maps"
	"strings"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
)

// reading is how a wire log is read where no hooks ran.
var reading = &adapters.Reading{
	Paths:    []string{"sessions/*/*/agents/*/wire.jsonl"},
	Beside:   []string{"session_index.jsonl", "user-history/*.jsonl", "telemetry/*.jsonl"},
	Identify: identify,
	Apart:    true,
}

// identify knows a wire log by its first line. The session is in the path.
func identify(file string, record map[string]any) (id adapters.Identity, ok bool) {
	version, _ := record["protocol_version"].(string)
	if record["type"] != "metadata" || version == "" {
		return id, false
	}
	id = adapters.Identity{Version: version, Strange: !strings.HasPrefix(version, "1.")}
	if parts := strings.Split(file, "/"); len(parts) >= 5 && parts[len(parts)-3] == "agents" {
		id.Session = parts[len(parts)-4]
		if agent := parts[len(parts)-2]; agent != "main" {
			id.Step = agent
		}
	}
	return id, true
}

// alone is the vocabulary of the wire log where nothing else tells.
func alone() *Table {
	const call = "toolCallId"
	rows := Passed("metadata", "runtime.set_binding", "profile.bind", "permission.set_mode", "context.append_message",
		"agent.message.appended", "agent.turn.started", "agent.turn.ended", "plugin.session_start",
		"context.append_loop_event/step.begin", "context.append_loop_event/step.end", "context.append_loop_event/content.part",
		"llm.tools_snapshot", "llm.request", "token_counting.measured", "token_counting.turn_recorded", "token_counting.rebased",
		"prompt.completed", "prompt.aborted", "turn.cancel", "turn.step.interrupted", "interaction.resolved",
		"full_compaction.begin", "context.apply_compaction",
		"file_history.tracked", "file_history.checkpoint")
	answered := func(option string) Row {
		return Emit("attention.answered", Need(call), Pair(call), Object("answer", Const("option", option)), Const("via", "oob"))
	}
	maps.Copy(rows, map[string]Row{
		"turn.prompt": Switch("origin.kind", map[string]Row{
			"user": Emit("run.started", Need("promptId"), Key("promptId"), OfRun("promptId"), Const("trigger", "user"), Text("prompt", "input")),
		}, Emit("run.started", Need("promptId"), Key("promptId"), OfRun("promptId"), Const("trigger", "agent"), Text("prompt", "input"))),
		"turn.ended": Switch("reason", map[string]Row{
			"completed": Emit("run.finished", Dur("duration_ms", "durationMs")),
			"cancelled": Emit("run.cancelled", Const("by", "user"), Dur("duration_ms", "durationMs")),
		}, Emit("run.failed", Word("reason", "reason", "error"), Fault(Word("type", "reason", "error"), "error.message"), Dur("duration_ms", "durationMs"))),
		"interaction.request": Switch("kind", map[string]Row{
			"approval": Emit("attention.requested", Kind("permission"), Subject("request.toolName"), Prompt("request.action"), Observed, Pair(call)),
		}, Unmapped),
		"permission.record_approval_result": Switch("result.decision", map[string]Row{
			"approved":  answered("approved"),
			"rejected":  answered("rejected"),
			"cancelled": Emit("attention.resolved", Pair(call), Const("resolution", "dismissed")),
		}, Unmapped),
		"full_compaction.complete": Emit("session.compacted"),
	})
	return wire().Alone(rows)
}
