// Package acp is the Agent Client Protocol, which editors speak with agents:
// its messages as a vocabulary, and what an answer from afar is in it. doc.md
// says what it sees and what it cannot. It does no I/O.
//
// A moment is one message as the tee saw it: {kind, method, params, result,
// error}, where kind is request, notification or response. A response carries
// the method, and as "request" the params, of the request that it answers;
// "run" is the prompt turn that the tee named, "call" its name for a request,
// and "input" the digest of the input with which a permission's tool was told.
package acp

import (
	_ "embed"

	"aep-wrap/adapters"
	"aep-wrap/adapters/hook"
	"aep-wrap/event"
)

//go:embed doc.md
var doc string

const name = "acp"

// Adapter is the Agent Client Protocol, whatever the agent.
func Adapter() adapters.Adapter {
	return adapters.Adapter{
		Name:       name,
		Title:      "Agent Client Protocol",
		Pinned:     "schema 1.19.0",
		Doc:        doc,
		Map:        mapMoment,
		Vocabulary: terms,
		Asks:       asks,
		Reply:      Reply,
		Cancel:     Cancel,
	}
}

var mapMoment, terms = hook.Merge(messages)

// asks: the agent waits for the outcome of a permission, for which the editor
// asks meanwhile.
func asks(m adapters.Moment) adapters.Ask {
	if asksPermission(m) {
		return adapters.Ask{Held: true, Both: true}
	}
	return adapters.Ask{}
}

func asksPermission(m adapters.Moment) bool {
	return m.Channel == adapters.Stream && m.Payload["kind"] == "request" && m.Payload["method"] == permission
}

// Reply is the result of a permission's request: the option that was chosen.
func Reply(m adapters.Moment, a adapters.Answer) []byte {
	if !asksPermission(m) {
		return nil
	}
	params, _ := m.Payload["params"].(map[string]any)
	id := ""
	for _, o := range optionsOf(params) {
		if o.ID == a.Option {
			id = o.ID
		}
	}
	if id == "" {
		return nil
	}
	return event.AppendValue(nil, map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": id}})
}

// Cancel is the notification by which an editor ends a prompt turn.
func Cancel(t adapters.Target) []adapters.Act {
	if t.Session == "" {
		return nil
	}
	return []adapters.Act{{Request: &adapters.Request{Method: "session/cancel", Body: event.AppendValue(nil, map[string]any{"sessionId": t.Session})}}}
}
