package control

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"aep-wrap/event"
)

// The bounds of what Holds remembers.
const (
	maxRequests = 1 << 10 // requests that wait; a further one lets the oldest go
	maxClosed   = 1 << 12 // requests that were closed, for late answers
)

// HoldsConfig says where Holds gets time and puts drafts.
type HoldsConfig struct {
	Clock Clock
	// Emit takes what a timer or a runtime that went away has to tell of a
	// session. It may be called on any goroutine and with no lock held, never
	// from within Open or Observe.
	Emit func(session string, drafts []event.Draft) error
}

// Holds are the attention requests that are known, and of them those that an
// answer from afar can reach (AEP-0002 §7, AEP-0006). It is safe for
// concurrent use.
//
// A request is settled once, atomically: by an answer from afar, by what was
// seen of an answer in the agent's own screen, by its timer, or by its
// runtime's going away. Whoever comes second hears what was decided.
type Holds struct {
	c HoldsConfig

	mu     sync.Mutex
	open   *table[*request] // by event id
	closed *table[*request]
}

// request is a request and what became of it.
type request struct {
	Request
	hold  *Hold // who waits for the answer; nil where nobody does
	asked time.Time
	line  []byte // the sealed event, to be told again
	args  string
	told  string // what was decided, for people; "" while nothing was
	taken Answer // an option that came from afar, as the session tells it
}

// NewHolds makes an empty set.
func NewHolds(c HoldsConfig) *Holds {
	return &Holds{c: c, open: newTable[*request](maxRequests), closed: newTable[*request](maxClosed)}
}

// Holding says what is held.
type Holding struct {
	Window time.Duration // after which there is no decision
	Args   string        // the digest of what would be approved: the answer is bound to it
	// Reply is what the runtime hears for an answer; nil is that it cannot be
	// told so, and then the answer is not taken. It must be pure.
	Reply func(Answer) []byte
}

// Hold is one moment of a runtime that waits for an answer. It is made before
// the request's event has an id, so that expires_at can be told; Open gives it
// its request, Wait is where the runtime's side waits.
type Hold struct {
	holds    *Holds
	x        Holding
	deadline time.Time
	stop     func() bool
	done     chan struct{}

	// By holds.mu.
	request *request
	settled string // what settled it, as request.told; "" while nothing has
	ending  string // of an unopened hold: the terminal that its request will need

	reply  []byte // written before done is closed
	answer Answer // that the reply is made of
}

// Hold begins to hold a moment. Its window runs from now on, whether or not
// Open is ever called.
func (h *Holds) Hold(x Holding) *Hold {
	o := &Hold{holds: h, x: x, deadline: h.c.Clock.Now().Add(x.Window), done: make(chan struct{})}
	h.mu.Lock()
	defer h.mu.Unlock()
	o.stop = h.c.Clock.After(x.Window, o.expire)
	return o
}

// Deadline is when the hold ends without a decision: the request's expires_at.
func (o *Hold) Deadline() time.Time { return o.deadline }

// Expires tells the deadline in the requests among a moment's drafts. The
// drafts' own fields stay as they are.
func (o *Hold) Expires(drafts []event.Draft) {
	for i := range drafts {
		if d := &drafts[i]; d.Type == "attention.requested" && d.Fields.Get("expires_at") == nil {
			f := make(event.Fields, 0, len(d.Fields)+1)
			d.Fields = append(append(f, d.Fields...), event.Meta("expires_at", o.deadline.UTC().Format("2006-01-02T15:04:05.000Z07:00")))
		}
	}
}

// Open gives a hold its request: the draft of attention.requested as the
// session placed it. It is called before the event can be seen by anyone. The
// drafts are to be bound next: the terminal of a request whose hold was over
// before it was placed. Where no request was placed (a second reading of one
// that waits), the caller Abandons the hold.
func (o *Hold) Open(d *event.Draft) []event.Draft {
	h := o.holds
	h.mu.Lock()
	r, known := h.open.get(d.ID)
	if known && r.hold != nil || d.Link.Args != "" && o.x.Args != "" && d.Link.Args != o.x.Args {
		// Another moment's request, or other arguments.
		first := o.settle("abandoned")
		h.mu.Unlock()
		if first {
			o.release(nil)
		}
		return nil
	}
	if !known {
		r = &request{Request: RequestOf(d), asked: d.Time}
		h.add(r)
	}
	r.Request = RequestOf(d)
	r.hold, r.args, o.request = o, o.x.Args, r
	var out []event.Draft
	if o.ending != "" {
		r.told = o.settled
		out = []event.Draft{h.terminal(r, o.ending)}
	}
	h.mu.Unlock()
	return out
}

// Abandon ends a hold without a decision and without a word.
func (o *Hold) Abandon() {
	o.holds.mu.Lock()
	first := o.settle("abandoned")
	o.holds.mu.Unlock()
	if first {
		o.release(nil)
	}
}

// Wait gives the bytes that the runtime is answered with; nil is no decision.
// ctx ends when the runtime went away, which is its user's answer in its own
// screen, of which nothing is known: the request is dismissed, unless an
// answer from afar was taken already.
func (o *Hold) Wait(ctx context.Context) []byte {
	select {
	case <-o.done:
	case <-ctx.Done():
		o.end("dismissed in the agent's own screen", "attention.resolved")
		<-o.done
	}
	return o.reply
}

// Asked says whether a request was told for the hold.
func (o *Hold) Asked() bool {
	o.holds.mu.Lock()
	defer o.holds.mu.Unlock()
	return o.request != nil
}

// Answer is what was answered from afar, once Wait has returned; false where
// nothing was. It is for a runtime that hears an answer otherwise than as the
// bytes of Wait.
func (o *Hold) Answer() (Answer, bool) {
	select {
	case <-o.done:
		return o.answer, o.reply != nil
	default:
		return Answer{}, false
	}
}

// Applied says that the runtime has confirmed the answer: its server took it,
// say. Where the session's own events show it, nobody needs to.
func (o *Hold) Applied() {
	o.holds.mu.Lock()
	r := o.request
	o.holds.mu.Unlock()
	if r != nil {
		o.holds.Resolve(r.ID, "answered")
	}
}

// Undelivered says that the bytes that Wait gave never reached the runtime:
// the answer was taken, and not applied.
func (o *Hold) Undelivered() {
	o.holds.mu.Lock()
	r := o.request
	o.holds.mu.Unlock()
	if r != nil {
		o.holds.Resolve(r.ID, "dismissed")
	}
}

// expire is the timer's.
func (o *Hold) expire() { o.end("timed out", "attention.timeout") }

// end settles a hold without a decision. The runtime goes on before anything
// is told: failing open waits for no one.
func (o *Hold) end(told, typ string) {
	h := o.holds
	h.mu.Lock()
	if !o.settle(told) {
		h.mu.Unlock()
		return
	}
	r := o.request
	var d event.Draft
	if r == nil {
		o.ending = typ
	} else {
		d = h.terminal(r, typ)
	}
	h.mu.Unlock()
	o.release(nil)
	if r != nil {
		h.emit(r.Session, d)
	}
}

// emit tells a draft; where it finds no room the session closes the request
// at its end.
func (h *Holds) emit(session string, d event.Draft) {
	_ = h.c.Emit(session, []event.Draft{d})
}

// settle is the one place where a hold is decided. Under holds.mu.
func (o *Hold) settle(told string) (first bool) {
	if o.settled != "" {
		return false
	}
	o.settled = told
	o.stop()
	if o.request != nil {
		o.request.told = told
	}
	return true
}

// release lets Wait return. It is called once, by who settled.
func (o *Hold) release(reply []byte) {
	o.reply = reply
	close(o.done)
}

// terminal is the draft that closes a request. Latency is the session's to
// add, and the cause: the answer or the request.
func (h *Holds) terminal(r *request, typ string) event.Draft {
	d := event.Draft{Header: event.Header{Type: typ, Subject: r.ID, Session: r.Session, Time: h.c.Clock.Now()}}
	if typ == "attention.resolved" {
		d.Fields = event.Fields{event.Meta("resolution", "dismissed")}
	}
	return d
}

func (h *Holds) add(r *request) {
	if old, full := h.open.put(r.ID, r); full && old.hold != nil && old.hold.settle("given up") {
		old.hold.release(nil)
	}
}

// settlement is an answer that was taken and not yet released.
type settlement struct {
	request *request
	answer  Answer
	reply   []byte
}

// decide reads a respond command against its request and settles it. A reason
// says why not; the request then stays as it was.
func (h *Holds) decide(c *Command, by string) (s *settlement, reason, detail string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, reason, detail := h.answerable(c)
	if r == nil {
		return nil, reason, detail
	}
	raw, _ := c.Data["answer"].(map[string]any)
	a, fault := r.Read(raw)
	if fault != "" {
		return nil, Invalid, fault
	}
	reply := r.hold.x.Reply(a)
	if reply == nil {
		return nil, Invalid, "the agent cannot be told this answer"
	}
	r.hold.settle("answered by " + name(by) + describe(a))
	return &settlement{r, a, reply}, "", ""
}

// answerable finds the request that a respond command speaks of, if an answer
// to it can be taken now.
func (h *Holds) answerable(c *Command) (r *request, reason, detail string) {
	r, ok := h.open.get(c.Subject)
	if !ok {
		if r, ok = h.closed.get(c.Subject); !ok || r.Session != c.Session {
			return nil, Invalid, "no such request in this session"
		}
		return nil, Refused, "the request was closed: " + r.told
	}
	switch args := c.text("args_digest"); {
	case r.Session != c.Session:
		return nil, Invalid, "no such request in this session"
	case r.told != "":
		return nil, Refused, "the request is settled: " + r.told
	case !r.Answerable():
		return nil, Refused, "the request can only be answered in the agent's own screen"
	case r.hold == nil:
		return nil, Refused, "nothing waits for an answer to this request any more"
	case args != "" && r.args != "" && args != r.args:
		return nil, Refused, "the request is about other arguments than those that were answered"
	}
	return r, "", ""
}

func describe(a Answer) string {
	switch {
	case a.Option != "":
		return ": option " + name(a.Option)
	case a.Values != nil:
		return fmt.Sprintf(": %d values", len(a.Values))
	}
	return ": a text"
}

// release lets the runtime hear the answer, or go on without one where the
// answer could not be told.
func (s *settlement) release(told bool) {
	hold := s.request.hold
	if told {
		hold.answer = s.answer
		hold.release(s.reply)
		return
	}
	h := hold.holds
	h.mu.Lock()
	s.request.told = "an answer that could not be recorded, and was not applied"
	h.mu.Unlock()
	hold.release(nil)
}

// answered is the draft of attention.answered: what is applied, not what was
// said.
func (s *settlement) answered(c *Command, now time.Time) event.Draft {
	var f event.Fields
	if s.answer.Option != "" {
		f = append(f, event.Meta("option", s.answer.Option))
	}
	if s.answer.Text != "" {
		f = append(f, event.Text("text", s.answer.Text))
	}
	if s.answer.Values != nil {
		f = append(f, event.FormAnswers(s.answer.Values, s.request.Fields))
	}
	return event.Draft{
		Header: event.Header{Type: "attention.answered", ID: event.DeriveID("control.answered", c.Source, c.ID),
			Subject: s.request.ID, Session: s.request.Session, Cause: c.ID, Time: now},
		Fields: event.Fields{event.Meta("answer", f), event.Meta("by", c.Agent), event.Meta("via", "control")},
	}
}

// Resolve tells that a request is over where that was seen otherwise than by
// the session's events: "answered" when a runtime confirmed the answer (a 200,
// a decision in its telemetry), "dismissed" when it went.
func (h *Holds) Resolve(id, resolution string) {
	h.mu.Lock()
	r, ok := h.open.get(id)
	if !ok {
		h.mu.Unlock()
		return
	}
	free := r.settle("resolved " + resolution)
	d := h.terminal(r, "attention.resolved")
	d.Fields = event.Fields{event.Meta("resolution", resolution)}
	h.mu.Unlock()
	if free != nil {
		free.release(nil)
	}
	h.emit(r.Session, d)
}

// Close ends every hold of a session, or of all of them for "", without a
// decision: the runtime or the wrapper is going.
func (h *Holds) Close(session string) {
	h.mu.Lock()
	var all []*Hold
	h.open.all(func(_ string, r *request) bool {
		if r.hold != nil && (session == "" || r.Session == session) {
			all = append(all, r.hold)
		}
		return true
	})
	h.mu.Unlock()
	for _, o := range all {
		o.end("dismissed: the session is ending", "attention.resolved")
	}
}

// asked is when a request was told.
func (h *Holds) asked(id string) time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r, ok := h.open.get(id); ok {
		return r.asked
	}
	return time.Time{}
}

// Orphan says whether a request waits for an answer from afar that nobody is
// left to hear: whoever held it is gone.
func (h *Holds) Orphan(id string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := h.open.get(id)
	return ok && r.orphan()
}

func (r *request) orphan() bool { return r.told == "" && r.hold == nil && r.Answerable() }

// Orphans lists such requests; Until is the deadline that they were told with.
func (h *Holds) Orphans() (out []Pending) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open.all(func(_ string, r *request) bool {
		if r.orphan() {
			p := Pending{Request: r.Request, Line: r.line, Asked: r.asked}
			if e, err := event.Parse(r.line); err == nil {
				data, _ := event.ParseObject(e.Data)
				p.Until, _ = time.Parse(time.RFC3339Nano, str(data, "expires_at"))
			}
			out = append(out, p)
		}
		return true
	})
	return out
}

// Taken is the option that a request was answered with from afar, as its
// session's log tells it: whoever took the answer may have died before the
// runtime heard it.
func (h *Holds) Taken(id string) (Answer, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r, ok := h.open.get(id)
	if !ok || r.hold != nil || r.taken.Option == "" {
		return Answer{}, false
	}
	return r.taken, true
}

// Pending is a request that waits for an answer.
type Pending struct {
	Request
	Line   []byte    // the event as it was told, to be told again after a reconnect
	Asked  time.Time // when it was told first
	Until  time.Time // its deadline; zero where nobody holds it
	Remote bool      // an answer from afar can reach it
}

// Pending lists the requests that wait, oldest first.
func (h *Holds) Pending() []Pending {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []Pending
	h.open.all(func(_ string, r *request) bool {
		if r.told != "" {
			return true
		}
		p := Pending{Request: r.Request, Line: r.line, Asked: r.asked, Remote: r.hold != nil && r.Answerable()}
		if r.hold != nil {
			p.Until = r.hold.deadline
		}
		out = append(out, p)
		return true
	})
	return out
}

// observe takes in an attention event of a session, as it was told. A request
// that was seen to be answered or closed elsewhere lets its runtime go.
func (h *Holds) observe(e *event.Event, line []byte) {
	var free *Hold
	h.mu.Lock()
	switch e.Type {
	case "attention.requested":
		r, ok := h.open.get(e.ID)
		if _, over := h.closed.get(e.ID); over {
			break // told again
		}
		if !ok {
			data, _ := event.ParseObject(e.Data)
			r = &request{Request: requestIn(e, data), asked: e.Time}
			h.add(r)
		}
		r.line = append([]byte(nil), line...)
	case "attention.answered":
		if r, ok := h.open.get(e.Subject); ok && r.told == "" {
			free = r.settle(toldOf(e))
			if data, _ := event.ParseObject(e.Data); data["via"] == "control" {
				r.taken.Option = str(data["answer"], "option")
			}
		}
	case "attention.resolved", "attention.timeout":
		if r, ok := h.open.get(e.Subject); ok {
			free = r.settle(toldOf(e))
			h.open.del(r.ID)
			h.closed.put(r.ID, &request{Request: Request{ID: r.ID, Session: r.Session}, told: r.told})
		}
	}
	h.mu.Unlock()
	if free != nil {
		free.release(nil)
	}
}

// settle notes what was decided, and gives the hold that is to be released.
func (r *request) settle(told string) *Hold {
	if r.hold != nil && r.hold.settle(told) {
		return r.hold
	}
	if r.told == "" {
		r.told = told
	}
	return nil
}

// requestIn reads a request from its event.
func requestIn(e *event.Event, data map[string]any) Request {
	f := make(event.Fields, 0, len(data))
	for n, v := range data {
		f = append(f, event.Meta(n, v))
	}
	return RequestOf(&event.Draft{Header: e.Header, Fields: f})
}

// toldOf says what an event tells of a request's end.
func toldOf(e *event.Event) string {
	data, _ := event.ParseObject(e.Data)
	switch e.Type {
	case "attention.timeout":
		return "timed out"
	case "attention.resolved":
		s, _ := data["resolution"].(string)
		return strings.TrimSpace("resolved " + name(s))
	}
	told := "answered in the agent's own screen"
	if data["via"] == "control" {
		told = "answered from afar"
	}
	if by, _ := data["by"].(string); by != "" {
		told += " by " + name(by)
	}
	if id := str(data["answer"], "option"); id != "" {
		told += ": option " + name(id)
	}
	return told
}
