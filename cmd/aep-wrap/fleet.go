package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"aep-wrap/collector/client"
	"aep-wrap/control"
	"aep-wrap/event"
)

// fleet is what a collector's events say of the sessions, as they stand.
type fleet struct {
	sessions map[[2]string]*member // by source and name
}

// member is one session.
type member struct {
	name, source, agent string
	started, last       time.Time
	lastType            string
	at                  event.Position
	run                 string // that is open
	runs                map[string]bool
	begun               bool // its start was seen
	paused, failed      bool
	ended               bool
	asks                map[string]*ask // that wait
	settled             map[string]bool // requests that were settled
	digests             map[string]string

	claim *client.Claim // its live emitter, where the roster was asked
}

// ask is a request that waits for an answer.
type ask struct {
	control.Request
	agent, source string
	prompt        string
	options       json.RawMessage
	fields        json.RawMessage
	asked         time.Time
	expires       time.Time // zero where it does not say
	args          string    // digest of the tool's arguments that it is about, where it was seen
	member        *member
}

func newFleet() *fleet { return &fleet{sessions: map[[2]string]*member{}} }

// requestsFilter chooses what tells of requests, and of sessions that end with
// them.
const requestsFilter = `{"type":["attention.*","session.*","x.aep-wrap.session.*"]}`

// add takes an event. What others say of a session changes nothing: commands
// and routing are told by their outcomes.
func (f *fleet) add(line []byte) {
	e, err := event.Parse(line)
	if err != nil || !e.Sequenced || e.Session == "" {
		return
	}
	key := [2]string{e.Source, e.Session}
	m := f.sessions[key]
	if m == nil {
		m = &member{name: e.Session, source: e.Source, agent: e.Agent, started: e.Time, at: event.Position{Epoch: -1 << 62},
			runs: map[string]bool{}, asks: map[string]*ask{}, settled: map[string]bool{}, digests: map[string]string{}}
		f.sessions[key] = m
	}
	m.take(&e)
}

func (m *member) take(e *event.Event) {
	if m.started.After(e.Time) {
		m.started = e.Time
	}
	late := !m.at.Less(e.Position())
	if !late {
		m.at, m.last, m.lastType = e.Position(), e.Time, e.Type
	}
	switch e.Type {
	case "attention.requested":
		if !m.settled[e.ID] && !m.ended {
			m.asks[e.ID] = m.read(e)
		}
	case "attention.resolved", "attention.timeout":
		m.settled[e.Subject] = true
		delete(m.asks, e.Subject)
	case "attention.answered":
		// The runtime has the answer: nobody else's is waited for.
		m.settled[e.Subject] = true
		delete(m.asks, e.Subject)
	case "tool.requested":
		if d := text(e.Data, "args_digest"); d != "" {
			m.digests[e.ID] = d
		}
	case "session.ended", "x.aep-wrap.session.exited":
		if !late {
			m.ended, m.run, m.paused = true, "", false
			clear(m.asks)
			clear(m.digests)
		}
	case "session.started":
		m.begun = true
		m.ended = m.ended && late
	case "run.started":
		m.runs[e.Run] = true
		if !late {
			m.run, m.failed, m.ended = e.Run, false, false
		}
	case "run.finished", "run.failed", "run.cancelled":
		if !late && m.run == e.Run {
			m.run, m.failed = "", e.Type == "run.failed"
		}
	case "progress.status":
		switch phase := text(e.Data, "phase"); {
		case late:
		case phase == "paused":
			m.paused = true
		case phase == "resumed":
			m.paused = false
		}
	}
}

func text(data []byte, name string) string {
	tree, _ := event.ParseObject(data)
	s, _ := tree[name].(string)
	return s
}

// read makes an attention.requested what a person is shown.
func (m *member) read(e *event.Event) *ask {
	a := &ask{Request: control.RequestFrom(e), agent: e.Agent, source: e.Source, asked: e.Time, member: m, args: m.digests[e.Cause]}
	tree, _ := event.ParseObject(e.Data)
	a.prompt, _ = tree["prompt"].(string)
	if s, _ := tree["expires_at"].(string); s != "" {
		a.expires, _ = time.Parse(time.RFC3339, s)
	}
	list := func(name string) json.RawMessage {
		v, _ := tree[name].([]any)
		if v == nil {
			v = []any{}
		}
		return event.AppendValue(nil, v)
	}
	a.options, a.fields = list("options"), list("fields")
	return a
}

// state is how a session stands, in one word.
func (m *member) state() string {
	switch {
	case m.ended && m.claim == nil:
		return "ended"
	case m.paused:
		return "paused"
	case len(m.asks) > 0:
		return "waiting"
	case m.run != "":
		return "working"
	case m.failed:
		return "failed"
	}
	return "idle"
}

// list are the sessions, the one that waits longest first, then by their last
// word.
func (f *fleet) list() []*member {
	out := make([]*member, 0, len(f.sessions))
	for _, m := range f.sessions {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b *member) int {
		return cmp.Or(b.last.Compare(a.last), strings.Compare(a.name, b.name), strings.Compare(a.source, b.source))
	})
	return out
}

// waiting are the requests that wait at a moment, the oldest first.
func (f *fleet) waiting(now time.Time) []*ask {
	var out []*ask
	for _, m := range f.sessions {
		for _, a := range m.asks {
			if a.expires.IsZero() || a.expires.After(now) {
				out = append(out, a)
			}
		}
	}
	slices.SortFunc(out, func(a, b *ask) int {
		return cmp.Or(a.asked.Compare(b.asked), strings.Compare(a.ID, b.ID))
	})
	return out
}

// join tells the sessions who claims them.
func (f *fleet) join(roster []client.Claim) {
	for _, m := range f.sessions {
		for i := range roster {
			if roster[i].Session == m.name {
				m.claim = &roster[i]
			}
		}
	}
}

// host is whose machine a source speaks of.
func host(source string) string {
	u, err := url.Parse(source)
	if err != nil || u.Scheme != "aep" {
		return ""
	}
	return u.Host
}

// readWait is how long a collector has to tell what it holds.
const readWait = 30 * time.Second

// nobody says that no collector of this user runs.
func nobody(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Net == "unix" && (errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED))
}

// errNobody is that no collector of this user runs, and so nobody can be
// asked.
var errNobody = errors.New("no collector of yours runs, so no agent can be reached: it is started with the first wrapped agent; for another one write --collector")

// held reads what the collector holds, as far as a filter chooses it. Without
// a collector of this user's that is nothing.
func (a *app) held(ctx context.Context, filter string) (*fleet, error) {
	ctx, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	f := newFleet()
	err := a.read(ctx, f, client.Config{All: true, Filter: filter})
	if nobody(err) {
		return f, nil
	}
	return f, a.explain(err)
}

// read adds what a replay gives to a fleet.
func (a *app) read(ctx context.Context, f *fleet, cfg client.Config) error {
	e := a.endpoint()
	cfg.Base, cfg.Token, cfg.HTTP, cfg.Once = e.Base, e.Token, e.client(), true
	return client.Follow(ctx, cfg, func(e client.Event) error {
		f.add(bytes.Clone(e.Line))
		return nil
	})
}

// deepen reads on where the collector holds only the newest of a session that
// lives: a request that has waited long is behind that. Of a session with a log
// on its machine it has all, and gives it to who asks from the start.
func (a *app) deepen(ctx context.Context, f *fleet, filter string, roster []client.Claim) error {
	begun := map[string]bool{}
	for _, m := range f.sessions {
		begun[m.name] = begun[m.name] || m.begun
	}
	from := map[string]event.Position{}
	for _, c := range roster {
		if !begun[c.Session] {
			from[c.Session] = event.Position{}
		}
	}
	if len(from) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, readWait)
	defer cancel()
	return a.explain(a.read(ctx, f, client.Config{From: from, Filter: filter}))
}

// requests reads what waits, in all sessions, and who could be answered.
func (a *app) requests(ctx context.Context) (*fleet, error) {
	f, err := a.held(ctx, requestsFilter)
	if err != nil {
		return nil, err
	}
	roster, err := a.roster(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.deepen(ctx, f, requestsFilter, roster); err != nil {
		return nil, err
	}
	f.join(roster)
	return f, nil
}

// dialWait is how long a collector has to let us in.
const dialWait = 10 * time.Second

// socket connects to the collector as a consumer.
func (a *app) socket(ctx context.Context) (*client.Socket, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	e := a.endpoint()
	s, err := client.DialSocket(ctx, client.SocketConfig{Base: e.Base, Token: e.Token, HTTP: e.client(), Agent: senderAgent})
	if nobody(err) {
		return nil, errNobody
	}
	return s, a.explain(err)
}

// roster asks who is there now. Without a collector of this user's that is
// nobody.
func (a *app) roster(ctx context.Context) ([]client.Claim, error) {
	s, err := a.socket(ctx)
	if errors.Is(err, errNobody) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	return s.Roster(ctx)
}

// explain says of an error which collector it is about.
func (a *app) explain(err error) error {
	if err == nil {
		return nil
	}
	where := "your collector"
	if a.cfg.Collector != "" {
		where = a.cfg.Collector
	}
	return &wrapped{where + ": " + visible(err.Error()), err}
}

// wrapped is an error told in other words.
type wrapped struct {
	words string
	err   error
}

func (w *wrapped) Error() string { return w.words }
func (w *wrapped) Unwrap() error { return w.err }
