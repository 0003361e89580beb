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

// question is one of the tool's questions, and the form field that it becomes.
// Fields and choices are numbered from 1, so that an answer is structural.
type question struct {
	text  string
	field event.FormField
}

func readQuestions(v any) []question {
	list, _ := v.([]any)
	var out []question
	for i, x := range list {
		o, _ := x.(map[string]any)
		text, _ := o["question"].(string)
		if text == "" {
			return nil
		}
		must := true
		f := event.FormField{ID: itoa(i + 1), Type: "select", Label: text, Required: &must, Other: true}
		if h, _ := o["header"].(string); h != "" {
			f.Label = h + ": " + text
		}
		f.Multi, _ = o["multiSelect"].(bool)
		options, _ := o["options"].([]any)
		for j, y := range options {
			opt, _ := y.(map[string]any)
			label, _ := opt["label"].(string)
			if label == "" {
				label = itoa(j + 1)
			}
			f.Choices = append(f.Choices, event.FormChoice{ID: itoa(j + 1), Label: label})
		}
		if len(f.Choices) == 0 {
			f.Type, f.Other = "string", false
		}
		out = append(out, question{text, f})
	}
	return out
}

func formOf(qs []question) []event.FormField {
	out := make([]event.FormField, len(qs))
	for i, q := range qs {
		out[i] = q.field
	}
	return out
}

// questions is the form of a question's batch. Its prompt is structural as it
// stands.
var questions = Do("tool_input.questions",
	[]adapters.TermField{
		{Member: "fields[].label", From: "tool_input.questions", Level: event.Redacted},
	},
	func(in *In, d *event.Draft) bool {
		qs := readQuestions(in.Get("tool_input.questions"))
		if len(qs) == 0 {
			return false
		}
		prompt := name + " asks " + itoa(len(qs)) + " question"
		if len(qs) > 1 {
			prompt += "s"
		}
		Form(d, prompt, prompt, formOf(qs), in.Moment.Held)
		return true
	})

// answers are the values that were given to a question's batch: a choice's id
// where the label is one's, else the text.
var answers = Do("tool_response.answers",
	[]adapters.TermField{
		{Member: "answer.values", From: "tool_response.answers", Level: event.Redacted},
		{Member: "answer.values", From: "tool_input.answers", Level: event.Redacted},
	},
	func(in *In, d *event.Draft) bool {
		given, ok := in.Get("tool_response.answers|tool_input.answers").(map[string]any)
		qs := readQuestions(in.Get("tool_input.questions|tool_response.questions"))
		if !ok || len(qs) == 0 {
			return false
		}
		values := map[string]any{}
		for _, q := range qs {
			if s, ok := given[q.text].(string); ok {
				values[q.field.ID] = q.value(s)
			}
		}
		d.Fields = append(d.Fields, event.Meta("answer", event.Fields{event.FormAnswers(values, formOf(qs))}))
		return true
	})

// value reads an answer as Claude writes it: a label, or the labels of a
// multiple choice joined by ", ".
func (q question) value(s string) any {
	for _, c := range q.field.Choices {
		if c.Label == s {
			if q.field.Multi {
				return []any{c.ID}
			}
			return c.ID
		}
	}
	if !q.field.Multi {
		return s
	}
	var ids []any
	for rest := s; rest != ""; {
		// A label may hold ", " itself: the longest that fits counts.
		best := -1
		for i, c := range q.field.Choices {
			after, ok := strings.CutPrefix(rest, c.Label)
			if ok && (after == "" || strings.HasPrefix(after, ", ")) && (best < 0 || len(c.Label) > len(q.field.Choices[best].Label)) {
				best = i
			}
		}
		if best < 0 {
			return s
		}
		c := q.field.Choices[best]
		ids = append(ids, c.ID)
		rest = strings.TrimPrefix(strings.TrimPrefix(rest, c.Label), ", ")
	}
	if ids == nil {
		return s
	}
	return ids
}

// label is the inverse of value: what Claude is told of an answer.
func (q question) label(v any) (string, bool) {
	switch x := v.(type) {
	case string:
		i := slices.IndexFunc(q.field.Choices, func(c event.FormChoice) bool { return c.ID == x })
		if i >= 0 {
			return q.field.Choices[i].Label, true
		}
		return x, x != ""
	case []any:
		var labels []string
		for _, id := range x {
			s, ok := q.label(id)
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
