package collector

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"aep-wrap/event"
	"aep-wrap/redaction"
)

// socket is one connection of the WebSocket binding (AEP-0003 §3.5). The
// handler's goroutine reads it, one frame after the other; another writes. The
// writer alone ends it: whoever has a reason tells it.
type socket struct {
	c    *Collector
	ws   *websocket.Conn
	wire *wire
	may  Role
	peer *caller

	hello   greeting          // the reader's; fixed once something is claimed
	claimed map[string]*claim // the reader's
	series  event.Series      // the reader's
	pending []*item           // the reader's: events that are not published yet
	heard   atomic.Int64      // when something was read last, Unix nanoseconds
	probing atomic.Bool
	wake    chan struct{}
	written chan struct{} // closed by the writer

	mu    sync.Mutex
	room  *sync.Cond
	out   []byte // frames that wait to be written, subscriptions' events apart
	end   *ending
	dead  bool            // nothing is written any more
	subs  map[string]*sub // by id
	asked []asked         // the commands that were last sent there

	rmu   sync.Mutex
	ready []*sub // those that may have something to send
}

// sub is a subscription.
type sub struct {
	consumer
	id     string
	marked bool                      // among the ready
	at     map[string]event.Position // the writer's: what was delivered
}

// asked says who sent a command.
type asked struct {
	id   string
	from *socket
}

// ending is why a connection ends. With a closing word the other side hears
// what it was sent; without a code there is no one to hear it.
type ending struct {
	closing string
	code    websocket.StatusCode
	reason  string
}

const (
	maxReplies  = 64 << 10 // of answers that wait; beyond, nothing more is read
	maxCommands = 1 << 20  // of a target's; beyond, commands are refused
	maxAsked    = 256
	maxPosition = 4096 // sessions that a closing frame, and a subscription, tell of
)

// sockets are those that are open.
type sockets struct {
	mu       sync.Mutex
	all      map[*socket]struct{}
	draining bool
	gone     sync.Cond
}

func (o *sockets) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.all)
}

func (o *sockets) add(s *socket) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.draining {
		return false
	}
	if o.all == nil {
		o.all = map[*socket]struct{}{}
	}
	o.all[s] = struct{}{}
	return true
}

func (o *sockets) remove(s *socket) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.all, s)
	if len(o.all) == 0 && o.gone.L != nil {
		o.gone.Broadcast()
	}
}

// drain ends every connection in good order, and at once when ctx is done.
func (o *sockets) drain(ctx context.Context) {
	each := func(f func(*socket)) {
		for s := range o.all {
			f(s)
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.draining = true
	o.gone.L = &o.mu
	each(func(s *socket) { s.finish(ending{"shutting-down", websocket.StatusGoingAway, "shutting-down"}) })
	stop := context.AfterFunc(ctx, func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		each((*socket).kill)
	})
	defer stop()
	for len(o.all) > 0 {
		o.gone.Wait()
	}
}

// socket serves GET /socket.
func (c *Collector) socket(w http.ResponseWriter, r *http.Request) {
	if !headerHas(r.Header, "Connection", "upgrade") || !headerHas(r.Header, "Upgrade", "websocket") {
		h := w.Header()
		h.Set("Connection", "Upgrade")
		h.Set("Upgrade", "websocket")
		c.refuse(w, http.StatusUpgradeRequired, problem{Error: "upgrade-required", Detail: "/socket speaks WebSocket"})
		return
	}
	c.taken.Add(1)
	defer c.taken.Add(-1)
	may := c.allowed(r)
	hj := &hijacker{ResponseWriter: w, stall: c.limits.Stall}
	// Host and Origin were checked for every path.
	ws, err := websocket.Accept(hj, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled, Subprotocols: []string{subprotocol},
	})
	if err != nil {
		c.hub.counts.refused.Add(1)
		return
	}
	s := &socket{
		c: c, ws: ws, wire: hj.wire, may: may, peer: peerOf(r),
		claimed: map[string]*claim{}, subs: map[string]*sub{}, series: event.Series{Depth: c.limits.Depth},
		wake: make(chan struct{}, 1), written: make(chan struct{}),
	}
	s.room = sync.NewCond(&s.mu)
	s.heard.Store(time.Now().UnixNano())
	ws.SetReadLimit(int64(c.limits.Line))
	if !c.open.add(s) { // it came too late
		defer time.AfterFunc(lastMoment, s.kill).Stop()
		_ = ws.Close(websocket.StatusGoingAway, "shutting-down")
		return
	}
	defer c.open.remove(s)
	defer c.welcome(r, may, func() { s.finish(ending{"unauthorized", websocket.StatusPolicyViolation, "unauthorized"}) })()
	go s.write()
	s.finish(s.read())
	// What was claimed is free at once; what was taken in is published.
	s.publish()
	for _, cl := range s.claimed {
		c.claims.drop(cl)
	}
	<-s.written
	for _, sb := range s.subs {
		c.hub.unsubscribe(&sb.consumer)
	}
	_ = ws.CloseNow()
}

func headerHas(h http.Header, name, word string) bool {
	for _, v := range h.Values(name) {
		for w := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(w), word) {
				return true
			}
		}
	}
	return false
}

// kill ends the connection now.
func (s *socket) kill() { _ = s.wire.Close() }

// finish has the writer end the connection; the first reason counts.
func (s *socket) finish(e ending) {
	s.mu.Lock()
	if s.end == nil {
		s.end = &e
	}
	s.mu.Unlock()
	s.rouse()
}

func (s *socket) rouse() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// push has a frame written. It never waits; false is a connection that has too
// much to hear already, or hears nothing any more.
func (s *socket) push(payload []byte, limit int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead || len(s.out) > limit {
		return false
	}
	s.out = appendText(s.out, payload)
	s.rouse()
	return true
}

// reply answers the reader's own frames: who asks and does not listen waits.
func (s *socket) reply(frame any) { s.send(encode(frame)) }

func (s *socket) send(payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.out) > maxReplies && !s.dead {
		s.room.Wait()
	}
	if !s.dead {
		s.out = appendText(s.out, payload)
		s.rouse()
	}
}

func (s *socket) refuse(r refusal) {
	s.c.hub.counts.refused.Add(1)
	r.Type = "error"
	s.reply(r)
}

// read takes the other side's frames until there is a reason to end.
func (s *socket) read() ending {
	_ = s.wire.SetReadDeadline(time.Now().Add(s.c.limits.Hello))
	var buf []byte
	for greeted := false; ; {
		raw, err := s.message(&buf)
		if err != nil {
			return s.broken(err, greeted)
		}
		s.heard.Store(time.Now().UnixNano())
		if !greeted {
			if e := s.greet(raw); e != nil {
				return *e
			}
			greeted = true
			_ = s.wire.SetReadDeadline(time.Time{})
			continue
		}
		s.take(raw)
		if len(s.pending) >= publishChunk || !s.wire.more() {
			s.publish()
		}
		if s.ended() {
			return ending{}
		}
	}
}

func (s *socket) ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.end != nil
}

var errBinary = errors.New("a binary frame")

// message reads a text frame, valid until the next.
func (s *socket) message(buf *[]byte) ([]byte, error) {
	if b, ok := s.wire.take(*buf, s.c.limits.Line); ok {
		*buf = b
		return b, nil
	}
	typ, r, err := s.ws.Reader(context.Background())
	if err != nil {
		return nil, err
	}
	if typ != websocket.MessageText {
		return nil, errBinary
	}
	if cap(*buf) > 64<<10 {
		*buf = nil
	}
	b := (*buf)[:0]
	for {
		if len(b) == cap(b) {
			b = append(b, 0)[:len(b)]
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err != nil {
			*buf = b
			if errors.Is(err, io.EOF) {
				return b, nil
			}
			return nil, err
		}
	}
}

// broken is the end of a connection that cannot be read any more.
func (s *socket) broken(err error, greeted bool) ending {
	switch {
	case errors.Is(err, errBinary):
		s.refuse(refusal{Code: "binary-unsupported", Detail: "binary frames are reserved: send text"})
		return ending{"", websocket.StatusUnsupportedData, "binary frames are reserved"}
	case errors.Is(err, websocket.ErrMessageTooBig):
		s.c.hub.counts.refused.Add(1)
		return ending{"", websocket.StatusMessageTooBig, "frame too big"}
	case !greeted && errors.Is(err, os.ErrDeadlineExceeded):
		s.refuse(refusal{Code: "hello-required", Detail: "no hello within " + s.c.limits.Hello.String()})
		return ending{"", websocket.StatusPolicyViolation, "hello-required"}
	}
	return ending{}
}

// greet answers the first frame, which is a hello, or ends the connection.
func (s *socket) greet(raw []byte) *ending {
	tree, err := event.ParseObject(raw)
	if typ, _ := tree["type"].(string); err != nil || typ != "hello" {
		s.refuse(refusal{Code: "hello-required", Detail: "the first frame in each direction is hello"})
		return &ending{"", websocket.StatusPolicyViolation, "hello-required"}
	}
	g, err := parseHello(raw, tree)
	switch {
	case errors.Is(err, errVersion):
		s.refuse(refusal{Code: "version-unsupported", Detail: err.Error(), Versions: []string{event.Version}})
		return &ending{"", websocket.StatusPolicyViolation, "version-unsupported"}
	case err != nil:
		s.refuse(refusal{Code: "invalid-hello", Detail: err.Error()})
		return &ending{"", websocket.StatusPolicyViolation, "invalid-hello"}
	case g.role == roleEmitter && s.may&Emit == 0, g.role == roleConsumer && s.may&(Watch|Control) == 0:
		s.refuse(refusal{Code: "unauthorized", Detail: "this token allows " + s.may.String() + ", and no " + g.role})
		return &ending{"", websocket.StatusPolicyViolation, "unauthorized"}
	}
	s.hello = g
	s.reply(map[string]any{
		"type": "hello", "versions": []string{event.Version}, "role": roleBoth,
		"identity":     map[string]string{"agent": "aep-wrap-collector"},
		"capabilities": s.c.capabilities(s.may),
	})
	return nil
}

func (s *socket) emits() bool    { return s.hello.role != roleConsumer && s.may&Emit != 0 }
func (s *socket) consumes() bool { return s.hello.role != roleEmitter && s.may&Watch != 0 }

// take takes one frame, or event.
func (s *socket) take(raw []byte) {
	it, status, p := s.c.parseLine(&s.series, trimSpace(raw))
	if status != 0 {
		s.frame(raw, p)
		return
	}
	switch {
	case isCommand(it.Type):
		s.publish()
		s.command(it)
	case s.emits(), it.Type == "attention.routed" && s.may&Emit != 0:
		s.pending = append(s.pending, it)
	default:
		s.refuse(refusal{Cause: it.ID, Code: "unauthorized", Detail: "this connection is not an emitter's: its hello and its token have to say so"})
	}
}

// publish takes in what was read: claimed first, so that who sees an event can
// answer it.
func (s *socket) publish() {
	if len(s.pending) == 0 {
		return
	}
	s.c.touch()
	for rest := s.pending; len(rest) > 0; {
		// Up to the next end of a session: what follows claims it again.
		n := 1 + slices.IndexFunc(rest, func(it *item) bool { return endsSession(it.Type) })
		if n == 0 {
			n = len(rest)
		}
		for _, it := range rest[:n] {
			s.claim(it)
		}
		s.c.hub.publish(rest[:n])
		if it := rest[n-1]; endsSession(it.Type) {
			s.unclaim(it.Session)
		}
		rest = rest[n:]
	}
	s.c.look.look(s.pending)
	clear(s.pending)
	s.pending = s.pending[:0]
}

// endsSession says whether nobody is left to command: the session's own end,
// and a wrapper's word that the agent is gone without one.
func endsSession(typ string) bool {
	return typ == "session.ended" || typ == "x.aep-wrap.session.exited"
}

func (s *socket) claim(it *item) {
	if it.Session == "" || it.Type == "attention.routed" {
		return
	}
	if cl := s.claimed[it.Session]; cl != nil || len(s.claimed) >= s.c.limits.Claims {
		return
	}
	cl := &claim{it.Session, it.Source, s}
	s.claimed[it.Session] = cl
	for _, o := range s.c.claims.take(cl) {
		o.probe()
	}
}

func (s *socket) unclaim(session string) {
	if cl := s.claimed[session]; cl != nil {
		delete(s.claimed, session)
		s.c.claims.drop(cl)
	}
}

// probe asks an older connection of a source that has come again whether it
// lives: as long as it claims, nobody can command the session.
func (s *socket) probe() {
	if s.probing.Swap(true) {
		return
	}
	since := time.Now()
	s.push(pingFrame(since), maxCommands)
	time.AfterFunc(s.c.limits.Probe, func() {
		s.probing.Store(false)
		if s.heard.Load() <= since.UnixNano() {
			s.c.log.Debug("a connection that was left behind is dropped", "agent", clip(s.hello.agent), "instance", clip(s.hello.instance))
			s.kill()
		}
	})
}

func pingFrame(t time.Time) []byte {
	return encode(struct {
		Type string `json:"type"`
		T    int64  `json:"t"`
	}{"ping", t.UnixMilli()})
}

// command routes a command, or refuses it toward its sender alone.
func (s *socket) command(it *item) {
	var to *socket
	code, detail := commandUnauthorized, "this connection may not send commands: they want a token, or a local socket, that allows control"
	if s.may&Control != 0 {
		to, code, detail = s.c.claims.target(it)
	}
	if code == commandRouted && s.peer.below(to.peer) {
		code, detail = commandUnauthorized, "this command comes from the session's own agent, or from a process that is gone"
	}
	if code == commandRouted {
		// Published first: who watches sees the command before what comes of it.
		if to.full() {
			code, detail = commandBusy, "the session's emitter does not take in what it is sent"
		} else {
			s.c.touch()
			s.c.hub.publish([]*item{it})
			to.forward(it, s)
		}
	}
	s.c.claims.outcome(code).Add(1)
	if code != commandRouted {
		s.c.log.Info("a command was refused", "code", code, "type", it.Type, "agent", clip(it.Agent), "session", clip(it.Session), "id", clip(it.ID))
		s.refuse(refusal{Cause: it.ID, Code: code, Detail: detail})
	}
}

func (s *socket) full() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dead || len(s.out) > maxCommands
}

func (s *socket) forward(it *item, from *socket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead {
		return
	}
	if len(s.asked) == maxAsked {
		s.asked = slices.Delete(s.asked, 0, 1)
	}
	s.asked = append(s.asked, asked{it.ID, from})
	s.out = appendText(s.out, it.line())
	s.rouse()
}

// frame takes a frame, or refuses what is no event either.
func (s *socket) frame(raw []byte, p problem) {
	tree, err := event.ParseObject(raw)
	if err != nil {
		s.publish()
		s.refuse(refusal{Code: "invalid-json", Detail: err.Error()})
		return
	}
	typ, _ := tree["type"].(string)
	if typ == "" || strings.Contains(typ, ".") {
		s.publish()
		cause, _ := tree["id"].(string)
		s.refuse(refusal{Cause: cause, Code: p.Error, Detail: p.Detail, Rule: p.Rule, Section: p.Section})
		return
	}
	if take := frames[typ]; take != nil {
		// Frames are taken in order: what was sent before is published.
		s.publish()
		take(s, tree)
	}
}

// frames are the frame types that are acted on. Every other is ignored
// (AEP-0003 §2), and so is a second hello.
var frames = map[string]func(*socket, map[string]any){
	"ping":        (*socket).ping,
	"subscribe":   (*socket).subscribe,
	"unsubscribe": (*socket).unsubscribe,
	"roster":      (*socket).roster,
	"error":       (*socket).told,
}

// maxEcho bounds what a ping makes us say.
const maxEcho = 1 << 10

func (s *socket) ping(tree map[string]any) {
	pong := []byte(`{"type":"pong"}`)
	if t, given := tree["t"]; given {
		if echo := event.AppendValue([]byte(`{"type":"pong","t":`), t); len(echo) <= maxEcho {
			pong = append(echo, '}')
		}
	}
	s.send(pong)
}

func (s *socket) roster(tree map[string]any) {
	id, _ := tree["id"].(string)
	switch {
	case !s.consumes():
		s.refuse(refusal{ID: id, Code: "unauthorized", Detail: "the roster is for consumers"})
	case id == "":
		s.refuse(refusal{Code: "invalid-frame", Detail: "roster: id: want a string that is not empty"})
	default:
		s.reply(rosterFrame{"roster", id, s.c.claims.roster()})
	}
}

// told hands a target's refusal on to who sent the command.
func (s *socket) told(tree map[string]any) {
	cause, _ := tree["cause"].(string)
	code, _ := tree["code"].(string)
	if cause == "" || code == "" {
		return
	}
	s.mu.Lock()
	var from *socket
	for _, a := range s.asked {
		if a.id == cause {
			from = a.from
		}
	}
	s.mu.Unlock()
	if from != nil {
		detail, _ := tree["detail"].(string)
		from.push(encode(refusal{Type: "error", Cause: cause, Code: code, Detail: detail}), maxCommands)
	}
}

func (s *socket) subscribe(tree map[string]any) {
	id, _ := tree["id"].(string)
	no := func(code, detail string) { s.refuse(refusal{ID: id, Code: code, Detail: detail}) }
	if !s.consumes() {
		no("unauthorized", "this connection is not a consumer's: its hello and its token have to say so")
		return
	}
	if id == "" {
		no("invalid-filter", "id: want a string that is not empty")
		return
	}
	if s.subs[id] != nil { // the reader's alone to change
		no("invalid-filter", "id: this connection has a subscription of that id")
		return
	}
	if len(s.subs) >= s.c.limits.Subscriptions {
		no("limit-exceeded", "subscriptions: this connection has as many as it may")
		return
	}
	asked, err := parseSubscribe(tree, s.c.limits.From)
	if err != nil {
		code := "invalid-filter"
		if errors.Is(err, errTooMany) {
			code = "limit-exceeded"
		}
		no(code, err.Error())
		return
	}
	sb := &sub{id: id, consumer: consumer{filter: asked.filter, ceiling: asked.ceiling, live: true, cut: s.wire.expire}}
	sb.ready = func() { s.mark(sb) }
	gone := s.c.hub.prepare(asked.from)
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.out) > maxReplies && !s.dead {
		s.room.Wait()
	}
	if s.dead {
		return
	}
	// In one step: its events come behind the answer, and none before it is
	// missed.
	s.c.hub.subscribe(&sb.consumer, asked.from, asked.all, gone)
	s.subs[id] = sb
	s.out = appendText(s.out, encode(answerFrame{"subscribed", id}))
	for _, n := range sb.notes {
		s.out = appendText(s.out, encode(exhaustedFrame{"replay-exhausted", id, n.session, n.earliest}))
	}
	sb.notes = nil
	s.rouse()
}

func (s *socket) unsubscribe(tree map[string]any) {
	id, _ := tree["id"].(string)
	if id == "" {
		s.refuse(refusal{Code: "invalid-frame", Detail: "unsubscribe: id: want a string that is not empty"})
		return
	}
	s.mu.Lock()
	if sb := s.subs[id]; sb != nil {
		s.c.hub.unsubscribe(&sb.consumer)
		delete(s.subs, id)
	}
	s.mu.Unlock()
	s.reply(answerFrame{"unsubscribed", id})
}

// mark says that a subscription may have something to send.
func (s *socket) mark(sb *sub) {
	s.rmu.Lock()
	defer s.rmu.Unlock()
	if !sb.marked {
		sb.marked = true
		s.ready = append(s.ready, sb)
		s.rouse()
	}
}

// write writes until there is a reason to end, and ends the connection.
func (s *socket) write() {
	defer close(s.written)
	beat := time.NewTicker(s.c.limits.Ping)
	defer beat.Stop()
	for {
		worked, e := s.round()
		if e != nil {
			s.bury(e)
			return
		}
		if worked {
			continue
		}
		select {
		case <-s.wake:
			if s.streams() {
				s.c.pace.rest()
			}
		case <-beat.C:
			silent := time.Since(time.Unix(0, s.heard.Load()))
			if silent >= s.c.limits.Silence {
				s.finish(ending{"silent", websocket.StatusPolicyViolation, "silent"})
			} else if silent >= s.c.limits.Ping/2 {
				s.push(pingFrame(time.Now()), maxCommands)
			}
		}
	}
}

// streams says whether all that woke the writer are subscriptions.
func (s *socket) streams() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.out) == 0 && s.end == nil
}

// round writes what there is, each subscription's a piece.
func (s *socket) round() (worked bool, e *ending) {
	s.rmu.Lock()
	ready := s.ready
	s.ready = nil
	for _, sb := range ready {
		sb.marked = false
	}
	s.rmu.Unlock()
	// After those that are ready: the answer to a subscription goes before it.
	s.mu.Lock()
	out, e := s.out, s.end
	s.out = nil
	s.room.Broadcast()
	s.mu.Unlock()

	if len(out) > 0 && s.put(out) != nil {
		return true, &ending{}
	}
	if e != nil {
		return true, e
	}
	if len(ready) == 0 {
		return len(out) > 0, nil
	}
	batch := takePool.Get().(*taken)
	defer batch.release()
	for _, sb := range ready {
		if e := s.deliver(sb, batch); e != nil {
			return true, e
		}
	}
	if len(batch.buf) > 0 && s.put(batch.buf) != nil {
		return true, &ending{}
	}
	return true, nil
}

func (s *socket) put(p []byte) error {
	s.c.pace.wrote()
	_, err := s.wire.Write(p)
	return err
}

// deliver writes a piece of what a subscription has to send.
func (s *socket) deliver(sb *sub, batch *taken) *ending {
	var st state
	batch.items, st = s.c.hub.next(&sb.consumer, batch.items[:0])
	switch st {
	case lost:
		return &ending{"too slow: resume from the last position", websocket.StatusTryAgainLater, "too slow"}
	case sending, replaying:
		for _, it := range batch.items {
			if st == replaying && !sb.filter.Match(&it.Header) {
				continue
			}
			line := it.line()
			if it.Capture > sb.ceiling {
				var err error
				if line, err = redaction.DownlevelLine(line, sb.ceiling); err != nil {
					continue // it was read once already; whatever this is, it is not sent
				}
			}
			batch.buf = appendText(batch.buf, line)
			sb.delivered(it)
			if len(batch.buf) >= writeBytes {
				if s.put(batch.buf) != nil {
					return &ending{}
				}
				batch.buf = batch.buf[:0]
			}
		}
		s.mark(sb)
	}
	return nil
}

// delivered notes the highest position of each session.
func (sb *sub) delivered(it *item) {
	if !it.Sequenced {
		return
	}
	if at, ok := sb.at[it.Session]; ok && !at.Less(it.Position()) {
		return
	}
	if sb.at == nil {
		sb.at = map[string]event.Position{}
	}
	if len(sb.at) >= maxPosition {
		for old := range sb.at { // any one: who wants all keeps its own
			delete(sb.at, old)
			break
		}
	}
	sb.at[it.Session] = it.Position()
}

// bury ends the connection: a closing frame, where there is a word for it, the
// close handshake, and a moment for both.
func (s *socket) bury(e *ending) {
	t := time.AfterFunc(lastMoment, s.kill)
	defer t.Stop()
	if e.closing != "" {
		s.wire.expire()
		_ = s.put(appendText(nil, encode(closingFrame{"closing", e.closing, s.positions()})))
	}
	s.mu.Lock()
	s.dead, s.out = true, nil
	s.room.Broadcast()
	s.mu.Unlock()
	if e.code == 0 {
		s.kill()
		return
	}
	s.wire.leave()
	_ = s.ws.Close(e.code, e.reason)
}

func (s *socket) positions() []delivered {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []delivered{}
	for id, sb := range s.subs {
		for session, p := range sb.at {
			if len(out) < maxPosition {
				out = append(out, delivered{id, session, p})
			}
		}
	}
	return out
}
