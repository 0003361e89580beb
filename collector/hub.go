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
	logs   archive
	queued int // bytes in all consumers' queues

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
	owed   map[string]debt   // by session: what arrived later and was pushed out again
	notes  []exhausted

	gone bool // unsubscribed
	lost bool // missed an event that it must not miss: the stream has to end
}

// debt is what a consumer that is behind has still to read of a session in its
// log: what lies behind at, up to the end of what was pushed out of the buffer
// that held it last.
type debt struct {
	at  event.Position
	buf *buffer
}

// span is a stretch of one buffer that a consumer reads: the items above at
// that arrived in (lo, hi]. Where some of it was pushed out it is deep: it is
// read from the log up to the buffer, and then from there.
type span struct {
	buf    *buffer
	at     key
	lo, hi uint64
	deep   bool
	off    int64 // in the log, where to go on; below 0 that is to be found
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

// prepare looks for the logs that a subscription may have to be served from:
// before it is registered, for it reads files. What it finds of sessions that
// are not held, nil where that is nothing, is for subscribe.
func (h *hub) prepare(from []resume) (gone map[string]*buffer) {
	if h.logs.dir == "" || len(from) == 0 {
		return nil
	}
	type ask struct {
		b                      *buffer
		agent, session, source string
		floor                  event.Position
	}
	var asks []ask
	var unknown []string
	h.mu.Lock()
	for _, r := range from {
		b := h.store.sessions[r.session]
		if b == nil {
			unknown = append(unknown, r.session)
			continue
		}
		if _, earliest, exhausted := b.resume(r.pos); exhausted && !b.looked {
			floor := before(earliest)
			if b.hasFloor && floor.Less(b.floor) {
				floor = b.floor
			}
			asks = append(asks, ask{b, b.agent, b.session, b.source, floor})
		}
	}
	h.mu.Unlock()
	for _, a := range asks {
		path := h.logs.of(a.agent, a.session, a.source, a.floor)
		h.mu.Lock()
		a.b.log, a.b.looked = path, true
		h.mu.Unlock()
	}
	if len(unknown) > 0 {
		gone = map[string]*buffer{}
		agents := h.logs.agents()
		for _, session := range unknown {
			gone[session] = h.logs.find(agents, session)
		}
	}
	return gone
}

// logged says whether what is pushed out of a buffer is in the session's log.
func (h *hub) logged(b *buffer) bool {
	if !b.looked {
		b.log, b.looked = h.logs.of(b.agent, b.session, b.source, event.Position{Seq: -1}), true
	}
	return b.log != "" && !b.mixed
}

// subscribe registers a consumer with the history it asks for. gone are the
// sessions that only prepare knows.
func (h *hub) subscribe(c *consumer, from []resume, all bool, gone map[string]*buffer) {
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
			var looked bool
			if b, looked = gone[r.session]; !looked { // forgotten since
				b = h.logs.find(h.logs.agents(), r.session)
			}
			if b != nil && r.pos.Less(b.floor) {
				c.read(&span{buf: b, at: key{Position: r.pos}, hi: h.arrivals, deep: true, off: -1})
			}
			continue
		}
		at, earliest, lacking := b.resume(r.pos)
		deep := lacking && h.logged(b)
		switch {
		case deep:
			b.raise(before(earliest))
		case lacking:
			c.notes = append(c.notes, exhausted{r.session, earliest})
		}
		c.read(&span{buf: b, at: at, hi: h.arrivals, deep: deep, off: -1})
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
	h.queued -= c.queued
	c.queued = 0
	c.queue, c.spans, c.open, c.owed, c.cut = nil, nil, nil, nil, nil
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
			b, held := h.store.admit(it, h.arrivals)
			for _, c := range h.consumers {
				h.offer(c, it, b, held)
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

// offer hands one consumer an event that has just arrived, and of which held is
// held in its session's buffer. What is held can be read later; what is not (a
// redelivery, an event about no session) has only this moment, unless it is
// among what a consumer that is behind still has to read: it does not overtake
// what lies before it.
func (h *hub) offer(c *consumer, it *item, b *buffer, held *item) {
	fresh := held == it
	if !c.live || c.lost || c.behind && fresh || !c.filter.Match(&it.Header) {
		return
	}
	if c.behind && c.owes(b, it, held) {
		return
	}
	// Pushed out at once, or long ago: the log has it.
	logged := held == nil && b != nil && it.Sequenced && h.logged(b)
	if logged && c.behind {
		h.owe(c, b, it)
		return
	}
	cost := it.cost()
	room := len(c.queue) < h.limits.QueueEvents && c.queued+cost <= h.limits.QueueBytes
	if (room || len(c.queue) == 0) && h.queued+cost <= h.limits.QueuedBytes {
		h.enqueue(c, it)
		c.signal()
		return
	}
	switch {
	case fresh:
		h.fallBehind(c, h.arrivals-1)
	case logged:
		h.fallBehind(c, h.arrivals)
		h.owe(c, b, it)
	default:
		h.lose(c, it)
	}
}

// maxOwed bounds the sessions of which a consumer has something to read in the
// logs.
const maxOwed = 4096

// owe notes that a consumer has still to read from an event on, in the log.
func (h *hub) owe(c *consumer, b *buffer, it *item) {
	p := before(it.key.Position)
	o, ok := c.owed[it.Session]
	switch {
	case ok && !p.Less(o.at):
		p = o.at
	case !ok && len(c.owed) >= maxOwed:
		h.lose(c, it)
		return
	case c.owed == nil:
		c.owed = map[string]debt{}
	}
	c.owed[it.Session] = debt{p, b}
}

// owes says whether a consumer that is behind still comes to an event that was
// delivered again.
func (c *consumer) owes(b *buffer, it, held *item) bool {
	if b == nil || !it.Sequenced {
		return false
	}
	s := c.open[b]
	if held != nil {
		return held.key.arrival > c.upTo || s != nil && s.holds(held.key)
	}
	if s != nil && s.deep && s.at.Position.Less(it.key.Position) && !b.floor.Less(it.key.Position) {
		return true
	}
	o, ok := c.owed[it.Session]
	return ok && o.at.Less(it.key.Position)
}

// holds says whether an item of that key is still to be read.
func (s *span) holds(k key) bool { return k.arrival > s.lo && k.arrival <= s.hi && s.at.less(k) }

// lose counts an event that a consumer will not get. A loud one ends its
// stream, so that the consumer knows, and resumes.
func (h *hub) lose(c *consumer, it *item) {
	if c.live && !it.loud() {
		h.counts.dropped.Add(1)
		return
	}
	if !c.lost {
		h.giveUp(c)
	}
}

// giveUp ends a consumer's stream.
func (h *hub) giveUp(c *consumer) {
	c.lost = true
	h.counts.cut.Add(1)
	c.signal()
	if c.cut != nil {
		c.cut()
	}
}

// missed is told each event that was pushed out of a buffer: those who are
// behind and had it before them read it from the log, or have lost it.
func (h *hub) missed(b *buffer, it *item) {
	for c := range h.behind {
		s := c.open[b]
		ahead := s != nil && s.holds(it.key)
		if !ahead && (!c.live || it.key.arrival <= c.upTo) || !c.filter.Match(&it.Header) {
			continue
		}
		switch {
		case !it.Sequenced || !h.logged(b):
			h.lose(c, it)
		case ahead:
			s.deep = true
		default:
			h.owe(c, b, it)
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
	if into = h.flush(c, into); len(into) > 0 {
		return into, sending
	}
	for c.behind {
		if len(c.spans) == 0 && !h.catchUp(c) {
			if into = h.flush(c, into); len(into) > 0 {
				return into, sending
			}
			break
		}
		s := c.spans[0]
		if s.deep {
			if into = h.dig(c, s, into); c.gone {
				return into[:0], waiting
			}
			if len(into) > 0 {
				return into, replaying
			}
			if c.lost {
				return into, lost
			}
			continue
		}
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

// dig reads a piece of a deep span from the log, without the lock meanwhile.
func (h *hub) dig(c *consumer, s *span, into []*item) []*item {
	p := piece{path: s.buf.log, session: s.buf.session, source: s.buf.source, off: s.off, at: s.at.Position, to: s.buf.floor}
	var whole bool
	var err error
	func() {
		h.mu.Unlock()
		defer h.mu.Lock()
		into, whole, err = p.read(into)
	}()
	s.off, s.at = p.off, key{Position: p.at}
	switch {
	case err != nil:
		s.buf.log, s.buf.looked = "", true // it is said from now on that it is not there
		if !c.lost && !c.gone {
			h.giveUp(c)
		}
	case whole:
		s.at = key{Position: p.to}
		s.deep = p.to.Less(s.buf.floor)
		if o, ok := c.owed[s.buf.session]; ok && o.at.Less(p.to) {
			c.owed[s.buf.session] = debt{p.to, o.buf}
		}
	}
	return into
}

func (h *hub) enqueue(c *consumer, it *item) {
	cost := it.cost()
	c.queue = append(c.queue, it)
	c.queued += cost
	h.queued += cost
}

// flush takes the whole queue.
func (h *hub) flush(c *consumer, into []*item) []*item {
	into = append(into, c.queue...)
	clear(c.queue)
	h.queued -= c.queued
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
	deep := len(c.owed) > 0
	if c.live {
		for b := h.store.newest; b != nil && b.last > since; b = b.older {
			s := &span{buf: b, at: nowhere, lo: since, hi: h.arrivals, off: -1}
			if i := b.since(since); i > 0 {
				s.at = b.items[i-1].key
			}
			if o, ok := c.owed[b.session]; ok && o.buf.source == b.source {
				if earliest, ok := b.earliest(); ok && o.buf != b { // it was forgotten, and began anew
					b.raise(before(earliest))
					b.log, b.looked = o.buf.log, true
				}
				s.at, s.deep = key{Position: o.at}, o.at.Less(b.floor)
				delete(c.owed, b.session)
			}
			c.read(s)
		}
		for _, o := range c.owed { // of sessions that nothing was added to, or that are forgotten
			c.read(&span{buf: o.buf, at: key{Position: o.at}, lo: since, hi: h.arrivals, deep: o.at.Less(o.buf.floor), off: -1})
		}
		slices.Reverse(c.spans) // the session written last comes last
	}
	c.owed = nil
	if len(c.spans) > 0 && (deep || h.arrivals-since > uint64(h.limits.QueueEvents/2)) {
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
		h.enqueue(c, it)
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
