package session

import (
	"encoding/json"
	"strings"
	"time"

	"aep-wrap/event"
)

// The limits of a session's memory.
const (
	everything  = 1 << 40 // event ids, where it relearned them
	seenMax     = 1 << 16 // event ids, where the session has a Memory to itself
	endedMax    = 1 << 13 // runs that had their terminal
	openRunsMax = 1 << 8
	toolsMax    = 1 << 12 // tools requested and not yet at an outcome
	pastMax     = 1 << 9  // tools that had one, for later words about them
	requestsMax = 1 << 10 // attention requests that wait; a further one closes the oldest
	closedMax   = 1 << 12 // attention requests that had their terminal
	pairsMax    = 1 << 11 // other openers: subagents, tasks, steps, retrievals
)

// State is what is known of a session, whether by having bound its events or
// by having read them back from its log. It is bounded.
type State struct {
	any     bool // at least one event
	last    event.Position
	first   time.Time // of the earliest event
	started string    // id of session.started
	ended   bool      // session.ended was told, in whatever epoch
	runs    int       // run.started events

	open     *table[*run]  // by run id
	over     *recent       // runs that had their terminal
	tools    *table[*tool] // open, by callKey
	past     *table[*tool] // with an outcome, or given up with their run
	requests *table[*request]
	closed   *recent // ids and vendor keys of requests that had their terminal
	pairs    *table[opener]
	seen     *recent
	shared   *Memory // while seen is in one of its own
}

type run struct {
	id      string
	started string // event id of run.started
	at      time.Time
	epoch   int64  // of its start
	failed  string // event id of the last tool.failed, while nothing went on after it
}

type tool struct {
	id        string // event id of tool.requested
	call      string // the vendor's call id
	name      string
	args      string // digest
	run, step string
	outcome   bool // its one outcome was told
	asked     bool // a permission was asked for it
	refused   bool // and refused
	twin      bool // two channels told it, one of them without the call id
	echo      bool // both channels told its outcome
	live      bool // bound, not read back
	at        time.Time
}

type request struct {
	id      string     // event id of attention.requested
	pair    string     // the vendor's key
	tool    string     // event id of the tool it is about
	call    string     // that tool's call id
	link    event.Link // what that tool looks like, while it was not yet requested
	kind    string
	options []string
	form    []event.FormField
	run     string
	step    string
	at      time.Time
	answer  string // event id of attention.answered
}

// opener is an event that later ones of its pair cite.
type opener struct{ id, run, step string }

// NewState is the state of a session of which nothing is known.
func NewState() *State { return NewMemory(seenMax).NewState() }

// NewState is the state of a session of which nothing is known, and which
// remembers what it told in m.
func (m *Memory) NewState() *State {
	return &State{
		open:     newTable[*run](openRunsMax),
		over:     newRecent(NewMemory(endedMax)),
		tools:    newTable[*tool](toolsMax),
		past:     newTable[*tool](pastMax),
		requests: newTable[*request](requestsMax),
		closed:   newRecent(NewMemory(closedMax)),
		pairs:    newTable[opener](pairsMax),
		seen:     newRecent(m),
	}
}

// Position is the last position used, and whether there was one.
func (st *State) Position() (event.Position, bool) { return st.last, st.any }

// Seen says whether an event of this id was told.
func (st *State) Seen(id string) bool { return st.seen.has(id) }

// Ended says whether session.ended was told.
func (st *State) Ended() bool { return st.ended }

// Forgot is up to which time of events their ids may be forgotten; zero says
// that all are known.
func (st *State) Forgot() time.Time { return st.seen.forgot() }

// Relearn has the state know all ids that each gives, which are to be all that
// the session told, until it rests. They take ten bytes each.
func (st *State) Relearn(each func(told func(id string, at time.Time)) error) error {
	all := newRecent(NewMemory(everything))
	if err := each(all.addAt); err != nil {
		return err
	}
	if st.shared == nil {
		st.shared = st.seen.in
	}
	st.seen = all
	return nil
}

// Rest lets go of what only a session in work needs to know: of tools that had
// their outcome, and of what was relearned. What is open stays.
func (st *State) Rest() {
	if st.past.len() > 0 {
		st.past = newTable[*tool](pastMax)
	}
	if st.shared != nil {
		all := st.seen
		st.seen, st.shared = newRecent(st.shared), nil
		st.seen.lost = all.now
	}
}

// Pending gives the event ids of the attention requests that wait.
func (st *State) Pending() []string {
	ids := make([]string, 0, st.requests.len())
	st.requests.all(func(id string, _ *request) bool { ids = append(ids, id); return true })
	return ids
}

// OpenRuns gives the ids of the runs that are open.
func (st *State) OpenRuns() []string {
	ids := make([]string, 0, st.open.len())
	st.open.all(func(id string, _ *run) bool { ids = append(ids, id); return true })
	return ids
}

// Fold takes in an event of the session's log. Folding every event of a log,
// in its order, restores the session. Events of other senders (commands) are
// passed over.
func (st *State) Fold(e event.Event) {
	st.seen.addAt(e.ID, e.Time)
	if !e.Sequenced {
		return
	}
	f := readFacts(e.Type, e.Data)
	st.note(&e.Header, &f)
}

// facts are the payload members that the rules ask for, from a draft or from
// an event.
type facts struct {
	tool, call, args string // tool.*
	pair             string
	kind             string // attention.requested
	options          []string
	form             []event.FormField
	via              string     // attention.answered
	link             event.Link // attention.requested
	about            *tool      // the tool that the event is about
	bound            bool       // from a draft: about is all there is to know
}

func readFacts(typ string, data json.RawMessage) (f facts) {
	switch typ {
	case "tool.requested", "tool.completed", "tool.failed", "tool.denied", "attention.requested":
	default:
		return f // of the others the envelope says all that is remembered
	}
	p, err := event.ParseObject(data)
	if err != nil {
		return f
	}
	// A payload off its schema gives the members that could be read.
	f.tool, _ = member(p["tool"], "name").(string)
	f.call, _ = member(p["tool"], "call_id").(string)
	f.args, _ = p["args_digest"].(string)
	f.kind, _ = p["kind"].(string)
	f.options = optionIDs(p["options"])
	f.form = formSpec(p["fields"])
	return f
}

// note takes in one event, bound now or read back. It is the only place where
// State changes.
func (st *State) note(h *event.Header, f *facts) {
	if p := h.Position(); !st.any || st.last.Less(p) {
		st.last = p
	}
	if !st.any || !h.Time.IsZero() && h.Time.Before(st.first) {
		st.first = h.Time
	}
	st.any = true
	if fn := effects[h.Type]; fn != nil {
		own(h, f)
		fn(st, h, f)
	}
}

// own has what may be remembered stand by itself: a string that was read is a
// part of its whole payload, which would be remembered with it.
func own(h *event.Header, f *facts) {
	for _, s := range []*string{&h.ID, &h.Run, &h.Step, &h.Cause, &f.pair, &f.tool, &f.call, &f.args, &f.kind} {
		*s = strings.Clone(*s)
	}
	for i := range f.options {
		f.options[i] = strings.Clone(f.options[i])
	}
	for i := range f.form {
		o := &f.form[i]
		o.ID, o.Type = strings.Clone(o.ID), strings.Clone(o.Type)
		for j := range o.Choices {
			o.Choices[j].ID = strings.Clone(o.Choices[j].ID)
		}
	}
}

// effects says what an event of each type changes. A type that is not here
// changes nothing but the position.
var effects = map[string]func(*State, *event.Header, *facts){
	"session.started": func(st *State, h *event.Header, _ *facts) {
		if st.started == "" {
			st.started = h.ID
		}
	},
	"session.ended": func(st *State, _ *event.Header, _ *facts) { st.ended = true },

	"run.started": func(st *State, h *event.Header, _ *facts) {
		st.runs++
		if h.Run != "" && !st.over.has(h.Run) {
			st.open.put(h.Run, &run{id: h.Run, started: h.ID, at: h.Time, epoch: h.Epoch})
		}
	},
	"run.finished":  endRun,
	"run.failed":    func(st *State, h *event.Header, f *facts) { endRun(st, h, f); st.giveUp(h.Run) },
	"run.cancelled": func(st *State, h *event.Header, f *facts) { endRun(st, h, f); st.giveUp(h.Run) },

	"tool.requested": func(st *State, h *event.Header, f *facts) {
		st.progress(h.Run)
		t := &tool{id: h.ID, call: f.call, name: f.tool, args: f.args, run: h.Run, step: h.Step, live: f.bound, at: h.Time}
		key := callKey(f.call, h.ID)
		if old, ok := st.tools.get(key); ok { // a call id used again without an outcome
			st.tools.del(key)
			st.past.put(old.id, old)
		}
		st.past.del(key) // a call id used again after one
		st.tools.put(key, t)
		if r, ok := st.requests.get(h.Cause); ok && r.tool == "" {
			r.tool, r.call, t.asked = t.id, t.call, true
		}
	},
	"tool.completed": func(st *State, h *event.Header, f *facts) { st.progress(h.Run); st.endTool(h, f) },
	"tool.denied":    func(st *State, h *event.Header, f *facts) { st.progress(h.Run); st.endTool(h, f) },
	"tool.failed": func(st *State, h *event.Header, f *facts) {
		if r, ok := st.open.get(h.Run); ok {
			r.failed = h.ID
		}
		st.endTool(h, f)
	},

	"attention.requested": func(st *State, h *event.Header, f *facts) {
		r := &request{id: h.ID, pair: f.pair, kind: f.kind, options: f.options, form: f.form, run: h.Run, step: h.Step, at: h.Time}
		t := f.about
		if !f.bound { // read back: its cause is the tool, if it is about one
			st.tools.all(func(_ string, o *tool) bool {
				if o.id == h.Cause {
					t = o
				}
				return t == nil
			})
		}
		if t != nil {
			t.asked = true
			r.tool, r.call = t.id, t.call
		} else {
			r.link = f.link
		}
		st.requests.put(h.ID, r)
	},
	"attention.answered": func(st *State, h *event.Header, _ *facts) {
		if r, ok := st.requests.get(h.Subject); ok {
			r.answer = h.ID
		}
	},
	"attention.resolved": closeRequest,
	"attention.timeout":  closeRequest,

	"delegation.subagent.started":  openPair,
	"progress.task.planned":        openPair,
	"resource.retrieval.requested": openPair,
	"run.step.started":             openPair,
}

func endRun(st *State, h *event.Header, _ *facts) {
	st.open.del(h.Run)
	st.over.add(h.Run)
}

func openPair(st *State, h *event.Header, f *facts) {
	if f.pair != "" {
		st.pairs.put(h.Type+" "+f.pair, opener{h.ID, h.Run, h.Step})
	}
}

func closeRequest(st *State, h *event.Header, _ *facts) {
	st.closed.add(h.Subject)
	if r, ok := st.requests.get(h.Subject); ok {
		if r.pair != "" {
			st.closed.add("pair " + r.pair)
		}
		if r.call != "" {
			st.closed.add("pair " + r.call)
		}
		st.requests.del(h.Subject)
	}
}

// progress notes that a run went on, so that its last failed tool is not what
// would have ended it.
func (st *State) progress(id string) {
	if r, ok := st.open.get(id); ok {
		r.failed = ""
	}
}

// endTool moves the tool that an outcome speaks of out of the open ones.
func (st *State) endTool(h *event.Header, f *facts) {
	call := f.call
	if t := f.about; t != nil && t.twin {
		call, t.echo = t.call, t.echo || f.call == ""
	}
	key, t := st.openTool(call, h.Cause)
	if t == nil {
		if f.call == "" {
			return
		}
		key = f.call
		if t, _ = st.past.get(key); t == nil {
			t = &tool{call: f.call, name: f.tool, run: h.Run, step: h.Step}
		}
	}
	t.outcome = true
	st.tools.del(key)
	st.past.put(key, t)
}

// openTool finds an open tool by its call id, or by the event id of its
// request.
func (st *State) openTool(call, id string) (string, *tool) {
	key := callKey(call, id)
	t, _ := st.tools.get(key)
	if t == nil {
		return "", nil
	}
	return key, t
}

// giveUp closes the tools of a run that was cut off: they will hardly have an
// outcome, and no later request is about them.
func (st *State) giveUp(runID string) {
	st.tools.all(func(key string, t *tool) bool {
		if t.run == runID {
			st.tools.del(key)
			st.past.put(key, t)
		}
		return true
	})
}

// callKey is how a tool is found: by the vendor's call id, or by its event id
// where the vendor gives none.
func callKey(call, id string) string {
	if call != "" {
		return call
	}
	return "id " + id
}
