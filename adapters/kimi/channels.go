package kimi

import (
	"strings"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
)

const byHooks = "no fact of its own; the hooks are the authority"

// wire is the vocabulary of the session log: what became of a tool that was
// refused, which fires no hook, and what was used.
func wire() *Table {
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.Transcript,
		Name:    Named("type", "event.type"),
		Time:    "time",
		Other:   Nothing(byHooks),
		Rows: map[string]Row{
			"context.append_loop_event/tool.call": Emit("tool.requested", Tool("event.name", "event.toolCallId"), Content("args", "event.args")),
			"context.append_loop_event/tool.result": Switch("event.result.isError", map[string]Row{
				"true": SwitchOn("event.result.output says", refused("event.result.output"), map[string]Row{
					"rejected": Emit("tool.failed", Call("event.toolCallId"), Fault(Const("type", "rejected"), "event.result.output")),
				}, Emit("tool.failed", Call("event.toolCallId"), Fault(Const("type", "internal"), "event.result.output"), Dur("duration_ms", "event.result.durationMs"))),
			}, Emit("tool.completed", Call("event.toolCallId"), Content("result", "event.result.output"), Dur("duration_ms", "event.result.durationMs"))),
			"usage.record": VendorAs("model.usage", Key("agentId", "time"), Str("gen_ai.response.model", "model"),
				Int("gen_ai.usage.input_tokens", "usage.inputOther"), Int("gen_ai.usage.output_tokens", "usage.output"),
				Int("cache_read_tokens", "usage.inputCacheRead"), Int("cache_creation_tokens", "usage.inputCacheCreation")),
		},
	})
}

// refused reads Kimi Code's own words for a tool that the user did not let run.
func refused(p Path) func(*In) string {
	return func(in *In) string {
		s := in.Str(p)
		if strings.HasPrefix(s, `Tool "`) && strings.Contains(s, "was not run because the user rejected the approval request") {
			return "rejected"
		}
		return ""
	}
}

// stream is the vocabulary of --output-format stream-json. It is read only
// where no hook can be installed, and tells of tools alone: it names the
// session in its last line, and no turn.
func stream() *Table {
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.Stream,
		Name:    Named("role"),
		Other:   Nothing("no fact of its own"),
		Rows: map[string]Row{
			"assistant": Each("tool_calls", Emit("tool.requested", Tool("function.name", "id"), Content("args", "function.arguments")), Nothing("what the agent says is not told")),
			"tool": SwitchOn("content says", failed, map[string]Row{
				"failed": Emit("tool.failed", Call("tool_call_id"), Fault(Const("type", "exit_code"), "content")),
			}, Emit("tool.completed", Call("tool_call_id"), Content("result", "content")).Note("also a tool that failed otherwise: the line does not say")),
		},
	})
}

// failed reads whether a tool's output ends with the words for a command's
// exit code other than 0.
func failed(in *In) string {
	s := in.Str("content")
	if i := strings.LastIndexByte(s, '\n'); strings.HasPrefix(s[i+1:], "Command failed with exit code: ") {
		return "failed"
	}
	return ""
}
