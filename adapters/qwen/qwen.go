// Package qwen is what is peculiar to Qwen Code: its hooks, its stream-json
// output and its session log as vocabularies, how it is started so that it
// reports to us, and what its held hooks hear back. doc.md says what it sees
// and what it cannot. It does no I/O.
package qwen

import (
	_ "embed"

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
		Launch:     &adapters.Launching{Detect: Detect, Wire: Wire},
		Map:        mapMoment,
		Vocabulary: terms,
		Logs:       Logs,
		Asks:       hook.Asks(map[string]adapters.Ask{"PermissionRequest": {Held: true}}),
		Reply:      Reply,
	}
}

var mapMoment, terms = hook.Merge(hooks, stream, chat)

// Logs is the session's log.
func Logs(m adapters.Moment) []adapters.LogFile {
	session, _ := m.Payload["session_id"].(string)
	path, _ := m.Payload["transcript_path"].(string)
	if m.Channel != adapters.Hook || session == "" || path == "" {
		return nil
	}
	return []adapters.LogFile{{Path: path, Session: session}}
}

// Reply is what a held PermissionRequest hears back.
func Reply(m adapters.Moment, a adapters.Answer) []byte {
	if m.Name != "PermissionRequest" {
		return nil
	}
	return hook.Decision(a)
}
