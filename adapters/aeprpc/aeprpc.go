// Package aeprpc is any runtime that speaks the Agent Execution Protocol
// (aep-2026-04-24), as an embedder sees it: its agents are sessions, its runs
// are runs, its cycles are steps. doc.md says what of it is seen.
package aeprpc

import (
	_ "embed"
	"encoding/json"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
	"aep-wrap/event"
)

//go:embed doc.md
var doc string

const name = "aeprpc"

// Adapter is a runtime behind the protocol. Nobody starts one: aep-wrap attach
// follows it.
func Adapter() adapters.Adapter {
	return adapters.Adapter{
		Name:       name,
		Title:      "Agent Execution Protocol runtime",
		Pinned:     "aep-2026-04-24",
		Doc:        doc,
		Map:        mapMoment,
		Asks:       asks,
		Reply:      reply,
		Vocabulary: terms,
	}
}

var mapMoment, terms = Merge(items)

// The protocol names its events and leaves their payloads to the runtime: what
// is looked for stands in several places.
const (
	toolName = "payload.tool.name|payload.tool|payload.tool_name|payload.name"
	callID   = "payload.tool.call_id|payload.call_id|payload.tool_call_id|payload.id"
	errType  = "payload.error.name|payload.error.type|payload.error.code"
	errText  = "payload.error.message|payload.message|payload.error"
	took     = "payload.duration_ms"
	change   = "payload.pending_change_id|payload.change_id"
	cycle    = "payload.cycle_id|payload.cycle"
)

// ofCycle makes a cycle's number the step's name.
var ofCycle = Do("", []adapters.TermField{{Member: "(step)", From: cycle, Level: event.Metadata}}, func(in *In, d *event.Draft) bool {
	switch v := in.Get(cycle).(type) {
	case string:
		d.Step = v
	case json.Number:
		d.Step = "cycle-" + v.String()
	}
	return true
})

// The options of a prompt's change.
const (
	approve = "approve"
	reject  = "reject"
)

// changed are the facts of a prompt's change that waits: whoever decides has to
// read what it is.
var changed = []Fact{Need(change), Kind("review"), Pair(change), Do("", []adapters.TermField{
	{Member: "prompt", From: "payload.reason", Level: event.Redacted},
	{Member: "prompt", From: "payload.diff", Level: event.Redacted},
}, func(in *In, d *event.Draft) bool {
	text := "The agent wants to change its own prompt"
	if why := in.Str("payload.reason"); why != "" {
		text += ": " + why
	}
	if diff := in.Str("payload.diff"); diff != "" {
		text += "\n" + diff
	}
	d.Fields = append(d.Fields, event.Labelled("prompt", text, name+" requests review"))
	return true
}), Options(Option{ID: approve, Label: "Approve"}, Option{ID: reject, Label: "Reject"}), RespondVia}

// settled adds to a row what it says of the request, where it names the change.
func settled(row Row, option string) Row {
	return Many(row, When(Is("it names the change", func(in *In) bool { return in.Str(change) != "" }),
		Answered(change, option), Nothing("it does not say which change")))
}

func asked(m adapters.Moment) string {
	if m.Channel != adapters.Server || m.Name != "prompt.change_queued" {
		return ""
	}
	p, _ := m.Payload["payload"].(map[string]any)
	for _, k := range []string{"pending_change_id", "change_id"} {
		if id, _ := p[k].(string); id != "" {
			return id
		}
	}
	return ""
}

// asks: a change waits at the runtime, and any embedder can decide meanwhile.
func asks(m adapters.Moment) adapters.Ask {
	waits := asked(m) != ""
	return adapters.Ask{Held: waits, Both: waits}
}

// reply is the params of agent.approve_prompt_change.
func reply(m adapters.Moment, a adapters.Answer) []byte {
	id := asked(m)
	if id == "" || a.Option != approve && a.Option != reject {
		return nil
	}
	params := map[string]any{"agent_id": m.Session, "pending_change_id": id, "approve": a.Option == approve}
	if a.Text != "" {
		params["comment"] = a.Text
	}
	return event.AppendValue(nil, params)
}

func items() *Table {
	tool := Tool(toolName, callID)
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.Server,
		Name: func(in *In) string {
			if in.Moment.Name != "" {
				return in.Moment.Name
			}
			return in.Str("type")
		},
		Run: "run_id",
		Rows: map[string]Row{
			"run.started": Emit("run.started", Key("run_id")),
			"run.ended": Switch("payload.state|payload.outcome|payload.status", map[string]Row{
				"complete":  Emit("run.finished", Key("run_id"), Dur("duration_ms", took)),
				"cancelled": Emit("run.cancelled", Key("run_id"), Dur("duration_ms", took)),
				"error":     Emit("run.failed", Key("run_id"), Word("reason", errType, "error"), Fault(Word("type", errType, "error"), errText)),
			}, VendorAs("run.ended", Key("run_id"), Str("state", "payload.state")).Note("a state that the protocol does not name")),
			"cycle.started": Emit("run.step.started", Key("run_id", "event_id"), ofCycle).Note("a cycle is a step of the run"),
			"cycle.ended":   Emit("run.step.finished", Key("run_id", "event_id"), ofCycle, Str("status", "payload.outcome|payload.status")),

			"tool.called": Emit("tool.requested", tool, Content("args", "payload.args|payload.arguments|payload.input")),
			"tool.returned": Switch("payload.outcome|payload.status", map[string]Row{
				"failed": Emit("tool.failed", tool, Fault(Word("type", errType, "tool_error"), errText), Dur("duration_ms", took)),
				"error":  Emit("tool.failed", tool, Fault(Word("type", errType, "tool_error"), errText), Dur("duration_ms", took)),
				"denied": Emit("tool.denied", tool, Const("by", "runtime"), Str("rule", "payload.rule")),
			}, Emit("tool.completed", tool, Content("result", "payload.result|payload.output"), Dur("duration_ms", took))),

			"subagent.spawned": Emit("delegation.subagent.started", Key("run_id", "event_id"), Str("agent_type", "payload.agent_type"), Object("child", Str("agent", "payload.agent_id|payload.child_agent_id"))),
			"artifact.created": Emit("progress.artifact.produced", Key("run_id", "event_id"), Subject("payload.artifact_id"), Object("artifact", Str("id", "payload.artifact_id"), Str("mime", "payload.mime_type"), Int("bytes", "payload.size_bytes"), Text("name", "payload.name"))),
			"error":            Emit("error.raised", Key("run_id", "event_id"), Fault(Word("type", errType, "error"), errText), Bool("fatal", "payload.fatal")),

			"prompt.modified":        settled(VendorAs("prompt.modified", Key("run_id", "event_id")), approve),
			"prompt.change_queued":   Emit("attention.requested", changed...),
			"prompt.change_rejected": settled(VendorAs("prompt.change_rejected", Key("run_id", "event_id")), reject),
			"message.sent":           VendorAs("message.sent", Key("run_id", "event_id")),
			"message.delivered":      VendorAs("message.delivered", Key("run_id", "event_id")),
			"memory.written":         VendorAs("memory.written", Key("run_id", "event_id")),
		},
	})
}
