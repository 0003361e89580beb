// Package gemini is what is peculiar to Gemini CLI: its hooks, its session log
// and its stream-json output as vocabularies, and how it is started so that it
// reports to us. doc.md says what it sees and what it cannot. It does no I/O.
package gemini

import (
	_ "embed"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/hook"
	"aep-wrap/event"
)

//go:embed doc.md
var doc string

const name = "gemini-cli"

// Adapter is Gemini CLI.
func Adapter() adapters.Adapter {
	return adapters.Adapter{
		Name:       name,
		Title:      "Gemini CLI",
		Command:    []string{"gemini"},
		Pinned:     "0.61.0",
		Checks:     checks,
		Doc:        doc,
		Launch:     &adapters.Launching{Detect: commandLine.Detect, Wire: Wire},
		Map:        mapMoment,
		Vocabulary: terms,
		Logs:       hook.LogsAt("transcript_path"),
		Reading:    reading,
		Asks:       hook.Asks(map[string]adapters.Ask{"BeforeTool": {Gate: "tool_name"}}),
		Reply:      Reply,
		Instruct:   hook.Told("SessionStart", "BeforeAgent", "AfterTool"),
		Cancel:     Cancel,
	}
}

var mapMoment, terms = hook.Merge(hooks, chat, stream, alone)

// Reply is what a gated BeforeTool hears back.
func Reply(m adapters.Moment, a adapters.Answer) []byte {
	if m.Name != "BeforeTool" {
		return nil
	}
	switch hook.Chosen(a) {
	case "allow":
		return event.AppendValue(nil, map[string]any{"decision": "allow"})
	case "deny":
		return event.AppendValue(nil, map[string]any{"decision": "deny", "reason": hook.Reason(a)})
	}
	return nil
}

// Cancel interrupts a turn: by Esc before the screen, else by SIGINT to all its
// processes, for the launcher keeps it to itself.
func Cancel(t adapters.Target) []adapters.Act {
	if t.TTY {
		return []adapters.Act{{Keys: "\x1b", Patience: 3 * time.Second}, {Keys: "\x1b", Patience: 3 * time.Second}}
	}
	return []adapters.Act{{Signal: "INT", Tree: true, Patience: 5 * time.Second}}
}
