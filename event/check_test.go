package event

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	tests := []struct {
		name, typ string
		capture   Level
		data      string
		want      []string // rule and path of each finding
	}{
		{"legal", "tool.requested", Metadata, `{"tool":{"name":"Bash"}}`, nil},
		{"unknown members pass", "tool.requested", Metadata, `{"tool":{"name":"Bash","x":{}},"x":[null]}`, nil},
		{"unknown types pass", "tool.imagined", Metadata, `{"tool":7}`, nil},
		{"vendor types pass", "x.acme.a.b", Metadata, `{"tool":7}`, nil},
		{"reserved types pass", "message.user.submitted", Metadata, `{"text":"x"}`, nil},
		{"no data", "progress.status", Metadata, "", nil},
		{"no data where some is required", "tool.denied", Metadata, "", []string{"payload data.tool", "payload data.by"}},
		{"no data at none", "tool.denied", None, "", nil},
		{"data at none", "tool.denied", None, `{}`, []string{"capture capture"}},
		{"required", "tool.denied", Metadata, `{"tool":{}}`, []string{"payload data.by", "payload data.tool.name"}},
		{"enum", "tool.denied", Metadata, `{"tool":{"name":"a"},"by":"me"}`, []string{"payload data.by"}},
		{"null", "tool.requested", Metadata, `{"tool":null}`, []string{"payload data.tool"}},
		{"two types", "tool.completed", Full, `{"tool":{"name":"a"},"result":{},"result_redacted":"x"}`, nil},
		{"neither of two types", "tool.completed", Full, `{"tool":{"name":"a"},"result":[]}`, []string{"payload data.result"}},
		{"integer spelt otherwise", "agent.heartbeat", Metadata, `{"tick":4.0e1}`, nil},
		{"fraction", "agent.heartbeat", Metadata, `{"tick":4.5}`, []string{"payload data.tick"}},
		{"minimum", "agent.heartbeat", Metadata, `{"tick":-1}`, []string{"payload data.tick"}},
		{"maximum", "progress.status", Metadata, `{"percent":100.5}`, []string{"payload data.percent"}},
		{"beyond a double", "progress.status", Metadata, `{"percent":1e999}`, []string{"payload data.percent"}},
		{"number", "progress.status", Metadata, `{"percent":"50"}`, []string{"payload data.percent"}},
		{"above the level", "progress.status", Metadata, `{"message":"x"}`, []string{"capture data.message"}},
		{"at the level", "progress.status", Redacted, `{"message":"x"}`, nil},
		{"full above redacted", "tool.requested", Redacted, `{"tool":{"name":"a"},"args":{}}`, []string{"capture data.args"}},
		{"deep in arrays", "resource.citation.recorded", Metadata, `{"citations":[{},{"cited_text":"x","source":{"uri":"u"}}]}`, []string{"capture data.citations[1].source.uri", "capture data.citations[1].cited_text"}},
		{"items", "attention.requested", Metadata, `{"kind":"input","prompt":"p","respond_via":["control","mail",1]}`, []string{"payload data.respond_via[1]", "payload data.respond_via[2]"}},
		{"instant", "attention.requested", Metadata, `{"kind":"input","prompt":"p","expires_at":"tomorrow"}`, []string{"payload data.expires_at"}},
		{"option", "attention.requested", Metadata, `{"kind":"input","prompt":"p","options":[{"id":"a"}]}`, []string{"payload data.options[0].label"}},
		{"select without choices", "attention.requested", Metadata, `{"kind":"form","prompt":"p","fields":[{"id":"1","type":"string","label":"1"},{"id":"2","type":"select","label":"2"}]}`, []string{"form data.fields[1]"}},
		{"select with choices", "attention.requested", Metadata, `{"kind":"form","prompt":"p","fields":[{"id":"2","type":"select","label":"2","choices":[]}]}`, nil},
		{"fields of the wrong type", "attention.requested", Metadata, `{"kind":"form","prompt":"p","fields":{"id":"2"}}`, []string{"payload data.fields"}},
		{"cancelled by a command", "run.cancelled", Metadata, `{"by":"control"}`, []string{"commanded-cause a"}},
		{"cancelled by the user", "run.cancelled", Metadata, `{"by":"user"}`, nil},
		{"no JSON", "run.cancelled", Metadata, `{"by":`, []string{"json data:"}},
		{"no object", "run.cancelled", Metadata, `[]`, []string{"json data:"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			e := Event{Header: Header{Type: tt.typ, Capture: tt.capture}}
			if tt.data != "" {
				e.Data = json.RawMessage(tt.data)
			}
			var got []string
			for _, v := range Check(e) {
				path, _, _ := strings.Cut(v.Detail, " ")
				got = append(got, v.Rule+" "+path)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("found %q, want %q", got, tt.want)
			}
		})
	}
}

func TestLookup(t *testing.T) {
	if _, ok := Lookup("tool.imagined"); ok {
		t.Error("an unknown type is found")
	}
	info, _ := Lookup("resource.citation.recorded")
	for path, want := range map[string]Level{
		"count": Metadata, "citations": Metadata, "citations/[]/cited_text": Full, "citations/[]/cited_text_redacted": Redacted,
		"citations/[]/source/uri": Redacted, "citations/[]/offset/char/start": Metadata,
	} {
		if got, ok := info.Level(strings.Split(path, "/")...); !ok || got != want {
			t.Errorf("%s: %v, %v; want %v", path, got, ok, want)
		}
	}
	for _, path := range []string{"x", "count/x", "count/[]", "citations/[]/x/y"} {
		if got, ok := info.Level(strings.Split(path, "/")...); ok || got != Metadata {
			t.Errorf("%s: %v, %v; want unknown, and so metadata", path, got, ok)
		}
	}
	for typ, want := range map[string]bool{"tool.requested": true, "control.pause": false, "control.accepted": false, "message.user.submitted": false} {
		if info, ok := Lookup(typ); !ok || info.Annotated() != want {
			t.Errorf("%s: annotated %v, want %v", typ, info.Annotated(), want)
		}
	}
	if n := len(Types()); n != len(registry) || !slices.IsSorted(Types()) {
		t.Errorf("Types gives %d of %d, or not sorted", n, len(registry))
	}
	for typ, want := range map[string]Scope{
		"agent.presence": AgentScope, "attention.routed": CommandScope, "attention.requested": SessionScope, "control.cancel": CommandScope, "control.pause": CommandScope,
		"control.resume": CommandScope, "control.attention.respond": CommandScope, "control.accepted": SessionScope, "control.rejected": SessionScope, "control.other": SessionScope,
		"x.acme.control.instruct": CommandScope, "x.acme.controls.instruct": SessionScope, "x.acme.agent.idle": SessionScope, "x.control.a.b": SessionScope, "tool.requested": SessionScope,
	} {
		if got := ScopeOf(typ); got != want {
			t.Errorf("%s: %s, want %s", typ, got, want)
		}
	}
}

// step is an event of a stream in short.
type step struct {
	e    Event
	want []string // the rules it breaks
}

func ev(id, typ string, epoch, seq int64, more ...func(*Event)) Event {
	e := wholeEvent()
	e.Ext, e.Data, e.Cause, e.Subject, e.Step = nil, nil, "", "", ""
	e.ID, e.Type, e.Epoch, e.Seq, e.Run = id, typ, epoch, seq, "r1"
	e.Sequenced = ScopeOf(typ) == SessionScope
	for _, m := range more {
		m(&e)
	}
	return e
}

func of(source string) func(*Event)    { return func(e *Event) { e.Source = source } }
func in(session string) func(*Event)   { return func(e *Event) { e.Session = session } }
func run(name string) func(*Event)     { return func(e *Event) { e.Run = name } }
func on(subject string) func(*Event)   { return func(e *Event) { e.Subject = subject } }
func cause(id string) func(*Event)     { return func(e *Event) { e.Cause = id } }
func data(raw string) func(*Event)     { return func(e *Event) { e.Data = json.RawMessage(raw) } }
func capture(level Level) func(*Event) { return func(e *Event) { e.Capture = level } }

const form = `{"kind":"form","prompt":"p","fields":[{"id":"s","type":"string","label":"s"},{"id":"n","type":"number","label":"n"},{"id":"b","type":"boolean","label":"b"},` +
	`{"id":"one","type":"select","label":"o","choices":[{"id":"1","label":"1"},{"id":"2","label":"2"}]},` +
	`{"id":"any","type":"select","label":"a","multi":true,"other":true,"choices":[{"id":"1","label":"1"},{"id":"2","label":"2"}]}]}`

func answered(values string, level Level) []step {
	return []step{{ev("1", "attention.requested", 0, 0, data(form)), nil}, {ev("2", "attention.answered", 0, 1, on("1"), capture(level), data(`{"answer":{"values":`+values+`}}`)), nil}}
}

func TestStream(t *testing.T) {
	broken := func(steps []step, rules ...string) []step {
		steps[len(steps)-1].want = rules
		return steps
	}
	tests := map[string][]step{
		"gaps and new epochs": {{ev("1", "progress.status", 0, 5), nil}, {ev("2", "progress.status", 0, 90), nil}, {ev("3", "progress.status", 7, 0), nil}, {ev("4", "progress.status", 7, 1), nil}},
		"redelivery": {{ev("1", "run.finished", 0, 5), nil}, {ev("2", "session.ended", 0, 6), nil}, {ev("1", "run.finished", 0, 5), nil}, {ev("2", "session.ended", 0, 6), nil},
			{ev("3", "control.accepted", 0, 7, cause("c")), nil}, {ev("3", "control.accepted", 0, 7, cause("c")), nil}},
		"redelivery spelt otherwise": {{ev("1", "progress.status", 0, 5, data(`{"a":1,"b":[2.0]}`)), nil}, {ev("1", "progress.status", 0, 5, data(` {"b":[2],"a":1}`)), nil}},
		"one id, other content":      {{ev("1", "progress.status", 0, 5), nil}, {ev("1", "progress.status", 0, 6), []string{RuleIdentity}}},
		"one id, other data":         {{ev("1", "progress.status", 0, 5, data(`{"a":1}`)), nil}, {ev("1", "progress.status", 0, 5, data(`{"a":2}`)), []string{RuleIdentity}}},
		"one id, no data":            {{ev("1", "progress.status", 0, 5, data(`{}`)), nil}, {ev("1", "progress.status", 0, 5), []string{RuleIdentity}}},
		"one id, other sources":      {{ev("1", "progress.status", 0, 5), nil}, {ev("1", "progress.status", 0, 5, of("aep:b")), nil}},
		"one position, two events":   {{ev("1", "progress.status", 0, 5), nil}, {ev("2", "progress.status", 0, 5), []string{RulePosition}}},
		"seq goes back":              {{ev("1", "progress.status", 0, 5), nil}, {ev("2", "progress.status", 0, 3), []string{RulePosition}}, {ev("3", "progress.status", 0, 6), nil}},
		"epoch goes back":            {{ev("1", "progress.status", 1, 0), nil}, {ev("2", "progress.status", 0, 9), []string{RulePosition}}},
		"sessions and sources apart": {{ev("1", "progress.status", 1, 5), nil}, {ev("2", "progress.status", 0, 3, in("other")), nil}, {ev("3", "progress.status", 0, 3, of("aep:b")), nil}},
		"terminals over epochs":      {{ev("1", "run.finished", 0, 5), nil}, {ev("2", "run.failed", 1, 0), []string{RuleTerminal}}},
		"terminals apart": {{ev("1", "run.finished", 0, 5), nil}, {ev("2", "run.finished", 0, 6, run("r2")), nil}, {ev("3", "run.finished", 0, 0, of("aep:b")), nil}, {ev("4", "run.finished", 0, 0, in("b")), nil},
			{ev("5", "run.finished", 0, 7, run("")), nil}, {ev("6", "run.finished", 0, 8, run("")), nil}},
		"late events":            {{ev("1", "session.ended", 0, 5), nil}, {ev("2", "tool.completed", 0, 6), nil}, {ev("3", "run.finished", 0, 7), nil}, {ev("4", "attention.requested", 0, 8), nil}},
		"a session ends twice":   {{ev("1", "session.ended", 0, 5), nil}, {ev("2", "session.ended", 3, 0), []string{RuleTerminal}}},
		"two acks":               {{ev("1", "control.accepted", 0, 5, cause("c")), nil}, {ev("2", "control.rejected", 0, 6, cause("c")), []string{RuleAck}}},
		"acks of two commands":   {{ev("1", "control.accepted", 0, 5, cause("c")), nil}, {ev("2", "control.accepted", 0, 6, cause("d")), nil}},
		"acks without a command": {{ev("1", "control.accepted", 0, 5), nil}, {ev("2", "control.accepted", 0, 6), nil}},
		"two senders' commands of one id": {{ev("c", "control.pause", 0, 0), nil}, {ev("c", "control.pause", 0, 0, of("aep:b")), nil},
			{ev("1", "control.accepted", 0, 5, cause("c")), nil}, {ev("2", "control.accepted", 0, 6, cause("c")), nil}, {ev("3", "control.accepted", 0, 7, cause("c")), []string{RuleAck}}},
		"a retried command":            {{ev("c", "control.pause", 0, 0), nil}, {ev("c", "control.pause", 0, 0), nil}, {ev("1", "control.accepted", 0, 5, cause("c")), nil}, {ev("2", "control.accepted", 0, 6, cause("c")), []string{RuleAck}}},
		"attention left open":          {{ev("1", "attention.requested", 0, 0), nil}, {ev("2", "attention.answered", 0, 1, on("1")), nil}, {ev("3", "session.ended", 0, 2), []string{RuleAttention}}},
		"two left open":                {{ev("1", "attention.requested", 0, 0), nil}, {ev("2", "attention.requested", 0, 1), nil}, {ev("3", "session.ended", 0, 2), []string{RuleAttention, RuleAttention}}},
		"attention closed":             {{ev("1", "attention.requested", 0, 0), nil}, {ev("2", "attention.requested", 0, 1), nil}, {ev("3", "attention.resolved", 0, 2, on("1")), nil}, {ev("4", "attention.timeout", 0, 3, on("2")), nil}, {ev("5", "session.ended", 0, 4), nil}},
		"attention of another session": {{ev("1", "attention.requested", 0, 0, in("b")), nil}, {ev("2", "session.ended", 0, 2), nil}},
		"attention of another source":  {{ev("1", "attention.requested", 0, 0, of("aep:b")), nil}, {ev("2", "session.ended", 0, 2), nil}},
		"closed by another subject":    {{ev("1", "attention.requested", 0, 0), nil}, {ev("2", "attention.resolved", 0, 1, on("tool")), nil}, {ev("3", "session.ended", 0, 2), []string{RuleAttention}}},
		"routed has no position":       {{ev("1", "attention.requested", 0, 0), nil}, {ev("2", "attention.routed", 0, 0, on("1")), nil}, {ev("3", "attention.resolved", 0, 1, on("1")), nil}},
		"agent events":                 {{ev("1", "agent.heartbeat", 0, 0, in(""), run("")), nil}, {ev("2", "agent.heartbeat", 0, 0, in(""), run("")), nil}},

		"answers":                        answered(`{"s":"x","n":1.5,"b":true,"one":"2","any":["1","more"]}`, Redacted),
		"answers at metadata":            answered(`{"n":1,"b":false,"one":"1","any":["1","2"]}`, Metadata),
		"one choice of a multi":          answered(`{"any":"1"}`, Metadata),
		"unknown keys":                   answered(`{"x":"y"}`, Redacted),
		"no values":                      answered(`null`, Redacted),
		"number as a string":             broken(answered(`{"n":"1"}`, Redacted), RuleAnswer),
		"boolean as a number":            broken(answered(`{"b":1}`, Redacted), RuleAnswer),
		"string as an array":             broken(answered(`{"s":["x"]}`, Redacted), RuleAnswer),
		"no choice of a closed select":   broken(answered(`{"one":"3"}`, Redacted), RuleAnswer),
		"several of a single select":     broken(answered(`{"one":["1","2"]}`, Redacted), RuleAnswer),
		"a choice that is a number":      broken(answered(`{"any":[1]}`, Redacted), RuleAnswer),
		"null":                           broken(answered(`{"s":null}`, Redacted), RuleAnswer),
		"text at metadata":               broken(answered(`{"s":"x"}`, Metadata), RuleCapture),
		"other at metadata":              broken(answered(`{"any":["1","more"]}`, Metadata), RuleCapture),
		"unknown text at metadata":       broken(answered(`{"x":"y"}`, Metadata), RuleCapture),
		"two wrong":                      broken(answered(`{"n":"1","b":1}`, Redacted), RuleAnswer, RuleAnswer),
		"answers to an unseen request":   {{ev("2", "attention.answered", 0, 1, on("1"), data(`{"answer":{"values":{"n":"1"}}}`)), nil}},
		"answers to one that is no form": {{ev("1", "attention.requested", 0, 0, data(`{"kind":"input","prompt":"p"}`)), nil}, {ev("2", "attention.answered", 0, 1, on("1"), data(`{"answer":{"values":{"n":"1"}}}`)), nil}},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			s := NewStream()
			for i, st := range steps {
				var got []string
				for _, v := range s.Add(st.e) {
					got = append(got, v.Rule)
					if v.Section == "" || v.Detail == "" {
						t.Errorf("event %d: %+v says too little", i, v)
					}
				}
				if !slices.Equal(got, st.want) {
					t.Errorf("event %d (%s) breaks %q, want %q", i, st.e.ID, got, st.want)
				}
			}
		})
	}
}

// What a stream has forgotten it does not hold against an event, and it does
// not grow without bound.
func TestStreamForgets(t *testing.T) {
	s := NewStream()
	s.limit = 100
	first := ev("first", "run.finished", 0, 0)
	s.Add(first)
	for i := range int64(1000) {
		if v := s.Add(ev(fmt.Sprint(i), "progress.status", 0, i+1)); v != nil {
			t.Fatal(v)
		}
	}
	if v := s.Add(first); v != nil {
		t.Errorf("a forgotten event, delivered again, breaks %v", v)
	}
	if v := s.Add(ev("999", "progress.status", 0, 4000)); len(v) != 1 || v[0].Rule != RuleIdentity {
		t.Errorf("a collision that is remembered: %v", v)
	}
	if len(s.facts) > s.limit || len(s.order) > s.limit {
		t.Errorf("%d facts, want at most %d", len(s.facts), s.limit)
	}
	for i := range 2 * streamSessions {
		s.Add(ev(fmt.Sprint("s", i), "progress.status", 0, 0, in(fmt.Sprint("s", i))))
	}
	if len(s.sessions) > streamSessions || len(s.queue) > streamSessions {
		t.Errorf("%d sessions, want at most %d", len(s.sessions), streamSessions)
	}
	for i := range int64(2 * streamRequests) {
		s.Add(ev(fmt.Sprint("r", i), "attention.requested", 9, i))
	}
	for _, f := range s.sessions {
		if len(f.requests) > streamRequests {
			t.Errorf("%d requests, want at most %d", len(f.requests), streamRequests)
		}
	}
}
