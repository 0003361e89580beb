package queue

import (
	"cmp"
	"slices"

	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
)

// maxClaim bounds how far back in a log Settled looks.
const maxClaim = 1 << 20

// Settled gives the last acknowledged event of each session that goes on (it
// has a log, and was not Done) and that has nothing left to send. A sink on a
// new connection sends it once more, to say that it is whose session this is.
// The events are read back from the logs, one at a time, without the lock.
func (f *Feed) Settled(yield func(Item) bool) {
	type claim struct {
		agent, session, path string
		at                   jsonl.Position
	}
	var claims []claim
	f.mu.Lock()
	for _, l := range f.lanes {
		if !l.done && l.orphan == nil && l.path != "" && l.acked.ID != "" && !l.pending() {
			claims = append(claims, claim{l.agent, l.session, l.path, l.acked})
		}
	}
	f.mu.Unlock()
	slices.SortFunc(claims, func(a, b claim) int { return cmp.Compare(a.path, b.path) })
	for _, c := range claims {
		line, h, ref, ok, err := jsonl.LastOwn(c.path, c.at, maxClaim)
		if err != nil {
			f.o.Log.Warn("a log cannot be read back; its session is claimed with its next event", "log", c.path, "error", err)
		}
		if !ok {
			continue
		}
		it := Item{
			Agent: c.agent, Session: c.session, ID: h.ID, Severity: event.Info, Sequenced: true,
			Position: event.Position{Epoch: h.Epoch, Seq: h.Seq}, Line: line, Log: ref,
		}
		if s, err := event.ParseSeverity(h.Severity); err == nil {
			it.Severity = s
		}
		if !yield(it) {
			return
		}
	}
}
