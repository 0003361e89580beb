package claudecode

import (
	"slices"
	"strconv"
	"strings"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
	"aep-wrap/event"
)

// askTool is the tool by which Claude asks the user one to four questions.
const askTool = "AskUserQuestion"

func itoa(n int) string { return strconv.Itoa(n) }

// multi is the member of a question that lets several options be chosen.
const multi = "multiSelect"

// questions is the form of a question's batch.
var questions = AsForm("tool_input.questions", multi)

// answers are the values that were given to a question's batch: a choice's id
// where the label is one's, else the text.
var answers = Do("tool_response.answers",
	[]adapters.TermField{
		{Member: "answer.values", From: "tool_response.answers", Level: event.Redacted},
		{Member: "answer.values", From: "tool_input.answers", Level: event.Redacted},
	},
	func(in *In, d *event.Draft) bool {
		given, ok := in.Get("tool_response.answers|tool_input.answers").(map[string]any)
		qs := ReadQuestions(in.Get("tool_input.questions|tool_response.questions"), multi)
		if !ok || len(qs) == 0 {
			return false
		}
		values := map[string]any{}
		for _, q := range qs {
			if s, ok := given[q.Text].(string); ok {
				values[q.Field.ID] = value(q.Field, s)
			}
		}
		d.Fields = append(d.Fields, event.Meta("answer", event.Fields{event.FormAnswers(values, FieldsOf(qs))}))
		return true
	})

// value reads an answer as Claude writes it: a label, or the labels of a
// multiple choice joined by ", ".
func value(f event.FormField, s string) any {
	for _, c := range f.Choices {
		if c.Label == s {
			if f.Multi {
				return []any{c.ID}
			}
			return c.ID
		}
	}
	if !f.Multi {
		return s
	}
	var ids []any
	for rest := s; rest != ""; {
		// A label may hold ", " itself: the longest that fits counts.
		best := -1
		for i, c := range f.Choices {
			after, ok := strings.CutPrefix(rest, c.Label)
			if ok && (after == "" || strings.HasPrefix(after, ", ")) && (best < 0 || len(c.Label) > len(f.Choices[best].Label)) {
				best = i
			}
		}
		if best < 0 {
			return s
		}
		c := f.Choices[best]
		ids = append(ids, c.ID)
		rest = strings.TrimPrefix(strings.TrimPrefix(rest, c.Label), ", ")
	}
	if ids == nil {
		return s
	}
	return ids
}

// label is the inverse of value: what Claude is told of an answer.
func label(f event.FormField, v any) (string, bool) {
	switch x := v.(type) {
	case string:
		i := slices.IndexFunc(f.Choices, func(c event.FormChoice) bool { return c.ID == x })
		if i >= 0 {
			return f.Choices[i].Label, true
		}
		return x, x != ""
	case []any:
		var labels []string
		for _, id := range x {
			s, ok := label(f, id)
			if !ok {
				return "", false
			}
			labels = append(labels, s)
		}
		return strings.Join(labels, ", "), len(labels) > 0
	}
	return "", false
}

// accepted are the values that an elicitation was answered with. The payload
// does not repeat the form; the session knows its fields.
var accepted = Do("", []adapters.TermField{{Member: "answer.values", From: "content", Level: event.Redacted}},
	func(in *In, d *event.Draft) bool {
		content, ok := in.Get("content").(map[string]any)
		answer := event.Fields{event.Meta("option", "accept")}
		if ok && len(content) > 0 {
			answer = event.Fields{event.FormAnswers(content, nil)}
		}
		d.Fields = append(d.Fields, event.Meta("answer", answer))
		return true
	})
