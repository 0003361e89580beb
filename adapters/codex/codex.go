// Package codex is what is peculiar to Codex: its hooks, its session log (the
// rollout) and the stream of "codex exec --json" as vocabularies, how it is
// started so that it reports to us, and what its held hooks hear back. doc.md
// says what it sees and what it cannot. It does no I/O.
package codex

import (
	_ "embed"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/hook"
)

//go:embed doc.md
var doc string

const name = "codex"

// Adapter is Codex.
func Adapter() adapters.Adapter {
	return adapters.Adapter{
		Name:       name,
		Title:      "Codex",
		Command:    []string{"codex"},
		Pinned:     "0.171.0",
		Doc:        doc,
		Launch:     &adapters.Launching{Detect: commandLine.Detect, Wire: Wire, Dual: true},
		Checks:     checks,
		Map:        mapMoment,
		Vocabulary: terms,
		Logs:       hook.LogsAt("transcript_path", "agent_transcript_path"),
		Reading:    reading,
		Asks:       waits,
		Reply:      Reply,
		Instruct:   hook.Told("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse"),
		Cancel:     Cancel,
		Server:     server,
	}
}

var mapMoment, terms = hook.Merge(hooks, rollout, stream, alone, asks)

// waits: a held hook locks the dialog, a request of the app server's does not.
var waits = hook.AsksBeside(question, map[string]adapters.Ask{"PermissionRequest": {Held: true}, "PreToolUse": {Gate: "tool_name"}})

// Reply is what a held PermissionRequest, a gated PreToolUse, or the app server
// hears back. A gate can refuse; what it lets pass is Codex's to decide.
func Reply(m adapters.Moment, a adapters.Answer) []byte {
	if r := answer(m, a); r != nil {
		return r.Body
	}
	switch m.Name {
	case "PermissionRequest":
		return hook.Decision(a)
	case "PreToolUse":
		return hook.Veto(a)
	}
	return nil
}

// Cancel interrupts a turn: by its server, where there is one; before the
// screen by Esc, or by ^C, of which one interrupts and a second would quit;
// "codex exec" by SIGINT, which its launcher passes on.
func Cancel(t adapters.Target) []adapters.Act {
	if t.TTY {
		acts := []adapters.Act{{Keys: "\x1b", Patience: 3 * time.Second}, {Keys: "\x03", Patience: 3 * time.Second}}
		if token(t.Session) && token(t.Run) {
			acts = append([]adapters.Act{interrupt(t)}, acts...)
		}
		return acts
	}
	return []adapters.Act{{Signal: "INT", Patience: 5 * time.Second}}
}
