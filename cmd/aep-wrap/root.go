package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
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
			if len(args) == 0 {
				return errors.Join(cmd.Help(), &exitError{code: 2})
			}
			return a.run(args)
		},
		ValidArgsFunction: completeAgent,
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
	root.AddCommand(commands(a)...)
	usageOf(root)
	return root
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
	if len(args) == 1 && args[0] == "--version" {
		args = []string{"version"}
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

// commands are the subcommands, in the order of --help.
func commands(a *app) []*cobra.Command {
	return []*cobra.Command{
		newRunCmd(a),
		newACPCmd(a),
		newCollectCmd(a),
		newHookCmd(a),
		newWatchCmd(a),
		newHookDirScriptCmd(a),
		newServeCmd(a),
		newHookConfigCmd(a),
		newConfigCmd(a),
		newUnpackCmd(a),
		newPsCmd(a),
		newPendingCmd(a),
		newRespondCmd(a),
		newInstructCmd(a),
		newCancelCmd(a),
		newPauseCmd(a),
		newResumeCmd(a),
		newRosterCmd(a),
		newTailCmd(a),
		newTimelineCmd(a),
		newValidateCmd(a),
		newSinkCmd(a),
		newFlushCmd(a),
		newPruneCmd(a),
		newReplayCmd(a),
		newRedactCmd(a),
		newAdaptersCmd(a),
		newDemoCmd(a),
		newDemoAgentCmd(a),
		newLinkCmd(a),
		newRuntimeCmd(a),
		newAttachCmd(a),
		newDoctorCmd(a),
		newShellInitCmd(a),
		newTokenCmd(a),
		newVersionCmd(a),
	}
}
