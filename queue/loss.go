package queue

import (
	"cmp"
	"maps"
	"slices"

	"aep-wrap/event"
)

// The reasons for which events are lost on the way to a sink. A sink adds its
// own by Drop.
const (
	ReasonFull       = "queue-full" // no log held them, and the memory was full
	ReasonUnreadable = "unreadable" // the log that held them cannot be read
)

// Loss is what a session lost for one reason since it was last taken.
type Loss struct {
	Agent, Session string
	Reason         string
	Events         map[event.Severity]int
}

// Total is the number of events lost.
func (l Loss) Total() (n int) {
	for _, c := range l.Events {
		n += c
	}
	return n
}

// Draft tells the loss in the stream where it was: for session.Bind, as every
// other draft.
func (l Loss) Draft() event.Draft {
	counts := event.Fields{}
	for s := event.Debug; s <= event.Critical; s++ {
		if n := l.Events[s]; n > 0 {
			counts = append(counts, event.Meta(s.String(), n))
		}
	}
	return event.Draft{
		Header: event.Header{Type: "x.aep-wrap.queue.dropped", Severity: event.Warning},
		Fields: event.Fields{event.Meta("reason", l.Reason), event.Meta("dropped", l.Total()), event.Meta("by_severity", counts)},
	}
}

type lossKey struct{ agent, session, reason string }

// maxLosses bounds the report that nobody takes: beyond it, losses are counted
// without their session.
const maxLosses = 1024

func (f *Feed) lose(l *lane, reason string, s, n int) {
	if n == 0 {
		return
	}
	severity := event.Severity(s) + event.Debug
	k := lossKey{l.agent, l.session, reason}
	if _, ok := f.losses[k]; !ok && len(f.losses) >= maxLosses {
		k = lossKey{reason: reason}
	}
	loss := f.losses[k]
	if loss == nil {
		loss = &Loss{Agent: k.agent, Session: k.session, Reason: reason, Events: map[event.Severity]int{}}
		f.losses[k] = loss
	}
	loss.Events[severity] += n
	f.stats.drop(severity, reason, n)
	if f.o.OnLoss != nil {
		f.o.OnLoss()
	}
}

// TakeLosses gives what was lost since it was last asked, for one session (or
// for all, where both names are ""), and forgets it: the asker tells it.
func (f *Feed) TakeLosses(agent, session string) []Loss {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []Loss
	for k, l := range f.losses {
		if agent == "" && session == "" || k.agent == agent && k.session == session {
			out = append(out, *l)
			delete(f.losses, k)
		}
	}
	slices.SortFunc(out, func(a, b Loss) int {
		return cmp.Or(cmp.Compare(a.Agent, b.Agent), cmp.Compare(a.Session, b.Session), cmp.Compare(a.Reason, b.Reason))
	})
	return out
}

// Dropped is a counter's name: what was lost, and why.
type Dropped struct {
	Severity event.Severity
	Reason   string
}

// Stats is a snapshot of a feed's counters.
type Stats struct {
	Offered, Acked int64
	Dropped        map[Dropped]int64

	Sessions     int   // that the feed knows
	Events       int   // in memory, logged
	Bytes        int64 //
	LooseEvents  int   // in memory, held by no log
	LooseBytes   int64 //
	BehindBytes  int64 // in logs, still to be read
	BehindOwners int   // logs of dead owners that are not sent yet, or not for good
}

func (s *Stats) drop(severity event.Severity, reason string, n int) {
	if s.Dropped == nil {
		s.Dropped = map[Dropped]int64{}
	}
	s.Dropped[Dropped{severity, reason}] += int64(n)
}

// Stats gives the feed's counters.
func (f *Feed) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stats
	s.Dropped = maps.Clone(s.Dropped)
	s.Sessions = len(f.lanes)
	s.Events, s.Bytes = f.window.events, f.window.bytes
	s.LooseEvents, s.LooseBytes = f.loose.events+f.grave.events, f.loose.bytes+f.grave.bytes
	s.BehindOwners = len(f.orphans) + f.active
	for _, l := range f.lanes {
		for _, e := range l.q {
			if e.span {
				s.BehindBytes += e.end - e.off
			}
		}
	}
	return s
}
