package collector

import (
	"bytes"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"aep-wrap/event"
)

// inspector reports what is odd about events that were taken in all the same:
// a payload that is off its type's schema, a late position, an event after the
// end of its session. It works beside the road, on what it has time for: under
// load it passes events over, and counts them.
type inspector struct {
	log      *slog.Logger
	queue    chan finding
	quit     chan struct{}
	once     sync.Once
	passed   atomic.Int64 // events whose payload was not looked at
	mu       sync.Mutex
	findings map[string]int64 // by rule
}

// finding is an event, and what was found; rule "" asks for a look at its
// payload.
type finding struct {
	rule string
	it   *item
}

// How much is looked at: a payload costs a few microseconds, so this is less
// than a hundredth of a processor.
const (
	inspectQueue  = 256
	inspectBytes  = 64 << 10 // of one event
	inspectBurst  = 256
	inspectPeriod = 100 * time.Millisecond
)

func newInspector(log *slog.Logger) *inspector {
	return &inspector{log: log, queue: make(chan finding, inspectQueue), quit: make(chan struct{}), findings: map[string]int64{}}
}

// report never waits: it is called under the hub's lock.
func (n *inspector) report(rule string, it *item) {
	if rule != "" {
		n.count(rule)
	}
	select {
	case n.queue <- finding{rule, it}:
	default:
		if rule == "" {
			n.passed.Add(1)
		}
	}
}

// look has the payloads of a batch looked at.
func (n *inspector) look(items []*item) {
	for i, it := range items {
		if len(n.queue) >= inspectQueue/2 { // the rest is for places
			n.passed.Add(int64(len(items) - i))
			return
		}
		n.report("", it)
	}
}

func (n *inspector) count(rule string) {
	n.mu.Lock()
	n.findings[rule]++
	n.mu.Unlock()
}

func (n *inspector) close() { n.once.Do(func() { close(n.quit) }) }

func (n *inspector) run() {
	for left, since := inspectBurst, time.Now(); ; {
		select {
		case <-n.quit:
			return
		case f := <-n.queue:
			if left--; left <= 0 {
				if rest := inspectPeriod - time.Since(since); rest > 0 {
					select {
					case <-n.quit:
						return
					case <-time.After(rest):
					}
				}
				left, since = inspectBurst, time.Now()
			}
			n.inspect(f)
		}
	}
}

func (n *inspector) inspect(f finding) {
	tell := func(rule, detail string) {
		n.log.Debug("an odd event was taken in", "rule", rule, "detail", detail, "type", f.it.Type,
			"session", clip(f.it.Session), "id", clip(f.it.ID), "epoch", f.it.Epoch, "seq", f.it.Seq)
	}
	if f.rule != "" {
		tell(f.rule, "")
		return
	}
	if f.it.n > inspectBytes {
		n.passed.Add(1)
		return
	}
	_, data, err := event.ParseHeader(f.it.line())
	if err != nil {
		return
	}
	for _, v := range event.Check(event.Event{Header: f.it.Header, Data: bytes.Clone(data)}) {
		n.count(v.Rule)
		tell(v.Rule, v.Detail)
	}
}
