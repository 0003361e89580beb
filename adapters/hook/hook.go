// Package hook is the engine that the adapters' vocabularies are written in: a
// table of native name → Row, of small Facts. A table says what a native
// payload means, so it can be printed and tested; the engine walks it.
//
// A Fact never branches on a vendor. A missing or mistyped part of a payload
// leaves its member out; where a Row needs the part, the moment becomes the
// vendor's fallback event, and nothing panics. It must not do I/O, read a
// clock, or compare a capture level.
package hook

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// Vocabulary is what one channel of a runtime says, and what it means.
type Vocabulary struct {
	Vendor  string
	Channel adapters.Channel

	// Name gives a moment's native name; nil takes Moment.Name, or the payload
	// member "hook_event_name".
	Name func(*In) string

	// Where the identity stands in every payload. NoSession is the session of
	// a payload that names none, where the channel does not know it either.
	// Time is written in RFC 3339, or as a number of milliseconds since 1970.
	Session, Run, Step, Time Path
	NoSession                string

	// StepAlone says that a payload with a step names the step's own turn as
	// its run: what it tells is of the run that is open in the session.
	StepAlone bool

	Rows map[string]Row

	// Other is the row of a native name that is not in Rows; the zero Row is
	// Unmapped.
	Other Row

	// Fallback spells the rest of x.{vendor}.… for a native name that has no
	// better word; nil is Snake under "session".
	Fallback func(native string) string
}

// Table is a compiled Vocabulary.
type Table struct {
	v                        Vocabulary
	session, run, step, when paths
	types                    map[string]string // fallback types of the known names
}

// New compiles a vocabulary. A table that breaks the contract panics, as a bad
// regexp would: it is a fault of the program, found by any test.
func New(v Vocabulary) *Table {
	t := &Table{v: v, session: parse(v.Session), run: parse(v.Run), step: parse(v.Step), when: parse(v.Time), types: map[string]string{}}
	if t.v.Name == nil {
		t.v.Name = hookName
	}
	if t.v.Fallback == nil {
		t.v.Fallback = func(n string) string { return "session." + Snake(n) }
	}
	if t.v.Other.kind == 0 {
		t.v.Other = Unmapped
	}
	for name, row := range v.Rows {
		t.types[name] = t.fallback(name)
		t.check(name, row)
	}
	t.check("*", t.v.Other)
	return t
}

func hookName(in *In) string {
	if in.Moment.Name != "" {
		return in.Moment.Name
	}
	s, _ := in.Moment.Payload["hook_event_name"].(string)
	return s
}

// check refuses rows that could leak or lie, whatever the payload.
func (t *Table) check(name string, r Row) {
	switch r.kind {
	case emit:
		if !strings.HasPrefix(r.typ, "x.") {
			info, ok := event.Lookup(r.typ)
			if !ok || info.Status == event.Reserved {
				panic(fmt.Sprintf("hook: %s %s emits %s, which is not a type to emit", t.v.Vendor, name, r.typ))
			}
			for _, f := range r.facts {
				f.check(t.v.Vendor+" "+name, info)
			}
			return
		}
		fallthrough
	case unmapped:
		for _, f := range r.facts {
			for _, s := range f.shows {
				if s.Level > event.Metadata {
					panic(fmt.Sprintf("hook: %s %s: %s is content, and a vendor's event carries none", t.v.Vendor, name, s.Member))
				}
			}
		}
	}
	for _, sub := range r.rows {
		t.check(name, sub)
	}
	for _, sub := range r.cases {
		t.check(name, sub)
	}
}

// Map turns a moment into drafts.
func (t *Table) Map(m adapters.Moment) []event.Draft {
	// Facts are called by value, so what they are given lives on the heap: once.
	work := &struct {
		moment adapters.Moment
		in     In
	}{moment: m}
	in := &work.in
	*in = In{Moment: &work.moment, Vendor: t.v.Vendor, at: m.Payload}
	name := t.v.Name(in)
	row, ok := t.v.Rows[name]
	if !ok {
		row = t.v.Other
	}
	out, missing := t.eval(&row, in, name, nil)
	if missing != "" && len(out) == 0 {
		out = append(out, event.Draft{})
		d := &out[0]
		t.place(in, d, t.fallback(name))
		d.Severity = event.Notice
		if m.Payload == nil {
			missing = "payload"
		}
		d.Fields = event.Fields{event.Meta("missing", missing)}
	}
	return out
}

// eval gives a row's drafts; missing names what the row needed and the payload
// does not have.
func (t *Table) eval(r *Row, in *In, name string, out []event.Draft) (_ []event.Draft, missing string) {
	switch r.kind {
	case nothing:
		return out, ""
	case emit, unmapped:
		typ := r.typ
		switch {
		case r.kind == emit:
		case typ != "":
			typ = "x." + t.v.Vendor + "." + typ
		default:
			if typ = t.types[name]; typ == "" {
				typ = t.fallback(name)
			}
		}
		n := len(out)
		out = append(out, event.Draft{})
		d := &out[n]
		t.place(in, d, typ)
		if len(r.facts) > 0 {
			d.Fields = make(event.Fields, 0, len(r.facts)+r.extra)
		}
		for i := range r.facts {
			if f := &r.facts[i]; !f.apply(in, d) {
				return out[:n], f.needs
			}
		}
		if len(d.Fields) == 0 {
			d.Fields = nil
		}
		return out, ""
	case many:
		n := len(out)
		out = slices.Grow(out, len(r.rows))
		for i := range r.rows {
			var m string
			if out, m = t.eval(&r.rows[i], in, name, out); m != "" {
				missing = m
			}
		}
		if len(out) > n {
			missing = ""
		}
		return out, missing
	case choice:
		word := ""
		if r.word != nil {
			word = r.word(in)
		} else {
			v, _ := in.get(r.at)
			word = scalar(v)
		}
		sub, ok := r.cases[word]
		if !ok {
			sub = r.rows[0]
		}
		return t.eval(&sub, in, name, out)
	case when:
		if r.cond.holds(in) {
			return t.eval(&r.rows[0], in, name, out)
		}
		return t.eval(&r.rows[1], in, name, out)
	case each:
		v, _ := in.get(r.at)
		list, ok := v.([]any)
		if !ok {
			return t.eval(&r.rows[1], in, name, out)
		}
		n := len(out)
		for _, x := range list {
			sub := In{Moment: in.Moment, Vendor: in.Vendor, at: x}
			var m string
			if out, m = t.eval(&r.rows[0], &sub, name, out); m != "" {
				missing = m
			}
		}
		if len(out) > n {
			missing = ""
		}
		return out, missing
	}
	return out, "row"
}

// place fills the envelope as far as the payload tells it.
func (t *Table) place(in *In, d *event.Draft, typ string) {
	d.Type = typ
	if strings.HasPrefix(typ, "x.") {
		d.Severity = event.Debug
	} else {
		d.Severity = severities[typ]
	}
	root := In{Moment: in.Moment, at: in.Moment.Payload}
	if d.Session = root.str(t.session); d.Session == "" {
		// A hook that was cut off before it wrote says nothing: also not that
		// its session has no name.
		if d.Session = in.Moment.Session; d.Session == "" && in.Moment.Payload != nil {
			d.Session = t.v.NoSession
		}
	}
	d.Run, d.Step = root.str(t.run), root.str(t.step)
	if t.v.StepAlone && d.Step != "" {
		d.Run = ""
	}
	at, _ := root.get(t.when)
	d.Time = clock(at)
}

// clock reads a vendor's time; what is none is the zero time.
func clock(v any) time.Time {
	switch x := v.(type) {
	case string:
		if at, err := time.Parse(time.RFC3339Nano, x); err == nil {
			return at
		}
	case json.Number:
		if ms, err := x.Int64(); err == nil && ms > 0 && ms < 1<<43 {
			return time.UnixMilli(ms).UTC()
		}
	}
	return time.Time{}
}

// severities of the types that are not merely Info.
var severities = map[string]event.Severity{
	"attention.requested": event.Notice,
	"attention.timeout":   event.Notice,
	"run.cancelled":       event.Notice,
	"tool.denied":         event.Warning,
	"tool.failed":         event.Error,
	"run.failed":          event.Error,
	"error.raised":        event.Error,
}

func (t *Table) fallback(name string) string {
	return "x." + t.v.Vendor + "." + t.v.Fallback(name)
}

// Snake makes a native name a token: "PreToolUse" is pre_tool_use, whatever is
// no letter or digit is one underscore.
func Snake(name string) string {
	if len(name) > 64 {
		name = name[:64]
	}
	b := make([]byte, 0, len(name)+8)
	lower := false // the last was a lowercase letter or a digit
	for i := 0; i < len(name); i++ {
		switch c := name[i]; {
		case c >= 'A' && c <= 'Z':
			if lower {
				b = append(b, '_')
			}
			b, lower = append(b, c+'a'-'A'), false
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			b, lower = append(b, c), true
		default:
			if len(b) > 0 && b[len(b)-1] != '_' {
				b = append(b, '_')
			}
			lower = false
		}
	}
	if s := strings.Trim(string(b), "_"); s != "" {
		return s
	}
	return "unknown"
}

// Dotted is Snake with dots where sep stands, for names such as
// "session/update": two segments at least, else ".event" is added.
func Dotted(name, sep string) string {
	parts := strings.FieldsFunc(name, func(r rune) bool { return strings.ContainsRune(sep, r) })
	for i, p := range parts {
		parts[i] = Snake(p)
	}
	switch len(parts) {
	case 0:
		return "unknown.event"
	case 1:
		return parts[0] + ".event"
	}
	return strings.Join(parts, ".")
}
