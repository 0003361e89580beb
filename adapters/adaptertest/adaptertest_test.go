package adaptertest

import (
	"fmt"
	"strings"
	"testing"

	"aep-wrap/adapters"
	"aep-wrap/adapters/hook"
	"aep-wrap/event"
)

// Each fault that the suite is for is built into an adapter, and found.
func TestTheSuiteFinds(t *testing.T) {
	payload := func() map[string]any {
		return map[string]any{"tool": "Bash", "call": "c1", "input": map[string]any{"command": "ls"}, "secret": "x", "words": "some text"}
	}
	m := adapters.Moment{Channel: adapters.Hook, Name: "use", Payload: payload(), Session: "s"}
	row := func(facts ...hook.Fact) adapters.Adapter {
		table := hook.New(hook.Vocabulary{Vendor: "bad", Channel: adapters.Hook,
			Rows: map[string]hook.Row{"use": hook.Emit("tool.requested", append([]hook.Fact{hook.Tool("tool", "call")}, facts...)...)}})
		return adapters.Adapter{Name: "bad", Map: table.Map, Vocabulary: table.Terms}
	}
	calls := 0
	request := hook.New(hook.Vocabulary{Vendor: "bad", Channel: adapters.Hook,
		Rows: map[string]hook.Row{"use": hook.Emit("attention.requested", hook.Permission("tool", "input"))}})
	status := hook.New(hook.Vocabulary{Vendor: "bad", Channel: adapters.Hook, Rows: map[string]hook.Row{
		"use": hook.Emit("progress.status", hook.Do("", []adapters.TermField{{Member: "message", From: "words", Level: event.Full}},
			func(in *hook.In, d *event.Draft) bool {
				d.Fields = append(d.Fields, event.Text("message", in.Get("words")))
				return true
			}))}})
	tests := []struct {
		name    string
		check   func(Spec, []adapters.Moment, report)
		adapter adapters.Adapter
		want    string // "" finds nothing
	}{
		{"good", canary, row(hook.Content("args", "input")), ""},
		{"undeclared", canary, row(hook.Do("", nil, func(in *hook.In, d *event.Draft) bool {
			d.Fields = append(d.Fields, event.Meta("x", in.Get("secret")))
			return true
		})), "secret at metadata: it appears, and the vocabulary does not say so"},
		{"too low", canary, adapters.Adapter{Name: "bad", Map: status.Map, Vocabulary: status.Terms},
			"words at redacted: it appears, and is declared from full on"},
		{"prose", canary, row(hook.Do("", []adapters.TermField{{Member: "x", From: "words"}}, func(in *hook.In, d *event.Draft) bool {
			d.Fields = append(d.Fields, event.Meta("x", in.Get("words")))
			return true
		})), "words at metadata: prose appears"},
		{"envelope", canary, row(hook.Do("", nil, func(in *hook.In, d *event.Draft) bool { d.Subject = in.Str("words"); return true })),
			"words at none: it appears, and the vocabulary does not say so"},
		{"counts", pure, adapters.Adapter{Map: func(adapters.Moment) []event.Draft {
			calls++
			return []event.Draft{{Key: fmt.Sprint(calls)}}
		}}, "two readings"},
		{"scribbles", pure, adapters.Adapter{Map: func(m adapters.Moment) []event.Draft { m.Payload["x"] = true; return nil }}, "was changed"},
		{"pure", pure, row(), ""},
		{"enum", ceilings, row(hook.Const("by", "nobody")), ""},
		{"off its schema", ceilings, adapters.Adapter{Name: "bad", Map: func(adapters.Moment) []event.Draft {
			return []event.Draft{{Header: event.Header{Type: "run.cancelled", Run: "r"}, Fields: event.Fields{event.Meta("by", "nobody")}}}
		}}, "by"},
		{"no such type", ceilings, adapters.Adapter{Name: "bad", Map: func(adapters.Moment) []event.Draft {
			return []event.Draft{{Header: event.Header{Type: "Tool Requested"}}}
		}}, "type"},
		{"unanswerable", replies, adapters.Adapter{Map: request.Map}, "Reply is nil"},
		{"mute", replies, adapters.Adapter{Map: request.Map, Reply: func(adapters.Moment, adapters.Answer) []byte { return nil }}, `option allow is answered with ""`},
		{"yes-man", replies, adapters.Adapter{Map: request.Map, Reply: func(adapters.Moment, adapters.Answer) []byte { return []byte("{}") }}, "no answer is answered"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var found []string
			fresh := m
			fresh.Payload = payload()
			tt.check(Spec{Adapter: tt.adapter}, []adapters.Moment{fresh}, func(format string, args ...any) {
				found = append(found, fmt.Sprintf(format, args...))
			})
			all := strings.Join(found, "\n")
			if tt.want == "" && all != "" {
				t.Errorf("found %s", all)
			}
			if !strings.Contains(all, tt.want) {
				t.Errorf("found %q; want %q", all, tt.want)
			}
		})
	}
}

func TestCovers(t *testing.T) {
	for _, tt := range []struct {
		from, path string
		below      bool
		want       bool
	}{
		{"a", "a", false, true},
		{"a", "a b", false, false},
		{"a", "a b", true, true},
		{"a.*.b", "a 0 b", false, true},
		{"a.*.b", "a 0 c", true, false},
		{`a\.b`, "a.b", false, true},
		{"a.b", "a.b", false, false},
		{"x.enum", "x enum 0", false, true},
		{"", "a", true, false},
	} {
		if got := covers(tt.from, strings.Fields(tt.path), tt.below); got != tt.want {
			t.Errorf("covers(%q, %q, %v) = %v", tt.from, tt.path, tt.below, got)
		}
	}
}
