package qwen

import (
	"path"
	"slices"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
	"aep-wrap/event"
)

// Where the operator wants both to be able to answer (--dual), the screen
// writes what it does into one file of ours, and reads answers from another.
var server = &adapters.Serving{Lines: true, Item: line, Asked: question, Answer: answer, Tells: true}

func line(o map[string]any) []adapters.Moment {
	typ, _ := o["type"].(string)
	if typ == "" || typ == "stream_event" {
		return nil
	}
	session, _ := o["session_id"].(string)
	return []adapters.Moment{{Channel: adapters.ServerBeside, Name: typ, Payload: o, Session: session}}
}

// question is the id of what the screen asks.
func question(m adapters.Moment) string {
	request, _ := m.Payload["request"].(map[string]any)
	if m.Channel != adapters.ServerBeside || m.Payload["type"] != "control_request" || request["subtype"] != "can_use_tool" {
		return ""
	}
	id, _ := m.Payload["request_id"].(string)
	return id
}

// answer is a line for the screen. A refusal ends the run, as it does in the
// dialog; it has no place for a reason.
func answer(m adapters.Moment, a adapters.Answer) *adapters.Request {
	id, word := question(m), Chosen(a)
	if id == "" || word != "allow" && word != "deny" {
		return nil
	}
	return &adapters.Request{Body: event.AppendValue(nil, map[string]any{"type": "confirmation_response", "request_id": id, "allowed": word == "allow"})}
}

const (
	eventsFile = "qwen-events.jsonl"
	inputFile  = "qwen-input.jsonl"
)

// noDual says why a launch is not answered so; "" is that it is.
func noDual(l adapters.Launch, words adapters.Line) string {
	switch {
	case !l.TTY || headless(words):
		return "there is no screen"
	case l.Both <= 0:
		return "nobody can answer from afar"
	case words.Has("--json-file", "--json-fd", "--input-file"):
		return "the command line has files of its own for that"
	}
	return ""
}

// wireDual names the files on the command line.
func wireDual(out *adapters.Wiring, e adapters.Endpoint, at int) {
	writes, reads := path.Join(e.Dir, eventsFile), path.Join(e.Dir, inputFile)
	out.Files[eventsFile], out.Files[inputFile] = []byte{}, []byte{}
	out.Args = slices.Insert(out.Args, at, "--json-file", writes, "--input-file", reads)
	out.Server = &adapters.Served{Writes: writes, Reads: reads}
}
