// Package demo is a tiny runtime of this project's own: the hooks of the
// scripted agent that `aep-wrap demo` plays, and its script. It is also the
// smallest whole adapter, to read before writing one. doc.md has its payloads.
// It does no I/O: the script is data, the command plays it.
package demo

import (
	_ "embed"
	"slices"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
	"aep-wrap/event"
)

//go:embed doc.md
var doc string

const name = "demo"

// Adapter is the scripted agent.
func Adapter() adapters.Adapter {
	return adapters.Adapter{
		Name:   name,
		Title:  "The scripted demo agent",
		Pinned: "1",
		Doc:    doc,
		Launch: &adapters.Launching{
			// Nobody types its name: `aep-wrap demo` asks for it.
			Detect: func(adapters.Launch) bool { return false },
			Wire:   wire,
		},
		Map:        mapMoment,
		Vocabulary: terms,
		Asks:       Asks(map[string]adapters.Ask{"permission": {Held: true}, "form": {Held: true}}),
		Reply:      Reply,
		Instruct:   Instruct,
		Cancel:     Cancel,
	}
}

func wire(l adapters.Launch, e adapters.Endpoint) (adapters.Wiring, error) {
	return adapters.Wiring{
		Args:   slices.Clone(l.Args),
		SetEnv: map[string]string{"AEP_HOOK_URL": e.HookURL + "/" + name},
	}, nil
}

var mapMoment, terms = Merge(hooks)

func hooks() *Table {
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.Hook,
		Name: func(in *In) string {
			if in.Moment.Name != "" {
				return in.Moment.Name
			}
			return in.Str("event")
		},
		Session: "session",
		Run:     "run",
		Step:    "agent",
		Rows: map[string]Row{
			"session_start": Emit("session.started", Key("session"), Object("client", Const("name", name)), Str("trigger", "trigger"),
				Str("gen_ai.request.model", "model"), Text("cwd", "cwd")),
			"session_end": Emit("session.ended", Key("session"), Const("reason", "normal")),

			"prompt": Emit("run.started", Key("run"), Const("trigger", "user"), Text("prompt", "text")),
			"done": Emit("run.finished", Key("run"), Text("summary", "text"),
				Int("gen_ai.usage.input_tokens", "tokens.in"), Int("gen_ai.usage.output_tokens", "tokens.out")),
			"note": Emit("progress.status", Text("message", "text"), Int("percent", "percent")),

			"tool":         Emit("tool.requested", Tool("tool", "call"), Content("args", "input")),
			"tool_done":    Emit("tool.completed", Tool("tool", "call"), Content("result", "output"), Dur("duration_ms", "ms")),
			"tool_failed":  Emit("tool.failed", Tool("tool", "call"), Fault(Word("type", "error.type", "tool_error"), "error.message"), Dur("duration_ms", "ms")),
			"tool_blocked": Emit("tool.denied", Tool("tool", "call"), Const("by", "policy"), Str("rule", "rule")),

			"permission": Emit("attention.requested", Pair("call"), Permission("tool", "input")),
			"permission_timeout": Emit("attention.timeout", Need("call"), Pair("call"), Int("after_ms", "ms")).
				Note("nobody answered in time; the agent goes on without"),
			"tool_refused": Emit("tool.failed", Tool("tool", "call"), Fault(Const("type", "user_rejected"), "reason")).
				Note("its permission was refused, by a person"),
			"form": Emit("attention.requested", Subject("form"), Pair("form"), Elicitation("title", "schema")),
			"form_answered": Many(
				Emit("attention.answered", Need("form"), Pair("form"), filled, Const("via", "oob")),
				Resolved("form", "answered")),
			"form_taken": Resolved("form", "answered").Note("the answer was given from afar, and told as such"),

			"subagent":      Emit("delegation.subagent.started", Subject("subagent"), Pair("subagent"), Str("agent_type", "kind")),
			"subagent_done": Emit("delegation.subagent.stopped", Subject("subagent"), Pair("subagent"), Str("agent_type", "kind"), Const("status", "ok"), Dur("duration_ms", "ms")),
			"plan":          Emit("progress.task.planned", Subject("task"), Pair("task"), task),
			"plan_done":     Emit("progress.task.completed", Subject("task"), Pair("task"), task, Const("status", "completed")),

			"compacting": Nothing("session.compacted is told once, at compacted"),
			"compacted":  Emit("session.compacted", Str("trigger", "trigger"), Int("estimated_token_count", "tokens")),
			"stopped":    Emit("run.cancelled", Need("run"), Key("run"), Const("by", "user")).Note("it was interrupted (SIGINT)"),
			"tick":       Vendor(Int("n", "n")),
		},
	})
}

var task = Object("task", Str("id", "task"), Text("title", "title"))

// filled is the answer to a form, given in the agent's own screen. The payload
// repeats the form, so that free text and choices can be told apart.
var filled = Do("values", []adapters.TermField{{Member: "answer.values", From: "values", Level: event.Redacted}},
	func(in *In, d *event.Draft) bool {
		values, ok := in.Get("values").(map[string]any)
		schema, _ := in.Get("schema").(map[string]any)
		if !ok {
			return false
		}
		d.Fields = append(d.Fields, event.Meta("answer", event.Fields{event.FormAnswers(values, SchemaFields(schema, nil))}))
		return true
	})

// Reply is what the agent hears while it waits: the option, or the values.
func Reply(m adapters.Moment, a adapters.Answer) []byte {
	switch option := Chosen(a); {
	case m.Name == "form" && a.Values != nil:
		return event.AppendValue(nil, map[string]any{"values": a.Values})
	case m.Name == "form":
		if !Declined(a) {
			return nil
		}
		return event.AppendValue(nil, map[string]any{"option": "decline"})
	case option == "allow":
		return event.AppendValue(nil, map[string]any{"option": option})
	case option == "deny":
		return event.AppendValue(nil, map[string]any{"option": option, "text": Reason(a)})
	}
	return nil
}

// Instruct tells the agent a text in any of its hooks.
func Instruct(m adapters.Moment, text string) []byte {
	if m.Channel != adapters.Hook || text == "" {
		return nil
	}
	return event.AppendValue(nil, map[string]any{"note": text})
}

// Cancel interrupts what the agent is about.
func Cancel(adapters.Target) []adapters.Act {
	return []adapters.Act{{Signal: "INT"}}
}
