package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"aep-wrap/queue/jsonl"
)

func newPsCmd(a *app) *cobra.Command {
	var all bool
	var room func() int
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List the sessions, what each is doing, and what waits for an answer",
		Long: `Lists the agents' sessions that live: whether each works, waits for an answer, is
paused, idle, or has failed its last run; its last event; and how many requests of
its wait. Whether it can be commanded is what aep-wrap roster says.

A session lives while somebody is connected for it, or its wrapper runs here. Of
one that is only watched, or is told from elsewhere without a connection, nobody
says that it is over: it counts as living for ten minutes after its last event.
With --all the others are there too, as far as the collector holds them: those
that ended, and those that are gone without an end.`,
		Example: `  aep-wrap ps
  aep-wrap ps --json | jq 'select(.waiting > 0)'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.ps(cmd.Context(), all, room()) },
	}
	cmd.Flags().BoolVar(&all, "all", false, "those that ended, or are gone, too")
	room = a.roomFlag(cmd)
	return cmd
}

// sessionRecord is a session as --json tells it.
type sessionRecord struct {
	Session   string    `json:"session"`
	Agent     string    `json:"agent"`
	Host      string    `json:"host,omitempty"`
	Source    string    `json:"source"`
	State     string    `json:"state"`
	Waiting   int       `json:"waiting"`
	Run       string    `json:"run,omitempty"`
	Started   time.Time `json:"started_at"`
	LastEvent lastEvent `json:"last_event"`
	Live      bool      `json:"live"`
	Connected bool      `json:"connected"`
	Accepts   []string  `json:"accepts"`
}

type lastEvent struct {
	Type string    `json:"type"`
	Time time.Time `json:"time"`
}

func (a *app) ps(ctx context.Context, all bool, room int) error {
	f, err := a.held(ctx, "")
	if err != nil {
		return err
	}
	claims, err := a.roster(ctx)
	if err != nil {
		return err
	}
	if err := a.deepen(ctx, f, requestsFilter, claims); err != nil {
		return err
	}
	f.join(claims)
	now := time.Now()
	waiting := map[*member]int{}
	for _, q := range f.waiting(now) {
		waiting[q.member]++
	}
	var shown []*member
	live := map[*member]bool{}
	for _, m := range f.list() {
		if live[m] = a.lives(m, now); !m.ours() && (all || live[m]) {
			shown = append(shown, m)
		}
	}
	if a.cfg.JSON {
		enc := a.encoder()
		for _, m := range shown {
			r := sessionRecord{Session: m.name, Agent: m.agent, Host: host(m.source), Source: m.source, State: m.state(), Waiting: waiting[m],
				Run: m.run, Started: m.started, LastEvent: lastEvent{m.lastType, m.last}, Live: live[m], Connected: m.claim != nil, Accepts: []string{}}
			if m.claim != nil {
				r.Accepts = append(r.Accepts, m.claim.Accepts()...)
			}
			if err := enc.Encode(r); err != nil {
				return err
			}
		}
		return nil
	}
	if len(shown) == 0 {
		words := "no session is open"
		if !all && slices.ContainsFunc(f.list(), func(m *member) bool { return !m.ours() }) {
			words = "no session lives; aep-wrap ps --all lists those that did"
		}
		a.note(words)
		return nil
	}
	names := make([]string, 0, len(f.sessions))
	for _, m := range f.list() {
		names = append(names, m.name)
	}
	short := shortest(names)
	rows := [][]string{psHeads[:]}
	for _, m := range shown {
		state := m.state()
		switch {
		case state == "ended":
		case !live[m]:
			state = "gone"
		case m.claim == nil:
			state += "*"
		}
		waits := ""
		if n := waiting[m]; n > 0 {
			waits = fmt.Sprint(n)
		}
		rows = append(rows, []string{short[m.name], m.agent, host(m.source), state, waits, ago(now.Sub(m.last)), m.lastType})
	}
	// A name that is cut is none: the session gives nothing.
	if err := a.table(rows, room, floor{psHost, 8}, floor{psAgent, 8}, floor{psEvent, 16}, floor{psHost, 0}, floor{psEvent, 0}); err != nil {
		return err
	}
	for _, m := range shown {
		if m.claim == nil && live[m] {
			a.note("* is not connected now: it cannot be commanded")
			break
		}
	}
	return nil
}

// ours says of a session that it is no agent's: doctor's test, and what a watch
// tells of itself.
func (m *member) ours() bool { return m.agent == doctorAdapter.Name || m.agent == senderAgent }

// quietFor is how long a session of which nobody says whether it is over lives on
// after its last event.
const quietFor = 10 * time.Minute

// lives says whether a session goes on, as far as that can be known here.
func (a *app) lives(m *member, now time.Time) bool {
	switch {
	case m.claim != nil:
		return true
	case m.ended:
		return false
	}
	log := jsonl.Path(a.cfg.LogDir, m.agent, m.name)
	if _, err := os.Stat(log); err == nil && host(m.source) == hostname() {
		switch {
		case held(strings.TrimSuffix(log, ".jsonl") + ".lock"):
			return true
		case !jsonl.IsWatched(log):
			return false // its wrapper would have it
		}
	}
	return now.Sub(m.last) < quietFor
}

// The columns of ps.
const (
	psSession = iota
	psAgent
	psHost
	psState
	psWaits
	psLast
	psEvent
)

var psHeads = [...]string{psSession: "SESSION", psAgent: "AGENT", psHost: "HOST", psState: "STATE", psWaits: "WAITS", psLast: "LAST", psEvent: "EVENT"}

// past says when something was.
func past(d time.Duration) string {
	if d < time.Second {
		return "just now"
	}
	return ago(d) + " ago"
}

// ago writes how long something is past.
func ago(d time.Duration) string {
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// shortest gives each of the names as much of its beginning as tells it from
// the others, with some to spare; a name that is the beginning of another
// stands whole.
func shortest(names []string) map[string]string {
	const spare = 8
	out := make(map[string]string, len(names))
	for _, n := range names {
		k := min(spare, len(n))
		for _, o := range names {
			if o == n {
				continue
			}
			same := 0
			for same < len(n) && same < len(o) && n[same] == o[same] {
				same++
			}
			k = max(k, min(same+1, len(n)))
		}
		for k < len(n) && n[k]&0xC0 == 0x80 { // not within a character
			k++
		}
		out[n] = n[:k]
	}
	return out
}
