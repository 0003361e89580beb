package event

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Check holds an event's payload to what the registry knows of its type
// (AEP-0002 §5) and to the capture level that the envelope claims (AEP-0001
// §8.2). Payloads are open: members that the registry does not know pass, and
// so do types that it does not know. Nil is a payload without findings.
func Check(e Event) []Violation {
	c := checker{capture: e.Capture}
	info, known := Lookup(e.Type)
	if e.Data == nil {
		// A payload that the level forbids cannot be missed.
		if known && info.Data != nil && e.Capture > None {
			c.required(info.Data, nil, "data")
		}
		return c.found
	}
	if e.Capture == None {
		c.add(RuleCapture, "AEP-0001 §8.2", "capture is none, and there is data")
		return c.found
	}
	data, err := ParseObject(e.Data)
	if err != nil {
		c.add(RuleJSON, "AEP-0001 §5", "data: %v", err)
		return c.found
	}
	if known && info.Data != nil {
		c.value(info.Data, data, "data")
	}
	switch e.Type {
	case "attention.requested":
		c.form(data)
	case "run.cancelled":
		if data["by"] == "control" && e.Cause == "" {
			c.add(RuleOutcome, "AEP-0004 §6", "a run that a command cancelled cites it, or its ack, as its cause")
		}
	}
	return c.found
}

type checker struct {
	capture Level
	found   []Violation
}

func (c *checker) add(rule, section, format string, args ...any) {
	c.found = append(c.found, *violation(rule, section, format, args...))
}

const payloadSection = "AEP-0002 §5"

func (c *checker) required(f *Fact, members map[string]any, at string) {
	for i := range f.Members {
		if m := &f.Members[i]; m.Required {
			if _, ok := members[m.Name]; !ok {
				c.add(RulePayload, payloadSection, "%s.%s is missing", at, m.Name)
			}
		}
	}
}

func (c *checker) value(f *Fact, v any, at string) {
	if f.Level > c.capture {
		c.add(RuleCapture, "AEP-0001 §8.2", "%s is for capture %s and above; the event says %s", at, f.Level, c.capture)
	}
	if !is(v, f.Type) {
		c.add(RulePayload, payloadSection, "%s is %s, want %s", at, kindOf(v), f.Type)
		return
	}
	switch v := v.(type) {
	case string:
		if f.Enum != nil && !slices.Contains(f.Enum, v) {
			c.add(RulePayload, payloadSection, "%s is %s, want one of %s", at, quote(v), strings.Join(f.Enum, ", "))
		}
		if f.Instant {
			if _, ok := parseTime([]byte(v)); !ok {
				c.add(RulePayload, payloadSection, "%s is not RFC 3339 with a zone", at)
			}
		}
	case json.Number:
		if n, _ := strconv.ParseFloat(string(v), 64); f.Bounded && (n < f.Min || n > f.Max) {
			if math.IsInf(f.Max, 1) {
				c.add(RulePayload, payloadSection, "%s is %.40s, want at least %v", at, v, f.Min)
			} else {
				c.add(RulePayload, payloadSection, "%s is %.40s, want %v to %v", at, v, f.Min, f.Max)
			}
		}
	case []any:
		if f.Item != nil {
			for i, e := range v {
				c.value(f.Item, e, at+"["+strconv.Itoa(i)+"]")
			}
		}
	case map[string]any:
		c.required(f, v, at)
		for i := range f.Members {
			m := &f.Members[i]
			if e, ok := v[m.Name]; ok {
				c.value(m, e, at+"."+m.Name)
			}
		}
	}
}

// form holds the rules of a form's fields that a table of members cannot say.
func (c *checker) form(data map[string]any) {
	fields, _ := data["fields"].([]any)
	for i, f := range fields {
		if f, _ := f.(map[string]any); f["type"] == "select" && f["choices"] == nil {
			c.add(RuleForm, "AEP-0002 §5.2", "data.fields[%d] is a select without choices", i)
		}
	}
}

// is says whether a tree's value is of one of the types.
func is(v any, t JSONType) bool {
	switch v := v.(type) {
	case string:
		return t&String != 0
	case bool:
		return t&Boolean != 0
	case map[string]any:
		return t&Object != 0
	case []any:
		return t&Array != 0
	case json.Number:
		if t&Number != 0 {
			return true
		}
		if t&Integer != 0 {
			_, ok := integer(string(v))
			return ok
		}
	}
	return false
}

// kindOf names a tree's value's kind.
func kindOf(v any) string {
	switch v.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case map[string]any:
		return "an object"
	case []any:
		return "an array"
	case json.Number:
		return "a number"
	}
	return fmt.Sprintf("a %T", v)
}

// String names the types: "a string or an object".
func (t JSONType) String() string {
	var names []string
	for i, name := range []string{"a string", "a number", "an integer", "a boolean", "an object", "an array"} {
		if t&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " or ")
}
