package control

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"aep-wrap/event"
)

func options(ids ...string) (out []Option) {
	for _, id := range ids {
		name, label, ok := strings.Cut(id, "=")
		if !ok {
			label = strings.ToUpper(name[:1]) + name[1:]
		}
		out = append(out, Option{name, label})
	}
	return out
}

// The text rule of AEP-0008.
func TestReadText(t *testing.T) {
	allowDeny := options("allow", "deny")
	for _, tc := range []struct {
		kind    string
		options []Option
		answer  string
		want    Answer
		fault   string
	}{
		{"permission", allowDeny, `{"option":"allow"}`, Answer{Option: "allow"}, ""},
		{"permission", allowDeny, `{"option":"deny","text":"use rg"}`, Answer{Option: "deny", Text: "use rg"}, ""},
		{"permission", allowDeny, `{"option":"Allow"}`, Answer{}, "none of the request's options: allow, deny"},
		{"permission", allowDeny, `{"option":"always"}`, Answer{}, "none of the request's options"},
		{"permission", allowDeny, `{"option":3}`, Answer{}, "not a string"},
		{"permission", allowDeny, `{"option":"","text":" \n"}`, Answer{}, "says nothing"},
		{"permission", allowDeny, `{}`, Answer{}, "says nothing"},
		{"permission", allowDeny, `{"values":{"a":1}}`, Answer{}, "the request is none"},
		{"permission", allowDeny, `{"option":"allow","values":{}}`, Answer{}, "option and values"},

		{"permission", allowDeny, `{"text":"allow"}`, Answer{Option: "allow"}, ""},
		{"permission", allowDeny, `{"text":"  ALLOW \n"}`, Answer{Option: "allow"}, ""},
		{"permission", options("1=Yes", "2=No"), `{"text":"yes"}`, Answer{Option: "1"}, ""},
		{"permission", options("1=Yes", "2=No"), `{"text":"1"}`, Answer{Option: "1"}, ""},
		{"permission", options("a=Yes", "b=Yes", "deny"), `{"text":"yes"}`, Answer{Option: "deny", Text: "yes"}, ""},
		{"permission", options("a", "A", "deny"), `{"text":"A"}`, Answer{Option: "A"}, ""},
		{"permission", options("ab", "AB", "deny"), `{"text":"Ab"}`, Answer{Option: "deny", Text: "Ab"}, ""},
		{"permission", options("deny=Allow", "allow=Deny"), `{"text":"deny"}`, Answer{Option: "deny"}, ""},

		{"permission", allowDeny, `{"text":"yes"}`, Answer{Option: "deny", Text: "yes"}, ""},
		{"permission", allowDeny, `{"text":"allow it"}`, Answer{Option: "deny", Text: "allow it"}, ""},
		{"permission", allowDeny, `{"text":"allow\u200b"}`, Answer{Option: "deny", Text: "allow\u200b"}, ""},
		{"permission", allowDeny, `{"text":" use rg "}`, Answer{Option: "deny", Text: "use rg"}, ""},
		{"permission", options("once", "always", "reject"), `{"text":"no way"}`, Answer{Option: "reject", Text: "no way"}, ""},
		{"permission", options("allow_once", "reject_always", "reject_once"), `{"text":"x"}`, Answer{Option: "reject_once", Text: "x"}, ""},
		{"permission", options("accept", "acceptForSession", "cancel", "decline"), `{"text":"x"}`, Answer{Option: "decline", Text: "x"}, ""},
		{"permission", options("proceed", "rejectAlways"), `{"text":"x"}`, Answer{Option: "rejectAlways", Text: "x"}, ""},
		{"permission", options("1=Yes", "2=Yes, for this session", "3=No, and tell it what to do instead"), `{"text":"use rg"}`, Answer{Option: "3", Text: "use rg"}, ""},
		{"permission", options("option_1=Allow", "option_2=Deny"), `{"text":"x"}`, Answer{Option: "option_2", Text: "x"}, ""},

		// Where none surely refuses, nothing is applied.
		{"permission", nil, `{"text":"x"}`, Answer{}, "none of them is known to refuse"},
		{"permission", options("allow"), `{"text":"x"}`, Answer{}, "none of them is known to refuse: allow"},
		{"permission", options("allow=Deny"), `{"text":"x"}`, Answer{}, "known to refuse"},
		{"permission", options("1=No restrictions", "2=Some"), `{"text":"x"}`, Answer{}, "known to refuse"},
		{"permission", options("no_limits"), `{"text":"x"}`, Answer{}, "known to refuse"},
		{"permission", options("deny_list_off", "go"), `{"text":"x"}`, Answer{}, "known to refuse"},
		{"permission", options("cancel_and_retry_without_asking"), `{"text":"x"}`, Answer{}, "known to refuse"},
		{"", options("go", "stop"), `{"text":"x"}`, Answer{}, "known to refuse"},
		{"review", options("approve", "reject"), `{"text":"rename it"}`, Answer{Option: "reject", Text: "rename it"}, ""},

		{"input", nil, `{"text":"  blue "}`, Answer{Text: "  blue "}, ""},
		{"input", options("red", "blue"), `{"text":"Blue"}`, Answer{Option: "blue"}, ""},
		{"input", options("red", "blue"), `{"text":"green"}`, Answer{Text: "green"}, ""},
		{"auth", nil, `{"text":"123456"}`, Answer{Text: "123456"}, ""},
		{"other", options("a", "b"), `{"text":"c"}`, Answer{}, "names none"},
		{"other", nil, `{"text":"c"}`, Answer{Text: "c"}, ""},
		{"form", nil, `{"text":"c"}`, Answer{}, "the request is a form"},
		{"form", nil, `{"text":" Decline "}`, Answer{Option: "decline"}, ""},
		{"form", nil, `{"option":"decline"}`, Answer{Option: "decline"}, ""},
		{"form", nil, `{"option":"accept"}`, Answer{}, "none of the request's options"},
		{"form", nil, `{}`, Answer{}, "values is missing"},
	} {
		var raw map[string]any
		if err := json.Unmarshal([]byte(tc.answer), &raw); err != nil {
			t.Fatal(err)
		}
		r := Request{Kind: tc.kind, Options: tc.options}
		got, fault := r.Read(raw)
		if d := cmp.Diff(tc.want, got); d != "" || (fault == "") != (tc.fault == "") || !strings.Contains(fault, tc.fault) {
			t.Errorf("%s %v %s: got %+v %q, want %+v %q", tc.kind, tc.options, tc.answer, got, fault, tc.want, tc.fault)
		}
	}
}

func num(f float64) *float64 { return &f }

func form() []event.FormField {
	yes, no := true, false
	return []event.FormField{
		{ID: "name", Type: "string", Required: &yes},
		{ID: "note", Type: "string", Required: &no},
		{ID: "n", Type: "number", Min: num(1), Max: num(5)},
		{ID: "staged", Type: "boolean"},
		{ID: "regions", Type: "select", Multi: true, Choices: []event.FormChoice{{ID: "1"}, {ID: "2"}, {ID: "3"}}},
		{ID: "db", Type: "select", Other: true, Choices: []event.FormChoice{{ID: "1"}, {ID: "2"}}},
		{ID: "size", Type: "select", Choices: []event.FormChoice{{ID: "s"}, {ID: "m"}}},
		{ID: "tags", Type: "select", Multi: true, Other: true, Choices: []event.FormChoice{{ID: "x"}}},
	}
}

// The values of a form (AEP-0006).
func TestReadForm(t *testing.T) {
	for _, tc := range []struct{ values, want, fault string }{
		{`{"name":"a","n":3,"staged":true,"regions":["1","3"],"db":"MariaDB","size":"s"}`, "", ""},
		{`{"name":"a"}`, "", ""},
		{`{"name":"a","note":""}`, "", ""},
		{`{"name":"a","n":1.5}`, "", ""},
		{`{"name":"a","db":"2"}`, "", ""},
		{`{"name":"a","tags":["x","mine"]}`, "", ""},
		{`{"name":"a","regions":[]}`, "", ""},
		{`{"name":"a","n":null}`, `{"name":"a"}`, ""},
		{`{"name":"a","regions":"1"}`, `{"name":"a","regions":["1"]}`, ""},
		{`{"name":"a","regions":["1","1"]}`, `{"name":"a","regions":["1"]}`, ""},
		{`{"name":"a","unknown":"b"}`, `{"name":"a"}`, ""},

		{`{}`, "", "name is missing: it is required"},
		{`{"name":null}`, "", "name is missing"},
		{`{"name":"  "}`, "", "name is empty"},
		{`{"name":1}`, "", "name is not a string"},
		{`{"name":"a","note":["b"]}`, "", "note is not a string"},
		{`{"name":"a","n":"3"}`, "", "n is not a number"},
		{`{"name":"a","n":0.5}`, "", "n is below 1"},
		{`{"name":"a","n":6}`, "", "n is above 5"},
		{`{"name":"a","n":1e999}`, "", "n is not a number"},
		{`{"name":"a","staged":"true"}`, "", "staged is not true or false"},
		{`{"name":"a","regions":["1","4"]}`, "", "regions is none of the choices"},
		{`{"name":"a","regions":[1]}`, "", "regions is not a choice's id"},
		{`{"name":"a","size":"l"}`, "", "size is none of the choices"},
		{`{"name":"a","size":["s"]}`, "", "size is an array"},
		{`{"name":"a","db":" "}`, "", "db is empty"},
		{`{"name":"a","db":{"id":"1"}}`, "", "db is not a choice's id"},
		{`[]`, "", "values is not an object"},
		{`"x"`, "", "values is not an object"},
	} {
		v, err := event.ParseJSON([]byte(tc.values))
		if err != nil {
			t.Fatal(err)
		}
		r := Request{Kind: "form", Fields: form()}
		got, fault := r.Read(map[string]any{"values": v})
		want := tc.want
		if want == "" && tc.fault == "" {
			want = string(event.AppendValue(nil, v))
		}
		have := ""
		if fault == "" {
			have = string(event.AppendValue(nil, got.Values))
		}
		if have != want || (fault == "") != (tc.fault == "") || !strings.Contains(fault, tc.fault) {
			t.Errorf("%s: got %s %q, want %s %q", tc.values, have, fault, want, tc.fault)
		}
	}
	optional := Request{Kind: "form", Fields: form()[1:]}
	if _, fault := optional.Read(map[string]any{"values": map[string]any{"nobody": "x"}}); !strings.Contains(fault, "none of the form's fields") {
		t.Errorf("values without any of the form's: %q", fault)
	}
	if a, fault := optional.Read(map[string]any{"values": map[string]any{}}); fault != "" || a.Values == nil {
		t.Errorf("an empty form that requires nothing: %+v %q", a, fault)
	}
}

// A form is read alike from the draft and from its event.
func TestRequestOf(t *testing.T) {
	yes := true
	want := Request{ID: "q", Session: "s", Kind: "form", Via: []string{"control"}, Options: []Option{{"decline", "Decline"}},
		Fields: []event.FormField{
			{ID: "n", Type: "number", Label: "N", Required: &yes, Min: num(1), Max: num(5)},
			{ID: "c", Type: "select", Label: "C", Multi: true, Other: true, Choices: []event.FormChoice{{ID: "1", Label: "One"}}},
		}}
	d := event.Draft{Header: event.Header{ID: "q", Session: "s", Type: "attention.requested"}, Fields: event.Fields{
		event.Meta("kind", "form"), event.Meta("respond_via", []any{"control"}),
		event.Meta("options", []event.Fields{{event.Meta("id", "decline"), event.Labelled("label", "Decline", "decline")}}),
		event.Meta("fields", []event.Fields{
			{event.Meta("id", "n"), event.Meta("type", "number"), event.Labelled("label", "N", "n"), event.Meta("required", true), event.Meta("min", 1.0), event.Meta("max", 5)},
			{event.Meta("id", "c"), event.Meta("type", "select"), event.Labelled("label", "C", "c"), event.Meta("multi", true), event.Meta("other", true),
				event.Meta("choices", []event.Fields{{event.Meta("id", "1"), event.Labelled("label", "One", "1")}})},
		}),
	}}
	if diff := cmp.Diff(want, RequestOf(&d)); diff != "" {
		t.Errorf("of the draft\n%s", diff)
	}
	e := seal(&d)
	data, err := event.ParseObject(e.Data)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, requestIn(&e, data)); diff != "" {
		t.Errorf("of the event\n%s", diff)
	}
}

// Whatever a text is, it is a permissive option only when it names it.
func FuzzTextNeverPermits(f *testing.F) {
	for _, s := range []string{"allow", "yes", "ALLOW ", "deny", "no", "", "allow\x00", "ａｌｌｏｗ", "1", "approve"} {
		f.Add(s, "allow", "Allow", "deny", "Deny")
		f.Add(s, "1", "Yes", "2", "No")
		f.Add(s, "proceed_once", "Proceed", "no", "Never")
	}
	f.Fuzz(func(t *testing.T, text, id1, label1, id2, label2 string) {
		r := Request{Kind: "permission", Options: []Option{{id1, label1}, {id2, label2}}}
		a, fault := r.Read(map[string]any{"text": text})
		if fault != "" {
			return
		}
		if strings.TrimSpace(text) == "" {
			t.Fatalf("%q was taken for an answer: %+v", text, a)
		}
		same := func(s string) bool { return strings.EqualFold(strings.TrimSpace(s), strings.TrimSpace(text)) }
		i := slices.IndexFunc(r.Options, func(o Option) bool { return o.ID == a.Option })
		if i < 0 {
			t.Fatalf("%q became %+v, which is no option of %v", text, a, r.Options)
		}
		for _, o := range r.Options {
			if o.ID == a.Option && (same(o.ID) || same(o.Label)) {
				return
			}
		}
		// It names none: then only an option that refuses by its own words.
		first := strings.ToLower(strings.Join(words(a.Option), " "))
		if saysNothing(a.Option) {
			for _, o := range r.Options {
				if o.ID == a.Option {
					first = strings.ToLower(strings.Join(words(o.Label), " "))
				}
			}
		}
		known := append(slices.Clone(refusers), bareNos...)
		if !slices.ContainsFunc(known, func(w string) bool { return first == w || strings.HasPrefix(first, w+" ") }) {
			t.Fatalf("%q became %+v of %v", text, a, r.Options)
		}
		if a.Text != strings.TrimSpace(text) {
			t.Fatalf("%q lost its reason: %+v", text, a)
		}
	})
}

func FuzzFormValues(f *testing.F) {
	for _, s := range []string{`{}`, `{"name":"a"}`, `{"name":"a","n":3,"regions":["1"],"db":"x"}`, `{"regions":[[]]}`, `[]`, `{"name":{"a":[null]}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := event.ParseJSON(raw)
		if err != nil {
			return
		}
		r := Request{Kind: "form", Fields: form()}
		a, fault := r.Read(map[string]any{"values": v})
		if fault != "" {
			if a.Values != nil {
				t.Fatal("a fault and an answer")
			}
			return
		}
		// What is taken passes the protocol's own check, and reading it again
		// changes nothing.
		stream := event.NewStream()
		fields := make([]event.Fields, 0, len(r.Fields))
		for _, x := range r.Fields {
			choices := []event.Fields{}
			for _, c := range x.Choices {
				choices = append(choices, event.Fields{event.Meta("id", c.ID), event.Meta("label", c.ID)})
			}
			fields = append(fields, event.Fields{event.Meta("id", x.ID), event.Meta("type", x.Type), event.Meta("label", x.ID),
				event.Meta("multi", x.Multi), event.Meta("other", x.Other), event.Meta("choices", choices)})
		}
		ask := seal(&event.Draft{Header: event.Header{ID: "q", Type: "attention.requested", Time: t0, Source: "aep://h", Agent: "a", Session: "s", Sequenced: true},
			Fields: event.Fields{event.Meta("kind", "form"), event.Meta("prompt", "p"), event.Meta("fields", fields)}})
		told := event.Event{Header: event.Header{ID: "a", Type: "attention.answered", Time: t0, Source: "aep://h", Agent: "a", Session: "s", Subject: "q",
			Sequenced: true, Seq: 1, Capture: event.Redacted}, Data: event.AppendValue(nil, map[string]any{"answer": map[string]any{"values": a.Values}})}
		for _, e := range []event.Event{ask, told} {
			for _, v := range append(event.Check(e), stream.Add(e)...) {
				t.Fatalf("%s: %v", raw, v.Error())
			}
		}
		again, fault := r.Read(map[string]any{"values": a.Values})
		if fault != "" || string(event.AppendValue(nil, again.Values)) != string(event.AppendValue(nil, a.Values)) {
			t.Fatalf("%s became %v, and then %v (%s)", raw, a.Values, again.Values, fault)
		}
	})
}

func TestWords(t *testing.T) {
	for in, want := range map[string]string{"rejectOnce": "reject once", "reject_once": "reject once", "No, and": "no and", "ALLOW": "allow", "": "", "ünÖ": "ün ö"} {
		if got := strings.Join(words(in), " "); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestLongNamesAreCut(t *testing.T) {
	r := Request{Kind: "permission", Options: options("allow")}
	_, fault := r.Read(map[string]any{"option": strings.Repeat("é", 10_000)})
	if len(fault) > 300 {
		t.Errorf("a detail of %d bytes: %s", len(fault), fmt.Sprintf("%.80s", fault))
	}
}
