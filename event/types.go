package event

import (
	"slices"
	"strings"
)

// Status says how firmly a registered type stands (AEP-0002 §4).
type Status string

// The statuses.
const (
	Mandatory Status = "mandatory" // every consumer understands it
	Optional  Status = "optional"
	Reserved  Status = "reserved" // not to be emitted
)

// Scope says what a type is about, and so which of session and seq it carries
// (AEP-0001 §5.2).
type Scope string

// The scopes.
const (
	SessionScope Scope = "session" // carries session and seq
	AgentScope   Scope = "agent"   // carries neither
	CommandScope Scope = "command" // about a session that the sender does not own: session without seq
)

// ScopeOf gives the scope of any type, registered or not, as the envelope's
// rules see it: attention.routed and the vendors' commands have a command's.
func ScopeOf(typ string) Scope {
	switch category, rest, _ := strings.Cut(typ, "."); category {
	case "agent":
		return AgentScope
	case "control":
		if slices.Contains([]string{"attention.respond", "cancel", "pause", "resume"}, rest) {
			return CommandScope
		}
	case "attention":
		if rest == "routed" {
			return CommandScope
		}
	case "x":
		_, rest, _ = strings.Cut(rest, ".")
		if strings.HasPrefix(rest, "control.") {
			return CommandScope
		}
	}
	return SessionScope
}

// JSONType is a set of JSON's types.
type JSONType uint8

// The types. An integer is a number without a fraction.
const (
	String JSONType = 1 << iota
	Number
	Integer
	Boolean
	Object
	Array
)

// Fact is what the registry knows of a payload's member, or of an array's
// item: enough to check it, and to say from which capture level on it may
// appear. Payloads are open: a member without a Fact is let through by Check,
// and counts as Metadata when a type has facts at all.
type Fact struct {
	Name     string // "" for an item and for the payload itself
	Type     JSONType
	Level    Level
	Required bool
	Enum     []string // the legal values of a string
	Instant  bool     // a string that must be RFC 3339
	Bounded  bool     // a number within [Min, Max]
	Min, Max float64

	// Star marks the [metadata*] members: below Redacted their text must be
	// structural, made of what the envelope and the ids say.
	Star bool
	// PerKey marks answer.values: from Metadata on, but only what is no free
	// text (AEP-0006).
	PerKey bool

	Members []Fact // of an object; empty: any
	Item    *Fact  // of an array; nil: any
}

// Member gives the fact of an object's member, or nil.
func (f *Fact) Member(name string) *Fact {
	for i := range f.Members {
		if f.Members[i].Name == name {
			return &f.Members[i]
		}
	}
	return nil
}

// At walks the payload's facts: a member's name steps into an object, "[]"
// into an array's items. It gives nil where the registry knows nothing.
func (f *Fact) At(path ...string) *Fact {
	for _, step := range path {
		if f == nil {
			return nil
		}
		if step == "[]" {
			f = f.Item
		} else {
			f = f.Member(step)
		}
	}
	return f
}

// TypeInfo is what the registry knows of a type.
type TypeInfo struct {
	Type   string
	Status Status
	Scope  Scope // the registry's word; ScopeOf has the envelope's
	Data   *Fact // the payload: an object; nil where its form is not registered
}

// Annotated says whether the registry gives any member of the payload a level.
// A type without keeps no data when it is down-levelled.
func (t *TypeInfo) Annotated() bool { return t.Data != nil && len(t.Data.Members) > 0 }

// Level is the lowest capture level at which the member of that path may
// appear (see Fact.At), and whether the registry knows it. A member that it
// does not know counts as Metadata.
func (t *TypeInfo) Level(path ...string) (Level, bool) {
	if f := t.Data.At(path...); f != nil {
		return f.Level, true
	}
	return Metadata, false
}

// Lookup gives what the registry knows of a type. The facts are shared: they
// are not to be changed.
func Lookup(typ string) (TypeInfo, bool) {
	t, ok := registry[typ]
	return t, ok
}

// Types are the registered types, sorted.
func Types() []string {
	all := make([]string, 0, len(registry))
	for typ := range registry {
		all = append(all, typ)
	}
	slices.Sort(all)
	return all
}
