package generic

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// draft reads one line of {type, data, subject?, severity?, time?, run?,
// step?, id?, pair?}. What the registry knows of the type gives each member
// its level; a line that cannot be what it says it is becomes a vendor's event
// without its data.
func draft(m adapters.Moment) event.Draft {
	str := func(k string) string { s, _ := m.Payload[k].(string); return s }
	typ := str("type")
	info, known := event.Lookup(typ)
	vendor := vendorType(typ)
	if !known && !vendor || known && info.Status == event.Reserved || foreign(typ) {
		return refused(m, typ, "type")
	}
	d := event.Draft{Header: event.Header{Type: typ, Session: m.Session, Severity: severity(str("severity"), typ)}}
	if t, err := time.Parse(time.RFC3339Nano, str("time")); err == nil {
		d.Time = t
	}
	d.Run, d.Step = word(str("run")), word(str("step"))
	d.Key, d.Pair = word(str("id")), word(str("pair"))
	if s := str("subject"); plain(s) {
		d.Subject = s
	}
	data, _ := m.Payload["data"].(map[string]any)
	if vendor || info.Data == nil {
		d.Fields = structural(data)
		return d
	}
	var r reader
	d.Fields = r.object(data, info.Data)
	if r.missing != "" {
		return refused(m, typ, r.missing)
	}
	if typ == "attention.requested" {
		// Nobody can answer the program through us, whatever it says.
		d.Fields = slices.DeleteFunc(d.Fields, func(f event.Field) bool { return f.Name == "respond_via" })
		d.Fields = append(d.Fields, event.Meta("respond_via", []any{"oob"}))
	}
	join(&d)
	return d
}

// join gives a draft the keys by which the session finds what belongs
// together: a tool's call id, a subagent's or a task's id, a request's.
func join(d *event.Draft) {
	key := ""
	switch event.Category(d.Type) {
	case "tool":
		key = d.Fields.Str("tool", "call_id")
		if d.Subject == "" {
			d.Subject = d.Fields.Str("tool", "name")
		}
	case "delegation":
		key = d.Subject
	case "progress":
		key = d.Fields.Str("task", "id")
	case "attention":
		if d.Type == "attention.requested" {
			key = d.Key
		} else {
			// The line's subject is the id that it gave the request.
			key, d.Subject = d.Subject, ""
		}
	}
	if d.Pair == "" {
		d.Pair = key
	}
	if d.Key == "" && event.Category(d.Type) != "attention" {
		d.Key = key
	}
}

func refused(m adapters.Moment, typ, missing string) event.Draft {
	d := event.Draft{Header: event.Header{Type: "x." + name + ".draft.refused", Session: m.Session, Severity: event.Warning}}
	d.Fields = event.Fields{event.Meta("missing", missing)}
	if s := word(typ); s != "" {
		d.Fields = append(d.Fields, event.Meta("type", s))
	}
	return d
}

// foreign says that a type is one that only other senders emit, or that the
// wrapper itself does.
func foreign(typ string) bool {
	return event.ScopeOf(typ) == event.CommandScope || strings.HasPrefix(typ, "control.") || strings.HasPrefix(typ, "x.aep-wrap.") ||
		typ == "session.started" || typ == "session.ended"
}

// vendorType says whether a type is x.{vendor} and two or more tokens.
func vendorType(typ string) bool {
	parts := strings.Split(typ, ".")
	if len(typ) > 256 || len(parts) < 4 || parts[0] != "x" {
		return false
	}
	for i, p := range parts[1:] {
		for _, c := range []byte(p) {
			letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_'
			if !letter && (i > 0 || c != '-') {
				return false
			}
		}
		if p == "" {
			return false
		}
	}
	return true
}

func severity(s, typ string) event.Severity {
	if v, err := event.ParseSeverity(s); err == nil {
		return v
	}
	switch typ {
	case "attention.requested", "attention.timeout", "run.cancelled":
		return event.Notice
	case "tool.denied":
		return event.Warning
	case "tool.failed", "run.failed", "error.raised":
		return event.Error
	}
	return event.Info
}

// ---- payloads

// reader reads a payload by the registry's facts.
type reader struct {
	missing string // the path of what is required and not there
}

func (r *reader) object(o map[string]any, f *event.Fact) event.Fields {
	out := event.Fields{}
	for i := range f.Members {
		m := &f.Members[i]
		if base, ok := familyOf(f, m.Name); ok {
			if v, given := o[base]; given && v != nil {
				if m.Name == base && fits(v, m) {
					out = append(out, event.Family(base, v))
				}
				continue // the members of a family are made of its original
			}
		}
		v, given := o[m.Name]
		if given && v != nil {
			if field, ok := r.member(o, m, v); ok {
				out = append(out, field)
				continue
			}
		}
		if m.Required && r.missing == "" {
			r.missing = m.Name
		}
	}
	for _, k := range slices.Sorted(maps.Keys(o)) {
		if f.Member(k) == nil && word(k) != "" {
			if v, ok := bare(o[k]); ok {
				out = append(out, event.Meta(k, v))
			}
		}
	}
	return out
}

// familyOf gives the base of the content family that a member belongs to: the
// name that has a _digest or a _redacted beside it.
func familyOf(f *event.Fact, member string) (string, bool) {
	base := strings.TrimSuffix(strings.TrimSuffix(member, "_digest"), "_redacted")
	if base == member {
		return base, f.Member(base+"_digest") != nil || f.Member(base+"_redacted") != nil
	}
	return base, f.Member(base) != nil
}

func (r *reader) member(in map[string]any, f *event.Fact, v any) (event.Field, bool) {
	if !fits(v, f) {
		return event.Field{}, false
	}
	switch {
	case f.Star:
		s, _ := v.(string)
		alt, _ := in["id"].(string)
		if f.Name == "prompt" {
			alt = "" // the gate's words
		}
		return event.Labelled(f.Name, s, alt), true
	case f.PerKey:
		values, _ := v.(map[string]any)
		return event.FormAnswers(values, nil), true
	case f.Level >= event.Full:
		return event.Whole(f.Name, v), true
	case f.Level == event.Redacted:
		return event.Text(f.Name, v), true
	}
	switch x := v.(type) {
	case map[string]any:
		if len(f.Members) == 0 {
			return event.Meta(f.Name, structural(x)), true
		}
		return event.Meta(f.Name, r.object(x, f)), true
	case []any:
		return r.list(f, x)
	case string:
		// At metadata stands what is structural. A name may hold spaces; what
		// else does is text.
		if len(f.Enum) == 0 && word(x) == "" && (f.Name != "name" || !plain(x)) {
			return event.Field{}, false
		}
	}
	return event.Meta(f.Name, v), true
}

func (r *reader) list(f *event.Fact, list []any) (event.Field, bool) {
	if f.Item == nil || len(f.Item.Members) == 0 {
		out := make([]any, 0, len(list))
		for _, x := range list {
			s, isString := x.(string)
			if f.Item != nil && !fits(x, f.Item) || isString && word(s) == "" {
				continue
			}
			switch x.(type) {
			case map[string]any, []any, nil:
				continue
			}
			out = append(out, x)
		}
		return event.Meta(f.Name, out), true
	}
	out := make([]event.Fields, 0, len(list))
	for _, x := range list {
		if o, ok := x.(map[string]any); ok {
			out = append(out, r.object(o, f.Item))
		}
	}
	return event.Meta(f.Name, out), true
}

// fits says whether a value is of the registered type, and of the words that
// are legal.
func fits(v any, f *event.Fact) bool {
	switch x := v.(type) {
	case string:
		return f.Type&event.String != 0 && (len(f.Enum) == 0 || slices.Contains(f.Enum, x)) && (!f.Instant || instant(x))
	case bool:
		return f.Type&event.Boolean != 0
	case json.Number:
		n, err := x.Float64()
		if err != nil || f.Bounded && (n < f.Min || n > f.Max) {
			return false
		}
		return f.Type&event.Number != 0 || f.Type&event.Integer != 0 && n == float64(int64(n))
	case map[string]any:
		return f.Type&event.Object != 0
	case []any:
		return f.Type&event.Array != 0
	}
	return false
}

func instant(s string) bool { _, err := time.Parse(time.RFC3339Nano, s); return err == nil }

// structural keeps what can be no free text, at any depth.
func structural(o map[string]any) event.Fields {
	out := event.Fields{}
	for _, k := range slices.Sorted(maps.Keys(o)) {
		if word(k) == "" {
			continue
		}
		if sub, ok := o[k].(map[string]any); ok {
			out = append(out, event.Meta(k, structural(sub)))
		} else if v, ok := bare(o[k]); ok {
			out = append(out, event.Meta(k, v))
		}
	}
	return out
}

// bare keeps a number, a boolean or a word.
func bare(v any) (any, bool) {
	switch x := v.(type) {
	case bool, json.Number:
		return v, true
	case string:
		return v, word(x) != ""
	}
	return nil, false
}

// word keeps a string that is an id or a word: short, and no prose.
func word(s string) string {
	if len(s) > 256 || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return ""
	}
	return s
}

// plain says whether a string can be a name: short, and on one line.
func plain(s string) bool {
	return s != "" && len(s) <= 256 && !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })
}
