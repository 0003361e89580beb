package control

import (
	"slices"
	"strings"
	"time"

	"aep-wrap/event"
)

// From is who sends commands: an ordinary emitter's identity, asserted
// (AEP-0004 §2.2).
type From struct {
	Source string // aep://{host}/agent/{agent}
	Agent  string
}

// NewFrom makes a sender's identity.
func NewFrom(host, agent string) From {
	return From{strings.TrimSuffix(event.Source(host, agent, ""), "/session/"), agent}
}

// command is the envelope of a command, with a fresh id: it is built once and
// sent again, as often as it must be, as it is (AEP-0004 §2.3). A command that
// carries free text is labelled redacted: the caller has passed that text
// through the redaction pipeline, or sets Capture to full.
func (f From) command(now time.Time, typ, session string, data map[string]any, text bool) event.Event {
	e := event.Event{Header: event.Header{ID: event.NewID(now), Type: typ, Time: now, Source: f.Source, Agent: f.Agent, Session: session}}
	if data != nil {
		e.Data = event.AppendValue(nil, data)
	}
	if text {
		e.Capture = event.Redacted
	}
	return e
}

// Respond answers a request. Fields, where they are known, tell which values
// are free text; without them every text among the values counts as such. Args
// is the args_digest of the tool that the request is about, where the sender
// saw it: the target then takes the answer for nothing else.
func (f From) Respond(now time.Time, session, request string, a Answer, fields []event.FormField, args string) event.Event {
	answer := map[string]any{}
	if a.Option != "" {
		answer["option"] = a.Option
	}
	if a.Text != "" {
		answer["text"] = a.Text
	}
	text := a.Text != ""
	if a.Values != nil {
		answer["values"] = a.Values
		for id, v := range a.Values {
			text = text || free(id, v, fields)
		}
	}
	data := map[string]any{"answer": answer}
	if args != "" {
		data["args_digest"] = args
	}
	e := f.command(now, Respond, session, data, text)
	e.Subject, e.Cause = request, request
	return e
}

// free says whether a form's value may be free text.
func free(id string, v any, fields []event.FormField) bool {
	i := slices.IndexFunc(fields, func(f event.FormField) bool { return f.ID == id })
	closed := func(s string) bool {
		return i >= 0 && fields[i].Type == "select" &&
			slices.ContainsFunc(fields[i].Choices, func(c event.FormChoice) bool { return c.ID == s })
	}
	switch x := v.(type) {
	case string:
		return !closed(x)
	case []any:
		return slices.ContainsFunc(x, func(v any) bool { return free(id, v, fields) })
	case map[string]any:
		return true
	}
	return false
}

// CancelRun asks to cancel a run; "" is the one that is open.
func (f From) CancelRun(now time.Time, session, run, reason string) event.Event {
	e := f.cancel(now, session, "run", reason)
	e.Run = run
	return e
}

// CancelSession asks to end a session with all its processes.
func (f From) CancelSession(now time.Time, session, reason string) event.Event {
	return f.cancel(now, session, "session", reason)
}

func (f From) cancel(now time.Time, session, scope, reason string) event.Event {
	data := map[string]any{"scope": scope}
	if reason != "" {
		data["reason"] = reason
	}
	return f.command(now, Cancel, session, data, reason != "")
}

// Pause asks to stop a session where it is.
func (f From) Pause(now time.Time, session string) event.Event {
	return f.command(now, Pause, session, nil, false)
}

// Resume asks a paused session to go on.
func (f From) Resume(now time.Time, session string) event.Event {
	return f.command(now, Resume, session, nil, false)
}

// Instruct gives an agent a text on its way. The type is its vendor's: see
// InstructType.
func (f From) Instruct(now time.Time, typ, session, text string) event.Event {
	return f.command(now, typ, session, map[string]any{"text": text}, true)
}

// InstructType finds, in what a target accepts, the type by which it takes
// instructions; "" where it takes none.
func InstructType(accepts []string) string {
	if i := slices.IndexFunc(accepts, isInstruct); i >= 0 {
		return accepts[i]
	}
	return ""
}
