package client

import "hash/maphash"

// Seen remembers the newest events by (source, id), within a bound: the last
// ones, at least half of it and at most all.
type Seen struct {
	seed     maphash.Seed
	half     int
	now, old map[uint64]struct{}
}

// NewSeen remembers up to n events.
func NewSeen(n int) *Seen {
	return &Seen{seed: maphash.MakeSeed(), half: max(n/2, 1), now: map[uint64]struct{}{}}
}

// Add says whether the event is new, and remembers it.
func (s *Seen) Add(source, id string) bool {
	h := maphash.Comparable(s.seed, [2]string{source, id})
	if _, ok := s.now[h]; ok {
		return false
	}
	_, ok := s.old[h]
	if len(s.now) >= s.half {
		s.old, s.now = s.now, make(map[uint64]struct{}, s.half)
	}
	s.now[h] = struct{}{}
	return !ok
}
