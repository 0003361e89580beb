package generic

import (
	"strings"
	"testing"

	"aep-wrap/adapters"
	"aep-wrap/adapters/adaptertest"
	"aep-wrap/event"
	"aep-wrap/event/eventtest"
)

// golden are the corpus's events, as a program would write them.
func golden(t testing.TB) (ms []adapters.Moment) {
	for _, raw := range eventtest.Lines(t, "fixtures", "golden", "golden.jsonl") {
		p, err := event.ParseObject(raw)
		if err != nil {
			t.Fatal(err)
		}
		ms = append(ms, adapters.Moment{Channel: adapters.Drafts, Payload: p, Raw: raw, Session: "s"})
	}
	return ms
}

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Spec{
		Adapter:  Adapter(),
		Pins:     []string{"pins.json"},
		Captures: golden,
		Declared: declared,
	})
}

func FuzzMap(f *testing.F) { adaptertest.Fuzz(f, Adapter(), golden(f)) }

// declared says what a line's draft may show: the registry knows.
func declared(_ adapters.Moment, typ string) (out []adapters.TermField) {
	for _, k := range []string{"session", "run", "step", "subject", "type"} {
		out = append(out, adapters.TermField{Member: "(" + k + ")", From: k})
	}
	out = append(out, adapters.TermField{Member: "type", From: "type"})
	if event.Category(typ) == "tool" {
		out = append(out, adapters.TermField{Member: "(subject)", From: "data.tool.name"})
	}
	info, _ := event.Lookup(typ)
	var walk func(at string, f *event.Fact)
	walk = func(at string, f *event.Fact) {
		if f == nil {
			return
		}
		for i := range f.Members {
			m := &f.Members[i]
			name := strings.ReplaceAll(m.Name, ".", `\.`)
			level := m.Level
			if m.Star || m.PerKey {
				level = event.Redacted
			}
			if base, ok := familyOf(f, m.Name); ok && m.Name == base {
				level = event.Redacted
			}
			out = append(out, adapters.TermField{Member: "tool.name", From: at + name, Level: level})
			walk(at+name+".", m)
			if m.Item != nil {
				walk(at+name+".*.", m.Item)
				out = append(out, adapters.TermField{Member: "tool.name", From: at + name + ".*", Level: level})
			}
		}
	}
	walk("data.", info.Data)
	// Words of unknown members, at any depth that the tests have.
	for _, at := range []string{"data.*", "data.*.*", "data.*.*.*", "data.*.*.*.*"} {
		out = append(out, adapters.TermField{Member: "unknown", From: at})
	}
	return out
}

func TestLines(t *testing.T) {
	for _, tt := range []struct{ name, line, typ, subject, pair, key string }{
		{"a run", `{"type":"run.started","run":"r1","data":{"trigger":"user","prompt":"fix it"}}`, "run.started", "", "", ""},
		{"a tool", `{"type":"tool.requested","data":{"tool":{"name":"grep","call_id":"c1"},"args":{"p":1}}}`, "tool.requested", "grep", "c1", "c1"},
		{"an answer", `{"type":"attention.answered","subject":"q1","data":{"answer":{"text":"eu"}}}`, "attention.answered", "", "q1", ""},
		{"named", `{"type":"progress.status","id":"l1","data":{"message":"x"}}`, "progress.status", "", "", "l1"},
		{"of a vendor", `{"type":"x.my-tool.build.done","data":{"ok":true,"text":"some prose"}}`, "x.my-tool.build.done", "", "", ""},
		{"unknown", `{"type":"run.exploded","data":{}}`, "x.generic.draft.refused", "", "", ""},
		{"reserved", `{"type":"message.user.submitted","data":{}}`, "x.generic.draft.refused", "", "", ""},
		{"a command", `{"type":"control.cancel","data":{"scope":"run"}}`, "x.generic.draft.refused", "", "", ""},
		{"an ack", `{"type":"control.accepted"}`, "x.generic.draft.refused", "", "", ""},
		{"a vendor's command", `{"type":"x.me.control.instruct","data":{}}`, "x.generic.draft.refused", "", "", ""},
		{"of a router", `{"type":"attention.routed","data":{}}`, "x.generic.draft.refused", "", "", ""},
		{"of the wrapper", `{"type":"x.aep-wrap.queue.dropped","data":{"count":1}}`, "x.generic.draft.refused", "", "", ""},
		{"incomplete", `{"type":"tool.requested","data":{"args":{}}}`, "x.generic.draft.refused", "", "", ""},
		{"mistyped", `{"type":"run.failed","data":{"reason":7}}`, "x.generic.draft.refused", "", "", ""},
		{"no type", `{"data":{}}`, "x.generic.draft.refused", "", "", ""},
		{"one segment", `{"type":"x.me.done"}`, "x.generic.draft.refused", "", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := event.ParseObject([]byte(tt.line))
			if err != nil {
				t.Fatal(err)
			}
			ds := Map(adapters.Moment{Channel: adapters.Drafts, Payload: p, Session: "s"})
			if len(ds) != 1 {
				t.Fatalf("%d drafts", len(ds))
			}
			d := ds[0]
			if d.Type != tt.typ || d.Subject != tt.subject || d.Pair != tt.pair || d.Key != tt.key || d.Session != "s" {
				t.Errorf("%s subject=%q pair=%q key=%q session=%q; want %+v", d.Type, d.Subject, d.Pair, d.Key, d.Session, tt)
			}
			for _, f := range d.Fields {
				if s, ok := f.Value.(string); ok && f.Level == event.Metadata && f.Kind == event.Plain && strings.Contains(s, " ") {
					t.Errorf("prose at metadata: %s = %q", f.Name, s)
				}
			}
		})
	}
}

// What the corpus's golden events say is understood: nothing of a registered
// type that a program may emit is refused.
func TestGoldenIsUnderstood(t *testing.T) {
	n := 0
	for _, m := range golden(t) {
		typ, _ := m.Payload["type"].(string)
		d := Map(m)[0]
		if foreign(typ) {
			continue
		}
		n++
		if d.Type != typ {
			t.Errorf("%s became %s (%v)", typ, d.Type, d.Fields)
		}
	}
	if n == 0 {
		t.Error("no golden event was tried")
	}
}

func TestStart(t *testing.T) {
	ds := Map(adapters.Moment{Channel: adapters.Process, Name: adapters.ProcessStart, Session: "s", Payload: map[string]any{"command": "/usr/bin/make", "cwd": "/home/u"}})
	if len(ds) != 1 || ds[0].Type != "session.started" || ds[0].Fields.Str("client", "name") != "make" || ds[0].Key != "s" {
		t.Errorf("%+v", ds)
	}
}

func TestWire(t *testing.T) {
	w, err := wire(adapters.Launch{Args: []string{"make"}, Dir: "/w", Env: []string{"AEP_EVENTS_FILE=out.jsonl"}}, adapters.Endpoint{})
	if err != nil || !w.EventsFD || len(w.Logs) != 1 || w.Logs[0].Path != "/w/out.jsonl" {
		t.Errorf("%+v, %v", w, err)
	}
}
