// Package gemini is what is peculiar to Gemini CLI: its hooks, its session log
// and its stream-json output as vocabularies, and how it is started so that it
// reports to us. doc.md says what it sees and what it cannot. It does no I/O.
package gemini

import (
	_ "embed"

	"aep-wrap/adapters"
	"aep-wrap/adapters/hook"
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
		Doc:        doc,
		Launch:     &adapters.Launching{Detect: Detect, Wire: Wire},
		Map:        mapMoment,
		Vocabulary: terms,
		Logs:       Logs,
	}
}

var mapMoment, terms = hook.Merge(hooks, chat, stream)

// Logs is the session's log.
func Logs(m adapters.Moment) []adapters.LogFile {
	session, _ := m.Payload["session_id"].(string)
	path, _ := m.Payload["transcript_path"].(string)
	if m.Channel != adapters.Hook || session == "" || path == "" {
		return nil
	}
	return []adapters.LogFile{{Path: path, Session: session}}
}
