package codex

import (
	"strings"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
	"aep-wrap/event"
)

const byHooks = "no fact of its own; the hooks are the authority"

// rollout is the vocabulary of the session log. It runs ahead of the hooks and
// knows what they do not: that a command failed, what a refused or interrupted
// tool came to, the outcome of a patch, a turn's error, and what was used.
func rollout() *Table {
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.Transcript,
		Name:    Named("type", "payload.type", "payload.item.type"),
		Session: "payload.session_id",
		Run:     "payload.root_turn_id",
		Time:    "timestamp",
		Other:   Nothing(byHooks),
		Rows: map[string]Row{
			"event_msg/item_completed/CommandExecution": item,
			"event_msg/item_completed/FileChange":       item,
			"event_msg/item_completed/McpToolCall":      item,

			"response_item/function_call_output": SwitchOn("output says", outcome, map[string]Row{
				"never":     Emit("tool.denied", Call("payload.call_id"), Const("by", "user_setting")),
				"policy":    Emit("tool.denied", Call("payload.call_id"), Const("by", "policy")),
				"rejected":  Emit("tool.failed", Call("payload.call_id"), Fault(Const("type", "rejected"), "payload.output")).Note("refused by who was asked"),
				"interrupt": Emit("tool.failed", Call("payload.call_id"), Fault(Const("type", "interrupted"), "payload.output")),
			}, Nothing("its item and the hooks tell the outcome")),

			"event_msg/turn_aborted": When(inner, Nothing("a subagent's own turn"),
				Switch("payload.reason", map[string]Row{
					"interrupted": Emit("run.cancelled", Key("payload.turn_id"), Const("by", "user")),
				}, Emit("run.cancelled", Key("payload.turn_id")))),
			"event_msg/task_complete": When(inner, Nothing("a subagent's own turn"),
				When(Has("payload.error"),
					Emit("run.failed", Key("payload.turn_id"), Word("reason", "payload.error.codex_error_info", "error"),
						Fault(Word("type", "payload.error.codex_error_info", "error"), "payload.error.message"), Dur("duration_ms", "payload.duration_ms")).
						Note("no hook tells it"),
					Nothing("Stop tells it; a compaction's turn had no prompt"))),

			"token_usage_record": VendorAs("model.usage", Need("payload.response_id"), Key("payload.response_id"), ofThread,
				Int("gen_ai.usage.input_tokens", "payload.usage.input_tokens"), Int("gen_ai.usage.output_tokens", "payload.usage.output_tokens"),
				Int("cache_read_tokens", "payload.usage.cached_input_tokens"), Int("cache_creation_tokens", "payload.usage.cache_write_input_tokens"),
				Int("reasoning_tokens", "payload.usage.reasoning_output_tokens")),
		},
	})
}

// item is what a tool came to. It is found by its call: the run and the step
// are those of its request.
var item = Switch("payload.item.status", map[string]Row{
	"completed": Emit("tool.completed", OfRun(""), Call("payload.item.id"), Content("result", "payload.item.aggregated_output|payload.item.stdout|payload.item.result")),
	"failed": Emit("tool.failed", OfRun(""), Call("payload.item.id"), Fault(Const("type", "tool_error"), "payload.item.aggregated_output|payload.item.stderr|payload.item.error.message")).
		Note("PostToolUse, which comes after, does not say so"),
	"declined": Emit("tool.failed", OfRun(""), Call("payload.item.id"), Fault(Const("type", "rejected"), "payload.item.aggregated_output")),
}, Nothing("no outcome yet"))

// inner: a subagent's turn names the turn that it is a part of.
var inner = Is("turn_id is not root_turn_id", func(in *In) bool {
	root := in.Str("payload.root_turn_id")
	return root != "" && root != in.Str("payload.turn_id")
})

// outcome reads what became of a call that came to no item, by Codex's own
// words in what it gives the model.
func outcome(in *In) string {
	s := in.Str("payload.output")
	rejected := strings.HasPrefix(s, `exec_command failed: CreateProcess { message: "Rejected(`)
	switch {
	case strings.HasPrefix(s, "approval policy is Never; reject command"):
		return "never"
	case rejected && (strings.Contains(s, "rejected: blocked by policy") || strings.Contains(s, "rejected: policy forbids commands")):
		return "policy"
	case rejected:
		return "rejected"
	case len(s) < 128 && strings.HasSuffix(s, "\naborted by user"):
		return "interrupt"
	}
	return ""
}

// ofThread makes a subagent's thread the step.
var ofThread = Do("", []adapters.TermField{{Member: "(step)", From: "payload.thread_id", Level: event.Metadata}}, func(in *In, d *event.Draft) bool {
	if t := in.Str("payload.thread_id"); t != d.Session {
		d.Step = t
	}
	return true
})

// stream is the vocabulary of "codex exec --json". It is read only where no
// hook can be installed: its items have no call ids, and only the first line
// names the session. Its ids begin anew with each process, so that they name
// no fact.
func stream() *Table {
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.Stream,
		Name:    Named("type", "item.type"),
		Session: "thread_id",
		Other:   Nothing("no fact of its own"),
		Rows: map[string]Row{
			"thread.started": Emit("session.started", Key("thread_id"), Object("client", Const("name", name))),
			"turn.started":   Emit("run.started", Const("trigger", "user")),
			"turn.completed": Emit("run.finished").Note("its usage is the whole thread's"),
			"turn.failed":    Emit("run.failed", Const("reason", "error"), Fault(Const("type", "error"), "error.message")),

			"item.started/command_execution":   started,
			"item.completed/command_execution": ended("item.aggregated_output"),
			"item.started/file_change":         started,
			"item.completed/file_change":       ended(""),
			"item.started/mcp_tool_call":       started,
			"item.completed/mcp_tool_call":     ended("item.result"),
		},
	})
}

var started = Emit("tool.requested", Tool("item.type", "item.id"), Unnamed, args)

// args are the members by which an item says what it is about to do.
var args = Do("", []adapters.TermField{
	{Member: "args", From: "item.command", Level: event.Redacted}, {Member: "args", From: "item.changes", Level: event.Redacted},
	{Member: "args", From: "item.server", Level: event.Redacted}, {Member: "args", From: "item.tool", Level: event.Redacted},
	{Member: "args", From: "item.arguments", Level: event.Redacted},
}, func(in *In, d *event.Draft) bool {
	o := map[string]any{}
	for _, m := range []string{"command", "changes", "server", "tool", "arguments"} {
		if v := in.Get("item." + m); v != nil {
			o[m] = v
		}
	}
	d.Fields = append(d.Fields, event.Family("args", o))
	return true
})

func ended(result Path) Row {
	done := []Fact{Tool("item.type", "item.id"), Unnamed}
	if result != "" {
		done = append(done, Content("result", result))
	}
	failed := Emit("tool.failed", Tool("item.type", "item.id"), Unnamed, Fault(Const("type", "tool_error"), "item.aggregated_output|item.error.message"))
	return Switch("item.status", map[string]Row{
		"completed": Emit("tool.completed", done...),
		"failed":    failed,
		"declined":  Emit("tool.failed", Tool("item.type", "item.id"), Unnamed, Fault(Const("type", "rejected"), "item.aggregated_output")),
	}, Nothing("no outcome yet"))
}
