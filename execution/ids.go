package execution

import (
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
)

// The prefixes of ids.
const (
	agentPrefix    = "agt_"
	runPrefix      = "run_"
	artifactPrefix = "art_"
	sessionPrefix  = "ses_"
	eventPrefix    = "evt_"
)

// ids makes identifiers that sort in the order in which they were made and
// cannot be guessed.
type ids struct {
	mu      sync.Mutex
	entropy *ulid.MonotonicEntropy
}

func (s *ids) make(prefix string, now time.Time) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entropy == nil {
		s.entropy = ulid.Monotonic(ulid.DefaultEntropy(), 0)
	}
	id, err := ulid.New(ulid.Timestamp(now), s.entropy)
	if err != nil { // the millisecond's numbers are used up
		id = ulid.Make()
	}
	return prefix + strings.ToLower(id.String())
}

// isID says whether s could be an id of ours. Whatever comes from outside is
// asked before it becomes a key or a part of a path.
func isID(s, prefix string) bool {
	rest, ok := strings.CutPrefix(s, prefix)
	if !ok || rest == "" || len(s) > 64 {
		return false
	}
	return strings.IndexFunc(rest, func(c rune) bool { return (c < '0' || c > '9') && (c < 'a' || c > 'z') }) < 0
}
