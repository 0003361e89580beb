package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"aep-wrap/adapters"
	"aep-wrap/adapters/all"
	"aep-wrap/adapters/generic"
	"aep-wrap/agent"
	"aep-wrap/agent/hookclient"
	"aep-wrap/control"
	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
	"aep-wrap/redaction"
	"aep-wrap/session"
)

// flushTime bounds how long the wrapper outlives its agent for what others do:
// hooks that are open still, and a collector. writeTime does so for what the disk
// does, since what is not written is lost.
const (
	flushTime = 2 * time.Second
	writeTime = 10 * time.Second
)

// wrappedEnv marks the environment of a wrapped agent: it names the socket of
// the wrapper, which answers as long as that lives.
const wrappedEnv = "AEP_WRAPPED"

// eventsEnv names the descriptor on which a program tells events of its own.
const eventsEnv = "AEP_EVENTS_FD"

func newRunCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run [flags] [--] AGENT [ARG...]",
		Short: "Run an agent wrapped: the same as aep-wrap AGENT, spelled out",
		Example: `  aep-wrap run claude
  aep-wrap run --capture redacted -- ./my-agent --fast`,
		Args:              cobra.MinimumNArgs(1),
		RunE:              func(_ *cobra.Command, args []string) error { return a.run(args) },
		ValidArgsFunction: a.completeAgent,
	}
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// switchedOff says whether AEP_WRAP asks for the bare agent.
func (a *app) switchedOff() bool { return strings.EqualFold(a.Getenv("AEP_WRAP"), off) }

// insideWrap says whether a wrapper that lives has started us, however far
// above: it watches this process already.
func (a *app) insideWrap() bool {
	socket := a.Getenv(wrappedEnv)
	if socket == "" {
		return false
	}
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return false
	}
	conn.Close()
	return true
}

// run starts the agent that args name, wrapped where it can be, and gives its
// exit as an exitError.
func (a *app) run(args []string) error {
	path, err := agent.LookPath(args[0], a.Getenv("PATH"))
	if err != nil {
		return startError(err)
	}
	env := a.agentEnv()
	switch {
	case a.switchedOff():
		return bare(path, args, env)
	case a.insideWrap():
		if !a.cfg.Quiet && isTerminal(a.Stderr) {
			a.warn("this runs inside a wrapped agent already: passed through")
		}
		return bare(path, args, env)
	}
	l := &launch{app: a, path: path, args: args, env: env, start: time.Now()}
	return l.run()
}

// startError gives a command that could not be started the exit code that a
// shell gives it.
func startError(err error) error {
	var e *agent.LaunchError
	if errors.As(err, &e) {
		return &exitError{code: e.ExitCode(), err: err}
	}
	return err
}

// agentEnv is our environment without what is ours alone.
func (a *app) agentEnv() []string {
	return slices.DeleteFunc(slices.Clone(a.Environ()), func(kv string) bool {
		return strings.HasPrefix(kv, "AEP_TOKEN=") || strings.HasPrefix(kv, "AEP_NOTIFY=")
	})
}

// bare becomes the agent: nothing of us is left.
func bare(path string, args, env []string) error {
	return startError(agent.Exec(agent.Spec{Path: path, Args: args, Env: env}))
}

func isTerminal(s any) bool {
	f, ok := s.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}

// launch is one run of an agent, from its command line to its exit code.
type launch struct {
	app   *app
	path  string
	args  []string
	env   []string
	start time.Time
	begun adapters.Moment // the process

	adapter adapters.Adapter
	name    string // the agent's, on events
	id      string // of this launch: the session of what has none of its own
	dir     string // private, for this launch
	logDir  string // "" where none can be written
	log     *slog.Logger
	hooks   *agent.HookServer
	road    *agent.Road
	wiring  adapters.Wiring
	over    *overlays
	acp     *agent.ACP // between an editor and the agent; nil where there is none
	secret  string     // of this launch, for a server inside the agent
	served  serverSide // that server
	hooked  atomic.Bool

	mu      sync.Mutex
	running bool     // the screen is the agent's
	later   []string // what the user is told when it is no longer
	tails   map[string]*agent.Tail

	sink    *sink               // beyond the log; nil where there is none
	target  *control.Dispatcher // of commands; nil where none can come
	effects *agent.Effects
	rule    *agent.Rule         // decides about tools; nil is none
	tidy    func(time.Duration) // ends the care for sessions that crashed wrappers left, with so much patience
}

// maxTails bounds how many session logs of one launch are followed.
const maxTails = 64

// say tells the user a line: now, or when the agent has left the screen.
func (l *launch) say(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running {
		l.later = append(l.later, line)
	} else if !l.app.cfg.Quiet {
		l.app.warn("%s", line)
	}
}

// trouble tells the user of a thing that went wrong, and notes it.
func (l *launch) trouble(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	l.log.Warn(line)
	l.say(line)
}

func (l *launch) run() error {
	a := l.app
	l.log = a.newOwnLog()
	l.tails = map[string]*agent.Tail{}
	if a.paths.note != "" {
		l.say(a.paths.note)
	}
	seen := l.seen()
	if err := l.choose(seen); err != nil {
		return err
	}
	l.id = event.NewID(l.start)
	l.checkLogDir()
	l.makeDir()
	defer l.cleanUp()
	err := l.wire(seen)
	if err != nil {
		return err
	}
	if l.wiring.Passthrough {
		l.closeHooks(context.Background())
		l.cleanUp()
		return bare(l.path, l.args, l.env)
	}

	spec := agent.Spec{
		Path: l.path, Args: l.wiring.Args, Env: l.childEnv(),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Log: l.log,
	}
	var tee *agent.Lines
	if l.wiring.Stdout != "" {
		tee = l.road.NewLines(l.wiring.Stdout, "")
		spec.TeeStdout = tee
	}
	exited := make(chan struct{})
	pipeRead := func() {}
	if l.wiring.EventsFD {
		if pipeRead, err = l.eventsPipe(&spec, exited); err != nil {
			l.trouble("no pipe for the agent's own events: %v", err)
		}
	}
	if l.acp != nil {
		if err := l.betweenThem(&spec); err != nil {
			return err
		}
	}
	l.announce()
	if l.sink != nil {
		l.sink.start()
	}
	if err := l.startServer(&spec); err != nil {
		l.closeHooks(context.Background())
		l.closeSink()
		return err
	}
	l.mu.Lock()
	l.running = true
	l.mu.Unlock()
	proc, err := agent.Start(spec)
	if err != nil {
		if l.acp != nil {
			l.acp.Abandon(&spec)
		}
		l.mu.Lock()
		l.running = false
		l.mu.Unlock()
		l.closeHooks(context.Background())
		l.closeServer()
		l.closeSink()
		return startError(err)
	}
	if l.acp != nil {
		l.acp.Run(&spec)
	}
	for _, f := range spec.ExtraFiles {
		f.Close()
	}
	if l.effects != nil {
		l.effects.Started(proc)
	}
	l.serverStarted(proc)
	l.begun = l.started(proc.Pid())
	l.road.Observe(l.begun, 0)
	l.tidy = l.startTidying()
	x := proc.Wait()
	if l.acp != nil {
		l.acp.Finish()
	}
	close(exited)
	pipeRead()
	if tee != nil {
		tee.Close(proc.TeeDropped())
	}
	l.finish(x)
	l.cleanUp() // what follows may be the end of this process
	return &exitError{code: agent.Reraise(x)}
}

// seen is the launch as adapters are shown it.
func (l *launch) seen() adapters.Launch {
	dir, _ := os.Getwd()
	path, err := filepath.Abs(l.path)
	if err != nil {
		path = l.path
	}
	return adapters.Launch{
		Args: l.args, Path: path, Env: l.env, Dir: dir, Home: l.app.paths.home,
		TTY:      isTerminal(os.Stdin) && isTerminal(os.Stdout),
		ReadFile: os.ReadFile,
	}
}

// choose finds the adapter for the command.
func (l *launch) choose(seen adapters.Launch) error {
	var err error
	if name := l.app.cfg.Adapter; name != "" {
		l.adapter, err = findAdapter(name)
	} else {
		l.adapter = all.Detect(seen)
	}
	l.name = l.app.cfg.Agent
	if l.name == "" {
		l.name = all.AgentName(l.adapter, l.args)
	}
	return err
}

// checkLogDir tells before the agent starts what would be told after it.
func (l *launch) checkLogDir() {
	dir := l.app.cfg.LogDir
	err := os.MkdirAll(dir, 0o700)
	if err == nil {
		err = unix.Access(dir, unix.W_OK|unix.X_OK)
	}
	if err != nil {
		l.trouble("cannot write session logs in %s: %v; the agent runs on without a log (another place: --log-dir DIR)", dir, reason(err))
		dir = ""
	}
	l.logDir = dir
}

// makeDir makes the private directory of this launch.
func (l *launch) makeDir() {
	base := l.app.paths.socketDir(l.app.Getenv, "launch-0123456789/hook.sock")
	err := privateDir(base)
	if err == nil {
		l.dir, err = os.MkdirTemp(base, "launch-")
		go sweep(base)
	}
	if err != nil {
		l.log.Warn("no directory in the run directory", "err", err)
		if l.dir, err = os.MkdirTemp("", "aep-"); err != nil {
			l.trouble("cannot make a directory for this launch: %v; hooks cannot report", reason(err))
		}
	}
}

// leftover is how old a launch's directory without a socket must be before it
// can be one that a crash left behind. A socket that nobody listens at tells
// that at once, but not in a launch that is only just beginning: between its
// two steps a socket is there and nobody listens.
const (
	leftover  = 24 * time.Hour
	beginning = time.Minute
)

// sweep removes what crashed wrappers left in the run directory: directories
// of launches whose socket nobody answers.
func sweep(base string) {
	dirs, err := filepath.Glob(filepath.Join(base, "launch-*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		fi, err := os.Lstat(dir)
		if err != nil || !fi.IsDir() || time.Since(fi.ModTime()) < beginning {
			continue
		}
		conn, err := net.DialTimeout("unix", filepath.Join(dir, "hook.sock"), time.Second)
		if err == nil {
			conn.Close()
			continue
		}
		if errors.Is(err, unix.ECONNREFUSED) || time.Since(fi.ModTime()) > leftover {
			os.RemoveAll(dir)
		}
	}
}

func (l *launch) cleanUp() {
	if l.over != nil {
		if err := l.over.bringHome(); err != nil {
			l.trouble("not all that %s wrote could be put into its own folder, the rest is in %s: %v", l.adapter.Title, l.dir, err)
			l.dir = ""
		}
		l.over = nil
	}
	if l.dir != "" {
		os.RemoveAll(l.dir)
		l.dir = ""
	}
}

// wire builds the road, starts the hook server and has the adapter change the
// launch so that it reports there. What fails here costs events, never the
// agent.
func (l *launch) wire(seen adapters.Launch) error {
	l.wiring = adapters.Wiring{Args: l.args}
	end := adapters.Endpoint{Dir: l.dir, Helper: helper(l.adapter.Name)}
	if err := l.makeControl(); err != nil {
		return err
	}
	if err := l.makeSink(); err != nil {
		return err
	}
	l.makeRoad()
	l.allowed(&seen)
	var err error
	l.hooks, err = agent.ServeHooks(agent.HookConfig{Adapter: l.adapter.Name, Dir: l.dir, Observer: observer{l.road, l}, Log: l.log})
	if err != nil {
		l.trouble("%v", err)
	}
	l.hooks.Endpoint(&end)
	l.offerServer(&seen, &end)
	if l.adapter.Launch != nil && l.adapter.Launch.Wire != nil {
		w, err := l.adapter.Launch.Wire(seen, end)
		if err == nil {
			err = l.writeFiles(w.Files)
		}
		if err == nil {
			l.over, err = makeOverlays(l.dir, w.Overlays)
		}
		if err != nil {
			l.trouble("%s cannot be made to report: %v", l.adapter.Title, err)
		} else {
			l.wiring = w
			for _, f := range w.Logs {
				l.follow(f)
			}
		}
	}
	for _, note := range l.wiring.Notes {
		l.say(note)
	}
	l.wiring.SetEnv = maps.Clone(l.wiring.SetEnv)
	if l.wiring.SetEnv == nil {
		l.wiring.SetEnv = map[string]string{}
	}
	if end.Socket != "" {
		l.wiring.SetEnv[wrappedEnv] = end.Socket
		l.wiring.SetEnv[hookclient.SocketEnv] = end.Socket
	}
	return nil
}

// observer is the road as hooks see it. A hook says that the agent goes on:
// what its session log tells of before comes first, or an interrupt would be
// taken in after the prompt that followed it.
type observer struct {
	*agent.Road
	l *launch
}

// logPatience is how long a hook waits for the session logs to be read.
const logPatience = 20 * time.Millisecond

func (o observer) Hook(m adapters.Moment, size int) *agent.Held {
	o.l.hooked.Store(true)
	o.l.mu.Lock()
	tails := slices.Collect(maps.Values(o.l.tails))
	o.l.mu.Unlock()
	for _, t := range tails {
		t.CatchUp(logPatience)
	}
	return o.Road.Hook(m, size)
}

// helper is the command line of the hook helper: the tiny binary beside ours,
// or ourselves.
func helper(adapter string) []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	if resolved, err := filepath.EvalSymlinks(self); err == nil {
		self = resolved
	}
	tiny := filepath.Join(filepath.Dir(self), "aep-hook")
	if _, err := agent.LookPath(tiny, ""); err == nil {
		return []string{tiny, adapter}
	}
	return []string{self, "hook", adapter}
}

func (l *launch) writeFiles(files map[string][]byte) error {
	for name, content := range files {
		if !filepath.IsLocal(name) || l.dir == "" {
			return fmt.Errorf("no place for its file %s", name)
		}
		path := filepath.Join(l.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// childEnv is the environment that the agent gets.
func (l *launch) childEnv() []string {
	set := l.wiring.SetEnv
	env := slices.DeleteFunc(slices.Clone(l.env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		_, replaced := set[name]
		return replaced || slices.Contains(l.wiring.UnsetEnv, name)
	})
	for _, name := range slices.Sorted(maps.Keys(set)) {
		env = append(env, name+"="+set[name])
	}
	return env
}

// makeRoad makes the gate, the sinks and the road between them.
func (l *launch) makeRoad() {
	c := &l.app.cfg
	secrets := redaction.ChildSecrets(l.env, c.SecretEnv)
	if c.Token != "" {
		secrets = append(secrets, redaction.Secret{Name: "AEP_TOKEN", Value: c.Token})
	}
	if l.adapter.Server != nil {
		l.secret = agent.NewSecret()
		secrets = append(secrets, redaction.Secret{Name: "SERVER_PASSWORD", Value: l.secret})
	}
	pipeline := redaction.NewPipeline(redaction.Options{Home: l.app.paths.home, NoPII: c.NoPII, Secrets: secrets})
	gate := redaction.NewGate(l.app.policy(), pipeline)
	var sinks []agent.Sink
	if l.sink != nil {
		sinks = append(sinks, l.sink)
	}
	l.road = agent.NewRoad(agent.RoadConfig{
		Adapter: l.adapter, Agent: l.name, Host: hostname(), Traceparent: l.app.Getenv("TRACEPARENT"),
		Session: l.id, Start: l.start, LogDir: l.logDir, Gate: gate, Sinks: sinks,
		Log: l.log, Say: l.say, Follow: l.follow, Control: l.target, Patience: l.patience(),
	})
}

// follow follows a session log of the agent's own, once.
func (l *launch) follow(f adapters.LogFile) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f.Session = cmp.Or(f.Session, l.id)
	if f.Path != "" && !filepath.IsAbs(f.Path) {
		f.Path = filepath.Join(l.wiring.LogRoot, f.Path)
	}
	if f.Path == "" || l.tails[f.Path] != nil || len(l.tails) >= maxTails {
		return
	}
	l.tails[f.Path] = agent.Follow(agent.TailConfig{
		Path: f.Path, Since: l.start, Log: l.log,
		Line: func(line []byte) { l.road.ObserveLine(adapters.Transcript, f.Session, line) },
		Skip: func(n int) {
			l.road.Refuse(agent.Refusal{Channel: adapters.Transcript, Reason: "too_large", Bytes: n})
		},
	})
}

// eventsPipe gives the agent a descriptor for events of its own making. The
// function waits until what was written there is read.
func (l *launch) eventsPipe(spec *agent.Spec, exited <-chan struct{}) (wait func(), err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return func() {}, err
	}
	spec.ExtraFiles = append(spec.ExtraFiles, w)
	// A descriptor of an outer or an earlier wrapper's is not ours: of two
	// values of one name most programs take the first.
	spec.Env = slices.DeleteFunc(spec.Env, func(kv string) bool { return strings.HasPrefix(kv, eventsEnv+"=") })
	spec.Env = append(spec.Env, fmt.Sprintf("%s=%d", eventsEnv, agent.ExtraFD(len(spec.ExtraFiles)-1)))
	read := make(chan struct{})
	go func() {
		defer close(read)
		l.road.NewLines(adapters.Drafts, l.id).ReadPipe(r, exited)
	}()
	return func() { <-read }, nil
}

// started is the moment of the process's start.
func (l *launch) started(pid int) adapters.Moment {
	args := make([]any, 0, len(l.args))
	for _, w := range l.args[1:] {
		args = append(args, w)
	}
	dir, _ := os.Getwd()
	return adapters.Moment{
		Channel: adapters.Process, Name: adapters.ProcessStart, Time: l.start, Session: l.id,
		Payload: map[string]any{"command": l.args[0], "args": args, "cwd": dir, "pid": int64(pid)},
	}
}

// announce says what is wrapped, where the log is and where to watch.
func (l *launch) announce() {
	a := l.app
	if a.cfg.Quiet || !isTerminal(a.Stderr) {
		return
	}
	line := struct {
		Agent     string `json:"agent"`
		Log       string `json:"log,omitempty"`
		Collector string `json:"collector,omitempty"`
		Watch     string `json:"watch,omitempty"`
	}{Agent: l.name, Collector: a.cfg.Collector}
	if l.logDir != "" {
		line.Log = filepath.Dir(jsonl.Path(l.logDir, l.name, l.id))
	}
	if a.cfg.Collector == "" && a.cfg.Listen != off {
		line.Watch = a.watchURL()
	}
	if a.cfg.JSON {
		_ = json.NewEncoder(a.Stderr).Encode(line)
		return
	}
	text := line.Agent + " is wrapped"
	if line.Log != "" {
		text += " · log " + tilde(line.Log, a.paths.home)
	}
	if line.Collector != "" {
		text += " · sends to " + line.Collector
	}
	if line.Watch != "" {
		text += " · watch " + line.Watch + " or aep-wrap tail"
	}
	a.warn("%s", text)
}

func tilde(path, home string) string {
	if rest, ok := strings.CutPrefix(path, home+"/"); ok && home != "" {
		return "~/" + rest
	}
	return path
}

// finish takes in what the agent left behind, closes its sessions and gives
// the sinks a bounded time.
func (l *launch) finish(x agent.Exit) {
	l.closeServer()
	within(flushTime, l.closeHooks)
	l.mu.Lock()
	tails := slices.Collect(maps.Values(l.tails))
	l.mu.Unlock()
	exit := exitOf(x)
	exit.Left = l.served.foreign
	within(writeTime, func(ctx context.Context) {
		for _, t := range tails {
			t.Drain(ctx)
		}
	})
	if !exit.Left {
		l.road.Unheard(generic.Started(l.begun))
	}
	l.writeOut(exit)
	patience := tidyPatience
	var err error
	if within(flushTime, func(ctx context.Context) { err = l.road.Flush(ctx) }); err != nil {
		where := "wait in the log"
		if l.logDir == "" {
			where = "were not sent"
		}
		l.trouble("events %s: %s", where, l.sink.word())
		patience = 0
	}
	if l.sink != nil {
		if lost := l.sink.lost(); lost != "" {
			l.trouble("%s", lost)
		}
	}
	l.tidy(patience)
	l.closeSink()
	l.mu.Lock()
	l.running = false
	later := l.later
	l.later = nil
	l.mu.Unlock()
	for _, line := range later {
		l.say(line)
	}
}

// writeOut closes the sessions, and has all that they told in their logs.
func (l *launch) writeOut(exit session.Exit) {
	within(writeTime, func(ctx context.Context) {
		if l.road.Exit(ctx, exit); ctx.Err() != nil {
			l.trouble("the session could not be written out in time: its end is not told whole")
		}
	})
}

// within has something done that heeds how much time it has.
func within(d time.Duration, do func(context.Context)) {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	defer cancel()
	do(ctx)
}

func (l *launch) closeSink() {
	if l.sink == nil {
		return
	}
	if err := l.sink.close(); err != nil {
		l.log.Warn("sink", "err", err)
	}
}

func (l *launch) closeHooks(ctx context.Context) {
	if l.hooks != nil {
		l.hooks.Close(ctx)
	}
}

// exitOf is how the agent ended in the session's words.
func exitOf(x agent.Exit) session.Exit {
	out := session.Exit{Code: x.Code}
	if x.Signal != 0 {
		out.Signal = unix.SignalName(x.Signal)
	}
	switch {
	case x.Terminated:
		out.By = "control"
	case x.Hangup, x.Passed == unix.SIGTERM, x.Passed == unix.SIGHUP:
		out.By = "shutdown"
	case x.Passed == unix.SIGINT, x.Passed == unix.SIGQUIT:
		out.By = "user"
	}
	return out
}
