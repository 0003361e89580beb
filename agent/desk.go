package agent

import (
	"log/slog"
	"sync/atomic"
	"time"

	"aep-wrap/control"
	"aep-wrap/event"
	"aep-wrap/queue"
	"aep-wrap/queue/jsonl"
	"aep-wrap/redaction"
	"aep-wrap/session"
)

// office is what all desks of a road, or of a watch, share.
type office struct {
	gate   *redaction.Gate
	sinks  []Sink
	note   *slog.Logger
	now    func() time.Time
	memory *session.Memory // of all sessions; nil gives each its own

	events, failed, unlogged atomic.Int64
	counters
}

// desk is where what one session tells is sealed and written: into its log
// first, then to the sinks. A road has one in each lane, a watch one for each
// session. It is used by one goroutine at a time.
type desk struct {
	*office
	agent, session string

	control *control.Dispatcher // the target of its commands; nil takes none
	sess    *session.Session
	log     *jsonl.Log  // nil keeps none
	asked   time.Time   // when the sinks were asked for losses last
	ended   atomic.Bool // its end was told
	verb    string      // of the command that was recorded last

	// Sealed, and not yet written.
	items   []outgoing
	lines   [][]byte
	refs    []jsonl.Ref
	pending int // bytes
}

// outgoing is a line on its way out.
type outgoing struct {
	queue.Item
	local bool // for the log alone
}

// take takes a log that was opened for the session, for the sinks as well.
func (d *desk) take(log *jsonl.Log) {
	d.log = log
	for _, s := range d.sinks {
		if err := s.Attach(d.agent, d.session, log); err != nil {
			d.note.Warn("a sink cannot go on from the session's log", "session", d.session, "err", err)
		}
	}
}

// newState is the state of a session of which nothing is known.
func (o *office) newState() *session.State {
	if o.memory == nil {
		return session.NewState()
	}
	return o.memory.NewState()
}

// recall reads back what the session told before. each may be nil.
func (d *desk) recall(replay func(func([]byte) error) error, each func(*event.Event)) (*session.State, error) {
	state := d.newState()
	err := replay(func(line []byte) error {
		e, err := event.Parse(line)
		if err != nil {
			return nil
		}
		state.Fold(e)
		if d.control != nil {
			d.control.Fold(&e, line)
		}
		if each != nil {
			each(&e)
		}
		return nil
	})
	return state, err
}

// record puts a command's line into the log, as far as the log's ceiling lets
// it: the log alone then says who commanded what.
func (d *desk) record(line []byte) {
	d.verb = "other"
	if e, err := event.Parse(line); err == nil {
		d.verb = verbOf(e.Type)
	}
	line, err := d.gate.Line(line)
	if err != nil {
		d.note.Warn("a command could not be put into the log", "session", d.session, "err", err)
		return
	}
	d.items = append(d.items, outgoing{local: true})
	d.lines = append(d.lines, line)
	d.pending += len(line)
}

// lossEvery is how often a session tells of its losses. The telling may itself
// be lost, which must not make for more of it.
const lossEvery = 10 * time.Second

// losses are the drafts that tell of what was lost on the way to a sink.
func (d *desk) losses(now time.Time, last bool) (drafts []event.Draft) {
	if !last && now.Sub(d.asked) < lossEvery {
		return nil
	}
	d.asked = now
	for _, s := range d.sinks {
		for _, loss := range s.TakeLosses(d.agent, d.session) {
			drafts = append(drafts, loss.Draft())
		}
	}
	return drafts
}

// seal seals bound drafts, in order. hold is of the request among them: it
// gets to know it before anyone can see it, or hears that there is none.
func (d *desk) seal(drafts []event.Draft, hold *control.Hold) {
	var more []event.Draft // of a hold that was over before its request was placed
	opened := false
	for i := range drafts {
		e, err := d.gate.Seal(&drafts[i])
		if err != nil {
			// The position stays unused, which is a legal gap.
			d.failed.Add(1)
			d.note.Error("not sealed", "type", drafts[i].Type, "session", d.session, "err", err)
			continue
		}
		if e.Type == "session.ended" {
			d.ended.Store(true)
		}
		d.sealed(&e, &drafts[i], d.verb)
		line := e.AppendJSON(nil)
		if d.control != nil {
			if hold != nil && e.Type == "attention.requested" && !opened {
				opened = true
				more = hold.Open(&drafts[i])
			}
			d.control.Observe(&e, line)
		}
		d.lines = append(d.lines, line)
		d.items = append(d.items, outgoing{Item: queue.Item{Agent: e.Agent, Session: e.Session, ID: e.ID, Severity: e.Severity,
			Sequenced: e.Sequenced, Position: e.Position(), Line: line}})
		d.pending += len(line)
	}
	if hold != nil && !opened {
		hold.Abandon()
	}
	if len(more) > 0 {
		d.seal(d.sess.Bind(d.now(), more), nil)
	}
}

// write writes what was sealed to the log, in one write.
func (d *desk) write() (err error) {
	d.refs, err = d.log.AppendBatch(d.refs[:0], d.lines)
	return err
}

// offer hands what was sealed to the sinks, and forgets it.
func (d *desk) offer(logged bool) {
	told := int64(0)
	for i := range d.items {
		if d.items[i].local {
			continue
		}
		told++
		if logged {
			d.items[i].Log = d.refs[i]
		}
		for _, s := range d.sinks {
			s.Offer(d.items[i].Item)
		}
	}
	d.events.Add(told)
	if !logged {
		d.unlogged.Add(told)
	}
	d.forget()
}

// forget drops what was sealed.
func (d *desk) forget() {
	clear(d.items)
	clear(d.lines)
	d.items, d.lines, d.pending = d.items[:0], d.lines[:0], 0
}

// leave says that nothing more is told here, and gives the log up.
func (d *desk) leave() error {
	for _, s := range d.sinks {
		s.Done(d.agent, d.session)
	}
	if d.log == nil {
		return nil
	}
	return d.log.Close()
}
