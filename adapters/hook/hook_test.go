package hook

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

func payload(t testing.TB, raw string) map[string]any {
	t.Helper()
	p, err := event.ParseObject([]byte(raw))
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return p
}

// Each word on good, missing and mistyped input.
func TestFacts(t *testing.T) {
	m := event.Meta
	for _, tt := range []struct {
		name string
		fact Fact
		in   string
		want event.Fields // nil: the member is left out
	}{
		{"str", Str("a", "x"), `{"x":"word-1[1m]"}`, event.Fields{m("a", "word-1[1m]")}},
		{"str, prose", Str("a", "x"), `{"x":"two words"}`, nil},
		{"str, lines", Str("a", "x"), `{"x":"a\nb"}`, nil},
		{"str, long", Str("a", "x"), `{"x":"` + strings.Repeat("x", 300) + `"}`, nil},
		{"str, a number", Str("a", "x"), `{"x":1}`, nil},
		{"str, alternatives", Str("a", "y|x"), `{"y":null,"x":"v"}`, event.Fields{m("a", "v")}},
		{"str, deep", Str("a", "x.1.y"), `{"x":[{},{"y":"v"}]}`, event.Fields{m("a", "v")}},
		{"str, dotted name", Str("a", `x\.y`), `{"x.y":"v"}`, event.Fields{m("a", "v")}},
		{"label", Label("a", "x"), `{"x":"Approve once"}`, event.Fields{m("a", "Approve once")}},
		{"label, lines", Label("a", "x"), `{"x":"a\nb"}`, nil},
		{"word", Word("a", "x", "other"), `{"x":"rate_limit"}`, event.Fields{m("a", "rate_limit")}},
		{"word, prose", Word("a", "x", "other"), `{"x":"It broke."}`, event.Fields{m("a", "other")}},
		{"word, none", Word("a", "x", "other"), `{}`, event.Fields{m("a", "other")}},
		{"enum", Enum("a", "x", map[string]string{"true": "yes"}, ""), `{"x":true}`, event.Fields{m("a", "yes")}},
		{"enum, unknown", Enum("a", "x", map[string]string{"true": "yes"}, ""), `{"x":"maybe"}`, nil},
		{"enum, otherwise", Enum("a", "x", nil, "no"), `{}`, event.Fields{m("a", "no")}},
		{"int", Int("a", "x"), `{"x":12}`, event.Fields{m("a", int64(12))}},
		{"int, a fraction", Dur("a", "x"), `{"x":12.6}`, event.Fields{m("a", int64(13))}},
		{"int, a string", Int("a", "x"), `{"x":"12"}`, event.Fields{m("a", int64(12))}},
		{"int, negative", Int("a", "x"), `{"x":-1}`, nil},
		{"int, huge", Int("a", "x"), `{"x":1e300}`, nil},
		{"int, text", Int("a", "x"), `{"x":"many"}`, nil},
		{"num", Num("a", "x"), `{"x":0.0015}`, event.Fields{m("a", json.Number("0.0015"))}},
		{"num, text", Num("a", "x"), `{"x":"0.1"}`, nil},
		{"bool", Bool("a", "x"), `{"x":false}`, event.Fields{m("a", false)}},
		{"bool, text", Bool("a", "x"), `{"x":"false"}`, nil},
		{"const", Const("a", 1), `{}`, event.Fields{m("a", 1)}},
		{"text", Text("a", "x"), `{"x":"two words"}`, event.Fields{event.Text("a", "two words")}},
		{"text, parts", Text("a", "x"), `{"x":[{"type":"text","text":"one"},{"type":"image"},{"type":"text","text":"two"}]}`, event.Fields{event.Text("a", "one\ntwo")}},
		{"text, an object", Text("a", "x"), `{"x":{}}`, nil},
		{"whole", Whole("a", "x"), `{"x":{"y":1}}`, event.Fields{event.Whole("a", map[string]any{"y": json.Number("1")})}},
		{"whole, text", Whole("a", "x"), `{"x":"y"}`, nil},
		{"object", Object("a", Str("b", "x"), Str("c", "y")), `{"x":"v"}`, event.Fields{m("a", event.Fields{m("b", "v")})}},
		{"object, of text alone", Object("a", Text("b", "x")), `{"x":"v"}`, event.Fields{{Name: "a", Level: event.Redacted, Value: event.Fields{event.Text("b", "v")}}}},
		{"object, empty", Object("a", Str("b", "x")), `{}`, nil},
		{"content", Content("result", "x"), `{"x":"s"}`, event.Fields{event.Family("result", "s")}},
		{"content, nothing", Content("result", "x"), `{}`, nil},
		{"content, an array", Content("result", "x"), `{"x":["s"]}`, event.Fields{
			m("result_digest", event.Digest([]any{"s"})), event.Text("result_redacted", map[string]any{"content": []any{"s"}}), event.Whole("result", map[string]any{"content": []any{"s"}})}},
		{"content, args that are none", Content("args", "x"), `{"x":"ls"}`, event.Fields{
			m("args_digest", event.Digest("ls")), event.Text("args_redacted", map[string]any{"value": "ls"}), event.Whole("args", map[string]any{"value": "ls"})}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mo := adapters.Moment{Payload: payload(t, tt.in)}
			var d event.Draft
			if !tt.fact.apply(&In{Moment: &mo, Vendor: "v", at: mo.Payload}, &d) {
				t.Fatal("it gave up")
			}
			if !reflect.DeepEqual(d.Fields, tt.want) {
				t.Errorf("got  %+v\nwant %+v", d.Fields, tt.want)
			}
		})
	}
}

func table(rows map[string]Row) *Table {
	return New(Vocabulary{Vendor: "v", Channel: adapters.Hook, Session: "s", Run: "r", Step: "st", Time: "t", NoSession: "unknown", Rows: rows})
}

func TestRows(t *testing.T) {
	tool := Emit("tool.requested", Tool("tool", "call"))
	tab := table(map[string]Row{
		"tool":    tool,
		"nothing": Nothing("because"),
		"many":    Many(Emit("attention.answered", Need("call"), Pair("call")), tool),
		"switch":  Switch("n", map[string]Row{"1": tool, "true": Nothing("x")}, Unmapped),
		"when":    When(Prefix("tool", "mcp__", "x"), Nothing("x"), tool),
		"each":    Each("list", Emit("tool.requested", Tool("tool", "$.call")), Vendor(Str("none", "tool"))),
		"as":      VendorAs("other.name", Int("n", "n")),
		"on": SwitchOn("how", Begins("tool", [2]string{"Ba", "short"}, [2]string{"B", "long"}),
			map[string]Row{"short": tool, "long": Nothing("x")}, Unmapped),
	})
	for _, tt := range []struct{ name, moment, in, want string }{
		{"a tool", "tool", `{"tool":"Bash","call":"c"}`, "tool.requested Bash c c"},
		{"no call", "tool", `{"tool":"Bash"}`, "tool.requested Bash  "},
		{"no tool", "tool", `{"call":"c"}`, "x.v.session.tool   "},
		{"a tool that is an object", "tool", `{"tool":{}}`, "x.v.session.tool   "},
		{"nothing", "nothing", `{}`, ""},
		{"many", "many", `{"tool":"Bash","call":"c"}`, "attention.answered  c c; tool.requested Bash c c"},
		{"many, one of them", "many", `{"tool":"Bash"}`, "tool.requested Bash  "},
		{"many, none", "many", `{}`, "x.v.session.many   "},
		{"switch", "switch", `{"n":1,"tool":"Bash"}`, "tool.requested Bash  "},
		{"switch, a boolean", "switch", `{"n":true}`, ""},
		{"switch, otherwise", "switch", `{"n":{}}`, "x.v.session.switch   "},
		{"switch on a word", "on", `{"tool":"Bash"}`, "tool.requested Bash  "},
		{"switch on another", "on", `{"tool":"Bus"}`, ""},
		{"switch on none", "on", `{"tool":7}`, "x.v.session.on   "},
		{"when", "when", `{"tool":"mcp__a"}`, ""},
		{"when not", "when", `{"tool":"Bash"}`, "tool.requested Bash  "},
		{"each", "each", `{"call":"c","list":[{"tool":"A"},{},{"tool":"B"}]}`, "tool.requested A c c; tool.requested B c c"},
		{"each, of rubbish", "each", `{"list":[1,null]}`, "x.v.session.each   "},
		{"each, of none", "each", `{"list":[]}`, ""},
		{"no list", "each", `{"list":7}`, "x.v.session.each   "},
		{"as", "as", `{"n":1}`, "x.v.other.name   "},
		{"unknown", "SomeNew Thing/2", `{}`, "x.v.session.some_new_thing_2   "},
		{"no name", "", `{}`, "x.v.session.unknown   "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []string
			for _, d := range tab.Map(adapters.Moment{Name: tt.moment, Payload: payload(t, tt.in)}) {
				got = append(got, d.Type+" "+d.Subject+" "+d.Pair+" "+d.Key)
			}
			if s := strings.Join(got, "; "); s != tt.want {
				t.Errorf("got %q; want %q", s, tt.want)
			}
		})
	}
	if d := tab.Map(adapters.Moment{Name: "tool"}); len(d) != 1 || d[0].Fields.Str("missing") != "payload" {
		t.Errorf("no payload: %+v", d)
	}
}

func TestIdentity(t *testing.T) {
	tab := table(map[string]Row{"x": Emit("run.finished")})
	d := tab.Map(adapters.Moment{Name: "x", Session: "channel", Payload: payload(t, `{"s":"s1","r":"r1","st":"a1","t":"2026-07-03T10:00:00.5Z"}`)})[0]
	if d.Session != "s1" || d.Run != "r1" || d.Step != "a1" || !d.Time.Equal(time.Date(2026, 7, 3, 10, 0, 0, 5e8, time.UTC)) {
		t.Errorf("%+v", d.Header)
	}
	if d := tab.Map(adapters.Moment{Name: "x", Session: "channel", Payload: payload(t, `{"s":7,"t":"soon"}`)})[0]; d.Session != "channel" || !d.Time.IsZero() {
		t.Errorf("%+v", d.Header)
	}
	if d := tab.Map(adapters.Moment{Name: "x", Payload: payload(t, `{}`)})[0]; d.Session != "unknown" {
		t.Errorf("%+v", d.Header)
	}
	if d := tab.Map(adapters.Moment{Name: "tool"})[0]; d.Session != "" {
		t.Errorf("a moment without a payload makes a session: %+v", d.Header)
	}
	for in, want := range map[string]time.Time{
		`{"t":1795986540193}`:   time.UnixMilli(1795986540193),
		`{"t":1.5}`:             {},
		`{"t":99999999999999}`:  {},
		`{"t":-1}`:              {},
		`{"t":"1795986540193"}`: {},
	} {
		if d := tab.Map(adapters.Moment{Name: "x", Payload: payload(t, in)})[0]; !d.Time.Equal(want) {
			t.Errorf("%s is %v; want %v", in, d.Time, want)
		}
	}
	alone := New(Vocabulary{Vendor: "v", Run: "r", Step: "st", StepAlone: true, Rows: map[string]Row{"x": Emit("run.finished")}})
	for in, want := range map[string]string{`{"r":"r1","st":"a1"}`: " a1", `{"r":"r1"}`: "r1 "} {
		if d := alone.Map(adapters.Moment{Name: "x", Payload: payload(t, in)})[0]; d.Run+" "+d.Step != want {
			t.Errorf("%s is of run %q, step %q", in, d.Run, d.Step)
		}
	}
}

// A request is linked to its tool also where it tells more of the input than
// the tool's own hook did.
func TestOpen(t *testing.T) {
	m := adapters.Moment{Payload: payload(t, `{"tool":"Bash","in":{"command":"ls","description":"why"}}`)}
	for _, tt := range []struct {
		less []string
		want string
	}{{nil, `{"command":"ls","description":"why"}`}, {[]string{"description"}, `{"command":"ls"}`}} {
		var d event.Draft
		Open("tool", "in", tt.less...).apply(&In{Moment: &m, at: m.Payload}, &d)
		if want := (event.Link{Tool: "Bash", Args: event.Digest(payload(t, tt.want))}); d.Link != want {
			t.Errorf("less %q: %+v; want %+v", tt.less, d.Link, want)
		}
	}
	if len(m.Payload["in"].(map[string]any)) != 2 {
		t.Error("the payload was changed")
	}
}

func TestDecision(t *testing.T) {
	allow := `{"hookSpecificOutput":{"decision":{"behavior":"allow"},"hookEventName":"PermissionRequest"}}`
	deny := func(why string) string {
		return `{"hookSpecificOutput":{"decision":{"behavior":"deny","message":"` + why + `"},"hookEventName":"PermissionRequest"}}`
	}
	for _, tt := range []struct {
		answer adapters.Answer
		want   string
	}{
		{adapters.Answer{Option: "allow"}, allow},
		{adapters.Answer{Text: " Allow "}, allow},
		{adapters.Answer{Option: "deny"}, deny("The user refused this.")},
		{adapters.Answer{Option: "deny", Text: "not now"}, deny("not now")},
		{adapters.Answer{Text: "not now"}, deny("not now")},
		{adapters.Answer{Option: "always"}, ""},
		{adapters.Answer{}, ""},
	} {
		if got := string(Decision(tt.answer)); got != tt.want {
			t.Errorf("%+v: %s; want %s", tt.answer, got, tt.want)
		}
	}
}

// A table that could leak or lie is refused when it is made.
// A tool that the operator gates is asked for; any other is not.
func TestGated(t *testing.T) {
	tab := table(map[string]Row{"pre": Gated("tool", "in", Emit("tool.requested", Tool("tool", "call")))})
	m := adapters.Moment{Channel: adapters.Hook, Name: "pre", Payload: payload(t, `{"tool":"Bash","call":"c","in":{"command":"ls"}}`), Held: true}
	if ds := tab.Map(m); len(ds) != 1 || ds[0].Type != "tool.requested" {
		t.Fatalf("%+v", ds)
	}
	m.Gated = true
	ds := tab.Map(m)
	if len(ds) != 2 || ds[1].Type != "attention.requested" {
		t.Fatalf("%+v", ds)
	}
	if d := ds[1]; d.Subject != "Bash" || d.Link.Tool != "Bash" || d.Fields.Str("kind") != "permission" || !reflect.DeepEqual(d.Fields.Get("respond_via"), []any{"control"}) {
		t.Errorf("%+v", d)
	}
}

func TestAsks(t *testing.T) {
	asks := Asks(map[string]adapters.Ask{"perm": {Held: true, Both: true}, "pre": {Gate: "tool.name"}})
	for _, tt := range []struct {
		m    adapters.Moment
		want adapters.Ask
	}{
		{adapters.Moment{Channel: adapters.Hook, Name: "perm"}, adapters.Ask{Held: true, Both: true}},
		{adapters.Moment{Channel: adapters.Stream, Name: "perm"}, adapters.Ask{}},
		{adapters.Moment{Channel: adapters.Hook, Name: "stop"}, adapters.Ask{}},
		{adapters.Moment{Channel: adapters.Hook, Name: "pre", Payload: payload(t, `{"tool":{"name":"Bash"}}`)}, adapters.Ask{Gate: "Bash"}},
		{adapters.Moment{Channel: adapters.Hook, Name: "pre", Payload: payload(t, `{"tool":{"name":"a\nb"}}`)}, adapters.Ask{}},
		{adapters.Moment{Channel: adapters.Hook, Name: "pre"}, adapters.Ask{}},
	} {
		if got := asks(tt.m); got != tt.want {
			t.Errorf("%+v: %+v; want %+v", tt.m, got, tt.want)
		}
	}
}

func TestLogs(t *testing.T) {
	logs := LogsAt("transcript_path", "agent_transcript_path")
	for raw, want := range map[string][]adapters.LogFile{
		`{"session_id":"s","transcript_path":"/h/a.jsonl","agent_transcript_path":"/h/b.jsonl"}`: {{Path: "/h/a.jsonl", Session: "s"}, {Path: "/h/b.jsonl", Session: "s"}},
		`{"session_id":"s","transcript_path":null}`:                                              nil,
		`{"transcript_path":"/h/a.jsonl"}`:                                                       nil,
	} {
		if got := logs(adapters.Moment{Channel: adapters.Hook, Payload: payload(t, raw)}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v", raw, got)
		}
		if got := logs(adapters.Moment{Channel: adapters.Stream, Payload: payload(t, raw)}); got != nil {
			t.Errorf("%s of another channel: %v", raw, got)
		}
	}
}

func TestVerdictAndTold(t *testing.T) {
	for _, tt := range []struct {
		a    adapters.Answer
		want string
	}{
		{adapters.Answer{Option: "allow"}, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}`},
		{adapters.Answer{Text: "not now"}, `{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"not now"}}`},
		{adapters.Answer{Option: "maybe"}, ""}, {adapters.Answer{}, ""},
	} {
		if got := string(Verdict(tt.a)); got != tt.want {
			t.Errorf("%+v: %s; want %s", tt.a, got, tt.want)
		}
	}
	for option, want := range map[string]string{"allow": "{}", "maybe": "", "deny": string(Verdict(adapters.Answer{Option: "deny"}))} {
		if got := string(Veto(adapters.Answer{Option: option})); got != want {
			t.Errorf("%s: %s; want %s", option, got, want)
		}
	}
	told := Told("Stop")
	if got, want := string(told(adapters.Moment{Channel: adapters.Hook, Name: "Stop"}, "go on")), `{"hookSpecificOutput":{"additionalContext":"go on","hookEventName":"Stop"}}`; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	for _, m := range []adapters.Moment{{Channel: adapters.Hook, Name: "Start"}, {Channel: adapters.Stream, Name: "Stop"}} {
		if got := told(m, "go on"); got != nil {
			t.Errorf("%+v hears %s", m, got)
		}
	}
	if got := told(adapters.Moment{Channel: adapters.Hook, Name: "Stop"}, ""); got != nil {
		t.Errorf("no text is told as %s", got)
	}
}

func TestBadTables(t *testing.T) {
	for name, row := range map[string]func() Row{
		"no such type":                 func() Row { return Emit("tool.exploded") },
		"a reserved type":              func() Row { return Emit("message.user.submitted") },
		"content in a vendor's event":  func() Row { return Vendor(Text("message", "x")) },
		"content under another name":   func() Row { return VendorAs("a.b", Content("args", "x")) },
		"text without a member for it": func() Row { return Emit("tool.denied", Tool("t", "c"), Text("reason", "x")) },
		"in a branch":                  func() Row { return Switch("x", map[string]Row{"y": Vendor(Whole("all", "z"))}, Unmapped) },
		"in an element":                func() Row { return Each("x", Emit("session.compacted", Text("summary", "x")), Unmapped) },
		"nothing for no reason":        func() Row { return Nothing("") },
		"an empty path":                func() Row { return Emit("tool.requested", Tool("a||b", "")) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("it was taken")
				}
			}()
			table(map[string]Row{"x": row()})
		})
	}
}

func TestSnake(t *testing.T) {
	for in, want := range map[string]string{
		"PreToolUse": "pre_tool_use", "some_future_hook": "some_future_hook", "HTTPError": "httperror", "a.b/c d": "a_b_c_d",
		"": "unknown", "___": "unknown", "Ünïcode": "n_code", strings.Repeat("a", 99): strings.Repeat("a", 64), "v2Beta": "v2_beta",
	} {
		if got := Snake(in); got != want {
			t.Errorf("Snake(%q) = %q; want %q", in, got, want)
		}
	}
	for in, want := range map[string]string{"session/update": "session.update", "x": "x.event", "": "unknown.event", "a/b_c": "a.b.c", "//": "unknown.event"} {
		if got := Dotted(in, "/_"); got != want {
			t.Errorf("Dotted(%q) = %q; want %q", in, got, want)
		}
	}
}

func TestSchemaFields(t *testing.T) {
	raw := `{"schema":{"properties":{
		"zeta":{"type":"string","title":"Last?"},
		"n":{"type":"number","minimum":1,"maximum":9},
		"pick":{"type":"string","oneOf":[{"const":"a","title":"A"},{"const":"b"}]},
		"many":{"type":"array","items":{"enum":["x","y"]}},
		"odd":{"type":"array","items":{"type":"string"}},
		"nested":{"type":"object"},
		"broken":7},"required":["n",3]}}`
	in := In{Moment: &adapters.Moment{Raw: []byte(raw)}}
	schema, _ := payload(t, raw)["schema"].(map[string]any)
	fields := SchemaFields(schema, in.Order("schema.properties"))
	var got []string
	for _, f := range fields {
		s := f.ID + ":" + f.Type
		for _, c := range f.Choices {
			s += " " + c.ID + "=" + c.Label
		}
		if f.Multi {
			s += " multi"
		}
		if *f.Required {
			s += " required"
		}
		if f.Min != nil && f.Max != nil {
			s += " bounded"
		}
		got = append(got, s)
	}
	want := []string{"zeta:string", "n:number required bounded", "pick:select a=A b=b", "many:select x=x y=y multi", "odd:string", "nested:string", "broken:string"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if o := (&In{Moment: &adapters.Moment{Raw: []byte(`{"schema":`)}}).Order("schema.properties"); o != nil {
		t.Errorf("torn bytes have an order: %v", o)
	}
	if a := SchemaFields(schema, nil); a[0].ID != "broken" {
		t.Errorf("without the bytes they come by name: %v", a[0].ID)
	}
}

func TestTerms(t *testing.T) {
	terms := table(map[string]Row{
		"a": Switch("k", map[string]Row{"x": Nothing("no")}, Each("list", Emit("tool.requested", Tool("name", "$.call"), Content("args", "in")), Nothing("none"))),
	}).Terms()
	if len(terms) != 3 {
		t.Fatalf("%+v", terms)
	}
	if terms[0].When != "k = x" || terms[0].Note != "no" || terms[0].Emits != "" {
		t.Errorf("%+v", terms[0])
	}
	e := terms[1]
	if e.When != "otherwise, each list" || e.Emits != "tool.requested" {
		t.Errorf("%+v", e)
	}
	froms := map[string]string{}
	for _, f := range e.Fields {
		froms[f.Member] = f.From
	}
	if froms["tool.name"] != "list.*.name" || froms["tool.call_id"] != "call" || froms["args"] != "list.*.in" || froms["(session)"] != "s" {
		t.Errorf("%v", froms)
	}
	if terms[2].Native != "*" || terms[2].Emits != "x.v.*" {
		t.Errorf("%+v", terms[2])
	}
}

func BenchmarkMap(b *testing.B) {
	tab := table(map[string]Row{"PreToolUse": Emit("tool.requested", Tool("tool_name", "tool_use_id"), Content("args", "tool_input"))})
	m := adapters.Moment{Name: "PreToolUse", Payload: payload(b, `{"s":"s","r":"p","tool_name":"Bash","tool_use_id":"t","tool_input":{"command":"ls -la"}}`)}
	b.ReportAllocs()
	for b.Loop() {
		tab.Map(m)
	}
}
