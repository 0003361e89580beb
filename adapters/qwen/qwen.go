// Package qwen is what is peculiar to Qwen Code: its hooks, its stream-json
// output and its session log as vocabularies, how it is started so that it
// reports to us, and what its held hooks hear back. doc.md says what it sees
// and what it cannot. It does no I/O.
package qwen

import (
	_ "embed"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/hook"
)

//go:embed doc.md
var doc string

const name = "qwen-code"

// Adapter is Qwen Code.
func Adapter() adapters.Adapter {
	return adapters.Adapter{
		Name:       name,
		Title:      "Qwen Code",
		Command:    []string{"qwen"},
		Pinned:     "0.24.4",
		Doc:        doc,
		Launch:     &adapters.Launching{Detect: commandLine.Detect, Wire: Wire, Dual: true},
		Map:        mapMoment,
		Vocabulary: terms,
		Logs:       hook.LogsAt("transcript_path"),
		Reading:    reading,
		Asks:       waits,
		Reply:      Reply,
		Instruct:   hook.Told("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch"),
		Cancel:     Cancel,
		Server:     server,
	}
}

var mapMoment, terms = hook.Merge(hooks, stream, chat, alone, dual)

// waits: a held hook keeps the dialog away, what the screen asks by its file
// does not.
var waits = hook.AsksBeside(question, map[string]adapters.Ask{permission: {Held: true}, "PreToolUse": {Gate: "tool_name"}})

// Reply is what a held PermissionRequest, a gated PreToolUse, or the screen
// hears back.
func Reply(m adapters.Moment, a adapters.Answer) []byte {
	if r := answer(m, a); r != nil {
		return r.Body
	}
	switch m.Name {
	case permission:
		return hook.Decision(a)
	case "PreToolUse":
		return hook.Verdict(a)
	}
	return nil
}

const esc, ctrlU = "\x1b", "\x15"

// Cancel interrupts a run: before the screen by Esc, which puts the prompt back
// into the box, and Ctrl-U, which empties that; else by SIGINT. An Esc before the
// model has begun to answer may be lost; a second one that comes too early, on a
// busy machine, takes the prompt out of the box, or offers to go back in the chat.
func Cancel(t adapters.Target) []adapters.Act {
	if t.TTY {
		return []adapters.Act{{Keys: esc, Then: ctrlU, Patience: 10 * time.Second}, {Keys: esc, Then: ctrlU, Patience: 10 * time.Second}}
	}
	return []adapters.Act{{Signal: "INT", Patience: 5 * time.Second}}
}
