package hook

import (
	"maps"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// strange is a record that no row knows. Its type is a word of the payload's, so
// that it is no event's type.
var strange = VendorAs("log.record", Str("type", "type"), Str("subtype", "subtype|payload.type|event.type")).Note("a record that the table does not know")

// Alone gives the table of a log that is all there is to go by: the rows that
// it has beside the hooks, those given here in their place or in addition, and
// for any other record x.{vendor}.log.record, for nothing else would tell of it.
func (t *Table) Alone(rows map[string]Row) *Table {
	v := t.v
	v.Channel, v.Other = adapters.Log, strange
	v.Rows = maps.Clone(t.v.Rows)
	maps.Copy(v.Rows, rows)
	return New(v)
}

// NamedBy gives the table another way to name records.
func (t *Table) NamedBy(name func(*In) string) *Table {
	v := t.v
	v.Name = name
	return New(v)
}

// Passed are records that tell no fact that the protocol speaks of.
func Passed(names ...string) map[string]Row {
	rows := map[string]Row{}
	for _, n := range names {
		rows[n] = Nothing("no fact of its own")
	}
	return rows
}

// At is the time where it is not where the vocabulary says.
func At(p Path) Fact {
	ps := parse(p)
	return Fact{apply: func(in *In, d *event.Draft) bool {
		v, _ := in.get(ps)
		if at := clock(v); !at.IsZero() {
			d.Time = at
		}
		return true
	}}
}

// Before makes a run that is still open at this moment end with it, before the
// rows that follow: the log tells of no end, but of what can only come after
// one.
var Before = Emit("run.finished", Do("", nil, func(_ *In, d *event.Draft) bool {
	if !d.Time.IsZero() {
		d.Time = d.Time.Add(-time.Millisecond)
	}
	return true
})).Note("the one before: the log tells no end")
