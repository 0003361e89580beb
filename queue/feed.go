package queue

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
)

// Ref is where a log holds a line.
type Ref = jsonl.Ref

// Item is an event on its way to a sink. The feed keeps Line; nobody may
// change it.
type Item struct {
	Agent, Session, ID string
	Severity           event.Severity
	Sequenced          bool
	Position           event.Position
	Line               []byte // the event, without a newline
	Log                Ref    // where the log holds it; zero when no log does
}

// Options are a Feed's. The zero Options are good.
type Options struct {
	// Sink names the saved positions beside the logs: one name for each place
	// that events go to. "" saves none.
	Sink string

	// MaxEvents and MaxBytes bound the window of logged events: what is beyond
	// it is read from the log. 4096 and 8 MiB.
	MaxEvents int
	MaxBytes  int64

	// LooseEvents and LooseBytes bound the debug and info events that no log
	// holds; notice and above have as much room again. 4096 and 4 MiB.
	LooseEvents int
	LooseBytes  int64

	// Pace bounds how many events a second are read from one log, once that is
	// in its stride; 0 is as fast as it goes. A collector holds the newest of a
	// session for those who come late: after an outage its consumers come back
	// too, and what rushes by before they do, or faster than they read, they
	// never see. So the reading begins slowly, and doubles each second.
	Pace int

	// SaveEvery is how long an acknowledged position may stay unsaved. 2 s.
	SaveEvery time.Duration

	// Own are the logs that another feed here sends, which Resume leaves to it:
	// between their end and the saving of how far it came they look like a dead
	// owner's. It may be nil.
	Own func(path string) bool

	// OnLoss is called when events were lost, from whichever goroutine. It must
	// neither block nor call the feed. TakeLosses tells what was.
	OnLoss func()

	Log *slog.Logger
}

// ErrClosed is what a closed Feed answers.
var ErrClosed = errors.New("the feed is closed")

// Feed carries the events of many sessions to one sink, in order within each.
// Offer may be called by many goroutines, Next by one at a time.
type Feed struct {
	o    Options
	wake chan struct{}

	mu      sync.Mutex
	lanes   map[string]*lane
	logs    map[string]*lane // by the path of their log
	ready   []*lane          // with something to hand out, in turn
	closed  bool
	window  amount
	loose   amount               // of debug and info
	grave   amount               // of notice and above, that no log holds
	waiting [severities][]*entry // loose entries that may be shed, oldest first
	losses  map[lossKey]*Loss
	idle    []chan struct{} // who waits for everything to be acknowledged
	flowing time.Time       // since when acknowledgements come one after the other
	acked   time.Time       // the last of them
	since   time.Time       // of the last acknowledgement, or of the first offer since nothing waited
	orphans []string        // logs of dead owners that are still to be sent
	active  int             // orphans under way
	timer   *time.Timer
	stats   Stats

	saving sync.Mutex // one writer of positions
}

type amount struct {
	events int
	bytes  int64
}

func (a *amount) add(n int, b int64) { a.events += n; a.bytes += b }

const severities = int(event.Critical-event.Debug) + 1

func index(s event.Severity) int { return int(min(max(s, event.Debug), event.Critical) - event.Debug) }

// lane is one session's way through the feed.
type lane struct {
	agent, session string
	path           string // its log; "" where there is none
	q              []*entry
	dead           int      // entries of q that were shed
	out            []*piece // handed out and not yet acknowledged, in order
	inReady        bool
	reading        bool
	stalled        bool        // its log is left alone for a moment
	allowed        float64     // events that may be read from it now
	asked          time.Time   // when that was reckoned
	told           bool        // and that was told
	done           bool        // nothing more will be offered
	orphan         *jsonl.Lock // its owner is dead, and we are who sends it on
	end            int64       // of what was offered of its log

	acked jsonl.Position
	dirty bool // acked is not saved yet
}

// entry is an event in memory, or a stretch of the log.
type entry struct {
	lane   *lane
	item   Item
	span   bool
	off    int64 // span: what is still to be read
	end    int64
	counts [severities]int // span: the events offered into it
	state  state
}

type state uint8

const (
	queued state = iota
	handed
	gone
)

// piece is what a batch took of a lane.
type piece struct {
	lane    *lane
	entries []*entry // events in memory
	span    bool     // or a stretch of the log
	off     int64    //
	end     int64    //
	counts  [severities]int
	last    jsonl.Position // of the last logged event; Offset 0 where there is none
	acked   bool
	back    bool // returned by Nack
}

// Batch is what Next hands out. It stays with its holder until Ack or Nack.
type Batch struct {
	Items []Item
	parts []*piece
}

// NewFeed makes a feed. Close it to save what was acknowledged.
func NewFeed(o Options) *Feed {
	def := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	def64 := func(v *int64, d int64) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&o.MaxEvents, 4096)
	def64(&o.MaxBytes, 8<<20)
	def(&o.LooseEvents, 4096)
	def64(&o.LooseBytes, 4<<20)
	def64((*int64)(&o.SaveEvery), int64(2*time.Second))
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Feed{o: o, wake: make(chan struct{}, 1), lanes: map[string]*lane{}, logs: map[string]*lane{}, losses: map[lossKey]*Loss{}}
}

func (f *Feed) lane(agent, session string) *lane {
	k := agent + "\x00" + session
	l := f.lanes[k]
	if l == nil {
		l = &lane{agent: agent, session: session}
		f.lanes[k] = l
	}
	return l
}

// laneOf is an event's lane: that of the log that holds it, which is its
// session's, also where the event itself names no session (agent.*). A log has
// one lane, for it has one position.
func (f *Feed) laneOf(it *Item) *lane {
	if l := f.logs[it.Log.Path]; l != nil {
		return l
	}
	l := f.lane(it.Agent, it.Session)
	if it.Log.Path != "" && l.path == "" {
		f.setLog(l, it.Log.Path)
	}
	return l
}

func (f *Feed) setLog(l *lane, path string) {
	if f.logs[l.path] == l {
		delete(f.logs, l.path)
	}
	l.path = path
	f.logs[path] = l
}

// drop forgets a lane.
func (f *Feed) drop(l *lane) {
	delete(f.lanes, l.agent+"\x00"+l.session)
	if f.logs[l.path] == l {
		delete(f.logs, l.path)
	}
}

// Attach makes the feed send what a session's log holds and this sink has not
// acknowledged, before whatever is offered next. It is called by the session's
// owner, once it has the log and before its first Offer. The sink is from now
// on one of the log's: should the owner die, a later Resume sends the rest.
func (f *Feed) Attach(agent, session string, log *jsonl.Log) error {
	path, end := log.Path(), log.Size()
	f.mu.Lock()
	l := f.lanes[agent+"\x00"+session]
	known := l != nil && l.path == path && l.end <= end // shorter than it was, it is another one
	f.mu.Unlock()
	var off int64
	var at jsonl.Position
	if !known {
		var err error
		if off, at, err = f.locate(path); err != nil {
			return err
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return ErrClosed
	}
	l = f.lane(agent, session)
	l.done = false
	if l.orphan != nil { // sent on already, when its owner came back
		l.orphan.Release()
		l.orphan = nil
		f.active--
	}
	if l.path == path && l.end <= end { // still about: it goes on from what it has
		off = l.end
	} else {
		f.setLog(l, path)
		l.acked, l.end = at, 0
	}
	if off < end {
		f.push(l, &entry{lane: l, span: true, off: off, end: end})
	}
	l.end = max(l.end, end)
	return nil
}

// locate finds where the sink stands in the log at path, and leaves the mark
// that it is one of the log's sinks.
func (f *Feed) locate(path string) (off int64, at jsonl.Position, err error) {
	if f.o.Sink == "" {
		return 0, at, nil
	}
	at, saved, err := jsonl.LoadPosition(path, f.o.Sink)
	if err != nil {
		f.o.Log.Warn("a saved position cannot be read; the log is sent again from its start", "error", err)
	}
	if off, err = jsonl.Locate(path, at); err != nil {
		return 0, at, err
	}
	if !saved {
		if err := jsonl.SavePosition(path, f.o.Sink, at); err != nil {
			f.o.Log.Warn("the position of a sink cannot be saved; after a restart it gets events again", "error", err)
		}
	}
	return off, at, nil
}

// Offer takes an event on. It never blocks and does no I/O.
func (f *Feed) Offer(it Item) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return
	}
	f.stats.Offered++
	l := f.laneOf(&it)
	l.done = false
	size := int64(len(it.Line))
	if tail := l.tail(); (tail == nil || !tail.span) && f.window.events+f.loose.events+f.grave.events == 0 {
		f.since = time.Now()
	}
	if it.Log.Path == "" || it.Log.Path != l.path {
		it.Log = Ref{}
		e := &entry{lane: l, item: it}
		f.looseOf(it.Severity).add(1, size)
		f.wait(e)
		f.push(l, e)
		f.shed()
		return
	}
	l.end = max(l.end, it.Log.End())
	if tail := l.tail(); tail != nil && tail.span { // behind already: read on from the log
		tail.end = it.Log.End()
		tail.counts[index(it.Severity)]++
		return
	}
	if f.window.events+1 > f.o.MaxEvents || f.window.bytes+size > f.o.MaxBytes {
		e := &entry{lane: l, span: true, off: it.Log.Off, end: it.Log.End()}
		e.counts[index(it.Severity)] = 1
		f.push(l, e)
		return
	}
	f.window.add(1, size)
	f.push(l, &entry{lane: l, item: it})
}

// tail is the lane's last entry that was not shed.
func (l *lane) tail() *entry {
	for n := len(l.q); n > 0; n-- {
		if e := l.q[n-1]; e.state != gone {
			return e
		}
		l.q = l.q[:n-1]
		l.dead--
	}
	return nil
}

func (f *Feed) push(l *lane, e *entry) {
	l.q = append(l.q, e)
	f.rouse(l)
}

// rouse puts a lane in line and wakes Next.
func (f *Feed) rouse(l *lane) {
	if !l.inReady && len(l.q) > 0 {
		l.inReady = true
		f.ready = append(f.ready, l)
	}
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// looseOf is the account of loose events of a severity.
func (f *Feed) looseOf(s event.Severity) *amount {
	if s >= event.Notice {
		return &f.grave
	}
	return &f.loose
}

// shed brings the events that no log holds back within their bounds: debug and
// info within theirs, and notice and above within as much again. What tells of
// a loss makes for no more of it.
func (f *Feed) shed() {
	for s := range severities {
		have := f.looseOf(event.Severity(s) + event.Debug)
		for have.events > f.o.LooseEvents || have.bytes > f.o.LooseBytes {
			e := f.oldest(s)
			if e == nil {
				break
			}
			l := e.lane
			have.add(-1, -int64(len(e.item.Line)))
			e.state, e.item = gone, Item{}
			f.lose(l, ReasonFull, s, 1)
			if l.dead++; l.dead > 64 && l.dead > len(l.q)/4 {
				l.compact()
			}
			f.settle(l)
		}
	}
}

// wait enters a loose entry into the line of those that may be shed.
func (f *Feed) wait(e *entry) {
	i := index(e.item.Severity)
	w := append(f.waiting[i], e)
	if len(w) > 64 && len(w) > 2*(f.loose.events+f.grave.events) { // mostly delivered meanwhile
		w = slices.DeleteFunc(w, func(e *entry) bool { return e.state != queued })
	}
	f.waiting[i] = w
}

// oldest takes the oldest loose entry of a severity that waits in a lane.
func (f *Feed) oldest(s int) *entry {
	w := f.waiting[s]
	for len(w) > 0 {
		e := w[0]
		w[0] = nil
		w = w[1:]
		if e.state == queued {
			f.waiting[s] = w
			return e
		}
	}
	f.waiting[s] = nil
	return nil
}

// compact takes shed entries out of a lane, and joins the stretches of log
// that they stood between.
func (l *lane) compact() {
	q := l.q[:0]
	for _, e := range l.q {
		if e.state == gone {
			continue
		}
		if n := len(q); e.span && n > 0 && q[n-1].span {
			q[n-1].end = e.end
			for i, c := range e.counts {
				q[n-1].counts[i] += c
			}
			continue
		}
		q = append(q, e)
	}
	clear(l.q[len(q):])
	l.q, l.dead = q, 0
}

// Next waits for events and hands out as many as there are, within both
// bounds; one event always fits. A batch keeps the order of each session.
func (f *Feed) Next(ctx context.Context, maxEvents int, maxBytes int64) (Batch, error) {
	for {
		f.mu.Lock()
		if f.closed {
			f.mu.Unlock()
			return Batch{}, ErrClosed
		}
		b, behind := f.gather(maxEvents, maxBytes)
		f.mu.Unlock()
		if behind != nil {
			b = f.read(behind, maxEvents, maxBytes)
		}
		if len(b.Items) > 0 {
			return b, nil
		}
		if behind != nil || f.adopt() {
			continue
		}
		select {
		case <-f.wake:
		case <-ctx.Done():
			return Batch{}, ctx.Err()
		}
	}
}

// gather takes what is in memory, lane by lane in turn. A lane whose next is in
// the log is given to be read, when it is the first in line; otherwise it is
// the first in the next line, so that neither the old nor the new waits long.
func (f *Feed) gather(maxEvents int, maxBytes int64) (b Batch, behind *lane) {
	room := amount{maxEvents, maxBytes}
	var first, again []*lane
	full := false
	for len(f.ready) > 0 && !full {
		l := f.ready[0]
		f.ready = f.ready[1:]
		l.inReady = false
		l.bury()
		switch {
		case len(l.q) == 0 || l.stalled:
		case !l.q[0].span:
			if full = f.take(l, &b, &room); full {
				again = append(again, l)
			} else if l.bury(); len(l.q) > 0 {
				first = append(first, l)
			}
		case len(b.Items) > 0:
			first = append(first, l)
		default:
			l.reading = true
			return b, l
		}
	}
	for _, l := range append(first, again...) {
		l.inReady = true
	}
	f.ready = slices.Concat(first, f.ready, again)
	return b, nil
}

// bury takes shed entries from the head of a lane.
func (l *lane) bury() {
	i := 0
	for ; i < len(l.q) && l.q[i].state == gone; i++ {
		l.dead--
	}
	l.cut(i)
}

// cut takes n entries from the head of a lane.
func (l *lane) cut(n int) {
	clear(l.q[:n])
	if l.q = l.q[n:]; len(l.q) == 0 {
		l.q = nil
	}
}

// take puts a lane's events up to the next stretch of log into a batch, and
// says whether the batch is full.
func (f *Feed) take(l *lane, b *Batch, room *amount) (full bool) {
	p := &piece{lane: l}
	i := 0
	for ; i < len(l.q) && !l.q[i].span; i++ {
		e := l.q[i]
		if e.state == gone {
			l.dead--
			continue
		}
		size := int64(len(e.item.Line)) + 1
		if len(b.Items) > 0 && (room.events < 1 || room.bytes < size) {
			full = true
			break
		}
		room.add(-1, -size)
		e.state = handed
		p.entries = append(p.entries, e)
		if e.item.Log.Path != "" {
			p.last = at(&e.item)
		}
		b.Items = append(b.Items, e.item)
	}
	l.cut(i)
	if len(p.entries) > 0 {
		l.out = append(l.out, p)
		b.parts = append(b.parts, p)
	}
	return full
}

func at(it *Item) jsonl.Position {
	return jsonl.Position{ID: it.ID, Epoch: it.Position.Epoch, Seq: it.Position.Seq, Offset: it.Log.End()}
}

// read takes a batch from the stretch of log at a lane's head. It reads
// without the lock: a slow disk holds nobody up who offers.
func (f *Feed) read(l *lane, maxEvents int, maxBytes int64) Batch {
	f.mu.Lock()
	defer f.mu.Unlock()
	defer func() {
		l.reading = false
		f.settle(l)
		f.rouse(l)
	}()
	if len(l.q) == 0 || !l.q[0].span {
		return Batch{} // something was given back meanwhile
	}
	head := l.q[0]
	if f.o.Pace > 0 {
		n, wait := f.pace(l, time.Now())
		if wait > 0 {
			f.stall(l, wait)
			return Batch{}
		}
		maxEvents = min(maxEvents, n)
	}
	off, end, path := head.off, head.end, l.path
	f.mu.Unlock()
	items, reached, passed, err := readItems(path, off, end, maxEvents, maxBytes)
	f.mu.Lock()
	if len(l.q) == 0 || l.q[0] != head {
		return Batch{}
	}
	p := &piece{lane: l, span: true, off: off, end: reached}
	for i := range items {
		items[i].Agent, items[i].Session = l.agent, l.session
		s := index(items[i].Severity)
		p.counts[s]++
		head.counts[s] = max(0, head.counts[s]-1)
		p.last = at(&items[i])
	}
	l.allowed -= float64(len(items))
	f.lose(l, ReasonUnreadable, index(event.Info), passed)
	head.off = reached
	switch {
	case err == nil:
		l.told = false
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errShort):
		f.o.Log.Warn("a log cannot be read on; its unsent events are lost to this sink", "log", path, "offset", reached, "error", err)
		n := 0
		for s, c := range head.counts {
			f.lose(l, ReasonUnreadable, s, c)
			n += c
		}
		if n == 0 { // how many is not known
			f.lose(l, ReasonUnreadable, index(event.Info), 1)
		}
		head.off, p.end = head.end, head.end
	default:
		if !l.told {
			f.o.Log.Warn("a log cannot be read now; trying again", "log", path, "offset", reached, "error", err)
		}
		l.told = true
		f.stall(l, time.Second)
	}
	if head.off >= head.end {
		l.cut(1)
	}
	if len(items) == 0 {
		return Batch{}
	}
	l.out = append(l.out, p)
	return Batch{Items: items, parts: []*piece{p}}
}

// stall leaves a lane's log alone for a while.
func (f *Feed) stall(l *lane, d time.Duration) {
	l.stalled = true
	time.AfterFunc(d, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		l.stalled = false
		f.rouse(l)
	})
}

// What a pace begins with, in events a second, and how much of a second's
// events is read at once at most.
const (
	startPace = 1000
	paceShare = 0.2
)

// pace is how many events may be read from a lane's log now, or how long that
// is none.
func (f *Feed) pace(l *lane, now time.Time) (n int, wait time.Duration) {
	rate := float64(startPace)
	if !f.flowing.IsZero() {
		rate = min(math.Exp2(now.Sub(f.flowing).Seconds())*startPace, float64(f.o.Pace))
	}
	room := rate * paceShare
	if l.asked.IsZero() {
		l.allowed = room
	} else {
		l.allowed = min(l.allowed+now.Sub(l.asked).Seconds()*rate, room)
	}
	l.asked = now
	if l.allowed < room/4 {
		return 0, time.Duration((room/2 - l.allowed) / rate * float64(time.Second))
	}
	return int(l.allowed), 0
}

// stride is the longest pause between acknowledgements that does not make
// for a new beginning.
const stride = 2 * time.Second

// Ack says that the sink has taken a batch in, for good.
func (f *Feed) Ack(b Batch) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range b.parts {
		if p.back || p.acked {
			continue
		}
		p.acked = true
		l := p.lane
		n := 0
		for ; n < len(l.out) && l.out[n].acked; n++ {
			f.forget(l.out[n])
			if q := l.out[n]; q.last.Offset > 0 {
				l.acked, l.dirty = q.last, true
			}
			l.out[n] = nil
		}
		l.out = l.out[n:]
		f.settle(l)
	}
	f.stats.Acked += int64(len(b.Items))
	f.since = time.Now()
	if f.acked.IsZero() || f.since.Sub(f.acked) > stride {
		f.flowing = f.since
	}
	f.acked = f.since
	f.arm()
	return nil
}

// forget lets go of a piece's events.
func (f *Feed) forget(p *piece) {
	for _, e := range p.entries {
		if e.item.Log.Path != "" {
			f.window.add(-1, -int64(len(e.item.Line)))
		} else {
			f.looseOf(e.item.Severity).add(-1, -int64(len(e.item.Line)))
		}
		e.state, e.item.Line = gone, nil
	}
	p.entries = nil
}

// Nack gives a batch back: it is handed out again, and with it what was handed
// out of the same sessions after it.
func (f *Feed) Nack(b Batch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range b.parts {
		l := p.lane
		from := 0
		for from < len(l.out) && l.out[from] != p {
			from++
		}
		if from == len(l.out) {
			continue // acknowledged, or taken back with an earlier one
		}
		var q []*entry
		for _, r := range l.out[from:] {
			if r.acked {
				f.forget(r) // taken in already; only its turn has not come
				continue
			}
			r.back = true
			if r.span {
				q = append(q, &entry{lane: l, span: true, off: r.off, end: r.end, counts: r.counts})
			}
			for _, e := range r.entries {
				e.state = queued
				q = append(q, e)
				if e.item.Log.Path == "" { // it may be shed again
					i := index(e.item.Severity)
					f.waiting[i] = slices.Insert(f.waiting[i], 0, e)
				}
			}
		}
		clear(l.out[from:])
		l.out = l.out[:from]
		l.q = append(q, l.q...)
		f.rouse(l)
	}
	f.shed()
}

// Drop counts an event of a batch as lost for a reason that the sink gives:
// the other side will never take it. The batch is acknowledged as if it had.
func (f *Feed) Drop(it Item, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.logs[it.Log.Path]
	if l == nil {
		l = &lane{agent: it.Agent, session: it.Session}
	}
	f.lose(l, reason, index(it.Severity), 1)
}

// Done says that nothing more of a session will be offered: its log is about
// to be closed. The feed forgets the session when everything was acknowledged.
func (f *Feed) Done(agent, session string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l := f.lanes[agent+"\x00"+session]; l != nil {
		l.done = true
		f.settle(l)
		f.arm()
	}
}

// Drained waits until everything offered was acknowledged. What Resume found
// is not waited for: it is not this process's, and may be long.
func (f *Feed) Drained(ctx context.Context) error {
	for {
		f.mu.Lock()
		if f.closed {
			f.mu.Unlock()
			return ErrClosed
		}
		if !f.busy() {
			f.mu.Unlock()
			return nil
		}
		c := make(chan struct{})
		f.idle = append(f.idle, c)
		f.mu.Unlock()
		select {
		case <-c:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Waiting is how long what was offered has waited without anything being
// acknowledged; 0 where nothing waits.
func (f *Feed) Waiting() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.busy() || f.since.IsZero() {
		return 0
	}
	return time.Since(f.since)
}

func (f *Feed) busy() bool {
	for _, l := range f.lanes {
		if l.orphan == nil && l.pending() {
			return true
		}
	}
	return false
}

func (l *lane) pending() bool { return l.reading || len(l.out) > 0 || len(l.q) > l.dead }

// settle is called after a lane may have run dry.
func (f *Feed) settle(l *lane) {
	if l.pending() {
		return
	}
	if l.done && !l.dirty && l.orphan == nil {
		f.drop(l)
	} else if l.done {
		f.arm()
	}
	if len(f.idle) > 0 && !f.busy() {
		for _, c := range f.idle {
			close(c)
		}
		f.idle = nil
	}
}

// arm sees to it that positions are saved before long.
func (f *Feed) arm() {
	if f.timer == nil && !f.closed {
		f.timer = time.AfterFunc(f.o.SaveEvery, func() {
			f.mu.Lock()
			f.timer = nil
			f.mu.Unlock()
			f.save()
		})
	}
}

// save writes the positions that moved, and lets go of sessions that are done.
func (f *Feed) save() {
	f.saving.Lock()
	defer f.saving.Unlock()
	type move struct {
		path string
		at   jsonl.Position
	}
	var moves []move
	var finished []*jsonl.Lock
	f.mu.Lock()
	for _, l := range f.lanes {
		if l.dirty && l.path != "" {
			moves = append(moves, move{l.path, l.acked})
		}
		l.dirty = false
		if !l.done || l.pending() {
			continue
		}
		if l.orphan != nil {
			finished = append(finished, l.orphan)
			f.active--
		}
		f.drop(l)
	}
	f.mu.Unlock()
	if f.o.Sink != "" {
		for _, m := range moves {
			if err := jsonl.SavePosition(m.path, f.o.Sink, m.at); err != nil {
				f.o.Log.Warn("the position of a sink cannot be saved; after a restart it gets events again", "error", err)
			}
		}
	}
	for _, l := range finished {
		l.Release()
	}
	if len(finished) > 0 {
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
}

// Close saves what was acknowledged and ends the feed. Batches that are out
// are neither lost nor acknowledged: a later feed sends them again.
func (f *Feed) Close() error {
	f.mu.Lock()
	if f.closed {
		f.mu.Unlock()
		return nil
	}
	f.closed = true
	if f.timer != nil {
		f.timer.Stop()
		f.timer = nil
	}
	for _, c := range f.idle {
		close(c)
	}
	f.idle = nil
	f.mu.Unlock()
	f.save()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, l := range f.lanes {
		if l.orphan != nil {
			l.orphan.Release()
		}
	}
	f.lanes, f.logs, f.ready = map[string]*lane{}, map[string]*lane{}, nil
	select {
	case f.wake <- struct{}{}:
	default:
	}
	return nil
}
