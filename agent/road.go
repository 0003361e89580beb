package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/bits"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/control"
	"aep-wrap/event"
	"aep-wrap/queue"
	"aep-wrap/queue/jsonl"
	"aep-wrap/redaction"
	"aep-wrap/session"
)

// Bounds of the road.
const (
	inboxCount = 4096      // entries that wait for one session's goroutine
	inboxBytes = 64 << 20  // and the payload bytes behind them
	maxLanes   = 256       // sessions that one launch may have open at once
	batchBytes = 256 << 10 // sealed lines that are written at once
	maxLoose   = 64        // events of our own that wait for a first session
	// hookPatience is how long a hook waits for room in a full inbox. The
	// other channels wait as long as it takes: what they read stays where it is.
	hookPatience = 250 * time.Millisecond
)

// A Sink takes sealed events on to somewhere else. Attach and Done are called
// as a session's log is opened and before it is closed; Offer never blocks;
// Flush waits until all that was offered has arrived; TakeLosses gives what a
// session's events did not make it to the other side, once.
type Sink interface {
	Attach(agent, session string, log *jsonl.Log) error
	Offer(queue.Item)
	Done(agent, session string)
	Flush(context.Context) error
	TakeLosses(agent, session string) []queue.Loss
}

// RoadConfig says where a launch's moments go.
type RoadConfig struct {
	Adapter     adapters.Adapter
	Agent       string // the agent name on events
	Host        string
	Traceparent string
	Session     string    // the launch's own id, for what has no session of its own
	Start       time.Time // of the launch
	LogDir      string    // root of the session logs; "" keeps none
	Gate        *redaction.Gate
	Sinks       []Sink
	Log         *slog.Logger
	Say         func(line string)      // tells the user once, when it does no harm; may be nil
	Follow      func(adapters.LogFile) // a moment named a session log; may be nil
	Now         func() time.Time       // nil is the wall clock

	// Control is the target of the launch's commands; its Emit is the road's
	// Control. Nil takes no commands, and nothing waits for an answer.
	Control  *control.Dispatcher
	Patience Patience
}

// Stats counts what passed and what did not.
type Stats struct {
	Moments  int64 // taken in
	Events   int64 // sealed
	Refused  int64 // inputs that could not be read
	Dropped  int64 // drafts that found no room
	Failed   int64 // drafts that could not be sealed
	Unlogged int64 // events that no log holds
}

// Road carries moments to sealed events. It has one goroutine for each
// session, a lane; everything of a session passes through it in order, so that
// the order in the log and in every queue is the order of seq.
type Road struct {
	cfg RoadConfig
	*office
	answering // hooks

	mu      sync.Mutex
	lanes   map[string]*lane
	parked  map[string]chan struct{} // sessions whose lane was given up after their end: when it is done
	current string                   // the session that was spoken of last
	loose   []event.Draft            // of our own, before there is a session
	closed  bool
	tick    int64

	stats struct{ moments, refused, dropped atomic.Int64 }
	said  sync.Map
}

// NewRoad makes a road; nothing is opened before the first event.
func NewRoad(c RoadConfig) *Road {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Say == nil {
		c.Say = func(string) {}
	}
	r := &Road{cfg: c, lanes: map[string]*lane{}, parked: map[string]chan struct{}{}}
	r.office = &office{gate: c.Gate, sinks: c.Sinks, note: c.Log, now: c.Now}
	r.answering = answering{adapter: &r.cfg.Adapter, patience: &r.cfg.Patience, note: c.Log}
	r.responds = c.Control != nil && slices.Contains(c.Control.Accepts(), control.Respond)
	return r
}

// Stats gives the counters.
func (r *Road) Stats() Stats {
	s := &r.stats
	return Stats{Moments: s.moments.Load(), Events: r.events.Load(), Refused: s.refused.Load(),
		Dropped: s.dropped.Load(), Failed: r.failed.Load(), Unlogged: r.unlogged.Load()}
}

// Sessions gives the names of the sessions seen, in no order.
func (r *Road) Sessions() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for s := range r.lanes {
		out = append(out, s)
	}
	for s := range r.parked {
		if r.lanes[s] == nil {
			out = append(out, s)
		}
	}
	return out
}

// say tells the user a thing once.
func (r *Road) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if _, twice := r.said.LoadOrStore(line, true); !twice {
		r.cfg.Log.Warn(line)
		r.cfg.Say(line)
	}
}

// Observe takes a moment: it is mapped here and its drafts wait for their
// session's goroutine. Size is the payload's, for the bounds.
func (r *Road) Observe(m adapters.Moment, size int) { r.observe(m, size, 0, nil, nil) }

// replays says whether a channel tells late, and again, what hooks told in time:
// the beginning of a run that is under way begins no count anew.
func replays(c adapters.Channel) bool {
	return c == adapters.Stream || c == adapters.Transcript || c == adapters.Log
}

// observe is Observe for a moment that may be held for an answer. It gives the
// session that the moment is of, "" where it says nothing of any, and the hold
// where there is one. denied is what a rule says of the call that it tells of.
func (r *Road) observe(m adapters.Moment, size int, window time.Duration, reply func(adapters.Answer) []byte, denied *verdict) (session string, hold *control.Hold) {
	r.stats.moments.Add(1)
	if m.Time.IsZero() {
		m.Time = r.cfg.Now()
	}
	drafts, err := r.drafts(m)
	if err != nil {
		r.Refuse(Refusal{Channel: m.Channel, Name: m.Name, Reason: "adapter_fault", Bytes: size})
		return "", nil
	}
	r.follow(m)
	drafts = withDenial(r.fresh(m, drafts), denied)
	hold, asks := r.hold(r.cfg.Control, m, drafts, window, reply)
	for len(drafts) > 0 {
		// Drafts of one session stay together, in order.
		name := r.sessionOf(&drafts[0], m)
		n := 1
		for n < len(drafts) && r.sessionOf(&drafts[n], m) == name {
			n++
		}
		if session == "" {
			session = name
		}
		if rule := r.patience.Rule; rule != nil && !replays(m.Channel) && slices.ContainsFunc(drafts[:n], func(d event.Draft) bool { return d.Type == "run.started" }) {
			rule.begin(name)
		}
		e := entry{at: m.Time, drafts: drafts[:n], size: size / len(drafts) * n}
		if asks >= 0 && asks < n {
			e.hold = hold
		}
		r.put(name, e, m.Channel)
		drafts = drafts[n:]
		asks -= n
	}
	return session, hold
}

func (r *Road) follow(m adapters.Moment) {
	if r.cfg.Adapter.Logs == nil || r.cfg.Follow == nil || m.Channel == adapters.Transcript {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			r.cfg.Log.Error("the adapter failed", "adapter", r.cfg.Adapter.Name, "moment", m.Name, "err", p)
		}
	}()
	for _, f := range r.cfg.Adapter.Logs(m) {
		r.cfg.Follow(f)
	}
}

// fresh leaves out what a session log tells of the time before this launch:
// a resumed session's history is not new activity.
func (r *Road) fresh(m adapters.Moment, drafts []event.Draft) []event.Draft {
	if m.Channel != adapters.Transcript {
		return drafts
	}
	start := r.cfg.Start.Truncate(time.Millisecond)
	out := drafts[:0:0]
	for _, d := range drafts {
		if d.Time.IsZero() || !d.Time.Before(start) {
			out = append(out, d)
		}
	}
	return out
}

func (r *Road) sessionOf(d *event.Draft, m adapters.Moment) string {
	switch {
	case d.Session != "":
		return d.Session
	case m.Session != "":
		return m.Session
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.current != "" {
		return r.current
	}
	return r.cfg.Session
}

// Refusal is an input that could not be read.
type Refusal struct {
	Channel adapters.Channel
	Name    string // the native name, as far as known
	Reason  string // a token
	Bytes   int
}

// refusalReason is the token for what ParseJSON found wrong.
func refusalReason(err error) string {
	var e *event.SyntaxError
	if errors.As(err, &e) {
		if word, ok := faultWords[e.Fault]; ok {
			return word
		}
	}
	return "not_json"
}

var faultWords = map[event.Fault]string{
	event.FaultSyntax:    "not_json",
	event.FaultDuplicate: "duplicate_member",
	event.FaultUTF8:      "not_utf8",
	event.FaultDepth:     "too_deep",
}

// Refuse counts an unreadable input and tells of it in the stream, of many
// ever more rarely. Nothing of the input itself is told.
func (r *Road) Refuse(x Refusal) {
	n := r.stats.refused.Add(1)
	r.cfg.Log.Warn("input refused", "channel", x.Channel, "name", token(x.Name), "reason", x.Reason, "bytes", x.Bytes, "count", n)
	if n > 32 && bits.OnesCount64(uint64(n)) != 1 {
		return
	}
	data := event.Fields{event.Meta("channel", string(x.Channel)), event.Meta("reason", x.Reason),
		event.Meta("bytes", int64(x.Bytes)), event.Meta("count", n)}
	if name := token(x.Name); name != "" {
		data = append(event.Fields{event.Meta("name", name)}, data...)
	}
	r.tell("x.aep-wrap.input.refused", data)
}

// token keeps a native name that is one: it comes from outside and no text of
// anybody's may pass in it.
func token(s string) string {
	if len(s) > 64 {
		return ""
	}
	for _, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && c != '_' && c != '-' && c != '.' && c != '/' {
			return ""
		}
	}
	return s
}

// tell puts an event of our own on the session spoken of last, or keeps it
// until there is one.
func (r *Road) tell(typ string, data event.Fields) {
	d := event.Draft{Header: event.Header{Type: typ, Severity: event.Warning}, Fields: data}
	r.mu.Lock()
	name := r.current
	if name == "" {
		if len(r.loose) < maxLoose && !r.closed {
			r.loose = append(r.loose, d)
		}
		r.mu.Unlock()
		return
	}
	r.mu.Unlock()
	r.put(name, entry{at: r.cfg.Now(), drafts: []event.Draft{d}}, adapters.Process)
}

// put hands an entry to its session's lane, which it opens at first sight.
func (r *Road) put(name string, e entry, c adapters.Channel) {
	l := r.lane(name)
	patience := time.Duration(-1)
	if c == adapters.Hook || c == adapters.Telemetry || c == adapters.Process {
		patience = hookPatience
	}
	if l == nil || !l.put(e, patience) {
		e.abandon()
		r.stats.dropped.Add(int64(len(e.drafts)))
		if l != nil {
			l.missed.Add(int64(len(e.drafts)))
		}
		r.cfg.Log.Warn("no room for what was observed", "session", name, "drafts", len(e.drafts))
	}
}

func (r *Road) lane(name string) *lane {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tick++
	l := r.lanes[name]
	if l == nil {
		if l = r.newLane(name); l == nil {
			return nil
		}
	}
	l.used = r.tick
	r.current = name
	return l
}

// newLane opens a session's lane, where there is room. Under mu.
func (r *Road) newLane(name string) *lane {
	if r.closed || len(r.lanes) >= maxLanes && !r.park() {
		return nil
	}
	l := newLane(r, name)
	l.former = r.parked[name]
	r.lanes[name] = l
	if len(r.loose) > 0 {
		// Before the first moment's own drafts, but after the session is
		// known: the lane puts session.started in front.
		l.early, r.loose = r.loose, nil
	}
	go l.run()
	return l
}

// park closes the lane that was used longest ago among those whose session
// has ended; a late word opens it again from its log.
func (r *Road) park() bool {
	var oldest *lane
	for _, l := range r.lanes {
		if l.ended.Load() && (oldest == nil || l.used < oldest.used) {
			oldest = l
		}
	}
	if oldest == nil {
		return false
	}
	delete(r.lanes, oldest.session)
	r.parked[oldest.session] = oldest.done
	oldest.close(entry{last: true})
	return true
}

// Unheard takes what begins the launch's own session, where nothing was told of
// any: that the agent ran is told at all.
func (r *Road) Unheard(drafts []event.Draft) {
	r.mu.Lock()
	silent := r.current == ""
	r.mu.Unlock()
	if silent {
		r.put(r.cfg.Session, entry{at: r.cfg.Start, drafts: drafts}, adapters.Process)
	}
}

// Exit says how the process ended: every session of it closes what is open.
// It returns when all of it is written, or ctx ends; nothing is taken after.
func (r *Road) Exit(ctx context.Context, x session.Exit) {
	r.mu.Lock()
	r.closed = true
	lanes := make([]*lane, 0, len(r.lanes))
	for _, l := range r.lanes {
		lanes = append(lanes, l)
	}
	r.mu.Unlock()
	x = r.exitOf(x)
	for _, l := range lanes {
		l.close(entry{at: r.cfg.Now(), exit: &x, last: true})
	}
	for _, l := range lanes {
		select {
		case <-l.done:
		case <-ctx.Done():
			r.cfg.Log.Error("a session could not be written out in time", "session", l.session)
		}
	}
}

// Flush waits until the sinks have passed on what they hold, or ctx ends.
func (r *Road) Flush(ctx context.Context) error {
	errs := make([]error, len(r.cfg.Sinks))
	var wg sync.WaitGroup
	for i, s := range r.cfg.Sinks {
		wg.Go(func() { errs[i] = s.Flush(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ---- lanes

// entry is what waits for a lane.
type entry struct {
	at      time.Time
	command []byte // the line of the command that the drafts follow from
	drafts  []event.Draft
	hold    *control.Hold // of the request among the drafts
	hook    bool          // a hook told them
	size    int
	exit    *session.Exit
	last    bool // nothing comes after it
}

// abandon lets the runtime go that waits for the entry's request: nobody will
// ever hear of it.
func (e *entry) abandon() {
	if e.hold != nil {
		e.hold.Abandon()
	}
}

// lane is one session's goroutine, and the desk at which it alone works.
type lane struct {
	desk
	road  *Road
	early []event.Draft
	used  int64 // by Road.mu

	former chan struct{} // is closed when the session's lane before this one has left the log; nil without one

	mu     sync.Mutex
	queue  []entry
	bytes  int
	closed bool
	ready  chan struct{} // something came
	space  chan struct{} // something went
	done   chan struct{}

	missed atomic.Int64 // drafts that found no room, not yet told
	muted  atomic.Bool  // another process owns the session; others may look
}

func newLane(r *Road, name string) *lane {
	return &lane{
		desk: desk{office: r.office, agent: r.cfg.Agent, session: name, control: r.cfg.Control},
		road: r, ready: make(chan struct{}, 1), space: make(chan struct{}, 1), done: make(chan struct{}),
	}
}

// put waits for room up to patience; a negative one is without end.
func (l *lane) put(e entry, patience time.Duration) bool {
	var timeout <-chan time.Time
	for {
		ok, closed := l.try(e)
		if ok || closed {
			return ok
		}
		if timeout == nil && patience >= 0 {
			t := time.NewTimer(patience)
			defer t.Stop()
			timeout = t.C
		}
		select {
		case <-l.space:
		case <-l.done:
			return false
		case <-timeout:
			return false
		}
	}
}

func (l *lane) try(e entry) (ok, closed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false, true
	}
	room := func() bool { return len(l.queue) < inboxCount && (len(l.queue) == 0 || l.bytes+e.size <= inboxBytes) }
	if !room() {
		return false, false
	}
	l.queue = append(l.queue, e)
	l.bytes += e.size
	wake(l.ready)
	if room() {
		wake(l.space) // another may be waiting
	}
	return true, false
}

// close takes a last entry, whatever the room, and nothing after it.
func (l *lane) close(e entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.queue = append(l.queue, e)
		wake(l.ready)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (l *lane) next() []entry {
	for {
		l.mu.Lock()
		q := l.queue
		l.queue, l.bytes = nil, 0
		l.mu.Unlock()
		wake(l.space)
		if len(q) > 0 {
			return q
		}
		<-l.ready
	}
}

func (l *lane) run() {
	defer close(l.done)
	defer l.guard()
	l.open()
	for {
		for _, e := range l.next() {
			l.work(e)
			if e.last {
				l.flush()
				l.lastLosses(e)
				if err := l.leave(); err != nil {
					l.logFailed(err)
				}
				return
			}
		}
		l.flush()
	}
}

// guard keeps a fault of ours from the agent: the session is given up, the
// agent goes on.
func (l *lane) guard() {
	if p := recover(); p != nil {
		l.road.cfg.Log.Error("session given up", "session", l.session, "panic", p, "stack", string(debug.Stack()))
		l.road.say("a fault in aep-wrap: nothing more is told of session %s", l.session)
		l.mu.Lock()
		left := l.queue
		l.closed = true
		l.queue = nil
		l.mu.Unlock()
		for _, e := range left {
			e.abandon()
		}
		if l.control != nil {
			l.control.Holds().Close(l.session)
		}
	}
}

// open takes the session's log, and with it the session: what the log holds is
// what this session has told before.
func (l *lane) open() {
	c := &l.road.cfg
	var state *session.State
	if l.former != nil {
		<-l.former
	}
	if c.LogDir != "" {
		log, err := jsonl.Open(c.LogDir, c.Agent, l.session)
		var owned *jsonl.ErrOwned
		switch {
		case errors.As(err, &owned):
			l.muted.Store(true)
			l.road.say("session %s is already told by another aep-wrap (process %d): the agent runs on, nothing is told twice", l.session, owned.Pid)
			return
		case err != nil:
			l.logFailed(err)
		default:
			if log.Warning != "" {
				l.road.say("%s", log.Warning)
			}
			l.take(log)
			if state, err = l.recall(log.Replay, nil); err != nil {
				c.Log.Error("cannot read the session's log back: the epoch is the start time", "session", l.session, "err", err)
				state = nil
			}
		}
	}
	l.sess = session.New(session.Config{
		Agent: c.Agent, Host: c.Host, Session: l.session, Traceparent: c.Traceparent, Start: c.Start, State: state, Steer: c.Adapter.Steer,
	})
	// Whoever held the requests that an earlier launch left open is gone.
	l.emit(l.sess.Recover(c.Now()), nil)
	if l.control != nil {
		l.emit(l.sess.Bind(c.Now(), l.control.Recover(l.session)), nil)
	}
}

func (l *lane) logFailed(err error) {
	if errors.Is(err, jsonl.ErrSuspended) || errors.Is(err, jsonl.ErrCapped) {
		return // the error before it told why
	}
	l.road.say("cannot write the session log in %s: %v; events are not kept, the agent goes on", l.road.cfg.LogDir, reasonOf(err))
	l.road.cfg.Log.Error("session log", "session", l.session, "err", err)
}

func (l *lane) work(e entry) {
	if l.muted.Load() {
		e.abandon()
		return
	}
	d := l.control
	if e.command != nil {
		l.record(e.command)
	}
	if lost := l.lost(e); len(lost) > 0 {
		e.drafts = append(lost, e.drafts...)
	}
	if len(l.early) > 0 {
		e.drafts, l.early = append(e.drafts, l.early...), nil
	}
	if len(e.drafts) > 0 {
		if d != nil {
			e.drafts = d.Before(l.session, e.drafts)
		}
		l.emit(l.sess.Bind(e.at, e.drafts), e.hold)
	}
	if e.exit != nil {
		if d != nil {
			l.emit(l.sess.Bind(e.at, d.Ending(l.session)), nil)
		}
		l.emit(l.sess.Exit(e.at, *e.exit), nil)
	}
}

// lost are the drafts that tell of what was lost: here, for want of room, and
// on the way to a sink.
func (l *lane) lost(e entry) (drafts []event.Draft) {
	if n := l.missed.Swap(0); n > 0 {
		drafts = append(drafts, queue.Loss{Reason: "inbox-full", Events: map[event.Severity]int{event.Info: int(n)}}.Draft())
	}
	return append(drafts, l.losses(l.now(), e.exit != nil)...)
}

// lastLosses tells what the session's own end has pushed out of a full queue. A
// session that is told of after its end is legal, a loss that is not told is
// none.
func (l *lane) lastLosses(e entry) {
	if e.exit == nil || l.muted.Load() || l.sess == nil {
		return
	}
	if lost := l.lost(e); len(lost) > 0 {
		l.emit(l.sess.Bind(e.at, lost), nil)
		l.flush()
	}
}

// emit seals bound drafts, and writes what was sealed where it becomes much.
func (l *lane) emit(drafts []event.Draft, hold *control.Hold) {
	l.seal(drafts, hold)
	if l.pending > batchBytes {
		l.flush()
	}
}

// flush writes what was sealed: to the log first, then to the sinks.
func (l *lane) flush() {
	if len(l.items) == 0 {
		return
	}
	logged := false
	if l.log != nil {
		err := l.write()
		if logged = err == nil; !logged {
			l.logFailed(err)
		}
	}
	l.offer(logged)
}
