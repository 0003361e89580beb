package control

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"aep-wrap/event"
)

// Answer is an answer to an attention request, in the protocol's words: what
// is applied, after the rules were. It converts to the adapters' own.
type Answer struct {
	Option string
	Text   string
	Values map[string]any
}

// Option is one thing to choose in a request.
type Option struct{ ID, Label string }

// Request is what an attention.requested asks (AEP-0002 §5.2).
type Request struct {
	ID      string // the event's id: the subject of all that follows
	Session string
	Kind    string
	Options []Option
	Fields  []event.FormField
	Via     []string // respond_via; nil where nothing is declared
}

// RequestOf reads the draft of an attention.requested, placed or not.
func RequestOf(d *event.Draft) Request {
	return readRequest(&d.Header, d.Fields)
}

// RequestFrom reads an attention.requested as it came in: what its capture
// level has left out is not there.
func RequestFrom(e *event.Event) Request {
	data, _ := event.ParseObject(e.Data)
	return readRequest(&e.Header, data)
}

func readRequest(h *event.Header, data any) Request {
	r := Request{ID: h.ID, Session: h.Session}
	r.Kind, _ = member(data, "kind").(string)
	for _, v := range listOf(member(data, "respond_via")) {
		if s, ok := v.(string); ok {
			r.Via = append(r.Via, s)
		}
	}
	for _, o := range listOf(member(data, "options")) {
		if id := str(o, "id"); id != "" {
			r.Options = append(r.Options, Option{id, str(o, "label")})
		}
	}
	for _, o := range listOf(member(data, "fields")) {
		f := event.FormField{ID: str(o, "id"), Type: str(o, "type"), Label: str(o, "label")}
		if b, ok := member(o, "required").(bool); ok {
			f.Required = &b
		}
		f.Multi, _ = member(o, "multi").(bool)
		f.Other, _ = member(o, "other").(bool)
		f.Min, f.Max = numberOf(member(o, "min")), numberOf(member(o, "max"))
		for _, c := range listOf(member(o, "choices")) {
			f.Choices = append(f.Choices, event.FormChoice{ID: str(c, "id"), Label: str(c, "label")})
		}
		r.Fields = append(r.Fields, f)
	}
	return r
}

// member is a member of an object that is either Fields or a JSON tree.
func member(v any, name string) any {
	switch o := v.(type) {
	case event.Fields:
		return o.Get(name)
	case map[string]any:
		return o[name]
	}
	return nil
}

func str(v any, name string) string {
	s, _ := member(v, name).(string)
	return s
}

func listOf(v any) []any {
	switch l := v.(type) {
	case []any:
		return l
	case []event.Fields:
		out := make([]any, len(l))
		for i := range l {
			out[i] = l[i]
		}
		return out
	}
	return nil
}

func numberOf(v any) *float64 {
	var f float64
	switch n := v.(type) {
	case json.Number:
		var err error
		if f, err = n.Float64(); err != nil {
			return nil
		}
	case float64:
		f = n
	case int:
		f = float64(n)
	case int64:
		f = float64(n)
	default:
		return nil
	}
	return &f
}

// Answerable says whether an answer from afar can reach the request:
// respond_via is authoritative where it is present.
func (r *Request) Answerable() bool { return r.Via == nil || slices.Contains(r.Via, "control") }

// Read makes data.answer of a respond command the answer that is to be
// applied, or says why it is none. The rules are those of AEP-0006 and AEP-0008:
//
//   - {option}: an id of the request's options. A form may be refused by
//     decline, deny, reject or cancel without listing them.
//   - {text}: see textAnswer. Beside an option it is the reason or remark.
//   - {values}: of a form; see formAnswer.
func (r *Request) Read(answer map[string]any) (Answer, string) {
	for _, name := range []string{"option", "text"} {
		if v, there := answer[name]; there {
			if _, ok := v.(string); !ok {
				return Answer{}, "data.answer." + name + " is not a string"
			}
		}
	}
	a := Answer{}
	a.Option, _ = answer["option"].(string)
	a.Text, _ = answer["text"].(string)
	if strings.TrimSpace(a.Text) == "" {
		a.Text = ""
	}
	values, hasValues := answer["values"]
	switch {
	case a.Option != "" && hasValues:
		return Answer{}, "data.answer has an option and values; one of them answers"
	case hasValues:
		return r.formAnswer(values)
	case a.Option != "":
		if r.offers(a.Option) {
			return a, ""
		}
		return Answer{}, "data.answer.option " + quote(a.Option) + " is none of the request's options" + r.list()
	case a.Text != "":
		return r.textAnswer(a.Text)
	case r.Kind == "form":
		return Answer{}, "data.answer.values is missing: the request is a form"
	}
	return Answer{}, "data.answer says nothing: give an option, a text or values"
}

// formRefusals are the options by which a form is refused that lists none.
var formRefusals = []string{"decline", "deny", "reject", "cancel"}

func (r *Request) offers(id string) bool {
	if r.Kind == "form" && len(r.Options) == 0 {
		return slices.Contains(formRefusals, id)
	}
	return slices.ContainsFunc(r.Options, func(o Option) bool { return o.ID == id })
}

func (r *Request) list() string {
	if len(r.Options) == 0 {
		return ""
	}
	ids := make([]string, len(r.Options))
	for i, o := range r.Options {
		ids[i] = o.ID
	}
	return ": " + strings.Join(ids, ", ")
}

// textRule says what a text means that names no option, by the request's kind.
// A kind that is not known is judged as the most dangerous one.
var textRule = map[string]func(*Request, string) (Answer, string){
	"permission": refusal,
	"review":     refusal,
	"input":      freeText,
	"auth":       freeText,
	"other": func(r *Request, text string) (Answer, string) {
		if len(r.Options) > 0 {
			return Answer{}, "data.answer.text names none of the request's options" + r.list()
		}
		return freeText(r, text)
	},
	"form": func(r *Request, text string) (Answer, string) {
		if id := strings.ToLower(strings.TrimSpace(text)); r.offers(id) {
			return Answer{Option: id}, ""
		}
		return Answer{}, "data.answer.values is missing: the request is a form"
	},
}

// textAnswer is the text rule of AEP-0008. A text that is an option's id, or
// exactly one option's label, is that option; both sides trimmed, upper and
// lower case alike, an exact id before all. Any other text, for a permission,
// is the refusing option with the text as its reason: never the permissive one.
func (r *Request) textAnswer(text string) (Answer, string) {
	if o, ok := r.named(strings.TrimSpace(text)); ok {
		return Answer{Option: o.ID}, ""
	}
	rule, ok := textRule[r.Kind]
	if !ok {
		rule = refusal
	}
	return rule(r, text)
}

func freeText(_ *Request, text string) (Answer, string) { return Answer{Text: text}, "" }

func refusal(r *Request, text string) (Answer, string) {
	if id := refusing(r.Options); id != "" {
		return Answer{Option: id, Text: strings.TrimSpace(text)}, ""
	}
	return Answer{}, "data.answer.text names none of the request's options, and none of them is known to refuse" + r.list()
}

func (r *Request) named(text string) (Option, bool) {
	for _, by := range []func(Option) bool{
		func(o Option) bool { return o.ID == text },
		func(o Option) bool { return strings.EqualFold(strings.TrimSpace(o.ID), text) },
		func(o Option) bool { return strings.EqualFold(strings.TrimSpace(o.Label), text) },
	} {
		var found []Option
		for _, o := range r.Options {
			if by(o) {
				found = append(found, o)
			}
		}
		if len(found) > 0 {
			return found[0], len(found) == 1
		}
	}
	return Option{}, false
}

// The words by which options refuse. Of a refuser the further words may only
// say for how long.
var (
	refusers = []string{"deny", "reject", "decline", "refuse", "disallow"}
	bareNos  = []string{"no", "cancel", "abort", "block"}
	spans    = []string{"once", "always", "forever", "session", "for", "this", "time", "all", "permanently", "run"}
)

// refusing gives the id of the option that refuses, "" where none surely does.
// The id tells; a label is believed only beside an id that says nothing (a
// number, "option_2"). What refuses this once comes before what does for ever.
func refusing(options []Option) string {
	best, rank := "", 0
	for _, o := range options {
		n := 2 * refusalRank(words(o.ID))
		if n == 0 && saysNothing(o.ID) {
			n = labelRank(o.Label)
		}
		if n > rank {
			best, rank = o.ID, n
		}
	}
	return best
}

// refusalRank is 0 for words that do not surely refuse; the higher, the milder
// they do.
func refusalRank(w []string) int {
	switch {
	case len(w) == 1 && slices.Contains(bareNos, w[0]):
		return 1
	case len(w) == 0 || !slices.Contains(refusers, w[0]):
		return 0
	}
	rank := 3
	for _, x := range w[1:] {
		if !slices.Contains(spans, x) {
			return 0
		}
		if x != "once" && x != "this" && x != "time" {
			rank = 2
		}
	}
	return rank
}

// labelRank is refusalRank for what people read: also "No, and tell it why".
func labelRank(label string) int {
	after, ok := strings.CutPrefix(strings.ToLower(strings.TrimSpace(label)), "no")
	if ok && after != "" && strings.Contains(",.;:", after[:1]) {
		return 1
	}
	return refusalRank(words(label))
}

func saysNothing(id string) bool {
	for _, w := range words(id) {
		_, err := strconv.Atoi(w)
		if err != nil && len(w) > 1 && w != "option" && w != "opt" && w != "choice" {
			return false
		}
	}
	return true
}

// words splits a name at all that is no letter or digit, and where an upper
// case letter follows a lower case one.
func words(name string) []string {
	var b strings.Builder
	lower := false
	for _, c := range name {
		switch {
		case !unicode.IsLetter(c) && !unicode.IsDigit(c):
			b.WriteByte(' ')
		case lower && unicode.IsUpper(c):
			b.WriteByte(' ')
			fallthrough
		default:
			b.WriteRune(unicode.ToLower(c))
		}
		lower = unicode.IsLower(c)
	}
	return strings.Fields(b.String())
}

// formAnswer holds the values of a form to its fields (AEP-0006): what is
// required is there, each is of its field's type, numbers keep min and max, a
// closed select takes its choices' ids, other any text, multi an array of them
// (one id alone is read as an array of one, one id twice as once). A null is no
// value. A key that no field has is dropped, as the gate drops it; values of
// which no key is a field's are refused.
func (r *Request) formAnswer(v any) (Answer, string) {
	given, ok := v.(map[string]any)
	if !ok {
		return Answer{}, "data.answer.values is not an object"
	}
	if r.Kind != "form" && len(r.Fields) == 0 {
		return Answer{}, "data.answer.values answers a form; the request is none"
	}
	values := map[string]any{}
	for i := range r.Fields {
		f := &r.Fields[i]
		v := given[f.ID]
		required := f.Required != nil && *f.Required
		if v == nil {
			if required {
				return Answer{}, "data.answer.values." + name(f.ID) + " is missing: it is required"
			}
			continue
		}
		x, fault := fieldValue(f, v)
		if fault == "" && required && empty(x) {
			fault = "is empty: it is required"
		}
		if fault != "" {
			return Answer{}, "data.answer.values." + name(f.ID) + " " + fault
		}
		values[f.ID] = x
	}
	if len(values) == 0 && len(given) > 0 {
		return Answer{}, "data.answer.values names none of the form's fields"
	}
	return Answer{Values: values}, ""
}

func empty(v any) bool {
	switch x := v.(type) {
	case string:
		return strings.TrimSpace(x) == ""
	case []any:
		return len(x) == 0
	}
	return false
}

func fieldValue(f *event.FormField, v any) (any, string) {
	switch f.Type {
	case "number":
		n := numberOf(v)
		switch {
		case n == nil:
			return nil, "is not a number"
		case f.Min != nil && *n < *f.Min:
			return nil, fmt.Sprintf("is below %v", *f.Min)
		case f.Max != nil && *n > *f.Max:
			return nil, fmt.Sprintf("is above %v", *f.Max)
		}
		return v, ""
	case "boolean":
		if _, ok := v.(bool); !ok {
			return nil, "is not true or false"
		}
		return v, ""
	case "select":
		return selected(f, v)
	}
	if _, ok := v.(string); !ok {
		return nil, "is not a string"
	}
	return v, ""
}

func selected(f *event.FormField, v any) (any, string) {
	if list, ok := v.([]any); ok && f.Multi {
		out := []any{}
		for _, v := range list {
			id, fault := choice(f, v)
			if fault != "" {
				return nil, fault
			}
			if !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
		return out, ""
	} else if ok {
		return nil, "is an array; the field takes one choice"
	}
	id, fault := choice(f, v)
	if fault == "" && f.Multi {
		return []any{id}, ""
	}
	return id, fault
}

func choice(f *event.FormField, v any) (any, string) {
	id, ok := v.(string)
	if !ok {
		return nil, "is not a choice's id"
	}
	if slices.ContainsFunc(f.Choices, func(c event.FormChoice) bool { return c.ID == id }) {
		return id, ""
	}
	if !f.Other {
		return nil, "is none of the choices"
	}
	if strings.TrimSpace(id) == "" {
		return nil, "is empty"
	}
	return id, ""
}

// quote shows a value of the sender's in a detail: short, and printable.
func quote(s string) string { return fmt.Sprintf("%q", name(s)) }

// name shortens an id for a detail.
func name(s string) string {
	const most = 60
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}
