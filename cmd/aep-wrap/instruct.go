package main

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"aep-wrap/control"
)

func newInstructCmd(a *app) *cobra.Command {
	var follow following
	cmd := &cobra.Command{
		Use:   "instruct SESSION TEXT",
		Short: "Give an agent a word on its way",
		Long: `Hands an agent a text while it works. It reaches the model with the next hook by
which the agent takes one; --wait says when it did. Agents take instructions only
when they were started with --allow instruct. TEXT may be -, which reads standard
input.

` + exitCodes,
		Example: `  aep-wrap instruct 8f2c "leave the migrations alone"
  aep-wrap instruct 8f2c - --wait < notes.txt`,
		Args:              sessionArg(2, "a SESSION and a TEXT"),
		ValidArgsFunction: a.completeTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := follow.check(); err != nil {
				return err
			}
			text, err := a.words("TEXT", args[1])
			if err != nil {
				return err
			}
			if strings.TrimSpace(text) == "" {
				return usageError("instruct: the text is empty")
			}
			return a.instruct(cmd.Context(), args[0], text, follow)
		},
	}
	follow.flags(cmd.Flags())
	return cmd
}

func (a *app) instruct(ctx context.Context, session, text string, o following) error {
	t, err := a.target(ctx, session)
	if err != nil {
		return err
	}
	// The type is the vendor's own. Where the roster does not name it, the
	// agent's name is what it would be.
	typ := control.Instruct("agent")
	if t.claim != nil {
		if typ = control.InstructType(t.claim.Accepts()); typ == "" {
			typ = control.Instruct(t.claim.Agent)
		}
	}
	return t.send(ctx, from().Instruct(time.Now(), typ, t.name, text), o, "")
}
