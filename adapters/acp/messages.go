package acp

import (
	"encoding/json"
	"strings"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
	"aep-wrap/event"
)

const permission = "session/request_permission"

// messages is the vocabulary: a response's rows begin with "response/", those
// of an update with "update/".
func messages() *Table {
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.Stream,
		Name:    nameOf,
		Session: "params.sessionId|result.sessionId|request.sessionId",
		Run:     "run",
		Other: When(Is("a response", func(in *In) bool { return in.Str("kind") == "response" }),
			Nothing("its request tells it"), Unmapped),
		Fallback: func(native string) string {
			native = strings.TrimPrefix(native, "update/")
			return Dotted(native, "/_$")
		},
		Rows: map[string]Row{
			"response/session/new":    Emit("session.started", Need("result.sessionId"), Key("result.sessionId"), Object("client", Const("name", name)), Text("cwd", "request.cwd")),
			"response/session/load":   resumed,
			"response/session/resume": resumed,

			"session/prompt": Emit("run.started", Key("call"), Const("trigger", "user"), digest("message_digest", "params.prompt"), Text("prompt", "params.prompt")),
			"response/session/prompt": When(Has("error"),
				Emit("run.failed", Const("reason", "error"), Fault(Const("type", "error"), "error.message")),
				Switch("result.stopReason", map[string]Row{
					"cancelled": Emit("run.cancelled", Const("by", "user")),
					"refusal":   Emit("run.failed", Const("reason", "refusal")),
				}, Emit("run.finished", Str("stop_reason", "result.stopReason"),
					Int("gen_ai.usage.input_tokens", "result.usage.inputTokens"), Int("gen_ai.usage.output_tokens", "result.usage.outputTokens")))),

			permission: Emit("attention.requested", asked),
			"response/" + permission: Switch("result.outcome.outcome", map[string]Row{
				"selected": Emit("attention.answered", Subject("call"), Pair("request.toolCall.toolCallId|call"), Object("answer", Str("option", "result.outcome.optionId")), Const("via", "oob")),
			}, Emit("attention.resolved", Subject("call"), Pair("request.toolCall.toolCallId|call"), Const("resolution", "dismissed"))),

			"update/tool_call": Switch("params.update.status", map[string]Row{
				"completed": Many(requested, completed),
				"failed":    Many(requested, failed),
			}, requested),
			"update/tool_call_update": Switch("params.update.status", map[string]Row{
				"completed": completed,
				"failed":    failed,
			}, VendorAs("tool_call.update", Subject("params.update.toolCallId"), Str("status", "params.update.status"))),

			"update/plan":         VendorAs("plan.updated", entries).Note("its entries have no ids: they are counted"),
			"update/usage_update": VendorAs("usage.updated", Int("gen_ai.usage.input_tokens", "params.update.usedTokens"), Int("gen_ai.usage.output_tokens", "params.update.outputTokens"), Int("context_tokens", "params.update.used"), Int("context_limit", "params.update.size")),

			"update/agent_message_chunk": Nothing("what the agent says is not told"),
			"update/agent_thought_chunk": Nothing("what the agent thinks is not told"),
			"update/user_message_chunk":  Nothing("what was said before, told again as a session is loaded"),
		},
	})
}

// nameOf is a message's method, with what it is in front, where that matters.
func nameOf(in *In) string {
	method := in.Str("method")
	switch {
	case in.Str("kind") == "response":
		return "response/" + method
	case method == "session/update" && in.Str("params.update.sessionUpdate") != "":
		return "update/" + in.Str("params.update.sessionUpdate")
	}
	return method
}

var resumed = When(Has("error"), Nothing("the session could not be loaded"),
	Emit("session.started", Object("client", Const("name", name)), Const("trigger", "resume"), Text("cwd", "request.cwd")).Note("each resumption is a fact of its own"))

var (
	requested = Emit("tool.requested", tool, Str("kind", "params.update.kind"), Content("args", "params.update.rawInput"))
	completed = When(named, Emit("tool.completed", tool, output), Emit("tool.completed", Call("params.update.toolCallId"), output))
	failed    = When(named, Emit("tool.failed", tool, fault), Emit("tool.failed", Call("params.update.toolCallId"), fault))

	output = Content("result", "params.update.rawOutput|params.update.content")
	fault  = Fault(Const("type", "tool_error"), "params.update.rawOutput.message|params.update.rawOutput.error|params.update.rawOutput")
)

// named: an update may leave out what the call before it said.
var named = Has("params.update.title")

// tool is the tool of a call. It has no name but the title that people see;
// where that is none (a command of several lines), the kind of tool is its
// name.
var tool = Do("params.update.toolCallId", []adapters.TermField{
	{Member: "tool.name", From: "params.update.title", Level: event.Metadata}, {Member: "tool.name", From: "params.update.kind", Level: event.Metadata},
	{Member: "tool.call_id", From: "params.update.toolCallId", Level: event.Metadata},
	{Member: "(subject)", From: "params.update.toolCallId", Level: event.Metadata},
}, func(in *In, d *event.Draft) bool {
	call := in.Str("params.update.toolCallId")
	title := oneLine(in.Str("params.update.title"))
	if title == "" {
		title = oneLine(in.Str("params.update.kind"))
	}
	if call == "" || title == "" || oneLine(call) == "" {
		return false
	}
	d.Subject, d.Pair, d.Key = call, call, call
	d.Fields = append(d.Fields, event.Meta("tool", event.Fields{event.Meta("name", title), event.Meta("call_id", call)}))
	return true
})

// oneLine keeps what can be a name.
func oneLine(s string) string {
	if len(s) > 256 || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return ""
	}
	return s
}

type option struct{ ID, Name, Kind string }

func optionsOf(params map[string]any) (out []option) {
	list, _ := params["options"].([]any)
	for _, v := range list {
		o, _ := v.(map[string]any)
		id, _ := o["optionId"].(string)
		label, _ := o["name"].(string)
		kind, _ := o["kind"].(string)
		if id != "" && id == oneLine(id) && !strings.Contains(id, " ") {
			out = append(out, option{id, label, kind})
		}
	}
	return out
}

// asked is a permission's request. The editor asks for it, so no option is
// offered; where an answer from afar can reach the agent, all are.
var asked = Do("params.toolCall", []adapters.TermField{
	{Member: "kind", Level: event.Metadata},
	{Member: "(subject)", From: "params.toolCall.toolCallId", Level: event.Metadata},
	{Member: "prompt", From: "params.toolCall.title", Level: event.Redacted},
	{Member: "prompt", From: "params.toolCall.kind", Level: event.Redacted},
	{Member: "options_count", From: "params.options (counted)", Level: event.Metadata},
	{Member: "options[].id", From: "params.options.*.optionId", Level: event.Metadata},
	{Member: "options[].label", From: "params.options.*.name", Level: event.Redacted},
	{Member: "respond_via", Level: event.Metadata},
	{Member: "context", From: "params.toolCall.rawInput", Level: event.Full},
}, func(in *In, d *event.Draft) bool {
	call, ok := in.Get("params.toolCall").(map[string]any)
	if !ok {
		return false
	}
	d.Subject = oneLine(in.Str("params.toolCall.toolCallId"))
	d.Pair, d.Key = d.Subject, in.Str("call")
	if d.Pair == "" {
		d.Pair = d.Key
	}
	what := in.Str("params.toolCall.title|params.toolCall.kind")
	text := "Permission requested"
	if what != "" {
		text += ": " + what
	}
	d.Fields = append(d.Fields, event.Meta("kind", "permission"), event.Labelled("prompt", text, ""))
	params, _ := in.Get("params").(map[string]any)
	options := optionsOf(params)
	if in.Moment.Held {
		list := make([]event.Fields, len(options))
		for i, o := range options {
			list[i] = event.Fields{event.Meta("id", o.ID), event.Labelled("label", o.Name, o.ID)}
		}
		d.Fields = append(d.Fields, event.Meta("options", list), event.Meta("respond_via", []any{"control"}))
	} else {
		d.Fields = append(d.Fields, event.Meta("options_count", json.Number(count(len(options)))))
	}
	if o, ok := call["rawInput"].(map[string]any); ok {
		d.Fields = append(d.Fields, event.Whole("context", o))
	}
	// What would be allowed: an answer is bound to it. Where the tool was told
	// with an input, that is what people saw.
	if d.Link.Args = in.Str("input"); d.Link.Args == "" && call["rawInput"] != nil {
		d.Link.Args = event.Digest(call["rawInput"])
	}
	return true
})

// entries counts a plan's entries by their status.
var entries = Do("", []adapters.TermField{
	{Member: "entries_pending", From: "params.update.entries (counted)"}, {Member: "entries_in_progress", From: "params.update.entries (counted)"},
	{Member: "entries_completed", From: "params.update.entries (counted)"},
}, func(in *In, d *event.Draft) bool {
	list, _ := in.Get("params.update.entries").([]any)
	for _, status := range []string{"pending", "in_progress", "completed"} {
		n := 0
		for _, v := range list {
			if o, _ := v.(map[string]any); o["status"] == status {
				n++
			}
		}
		if n > 0 {
			d.Fields = append(d.Fields, event.Meta("entries_"+status, json.Number(count(n))))
		}
	}
	return true
})

// digest is the digest of what stands at a path, of whatever kind.
func digest(member string, p Path) Fact {
	return Do("", []adapters.TermField{{Member: member, From: p + " (digest)", Level: event.Metadata}}, func(in *In, d *event.Draft) bool {
		if v := in.Get(p); v != nil {
			d.Fields = append(d.Fields, event.Meta(member, event.Digest(v)))
		}
		return true
	})
}

func count(n int) string { return string(event.AppendValue(nil, n)) }
