package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/agent"
	"aep-wrap/control"
	"aep-wrap/event"
	"aep-wrap/queue"
	"aep-wrap/queue/jsonl"
	"aep-wrap/queue/ws"
)

// watchSinks send on what a watch tells. Sessions that can take commands go by
// a socket of their agent's, which claims them; all others go by POST, which
// claims none, since nobody here could carry a command out.
type watchSinks struct {
	w          *watching
	candidates []adapters.Adapter
	takes      map[string][]string // types of commands, by adapter
	post       *sender             // nil where nothing is sent

	mu     sync.Mutex
	socket map[string]*socketOf // by agent; nil is one that goes by POST
	closed bool
}

// socketOf is an agent's socket, and when it was begun.
type socketOf struct {
	*sink
	since time.Time
}

func (a *app) newWatchSinks(w *watching, candidates []adapters.Adapter, hears bool) (*watchSinks, error) {
	s := &watchSinks{w: w, candidates: candidates, takes: map[string][]string{}, socket: map[string]*socketOf{}}
	c := &a.cfg
	if c.Collector == "" && c.Listen == off {
		return s, nil
	}
	if hears && c.trusted() {
		for i := range candidates {
			ad := &candidates[i]
			types, _, err := control.Accepts(c.can(ad), c.Allow, c.Deny)
			if err != nil {
				return nil, usageError("%w", err)
			}
			s.takes[ad.Name] = types
		}
	}
	var err error
	s.post, err = a.newSender(w.log, w.say, nil)
	return s, err
}

func (s *watchSinks) sinks() []agent.Sink {
	if s.post == nil {
		return nil
	}
	return []agent.Sink{s}
}

// accepts are the types of commands that sessions of an adapter take.
func (s *watchSinks) accepts(a *adapters.Adapter) []string { return s.takes[a.Name] }

// of gives an agent's socket; nil is that it goes by POST.
func (s *watchSinks) of(name string) *socketOf {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, known := s.socket[name]
	if known || s.closed {
		return x
	}
	var ads []adapters.Adapter
	var takes []string
	for _, ad := range s.candidates {
		if types := s.takes[ad.Name]; len(types) > 0 && (name == ad.Name || name == s.w.app.cfg.Agent) {
			ads = append(ads, ad)
			takes = append(takes, types...)
		}
	}
	if len(ads) > 0 {
		slices.Sort(takes)
		x = s.dial(name, slices.Compact(takes), ads)
	}
	s.socket[name] = x
	return x
}

// dial begins an agent's socket.
func (s *watchSinks) dial(name string, takes []string, ads []adapters.Adapter) *socketOf {
	x := &socketOf{since: time.Now()}
	var err error
	x.sink, err = s.w.app.newSocketSink(ws.Config{
		Agent: name, Log: s.w.log,
		Capabilities: func() ws.Capabilities { return s.w.app.capabilities(takes, ads...) },
		OnCommand: func(line []byte, h event.Header) {
			r := s.w.hub.Command(control.Origin{Authenticated: true, Peer: x.sink.socket.URL()}, name, line, h)
			x.sink.reply(r)
		},
		OnReconnect: func() {
			for _, line := range s.w.hub.Pending(name) {
				x.sink.socket.Send(line)
			}
		},
	}, s.w.say)
	if err != nil {
		s.w.say(err.Error())
		return nil
	}
	x.sink.start()
	return x
}

// reachable says whether an answer to an agent's hook could come at present.
// The first hook that asks waits a moment for the connection, and so does one
// of a gated tool.
func (s *watchSinks) reachable(name string, gated bool) bool {
	x := s.of(name)
	if x == nil {
		return false
	}
	end := x.since.Add(reachWait)
	if gated {
		end = time.Now().Add(reachWait)
	}
	for {
		if x.sink.socket.Stats().State == ws.Connected {
			return true
		}
		if !time.Now().Before(end) {
			return false
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// feed is where an agent's events go.
func (s *watchSinks) feed(name string) *queue.Feed {
	if x := s.of(name); x != nil {
		return x.sink.Feed
	}
	return s.post.feed
}

// Attach, Offer, Done and TakeLosses are those of the agent's feed.
func (s *watchSinks) Attach(name, session string, log *jsonl.Log) error {
	return s.feed(name).Attach(name, session, log)
}

// Offer never blocks.
func (s *watchSinks) Offer(it queue.Item) { s.feed(it.Agent).Offer(it) }

// Done says that no more of a session comes for now.
func (s *watchSinks) Done(name, session string) { s.feed(name).Done(name, session) }

// TakeLosses gives what was lost of a session, once.
func (s *watchSinks) TakeLosses(name, session string) []queue.Loss {
	return s.feed(name).TakeLosses(name, session)
}

// Flush waits until everything has arrived, or ctx ends, by all ways at once. It
// gives up before only where a collector refuses for good. The error says in
// words for people why not everything arrived.
func (s *watchSinks) Flush(ctx context.Context) error {
	ways := []flusher{{s.post.Flush, s.post.word}}
	for _, x := range s.sockets() {
		ways = append(ways, flusher{x.socket.Flush, x.word})
	}
	words := make([]string, len(ways))
	var work sync.WaitGroup
	for i, w := range ways {
		work.Go(func() { words[i] = w.untilEnd(ctx) })
	}
	work.Wait()
	slices.Sort(words)
	words = slices.DeleteFunc(slices.Compact(words), func(w string) bool { return w == "" })
	if len(words) == 0 {
		return nil
	}
	return errors.New(strings.Join(words, "; "))
}

// flusher is a way to the collector at its end.
type flusher struct {
	flush func(context.Context) error
	word  func() string // why not everything arrived
}

// flushTry is how long a way may wait after a failure when it is to end soon.
const flushTry = 500 * time.Millisecond

// untilEnd has the way try again and again until ctx ends, and gives the word of
// what was not sent, "" where that is nothing.
func (f flusher) untilEnd(ctx context.Context) string {
	for {
		try, cancel := context.WithTimeout(ctx, flushTry)
		err := f.flush(try)
		again := try.Err() != nil && ctx.Err() == nil
		cancel()
		switch {
		case err == nil:
			return ""
		case !again:
			return f.word()
		}
	}
}

func (s *watchSinks) sockets() (out []*sink) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.socket {
		if x != nil {
			out = append(out, x.sink)
		}
	}
	return out
}

// start begins to send, and with what earlier watches left unsent.
func (s *watchSinks) start(logDir string) {
	if s.post == nil {
		return
	}
	if _, err := s.post.feed.Resume(logDir); err != nil {
		s.w.log.Warn("what was left unsent", "err", err)
	}
	s.post.start(context.Background())
}

// onceFlush bounds how long a reading of what is there waits for a collector
// that takes nothing more in.
const onceFlush = 10 * time.Second

// flush waits until everything has arrived or ctx ends: as long as that goes
// on where there is no hurry.
func (s *watchSinks) flush(ctx context.Context, patient bool) error {
	if s.post == nil {
		return nil
	}
	if !patient {
		return s.Flush(ctx)
	}
	for {
		sent := s.post.Stats().Events
		ctx, cancel := context.WithTimeout(context.Background(), onceFlush)
		err := s.Flush(ctx)
		cancel()
		if err == nil || s.post.Stats().Events == sent {
			return err
		}
	}
}

// close ends the sending, and saves how far it came.
func (s *watchSinks) close() {
	if s.post == nil {
		return
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	for _, x := range s.sockets() {
		if err := x.close(); err != nil {
			s.w.log.Warn("sink", "err", err)
		}
	}
	s.post.close()
}
