package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// joiner reaches the per-user collector by its socket, and starts it when
// nobody answers there.
type joiner struct {
	app    *app
	socket string
	note   func(string) // told what people should know: none can be started, or it calls nobody

	compare sync.Once

	mu      sync.Mutex
	started time.Time     // when we last started one
	ended   chan struct{} // closed when that one has ended, or was none
	failed  error         // why it has, where nobody answers instead
	vain    int           // tries since the start that failed for that
}

// hopeless counts the tries that failed because no collector can be started: as
// long as that is so, another is of no use.
func (j *joiner) hopeless() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.vain
}

// compareNotify says that a collector which ran before us calls nobody, where
// we are to have people called.
func (j *joiner) compareNotify() {
	if j.app.cfg.Notify == "" || j.app.cfg.Quiet {
		return
	}
	if info, ok := j.app.runningCollector(); ok && !info.Notifies {
		j.note("the collector that runs was started without --notify: nobody is called until it starts anew")
	}
}

// patience with a collector that starts, and between two starts.
const (
	startWait  = 3 * time.Second
	startAgain = 10 * time.Second
	startSoon  = 200 * time.Millisecond // where another had its place: that one comes, or is about to end
)

func (a *app) newJoiner(note func(string)) *joiner {
	return &joiner{app: a, socket: a.paths.collectorSocket(a.Getenv), note: note}
}

// client sends to the collector. Its one connection stays open as long as we
// live: a collector that has one does not go away.
func (j *joiner) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:           func(ctx context.Context, _, _ string) (net.Conn, error) { return j.dial(ctx) },
		MaxIdleConnsPerHost:   1,
		ResponseHeaderTimeout: 30 * time.Second,
	}}
}

func (j *joiner) dial(ctx context.Context) (net.Conn, error) {
	conn, err := j.try(ctx)
	if err == nil {
		j.compare.Do(j.compareNotify)
		return conn, nil
	}
	ended := j.start()
	var again <-chan time.Time
	deadline := time.Now().Add(startWait)
	for time.Now().Before(deadline) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-ended:
			if ferr := j.inVain(); ferr != nil {
				return nil, ferr
			}
			ended, again = nil, time.After(startSoon)
		case <-again:
			ended = j.start()
		case <-time.After(10 * time.Millisecond):
		}
		if conn, err = j.try(ctx); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// inVain says why no collector can be started, and counts the try; nil is that
// there is one.
func (j *joiner) inVain() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.failed != nil {
		j.vain++
	}
	return j.failed
}

func (j *joiner) try(ctx context.Context) (net.Conn, error) {
	// Whoever owns the directory owns the socket.
	if err := privateDir(filepath.Dir(j.socket)); err != nil {
		return nil, err
	}
	d := net.Dialer{Timeout: 2 * time.Second}
	return d.DialContext(ctx, "unix", j.socket)
}

// start starts a collector as a process of its own: its own session and
// streams, so that neither a hangup here nor a fault there crosses over. It gives
// what says that the last one has ended.
func (j *joiner) start() <-chan struct{} {
	j.mu.Lock()
	defer j.mu.Unlock()
	if time.Since(j.started) < startAgain {
		return j.ended
	}
	j.started, j.failed = time.Now(), nil
	ended := make(chan struct{})
	j.ended = ended
	wait, err := j.app.startCollector()
	if err != nil {
		j.failed = err
		close(ended)
		j.note(fmt.Sprintf("cannot start the collector: %v", err))
		return ended
	}
	go func() {
		defer close(ended)
		err := wait()
		j.mu.Lock()
		defer j.mu.Unlock()
		if err == nil {
			j.started = time.Time{}
			return
		}
		j.failed = fmt.Errorf("the collector that was started has ended: %w", err)
		if _, there := os.Stat(j.app.paths.collectorLogFile()); there == nil {
			j.failed = fmt.Errorf("%w; see %s", j.failed, j.app.paths.collectorLogFile())
		}
	}()
	return ended
}

func (a *app) startCollector() (wait func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := privateDir(a.paths.run()); err != nil {
		return nil, err
	}
	// It would say so itself, but in its log.
	if _, err := readToken(a.paths.token()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	cmd := exec.Command(self, "collect", "--background", "--idle-exit", idleExit.String(),
		"--listen", a.cfg.Listen, "--log-dir", a.cfg.LogDir)
	cmd.Dir = "/"
	// It outlives this agent and serves others: nothing of this one's
	// environment is its business, but where things lie.
	for _, name := range []string{"HOME", "PATH", "TMPDIR", "XDG_RUNTIME_DIR", "TZ"} {
		if v := a.Getenv(name); v != "" {
			cmd.Env = append(cmd.Env, name+"="+v)
		}
	}
	cmd.Env = append(cmd.Env, a.handedDown()...)
	if out := a.paths.collectorLog(); out != nil {
		defer out.Close()
		cmd.Stdout, cmd.Stderr = out, out
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, reason(err)
	}
	return cmd.Wait, nil
}

// handedDown are the settings of ours that the collector goes by, in its
// environment: a topic's name is a secret, and process lists tell arguments.
func (a *app) handedDown() []string {
	var env []string
	if a.cfg.Notify != "" {
		env = append(env, "AEP_NOTIFY="+a.cfg.Notify, "AEP_NOTIFY_CAPTURE="+a.cfg.NotifyAt.String())
	}
	if a.cfg.PageURL != "" {
		env = append(env, "AEP_PAGE_URL="+a.cfg.PageURL)
	}
	return env
}
