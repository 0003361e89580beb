package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"aep-wrap/collector/client"
	"aep-wrap/event"
)

func newPendingCmd(a *app) *cobra.Command {
	var watch bool
	var ring bell
	cmd := &cobra.Command{
		Use:   "pending",
		Short: "Show what waits for an answer, in every session",
		Long: `Shows each request that an agent has and nobody has answered: who asks, what, the
options or the form's fields, and how long there is. aep-wrap respond answers.

With --json each is an object on a line: id, session, agent, kind, prompt,
options, fields, expires_at (null where it does not end), and answerable, which is
false where only the agent's own screen answers, or its wrapper is not connected.

--watch goes on: one line that says how many wait, and what the oldest asks, anew
whenever that changes, as a status bar reads it; with --json an object of them
all.`,
		Example: `  aep-wrap pending
  aep-wrap pending --json | jq -r .id
  aep-wrap pending --watch --bell`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if ring.how != "" && !watch {
				return usageError("--bell is for --watch")
			}
			if watch {
				return a.watchPending(cmd.Context(), ring)
			}
			return a.pending(cmd.Context())
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "go on, with a line for each change")
	ring.flag(cmd)
	return cmd
}

// requestRecord is a request as --json tells it.
type requestRecord struct {
	ID         string          `json:"id"`
	Session    string          `json:"session"`
	Agent      string          `json:"agent"`
	Host       string          `json:"host,omitempty"`
	Kind       string          `json:"kind"`
	Prompt     string          `json:"prompt"`
	Options    json.RawMessage `json:"options"`
	Fields     json.RawMessage `json:"fields"`
	AskedAt    time.Time       `json:"asked_at"`
	ExpiresAt  *time.Time      `json:"expires_at"`
	Answerable bool            `json:"answerable"`
}

func (q *ask) record() requestRecord {
	r := requestRecord{ID: q.ID, Session: q.Session, Agent: q.agent, Host: host(q.source), Kind: q.Kind, Prompt: q.prompt,
		Options: q.options, Fields: q.fields, AskedAt: q.asked, Answerable: q.Answerable() && q.member.claim != nil}
	if !q.expires.IsZero() {
		r.ExpiresAt = &q.expires
	}
	return r
}

func (a *app) pending(ctx context.Context) error {
	f, err := a.requests(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	asks := f.waiting(now)
	if a.cfg.JSON {
		enc := a.encoder()
		for _, q := range asks {
			if err := enc.Encode(q.record()); err != nil {
				return err
			}
		}
		return nil
	}
	if len(asks) == 0 {
		a.note("nothing waits for an answer")
		return nil
	}
	return a.showPending(f, asks, now)
}

// showPending prints the requests for people, with the words that answer each.
func (a *app) showPending(f *fleet, asks []*ask, now time.Time) error {
	var names, ids []string
	for _, m := range f.sessions {
		names = append(names, m.name)
		for id := range m.asks {
			ids = append(ids, id)
		}
	}
	name, id := shortest(names), shortest(ids)
	look := a.lookOf(a.Stdout)
	var b bytes.Buffer
	for i, q := range asks {
		if i > 0 {
			b.WriteByte('\n')
		}
		who := visible(q.agent)
		if h := host(q.source); h != "" {
			who += " on " + visible(h)
		}
		left := ""
		if !q.expires.IsZero() {
			left = ", " + span(q.expires.Sub(now)) + " left"
		}
		fmt.Fprintf(&b, "%s %s\n", look.paint(purple, who), look.paint(dim, fmt.Sprintf("asks (%s), %s%s", visible(q.kind()), past(now.Sub(q.asked)), left)))
		fmt.Fprintf(&b, "  %s\n", visible(clip(q.said(), 2000)))
		for _, o := range q.Options {
			fmt.Fprintf(&b, "    %s  %s\n", look.paint(bold, visible(o.ID)), visible(clip(o.Label, 200)))
		}
		for i := range q.Fields {
			label := ""
			if l := q.Fields[i].Label; l != "" && l != q.Fields[i].ID {
				label = "  " + visible(clip(l, 200))
			}
			fmt.Fprintf(&b, "    %s%s\n", look.paint(bold, describeField(&q.Fields[i])), label)
		}
		answer := fmt.Sprintf("aep-wrap respond %s %s %s", shellWord(name[q.Session]), id[q.ID], q.example())
		switch {
		case !q.Answerable():
			answer = "this is answered in the agent's own screen alone"
		case q.member.claim == nil:
			answer = "nobody can answer it from here: the agent's wrapper is not connected"
		}
		fmt.Fprintf(&b, "  %s\n", look.paint(dim, answer))
	}
	_, err := a.Stdout.Write(b.Bytes())
	return err
}

func (q *ask) kind() string {
	if q.Kind == "" {
		return "something"
	}
	return q.Kind
}

// said is what a request asks, or that its capture level does not tell.
func (q *ask) said() string {
	if q.prompt == "" {
		return "(what it asks is not told at this capture level)"
	}
	return q.prompt
}

// example is how a request may be answered.
func (q *ask) example() string {
	switch {
	case len(q.Options) > 0:
		return "--option " + shellWord(q.Options[0].ID)
	case q.Kind == "form" || len(q.Fields) > 0:
		return "--values " + shellWord(exampleValues(q.Fields))
	case q.Kind == "permission":
		return "--option ID"
	}
	return "--text TEXT"
}

// exampleValues fills in a form as one might: what it requires, or its first
// field. Without a field it is what such an answer is.
func exampleValues(fields []event.FormField) string {
	values := map[string]any{}
	for i := range fields {
		if f := &fields[i]; f.Required != nil && *f.Required {
			values[f.ID] = exampleValue(f)
		}
	}
	switch {
	case len(fields) == 0:
		return "JSON"
	case len(values) == 0:
		values[fields[0].ID] = exampleValue(&fields[0])
	}
	return string(event.AppendValue(nil, values))
}

func exampleValue(f *event.FormField) any {
	switch {
	case len(f.Choices) > 0 && f.Multi:
		return []any{f.Choices[0].ID}
	case len(f.Choices) > 0:
		return f.Choices[0].ID
	case f.Type == "boolean":
		return true
	case f.Type == "number" && f.Min != nil:
		return *f.Min
	case f.Type == "number":
		return 1
	}
	return "TEXT"
}

// shellWord quotes a word where a shell would read it otherwise.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-:/@", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(visible(s), "'", `'\''`) + "'"
}

// settleTime is how long a burst of events has to be over before its sum is
// told.
const settleTime = 100 * time.Millisecond

// watchPending tells how many requests wait, and again whenever that changes.
func (a *app) watchPending(ctx context.Context, ring bell) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	cfg, err := a.follow()
	if err != nil {
		return err
	}
	cfg.All, cfg.Filter, cfg.Told = true, requestsFilter, a.tellConnection()
	f, err := a.requests(ctx)
	if err != nil {
		return err
	}
	w := &pendingWatch{app: a, fleet: f, ring: ring, rung: map[string]bool{}, changed: make(chan struct{}, 1)}
	shown := make(chan error, 1)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel() // a reader that went away ends it
		shown <- w.show(ctx)
	}()
	err = client.Follow(ctx, cfg, func(e client.Event) error {
		w.take(bytes.Clone(e.Line))
		return nil
	})
	ended := ctx.Err() != nil
	cancel()
	if werr := <-shown; werr != nil {
		return werr
	}
	if ended {
		return nil
	}
	return err
}

// pendingWatch is the state behind the line.
type pendingWatch struct {
	app     *app
	ring    bell
	changed chan struct{}

	mu    sync.Mutex
	fleet *fleet

	rung map[string]bool // requests that were rung for
	last string
}

func (w *pendingWatch) take(line []byte) {
	w.mu.Lock()
	w.fleet.add(line)
	w.fleet.forget()
	w.mu.Unlock()
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// forget drops what ended: a watch that goes on for weeks holds no more than
// what lives.
func (f *fleet) forget() {
	if len(f.sessions) < 4096 {
		return
	}
	for key, m := range f.sessions {
		if m.ended {
			delete(f.sessions, key)
		}
	}
}

// show prints the line when it changed, and when a request's time is over.
func (w *pendingWatch) show(ctx context.Context) error {
	f, tty := w.app.Stdout.(interface{ Fd() uintptr })
	tty = tty && !w.app.cfg.JSON && term.IsTerminal(int(f.Fd()))
	if tty {
		defer fmt.Fprintln(w.app.Stdout)
	}
	due := time.NewTimer(settleTime)
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.changed:
			due.Reset(settleTime)
			continue
		case <-due.C:
		}
		now := time.Now()
		line, fresh, next := w.line(now)
		if next > 0 {
			due.Reset(next)
		}
		if fresh != "" {
			w.ring.ring(w.app, fresh)
		}
		if line == w.last {
			continue
		}
		w.last = line
		out := line + "\n"
		if tty {
			width, _, err := term.GetSize(int(f.Fd()))
			if err != nil || width < 2 {
				width = 80
			}
			out = "\r\x1b[K" + clip(line, width-1)
		}
		if _, err := w.app.Stdout.Write([]byte(out)); err != nil {
			return err
		}
	}
}

// line is what is told now: the line, what a bell is rung for, and when a
// request's time is over next.
func (w *pendingWatch) line(now time.Time) (line, fresh string, next time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	asks := w.fleet.waiting(now)
	waits := map[string]bool{}
	for _, q := range asks {
		waits[q.source+" "+q.ID] = true
		if !w.rung[q.source+" "+q.ID] {
			fresh = "aep-wrap: " + q.agent + ": " + q.said()
		}
		if left := q.expires.Sub(now); !q.expires.IsZero() && (next == 0 || left < next) {
			next = left + time.Millisecond
		}
	}
	w.rung = waits
	if w.app.cfg.JSON {
		all := struct {
			Waiting  int             `json:"waiting"`
			Requests []requestRecord `json:"requests"`
		}{len(asks), []requestRecord{}}
		for _, q := range asks {
			r := q.record()
			r.Answerable = q.Answerable()
			all.Requests = append(all.Requests, r)
		}
		b, err := json.Marshal(all)
		if err != nil {
			return "", "", next // it was read as JSON: it cannot fail
		}
		return string(b), fresh, next
	}
	line = fmt.Sprintf("%d waiting", len(asks))
	if len(asks) > 0 {
		q := asks[0]
		line += ": " + visible(clip(q.agent, 20)) + ": " + visible(clip(q.said(), 100))
		if n := len(asks) - 1; n > 0 {
			line += fmt.Sprintf(" (and %d more)", n)
		}
	}
	return line, fresh, next
}
