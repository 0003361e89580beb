// Package codex is what is peculiar to Codex: its hooks, its session log (the
// rollout) and the stream of "codex exec --json" as vocabularies, how it is
// started so that it reports to us, and what its held hooks hear back. doc.md
// says what it sees and what it cannot. It does no I/O.
package codex

import (
	_ "embed"

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
		Launch:     &adapters.Launching{Detect: Detect, Wire: Wire},
		Map:        mapMoment,
		Vocabulary: terms,
		Logs:       Logs,
		Asks:       hook.Asks(map[string]adapters.Ask{"PermissionRequest": {Held: true}}),
		Reply:      Reply,
	}
}

var mapMoment, terms = hook.Merge(hooks, rollout, stream)

// Logs are the rollout of the session, and those of its subagents.
func Logs(m adapters.Moment) (out []adapters.LogFile) {
	if m.Channel != adapters.Hook {
		return nil
	}
	session, _ := m.Payload["session_id"].(string)
	for _, member := range []string{"transcript_path", "agent_transcript_path"} {
		if p, _ := m.Payload[member].(string); p != "" && session != "" {
			out = append(out, adapters.LogFile{Path: p, Session: session})
		}
	}
	return out
}

// Reply is what a held PermissionRequest hears back.
func Reply(m adapters.Moment, a adapters.Answer) []byte {
	if m.Name != "PermissionRequest" {
		return nil
	}
	return hook.Decision(a)
}
