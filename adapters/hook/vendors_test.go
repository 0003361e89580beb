package hook_test

import (
	"testing"

	"aep-wrap/adapters"
	"aep-wrap/adapters/adaptertest"
	. "aep-wrap/adapters/hook"
)

// The words must fit vendors beyond those that have an adapter: these tables
// of four others say what the corpus pins for them, in rows alone.

func vendor(v Vocabulary) adapters.Adapter {
	v.Channel = adapters.Hook
	t := New(v)
	return adapters.Adapter{Name: v.Vendor, Title: v.Vendor, Map: t.Map, Vocabulary: t.Terms,
		Doc: "A table to try the engine's words with; the real adapter has a page of its own that says what it sees, what it cannot, how it is hooked and answered.",
		Reply: func(_ adapters.Moment, a adapters.Answer) []byte {
			if a.Option == "allow" || a.Option == "deny" {
				return []byte(`{"behavior":"` + a.Option + `"}`)
			}
			return nil
		}}
}

func started(name string, more ...Fact) []Fact {
	return append([]Fact{Key("session_id"), Object("client", Const("name", name)), Str("trigger", "source"), Text("cwd", "cwd")}, more...)
}

func TestKimi(t *testing.T) {
	answer := func(option string) Row {
		return Emit("attention.answered", Need("tool_call_id"), Pair("tool_call_id"),
			Object("answer", Const("option", option), Text("text", "feedback")), Const("via", "oob"), Label("label", "selected_label"))
	}
	adaptertest.Run(t, adaptertest.Spec{Corpus: []string{"kimi-code.json"}, Adapter: vendor(Vocabulary{
		Vendor: "kimi-code", Session: "session_id", NoSession: "unknown",
		Rows: map[string]Row{
			"SessionStart": Emit("session.started", Key("session_id"), Str("trigger", "source")),
			"SessionEnd":   Emit("session.ended", Key("session_id"), Const("reason", "normal")),
			"UserPromptSubmit": Switch("is_steer", map[string]Row{"true": VendorAs("run.steer_submitted")},
				Emit("run.started", Const("trigger", "user"), Text("prompt", "prompt"))),
			"Stop":               Emit("run.finished"),
			"StopFailure":        Emit("run.failed", Str("reason", "error_type"), Fault(Str("type", "error_type"), "error_message")),
			"Interrupt":          Emit("run.cancelled", Const("by", "user")),
			"PreToolUse":         Emit("tool.requested", Tool("tool_name", "tool_call_id"), Content("args", "tool_input")),
			"PostToolUse":        Emit("tool.completed", Tool("tool_name", "tool_call_id"), Content("result", "tool_output")),
			"PostToolUseFailure": Emit("tool.failed", Tool("tool_name", "tool_call_id"), Fault(Str("type", "error.name"), "error.message")),
			"PermissionRequest":  Emit("attention.requested", Kind("permission"), Subject("tool_name"), Prompt("display"), Observed, Pair("tool_call_id")),
			"PermissionResult": Switch("decision", map[string]Row{
				"approved":  answer("approved"),
				"rejected":  answer("rejected"),
				"cancelled": Emit("attention.resolved", Pair("tool_call_id"), Const("resolution", "dismissed")),
			}, Unmapped),
			"SubagentStart": Emit("delegation.subagent.started", Subject("agent_name")),
			"SubagentStop":  Emit("delegation.subagent.stopped", Subject("agent_name")),
			"PreCompact":    Vendor(Str("trigger", "trigger"), Int("token_count", "token_count")),
			"PostCompact":   Emit("session.compacted", Str("trigger", "trigger"), Int("estimated_token_count", "estimated_token_count")),
			"Notification":  Emit("progress.status", Subject("notification_type"), Str("severity", "severity")),
		},
	})})
}
