package hook

import (
	"strconv"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// Question is one of those that a runtime asks at once, and the form field that
// it becomes. Fields and choices are numbered from 1, so that an answer is
// structural.
type Question struct {
	Text  string
	Field event.FormField
}

// ReadQuestions reads a list of {question, header, options: [{label}]}, of
// which multi names the member that lets several be chosen. An answer of the
// user's own is possible unless "custom" says no. A list with one that asks
// nothing is none.
func ReadQuestions(v any, multi string) []Question {
	list, _ := v.([]any)
	var out []Question
	for i, x := range list {
		o, _ := x.(map[string]any)
		text, _ := o["question"].(string)
		if text == "" {
			return nil
		}
		must := true
		f := event.FormField{ID: strconv.Itoa(i + 1), Type: "select", Label: text, Required: &must, Other: o["custom"] != false}
		if h, _ := o["header"].(string); h != "" {
			f.Label = h + ": " + text
		}
		f.Multi, _ = o[multi].(bool)
		options, _ := o["options"].([]any)
		for j, y := range options {
			opt, _ := y.(map[string]any)
			label, _ := opt["label"].(string)
			if label == "" {
				label = strconv.Itoa(j + 1)
			}
			f.Choices = append(f.Choices, event.FormChoice{ID: strconv.Itoa(j + 1), Label: label})
		}
		if len(f.Choices) == 0 {
			f.Type, f.Other, f.Multi = "string", false, false
		}
		out = append(out, Question{text, f})
	}
	return out
}

// FieldsOf are the form's fields.
func FieldsOf(qs []Question) []event.FormField {
	out := make([]event.FormField, len(qs))
	for i, q := range qs {
		out[i] = q.Field
	}
	return out
}

// AsForm is the request that questions at a path become. Its prompt is
// structural as it stands.
func AsForm(p Path, multi string) Fact {
	ps := parse(p)
	return Do(p, []adapters.TermField{{Member: "fields[].label", From: p, Level: event.Redacted}}, func(in *In, d *event.Draft) bool {
		v, _ := in.get(ps)
		qs := ReadQuestions(v, multi)
		if len(qs) == 0 {
			return false
		}
		prompt := in.Vendor + " asks " + count(len(qs), "question")
		Form(d, prompt, prompt, FieldsOf(qs), in.Moment.Held)
		return true
	})
}
