package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"aep-wrap/adapters"
	"aep-wrap/agent"
)

const (
	// backingPatience is how long a server of ours may take to come up.
	backingPatience = 90 * time.Second
	// longWait is how long that is not worth a word.
	longWait = 5 * time.Second
	// tryPatience is how long a command may take that only tells its version.
	tryPatience = 10 * time.Second
	// lastWords is how long a server is listened to once the agent has ended.
	lastWords = 2 * time.Second
)

// serverSide is the runtime's own server, as far as this launch has to do with
// one.
type serverSide struct {
	server  *agent.Server
	backing *agent.Backing // of ours; nil where the runtime has one inside
	foreign bool
}

// offerServer gives the adapter of a runtime that is a server what it needs to
// have it within our reach.
func (l *launch) offerServer(seen *adapters.Launch, end *adapters.Endpoint) {
	seen.Attach, seen.Dual = l.app.cfg.Attach, l.app.cfg.Dual
	if ad := l.adapter; seen.Dual && (ad.Launch == nil || !ad.Launch.Dual) {
		l.say(fmt.Sprintf("--dual changes nothing for %s", ad.Title))
	}
	if v := l.adapter.Server; v == nil || v.Events == "" {
		if seen.Attach != "" {
			l.say(fmt.Sprintf("--attach %s: %s has no server to join", shownURL(seen.Attach), l.adapter.Title))
		}
		if !seen.Dual || v == nil {
			return
		}
	}
	end.Secret = l.secret
	var err error
	if end.Port, err = agent.FreePort(); err != nil {
		l.trouble("%v", err)
	}
}

// startServer starts a server of ours where the command needs one, and follows
// the server. An error is that the user does not want to wait for it.
func (l *launch) startServer(spec *agent.Spec) error {
	at := l.wiring.Server
	if at == nil {
		return nil
	}
	l.served.foreign = at.Foreign
	if at.Start != nil {
		server := *spec
		server.Args = at.Start
		server.Env = slices.DeleteFunc(slices.Clone(spec.Env), func(kv string) bool {
			name, _, _ := strings.Cut(kv, "=")
			return slices.Contains(at.Hide, name)
		})
		b, err := agent.StartBacking(server)
		if err != nil {
			l.without(spec, err)
			return nil
		}
		l.served.backing = b
	}
	if at.Try != nil && !l.knows(spec, at.Try) {
		l.closeServer()
		l.without(spec, errors.New("this version of it cannot join a server of ours"))
		return nil
	}
	var err error
	l.served.server, err = agent.FollowServer(agent.ServerConfig{
		Serving: l.adapter.Server, At: *at, Road: l.road, Log: l.log, Say: l.say, Beside: l.hooked.Load,
	})
	if err != nil {
		l.trouble("%v; nothing of %s is seen", err, l.adapter.Title)
		return nil
	}
	if l.effects != nil {
		l.effects.Request = l.served.server.Request
	}
	if l.served.backing == nil {
		return nil
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT)
	defer signal.Stop(stop)
	waiting := time.AfterFunc(longWait, func() { l.say("waiting for the server of " + l.adapter.Title + "; ^C gives up") })
	defer waiting.Stop()
	select {
	case <-l.served.server.Up():
		return nil
	case sig := <-stop:
		l.closeServer()
		n, _ := sig.(unix.Signal)
		return &exitError{code: 128 + int(n)}
	case <-l.served.backing.Gone():
		err = errors.New("its server ended before it was there")
	case <-time.After(backingPatience):
		err = fmt.Errorf("its server was not there after %s", backingPatience)
	}
	l.closeServer()
	l.without(spec, err)
	return nil
}

// without starts the command without the server of ours that did not come up.
func (l *launch) without(spec *agent.Spec, why error) {
	how := "without one, and nothing of it is seen"
	if spec.Args = l.wiring.Server.Else; spec.Args != nil {
		how = "as without --dual"
	} else {
		spec.Args = l.args
	}
	l.trouble("%s starts %s: %v", l.adapter.Title, how, why)
}

// knows says whether this version of the runtime knows the words by which its
// command joins a server of ours. Where that cannot be found out, it does.
func (l *launch) knows(spec *agent.Spec, try []string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), tryPatience)
	defer cancel()
	cmd := exec.CommandContext(ctx, spec.Path, try[1:]...)
	cmd.Env, cmd.Dir, cmd.WaitDelay, cmd.SysProcAttr = spec.Env, spec.Dir, time.Second, &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	var failed *exec.ExitError
	return ctx.Err() != nil || !errors.As(err, &failed)
}

// serverStarted makes a server of ours a part of the agent.
func (l *launch) serverStarted(p *agent.Process) {
	if l.served.backing != nil {
		p.Adopt(l.served.backing.Pid())
	}
}

// closeServer takes in the server's last words, and ends a server of ours. A
// run that its command left there goes with it.
func (l *launch) closeServer() {
	if s := l.served.server; s != nil {
		ctx, cancel := context.WithTimeout(context.Background(), lastWords)
		defer cancel()
		s.Close(ctx)
		l.served.server = nil
	}
	if b := l.served.backing; b != nil {
		b.Stop()
		l.served.backing = nil
	}
}

func parseAttach(v string) (string, error) {
	if v == adapters.AttachNew {
		return v, nil
	}
	u, err := url.Parse(v)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("%q: want the server's URL, such as http://127.0.0.1:4096, or new", v)
	}
	return v, nil
}
