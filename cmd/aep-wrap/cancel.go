package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"aep-wrap/control"
)

func newCancelCmd(a *app) *cobra.Command {
	var run, reason, scope string
	var follow following
	cmd := &cobra.Command{
		Use:   "cancel SESSION",
		Short: "Cancel an agent's run, or end its session",
		Long: `Asks an agent to stop what it is doing. What is stopped:

  cancel SESSION                  the run that is open, as by the agent's own key
                                  for it; the agent stays and waits for the next
  cancel SESSION --run RUN        that run, and no other that has begun meanwhile
  cancel SESSION --scope session  the session: the agent ends, and every process
                                  that it started

Without an open run there is nothing to cancel: the agent refuses, and stays.

` + exitCodes,
		Example: `  aep-wrap cancel 8f2c
  aep-wrap cancel 8f2c --run r_1 --reason "wrong branch" --wait
  aep-wrap cancel 8f2c --scope session`,
		Args:              sessionArg(1, "one SESSION, as aep-wrap ps shows it"),
		ValidArgsFunction: a.completeTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case scope != "run" && scope != "session":
				return usageError("--scope %q: want run or session", scope)
			case scope == "session" && run != "":
				return usageError("--run names one run; --scope session ends them all: write one of them")
			case cmd.Flags().Changed("run") && run == "":
				return usageError("--run: want a run's name, or leave it out for the one that is open")
			}
			if err := follow.check(); err != nil {
				return err
			}
			return a.cancel(cmd.Context(), args[0], run, scope, reason, follow)
		},
	}
	cmd.Flags().StringVar(&run, "run", "", "the `RUN`, by its name or the beginning of it")
	cmd.Flags().StringVar(&scope, "scope", "run", "`run` or session")
	cmd.Flags().StringVar(&reason, "reason", "", "`WHY`, for the agent's stream")
	_ = cmd.RegisterFlagCompletionFunc("run", a.completeRun)
	_ = cmd.RegisterFlagCompletionFunc("scope", cobra.FixedCompletions([]string{"run", "session"}, cobra.ShellCompDirectiveNoFileComp))
	follow.flags(cmd.Flags())
	return cmd
}

func (a *app) cancel(ctx context.Context, session, run, scope, reason string, o following) error {
	t, err := a.target(ctx, session)
	if err != nil {
		return err
	}
	defer func() { t.socket.Close() }()
	if run != "" {
		if run, err = a.findRun(ctx, t.name, run); err != nil {
			return err
		}
	}
	cmd := from().CancelRun(time.Now(), t.name, run, reason)
	if scope == "session" {
		cmd = from().CancelSession(time.Now(), t.name, reason)
	}
	return t.send(ctx, cmd, o, "")
}

// findRun finds the run that a person meant. One that the collector does not
// hold is sent as it was written.
func (a *app) findRun(ctx context.Context, session, prefix string) (string, error) {
	f, err := a.held(ctx, string(filterOf(map[string]any{"session": session, "type": "run.started"})))
	if err != nil {
		return "", err
	}
	var runs []string
	for _, m := range f.list() {
		for r := range m.runs {
			runs = append(runs, r)
		}
	}
	run, err := control.Resolve(prefix, runs)
	if many := (*control.AmbiguousError)(nil); errors.As(err, &many) {
		return "", a.ambiguous("run", prefix, many.Found, func(string) string { return "" })
	}
	if err != nil {
		return prefix, nil
	}
	return run, nil
}
