package hook

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// Terms prints the table as people read it: by native name, one term for each
// event or reason.
func (t *Table) Terms() []adapters.Term {
	var out []adapters.Term
	for _, name := range slices.Sorted(maps.Keys(t.v.Rows)) {
		out = t.terms(t.v.Rows[name], adapters.Term{Channel: t.v.Channel, Native: name}, "", out)
	}
	return t.terms(t.v.Other, adapters.Term{Channel: t.v.Channel, Native: "*"}, "", out)
}

func (t *Table) terms(r Row, term adapters.Term, prefix Path, out []adapters.Term) []adapters.Term {
	if r.note != "" {
		term.Note = r.note
	}
	inside := func(cond string) adapters.Term {
		sub := term
		if sub.When != "" && cond != "" {
			sub.When += ", "
		}
		sub.When += cond
		return sub
	}
	switch r.kind {
	case nothing:
		return append(out, term)
	case emit, unmapped:
		switch {
		case r.kind == emit:
			term.Emits = r.typ
		case r.typ != "":
			term.Emits = "x." + t.v.Vendor + "." + r.typ
		case term.Native == "*":
			term.Emits = "x." + t.v.Vendor + ".*"
		default:
			term.Emits = t.fallback(term.Native)
		}
		for _, s := range []struct{ member, path string }{
			{"(session)", t.v.Session}, {"(run)", t.v.Run}, {"(step)", t.v.Step}} {
			if s.path != "" {
				term.Fields = append(term.Fields, adapters.TermField{Member: s.member, From: s.path, Level: event.Metadata})
			}
		}
		for _, f := range r.facts {
			for _, s := range f.shows {
				s.From = within(prefix, s.From)
				term.Fields = append(term.Fields, s)
			}
		}
		return append(out, term)
	case many:
		for _, sub := range r.rows {
			out = t.terms(sub, term, prefix, out)
		}
	case choice:
		for _, c := range slices.Sorted(maps.Keys(r.cases)) {
			word := c
			if word == "" {
				word = "nothing"
			}
			out = t.terms(r.cases[c], inside(within(prefix, r.path)+" = "+word), prefix, out)
		}
		out = t.terms(r.rows[0], inside("otherwise"), prefix, out)
	case when:
		out = t.terms(r.rows[0], inside(r.cond.name), prefix, out)
		out = t.terms(r.rows[1], inside("otherwise"), prefix, out)
	case each:
		out = t.terms(r.rows[0], inside("each "+within(prefix, r.path)), within(prefix, r.path)+".*.", out)
		if r.rows[1].kind != nothing {
			out = t.terms(r.rows[1], inside("no "+r.path), prefix, out)
		}
	}
	return out
}

// within places an element's path into the payload's.
func within(prefix, p Path) Path {
	if prefix == "" || p == "" {
		return strings.ReplaceAll(p, "$.", "")
	}
	alts := strings.Split(p, "|")
	for i, a := range alts {
		if rest, ok := strings.CutPrefix(a, "$."); ok {
			alts[i] = rest
		} else {
			alts[i] = prefix + a
		}
	}
	return strings.Join(alts, "|")
}

// Merge is the map of several tables of one runtime: each speaks for its
// channel. A moment of a channel without one is nothing. The tables are
// compiled when the first of them is asked for: a launch of another runtime
// does not pay for them.
func Merge(tables ...func() *Table) (func(adapters.Moment) []event.Draft, func() []adapters.Term) {
	compiled := sync.OnceValue(func() []*Table {
		out := make([]*Table, len(tables))
		for i, table := range tables {
			out[i] = table()
		}
		return out
	})
	mapped := func(m adapters.Moment) []event.Draft {
		for _, t := range compiled() {
			if t.v.Channel == m.Channel {
				return t.Map(m)
			}
		}
		return nil
	}
	terms := sync.OnceValue(func() (out []adapters.Term) {
		for _, t := range compiled() {
			out = append(out, t.Terms()...)
		}
		return out
	})
	return mapped, terms
}
