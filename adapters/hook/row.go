package hook

import (
	"encoding/json"
	"slices"
	"strings"
)

type kind uint8

const (
	emit kind = iota + 1
	nothing
	unmapped
	many
	choice
	when
	each
)

// Row is what a native moment means.
type Row struct {
	kind  kind
	typ   string
	facts []Fact
	rows  []Row
	cases map[string]Row
	at    paths
	path  Path
	word  func(*In) string
	cond  Cond
	note  string
	extra int
}

// Emit is one event.
func Emit(typ string, facts ...Fact) Row {
	r := Row{kind: emit, typ: typ, facts: facts}
	for _, f := range facts {
		r.extra += f.extra
	}
	return r
}

// Nothing says why a moment is no event.
func Nothing(why string) Row {
	if why == "" {
		panic("hook: Nothing needs a reason")
	}
	return Row{kind: nothing, note: why}
}

// Unmapped is the vendor's fallback event, without data.
var Unmapped = Vendor()

// Vendor is the vendor's fallback event with structural members.
func Vendor(facts ...Fact) Row { return Row{kind: unmapped, facts: facts} }

// VendorAs is x.{vendor}.{rest}, for a fact that has a better name than its
// native one.
func VendorAs(rest string, facts ...Fact) Row { return Row{kind: unmapped, typ: rest, facts: facts} }

// Many is what all rows give, in order.
func Many(rows ...Row) Row { return Row{kind: many, rows: rows} }

// Switch picks a row by the payload value at a path: a string, a boolean or a
// number, as it is written.
func Switch(p Path, cases map[string]Row, other Row) Row {
	return Row{kind: choice, at: parse(p), path: p, cases: cases, rows: []Row{other}}
}

// SwitchOn picks a row by a word of the adapter's own making, for what no
// single value says. what names it for people.
func SwitchOn(what string, word func(*In) string, cases map[string]Row, other Row) Row {
	return Row{kind: choice, word: word, path: what, cases: cases, rows: []Row{other}}
}

// Begins gives the word of the first of these beginnings that the string at a
// path has, for SwitchOn; none is "".
func Begins(p Path, words ...[2]string) func(*In) string {
	ps := parse(p)
	return func(in *In) string {
		s := in.str(ps)
		for _, w := range words {
			if strings.HasPrefix(s, w[0]) {
				return w[1]
			}
		}
		return ""
	}
}

// When picks a row by a condition.
func When(c Cond, then, other Row) Row { return Row{kind: when, cond: c, rows: []Row{then, other}} }

// Each gives the row for every element of the array at a path; paths inside
// start at the element. Where there is no array, other.
func Each(p Path, row, other Row) Row {
	return Row{kind: each, at: parse(p), path: p, rows: []Row{row, other}}
}

// Note adds a word for people to a row.
func (r Row) Note(s string) Row { r.note = s; return r }

// Cond is a condition with a name that people read.
type Cond struct {
	name  string
	holds func(*In) bool
}

// Is is a condition of the adapter's own, named in words.
func Is(name string, holds func(*In) bool) Cond { return Cond{name, holds} }

// Has says that something other than null stands at a path.
func Has(p Path) Cond {
	ps := parse(p)
	return Cond{"has " + p, func(in *In) bool { v, _ := in.get(ps); return v != nil }}
}

// Prefix says that the string at a path starts with one of these.
func Prefix(p Path, prefixes ...string) Cond {
	ps := parse(p)
	return Cond{p + " starts with " + strings.Join(prefixes, " or "), func(in *In) bool {
		s := in.str(ps)
		return slices.ContainsFunc(prefixes, func(x string) bool { return strings.HasPrefix(s, x) })
	}}
}

// scalar spells a value as Switch compares it.
func scalar(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case bool:
		if x {
			return "true"
		}
		return "false"
	case json.Number:
		return x.String()
	}
	return ""
}
