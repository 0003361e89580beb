package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"aep-wrap/adapters"
	"aep-wrap/adapters/all"
	"aep-wrap/agent"
	"aep-wrap/agent/follow"
	"aep-wrap/queue"
	"aep-wrap/redaction"
)

// auto is the --adapter by which a log tells itself whose it is.
const auto = "auto"

func newWatchCmd(a *app) *cobra.Command {
	var o watchOptions
	cmd := &cobra.Command{
		Use:   "watch [flags] PATH...",
		Short: "Tell what agents do that others started, by their logs and hook directories",
		Long: `Follows the session logs of agents that run already, run elsewhere or ran
yesterday, and tells what they did as events. A PATH is a log, a directory of
logs with all below it, or a hook directory (see aep-wrap hook-dir-script).

Whose a log is, its path and its first record tell; --adapter says it where they
do not. A layout or a version that is not known is told loudly, here and as an
event of agent aep-wrap, session watch.

Events carry the times and the ids of what they tell: a log that is read again,
by whomever, tells nothing new, and how far each log was read is kept beside the
session logs. A session that a wrapper runs is left to it. Nothing that a watch
tells ends a session: it sees no process.

With --once it reads what is there, sends it, and ends. Otherwise it ends by a
signal, with exit code 0.`,
		Example: `  aep-wrap watch ~/.claude/projects ~/.codex/sessions
  aep-wrap watch --once --from start session.jsonl
  aep-wrap watch --hooks /shared/hooks --adapter claude-code`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args)+len(o.hooks) == 0 {
				return usageError("watch: want a PATH, such as ~/.claude/projects, or --hooks DIR")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			o.paths = args
			return a.watch(ctx, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.from, "from", string(follow.Saved), "where to begin: saved (where the last watch ended; what was never watched, from its start), start, or now")
	f.BoolVar(&o.once, "once", false, "read what is there, and end")
	f.StringArrayVar(&o.hooks, "hooks", nil, "a `directory` of hooks, made where it is not there; may be given several times")
	f.StringVar(&o.archive, "archive", "", "keep hooks that were taken in this `directory` instead of deleting them")
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions([]string{"saved", "start", "now"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

type watchOptions struct {
	paths   []string
	from    string
	once    bool
	hooks   []string
	archive string
}

// watched is what aep-wrap watch --once tells.
type watched struct {
	Files   int    `json:"files"`
	Records int64  `json:"records"`
	Events  int64  `json:"events"`            // that were new
	Refused int64  `json:"refused,omitempty"` // records that could not be read
	Unknown int64  `json:"unknown,omitempty"` // files that no adapter knows
	Owned   int64  `json:"owned,omitempty"`   // sessions left to their wrapper
	Unsent  bool   `json:"unsent,omitempty"`  // the collector did not take all
	Why     string `json:"why,omitempty"`
}

func (r watched) String() string {
	s := fmt.Sprintf("read %s of %s: %s", count(int(r.Records), "record"), count(r.Files, "log"), count(int(r.Events), "new event"))
	if r.Refused > 0 {
		s += fmt.Sprintf("; %s could not be read", count(int(r.Refused), "record"))
	}
	if r.Unknown > 0 {
		s += fmt.Sprintf("; nobody knows the layout of %s", count(int(r.Unknown), "log"))
	}
	if r.Owned > 0 {
		s += "; sessions that a wrapper runs were left to it"
	}
	if r.Unsent {
		s += "; not all was sent, the rest waits in the session logs"
	}
	return s
}

func (a *app) watch(ctx context.Context, o watchOptions) error {
	from := follow.From(o.from)
	if from != follow.Start && from != follow.Now && from != follow.Saved {
		return usageError("--from %q: want saved, start or now", o.from)
	}
	candidates, err := a.watchAdapters()
	if err != nil {
		return err
	}
	logs, hooks, err := a.watchPaths(o)
	if err != nil {
		return err
	}
	log := a.newOwnLog()
	say := func(line string) { a.warnUnlessQuiet(line) }
	out, err := a.newWatchSink(log, say)
	if err != nil {
		return err
	}
	defer out.close()
	w := agent.NewWatch(agent.WatchConfig{
		Adapters: candidates, Agent: a.cfg.Agent, Host: hostname(), Traceparent: a.Getenv("TRACEPARENT"),
		LogDir: a.cfg.LogDir, Gate: redaction.NewGate(a.policy(), a.watchPipeline()), Sinks: out.sinks(), Log: log, Say: say,
	})
	store, err := follow.OpenStore(filepath.Join(a.cfg.LogDir, ".watch", "cursors"))
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }()
	fo, err := follow.New(follow.Config{Paths: logs, From: from, Once: o.once, Store: store, Handler: w, Log: log, Say: say})
	if err != nil {
		return err
	}
	var dirs []*agent.HookDir
	for _, dir := range hooks {
		d, err := agent.NewHookDir(agent.HookDirConfig{Dir: dir, Adapters: candidates, Watch: w, Archive: o.archive, Log: log})
		if err != nil {
			return fmt.Errorf("hook directory %s: %w", dir, err)
		}
		dirs = append(dirs, d)
	}
	if !o.once && !a.cfg.Quiet {
		a.warn("watching %s · log %s", strings.Join(append(append([]string{}, o.paths...), o.hooks...), " "), tilde(a.cfg.LogDir, a.paths.home))
	}
	out.start()
	var work sync.WaitGroup
	errs := make([]error, len(dirs)+1)
	for i, d := range dirs {
		work.Go(func() { errs[i] = d.Run(ctx, o.once) })
	}
	if len(logs) > 0 || len(dirs) == 0 {
		work.Go(func() { errs[len(dirs)] = fo.Run(ctx) })
	}
	work.Wait()
	w.CloseAll()
	st, fs := w.Stats(), fo.Stats()
	r := watched{Files: fs.Files, Records: st.Records, Events: st.Events, Refused: st.Refused, Unknown: st.Unknown, Owned: st.Owned}
	if err := out.flush(o.once); err != nil {
		r.Unsent, r.Why = true, err.Error()
		say("not all was sent, the rest waits in the session logs: " + err.Error())
	}
	if o.once {
		if err := a.tellWatched(r); err != nil {
			return err
		}
	}
	return errors.Join(errs...)
}

func (a *app) tellWatched(r watched) error {
	if a.cfg.JSON {
		raw, err := json.Marshal(r)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(a.Stdout, "%s\n", raw)
		return err
	}
	if !a.cfg.Quiet {
		fmt.Fprintln(a.Stdout, r)
	}
	return nil
}

// watchAdapters are those that a log may be of.
func (a *app) watchAdapters() ([]adapters.Adapter, error) {
	if a.cfg.Adapter == "" || a.cfg.Adapter == auto {
		return all.List(), nil
	}
	ad, err := findAdapter(a.cfg.Adapter)
	return []adapters.Adapter{ad}, err
}

// watchPaths tells logs from hook directories.
func (a *app) watchPaths(o watchOptions) (logs, hooks []string, err error) {
	hooks = append(hooks, o.hooks...)
	for _, p := range o.paths {
		switch _, err := os.Stat(p); {
		case err != nil && o.once:
			return nil, nil, fmt.Errorf("watch: %w", err)
		case err != nil:
			a.warnUnlessQuiet(p + " is not there yet: it is waited for")
		}
		if _, err := os.Stat(filepath.Join(p, agent.HookDirMark)); err == nil {
			hooks = append(hooks, p)
			continue
		}
		logs = append(logs, p)
	}
	return logs, hooks, nil
}

// watchPipeline hides what is secret here. What is secret where the agent runs
// is known by its looks alone.
func (a *app) watchPipeline() *redaction.Pipeline {
	secrets := redaction.ChildSecrets(a.agentEnv(), a.cfg.SecretEnv)
	if a.cfg.Token != "" {
		secrets = append(secrets, redaction.Secret{Name: "AEP_TOKEN", Value: a.cfg.Token})
	}
	return redaction.NewPipeline(redaction.Options{Home: a.paths.home, NoPII: a.cfg.NoPII, Secrets: secrets})
}

// watchSink sends on what a watch tells. It goes by POST, which claims no
// session: there is nobody here who could take commands for one.
type watchSink struct {
	*queue.Feed
	sender *sender
}

func (a *app) newWatchSink(log *slog.Logger, say func(string)) (*watchSink, error) {
	if a.cfg.Collector == "" && a.cfg.Listen == off {
		return &watchSink{}, nil
	}
	s, err := a.newSender(log, say)
	if err != nil {
		return nil, err
	}
	return &watchSink{Feed: s.feed, sender: s}, nil
}

// Flush waits until everything has arrived, or ctx ends.
func (s *watchSink) Flush(ctx context.Context) error { return s.sender.Flush(ctx) }

func (s *watchSink) sinks() []agent.Sink {
	if s.sender == nil {
		return nil
	}
	return []agent.Sink{s}
}

func (s *watchSink) start() {
	if s.sender != nil {
		s.sender.start(context.Background())
	}
}

// onceFlush bounds how long a reading of what is there waits for a collector
// that takes nothing more in.
const onceFlush = 10 * time.Second

// flush waits until everything has arrived: as long as that goes on where
// there is no hurry.
func (s *watchSink) flush(patient bool) error {
	if s.sender == nil {
		return nil
	}
	if !patient {
		ctx, cancel := context.WithTimeout(context.Background(), flushTime)
		defer cancel()
		return s.sender.Flush(ctx)
	}
	for {
		sent := s.sender.Emitter.Stats().Events
		ctx, cancel := context.WithTimeout(context.Background(), onceFlush)
		err := s.sender.Flush(ctx)
		cancel()
		if err == nil || s.sender.Emitter.Stats().Events == sent {
			return err
		}
	}
}

func (s *watchSink) close() {
	if s.sender != nil {
		s.sender.close()
	}
}
