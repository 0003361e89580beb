package collector

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"aep-wrap/event"
)

// follower is a consumer of the test's, and what it got.
type follower struct {
	*consumer
	got  map[string]int
	owed map[string]bool // loud events that it must get, unless its stream is ended
	last state
	fell bool // it was behind
}

func (f *follower) step(h *hub) state {
	items, st := h.next(f.consumer, nil)
	for _, it := range items {
		if st != replaying || f.filter.Match(&it.Header) {
			f.got[string(it.line())]++
		}
	}
	f.last = st
	f.fell = f.fell || f.behind
	return st
}

// Whatever the order of writes, late positions, redeliveries, evictions and
// reads: who is not told that it lost something has every loud event, and
// nobody has an event twice that came once.
func TestHubLosesNothingSilently(t *testing.T) {
	all, err := event.CompileFilter([]byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	some, err := event.CompileFilter([]byte(`{"session":["s0","s1"]}`))
	if err != nil {
		t.Fatal(err)
	}
	ended, whole, caughtUp := 0, 0, 0
	for seed := range uint64(80) {
		r := rand.New(rand.NewPCG(seed, 1))
		limits := Limits{
			SessionEvents: 1 + r.IntN(400), Sessions: 2 + r.IntN(5), QueueEvents: 2 + r.IntN(30),
			HeldBytes: 20_000 + r.IntN(2_000_000), SessionBytes: 10_000 + r.IntN(1_000_000), QueueBytes: 1000 + r.IntN(50_000),
		}.withDefaults()
		h := newHub(limits)
		var followers []*follower
		seqs := [4]int64{}
		id := 0
		var recent []string
		came := map[string]int{}
		for range 600 {
			switch op := r.IntN(100); {
			case op < 4 && len(followers) < 12:
				f := &follower{consumer: &consumer{filter: all, live: r.IntN(4) > 0, ceiling: event.Full}, got: map[string]int{}, owed: map[string]bool{}}
				if r.IntN(3) == 0 {
					f.filter = some
				}
				history := r.IntN(2) == 0
				h.subscribe(f.consumer, nil, history, nil)
				if history {
					for _, b := range h.store.sessions {
						for _, it := range b.items {
							if (it.loud() || !f.live) && f.filter.Match(&it.Header) {
								f.owed[string(it.line())] = true
							}
						}
					}
				}
				followers = append(followers, f)
			case op < 25:
				var batch []*item
				for range 1 + r.IntN(12) {
					line := ""
					if len(recent) > 0 && r.IntN(10) == 0 {
						line = recent[r.IntN(len(recent))]
					} else {
						n := r.IntN(len(seqs))
						seq := seqs[n]
						if r.IntN(8) == 0 && seq > 3 {
							seq -= int64(r.IntN(3)) // late, or on a position that is taken
						} else {
							seqs[n] += 1 + int64(r.IntN(2))
						}
						severity := []string{"debug", "info", "info", "notice", "error"}[r.IntN(5)]
						line = ev(fmt.Sprint("s", n), 0, seq, fmt.Sprintf(`"severity":%q`, severity), fmt.Sprintf(`"mark":%d`, id))
						line = strings.Replace(line, `"id":"`, fmt.Sprintf(`"id":"%d-`, id), 1)
						id++
						recent = append(recent, line)
					}
					came[line]++
					batch = append(batch, mustItem(t, line))
				}
				for _, it := range batch {
					for _, f := range followers {
						if f.live && it.loud() && f.filter.Match(&it.Header) {
							f.owed[string(it.line())] = true
						}
					}
				}
				h.publish(batch)
			case len(followers) > 0:
				followers[r.IntN(len(followers))].step(h)
			}
		}
		for i, f := range followers {
			for st := sending; st == sending || st == replaying; {
				st = f.step(h)
			}
			for line, n := range f.got {
				if n > came[line] {
					t.Fatalf("seed %d, consumer %d: %d times, came %d times: %s", seed, i, n, came[line], line)
				}
			}
			if f.last == lost {
				ended++
				continue
			}
			whole++
			if f.fell {
				caughtUp++
			}
			for line := range f.owed {
				if f.got[line] == 0 {
					t.Fatalf("seed %d, consumer %d (live %v): misses %s", seed, i, f.live, line)
				}
			}
		}
		for _, f := range followers {
			h.unsubscribe(f.consumer)
		}
		if len(h.consumers)+len(h.behind) != 0 {
			t.Fatalf("seed %d: %d consumers and %d behind are left", seed, len(h.consumers), len(h.behind))
		}
		checkStore(t, h.store)
	}
	t.Logf("%d streams ended, %d whole, %d of them after they were behind", ended, whole, caughtUp)
	if ended < 20 || caughtUp < 20 || whole < caughtUp+20 {
		t.Error("the test shows too little")
	}
}

// checkStore holds a store to its own bookkeeping.
func checkStore(t *testing.T, s *store) {
	t.Helper()
	bytes, events, linked := 0, 0, 0
	for b := s.oldest; b != nil; b = b.newer {
		linked++
		own := 0
		for i, it := range b.items {
			own += it.cost()
			if i > 0 && !b.items[i-1].key.less(it.key) {
				t.Fatalf("session %s is out of order at %d", b.session, i)
			}
			if b.hasFloor && it.key.Position.Less(b.floor) {
				t.Fatalf("session %s holds %v, below its floor %v", b.session, it.key.Position, b.floor)
			}
		}
		if own != b.bytes || len(b.items) > s.limits.SessionEvents || own > s.limits.SessionBytes {
			t.Fatalf("session %s: %d events of %d bytes, counted %d", b.session, len(b.items), own, b.bytes)
		}
		bytes += own
		events += len(b.items)
	}
	if linked != len(s.sessions) || bytes != s.bytes || events != s.events || len(s.seen) != events || bytes > s.limits.HeldBytes {
		t.Fatalf("%d of %d sessions, %d of %d bytes, %d of %d events, %d ids", linked, len(s.sessions), bytes, s.bytes, events, s.events, len(s.seen))
	}
}

func TestCeiling(t *testing.T) {
	s := serve(t, Config{})
	full := ev("s", 0, 1, `"capture":"redacted"`, `"run":"r"`, `"data":{"trigger":"user","prompt":"CANARY"}`)
	full = strings.Replace(full, "progress.status", "run.started", 1)
	plain := ev("s", 0, 2)
	filter := "&filter=" + url.QueryEscape(`{"session":"s"}`)
	streams := map[string]*stream{}
	for _, level := range []string{"none", "metadata", "redacted", "full"} {
		streams[level] = s.open("capture="+level+filter, nil)
	}
	s.post(full, plain)
	for level, st := range streams {
		first, second := st.next(), st.next()
		body := string(first.Data)
		want := level
		if level == "full" {
			want = "redacted" // never raised
		}
		if !strings.Contains(body, `"capture":"`+want+`"`) || strings.Contains(body, "CANARY") != (level == "redacted" || level == "full") ||
			strings.Contains(body, `"trigger"`) != (level != "none") || first.ID != "s:0:1" || first.Event != "run.started" {
			t.Errorf("%s: %+v %s", level, first, body)
		}
		if level != "none" && string(second.Data) != plain {
			t.Errorf("%s: what honours the ceiling was changed: %s", level, second.Data)
		}
		replayed := dataLines(s.replay("from=all&capture=" + level))
		if len(replayed) != 2 || replayed[0] != body {
			t.Errorf("%s: replayed %q", level, replayed)
		}
	}
}
