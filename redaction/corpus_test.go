package redaction

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aep-wrap/event"
	"aep-wrap/event/eventtest"

	"github.com/google/go-cmp/cmp"
)

func readCorpus(t *testing.T, name string, into any) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(eventtest.Conformance(t), "fixtures", name, "cases.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		t.Fatal(err)
	}
}

type redactionCase struct {
	Name           string
	Input          json.RawMessage
	MustNotContain []string `json:"must_not_contain"`
	MustContain    []string `json:"must_contain"`
	Opts           struct {
		Home         string
		PII          *bool
		SecretValues []string `json:"secretValues"`
	}
}

func (c *redactionCase) pipeline() *Pipeline {
	o := Options{Home: c.Opts.Home, NoPII: c.Opts.PII != nil && !*c.Opts.PII}
	for _, v := range c.Opts.SecretValues {
		o.Secrets = append(o.Secrets, Secret{"listed", v})
	}
	return NewPipeline(o)
}

func (c *redactionCase) check(t *testing.T, out string) {
	t.Helper()
	for _, m := range c.MustNotContain {
		if strings.Contains(out, m) {
			t.Errorf("%q is still in %q", m, out)
		}
	}
	for _, m := range c.MustContain {
		if !strings.Contains(out, m) {
			t.Errorf("%q is not in %q", m, out)
		}
	}
}

func TestCorpusRedaction(t *testing.T) {
	var corpus struct {
		TextCases  []redactionCase `json:"text_cases"`
		ValueCases []redactionCase `json:"value_cases"`
	}
	readCorpus(t, "redaction", &corpus)
	if len(corpus.TextCases) == 0 || len(corpus.ValueCases) == 0 {
		t.Fatal("the corpus has no cases")
	}
	for _, c := range corpus.TextCases {
		t.Run("text/"+c.Name, func(t *testing.T) {
			var in string
			if err := json.Unmarshal(c.Input, &in); err != nil {
				t.Fatal(err)
			}
			p := c.pipeline()
			out := p.Text(in)
			c.check(t, out)
			if again := p.Text(out); again != out {
				t.Errorf("a second run changes it: %q", again)
			}
		})
	}
	for _, c := range corpus.ValueCases {
		t.Run("value/"+c.Name, func(t *testing.T) {
			in, err := event.ParseJSON(c.Input)
			if err != nil {
				t.Fatal(err)
			}
			before := string(event.AppendValue(nil, in))
			out := c.pipeline().Value(in)
			c.check(t, string(event.AppendValue(nil, out)))
			if after := string(event.AppendValue(nil, in)); after != before {
				t.Errorf("the input was changed: %s", after)
			}
		})
	}
}

func TestCorpusCaptureGating(t *testing.T) {
	var corpus struct {
		Cases []struct {
			Name    string
			Fields  []formField
			Values  json.RawMessage
			Ceiling string
			Expect  json.RawMessage
		}
	}
	readCorpus(t, "capture-gating", &corpus)
	if len(corpus.Cases) == 0 {
		t.Fatal("the corpus has no cases")
	}
	for _, c := range corpus.Cases {
		t.Run(c.Name, func(t *testing.T) {
			values, err := event.ParseObject(c.Values)
			if err != nil {
				t.Fatal(err)
			}
			level, err := event.ParseLevel(c.Ceiling)
			if err != nil {
				t.Fatal(err)
			}
			spec := formFields(c.Fields)
			got := Answers(values, spec, level, NewPipeline(Options{}))
			want, err := event.ParseJSON(c.Expect)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, any(got)); diff != "" {
				t.Errorf("Answers (-want +got):\n%s", diff)
			}
			if level == event.None {
				return // no data at all: the envelope's matter
			}
			// The gate comes to the same.
			gate := NewGate(Policy{Ceiling: level}, nil)
			e, err := gate.Seal(&event.Draft{Header: event.Header{Type: "attention.answered"}, Fields: event.Fields{
				event.Meta("answer", event.Fields{event.FormAnswers(values, spec)}),
			}})
			if err != nil {
				t.Fatal(err)
			}
			sealed, err := event.ParseObject(e.Data)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(any(map[string]any{"answer": map[string]any{"values": want}}), any(sealed)); diff != "" {
				t.Errorf("Seal (-want +got):\n%s", diff)
			}
		})
	}
}

type formField struct {
	ID, Type, Label string
	Multi, Other    bool
	Choices         []struct{ ID, Label string }
}

func formFields(in []formField) []event.FormField {
	var out []event.FormField
	for _, f := range in {
		o := event.FormField{ID: f.ID, Type: f.Type, Label: f.Label, Multi: f.Multi, Other: f.Other}
		for _, c := range f.Choices {
			o.Choices = append(o.Choices, event.FormChoice(c))
		}
		out = append(out, o)
	}
	return out
}

func TestCorpusDownlevel(t *testing.T) {
	var corpus struct {
		Cases []struct {
			Name          string
			Ceiling       string
			Event         json.RawMessage
			ExpectCapture string          `json:"expect_capture"`
			ExpectData    json.RawMessage `json:"expect_data"`
		}
	}
	readCorpus(t, "downlevel", &corpus)
	if len(corpus.Cases) == 0 {
		t.Fatal("the corpus has no cases")
	}
	for _, c := range corpus.Cases {
		t.Run(c.Name, func(t *testing.T) {
			e, err := event.Parse(c.Event)
			if err != nil {
				t.Fatal(err)
			}
			level, err := event.ParseLevel(c.Ceiling)
			if err != nil {
				t.Fatal(err)
			}
			before := string(e.Data)
			got := Downlevel(e, level)
			if string(e.Data) != before {
				t.Error("the event was changed in place")
			}
			if got.Capture.String() != c.ExpectCapture {
				t.Errorf("capture %s, want %s", got.Capture, c.ExpectCapture)
			}
			want := asTree(t, c.ExpectData)
			if diff := cmp.Diff(want, asTree(t, got.Data)); diff != "" {
				t.Errorf("data (-want +got):\n%s", diff)
			}
			if vs := event.Check(got); len(vs) > 0 {
				t.Errorf("what comes out is not valid: %v", vs)
			}
			// The same over bytes.
			line, err := DownlevelLine(c.Event, level)
			if err != nil {
				t.Fatal(err)
			}
			viaLine, err := event.Parse(line)
			if err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			if diff := cmp.Diff(asTree(t, got.Data), asTree(t, viaLine.Data)); diff != "" {
				t.Errorf("Downlevel and DownlevelLine differ:\n%s", diff)
			}
			if diff := cmp.Diff(got.Header, viaLine.Header); diff != "" {
				t.Errorf("headers differ:\n%s", diff)
			}
			if got.Capture == e.Capture && &line[0] != &c.Event[0] {
				t.Error("nothing was to be done, and the bytes are not the same")
			}
		})
	}
}

func asTree(t *testing.T, raw []byte) any {
	t.Helper()
	if len(raw) == 0 || string(raw) == "null" {
		return nil
	}
	v, err := event.ParseJSON(raw)
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return v
}
