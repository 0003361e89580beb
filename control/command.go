package control

import (
	"fmt"
	"strings"

	"aep-wrap/event"
)

// The core commands (AEP-0004 §5).
const (
	Respond = "control.attention.respond" // {answer: {option?, text?, values?}}; subject is the request's id
	Cancel  = "control.cancel"            // {scope: run or session, reason?}; run in the envelope
	Pause   = "control.pause"             // {}
	Resume  = "control.resume"            // {}
)

// Reasons of control.rejected (AEP-0004 §3).
const (
	Unsupported  = "unsupported"
	Unauthorized = "unauthorized"
	Busy         = "busy"
	Refused      = "refused"
	Invalid      = "invalid"
)

// Codes of the error frames by which a command is refused without entering
// the session's history (AEP-0004 §4.2).
const (
	NoRoute      = "no-route"      // nobody here owns the session
	InvalidEvent = "invalid-event" // the envelope could not be read
)

// Instruct is the type by which a vendor's agent is given a text on its way
// (AEP-0004 §5, steering): {text}.
func Instruct(vendor string) string { return "x." + vendor + ".control.instruct" }

func isInstruct(typ string) bool {
	return strings.HasPrefix(typ, "x.") && strings.HasSuffix(typ, ".control.instruct")
}

// IsCommand says whether events of a type are commands. A control type that is
// no ack is one, whether or not it is registered: a target nacks it.
func IsCommand(typ string) bool {
	switch event.Category(typ) {
	case "control":
		return !isAck(typ)
	case "x":
		return event.ScopeOf(typ) == event.CommandScope
	}
	return false
}

func isAck(typ string) bool { return typ == "control.accepted" || typ == "control.rejected" }

// verb is what stands after "control.": "cancel", "attention.respond".
func verb(typ string) string {
	_, v, ok := strings.Cut(typ, "control.")
	if !ok {
		return typ
	}
	return v
}

// Command is a command as its target reads it. It is read-only.
type Command struct {
	event.Header
	Data map[string]any // nil when there is none
	Line []byte         // as it was received
}

func (c *Command) text(member string) string {
	s, _ := c.Data[member].(string)
	return s
}

// The bounds of a command.
const (
	maxLine = 256 << 10 // bytes of its line
	maxText = 16 << 10  // bytes of an instruction
)

// read parses a received line. The refusal says why it is none.
func read(line []byte) (*Command, *Refusal) {
	if len(line) > maxLine {
		return nil, &Refusal{Code: InvalidEvent, Detail: fmt.Sprintf("%d bytes; a command has at most %d", len(line), maxLine)}
	}
	e, err := event.Parse(line)
	if err != nil {
		return nil, &Refusal{Code: InvalidEvent, Detail: err.Error()}
	}
	if !IsCommand(e.Type) {
		return nil, &Refusal{Cause: e.ID, Code: Invalid, Detail: e.Type + " is no command"}
	}
	c := &Command{Header: e.Header, Line: line}
	if e.Data != nil {
		c.Data, _ = event.ParseObject(e.Data) // Parse has read it as an object
	}
	return c, nil
}

// fault says why a command's payload is not what its type asks for (AEP-0004
// §5); "" when it is. Payloads are open: members that are not known pass. That
// a sender labels free text too low is its own fault and harms nobody here.
func (c *Command) fault() string {
	e := event.Event{Header: c.Header}
	if c.Data != nil {
		e.Data = event.AppendValue(nil, c.Data)
	}
	for _, v := range event.Check(e) {
		if v.Rule != event.RuleCapture {
			return v.Detail
		}
	}
	switch {
	case c.Type == Respond && c.Subject == "":
		return "subject is missing: it names the request"
	case c.Type == Respond && c.Data["answer"] == nil:
		return "data.answer is missing"
	case c.Type == Cancel && c.text("scope") == "":
		return "data.scope is missing: run or session"
	case isInstruct(c.Type):
		switch s := c.text("text"); {
		case strings.TrimSpace(s) == "":
			return "data.text is missing"
		case len(s) > maxText:
			return fmt.Sprintf("data.text has %d bytes; at most %d are taken", len(s), maxText)
		}
	}
	return ""
}

// Refusal is a connection-scoped error frame (AEP-0003 §2, AEP-0004 §4.2): it
// settles the command of its cause and never enters a session's history.
//
//	{"type":"error","cause":"01J…","code":"no-route","detail":"…"}
type Refusal struct {
	Cause  string // the command's id
	Code   string
	Detail string
}

// AppendJSON appends the frame.
func (r *Refusal) AppendJSON(dst []byte) []byte {
	frame := map[string]any{"type": "error", "code": r.Code}
	if r.Cause != "" {
		frame["cause"] = r.Cause
	}
	if r.Detail != "" {
		frame["detail"] = r.Detail
	}
	return event.AppendValue(dst, frame)
}
