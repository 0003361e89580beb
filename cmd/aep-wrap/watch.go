package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"aep-wrap/adapters"
	"aep-wrap/adapters/all"
	"aep-wrap/agent"
	"aep-wrap/agent/follow"
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
logs with all below it (links to folders are not followed: give those as a PATH),
or a hook directory (see aep-wrap hook-dir-script).

Whose a log is, its path and its first record tell; --adapter says it where they
do not. A layout or a version that is not known is told loudly, here and as an
event of agent aep-wrap, session watch.

A hook whose agent waits for an answer is held for one from afar, as in a wrapped
launch: --hold, --gate, --allow and --deny say what may be answered, and aep-wrap
respond does it.

Events carry the times and the ids of what they tell: a log that is read again,
by whomever, tells nothing new, and how far each log was read is kept beside the
session logs. A session that a wrapper runs is left to it. Nothing that a watch
tells ends a session: it sees no process.

With --once it reads what is there, sends it, and ends; the exit code is 1 where a
PATH is not there, or is a file that is no known agent's log. Otherwise it ends by a
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
	hears   bool // hooks come from elsewhere too
	took    func(adapter string, held bool, d time.Duration)
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
	w, err := a.newWatching(o)
	if err != nil {
		return err
	}
	if !o.once && !a.cfg.Quiet {
		a.warn("watching %s · log %s", strings.Join(append(append([]string{}, o.paths...), o.hooks...), " "), tilde(a.cfg.LogDir, a.paths.home))
	}
	err = w.run(ctx)
	ending, cancel := context.WithTimeout(context.Background(), flushTime)
	defer cancel()
	r := w.close(ending)
	if o.once {
		err = errors.Join(err, a.tell(r, r.String()))
		if err == nil && len(w.strange) > 0 {
			err = fmt.Errorf("watch: %s: no session log of an agent that is known (aep-wrap adapters); --adapter NAME says whose it is", strings.Join(w.strange, ", "))
		}
	}
	return err
}

// watching is a watch and all that belongs to it: the logs and the hook
// directories that it reads, the sinks that it tells, and the way back.
type watching struct {
	app   *app
	once  bool
	log   *slog.Logger
	say   func(string)
	hub   *agent.Watch
	out   *watchSinks
	store *follow.Store
	logs  *follow.Follower // nil where no logs are watched
	dirs  []*agent.HookDir
	gate  *redaction.Gate
	paths []string // of the logs
	from  follow.From

	candidates []adapters.Adapter

	mu      sync.Mutex
	strange []string // of paths, once: logs that no adapter knows
}

// newWatching makes a watch. Nothing is read or sent before run.
func (a *app) newWatching(o watchOptions) (*watching, error) {
	from := follow.From(o.from)
	if from != follow.Start && from != follow.Now && from != follow.Saved {
		return nil, usageError("--from %q: want saved, start or now", o.from)
	}
	candidates, err := a.watchAdapters()
	if err != nil {
		return nil, err
	}
	logs, hooks, err := a.watchPaths(o)
	if err != nil {
		return nil, err
	}
	w := &watching{app: a, once: o.once, log: a.newOwnLog(), say: a.warnUnlessQuiet, candidates: candidates, paths: logs, from: from,
		gate: redaction.NewGate(a.policy(), a.watchPipeline(&a.cfg))}
	if w.out, err = a.newWatchSinks(w, candidates, (len(hooks) > 0 || o.hears) && !o.once); err != nil {
		return nil, err
	}
	w.hub = agent.NewWatch(agent.WatchConfig{
		Adapters: candidates, Agent: a.cfg.Agent, Host: hostname(), Traceparent: a.Getenv("TRACEPARENT"),
		LogDir: a.cfg.LogDir, Gate: w.gate, Sinks: w.out.sinks(), Log: w.log, Say: w.say, Nobodys: w.nobodys,
		Accepts: w.out.accepts, Policy: a.cfg.policyOfAnswers(), Patience: a.cfg.patience(), Reachable: w.out.reachable,
	})
	if w.store, err = follow.OpenStore(filepath.Join(a.cfg.LogDir, ".watch", "cursors")); err != nil {
		return nil, err
	}
	if len(logs) > 0 {
		w.logs, err = follow.New(follow.Config{Paths: logs, From: from, Once: o.once, Store: w.store, Handler: w.hub, Log: w.log, Say: w.say})
		if err != nil {
			return nil, err
		}
	}
	for _, dir := range hooks {
		d, err := agent.NewHookDir(agent.HookDirConfig{Dir: dir, Adapters: candidates, Watch: w.hub, Archive: o.archive, Log: w.log, Took: o.took})
		if err != nil {
			return nil, fmt.Errorf("hook directory %s: %w", dir, err)
		}
		w.dirs = append(w.dirs, d)
	}
	return w, nil
}

// nobodys remembers that a log which was named is no agent's.
func (w *watching) nobodys(path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.paths {
		if abs, err := filepath.Abs(p); err == nil && (abs == path || p == path) && w.once && !slices.Contains(w.strange, p) {
			w.strange = append(w.strange, p)
		}
	}
}

// run reads until ctx ends, or, once, what is there.
func (w *watching) run(ctx context.Context) error {
	w.out.start(w.app.cfg.LogDir)
	var work sync.WaitGroup
	errs := make([]error, len(w.dirs)+1)
	if w.logs != nil && !w.once {
		for _, d := range w.dirs {
			d.CatchUp(ctx)
		}
	}
	for i, d := range w.dirs {
		work.Go(func() { errs[i] = d.Run(ctx, w.once) })
	}
	if w.logs != nil {
		work.Go(func() { errs[len(w.dirs)] = w.logs.Run(ctx) })
	}
	work.Wait()
	return errors.Join(errs...)
}

// catchUp takes in what was written since run ended.
func (w *watching) catchUp(ctx context.Context) error {
	var errs []error
	for _, d := range w.dirs {
		errs = append(errs, d.Run(ctx, true))
	}
	if w.logs != nil && w.from != follow.Now {
		last, err := follow.New(follow.Config{Paths: w.paths, From: follow.Saved, Once: true, Store: w.store, Handler: w.hub, Log: w.log, Say: w.say})
		if err != nil {
			return err
		}
		errs = append(errs, last.Run(ctx))
	}
	return errors.Join(errs...)
}

// close lets go of what waits, gives the sessions up and sends what is left,
// until ctx ends; once, as long as that goes on. It gives what was done.
func (w *watching) close(ctx context.Context) watched {
	w.hub.Drain()
	w.hub.CloseAll()
	st := w.hub.Stats()
	r := watched{Records: st.Records, Events: st.Events, Refused: st.Refused, Unknown: st.Unknown, Owned: st.Owned}
	if w.logs != nil {
		r.Files = w.logs.Stats().Files
	}
	if err := w.out.flush(ctx, w.once); err != nil {
		r.Unsent, r.Why = true, err.Error()
		w.say("not all was sent, the rest waits in the session logs: " + err.Error())
	}
	w.out.close()
	if err := w.store.Close(); err != nil {
		w.log.Warn("the positions of session logs", "err", err)
	}
	return r
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
			return nil, nil, fmt.Errorf("watch: %s: %w", p, reason(err))
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
func (a *app) watchPipeline(c *config) *redaction.Pipeline {
	secrets := redaction.ChildSecrets(a.agentEnv(), c.SecretEnv)
	if c.Token != "" {
		secrets = append(secrets, redaction.Secret{Name: "AEP_TOKEN", Value: c.Token})
	}
	return redaction.NewPipeline(redaction.Options{Home: a.paths.home, NoPII: c.NoPII, Secrets: secrets})
}
