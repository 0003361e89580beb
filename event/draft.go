package event

// Draft is a whole event before its capture ceiling is known: every field is
// there, each with the lowest level at which it may appear. Adapters make
// drafts, session.Bind places them, redaction.Gate seals them into Events.
//
// An adapter fills Type, Subject, Session, Run, Step, Severity, Time (when the
// vendor stamps it) and the members below; the rest of the Header belongs to
// the session.
type Draft struct {
	Header

	// Key names the fact by the vendor's own ids, e.g. "tool_use_id" values.
	// Drafts of one session with equal Type and Key are one fact: the event id
	// is derived from (agent, session, type, key), so two channels, or two
	// readings, give the same id and the second is dropped. Empty: the vendor
	// names nothing, a fresh ULID is used.
	Key string

	// Place names the fact by where it was read, for readings that may come
	// again: it is the Key of one that neither the vendor nor the session names.
	Place string

	// Pair is the vendor's key under which later moments speak of what this
	// draft opens: a tool's call id, an attention request's id, a subagent's
	// id. On attention.answered, .resolved and .timeout it is the key of the
	// request meant; the session writes the request's event id as Subject.
	Pair string

	// Link helps the session find what this draft belongs to where the vendor
	// gives no id: the open tool of that name and args digest.
	Link Link

	Fields Fields
}

// Link describes an earlier fact by its looks, or by a name that is not the
// draft's own.
type Link struct {
	Call string // the call id of the tool that a request is about, where its Pair is another
	Tool string // the tool's name
	Args string // Digest of the tool's input

	// Dated: the end is that of the run which was open at its time; starts carry
	// the same clock's.
	Dated bool
}

// Kind says how the gate treats a Field below and above its level.
type Kind uint8

const (
	// Plain: Value appears from Level on. Strings of Redacted fields go
	// through the pipeline; Full fields are verbatim.
	Plain Kind = iota
	// Content: a family made from one original. Name is the family's base
	// ("args", "result", "query", "content", "cited_text"); the gate writes
	// its digest, redacted and full members, each at its own level
	// (AEP-0002 §5.1).
	Content
	// Label: the registry's [metadata*] fields (prompt, labels). Value at
	// Redacted and above, through the pipeline; below it the structural Alt.
	Label
	// Answers: attention.answered's values. Value is the map of answers, Spec
	// the form's fields; free text is Redacted, ids, numbers and booleans are
	// Metadata, keys without a field are dropped (AEP-0006).
	Answers
)

// Field is one data member of a draft.
type Field struct {
	Name  string
	Level Level
	Kind  Kind
	// Value is a JSON tree as ParseJSON gives it (nil, bool, string,
	// json.Number, int, int64, float64, []any, map[string]any), or Fields for
	// an object whose members have levels of their own, or []Fields for an
	// array of such objects.
	Value any
	Alt   string      // Label: the structural form. Content: Value's digest, where it is known
	Spec  []FormField // Answers: the form's fields
}

// Fields is an object in the making; members keep their order on the wire.
type Fields []Field

// FormField is a field_spec of an attention form (AEP-0006).
type FormField struct {
	ID       string
	Type     string // string, number, boolean, select
	Label    string
	Required *bool
	Multi    bool
	Other    bool
	Choices  []FormChoice
	Min, Max *float64
}

// FormChoice is one choice of a select field.
type FormChoice struct{ ID, Label string }

// Meta is a structural member, present from Metadata on.
func Meta(name string, value any) Field { return Field{Name: name, Level: Metadata, Value: value} }

// Text is free text, present from Redacted on, through the pipeline.
func Text(name string, value any) Field { return Field{Name: name, Level: Redacted, Value: value} }

// Whole is a member that appears only at Full, verbatim.
func Whole(name string, value any) Field { return Field{Name: name, Level: Full, Value: value} }

// Family is a content family: digest, redacted and full forms of one original.
func Family(base string, original any) Field {
	f := Field{Name: base, Level: Metadata, Kind: Content, Value: original}
	if base == "args" { // the session asks for its digest, too
		f.Alt = Digest(original)
	}
	return f
}

// Labelled is a [metadata*] member: text from Redacted on, alt below.
func Labelled(name, text, alt string) Field {
	return Field{Name: name, Level: Metadata, Kind: Label, Value: text, Alt: alt}
}

// FormAnswers is the values member of an answer to a form.
func FormAnswers(values map[string]any, spec []FormField) Field {
	return Field{Name: "values", Level: Metadata, Kind: Answers, Value: values, Spec: spec}
}

// Get walks Fields by name and gives the member's value, or nil.
func (f Fields) Get(path ...string) any {
	for _, m := range f {
		if len(path) == 0 || m.Name != path[0] {
			continue
		}
		if len(path) == 1 {
			return m.Value
		}
		if sub, ok := m.Value.(Fields); ok {
			return sub.Get(path[1:]...)
		}
		return nil
	}
	return nil
}

// Str is Get where the member is a string; else "".
func (f Fields) Str(path ...string) string {
	s, _ := f.Get(path...).(string)
	return s
}
