package collector

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"aep-wrap/event"
)

// hub joins the store and the consumers: what is published is held and offered
// in one step, so that no event falls between a replay and the live stream,
// and none comes twice.
type hub struct {
	mu        sync.Mutex
	store     *store
	arrivals  uint64
	consumers []*consumer
	behind    map[*consumer]struct{} // those who read from the buffers

	limits Limits
	counts counts

	// report is told, under the lock, what was found about an event that was
	// taken in all the same.
	report func(rule string, it *item)
	// heard is told, under the lock, each event: live ones, and those of a log.
	heard func(it *item, live bool)
}

// counts are told by /healthz and /metrics to who may watch.
type counts struct {
	received atomic.Int64 // events taken in
	posted   atomic.Int64 // of them by POST
	refused  atomic.Int64 // requests or events refused
	dropped  atomic.Int64 // debug and info events that a slow consumer missed
	cut      atomic.Int64 // streams ended because a consumer was too slow
}

func newHub(l Limits) *hub {
	h := &hub{store: newStore(l), behind: map[*consumer]struct{}{}, limits: l}
	h.store.evicted = h.missed
	h.store.found = func(rule string, it *item) {
		if h.report != nil {
			h.report(rule, it)
		}
	}
	return h
}

// consumer is one subscription. A live one is handed events into a short
// queue. One that asked for history, or whose queue is full, is behind: it
// reads from the replay buffers at its own pace, and is handed events again
// when it has caught up. So a slow consumer costs its queue and no more, and
// misses nothing that is still held.
//
// All its fields belong to the hub's lock, but those made once.
type consumer struct {
	filter  *event.Filter
	ceiling event.Level
	live    bool          // goes on after the replay
	wake    chan struct{} // holds a token when there is something to do
	ready   func()        // called instead, under the lock, where there is one
	cut     func()        // ends a write under way; called under the lock
	at      int           // index in hub.consumers

	queue  []*item
	queued int // bytes

	behind bool
	upTo   uint64            // when behind: what arrived later is not in queue or spans
	spans  []*span           // what is being replayed, in order
	open   map[*buffer]*span // the same by buffer
	notes  []exhausted

	gone bool // unsubscribed
	lost bool // missed an event that it must not miss: the stream has to end
}

// span is a stretch of one buffer that a consumer reads: the items above at
// that arrived in (lo, hi].
type span struct {
	buf    *buffer
	at     key
	lo, hi uint64
}

// exhausted says that a resume position lies before what is held.
type exhausted struct {
	session  string
	earliest event.Position
}

// resume asks for the history of one session behind a position.
type resume struct {
	session string
	pos     event.Position
}

// subscribe registers a consumer with the history it asks for.
func (h *hub) subscribe(c *consumer, from []resume, all bool) {
	if c.ready == nil {
		c.wake = make(chan struct{}, 1)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c.at = len(h.consumers)
	h.consumers = append(h.consumers, c)
	c.upTo = h.arrivals
	if all {
		for b := h.store.oldest; b != nil; b = b.newer {
			c.read(&span{buf: b, at: nowhere, hi: h.arrivals})
		}
	}
	for _, r := range from {
		b := h.store.sessions[r.session]
		if b == nil {
			continue
		}
		at, earliest, gone := b.resume(r.pos)
		if gone {
			c.notes = append(c.notes, exhausted{r.session, earliest})
		}
		c.read(&span{buf: b, at: at, hi: h.arrivals})
	}
	if len(c.spans) > 0 {
		h.fallBehind(c, h.arrivals)
		c.signal()
	} else if !c.live {
		c.signal()
	}
}

func (h *hub) unsubscribe(c *consumer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := len(h.consumers) - 1
	h.consumers[c.at] = h.consumers[last]
	h.consumers[c.at].at = c.at
	h.consumers[last] = nil
	h.consumers = h.consumers[:last]
	delete(h.behind, c)
	c.queue, c.spans, c.open, c.cut = nil, nil, nil, nil
	c.gone, c.behind = true, false
}

// hurry gives every consumer's write that is under way a last moment: the
// endpoint ends.
func (h *hub) hurry() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, c := range h.consumers {
		if c.cut != nil {
			c.cut()
		}
	}
}

func (h *hub) watching() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.consumers)
}

func (c *consumer) read(s *span) {
	if c.open == nil {
		c.open = map[*buffer]*span{}
	}
	c.spans = append(c.spans, s)
	c.open[s.buf] = s
}

func (c *consumer) signal() {
	if c.ready != nil {
		c.ready()
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

func (h *hub) fallBehind(c *consumer, upTo uint64) {
	c.behind, c.upTo = true, upTo
	h.behind[c] = struct{}{}
}

// publishChunk is how many events are published under one hold of the lock.
const publishChunk = 64

// publish takes events in and offers them to every consumer.
func (h *hub) publish(items []*item) {
	h.counts.received.Add(int64(len(items)))
	for len(items) > 0 {
		n := min(publishChunk, len(items))
		h.mu.Lock()
		for _, it := range items[:n] {
			h.arrivals++
			if h.heard != nil {
				h.heard(it, true)
			}
			held := h.store.admit(it, h.arrivals)
			for _, c := range h.consumers {
				h.offer(c, it, held)
			}
		}
		h.mu.Unlock()
		items = items[n:]
	}
}

// hold takes an event into the buffers and offers it to nobody.
func (h *hub) hold(it *item) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.arrivals++
	if h.heard != nil {
		h.heard(it, false)
	}
	h.store.admit(it, h.arrivals)
}

// offer hands one consumer an event that has just arrived. What is held can be
// read later; what is not (a redelivery, an event about no session) has only
// this moment.
func (h *hub) offer(c *consumer, it *item, held bool) {
	if !c.live || c.lost || c.behind && held || !c.filter.Match(&it.Header) {
		return
	}
	cost := it.cost()
	if len(c.queue) == 0 || len(c.queue) < h.limits.QueueEvents && c.queued+cost <= h.limits.QueueBytes {
		c.queue = append(c.queue, it)
		c.queued += cost
		c.signal()
		return
	}
	if held {
		h.fallBehind(c, h.arrivals-1)
		return
	}
	h.lose(c, it)
}

// lose counts an event that a consumer will not get. A loud one ends its
// stream, so that the consumer knows, and resumes.
func (h *hub) lose(c *consumer, it *item) {
	if c.live && !it.loud() {
		h.counts.dropped.Add(1)
		return
	}
	if c.lost {
		return
	}
	c.lost = true
	h.counts.cut.Add(1)
	c.signal()
	if c.cut != nil {
		c.cut()
	}
}

// missed is told each event that was pushed out of a buffer: those who are
// behind and had it before them have lost it.
func (h *hub) missed(b *buffer, it *item) {
	for c := range h.behind {
		owed := c.live && it.key.arrival > c.upTo
		if s := c.open[b]; s != nil && !owed {
			owed = it.key.arrival > s.lo && it.key.arrival <= s.hi && s.at.less(it.key)
		}
		if owed && c.filter.Match(&it.Header) {
			h.lose(c, it)
		}
	}
}

// What next takes at once.
const (
	takeEvents = 256
	takeBytes  = 256 << 10
)

// state says how a consumer stands after next.
type state int

const (
	waiting   state = iota // nothing to send: wait for a wake
	sending                // send what was given, then ask again
	replaying              // the same, after matching: it is out of a buffer
	over                   // the replay is complete and nothing follows
	lost                   // the stream has to end
)

// next gives what a consumer has to send, appended to into. What comes out of
// a buffer is matched by the caller, outside the lock.
func (h *hub) next(c *consumer, into []*item) ([]*item, state) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case c.gone:
		return into, waiting
	case c.lost:
		return into, lost
	}
	if into = c.flush(into); len(into) > 0 {
		return into, sending
	}
	for c.behind {
		if len(c.spans) == 0 && !h.catchUp(c) {
			if into = c.flush(into); len(into) > 0 {
				return into, sending
			}
			break
		}
		s := c.spans[0]
		var done bool
		into, done = s.take(into)
		if done {
			c.spans = c.spans[1:]
			delete(c.open, s.buf)
		}
		if len(into) > 0 {
			return into, replaying
		}
	}
	if !c.live {
		return into, over
	}
	return into, waiting
}

// flush takes the whole queue.
func (c *consumer) flush(into []*item) []*item {
	into = append(into, c.queue...)
	clear(c.queue)
	c.queue, c.queued = c.queue[:0], 0
	if cap(c.queue) > 64 {
		c.queue = nil
	}
	return into
}

// catchUp turns to what arrived since the last spans were opened. Where that
// is little, the consumer gets it into its queue and is live again; else it
// becomes new spans. It says whether there are spans to read.
func (h *hub) catchUp(c *consumer) bool {
	c.spans, c.open = nil, nil
	since := c.upTo
	c.upTo = h.arrivals
	if c.live {
		for b := h.store.newest; b != nil && b.last > since; b = b.older {
			s := &span{buf: b, at: nowhere, lo: since, hi: h.arrivals}
			if i := b.since(since); i > 0 {
				s.at = b.items[i-1].key
			}
			c.read(s)
		}
		slices.Reverse(c.spans) // the session written last comes last
	}
	if len(c.spans) > 0 && h.arrivals-since > uint64(h.limits.QueueEvents/2) {
		return true
	}
	var rest []*item
	for _, s := range c.spans {
		for _, it := range s.buf.items[s.buf.after(s.at):] {
			if it.key.arrival > since && c.filter.Match(&it.Header) {
				rest = append(rest, it)
			}
		}
	}
	slices.SortFunc(rest, func(a, b *item) int { return cmp.Compare(a.key.arrival, b.key.arrival) })
	for _, it := range rest {
		c.queue = append(c.queue, it)
		c.queued += it.cost()
	}
	c.spans, c.open = nil, nil
	c.behind = false
	delete(h.behind, c)
	return false
}

// take appends the span's next items and says whether it has no more.
func (s *span) take(into []*item) ([]*item, bool) {
	n, size := 0, 0
	for i := s.buf.after(s.at); i < len(s.buf.items); i++ {
		it := s.buf.items[i]
		if it.key.arrival > s.lo && it.key.arrival <= s.hi {
			if n >= takeEvents || n > 0 && size+it.cost() > takeBytes {
				return into, false
			}
			into = append(into, it)
			n++
			size += it.cost()
		}
		s.at = it.key
	}
	return into, true
}
