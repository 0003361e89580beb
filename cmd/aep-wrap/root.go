package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"aep-wrap/agent"
)

// noConfig annotates a command that works whatever the configuration says.
const noConfig = "no-config"

const rootExample = `  aep-wrap claude                         wrap Claude Code, as you would start it
  aep-wrap claude -p "fix the tests"      headless; what the agent prints is untouched
  aep-wrap --capture redacted codex       let events carry text, credentials hidden
  aep-wrap -- tail -f x.log               a command that is named like a subcommand
  aep-wrap tail                           watch every session of this user
  aep-wrap demo                           see it all without an agent at hand`

func newRootCmd(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "aep-wrap [flags] [--] AGENT [ARG...]",
		Short: "Run an agent and tell what it does as Agent Event Protocol events",
		Long: `aep-wrap runs a coding agent unchanged and tells what it does as a stream of
Agent Event Protocol events: in a log of its own, to a collector, to a page.

Flags end at the first word that is not a flag; the rest belongs to the agent.
A subcommand's name hides an agent of that name: write "--" before it.
AEP_WRAP=off runs the agent as if aep-wrap was not there.`,
		Example:       rootExample,
		Args:          cobra.ArbitraryArgs,
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.configure(cmd) },
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 0 && cmd.Flags().NFlag() > 0:
				return usageError("there is no AGENT to run: write it behind the flags, such as aep-wrap --capture redacted claude, or name a command, such as aep-wrap ps --json; see aep-wrap --help")
			case len(args) == 0:
				return errors.Join(cmd.Help(), &exitError{code: 2})
			case cmd.ArgsLenAtDash() == 0:
				return a.run(args)
			}
			return meant(cmd, args[0], a.run(args))
		},
		ValidArgsFunction: a.completeAgent,
	}
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	root.SetIn(a.Stdin)
	addSettings(root.PersistentFlags(), false)
	root.PersistentFlags().String("config", "", "the configuration `FILE` (default ~/.aep/config.yaml) [AEP_CONFIG]")
	completeSettings(root)
	root.Flags().SetInterspersed(false)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usageError("%w; see %s --help", err, cmd.CommandPath())
	})
	addCommands(root, commands(a))
	completeNothing(root)
	usageOf(root)
	a.setHelp(root)
	return root
}

// meant adds to an error which command may have been meant by a word that is
// neither one nor an agent's.
func meant(cmd *cobra.Command, word string, err error) error {
	if !errors.Is(err, agent.ErrNotFound) {
		return err
	}
	if near := nearCommands(cmd, word); near != "" {
		return &exitError{code: exitCode(err), err: fmt.Errorf("%s: %w; did you mean %s?", word, agent.ErrNotFound, near)}
	}
	return err
}

// nearCommands are the subcommands that a word may have been meant for.
func nearCommands(cmd *cobra.Command, word string) string {
	cmd.SuggestionsMinimumDistance = min(len(word)/2, 2)
	if cmd.SuggestionsMinimumDistance == 0 {
		return ""
	}
	var names []string
	for _, name := range cmd.SuggestionsFor(word) {
		names = append(names, cmd.CommandPath()+" "+name)
	}
	if len(names) > 3 { // it is near to nothing
		return ""
	}
	return strings.Join(names, ", or ")
}

// usageOf makes what cobra says of a command's words ours: exit code 2, and
// where to read on.
func usageOf(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		usageOf(c)
	}
	check := cmd.Args
	if check == nil {
		return
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		var e *exitError
		if err == nil || errors.As(err, &e) {
			return err
		}
		if len(args) > 0 && cmd.HasAvailableSubCommands() {
			if near := nearCommands(cmd, args[0]); near != "" {
				return usageError("%w; did you mean %s?", err, near)
			}
		}
		return usageError("%w; see %s --help", err, cmd.CommandPath())
	}
}

// completeSettings completes the values of flags that know them.
func completeSettings(root *cobra.Command) {
	levels := []string{"none", "metadata", "redacted", "full"}
	words := map[string]func() []string{
		"capture": func() []string { return levels },
		"capture-for": func() (out []string) {
			for _, c := range captureCategories {
				for _, l := range levels {
					out = append(out, c+"="+l)
				}
			}
			return out
		},
		"notify-capture": func() []string { return levels[:3] },
		"allow":          func() []string { return []string{"instruct"} },
		"deny":           func() []string { return []string{"respond", "cancel", "pause", "resume", "instruct", "*"} },
		"adapter":        adapterNames,
		"listen":         func() []string { return []string{off, "127.0.0.1:8787"} },
	}
	for name, of := range words {
		_ = root.RegisterFlagCompletionFunc(name, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return of(), cobra.ShellCompDirectiveNoFileComp
		})
	}
}

// configure reads the configuration for a command about to run. Off is off,
// whatever else is wrong.
func (a *app) configure(cmd *cobra.Command) error {
	if a.switchedOff() && (!cmd.HasParent() || cmd.Name() == "run") {
		return nil
	}
	if f := cmd.Flags().Lookup("config"); f != nil {
		a.paths.file = cmp.Or(f.Value.String(), a.Getenv("AEP_CONFIG"))
	}
	for c := cmd; c != nil; c = c.Parent() {
		if _, ok := c.Annotations[noConfig]; ok || c.Name() == "completion" || strings.HasPrefix(c.Name(), "__complete") || c.Name() == "help" {
			return nil
		}
	}
	var err error
	a.cfg, err = loadConfig(cmd.Flags(), a.Getenv, a.paths)
	if a.paths.alone && cmd.Name() != "collect" {
		a.cfg.Listen = off
	}
	if err == nil && cmd.Name() != "collect" && cmd.Name() != "runtime" && !loopback(a.cfg.Listen) {
		return usageError("--listen %q: want a loopback address, such as 127.0.0.1:8787; a collector for others is aep-wrap collect, with TLS", a.cfg.Listen)
	}
	return err
}

// execute runs the command line and gives the exit code.
func execute(a *app, args []string) int {
	root := newRootCmd(a)
	if i := slices.Index(args, "--version"); i == 0 || i == 1 && strings.HasPrefix(args[0], "--json") {
		args[i] = "version"
	}
	root.SetArgs(args)
	err := root.Execute()
	if out, ok := a.Stdout.(*output); ok && err == nil && out.err != nil {
		err = fmt.Errorf("cannot write the output: %w", reason(out.err))
	}
	if err == nil {
		return 0
	}
	var e *exitError
	if text := err.Error(); !errors.As(err, &e) || e.err != nil {
		a.warn("%s", text)
	}
	return exitCode(err)
}

// commands are the subcommands, as --help groups them.
func commands(a *app) []commandGroup {
	return []commandGroup{
		{"run", "Run agents:", []*cobra.Command{newRunCmd(a), newACPCmd(a), newDemoCmd(a), newDemoAgentCmd(a), newShellInitCmd(a)}},
		{"see", "See what they do:", []*cobra.Command{newPsCmd(a), newPendingCmd(a), newTailCmd(a), newTimelineCmd(a), newRosterCmd(a), newLinkCmd(a)}},
		{"command", "Answer and command them:", []*cobra.Command{newRespondCmd(a), newInstructCmd(a), newCancelCmd(a), newPauseCmd(a), newResumeCmd(a)}},
		{"beside", "Tell of agents that others start:", []*cobra.Command{newWatchCmd(a), newServeCmd(a), newHookConfigCmd(a), newHookDirScriptCmd(a), newHookCmd(a), newUnpackCmd(a)}},
		{"events", "Collect, keep and check events:", []*cobra.Command{newCollectCmd(a), newSinkCmd(a), newFlushCmd(a), newPruneCmd(a), newReplayCmd(a), newValidateCmd(a), newRedactCmd(a)}},
		{"program", "Drive agents by program:", []*cobra.Command{newRuntimeCmd(a), newAttachCmd(a)}},
		{"more", "Set up and find out:", []*cobra.Command{newDoctorCmd(a), newAdaptersCmd(a), newConfigCmd(a), newTokenCmd(a), newVersionCmd(a)}},
	}
}
