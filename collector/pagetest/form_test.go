package pagetest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"aep-wrap/collector"
)

// A form has every kind of field; a wrong one is said beside it before
// anything is sent; what the target finds invalid is said, and then answered.
func TestForm(t *testing.T) {
	w := newWorld(t, collector.Limits{})
	tg := w.emitter("claude-code", "s-form", everything...)
	tg.begin("/srv/app")
	many := []obj{}
	for i := range 20 {
		many = append(many, obj{"id": fmt.Sprint("m", i), "label": fmt.Sprint("Many ", i)})
	}
	choices := []obj{{"id": "1", "label": "us-east"}, {"id": "2", "label": "eu-west", "description": "where most are"}, {"id": "3", "label": "ap-south"}}
	request := tg.emit("attention.requested", obj{
		"kind": "form", "prompt": "Configure the new service deployment", "respond_via": []string{"control"},
		"fields": []obj{
			{"id": "name", "type": "string", "label": "Service name", "required": true},
			{"id": "replicas", "type": "number", "label": "Replicas", "required": true, "min": 1, "max": 9},
			{"id": "staged", "type": "boolean", "label": "Deploy to staging first?"},
			{"id": "regions", "type": "select", "label": "Regions", "multi": true, "required": true, "choices": choices},
			{"id": "db", "type": "select", "label": "Database", "other": true, "choices": []obj{{"id": "1", "label": "PostgreSQL"}, {"id": "2", "label": "SQLite"}}},
			{"id": "one", "type": "select", "label": "One of many", "choices": many},
			{"id": "__proto__", "type": "string", "label": "Odd name"},
		},
	}, obj{"subject": "deploy", "capture": "redacted"})
	tb := w.open(token, Desk)
	tb.Sees("Configure the new service deployment")
	tb.Shot("form")
	if n := tb.Nameless(); n != "" {
		t.Errorf("without a name: %s", n)
	}
	ph := w.open(token, Phone)
	ph.Sees("Service name")
	ph.Shot("form")

	tb.Press(".answers .permit")
	tb.Sees("3 fields need another look.")
	if got := JS[string](tb, `document.activeElement.closest('.field').innerText`); !strings.Contains(got, "Service name") {
		t.Errorf("the focus is in %q", got)
	}
	if n := JS[int](tb, `document.querySelectorAll('[aria-invalid="true"]').length`); n < 3 {
		t.Errorf("%d controls are marked", n)
	}
	tb.Shot("wrong")
	field := func(n int, rest string) string { return fmt.Sprintf(`.form > .field:nth-child(%d) %s`, n, rest) }
	tb.Write(field(1, "textarea"), "api")
	tb.Write(field(2, "input"), "12")
	tb.Press(field(3, ".pick:nth-of-type(2)"))
	tb.Press(field(4, ".pick:nth-of-type(1)"))
	tb.Press(field(4, ".pick:nth-of-type(3)"))
	tb.Press(field(5, ".pick:nth-of-type(3)"))
	tb.Write(field(5, ".other"), "DuckDB")
	JS[string](tb, `(() => { const s = document.querySelector('.form select'); s.value = '7'; s.dispatchEvent(new Event('change')); return ''; })()`)
	tb.Write(field(7, "textarea"), "p")
	tb.Press(".answers .permit")
	tb.Sees("At most 9.")
	tb.Sees("One field needs another look.")
	JS[string](tb, `document.querySelector('.form > .field:nth-child(2) input').value = ''`)
	tb.Write(field(2, "input"), "3")
	tb.Press(".answers .permit")
	c := tg.hear()
	if c["subject"] != request || c["capture"] != "full" {
		t.Errorf("the command: %v", c)
	}
	want := obj{"values": obj{"name": "api", "replicas": 3.0, "staged": false, "regions": []any{"1", "3"}, "db": "DuckDB", "one": "m7", "__proto__": "p"}}
	if d := cmp.Diff(want, c["data"].(obj)["answer"]); d != "" {
		t.Errorf("the answer (-want +got):\n%s", d)
	}
	tg.reject(c, "invalid", "data.answer.values.name is taken")
	tb.Sees("Not accepted, invalid: data.answer.values.name is taken")
	tb.Write(field(1, "textarea"), "-2")
	tb.Press(".answers .permit")
	c2 := tg.hear()
	if c2["id"] == c["id"] || c2["data"].(obj)["answer"].(obj)["values"].(obj)["name"] != "api-2" {
		t.Errorf("the second answer: %v", c2)
	}
	tg.accept(c2)
	tg.settle(c2)
	tb.Sees("Answered by you")
	tb.Sees("us-east + ap-south")
	ph.Sees("Answered by aep-wrap-page")
	tb.Shot("answered")
}

// A form without options can be declined; input is free text.
func TestDeclineAndInput(t *testing.T) {
	w := newWorld(t, collector.Limits{})
	tg := w.emitter("claude-code", "s-input", everything...)
	tg.begin("/srv")
	tg.emit("attention.requested", obj{"kind": "form", "prompt": "Which?", "fields": []obj{{"id": "a", "type": "boolean", "label": "A"}}})
	tb := w.open(token, Desk)
	tb.Press(`[data-option="decline"]`)
	c := tg.hear()
	if c["data"].(obj)["answer"].(obj)["option"] != "decline" || c["capture"] != nil {
		t.Errorf("%v", c)
	}
	tg.accept(c)
	tg.settle(c)
	tb.Sees("Answered by you: decline.")
	tg.emit("attention.requested", obj{"kind": "input", "prompt": "What next?"})
	tb.Sees("What next?")
	tb.Write(".card:not(.over) textarea", "write the tests")
	tb.Press(".card:not(.over) .permit")
	c = tg.hear()
	if c["data"].(obj)["answer"].(obj)["text"] != "write the tests" || c["capture"] != "full" {
		t.Errorf("%v", c)
	}
	// Seen in the agent's own screen only: there is nothing to press.
	tg.emit("attention.requested", obj{"kind": "permission", "prompt": "claude-code requests permission: Bash", "respond_via": []string{"oob"}, "options": []obj{{"id": "allow", "label": "Allow"}}}, obj{"subject": "Bash"})
	tb.Sees("It is answered in the agent’s own screen")
	tb.Sees("What exactly it is about is not told at this capture level.")
}
