package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func newPsCmd(a *app) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "ps",
		Short: "List the sessions, what each is doing, and what waits for an answer",
		Long: `Lists the agents' sessions that have not ended: whether each works, waits for an
answer, is paused, idle, or has failed its last run; its last event; and how many
requests of its wait. Whether it can be commanded is what aep-wrap roster says.
With --all those that ended are there too, as far as the collector holds them.`,
		Example: `  aep-wrap ps
  aep-wrap ps --json | jq 'select(.waiting > 0)'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.ps(cmd.Context(), all) },
	}
	cmd.Flags().BoolVar(&all, "all", false, "those that ended too")
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
	Connected bool      `json:"connected"`
	Accepts   []string  `json:"accepts"`
}

type lastEvent struct {
	Type string    `json:"type"`
	Time time.Time `json:"time"`
}

func (a *app) ps(ctx context.Context, all bool) error {
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
	for _, m := range f.list() {
		if all || m.state() != "ended" {
			shown = append(shown, m)
		}
	}
	if a.cfg.JSON {
		enc := a.encoder()
		for _, m := range shown {
			r := sessionRecord{Session: m.name, Agent: m.agent, Host: host(m.source), Source: m.source, State: m.state(), Waiting: waiting[m],
				Run: m.run, Started: m.started, LastEvent: lastEvent{m.lastType, m.last}, Connected: m.claim != nil, Accepts: []string{}}
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
		a.note("no session is open")
		return nil
	}
	names := make([]string, 0, len(f.sessions))
	for _, m := range f.list() {
		names = append(names, m.name)
	}
	short := shortest(names)
	rows := [][]string{{"SESSION", "AGENT", "HOST", "STATE", "WAITS", "LAST", "EVENT"}}
	for _, m := range shown {
		state := m.state()
		if m.claim == nil && state != "ended" {
			state += "*"
		}
		waits := ""
		if n := waiting[m]; n > 0 {
			waits = fmt.Sprint(n)
		}
		rows = append(rows, []string{short[m.name], clip(m.agent, 20), clip(host(m.source), 20), state, waits, ago(now.Sub(m.last)), m.lastType})
	}
	if err := a.table(rows); err != nil {
		return err
	}
	for _, m := range shown {
		if m.claim == nil && m.state() != "ended" {
			a.note("* is not connected now: it cannot be commanded")
			break
		}
	}
	return nil
}

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
