package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"aep-wrap/execution"
)

// runtimeAddr is where a runtime listens unless it is told otherwise.
const runtimeAddr = "127.0.0.1:8788"

type runtimeOptions struct {
	profiles    string
	dir         string
	tokens      string
	tlsCert     string
	tlsKey      string
	behindProxy bool
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
      gate: true                     # its tool calls can be held, see --gate
      tools: [Bash, Read, Write, Edit]
      wrap: [--capture, redacted]    # flags of aep-wrap for it
      env: {NAME: value}
      dir: /srv/work                 # otherwise each run has a directory of its own

What a profile does not say, its agents cannot be asked for. Without the file
there are the profiles claude and demo.

--tokens names a file of tokens: lines of a token, a space, and its scopes with
commas between them (agent.read, run.create and so on), or *. Without it the
token of aep-wrap token show has them all.`,
		Example: `  aep-wrap runtime
  aep-wrap runtime --listen 127.0.0.1:9100 --profile profiles.yaml --tokens tokens`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			addr := runtimeAddr
			if cmd.Flags().Changed("listen") {
				addr = a.cfg.Listen
			}
			return a.serveRuntime(cmd.Context(), addr, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.profiles, "profile", "", "`FILE` of the commands that agents run")
	f.StringVar(&o.dir, "dir", "", "`DIR` of what is kept: agents, runs, their logs and files (default ~/.aep/runtime)")
	f.StringVar(&o.tokens, "tokens", "", "`FILE` of tokens and their scopes, readable by you alone")
	f.StringVar(&o.tlsCert, "tls-cert", "", "`FILE` of the TLS certificate to serve --listen with")
	f.StringVar(&o.tlsKey, "tls-key", "", "`FILE` of its key")
	f.BoolVar(&o.behindProxy, "behind-proxy", false, "a proxy on a trusted path ends TLS")
	return cmd
}

func (a *app) serveRuntime(ctx context.Context, addr string, o runtimeOptions) error {
	switch {
	case addr == off:
		return usageError("--listen off: the runtime needs an address, such as %s", runtimeAddr)
	case (o.tlsCert == "") != (o.tlsKey == ""):
		return usageError("--tls-cert and --tls-key go together")
	case o.tlsCert == "" && !o.behindProxy && !loopback(addr):
		return usageError("--listen %s is reached from other machines: it wants --tls-cert and --tls-key, or --behind-proxy", addr)
	}
	profiles, err := readProfiles(a.paths.expand(o.profiles))
	if err != nil {
		return err
	}
	scopes, err := a.runtimeScopes(o.tokens)
	if err != nil {
		return err
	}
	dir := a.paths.expand(o.dir)
	if dir == "" {
		dir = filepath.Join(a.paths.aep, "runtime")
	}
	store, err := execution.OpenStore(dir)
	if err != nil {
		return fmt.Errorf("cannot open what the runtime keeps: %w; another place: --dir DIR", err)
	}
	defer func() { _ = store.Close() }()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return fmt.Errorf("cannot listen on %s: %w; another address: --listen HOST:PORT", addr, reason(err))
	}
	defer l.Close()
	if o.tlsCert != "" {
		cert, err := tls.LoadX509KeyPair(o.tlsCert, o.tlsKey)
		if err != nil {
			return fmt.Errorf("--tls-cert, --tls-key: %w", err)
		}
		l = tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}})
	}
	capabilities := []execution.Capability{execution.SSE, execution.GDPR}
	if profiles.any(func(p *profile) bool { return len(p.MCP) > 0 }) {
		capabilities = append(capabilities, execution.ExternalMCP)
	}
	srv, err := execution.New(execution.Config{
		Store: store, Runner: &launcher{app: a, dir: filepath.Join(dir, "runs"), set: profiles},
		Scopes: scopes, Capabilities: capabilities, Name: "aep-wrap", Version: readBuildInfo().Version, Log: a.newOwnLog(),
	})
	if err != nil {
		return err
	}
	defer srv.Close()
	hs := &http.Server{
		Handler: srv.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
	}
	if !a.cfg.Quiet {
		scheme := "http"
		if o.tlsCert != "" {
			scheme = "https"
		}
		a.warn("the runtime serves %s://%s/aep/v1/rpc · state in %s · profiles %s", scheme, l.Addr(), tilde(dir, a.paths.home), strings.Join(profiles.names(), ", "))
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- hs.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	srv.Close() // ends the streams, for which Shutdown would wait
	wait, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return hs.Shutdown(wait)
}

// runtimeScopes is what tokens allow: those of the file, or the user's own,
// which has all.
func (a *app) runtimeScopes(file string) (func(string) ([]execution.Scope, bool), error) {
	type row struct {
		sum    [sha256.Size]byte
		scopes []execution.Scope
	}
	var rows []row
	if file == "" {
		token, err := a.collectorToken()
		if err != nil {
			return nil, err
		}
		rows = append(rows, row{sha256.Sum256([]byte(token)), execution.Scopes})
	} else {
		b, err := readPrivate(a.paths.expand(file))
		if err != nil {
			return nil, fmt.Errorf("--tokens: %w", err)
		}
		for i, line := range bytes.Split(b, []byte("\n")) {
			text, _, _ := strings.Cut(string(line), "#")
			words := strings.Fields(text)
			if len(words) == 0 {
				continue
			}
			if len(words) != 2 {
				return nil, fmt.Errorf("--tokens %s: line %d: want a token, a space, and its scopes, such as agent.read,run.read", file, i+1)
			}
			scopes, err := execution.ParseScopes(words[1])
			if err != nil {
				return nil, fmt.Errorf("--tokens %s: line %d: %w", file, i+1, err)
			}
			rows = append(rows, row{sha256.Sum256([]byte(words[0])), scopes})
		}
		if len(rows) == 0 {
			return nil, fmt.Errorf("--tokens %s: it holds no token", file)
		}
	}
	return func(token string) (scopes []execution.Scope, ok bool) {
		sum := sha256.Sum256([]byte(token))
		for i := range rows { // every one, in a time that says nothing of any
			if subtle.ConstantTimeCompare(sum[:], rows[i].sum[:]) == 1 {
				scopes, ok = rows[i].scopes, true
			}
		}
		return scopes, ok
	}, nil
}
