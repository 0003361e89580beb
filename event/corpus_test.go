package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"aep-wrap/event/eventtest"
)

// Every golden event is legal, and so is the stream that they are.
func TestGolden(t *testing.T) {
	stream := NewStream()
	lines := eventtest.Lines(t, "fixtures", "golden", "golden.jsonl")
	for i, line := range lines {
		t.Run(fmt.Sprintf("line %d", i+1), func(t *testing.T) {
			e, err := Parse(line)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range append(Check(e), stream.Add(e)...) {
				t.Error(v.Error())
			}
			// Written and read again it says the same, but for the order and
			// the defaults that we do or do not write.
			written := e.AppendJSON(nil)
			again, err := Parse(written)
			if err != nil {
				t.Fatalf("%s: %v", written, err)
			}
			if !reflect.DeepEqual(again, e) {
				t.Errorf("written and read again:\n%+v\nwant\n%+v", again, e)
			}
			want, got := attributes(t, line), attributes(t, written)
			for _, m := range []map[string]any{want, got} {
				if m["epoch"] == json.Number("0") {
					delete(m, "epoch")
				}
				if m["severity"] == "info" {
					delete(m, "severity")
				}
				if m["capture"] == nil {
					m["capture"] = "metadata"
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("written %s\nwant    %s", written, line)
			}
		})
	}
	if len(lines) == 0 {
		t.Fatal("no golden events")
	}
	// All of it delivered once more is redelivery.
	for _, line := range lines {
		e, err := Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range stream.Add(e) {
			t.Errorf("redelivered %s: %v", e.ID, v.Error())
		}
	}
}

func attributes(t *testing.T, line []byte) map[string]any {
	t.Helper()
	m, err := ParseObject(line)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestInvalid(t *testing.T) {
	var file struct {
		Cases []struct {
			Name, Rule string
			Event      json.RawMessage
			Events     []json.RawMessage
		}
	}
	eventtest.JSON(t, &file, "fixtures", "invalid", "cases.json")
	if len(file.Cases) == 0 {
		t.Fatal("no cases")
	}
	for _, tt := range file.Cases {
		t.Run(tt.Name, func(t *testing.T) {
			var jsonl bytes.Buffer
			lines := tt.Events
			if tt.Event != nil {
				lines = append(lines, tt.Event)
			}
			for _, e := range lines {
				jsonl.Write(OneLine(e))
				jsonl.WriteByte('\n')
			}
			var found []string
			at := 0
			if err := ValidateReader(&jsonl, func(line int, v Violation) {
				at = line
				found = append(found, v.Error())
				if !sectionIn(v.Section, tt.Rule) {
					t.Errorf("line %d breaks %v; the case breaks %s", line, v.Error(), tt.Rule)
				}
			}); err != nil {
				t.Fatal(err)
			}
			if len(found) != 1 || at != len(lines) {
				t.Errorf("found %q, the last in line %d; want one finding, in line %d: %s", found, at, len(lines), tt.Rule)
			}
			// A stream's events are each legal: ingest takes them.
			for _, raw := range tt.Events {
				if e, err := Parse(raw); err != nil || len(Check(e)) > 0 {
					t.Errorf("%s alone: %v, %v", raw, err, Check(e))
				}
			}
		})
	}
}

// sectionIn says whether a rule of the corpus, "AEP-0001 §5.1 #2 / §7.4 (…)",
// names a section, or a part of it.
func sectionIn(section, rule string) bool {
	doc := ""
	for _, m := range regexp.MustCompile(`AEP-\d{4}|§[\d.]+(?: #\d+)?`).FindAllString(rule, -1) {
		if strings.HasPrefix(m, "AEP") {
			doc = m
		} else if named := doc + " " + m; named == section || strings.HasPrefix(named, section+".") || strings.HasPrefix(named, section+" #") {
			return true
		}
	}
	return false
}

func TestAttrMatch(t *testing.T) {
	var file struct {
		Match []struct {
			Name   string
			Filter json.RawMessage
			Event  map[string]any
			Match  bool
		}
		Invalid []struct {
			Name   string
			Filter json.RawMessage
		}
	}
	eventtest.JSON(t, &file, "fixtures", "attr-match", "cases.json")
	if len(file.Match) == 0 || len(file.Invalid) == 0 {
		t.Fatal("no cases")
	}
	for _, tt := range file.Match {
		t.Run(tt.Name, func(t *testing.T) {
			f, err := CompileFilter(tt.Filter)
			if err != nil {
				t.Fatal(err)
			}
			h := headerOf(t, tt.Event)
			if got := f.Match(h); got != tt.Match {
				t.Errorf("%s on %v is %v, want %v", tt.Filter, tt.Event, got, tt.Match)
			}
		})
	}
	for _, tt := range file.Invalid {
		t.Run(tt.Name, func(t *testing.T) {
			if f, err := CompileFilter(tt.Filter); err == nil || f != nil {
				t.Errorf("%s compiles", tt.Filter)
			}
		})
	}
}

// headerOf makes a header of the few attributes that a case gives.
func headerOf(t *testing.T, attrs map[string]any) *Header {
	t.Helper()
	var h Header
	texts := map[string]*string{"id": &h.ID, "type": &h.Type, "subject": &h.Subject, "source": &h.Source, "agent": &h.Agent,
		"session": &h.Session, "run": &h.Run, "step": &h.Step, "cause": &h.Cause}
	for name, v := range attrs {
		var err error
		switch text, ok := texts[name]; {
		case ok:
			*text = v.(string)
		case name == "severity":
			h.Severity, err = ParseSeverity(v.(string))
		case name == "capture":
			h.Capture, err = ParseLevel(v.(string))
		case name == "epoch":
			h.Epoch = int64(v.(float64))
		default:
			err = h.SetExt(name, v)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return &h
}

// The registry's table says what the schemas say, in both directions.
func TestRegistry(t *testing.T) {
	var file struct {
		Types []struct {
			Type, Status, Scope string
			Schema              *string
		}
	}
	eventtest.JSON(t, &file, "schemas", "registry", "types.json")
	listed := make(map[string]bool)
	for _, want := range file.Types {
		listed[want.Type] = true
		t.Run(want.Type, func(t *testing.T) {
			got, ok := Lookup(want.Type)
			if !ok {
				t.Fatal("not in the table")
			}
			if got.Type != want.Type || string(got.Status) != want.Status || string(got.Scope) != want.Scope {
				t.Errorf("%s, %s, %s; want %s, %s", got.Type, got.Status, got.Scope, want.Status, want.Scope)
			}
			if (got.Data == nil) != (want.Schema == nil) {
				t.Fatalf("facts of the payload: %v, want %v", got.Data != nil, want.Schema != nil)
			}
			if want.Schema == nil {
				return
			}
			var schema map[string]any
			eventtest.JSON(t, &schema, "schemas", "types", *want.Schema)
			fromSchema := factOf(t, "", schema)
			compareFacts(t, "data", *got.Data, fromSchema)
		})
	}
	for _, typ := range Types() {
		if !listed[typ] {
			t.Errorf("%s is in the table and not in the registry", typ)
		}
	}
	files, err := filepath.Glob(filepath.Join(eventtest.Conformance(t), "schemas", "types", "*.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if typ := strings.TrimSuffix(filepath.Base(f), ".schema.json"); !listed[typ] {
			t.Errorf("%s is the schema of no registered type", f)
		}
	}
	var categories struct{ Categories []struct{ Name string } }
	eventtest.JSON(t, &categories, "schemas", "registry", "categories.json")
	var names []string
	for _, c := range categories.Categories {
		if c.Name != "x" {
			names = append(names, c.Name)
		}
	}
	if !slices.Equal(names, Categories) {
		t.Errorf("categories %v, want %v", Categories, names)
	}
	var order struct{ Order []string }
	eventtest.JSON(t, &order, "schemas", "registry", "severity.json")
	if !slices.Equal(order.Order, severityNames[:]) {
		t.Errorf("severities %v, want %v", severityNames, order.Order)
	}
	eventtest.JSON(t, &order, "schemas", "registry", "capture.json")
	if !slices.Equal(order.Order, levelNames[:]) {
		t.Errorf("capture levels %v, want %v", levelNames, order.Order)
	}
}

// factOf reads a schema, and refuses a word in it that a Fact cannot say.
func factOf(t *testing.T, name string, schema map[string]any) Fact {
	t.Helper()
	f := Fact{Name: name, Level: Metadata}
	required := map[string]bool{}
	for word, v := range schema {
		switch word {
		case "$schema", "$id", "title", "description", "default":
		case "$comment":
			f.Star = strings.Contains(v.(string), "metadata-gated by exception")
			f.PerKey = strings.Contains(v.(string), "type-dependent")
		case "type":
			list, ok := v.([]any)
			if !ok {
				list = []any{v}
			}
			for _, n := range list {
				f.Type |= map[string]JSONType{"string": String, "number": Number, "integer": Integer, "boolean": Boolean, "object": Object, "array": Array}[n.(string)]
			}
		case "enum":
			f.Type = String
			for _, e := range v.([]any) {
				f.Enum = append(f.Enum, e.(string))
			}
		case "format":
			if f.Instant = v == "date-time"; !f.Instant {
				t.Errorf("%s: format %v", name, v)
			}
		case "minimum":
			f.Bounded, f.Min = true, v.(float64)
		case "maximum":
			f.Bounded, f.Max = true, v.(float64)
		case "x-aep-capture":
			level, err := ParseLevel(v.(string))
			if err != nil {
				t.Error(err)
			}
			f.Level = level
		case "required":
			for _, n := range v.([]any) {
				required[n.(string)] = true
			}
		case "if", "then":
			// Held in checker.form: choices are required of a select.
			if name != "" || fmt.Sprint(schema["then"]) != "map[required:[choices]]" {
				t.Errorf("%s: %s %v", name, word, v)
			}
		case "properties":
			for n, p := range v.(map[string]any) {
				f.Members = append(f.Members, factOf(t, n, p.(map[string]any)))
			}
		case "items":
			item := factOf(t, "", v.(map[string]any))
			f.Item = &item
		default:
			t.Errorf("%s: a schema word that is not known: %s", name, word)
		}
	}
	if _, ok := schema["maximum"]; !ok && f.Bounded {
		f.Max = count("").Max
	}
	for i := range f.Members {
		f.Members[i].Required = required[f.Members[i].Name]
	}
	return f
}

func compareFacts(t *testing.T, at string, got, want Fact) {
	t.Helper()
	names := func(members []Fact) (n []string) {
		for _, m := range members {
			n = append(n, m.Name)
		}
		slices.Sort(n)
		return n
	}
	if g, w := names(got.Members), names(want.Members); !slices.Equal(g, w) {
		t.Errorf("%s has members %v, want %v", at, g, w)
	}
	for i := range got.Members {
		if w := want.Member(got.Members[i].Name); w != nil {
			compareFacts(t, at+"."+w.Name, got.Members[i], *w)
		}
	}
	if (got.Item == nil) != (want.Item == nil) {
		t.Errorf("%s has an item's fact: %v, want %v", at, got.Item != nil, want.Item != nil)
	} else if got.Item != nil {
		compareFacts(t, at+"[]", *got.Item, *want.Item)
	}
	slices.Sort(want.Enum)
	got.Enum = slices.Sorted(slices.Values(got.Enum))
	got.Members, got.Item, want.Members, want.Item = nil, nil, nil, nil
	if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
		t.Errorf("%s is\n%+v, want\n%+v", at, got, want)
	}
}

// The envelope's schema and the parser agree on which attributes there are.
func TestEnvelopeSchema(t *testing.T) {
	var schema struct {
		Properties map[string]any
		Required   []string
	}
	eventtest.JSON(t, &schema, "schemas", "aep-event.schema.json")
	for name := range schema.Properties {
		if !slices.Contains(coreNames, name) {
			t.Errorf("%s is an attribute that the parser does not know", name)
		}
	}
	if len(schema.Properties) != len(coreNames) {
		t.Errorf("%d attributes, want %d", len(coreNames), len(schema.Properties))
	}
	for _, name := range schema.Required {
		m := attributes(t, []byte(wholeLine))
		delete(m, name)
		var v *Violation
		if _, err := Parse(AppendValue(nil, m)); !errors.As(err, &v) || v.Rule != RuleRequired {
			t.Errorf("without %s: %v, want a %s violation", name, err, RuleRequired)
		}
	}
}
