// Package opencode is what is peculiar to OpenCode and to its forks: the event
// stream of its own server as a vocabulary, how it is started with that server
// within reach, and how the server is answered. doc.md says what it sees and
// what it cannot. It does no I/O.
package opencode

import (
	_ "embed"

	"aep-wrap/adapters"
	"aep-wrap/adapters/hook"
)

//go:embed doc.md
var doc string

// Adapter is OpenCode.
func Adapter() adapters.Adapter { return adapter }

var adapter = Make(Variant{
	Name:     "opencode",
	Title:    "OpenCode",
	Command:  "opencode",
	Packages: []string{"opencode-ai"},
	Pinned:   "1.18.33",
	Doc:      doc,
	Env:      "OPENCODE_",
})

// Variant is what tells OpenCode and a fork of it apart.
type Variant struct {
	Name, Title string
	Command     string   // and the user name of its server
	Packages    []string // by which it is installed
	Pinned, Doc string
	Env         string // what its environment variables begin with

	// Beyond OpenCode's: words that start no session that we could follow, and
	// flags with a value.
	Words, Valued []string

	// Rows are those of the bus that it has otherwise, or in addition; p is where
	// the properties of an item are. Nil is none.
	Rows func(p string) map[string]hook.Row
}

// Make is the adapter of a variant.
func Make(v Variant) adapters.Adapter {
	mapped, terms := hook.Merge(v.plugin, v.primary, v.beside)
	return adapters.Adapter{
		Name:       v.Name,
		Title:      v.Title,
		Command:    []string{v.Command},
		Pinned:     v.Pinned,
		Doc:        v.Doc,
		Launch:     &adapters.Launching{Detect: v.detect, Wire: v.wire},
		Map:        mapped,
		Vocabulary: terms,
		Asks:       asks,
		Reply:      reply,
		Cancel:     cancel,
		Steer:      true,
		Server: &adapters.Serving{
			Events: "/event",
			Quiet:  quiet,
			Item:   item,
			When:   when,
			Known:  known,
			Asked:  asked,
			Answer: answer,
		},
	}
}
