// Package kilo is what tells Kilo Code from OpenCode, of which it is a fork:
// its names, and the rows that differ. It does no I/O.
package kilo

import (
	_ "embed"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
	"aep-wrap/adapters/opencode"
)

//go:embed doc.md
var doc string

// Adapter is Kilo Code.
func Adapter() adapters.Adapter { return adapter }

var adapter = opencode.Make(opencode.Variant{
	Name: "kilocode", Title: "Kilo Code", Command: "kilo", Packages: []string{"@kilocode/cli"}, Pinned: "7.7.7", Doc: doc, Env: "KILO_",
	Words: []string{"cloud", "config", "console", "daemon", "help", "profile", "remote", "roll-call", "worktree"}, Valued: []string{"--worktree"},
	Rows: func(p string) map[string]Row {
		return map[string]Row{
			"session.turn.open":         Nothing("the prompt started the run"),
			"session.turn.close":        Switch(p+"reason", map[string]Row{"interrupted": Emit("run.cancelled", Const("by", "user"))}, Emit("run.finished")),
			"session.drain.interrupted": Nothing("session.turn.close tells it"),
			"session.drained":           Nothing("session.turn.close tells it"),
		}
	},
})
