// Package kimi is what is peculiar to Kimi Code: its hooks, its session log and
// its stream-json output as vocabularies, and how it is started so that it
// reports to us. doc.md says what it sees and what it cannot. It does no I/O.
package kimi

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"path"
	"regexp"
	"strings"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/hook"
	"aep-wrap/event"
)

//go:embed doc.md
var doc string

const name = "kimi-code"

// Adapter is Kimi Code.
func Adapter() adapters.Adapter {
	return adapters.Adapter{
		Name:       name,
		Title:      "Kimi Code",
		Command:    []string{"kimi"},
		Pinned:     "2.1.0",
		Doc:        doc,
		Launch:     &adapters.Launching{Detect: commandLine.Detect, Wire: Wire},
		Checks:     checks,
		Map:        mapMoment,
		Vocabulary: terms,
		Logs:       Logs,
		Reading:    reading,
		Asks:       hook.Asks(map[string]adapters.Ask{"PreToolUse": {Gate: "tool_name"}}),
		Reply:      Reply,
		Instruct:   Instruct,
		Cancel:     Cancel,
	}
}

var mapMoment, terms = hook.Merge(hooks, wire, stream, alone)

// Reply is what a gated PreToolUse hears back. A gate can refuse; what it lets
// pass is Kimi Code's to decide. Permission hooks are not waited for.
func Reply(m adapters.Moment, a adapters.Answer) []byte {
	if m.Name != "PreToolUse" {
		return nil
	}
	return hook.Veto(a)
}

// Instruct hands the model a text, which Kimi Code reads with a prompt alone.
func Instruct(m adapters.Moment, text string) []byte {
	if m.Channel != adapters.Hook || m.Name != "UserPromptSubmit" || text == "" {
		return nil
	}
	return event.AppendValue(nil, map[string]any{"message": text})
}

// Cancel interrupts a turn, which fires Interrupt: by Esc before the screen,
// else by SIGINT.
func Cancel(t adapters.Target) []adapters.Act {
	if t.TTY {
		return []adapters.Act{{Keys: "\x1b", Patience: 3 * time.Second}, {Keys: "\x1b", Patience: 3 * time.Second}}
	}
	return []adapters.Act{{Signal: "INT", Patience: 5 * time.Second}}
}

var sessionID = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// Logs is the log of the session's main agent. The hooks do not name it: Kimi
// Code makes its path of the working directory and the session.
func Logs(m adapters.Moment) []adapters.LogFile {
	session, _ := m.Payload["session_id"].(string)
	dir, _ := m.Payload["cwd"].(string)
	if m.Channel != adapters.Hook || dir == "" || !sessionID.MatchString(session) {
		return nil
	}
	return []adapters.LogFile{{Path: path.Join("sessions", bucket(dir), session, "agents", "main", "wire.jsonl"), Session: session}}
}

var notSlug = regexp.MustCompile(`[^a-z0-9._-]+`)

// bucket is the folder of a working directory's sessions.
func bucket(dir string) string {
	dir = strings.TrimRight(dir, "/")
	slug := strings.Trim(notSlug.ReplaceAllString(strings.ToLower(path.Base(dir)), "-"), "-")
	if len(slug) > 40 {
		slug = strings.Trim(slug[:40], "-")
	}
	if slug == "" || slug == "." || slug == ".." {
		slug = "workspace"
	}
	sum := sha256.Sum256([]byte(dir))
	return "wd_" + slug + "_" + hex.EncodeToString(sum[:])[:12]
}
