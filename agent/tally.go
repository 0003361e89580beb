package agent

import (
	"maps"
	"strings"
	"sync"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/control"
	"aep-wrap/event"
)

// inputRefused is the type of what tells of such an input.
const inputRefused = "x.aep-wrap.input.refused"

// Told names a counter of sealed events.
type Told struct {
	Category string // the first word of the type; x for vendors' own
	Severity event.Severity
}

// Commanded names a counter of commands.
type Commanded struct {
	Verb    string // respond, cancel, …; other for a vendor's own
	Outcome string // accepted, or why not: unsupported, unauthorized, busy, refused, invalid
}

// RefusedFor names a counter of inputs that could not be read.
type RefusedFor struct {
	Channel adapters.Channel
	Reason  string
}

// Voice is a channel by which an adapter's runtimes speak.
type Voice struct {
	Adapter string
	Channel adapters.Channel
}

// Tally is a snapshot of what was told, and of what came in. All its names
// are few: none is a session's, or a runtime's own.
type Tally struct {
	Events   map[Told]int64
	Requests map[string]int64 // attention requests: requested, answered, dismissed, timeout
	Commands map[Commanded]int64
	Refused  map[RefusedFor]int64
	Hooks    map[string]int64 // taken, by adapter
	Spoke    map[Voice]time.Time
}

// counters are where a Tally is taken from.
type counters struct {
	mu sync.Mutex
	t  Tally
}

// Tally gives the counters of now.
func (c *counters) Tally() Tally {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Tally{Events: maps.Clone(c.t.Events), Requests: maps.Clone(c.t.Requests), Commands: maps.Clone(c.t.Commands),
		Refused: maps.Clone(c.t.Refused), Hooks: maps.Clone(c.t.Hooks), Spoke: maps.Clone(c.t.Spoke)}
}

// add counts one more, in a map that is made when it is needed.
func add[K comparable](m *map[K]int64, k K) {
	if *m == nil {
		*m = map[K]int64{}
	}
	(*m)[k]++
}

// sealed counts an event; verb is of the command that it acknowledges, if it
// does.
func (c *counters) sealed(e *event.Event, d *event.Draft, verb string) {
	category, rest, _ := strings.Cut(e.Type, ".")
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.t.Events, Told{category, e.Severity})
	switch {
	case e.Type == "control.accepted":
		add(&c.t.Commands, Commanded{verb, "accepted"})
	case e.Type == "control.rejected":
		add(&c.t.Commands, Commanded{verb, d.Fields.Str("reason")})
	case category != "attention":
	case rest == "requested", rest == "timeout":
		add(&c.t.Requests, rest)
	case rest == "resolved":
		add(&c.t.Requests, d.Fields.Str("resolution"))
	}
}

// refused counts an input that could not be read.
func (c *counters) refused(channel adapters.Channel, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	add(&c.t.Refused, RefusedFor{channel, reason})
}

// Untold counts a hook that was heard and is told by nobody here.
func (c *counters) Untold(reason string) { c.refused(adapters.Hook, reason) }

// heard notes that a runtime spoke.
func (c *counters) heard(adapter string, channel adapters.Channel, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.t.Spoke == nil {
		c.t.Spoke = map[Voice]time.Time{}
	}
	c.t.Spoke[Voice{adapter, channel}] = now
	if channel == adapters.Hook {
		add(&c.t.Hooks, adapter)
	}
}

// verbOf is what a command's type is counted as.
func verbOf(typ string) string {
	switch v := (&control.Effect{Type: typ}).Verb(); v {
	case "attention.respond":
		return "respond"
	case "cancel", "pause", "resume", "instruct":
		return v
	}
	return "other"
}
