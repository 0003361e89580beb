package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

// wholeLine has every attribute, and two extensions.
const wholeLine = `{"aep":"0.1","id":"01J","type":"tool.completed","subject":"Bash","time":"2026-07-03T10:15:04.221Z","source":"aep://host-a/agent/claude-code/session/s_8f2c","agent":"claude-code","session":"s_8f2c","run":"r_0042","step":"turn-3","seq":0,"epoch":2,"cause":"01H","traceparent":"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01","severity":"notice","capture":"redacted","acmecount":7,"acmeregion":"eu-1","data":{"tool":{"name":"Bash","call_id":"t_91"},"status":"success","result_redacted":"<é>\n"}}`

func wholeEvent() Event {
	return Event{Header: Header{ID: "01J", Type: "tool.completed", Subject: "Bash", Time: time.Date(2026, 7, 3, 10, 15, 4, 221e6, time.UTC),
		Source: "aep://host-a/agent/claude-code/session/s_8f2c", Agent: "claude-code", Session: "s_8f2c", Run: "r_0042", Step: "turn-3",
		Sequenced: true, Epoch: 2, Cause: "01H", Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
		Severity: Notice, Capture: Redacted, Ext: map[string]any{"acmeregion": "eu-1", "acmecount": int64(7)}},
		Data: json.RawMessage(`{"tool":{"name":"Bash","call_id":"t_91"},"status":"success","result_redacted":"<é>\n"}`)}
}

func TestAppendJSON(t *testing.T) {
	whole := wholeEvent()
	in := Event{Header: Header{ID: "a\"b", Type: "agent.idle", Time: time.Date(2026, 1, 2, 3, 4, 5, 999_999_999, time.FixedZone("", 3600)), Source: "aep:x", Agent: "é\xff", Capture: None}}
	pretty := Event{Header: Header{ID: "1", Type: "control.pause", Time: time.Unix(0, 0), Source: "aep:x", Agent: "a", Session: "s", Ext: map[string]any{"b": true, "a": int64(-1), "n": json.Number("18446744073709551615"), "Bad": "x", "bad": 1.5}},
		Data: json.RawMessage("{\n \"a\":\r\n 1}")}
	for _, tt := range []struct {
		e    Event
		want string
	}{
		{whole, wholeLine},
		{in, `{"aep":"0.1","id":"a\"b","type":"agent.idle","time":"2026-01-02T02:04:05.999Z","source":"aep:x","agent":"é` + "\ufffd" + `","capture":"none"}`},
		{pretty, `{"aep":"0.1","id":"1","type":"control.pause","time":"1970-01-01T00:00:00.000Z","source":"aep:x","agent":"a","session":"s","capture":"metadata","a":-1,"b":true,"n":18446744073709551615,"data":{ "a": 1}}`},
	} {
		if got := string(tt.e.AppendJSON(nil)); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
		if m, err := json.Marshal(tt.e); err != nil || !json.Valid(m) {
			t.Errorf("Marshal: %s, %v", m, err)
		}
	}
	buf := make([]byte, 0, 2<<10)
	if n := testing.AllocsPerRun(100, func() { whole.AppendJSON(buf) }); n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}

func TestParse(t *testing.T) {
	e, err := Parse([]byte(wholeLine))
	if err != nil {
		t.Fatal(err)
	}
	if want := wholeEvent(); !reflect.DeepEqual(e, want) {
		t.Errorf("got  %+v\nwant %+v", e, want)
	}
	var u Event
	if err := json.Unmarshal([]byte(wholeLine), &u); err != nil || !reflect.DeepEqual(u, e) {
		t.Errorf("Unmarshal: %+v, %v", u, err)
	}
	line := []byte(wholeLine)
	h, data, err := ParseHeader(line)
	if err != nil || !reflect.DeepEqual(h, e.Header) || !bytes.Equal(data, e.Data) {
		t.Errorf("ParseHeader: %+v, %s, %v", h, data, err)
	}
	if &data[0] != &line[bytes.Index(line, []byte(`{"tool"`))] {
		t.Error("data is no part of the line")
	}
	for i := range line {
		line[i] = 'X'
	}
	if !reflect.DeepEqual(h, e.Header) {
		t.Error("the header aliases its line")
	}
}

// edit gives wholeLine with one attribute replaced by a raw value, or removed
// when that is "".
func edit(name, value string) string {
	i := strings.Index(wholeLine, `"`+name+`":`)
	if i < 0 {
		return strings.TrimSuffix(wholeLine, "}") + `,"` + name + `":` + value + "}"
	}
	start := i + len(name) + 3
	s := scanner{b: []byte(wholeLine), i: start}
	if !s.skip(0) {
		panic(s.err)
	}
	if value == "" {
		return strings.Replace(wholeLine[:i]+strings.TrimPrefix(wholeLine[s.i:], ","), ",}", "}", 1)
	}
	return wholeLine[:start] + value + wholeLine[s.i:]
}

func TestParseAttributes(t *testing.T) {
	legal := []struct{ name, value string }{
		{"id", `"\u0061\ud83d\ude00"`}, {"subject", ""}, {"run", ""}, {"step", ""}, {"cause", ""}, {"traceparent", ""}, {"severity", ""}, {"capture", ""}, {"epoch", ""}, {"data", ""},
		{"seq", "1.0"}, {"seq", "1e3"}, {"seq", "9223372036854775807"}, {"seq", "-0"}, {"epoch", "1767225600000000000"},
		{"time", `"2026-07-03T10:15:04Z"`}, {"time", `"2026-07-03t10:15:04z"`}, {"time", `"2026-07-03T10:15:04.123456789012+05:30"`}, {"time", `"2024-02-29T00:00:00-00:00"`},
		{"time", `"2016-12-31T23:59:60Z"`}, {"time", `"2016-12-31T18:59:60-05:00"`},
		{"source", `"urn:x:y"`}, {"source", `"http://u:p@[::1]:80/a?b#c"`}, {"source", `"aep://h/agent/a%20b"`}, {"source", `"a+b-c.d:"`}, {"source", `"aep:///agent/a"`},
		{"type", `"x.a-b_0.c.d"`}, {"type", `"tool.a.b_c.0"`}, {"type", `"message.x"`}, {"type", `"x.v.agent.x"`},
		{"acmeext", `""`}, {"acmeext", "false"}, {"acmeext", "-5"}, {"acmeext", "2.0"}, {"acmeext", "123456789012345678901234567890"}, {"12345678901234567890", `"x"`},
		{"data", `{}`}, {"data", `{"a":null,"b":"\ud800"}`}, {"severity", `"critical"`}, {"capture", `"none"`},
	}
	for _, tt := range legal {
		t.Run("legal "+tt.name+" "+tt.value, func(t *testing.T) {
			if _, err := Parse([]byte(edit(tt.name, tt.value))); err != nil {
				t.Error(err)
			}
		})
	}
	broken := []struct{ name, value, rule, section string }{
		{"aep", `"0.2"`, RuleVersion, "AEP-0001 §5.1 #1"}, {"aep", `"1.0"`, RuleMajor, "AEP-0001 §5.1 #1"}, {"aep", `"2"`, RuleMajor, "AEP-0001 §5.1 #1"},
		{"aep", `"x"`, RuleVersion, "AEP-0001 §5.1 #1"}, {"aep", "0.1", RuleValue, "AEP-0001 §5.1 #1"}, {"aep", "", RuleRequired, "AEP-0001 §5.1 #1"},
		{"id", `""`, RuleValue, "AEP-0001 §5.1 #2"}, {"id", "1", RuleValue, "AEP-0001 §5.1 #2"}, {"id", "null", RuleValue, "AEP-0001 §5.1 #2"}, {"id", `"\ud800"`, RuleValue, "AEP-0001 §5.1 #2"},
		{"type", `"tool"`, RuleType, "AEP-0001 §6"}, {"type", `"tool."`, RuleType, "AEP-0001 §6"}, {"type", `"tool..x"`, RuleType, "AEP-0001 §6"}, {"type", `".tool"`, RuleCategory, "AEP-0002 §3"},
		{"type", `"tool.x."`, RuleType, "AEP-0001 §6"}, {"type", `"tool.a-b"`, RuleType, "AEP-0001 §6"}, {"type", `"x"`, RuleType, "AEP-0001 §6"}, {"type", `"x.v"`, RuleType, "AEP-0001 §6"},
		{"type", `"x.v.a"`, RuleType, "AEP-0001 §6"}, {"type", `"x..a.b"`, RuleType, "AEP-0001 §6"}, {"type", `"x.V.a.b"`, RuleType, "AEP-0001 §6"}, {"type", `"x.v.a-b.c"`, RuleType, "AEP-0001 §6"},
		{"type", `"Tool.x"`, RuleCategory, "AEP-0002 §3"}, {"type", `"tools.x"`, RuleCategory, "AEP-0002 §3"}, {"type", "7", RuleValue, "AEP-0001 §5.1 #3"},
		{"type", `"agent.x"`, RuleScope, "AEP-0001 §5.2"}, {"type", `"control.cancel"`, RuleScope, "AEP-0004 §2.2"}, {"type", `"x.v.control.instruct"`, RuleScope, "AEP-0004 §2.2"},
		{"type", `"attention.routed"`, RuleScope, "AEP-0001 §5.2"}, {"session", "", RuleScope, "AEP-0001 §5.2"}, {"seq", "", RuleScope, "AEP-0001 §5.2"},
		{"subject", `""`, RuleValue, "AEP-0001 §5.1 #4"}, {"subject", "null", RuleValue, "AEP-0001 §5.1 #4"},
		{"time", `"2026-07-03T10:15:04"`, RuleValue, "AEP-0001 §5.1 #5"}, {"time", `"2026-07-03 10:15:04Z"`, RuleValue, "AEP-0001 §5.1 #5"}, {"time", `"2026-02-29T00:00:00Z"`, RuleValue, "AEP-0001 §5.1 #5"},
		{"time", `"2026-13-01T00:00:00Z"`, RuleValue, "AEP-0001 §5.1 #5"}, {"time", `"2026-07-03T24:00:00Z"`, RuleValue, "AEP-0001 §5.1 #5"}, {"time", `"2026-07-03T10:15:60Z"`, RuleValue, "AEP-0001 §5.1 #5"},
		{"time", `"2026-07-03T10:15:04.Z"`, RuleValue, "AEP-0001 §5.1 #5"}, {"time", `"2026-07-03T10:15:04+0530"`, RuleValue, "AEP-0001 §5.1 #5"}, {"time", `"2026-07-03T10:15:04+24:00"`, RuleValue, "AEP-0001 §5.1 #5"},
		{"time", "1751537704", RuleValue, "AEP-0001 §5.1 #5"}, {"time", `"+026-07-03T10:15:04Z"`, RuleValue, "AEP-0001 §5.1 #5"},
		{"source", `"host"`, RuleValue, "AEP-0001 §5.1 #6"}, {"source", `"/a/b"`, RuleValue, "AEP-0001 §5.1 #6"}, {"source", `"aep://h/a b"`, RuleValue, "AEP-0001 §5.1 #6"}, {"source", `"aep://h/é"`, RuleValue, "AEP-0001 §5.1 #6"},
		{"source", `"aep://h/%zz"`, RuleValue, "AEP-0001 §5.1 #6"}, {"source", `"aep://h/%2"`, RuleValue, "AEP-0001 §5.1 #6"}, {"source", `"1a:b"`, RuleValue, "AEP-0001 §5.1 #6"}, {"source", `"aep://h/a#b#c"`, RuleValue, "AEP-0001 §5.1 #6"},
		{"source", `"aep://h:port/a"`, RuleValue, "AEP-0001 §5.1 #6"}, {"source", `"aep://h/[a]"`, RuleValue, "AEP-0001 §5.1 #6"}, {"source", `"aep://h/<a>"`, RuleValue, "AEP-0001 §5.1 #6"}, {"source", `"aep://[::1/a"`, RuleValue, "AEP-0001 §5.1 #6"},
		{"agent", `""`, RuleValue, "AEP-0001 §5.1 #7"}, {"agent", "", RuleRequired, "AEP-0001 §5.1 #7"}, {"session", `""`, RuleValue, "AEP-0001 §5.1 #8"},
		{"seq", "-1", RuleValue, "AEP-0001 §5.1 #11"}, {"seq", "1.5", RuleValue, "AEP-0001 §5.1 #11"}, {"seq", `"1"`, RuleValue, "AEP-0001 §5.1 #11"}, {"seq", "null", RuleValue, "AEP-0001 §5.1 #11"},
		{"seq", "9223372036854775808", RuleValue, "AEP-0001 §5.1 #11"}, {"seq", "1e999", RuleValue, "AEP-0001 §5.1 #11"}, {"seq", "true", RuleValue, "AEP-0001 §5.1 #11"},
		{"epoch", "-1", RuleValue, "AEP-0001 §5.1 #12"}, {"epoch", "[]", RuleValue, "AEP-0001 §5.1 #12"},
		{"traceparent", `"00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01"`, RuleValue, "AEP-0001 §5.1 #14"}, {"traceparent", `"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"`, RuleValue, "AEP-0001 §5.1 #14"},
		{"severity", `"Info"`, RuleValue, "AEP-0001 §8.1"}, {"severity", "3", RuleValue, "AEP-0001 §5.1 #15"}, {"capture", `"all"`, RuleValue, "AEP-0001 §8.2"}, {"capture", "null", RuleValue, "AEP-0001 §5.1 #16"},
		{"data", "[]", RuleValue, "AEP-0001 §5.1"}, {"data", "null", RuleValue, "AEP-0001 §5.1"}, {"data", `{"a":1,"a":2}`, RuleDuplicate, "AEP-0001 §5"}, {"data", "{", RuleJSON, "AEP-0001 §5"},
		{"Agent", `"x"`, RuleExtension, "AEP-0001 §5.4"}, {"acme_ext", `"x"`, RuleExtension, "AEP-0001 §5.4"}, {"acmeveryveryverylongext1", `"v"`, RuleExtension, "AEP-0001 §5.4"}, {"", `"v"`, RuleExtension, "AEP-0001 §5.4"},
		{"acmeext", "null", RuleExtension, "AEP-0001 §5.4"}, {"acmeext", "1.5", RuleExtension, "AEP-0001 §5.4"}, {"acmeext", "{}", RuleExtension, "AEP-0001 §5.4"}, {"acmeext", `[1]`, RuleExtension, "AEP-0001 §5.4"},
	}
	for _, tt := range broken {
		t.Run(tt.name+" "+tt.value, func(t *testing.T) {
			line := edit(tt.name, tt.value)
			e, err := Parse([]byte(line))
			var v *Violation
			if !errors.As(err, &v) || v.Rule != tt.rule || v.Section != tt.section {
				t.Errorf("%s\n: %v, want %s in %s", line, err, tt.rule, tt.section)
			}
			if !reflect.DeepEqual(e, Event{}) {
				t.Errorf("an event comes with the error: %+v", e)
			}
		})
	}
	for _, line := range []string{
		strings.Replace(wholeLine, `"run":"r_0042"`, `"run":"r_0042","run":"r_0042"`, 1),
		strings.Replace(wholeLine, `"run":"r_0042"`, `"run":"r_0042","r\u0075n":"r_1"`, 1),
		strings.Replace(wholeLine, `"acmecount":7`, `"acmecount":7,"acmecount":8`, 1),
		strings.Replace(wholeLine, `"data":`, `"data":{},"data":`, 1),
		strings.Replace(wholeLine, `"seq":0`, `"seq":0,"seq":0`, 1),
	} {
		var v *Violation
		if _, err := Parse([]byte(line)); !errors.As(err, &v) || v.Rule != RuleDuplicate {
			t.Errorf("%s: %v, want %s", line, err, RuleDuplicate)
		}
	}
	// Another major version may have other rules: it is told before them.
	other := strings.Replace(edit("Agent", `"x"`), `"aep":"0.1"`, `"seq":-1,"aep":"1.0"`, 1)
	var v *Violation
	if _, err := Parse([]byte(other)); !errors.As(err, &v) || v.Rule != RuleMajor {
		t.Errorf("%v, want %s", err, RuleMajor)
	}
}

func TestParseNotJSON(t *testing.T) {
	for _, line := range []string{"", " ", "null", "[]", "{", `{"aep"`, `{"aep":`, `{"aep":"0.1"`, `{"aep":"0.1",}`, "{}{}", wholeLine + "x", wholeLine[:len(wholeLine)-1], "\xff", `{"id":`, `{"seq":`, `{"x":`, `{"time":`, `{"data":`, `{"x":tru}`} {
		var v *Violation
		if _, err := Parse([]byte(line)); !errors.As(err, &v) || v.Rule != RuleJSON || v.Section != "AEP-0001 §5" {
			t.Errorf("%q: %v, want %s", line, err, RuleJSON)
		}
	}
	for i := range wholeLine {
		if _, err := Parse([]byte(wholeLine[:i])); err == nil {
			t.Errorf("%q passes", wholeLine[:i])
		}
	}
}

func TestValidate(t *testing.T) {
	good := wholeEvent().Header
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
	for name, spoil := range map[string]func(*Header){
		"no id":          func(h *Header) { h.ID = "" },
		"no time":        func(h *Header) { h.Time = time.Time{} },
		"no source":      func(h *Header) { h.Source = "" },
		"bad source":     func(h *Header) { h.Source = "a b" },
		"bad type":       func(h *Header) { h.Type = "tool" },
		"negative seq":   func(h *Header) { h.Seq = -1 },
		"negative epoch": func(h *Header) { h.Epoch = -1 },
		"no position":    func(h *Header) { h.Sequenced = false },
		"bad severity":   func(h *Header) { h.Severity = 9 },
		"bad capture":    func(h *Header) { h.Capture = -2 },
		"extension name": func(h *Header) { h.Ext = map[string]any{"run": "x"} },
		"extension":      func(h *Header) { h.Ext = map[string]any{"x": 1.5} },
	} {
		h := good
		spoil(&h)
		var v *Violation
		if err := h.Validate(); !errors.As(err, &v) {
			t.Errorf("%s: %v, want a *Violation", name, err)
		}
	}
}

func TestSetExt(t *testing.T) {
	var h Header
	for _, v := range []any{"x", "", true, 7, int64(-7), uint8(3), uint64(1 << 63), json.Number("12")} {
		if err := h.SetExt("acme1", v); err != nil {
			t.Errorf("%v: %v", v, err)
		}
	}
	if h.Ext["acme1"] != int64(12) {
		t.Errorf("got %#v, want int64(12)", h.Ext["acme1"])
	}
	for _, name := range append([]string{"", "Acme", "a_b", "a-b", "é", "abcdefghijklmnopqrstu"}, coreNames...) {
		if err := h.SetExt(name, "x"); err == nil {
			t.Errorf("name %q is taken", name)
		}
	}
	for _, v := range []any{nil, 1.5, []any{}, map[string]any{}, "a\xff", json.Number("1.5"), struct{}{}} {
		if err := h.SetExt("x", v); err == nil {
			t.Errorf("value %#v is taken", v)
		}
	}
	if len(h.Ext) != 1 {
		t.Errorf("a refused attribute was set: %v", h.Ext)
	}
}

func TestIDs(t *testing.T) {
	for _, at := range []time.Time{time.Now(), {}, time.Unix(-1, 0), time.Unix(1<<40, 0)} {
		if id := NewID(at); len(id) != 26 {
			t.Errorf("NewID(%v) = %q", at, id)
		}
	}
	if a, b := NewID(time.Now()), NewID(time.Now()); a == b {
		t.Error("two ids alike")
	}
	a := DeriveID("claude-code", "s1", "tool.requested", "toolu_1")
	if a != "7RW6T22VY68RJE4E7YP75RANGB" { // logs hold such ids: they may never change
		t.Errorf("DeriveID = %q", a)
	}
	seen := map[string]bool{a: true}
	for _, parts := range [][]string{{"claude-code", "s1", "tool.requestedtoolu_1"}, {"claude-code", "s1", "tool.requested", "toolu_1", ""}, {"claude-codes1", "", "tool.requested", "toolu_1"}, {}, {""}} {
		id := DeriveID(parts...)
		if seen[id] || id[0] > '7' {
			t.Errorf("DeriveID(%q) = %q", parts, id)
		}
		seen[id] = true
	}
}

func TestSource(t *testing.T) {
	if got, want := Source("host-a", "claude-code", "s_8f2c"), "aep://host-a/agent/claude-code/session/s_8f2c"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	seen := map[string]string{}
	for _, s := range []string{"", "a/b", "a b", "a%2Fb", "é", "\xff", "h:port", "[::1]", "a@b", "a?b#c", "a:b", "..", "\n"} {
		got := Source(s, s, s)
		if !validURI(got) {
			t.Errorf("%q gives %s: no URI", s, got)
		}
		if other, twice := seen[got]; twice {
			t.Errorf("%q and %q give %s", s, other, got)
		}
		seen[got] = s
	}
}

func TestLevelsAndSeverities(t *testing.T) {
	for l := None; l <= Full; l++ {
		if got, err := ParseLevel(l.String()); err != nil || got != l {
			t.Errorf("%v: %v, %v", l, got, err)
		}
	}
	for s := Debug; s <= Critical; s++ {
		if got, err := ParseSeverity(s.String()); err != nil || got != s {
			t.Errorf("%v: %v, %v", s, got, err)
		}
	}
	if _, err := ParseLevel("Metadata"); err == nil || !strings.Contains(err.Error(), "redacted") {
		t.Errorf("want an error that says what there is, got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(wholeLine))
	f.Add([]byte(`{"aep":"0.1","id":"1","type":"agent.idle","time":"2026-01-01T00:00:00+01:00","source":"aep:x","agent":"\u0061"}`))
	f.Add([]byte(`{"aep":"1.0"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := Parse(line)
		if err != nil {
			var v *Violation
			if !errors.As(err, &v) || v.Rule == "" || v.Section == "" {
				t.Fatalf("%v is no violation with rule and section", err)
			}
			return
		}
		if err := e.Validate(); err != nil {
			t.Fatalf("Parse lets through what Validate refuses: %v", err)
		}
		written := e.AppendJSON(nil)
		again, err := Parse(written)
		if err != nil {
			t.Fatalf("%s: %v", written, err)
		}
		again.Time = e.Time // in milliseconds only
		e.Data, again.Data = nil, nil
		if !reflect.DeepEqual(again, e) {
			t.Fatalf("written and read again: %+v, want %+v", again, e)
		}
		Check(e)
		NewStream().Add(e)
	})
}

func BenchmarkAppendJSON(b *testing.B) {
	e := wholeEvent()
	buf := make([]byte, 0, 2<<10)
	b.SetBytes(int64(len(wholeLine)))
	b.ReportAllocs()
	for b.Loop() {
		buf = e.AppendJSON(buf[:0])
	}
}

func BenchmarkParseHeader(b *testing.B) {
	for name, line := range map[string]string{"extensions": wholeLine, "plain": strings.Replace(wholeLine, `"acmecount":7,"acmeregion":"eu-1",`, "", 1)} {
		b.Run(name, func(b *testing.B) {
			raw := []byte(line)
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := ParseHeader(raw); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
