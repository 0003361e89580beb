package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"aep-wrap/collector/client"
)

func newRosterCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "roster",
		Short: "List the sessions that are connected, and the commands they accept",
		Long: `Asks the collector who is connected now: each live session with its agent and the
commands that its agent declared to accept. It is a snapshot: an agent may refuse
what it declared, and a session that is not here may come.`,
		Example: `  aep-wrap roster
  aep-wrap roster --json | jq -r .control.accepts[]`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			claims, err := a.roster(cmd.Context())
			if err != nil {
				return err
			}
			return a.showRoster(claims)
		},
	}
}

func (a *app) showRoster(claims []client.Claim) error {
	if a.cfg.JSON {
		enc := a.encoder()
		for _, c := range claims {
			if err := enc.Encode(c); err != nil {
				return err
			}
		}
		return nil
	}
	if len(claims) == 0 {
		a.note("no session is connected now")
		return nil
	}
	rows := [][]string{{"SESSION", "AGENT", "INSTANCE", "ACCEPTS"}}
	for _, c := range claims {
		accepts := strings.Join(c.Accepts(), " ")
		if accepts == "" {
			accepts = "no commands"
		}
		rows = append(rows, []string{c.Session, c.Agent, c.Instance, accepts})
	}
	return a.table(rows, 0)
}

// encoder writes an object a line, characters as they are.
func (a *app) encoder() *json.Encoder {
	enc := json.NewEncoder(a.Stdout)
	enc.SetEscapeHTML(false)
	return enc
}

// note says on standard error what is no output: that there is none.
func (a *app) note(words string) {
	if !a.cfg.Quiet {
		fmt.Fprintf(a.Stderr, "aep-wrap: %s\n", words)
	}
}

// table prints rows, the first of them the head; columns are as wide as what
// stands in them, or, where a line has no more cells than room, those that give
// are narrower.
func (a *app) table(rows [][]string, room int, giving ...floor) error {
	look := a.lookOf(a.Stdout)
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i := range row {
			row[i] = visible(row[i])
			widths[i] = max(widths[i], cells(row[i]))
		}
	}
	if room > 0 {
		narrow(widths, room-2*(len(widths)-1), giving...)
	}
	for n, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(pad(fit(cell, widths[i]), widths[i]))
		}
		line := strings.TrimRight(b.String(), " ")
		if n == 0 {
			line = look.paint(dim, line)
		}
		if _, err := fmt.Fprintln(a.Stdout, line); err != nil {
			return err
		}
	}
	return nil
}
