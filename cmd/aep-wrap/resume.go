package main

import (
	"github.com/spf13/cobra"

	"aep-wrap/control"
)

func newResumeCmd(a *app) *cobra.Command {
	return plainCommand(a, control.From.Resume, &cobra.Command{
		Use:   "resume SESSION",
		Short: "Let a paused agent go on",
		Long:  "Lets an agent that aep-wrap pause has stopped go on where it was.\n\n" + exitCodes,
		Example: `  aep-wrap resume 8f2c
  aep-wrap resume 8f2c --wait`,
	})
}
