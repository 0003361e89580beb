package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"aep-wrap/event"
	"aep-wrap/queue"
	"aep-wrap/queue/post"
	"aep-wrap/redaction"
)

func newReplayCmd(a *app) *cobra.Command {
	var speed string
	cmd := &cobra.Command{
		Use:   "replay FILE|-",
		Short: "Send a capture again, as new sessions",
		Long: `Reads a capture (JSON lines: a session log, or what tail --json wrote) and sends
its events to the collector as they came then, each session as a new one: ids
and positions are fresh, causes and subjects lead to the fresh ids, times are
now. Where an event came from is told in its extension attributes: replayof (the
session), replayid (the event) and replaytime.

Commands in the capture are passed over: they were somebody's orders then. A
line that is no event ends it before anything is sent. What events may say is
bounded by --capture and --capture-for, as anywhere.`,
		Example: `  aep-wrap replay ~/.aep/logs/claude-code/01JX9YB2Z1QK.jsonl
  aep-wrap replay --speed 10 run.jsonl
  aep-wrap replay --speed max --collector https://collector.example run.jsonl`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError("replay: want one FILE, or - for standard input")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			pace, err := parseSpeed(speed)
			if err != nil {
				return usageError("--speed: %w", err)
			}
			if a.cfg.Collector == "" && a.cfg.Listen == off {
				return usageError("replay: --listen off and no --collector: there is nowhere to send to")
			}
			in := a.Stdin
			if args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return usageError("replay: %w", err)
				}
				defer f.Close()
				in = f
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return a.replay(ctx, in, pace)
		},
	}
	cmd.Flags().StringVar(&speed, "speed", "1", "how many times as fast as it was, or max")
	return cmd
}

// parseSpeed reads a factor; max is without end.
func parseSpeed(s string) (float64, error) {
	if s == "max" {
		return math.Inf(1), nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || !(f > 0) || math.IsInf(f, 0) {
		return 0, fmt.Errorf("%q: want a number above 0, such as 10, or max", s)
	}
	return f, nil
}

// replayed is what aep-wrap replay tells.
type replayed struct {
	Sessions map[string]string `json:"sessions"` // of the capture → new
	Events   int               `json:"events"`   // sent
	Skipped  int               `json:"skipped"`  // of other senders
}

func (a *app) replay(ctx context.Context, in io.Reader, speed float64) error {
	c, err := readCapture(in)
	if err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	c.remake(hostname(), a.policy())
	if err := a.checkCapture(c); err != nil {
		return fmt.Errorf("replay: %w", err)
	}
	sent, err := a.sendCapture(ctx, c, speed)
	r := replayed{Sessions: c.sessions, Events: sent, Skipped: c.skipped}
	var lines []string
	for _, s := range c.order {
		lines = append(lines, fmt.Sprintf("%s is replayed as %s", visible(s), c.sessions[s]))
	}
	last := fmt.Sprintf("sent %s of %d", count(sent, "event"), len(c.events))
	if c.skipped > 0 {
		last += fmt.Sprintf("; passed over %s of other senders", count(c.skipped, "event"))
	}
	return cmp.Or(err, a.tell(r, append(lines, last)...))
}

// capture is what is replayed.
type capture struct {
	events   []event.Event
	skipped  int
	order    []string          // of the sessions
	sessions map[string]string // old → new
}

// readCapture reads a capture whole: nothing is sent of one that is not a
// capture to its end. An event that stands there twice is one.
func readCapture(in io.Reader) (*capture, error) {
	c := &capture{sessions: map[string]string{}}
	seen := map[[2]string]bool{}
	r := bufio.NewReaderSize(in, 64<<10)
	for n := 1; ; n++ {
		line, err := r.ReadBytes('\n')
		if text := bytes.TrimSpace(line); len(text) > 0 {
			e, perr := event.Parse(text)
			if perr != nil {
				return nil, fmt.Errorf("line %d is no event: %w; nothing was sent", n, perr)
			}
			key := [2]string{e.Source, e.ID}
			switch {
			case seen[key]:
			case e.Session != "" && !e.Sequenced:
				c.skipped++ // a command, or a router's word
			default:
				seen[key] = true
				c.events = append(c.events, e)
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if len(c.events) == 0 {
		return nil, errors.New("there is no event to replay")
	}
	c.sort()
	return c, nil
}

// sort puts the events of each session in the order of their positions, in the
// places that the session's events have.
func (c *capture) sort() {
	places := map[string][]int{}
	for i := range c.events {
		places[c.events[i].Session] = append(places[c.events[i].Session], i)
	}
	for session, at := range places {
		if session == "" {
			continue
		}
		own := make([]event.Event, len(at))
		for i, p := range at {
			own[i] = c.events[p]
		}
		slices.SortStableFunc(own, func(a, b event.Event) int {
			return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Seq, b.Seq))
		})
		for i, p := range at {
			c.events[p] = own[i]
		}
	}
}

// remake gives each event a new identity, and lowers it to what may be said.
// Its time stays, until it is sent.
func (c *capture) remake(host string, policy redaction.Policy) {
	ids := make(map[string]string, len(c.events))
	now := time.Now()
	for i := range c.events {
		ids[c.events[i].ID] = event.NewID(now)
		if s := c.events[i].Session; s != "" && c.sessions[s] == "" {
			c.sessions[s] = event.NewID(now)
			c.order = append(c.order, s)
		}
	}
	seq := map[string]int64{}
	fresh := func(id string) string { return cmp.Or(ids[id], id) }
	for i := range c.events {
		e := &c.events[i]
		provenance := map[string]any{"replayid": e.ID, "replaytime": e.Time.UTC().Format(time.RFC3339Nano)}
		if e.Session != "" {
			provenance["replayof"] = e.Session
		}
		for name, v := range provenance {
			_ = e.SetExt(name, v) // these names, and strings, are always good
		}
		if e.Type == "session.started" {
			e.Data = c.reparent(e.Data)
		}
		e.ID, e.Cause, e.Subject = ids[e.ID], fresh(e.Cause), fresh(e.Subject)
		e.Traceparent = "" // this is no part of that trace
		e.Session = c.sessions[e.Session]
		e.Source = event.Source(host, e.Agent, e.Session)
		if e.Sequenced {
			e.Epoch, e.Seq = 0, seq[e.Session]
			seq[e.Session]++
		} else {
			e.Source = strings.TrimSuffix(event.Source(host, e.Agent, ""), "/session/")
		}
		*e = redaction.Downlevel(*e, policy.Level(e.Type))
	}
}

// reparent leads a session's parent to the session that it is replayed as.
func (c *capture) reparent(data json.RawMessage) json.RawMessage {
	o, err := event.ParseObject(data)
	if err != nil {
		return data
	}
	parent, _ := o["parent"].(map[string]any)
	old, _ := parent["session"].(string)
	if c.sessions[old] == "" {
		return data
	}
	parent["session"] = c.sessions[old]
	return event.AppendValue(nil, o)
}

// checkCapture holds what is to be sent to the protocol's rules once more. A
// line that breaks the envelope's is not sent, and so nothing is; what is off
// in the capture itself is told, and replayed as it was.
func (a *app) checkCapture(c *capture) error {
	stream := event.NewStream()
	off := 0
	var first error
	note := func(e *event.Event, found []event.Violation) {
		for i := range found {
			if off++; first == nil {
				first = fmt.Errorf("event %v (%s): %w", e.Ext["replayid"], e.Type, &found[i])
			}
		}
	}
	for i := range c.events {
		e, err := event.Parse(c.events[i].AppendJSON(nil))
		if err != nil {
			return fmt.Errorf("event %v (%s): %w; nothing was sent", c.events[i].Ext["replayid"], c.events[i].Type, err)
		}
		note(&e, event.Check(e))
		note(&e, stream.Add(e))
	}
	if off > 0 {
		a.warnUnlessQuiet(fmt.Sprintf("the capture has %s, and is replayed with them: %v", count(off, "finding"), first))
	}
	return nil
}

// replayWindow is how many events wait for the collector at most.
const replayWindow = 2000

// sendCapture sends the events, each in its time, and says how many arrived.
func (a *app) sendCapture(ctx context.Context, c *capture, speed float64) (int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	feed := queue.NewFeed(queue.Options{LooseEvents: 2 * replayWindow, LooseBytes: 256 << 20})
	emitter, err := post.New(a.postConfig(a.newOwnLog(), a.warnUnlessQuiet), feed)
	if err != nil {
		return 0, usageError("--collector: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- emitter.Run(ctx) }()
	err = a.pace(ctx, c, speed, feed, emitter, ended)
	cancel()
	if cerr := feed.Close(); err == nil {
		err = cerr
	}
	st := emitter.Stats()
	if n := st.Refused + st.TooLarge; err == nil && n > 0 {
		err = fmt.Errorf("replay: the collector refused %s: %s", count(int(n), "event"), a.paths.ownLog())
	}
	return int(st.Events), err
}

func (a *app) pace(ctx context.Context, c *capture, speed float64, feed *queue.Feed, emitter *post.Emitter, ended <-chan error) error {
	start, first := time.Now(), c.events[0].Time
	gone := false
	wait := func(until func() bool, d time.Duration) error {
		if until() {
			return nil
		}
		t := time.NewTicker(d)
		defer t.Stop()
		for !until() {
			select {
			case <-t.C:
				if st := emitter.Stats(); st.Retries >= flushTries && st.Events == 0 {
					return fmt.Errorf("replay: the collector does not take events in: %s", st.Word)
				}
			case err := <-ended:
				gone = true
				if err == nil {
					err = errors.New("replay: interrupted")
				}
				return err
			}
		}
		return nil
	}
	for i := range c.events {
		e := c.events[i]
		if !math.IsInf(speed, 1) {
			due := start.Add(time.Duration(float64(e.Time.Sub(first)) / speed))
			if d := time.Until(due); d > 0 {
				if err := wait(func() bool { return !time.Now().Before(due) }, d); err != nil {
					return err
				}
			}
		}
		e.Time = time.Now()
		feed.Offer(queue.Item{Agent: e.Agent, Session: e.Session, ID: e.ID, Severity: e.Severity,
			Sequenced: e.Sequenced, Position: e.Position(), Line: e.AppendJSON(nil)})
		if i%100 != 99 {
			continue
		}
		if err := wait(func() bool { return feed.Stats().LooseEvents < replayWindow }, time.Millisecond); err != nil {
			return err
		}
	}
	err := wait(func() bool { return feed.Waiting() == 0 }, 2*time.Millisecond)
	if gone || err != nil {
		return err
	}
	return nil
}
