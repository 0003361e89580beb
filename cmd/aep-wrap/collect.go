package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"aep-wrap/collector"
)

// idleExit is when the per-user collector, started by a wrapper, goes away.
const idleExit = 10 * time.Minute

func newCollectCmd(a *app) *cobra.Command {
	var idle time.Duration
	var background bool
	cmd := &cobra.Command{
		Use:   "collect",
		Short: "Run the collector alone, in the foreground",
		Long: `The collector takes events in from wrappers, keeps the newest of each session,
and streams them out to aep-wrap tail, to its page and to other consumers.

A wrapper starts one for you when it needs it. It listens for wrappers on a
socket in ~/.aep/run and for people on --listen, where it asks for the token of
aep-wrap token show.`,
		Example: `  aep-wrap collect
  aep-wrap collect --listen 127.0.0.1:9000 --token-file /run/secrets/aep`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.cfg.Listen == off {
				return usageError("--listen off: the collector needs an address, such as 127.0.0.1:8787")
			}
			err := a.collect(cmd.Context(), idle, background)
			if background && errors.Is(err, errLocked) {
				return nil // of several that start at once one wins
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&idle, "idle-exit", 0, "end after nobody needed it for so long (0: never)")
	cmd.Flags().BoolVar(&background, "background", false, "as a wrapper starts it: yield to one that runs, log to a file")
	cmd.Flags().Lookup("background").Hidden = true
	return cmd
}

// collectorInfo is what a running collector tells in ~/.aep/run/collector.json.
type collectorInfo struct {
	PID        int    `json:"pid"`
	Address    string `json:"address"` // host:port for people
	Version    string `json:"version"`
	Background bool   `json:"background"`
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
		return "http://" + info.Address
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
func (a *app) collect(ctx context.Context, idle time.Duration, background bool) error {
	if err := privateDir(a.paths.run()); err != nil {
		return err
	}
	lock, err := a.takeCollectorLock(background)
	if err != nil {
		return err
	}
	defer lock.Close()
	socket, err := a.listenSocket()
	if err != nil {
		return err
	}
	people, err := a.listenPeople(background)
	if err != nil {
		socket.Close()
		return err
	}
	token, err := a.collectorToken()
	if err != nil {
		return err
	}

	log := slog.New(slog.NewTextHandler(a.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	c := collector.New(collector.Config{Token: token, LogDir: a.cfg.LogDir, IdleExit: idle, Log: log})
	ctx, stop := signal.NotifyContext(ctx, unix.SIGINT, unix.SIGTERM)
	defer stop()
	if a.cfg.Token == "" {
		go a.watchToken(ctx, token, c.SetToken)
	}

	info := collectorInfo{PID: os.Getpid(), Address: people.Addr().String(), Version: readBuildInfo().Version, Background: background}
	if err := a.publish(info); err != nil {
		log.Warn("cannot write where the collector listens", "err", err)
	}
	defer os.Remove(a.paths.collectorInfo())
	if !background && !a.cfg.Quiet {
		fmt.Fprintf(a.Stderr, "aep-wrap: collector at http://%s; open it with aep-wrap token show --url\n", info.Address)
	}
	return c.Serve(ctx, socket, people)
}

// takeCollectorLock takes the right to be the per-user collector. One in the
// foreground asks one that a wrapper started to make room: nothing is lost by
// that, for it keeps nothing that the logs do not hold, and wrappers come back.
func (a *app) takeCollectorLock(background bool) (*os.File, error) {
	lock, err := lockFile(a.paths.collectorLock())
	if !errors.Is(err, errLocked) || background {
		return lock, err
	}
	info, ok := a.runningCollector()
	if !ok || !info.Background {
		return nil, fmt.Errorf("a collector of yours already runs (process %d, http://%s)", info.PID, info.Address)
	}
	if err := unix.Kill(info.PID, unix.SIGTERM); err != nil {
		return nil, fmt.Errorf("the collector that runs (process %d) does not make room: %w", info.PID, err)
	}
	for deadline := time.Now().Add(6 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if lock, err = lockFile(a.paths.collectorLock()); !errors.Is(err, errLocked) {
			return lock, err
		}
	}
	return nil, fmt.Errorf("the collector that runs (process %d) does not end", info.PID)
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

// watchToken hands on the token when its file changes.
func (a *app) watchToken(ctx context.Context, token string, set func(string)) {
	tick := time.NewTicker(2 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if now, err := readToken(a.paths.token()); err == nil && now != token {
				token = now
				set(token)
			}
		}
	}
}

// collectorLog opens the file that a collector in the background writes to.
func (p paths) collectorLog() io.WriteCloser {
	path := filepath.Join(p.run(), "collector.log")
	if fi, err := os.Stat(path); err == nil && fi.Size() > ownLogMax {
		_ = os.Rename(path, path+".1")
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil
	}
	return f
}
