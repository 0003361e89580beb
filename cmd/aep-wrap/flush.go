package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"aep-wrap/event"
	"aep-wrap/queue"
	"aep-wrap/queue/jsonl"
	"aep-wrap/queue/post"
	"aep-wrap/redaction"
	"aep-wrap/session"
)

func newFlushCmd(a *app) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "flush",
		Short: "Close and send what crashed wrappers left",
		Long: `A wrapper that was killed leaves a session log without an end, and events that
the collector never took in. The next start takes care of both by itself, in the
background; flush does it now, and waits.

A session that a living wrapper owns is left alone: that one sends its events.
One that was only watched is sent, and given no end: nobody saw it. A log goes to the collectors that its wrapper sent to; --collector says which of
them is meant now.

The exit code is 0 when nothing is left to send, and 1 when something is.`,
		Example: `  aep-wrap flush
  aep-wrap flush --timeout 30s --collector https://collector.example`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			if timeout > 0 {
				var cancel func()
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			return a.flush(ctx)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 0, "give up after so long (0: when the collector refuses, or cannot be reached)")
	return cmd
}

// flushed is what aep-wrap flush tells.
type flushed struct {
	Closed  int    `json:"closed"`            // sessions that were given their end
	Running int    `json:"running,omitempty"` // that are somebody's, and were left alone
	Logs    int    `json:"logs"`              // that owed the collector something
	Sent    int64  `json:"sent"`              // events
	Left    int    `json:"left"`              // logs that still do
	Why     string `json:"why,omitempty"`
}

// flushTries is how often a collector that takes nothing is tried by hand.
const flushTries = 5

func (a *app) flush(ctx context.Context) error {
	log := a.newOwnLog()
	var r flushed
	left := a.newLeft(log)
	r.Closed, r.Running = left.close(ctx)
	err := func() error {
		if a.cfg.Collector == "" && a.cfg.Listen == off {
			return nil // there is nobody to send to
		}
		s, err := a.newSender(log, a.warnUnlessQuiet, nil)
		if err != nil {
			return err
		}
		defer func() { r.Sent, r.Left = s.Stats().Events, s.left() }()
		defer s.close()
		if r.Logs, err = s.feed.Resume(a.cfg.LogDir); err != nil || r.Logs == 0 {
			return err
		}
		s.start(ctx)
		return s.wait(ctx, a.progress(r.Logs))
	}()
	if err != nil {
		r.Why = err.Error()
	}
	if rerr := a.tell(r, r.String()); rerr != nil {
		return rerr
	}
	if err != nil && a.cfg.JSON {
		return &exitError{code: 1}
	}
	return err
}

func (r flushed) String() string {
	var parts []string
	if r.Closed > 0 {
		parts = append(parts, fmt.Sprintf("closed %s without an end", count(r.Closed, "session")))
	}
	if r.Logs > 0 {
		parts = append(parts, fmt.Sprintf("sent %s of %s", count(int(r.Sent), "event"), count(r.Logs-r.Left, "log")))
	}
	if r.Left > 0 {
		parts = append(parts, fmt.Sprintf("%s left to send", count(r.Left, "log")))
	}
	if len(parts) == 0 {
		parts = append(parts, "nothing was left behind")
	}
	if r.Running > 0 {
		parts = append(parts, fmt.Sprintf("%s running", count(r.Running, "session")))
	}
	return strings.Join(parts, "; ")
}

func (a *app) warnUnlessQuiet(line string) {
	if !a.cfg.Quiet {
		a.warn("%s", line)
	}
}

// progress tells people how much is left, now and then.
func (a *app) progress(logs int) func(queue.Stats, post.Stats) {
	if a.cfg.Quiet || a.cfg.JSON {
		return func(queue.Stats, post.Stats) {}
	}
	last := time.Now()
	return func(f queue.Stats, p post.Stats) {
		if time.Since(last) < time.Second {
			return
		}
		last = time.Now()
		line := fmt.Sprintf("sent %s; %d of %s to go", count(int(p.Events), "event"), f.BehindOwners, count(logs, "log"))
		if p.State == post.Retrying {
			line += "; waiting: " + p.Word
		}
		a.warn("%s", line)
	}
}

// ---- sending what is left

// sender sends the unsent tails of dead owners' logs. It goes by POST, which
// claims no session: nobody is there who could take commands for them.
type sender struct {
	feed *queue.Feed
	*post.Emitter
	stop func()
	done chan struct{}
	err  error // of Run, once done
}

func (a *app) newSender(log *slog.Logger, note func(string), own func(path string) bool) (*sender, error) {
	s := &sender{done: make(chan struct{})}
	s.feed = queue.NewFeed(queue.Options{Sink: a.sinkName(), Pace: pace, SaveEvery: saveEvery, Own: own, Log: log})
	var err error
	if s.Emitter, err = post.New(a.postConfig(log, note), s.feed); err != nil {
		return nil, usageError("--collector: %w", err)
	}
	return s, nil
}

func (s *sender) start(ctx context.Context) {
	ctx, s.stop = context.WithCancel(ctx)
	go func() {
		defer close(s.done)
		s.err = s.Run(ctx)
	}()
}

// word says why not everything arrived.
func (s *sender) word() string { return whyUnsent(s.Stats().Word) }

// left counts the logs that are not sent.
func (s *sender) left() int { return s.feed.Stats().BehindOwners }

// wait waits until everything is sent. It gives up with ctx, with a collector
// that refuses, and with one that took nothing in several tries.
func (s *sender) wait(ctx context.Context, tell func(queue.Stats, post.Stats)) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	sent, tries := int64(0), int64(0)
	for {
		f, p := s.feed.Stats(), s.Stats()
		if f.BehindOwners == 0 {
			return nil
		}
		if p.Events > sent {
			sent, tries = p.Events, p.Retries
		}
		if p.Retries-tries >= flushTries {
			return fmt.Errorf("the collector does not take events in: %s; they stay in the logs", p.Word)
		}
		tell(f, p)
		select {
		case <-tick.C:
		case <-s.done:
			if s.err != nil {
				return s.err
			}
			return fmt.Errorf("not everything was sent: %w; the rest stays in the logs", cmp.Or(ctx.Err(), context.Canceled))
		}
	}
}

func (s *sender) close() {
	if s.stop != nil {
		s.stop()
		<-s.done
	}
	_ = s.feed.Close() // it gives nil
}

// ---- closing what is left

// left finds sessions whose owner died before it could close them: their log
// has no end and nobody holds its lock.
type left struct {
	root string
	// marked looks no further than at logs with a lock beside them: an owner
	// that ended by itself took it away.
	marked bool

	host string
	gate *redaction.Gate
	log  *slog.Logger
}

// The bounds of one look for what is left.
const (
	maxLeft   = 1000             // logs that are read
	leftTail  = 256 << 10        // of a log that is looked at for its end
	strangers = 24 * time.Hour   // how long a log from another machine must have been quiet
	leftTime  = 20 * time.Second // of one start, in the background
)

// policy is how much events may say. What is said about commands (why one is
// refused, a command's own words in the log) is what people say to each other,
// as in requests: it goes as far as they do, unless it has a word of its own.
func (a *app) policy() redaction.Policy {
	p := redaction.Policy{Ceiling: a.cfg.Capture, For: a.cfg.CaptureFor}
	if level, ok := p.For["attention"]; ok {
		p.For = maps.Clone(p.For)
		if _, own := p.For["control"]; !own {
			p.For["control"] = level
		}
	}
	return p
}

func (a *app) newLeft(log *slog.Logger) *left {
	pipeline := redaction.NewPipeline(redaction.Options{Home: a.paths.home, NoPII: a.cfg.NoPII})
	return &left{root: a.cfg.LogDir, host: hostname(), gate: redaction.NewGate(a.policy(), pipeline), log: log}
}

// close closes what is left, the newest first, until ctx ends. It gives how
// many sessions it closed, and how many without an end are somebody's.
func (o *left) close(ctx context.Context) (closed, running int) {
	for _, path := range o.open() {
		if ctx.Err() != nil {
			break
		}
		n, err := o.closeOne(ctx, path)
		switch {
		case errors.As(err, new(*jsonl.ErrOwned)):
			running++
		case ctx.Err() != nil:
		case err != nil:
			o.log.Warn("a session that a crashed wrapper left cannot be closed", "log", path, "err", err)
		case n > 0:
			closed++
			o.log.Info("closed a session that a crashed wrapper left", "log", path, "events", n)
		}
	}
	return closed, running
}

// open gives the logs that do not end with their session's end.
func (o *left) open() []string {
	type candidate struct {
		path string
		at   time.Time
	}
	var found []candidate
	agents, _ := os.ReadDir(o.root)
	for _, agent := range agents {
		if !agent.IsDir() {
			continue
		}
		dir := filepath.Join(o.root, agent.Name())
		logs, _ := os.ReadDir(dir)
		locked := map[string]bool{}
		for _, f := range logs {
			if name, ok := strings.CutSuffix(f.Name(), ".lock"); ok {
				locked[name] = true
			}
		}
		for _, f := range logs {
			if o.marked && !locked[strings.TrimSuffix(f.Name(), ".jsonl")] {
				continue
			}
			if fi, err := f.Info(); err == nil && fi.Mode().IsRegular() && filepath.Ext(f.Name()) == ".jsonl" && fi.Size() > 0 {
				found = append(found, candidate{filepath.Join(dir, f.Name()), fi.ModTime()})
			}
		}
	}
	slices.SortFunc(found, func(a, b candidate) int { return b.at.Compare(a.at) })
	var out []string
	for _, c := range found[:min(len(found), maxLeft)] {
		if jsonl.IsWatched(c.path) {
			continue // of its end we know nothing
		}
		if _, h, _, ok, err := jsonl.Last(c.path, leftTail); err == nil && ok && !over(h.Type) {
			out = append(out, c.path)
		}
	}
	return out
}

// over says whether a session is over with an event.
func over(typ string) bool { return typ == "session.ended" || typ == "x.aep-wrap.session.exited" }

// history is what a log says of its session.
type history struct {
	state *session.State
	last  event.Event // of the session's own
	read  int64       // up to which offset
}

// closeOne gives one session its end. The log is read before its lock is
// taken, so that whoever resumes the session does not wait for that.
func (o *left) closeOne(ctx context.Context, path string) (int, error) {
	h := history{state: session.NewState()}
	if err := h.readOn(ctx, path, -1); err != nil {
		return 0, err
	}
	if !o.ours(&h, path) {
		return 0, nil
	}
	log, err := jsonl.OpenPath(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = log.Close() }() // what was appended is in the file
	if !log.Locked() {
		return 0, nil // an owner that lives would not be noticed
	}
	if err := h.readOn(ctx, path, log.Size()); err != nil {
		return 0, err
	}
	if over(h.last.Type) || jsonl.IsWatched(path) {
		return 0, nil // meanwhile
	}
	host, _ := sourceHost(h.last.Source)
	s := session.New(session.Config{
		Agent: h.last.Agent, Host: host, Session: h.last.Session, Traceparent: h.last.Traceparent, State: h.state,
	})
	drafts := s.Exit(time.Now(), session.Exit{Code: -1})
	lines := make([][]byte, len(drafts))
	for i := range drafts {
		e, err := o.gate.Seal(&drafts[i])
		if err != nil {
			return 0, fmt.Errorf("%s: %w", drafts[i].Type, err)
		}
		lines[i] = e.AppendJSON(nil)
	}
	if _, err := log.AppendBatch(nil, lines); err != nil {
		return 0, err
	}
	return len(lines), nil
}

// ours says whether a log is a session's that we can speak for: one of a
// wrapper, and of this machine, where a lock would be seen; or one that has
// been quiet for long.
func (o *left) ours(h *history, path string) bool {
	if h.last.ID == "" || over(h.last.Type) {
		return false
	}
	host, ok := sourceHost(h.last.Source)
	if !ok || event.Source(host, h.last.Agent, h.last.Session) != h.last.Source {
		return false
	}
	if event.Source(o.host, h.last.Agent, h.last.Session) == h.last.Source {
		return true
	}
	fi, err := os.Stat(path)
	return err == nil && time.Since(fi.ModTime()) > strangers
}

// sourceHost is the host in aep://{host}/agent/….
func sourceHost(source string) (string, bool) {
	rest, ok := strings.CutPrefix(source, "aep://")
	segment, _, _ := strings.Cut(rest, "/")
	host, err := url.PathUnescape(segment)
	return host, ok && err == nil && host != ""
}

// readOn folds what the log holds from where it was read to, up to end; a
// negative end is what is there.
func (h *history) readOn(ctx context.Context, path string, end int64) error {
	r, err := jsonl.OpenReader(path, h.read)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		line, ref, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, jsonl.ErrLong):
			h.read = ref.End()
			continue
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case end >= 0 && ref.End() > end:
			return nil
		}
		h.read = ref.End()
		e, err := event.Parse(line)
		if err != nil {
			continue
		}
		h.state.Fold(e)
		if late := over(h.last.Type) && event.Category(e.Type) == "control"; e.Sequenced && e.Session != "" && !late {
			e.Data = nil // a command that came after the end, and was refused, begins nothing
			h.last = e
		}
	}
}

// ---- in the background of a launch

// tidyPatience is how long the end of a launch waits for what it does in
// passing for sessions that others left.
const tidyPatience = 250 * time.Millisecond

// startTidying closes what crashed wrappers left, and sends what they left
// unsent, beside the agent. The function ends it, with that much patience.
func (l *launch) startTidying() (end func(patience time.Duration)) {
	if l.logDir == "" {
		return func(time.Duration) {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ending := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		closing, stop := context.WithTimeout(ctx, leftTime)
		defer stop()
		left := l.app.newLeft(l.log)
		left.marked = true
		left.close(closing)
		if ctx.Err() == nil && l.sink != nil {
			l.sendLeft(ctx, ending)
		}
	}()
	return func(patience time.Duration) {
		close(ending)
		defer time.AfterFunc(patience, cancel).Stop()
		<-done
		cancel()
	}
}

// sendLeft sends what is unsent until ctx ends. Once the launch is ending it
// waits for no collector that does not take events in.
func (l *launch) sendLeft(ctx context.Context, ending <-chan struct{}) {
	s, err := l.app.newSender(l.log, func(string) {}, l.owns)
	if err != nil {
		return // the launch's own sink has said so
	}
	defer s.close()
	n, err := s.feed.Resume(l.logDir)
	if err != nil {
		l.log.Warn("what crashed wrappers left unsent", "err", err)
	}
	if n == 0 {
		return
	}
	s.start(ctx)
	l.waitLeft(ctx, s, ending)
	l.log.Info("sent what crashed wrappers left unsent", "logs", n, "left", s.left(), "events", s.Stats().Events)
}

// owns says whether a log is of a session of this launch.
func (l *launch) owns(path string) bool {
	return slices.ContainsFunc(l.road.Sessions(), func(s string) bool { return jsonl.Path(l.logDir, l.name, s) == path })
}

func (l *launch) waitLeft(ctx context.Context, s *sender, ending <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for s.left() > 0 {
		select {
		case <-ctx.Done():
			return
		case <-s.done:
			return
		case <-tick.C:
		}
		select {
		case <-ending:
			if s.Stats().State != post.Idle {
				return
			}
		default:
		}
	}
}
