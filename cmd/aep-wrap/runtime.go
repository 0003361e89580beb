package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"aep-wrap/collector"
	"aep-wrap/execution"
)

// runtimeAddr is where a runtime listens unless it is told otherwise.
const runtimeAddr = "127.0.0.1:8788"

// runtimeOptions are what a runtime is started with.
type runtimeOptions struct {
	listen      string
	profiles    string
	dir         string
	tokens      string
	tlsCert     string
	tlsKey      string
	behindProxy bool
	cancelRuns  bool
}

func newRuntimeCmd(a *app) *cobra.Command {
	var o runtimeOptions
	cmd := &cobra.Command{
		Use:   "runtime",
		Short: "Serve the Agent Execution Protocol: embedders create agents and runs",
		Long: `Serves the Agent Execution Protocol (aep-2026-04-24) on --listen (default
` + runtimeAddr + `): JSON-RPC 2.0 at POST /aep/v1/rpc, a run's events by SSE, artifacts'
bytes. A run launches an agent headless with its goal, wrapped as if by hand:
its events are in aep-wrap tail too, and it can be cancelled and answered there.

--profile names the file that says which commands an embedder's agents run:

  default: claude
  profiles:
    claude:
      command: [claude, -p]          # the goal is on its standard input, or in place of {goal}
      prompt: [--append-system-prompt, "{prompt}"]
      model: [--model, "{model}"]
      resume: [--resume, "{session}"]
      mcp: [--mcp-config, "{mcp}"]   # a file in the vendors' common form
      gate: true                     # its tool calls can be held, see --gate-rule
      toolset: [--tools, "{tools}"]  # the vendor's own list, with commas, beside the gate
      tools: [Bash, Read, Write, Edit]
      wrap: [--capture, redacted]    # flags of aep-wrap for it
      env: {NAME: value}
      dir: /srv/work                 # otherwise each run has a directory of its own

What a profile does not say, its agents cannot be asked for. Without the file
there are the profiles claude and demo.

--tokens names a file of tokens and what each allows, see aep-wrap token --help;
it is read again when it changes. Without it the token of aep-wrap token show
allows everything.

By SIGTERM or SIGINT it ends its streams and goes. Runs go on, and the next
runtime takes them up; with --cancel-runs they are cancelled first.`,
		Example: `  aep-wrap runtime
  aep-wrap runtime --listen 127.0.0.1:9100 --profile profiles.yaml --tokens tokens`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o.listen = runtimeAddr
			if cmd.Flags().Changed("listen") {
				o.listen = a.cfg.Listen
			}
			return a.serveRuntime(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.profiles, "profile", "", "`FILE` of the commands that agents run")
	f.StringVar(&o.dir, "dir", "", "`DIR` of what is kept: agents, runs, their logs and files (default ~/.aep/runtime)")
	f.StringVar(&o.tokens, "tokens", "", "`FILE` of tokens and what each allows, readable by you alone; read again when it changes")
	f.StringVar(&o.tlsCert, "tls-cert", "", "`FILE` of the TLS certificate to serve --listen with")
	f.StringVar(&o.tlsKey, "tls-key", "", "`FILE` of its key")
	f.BoolVar(&o.behindProxy, "behind-proxy", false, "a proxy on a trusted path ends TLS")
	f.BoolVar(&o.cancelRuns, "cancel-runs", false, "at the end cancel the runs that go on, instead of leaving them to the next runtime")
	return cmd
}

func (a *app) serveRuntime(ctx context.Context, o runtimeOptions) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	r, err := a.startRuntime(o)
	if err != nil {
		return err
	}
	select {
	case err = <-r.ended:
	case <-ctx.Done():
	}
	return errors.Join(err, r.close())
}

// check says what cannot be, before anything is started.
func (o *runtimeOptions) check() error {
	switch {
	case o.listen == off:
		return usageError("--listen off: the runtime needs an address, such as %s", runtimeAddr)
	case (o.tlsCert == "") != (o.tlsKey == ""):
		return usageError("--tls-cert and --tls-key go together")
	case o.tlsCert == "" && !o.behindProxy && !loopback(o.listen):
		return usageError("--listen %s is reached from other machines: it wants --tls-cert and --tls-key, or --behind-proxy", o.listen)
	}
	return nil
}

// runtimeServer is a runtime that serves, in a command of its own or beside
// others.
type runtimeServer struct {
	srv        *execution.Server
	store      *execution.Store
	http       *http.Server
	addr       net.Addr
	ended      chan error // gets the reason where it stops by itself
	stop       context.CancelFunc
	cancelRuns bool
}

// startRuntime opens what a runtime keeps, takes up the runs that an earlier one
// left, and serves until close.
func (a *app) startRuntime(o runtimeOptions) (_ *runtimeServer, err error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	profiles, err := readProfiles(a.paths.expand(o.profiles))
	if err != nil {
		return nil, err
	}
	tokens, err := a.runtimeTokens(&o)
	if err != nil {
		return nil, err
	}
	dir := a.paths.expand(o.dir)
	if dir == "" {
		dir = filepath.Join(a.paths.aep, "runtime")
	}
	r := &runtimeServer{ended: make(chan error, 1), cancelRuns: o.cancelRuns}
	defer func() {
		if err != nil && r.store != nil {
			_ = r.store.Close()
		}
	}()
	if dir, err = filepath.Abs(dir); err != nil { // agents run elsewhere
		return nil, fmt.Errorf("--dir: %w: write an absolute path", err)
	}
	if r.store, err = execution.OpenStore(dir); err != nil {
		return nil, fmt.Errorf("cannot open what the runtime keeps: %w; another place: --dir DIR", err)
	}
	l, err := net.Listen("tcp", o.listen)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w; another address: --listen HOST:PORT", o.listen, reason(err))
	}
	r.addr = l.Addr()
	scheme := "http"
	if o.tlsCert != "" {
		cert, err := tls.LoadX509KeyPair(o.tlsCert, o.tlsKey)
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
		scheme = "https"
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	}
	capabilities := []execution.Capability{execution.SSE, execution.GDPR}
	if profiles.any(func(p *profile) bool { return len(p.MCP) > 0 }) {
		capabilities = append(capabilities, execution.ExternalMCP)
	}
	log := a.newOwnLog()
	var scopes atomic.Pointer[scopeTable]
	scopes.Store(scopesOf(tokens))
	r.srv, err = execution.New(execution.Config{
		Store: r.store, Runner: &launcher{app: a, dir: filepath.Join(dir, "runs"), set: profiles},
		Scopes:       func(token string) ([]execution.Scope, bool) { return scopes.Load().of(token) },
		Capabilities: capabilities, Name: "aep-wrap", Version: readBuildInfo().Version, Log: log,
	})
	if err != nil {
		l.Close()
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	go a.watchTokens(ctx, o.tokens == "", func() ([]collector.Token, error) { return a.runtimeTokens(&o) }, tokens,
		func(now []collector.Token) { scopes.Store(scopesOf(now)) }, log)
	r.http = &http.Server{
		Handler: r.srv.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	if !a.cfg.Quiet {
		a.warn("the runtime serves %s://%s/aep/v1/rpc · state in %s · profiles %s", scheme, r.addr, tilde(dir, a.paths.home), strings.Join(profiles.names(), ", "))
	}
	go func() { r.ended <- r.http.Serve(l) }()
	return r, nil
}

// The patience of a runtime's end: for runs that are cancelled, then for calls
// that are answered.
const (
	runsEnd  = 15 * time.Second
	callsEnd = 5 * time.Second
)

// close takes no more calls and ends the streams. Runs go on, for the next
// runtime to take up, unless they are to be cancelled; the store is closed
// whole.
func (r *runtimeServer) close() error {
	defer r.stop()
	var err error
	if r.cancelRuns {
		wait, cancel := context.WithTimeout(context.Background(), runsEnd)
		defer cancel()
		err = r.srv.Drain(wait)
	}
	r.srv.Close() // ends the streams, for which Shutdown would wait
	wait, cancel := context.WithTimeout(context.Background(), callsEnd)
	defer cancel()
	if herr := r.http.Shutdown(wait); herr != nil {
		err = errors.Join(err, herr, r.http.Close())
	}
	return errors.Join(err, r.store.Close())
}

// runtimeTokens are the tokens of the file, or the user's own, which allows
// everything.
func (a *app) runtimeTokens(o *runtimeOptions) ([]collector.Token, error) {
	if o.tokens != "" {
		return a.readTokens(o.tokens)
	}
	token, err := a.collectorToken()
	return []collector.Token{{Value: token, Scopes: strings.Join(scopeNames(), ",")}}, err
}

// scopeTable is the tokens as they are compared.
type scopeTable []struct {
	sum    [sha256.Size]byte
	scopes []execution.Scope
}

func scopesOf(tokens []collector.Token) *scopeTable {
	t := make(scopeTable, len(tokens))
	for i, token := range tokens {
		t[i].sum = sha256.Sum256([]byte(token.Value))
		for name := range strings.SplitSeq(token.Scopes, ",") {
			t[i].scopes = append(t[i].scopes, execution.Scope(name))
		}
	}
	return &t
}

// of compares with every token, in a time that says nothing of any.
func (t scopeTable) of(token string) (scopes []execution.Scope, ok bool) {
	sum := sha256.Sum256([]byte(token))
	for i := range t {
		if subtle.ConstantTimeCompare(sum[:], t[i].sum[:]) == 1 {
			scopes, ok = t[i].scopes, true
		}
	}
	return scopes, ok
}
