package opencode

import (
	"maps"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
	"aep-wrap/event"
)

// The items of the server's stream are those of the bus that a plugin sees,
// too: there they are inside a wrapper.
const (
	inItem   = "properties."
	inPlugin = "event.properties."
)

// table compiles the vocabulary of a channel whose items have their properties
// at p.
func (v Variant) table(c adapters.Channel, p string, rows map[string]Row, other Row) *Table {
	return New(Vocabulary{
		Vendor:  v.Name,
		Channel: c,
		Name: func(in *In) string {
			if c == adapters.Hook {
				if kind := in.Str("kind"); kind != "bus" {
					return kind
				}
				return in.Str("event.type")
			}
			return in.Str("type")
		},
		Session:  p + "sessionID|" + p + "info.sessionID|" + p + "info.id|permission.sessionID|input.sessionID",
		Time:     p + "time",
		Rows:     rows,
		Other:    other,
		Fallback: func(native string) string { return Dotted(native, ".") },
	})
}

// primary is the vocabulary of the server's stream, where it alone tells the
// facts.
func (v Variant) primary() *Table {
	rows := v.bus(inItem)
	// An older server's, of which the corpus says that nothing can answer it.
	rows["permission.updated"] = Emit("attention.requested", asking(inItem+"type", inItem, nil)...)
	return v.table(adapters.Server, inItem, rows, When(Prefix("type", "session.next."), Nothing("the messages tell it"), Unmapped))
}

// beside is that of the same stream where a plugin's hooks tell the facts: it
// adds what they do not, under the vendor's names.
func (v Variant) beside() *Table {
	return v.table(adapters.ServerBeside, inItem, map[string]Row{
		"message.updated":      Switch(inItem+"info.role", map[string]Row{"assistant": usage(inItem)}, Unmapped),
		"message.part.updated": Nothing("the plugin's hooks tell the tools"),
		"session.error":        Vendor(Severity(event.Error), Str("type", inItem+"error.name")),
		"command.executed":     Vendor(Str("name", inItem+"name")),
	}, Unmapped)
}

// plugin is that of a plugin: the bus, and hooks around a tool and a
// permission.
func (v Variant) plugin() *Table {
	rows := v.bus(inPlugin)
	maps.Copy(rows, map[string]Row{
		"tool.before":    Emit("tool.requested", Tool("input.tool", "input.callID"), Content("args", "output.args")),
		"tool.after":     Emit("tool.completed", Tool("input.tool", "input.callID"), Content("result", "output.output")).Note("also of a tool that failed: the hook does not say so"),
		"permission.ask": Emit("attention.requested", asking("permission.type", "permission.", hookOptions)...).Note("the hook is dead in 1.18: permission.asked is the live form"),
	})
	return v.table(adapters.Hook, inPlugin, rows, Unmapped)
}

// bus are the rows of the bus.
func (v Variant) bus(p string) map[string]Row {
	rows := map[string]Row{
		"session.created": Emit("session.started", Key(p+"info.id"), Object("client", Const("name", v.Name), Str("version", p+"info.version")),
			Object("parent", Str("session", p+"info.parentID")), Text("label", p+"info.title"), Text("cwd", p+"info.directory")),
		"session.deleted":   Emit("session.ended", Key(p+"info.id"), Const("reason", "normal")),
		"session.compacted": Emit("session.compacted"),
		"session.idle":      Emit("run.finished").Note("comes twice after an abort: a run ends once"),
		runCut:              Emit("run.cancelled").Note("made where a run is over, and nobody heard how: by whom is not claimed"),
		"session.status": Switch(p+"status.type", map[string]Row{
			"retry": Emit("progress.status", Subject(p+"status.type"), Text("message", p+"status.message")),
			"busy":  Nothing("the prompt started the run"),
			"idle":  Nothing("session.idle ends the run"),
		}, Unmapped),
		"session.error": Switch(p+"error.name", map[string]Row{
			"MessageAbortedError":      Emit("run.cancelled", Const("by", "user")),
			"APIError":                 runFailed(p),
			"ProviderAuthError":        runFailed(p),
			"MessageOutputLengthError": runFailed(p),
			"UnknownError":             runFailed(p),
		}, Vendor(Severity(event.Error), Str("type", p+"error.name")).Note("it does not say whether the run goes on")),

		"message.updated": Switch(p+"info.role", map[string]Row{
			"user": When(Has(p+"info.summary"), Nothing("the same prompt again, with what it changed"),
				Emit("run.started", Key(p+"info.id"), Const("trigger", "user")).Note("one that comes while a run is open goes into it")),
			"assistant": Switch(p+"info.tokens.output", map[string]Row{"0": Nothing("nothing was used yet")}, usage(p)),
		}, Unmapped),
		"message.part.updated": Switch(p+"part.type", map[string]Row{"tool": tool(p + "part.")}, Nothing("what is said and thought is not told")),

		"permission.asked":   Emit("attention.requested", asking(p+"permission|"+p+"type", p, serverOptions)...),
		"permission.updated": Nothing("permission.ask asks it"),
		"permission.replied": Switch(p+"reply", map[string]Row{
			"once":   Answered(p+"requestID", "once"),
			"always": Answered(p+"requestID", "always"),
			"reject": Answered(p+"requestID", "reject"),
		}, Resolved(p+"permissionID|"+p+"requestID", "answered")),
		"question.asked":    Emit("attention.requested", Need(p+"id"), Subject(p+"id"), Pair(p+"id"), ofCall(p+"tool.callID"), AsForm(p+"questions", multiple)),
		"question.replied":  Resolved(p+"requestID", "answered").Note("the labels chosen are not told: the form is not repeated"),
		"question.rejected": Resolved(p+"requestID", "dismissed"),

		"todo.updated":     Nothing("a whole list, not a change: its items are told one by one"),
		todoItem:           Many(Emit("progress.task.planned", todo(p)), Switch(p+"todo.status", map[string]Row{"completed": Emit("progress.task.completed", todo(p))}, Nothing("not done yet"))),
		"file.edited":      Vendor(),
		"command.executed": Vendor(Str("name", p+"name")),
	}
	for _, name := range []string{"session.updated", "session.diff", "message.part.delta", "message.part.removed", "message.removed"} {
		rows[name] = Nothing("no fact of its own")
	}
	maps.Copy(rows, v.rows(p))
	return rows
}

func (v Variant) rows(p string) map[string]Row {
	if v.Rows == nil {
		return nil
	}
	return v.Rows(p)
}

// runFailed: these end the run; session.idle comes after them.
func runFailed(p string) Row {
	words := map[string]string{"APIError": "api_error", "ProviderAuthError": "auth_error", "MessageOutputLengthError": "output_length"}
	return Many(Vendor(Severity(event.Error), Str("type", p+"error.name")),
		Emit("run.failed", Enum("reason", p+"error.name", words, "error"), Fault(Enum("type", p+"error.name", words, "error"), p+"error.data.message")))
}

func usage(p string) Row {
	return Vendor(Key(p+"info.id", p+"info.time.completed"), Str("role", p+"info.role"),
		Int("gen_ai.usage.input_tokens", p+"info.tokens.input"), Int("gen_ai.usage.output_tokens", p+"info.tokens.output"))
}

// tool is what a message's part tells of a tool. A fact is named by the part:
// call ids are the provider's, and not every provider's are unique.
func tool(p string) Row {
	named := []Fact{Tool(p+"tool", p+"callID"), Key(p + "id")}
	is := func(typ string, more ...Fact) Row { return Emit(typ, append(named[:2:2], more...)...) }
	failed := func(word, text string) Row {
		return is("tool.failed", Fault(Const("type", word), p+"state."+text), lasted(p))
	}
	child := p + "state.metadata.sessionId"
	delegated := func(typ string, r Row) Row {
		return Many(r, When(Has(child), Emit(typ, Subject(child), Pair(child), Object("child", Str("session", child)), Str("agent_type", p+"state.input.subagent_type")),
			Nothing("no session of its own")))
	}
	return SwitchOn("state and outcome", outcome(p), map[string]Row{
		"pending":     Nothing("its input is not whole yet"),
		"running":     delegated("delegation.subagent.started", is("tool.requested", Content("args", p+"state.input"))),
		"completed":   delegated("delegation.subagent.stopped", is("tool.completed", Content("result", p+"state.output"), lasted(p))),
		"exit":        failed("tool_error", "output").Note("a command's exit code, which the state does not go by"),
		"aborted":     failed("interrupted", "output"),
		"interrupted": delegated("delegation.subagent.stopped", failed("interrupted", "error")),
		"rejected":    failed("rejected", "error"),
		"error":       delegated("delegation.subagent.stopped", failed("tool_error", "error")),
		"rule":        is("tool.denied", Const("by", "user_setting")),
	}, Nothing("no outcome"))
}

// outcome is a tool's state, and what OpenCode says beyond it.
func outcome(p string) func(*In) string {
	said := Begins(p+"state.error", [2]string{"The user rejected permission", "rejected"}, [2]string{"The user dismissed", "rejected"},
		[2]string{"The user has specified a rule", "rule"}, [2]string{"Tool execution aborted", "interrupted"})
	return func(in *In) string {
		state := in.Str(p + "state.status")
		switch exit := in.Get(p + "state.metadata.exit"); {
		case state == "error":
			if word := said(in); word != "" {
				return word
			}
		case state == "completed" && exit != nil && !zero(exit):
			return "exit"
		case state == "completed" && exit == nil && aborted(in.Str(p+"state.metadata.output")):
			return "aborted"
		}
		return state
	}
}

// asking are the facts of a permission's request: what it is for stands at
// name, the rest below p. Without options nobody can answer.
func asking(name, p string, options []Option) []Fact {
	facts := []Fact{Need(p + "id"), Need(name), Kind("permission"), Subject(name), about(name, p)}
	if options != nil {
		facts = append(facts, Options(options...), RespondVia)
	}
	return append(facts, Whole("context", p+"metadata"), Pair(p+"id"), ofCall(p+"callID|"+p+"tool.callID"))
}

// The options of the server, and of the plugin's hook.
var (
	serverOptions = []Option{{ID: "once", Label: "Allow once"}, {ID: "always", Label: "Always allow"}, {ID: "reject", Label: "Reject"}}
	hookOptions   = []Option{{ID: "allow", Label: "Allow"}, {ID: "deny", Label: "Deny"}}
)
