package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"aep-wrap/event"
)

// Bounds on what a runtime may hand in, so that no payloads, however large and
// however many, take more memory than a sidecar has. What is above them is told
// as refused, never as an error to the agent.
const (
	maxPayload = 32 << 20 // bytes of one payload, after inflation
	maxKept    = 2 << 20  // what is kept of one
	maxValues  = 64 << 10 // in one: each takes hundreds of bytes on its way

	// wholePayload is up to which size a payload is taken as it is. Of a larger
	// one strings beyond longString are passed over and told by their length,
	// and once crowded bytes are kept, those beyond crowdString.
	wholePayload = 1 << 20
	longString   = 64 << 10
	crowded      = 512 << 10
	crowdString  = 1 << 10

	// Of payloads beyond smallPayload or smallValues so many are read at once, and
	// one is worked on; of others so many are.
	smallPayload = 64 << 10
	smallValues  = 2 << 10
	maxLarge     = 4
	maxWorking   = 16
	largeWait    = 2 * time.Second // for their turn, in which agents wait too
	slowTurn     = time.Second     // for a turn at most while others wait, and
	slowest      = 256 << 10       // a second more for so many bytes that came in it
	maxHeldLarge = 4 << 20         // bytes of those whose runtime waits for an answer

	maxConns  = 512 // requests, and as many helpers, served at once
	stall     = 3 * time.Second
	readTotal = 60 * time.Second
)

// payload is what a runtime handed in.
type payload struct {
	raw    []byte
	size   int       // as it came
	values int       // in it
	cut    int       // strings that were passed over
	reason string    // why there is nothing
	turn   bool      // it has one of the turns to be read
	since  time.Time // when it got that
	before int       // bytes that came until then
}

// slow says whether a payload comes so slowly that others should have its turn.
func (p *payload) slow() bool {
	return time.Since(p.since) > slowTurn+time.Second*time.Duration(p.size-p.before)/slowest
}

// intake reads payloads, large ones in turns.
type intake struct {
	reading, working chan struct{} // large ones
	small            chan struct{} // others that are worked on
	demand           atomic.Int32  // how many have a turn to be read, or wait for one
}

func newIntake() *intake {
	return &intake{reading: make(chan struct{}, maxLarge), working: make(chan struct{}, 1), small: make(chan struct{}, maxWorking)}
}

// await waits for a turn to be read. Who has one and comes slowly loses it.
func (x *intake) await(p *payload) bool {
	x.demand.Add(1)
	if p.turn = wait(x.reading); !p.turn {
		x.demand.Add(-1)
	}
	p.since, p.before = time.Now(), p.size
	return p.turn
}

// yield gives a payload's turn back where more wait than there are turns: for each
// of those one gives way, however many come slowly.
func (x *intake) yield(p *payload) bool {
	for {
		n := x.demand.Load()
		if int(n) <= cap(x.reading) {
			return false
		}
		if x.demand.CompareAndSwap(n, n-1) {
			p.turn = false
			<-x.reading
			return true
		}
	}
}

// wait waits for a turn, for a while.
func wait(turn chan struct{}) bool {
	select {
	case turn <- struct{}{}:
		return true
	case <-time.After(largeWait):
		return false
	}
}

// chunks are what payloads are read through.
var chunks = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

// read reads to the end of in, or with first to that of the first object or
// array: a helper's stdin may stay open after it. What is over a bound is read
// on and thrown away, so that the writer is not met by a closed pipe. Whoever
// has the payload gives it back.
func (x *intake) read(in io.Reader, first bool) *payload {
	p := &payload{}
	var thin *thinner
	var end objectEnd
	buf := chunks.Get().(*[]byte)
	defer chunks.Put(buf)
	chunk := *buf
	for {
		n, err := in.Read(chunk)
		p.size += n
		whole := end.found(chunk[:n]) && first
		if p.values = end.values; p.reason == "" {
			thin = x.keep(p, thin, chunk[:n])
		}
		switch {
		case err == nil && !whole:
			continue
		case p.reason != "", whole, errors.Is(err, io.EOF):
		case errors.Is(err, os.ErrDeadlineExceeded):
			x.refuse(p, "timeout")
		default:
			x.refuse(p, "truncated")
		}
		if thin != nil && p.reason == "" {
			p.raw, p.cut = thin.out, thin.cuts
		}
		return p
	}
}

// keep keeps what came of a payload, or refuses it.
func (x *intake) keep(p *payload, thin *thinner, b []byte) *thinner {
	if p.size > maxPayload || p.values > maxValues {
		x.refuse(p, "too_large")
		return nil
	}
	if (p.size > smallPayload || p.values > smallValues) && !p.turn {
		if !x.await(p) {
			x.refuse(p, "busy")
			return nil
		}
	}
	if p.turn && p.slow() && x.yield(p) {
		x.refuse(p, "slow")
		return nil
	}
	if thin == nil {
		if p.raw = append(p.raw, b...); p.size <= wholePayload {
			return nil
		}
		thin, b = &thinner{}, p.raw
		p.raw = nil
	}
	if thin.feed(b); len(thin.out) > maxKept {
		x.refuse(p, "too_large")
	}
	return thin
}

func (x *intake) refuse(p *payload, reason string) {
	p.reason = reason
	x.back(p)
}

// back forgets what a payload holds, and gives its turn back.
func (x *intake) back(p *payload) {
	p.raw = nil
	if p.turn {
		p.turn = false
		x.demand.Add(-1)
		<-x.reading
	}
}

// work has f parse a payload and make something of it, and gives it back. Large
// ones come one after the other, of others a few at once: parsed, one takes many
// times its size, for as long as all before it take.
func (x *intake) work(p *payload, f func(p *payload, tree map[string]any)) {
	defer x.back(p)
	switch {
	case !p.turn:
		x.small <- struct{}{}
		defer func() { <-x.small }()
	case wait(x.working):
		defer func() { <-x.working }()
	default:
		p.reason = "busy"
	}
	var tree map[string]any
	if p.reason == "" && len(bytes.TrimSpace(p.raw)) > 0 {
		var err error
		if tree, err = event.ParseObject(valid(p.raw)); err != nil {
			p.reason = refusalReason(err)
		}
	}
	f(p, tree)
}

// thinner copies a JSON text, with the length of long strings in their place.
type thinner struct {
	out            []byte
	at             int // where in out the string at hand begins
	n              int // how long it is so far
	str, esc, over bool
	cuts           int
}

func (t *thinner) feed(b []byte) {
	for len(b) > 0 {
		if !t.str {
			i := bytes.IndexByte(b, '"') + 1
			if i == 0 {
				t.out = append(t.out, b...)
				return
			}
			t.out = append(t.out, b[:i]...)
			b = b[i:]
			t.str, t.at, t.n = true, len(t.out), 0
			continue
		}
		var i int
		i, t.esc = inString(b, t.esc)
		if t.n += i; !t.over {
			t.out = append(t.out, b[:i]...)
			if t.n > longString || len(t.out) > crowded && t.n > crowdString {
				t.out, t.over = t.out[:t.at], true
			}
		}
		if i == len(b) {
			return
		}
		if t.over {
			t.out = fmt.Appendf(t.out, "[%d bytes not read]", t.n)
			t.cuts++
		}
		t.out = append(t.out, '"')
		t.str, t.over = false, false
		b = b[i+1:]
	}
}

// inString gives how much of b is left of a string, without its closing quote;
// esc is whether what comes first is behind a backslash, and then what comes
// next.
func inString(b []byte, esc bool) (int, bool) {
	end := bytes.IndexByte(b, '"')
	if end < 0 {
		end = len(b)
	}
	if !esc && bytes.IndexByte(b[:end], '\\') < 0 {
		return end, false
	}
	for i, c := range b {
		switch {
		case esc:
			esc = false
		case c == '"':
			return i, false
		default:
			esc = c == '\\'
		}
	}
	return len(b), esc
}

// objectEnd finds the end of the first JSON object or array in a byte stream,
// and counts what is in it.
type objectEnd struct {
	depth       int
	values      int
	str, esc    bool
	closed, bad bool
}

func (o *objectEnd) found(b []byte) bool {
	for i := 0; i < len(b) && !o.closed && !o.bad; i++ {
		if o.str {
			var n int
			n, o.esc = inString(b[i:], o.esc)
			if i += n; i == len(b) {
				break
			}
			o.str = false // at its quote
			continue
		}
		switch c := b[i]; {
		case c == '"':
			o.str = true
			o.bad = o.depth == 0
		case c == '{' || c == '[':
			o.depth++
			o.values++
		case c == ',':
			o.values++
		case c == '}' || c == ']':
			o.depth--
			o.closed = o.depth == 0
			o.bad = o.depth < 0
		case o.depth == 0 && c > ' ':
			o.bad = true // not an object: read to the end, the parser will say
		}
	}
	return o.closed
}
