package claudecode

import (
	"strings"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
	"aep-wrap/event"
)

// lineName is the name of a line of the stream or the transcript: its type,
// and its subtype where it has one.
func lineName(in *In) string {
	typ, _ := in.Moment.Payload["type"].(string)
	if typ != "system" && typ != "attachment" {
		return typ
	}
	if sub := in.Str("subtype|attachment.type"); sub != "" {
		return typ + "/" + sub
	}
	return typ
}

const byHooks = "no fact of its own; the hooks are the authority"

// stream is the vocabulary of --output-format stream-json. Beside the hooks it
// confirms; alone it tells of what it names without doubt: sessions, tools,
// denials, ends of runs and their cost.
func stream() *Table {
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.Stream,
		Name:    lineName,
		Session: "session_id",
		Time:    "timestamp",
		Other:   Nothing(byHooks),
		Rows: map[string]Row{
			"system/init": Many(
				Emit("session.started", Key("session_id"), Object("client", Const("name", name), Str("version", "claude_code_version")),
					Str("gen_ai.request.model", "model"), Str("permission_mode", "permissionMode"), Text("cwd", "cwd")),
				VendorAs("session.init", Key("session_id"), Str("version", "claude_code_version"), Str("gen_ai.request.model", "model"),
					Str("permission_mode", "permissionMode")).
					Note("what is lost where the session was told as started before")),
			"system/permission_denied": Emit("tool.denied", Tool("tool_name", "tool_use_id"),
				Enum("by", "decision_reason_type", map[string]string{"rule": "user_setting", "mode": "user_setting", "hook": "policy"}, "runtime")),
			"assistant": Each("message.content", Switch("type", map[string]Row{"tool_use": toolUse}, Nothing("what the agent says is not told")), Nothing("no content")),
			"user":      Each("message.content", userPart("tool_use_result"), Nothing("a prompt: UserPromptSubmit tells it")),
			"result": Many(
				Each("permission_denials", Emit("tool.denied", Tool("tool_name", "tool_use_id"), Const("by", "runtime")), Nothing("none")),
				resultRow,
				VendorAs("run.usage", Key("uuid"), Word("result", "subtype", "unknown"),
					Int("gen_ai.usage.input_tokens", "usage.input_tokens"), Int("gen_ai.usage.output_tokens", "usage.output_tokens"),
					Int("cache_read_tokens", "usage.cache_read_input_tokens"), Int("cache_creation_tokens", "usage.cache_creation_input_tokens"),
					Num("cost_usd", "total_cost_usd"), Int("turns", "num_turns"), Dur("duration_ms", "duration_ms")).
					Note("what a run used; Stop, which ends it, does not say")),
			"control_request": Nothing("PermissionRequest races it, and can be answered"),
		},
	})
}

// resultRow is the end of a run as the stream tells it. A run that Stop or
// StopFailure ended already does not end again: the line names no prompt, so
// it is of the open run or of none.
var resultRow = Switch("subtype", map[string]Row{
	"success": Switch("is_error", map[string]Row{
		"true": Emit("run.failed", Const("reason", "api_error"), Fault(Const("type", "api_error"), "result"), Dur("duration_ms", "duration_ms")),
	}, Emit("run.finished", Text("summary", "result"), Dur("duration_ms", "duration_ms"),
		Int("gen_ai.usage.input_tokens", "usage.input_tokens"), Int("gen_ai.usage.output_tokens", "usage.output_tokens"),
		Object("cost", Const("currency", "USD"), Num("total", "total_cost_usd")))),
	"error_during_execution": Switch("terminal_reason", map[string]Row{
		"aborted_streaming": cancelled,
		"aborted_tools":     cancelled,
	}, failedRun),
}, failedRun)

var cancelled = Emit("run.cancelled", Const("by", "user")).Note("no hook fires on an interrupt")

var failedRun = Emit("run.failed", Word("reason", "subtype", "unknown"), Fault(Word("type", "subtype", "unknown"), "errors"), Dur("duration_ms", "duration_ms"))

var toolUse = Emit("tool.requested", Tool("name", "id"), Content("args", "input"))

// userPart is a part of a user's message: the outcome of a tool, or the words
// that Claude Code puts there when the user interrupts it. result is where the
// line has the tool's structured result.
func userPart(result Path) Row {
	return Switch("type", map[string]Row{
		"tool_result": Switch("is_error", map[string]Row{"true": errorResult(result)},
			Emit("tool.completed", Call("tool_use_id"), Content("result", "$."+result+"|content"))),
		"text": When(interrupted, interrupt, Nothing("a prompt is told where it was submitted")),
	}, Nothing("no outcome"))
}

var interrupted = Prefix("text", "[Request interrupted by user")

var interrupt = Emit("run.cancelled", Key("$.promptId"), Const("by", "user")).Note("no hook fires on an interrupt")

// errorResult reads why a tool gave no result. The line says only that it did
// not; its text is Claude Code's own where a person or a rule stood in the
// way, and where it is not, the hooks know better.
func errorResult(result Path) Row {
	return When(textHas("content",
		"The user doesn't want to proceed with this tool use.",
		"The user doesn't want to take this action right now.",
		Refused),
		Emit("tool.failed", Call("tool_use_id"), Fault(Const("type", "user_rejected"), "content")).
			Note("refused in the dialog or from afar, or interrupted while it ran: the words are the same"),
		When(textHas("content", "Exit code ", "<tool_use_error>"),
			Emit("tool.failed", Call("tool_use_id"), Fault(Const("type", "tool_error"), "content")),
			When(deniedKind, notLetRun, When(textHas("content", notAllowed...), notLetRun,
				Nothing("the text does not say whether the tool ran; PostToolUseFailure does")))))
}

var notLetRun = Emit("tool.denied", Call("tool_use_id"), Const("by", "runtime")).Note("nobody was there to be asked, or a rule said no")

// notAllowed are Claude Code's words for a tool that was not let run, where no
// hook tells of it: the question of a dialog that nobody could be shown. A tool
// that ran and failed with such words was told by its hook before.
var notAllowed = []string{
	"Permission to use ", "Claude requested permissions to ", "Path contains ",
	"… was blocked. For security, ", "… was blocked by ", "…require approval", "…requires approval", "…requires permission",
}

// deniedKind reads what newer versions say of a tool beside its result: a rule or
// auto mode forbade it, or nobody was there to be asked. A person's No, a
// hook's and an interrupt have words of their own.
var deniedKind = Is("toolDenialKind: by a rule, by auto mode, or nobody could be asked", func(in *In) bool {
	source := in.Str("$.permissionDecision.source")
	switch kind := in.Str("$.toolDenialKind"); kind {
	case "user-rejected":
		return source == "config"
	case "permission-rule":
		return source != "hook"
	default:
		return strings.HasPrefix(kind, "automode-")
	}
})

// textHas says that the text of a tool's result starts with one of these
// words, or holds those after a leading ellipsis in its first line.
func textHas(p Path, words ...string) Cond {
	return Is(p+" says "+strings.Join(words, " or "), func(in *In) bool {
		s := in.Str(p)
		if s == "" {
			s = in.Str(p + ".0.text")
		}
		first, _, _ := strings.Cut(s, "\n")
		for _, w := range words {
			if inner, ok := strings.CutPrefix(w, "…"); ok && strings.Contains(first, inner) || strings.HasPrefix(s, w) {
				return true
			}
		}
		return false
	})
}

// transcript is the vocabulary of the session log. It lags behind the hooks,
// so it tells what they do not: an interrupt, a refusal in the dialog, what
// each model call used, retries. The rest confirms, under the same keys.
func transcript() *Table {
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.Transcript,
		Name: func(in *In) string {
			if in.Moment.Payload["forkedFrom"] != nil {
				return "forked"
			}
			return lineName(in)
		},
		Session: "sessionId",
		Run:     "promptId",
		Step:    "agentId",
		Time:    "timestamp",
		Other:   Nothing(byHooks),
		Rows: map[string]Row{
			"forked": Nothing("copied from another session"),
			"user": When(submitted, submission,
				When(Prefix("message.content", "[Request interrupted by user"), interrupt,
					Each("message.content", userPart("toolUseResult"), Nothing("a command's output, or a subagent's prompt")))),
			"assistant": Switch("message.model", map[string]Row{"<synthetic>": Nothing("Claude Code's own words")},
				Many(
					Each("message.content", Switch("type", map[string]Row{"tool_use": toolUse}, Nothing("what the agent says is not told")), Nothing("no content")),
					VendorAs("model.usage", Need("message.id"), Key("message.id"), Str("gen_ai.response.model", "message.model"),
						Int("gen_ai.usage.input_tokens", "message.usage.input_tokens"), Int("gen_ai.usage.output_tokens", "message.usage.output_tokens"),
						Int("cache_read_tokens", "message.usage.cache_read_input_tokens"), Int("cache_creation_tokens", "message.usage.cache_creation_input_tokens"),
						Str("stop_reason", "message.stop_reason")))),
			"attachment/hook_permission_decision": Switch("attachment.hookEvent", map[string]Row{
				"PermissionRequest": Resolved("attachment.toolUseID", "auto").Note("a hook decided; an answer of ours was told already"),
			}, Nothing(byHooks)),
			"system/api_error": Emit("error.raised", Key("uuid"), Severity(event.Warning),
				Object("error", Const("type", "api_error"), Text("message", "error.message")),
				Const("fatal", false)),
			"system/compact_boundary": Nothing("PostCompact tells it"),
			"system/turn_duration":    Nothing("it names no prompt, and comes after a failure too"),
		},
	})
}

// submitted: the line is a prompt that was typed or sent, with its id.
var submitted = Is("it is a prompt (promptSource)", func(in *In) bool {
	p := in.Moment.Payload
	src, _ := p["promptSource"].(string)
	id, _ := p["promptId"].(string)
	meta, _ := p["isMeta"].(bool)
	return src != "" && id != "" && !meta && !strings.HasPrefix(in.Str("message.content"), "[Request interrupted by user")
})

var submission = Emit("run.started", Key("promptId"), Enum("trigger", "promptSource", map[string]string{"system": "agent"}, "user"), Text("prompt", "message.content"))

// telemetry is the vocabulary of the OTLP log records. One matters: what was
// decided in the permission dialog, told at once; the hooks show an allowed
// tool's end only, and a refusal not at all.
func telemetry() *Table {
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.Telemetry,
		Name:    func(in *In) string { return strings.TrimPrefix(in.Moment.Name, "claude_code.") },
		Session: `session\.id`,
		Run:     `prompt\.id`,
		Other:   Nothing("the hooks and the transcript tell it"),
		Rows: map[string]Row{
			"tool_decision": Switch("source", map[string]Row{
				"user_temporary": decided("allow"),
				"user_permanent": decided("allow"),
				"user_reject":    decided("deny"),
				"user_abort":     Resolved("tool_use_id", "dismissed"),
				"hook":           Resolved("tool_use_id", "auto").Note("a hook decided: what was answered from afar is applied"),
			}, Nothing("decided by configuration, without a person")),
		},
	})
}

// decided is a person's answer in the dialog. That questions were answered
// says nothing yet: PostToolUse brings the values.
func decided(option string) Row {
	row := Many(Answered("tool_use_id", option), Resolved("tool_use_id", "answered"))
	ask := Resolved("tool_use_id", "dismissed")
	if option == "allow" {
		ask = Nothing("PostToolUse brings the answers")
	}
	return Switch("tool_name", map[string]Row{askTool: ask}, row)
}
