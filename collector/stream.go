package collector

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"aep-wrap/event"
	"aep-wrap/redaction"
)

// subscription is what GET /stream was asked for.
type subscription struct {
	filter  *event.Filter
	ceiling event.Level
	from    []resume
	all     bool
	live    bool
}

// inclusiveCapability declares an extension of ours: with inclusive=1 in the
// query the positions of from are the first that are wanted, and so a session
// can be asked for from its very start, which no position lies before.
const inclusiveCapability = "x.aep-wrap.inclusive"

// errTooMany says that a from names more positions than are replayed.
var errTooMany = errors.New("limit exceeded")

// parseSubscription reads the query and the Last-Event-ID header. Everything
// that is not understood is refused: a subscription is never wider than what
// was asked for.
func parseSubscription(query url.Values, lastEventID string, maxFrom int) (subscription, error) {
	sub := subscription{ceiling: event.Full, live: true}
	filter := "{}"
	for name, values := range query {
		switch name {
		case "filter", "capture", "from", "live", "inclusive", "access_token":
			if len(values) != 1 {
				return sub, fmt.Errorf("%s: given %d times, want once", name, len(values))
			}
		}
	}
	if v, ok := lookup(query, "filter"); ok {
		filter = v
	}
	var err error
	if sub.filter, err = event.CompileFilter([]byte(filter)); err != nil {
		return sub, fmt.Errorf("filter: %w", err)
	}
	if v, ok := lookup(query, "capture"); ok {
		if sub.ceiling, err = event.ParseLevel(v); err != nil {
			return sub, fmt.Errorf("capture: %w", err)
		}
	}
	if v, ok := lookup(query, "live"); ok {
		switch v {
		case "0":
			sub.live = false
		case "1":
		default:
			return sub, fmt.Errorf("live: %q: want 0 or 1", clip(v))
		}
	}
	inclusive := false
	if v, ok := lookup(query, "inclusive"); ok {
		if inclusive = v == "1"; !inclusive && v != "0" {
			return sub, fmt.Errorf("inclusive: %q: want 0 or 1", clip(v))
		}
	}
	if v, ok := lookup(query, "from"); ok {
		sub.from, sub.all, err = parseFrom([]byte(v), maxFrom)
		for i := range sub.from {
			if inclusive {
				sub.from[i].pos = before(sub.from[i].pos)
			}
		}
		return sub, err
	}
	if lastEventID != "" {
		r, err := parseEventID(lastEventID)
		if err != nil {
			return sub, fmt.Errorf("Last-Event-ID: %w", err)
		}
		sub.from = []resume{r}
	}
	return sub, nil
}

func lookup(query url.Values, name string) (string, bool) {
	v, ok := query[name]
	if !ok || len(v) == 0 {
		return "", false
	}
	return v[0], true
}

// clip shortens what a client sent for an error that repeats it.
func clip(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}

// parseFrom reads the resume positions: the word all, also as a JSON string,
// or an array of {session, epoch, seq}. Of a session named twice the earlier
// position counts.
func parseFrom(raw []byte, limit int) (from []resume, all bool, err error) {
	if string(raw) == "all" {
		return nil, true, nil
	}
	tree, err := event.ParseJSON(raw)
	if err != nil {
		return nil, false, fmt.Errorf("from: %w", err)
	}
	return readFrom(tree, limit)
}

// readFrom is parseFrom of what was read already.
func readFrom(tree any, limit int) (from []resume, all bool, err error) {
	if tree == "all" {
		return nil, true, nil
	}
	entries, ok := tree.([]any)
	if !ok {
		return nil, false, errors.New(`from: want an array of {"session", "epoch", "seq"}, or all`)
	}
	if len(entries) > limit {
		return nil, false, fmt.Errorf("from: %d positions, at most %d: %w", len(entries), limit, errTooMany)
	}
	at := make(map[string]int, len(entries))
	for i, e := range entries {
		r, err := parsePosition(e)
		if err != nil {
			return nil, false, fmt.Errorf("from[%d]: %w", i, err)
		}
		if j, twice := at[r.session]; twice {
			if r.pos.Less(from[j].pos) {
				from[j].pos = r.pos
			}
			continue
		}
		at[r.session] = len(from)
		from = append(from, r)
	}
	return from, false, nil
}

func parsePosition(v any) (resume, error) {
	o, ok := v.(map[string]any)
	if !ok {
		return resume{}, errors.New(`want an object {"session", "epoch", "seq"}`)
	}
	session, ok := o["session"].(string)
	if !ok || session == "" {
		return resume{}, errors.New("session: want a string that is not empty")
	}
	seq, err := ordinal(o["seq"])
	if err != nil {
		return resume{}, fmt.Errorf("seq: %w", err)
	}
	var epoch int64
	if e, given := o["epoch"]; given {
		if epoch, err = ordinal(e); err != nil {
			return resume{}, fmt.Errorf("epoch: %w", err)
		}
	}
	return resume{session, event.Position{Epoch: epoch, Seq: seq}}, nil
}

func ordinal(v any) (int64, error) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, errors.New("want an integer of 0 or more")
	}
	i, err := strconv.ParseInt(n.String(), 10, 64)
	if err != nil || i < 0 || n.String() == "-0" {
		return 0, errors.New("want an integer of 0 or more")
	}
	return i, nil
}

// parseEventID reads {session}:{epoch}:{seq}. A session's name may hold
// colons: it is split from the right.
func parseEventID(id string) (resume, error) {
	bad := fmt.Errorf("%q: want {session}:{epoch}:{seq}", clip(id))
	rest, seq, ok := cutLast(id)
	if !ok {
		return resume{}, bad
	}
	session, epoch, ok := cutLast(rest)
	if !ok || session == "" {
		return resume{}, bad
	}
	e, err1 := digits(epoch)
	s, err2 := digits(seq)
	if err1 != nil || err2 != nil {
		return resume{}, bad
	}
	return resume{session, event.Position{Epoch: e, Seq: s}}, nil
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+1:], true
}

func digits(s string) (int64, error) {
	if strings.ContainsAny(s, "+-") {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(s, 10, 64)
}

// appendExhausted appends the comment that tells a consumer of a gap.
func appendExhausted(dst []byte, e exhausted) []byte {
	session := e.session
	if !fitsField(session) {
		session = url.PathEscape(session)
	}
	return fmt.Appendf(dst, ": replay-exhausted %s %d:%d\n\n", session, e.earliest.Epoch, e.earliest.Seq)
}

// stream serves GET /stream.
func (c *Collector) stream(w http.ResponseWriter, r *http.Request) {
	sub, err := parseSubscription(r.URL.Query(), r.Header.Get("Last-Event-ID"), c.limits.From)
	if err != nil {
		code := "invalid-filter"
		if errors.Is(err, errTooMany) {
			code = "limit-exceeded"
		}
		fail(w, http.StatusBadRequest, problem{Error: code, Detail: err.Error()})
		return
	}
	gone := c.hub.prepare(sub.from)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	out := newResponse(w, c.limits.Stall, &c.pace)
	c.taken.Add(1) // before net/http forgets it: the end waits for one of us
	if !sub.live || !out.takeOver(r) {
		c.taken.Add(-1)
		if c.serveStream(r, sub, gone, out) == lost && !sub.live {
			// The body has no other way to say that it is not all.
			panic(http.ErrAbortHandler)
		}
		return
	}
	// On a goroutine of its own: what net/http holds for a request is free then.
	go func() {
		defer c.taken.Add(-1)
		defer out.close()
		defer func() {
			if p := recover(); p != nil { // as net/http does it
				c.log.Error("a stream came to grief", "panic", p, "stack", string(debug.Stack()))
			}
		}()
		c.serveStream(guestOf(r), sub, gone, out)
	}()
}

// serveStream serves a subscription to its end, and says how that was.
func (c *Collector) serveStream(r *http.Request, sub subscription, gone map[string]*buffer, out *response) state {
	ctx, end := context.WithCancelCause(r.Context())
	defer end(nil)
	cons := &consumer{filter: sub.filter, ceiling: sub.ceiling, live: sub.live, cut: out.expire}
	// Registered first: an event that arrives once the client has read our
	// header is its own.
	c.hub.subscribe(cons, sub.from, sub.all, gone)
	defer c.hub.unsubscribe(cons)
	defer c.welcome(r, Watch, func() { end(errRevoked) })()
	var notes []byte
	for _, n := range cons.notes {
		notes = appendExhausted(notes, n)
	}
	if err := out.begin(notes); err != nil {
		return over
	}
	out.listen(end)
	return c.send(ctx, cons, out)
}

// send writes a consumer's events until its stream ends, and says how.
func (c *Collector) send(ctx context.Context, cons *consumer, out *response) state {
	beat := time.NewTicker(c.limits.Heartbeat)
	defer beat.Stop()
	batch := takePool.Get().(*taken)
	defer func() {
		if batch != nil {
			batch.release()
		}
	}()
	for {
		var st state
		batch.items, st = c.hub.next(cons, batch.items[:0])
		switch st {
		case sending, replaying:
			for _, it := range batch.items {
				if st == replaying && !cons.filter.Match(&it.Header) {
					continue
				}
				if batch.buf = appendAt(batch.buf, it, cons.ceiling); len(batch.buf) >= writeBytes {
					if out.write(batch.buf) != nil {
						return lost
					}
					batch.buf = batch.buf[:0]
				}
			}
			if len(batch.buf) > 0 {
				if out.write(batch.buf) != nil {
					return lost
				}
				batch.buf = batch.buf[:0]
			}
			// Who reads much of which little matches writes seldom, and so would
			// not notice that it is over.
			select {
			case <-ctx.Done():
				return c.stopped(ctx, cons, out)
			case <-c.draining:
				return c.stopped(ctx, cons, out)
			default:
				continue
			}
		case lost:
			out.last(": too slow: resume from the last position\n\n")
			return lost
		case over:
			out.last(": replay-complete\n\n")
			return over
		}
		// Nothing to do: an idle stream holds no buffers.
		batch.release()
		batch = nil
		select {
		case <-cons.wake:
			c.pace.rest()
		case <-beat.C:
			if out.write([]byte(": ping\n\n")) != nil {
				return lost
			}
		case <-ctx.Done():
			return c.stopped(ctx, cons, out)
		case <-c.draining:
			return c.stopped(ctx, cons, out)
		}
		batch = takePool.Get().(*taken)
	}
}

// stopped says why a stream ends that could go on. A replay that is stopped is
// not complete.
func (c *Collector) stopped(ctx context.Context, cons *consumer, out *response) state {
	word := ""
	switch {
	case errors.Is(context.Cause(ctx), errRevoked):
		word = ": unauthorized: the token is not good any more\n\n"
	case ctx.Err() == nil:
		word = ": shutting-down\n\n"
	}
	switch {
	case !cons.live:
		return lost
	case word != "":
		out.last(word)
	}
	return over
}

// writeBytes is how much is written at once when there is more.
const writeBytes = 32 << 10

// taken is what one round of send works in.
type taken struct {
	items []*item
	buf   []byte
}

var takePool = sync.Pool{New: func() any { return new(taken) }}

func (t *taken) release() {
	clear(t.items)
	t.items, t.buf = t.items[:0], t.buf[:0] // what a broken stream left is nobody else's
	if cap(t.buf) > 2*writeBytes {
		t.buf = nil
	}
	takePool.Put(t)
}

// appendAt appends an item's SSE message at a ceiling. Most events honour the
// ceiling already, and go out as they are.
func appendAt(dst []byte, it *item, ceiling event.Level) []byte {
	if it.Capture <= ceiling {
		return append(dst, it.frame...)
	}
	line, err := redaction.DownlevelLine(it.line(), ceiling)
	if err != nil {
		// It was read once already. Whatever this is, it is not sent.
		return dst
	}
	dst, _ = appendFrame(dst, &it.Header, line)
	return dst
}

// response writes a body that may stay open for days: a write must get
// through within stall.
type response struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	stall time.Duration
	pace  *pace

	// A connection that was taken over is written to without net/http, which
	// takes two writes for one and holds several buffers for it.
	conn net.Conn
	head http.Header
	read chan struct{} // closed when nothing more is read

	mu      sync.Mutex // of the two below: expire comes from another goroutine
	set     time.Time  // when the deadline was last moved
	expired bool
}

func newResponse(w http.ResponseWriter, stall time.Duration, p *pace) *response {
	return &response{w: w, rc: http.NewResponseController(w), stall: stall, pace: p}
}

// takeOver takes a stream's connection over, where that can be.
func (o *response) takeOver(r *http.Request) bool {
	if r.ProtoMajor != 1 || r.ProtoMinor < 1 {
		return false
	}
	conn, _, err := o.rc.Hijack()
	if err != nil {
		return false
	}
	_ = conn.SetDeadline(time.Time{})
	o.conn, o.head, o.w, o.rc = conn, o.w.Header(), nil, nil
	return true
}

// listen has gone called when the client of a connection that was taken over
// has gone.
func (o *response) listen(gone func(error)) {
	if o.conn == nil {
		return
	}
	conn, read := o.conn, make(chan struct{})
	o.read = read
	go func() {
		defer close(read)
		var b [16]byte
		for {
			if _, err := conn.Read(b[:]); err != nil {
				gone(err)
				return
			}
		}
	}()
}

// close ends a connection that was taken over.
func (o *response) close() {
	_ = o.conn.Close()
	if o.read != nil {
		<-o.read
	}
}

// begin sends the header, and the body's beginning.
func (o *response) begin(p []byte) error {
	if o.conn == nil {
		o.w.WriteHeader(http.StatusOK)
		return o.write(p)
	}
	o.head.Set("Transfer-Encoding", "chunked")
	o.head.Set("Connection", "close")
	o.head.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 200 OK\r\n")
	_ = o.head.Write(&head)
	o.head = nil
	head.WriteString("\r\n")
	o.extend()
	o.pace.wrote()
	_, err := o.conn.Write(appendChunk(head.Bytes(), p))
	return err
}

// chunkPool holds what chunks are put together in.
var chunkPool = sync.Pool{New: func() any { return new([]byte) }}

// appendChunk appends a chunk of a body (RFC 9112 §7.1). None is empty: that
// would be the last.
func appendChunk(dst, p []byte) []byte {
	if len(p) == 0 {
		return dst
	}
	dst = strconv.AppendUint(dst, uint64(len(p)), 16)
	dst = append(dst, "\r\n"...)
	dst = append(dst, p...)
	return append(dst, "\r\n"...)
}

// write sends p, and whatever the header is still waiting for.
func (o *response) write(p []byte) error {
	o.extend()
	o.pace.wrote()
	if o.conn != nil {
		buf := chunkPool.Get().(*[]byte)
		*buf = appendChunk((*buf)[:0], p)
		_, err := o.conn.Write(*buf)
		if cap(*buf) <= 2*writeBytes {
			chunkPool.Put(buf)
		}
		return err
	}
	if _, err := o.w.Write(p); err != nil {
		return err
	}
	return o.rc.Flush()
}

// last sends a body's last words.
func (o *response) last(text string) {
	if o.conn == nil {
		_ = o.write([]byte(text))
		return
	}
	o.extend()
	_, _ = o.conn.Write(append(appendChunk(nil, []byte(text)), "0\r\n\r\n"...))
}

// deadline is of writes.
func (o *response) deadline(t time.Time) {
	if o.conn != nil {
		_ = o.conn.SetWriteDeadline(t)
		return
	}
	_ = o.rc.SetWriteDeadline(t)
}

// extend moves the deadline on, at most every tenth of stall.
func (o *response) extend() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now := time.Now(); !o.expired && now.Sub(o.set) > o.stall/10 {
		o.set = now
		o.deadline(now.Add(o.stall))
	}
}

// expire gives what is being written a last moment to get through.
func (o *response) expire() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.expired = true
	o.deadline(time.Now().Add(lastMoment))
}

// lastMoment is what a consumer has left once its stream has to end.
const lastMoment = time.Second

// problem is the body of a refusal.
type problem struct {
	Error   string   `json:"error"`
	Detail  string   `json:"detail,omitempty"`
	Rule    string   `json:"rule,omitempty"`
	Section string   `json:"section,omitempty"`
	Line    int      `json:"line,omitempty"`  // of the body, from 1
	Index   *int     `json:"index,omitempty"` // of the event, from 0
	Limit   string   `json:"limit,omitempty"`
	Max     int64    `json:"max,omitempty"`
	Count   int64    `json:"count,omitempty"`
	Allow   []string `json:"allow,omitempty"`
}

func fail(w http.ResponseWriter, status int, p problem) {
	reply(w, status, p)
}

// reply answers with a JSON body.
func reply(w http.ResponseWriter, status int, v any) {
	b := encodeJSON(v)
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Content-Length", strconv.Itoa(len(b)))
	w.WriteHeader(status)
	_, _ = w.Write(b)
}

// encodeJSON is v and a line break.
func encodeJSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v)
	return b.Bytes()
}
