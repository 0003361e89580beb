// Package copilot is what is peculiar to GitHub Copilot CLI: its hooks, its
// session log and its JSON output as vocabularies, how it is started so that
// it reports to us, and what its held hooks hear back. doc.md says what it sees
// and what it cannot. It does no I/O.
package copilot

import (
	_ "embed"
	"path"
	"regexp"
	"slices"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/hook"
	"aep-wrap/event"
)

//go:embed doc.md
var doc string

const name = "copilot"

// Adapter is GitHub Copilot CLI.
func Adapter() adapters.Adapter {
	return adapters.Adapter{
		Name:       name,
		Title:      "GitHub Copilot CLI",
		Command:    []string{"copilot"},
		Pinned:     "1.0.102",
		Doc:        doc,
		Launch:     &adapters.Launching{Detect: commandLine.Detect, Wire: Wire},
		Map:        mapMoment,
		Vocabulary: terms,
		Logs:       Logs,
		Reading:    reading,
		Asks:       hook.Asks(map[string]adapters.Ask{"preToolUse": {Gate: "toolName"}}),
		Reply:      Reply,
		Instruct:   Instruct,
		Cancel:     Cancel,
	}
}

var mapMoment, terms = hook.Merge(hooks, log, stream, alone)

// A bound in the expression ({1,128}) would cost every start of aep-wrap a
// millisecond.
var sessionID = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

const maxSessionID = 128

// Logs is the log of the session, which holds its subagents' too.
func Logs(m adapters.Moment) []adapters.LogFile {
	session, _ := m.Payload["parentAgentId"].(string)
	if session == "" {
		session, _ = m.Payload["sessionId"].(string)
	}
	if m.Channel != adapters.Hook || len(session) > maxSessionID || !sessionID.MatchString(session) {
		return nil
	}
	return []adapters.LogFile{{Path: path.Join("session-state", session, "events.jsonl"), Session: session}}
}

// refusal begins the reason by which a tool that is refused from afar can be
// told from one that a hook of the user's forbids.
const refusal = "The user refused this"

// Reply is what a held preToolUse hears back: an allowed tool runs without
// Copilot's own dialog.
func Reply(m adapters.Moment, a adapters.Answer) []byte {
	if m.Name != "preToolUse" {
		return nil
	}
	switch hook.Chosen(a) {
	case "allow":
		return event.AppendValue(nil, map[string]any{"permissionDecision": "allow"})
	case "deny":
		reason := refusal + "."
		if s := hook.Reason(a); s != reason {
			reason = refusal + ": " + s
		}
		return event.AppendValue(nil, map[string]any{"permissionDecision": "deny", "permissionDecisionReason": reason})
	}
	return nil
}

// instructs are the hooks whose output's additionalContext the model reads.
var instructs = []string{"sessionStart", "userPromptSubmitted", "preToolUse", "postToolUse"}

// Instruct hands the model a text. A subagent's hooks are no way to it.
func Instruct(m adapters.Moment, text string) []byte {
	if m.Channel != adapters.Hook || text == "" || m.Payload["agentId"] != nil || !slices.Contains(instructs, m.Name) {
		return nil
	}
	return event.AppendValue(nil, map[string]any{"additionalContext": text})
}

// Cancel is Esc twice. Idle, that would open a picker, so it is for an open run
// alone, and sent again late: the session log, which tells of the end, is a
// moment behind.
func Cancel(t adapters.Target) []adapters.Act {
	if !t.TTY {
		return nil
	}
	twice := adapters.Act{Keys: adapters.EscTwice, Patience: 8 * time.Second}
	return []adapters.Act{twice, twice}
}
