package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"aep-wrap/collector"
)

// idleExit is when the per-user collector, started by a wrapper, goes away.
const idleExit = 10 * time.Minute

func newCollectCmd(a *app) *cobra.Command {
	var o collectOptions
	cmd := &cobra.Command{
		Use:   "collect",
		Short: "Run the collector alone, in the foreground",
		Long: `The collector takes events in from wrappers, keeps the newest of each session,
and streams them out to aep-wrap tail, to its page and to other consumers.

A wrapper starts one for you when it needs it. It listens for wrappers on a
socket in ~/.aep/run and for people on --listen, where it asks for the token of
aep-wrap token show. That token allows everything; --tokens names a file of
more, each with what it allows, as aep-wrap token new makes them: lines of a
token, a space, and one or more of emit, watch and control with commas between
them. The file can be that of the runtime too, whose scopes are passed over. It is
read again when it changes. With --no-token the collector asks for none: it then serves a loopback
address only, to watch and to emit, and takes no commands there.

An address that other machines reach wants TLS: --tls-cert and --tls-key, or a
proxy that does it, which --behind-proxy says.

Each limit has a flag. What goes beyond one is refused with an answer that names
it.`,
		Example: `  aep-wrap collect
  aep-wrap collect --listen 127.0.0.1:9000 --token-file /run/secrets/aep
  aep-wrap collect --listen 0.0.0.0:8787 --tls-cert cert.pem --tls-key key.pem --tokens tokens
  aep-wrap collect --origin https://watch.example`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.cfg.Listen == off {
				return usageError("--listen off: the collector needs an address, such as 127.0.0.1:8787")
			}
			if o.idle < 0 {
				return usageError("--idle-exit %v: want a time such as 10m, or 0 for never", o.idle)
			}
			err := a.collect(cmd.Context(), o)
			if o.background && errors.Is(err, errLocked) {
				return nil // of several that start at once one wins
			}
			return err
		},
	}
	o.flags(cmd.Flags())
	return cmd
}

// collectOptions are the flags of collect alone.
type collectOptions struct {
	idle        time.Duration
	background  bool
	noToken     bool
	tokens      string
	tlsCert     string
	tlsKey      string
	behindProxy bool
	origins     []string
	hosts       []string
	limits      collector.Limits
}

// limitFlags are the limits that can be set, in the order of help.
var limitFlags = []struct {
	name, usage string
	of          func(*collector.Limits) any
}{
	{"body", "bytes of a request's body, after inflation", func(l *collector.Limits) any { return &l.Body }},
	{"batch", "events in one request", func(l *collector.Limits) any { return &l.BatchLines }},
	{"line", "bytes of one event, and of a socket's frame", func(l *collector.Limits) any { return &l.Line }},
	{"depth", "nesting of one event's JSON, at most 512", func(l *collector.Limits) any { return &l.Depth }},
	{"in-flight", "bytes of all bodies that are being read", func(l *collector.Limits) any { return &l.InFlight }},
	{"from", "positions in one from", func(l *collector.Limits) any { return &l.From }},
	{"query", "bytes of a request's header, its query included", func(l *collector.Limits) any { return &l.Query }},
	{"connections", "open connections on --listen", func(l *collector.Limits) any { return &l.Connections }},
	{"subscriptions", "subscriptions of one socket", func(l *collector.Limits) any { return &l.Subscriptions }},
	{"claims", "sessions that one socket claims", func(l *collector.Limits) any { return &l.Claims }},
	{"session-events", "events held of one session for replay", func(l *collector.Limits) any { return &l.SessionEvents }},
	{"session-bytes", "bytes held of one session", func(l *collector.Limits) any { return &l.SessionBytes }},
	{"sessions", "sessions held", func(l *collector.Limits) any { return &l.Sessions }},
	{"held-bytes", "bytes held of all sessions", func(l *collector.Limits) any { return &l.HeldBytes }},
	{"reload-bytes", "bytes read from session logs at the start", func(l *collector.Limits) any { return &l.ReloadBytes }},
	{"queue-events", "events that wait for one live consumer", func(l *collector.Limits) any { return &l.QueueEvents }},
	{"queue-bytes", "bytes that wait for one live consumer", func(l *collector.Limits) any { return &l.QueueBytes }},
	{"queued-bytes", "bytes that wait for all live consumers", func(l *collector.Limits) any { return &l.QueuedBytes }},
	{"hello-time", "until a socket's hello", func(l *collector.Limits) any { return &l.Hello }},
	{"ping-every", "between two pings on a silent socket", func(l *collector.Limits) any { return &l.Ping }},
	{"silence", "how long a socket may be silent", func(l *collector.Limits) any { return &l.Silence }},
	{"heartbeat", "between two comments on a quiet stream", func(l *collector.Limits) any { return &l.Heartbeat }},
	{"stall", "how long a consumer may take nothing", func(l *collector.Limits) any { return &l.Stall }},
	{"body-time", "to read a request's body", func(l *collector.Limits) any { return &l.BodyTimeout }},
	{"header-time", "to read a request's header", func(l *collector.Limits) any { return &l.Header }},
	{"idle-time", "a kept-alive connection without a request", func(l *collector.Limits) any { return &l.Idle }},
	{"drain-time", "for what is open at the end", func(l *collector.Limits) any { return &l.Drain }},
}

func (o *collectOptions) flags(fs *pflag.FlagSet) {
	fs.DurationVar(&o.idle, "idle-exit", 0, "end after nobody needed it for so long (0: never)")
	fs.BoolVar(&o.background, "background", false, "as a wrapper starts it: yield to one that runs, log to a file")
	fs.Lookup("background").Hidden = true
	fs.BoolVar(&o.noToken, "no-token", false, "ask for no token on --listen: to watch and emit only, and on a loopback address")
	fs.StringVar(&o.tokens, "tokens", "", "`FILE` of tokens and what each allows, readable by you alone; read again when it changes")
	fs.StringVar(&o.tlsCert, "tls-cert", "", "`FILE` of the TLS certificate to serve --listen with")
	fs.StringVar(&o.tlsKey, "tls-key", "", "`FILE` of its key")
	fs.BoolVar(&o.behindProxy, "behind-proxy", false, "a proxy on a trusted path ends TLS and checks Host")
	fs.StringArrayVar(&o.origins, "origin", nil, "web `ORIGIN` whose pages may use the collector, such as https://watch.example; can be given several times")
	fs.StringArrayVar(&o.hosts, "host", nil, "`NAME` that the collector is reached by, besides localhost and addresses; can be given several times")
	o.limits = collector.DefaultLimits()
	for _, l := range limitFlags {
		switch v := l.of(&o.limits).(type) {
		case *int:
			fs.IntVar(v, "limit-"+l.name, *v, l.usage)
		case *int64:
			fs.Int64Var(v, "limit-"+l.name, *v, l.usage)
		case *time.Duration:
			fs.DurationVar(v, "limit-"+l.name, *v, l.usage)
		}
	}
}

// check says what cannot be, before anything is started.
func (o *collectOptions) check() error {
	for _, l := range limitFlags {
		bad := false
		switch v := l.of(&o.limits).(type) {
		case *int:
			bad = *v <= 0
		case *int64:
			bad = *v <= 0
		case *time.Duration:
			bad = *v <= 0
		}
		if bad {
			return usageError("--limit-%s: want more than 0", l.name)
		}
	}
	for _, origin := range o.origins {
		if u, err := url.Parse(origin); err != nil || u.Scheme == "" || u.Host == "" || origin != u.Scheme+"://"+u.Host {
			return usageError("--origin %q: want an origin, such as https://watch.example", shownURL(origin))
		}
	}
	switch {
	case (o.tlsCert == "") != (o.tlsKey == ""):
		return usageError("--tls-cert and --tls-key go together")
	case o.noToken && o.tokens != "":
		return usageError("--no-token and --tokens exclude each other")
	}
	return nil
}

// tls is the TLS to serve with; nil for none.
func (o *collectOptions) tls() (*tls.Config, error) {
	if o.tlsCert == "" {
		return nil, nil
	}
	cert, err := tls.LoadX509KeyPair(o.tlsCert, o.tlsKey)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

// names are those that the collector goes by, its certificate's behind those that
// it was given.
func names(given []string, secure *tls.Config) []string {
	if secure == nil || secure.Certificates[0].Leaf == nil {
		return given
	}
	out := slices.Clone(given)
	for _, n := range secure.Certificates[0].Leaf.DNSNames {
		if !strings.Contains(n, "*") && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// collectorTokens are the tokens that --listen asks for.
func (a *app) collectorTokens(o *collectOptions) ([]collector.Token, error) {
	if o.noToken {
		return nil, nil
	}
	own, err := a.collectorToken()
	if err != nil {
		return nil, err
	}
	tokens := []collector.Token{{Value: own, Roles: collector.AllRoles}}
	if o.tokens == "" {
		return tokens, nil
	}
	more, err := a.readTokens(o.tokens)
	return append(tokens, more...), err
}

// collectorInfo is what a running collector tells in ~/.aep/run/collector.json.
type collectorInfo struct {
	PID        int    `json:"pid"`
	Address    string `json:"address"` // host:port for people
	Version    string `json:"version"`
	Background bool   `json:"background"`

	TLS      bool     `json:"tls,omitempty"`
	Hosts    []string `json:"hosts,omitempty"`    // names that it goes by
	NoToken  bool     `json:"no_token,omitempty"` // it asks for none
	Notifies bool     `json:"notifies,omitempty"`
}

// origin is the page's address as this machine reaches it.
func (i collectorInfo) origin() string {
	scheme := "http"
	if i.TLS {
		scheme = "https"
	}
	return scheme + "://" + i.Address
}

func (p paths) collectorInfo() string { return filepath.Join(p.run(), "collector.json") }

// runningCollector is what the per-user collector told, if it still runs.
func (a *app) runningCollector() (collectorInfo, bool) {
	var info collectorInfo
	raw, err := os.ReadFile(a.paths.collectorInfo())
	if err != nil || json.Unmarshal(raw, &info) != nil || info.PID <= 0 {
		return info, false
	}
	conn, err := net.DialTimeout("unix", a.paths.collectorSocket(a.Getenv), time.Second)
	if err != nil {
		return info, false
	}
	conn.Close()
	return info, true
}

// watchURL is where people reach the per-user collector, as far as is known.
func (a *app) watchURL() string {
	if a.cfg.Collector != "" {
		return a.cfg.Collector
	}
	if info, ok := a.runningCollector(); ok && info.Address != "" {
		return info.origin()
	}
	return "http://" + a.cfg.Listen
}

func (p paths) collectorLock() string { return filepath.Join(p.run(), "collector.lock") }

var errLocked = errors.New("locked by another process")

// lockFile takes the lock that goes with the file's open description, and so
// with the life of the process.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errLocked
		}
		return nil, err
	}
	return f, nil
}

// collect serves until it is told to end.
func (a *app) collect(ctx context.Context, o collectOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	secure, err := o.tls()
	if err != nil {
		return err
	}
	if err := privateDir(a.paths.run()); err != nil {
		return err
	}
	// What can fail fails before a collector that runs is asked to make room.
	tokens, err := a.collectorTokens(&o)
	if err != nil {
		return err
	}
	key, err := a.linkKey(tokens)
	if err != nil {
		return err
	}
	lock, people, err := a.takePlace(o.background)
	if err != nil {
		if o.background && errors.Is(err, errLocked) {
			return nil // another is there, which is all that was wanted
		}
		return err
	}
	defer lock.Close()
	socket, err := a.listenSocket()
	if err != nil {
		people.Close()
		return err
	}

	log := slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	heedLimit(log)
	info := collectorInfo{PID: os.Getpid(), Address: people.Addr().String(), Version: readBuildInfo().Version, Background: o.background,
		TLS: secure != nil, Hosts: names(o.hosts, secure), NoToken: o.noToken, Notifies: a.cfg.Notify != ""}
	page := a.cfg.PageURL
	if page == "" {
		page = info.origin()
	}
	c := collector.New(collector.Config{
		Notify: collector.Notify{URL: a.cfg.Notify, Capture: a.cfg.NotifyAt, Page: page},
		Tokens: tokens, Origins: o.origins, Hosts: o.hosts, TLS: secure, BehindProxy: o.behindProxy,
		LogDir: a.cfg.LogDir, IdleExit: o.idle, Limits: o.limits, Log: log, LinkKey: key,
	})
	if err := c.Check(people); err != nil {
		people.Close()
		socket.Close()
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	if !o.noToken {
		go a.watchTokens(ctx, true, func() ([]collector.Token, error) { return a.collectorTokens(&o) }, tokens, func(now []collector.Token) {
			c.SetTokens(now)
			if key, err := a.linkKey(now); err == nil {
				c.SetLinkKey(key)
			}
		}, log)
	}
	if err := a.publish(info); err != nil {
		log.Warn("cannot write where the collector listens", "err", err)
	}
	defer os.Remove(a.paths.collectorInfo())
	if !o.background && !a.cfg.Quiet {
		open := "open it with aep-wrap link"
		if o.noToken {
			open = "it asks for no token, and takes no commands"
		}
		fmt.Fprintf(a.Stderr, "aep-wrap: collector at %s; %s\n", info.origin(), open)
	}
	return c.Serve(ctx, socket, people)
}

// makeRoom is how long a collector that was asked to make room, or one that
// begins or ends, is waited for.
const makeRoom = 6 * time.Second

// takePlace takes the right to be the per-user collector, and the address for
// people. One in the foreground asks one that a wrapper started to make room:
// nothing is lost by that, for it keeps nothing that the logs do not hold, and
// wrappers come back. One that tells nothing of itself begins or ends.
func (a *app) takePlace(background bool) (lock *os.File, people net.Listener, err error) {
	defer func() {
		if err != nil && people != nil {
			people.Close()
		}
	}()
	asked := 0
	for deadline := time.Now().Add(makeRoom); ; time.Sleep(20 * time.Millisecond) {
		lock, err = lockFile(a.paths.collectorLock())
		if err == nil && people == nil {
			if people, err = a.listenPeople(background); err != nil {
				lock.Close()
			}
		}
		if background || !errors.Is(err, errLocked) {
			return lock, people, err
		}
		switch info, ok := a.runningCollector(); {
		case ok && !info.Background:
			return nil, people, fmt.Errorf("a collector of yours already runs (process %d, http://%s)", info.PID, info.Address)
		case ok && info.PID != asked:
			// What can fail fails before it is asked. Its own address is had when it is gone.
			if people == nil {
				if people, err = a.listenPeople(false); err != nil && !samePort(info.Address, a.cfg.Listen) {
					return nil, nil, err
				}
			}
			if err := unix.Kill(info.PID, unix.SIGTERM); err != nil && !errors.Is(err, unix.ESRCH) {
				return nil, people, fmt.Errorf("the collector that runs (process %d) does not make room: %w", info.PID, err)
			}
			asked, deadline = info.PID, time.Now().Add(makeRoom)
		case time.Now().After(deadline):
			return nil, people, fmt.Errorf("a collector of yours (process %d) has the place, and neither answers nor ends", info.PID)
		}
	}
}

func samePort(a, b string) bool {
	_, pa, _ := net.SplitHostPort(a)
	_, pb, _ := net.SplitHostPort(b)
	return pa == pb
}

// listenSocket binds the wrappers' socket. Whoever holds the lock may take a
// socket's path over: the one before is gone.
func (a *app) listenSocket() (net.Listener, error) {
	path := a.paths.collectorSocket(a.Getenv)
	if err := privateDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// listenPeople binds the address for people. In the background a taken port is
// no reason to leave wrappers without a collector: another one is taken.
func (a *app) listenPeople(background bool) (net.Listener, error) {
	l, err := net.Listen("tcp", a.cfg.Listen)
	if err == nil || !background {
		if errors.Is(err, unix.EADDRINUSE) {
			return nil, fmt.Errorf("%s is taken by another program: choose another address with --listen", a.cfg.Listen)
		}
		return l, err
	}
	host, port, _ := net.SplitHostPort(a.cfg.Listen)
	first, _ := strconv.Atoi(port)
	for n := first + 1; n <= first+10 && n < 1<<16; n++ {
		if l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(n))); err == nil {
			return l, nil
		}
	}
	return net.Listen("tcp", net.JoinHostPort(host, "0"))
}

// publish tells where the collector is, whole or not at all.
func (a *app) publish(info collectorInfo) error {
	raw, err := json.Marshal(info)
	if err != nil {
		return err
	}
	tmp := a.paths.collectorInfo() + ".new"
	if err := os.WriteFile(tmp, append(raw, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, a.paths.collectorInfo())
}

// watchTokens hands on the tokens when a file of theirs changes. One that
// cannot be read changes nothing. own says that the user's own token is among
// them.
func (a *app) watchTokens(ctx context.Context, own bool, read func() ([]collector.Token, error), tokens []collector.Token, set func([]collector.Token), log *slog.Logger) {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	told := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if _, err := os.Stat(a.paths.token()); own && err != nil && a.cfg.Token == "" {
				continue // whoever took it away makes a new one
			}
			now, err := read()
			if err != nil {
				if told != err.Error() {
					told = err.Error()
					log.Warn("the tokens stay as they were", "err", err)
				}
				continue
			}
			told = ""
			if !slices.Equal(now, tokens) {
				tokens = now
				set(tokens)
				log.Info("the tokens were read anew", "tokens", len(tokens))
			}
		}
	}
}

func (p paths) collectorLogFile() string { return filepath.Join(p.run(), "collector.log") }

// collectorLog opens the file that a collector in the background writes to.
func (p paths) collectorLog() io.WriteCloser {
	path := p.collectorLogFile()
	if fi, err := os.Stat(path); err == nil && fi.Size() > ownLogMax {
		_ = os.Rename(path, path+".1")
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil
	}
	return f
}
