package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"aep-wrap/adapters"
	"aep-wrap/agent"
)

func newHookConfigCmd(a *app) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "hook-config AGENT",
		Short: "Print what an agent is to be told so that its hooks reach aep-wrap serve",
		Long: `Prints the settings by which an agent that is started by others reports to aep-wrap
serve: what a wrapped launch would hand it, with the port, the secret or the socket
of serve in it. --hook-listen, --hook-socket and --hook-secret-file, or the file
that serve is started with, say where that is.

For Claude Code it is a settings file, for claude --settings FILE. For an agent
that takes more than one file, --out DIR has them written there, and what is
printed says how the agent is started with them.`,
		Example: `  aep-wrap hook-config claude-code --hook-listen 127.0.0.1:9465 > aep-hooks.json
  claude --settings aep-hooks.json
  aep-wrap hook-config codex --hook-socket /run/aep/hook.sock --out ~/.aep/codex`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return a.hookConfig(args[0], dir) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return adapterNames(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	addSettings(cmd.Flags(), true)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = !strings.HasPrefix(f.Name, "hook-") || f.Name == "hook-socket-group" })
	cmd.Flags().StringVar(&dir, "out", "", "write the files into this `DIR`")
	return cmd
}

// hookConfig prints the wiring of a launch that reports to serve.
func (a *app) hookConfig(name, dir string) error {
	ad, err := findAdapter(name)
	if err != nil {
		return err
	}
	if ad.Launch == nil || ad.Launch.Wire == nil || len(ad.Command) == 0 {
		return fmt.Errorf("%s has no hooks that could be sent elsewhere", ad.Title)
	}
	c := &a.cfg
	if c.HookListen == "" && c.HookSocket == "" {
		return usageError("hook-config: want --hook-listen or --hook-socket, as aep-wrap serve has them")
	}
	out, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	end := adapters.Endpoint{Dir: out, Helper: helper(ad.Name), Socket: c.HookSocket}
	if c.HookSocket == "" {
		end.Helper = nil
	}
	if c.HookListen != "" {
		word, err := a.hookSecret(true)
		if err != nil {
			return err
		}
		end.HookURL = "http://" + c.HookListen + "/hook/" + word
	}
	p := c.patience()
	seen := adapters.Launch{Args: []string{ad.Command[0]}, Path: ad.Command[0], Env: a.agentEnv(), Home: a.paths.home, TTY: true,
		ReadFile: os.ReadFile, Hold: p.Hold, Both: p.Both, Gate: c.Gate}
	if path, err := agent.LookPath(ad.Command[0], a.Getenv("PATH")); err == nil {
		seen.Path = path
	}
	w, err := ad.Launch.Wire(seen, end)
	if err != nil {
		return err
	}
	for _, n := range w.Notes {
		a.warn("%s", n)
	}
	if len(w.Overlays) > 0 || w.Server != nil {
		return fmt.Errorf("%s reports only to a wrapper that starts it: its hooks need more than a file", ad.Title)
	}
	return a.tellHookConfig(dir, w)
}

// tellHookConfig writes a wiring's files, or prints the one there is.
func (a *app) tellHookConfig(dir string, w adapters.Wiring) error {
	if dir == "" {
		if len(w.Files) != 1 {
			return usageError("hook-config: this agent is told by %s and its command line: want --out DIR", count(len(w.Files), "file"))
		}
		for _, content := range w.Files {
			_, err := a.Stdout.Write(content)
			return err
		}
	}
	for name, content := range w.Files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("no place for its file %s", name)
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
	var line []string
	for _, name := range slices.Sorted(maps.Keys(w.SetEnv)) {
		line = append(line, name+"="+adapters.Quote(w.SetEnv[name]))
	}
	for _, arg := range w.Args {
		line = append(line, adapters.Quote(arg))
	}
	fmt.Fprintln(a.Stdout, strings.Join(line, " "))
	return nil
}
