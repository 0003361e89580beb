package hook

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// Fact is one thing that a payload says. It puts a member into a draft, or
// fills an attribute of its envelope.
type Fact struct {
	apply func(*In, *event.Draft) bool // false: what needs names is not there
	needs string
	shows []adapters.TermField
	extra int // members beyond one
}

// check holds a fact to the registry: text goes only where the type has a
// member for it, or it would survive a hop that lowers the level.
func (f Fact) check(where string, info event.TypeInfo) {
	for _, s := range f.shows {
		if s.Level == event.Metadata || strings.HasPrefix(s.Member, "(") {
			continue
		}
		if info.Data == nil {
			panic("hook: " + where + ": " + s.Member + " is content, and " + info.Type + " has no registered payload")
		}
		path := strings.Split(strings.ReplaceAll(s.Member, "[]", ".[]"), ".")
		if s.Member == "answer.values" {
			continue
		}
		fact := info.Data.At(path...)
		if fact == nil {
			fact = info.Data.At(s.Member, "")
		}
		if fact == nil && info.Data.Member(s.Member) == nil && info.Data.Member(s.Member+"_digest") == nil && info.Data.Member(s.Member+"_redacted") == nil {
			panic("hook: " + where + ": " + s.Member + " is text, and " + info.Type + " has no registered member of that name: a hop would let it pass at metadata")
		}
	}
}

func plain(member string, p Path, l event.Level) []adapters.TermField {
	return []adapters.TermField{{Member: member, From: p, Level: l}}
}

// ---- structure

// maxToken is how long a structural string may be; a longer one is no name.
const maxToken = 256

// token says whether a string can be a name: it may appear at metadata, so it
// must not be prose. Ids, enum words, model names, versions and paths of types
// pass; anything with a space or a control character does not.
func token(s string) bool {
	if s == "" || len(s) > maxToken {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// name says whether a string can name a tool: what runtimes call their tools
// may hold spaces, not lines.
func name(s string) bool {
	if s == "" || len(s) > maxToken {
		return false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] == 0x7f {
			return false
		}
	}
	return true
}

// Str is a structural string: a word, an id. Prose is left out.
func Str(member string, p Path) Fact {
	ps := parse(p)
	return Fact{shows: plain(member, p, event.Metadata), apply: func(in *In, d *event.Draft) bool {
		if v, _ := in.get(ps); v != nil {
			if s, ok := v.(string); ok && token(s) {
				d.Fields = append(d.Fields, event.Meta(member, v))
			}
		}
		return true
	}}
}

// Label is a short text of the runtime's own, as on a button: it may hold
// spaces, on one line.
func Label(member string, p Path) Fact {
	ps := parse(p)
	return Fact{shows: plain(member, p, event.Metadata), apply: func(in *In, d *event.Draft) bool {
		if v, _ := in.get(ps); v != nil {
			if s, ok := v.(string); ok && name(s) {
				d.Fields = append(d.Fields, event.Meta(member, v))
			}
		}
		return true
	}}
}

// Word is a vendor's word of lowercase letters, digits and underscores; what is
// none, or not there, is otherwise.
func Word(member string, p Path, otherwise string) Fact {
	ps := parse(p)
	return Fact{shows: plain(member, p, event.Metadata), apply: func(in *In, d *event.Draft) bool {
		s := in.str(ps)
		if !word(s) {
			s = otherwise
		}
		d.Fields = append(d.Fields, event.Meta(member, s))
		return true
	}}
}

func word(s string) bool {
	for i := 0; i < len(s); i++ {
		letter := s[i] >= 'a' && s[i] <= 'z'
		if !letter && (i == 0 || s[i] != '_' && (s[i] < '0' || s[i] > '9')) {
			return false
		}
	}
	return s != "" && len(s) <= 48
}

// Enum is a word of the vendor's as the registry's; one that is not in words
// is otherwise, or left out when that is "".
func Enum(member string, p Path, words map[string]string, otherwise string) Fact {
	ps := parse(p)
	return Fact{shows: plain(member, p+" (by table)", event.Metadata), apply: func(in *In, d *event.Draft) bool {
		v, _ := in.get(ps)
		w, ok := words[scalar(v)]
		if !ok {
			w = otherwise
		}
		if w != "" {
			d.Fields = append(d.Fields, event.Meta(member, w))
		}
		return true
	}}
}

// Const is a member that the moment itself says.
func Const(member string, v any) Fact {
	return Fact{shows: plain(member, "", event.Metadata), apply: func(_ *In, d *event.Draft) bool {
		d.Fields = append(d.Fields, event.Meta(member, v))
		return true
	}}
}

// Int is a count that is not negative.
func Int(member string, p Path) Fact {
	ps := parse(p)
	return Fact{shows: plain(member, p, event.Metadata), apply: func(in *In, d *event.Draft) bool {
		v, _ := in.get(ps)
		if n, ok := whole(v); ok {
			d.Fields = append(d.Fields, event.Meta(member, n))
		}
		return true
	}}
}

// whole reads a count: a number, or a string of digits as telemetry has it.
func whole(v any) (any, bool) {
	s := ""
	switch x := v.(type) {
	case json.Number:
		s = x.String()
	case string:
		s = x
	case int:
		return x, x >= 0
	case int64:
		return x, x >= 0
	default:
		return nil, false
	}
	if len(s) > 24 {
		return nil, false
	}
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, n >= 0 && n < 1<<53
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f >= 0) || f >= 1<<53 {
		return nil, false
	}
	return int64(math.Round(f)), true
}

// Num is a number that is not negative, as it is written.
func Num(member string, p Path) Fact {
	ps := parse(p)
	return Fact{shows: plain(member, p, event.Metadata), apply: func(in *In, d *event.Draft) bool {
		v, _ := in.get(ps)
		if n, ok := v.(json.Number); ok {
			if f, err := n.Float64(); err == nil && f >= 0 {
				d.Fields = append(d.Fields, event.Meta(member, v))
			}
		}
		return true
	}}
}

// Dur is a duration in milliseconds.
func Dur(member string, p Path) Fact { return Int(member, p) }

// Bool is a yes or no.
func Bool(member string, p Path) Fact {
	ps := parse(p)
	return Fact{shows: plain(member, p, event.Metadata), apply: func(in *In, d *event.Draft) bool {
		v, _ := in.get(ps)
		if _, ok := v.(bool); ok {
			d.Fields = append(d.Fields, event.Meta(member, v))
		}
		return true
	}}
}

// Object is a member made of members; where none is there, it is left out, and
// it appears from the level on at which one of them does.
func Object(member string, facts ...Fact) Fact {
	f := Fact{}
	for _, sub := range facts {
		for _, s := range sub.shows {
			if !strings.HasPrefix(s.Member, "(") {
				s.Member = member + "." + s.Member
			}
			f.shows = append(f.shows, s)
		}
		if f.needs == "" {
			f.needs = sub.needs
		}
	}
	f.apply = func(in *In, d *event.Draft) bool {
		outer := d.Fields
		d.Fields = make(event.Fields, 0, len(facts))
		ok := true
		for _, sub := range facts {
			ok = ok && sub.apply(in, d)
		}
		inner := d.Fields
		d.Fields = outer
		if len(inner) > 0 {
			l := event.Full
			for _, f := range inner {
				l = min(l, f.Level)
			}
			d.Fields = append(d.Fields, event.Field{Name: member, Level: l, Value: inner})
		}
		return ok
	}
	return f
}

// ---- content

// Text is free text: from Redacted on, through the pipeline. A list of content
// parts gives their texts, joined by lines.
func Text(member string, p Path) Fact {
	ps := parse(p)
	return Fact{shows: plain(member, p, event.Redacted), apply: func(in *In, d *event.Draft) bool {
		v, _ := in.get(ps)
		if s, boxed := textOf(v); s != "" {
			d.Fields = append(d.Fields, event.Text(member, boxed))
		}
		return true
	}}
}

// textOf reads a string, or content parts {type: text, text}.
func textOf(v any) (string, any) {
	switch x := v.(type) {
	case string:
		return x, v
	case []any:
		var b strings.Builder
		for _, part := range x {
			s, _ := part.(string)
			if o, ok := part.(map[string]any); ok {
				s, _ = o["text"].(string)
			}
			if s != "" {
				if b.Len() > 0 {
					b.WriteByte('\n')
				}
				b.WriteString(s)
			}
		}
		return b.String(), b.String()
	}
	return "", nil
}

// Whole is an object that appears only at Full, verbatim.
func Whole(member string, p Path) Fact {
	ps := parse(p)
	return Fact{shows: plain(member, p, event.Full), apply: func(in *In, d *event.Draft) bool {
		v, _ := in.get(ps)
		if _, ok := v.(map[string]any); ok {
			d.Fields = append(d.Fields, event.Whole(member, v))
		}
		return true
	}}
}

// Content is a content family: digest at Metadata, the rest above. base is
// args, result, query, content or cited_text.
func Content(base string, p Path) Fact {
	ps := parse(p)
	return Fact{shows: plain(base, p, event.Redacted), apply: func(in *In, d *event.Draft) bool {
		if v, ok := in.get(ps); ok {
			d.Fields = append(d.Fields, family(base, v)...)
		}
		return true
	}}
}

// family is a content family of whatever a runtime gives. The registry wants
// args to be an object, and a result an object or a string: anything else is
// shown inside one, while its digest stays that of the original.
func family(base string, v any) event.Fields {
	switch v.(type) {
	case map[string]any:
		return event.Fields{event.Family(base, v)}
	case string:
		if base != "args" {
			return event.Fields{event.Family(base, v)}
		}
	}
	member := "value"
	if _, ok := v.([]any); ok {
		member = "content" // of a tool's result in MCP, which is where arrays come from
	}
	in := map[string]any{member: v}
	return event.Fields{event.Meta(base+"_digest", event.Digest(v)), event.Text(base+"_redacted", in), event.Whole(base, in)}
}

// ---- the envelope

// Subject is what is acted upon. It is structural.
func Subject(p Path) Fact {
	ps := parse(p)
	return Fact{shows: plain("(subject)", p, event.Metadata), apply: func(in *In, d *event.Draft) bool {
		if s := in.str(ps); name(s) {
			d.Subject = s
		}
		return true
	}}
}

// OfRun is the run where it is not where the vocabulary says. An empty path is
// the run that is open, or the one that the rest of the event leads to.
func OfRun(p Path) Fact {
	ps := parse(p)
	return Fact{shows: plain("(run)", p, event.Metadata), apply: func(in *In, d *event.Draft) bool {
		d.Run = id(in.str(ps))
		return true
	}}
}

// OfStep is the step where it is not where the vocabulary says.
func OfStep(p Path) Fact {
	ps := parse(p)
	return Fact{shows: plain("(step)", p, event.Metadata), apply: func(in *In, d *event.Draft) bool {
		d.Step = id(in.str(ps))
		return true
	}}
}

// OfParent says that a delegation is an event of the parent's, not of the subagent that
// the payload names.
var OfParent = Fact{apply: func(_ *In, d *event.Draft) bool { d.Step = ""; return true }}

// Pair is the vendor's key under which a fact's later moments speak of it. A
// fact that has one is named by it, unless Key names it otherwise.
func Pair(p Path) Fact {
	ps := parse(p)
	return Fact{apply: func(in *In, d *event.Draft) bool {
		if s := id(in.str(ps)); s != "" {
			d.Pair = s
			if d.Key == "" {
				d.Key = s
			}
		}
		return true
	}}
}

// Key names the fact by the vendor's ids at these paths. Where one is not
// there, the fact has no name.
func Key(ps ...Path) Fact {
	all := make([]paths, len(ps))
	for i, p := range ps {
		all[i] = parse(p)
	}
	return Fact{apply: func(in *In, d *event.Draft) bool {
		key := ""
		for i, p := range all {
			v, _ := in.get(p)
			s := id(scalar(v))
			if s == "" {
				d.Key = ""
				return true
			}
			if i > 0 {
				key += "/"
			}
			key += s
		}
		d.Key = key
		return true
	}}
}

// Unnamed takes a fact's name away: each moment is a fact of its own.
var Unnamed = Fact{apply: func(_ *In, d *event.Draft) bool { d.Key = ""; return true }}

// Severity is the event's weight where it is not its type's own.
func Severity(s event.Severity) Fact {
	return Fact{apply: func(_ *In, d *event.Draft) bool { d.Severity = s; return true }}
}

// Need lets the row stand only where a string is at a path.
func Need(p Path) Fact {
	ps := parse(p)
	return Fact{needs: p, apply: func(in *In, _ *event.Draft) bool { return in.str(ps) != "" }}
}

// id keeps an identifier that can be one.
func id(s string) string {
	if len(s) > 1024 {
		return ""
	}
	return s
}

// Do is a step of the adapter's own, for what needs more than two nested
// conditions. It says like any fact what it shows, and what it needs.
func Do(needs string, shows []adapters.TermField, do func(*In, *event.Draft) bool) Fact {
	return Fact{needs: needs, shows: shows, apply: do, extra: 4}
}

// ---- tools

// Tool is the tool that a moment is about: its name, required, and the
// vendor's id of the call, which names the fact.
func Tool(nameAt, call Path) Fact {
	np, cp := parse(nameAt), parse(call)
	f := Fact{needs: nameAt, shows: []adapters.TermField{
		{Member: "tool.name", From: nameAt, Level: event.Metadata},
		{Member: "(subject)", From: nameAt, Level: event.Metadata},
	}}
	if call != "" {
		f.shows = append(f.shows, adapters.TermField{Member: "tool.call_id", From: call, Level: event.Metadata})
	}
	f.apply = func(in *In, d *event.Draft) bool {
		v, _ := in.get(np)
		s, _ := v.(string)
		if !name(s) {
			return false
		}
		tool := make(event.Fields, 1, 2)
		tool[0] = event.Meta("name", v)
		d.Subject = s
		if c, _ := in.get(cp); c != nil {
			if s, ok := c.(string); ok && token(s) {
				tool = append(tool, event.Meta("call_id", c))
				d.Pair, d.Key = s, s
			}
		}
		d.Fields = append(d.Fields, event.Meta("tool", tool))
		return true
	}
	return f
}

// Call is a tool of which a moment tells the call id alone; the session adds
// the name.
func Call(call Path) Fact {
	cp := parse(call)
	return Fact{needs: call, shows: []adapters.TermField{{Member: "tool.call_id", From: call, Level: event.Metadata}},
		apply: func(in *In, d *event.Draft) bool {
			v, _ := in.get(cp)
			s, _ := v.(string)
			if !token(s) {
				return false
			}
			d.Pair, d.Key = s, s
			d.Fields = append(d.Fields, event.Meta("tool", event.Fields{event.Meta("call_id", v)}))
			return true
		}}
}

// Fault is an error: its type, a word, and its message, text.
func Fault(typ Fact, message Path) Fact {
	return Object("error", typ, Text("message", message))
}
