package control

import "container/list"

// table is a map that remembers the order of its keys and drops the oldest
// beyond max.
type table[V any] struct {
	max   int
	m     map[string]*list.Element
	order *list.List
}

type slot[V any] struct {
	key string
	val V
}

func newTable[V any](max int) *table[V] {
	return &table[V]{max: max, m: map[string]*list.Element{}, order: list.New()}
}

func (t *table[V]) len() int { return len(t.m) }

func (t *table[V]) get(key string) (v V, ok bool) {
	if e := t.m[key]; e != nil {
		return e.Value.(*slot[V]).val, true
	}
	return v, false
}

// put sets key, as the newest when it is new. What had to go to make room is
// given back.
func (t *table[V]) put(key string, v V) (dropped V, full bool) {
	if e := t.m[key]; e != nil {
		e.Value.(*slot[V]).val = v
		return dropped, false
	}
	if len(t.m) >= t.max {
		old := t.order.Front().Value.(*slot[V])
		t.del(old.key)
		dropped, full = old.val, true
	}
	t.m[key] = t.order.PushBack(&slot[V]{key, v})
	return dropped, full
}

func (t *table[V]) del(key string) {
	if e := t.m[key]; e != nil {
		t.order.Remove(e)
		delete(t.m, key)
	}
}

// all ranges oldest first. The loop may delete the entry it is at.
func (t *table[V]) all(yield func(string, V) bool) {
	for e := t.order.Front(); e != nil; {
		next := e.Next()
		if s := e.Value.(*slot[V]); !yield(s.key, s.val) {
			return
		}
		e = next
	}
}
