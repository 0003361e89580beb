package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"aep-wrap/control"
	"aep-wrap/event"
)

func newPauseCmd(a *app) *cobra.Command {
	return plainCommand(a, control.From.Pause, &cobra.Command{
		Use:   "pause SESSION",
		Short: "Stop an agent where it is, with all its processes",
		Long: `Stops every process of an agent where it stands. Nothing is lost: aep-wrap resume
lets it go on. What waits for it meanwhile (a server, a model's stream) may give
up waiting.

` + exitCodes,
		Example: `  aep-wrap pause 8f2c
  aep-wrap pause 8f2c --wait`,
	})
}

// plainCommand completes a command that says nothing but its name.
func plainCommand(a *app, make func(control.From, time.Time, string) event.Event, cmd *cobra.Command) *cobra.Command {
	var follow following
	cmd.Args = sessionArg(1, "one SESSION, as aep-wrap ps shows it")
	cmd.ValidArgsFunction = a.completeTarget
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := follow.check(); err != nil {
			return err
		}
		return a.sendPlain(cmd.Context(), args[0], make, follow)
	}
	follow.flags(cmd.Flags())
	return cmd
}

func (a *app) sendPlain(ctx context.Context, session string, make func(control.From, time.Time, string) event.Event, o following) error {
	t, err := a.target(ctx, session)
	if err != nil {
		return err
	}
	return t.send(ctx, make(from(), time.Now(), t.name), o, "")
}
