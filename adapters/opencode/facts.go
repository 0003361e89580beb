package opencode

import (
	"encoding/json"
	"strings"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
	"aep-wrap/event"
)

// gists are the members of a permission's metadata that say what is about to
// be done, the likeliest first.
var gists = []string{"command", "filepath", "filePath", "url", "query", "pattern", "path"}

// about is a permission's prompt: "Permission requested: bash — rm -rf build".
func about(name, p string) Fact {
	shows := []adapters.TermField{
		{Member: "prompt", From: name, Level: event.Metadata},
		{Member: "prompt", From: p + "title", Level: event.Redacted},
		{Member: "prompt", From: p + "metadata", Level: event.Redacted},
		{Member: "prompt", From: p + "patterns", Level: event.Redacted},
	}
	return Do("", shows, func(in *In, d *event.Draft) bool {
		text := "Permission requested: " + in.Str(name)
		if g := gist(in, p); g != "" {
			text += " — " + g
		}
		d.Fields = append(d.Fields, event.Labelled("prompt", text, ""))
		return true
	})
}

func gist(in *In, p string) string {
	if s := in.Str(p + "title"); s != "" {
		return s
	}
	for _, k := range gists {
		if s := in.Str(p + "metadata." + k); s != "" {
			return s
		}
	}
	var list []string
	patterns, _ := in.Get(p + "patterns").([]any)
	for _, x := range patterns {
		if s, _ := x.(string); s != "" {
			list = append(list, s)
		}
	}
	return strings.Join(list, ", ")
}

// ofCall says which call a request is about.
func ofCall(p Path) Fact {
	return Do("", nil, func(in *In, d *event.Draft) bool {
		d.Link.Call = in.Str(p)
		return true
	})
}

// lasted is how long a tool ran.
func lasted(p string) Fact {
	return Do("", []adapters.TermField{{Member: "duration_ms", From: p + "state.time.end", Level: event.Metadata}}, func(in *In, d *event.Draft) bool {
		from, ok := millis(in.Get(p + "state.time.start"))
		to, there := millis(in.Get(p + "state.time.end"))
		if ok && there && to >= from {
			d.Fields = append(d.Fields, event.Meta("duration_ms", to-from))
		}
		return true
	})
}

func millis(v any) (int64, bool) {
	n, _ := v.(json.Number)
	ms, err := n.Int64()
	return ms, err == nil && ms > 0 && ms < 1<<43
}

func zero(v any) bool { n, ok := v.(json.Number); return ok && n.String() == "0" }

// aborted reads what a command's output ends with where the user aborted it: it
// then has no exit code.
func aborted(output string) bool { return strings.Contains(output, "User aborted the command") }

// The fact todo is an item of a list of what is to be done. Items have ids in
// some versions; where they have none, what they say names them.
func todo(p string) Fact {
	shows := []adapters.TermField{
		{Member: "(subject)", From: p + "todo.id", Level: event.Metadata},
		{Member: "task.title", From: p + "todo.content", Level: event.Redacted},
	}
	return Do(p+"todo.content", shows, func(in *In, d *event.Draft) bool {
		text := in.Str(p + "todo.content")
		id := in.Str(p + "todo.id")
		if id == "" && text != "" {
			id = "todo-" + event.Digest(text)[:12]
		}
		if !token(id) {
			return false
		}
		d.Subject, d.Key, d.Pair = id, id, id
		if text != "" {
			title := event.Fields{event.Text("title", text)}
			d.Fields = append(d.Fields, event.Field{Name: "task", Level: event.Redacted, Value: title})
		}
		return true
	})
}

// token says whether a string can be an id, also in a path.
func token(s string) bool {
	if s == "" || len(s) > 256 {
		return false
	}
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// ---- questions

// multiple is the member of a question that lets several options be chosen.
const multiple = "multiple"

// chosen are the labels that an answer to a form names, question by question;
// nil where it does not fit.
func chosen(v any, values map[string]any) []any {
	var out []any
	for _, q := range ReadQuestions(v, multiple) {
		f := q.Field
		picked, ok := values[f.ID]
		if !ok {
			return nil
		}
		ids, many := picked.([]any)
		if !many {
			ids = []any{picked}
		}
		labels := []any{}
		for _, id := range ids {
			s, ok := id.(string)
			if !ok || s == "" {
				return nil
			}
			for _, c := range f.Choices {
				if c.ID == s {
					s = c.Label
					break
				}
			}
			labels = append(labels, s)
		}
		out = append(out, labels)
	}
	return out
}
