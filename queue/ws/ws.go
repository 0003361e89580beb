package ws

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"aep-wrap/event"
	"aep-wrap/queue"
)

// Config is an Emitter's.
type Config struct {
	// URL is the collector's: its base, or its events or socket endpoint
	// itself; http, https, ws or wss. The socket is where the collector's
	// discovery document says, else at {base}/socket.
	URL   string
	Token string // bearer; "" sends none

	// Client carries the requests; nil is one of our own. One with a transport
	// of its own reaches a unix socket. Its redirect policy is replaced: the
	// token goes to no other place.
	Client *http.Client

	// Insecure lets the token go to another host without TLS.
	Insecure bool

	// Agent and Instance are hello's identity.
	Agent, Instance string

	// Capabilities are asked for at each hello. Renew makes a new one.
	Capabilities func() Capabilities

	// OnCommand takes a well-formed command, with the bytes that came, one at a
	// time and never on the connection's own goroutine. Both are its to keep.
	// nil takes none, and declares none whatever Capabilities say.
	OnCommand func(line []byte, h event.Header)

	// OnReconnect is called when a connection has taken the place of an earlier
	// one, on a goroutine of its own: what must be said again goes by Send. It
	// may be nil.
	OnReconnect func()

	// Live says whether a session of the feed is to be claimed after a
	// reconnect; nil is every one that the feed was not told is Done.
	Live func(agent, session string) bool

	// Fallback makes what empties the feed while there is no socket. It is
	// used from Run to its end, one at a time. nil waits for the socket.
	Fallback func(*queue.Feed) (Poster, error)

	MaxEvents int   // of a batch; 1000
	MaxBytes  int64 // of a batch; 1 MiB
	InFlight  int   // batches that wait for their pong; 4

	// The backoff: at once, then from MinWait (500 ms), half as much again each
	// time, with jitter, to MaxWait (30 s). A Retry-After is honoured up to
	// MaxRetryAfter (5 min).
	MinWait, MaxWait, MaxRetryAfter time.Duration

	RetrySocket  time.Duration // between two tries of the socket while events go by POST; 60 s
	RetryRefused time.Duration // between two tries after a refusal for good; 5 min
	Handshake    time.Duration // for discovery and upgrade; 15 s
	Hello        time.Duration // for the other side's hello; 10 s
	PingEvery    time.Duration // on an idle connection; 20 s
	Timeout      time.Duration // without a pong that is due, while nothing goes out either; 20 s
	CloseWait    time.Duration // for an orderly end; 1 s

	Clock Clock // of waits, pings and timeouts; zero is the system's

	Log *slog.Logger
}

// A Poster empties a feed by other means: *post.Emitter is one. Run returns
// with ctx or the feed (nil), or because it is refused for good.
type Poster interface {
	Run(ctx context.Context) error
	Flush(ctx context.Context) error
}

// Clock is time as it is handed in. After calls f once, d from now, on a
// goroutine of its own, unless stop is called before.
type Clock struct {
	Now   func() time.Time
	After func(d time.Duration, f func()) (stop func() bool)
}

// State is what an Emitter is about.
type State string

// The states.
const (
	Connecting State = "connecting" // for the first time
	Connected  State = "connected"  // all is well
	Posting    State = "posting"    // there is no socket now; events go by POST
	Retrying   State = "retrying"   // there is no connection now
	Stopped    State = "stopped"    // there will be none until something is changed
)

// The reasons for which an event is given up, as counted by the feed.
const (
	ReasonTooLarge = "too-large" // more than the collector takes, alone
	ReasonRefused  = "refused"   // the collector calls it invalid
)

// StoppedError says why an Emitter stopped, and what to do.
type StoppedError struct {
	Status int // of the HTTP answer; 0 where the refusal was a frame
	URL    string
	Word   string
}

func (e *StoppedError) Error() string {
	if e.Status != 0 {
		return fmt.Sprintf("collector %s answered %d: %s", e.URL, e.Status, e.Word)
	}
	return fmt.Sprintf("collector %s: %s", e.URL, e.Word)
}

// Stats is a snapshot of an Emitter's counters.
type Stats struct {
	State State
	Word  string // what is the matter, for people; "" when all is well
	Class string // of the last failure, as queue.Class
	Since time.Time

	Events   int64 // acknowledged by a pong
	Batches  int64
	Bytes    int64 // of lines acknowledged
	InFlight int   // batches that wait for their pong now

	Attempts  int64 // to connect
	Failed    int64 // tries, and connections, that came to nothing
	Absent    bool  // at the last try nobody was there
	Hellos    int64 // that came to an agreement
	Returned  int64 // events without a pong when their connection ended: sent again
	Claims    int64 // events sent again to claim their session
	Fallbacks int64 // times that events began to go by POST

	Refused  int64 // events given up as invalid
	TooLarge int64 // events given up as too large

	Commands int64 // handed over
	Busy     int64 // commands turned away because too many waited
	Ignored  int64 // frames that are unknown or not for us, events that are no commands
	Invalid  int64 // messages that are neither
	Sent     int64 // lines of Send
}

// Emitter sends what a feed hands out.
type Emitter struct {
	c        Config
	feed     *queue.Feed
	base     *url.URL
	fixed    bool // base is the socket itself
	url      string
	commands chan command
	out      chan []byte   // of Send
	renew    chan struct{} // end this connection and make another
	hurry    chan struct{} // cuts a wait short

	// Of Run alone.
	wait   *backoff.ExponentialBackOff
	barren int // tries in a row that reached something and came to nothing

	mu       sync.Mutex
	stats    Stats
	limit    int       // of a batch's events
	lost     time.Time // since when nothing gets through, as it was told
	flushing int
	poster   Poster
	halt     *halt
	live     *conn
	done     chan struct{} // closed when Run has ended
}

// halt is where an emitter may stop, once: who waits for that has its reason also
// where the emitter goes on before it is read.
type halt struct {
	came chan struct{}
	why  *StoppedError // the last of it; nil before
}

func newHalt() *halt { return &halt{came: make(chan struct{})} }

type command struct {
	line []byte
	h    event.Header
}

// The bounds of what waits.
const (
	maxCommands = 16
	maxOut      = 64
	maxBarren   = 3 // then the socket is left alone for a while
)

// New checks the configuration. Nothing is sent before Run.
func New(c Config, feed *queue.Feed) (*Emitter, error) {
	u, err := url.Parse(c.URL)
	if err == nil {
		switch u.Scheme {
		case "ws":
			u.Scheme = "http"
		case "wss":
			u.Scheme = "https"
		}
	}
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("collector URL %q: want http://HOST, https://HOST, ws://HOST or wss://HOST", shown(c.URL))
	}
	if c.Token != "" && u.Scheme == "http" && !loopback(u.Hostname()) && !c.Insecure {
		return nil, fmt.Errorf("collector URL %s: a token is not sent to another host without TLS; use https, or plain-http where the network is trusted", shown(c.URL))
	}
	if strings.ContainsAny(c.Token, "\r\n\x00") {
		return nil, errors.New("the token has a line break in it")
	}
	if c.Agent == "" {
		return nil, errors.New("an emitter's hello names its agent")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	fixed := strings.HasSuffix(u.Path, "/socket")
	u.Path = strings.TrimSuffix(u.Path, "/events")
	u.RawPath, u.Fragment = "", ""
	e := &Emitter{
		c: c, feed: feed, base: u, fixed: fixed, url: shown(u.String()),
		commands: make(chan command, maxCommands), out: make(chan []byte, maxOut),
		renew: make(chan struct{}, 1), hurry: make(chan struct{}, 1),
		halt: newHalt(), done: make(chan struct{}),
	}
	d := &e.c
	d.MaxEvents = positive(d.MaxEvents, 1000)
	d.MaxBytes = positive(d.MaxBytes, 1<<20)
	d.InFlight = positive(d.InFlight, 4)
	for v, or := range map[*time.Duration]time.Duration{
		&d.MinWait: 500 * time.Millisecond, &d.MaxWait: 30 * time.Second, &d.MaxRetryAfter: 5 * time.Minute,
		&d.RetrySocket: time.Minute, &d.RetryRefused: 5 * time.Minute,
		&d.Handshake: 15 * time.Second, &d.Hello: 10 * time.Second,
		&d.PingEvery: 20 * time.Second, &d.Timeout: 20 * time.Second, &d.CloseWait: time.Second,
	} {
		*v = positive(*v, or)
	}
	if d.Clock.Now == nil {
		d.Clock.Now = time.Now
	}
	if d.Clock.After == nil {
		d.Clock.After = func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
	}
	if d.Log == nil {
		d.Log = slog.New(slog.DiscardHandler)
	}
	client := http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	if c.Client != nil {
		client = *c.Client
	}
	if client.Transport == nil {
		client.Transport = http.DefaultTransport
	}
	client.Timeout = 0 // of a whole exchange; a socket's is its life
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	d.Client = &client
	e.limit = d.MaxEvents
	e.wait = &backoff.ExponentialBackOff{
		InitialInterval: d.MinWait, MaxInterval: d.MaxWait, Multiplier: 1.5, RandomizationFactor: 0.5,
		Stop: backoff.Stop, Clock: backoff.SystemClock,
	}
	e.wait.Reset()
	e.stats = Stats{State: Connecting, Since: d.Clock.Now()}
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

// shown is a URL for people: without user and query, which may hold secrets.
func shown(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "(unreadable)"
	}
	u.User, u.RawQuery = nil, ""
	return u.String()
}

// URL is where events go, for people.
func (e *Emitter) URL() string { return e.url }

// Run sends until ctx ends or the feed is closed. What was handed out and not
// acknowledged goes back to the feed. It always gives nil: what is refused for
// good is told by Stats and Flush, and asked again later.
func (e *Emitter) Run(ctx context.Context) error {
	defer close(e.done)
	if e.c.Client.Transport != http.DefaultTransport {
		defer e.c.Client.CloseIdleConnections()
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var hands sync.WaitGroup
	defer hands.Wait()
	defer close(e.commands)
	hands.Go(func() {
		for c := range e.commands {
			if ctx.Err() == nil {
				e.c.OnCommand(c.line, c.h)
			}
		}
	})
	var conn *conn
	for {
		from := e.c.Clock.Now()
		var f *fault
		if conn == nil {
			conn, f = e.connect(ctx)
		}
		if conn != nil {
			from = conn.since
			f = e.serve(ctx, conn)
			conn = nil
		}
		if ctx.Err() != nil || f.what == over {
			return nil
		}
		if e.isolate(f); e.leave(f) {
			if conn = e.postInstead(ctx, f); conn == nil {
				return nil
			}
			continue
		}
		e.pause(ctx, e.delay(f, from))
	}
}

// leave says whether the socket is to be left for POST.
func (e *Emitter) leave(f *fault) bool {
	return e.c.Fallback != nil && (f.what == noSocket || f.what == later && e.barren >= maxBarren)
}

// isolate reads what a connection's end says about its events. A batch that a
// connection did not outlive is sent in smaller parts, so that one on which
// little gets through gets something through, and so that an event that kills
// every connection is at last alone.
func (e *Emitter) isolate(f *fault) {
	switch {
	case f.progress:
		e.barren = 0
	case f.what == later && !f.absent:
		e.barren++
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case f.tooBig:
		e.limit = 1
	case f.unacked > 0 && !f.progress:
		e.limit = max(1, e.limit/8)
	}
}

// delay is how long to wait before the next try, and tells why.
func (e *Emitter) delay(f *fault, from time.Time) time.Duration {
	if f.what == never || f.what == noSocket && f.final {
		e.stop(f)
		d := e.c.RetryRefused
		return d - d/10 + rand.N(d/5+1)
	}
	var d time.Duration
	if f.progress { // at once, but not in a circle
		e.wait.Reset()
		d = max(0, e.c.MinWait-e.c.Clock.Now().Sub(from))
	} else {
		d = min(e.wait.NextBackOff(), e.c.MaxWait)
	}
	d = max(d, min(f.after, e.c.MaxRetryAfter))
	if !f.ours {
		e.trouble(Retrying, f, d)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if !f.progress {
		e.stats.Failed++
	}
	e.stats.Absent = f.absent
	if e.flushing > 0 {
		d = min(d, e.c.MinWait/10)
	}
	return d
}

// pause waits by the clock, until Flush is in a hurry.
func (e *Emitter) pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	c := make(chan struct{})
	defer e.c.Clock.After(d, func() { close(c) })()
	select {
	case <-c:
	case <-e.hurry:
	case <-e.renew:
	case <-ctx.Done():
	}
}

// postInstead has events go by POST until the socket works again; then it
// gives its connection. It gives nil when ctx or the feed has ended.
func (e *Emitter) postInstead(ctx context.Context, why *fault) *conn {
	e.count(func(s *Stats) { s.Failed++; s.Fallbacks++ })
	e.c.Log.Warn("events go by POST; the socket is tried again later", "url", e.url, "error", why.word, "every", e.c.RetrySocket)
	pctx, cancel := context.WithCancel(ctx)
	var hands sync.WaitGroup
	defer hands.Wait()
	defer cancel()
	ended := make(chan error, 1)
	begin := func() bool {
		p, err := e.c.Fallback(e.feed)
		if err != nil {
			e.stop(&fault{word: err.Error(), err: err, final: true})
			return false
		}
		e.trouble(Posting, why, e.c.RetrySocket)
		e.mu.Lock()
		e.poster = p
		again := e.flushing > 0
		e.mu.Unlock()
		if again {
			hands.Go(func() { _ = p.Flush(pctx) })
		}
		hands.Go(func() { ended <- p.Run(pctx) })
		return true
	}
	running := begin()
	defer func() {
		e.mu.Lock()
		e.poster = nil
		e.mu.Unlock()
	}()
	e.barren = maxBarren - 1 // a socket that disappointed has one more try, not three
	wait := e.c.RetrySocket
	for {
		due := make(chan struct{})
		disarm := e.c.Clock.After(wait, func() { close(due) })
		select {
		case <-ctx.Done():
			disarm()
			return nil
		case err := <-ended:
			disarm()
			running = false
			if err == nil {
				return nil // the feed is closed, or ctx ends
			}
			// POST is refused too, for good.
			e.stop(&fault{word: err.Error(), err: err, final: true})
			wait = e.c.RetryRefused
			continue
		case <-e.renew:
			disarm()
		case <-due:
		}
		c, f := e.connect(ctx)
		switch {
		case c != nil:
			return c // once what POST has under way went back to the feed
		case ctx.Err() != nil:
			return nil
		case running || f.what == never:
			e.missed(f)
		default:
			why, running = f, begin() // something has changed; POST may work again
			wait = e.c.RetrySocket
		}
	}
}

// Flush waits until everything offered was acknowledged, without waiting out a
// backoff. It gives up with ctx, and at once where the emitter has stopped: that
// is asked again when its time has come, and no sooner.
func (e *Emitter) Flush(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e.mu.Lock()
	halt, p := e.halt, e.poster
	e.flushing++
	if halt.why == nil {
		signal(e.hurry)
	}
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.flushing--
		e.mu.Unlock()
	}()
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	if p != nil {
		wait.Go(func() { _ = p.Flush(ctx) }) // in a hurry too
	}
	wait.Go(func() {
		select {
		case <-e.done:
			cancel()
		case <-halt.came:
			cancel()
		case <-ctx.Done():
		}
	})
	err := e.feed.Drained(ctx)
	e.mu.Lock()
	defer e.mu.Unlock()
	if err != nil && halt.why != nil {
		return halt.why
	}
	return err
}

// Send puts a line on the connection beside the feed: an acknowledgement that
// is sent again (AEP-0004 §3), a frame that refuses a command. It passes by the
// log. Without a connection, or when too much waits, it says false and the line
// is gone: whoever asked for it asks again.
func (e *Emitter) Send(line []byte) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.live == nil {
		return false
	}
	select {
	case e.out <- append([]byte(nil), line...):
		e.stats.Sent++
		return true
	default:
		return false
	}
}

// Renew ends the connection in good order and makes another, whose hello
// declares what is so now.
func (e *Emitter) Renew() { signal(e.renew) }

// Stats gives the counters.
func (e *Emitter) Stats() Stats {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.stats
	if e.live != nil {
		s.InFlight = e.live.waiting()
	}
	return s
}

func (e *Emitter) count(f func(*Stats)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	f(&e.stats)
}

func (e *Emitter) giveUp(it queue.Item, reason, detail string) {
	e.c.Log.Warn("the collector will not have an event; it stays in the log", "url", e.url, "id", it.ID, "session", it.Session, "bytes", len(it.Line), "reason", reason, "detail", detail)
	e.feed.Drop(it, reason)
}

// stop notes that asking again cannot help.
func (e *Emitter) stop(f *fault) {
	e.mu.Lock()
	defer e.mu.Unlock()
	err := &StoppedError{Status: f.status, URL: e.url, Word: f.word}
	if e.halt.why == nil {
		close(e.halt.came)
		select {
		case <-e.hurry: // whoever was in a hurry gives up
		default:
		}
		e.stats.Since = e.c.Clock.Now()
		e.c.Log.Error("the collector refuses for good; events stay in the log", "error", err, "again", e.c.RetryRefused)
	}
	e.halt.why = err
	e.stats.State, e.stats.Word, e.stats.Class = Stopped, err.Error(), queue.Class(f.err, f.status)
}

// resume takes back what stop noted. Under mu.
func (e *Emitter) resume() {
	if e.halt.why != nil {
		e.halt = newHalt()
	}
}

// trouble notes why there is no connection; it is told once, until events get
// through again.
func (e *Emitter) trouble(s State, f *fault, wait time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.resume()
	if e.stats.State != s {
		e.stats.State, e.stats.Since = s, e.c.Clock.Now()
	}
	e.stats.Word, e.stats.Class = f.word, queue.Class(f.err, f.status)
	if s == Retrying && e.lost.IsZero() {
		e.lost = e.c.Clock.Now()
		e.c.Log.Warn("there is no connection to the collector; events stay in the log and are sent later", "url", e.url, "error", f.word, "wait", wait)
	}
}

// missed notes that there is still no socket, and why now.
func (e *Emitter) missed(f *fault) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Failed++
	if e.stats.State == Posting {
		e.stats.Word, e.stats.Class = f.word, queue.Class(f.err, f.status)
	}
}

// connected notes that the two have agreed.
func (e *Emitter) connected(c *conn) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.resume()
	e.live = c
	e.stats.Hellos++
	if e.stats.Hellos > 1 && e.c.OnReconnect != nil {
		go e.c.OnReconnect()
	}
	if e.stats.State != Connected {
		e.stats.State, e.stats.Word, e.stats.Since = Connected, "", e.c.Clock.Now()
	}
}

// success notes that a batch was taken in, for which its pong let wait so long.
// Batches grow again only where one of twice the size would be answered in time.
func (e *Emitter) success(events int, bytes int64, waited time.Duration) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stats.Batches++
	e.stats.Events += int64(events)
	e.stats.Bytes += bytes
	if twice := int64(e.limit) * 2; int64(waited)/int64(events)*twice <= int64(e.c.Timeout) {
		e.limit = min(e.limit*2, e.c.MaxEvents)
	}
	if !e.lost.IsZero() {
		e.c.Log.Info("the collector takes events in again", "url", e.url, "after", e.c.Clock.Now().Sub(e.lost).Round(time.Millisecond))
		e.lost = time.Time{}
	}
}

// size is how many events a batch may have now.
func (e *Emitter) size() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.limit
}
