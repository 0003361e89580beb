package ws

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"aep-wrap/event"
	"aep-wrap/queue"
)

// conn is a connection that was upgraded. Three goroutines have it: who reads,
// who takes batches from the feed, and serve, which alone writes. The network
// is the outbox's.
type conn struct {
	e     *Emitter
	ws    *websocket.Conn
	net   *outbox
	since time.Time

	batches chan job
	slots   chan struct{} // of the batches under way
	answers chan []byte   // pongs that are owed
	closing chan string   // the other side's closing frame
	over    chan struct{} // nothing more is read
	dry     chan struct{} // the feed is closed

	// Of serve.
	job  job
	next int // the job's item that is next to be written
	buf  []byte
	look time.Time // when watch is to be called

	mu     sync.Mutex
	flight []flight  // in order
	ping   int64     // of the last ping
	asked  time.Time // since when a pong is waited for: another came then, or nothing was to come before
	acked  int
	fault  *fault // the first that happened
}

// job is a batch to be written, or one line that claims a session.
type job struct {
	items []queue.Item
	batch queue.Batch
	claim bool
}

// flight is a ping without its pong, and the batch before it. t is 0 as long
// as the ping is not written.
type flight struct {
	t     int64
	batch queue.Batch
}

var errBinary = errors.New("it sent a binary frame")

func newConn(e *Emitter, ws *websocket.Conn, out *outbox) *conn {
	return &conn{
		e: e, ws: ws, net: out,
		batches: make(chan job), slots: make(chan struct{}, e.c.InFlight),
		answers: make(chan []byte, 16), closing: make(chan string, 1), over: make(chan struct{}),
		dry: make(chan struct{}),
	}
}

// write writes a text message. It never blocks: the outbox takes all.
func (c *conn) write(p []byte) error {
	return c.ws.Write(context.Background(), websocket.MessageText, p)
}

// readText reads a text message. Only kill ends it early.
func (c *conn) readText() ([]byte, error) {
	typ, raw, err := c.ws.Read(context.Background())
	if err == nil && typ == websocket.MessageBinary {
		err = errBinary
	}
	return raw, err
}

// kill ends the connection now.
func (c *conn) kill() { _ = c.net.kill() }

// abandon ends a connection that came to nothing.
func (c *conn) abandon() {
	t := time.AfterFunc(c.e.c.CloseWait, c.kill)
	defer t.Stop()
	_ = c.ws.Close(websocket.StatusProtocolError, "")
}

// nextPing numbers a ping.
func (c *conn) nextPing() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ping++
	return c.ping
}

// waiting is how many batches wait for their pong.
func (c *conn) waiting() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.flight {
		if len(f.batch.Items) > 0 {
			n++
		}
	}
	return n
}

// serve sends by a connection until it ends, and says why it did.
func (e *Emitter) serve(ctx context.Context, c *conn) *fault {
	e.connected(c)
	tctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var hands sync.WaitGroup
	var left queue.Batch // taken, and never written
	feed := error(nil)
	hands.Go(func() { left, feed = c.take(tctx) })
	hands.Go(c.read)
	f := c.talk(ctx, cancel)
	cancel()
	c.kill()
	_ = c.ws.CloseNow()
	hands.Wait()

	e.mu.Lock()
	e.live = nil
	e.mu.Unlock()
	for len(e.out) > 0 { // of this connection
		<-e.out
	}
	c.mu.Lock()
	flights, acked := slices.Clone(c.flight), c.acked
	if f == nil {
		f = c.fault
	}
	c.mu.Unlock()
	// Frames are taken in order, and pongs are sent in order: the first batch
	// without one is where it broke.
	flights = slices.DeleteFunc(flights, func(r flight) bool { return len(r.batch.Items) == 0 })
	if f.tooBig && len(flights) > 0 && len(flights[0].batch.Items) == 1 {
		if e.c.Fallback != nil { // a request may be larger than a frame
			f.what = noSocket
		} else {
			b := flights[0].batch
			flights = flights[1:]
			e.count(func(s *Stats) { s.TooLarge++ })
			e.giveUp(b.Items[0], ReasonTooLarge, f.word)
			_ = e.feed.Ack(b)
			acked++
		}
	}
	if len(left.Items) > 0 {
		flights = append(flights, flight{batch: left})
	}
	f.unacked = len(flights)
	for _, r := range flights {
		e.feed.Nack(r.batch)
		e.count(func(s *Stats) { s.Returned += int64(len(r.batch.Items)) })
	}
	if errors.Is(feed, queue.ErrClosed) {
		f.what = over
	}
	long := e.c.Clock.Now().Sub(c.since) >= 10*e.c.MinWait
	f.progress = f.progress || f.what == later && (acked > 0 || f.unacked == 0 && long)
	return f
}

// take brings what is to be written: first a line of each session that has
// nothing else to claim it by, then batches, as many as there are slots. It
// gives back a batch that nobody came for.
func (c *conn) take(ctx context.Context) (queue.Batch, error) {
	for it := range c.e.feed.Settled {
		h, _, err := event.ParseHeader(it.Line)
		if err != nil || ends(h.Type) || c.e.c.Live != nil && !c.e.c.Live(it.Agent, it.Session) {
			continue
		}
		select {
		case c.batches <- job{items: []queue.Item{it}, claim: true}:
			c.e.count(func(s *Stats) { s.Claims++ })
		case <-ctx.Done():
			return queue.Batch{}, ctx.Err()
		}
	}
	for {
		select {
		case c.slots <- struct{}{}:
		case <-ctx.Done():
			return queue.Batch{}, ctx.Err()
		}
		b, err := c.e.feed.Next(ctx, c.e.size(), c.e.c.MaxBytes)
		if err != nil {
			if errors.Is(err, queue.ErrClosed) {
				close(c.dry)
			}
			return queue.Batch{}, err
		}
		select {
		case c.batches <- job{items: b.Items, batch: b}:
		case <-ctx.Done():
			return b, ctx.Err()
		}
	}
}

// ends says whether a session is over with an event.
func ends(typ string) bool { return typ == "session.ended" || typ == "x.aep-wrap.session.exited" }

// talk writes until there is a reason to end.
func (c *conn) talk(ctx context.Context, cancel func()) *fault {
	e := c.e
	tick := make(chan struct{}, 1)
	disarm := func() bool { return false }
	arm := func(d time.Duration) {
		disarm()
		c.look = e.c.Clock.Now().Add(d)
		disarm = e.c.Clock.After(d, func() { signal(tick) })
	}
	arm(e.c.PingEvery)
	defer func() { disarm() }()
	for {
		var batches chan job
		var room chan struct{}
		var answers, lines chan []byte
		var err error
		if c.job.items != nil && !c.net.full() {
			err = c.pump()
		}
		full := c.net.full()
		if c.job.items == nil {
			batches = c.batches
		}
		if full || c.job.items != nil {
			room = c.net.room
		}
		if !full { // who asks and does not listen is answered no further
			answers, lines = c.answers, e.out
		}
		if err == nil {
			select {
			case <-ctx.Done():
				return c.bye(cancel, websocket.StatusGoingAway, "shutdown", &fault{word: "shutdown"})
			case <-c.dry:
				return c.bye(cancel, websocket.StatusGoingAway, "shutdown", &fault{word: "shutdown"})
			case <-e.renew:
				return c.bye(cancel, websocket.StatusNormalClosure, "renewal", &fault{word: "a new hello is to be said", progress: true, ours: true})
			case reason := <-c.closing:
				return c.bye(cancel, websocket.StatusNormalClosure, "", &fault{word: closingWord(reason)})
			case <-c.over:
				return nil // read knows why
			case raw := <-answers:
				err = c.write(raw)
			case raw := <-lines:
				err = c.write(raw)
			case <-room:
			case c.job = <-batches:
				if c.begin() {
					arm(min(e.c.Timeout, e.c.PingEvery))
				}
			case <-tick:
				next, silent := c.watch()
				if silent != nil {
					return silent
				}
				arm(next)
			}
		}
		if err != nil { // what it said before it hung up may say why
			t := time.AfterFunc(e.c.CloseWait, c.kill)
			defer t.Stop()
			<-c.over
			return nil
		}
	}
}

// begin enters a job into the flight, before a byte of it is written, and says
// whether it is the first there.
func (c *conn) begin() (first bool) {
	c.next = 0
	if c.job.claim {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if first = len(c.flight) == 0; first {
		c.asked = c.e.c.Clock.Now()
	}
	c.flight = append(c.flight, flight{batch: c.job.batch})
	return first
}

// pump writes of the job what there is room for, and its ping behind it.
func (c *conn) pump() error {
	c.net.hold()
	defer c.net.release()
	for c.next < len(c.job.items) {
		if c.net.full() {
			return nil
		}
		it := &c.job.items[c.next]
		c.next++
		if !utf8.Valid(it.Line) { // no text message, and so no frame at all
			c.e.count(func(s *Stats) { s.Refused++ })
			c.e.giveUp(*it, ReasonRefused, "not UTF-8")
			continue
		}
		if err := c.write(it.Line); err != nil {
			return err
		}
	}
	claim := c.job.claim
	c.job = job{}
	if claim {
		return nil
	}
	c.mu.Lock()
	c.ping++
	t := c.ping
	c.flight[len(c.flight)-1].t = t
	c.mu.Unlock()
	c.buf = pingFrame(c.buf[:0], t)
	return c.write(c.buf)
}

// overslept is how late we look, at least, where we were stopped, or got no
// processor: what has come meanwhile is yet to be read.
const overslept = 2 * time.Second

// watch pings an idle connection and says when to look again, or that nothing
// is to be expected of it any more. What still goes out is no silence: a long
// batch on a narrow way takes its time.
func (c *conn) watch() (time.Duration, *fault) {
	now, moved := c.e.c.Clock.Now(), c.net.movedAt()
	c.mu.Lock()
	if now.Sub(c.look) >= overslept {
		c.asked = now
	}
	if len(c.flight) > 0 {
		left := max(c.asked.Sub(now), moved.Sub(now)) + c.e.c.Timeout
		c.mu.Unlock()
		if left <= 0 {
			return 0, &fault{word: fmt.Sprintf("it acknowledged nothing for %v", c.e.c.Timeout)}
		}
		return min(left, c.e.c.PingEvery), nil
	}
	c.ping++
	t := c.ping
	c.flight = append(c.flight, flight{t: t})
	c.asked = now
	c.mu.Unlock()
	_ = c.write(pingFrame(nil, t)) // where it cannot be written, read ends
	return min(c.e.c.PingEvery, c.e.c.Timeout), nil
}

// bye ends a connection in good order: no more batches, a closing frame that
// says why (none answers the other side's own), a moment for what is under way
// to be acknowledged, and the close handshake.
func (c *conn) bye(cancel func(), code websocket.StatusCode, word string, f *fault) *fault {
	cancel()
	if word != "" {
		_ = c.write(closingFrame(word))
	}
	t := time.AfterFunc(c.e.c.CloseWait, c.kill)
	defer t.Stop()
	for c.waiting() > 0 {
		select {
		case c.slots <- struct{}{}: // one was given back
		case <-c.over:
			return f
		}
	}
	_ = c.ws.Close(code, word)
	return f
}

// broke is the fault of a connection that cannot be read or written any more.
func (c *conn) broke(err error) *fault {
	f := &fault{word: err.Error(), err: err}
	var ce websocket.CloseError
	switch {
	case errors.Is(err, errBinary):
		_ = c.write(errorFrame("binary-unsupported", "", "binary frames are reserved"))
		t := time.AfterFunc(c.e.c.CloseWait, c.kill)
		defer t.Stop()
		_ = c.ws.Close(websocket.StatusUnsupportedData, "binary frames are reserved")
	case errors.Is(err, websocket.ErrMessageTooBig):
		f.word = fmt.Sprintf("it sent a frame of more than %d bytes", maxMessage)
	case errors.As(err, &ce):
		f.tooBig = ce.Code == websocket.StatusMessageTooBig
		f.word = fmt.Sprintf("it closed with %d", ce.Code)
		if ce.Reason != "" {
			f.word += " " + strconv.QuoteToGraphic(ce.Reason)
		}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		f.word = "it hung up"
	}
	return f
}

// fail notes why the connection is no good any more, and ends it. From here on
// nothing is acknowledged.
func (c *conn) fail(f *fault) {
	c.mu.Lock()
	if c.fault == nil {
		c.fault = f
	}
	c.mu.Unlock()
	c.kill()
}

// read takes in what comes, until nothing more does.
func (c *conn) read() {
	defer close(c.over)
	for {
		raw, err := c.readText()
		if err != nil {
			f := c.broke(err)
			c.mu.Lock()
			if c.fault == nil {
				c.fault = f
			}
			c.mu.Unlock()
			return
		}
		c.receive(raw)
	}
}

func (c *conn) receive(raw []byte) {
	f, err := parseFrame(raw)
	switch {
	case errors.Is(err, errEvent):
		c.command(raw)
		return
	case err != nil:
		c.e.count(func(s *Stats) { s.Invalid++ })
		return
	}
	switch f.typ {
	case "pong":
		if t, ok := integer(f.t); ok {
			c.pong(t)
		}
	case "ping":
		if len(f.echo) <= maxEcho {
			select {
			case c.answers <- pongFrame(f.echo):
			default: // it asks faster than it listens
			}
		}
	case "closing":
		for _, p := range f.at {
			c.e.c.Log.Debug("the collector's last position", "session", p.session, "epoch", p.Epoch, "seq", p.Seq)
		}
		select {
		case c.closing <- f.reason:
		default:
		}
	case "error":
		c.refused(f)
	default:
		c.e.count(func(s *Stats) { s.Ignored++ })
	}
}

// pong acknowledges what was sent before a ping. One that was never sent says
// nothing.
func (c *conn) pong(t int64) {
	c.mu.Lock()
	if c.fault != nil || t > c.ping {
		c.mu.Unlock()
		return
	}
	n := 0
	for n < len(c.flight) && c.flight[n].t != 0 && c.flight[n].t <= t {
		n++
	}
	taken := slices.Clone(c.flight[:n])
	c.flight = slices.Delete(c.flight, 0, n)
	waited := time.Duration(0)
	if n > 0 {
		now := c.e.c.Clock.Now()
		waited, c.asked = now.Sub(c.asked), now
	}
	c.mu.Unlock()
	for _, r := range taken {
		if len(r.batch.Items) == 0 {
			continue
		}
		size := int64(0)
		for i := range r.batch.Items {
			size += int64(len(r.batch.Items[i].Line))
		}
		c.mu.Lock()
		c.acked++
		c.mu.Unlock()
		c.e.success(len(r.batch.Items), size, waited)
		_ = c.e.feed.Ack(r.batch)
		<-c.slots
	}
}

// contents are the codes of a refusal that is about one event as such: it will
// be refused always, and what follows it is not.
var contents = map[string]bool{"invalid-event": true, "invalid-json": true, "bad-json": true}

// refused reads an error frame. About an event that is under way and will never
// be taken in, it is that event's loss. About anything else that we sent on our
// own account, the pongs that follow would lie: the connection ends, and what
// has no pong is sent again.
func (c *conn) refused(f frame) {
	var it *queue.Item
	c.mu.Lock()
	for i := range c.flight {
		for j := range c.flight[i].batch.Items {
			if f.about != "" && c.flight[i].batch.Items[j].ID == f.about {
				it = &c.flight[i].batch.Items[j]
			}
		}
	}
	c.mu.Unlock()
	switch {
	case contents[f.code]:
		c.e.count(func(s *Stats) { s.Refused++ })
		if it != nil {
			c.e.giveUp(*it, ReasonRefused, strconv.QuoteToGraphic(clip(f.detail, 300)))
		} else {
			c.e.c.Log.Warn("the collector will not have something that was sent", "url", c.e.url, "code", clip(f.code, 100), "about", clip(f.about, 100), "detail", clip(f.detail, 300))
		}
	case f.code == "unauthorized", it != nil, f.about == "":
		c.fail(refusal(f))
	default: // about a line of Send, or something that we never heard of
		c.e.count(func(s *Stats) { s.Ignored++ })
	}
}

// command hands a command over. Anything else that is an event is not for us.
func (c *conn) command(raw []byte) {
	h, _, err := event.ParseHeader(raw)
	switch {
	case err != nil:
		c.e.count(func(s *Stats) { s.Invalid++ })
	case c.e.c.OnCommand == nil || !isCommand(&h):
		c.e.count(func(s *Stats) { s.Ignored++ })
	default:
		select {
		case c.e.commands <- command{raw, h}:
			c.e.count(func(s *Stats) { s.Commands++ })
		default:
			c.e.count(func(s *Stats) { s.Busy++ })
			select {
			case c.answers <- errorFrame("busy", h.ID, "too many commands wait"):
			default:
			}
		}
	}
}
