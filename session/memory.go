package session

import (
	"hash/maphash"
	"math/bits"
	"time"
)

// Memory is the ids that were told, by which a second reading of a fact is
// known. It holds at least the newest max ids and at most twice as many: two
// generations, of which the older is dropped whole. It keeps hashes, not
// strings, so that an id costs ten bytes.
//
// One Memory may serve many sessions, so that all of them together cost no more
// than one. Then it belongs to one goroutine, as they do.
type Memory struct {
	max      int
	new, old hashes
	dropped  int // generations
}

// NewMemory makes a memory of at least the newest max ids.
func NewMemory(max int) *Memory { return &Memory{max: max} }

func (m *Memory) len() int { return m.new.n + m.old.n }

func (m *Memory) add(h uint64) {
	if m.new.n >= m.max {
		m.old, m.new = m.new, m.old
		m.new.clear()
		m.dropped++
	}
	m.new.add(h, m.max)
}

// has says whether h was added; asking keeps it young.
func (m *Memory) has(h uint64) bool {
	if m.new.has(h) {
		return true
	}
	if m.old.has(h) {
		m.add(h)
		return true
	}
	return false
}

// hashes is a set of hashes. The runtime's maps take twice the room.
type hashes struct {
	slots []uint64 // 0 is free; a hash stands at its place or soon after
	n     int
}

// place is where a hash stands, or would.
func (s *hashes) place(h uint64) int {
	hi, _ := bits.Mul64(h, uint64(len(s.slots)))
	i := int(hi)
	for s.slots[i] != 0 && s.slots[i] != h {
		if i++; i == len(s.slots) {
			i = 0
		}
	}
	return i
}

func (s *hashes) has(h uint64) bool {
	return s.n > 0 && s.slots[s.place(used(h))] != 0
}

// add adds a hash. A quarter of the slots stays free, also when there are max.
func (s *hashes) add(h uint64, max int) {
	if s.n >= len(s.slots)/4*3 {
		old := s.slots
		s.slots = make([]uint64, min(2*len(old)+64, max/3*4+64))
		for _, h := range old {
			if h != 0 {
				s.slots[s.place(h)] = h
			}
		}
	}
	if h = used(h); s.slots[s.place(h)] == 0 {
		s.slots[s.place(h)] = h
		s.n++
	}
}

func (s *hashes) clear() {
	clear(s.slots)
	s.n = 0
}

// used is h, but for the one that says that a slot is free.
func used(h uint64) uint64 { return max(h, 1) }

// recent is a session's own part of a Memory: a set of strings. The part is
// told by its seed, so that a session which begins anew has forgotten all.
type recent struct {
	in   *Memory
	seed maphash.Seed

	// The newest times of what was added, in the generations that there are.
	dropped   int
	now, then time.Time
	lost      time.Time // of what was in those that are gone
}

func newRecent(in *Memory) *recent {
	return &recent{in: in, seed: maphash.MakeSeed(), dropped: in.dropped}
}

func (r *recent) add(s string) {
	if s != "" {
		r.in.add(maphash.String(r.seed, s))
	}
}

// addAt adds what happened at a time.
func (r *recent) addAt(s string, at time.Time) {
	r.add(s)
	r.turn()
	r.now = later(r.now, at)
}

func (r *recent) has(s string) bool { return r.in.has(maphash.String(r.seed, s)) }

// forgot is up to which time what was added may be forgotten.
func (r *recent) forgot() time.Time {
	r.turn()
	return r.lost
}

func (r *recent) turn() {
	for n := min(r.in.dropped-r.dropped, 2); n > 0; n-- {
		r.lost, r.then, r.now = later(r.lost, r.then), r.now, time.Time{}
	}
	r.dropped = r.in.dropped
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
