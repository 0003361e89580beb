package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"aep-wrap/adapters"
	"aep-wrap/agent"
	"aep-wrap/event"
)

func newServeCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve [flags] [PATH...]",
		Short: "Stand beside agents that others start: take their hooks, follow their logs",
		Long: `Starts no agent. It takes hooks at a socket, at a port of loopback and from
directories, follows session logs (PATH, as in aep-wrap watch), sends what they
tell to the collector, and brings answers back to hooks that wait: beside an agent
in its pod, or once on a machine. Its settings may stand in the file, so that one
file says all; aep-wrap config check says what is wrong with it.

aep-wrap hook-config prints what an agent is to be told so that its hooks come
here.

SIGTERM, or SIGINT, ends it: nothing is held any more, what waits for an answer is
let go, what is left is sent for --drain at most. What could not be sent stays in
the session logs, and the next start sends it. The exit code is 0.

SIGHUP has it read again: the tokens, the hook secret, and the names of
--secret-env. A configuration that is wrong changes nothing, and says so; of other
settings that changed it says that they want a new start.

--health-listen serves /healthz (it lives), /readyz (it takes hooks; a collector
that cannot be reached is told there, and is no reason not to be ready) and
/metrics.`,
		Example: `  aep-wrap serve --hook-listen 127.0.0.1:9465 ~/.claude/projects
  aep-wrap serve --hooks /var/run/aep/hooks --collector https://collector.example --token-file token
  aep-wrap serve --config /etc/aep-wrap.yaml`,
		RunE: func(cmd *cobra.Command, args []string) error { return a.serve(cmd.Context(), cmd.Flags(), args) },
	}
	addSettings(cmd.Flags(), true)
	_ = cmd.RegisterFlagCompletionFunc("from", cobra.FixedCompletions([]string{"saved", "start", "now"}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// sparing has the memory that is not used any more collected sooner than
// usual: beside an agent there is little of it, and time to spare.
const sparing = 30

// serving is what serve serves: a watch, and what comes to it by itself.
type serving struct {
	*watching
	flags   *pflag.FlagSet
	found   map[string]source // the settings as they were at the start
	hooks   *agent.HookServer
	secret  string // of its URLs; "" where there is no port
	health  *health
	metrics *metrics
	runtime *runtimeServer

	pruned   pruneTally
	alone    *os.File               // the lock of a directory's one serve; nil where another has it
	other    atomic.Pointer[string] // who that is; nil is nobody
	turned   atomic.Int64           // when the loop last turned, in milliseconds
	draining atomic.Bool
}

func (a *app) serve(ctx context.Context, flags *pflag.FlagSet, paths []string) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	defer signal.Stop(again)

	c := &a.cfg
	c.Watch = append(c.Watch, paths...)
	if len(c.Watch)+len(c.Hooks) == 0 && c.HookListen == "" && c.HookSocket == "" && c.Runtime.listen == "" {
		return usageError("serve: nothing to serve: want a PATH of session logs, --hooks DIR, --hook-listen ADDR or --hook-socket PATH")
	}
	if a.Getenv("GOGC") == "" {
		debug.SetGCPercent(sparing)
	}
	s, err := a.startServing(flags)
	if err != nil {
		return err
	}
	heedLimit(s.log)
	a.warnUnlessQuiet(s.line())
	notify("READY=1")

	running, end := context.WithCancel(context.Background())
	defer end()
	var work sync.WaitGroup
	ended := make(chan error, 1)
	work.Go(func() { ended <- s.run(running) })
	work.Go(func() { s.turn(running) })
	work.Go(func() { a.pruneEvery(running, s.log, s.say, &s.pruned) })
	var broken <-chan error
	if s.runtime != nil {
		broken = s.runtime.ended
	}
	for err == nil && ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-again:
			notify("RELOADING=1")
			s.reload()
			notify("READY=1")
		case rerr := <-broken:
			err = cmp.Or(rerr, errors.New("the runtime has ended"))
		}
	}
	stop() // a second signal ends us at once
	notify("STOPPING=1")
	return errors.Join(err, s.drain(end, &work, ended))
}

// beAlone takes the lock of the one serve that writes in the log directory, and
// says who has it instead.
func (s *serving) beAlone() {
	if s.alone != nil {
		return
	}
	path := filepath.Join(s.app.cfg.LogDir, ".watch", "serving")
	lock, err := lockFile(path)
	was := s.other.Load()
	switch {
	case errors.Is(err, errLocked):
		who := "another aep-wrap serve"
		if pid, err := os.ReadFile(path); err == nil && len(pid) > 0 {
			who += fmt.Sprintf(" (process %s)", strings.TrimSpace(string(pid)))
		}
		s.other.Store(&who)
		if was == nil {
			line := fmt.Sprintf("%s writes session logs in %s: what comes here of its sessions is told by nobody; give each its own --log-dir", who, s.app.cfg.LogDir)
			s.log.Error(line)
			s.app.warn("%s", line)
		}
		return
	case err != nil: // no locks here: nobody would be noticed
		s.log.Warn("whether another serve writes in the log directory is not known", "err", err)
	default:
		if err = lock.Truncate(0); err == nil {
			_, err = fmt.Fprintln(lock, os.Getpid())
		}
		if err != nil {
			s.log.Warn("the lock of the log directory", "err", err) // it holds all the same
		}
	}
	if s.alone = lock; was != nil {
		s.app.warn("the other serve is gone: this one has the log directory")
		s.other.Store(nil)
	}
}

// startServing opens everything, or nothing.
func (a *app) startServing(flags *pflag.FlagSet) (_ *serving, err error) {
	c := &a.cfg
	if err := writable(c.LogDir); err != nil {
		return nil, fmt.Errorf("cannot write session logs in %s: %w; another place: --log-dir DIR", c.LogDir, reason(err))
	}
	a.tokens = newLiveToken(c.Token)
	s := &serving{flags: flags}
	s.metrics = newMetrics(s.figures)
	_, s.found, _ = loadSettings(flags, a.Getenv, a.paths, false)
	s.turned.Store(time.Now().UnixMilli())
	defer func() {
		if err != nil {
			s.closeListeners(context.Background())
		}
	}()
	s.watching, err = a.newWatching(watchOptions{paths: c.Watch, from: c.From, hooks: c.Hooks, archive: c.Archive,
		hears: c.HookListen != "" || c.HookSocket != "", took: s.metrics.hook})
	if err != nil {
		return nil, err
	}
	if err := s.listenHooks(); err != nil {
		return nil, err
	}
	s.beAlone() // before anybody asks whether it is ready
	if c.HealthListen != off {
		if s.health, err = s.listenHealth(c.HealthListen); err != nil {
			return nil, err
		}
	}
	if c.Runtime.listen != "" {
		if s.runtime, err = a.startRuntime(c.Runtime); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// writable makes a directory where it is not there, and says whether files can
// be made in it.
func writable(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return syscall.Access(dir, 2|1)
}

// listenHooks begins to take hooks at the socket and the port.
func (s *serving) listenHooks() error {
	c := &s.app.cfg
	place := agent.HookPlace{Listen: c.HookListen, Socket: c.HookSocket, Group: -1}
	if place.Listen == "" && place.Socket == "" {
		return nil
	}
	var err error
	if place.Listen != "" {
		if place.Secret, err = s.app.hookSecret(true); err != nil {
			return err
		}
		s.secret = place.Secret
	}
	if c.HookSocketGroup != "" {
		if place.Group, err = groupID(c.HookSocketGroup); err != nil {
			return usageError("--hook-socket-group %w", err)
		}
	}
	doors := map[string]agent.Observer{}
	for i := range s.candidates {
		ad := &s.candidates[i]
		doors[ad.Name] = &door{s: s, adapter: ad}
	}
	s.hooks, err = agent.ServeHooks(agent.HookConfig{Observer: &door{s: s}, Log: s.log, Place: &place,
		Serves: func(name string) agent.Observer { return doors[name] }, Took: s.metrics.hook})
	return err
}

// door takes the hooks of an adapter's runtime; nil is what nobody takes.
type door struct {
	s       *serving
	adapter *adapters.Adapter
}

// doorPatience is how long an agent waits while its hook is brought again,
// whose session's log is not ours at the moment.
const doorPatience = 60 * time.Millisecond

// Hook has the watch take a hook. One whose session stays another's is told by
// that one: a wrapper hears its agent's hooks itself. What nobody here can tell
// is counted.
func (d *door) Hook(m adapters.Moment, _ int) *agent.Held {
	key := event.NewID(m.Time)
	m.Held = true
	end := time.Now().Add(doorPatience)
	for {
		again, held := d.s.hub.Hook(d.adapter, m, key)
		if again == 0 {
			return held
		}
		if time.Now().Add(again).After(end) {
			d.s.hub.Untold("log_not_ours")
			d.s.log.Warn("a hook is not told here: its session's log cannot be written, or has another owner", "adapter", d.adapter.Name, "hook", m.Name)
			return nil
		}
		time.Sleep(again)
	}
}

// Observe is for channels that do not come here.
func (d *door) Observe(adapters.Moment, int) {}

// Refuse tells of what could not be read.
func (d *door) Refuse(x agent.Refusal) {
	d.s.hub.Tell("x.aep-wrap.input.refused", time.Now(), "hook "+event.NewID(time.Now()),
		event.Fields{event.Meta("channel", string(x.Channel)), event.Meta("reason", x.Reason), event.Meta("bytes", x.Bytes)})
}

// hookSecret is the word in the path of the hook port's URL. It is made where
// there is none yet.
func (a *app) hookSecret(make bool) (string, error) {
	path := a.paths.expand(a.cfg.HookSecretFile)
	raw, err := readPrivate(path)
	if errors.Is(err, fs.ErrNotExist) && make {
		raw = []byte(agent.NewSecret() + "\n")
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = writeNew(path, raw)
		}
	}
	if err != nil {
		return "", fmt.Errorf("the hook secret: %w; another place: --hook-secret-file FILE", err)
	}
	word := strings.TrimSpace(string(raw))
	for _, r := range word {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			continue
		}
		return "", fmt.Errorf("the hook secret in %s: want letters, digits, '-' and '_'", path)
	}
	if len(word) < 16 {
		return "", fmt.Errorf("the hook secret in %s: want 16 characters at least", path)
	}
	return word, nil
}

// writeNew writes a file of ours alone that is not there yet, whole.
func writeNew(path string, content []byte) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// line is what a person is told at the start.
func (s *serving) line() string {
	c := &s.app.cfg
	var parts []string
	if c.HookListen != "" {
		var e adapters.Endpoint
		s.hooks.Endpoint(&e)
		at, _, _ := strings.Cut(e.HookURL, "/hook/") // the rest is secret
		parts = append(parts, "hooks at "+at)
	}
	if c.HookSocket != "" {
		parts = append(parts, "hooks at "+c.HookSocket)
	}
	for _, d := range c.Hooks {
		parts = append(parts, "hooks in "+d)
	}
	if len(c.Watch) > 0 {
		parts = append(parts, "logs of "+strings.Join(c.Watch, " "))
	}
	parts = append(parts, "log "+tilde(c.LogDir, s.app.paths.home))
	if c.Collector != "" {
		parts = append(parts, "to "+c.Collector)
	}
	if s.health != nil {
		parts = append(parts, "health at http://"+s.health.addr)
	}
	return "serving: " + strings.Join(parts, " · ")
}

// turnEvery is how often sessions without news are looked through, and what
// was told is brought to the disk.
const turnEvery = 500 * time.Millisecond

// turn does that until ctx ends, and says that it lives.
func (s *serving) turn(ctx context.Context) {
	tick := time.NewTicker(turnEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.hub.Idle()
		if s.other.Load() != nil {
			s.beAlone()
		}
		if s.hooks != nil {
			s.hub.Sync()
		}
		s.turned.Store(time.Now().UnixMilli())
	}
}

// drain lets go of what waits, takes in what agents have written up to now,
// sends what is left, and ends.
func (s *serving) drain(end func(), work *sync.WaitGroup, ended <-chan error) error {
	s.draining.Store(true)
	ctx, cancel := context.WithTimeout(context.Background(), max(s.app.cfg.Drain, lastWord))
	defer cancel()
	s.hub.Drain()
	var err error
	if s.runtime != nil {
		err = s.runtime.close()
	}
	if s.hooks != nil {
		s.hooks.Close(ctx)
	}
	end()
	work.Wait()
	err = errors.Join(err, <-ended, s.catchUp(ctx))
	s.close(ctx)
	s.closeListeners(ctx)
	if s.alone != nil {
		_ = s.alone.Close() // it was only locked
	}
	return err
}

func (s *serving) closeListeners(ctx context.Context) {
	if s.hooks != nil {
		s.hooks.Close(ctx)
	}
	if s.health != nil {
		s.health.close(ctx)
	}
}

// notify tells a service manager how it stands: sd_notify(3).
func notify(state string) {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return
	}
	notifyAt(path, state)
}
