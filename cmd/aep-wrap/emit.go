package main

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/control"
	"aep-wrap/event"
	"aep-wrap/queue"
	"aep-wrap/queue/jsonl"
	"aep-wrap/queue/post"
	"aep-wrap/queue/ws"
)

// sink is where a launch's events go beyond the log: a feed, the socket that
// empties it, and POST where there is no socket. It is an agent.Sink.
type sink struct {
	*queue.Feed
	socket *ws.Emitter
	name   string      // of the saved positions
	target post.Config // the same collector by POST
	joiner *joiner     // to the per-user collector; nil where another is configured
	logged func() bool // a log holds everything that was offered
	// patience is how long the end waits for a collector that takes events in.
	patience time.Duration
	stop     func()        // ends what start started
	done     chan struct{} // closed when it has ended

	mu     sync.Mutex
	poster *post.Emitter // of now, or the last
	posted post.Stats    // what the posters before have counted
}

// pace is how many events a second are sent of a log that is behind: less than
// what a consumer on a busy machine writes to a disk, for one that falls behind
// by more than the collector holds of a session has lost the difference.
const pace = 4000

// saveEvery is how often positions are saved: what was sent since then is sent
// again by whoever comes after a crash.
const saveEvery = 250 * time.Millisecond

// lastWord is how long a collector that took nothing for long is given at the
// end. What it does not take the log holds.
const lastWord = 100 * time.Millisecond

// makeSink makes the emitter to the configured collector, or to the per-user
// one, which is started when it does not run. Nothing is sent before start.
func (l *launch) makeSink() error {
	a := l.app
	perUser := a.cfg.Collector == ""
	if perUser && a.cfg.Listen == off {
		return nil
	}
	c := ws.Config{Agent: l.name, Capabilities: l.capabilities, Log: l.log}
	if l.target != nil {
		c.OnCommand, c.OnReconnect = l.command, l.pendingAgain
	}
	s, err := a.newSocketSink(c, func(line string) { l.trouble("%s", line) })
	if err != nil {
		return err
	}
	s.logged = func() bool { return l.logDir != "" && l.road.Stats().Unlogged == 0 }
	l.sink = s
	return nil
}

// newSocketSink makes a sink to the configured collector; c says who sends, and
// what is done with commands.
func (a *app) newSocketSink(c ws.Config, note func(string)) (*sink, error) {
	s := &sink{name: a.sinkName(), done: make(chan struct{}), patience: flushTime}
	if a.cfg.Collector == "" {
		s.joiner = a.newJoiner(note)
	}
	s.target = a.postTo(s.joiner, c.Log)
	s.Feed = queue.NewFeed(queue.Options{Sink: s.name, Pace: pace, SaveEvery: saveEvery, Log: c.Log})
	c.URL, c.Token, c.Client, c.MinWait = s.target.URL, s.target.Token, s.target.Client, s.target.MinWait
	c.Insecure, c.Instance, c.Fallback = s.target.Insecure, instance(), s.fallback
	var err error
	if s.socket, err = ws.New(c, s.Feed); err != nil {
		return nil, usageError("--collector: %w", err)
	}
	return s, nil
}

// postConfig is how the configured collector is reached by POST.
func (a *app) postConfig(log *slog.Logger, note func(string)) post.Config {
	return a.postTo(a.newJoiner(note), log)
}

// postTo is how the configured collector is reached by POST, or the per-user one
// by what joins it.
func (a *app) postTo(j *joiner, log *slog.Logger) post.Config {
	e := a.endpoint()
	c := post.Config{URL: e.Base, Token: e.Token, Insecure: a.cfg.PlainHTTP, Log: log}
	if a.cfg.Collector == "" {
		c.Client, c.MinWait = j.client(), 50*time.Millisecond
	} else {
		c.Client = e.client()
	}
	c.Client = a.tokens.over(c.Client)
	return c
}

// sinkName names the saved positions of the configured collector, beside the
// logs.
func (a *app) sinkName() string {
	if a.cfg.Collector == "" {
		return "local"
	}
	_, host, _ := strings.Cut(a.cfg.Collector, "://")
	return jsonl.SafeName(host)
}

// instance tells this process from others of the same agent.
func instance() string { return fmt.Sprintf("%s/%d", hostname(), os.Getpid()) }

func hostname() string {
	if host, err := os.Hostname(); err == nil && host != "" {
		return host
	}
	return "localhost"
}

// start begins to send, beside the agent's own start. It is called once at
// most, and only for a launch that has a session to tell of: reaching the
// per-user collector starts it.
func (s *sink) start() {
	ctx, cancel := context.WithCancel(context.Background())
	s.stop = cancel
	go func() {
		defer close(s.done)
		_ = s.socket.Run(ctx) // what it cannot do it has logged, and Stats tells
	}()
}

// close ends the sending, and saves how far it came.
func (s *sink) close() error {
	if s.stop != nil {
		s.stop()
		<-s.done
	}
	return s.Feed.Close()
}

// fallback makes what sends by POST while there is no socket.
func (s *sink) fallback(f *queue.Feed) (ws.Poster, error) {
	p, err := post.New(s.target, f)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.poster != nil {
		s.posted = both(s.posted, s.poster.Stats())
	}
	s.poster = p
	return p, nil
}

// both adds up the counters of two posters, the second being of now.
func both(a, b post.Stats) post.Stats {
	b.Events += a.Events
	b.Bytes += a.Bytes
	b.Attempts += a.Attempts
	b.Retries += a.Retries
	b.Refused += a.Refused
	b.TooLarge += a.TooLarge
	return b
}

// way is how it stands: the socket, or POST while there is none.
func (s *sink) way(agent string) way {
	st := s.socket.Stats()
	w := way{kind: bySocket, agent: agent, by: bySocket, queue: s.Feed.Stats(), waiting: s.Waiting(), state: string(st.State), since: st.Since, word: st.Word, class: st.Class}
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.posted
	if s.poster != nil {
		p = both(p, s.poster.Stats())
	}
	w.events, w.bytes, w.attempts, w.failed = st.Events+p.Events, st.Bytes+p.Bytes, st.Attempts+p.Attempts, st.Failed+p.Retries
	w.refused = refusals(st.Refused+p.Refused, st.TooLarge+p.TooLarge)
	switch {
	case st.State == ws.Stopped:
		w.by = ""
	case st.State == ws.Posting && s.poster != nil:
		w.by, w.noSocket, w.word, w.class = byPost, st.Word, p.Word, cmp.Or(p.Class, st.Class)
		if p.State != post.Idle {
			w.state = string(p.State)
		}
		if p.Since.After(w.since) {
			w.since = p.Since
		}
		if p.State == post.Stopped { // the socket is to hear of it yet
			w.by, w.noSocket = "", ""
		}
	}
	return w
}

// failed counts the tries that came to nothing, and says whether that is how
// it stands: nobody is there, or POST, the last resort, fails too.
func (s *sink) failed() (tries int64, down bool) {
	w := s.way("")
	return w.failed, w.state == string(ws.Retrying) && (w.by == byPost || s.socket.Stats().Absent)
}

// Flush waits until everything has arrived, as long as that is to be expected.
// Where the log holds everything, the time that the collector took nothing in
// counts as waited already, and one that could not be reached has one more try;
// so has, log or no log, one that cannot be started.
func (s *sink) Flush(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	logged := s.logged()
	if logged {
		ctx, cancel = context.WithTimeout(ctx, max(s.patience-s.Waiting(), lastWord))
		defer cancel()
	}
	before, _ := s.failed()
	hopeless := s.hopeless()
	go func() {
		tick := time.NewTicker(2 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-tick.C:
				if tries, down := s.failed(); logged && down && tries > before || s.hopeless() > hopeless {
					cancel()
				}
			}
		}
	}()
	return s.socket.Flush(ctx)
}

// hopeless counts the tries that failed because no collector can be started.
func (s *sink) hopeless() int {
	if s.joiner == nil {
		return 0
	}
	return s.joiner.hopeless()
}

// word says why not everything arrived.
func (s *sink) word() string { return whyUnsent(s.way("").word) }

// whyUnsent says why not everything arrived, by the last word of the collector.
func whyUnsent(word string) string {
	switch {
	case word == "":
		return "the collector did not take them in time"
	case strings.HasPrefix(word, "collector "): // it names the address itself
		return word
	}
	return "from the collector: " + word
}

// lost says what will never arrive, "" where that is nothing.
func (s *sink) lost() string {
	n := int64(0)
	var reasons []string
	for d, c := range s.Stats().Dropped {
		n += c
		if !slices.Contains(reasons, d.Reason) {
			reasons = append(reasons, d.Reason)
		}
	}
	if n == 0 {
		return ""
	}
	slices.Sort(reasons)
	return fmt.Sprintf("%d events did not reach the collector and never will: %s", n, strings.Join(reasons, ", "))
}

// ---- what hello declares

// capabilities are what this launch can do, as it is now.
func (l *launch) capabilities() ws.Capabilities {
	var accepts []string
	if l.target != nil {
		accepts = l.target.Accepts()
	}
	return l.app.capabilities(accepts, l.adapter)
}

// capabilities are what hello declares of agents that accept these commands.
func (a *app) capabilities(accepts []string, of ...adapters.Adapter) ws.Capabilities {
	c := &a.cfg
	top := c.Capture
	for _, level := range c.CaptureFor {
		top = max(top, level)
	}
	caps := ws.Capabilities{Control: &ws.Control{Accepts: []string{}}}
	for level := event.None; level <= top; level++ {
		caps.Capture = append(caps.Capture, level.String())
	}
	for _, category := range emits(of...) {
		if !slices.Contains(experimental, category) {
			caps.Emits = append(caps.Emits, category)
			continue
		}
		if caps.Experimental == nil {
			caps.Experimental = map[string]any{}
		}
		caps.Experimental[category] = true
	}
	if accepts != nil {
		caps.Control = &ws.Control{Accepts: accepts, AckWindowMS: control.DefaultWindow.Milliseconds()}
	}
	return caps
}

// experimental are the categories that the protocol has not settled
// (AEP-0002 §2).
var experimental = []string{"assessment", "resource"}

// emits are the categories of the events that launches of adapters can give: those of its vocabulary, what the session adds, and what the wrapper
// tells of itself. A program that writes drafts of its own may give any.
func emits(of ...adapters.Adapter) []string {
	out := []string{"session", "x"}
	add := func(typ string) {
		if info, ok := event.Lookup(typ); ok && (info.Status == event.Reserved || event.ScopeOf(typ) == event.CommandScope) {
			return
		}
		if c := event.Category(typ); c != "" && c != "control" && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	for _, ad := range of {
		for _, t := range ad.Vocabulary() {
			add(t.Emits)
			if t.Channel == adapters.Drafts {
				for _, typ := range event.Types() {
					add(typ)
				}
			}
		}
	}
	slices.Sort(out)
	return out
}
