package collector

import (
	"bytes"
	"hash/maphash"
	"math"
	"sort"

	"aep-wrap/event"
)

// store holds the newest events of each session, bounded by count and bytes
// per session, and by count and bytes over all. The session written least
// recently gives way first. It has no lock: the hub owns it.
type store struct {
	limits   Limits
	sessions map[string]*buffer
	oldest   *buffer // by last write
	newest   *buffer
	bytes    int
	events   int

	// seen finds a held event by the hash of its (source, id).
	seen map[uint64]*item
	seed maphash.Seed

	// evicted is told each event that was pushed out.
	evicted func(*buffer, *item)
	// found is told what is odd about an event that is taken in.
	found func(rule string, it *item)
}

// buffer holds one session's events, ordered by key.
type buffer struct {
	session      string
	items        []*item
	bytes        int
	last         uint64         // newest arrival
	late         uint64         // newest arrival that was not put at the end
	floor        event.Position // the highest position pushed out; nothing at or below it is taken in again
	hasFloor     bool
	ended        bool                // session.ended is among what it held
	runs         map[string]struct{} // that ended
	older, newer *buffer

	// What the session's log is known by, and whether it was looked for: what
	// was pushed out is there.
	agent, source string
	mixed         bool // two sources use the session's name: no log has all
	log           string
	looked        bool
	partial       bool // the log had more than was read of it when we started
}

// nowhere is a key before every other.
var nowhere = key{Position: event.Position{Epoch: math.MinInt64}}

func newStore(l Limits) *store {
	return &store{limits: l, sessions: map[string]*buffer{}, seen: map[uint64]*item{}, seed: maphash.MakeSeed()}
}

func (s *store) hash(it *item) uint64 {
	return maphash.String(s.seed, it.ID) ^ maphash.String(s.seed, it.Source)*31
}

// admit takes an event into its session's buffer, and gives what is held of it:
// the event itself, the one that came before with the same source and id, or
// nothing where it lies at or below what was pushed out, or is about no
// session.
func (s *store) admit(it *item, arrival uint64) (b *buffer, held *item) {
	it.key = key{it.Position(), arrival}
	if it.Session == "" {
		return nil, nil
	}
	it.hash = s.hash(it)
	h := it.hash
	if same, ok := s.seen[h]; ok && same.Source == it.Source && same.ID == it.ID {
		if !bytes.Equal(same.line(), it.line()) {
			s.note(ruleIdentity, it)
		}
		return s.sessions[it.Session], same
	}
	b = s.sessions[it.Session]
	if b == nil {
		b = &buffer{session: it.Session}
		s.sessions[it.Session] = b
	}
	if it.Sequenced {
		b.of(it)
		if b.hasFloor && !b.floor.Less(it.key.Position) {
			s.note(ruleLate, it)
			return b, nil
		}
		if b.partial {
			s.bridge(b, it)
		}
		if rule := b.afterTerminal(it); rule != "" {
			s.note(rule, it)
		}
		if n := len(b.items); n > 0 && !b.items[n-1].key.Position.Less(it.key.Position) {
			rule := ruleLate
			if b.taken(it.key.Position) {
				rule = ruleTaken
			}
			s.note(rule, it)
		}
	} else {
		it.key.Position = b.end()
	}
	b.insert(it)
	b.terminal(it)
	b.last = arrival
	b.bytes += it.cost()
	s.bytes += it.cost()
	s.events++
	s.seen[h] = it
	s.touch(b)

	for len(b.items) > 0 && (len(b.items) > s.limits.SessionEvents || b.bytes > s.limits.SessionBytes) {
		s.evict(b, it)
	}
	for len(s.sessions) > s.limits.Sessions {
		s.drop(s.oldest, it)
	}
	for s.bytes > s.limits.HeldBytes {
		s.evict(s.oldest, it)
		if len(s.oldest.items) == 0 {
			s.drop(s.oldest, it)
		}
	}
	if s.seen[h] != it {
		return b, nil
	}
	return b, it
}

// of notes whose session it is.
func (b *buffer) of(it *item) {
	switch {
	case b.source == "":
		b.agent, b.source = it.Agent, it.Source
	case b.source != it.Source:
		b.mixed = true
	}
}

// bridge is told the first event of a session whose log was read in part when
// we started, and decides whether it follows what was read. Where it does not,
// others lie between them, which were sent to the endpoint that was here before
// us: then what was read is only in the log any more, where they are too.
func (s *store) bridge(b *buffer, it *item) {
	end := b.end()
	if !end.Less(it.key.Position) {
		return
	}
	b.partial = false
	if it.key.Epoch == end.Epoch && it.key.Seq == end.Seq+1 {
		return
	}
	for len(b.items) > 0 {
		s.evict(b, nil)
	}
	b.raise(before(it.key.Position))
}

// raise says that what lies at or below p is not held.
func (b *buffer) raise(p event.Position) {
	if !b.hasFloor || b.floor.Less(p) {
		b.floor, b.hasFloor = p, true
	}
}

// What may be odd about an event's place. It is taken in all the same.
const (
	ruleLate     = "late-position"   // below the session's newest
	ruleTaken    = "position-taken"  // another event's
	ruleAfterEnd = "after-terminal"  // of its session or run: legal, and worth knowing
	ruleTerminal = "second-terminal" // of a session or run
	ruleIdentity = "identity"        // the (source, id) of another event
)

// maxRuns is how many ended runs of a session are remembered.
const maxRuns = 256

func endsRun(typ string) bool {
	return typ == "run.finished" || typ == "run.failed" || typ == "run.cancelled"
}

// afterTerminal says what is odd about an event that comes after a terminal.
func (b *buffer) afterTerminal(it *item) string {
	over := b.ended
	if len(b.runs) > 0 && it.Run != "" {
		_, done := b.runs[it.Run]
		if done && endsRun(it.Type) {
			return ruleTerminal
		}
		over = over || done
	}
	switch {
	case b.ended && it.Type == "session.ended":
		return ruleTerminal
	case over:
		return ruleAfterEnd
	}
	return ""
}

func (b *buffer) terminal(it *item) {
	b.ended = b.ended || it.Type == "session.ended"
	if it.Run == "" || !endsRun(it.Type) {
		return
	}
	if b.runs == nil || len(b.runs) >= maxRuns {
		b.runs = map[string]struct{}{}
	}
	b.runs[it.Run] = struct{}{}
}

func (s *store) note(rule string, it *item) {
	if s.found != nil {
		s.found(rule, it)
	}
}

// taken says whether an event with that position is held.
func (b *buffer) taken(p event.Position) bool {
	for i := b.after(key{p, math.MaxUint64}) - 1; i >= 0 && b.items[i].key.Position == p; i-- {
		if b.items[i].Sequenced {
			return true
		}
	}
	return false
}

// end is the position behind which an event without one is placed.
func (b *buffer) end() event.Position {
	switch {
	case len(b.items) > 0:
		return b.items[len(b.items)-1].key.Position
	case b.hasFloor:
		return b.floor
	}
	return event.Position{Seq: -1}
}

func (b *buffer) insert(it *item) {
	i := len(b.items)
	if i > 0 && it.key.less(b.items[i-1].key) {
		i = b.after(it.key)
		b.late = it.key.arrival
	}
	b.items = append(b.items, nil)
	copy(b.items[i+1:], b.items[i:])
	b.items[i] = it
}

// after is the index of the first item whose key is above k.
func (b *buffer) after(k key) int {
	return sort.Search(len(b.items), func(i int) bool { return k.less(b.items[i].key) })
}

// since is the index from which on items arrived after the given one; where a
// late position was filled in since then, others stand among them.
func (b *buffer) since(arrival uint64) int {
	if b.late > arrival {
		return 0
	}
	i := len(b.items)
	for i > 0 && b.items[i-1].key.arrival > arrival {
		i--
	}
	return i
}

// earliest is the first held position.
func (b *buffer) earliest() (event.Position, bool) {
	for _, it := range b.items {
		if it.Sequenced {
			return it.key.Position, true
		}
	}
	return event.Position{}, false
}

// resume is the key behind which a consumer goes on that has seen everything
// up to p, and whether something between may be missing.
func (b *buffer) resume(p event.Position) (at key, earliest event.Position, exhausted bool) {
	at = key{Position: p}
	for i := b.after(key{p, math.MaxUint64}) - 1; i >= 0 && b.items[i].key.Position == p; i-- {
		if b.items[i].Sequenced {
			at = b.items[i].key
			break
		}
	}
	earliest, ok := b.earliest()
	if !ok && b.hasFloor && p.Less(b.floor) { // all of it was pushed out
		return at, event.Position{Epoch: b.floor.Epoch, Seq: b.floor.Seq + 1}, true
	}
	if !ok || !p.Less(earliest) {
		return at, earliest, false
	}
	if b.hasFloor && !p.Less(b.floor) || p.Epoch == earliest.Epoch && p.Seq+1 == earliest.Seq {
		return at, earliest, false
	}
	return at, earliest, true
}

// evict pushes out the lowest position of b, with the events that stand
// behind it without one. The event being admitted is not reported.
func (s *store) evict(b *buffer, admitting *item) {
	for first := true; len(b.items) > 0 && (first || !b.items[0].Sequenced); first = false {
		it := b.items[0]
		b.items[0] = nil
		b.items = b.items[1:]
		b.bytes -= it.cost()
		s.bytes -= it.cost()
		s.events--
		b.raise(it.key.Position)
		if s.seen[it.hash] == it {
			delete(s.seen, it.hash)
		}
		if it != admitting && s.evicted != nil {
			s.evicted(b, it)
		}
	}
	if len(b.items) == 0 {
		b.items = nil
	}
}

// drop forgets a whole session.
func (s *store) drop(b *buffer, admitting *item) {
	for len(b.items) > 0 {
		s.evict(b, admitting)
	}
	s.unlink(b)
	delete(s.sessions, b.session)
}

// touch makes b the newest session.
func (s *store) touch(b *buffer) {
	if s.newest == b {
		return
	}
	s.unlink(b)
	b.older = s.newest
	if s.newest != nil {
		s.newest.newer = b
	}
	s.newest = b
	if s.oldest == nil {
		s.oldest = b
	}
}

func (s *store) unlink(b *buffer) {
	if b.older != nil {
		b.older.newer = b.newer
	} else if s.oldest == b {
		s.oldest = b.newer
	}
	if b.newer != nil {
		b.newer.older = b.older
	} else if s.newest == b {
		s.newest = b.older
	}
	b.older, b.newer = nil, nil
}
