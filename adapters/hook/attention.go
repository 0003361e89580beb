package hook

import (
	"maps"
	"strconv"
	"strings"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// Kind is the kind of an attention request.
func Kind(kind string) Fact { return Const("kind", kind) }

// RespondVia says whether the request can be answered through us: where the
// runtime holds the moment for our answer.
var RespondVia = Fact{shows: plain("respond_via", "", event.Metadata), apply: func(in *In, d *event.Draft) bool {
	d.Fields = append(d.Fields, event.Meta("respond_via", via(in.Moment.Held)))
	return true
}}

// Observed says that the runtime shows its request and takes no answer from
// us, ever.
var Observed = Const("respond_via", []any{"oob"})

func via(held bool) []any {
	if held {
		return []any{"control"}
	}
	return []any{"oob"}
}

// Prompt is a request's text, the first alternative that is one, from Redacted on; below it, and where there is no
// text, the gate says "{agent} requests {kind}: {subject}".
func Prompt(p Path) Fact {
	ps := parse(p)
	return Fact{shows: plain("prompt", p, event.Redacted), apply: func(in *In, d *event.Draft) bool {
		text := ""
		for i := range ps {
			v, _ := in.get(ps[i : i+1])
			if text, _ = textOf(v); text != "" {
				break
			}
		}
		if text == "" {
			text = structural(in.Vendor, d)
		}
		d.Fields = append(d.Fields, event.Labelled("prompt", text, ""))
		return true
	}}
}

// structural is the prompt that says no more than the envelope and the kind.
func structural(vendor string, d *event.Draft) string {
	s := vendor + " requests " + d.Fields.Str("kind")
	if d.Subject != "" {
		s += ": " + d.Subject
	}
	return s
}

// Option is one thing to choose in a request.
type Option struct{ ID, Label string }

// Options are a request's choices.
func Options(options ...Option) Fact {
	list := make([]event.Fields, len(options))
	for i, o := range options {
		list[i] = event.Fields{event.Meta("id", o.ID), event.Labelled("label", o.Label, o.ID)}
	}
	return Fact{shows: plain("options", "", event.Metadata), apply: func(_ *In, d *event.Draft) bool {
		d.Fields = append(d.Fields, event.Meta("options", list))
		return true
	}}
}

// Open links a request to the open tool that it is about, where the vendor
// names no call: by the tool's name and its input, without the members that
// only the request has.
func Open(nameAt, input Path, less ...string) Fact {
	np, ip := parse(nameAt), parse(input)
	return Fact{apply: func(in *In, d *event.Draft) bool {
		d.Link.Tool = in.str(np)
		v, ok := in.get(ip)
		if !ok {
			return true
		}
		if o, ok := v.(map[string]any); ok && len(less) > 0 {
			o = maps.Clone(o)
			for _, m := range less {
				delete(o, m)
			}
			v = o
		}
		d.Link.Args = event.Digest(v)
		return true
	}}
}

// gists are the members of a tool's input that say what it is about to do, the
// likeliest first.
var gists = []string{"command", "cmd", "file_path", "filePath", "absolute_path", "notebook_path", "path", "url", "query", "pattern", "skill"}

// Permission is a request to let a tool run: "Permission requested: Bash — rm
// -rf build (clean build dir)", from Redacted on, with the tool's input as the
// context at Full, and allow and deny as options.
func Permission(nameAt, input Path) Fact {
	np, ip := parse(nameAt), parse(input)
	open, options := Open(nameAt, input), Options(Option{"allow", "Allow"}, Option{"deny", "Deny"})
	f := Fact{needs: nameAt, extra: 5, shows: []adapters.TermField{
		{Member: "kind", Level: event.Metadata},
		{Member: "(subject)", From: nameAt, Level: event.Metadata},
		{Member: "prompt", From: nameAt, Level: event.Metadata},
		{Member: "prompt", From: input, Level: event.Redacted},
		{Member: "options", Level: event.Metadata},
		{Member: "respond_via", Level: event.Metadata},
		{Member: "context", From: input, Level: event.Full},
	}}
	f.apply = func(in *In, d *event.Draft) bool {
		tool := in.str(np)
		if !name(tool) {
			return false
		}
		d.Subject = tool
		args, _ := in.get(ip)
		text := "Permission requested: " + tool
		if g := gist(args); g != "" {
			text += " — " + g
		}
		d.Fields = append(d.Fields, event.Meta("kind", "permission"))
		d.Fields = append(d.Fields, event.Labelled("prompt", text, ""))
		options.apply(in, d)
		RespondVia.apply(in, d)
		if o, ok := args.(map[string]any); ok {
			d.Fields = append(d.Fields, event.Whole("context", o))
		}
		return open.apply(in, d)
	}
	return f
}

// Gated is the row of a tool that is about to run: where the operator gates it,
// the runtime asks nobody of itself, and the request comes beside what the row
// tells.
func Gated(nameAt, input Path, r Row) Row {
	return Many(r, When(Is("gated", func(in *In) bool { return in.Moment.Gated }),
		Emit("attention.requested", Permission(nameAt, input)).Note("where the operator gates the tool (--gate)"),
		Nothing("the operator does not gate the tool")))
}

func gist(args any) string {
	o, _ := args.(map[string]any)
	for _, k := range gists {
		s, ok := o[k].(string)
		if !ok || s == "" {
			continue
		}
		if about, _ := o["description"].(string); about != "" && (k == "command" || k == "cmd") {
			s += " (" + about + ")"
		}
		return s
	}
	return ""
}

// Answered is an answer given in the runtime's own screen, to the request
// whose vendor's key stands at pair.
func Answered(pair Path, option string) Row {
	facts := []Fact{Need(pair), Pair(pair)}
	if option != "" {
		facts = append(facts, Object("answer", Const("option", option)), Const("via", "oob"))
	}
	return Emit("attention.answered", facts...)
}

// Resolved closes the request whose vendor's key stands at pair.
func Resolved(pair Path, resolution string) Row {
	return Emit("attention.resolved", Need(pair), Pair(pair), Const("resolution", resolution))
}

// ---- forms

// Form is a request for values: its prompt and fields. alt is the structural
// prompt.
func Form(d *event.Draft, prompt, alt string, fields []event.FormField, held bool) {
	list := make([]event.Fields, len(fields))
	for i, f := range fields {
		list[i] = formField(f)
	}
	d.Fields = append(d.Fields,
		event.Meta("kind", "form"),
		event.Labelled("prompt", prompt, alt),
		event.Meta("fields", list),
		event.Meta("respond_via", via(held)))
}

func formField(f event.FormField) event.Fields {
	out := event.Fields{event.Meta("id", f.ID), event.Meta("type", f.Type), event.Labelled("label", f.Label, f.ID)}
	if f.Required != nil {
		out = append(out, event.Meta("required", *f.Required))
	}
	if f.Other {
		out = append(out, event.Meta("other", true))
	}
	if f.Type == "select" {
		list := make([]event.Fields, len(f.Choices))
		for i, c := range f.Choices {
			list[i] = event.Fields{event.Meta("id", c.ID), event.Labelled("label", c.Label, c.ID)}
		}
		out = append(out, event.Meta("choices", list))
	}
	if f.Multi {
		out = append(out, event.Meta("multi", true))
	}
	if f.Min != nil {
		out = append(out, event.Meta("min", *f.Min))
	}
	if f.Max != nil {
		out = append(out, event.Meta("max", *f.Max))
	}
	return out
}

// Elicitation is an MCP server's request for input as a form: message and flat
// schema. Field ids are the schema's keys, choice ids its enum's values, which
// the server made, so that an answer goes back as it is.
func Elicitation(message, schema Path) Fact {
	mp, sp := parse(message), parse(schema)
	properties := strings.ReplaceAll(schema, "|", ".properties|") + ".properties"
	shows := []adapters.TermField{
		{Member: "prompt", From: message, Level: event.Redacted},
		{Member: "fields[].label", From: schema, Level: event.Redacted},
	}
	for _, p := range strings.Split(schema, "|") {
		shows = append(shows,
			adapters.TermField{Member: "fields[].id", From: p + ".required", Level: event.Metadata},
			adapters.TermField{Member: "fields[].choices[].id", From: p + ".properties.*.enum", Level: event.Metadata},
			adapters.TermField{Member: "fields[].choices[].id", From: p + ".properties.*.oneOf.*.const", Level: event.Metadata},
			adapters.TermField{Member: "fields[].choices[].id", From: p + ".properties.*.items", Level: event.Metadata})
	}
	return Do(schema, shows, func(in *In, d *event.Draft) bool {
		v, _ := in.get(sp)
		o, ok := v.(map[string]any)
		if !ok {
			return false
		}
		fields := SchemaFields(o, in.Order(properties))
		if len(fields) == 0 {
			return false
		}
		alt := in.Vendor + " requests input (" + count(len(fields), "field") + ")"
		text := in.str(mp)
		if text == "" {
			text = alt
		}
		Form(d, text, alt, fields, in.Moment.Held)
		return true
	})
}

// count writes "1 field", "2 fields".
func count(n int, word string) string {
	s := strconv.Itoa(n) + " " + word
	if n != 1 {
		s += "s"
	}
	return s
}
