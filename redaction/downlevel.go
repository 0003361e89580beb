package redaction

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"aep-wrap/event"
)

// Downlevel lowers an event to a ceiling, as a hop does that knows nothing but
// the registry (AEP-0001 §8.2). It never raises, and it never makes Redacted
// of Full: that would claim that the pipeline ran.
func Downlevel(e event.Event, ceiling event.Level) event.Event {
	to := lowered(e.Capture, ceiling)
	if to == e.Capture {
		return e
	}
	e.Data = lowerData(e.Type, e.Agent, e.Subject, e.Data, to)
	e.Capture = to
	return e
}

// lowered is the level at which an event of a capture passes a ceiling.
func lowered(capture, ceiling event.Level) event.Level {
	switch {
	case capture <= ceiling:
		return capture
	case ceiling == event.Redacted:
		return event.Metadata
	}
	return ceiling
}

// DownlevelLine is Downlevel for a hop that holds an event's bytes: the very
// same bytes when nothing is to be done, else the line with its capture and
// its data rewritten and everything else, known or not, as it was.
func DownlevelLine(line []byte, ceiling event.Level) ([]byte, error) {
	if ceiling >= event.Full {
		return line, nil
	}
	var (
		typ, agent, subject string
		capture             = event.Metadata
		data                []byte
		seen                uint8
	)
	err := walkObject(line, func(key, value []byte) error {
		bit := uint8(0)
		var err error
		switch string(key) {
		case `"type"`:
			bit = 1
			err = json.Unmarshal(value, &typ)
		case `"agent"`:
			bit = 2
			err = json.Unmarshal(value, &agent)
		case `"subject"`:
			bit = 4
			err = json.Unmarshal(value, &subject)
		case `"capture"`:
			bit = 8
			var name string
			if err = json.Unmarshal(value, &name); err == nil {
				capture, err = event.ParseLevel(name)
			}
		case `"data"`:
			bit = 16
			data = value
		}
		if seen&bit != 0 {
			return fmt.Errorf("member %s stands twice", key)
		}
		seen |= bit
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("down-levelling an event's line: %w", err)
	}
	to := lowered(capture, ceiling)
	if to == capture {
		return line, nil
	}
	data = lowerData(typ, agent, subject, data, to)
	out := make([]byte, 0, len(line))
	out = append(out, '{')
	next := func() {
		if len(out) > 1 {
			out = append(out, ',')
		}
	}
	_ = walkObject(line, func(key, value []byte) error { // it was read above
		switch string(key) {
		case `"capture"`:
			value = strconv.AppendQuote(nil, to.String())
		case `"data"`:
			if value = data; value == nil {
				return nil
			}
		}
		next()
		out = append(out, key...)
		out = append(out, ':')
		out = append(out, value...)
		return nil
	})
	if seen&8 == 0 {
		next()
		out = append(out, `"capture":`...)
		out = strconv.AppendQuote(out, to.String())
	}
	return append(out, '}'), nil
}

// lowerData is a payload at a level below the one it came with, which is
// Metadata or None; nil when nothing of it may stay.
func lowerData(typ, agent, subject string, data []byte, to event.Level) json.RawMessage {
	if to == event.None || len(data) == 0 {
		return nil
	}
	info, ok := event.Lookup(typ)
	if !ok || !info.Annotated() {
		return nil
	}
	l := lowering{to: to, agent: agent, subject: subject}
	_ = walkObject(data, func(key, value []byte) error {
		if string(key) == `"kind"` {
			_ = json.Unmarshal(value, &l.kind) // a kind that is no string is none
		}
		return nil
	})
	out, err := l.object(nil, data, info.Data)
	if err != nil {
		return nil
	}
	return out
}

type lowering struct {
	to                   event.Level
	agent, subject, kind string
}

// object appends the members of raw that may stay. A member that the registry
// does not know counts as metadata and stays; one that is not of its
// registered type goes, for nobody can say what it holds.
func (l *lowering) object(dst, raw []byte, fact *event.Fact) ([]byte, error) {
	start := len(dst)
	dst = append(dst, '{')
	var id []byte
	if f := fact.Member("id"); f != nil {
		_ = walkObject(raw, func(key, value []byte) error {
			if string(key) == `"id"` && len(value) > 0 && value[0] == '"' {
				id = value
			}
			return nil
		})
	}
	err := walkObject(raw, func(key, value []byte) error {
		var name string
		if err := json.Unmarshal(key, &name); err != nil {
			return err
		}
		f := fact.Member(name)
		if f != nil && (f.Level > l.to || !ofType(value, f.Type)) {
			return nil
		}
		at := len(dst)
		if len(dst) > start+1 {
			dst = append(dst, ',')
		}
		dst = append(dst, key...)
		dst = append(dst, ':')
		switch {
		case f == nil:
			dst = append(dst, value...)
		case f.Star && name == "prompt":
			dst = event.AppendValue(dst, structuralPrompt(l.agent, l.kind, l.subject))
		case f.Star:
			if id == nil { // nothing structural to say: not even the label
				dst = dst[:at]
				return nil
			}
			dst = append(dst, id...)
		case f.PerKey:
			var err error
			dst, err = primitives(dst, value)
			return err
		default:
			var err error
			dst, err = l.value(dst, value, f)
			return err
		}
		return nil
	})
	return append(dst, '}'), err
}

func (l *lowering) value(dst, raw []byte, f *event.Fact) ([]byte, error) {
	switch {
	case len(raw) > 0 && raw[0] == '{' && len(f.Members) > 0:
		return l.object(dst, raw, f)
	case len(raw) > 0 && raw[0] == '[' && f.Item != nil:
		dst = append(dst, '[')
		start := len(dst)
		err := walkArray(raw, func(item []byte) error {
			if f.Item.Level > l.to || !ofType(item, f.Item.Type) {
				return nil
			}
			if len(dst) > start {
				dst = append(dst, ',')
			}
			var err error
			dst, err = l.value(dst, item, f.Item)
			return err
		})
		return append(dst, ']'), err
	}
	return append(dst, raw...), nil
}

// primitives keeps an object's numbers and booleans: a hop does not know which
// strings are ids.
func primitives(dst, raw []byte) ([]byte, error) {
	dst = append(dst, '{')
	start := len(dst)
	err := walkObject(raw, func(key, value []byte) error {
		switch value[0] {
		case '"', '{', '[', 'n':
			return nil
		}
		if len(dst) > start {
			dst = append(dst, ',')
		}
		dst = append(dst, key...)
		dst = append(dst, ':')
		dst = append(dst, value...)
		return nil
	})
	return append(dst, '}'), err
}

// ofType says whether a raw value may be of a registered type.
func ofType(raw []byte, t event.JSONType) bool {
	if len(raw) == 0 {
		return false
	}
	switch raw[0] {
	case '"':
		return t == 0 || t&event.String != 0
	case '{':
		return t == 0 || t&event.Object != 0
	case '[':
		return t == 0 || t&event.Array != 0
	case 't', 'f':
		return t == 0 || t&event.Boolean != 0
	case 'n':
		return false
	}
	return t == 0 || t&(event.Number|event.Integer) != 0
}

var errJSON = errors.New("not a JSON object")

// walkObject calls fn for every member of an object, in order, with the raw
// key (quotes included) and the raw value.
func walkObject(raw []byte, fn func(key, value []byte) error) error {
	i := skipSpace(raw, 0)
	if i >= len(raw) || raw[i] != '{' {
		return errJSON
	}
	i = skipSpace(raw, i+1)
	if i < len(raw) && raw[i] == '}' {
		return nil
	}
	for i < len(raw) {
		k := i
		e := skipValue(raw, i)
		if e <= k || raw[k] != '"' {
			return errJSON
		}
		i = skipSpace(raw, e)
		if i >= len(raw) || raw[i] != ':' {
			return errJSON
		}
		v := skipSpace(raw, i+1)
		ve := skipValue(raw, v)
		if ve <= v {
			return errJSON
		}
		if err := fn(raw[k:e], raw[v:ve]); err != nil {
			return err
		}
		i = skipSpace(raw, ve)
		if i >= len(raw) {
			return errJSON
		}
		if raw[i] == '}' {
			return nil
		}
		if raw[i] != ',' {
			return errJSON
		}
		i = skipSpace(raw, i+1)
	}
	return errJSON
}

func walkArray(raw []byte, fn func(item []byte) error) error {
	i := skipSpace(raw, 0)
	if i >= len(raw) || raw[i] != '[' {
		return errJSON
	}
	i = skipSpace(raw, i+1)
	if i < len(raw) && raw[i] == ']' {
		return nil
	}
	for i < len(raw) {
		e := skipValue(raw, i)
		if e <= i {
			return errJSON
		}
		if err := fn(raw[i:e]); err != nil {
			return err
		}
		i = skipSpace(raw, e)
		if i < len(raw) && raw[i] == ']' {
			return nil
		}
		if i >= len(raw) || raw[i] != ',' {
			return errJSON
		}
		i = skipSpace(raw, i+1)
	}
	return errJSON
}

func skipSpace(raw []byte, i int) int {
	for i < len(raw) && (raw[i] == ' ' || raw[i] == '\t' || raw[i] == '\n' || raw[i] == '\r') {
		i++
	}
	return i
}

// skipValue is the end of the JSON value that begins at i, or i when there is
// none.
func skipValue(raw []byte, i int) int {
	depth := 0
	for j := i; j < len(raw); {
		switch raw[j] {
		case '"':
			j++
			for j < len(raw) && raw[j] != '"' {
				if raw[j] == '\\' {
					j++
				}
				j++
			}
			if j >= len(raw) {
				return i
			}
			j++
		case '{', '[':
			depth++
			j++
			continue
		case '}', ']':
			if depth == 0 {
				return j
			}
			depth--
			j++
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return j
			}
			j++
			continue
		default:
			for j < len(raw) && raw[j] != ',' && raw[j] != '}' && raw[j] != ']' && raw[j] != ':' && raw[j] > ' ' && raw[j] != '"' {
				j++
			}
		}
		if depth == 0 {
			return j
		}
	}
	return i
}
