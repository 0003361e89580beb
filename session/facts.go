package session

import (
	"slices"

	"aep-wrap/event"
)

// draftFacts reads from a draft what readFacts reads from an event.
func draftFacts(d *event.Draft) (f facts) {
	f.pair, f.bound = d.Pair, true
	switch event.Category(d.Type) {
	case "tool":
		f.tool, f.call = str(d.Fields, "tool", "name"), str(d.Fields, "tool", "call_id")
		if f.call == "" {
			f.call = d.Pair
		}
		if d.Type == "tool.requested" {
			f.args = argsDigest(d.Fields)
		}
	case "attention":
		f.kind, f.via = str(d.Fields, "kind"), str(d.Fields, "via")
		f.options = optionIDs(member(d.Fields, "options"))
		f.form = formSpec(member(d.Fields, "fields"))
		f.link = d.Link
	}
	return f
}

// formSpec reads what an answer to a form is judged by: of each field its type
// and the ids of its choices.
func formSpec(fields any) (spec []event.FormField) {
	each(fields, func(o any) {
		f := event.FormField{}
		f.ID, _ = member(o, "id").(string)
		f.Type, _ = member(o, "type").(string)
		f.Multi, _ = member(o, "multi").(bool)
		f.Other, _ = member(o, "other").(bool)
		each(member(o, "choices"), func(c any) {
			if id, ok := member(c, "id").(string); ok {
				f.Choices = append(f.Choices, event.FormChoice{ID: id})
			}
		})
		spec = append(spec, f)
	})
	return spec
}

// each gives the objects of a list that is either Fields or a JSON tree.
func each(list any, yield func(any)) {
	switch l := list.(type) {
	case []event.Fields:
		for _, o := range l {
			yield(o)
		}
	case []any:
		for _, o := range l {
			yield(o)
		}
	}
}

// withSpec gives an answer's values the form that they answer, where the
// vendor's answer does not repeat it.
func withSpec(f event.Fields, spec []event.FormField) event.Fields {
	i := slices.IndexFunc(f, func(m event.Field) bool { return m.Name == "answer" })
	if i < 0 || spec == nil {
		return f
	}
	answer, _ := f[i].Value.(event.Fields)
	j := slices.IndexFunc(answer, func(m event.Field) bool { return m.Kind == event.Answers && m.Spec == nil })
	if j < 0 {
		return f
	}
	f, answer = slices.Clone(f), slices.Clone(answer)
	answer[j].Spec = spec
	f[i].Value = answer
	return f
}

// member is a member of an object that is either Fields or a JSON tree.
func member(v any, name string) any {
	switch o := v.(type) {
	case event.Fields:
		for _, m := range o {
			if m.Name == name {
				return m.Value
			}
		}
	case map[string]any:
		return o[name]
	}
	return nil
}

func str(f event.Fields, path ...string) string {
	var v any = f
	for _, p := range path {
		v = member(v, p)
	}
	s, _ := v.(string)
	return s
}

func optionIDs(options any) (ids []string) {
	each(options, func(o any) {
		if id, ok := member(o, "id").(string); ok {
			ids = append(ids, id)
		}
	})
	return ids
}

// argsDigest is the digest of a tool's input, by which requests find it.
func argsDigest(f event.Fields) string {
	for _, m := range f {
		switch {
		case m.Name == "args_digest":
			s, _ := m.Value.(string)
			return s
		case m.Name == "args" && m.Kind == event.Content && m.Alt != "":
			return m.Alt
		case m.Name == "args" && m.Value != nil:
			return event.Digest(m.Value)
		}
	}
	return ""
}

// withDefault adds a structural member where there is none. The draft's own
// Fields stay as they are.
func withDefault(f event.Fields, name string, v any) event.Fields {
	if slices.ContainsFunc(f, func(m event.Field) bool { return m.Name == name }) {
		return f
	}
	return append(slices.Clip(f), event.Meta(name, v))
}

// withValue gives a structural member another value.
func withValue(f event.Fields, name string, v any) event.Fields {
	f = slices.Clone(f)
	for i := range f {
		if f[i].Name == name {
			f[i] = event.Meta(name, v)
		}
	}
	return f
}

// withTool gives the member "tool" its name.
func withTool(f event.Fields, name string) event.Fields {
	f = slices.Clone(f)
	i := slices.IndexFunc(f, func(m event.Field) bool { return m.Name == "tool" })
	if i < 0 {
		return append(f, event.Meta("tool", event.Fields{event.Meta("name", name)}))
	}
	named := event.Fields{event.Meta("name", name)}
	if id, ok := member(f[i].Value, "call_id").(string); ok {
		named = append(named, event.Meta("call_id", id))
	}
	f[i].Value = named
	return f
}
