package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v4"

	"aep-wrap/event"
)

// Config says what to follow, and how.
type Config struct {
	Base  string // the endpoint's origin
	Token string
	HTTP  *http.Client

	Filter  string // attr-match as JSON; "" is all
	Capture string // a ceiling, or ""

	// All begins with everything that the endpoint holds. Without it the
	// stream begins after From's positions, or now.
	All  bool
	From map[string]event.Position

	// Whole wants, with All, each session from its start also where the endpoint
	// holds only the newest of it: what came before is asked for by itself, and
	// given first.
	Whole bool

	// Once ends after the replay; nothing is retried.
	Once bool

	// Silence is how long the endpoint may say nothing, not even a heartbeat,
	// before the connection counts as lost; 0 is 90 s.
	Silence time.Duration

	// MaxWait is the longest wait between two tries to connect; 0 is 15 s.
	MaxWait time.Duration

	// Told hears of what happens beside the events, in the order in which it
	// happens; nil is nobody.
	Told func(Notice)
	// Flush is called after events were given when no more are waiting, and at
	// the end; nil is nothing to do.
	Flush func() error

	retry func() backoff.BackOff // of tests
}

// Notice is what Told hears.
type Notice struct {
	Kind    Kind
	Err     error         // Lost, Unreadable: why
	Wait    time.Duration // Lost: until the next try
	Session string        // Gap: where
	After   event.Position
	Before  event.Position
}

// Kind of a Notice.
type Kind int

// What can happen beside the events.
const (
	Connected  Kind = iota // the stream is open
	Lost                   // there is none; it is tried again
	Gap                    // events between After and Before may be missing
	Unreadable             // a message that is no event was passed over
)

// Event is one event of the stream.
type Event struct {
	event.Header
	Line []byte // as it came; valid during the call
}

// PermanentError is a refusal that will not change by trying again.
type PermanentError struct {
	Status int
	Detail string
}

func (e *PermanentError) Error() string {
	switch e.Status {
	case http.StatusUnauthorized:
		return "the collector wants another token (401): " + e.Detail
	case http.StatusForbidden:
		return "the collector refuses (403): " + e.Detail
	case http.StatusNotFound:
		return "no AEP stream at this address (404): give the collector's origin, such as http://127.0.0.1:8787"
	}
	return fmt.Sprintf("the collector refuses (%d): %s", e.Status, e.Detail)
}

// What Follow keeps in mind.
const (
	seenEvents   = 400_000
	fromSessions = 500      // the newest sessions that a resume names
	messageBytes = 32 << 20 // an endpoint's body limit and more
)

// Follow gives each event to fn, once, in the order in which it comes. It
// reconnects until ctx is done, which gives ctx's error, or the endpoint
// refuses, or fn or Flush fails.
func Follow(ctx context.Context, cfg Config, fn func(Event) error) error {
	f := &follower{Config: cfg, fn: fn, seen: NewSeen(seenEvents), at: map[string]place{}}
	if f.Silence == 0 {
		f.Silence = 90 * time.Second
	}
	if f.Told == nil {
		f.Told = func(Notice) {}
	}
	if f.Flush == nil {
		f.Flush = func() error { return nil }
	}
	for s, p := range cfg.From {
		f.at[s] = place{pos: p}
	}
	if cfg.Once {
		_, err := f.connect(ctx)
		if stop := (*stopError)(nil); errors.As(err, &stop) {
			return stop.err
		}
		return err
	}
	retry := f.retry
	if retry == nil {
		retry = func() backoff.BackOff {
			return backoff.NewExponentialBackOff(
				backoff.WithInitialInterval(250*time.Millisecond),
				backoff.WithMaxInterval(cmp.Or(f.MaxWait, 15*time.Second)),
				backoff.WithMaxElapsedTime(0))
		}
	}
	wait := retry()
	for {
		got, err := f.connect(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if stop := (*stopError)(nil); errors.As(err, &stop) {
			return stop.err
		}
		var refused *PermanentError
		if errors.As(err, &refused) {
			return err
		}
		if got {
			wait = retry()
		}
		d := wait.NextBackOff()
		f.Told(Notice{Kind: Lost, Err: err, Wait: d})
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// stopError is an error of the caller's own functions.
type stopError struct{ err error }

func (e *stopError) Error() string { return e.err.Error() }

type follower struct {
	Config
	fn    func(Event) error
	seen  *Seen
	at    map[string]place // by session
	tick  int
	alive func() // something was heard
}

// place is how far a session was followed.
type place struct {
	pos  event.Position
	tick int // when it last moved, to tell the newest sessions
}

// query is what every connection asks for.
func (f *follower) query() url.Values {
	q := url.Values{}
	if f.Filter != "" {
		q.Set("filter", f.Filter)
	}
	if f.Capture != "" {
		q.Set("capture", f.Capture)
	}
	if f.Once {
		q.Set("live", "0")
	}
	return q
}

// from adds where the stream begins.
func (f *follower) from(q url.Values) url.Values {
	switch {
	case f.All:
		// Sessions that began while we were away are named by nobody: all is
		// asked for again, and what was seen is passed over.
		q.Set("from", "all")
	case len(f.at) > 0:
		q.Set("from", string(f.positions()))
	}
	return q
}

// open asks for a stream.
func (f *follower) open(ctx context.Context, q url.Values) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(f.Base, "/")+"/stream?"+q.Encode(), nil)
	if err != nil {
		return nil, &stopError{err}
	}
	req.Header.Set("Accept", "text/event-stream")
	if f.Token != "" {
		req.Header.Set("Authorization", "Bearer "+f.Token)
	}
	resp, err := f.HTTP.Do(req)
	if err != nil {
		return nil, plain(err)
	}
	if err := refusal(resp); err != nil {
		resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// position is one of a from.
type position struct {
	Session string `json:"session"`
	event.Position
}

// catchUp gives what lies behind positions, before the stream goes on: of all
// an endpoint begins with the earliest that it holds, but a position it may
// serve from further back, and if not it says so. told is whether it did.
func (f *follower) catchUp(ctx context.Context, from []byte, inclusive bool) (told bool, err error) {
	q := f.query()
	q.Set("live", "0")
	q.Set("from", string(from))
	if inclusive { // the position itself too, where the endpoint knows the word
		q.Set("inclusive", "1")
	}
	resp, err := f.open(ctx, q)
	if refused := (*PermanentError)(nil); errors.As(err, &refused) {
		return false, nil // the stream that it gave has to do
	}
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	r := NewReader(resp.Body, messageBytes)
	for {
		m, err := r.Next()
		if errors.Is(err, io.EOF) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
		f.alive()
		if m.Data == nil {
			f.comment(m.Comment)
			continue
		}
		h, _, err := event.ParseHeader(m.Data)
		if err != nil {
			f.Told(Notice{Kind: Unreadable, Err: err})
			continue
		}
		if err := f.give(h, m.Data); err != nil {
			return false, err
		}
	}
}

func (f *follower) positions() []byte {
	sessions := make([]string, 0, len(f.at))
	for s := range f.at {
		sessions = append(sessions, s)
	}
	slices.SortFunc(sessions, func(a, b string) int {
		if d := f.at[b].tick - f.at[a].tick; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	entries := []position{}
	for _, s := range sessions[:min(len(sessions), fromSessions)] {
		entries = append(entries, position{s, f.at[s].pos})
	}
	return marshal(entries)
}

func marshal(entries []position) []byte {
	b, err := json.Marshal(entries)
	if err != nil {
		return []byte("[]") // strings and integers: it cannot fail
	}
	return b
}

// connect follows one connection to its end. got says that the endpoint served
// us: the next try may come soon.
func (f *follower) connect(ctx context.Context) (got bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	resp, err := f.open(ctx, f.from(f.query()))
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	silence := time.AfterFunc(f.Silence, func() {
		cancel(fmt.Errorf("nothing was heard for %v", f.Silence))
	})
	defer silence.Stop()
	f.alive = func() { silence.Reset(f.Silence) }
	f.Told(Notice{Kind: Connected})
	r := NewReader(resp.Body, messageBytes)
	here := map[string]bool{} // sessions met on this connection
	dirty := false
	if f.All && !f.Once && len(f.at) > 0 {
		// What we were in the midst of comes first.
		dirty = true
		if _, err := f.catchUp(ctx, f.positions(), false); err != nil {
			return false, f.broke(ctx, err)
		}
	}
	for {
		if dirty && !r.Buffered() {
			dirty = false
			if err := f.Flush(); err != nil {
				return got, &stopError{err}
			}
		}
		m, err := r.Next()
		if err != nil {
			if f.Once && errors.Is(err, io.EOF) && context.Cause(ctx) == nil {
				if err := f.Flush(); err != nil {
					return got, &stopError{err}
				}
				return true, nil
			}
			return got, f.broke(ctx, err)
		}
		got = true
		f.alive()
		if m.Data == nil {
			f.comment(m.Comment)
			continue
		}
		dirty = true
		if err := f.take(ctx, m.Data, here); err != nil {
			return got, f.broke(ctx, err)
		}
	}
}

// broke flushes what was given, and says why a connection ends.
func (f *follower) broke(ctx context.Context, err error) error {
	if stop := (*stopError)(nil); errors.As(err, &stop) {
		return err
	}
	if flushErr := f.Flush(); flushErr != nil {
		return &stopError{flushErr}
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	return plain(err)
}

// plain drops the URL, which may hold a filter of any length, from an error.
func plain(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	if errors.Is(err, io.EOF) {
		return errors.New("the collector ended the stream")
	}
	return err
}

// refusal reads an answer that is no stream.
func refusal(resp *http.Response) error {
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if resp.StatusCode == http.StatusOK && mediaType == "text/event-stream" {
		return nil
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	var p struct{ Error, Detail string }
	_ = json.Unmarshal(body, &p)
	detail := strings.Trim(p.Error+": "+p.Detail, ": ")
	if detail == "" {
		detail = resp.Status
	}
	switch {
	case resp.StatusCode == http.StatusOK:
		return &PermanentError{http.StatusNotFound, "no event stream"}
	case resp.StatusCode >= 500, resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusRequestTimeout:
		return fmt.Errorf("the collector answers %d: %s", resp.StatusCode, detail)
	}
	return &PermanentError{resp.StatusCode, detail}
}

// comment reads the one comment that says something:
// replay-exhausted {session} {epoch}:{seq}.
func (f *follower) comment(text string) {
	rest, ok := strings.CutPrefix(text, "replay-exhausted ")
	if !ok {
		return
	}
	i := strings.LastIndexByte(rest, ' ')
	if i < 0 {
		return
	}
	n := Notice{Kind: Gap, Session: rest[:i]}
	if _, err := fmt.Sscanf(rest[i+1:], "%d:%d", &n.Before.Epoch, &n.Before.Seq); err != nil {
		return
	}
	n.After = f.at[n.Session].pos
	f.Told(n)
}

func (f *follower) take(ctx context.Context, line []byte, here map[string]bool) error {
	h, _, err := event.ParseHeader(line)
	if err != nil {
		f.Told(Notice{Kind: Unreadable, Err: err})
		return nil
	}
	if h.Sequenced && f.All && !here[h.Session] {
		here[h.Session] = true
		if err := f.meet(ctx, &h); err != nil {
			return err
		}
	}
	return f.give(h, line)
}

// meet is called with the first event of a session on a connection. Of all no
// endpoint says what is missing: when that event lies behind where we were, or
// behind the start of a session that is new to us, what is between is asked
// for, and given first.
func (f *follower) meet(ctx context.Context, h *event.Header) error {
	pos := h.Position()
	last, known := f.at[h.Session]
	switch {
	case !known && f.Whole && pos.Seq > 1:
		_, err := f.catchUp(ctx, marshal([]position{{h.Session, event.Position{}}}), true)
		return err
	case known && f.Filter == "" && last.pos.Less(pos) && (pos.Epoch != last.pos.Epoch || pos.Seq != last.pos.Seq+1):
		told, err := f.catchUp(ctx, marshal([]position{{h.Session, last.pos}}), false)
		if err == nil && !told {
			f.Told(Notice{Kind: Gap, Session: h.Session, After: last.pos, Before: pos})
		}
		return err
	}
	return nil
}

// give gives an event on, unless it was given before.
func (f *follower) give(h event.Header, line []byte) error {
	if f.seen.Add(h.Source, h.ID) {
		if err := f.fn(Event{h, line}); err != nil {
			return &stopError{err}
		}
	}
	pos := h.Position()
	if last, known := f.at[h.Session]; h.Sequenced && (!known || last.pos.Less(pos)) {
		f.tick++
		f.at[h.Session] = place{pos, f.tick}
	}
	return nil
}
