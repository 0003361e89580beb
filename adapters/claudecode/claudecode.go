// Package claudecode is what is peculiar to Claude Code: its hooks, its
// stream-json output, its session logs and its telemetry as vocabularies, how
// it is started so that it reports to us, and what its held hooks hear back.
// doc.md says what it sees and what it cannot. It does no I/O.
package claudecode

import (
	_ "embed"
	"path"
	"strings"

	"aep-wrap/adapters"
	"aep-wrap/adapters/hook"
)

//go:embed doc.md
var doc string

const name = "claude-code"

// Adapter is Claude Code.
func Adapter() adapters.Adapter {
	return adapters.Adapter{
		Name:       name,
		Title:      "Claude Code",
		Command:    []string{"claude"},
		Pinned:     "2.1.332",
		Checks:     checks,
		Doc:        doc,
		Launch:     &adapters.Launching{Detect: Detect, Wire: Wire},
		Map:        mapMoment,
		Vocabulary: terms,
		Logs:       Logs,
		Reading:    reading,
		Asks: hook.Asks(map[string]adapters.Ask{
			"PermissionRequest": {Held: true, Both: true},
			unattended:          {Held: true, Lone: true},
			"Elicitation":       {Held: true},
			"PreToolUse":        {Gate: "tool_name"},
		}),
		Reply:    Reply,
		Instruct: Instruct,
		Cancel:   Cancel,
	}
}

var mapMoment, terms = hook.Merge(hooks, stream, transcript, telemetry, alone)

// Logs are the session's transcript and, once one has stopped, a subagent's.
func Logs(m adapters.Moment) []adapters.LogFile {
	if m.Channel != adapters.Hook || m.Name == forked {
		return nil
	}
	session, _ := m.Payload["session_id"].(string)
	if session == "" {
		return nil
	}
	var out []adapters.LogFile
	main, _ := m.Payload["transcript_path"].(string)
	if main != "" {
		out = append(out, adapters.LogFile{Path: main, Session: session})
	}
	if sub, _ := m.Payload["agent_transcript_path"].(string); sub != "" {
		out = append(out, adapters.LogFile{Path: sub, Session: session})
	} else if agent, _ := m.Payload["agent_id"].(string); main != "" && agentID(agent) {
		dir := strings.TrimSuffix(main, ".jsonl")
		out = append(out, adapters.LogFile{Path: path.Join(dir, "subagents", "agent-"+agent+".jsonl"), Session: session})
	}
	return out
}

// agentID says whether an agent's id can stand in a file's name.
func agentID(s string) bool {
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && c != '-' && c != '_' {
			return false
		}
	}
	return s != ""
}
