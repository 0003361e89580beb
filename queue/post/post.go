package post

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"aep-wrap/event"
	"aep-wrap/queue"
)

// Config is an Emitter's.
type Config struct {
	// URL is the collector's: its base, or its events endpoint itself.
	URL   string
	Token string // bearer; "" sends none

	// Client carries the requests; nil is one of our own. Its redirect policy
	// is replaced: events and the token go to no other place.
	Client *http.Client

	// Insecure lets the token go to another host without TLS.
	Insecure bool

	Gzip      bool
	MaxEvents int           // of a batch; 1000
	MaxBytes  int64         // of a batch; 1 MiB
	Timeout   time.Duration // of a request; 30 s

	// The backoff: from MinWait (500 ms), half as much again each time, with
	// jitter, to MaxWait (30 s). A Retry-After longer than that is honoured up
	// to MaxRetryAfter (5 min).
	MinWait, MaxWait, MaxRetryAfter time.Duration

	Log *slog.Logger
}

// State is what an Emitter is about.
type State string

// The states.
const (
	Idle     State = "idle"     // nothing to send, or all is well
	Retrying State = "retrying" // the collector does not take events in now
	Stopped  State = "stopped"  // it never will, until something is changed
)

// The reasons for which an event is given up, as counted by the feed.
const (
	ReasonTooLarge = "too-large" // more than the collector takes, alone
	ReasonRefused  = "refused"   // the collector calls it invalid
)

// StoppedError says why an Emitter stopped, and what to do.
type StoppedError struct {
	Status int
	URL    string
	Word   string
}

// Class is queue.Class of it.
func (e *StoppedError) Class() string { return queue.Class(nil, e.Status) }

func (e *StoppedError) Error() string {
	return fmt.Sprintf("collector %s answered %d: %s", e.URL, e.Status, e.Word)
}

// Stats is a snapshot of an Emitter's counters.
type Stats struct {
	State    State
	Word     string // what is the matter, for people; "" when all is well
	Class    string // of the last failure, as queue.Class
	Since    time.Time
	Events   int64 // taken in
	Batches  int64
	Bytes    int64 // of bodies taken in, as sent
	Attempts int64
	Retries  int64
	Refused  int64 // given up as invalid
	TooLarge int64 // given up as too large
}

// Emitter sends what a feed hands out.
type Emitter struct {
	c    Config
	feed *queue.Feed
	url  string // for people: without user and query
	post string

	hurry chan struct{} // cuts a wait short

	mu      sync.Mutex
	stats   Stats
	limit   int64 // of a batch's bytes, as learnt from 413
	stopped *StoppedError
	done    chan struct{} // closed when Run has stopped
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 64 << 10

// New checks the configuration. Nothing is sent before Run.
func New(c Config, feed *queue.Feed) (*Emitter, error) {
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("collector URL %q: want http://HOST or https://HOST, with or without /events", c.URL)
	}
	if c.Token != "" && u.Scheme == "http" && !loopback(u.Hostname()) && !c.Insecure {
		return nil, fmt.Errorf("collector URL %s: a token is not sent to another host without TLS; use https, or plain-http where the network is trusted", c.URL)
	}
	if strings.ContainsAny(c.Token, "\r\n\x00") {
		return nil, errors.New("the token has a line break in it")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	if !strings.HasSuffix(u.Path, "/events") {
		u.Path += "/events"
	}
	u.RawPath, u.Fragment = "", ""
	e := &Emitter{c: c, feed: feed, post: u.String(), hurry: make(chan struct{}, 1), done: make(chan struct{})}
	shown := *u
	shown.User, shown.RawQuery = nil, ""
	e.url = shown.String()
	d := &e.c
	d.MaxEvents = positive(d.MaxEvents, 1000)
	d.MaxBytes = positive(d.MaxBytes, 1<<20)
	d.Timeout = positive(d.Timeout, 30*time.Second)
	d.MinWait = positive(d.MinWait, 500*time.Millisecond)
	d.MaxWait = positive(d.MaxWait, 30*time.Second)
	d.MaxRetryAfter = positive(d.MaxRetryAfter, 5*time.Minute)
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	client := http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	if c.Client != nil {
		client = *c.Client
	}
	client.CheckRedirect = sameOrigin
	d.Client = &client
	e.limit = d.MaxBytes
	e.stats = Stats{State: Idle, Since: time.Now()}
	return e, nil
}

func positive[T int | int64 | time.Duration](v, or T) T {
	if v <= 0 {
		return or
	}
	return v
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// sameOrigin follows a redirect that keeps method, body and place; any other
// is an answer, and a refusal.
func sameOrigin(next *http.Request, via []*http.Request) error {
	first := via[0].URL
	if len(via) > 3 || next.Method != http.MethodPost || next.URL.Scheme != first.Scheme || next.URL.Host != first.Host {
		return http.ErrUseLastResponse
	}
	return nil
}

// Run sends until ctx ends (nil), the feed is closed (nil), or the collector
// refuses for good (a *StoppedError). What was handed out and not taken in
// goes back to the feed.
func (e *Emitter) Run(ctx context.Context) error {
	defer close(e.done)
	if e.c.Client.Transport != nil {
		defer e.c.Client.CloseIdleConnections()
	}
	for {
		b, err := e.feed.Next(ctx, e.c.MaxEvents, e.size())
		if err != nil {
			return nil // ctx or feed: both are ends, not faults
		}
		if err := e.send(ctx, b.Items); err != nil {
			e.feed.Nack(b)
			if stop := (*StoppedError)(nil); errors.As(err, &stop) {
				e.stop(stop)
				return stop
			}
			return nil
		}
		if err := e.feed.Ack(b); err != nil {
			return err
		}
	}
}

// Flush waits until everything offered was taken in, without waiting out a
// backoff. It gives up with ctx, and at once where the emitter has stopped.
func (e *Emitter) Flush(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	select {
	case e.hurry <- struct{}{}:
	default:
	}
	go func() {
		select {
		case <-e.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	err := e.feed.Drained(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && e.stopped != nil {
		return e.stopped
	}
	return err
}

// Stats gives the counters.
func (e *Emitter) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.stats
}

// URL is where events go, for people.
func (e *Emitter) URL() string { return e.url }

func (e *Emitter) size() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.limit
}

func (e *Emitter) stop(err *StoppedError) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stopped = err
	e.stats.State, e.stats.Word, e.stats.Class, e.stats.Since = Stopped, err.Error(), err.Class(), time.Now()
	e.c.Log.Error("the collector refuses for good; events stay in the log", "error", err)
}

// trouble notes why events wait; the same word is told once.
func (e *Emitter) trouble(a *answer, wait time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Retries++
	if e.stats.State != Retrying {
		e.stats.State, e.stats.Since = Retrying, time.Now()
		e.c.Log.Warn("the collector does not take events in; they stay in the log and are sent later", "url", e.url, "error", a.detail, "wait", wait)
	}
	e.stats.Word, e.stats.Class = a.detail, queue.Class(a.err, a.status)
}

func (e *Emitter) success(events, bytes int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Events += int64(events)
	e.stats.Bytes += int64(bytes)
	e.stats.Batches++
	if e.stats.State != Idle {
		e.c.Log.Info("the collector takes events in again", "url", e.url, "after", time.Since(e.stats.Since).Round(time.Millisecond))
		e.stats.State, e.stats.Word, e.stats.Since = Idle, "", time.Now()
	}
	// What a 413 taught is doubted slowly: the limit may have been a proxy's.
	if e.limit < e.c.MaxBytes {
		e.limit = min(e.limit+e.limit/16+1, e.c.MaxBytes)
	}
}

// send sends items in one request, or in parts where the collector wants so.
// It comes back when all were taken in or given up, or with a reason to end.
func (e *Emitter) send(ctx context.Context, items []queue.Item) error {
	for len(items) > 0 {
		a, n, err := e.deliver(ctx, items)
		if err != nil {
			return err
		}
		switch {
		case a.what == taken:
			e.success(len(items), n)
			return nil
		case len(items) == 1:
			e.giveUp(items[0], a)
			return nil
		case a.what == tooLarge:
			e.mu.Lock()
			e.limit = max(int64(len(encode(items)))/2, 1)
			e.mu.Unlock()
			fallthrough
		default:
			// The line that was named is set apart, not believed: it is given
			// up only when it is refused alone. The others go in order.
			cut := len(items) / 2
			if a.what == refused && a.line >= 0 && a.line < len(items) {
				cut = max(a.line, 1)
				if a.line == 0 {
					if err := e.send(ctx, items[:1]); err != nil {
						return err
					}
					items = items[1:]
					continue
				}
			}
			if err := e.send(ctx, items[:cut]); err != nil {
				return err
			}
			items = items[cut:]
		}
	}
	return nil
}

func (e *Emitter) giveUp(it queue.Item, a answer) {
	reason := ReasonRefused
	e.mu.Lock()
	if a.what == tooLarge {
		reason = ReasonTooLarge
		e.stats.TooLarge++
	} else {
		e.stats.Refused++
	}
	e.mu.Unlock()
	e.c.Log.Warn("the collector will not have an event; it stays in the log", "url", e.url, "id", it.ID, "session", it.Session, "bytes", len(it.Line), "reason", reason, "detail", a.detail)
	e.feed.Drop(it, reason)
}

// deliver sends items until the collector has an answer that is about them.
func (e *Emitter) deliver(ctx context.Context, items []queue.Item) (answer, int, error) {
	body := encode(items)
	wait := &backoff.ExponentialBackOff{
		InitialInterval: e.c.MinWait, MaxInterval: e.c.MaxWait, Multiplier: 1.5, RandomizationFactor: 0.5,
		Stop: backoff.Stop, Clock: backoff.SystemClock,
	}
	wait.Reset()
	zip := e.c.Gzip
	for {
		sent := body
		if zip {
			sent = compress(body)
		}
		a := e.attempt(ctx, sent, zip)
		switch {
		case ctx.Err() != nil && a.what == later:
			return a, 0, ctx.Err()
		case a.what == never && a.status == http.StatusUnsupportedMediaType && zip:
			zip, e.c.Gzip = false, false
			continue
		case a.what == never:
			return a, 0, &StoppedError{Status: a.status, URL: e.url, Word: a.detail}
		case a.what != later:
			return a, len(sent), nil
		}
		d := max(wait.NextBackOff(), min(a.after, e.c.MaxRetryAfter))
		e.trouble(&a, d)
		t := time.NewTimer(d)
		select {
		case <-t.C:
		case <-e.hurry:
		case <-ctx.Done():
		}
		t.Stop()
		if ctx.Err() != nil {
			return a, 0, ctx.Err()
		}
	}
}

func encode(items []queue.Item) []byte {
	n := 0
	for i := range items {
		n += len(items[i].Line) + 1
	}
	body := make([]byte, 0, n)
	for i := range items {
		body = append(append(body, items[i].Line...), '\n')
	}
	return body
}

func compress(body []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(body)
	_ = w.Close()
	return b.Bytes()
}

// answer is what a request came to.
type answer struct {
	what   verdict
	status int
	detail string        // for people
	after  time.Duration // later: as the collector asks
	line   int           // refused: the first failing line, from 0; -1 where it is not said
	err    error         // where there was none, or not all of one
}

type verdict uint8

const (
	taken    verdict = iota
	later            // send the same again
	tooLarge         // send less
	refused          // some line is invalid
	never            // nothing will be taken in
)

// verdicts is what a status means. One that is not here is waited out: the
// collector may be behind something that is being set up.
var verdicts = map[int]struct {
	what verdict
	word string
}{
	http.StatusOK:                    {taken, ""},
	http.StatusCreated:               {taken, ""},
	http.StatusAccepted:              {taken, ""},
	http.StatusNoContent:             {taken, ""},
	http.StatusMultiStatus:           {refused, "some lines were not taken in"},
	http.StatusBadRequest:            {refused, "an event is invalid"},
	http.StatusUnprocessableEntity:   {refused, "an event is invalid"},
	http.StatusRequestEntityTooLarge: {tooLarge, "the batch is too large"},
	http.StatusUnauthorized:          {never, "the token is missing or wrong; give the collector's token with --token, --token-file or AEP_TOKEN"},
	http.StatusForbidden:             {never, "this token may not send events; ask for one that may emit"},
	http.StatusUpgradeRequired:       {never, "it does not speak AEP " + event.Version + "; use a collector, or an aep-wrap, of the other's version"},
	http.StatusUnsupportedMediaType:  {never, "it does not take application/x-ndjson; is this an AEP collector?"},
	http.StatusMovedPermanently:      {never, "it moved"},
	http.StatusFound:                 {never, "it moved"},
	http.StatusSeeOther:              {never, "it moved"},
	http.StatusTemporaryRedirect:     {never, "it moved"},
	http.StatusPermanentRedirect:     {never, "it moved"},
}

func (e *Emitter) attempt(ctx context.Context, body []byte, zip bool) answer {
	e.mu.Lock()
	e.stats.Attempts++
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, e.c.Timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.post, bytes.NewReader(body))
	if err != nil {
		return answer{what: later, detail: err.Error(), err: err}
	}
	req.Header.Set("Content-Type", "application/x-ndjson")
	req.Header.Set("AEP-Version", event.Version)
	req.Header.Set("User-Agent", "aep-wrap")
	if e.c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+e.c.Token)
	}
	if zip {
		req.Header.Set("Content-Encoding", "gzip")
	}
	resp, err := e.c.Client.Do(req)
	if err != nil {
		return answer{what: later, detail: plain(err), err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	v, known := verdicts[resp.StatusCode]
	a := answer{what: v.what, status: resp.StatusCode, detail: v.word, line: -1}
	switch {
	case !known:
		a.what, a.detail = later, "it answered "+resp.Status
		a.after = retryAfter(resp.Header.Get("Retry-After"), time.Now())
	case a.what == taken && err != nil:
		a.what, a.detail, a.err = later, plain(err), err
	case a.what == taken && page(resp.Header):
		a.what, a.detail = later, "it answered with a web page; is this an AEP collector?"
	case a.what == refused:
		a.line = failingLine(text)
		a.detail += said(text)
		if resp.StatusCode == http.StatusMultiStatus && !bytes.Contains(text, []byte(`"error"`)) {
			a.what = taken
		}
	case a.what == never && resp.StatusCode/100 == 3:
		a.detail = "it moved to " + strconv.QuoteToGraphic(resp.Header.Get("Location")) + "; give that address if you trust it"
	}
	return a
}

// plain is an error of the client without the URL, which may hold secrets.
func plain(err error) string {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		if u.Timeout() {
			return "no answer in time"
		}
		err = u.Err
	}
	if strings.Contains(err.Error(), "readLoopPeekFailLocked") { // net/http's word for bytes that nobody asked for
		return "it answered with something that is not HTTP"
	}
	return err.Error()
}

func page(h http.Header) bool {
	t, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return t == "text/html"
}

// retryAfter reads the header: seconds, or a date.
func retryAfter(v string, now time.Time) time.Duration {
	v = strings.TrimSpace(v)
	if v == "" {
		return 0
	}
	if s, err := strconv.ParseInt(v, 10, 32); err == nil {
		return time.Duration(max(s, 0)) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}

// failingLine is the first failing line as the answer names it, from 0.
func failingLine(body []byte) int {
	type place struct {
		Index *int `json:"index"`
		Line  *int `json:"line"`
	}
	var a struct {
		place
		Detail json.RawMessage `json:"detail"`
	}
	if json.Unmarshal(body, &a) != nil {
		return -1
	}
	in := place{}
	_ = json.Unmarshal(a.Detail, &in)
	for _, p := range []place{a.place, in} {
		switch {
		case p.Index != nil && *p.Index >= 0:
			return *p.Index
		case p.Line != nil && *p.Line >= 1:
			return *p.Line - 1
		}
	}
	return -1
}

// said is what an answer says for people, in a short quote.
func said(body []byte) string {
	var a struct {
		Error  any `json:"error"`
		Detail any `json:"detail"`
	}
	if json.Unmarshal(body, &a) != nil || a.Error == nil && a.Detail == nil {
		return ""
	}
	s := fmt.Sprint(a.Error)
	if a.Detail != nil {
		s = fmt.Sprint(s, ": ", a.Detail)
	}
	return " (" + strconv.QuoteToGraphic(s[:min(len(s), 300)]) + ")"
}
