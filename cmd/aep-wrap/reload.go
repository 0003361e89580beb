package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"aep-wrap/queue"
)

// liveToken is the collector's token where it may change while we run.
type liveToken struct{ now atomic.Pointer[string] }

func newLiveToken(v string) *liveToken {
	t := &liveToken{}
	t.now.Store(&v)
	return t
}

// over has a client send the token as it is now. One that is refused may be
// mended: that is tried again, as an absence would be.
func (t *liveToken) over(c *http.Client) *http.Client {
	if t == nil {
		return c
	}
	with := *c
	next := c.Transport
	if next == nil {
		next = http.DefaultTransport
	}
	with.Transport = &bearer{token: t, next: next}
	return &with
}

type bearer struct {
	token *liveToken
	next  http.RoundTripper
}

var errToken = tokenError("the collector refuses the token: put the right one in the token file, and send SIGHUP")

type tokenError string

func (e tokenError) Error() string { return string(e) }

// Class is queue.Class of it.
func (tokenError) Class() string { return queue.NoLeave }

func (b *bearer) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Header.Get("Authorization") != "" {
		req = req.Clone(req.Context())
		req.Header.Set("Authorization", "Bearer "+*b.token.now.Load())
	}
	resp, err := b.next.RoundTrip(req)
	if err == nil && resp.StatusCode == http.StatusUnauthorized {
		_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
		resp.Body.Close()
		return nil, errToken
	}
	return resp, err
}

func (b *bearer) CloseIdleConnections() {
	if c, ok := b.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// reloaded are the settings that are read again without a new start.
var reloaded = []string{"token", "token-file", "secret-env", "no-pii", "hook-secret-file"}

// reload reads the configuration again. All of it counts from now on, or
// nothing does.
func (s *serving) reload() {
	a := s.app
	c, found, errs := loadSettings(s.flags, a.Getenv, a.paths, false)
	secret := s.secret
	if len(errs) == 0 && secret != "" {
		word, err := (&app{cfg: c, paths: a.paths}).hookSecret(false)
		if err != nil {
			errs = append(errs, err)
		}
		secret = word
	}
	if len(errs) == 0 && (c.Token == "") != (a.cfg.Token == "") {
		errs = append(errs, errors.New("whether there is a token wants a new start"))
	}
	if len(errs) > 0 {
		a.warn("nothing was read again, all is as it was: %v", errs[0])
		return
	}
	a.tokens.now.Store(&c.Token)
	s.gate.Use(a.watchPipeline(&c))
	if s.secret != "" {
		s.hooks.SetSecret(secret)
		s.secret = secret
	}
	line := "the tokens and the names of secrets were read again"
	if changed := changedSettings(s.found, found); len(changed) > 0 {
		line += "; " + strings.Join(changed, ", ") + ": changed, and wants a new start"
	}
	a.warn("%s", line)
}

// changedSettings names the settings that differ and are not read again.
func changedSettings(was, now map[string]source) (names []string) {
	for _, s := range settings {
		if !slices.Contains(reloaded, s.name) && !slices.Equal(was[s.name].values, now[s.name].values) {
			names = append(names, s.name)
		}
	}
	return names
}

// notifyAt writes one datagram to a service manager's socket.
func notifyAt(path, state string) {
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		return // it waits in vain, and says so
	}
	defer c.Close()
	_, _ = fmt.Fprint(c, state)
}
