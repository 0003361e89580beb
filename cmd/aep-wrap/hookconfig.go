package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
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
	var dir, script, output string
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
printed says how the agent is started with them.

With --hook-listen the settings have the secret in them, by which whoever reads
them can tell serve of hooks: --output FILE writes them so that you alone can read
them, whole or not at all, and never through a link.`,
		Example: `  aep-wrap hook-config claude-code --hook-listen 127.0.0.1:9465 --output aep-hooks.json
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
			if output != "" && dir != "" {
				return usageError("hook-config: --out writes the files of an agent that takes more than one, --output the one there is: want one of them")
			}
			if cmd.Flags().Changed("output") && (output == "" || output == "-") {
				return usageError("hook-config: --output %s: want the name of a file", output)
			}
			if output == "" {
				return a.hookConfig(args[0], dir, script, a.tellSettings)
			}
			return a.hookConfig(args[0], dir, script, func(b []byte, _ bool) error { return writePrivate(output, b) })
		},
		ValidArgsFunction: completeAdapter(isAgent),
	}
	addSettings(cmd.Flags(), true)
	cmd.Flags().VisitAll(func(f *pflag.Flag) { f.Hidden = !strings.HasPrefix(f.Name, "hook") || f.Name == "hook-socket-group" })
	cmd.Flags().StringVar(&dir, "out", "", "write the files into this `DIR`")
	cmd.Flags().StringVar(&output, "output", "", "write what would be printed to this `FILE`, readable by you alone")
	cmd.Flags().StringVar(&script, "hook-script", "", "the script of hook-dir-script is at this `PATH`, for --hooks")
	return cmd
}

// tellSettings prints settings. In a file that others can read a secret is none.
func (a *app) tellSettings(b []byte, secret bool) error {
	if f, ok := a.Stdout.(interface{ Stat() (os.FileInfo, error) }); ok && secret {
		if fi, err := f.Stat(); err == nil && fi.Mode().IsRegular() && fi.Mode().Perm()&0o077 != 0 {
			a.warnUnlessQuiet("the settings have the secret of serve's hooks in them, and others can read the file that they are printed to: chmod 600 it, or write it by --output FILE")
		}
	}
	_, err := a.Stdout.Write(b)
	return err
}

// writePrivate writes a file that its user alone can read: whole or not at all,
// in the place of what had its name, and never through a link, which may lead to
// somebody else's.
func writePrivate(path string, b []byte) error {
	switch fi, err := os.Lstat(path); {
	case err == nil && fi.Mode()&os.ModeSymlink != 0:
		return fmt.Errorf("%s is a symbolic link: name the file itself, or remove the link", path)
	case err == nil && !fi.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*") // 0600
	if err != nil {
		return fmt.Errorf("%s cannot be written: %w", path, reason(err))
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(b)
	if err = errors.Join(err, tmp.Sync(), tmp.Close()); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}

// hookConfig tells the wiring of a launch that reports to serve.
func (a *app) hookConfig(name, dir, script string, told func(b []byte, secret bool) error) error {
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
	end, secret := adapters.Endpoint{Dir: out}, ""
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
		if secret, err = a.hookSecret(true); err != nil {
			return err
		}
		end.HookURL = "http://" + c.HookListen + "/hook/" + secret
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
	if nothing(w, seen) {
		return cannotReport(&ad, seen, end)
	}
	if alone(w) {
		return onlyWrapped(&ad)
	}
	for _, n := range w.Notes {
		a.warn("%s", n)
	}
	if end.Asking != nil && dir != "" && script == filepath.Join(out, hookDirName) {
		w.Files = maps.Clone(w.Files)
		if w.Files == nil {
			w.Files = map[string][]byte{}
		}
		w.Files[hookDirName] = []byte(hookDirScript)
	}
	return tellHookConfig(dir, w, func(b []byte) error {
		return told(b, secret != "" && bytes.Contains(b, []byte(secret)))
	})
}

// alone says of a wiring that a wrapper alone can do it.
func alone(w adapters.Wiring) bool { return len(w.Overlays) > 0 || w.Server != nil }

func nothing(w adapters.Wiring, seen adapters.Launch) bool {
	return !alone(w) && len(w.Files)+len(w.SetEnv) == 0 && slices.Equal(w.Args, seen.Args)
}

func onlyWrapped(ad *adapters.Adapter) error {
	return fmt.Errorf("%s reports only to a wrapper that starts it: its hooks need more than a file", ad.Title)
}

// cannotReport says why an agent's hooks do not reach what was named: by all
// ways that there are, something might.
func cannotReport(ad *adapters.Adapter, seen adapters.Launch, end adapters.Endpoint) error {
	end.Helper, end.Socket, end.HookURL, end.Port = helper(ad.Name), "/socket", "http://127.0.0.1:1/", 1
	w, err := ad.Launch.Wire(seen, end)
	switch {
	case err != nil || nothing(w, seen):
		return fmt.Errorf("%s has no hooks that could be sent elsewhere", ad.Title)
	case alone(w):
		return onlyWrapped(ad)
	}
	return usageError("hook-config: the hooks of %s are commands, which reach no port: want --hook-socket or --hooks", ad.Title)
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

// tellHookConfig writes a wiring's files, or tells the one there is.
func tellHookConfig(dir string, w adapters.Wiring, told func([]byte) error) error {
	if dir == "" && len(w.Files) > 1 {
		return usageError("hook-config: this agent is told by %s and its command line: want --out DIR", count(len(w.Files), "file"))
	}
	if dir == "" {
		for _, content := range w.Files {
			return told(content)
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
		if err := writePrivate(path, content); err != nil {
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
	return told([]byte(strings.Join(line, " ") + "\n"))
}
