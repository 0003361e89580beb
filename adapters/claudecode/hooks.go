package claudecode

import (
	"encoding/json"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
	"aep-wrap/event"
)

// forked is the name under which SessionStart is hooked where the command line
// forks a session: the payload then names the session that was forked from.
const forked = "SessionStart.forked"

// unattended is the name under which PermissionRequest is hooked where no dialog
// stands beside it: while it is held, nobody else can answer.
const unattended = "PermissionRequest.unattended"

// hooks is the vocabulary of the hook events. It is the authority: the
// other channels confirm what it says, and tell what fires no hook.
func hooks() *Table {
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.Hook,
		Session: "session_id",
		Run:     "prompt_id",
		Step:    "agent_id",
		Rows: map[string]Row{
			"Setup": Vendor(Str("trigger", "trigger")),
			"SessionStart": Switch("source", map[string]Row{
				"compact": Nothing("the session goes on; PostCompact tells of the compaction"),
				"resume":  Emit("session.started", append(sessionStart, Unnamed)...).Note("each resumption is a fact of its own"),
			}, Emit("session.started", sessionStart...)),
			forked: Nothing("--fork-session: the payload names the session that was forked from; the new one starts at first sight"),
			"SessionEnd": Emit("session.ended", Key("session_id"),
				Enum("reason", "reason", map[string]string{"bypass_permissions_disabled": "killed"}, "normal")),

			"UserPromptSubmit": Many(firstSight, When(Prefix("prompt", "<task-notification>"),
				prompted("agent").Note("a background task reports back: no person typed it"),
				Switch("source", map[string]Row{
					"system":          prompted("agent"),
					"loop_wakeup":     prompted("schedule"),
					"schedule_wakeup": prompted("schedule"),
				}, prompted("user")))),
			"UserPromptExpansion": Vendor(Str("expansion_type", "expansion_type"), Str("command_name", "command_name"), Str("command_source", "command_source")),
			"Stop":                Emit("run.finished", Key("prompt_id"), Text("summary", "last_assistant_message")),
			"StopFailure": Emit("run.failed", Key("prompt_id"), Word("reason", "error", "unknown"),
				Fault(Word("type", "error", "unknown"), "error_details|last_assistant_message")),

			"PreToolUse": Gated("tool_name", "tool_input", Emit("tool.requested", Tool("tool_name", "tool_use_id"), Content("args", "tool_input"))),
			"PostToolUse": Switch("tool_name", map[string]Row{
				askTool: Many(
					Emit("attention.answered", Need("tool_use_id"), Pair("tool_use_id"), answers, Const("via", "oob")),
					Resolved("tool_use_id", "answered"),
					completed),
			}, completed),
			"PostToolUseFailure": Emit("tool.failed", Tool("tool_name", "tool_use_id"),
				Fault(Enum("type", "is_interrupt", map[string]string{"true": "interrupt"}, "tool_error"), "error"),
				Dur("duration_ms", "duration_ms")),
			"PostToolBatch": Vendor(calls),

			"PermissionRequest": permitted,
			unattended:          permitted,
			"PermissionDenied": Emit("tool.denied", Tool("tool_name", "tool_use_id"), Const("by", "runtime")).
				Note("auto mode's classifier; the reason is prose and has no member"),

			"Elicitation": Switch("mode", map[string]Row{
				"url": Emit("attention.requested", Subject("mcp_server_name"), elicited, Kind("other"), Prompt("message"), RespondVia).
					Note("the answer is given on a web page"),
			}, Emit("attention.requested", Subject("mcp_server_name"), elicited, Elicitation("message", "requested_schema|requestedSchema"))),
			"ElicitationResult": Switch("action", map[string]Row{
				"accept": Many(
					Emit("attention.answered", elicited, accepted, Const("via", "oob")),
					Emit("attention.resolved", elicited, Const("resolution", "answered"))),
				"decline": Many(
					Emit("attention.answered", elicited, Object("answer", Const("option", "decline")), Const("via", "oob")),
					Emit("attention.resolved", elicited, Const("resolution", "answered"))),
				"cancel": Emit("attention.resolved", elicited, Const("resolution", "dismissed")),
			}, Unmapped),

			"Notification": Switch("notification_type", map[string]Row{
				"permission_prompt":    Nothing("PermissionRequest carries it"),
				"elicitation_dialog":   Nothing("Elicitation carries it"),
				"elicitation_response": Nothing("ElicitationResult carries it"),
			}, Emit("progress.status", Subject("notification_type"), Text("message", "message"))),

			"SubagentStart": Emit("delegation.subagent.started", Subject("agent_id"), Pair("agent_id"), OfParent, Str("agent_type", "agent_type")),
			"SubagentStop": Switch("agent_type", map[string]Row{
				"": Nothing("a helper of the runtime's own, as for a compaction: it had no start"),
			}, Emit("delegation.subagent.stopped", Subject("agent_id"), Pair("agent_id"), OfParent, Str("agent_type", "agent_type"))),
			"TaskCreated":   Emit("progress.task.planned", Subject("task_id"), Pair("task_id"), task),
			"TaskCompleted": Emit("progress.task.completed", Subject("task_id"), Pair("task_id"), task, Const("status", "completed")),
			"TeammateIdle": Emit("agent.idle", Const("reason", "teammate_idle"), Str("teammate", "teammate_name"), Str("team", "team_name")).
				Note("a teammate is another process; this session's agent tells it"),

			"PreCompact":  Nothing("session.compacted is told once, at PostCompact"),
			"PostCompact": Emit("session.compacted", Str("trigger", "trigger")).Note("the summary is prose and has no member"),

			"ConfigChange":       Vendor(Str("source", "source")),
			"InstructionsLoaded": Vendor(Str("memory_type", "memory_type"), Str("load_reason", "load_reason")),
			"CwdChanged":         Vendor(),
			"FileChanged":        Vendor(Word("event", "event", "unknown")),
			"DirectoryAdded":     Vendor(Str("source", "source")),
			"PreModelSwitch":     Vendor(modelSwitch...),
			"PostModelSwitch":    Vendor(modelSwitch...),
			"PreSkillShellCommand": Vendor(Subject("tool_name"), Str("command_name", "command_name"), Str("command_source", "command_source"), Str("invoked_by", "invoked_by")).
				Note("a shell command in a skill's text: the log knows no tool call of that id"),
			"WorktreeCreate": Vendor().Note("never hooked: a hook takes the creation over"),
			"WorktreeRemove": Vendor().Note("never hooked: a hook takes the removal over"),
			"MessageDisplay": Vendor(Str("message_id", "message_id"), Int("index", "index"), Bool("final", "final")),
		},
	})
}

var modelSwitch = []Fact{Str("from_model", "from_model"), Str("to_model", "to_model"), Str("source", "source")}

var permitted = Switch("tool_name", map[string]Row{
	askTool: Emit("attention.requested", Subject("tool_name"), questions, Open("tool_name", "tool_input")),
}, Emit("attention.requested", Permission("tool_name", "tool_input"))).
	Note("named by the PreToolUse before it: the hook gives no call id")

func prompted(trigger string) Row {
	return Emit("run.started", Key("prompt_id"), Const("trigger", trigger), Text("prompt", "prompt"))
}

var sessionStart = []Fact{
	Key("session_id"),
	Object("client", Const("name", name)),
	Str("trigger", "source"),
	Str("gen_ai.request.model", "model"),
	Text("cwd", "cwd"),
	Text("label", "session_title"),
}

// firstSight starts the session where no SessionStart told it: it is the same
// fact, and a second telling of it is dropped.
var firstSight = Emit("session.started", Key("session_id"), Object("client", Const("name", name)), Text("cwd", "cwd"), Text("label", "session_title")).
	Note("where SessionStart was not hooked or named another session; else it is told already")

var completed = Emit("tool.completed", Tool("tool_name", "tool_use_id"), Content("result", "tool_response"), Dur("duration_ms", "duration_ms"))

// elicited names an elicitation: by its id where the server gives one, else by
// the server, of which one request waits at a time.
var elicited = Do("mcp_server_name", nil, func(in *In, d *event.Draft) bool {
	d.Pair = in.Str("mcp_server_name")
	if s := in.Str("elicitation_id"); s != "" {
		d.Pair, d.Key = s, s
	}
	return d.Pair != ""
})

var task = Object("task", Str("id", "task_id"), Text("title", "task_subject"))

var calls = Do("tool_calls", []adapters.TermField{{Member: "calls", From: "tool_calls (counted)"}}, func(in *In, d *event.Draft) bool {
	list, ok := in.Get("tool_calls").([]any)
	if ok {
		d.Fields = append(d.Fields, event.Meta("calls", json.Number(itoa(len(list)))))
	}
	return ok
})
