package session

import "hash/maphash"

// Memory is the ids that were told, by which a second reading of a fact is
// known. It holds at least the newest ids and at most twice as many: two
// generations, of which the older is dropped whole. It keeps hashes, not
// strings, so an id costs some fifteen bytes.
//
// One Memory may serve many sessions, so that all of them together cost no more
// than one. Then it belongs to one goroutine, as they do.
type Memory struct {
	max      int
	new, old map[uint64]struct{}
}

// NewMemory makes a memory of at least the newest max ids.
func NewMemory(max int) *Memory { return &Memory{max: max, new: map[uint64]struct{}{}} }

func (m *Memory) len() int { return len(m.new) + len(m.old) }

func (m *Memory) add(h uint64) {
	if len(m.new) >= m.max {
		m.old, m.new = m.new, make(map[uint64]struct{}, m.max)
	}
	m.new[h] = struct{}{}
}

// has says whether h was added; asking keeps it young.
func (m *Memory) has(h uint64) bool {
	if _, ok := m.new[h]; ok {
		return true
	}
	if _, ok := m.old[h]; ok {
		m.add(h)
		return true
	}
	return false
}

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
