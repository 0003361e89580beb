// Package generic is the adapter of any command. A program that speaks the
// protocol's drafts itself, on the descriptor in AEP_EVENTS_FD or into the
// file in AEP_EVENTS_FILE, has its lines become full events; of any other, the
// session is told, and what its exit says. doc.md has the form of a line. It
// does no I/O.
package generic

import (
	_ "embed"
	"path"
	"slices"
	"strings"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

//go:embed doc.md
var doc string

const name = "generic"

// Adapter is any command.
func Adapter() adapters.Adapter {
	return adapters.Adapter{
		Name:   name,
		Title:  "Any command",
		Pinned: "any",
		Doc:    doc,
		Launch: &adapters.Launching{
			// It is what is left where no other adapter knows the command.
			Detect: func(adapters.Launch) bool { return false },
			Wire:   wire,
		},
		Map:        Map,
		Vocabulary: vocabulary,
	}
}

func wire(l adapters.Launch, _ adapters.Endpoint) (adapters.Wiring, error) {
	w := adapters.Wiring{Args: slices.Clone(l.Args), EventsFD: true}
	if file, _ := l.Getenv("AEP_EVENTS_FILE"); file != "" {
		if !path.IsAbs(file) {
			file = path.Join(l.Dir, file)
		}
		w.Logs = []adapters.LogFile{{Path: file}}
	}
	return w, nil
}

// AgentName is the name on a command's events: the command's own.
func AgentName(args []string) string {
	if len(args) == 0 {
		return name
	}
	switch b := path.Base(strings.ReplaceAll(args[0], `\`, "/")); b {
	case "", ".", "/":
		return name
	default:
		return b
	}
}

func vocabulary() []adapters.Term {
	return []adapters.Term{
		{Channel: adapters.Process, Native: adapters.ProcessStart, Emits: "session.started", Fields: []adapters.TermField{
			{Member: "client.name", From: "command", Level: event.Metadata},
			{Member: "cwd", From: "cwd", Level: event.Redacted}}},
		line(adapters.Drafts, "its type is registered", "x."+name+".*",
			"the line's own type and data: each member at the level that the registry has for it, content as digest, redacted and whole, and of unknown members what is a number, a boolean or a word"),
		line(adapters.Drafts, "its type is a vendor's", "x."+name+".*", "the line's own type, and of its data what is a number, a boolean or a word"),
		line(adapters.Drafts, "otherwise", "x."+name+".draft.refused",
			"a type that is not registered, is reserved or is another sender's, or a payload that lacks what its type requires: the data is left out"),
		line(adapters.Transcript, "", "x."+name+".*", "lines of AEP_EVENTS_FILE, read as those of AEP_EVENTS_FD"),
	}
}

func line(c adapters.Channel, when, emits, note string) adapters.Term {
	return adapters.Term{Channel: c, Native: "*", When: when, Emits: emits, Note: note}
}

// Map turns the start of the process, and the lines of drafts, into drafts.
func Map(m adapters.Moment) []event.Draft {
	switch m.Channel {
	case adapters.Process:
		if m.Name == adapters.ProcessStart {
			return Started(m)
		}
	case adapters.Drafts, adapters.Transcript:
		return []event.Draft{draft(m)}
	}
	return nil
}

// Started is what the start of a process tells of whatever runs in it.
func Started(m adapters.Moment) []event.Draft {
	d := event.Draft{Header: event.Header{Type: "session.started", Session: m.Session}, Key: m.Session}
	command, _ := m.Payload["command"].(string)
	d.Fields = event.Fields{event.Meta("client", event.Fields{event.Meta("name", AgentName([]string{command}))})}
	if cwd, _ := m.Payload["cwd"].(string); cwd != "" {
		d.Fields = append(d.Fields, event.Text("cwd", cwd))
	}
	return []event.Draft{d}
}
