package redaction

import (
	"encoding/json"
	"errors"
	"maps"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"aep-wrap/event"
)

// Policy says how much of what happened may be told.
type Policy struct {
	Ceiling event.Level
	// For overrides the ceiling for a category: "attention" → Redacted. The
	// category of every vendor type is "x": what a vendor calls its own
	// categories is no promise that the operator made.
	For map[string]event.Level
}

// DefaultPolicy is the protocol's: metadata, but attention requests readable
// (AEP-0003 §9.1).
func DefaultPolicy() Policy {
	return Policy{Ceiling: event.Metadata, For: map[string]event.Level{"attention": event.Redacted}}
}

// Level is the ceiling of a type.
func (p *Policy) Level(typ string) event.Level {
	if l, ok := p.For[event.Category(typ)]; ok {
		return l
	}
	return p.Ceiling
}

// MaxText bounds a string of free text: what is longer is cut after the
// pipeline ran, and says so. Verbatim content (Full) is not cut.
const MaxText = 256 << 10

// Gate seals drafts into events: the one place where capture levels are
// applied. It is safe for use by several goroutines.
type Gate struct {
	policy Policy
	pipe   atomic.Pointer[Pipeline]
	pool   sync.Pool

	mu   sync.Mutex
	hits map[string]int64 // by rule
}

// NewGate makes a gate; a nil pipeline is one without options.
func NewGate(p Policy, pipe *Pipeline) *Gate {
	if pipe == nil {
		pipe = defaultPipeline
	}
	g := &Gate{policy: p, hits: map[string]int64{}}
	g.pipe.Store(pipe)
	g.pool.New = func() any { return &seal{h: hider{p: g.pipe.Load(), counts: true}, clean: map[string]bool{}} }
	return g
}

// Use has the events from now on go through another pipeline: one that knows
// other secrets.
func (g *Gate) Use(pipe *Pipeline) { g.pipe.Store(pipe) }

// Redactions gives how often each rule hid something in the sealed events, by
// the rule's ID: those of every rule, hit or not.
func (g *Gate) Redactions() map[string]int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := maps.Clone(g.hits)
	for _, r := range Rules() {
		out[r.ID] += 0
	}
	return out
}

func (g *Gate) count(hits []*Rule) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range hits {
		g.hits[r.ID]++
	}
}

// seal is one event in the making.
type seal struct {
	h        hider
	d        *event.Draft
	ceiling  event.Level
	honoured event.Level
	second   bool            // what the first pass found out is known
	clean    map[string]bool // names without a secret in them
	buf      []byte
}

// Seal applies the policy's ceiling to a draft. Fields above it are left out;
// families get the digest of the original, the redacted and the full member,
// each at its own level; labels and prompts are structural below Redacted;
// everything that is written below Full goes through the pipeline, what is
// structural through its secret rules alone. A value that one field shows to
// be a secret is hidden in all of them.
//
// The event's capture is what it honours: the highest level of what it really
// holds, which is never above the ceiling. The draft is not changed.
func (g *Gate) Seal(d *event.Draft) (event.Event, error) {
	if d.Type == "" {
		return event.Event{}, errors.New("gate: a draft without a type; its adapter must name one")
	}
	s := g.pool.Get().(*seal)
	defer g.pool.Put(s)
	if pipe := g.pipe.Load(); s.h.p != pipe {
		s.h.p = pipe
		clear(s.clean)
	}
	s.d, s.ceiling, s.second = d, g.policy.Level(d.Type), false
	s.h.found, s.h.know = s.h.found[:0], nil
	e := event.Event{Header: d.Header}
	s.run(&e)
	if len(s.h.found) > 0 {
		s.second = true
		e.Ext = d.Ext
		s.h.hits = s.h.hits[:0]
		s.run(&e)
	}
	if len(s.h.hits) > 0 {
		g.count(s.h.hits)
		s.h.hits = nil
	}
	s.d = nil
	clear(s.h.found)
	if cap(s.buf) > 1<<20 {
		s.buf = nil
	}
	return e, nil
}

func (s *seal) run(e *event.Event) {
	s.honoured = event.Metadata
	s.buf = s.buf[:0]
	e.Subject = s.structural(s.d.Subject)
	e.Run, e.Step = s.identity(s.d.Run), s.identity(s.d.Step)
	if strings.HasPrefix(s.d.Type, "x.") && s.name(s.d.Type) != s.d.Type {
		// Who names an event after a secret has no event of that name.
		e.Type, e.Data, e.Capture = hiddenType, nil, event.Metadata
		return
	}
	for k, v := range s.d.Ext {
		if t, ok := v.(string); ok {
			if r := s.structural(t); r != t {
				ext := make(map[string]any, len(s.d.Ext))
				for k, v := range e.Ext {
					ext[k] = v
				}
				ext[k] = r
				e.Ext = ext
			}
		}
	}
	e.Data = nil
	if s.ceiling == event.None {
		e.Capture = event.None
		return
	}
	if len(s.d.Fields) > 0 {
		s.fields(s.d.Fields)
		if len(s.buf) > 2 {
			e.Data = append(json.RawMessage(nil), s.buf...)
		}
	}
	e.Capture = s.honoured
}

// hiddenType stands for a vendor's type that had a secret in it.
const hiddenType = "x.aep-wrap.type.hidden"

// identity is a name by which events are grouped. One that has a secret in it
// is replaced whole, by the same words every time.
func (s *seal) identity(name string) string {
	if s.structural(name) == name {
		return name
	}
	return "hidden-" + event.Digest(name)[:16]
}

// maxClean bounds how many clean names a seal remembers.
const maxClean = 512

// name is structural for a member's name or a type: there are few, and they
// come again with every event.
func (s *seal) name(n string) string {
	if s.clean[n] && !s.second {
		return n
	}
	t := s.structural(n)
	if t == n && !s.second && s.clean != nil && len(s.clean) < maxClean {
		s.clean[strings.Clone(n)] = true
	}
	return t
}

// structural runs the secret rules over what is metadata already.
func (s *seal) structural(t string) string {
	if len(t) < minListed {
		return t
	}
	s.h.depth = secretsOnly
	t = s.h.text(t)
	if s.second {
		t = s.h.again(t)
	}
	return t
}

// free runs the whole pipeline over a tree of free text.
func (s *seal) free(v any) any {
	s.h.depth = everything
	s.h.limit = MaxText
	v = s.h.value(v)
	s.h.limit = 0
	if s.second {
		v = s.h.againValue(v)
	}
	return v
}

func (s *seal) note(l event.Level) {
	if l > s.honoured {
		s.honoured = l
	}
}

// member begins a member of the object that began at start.
func (s *seal) member(start int, name, tail string) {
	if len(s.buf) > start+1 {
		s.buf = append(s.buf, ',')
	}
	s.buf = append(s.buf, '"')
	name = s.name(name)
	if plainName(name) {
		s.buf = append(append(s.buf, name...), tail...)
	} else {
		q := event.AppendValue(nil, name+tail)
		s.buf = append(s.buf, q[1:len(q)-1]...)
	}
	s.buf = append(s.buf, '"', ':')
}

func plainName(n string) bool {
	for i := range len(n) {
		if !is(n[i], word|dot|dash) {
			return false
		}
	}
	return true
}

// fields writes an object.
func (s *seal) fields(fs event.Fields) {
	start := len(s.buf)
	s.buf = append(s.buf, '{')
	for i := range fs {
		f := &fs[i]
		if f.Value == nil && f.Kind != event.Label || f.Level > s.ceiling {
			continue
		}
		switch f.Kind {
		case event.Content:
			s.family(start, f)
		case event.Label:
			s.label(start, f, fs)
		case event.Answers:
			s.answers(start, f)
		default:
			s.member(start, f.Name, "")
			s.note(f.Level)
			s.plain(f)
		}
	}
	s.buf = append(s.buf, '}')
}

func (s *seal) plain(f *event.Field) {
	switch v := f.Value.(type) {
	case event.Fields:
		s.fields(v)
	case []event.Fields:
		s.buf = append(s.buf, '[')
		for i := range v {
			if i > 0 {
				s.buf = append(s.buf, ',')
			}
			s.fields(v[i])
		}
		s.buf = append(s.buf, ']')
	case string:
		switch f.Level {
		case event.Full:
			s.buf = event.AppendValue(s.buf, f.Value)
		case event.Redacted:
			s.buf = event.AppendValue(s.buf, s.free(f.Value))
		default:
			if t := s.structural(v); t != v {
				s.buf = event.AppendValue(s.buf, t)
			} else {
				s.buf = event.AppendValue(s.buf, f.Value)
			}
		}
	case bool:
		s.buf = strconv.AppendBool(s.buf, v)
	case int:
		s.buf = strconv.AppendInt(s.buf, int64(v), 10)
	case int64:
		s.buf = strconv.AppendInt(s.buf, v, 10)
	case json.Number, float64:
		s.buf = event.AppendValue(s.buf, f.Value)
	default:
		switch f.Level {
		case event.Full:
			s.buf = event.AppendValue(s.buf, f.Value)
		case event.Redacted:
			s.buf = event.AppendValue(s.buf, s.free(tree(v)))
		default:
			s.h.depth = secretsOnly
			t := s.h.value(tree(v))
			if s.second {
				t = s.h.againValue(t)
			}
			s.buf = event.AppendValue(s.buf, t)
		}
	}
}

// tree gives a value the form that ParseJSON gives, so that no string of it is
// overlooked.
func tree(v any) any {
	switch v := v.(type) {
	case nil, bool, string, json.Number, int, int64, float64:
		return v
	case []any:
		for _, e := range v {
			if !isTree(e) {
				return reparse(v)
			}
		}
		return v
	case map[string]any:
		for _, e := range v {
			if !isTree(e) {
				return reparse(v)
			}
		}
		return v
	}
	return reparse(v)
}

func isTree(v any) bool {
	switch v := v.(type) {
	case nil, bool, string, json.Number, int, int64, float64:
		return true
	case []any:
		for _, e := range v {
			if !isTree(e) {
				return false
			}
		}
		return true
	case map[string]any:
		for _, e := range v {
			if !isTree(e) {
				return false
			}
		}
		return true
	}
	return false
}

func reparse(v any) any {
	t, err := event.ParseJSON(event.AppendValue(nil, v))
	if err != nil {
		return nil
	}
	return t
}

// family is how the members of a content family are named and typed
// (AEP-0002 §5.1).
type family struct {
	digest   bool
	redacted string // the suffix of the redacted member
	whole    bool   // the original has a member at Full
	shape    func(any) any
}

var families = map[string]family{
	"args":       {digest: true, redacted: "_redacted", whole: true, shape: asObject},
	"result":     {digest: true, redacted: "_redacted", whole: true, shape: asObjectOrText},
	"query":      {digest: true, redacted: "", shape: asText},
	"content":    {redacted: "_redacted", whole: true, shape: asText},
	"cited_text": {redacted: "_redacted", whole: true, shape: asText},
}

// A family that the protocol does not know is treated as result is.
var anyFamily = family{digest: true, redacted: "_redacted", whole: true, shape: func(v any) any { return v }}

// asObject: args are an object. Anything else is told as one under "value".
func asObject(v any) any {
	if _, ok := v.(map[string]any); ok {
		return v
	}
	return map[string]any{"value": v}
}

// asObjectOrText: a result is an object or a string. Anything else is told as
// its compact JSON text.
func asObjectOrText(v any) any {
	if _, ok := v.(map[string]any); ok {
		return v
	}
	return asText(v)
}

func asText(v any) any {
	if _, ok := v.(string); ok {
		return v
	}
	return string(event.AppendValue(nil, v))
}

// family writes the digest of the original, whatever becomes of its form, and
// the members that the ceiling allows.
func (s *seal) family(start int, f *event.Field) {
	fam, ok := families[f.Name]
	if !ok {
		fam = anyFamily
	}
	if fam.digest {
		s.member(start, f.Name, "_digest")
		s.buf = append(s.buf, '"')
		digest := f.Alt
		if digest == "" {
			digest = event.Digest(f.Value)
		}
		s.buf = append(s.buf, digest...)
		s.buf = append(s.buf, '"')
	}
	if s.ceiling >= event.Redacted {
		s.note(event.Redacted)
		s.member(start, f.Name, fam.redacted)
		s.buf = event.AppendValue(s.buf, fam.shape(s.free(tree(f.Value))))
	}
	if s.ceiling >= event.Full && fam.whole {
		s.note(event.Full)
		s.member(start, f.Name, "")
		s.buf = event.AppendValue(s.buf, fam.shape(f.Value))
	}
}

// label writes a [metadata*] member: its text from Redacted on, below it the
// structural form. An adapter that gives none gets the one that a hop makes.
func (s *seal) label(start int, f *event.Field, siblings event.Fields) {
	alt := f.Alt
	if alt == "" {
		if f.Name == "prompt" {
			alt = structuralPrompt(s.d.Agent, s.d.Fields.Str("kind"), s.d.Subject)
		} else {
			alt = siblings.Str("id")
		}
	}
	text, _ := f.Value.(string)
	s.member(start, f.Name, "")
	if s.ceiling >= event.Redacted && text != "" {
		if text != alt {
			s.note(event.Redacted)
		}
		s.buf = event.AppendValue(s.buf, s.free(text))
		return
	}
	s.buf = event.AppendValue(s.buf, s.structural(alt))
}

// structuralPrompt is the prompt of a request of which only the structure may
// be told (AEP-0003 §9.2).
func structuralPrompt(agent, kind, subject string) string {
	if kind == "" {
		kind = "attention"
	}
	p := agent + " requests " + kind
	if subject != "" {
		p += ": " + subject
	}
	return p
}

func (s *seal) answers(start int, f *event.Field) {
	values, ok := f.Value.(map[string]any)
	if !ok {
		return
	}
	out, free := gateAnswers(values, f.Spec, s.ceiling)
	s.member(start, f.Name, "")
	if free {
		s.note(event.Redacted)
		s.h.depth = everything
		out = s.answerTexts(out, f.Spec)
	}
	s.buf = event.AppendValue(s.buf, out)
}

// answerTexts runs the pipeline over the free text of answers.
func (s *seal) answerTexts(values map[string]any, spec []event.FormField) map[string]any {
	out := make(map[string]any, len(values))
	for id, v := range values {
		out[id] = v
		for i := range spec {
			if f := &spec[i]; f.ID == id && !structuralAnswer(f, v) {
				out[id] = s.h.answer(f, v)
				if s.second {
					out[id] = s.h.againValue(out[id])
				}
			}
		}
	}
	return out
}

// answer redacts one field's answer: all of it where the form asked for a
// credential.
func (h *hider) answer(f *event.FormField, v any) any {
	sc := newScan("")
	defer sc.release()
	for _, asked := range [...]string{f.ID, f.Label} {
		if asked == "" || len(asked) > maxName {
			continue
		}
		n := sc.names.of(asked, "")
		if a, b, ok := strings.Cut(strings.TrimRight(asked, ":?* "), " "); ok && n.grade < firm {
			n = sc.names.of(b, strings.ToLower(a))
		}
		if n.grade >= firm {
			return h.hideAll(v, &n)
		}
	}
	return h.value(tree(v))
}

// Answers gates the answers to a form (AEP-0006, AEP-0002 §5.3). Numbers,
// booleans and the ids of closed choices are structural; free text (string
// fields, what is no choice of a select) needs Redacted, and goes through the
// pipeline there; keys without a field are dropped. That None carries no data
// at all is the envelope's matter.
func Answers(values map[string]any, spec []event.FormField, l event.Level, p *Pipeline) map[string]any {
	out, free := gateAnswers(values, spec, l)
	if free {
		s := seal{h: *p.hider(everything)}
		out = s.answerTexts(out, spec)
		if len(s.h.found) > 0 {
			s.second = true
			out = s.answerTexts(out, spec)
		}
	}
	return out
}

// gateAnswers keeps what l allows; free says that free text is among it.
func gateAnswers(values map[string]any, spec []event.FormField, l event.Level) (out map[string]any, free bool) {
	out = make(map[string]any, len(values))
	for i := range spec {
		f := &spec[i]
		v, ok := values[f.ID]
		if !ok || v == nil || !answers(f, v) {
			continue
		}
		if structuralAnswer(f, v) {
			out[f.ID] = v
			continue
		}
		if l >= event.Redacted {
			out[f.ID] = v
			free = true
			continue
		}
		// Of several answers, those that are choices.
		if a, ok := v.([]any); ok && f.Type == "select" {
			var ids []any
			for _, e := range a {
				if structuralAnswer(f, e) {
					ids = append(ids, e)
				}
			}
			if len(ids) > 0 {
				out[f.ID] = ids
			}
		}
	}
	return out, free
}

// answers says whether a value can be an answer to a field at all: of its type,
// and one of the choices where these are closed. What cannot is nobody's
// answer, and would make the stream a false one.
func answers(f *event.FormField, v any) bool {
	switch v := v.(type) {
	case bool:
		return f.Type == "boolean"
	case json.Number, int, int64, float64:
		return f.Type == "number"
	case string:
		return f.Type == "string" || f.Type == "select" && (f.Other || structuralAnswer(f, v))
	case []any:
		if f.Type != "select" {
			return false
		}
		for _, e := range v {
			if s, ok := e.(string); !ok || !answers(f, s) {
				return false
			}
		}
		return true
	}
	return false
}

// structuralAnswer says that an answer is no free text.
func structuralAnswer(f *event.FormField, v any) bool {
	switch v := v.(type) {
	case bool:
		return f.Type != "string"
	case json.Number, int, int64, float64:
		return f.Type != "string"
	case string:
		if f.Type != "select" {
			return false
		}
		for i := range f.Choices {
			if f.Choices[i].ID == v {
				return true
			}
		}
	case []any:
		if f.Type != "select" {
			return false
		}
		for _, e := range v {
			if _, nested := e.([]any); nested || !structuralAnswer(f, e) {
				return false
			}
		}
		return true
	}
	return false
}
