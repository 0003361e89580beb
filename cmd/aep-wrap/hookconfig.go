package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"aep-wrap/adapters"
	"aep-wrap/agent"
)

func newHookConfigCmd(a *app) *cobra.Command {
	var dir, script string
	cmd := &cobra.Command{
		Use:   "hook-config AGENT",
		Short: "Print what an agent is to be told so that its hooks reach aep-wrap serve",
		Long: `Prints the settings by which an agent that is started by others reports to aep-wrap
serve: what a wrapped launch would hand it, with the port, the secret or the socket
of serve in it. --hook-listen, --hook-socket and --hook-secret-file, or the file
that serve is started with, say where that is.

With --hooks DIR, or where serve has neither port nor socket, its hooks go through a
directory that both see, by the script of aep-wrap hook-dir-script. Paths are as the
agent sees them: DIR, and --hook-script, where the script is in its container. With
--out, the script is written there too. --hold and --gate, as serve has them, say
which hooks wait for an answer, and how long.

For Claude Code it is a settings file, for claude --settings FILE. For an agent
that takes more than one file, --out DIR has them written there, and what is
printed says how the agent is started with them.`,
		Example: `  aep-wrap hook-config claude-code --hook-listen 127.0.0.1:9465 > aep-hooks.json
  claude --settings aep-hooks.json
  aep-wrap hook-config codex --hook-socket /run/aep/hook.sock --out ~/.aep/codex
  aep-wrap hook-config claude-code --hooks /shared/hooks --hook-script /opt/aep/hookdir.sh`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := &a.cfg
			if cmd.Flags().Changed("hooks") || script != "" || c.HookListen == "" && c.HookSocket == "" && len(c.Hooks) > 0 {
				c.HookListen, c.HookSocket = "", ""
			} else {
				c.Hooks = nil
			}
			return a.hookConfig(args[0], dir, script)
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return adapterNames(), cobra.ShellCompDirectiveNoFileComp
		},
	}
	addSettings(cmd.Flags(), true)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = !strings.HasPrefix(f.Name, "hook") || f.Name == "hook-socket-group" })
	cmd.Flags().StringVar(&dir, "out", "", "write the files into this `DIR`")
	cmd.Flags().StringVar(&script, "hook-script", "", "the script of hook-dir-script is at this `PATH`, for --hooks")
	return cmd
}

// hookConfig prints the wiring of a launch that reports to serve.
func (a *app) hookConfig(name, dir, script string) error {
	ad, err := findAdapter(name)
	if err != nil {
		return err
	}
	if ad.Launch == nil || ad.Launch.Wire == nil || len(ad.Command) == 0 {
		return fmt.Errorf("%s has no hooks that could be sent elsewhere", ad.Title)
	}
	c := &a.cfg
	out, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	end := adapters.Endpoint{Dir: out}
	switch {
	case script != "" && len(c.Hooks) == 0:
		return usageError("hook-config: --hook-script goes with --hooks DIR")
	case len(c.Hooks) > 0:
		if script == "" && dir != "" {
			script = filepath.Join(out, hookDirName)
		}
		if err = a.throughDirectory(&end, ad.Name, script); err != nil {
			return err
		}
	case c.HookListen == "" && c.HookSocket == "":
		return usageError("hook-config: want --hook-listen, --hook-socket or --hooks, as aep-wrap serve has them")
	}
	if c.HookSocket != "" {
		end.Helper, end.Socket = helper(ad.Name), c.HookSocket
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
	if len(w.Files)+len(w.SetEnv) == 0 && slices.Equal(w.Args, seen.Args) {
		return fmt.Errorf("%s has no hooks that could be sent elsewhere", ad.Title)
	}
	if end.Asking != nil && dir != "" && script == filepath.Join(out, hookDirName) {
		w.Files = maps.Clone(w.Files)
		if w.Files == nil {
			w.Files = map[string][]byte{}
		}
		w.Files[hookDirName] = []byte(hookDirScript)
	}
	return a.tellHookConfig(dir, w)
}

// hookDirName is what the script of hook-dir-script is called.
const hookDirName = "hookdir.sh"

// spare is how much sooner than its runtime the script gives a hook up.
const spare = 5 * time.Second

// throughDirectory has hooks go through the hook directory. One in which somebody may
// be asked waits for the reply; of others nobody waits for one.
func (a *app) throughDirectory(end *adapters.Endpoint, adapter, script string) error {
	if len(a.cfg.Hooks) > 1 {
		return usageError("hook-config: serve takes hooks from %d directories: want the agent's with --hooks DIR", len(a.cfg.Hooks))
	}
	if script == "" {
		return usageError("hook-config: want --hook-script PATH, where the agent finds the script of aep-wrap hook-dir-script, or --out DIR to have it written there")
	}
	if !filepath.IsAbs(script) {
		return usageError("hook-config: --hook-script %s: want an absolute path, for the agent may be anywhere", script)
	}
	hooks, err := filepath.Abs(a.paths.expand(a.cfg.Hooks[0]))
	if err != nil {
		return err
	}
	line := func(wait ...string) []string {
		return append(append([]string{"env", "AEP_HOOK_DIR=" + hooks}, wait...), "sh", script, adapter)
	}
	end.Helper = line()
	end.Asking = func(within time.Duration) []string {
		return line(fmt.Sprintf("AEP_HOOK_WAIT=%d", int((within - spare).Seconds())))
	}
	return nil
}

// tellHookConfig writes a wiring's files, or prints the one there is.
func (a *app) tellHookConfig(dir string, w adapters.Wiring) error {
	if dir == "" && len(w.Files) > 1 {
		return usageError("hook-config: this agent is told by %s and its command line: want --out DIR", count(len(w.Files), "file"))
	}
	if dir == "" {
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
