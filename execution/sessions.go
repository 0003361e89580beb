package execution

import (
	"crypto/sha256"
	"sync"
	"time"
)

// The bounds of embedders' sessions. One that is lost by a restart is expired:
// initialize makes another, and nothing else hangs on it.
const (
	sessionLife = 24 * time.Hour // since its last use
	maxSessions = 10_000
)

// embedderSession is what initialize settled.
type embedderSession struct {
	version string
	token   [sha256.Size]byte // of whoever made it: nobody else's token uses it
	used    time.Time
}

type sessions struct {
	mu  sync.Mutex
	all map[string]*embedderSession
}

// open begins a session. The one that was unused for longest goes where there
// are too many.
func (s *sessions) open(now time.Time, id, version, token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]*embedderSession{}
	}
	if len(s.all) >= maxSessions {
		oldest, at := "", now
		for id, e := range s.all {
			if now.Sub(e.used) > sessionLife {
				delete(s.all, id)
			} else if oldest == "" || e.used.Before(at) {
				oldest, at = id, e.used
			}
		}
		if len(s.all) >= maxSessions {
			delete(s.all, oldest)
		}
	}
	s.all[id] = &embedderSession{version: version, token: sha256.Sum256([]byte(token)), used: now}
}

// use finds a session of this token's and prolongs it.
func (s *sessions) use(now time.Time, id, token string) (version string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.all[id]
	if e == nil || e.token != sha256.Sum256([]byte(token)) {
		return "", false
	}
	if now.Sub(e.used) > sessionLife {
		delete(s.all, id)
		return "", false
	}
	e.used = now
	return e.version, true
}
