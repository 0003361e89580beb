package execution

import (
	"encoding/json"
	"time"

	"go.etcd.io/bbolt"
)

// How long a run's events are kept after its end. The protocol says a day at
// least.
const (
	DefaultKeep = 7 * 24 * time.Hour
	leastKeep   = 24 * time.Hour
	pruneEvery  = time.Hour
)

func (s *Server) pruning() {
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	for {
		if err := s.prune(); err != nil {
			s.Log.Error("old events cannot be removed", "err", err)
		}
		select {
		case <-tick.C:
		case <-s.ctx.Done():
			return
		}
	}
}

// prune removes the events of runs that have been over for long enough. Their
// numbers are not given again, so that a since of then is told as expired.
func (s *Server) prune() error {
	now := s.Now()
	var old []string
	err := s.Store.view(func(t tx) error {
		events := t.Bucket([]byte("events"))
		return t.Bucket([]byte("runs")).ForEach(func(id, v []byte) error {
			var r runRecord
			if err := json.Unmarshal(v, &r); err != nil {
				return err
			}
			if b := events.Bucket(id); r.EndedAt != nil && now.Sub(r.EndedAt.Time) > s.Keep && b != nil {
				if k, _ := b.Cursor().First(); k != nil {
					old = append(old, r.ID)
				}
			}
			return nil
		})
	})
	for _, id := range old {
		if err == nil {
			err = s.Store.update(func(t tx) error { return empty(t.Bucket([]byte("events")).Bucket([]byte(id))) })
		}
	}
	return err
}

// empty removes a bucket's entries; its sequence stays.
func empty(b *bbolt.Bucket) error {
	if b == nil {
		return nil
	}
	c := b.Cursor()
	for k, _ := c.First(); k != nil; k, _ = c.First() {
		if err := c.Delete(); err != nil {
			return err
		}
	}
	return nil
}
