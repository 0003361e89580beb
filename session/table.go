package session

import (
	"hash/maphash"
	"math/bits"
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
}

// NewMemory makes a memory of at least the newest max ids.
func NewMemory(max int) *Memory { return &Memory{max: max} }

func (m *Memory) len() int { return m.new.n + m.old.n }

func (m *Memory) add(h uint64) {
	if m.new.n >= m.max {
		m.old, m.new = m.new, m.old
		m.new.clear()
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
}

func newRecent(in *Memory) *recent { return &recent{in: in, seed: maphash.MakeSeed()} }

func (r *recent) add(s string) {
	if s != "" {
		r.in.add(maphash.String(r.seed, s))
	}
}

func (r *recent) has(s string) bool { return r.in.has(maphash.String(r.seed, s)) }

// table is a map that remembers the order of its keys and drops the oldest
// beyond max.
type table[V any] struct {
	max   int
	m     map[string]*slot[V]
	first *slot[V] // oldest
	last  *slot[V]
}

type slot[V any] struct {
	key        string
	val        V
	prev, next *slot[V]
}

func newTable[V any](max int) *table[V] { return &table[V]{max: max, m: map[string]*slot[V]{}} }

func (t *table[V]) len() int { return len(t.m) }

func (t *table[V]) get(key string) (v V, ok bool) {
	if s, ok := t.m[key]; ok {
		return s.val, true
	}
	return v, false
}

// put sets key, as the newest when it is new, and drops the oldest when the
// table is full.
func (t *table[V]) put(key string, v V) {
	if s, ok := t.m[key]; ok {
		s.val = v
		return
	}
	if len(t.m) >= t.max {
		t.del(t.first.key)
	}
	s := &slot[V]{key: key, val: v, prev: t.last}
	if t.last != nil {
		t.last.next = s
	} else {
		t.first = s
	}
	t.last = s
	t.m[key] = s
}

func (t *table[V]) del(key string) {
	s, ok := t.m[key]
	if !ok {
		return
	}
	delete(t.m, key)
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		t.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		t.last = s.prev
	}
}

// all ranges oldest first. The loop may delete the entry it is at.
func (t *table[V]) all(yield func(string, V) bool) {
	for s := t.first; s != nil; {
		next := s.next
		if !yield(s.key, s.val) {
			return
		}
		s = next
	}
}

// oldest gives the oldest entry.
func (t *table[V]) oldest() (v V, ok bool) {
	if t.first == nil {
		return v, false
	}
	return t.first.val, true
}
