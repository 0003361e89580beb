// Package adaptertest is the suite that every adapter passes: what the corpus
// and the adapter's own pins say of its inputs; purity; validity at every
// capture ceiling; that no string of a payload appears above the level its
// vocabulary declares, and none that it does not declare; wiring; and a reply
// for every decision that a request offers. Only tests import it.
package adaptertest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/event"
	"aep-wrap/event/eventtest"
	"aep-wrap/redaction"
	"aep-wrap/session"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Spec is an adapter and what it is tested with.
type Spec struct {
	Adapter adapters.Adapter

	// Corpus are files of the protocol's corpus, under fixtures/mappings, and
	// Pins files of the adapter's own in the same shape, under testdata.
	Corpus []string
	Pins   []string

	// Moments is the channel of the container "moments", and of "fallback";
	// "" is Hook.
	Moments adapters.Channel

	// Captures are moments as the runtime gave them, beyond the pins' inputs.
	Captures func(testing.TB) []adapters.Moment

	// Declared are the fields that a draft of a type may show, where they are
	// not rows of the Vocabulary.
	Declared func(m adapters.Moment, typ string) []adapters.TermField

	// Wires are command lines; what they become is in testdata/wire.
	Wires []Wire
}

// NamedBy is a Spec.Declared: a vendor's event is called by the native name,
// which stands at these paths of the payload.
func NamedBy(paths ...string) func(adapters.Moment, string) []adapters.TermField {
	return func(_ adapters.Moment, typ string) (out []adapters.TermField) {
		if strings.HasPrefix(typ, "x.") {
			for _, p := range paths {
				out = append(out, adapters.TermField{Member: "(type)", From: p})
			}
		}
		return out
	}
}

// report takes a finding, as t.Errorf does.
type report func(format string, args ...any)

// Wire is a launch with a name.
type Wire struct {
	Name     string
	Launch   adapters.Launch
	Endpoint adapters.Endpoint
}

// Run runs the suite.
func Run(t *testing.T, s Spec) {
	t.Run("valid", func(t *testing.T) {
		if err := adapters.Validate(s.Adapter); err != nil {
			t.Fatal(err)
		}
	})
	var own []adapters.Moment
	for _, file := range s.Corpus {
		t.Run(strings.TrimSuffix(file, ".json"), func(t *testing.T) {
			own = append(own, runPins(t, s, eventtest.File(t, "fixtures", "mappings", file))...)
		})
	}
	for _, file := range s.Pins {
		t.Run("pins/"+strings.TrimSuffix(file, ".json"), func(t *testing.T) {
			path := filepath.Join("testdata", file)
			raw, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if *update {
				raw = updatePins(t, s, raw)
				if err := os.WriteFile(path, raw, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			own = append(own, runPins(t, s, raw)...)
		})
	}
	if s.Captures != nil {
		own = append(own, s.Captures(t)...)
	}
	own = append(own, gated(s.Adapter, own)...)
	if len(own) == 0 {
		t.Fatal("no moment to test with: give Corpus, Pins or Captures")
	}
	for _, c := range []struct {
		name    string
		check   func(Spec, []adapters.Moment, report)
		moments []adapters.Moment
	}{
		{"pure", pure, own},
		{"strangers", pure, strangers(t, s.Adapter)},
		{"ceilings", ceilings, own},
		{"canary", canary, own},
		{"replies", replies, own},
	} {
		t.Run(c.name, func(t *testing.T) { c.check(s, c.moments, t.Errorf) })
	}
	t.Run("acts", func(t *testing.T) { acts(s.Adapter, t.Errorf) })
	for _, w := range s.Wires {
		t.Run("wire/"+w.Name, func(t *testing.T) { wire(t, s, w) })
	}
}

// gated gives those of the moments that the operator may gate as they are when
// the operator does.
func gated(a adapters.Adapter, ms []adapters.Moment) (out []adapters.Moment) {
	if a.Asks == nil {
		return nil
	}
	for _, m := range ms {
		if a.Asks(m).Gate != "" {
			m.Held, m.Gated = true, true
			out = append(out, m)
		}
	}
	return out
}

// ---- pins

// channels are the containers of a pin file, and the channel of their inputs.
var channels = map[string]adapters.Channel{
	"hooks": adapters.Hook, "moments": adapters.Hook, "events": adapters.Stream, "records": adapters.Telemetry,
	"stream": adapters.Stream, "transcript": adapters.Transcript, "telemetry": adapters.Telemetry,
	"drafts": adapters.Drafts, "process": adapters.Process, "server": adapters.Server,
}

type pin struct {
	Input    json.RawMessage `json:"input"`
	Expected json.RawMessage `json:"expected"`
	Held     bool            `json:"held"`
}

func (p pin) moment(t testing.TB, c adapters.Channel, name string) adapters.Moment {
	m := moment(t, c, name, p.Input)
	m.Held = p.Held || (c == adapters.Hook || c == adapters.Server) && bytes.Contains(p.Expected, []byte(`"control"`))
	return m
}

// updatePins gives a pin file with what its inputs become now.
func updatePins(t *testing.T, s Spec, raw []byte) []byte {
	var file map[string]json.RawMessage
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	b.WriteString("{")
	if file["$comment"] != nil {
		fmt.Fprintf(&b, "\n \"$comment\": %s,", file["$comment"])
	}
	for _, container := range slices.Sorted(maps.Keys(channels)) {
		var pins map[string]pin
		if file[container] == nil {
			continue
		}
		if err := json.Unmarshal(file[container], &pins); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "\n %q: {", container)
		c := channels[container]
		if container == "moments" && s.Moments != "" {
			c = s.Moments
		}
		for i, name := range slices.Sorted(maps.Keys(pins)) {
			if i > 0 {
				b.WriteByte(',')
			}
			writePin(t, s, &b, "  ", name, c, pins[name])
		}
		b.WriteString("\n },")
	}
	if file["fallback"] != nil {
		var p pin
		if err := json.Unmarshal(file["fallback"], &p); err != nil {
			t.Fatal(err)
		}
		writePin(t, s, &b, " ", "fallback", cmp.Or(s.Moments, adapters.Hook), p)
	}
	return append(bytes.TrimSuffix(b.Bytes(), []byte(",")), "\n}\n"...)
}

func writePin(t *testing.T, s Spec, b *bytes.Buffer, indent, name string, c adapters.Channel, p pin) {
	var got []shown
	for _, d := range s.Adapter.Map(p.moment(t, c, name)) {
		got = append(got, show(t, s, d, redaction.DefaultPolicy()))
	}
	next := "\n" + indent + " "
	fmt.Fprintf(b, "\n%s%q: {%s\"input\": ", indent, name, next)
	if err := json.Compact(b, p.Input); err != nil {
		t.Fatal(err)
	}
	if p.Held {
		b.WriteString("," + next + "\"held\": true")
	}
	b.WriteString("," + next + "\"expected\": ")
	if len(got) == 1 {
		line(b, got[0])
	} else {
		b.WriteByte('[')
		for i, g := range got {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(next + " ")
			line(b, g)
		}
		b.WriteByte(']')
	}
	b.WriteString("\n" + indent + "}")
}

func line(b *bytes.Buffer, v any) {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // of plain values: it cannot fail
	b.Truncate(b.Len() - 1)
}

func runPins(t *testing.T, s Spec, raw []byte) (inputs []adapters.Moment) {
	var file map[string]json.RawMessage
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	one := func(name string, c adapters.Channel, p pin) {
		m := p.moment(t, c, name)
		inputs = append(inputs, m)
		t.Run(name, func(t *testing.T) { check(t, s, m, p.Expected) })
	}
	for _, container := range slices.Sorted(maps.Keys(channels)) {
		if file[container] == nil {
			continue
		}
		var pins map[string]json.RawMessage
		if err := json.Unmarshal(file[container], &pins); err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(pins)) {
			var p pin
			if strings.HasPrefix(name, "$") {
				continue
			}
			if err := json.Unmarshal(pins[name], &p); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			c := channels[container]
			if container == "moments" && s.Moments != "" {
				c = s.Moments
			}
			one(name, c, p)
		}
	}
	if file["fallback"] != nil {
		var p pin
		if err := json.Unmarshal(file["fallback"], &p); err != nil {
			t.Fatal(err)
		}
		one("fallback", cmp.Or(s.Moments, adapters.Hook), p)
	}
	return inputs
}

// moment makes a pin's input one. A case's name may carry a variant:
// "Notification_permission"; the payload's own word counts where it has one.
func moment(t testing.TB, c adapters.Channel, name string, raw []byte) adapters.Moment {
	t.Helper()
	m := adapters.Moment{Channel: c, Raw: raw, Time: at}
	var err error
	if m.Payload, err = event.ParseObject(raw); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	switch c {
	case adapters.Stream, adapters.Transcript, adapters.Server:
		m.Name, _ = m.Payload["type"].(string)
	case adapters.Telemetry:
		m.Name, _ = m.Payload["event.name"].(string)
	default:
		for _, k := range []string{"hook_event_name", "hookName", "event"} {
			if s, ok := m.Payload[k].(string); ok {
				m.Name = s
				break
			}
		}
		if m.Name == "" {
			m.Name, _, _ = strings.Cut(name, "_")
		}
	}
	return m
}

var at = time.Date(2026, 7, 3, 10, 0, 0, 0, time.UTC)

// later are the types whose subject on the wire is the id of a request.
var later = map[string]bool{"attention.answered": true, "attention.resolved": true, "attention.timeout": true}

type shown struct {
	Type    string         `json:"type"`
	Data    map[string]any `json:"data,omitempty"`
	Subject string         `json:"subject,omitempty"`
	Step    string         `json:"step,omitempty"`
}

// check compares what a moment becomes with what is pinned, at the default
// ceiling.
func check(t *testing.T, s Spec, m adapters.Moment, expected json.RawMessage) {
	got := []shown{}
	for _, d := range s.Adapter.Map(m) {
		got = append(got, show(t, s, d, redaction.DefaultPolicy()))
	}
	want := []shown{}
	switch e := bytes.TrimSpace(expected); {
	case len(e) == 0 || string(e) == "null":
	case e[0] == '[':
		if err := json.Unmarshal(e, &want); err != nil {
			t.Fatal(err)
		}
	default:
		want = make([]shown, 1)
		if err := json.Unmarshal(e, &want[0]); err != nil {
			t.Fatal(err)
		}
	}
	for i := range want {
		want[i].Data, _ = uncomment(want[i].Data).(map[string]any)
		if want[i].Data == nil {
			want[i].Data = map[string]any{}
		}
		// A pin may leave out the pairing key of a later attention event.
		if i < len(got) && want[i].Subject == "" && later[got[i].Type] {
			got[i].Subject = ""
		}
	}
	if g, w := text(got), text(want); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

func uncomment(v any) any {
	switch x := v.(type) {
	case map[string]any:
		delete(x, "$comment")
		for k := range x {
			x[k] = uncomment(x[k])
		}
	case []any:
		for i := range x {
			x[i] = uncomment(x[i])
		}
	}
	return v
}

func text(v any) string {
	b, _ := json.MarshalIndent(v, "", " ")
	return string(b)
}

// show seals a draft that no session has placed.
func show(t testing.TB, s Spec, d event.Draft, p redaction.Policy) shown {
	t.Helper()
	d.Agent = s.Adapter.Name
	e, err := redaction.NewGate(p, redaction.NewPipeline(redaction.Options{})).Seal(&d)
	if err != nil {
		t.Fatalf("%s: %v", d.Type, err)
	}
	out := shown{Type: e.Type, Subject: e.Subject, Step: e.Step, Data: map[string]any{}}
	if later[d.Type] {
		out.Subject = d.Pair // on the wire the request's id, which a session knows
	}
	if len(e.Data) > 0 {
		if err := json.Unmarshal(e.Data, &out.Data); err != nil {
			t.Fatalf("%s: %v", d.Type, err)
		}
	}
	return out
}

// ---- purity

// pure asserts that Map and Reply give the same twice, leave their input
// alone, and do not panic.
func pure(s Spec, ms []adapters.Moment, bad report) {
	for _, m := range ms {
		before := deep(m.Payload)
		first, second := s.Adapter.Map(m), s.Adapter.Map(m)
		if !reflect.DeepEqual(first, second) {
			bad("%s %s: two readings of one moment differ", m.Channel, m.Name)
		}
		if s.Adapter.Reply != nil {
			for _, a := range []adapters.Answer{{}, {Option: "allow"}, {Text: "no"}, {Values: map[string]any{"1": "2"}}} {
				if !bytes.Equal(s.Adapter.Reply(m, a), s.Adapter.Reply(m, a)) {
					bad("%s %s: two replies differ", m.Channel, m.Name)
				}
			}
		}
		if s.Adapter.Logs != nil {
			s.Adapter.Logs(m)
		}
		if s.Adapter.Asks != nil && differs(s.Adapter.Asks, m) {
			bad("%s %s: it asks in two ways", m.Channel, m.Name)
		}
		if s.Adapter.Instruct != nil {
			told := s.Adapter.Instruct(m, "a text")
			switch {
			case !bytes.Equal(told, s.Adapter.Instruct(m, "a text")):
				bad("%s %s: two instructions of one text differ", m.Channel, m.Name)
			case told != nil && (!json.Valid(told) || !bytes.Contains(told, []byte("a text"))):
				bad("%s %s: a text is handed on as %q", m.Channel, m.Name, told)
			case s.Adapter.Instruct(m, "") != nil:
				bad("%s %s: no text is handed on as one", m.Channel, m.Name)
			}
		}
		if v := s.Adapter.Server; v != nil {
			if !reflect.DeepEqual(v.Item(m.Payload), v.Item(m.Payload)) {
				bad("%s %s: two readings of one item of a server differ", m.Channel, m.Name)
			}
			if v.Asked != nil && differs(v.Asked, m) {
				bad("%s %s: what it asks has two names", m.Channel, m.Name)
			}
			if v.When != nil && differs(v.When, m) {
				bad("%s %s: it has two times", m.Channel, m.Name)
			}
			for _, q := range v.Known {
				ask(q, m.Payload, adapters.Past{Seen: []string{"s"}, Last: map[string]time.Time{"s": time.UnixMilli(1)}}, 3)
				ask(q, m.Payload, adapters.Past{}, 3)
			}
		}
		if !reflect.DeepEqual(before, any(m.Payload)) {
			bad("%s %s: the payload was changed", m.Channel, m.Name)
		}
	}
}

// ask has a query, and those that it leads to, read an answer.
func ask(q adapters.Query, payload map[string]any, past adapters.Past, deep int) {
	for _, body := range []any{payload, []any{payload}, nil} {
		_, more := q.Read(body, past)
		for _, q := range more[:min(len(more), deep)] {
			ask(q, payload, past, deep-1)
		}
	}
}

// differs calls a function twice.
func differs[T comparable](f func(adapters.Moment) T, m adapters.Moment) bool {
	first, second := f(m), f(m)
	return first != second
}

func deep(v any) any {
	switch x := v.(type) {
	case map[string]any:
		if x == nil {
			return x
		}
		out := make(map[string]any, len(x))
		for k, v := range x {
			out[k] = deep(v)
		}
		return out
	case []any:
		out := make([]any, len(x))
		for i, v := range x {
			out[i] = deep(v)
		}
		return out
	}
	return v
}

// strangers are the inputs of every vendor in the corpus, and some that no
// vendor gave, on every channel: none may trip an adapter up.
func strangers(t *testing.T, a adapters.Adapter) (ms []adapters.Moment) {
	payloads := []map[string]any{nil, {}, {"type": "user", "message": "text"}, {"type": json.Number("1")},
		{"tool_name": []any{}, "tool_input": "x", "message": map[string]any{"content": []any{nil, "x", map[string]any{"type": "tool_use"}}}}}
	odd := len(payloads)
	names := map[string]bool{"": true, "Some Future\nHook": true}
	for _, term := range a.Vocabulary() {
		names[term.Native] = true
	}
	dir := os.Getenv("AEP_CONFORMANCE")
	if dir == "" {
		dir = filepath.Join("..", "..", "..", "shared", "conformance")
	}
	files, _ := filepath.Glob(filepath.Join(dir, "fixtures", "mappings", "*.json"))
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := event.ParseJSON(raw)
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		inputs(tree, func(p map[string]any) { payloads = append(payloads, p) })
	}
	all := slices.Sorted(maps.Keys(names))
	for _, c := range []adapters.Channel{adapters.Hook, adapters.Stream, adapters.Transcript, adapters.Telemetry, adapters.Drafts, adapters.Process, adapters.Server, adapters.ServerBeside, "elsewhere"} {
		for i, p := range payloads {
			// The odd payloads come under every name, a vendor's under a few.
			some := all
			if i >= odd {
				some = []string{all[i%len(all)], all[(i*7+3)%len(all)], ""}
			}
			for _, n := range some {
				ms = append(ms, adapters.Moment{Channel: c, Name: n, Payload: p, Time: at, Session: "s"})
			}
		}
	}
	return ms
}

func inputs(v any, found func(map[string]any)) {
	switch x := v.(type) {
	case map[string]any:
		if in, ok := x["input"].(map[string]any); ok {
			found(in)
		}
		for _, k := range slices.Sorted(maps.Keys(x)) {
			inputs(x[k], found)
		}
	case []any:
		for _, y := range x {
			inputs(y, found)
		}
	}
}

// ---- ceilings

var levels = []event.Level{event.None, event.Metadata, event.Redacted, event.Full}

// ceilings takes moments the whole road at every capture ceiling: what comes
// out is a valid stream of valid events, and shows nothing above its ceiling.
func ceilings(s Spec, ms []adapters.Moment, bad report) {
	for _, l := range levels {
		gate := redaction.NewGate(redaction.Policy{Ceiling: l}, redaction.NewPipeline(redaction.Options{}))
		sessions := map[string]*session.Session{}
		streams := map[string]*event.Stream{}
		for i, m := range ms {
			for _, d := range s.Adapter.Map(m) {
				id := d.Session
				if id == "" {
					id = "launch"
				}
				if sessions[id] == nil {
					sessions[id] = session.New(session.Config{Agent: s.Adapter.Name, Host: "host", Session: id, State: session.NewState(), Steer: s.Adapter.Steer})
					streams[id] = event.NewStream()
				}
				for _, bound := range sessions[id].Bind(at.Add(time.Duration(i)*time.Second), []event.Draft{d}) {
					e, err := gate.Seal(&bound)
					if err != nil {
						bad("%s %s at %s: %s: %v", m.Channel, m.Name, l, d.Type, err)
						continue
					}
					line := e.AppendJSON(nil)
					parsed, err := event.Parse(line)
					if err != nil {
						bad("%s %s at %s: %v\n%s", m.Channel, m.Name, l, err, line)
						continue
					}
					for _, v := range slices.Concat(event.Check(parsed), streams[id].Add(parsed)) {
						if l == event.None && v.Rule == "payload" {
							continue // without data nothing that is required is there
						}
						bad("%s %s at %s: %v\n%s", m.Channel, m.Name, l, v, line)
					}
					if parsed.Capture > l {
						bad("%s %s at %s: it claims %s\n%s", m.Channel, m.Name, l, parsed.Capture, line)
					}
					if l == event.None && len(parsed.Data) > 0 {
						bad("%s %s at none: it has data\n%s", m.Channel, m.Name, line)
					}
				}
			}
		}
	}
}

// ---- canary

const (
	wordCanary  = "canaryq7x"
	proseCanary = "canary q7x in prose"
)

// named are the members that may show whatever names something, and the words
// on a button.
var named = []string{"label", "(subject)", "(session)", "(run)", "(step)", "tool.name", "client.name", "fields[].id", "fields[].choices[].id", "prompt"}

// canary puts a canary into each string of each moment in turn. It must not
// appear below the level at which the vocabulary declares that path, and never
// where it declares none. Prose must not appear at metadata at all, but in
// what names a thing.
func canary(s Spec, ms []adapters.Moment, bad report) {
	pipe := redaction.NewPipeline(redaction.Options{})
	gates := make([]*redaction.Gate, len(levels))
	for i, l := range levels {
		gates[i] = redaction.NewGate(redaction.Policy{Ceiling: l}, pipe)
	}
	done := map[string]bool{}
	for _, m := range ms {
		for _, path := range stringPaths(m.Payload, nil) {
			for _, c := range []string{wordCanary, proseCanary} {
				probe := m
				probe.Raw = nil
				probe.Payload, _ = deep(m.Payload).(map[string]any)
				replace(probe.Payload, path, c)
				for _, d := range s.Adapter.Map(probe) {
					lowest, members, declared := s.declared(probe, d.Type, path)
					for i, l := range levels {
						e, err := gates[i].Seal(&d)
						if err != nil {
							bad("%s: %v", d.Type, err)
							continue
						}
						if !bytes.Contains(e.AppendJSON(nil), []byte(c)) {
							continue
						}
						at := fmt.Sprintf("%s %s: %s of %s at %s", m.Channel, m.Name, d.Type, strings.Join(path, "."), l)
						switch {
						case done[at]:
						case !declared:
							bad("%s: it appears, and the vocabulary does not say so", at)
						case l < lowest && l != event.None, l == event.None && !envelope(members):
							bad("%s: it appears, and is declared from %s on", at, lowest)
						case c == proseCanary && l <= event.Metadata && !slices.ContainsFunc(members, func(m string) bool { return slices.Contains(named, m) }):
							bad("%s: prose appears", at)
						default:
							continue
						}
						done[at] = true
					}
				}
			}
		}
	}
}

// envelope says that one of the members is an attribute of the envelope, which
// no ceiling takes away.
func envelope(members []string) bool {
	return slices.ContainsFunc(members, func(m string) bool { return strings.HasPrefix(m, "(") })
}

// declared says from which level on a draft of a type may show a path.
func (s Spec) declared(m adapters.Moment, typ string, path []string) (lowest event.Level, members []string, ok bool) {
	var fields []adapters.TermField
	for _, term := range s.Adapter.Vocabulary() {
		wild := strings.HasSuffix(term.Emits, ".*") && strings.HasPrefix(typ, strings.TrimSuffix(term.Emits, "*"))
		if term.Channel == m.Channel && (term.Emits == typ || wild) {
			fields = append(fields, term.Fields...)
		}
	}
	if s.Declared != nil {
		fields = append(fields, s.Declared(m, typ)...)
	}
	lowest = event.Full
	for _, f := range fields {
		for _, from := range strings.Split(f.From, "|") {
			if !covers(from, path, f.Level > event.Metadata) {
				continue
			}
			lowest, ok = min(lowest, f.Level), true
			members = append(members, f.Member)
		}
	}
	return lowest, members, ok
}

// covers says whether a declared path is this one, or holds it where what is
// declared is content or a list of names.
func covers(from string, path []string, below bool) bool {
	parts := strings.Split(strings.ReplaceAll(from, `\.`, "\x00"), ".")
	if from == "" || len(parts) > len(path) {
		return false
	}
	for i, p := range parts {
		if p = strings.ReplaceAll(p, "\x00", "."); p != "*" && p != path[i] {
			return false
		}
	}
	return below || len(parts) == len(path) || slices.Contains([]string{"required", "enum", "items", "*"}, parts[len(parts)-1])
}

func stringPaths(v any, at []string) (out [][]string) {
	switch x := v.(type) {
	case string:
		return [][]string{slices.Clone(at)}
	case map[string]any:
		for _, k := range slices.Sorted(maps.Keys(x)) {
			out = append(out, stringPaths(x[k], append(at, k))...)
		}
	case []any:
		for i := range x {
			out = append(out, stringPaths(x[i], append(at, fmt.Sprint(i)))...)
		}
	}
	return out
}

func replace(v any, path []string, s string) {
	for i, k := range path {
		last := i == len(path)-1
		switch x := v.(type) {
		case map[string]any:
			if last {
				x[k] = s
				return
			}
			v = x[k]
		case []any:
			n, _ := strconv.Atoi(k)
			if last {
				x[n] = s
				return
			}
			v = x[n]
		}
	}
}

// ---- replies

// replies asserts that every option and every form of a request that says it
// can be answered through us is answered, and that what is no answer is none.
func replies(s Spec, ms []adapters.Moment, bad report) {
	for _, m := range ms {
		m.Held = true
		for _, d := range s.Adapter.Map(m) {
			if d.Type != "attention.requested" || !slices.Contains(strs(d.Fields.Get("respond_via")), "control") {
				continue
			}
			if s.Adapter.Reply == nil {
				bad("%s: it says that it can be answered, and Reply is nil", m.Name)
				return
			}
			answered := 0
			list, _ := d.Fields.Get("options").([]event.Fields)
			for _, o := range list {
				answered++
				if b := s.Adapter.Reply(m, adapters.Answer{Option: o.Str("id")}); !json.Valid(b) {
					bad("%s: option %s is answered with %q", m.Name, o.Str("id"), b)
				}
			}
			fields, _ := d.Fields.Get("fields").([]event.Fields)
			if len(fields) > 0 {
				answered++
				if b := s.Adapter.Reply(m, adapters.Answer{Values: values(fields)}); !json.Valid(b) {
					bad("%s: the form filled in is answered with %q", m.Name, b)
				}
			}
			if answered == 0 {
				continue
			}
			if b := s.Adapter.Reply(m, adapters.Answer{}); len(b) > 0 {
				bad("%s: no answer is answered with %q", m.Name, b)
			}
			if b := s.Adapter.Reply(m, adapters.Answer{Option: "no such option"}); len(b) > 0 {
				bad("%s: an unknown option is answered with %q", m.Name, b)
			}
		}
	}
}

func strs(v any) (out []string) {
	list, _ := v.([]any)
	for _, x := range list {
		s, _ := x.(string)
		out = append(out, s)
	}
	return out
}

func values(fields []event.Fields) map[string]any {
	out := map[string]any{}
	for _, f := range fields {
		switch f.Str("type") {
		case "number":
			out[f.Str("id")] = json.Number("1")
		case "boolean":
			out[f.Str("id")] = true
		case "select":
			choices, _ := f.Get("choices").([]event.Fields)
			var v any = choices[0].Str("id")
			if f.Get("multi") == true {
				v = []any{v}
			}
			out[f.Str("id")] = v
		default:
			out[f.Str("id")] = "text"
		}
	}
	return out
}

// acts asserts that each means of a cancel is one.
func acts(a adapters.Adapter, bad report) {
	if a.Cancel == nil {
		return
	}
	for _, tty := range []bool{false, true} {
		list := a.Cancel(adapters.Target{Session: "s", Run: "r", TTY: tty})
		for i, act := range list {
			n := 0
			for _, there := range []bool{act.Keys != "", act.Signal != "", act.Request != nil} {
				if there {
					n++
				}
			}
			switch {
			case n != 1:
				bad("cancel, act %d: it has %d means: %+v", i+1, n, act)
			case act.Keys != "" && !tty:
				bad("cancel, act %d: it types where there is no screen: %+v", i+1, act)
			case strings.HasSuffix(act.Keys, "\x1b") && len(act.Keys) > 1,
				strings.HasSuffix(act.Keys, "\x1b") && i+1 < len(list) && list[i+1].Keys != "" && act.Patience < time.Second:
				bad("cancel, act %d: a bare Esc and a key right after it may be read as one key with Alt: %+v", i+1, act)
			case act.Patience < 0, act.Tree && act.Signal == "", act.Then != "" && !tty:
				bad("cancel, act %d: %+v", i+1, act)
			}
		}
	}
}

// ---- wiring

func wire(t *testing.T, s Spec, w Wire) {
	if !s.Adapter.Launch.Detect(w.Launch) {
		t.Errorf("Detect does not know %q", w.Launch.Args)
	}
	before := slices.Clone(w.Launch.Args)
	got, err := s.Adapter.Launch.Wire(w.Launch, w.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	again, _ := s.Adapter.Launch.Wire(w.Launch, w.Endpoint)
	if !reflect.DeepEqual(got, again) {
		t.Error("two wirings of one launch differ")
	}
	if !slices.Equal(before, w.Launch.Args) {
		t.Error("the launch was changed")
	}
	for _, a := range got.Args {
		if w.Endpoint.HookURL != "" && strings.Contains(a, w.Endpoint.HookURL) {
			t.Errorf("the hook address, which is a secret, stands on the command line: %q", a)
		}
	}
	if end := w.Endpoint.Secret; end != "" {
		for _, a := range got.Args {
			if strings.Contains(a, end) {
				t.Errorf("the server's password stands on the command line: %q", a)
			}
		}
	}
	files := map[string]json.RawMessage{}
	for name, b := range got.Files {
		if !json.Valid(b) {
			b, _ = json.Marshal(string(b))
		}
		files[name] = bytes.TrimSpace(b)
	}
	becomes := map[string]any{
		"passthrough": got.Passthrough, "args": got.Args, "set_env": got.SetEnv, "unset_env": got.UnsetEnv,
		"files": files, "stdout": got.Stdout, "events_fd": got.EventsFD, "logs": got.Logs, "notes": got.Notes,
		"overlays": got.Overlays, "log_root": got.LogRoot,
	}
	if got.Server != nil {
		becomes["server"] = got.Server
	}
	golden(t, filepath.Join("testdata", "wire", w.Name+".golden"), text(becomes)+"\n")
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v (-update writes it)", err)
	}
	if got != string(want) {
		t.Errorf("%s differs (-update writes it):\ngot\n%s\nwant\n%s", path, got, want)
	}
}

// Fuzz takes any bytes as a payload on any channel: no panic, and what comes
// out is sealed. The seeds are the moments.
func Fuzz(f *testing.F, a adapters.Adapter, seeds []adapters.Moment) {
	all := []adapters.Channel{adapters.Hook, adapters.Stream, adapters.Transcript, adapters.Telemetry, adapters.Drafts, adapters.Process, adapters.Server, adapters.ServerBeside}
	for _, m := range seeds {
		f.Add(byte(slices.Index(all, m.Channel)), m.Name, event.AppendValue(nil, m.Payload))
	}
	gate := redaction.NewGate(redaction.Policy{Ceiling: event.Full}, redaction.NewPipeline(redaction.Options{}))
	f.Fuzz(func(t *testing.T, channel byte, name string, raw []byte) {
		payload, err := event.ParseObject(raw)
		if err != nil {
			payload = nil
		}
		m := adapters.Moment{Channel: all[int(channel)%len(all)], Name: name, Payload: payload, Raw: raw, Time: at, Session: "s", Held: true, Gated: channel >= 128}
		s := session.New(session.Config{Agent: a.Name, Host: "host", Session: "s"})
		for _, d := range s.Bind(at, a.Map(m)) {
			e, err := gate.Seal(&d)
			if err != nil {
				t.Fatalf("%s: %v", d.Type, err)
			}
			line := e.AppendJSON(nil)
			if _, err := event.Parse(line); err != nil {
				t.Fatalf("%v\n%s", err, line)
			}
		}
		if a.Reply != nil {
			a.Reply(m, adapters.Answer{Option: "allow"})
			a.Reply(m, adapters.Answer{Values: map[string]any{"1": "1"}})
		}
		if a.Logs != nil {
			a.Logs(m)
		}
		if a.Asks != nil {
			a.Asks(m)
		}
		if v := a.Server; v != nil {
			v.Item(m.Payload)
			if v.Asked != nil {
				v.Asked(m)
			}
			if v.When != nil {
				v.When(m)
			}
			for _, q := range v.Known {
				ask(q, m.Payload, adapters.Past{Seen: []string{"s"}, Last: map[string]time.Time{"s": time.UnixMilli(1)}}, 3)
			}
		}
		if a.Instruct != nil {
			if b := a.Instruct(m, name); len(b) > 0 && !json.Valid(b) {
				t.Fatalf("a text is handed on as %q", b)
			}
		}
	})
}

// Captures reads moments from the runtime's captures, where they are at hand
// ($AEP_CAPTURES, or a captures directory beside the protocol's corpus): files
// of one payload, or of one a line. Elsewhere there are none.
func Captures(t testing.TB, c adapters.Channel, pattern ...string) (ms []adapters.Moment) {
	t.Helper()
	dir := os.Getenv("AEP_CAPTURES")
	if dir == "" {
		corpus := os.Getenv("AEP_CONFORMANCE")
		if corpus == "" {
			corpus = filepath.Join("..", "..", "..", "shared", "conformance")
		}
		dir = filepath.Join(filepath.Dir(corpus), "captures")
	}
	files, _ := filepath.Glob(filepath.Join(append([]string{dir}, pattern...)...))
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for i, piece := range pieces(raw) {
			o, err := event.ParseObject(piece)
			if err != nil {
				t.Fatalf("%s, object %d: %v", f, i+1, err)
			}
			name := strings.TrimSuffix(filepath.Base(f), filepath.Ext(f))
			// Some captures wrap what was seen: {event, payload}, {dir, msg}.
			for _, k := range []string{"payload", "msg"} {
				if in, ok := o[k].(map[string]any); ok && (o["at_ms"] != nil || o["t"] != nil) {
					name, _ = o["event"].(string)
					o, piece = in, nil
				}
			}
			if piece == nil {
				piece = event.AppendValue(nil, o)
			}
			ms = append(ms, moment(t, c, name, piece))
		}
	}
	return ms
}

// pieces cuts a file into its JSON values.
func pieces(raw []byte) (out [][]byte) {
	d := json.NewDecoder(bytes.NewReader(raw))
	for {
		var v json.RawMessage
		if d.Decode(&v) != nil {
			return out
		}
		out = append(out, v)
	}
}

// Endpoint is where a launch in a test reports to.
func Endpoint(a adapters.Adapter) adapters.Endpoint {
	return adapters.Endpoint{
		HookURL: "http://127.0.0.1:4711/hook/SECRET", OTLPURL: "http://127.0.0.1:4711/otlp/SECRET",
		Helper: []string{"/opt/aep/aep-hook", a.Name}, Socket: "/run/aep/hook.sock", Dir: "/run/aep",
		Port: 4712, Secret: "PASSWORD",
	}
}

// Launch is a launch in a terminal of a user who has these files.
func Launch(files map[string]string, env []string, args ...string) adapters.Launch {
	return adapters.Launch{
		Args: args, Path: "/usr/bin/" + args[0], Env: append([]string{"PATH=/usr/bin"}, env...), Dir: "/home/user/proj", Home: "/home/user", TTY: true,
		ReadFile: func(p string) ([]byte, error) {
			if s, ok := files[p]; ok {
				return []byte(s), nil
			}
			return nil, &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
		},
	}
}

// Held is the launch of an operator who lets others answer, for an hour, and
// gates the shell and all of a server's tools.
func Held(l adapters.Launch) adapters.Launch {
	l.Hold, l.Both = 8*time.Second, time.Hour
	l.Gate = []string{"*shell*", "Bash", "mcp_files_*"}
	return l
}
