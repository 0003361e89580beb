package redaction

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aep-wrap/event"
	"aep-wrap/event/eventtest"
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
