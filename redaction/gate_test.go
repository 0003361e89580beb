package redaction

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"aep-wrap/event"
)

const (
	canary = "Zx81canary7Qw" // a secret by its value alone
	text   = "verbatim text of the user"
)

func levels() []event.Level {
	return []event.Level{event.None, event.Metadata, event.Redacted, event.Full}
}

func sealAt(t *testing.T, l event.Level, d event.Draft) event.Event {
	t.Helper()
	pipe := NewPipeline(Options{Home: "/home/op", Secrets: []Secret{{"X", canary}}})
	e, err := NewGate(Policy{Ceiling: l}, pipe).Seal(&d)
	if err != nil {
		t.Fatal(err)
	}
	if e.Capture > l {
		t.Errorf("capture %s above the ceiling %s", e.Capture, l)
	}
	if (e.Data == nil) != (l == event.None || len(d.Fields) == 0) && e.Data != nil {
		t.Errorf("data %s at %s", e.Data, l)
	}
	return e
}

func TestSealFamilies(t *testing.T) {
	object := map[string]any{"cmd": "say " + text, "key": "AKIAIOSFODNN7EXAMPLE"}
	redacted := map[string]any{"cmd": "say " + text, "key": SecretMarker}
	for _, c := range []struct {
		base     string
		original any
		want     [4]string // by level
	}{
		{"args", object, [4]string{"",
			`{"args_digest":"D"}`,
			`{"args_digest":"D","args_redacted":R}`,
			`{"args_digest":"D","args_redacted":R,"args":O}`}},
		{"result", object, [4]string{"",
			`{"result_digest":"D"}`,
			`{"result_digest":"D","result_redacted":R}`,
			`{"result_digest":"D","result_redacted":R,"result":O}`}},
		{"query", text, [4]string{"", `{"query_digest":"D"}`, `{"query_digest":"D","query":O}`, `{"query_digest":"D","query":O}`}},
		{"content", text, [4]string{"", ``, `{"content_redacted":O}`, `{"content_redacted":O,"content":O}`}},
		{"cited_text", text, [4]string{"", ``, `{"cited_text_redacted":O}`, `{"cited_text_redacted":O,"cited_text":O}`}},
	} {
		for i, l := range levels() {
			t.Run(fmt.Sprintf("%s/%s", c.base, l), func(t *testing.T) {
				e := sealAt(t, l, event.Draft{Header: event.Header{Type: "tool.requested"}, Fields: event.Fields{event.Family(c.base, c.original)}})
				r := strings.NewReplacer(`"D"`, `"`+event.Digest(c.original)+`"`, "O", string(event.AppendValue(nil, c.original)), "R", string(event.AppendValue(nil, redacted)))
				want := ""
				if c.want[i] != "" {
					want = r.Replace(c.want[i])
				}
				if string(e.Data) != want {
					t.Errorf("data\n got %s\nwant %s", e.Data, want)
				}
				held := event.Metadata
				if strings.Contains(c.want[i], "redacted") || strings.Contains(c.want[i], `"query":`) {
					held = event.Redacted
				}
				if strings.Contains(c.want[i], `"`+c.base+`":`) && c.base != "query" {
					held = event.Full
				}
				if l == event.None {
					held = event.None
				}
				if e.Capture != held {
					t.Errorf("capture %s, want %s: what it holds", e.Capture, held)
				}
			})
		}
	}
}

func TestSealShapesOfContent(t *testing.T) {
	for _, c := range []struct {
		base     string
		original any
		want     string
	}{
		{"args", "a patch", `{"value":"a patch"}`},
		{"args", []any{json.Number("1")}, `{"value":[1]}`},
		{"result", []any{"a", json.Number("1.50")}, `"[\"a\",1.50]"`},
		{"result", "a", `"a"`},
		{"result", json.Number("7"), `"7"`},
		{"result", map[string]any{"a": true}, `{"a":true}`},
		{"result", []string{"AKIAIOSFODNN7EXAMPLE"}, `"[\"[REDACTED:secret]\"]"`}, // no tree of ParseJSON's
	} {
		e := sealAt(t, event.Redacted, event.Draft{Header: event.Header{Type: "tool.completed"}, Fields: event.Fields{event.Family(c.base, c.original)}})
		var data map[string]json.RawMessage
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		if got := string(data[c.base+"_redacted"]); got != c.want {
			t.Errorf("%s of %v: %s, want %s", c.base, c.original, got, c.want)
		}
		if got := string(data[c.base+"_digest"]); got != `"`+event.Digest(c.original)+`"` {
			t.Errorf("%s: the digest is not that of the original", c.base)
		}
	}
	e := sealAt(t, event.Full, event.Draft{Header: event.Header{Type: "tool.completed"}, Fields: event.Fields{event.Family("result", nil)}})
	if e.Data != nil {
		t.Errorf("of no result: %s", e.Data)
	}
}

func TestSealLabels(t *testing.T) {
	d := event.Draft{Header: event.Header{Type: "attention.requested", Agent: "claude-code", Subject: "Bash"}, Fields: event.Fields{
		event.Meta("kind", "permission"),
		event.Labelled("prompt", "run rm -rf /home/op/x with "+canary+"?", ""),
		event.Meta("options", []event.Fields{{event.Meta("id", "allow"), event.Labelled("label", "Allow it", "")}, {event.Meta("id", "deny"), event.Labelled("label", "Deny", "2")}}),
		event.Whole("context", map[string]any{"a": text}),
	}}
	want := map[event.Level]string{
		event.Metadata: `{"kind":"permission","prompt":"claude-code requests permission: Bash","options":[{"id":"allow","label":"allow"},{"id":"deny","label":"2"}]}`,
		event.Redacted: `{"kind":"permission","prompt":"run rm -rf ~/x with [REDACTED:secret]?","options":[{"id":"allow","label":"Allow it"},{"id":"deny","label":"Deny"}]}`,
		event.Full:     `{"kind":"permission","prompt":"run rm -rf ~/x with [REDACTED:secret]?","options":[{"id":"allow","label":"Allow it"},{"id":"deny","label":"Deny"}],"context":{"a":"` + text + `"}}`,
	}
	for l, w := range want {
		e := sealAt(t, l, d)
		if string(e.Data) != w || e.Capture != l {
			t.Errorf("%s (%s):\n got %s\nwant %s", l, e.Capture, e.Data, w)
		}
		if vs := event.Check(e); len(vs) > 0 {
			t.Errorf("%s: %v", l, vs)
		}
	}
	// A structural prompt is metadata wherever it stands.
	d.Fields = event.Fields{event.Meta("kind", "form"), event.Labelled("prompt", "claude-code asks 2 questions", "claude-code asks 2 questions")}
	if e := sealAt(t, event.Redacted, d); e.Capture != event.Metadata || !strings.Contains(string(e.Data), "asks 2 questions") {
		t.Errorf("structural prompt: %s %s", e.Capture, e.Data)
	}
}

func TestSealHidesEverywhere(t *testing.T) {
	// A value that one field shows to be a secret is hidden in the others, also
	// in those written before, in the subject and in extensions.
	d := event.Draft{Header: event.Header{Type: "tool.failed", Subject: "login q1w2e3r4t5y6", Ext: map[string]any{"note": "q1w2e3r4t5y6", "n": int64(3)}}, Fields: event.Fields{
		event.Meta("tool", event.Fields{event.Meta("name", "q1w2e3r4t5y6"), event.Meta("call_id", "toolu_01ABCDEFGHJKMNPQRSTVWXYZ")}),
		event.Meta("error", event.Fields{event.Meta("type", "x"), event.Text("message", "password=q1w2e3r4t5y6 refused")}),
	}}
	e := sealAt(t, event.Redacted, d)
	if line := string(e.AppendJSON(nil)); strings.Contains(line, "q1w2") || !strings.Contains(line, "toolu_01ABCDEFGHJKMNPQRSTVWXYZ") {
		t.Error(line)
	}
	if d.Ext["note"] != "q1w2e3r4t5y6" || d.Fields.Str("tool", "name") != "q1w2e3r4t5y6" {
		t.Error("the draft was changed")
	}
}

// TestSealCanary: a canary in every place of a draft appears nowhere below the
// level of that place, and a secret nowhere below Full.
func TestSealCanary(t *testing.T) {
	form := []event.FormField{{ID: "s", Type: "string"}, {ID: "n", Type: "number"}, {ID: "c", Type: "select", Choices: []event.FormChoice{{ID: "1"}}}, {ID: "m", Type: "select", Multi: true, Other: true, Choices: []event.FormChoice{{ID: "1"}}}}
	draft := func(c string) event.Draft {
		return event.Draft{Header: event.Header{Type: "x.v.session.all", Agent: "a"}, Fields: event.Fields{
			event.Text("t", c), event.Text("tree", map[string]any{"a": []any{c, map[string]any{c: c}}}), event.Text("typed", []string{c}), event.Text("map", map[string]string{"a": c}),
			event.Whole("w", c), event.Family("args", map[string]any{"a": c}), event.Family("result", c), event.Family("query", c), event.Family("content", c), event.Family("other", c),
			event.Labelled("prompt", c, "p"), event.Meta("deep", event.Fields{event.Meta("deeper", []event.Fields{{event.Text("t", c)}, {event.Labelled("label", c, "")}})}),
			event.FormAnswers(map[string]any{"s": c, "n": c, "c": c, "m": []any{"1", c}, "unknown": c}, form),
		}}
	}
	for _, l := range levels() {
		for what, c := range map[string]string{"text": text, "listed": canary, "shape": "ghp_" + strings.Repeat("aB3dE6gH9", 4), "named": "password=hunter2" + canary[:4]} {
			e := sealAt(t, l, draft(c))
			n := strings.Count(string(e.Data), c)
			switch {
			case l < event.Redacted && n > 0:
				t.Errorf("%s at %s: %s", what, l, e.Data)
			case l == event.Redacted && what != "text" && n > 0:
				t.Errorf("%s at %s: %s", what, l, e.Data)
			case l == event.Redacted && what == "text" && n < 12:
				t.Errorf("text is missing at %s (%d): %s", l, n, e.Data)
			case l == event.Full && n == 0:
				t.Errorf("%s at %s is not verbatim: %s", what, l, e.Data)
			}
			if l == event.Full {
				for _, m := range []string{`"args_redacted"`, `"t"`, `"prompt"`} {
					if what == "listed" {
						var data map[string]json.RawMessage
						if err := json.Unmarshal(e.Data, &data); err != nil {
							t.Fatal(err)
						}
						if strings.Contains(string(data[strings.Trim(m, `"`)]), c) {
							t.Errorf("%s holds a listed value at full", m)
						}
					}
				}
			}
		}
	}
}

func TestPolicyLevels(t *testing.T) {
	p := DefaultPolicy()
	for typ, want := range map[string]event.Level{"attention.requested": event.Redacted, "tool.requested": event.Metadata, "x.v.attention.y": event.Metadata} {
		if got := p.Level(typ); got != want {
			t.Errorf("%s: %s, want %s", typ, got, want)
		}
	}
	p.For["x"] = event.None
	if got := p.Level("x.v.attention.y"); got != event.None {
		t.Errorf("x: %s", got)
	}
	if _, err := NewGate(p, nil).Seal(&event.Draft{}); err == nil {
		t.Error("a draft without a type was sealed")
	}
}

func TestSealLongText(t *testing.T) {
	long := strings.Repeat("words and more words. ", MaxText/10)
	secret := "ghp_" + strings.Repeat("aB3dE6gH9", 4)
	for _, in := range []string{long, long[:MaxText-10] + " " + secret + " " + long, strings.Repeat(long, 10), strings.Repeat("x", maxScan-margin-20) + " " + secret + strings.Repeat(" y", 1<<20)} {
		e := sealAt(t, event.Redacted, event.Draft{Header: event.Header{Type: "run.started"}, Fields: event.Fields{event.Text("prompt", in)}})
		var data struct{ Prompt string }
		if err := json.Unmarshal(e.Data, &data); err != nil {
			t.Fatal(err)
		}
		i := strings.LastIndex(data.Prompt, "…[truncated ")
		if len(data.Prompt) > MaxText+64 || i < 0 || !strings.HasSuffix(data.Prompt, " bytes]") {
			t.Errorf("%d bytes became %d, …%q", len(in), len(data.Prompt), data.Prompt[len(data.Prompt)-40:])
		}
		if strings.Contains(data.Prompt, "ghp_") {
			t.Error("the cut let a secret through")
		}
		if again := sealAt(t, event.Redacted, event.Draft{Header: event.Header{Type: "run.started"}, Fields: event.Fields{event.Text("prompt", data.Prompt[:MaxText/2])}}); again.Data == nil {
			t.Error("no data")
		}
	}
}

func BenchmarkSealMetadata(b *testing.B) {
	d := event.Draft{Header: event.Header{Type: "tool.requested", Subject: "Bash", Agent: "claude-code", Session: "0f3c1a52-5a3e-4a4c-9f0d-2f2b6f0c9a11"}, Fields: event.Fields{
		event.Meta("tool", event.Fields{event.Meta("name", "Bash"), event.Meta("call_id", "toolu_01A09q90qw90lq917835lq9")}),
		event.Family("args", map[string]any{"command": "go test ./...", "description": "run the tests"}),
	}}
	gate := NewGate(DefaultPolicy(), NewPipeline(Options{Home: "/home/op", Secrets: []Secret{{"A", "q1w2e3r4t5y6u7i8"}}}))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := gate.Seal(&d); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkSealRedacted(b *testing.B) {
	d := event.Draft{Header: event.Header{Type: "tool.requested", Subject: "Bash", Agent: "claude-code"}, Fields: event.Fields{
		event.Meta("tool", event.Fields{event.Meta("name", "Bash"), event.Meta("call_id", "toolu_01A09q90qw90lq917835lq9")}),
		event.Family("args", map[string]any{"command": "go test ./... && echo done", "description": "run the tests of every package"}),
	}}
	gate := NewGate(Policy{Ceiling: event.Redacted}, NewPipeline(Options{Home: "/home/op"}))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := gate.Seal(&d); err != nil {
			b.Fatal(err)
		}
	}
}

// A program that names things after a secret does not get it told by the
// names.
func TestSealHidesSecretsInNames(t *testing.T) {
	const listed, shaped = "tr0ub4dor-and-3", "ghp_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
	g := NewGate(Policy{Ceiling: event.Full}, NewPipeline(Options{Secrets: []Secret{{Name: "DEPLOY_KEY", Value: listed}}}))
	for _, secret := range []string{listed, shaped} {
		t.Run(secret, func(t *testing.T) {
			seal := func(typ string) event.Event {
				e, err := g.Seal(&event.Draft{
					Header: event.Header{ID: "1", Type: typ, Subject: "s-" + secret, Agent: "a", Source: "aep://h/a", Session: "s", Run: "run " + secret, Step: secret, Sequenced: true},
					Fields: event.Fields{event.Meta(secret, 1), event.Meta("phase", event.Fields{event.Meta("is-"+secret, true)})},
				})
				if err != nil {
					t.Fatal(err)
				}
				return e
			}
			e := seal("progress.status")
			if got := string(e.AppendJSON(nil)); strings.Contains(got, secret) {
				t.Errorf("the secret is in %s", got)
			}
			if e.Run == "" || e.Step == "" || e.Run == e.Step {
				t.Errorf("run %q and step %q can no longer be told apart", e.Run, e.Step)
			}
			if again := seal("progress.status"); again.Run != e.Run {
				t.Errorf("one run has two names: %q and %q", e.Run, again.Run)
			}
			e = seal("x.v-" + strings.ToLower(secret) + ".work.done")
			if got := string(e.AppendJSON(nil)); strings.Contains(got, secret) {
				t.Errorf("the secret is in %s", got)
			}
		})
	}
	e, err := g.Seal(&event.Draft{Header: event.Header{Type: "x." + listed + ".work.done"}, Fields: event.Fields{event.Meta("n", 1)}})
	if err != nil || e.Type != hiddenType || e.Data != nil {
		t.Errorf("%v %+v", err, e)
	}
}
