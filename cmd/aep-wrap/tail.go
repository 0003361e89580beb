package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"aep-wrap/collector/client"
	"aep-wrap/control"
	"aep-wrap/event"
)

func newTailCmd(a *app) *cobra.Command {
	var filter, session, from string
	var ring bell
	var room func() int
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Watch events as they happen",
		Long: `Follows a collector's stream: every session of this user, or what --filter and
--session choose. When the connection breaks it is made again, and goes on where
it was. On a terminal a line is as long as that is wide; what it shows there of a
session's name does as an argument. Elsewhere, and with --wide, nothing is left out.`,
		Example: `  aep-wrap tail
  aep-wrap tail --from all                               begin with what the collector holds
  aep-wrap tail --session 01JX9YB                        one session, by the beginning of its name
  aep-wrap tail --bell                                   and ring when one asks something
  aep-wrap tail --filter '{"severity":{"gte":"notice"}}'
  aep-wrap tail --json | jq .type                        the events themselves`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if filter != "" {
				if _, err := event.CompileFilter([]byte(filter)); err != nil {
					return usageError("--filter: %w", err)
				}
			}
			if from != "all" && from != "now" {
				return usageError("--from %q: want all or now", from)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			cfg, err := a.follow()
			if err != nil {
				return err
			}
			if session != "" {
				if session, err = a.findSession(ctx, session); err != nil {
					return err
				}
			}
			cfg.Filter, cfg.All = filter, from == "all"
			err = a.tail(ctx, cfg, session, ring, room)
			if ctx.Err() != nil {
				return nil // the user has seen enough
			}
			return err
		},
	}
	cmd.Flags().StringVar(&filter, "filter", "", "only events that match, as attr-match `JSON`")
	cmd.Flags().StringVar(&session, "session", "", "only the `SESSION`, by its name or the beginning of it")
	cmd.Flags().StringVar(&from, "from", "now", "`all` begins with what the collector holds")
	_ = cmd.RegisterFlagCompletionFunc("session", a.completeTarget)
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions([]string{"all", "now"}, cobra.ShellCompDirectiveNoFileComp))
	ring.flag(cmd)
	room = a.roomFlag(cmd)
	return cmd
}

// findSession finds the session that a person meant, among those that are
// connected, else among those that are held. One that is not there yet may
// come: its beginning is what is waited for.
func (a *app) findSession(ctx context.Context, name string) (string, error) {
	claims, err := a.roster(ctx)
	if err != nil {
		return "", err
	}
	agents := map[string]string{}
	for _, c := range claims {
		agents[c.Session] = c.Agent
	}
	found, err := control.Resolve(name, slices.Collect(maps.Keys(agents)))
	if err != nil {
		f, herr := a.held(ctx, `{"type":["session.*","run.*"]}`)
		if herr != nil {
			return "", herr
		}
		for _, m := range f.list() {
			agents[m.name] = m.agent
		}
		found, err = control.Resolve(name, slices.Collect(maps.Keys(agents)))
	}
	if many := (*control.AmbiguousError)(nil); errors.As(err, &many) {
		return "", a.ambiguous("session", name, many.Found, func(s string) string { return agents[s] })
	}
	if err != nil {
		return name, nil
	}
	return found, nil
}

// follow is how this user's consumers reach the collector. The per-user one is
// started when it does not run.
func (a *app) follow() (client.Config, error) {
	e := a.endpoint()
	cfg := client.Config{Base: e.Base, Token: e.Token, HTTP: e.client()}
	if u, err := url.Parse(e.Base); err == nil && e.Socket == "" && e.Token != "" && !e.plain && crosses(u) {
		return cfg, usageError("--collector: %w", errPlain)
	}
	if e.Socket != "" {
		if a.cfg.Listen == off {
			return cfg, usageError("--listen is off: there is no collector to follow; name one with --collector")
		}
		cfg.HTTP = a.newJoiner(func(s string) { a.warn("%s", s) }).client()
	}
	return cfg, nil
}

// tellConnection says on stderr when the stream breaks, and when it is back.
func (a *app) tellConnection() func(client.Notice) {
	down, unreadable := false, 0
	return func(n client.Notice) {
		if a.cfg.Quiet {
			return
		}
		switch n.Kind {
		case client.Lost:
			if !down {
				a.warn("the stream is lost (%s); trying again", visible(n.Err.Error()))
			}
			down = true
		case client.Connected:
			if down {
				a.warn("the stream is back")
			}
			down = false
		case client.Gap:
			a.warn("session %s: the collector no longer holds all events between %d:%d and %d:%d; its log has them",
				visible(n.Session), n.After.Epoch, n.After.Seq, n.Before.Epoch, n.Before.Seq)
		case client.Unreadable:
			if unreadable++; unreadable == 1 {
				a.warn("passed over a message that is no event of AEP %s: %s", event.Version, visible(n.Err.Error()))
			}
		}
	}
}

// quietTime is how long nothing may come before a person is told that this is
// so.
const quietTime = 300 * time.Millisecond

func (a *app) tail(ctx context.Context, cfg client.Config, session string, ring bell, room func() int) error {
	told := a.tellConnection()
	waiting := time.AfterFunc(time.Hour, func() { a.note("waiting for events") })
	waiting.Stop()
	defer waiting.Stop()
	first := true
	cfg.Told = func(n client.Notice) {
		if n.Kind == client.Connected && first && isTerminal(a.Stderr) && isTerminal(a.Stdout) {
			waiting.Reset(quietTime)
		}
		first = first && n.Kind != client.Connected
		told(n)
	}
	p := &tailPrinter{w: a.Stdout, look: a.lookOf(a.Stdout), json: a.cfg.JSON, room: room}
	return client.Follow(ctx, cfg, func(e client.Event) error {
		if !strings.HasPrefix(e.Session, session) {
			return nil
		}
		waiting.Stop()
		if e.Type == "attention.requested" && time.Since(e.Time) < ringTime {
			ring.ring(a, "aep-wrap: "+e.Agent+" asks")
		}
		return p.print(e)
	})
}

// tailPrinter prints one line per event.
type tailPrinter struct {
	w    io.Writer
	look look
	json bool
	room func() int // the cells of a line at present; 0 is as many as it takes
	buf  []byte
}

func (p *tailPrinter) print(e client.Event) error {
	p.buf = p.buf[:0]
	if p.json {
		p.buf = append(append(p.buf, e.Line...), '\n')
	} else {
		p.buf = p.appendLine(p.buf, e)
	}
	_, err := p.w.Write(p.buf)
	return err
}

func (p *tailPrinter) appendLine(dst []byte, e client.Event) []byte {
	_, data, err := event.ParseHeader(e.Line)
	if err != nil {
		data = nil
	}
	t := tell(&event.Event{Header: e.Header, Data: json.RawMessage(data)})
	room := p.room()
	form := broadForm
	if room > 0 && room < form.cells {
		form = narrowForm
	}
	who, session := visible(e.Agent), visible(e.Session)
	if room > 0 {
		who, session = fit(who, form.agent), shortName(session, form.session)
	}
	who = pad(strings.TrimRight(who+" "+session, " "), form.agent+1+form.session)
	when, typ := e.Time.Local().Format(form.time), pad(e.Type, form.typ)
	took := ""
	if t.took > 0 {
		took = "  " + span(t.took)
	}
	var what []string
	for _, s := range []string{t.subject, t.state} {
		if s != "" {
			what = append(what, visible(clip(s, 400)))
		}
	}
	rest := strings.Join(what, "  ")
	if room > 0 {
		left := room - cells(when) - 2 - cells(who) - 2
		typ = fit(typ, left)
		rest = fit(rest, left-cells(typ)-2-cells(took))
		if left < cells(typ)+2+cells(rest)+cells(took) {
			took = ""
		}
	}
	dst = fmt.Appendf(dst, "%s  %s  %s", p.look.paint(dim, when), who, p.look.paint(colourOf(&e.Header), typ))
	if rest != "" {
		dst = append(append(dst, "  "...), rest...)
	}
	dst = append(dst, p.look.paint(dim, took)...)
	return append(trimRight(dst), '\n')
}

// form is how a line of tail is laid out: its columns' cells, and from how many
// on it is used.
type form struct {
	cells               int
	time                string
	agent, session, typ int
}

var (
	broadForm  = form{cells: 110, time: "15:04:05.000", agent: 16, session: 12, typ: 27}
	narrowForm = form{time: time.TimeOnly, agent: 11, session: 8, typ: 20}
)

func trimRight(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == ' ' {
		b = b[:len(b)-1]
	}
	return b
}

// shortName is as much of a session's name as a line has room for. A ULID's
// and a UUID's beginning tell sessions apart, and do as an argument: nothing says
// that more follows.
func shortName(s string, n int) string {
	for i := range s {
		if n--; n < 0 {
			return s[:i]
		}
	}
	return s
}
