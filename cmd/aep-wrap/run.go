package main

import (
	"errors"

	"github.com/spf13/cobra"
)

func newRunCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags] [--] AGENT [ARG...]",
		Short: "Run an agent wrapped: the same as aep-wrap AGENT, spelled out",
		Args:  cobra.MinimumNArgs(1),
		RunE:  func(_ *cobra.Command, args []string) error { return a.run(args) },
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// run wraps the command args.
func (a *app) run(args []string) error {
	return errors.New("run is being wired")
}
