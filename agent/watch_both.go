package agent

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
)

// A session may be told by its hooks and by its log. Where both give a fact the
// same name it is told once; where they do not, this says whose word counts.

const (
	compaction  = "session.compacted" // no hook gives it a name
	nearby      = 5 * time.Second     // how far apart two channels tell of it
	maxCompacts = 1 << 8              // that are remembered
	hooksWithin = 2 * time.Second     // how far a log's clock is from the hooks'
	noteHooks   = 10 * time.Second    // how often it is noted that hooks came
)

// hooksOf is when hooks told of a session's turns.
type hooksOf struct {
	live        time.Time // since then they tell, as we heard
	from, to    time.Time // they told before, as is noted
	byLog       time.Time // the newest turn that the log told
	compactions []compacted
}

// compacted is a compaction that was told.
type compacted struct {
	at   time.Time
	hook bool
	live bool // else nobody knows who told it
	both bool // it was told again
}

func (h *hooksOf) restore(path string, told []compacted) {
	h.from, h.to = jsonl.Hooked(path)
	h.compactions = told[max(0, len(told)-maxCompacts):]
}

// channel is by which table a log's record is read: beside hooks, or alone.
func (w *Watch) channel(r *reading, at time.Time) adapters.Channel {
	if !r.adapter.Reading.Apart {
		return adapters.Log
	}
	h := &w.session(r.adapter, cmp.Or(w.cfg.Agent, r.adapter.Name), r.id.Session).hooks
	at = at.Add(hooksWithin)
	if !h.live.IsZero() && at.After(h.live) || !h.from.IsZero() && at.After(h.from) && at.Before(h.to.Add(noteHooks+2*hooksWithin)) {
		return adapters.Transcript
	}
	return adapters.Log
}

// heardHook notes that hooks tell of turns. Who hooks only what is asked, or calls,
// has the rest told by the log.
func (d *watched) heardHook(drafts []event.Draft, at time.Time) {
	h := &d.hooks
	if d.adapter == nil || d.adapter.Reading == nil || !d.adapter.Reading.Apart || d.log == nil ||
		h.from.IsZero() && !slices.ContainsFunc(drafts, func(x event.Draft) bool { return strings.HasPrefix(x.Type, "run.") }) {
		return
	}
	if h.live.IsZero() || at.Before(h.live) {
		h.live = at
	}
	if !h.from.IsZero() && !at.Before(h.from) && at.Before(h.to.Add(noteHooks)) {
		return
	}
	if h.from.IsZero() || at.Before(h.from) {
		h.from = at
	}
	if at.After(h.to) {
		h.to = at
	}
	if err := jsonl.MarkHooked(d.log.Path(), h.from, h.to); err != nil {
		d.note.Warn("what hooks told may be told again by the session's own log", "session", d.session, "err", err)
	}
}

// once drops a compaction that the other channel told, and the first turn that a
// hook tells of, where the log was ahead.
func (d *watched) once(drafts []event.Draft, hook bool) []event.Draft {
	if !slices.ContainsFunc(drafts, func(x event.Draft) bool { return x.Type == compaction || x.Type == "run.started" }) {
		return drafts
	}
	return slices.DeleteFunc(slices.Clone(drafts), func(x event.Draft) bool {
		if x.Type == "run.started" {
			if !hook {
				d.hooks.byLog = x.Time
			}
			return hook && x.Run == "" && d.hooks.from.IsZero() && d.hooks.byLog.Sub(x.Time).Abs() < hooksWithin
		}
		if x.Type != compaction || x.Key != "" && d.state.Seen(event.DeriveID(d.agent, d.session, x.Type, x.Key)) {
			return false
		}
		h := &d.hooks
		for i := range h.compactions {
			if c := &h.compactions[i]; !c.both && (!c.live || c.hook != hook) && c.at.Sub(x.Time).Abs() < nearby {
				c.both = true
				return true
			}
		}
		h.compactions = append(h.compactions[max(0, len(h.compactions)-maxCompacts+1):], compacted{at: x.Time, hook: hook, live: true})
		return false
	})
}
