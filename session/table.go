package session

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
