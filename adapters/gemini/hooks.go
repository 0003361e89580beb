package gemini

import (
	"regexp"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
)

// hooks is the vocabulary of the hook events. They name neither a turn nor a
// call: a turn is from BeforeAgent to AfterAgent, and a tool's end is that of
// the oldest open tool with its name and input.
func hooks() *Table {
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.Hook,
		Session: "session_id",
		Time:    "timestamp",
		Rows: map[string]Row{
			"SessionStart": Switch("source", map[string]Row{
				"resume": Emit("session.started", append(sessionStart, Unnamed)...).Note("each resumption is a fact of its own"),
			}, Emit("session.started", sessionStart...)),
			"SessionEnd":  Emit("session.ended", Key("session_id"), Const("reason", "normal")).Note("fired three times on /quit"),
			"BeforeAgent": Emit("run.started", Const("trigger", "user"), Text("prompt", "prompt")),
			"AfterAgent":  Emit("run.finished").Note("also after an Esc, and does not say so"),

			"BeforeTool": Gated("tool_name", "tool_input", Emit("tool.requested", Tool("tool_name", ""), Content("args", "tool_input"))).
				Note("fired before a policy or the user is asked; a tool that is unknown, or called wrongly, fires nothing"),
			"AfterTool": SwitchOn("tool_response says", outcome, map[string]Row{
				"error": Emit("tool.failed", Tool("tool_name", ""), Fault(Str("type", "tool_response.error.type"), "tool_response.error.message"), opened),
				"exit":  Emit("tool.failed", Tool("tool_name", ""), Fault(Const("type", "exit_code"), "tool_response.returnDisplay|tool_response.llmContent"), opened),
			}, Emit("tool.completed", Tool("tool_name", ""), Content("result", "tool_response"), opened)),

			"Notification": Emit("progress.status", Subject("notification_type"), Text("message", "message")).
				Note("a dialog is shown: it can be answered in the terminal alone"),
			"PreCompress": When(everyCall, Nothing("fired before every model call, whether there is anything to compress or not"),
				Emit("session.compacted", Str("trigger", "trigger"))),

			"BeforeModel":         Vendor(Str("model", "llm_request.model")),
			"AfterModel":          Vendor(Str("model", "llm_request.model")).Note("fired for each chunk, and waited for: never hooked"),
			"BeforeToolSelection": Vendor(Str("model", "llm_request.model")),
		},
	})
}

var sessionStart = []Fact{
	Key("session_id"),
	Object("client", Const("name", name)),
	Str("trigger", "source"),
	Text("cwd", "cwd"),
}

var opened = Open("tool_name", "tool_input")

// everyCall tells a live "auto" from the one of the corpus, which is a
// compaction: live payloads name their log.
var everyCall = Is("trigger = auto, with a transcript_path", func(in *In) bool {
	return in.Str("trigger") == "auto" && in.Get("transcript_path") != nil
})

// exitCode is the line by which Gemini CLI tells the model of a shell's exit
// code other than 0.
var exitCode = regexp.MustCompile(`(?m)^Exit Code: [1-9-]`)

// outcome reads whether a tool failed: an error beside its result, or the exit
// code inside it.
func outcome(in *In) string {
	switch {
	case in.Get("tool_response.error") != nil:
		return "error"
	case in.Str("tool_name") == "run_shell_command" && exitCode.MatchString(in.Str("tool_response.llmContent")):
		return "exit"
	}
	return ""
}
