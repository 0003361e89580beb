package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// app is what every subcommand is given: the streams, the environment, and,
// once the command line is read, the configuration.
type app struct {
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	// Getenv reads the environment; Environ lists it.
	Getenv  func(string) string
	Environ func() []string

	// cfg is complete when a command's RunE starts, unless the command is
	// annotated with noConfig.
	cfg config
	// paths are where this user's files lie.
	paths paths
	// tokens is the collector's token where it may change; nil is that of cfg.
	tokens *liveToken
}

// newApp is the app of the process itself.
func newApp() *app {
	return &app{
		Stdin: os.Stdin, Stdout: &output{File: os.Stdout}, Stderr: os.Stderr,
		Getenv: os.Getenv, Environ: os.Environ,
		paths: findPaths(os.Getenv),
	}
}

// output is a standard stream that remembers that it could not be written: a
// command whose words nobody got has not done what it was asked.
type output struct {
	*os.File
	err error
}

func (o *output) Write(b []byte) (int, error) {
	n, err := o.File.Write(b)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// ReadFrom keeps io.Copy from going around Write.
func (o *output) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{o}, r)
}

// WriteString keeps io.WriteString from going around Write.
func (o *output) WriteString(s string) (int, error) { return o.Write([]byte(s)) }

// endpoint is a collector as a consumer or an emitter reaches it.
type endpoint struct {
	Base   string // origin, without a slash at its end
	Token  string // "" where the socket's mode is the trust
	Socket string // unix socket to dial instead of Base's host, or ""
	files  tlsFiles
	plain  bool // the token may go without TLS
}

// endpoint is the collector that the configuration names: --collector, else
// the per-user one by its socket.
func (a *app) endpoint() endpoint {
	if a.cfg.Collector != "" {
		return endpoint{Base: a.cfg.Collector, Token: a.cfg.Token, files: a.cfg.TLS, plain: a.cfg.PlainHTTP}
	}
	return endpoint{Base: "http://aep-collector", Socket: a.paths.collectorSocket(a.Getenv)}
}

// client is an HTTP client for the endpoint. It sets no overall timeout:
// streams stay open. No proxy comes between us and a unix socket.
func (e endpoint) client() *http.Client {
	if e.Socket == "" {
		return &http.Client{Transport: newCollectorTransport(e.files, e.plain)}
	}
	dial := net.Dialer{Timeout: 10 * time.Second}
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dial.DialContext(ctx, "unix", e.Socket)
		},
		ResponseHeaderTimeout: 30 * time.Second,
	}}
}

// exitError carries the exit code that a command ends with. Without an err
// nothing is printed: the code is the answer.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// usageError is a mistake on the command line or in the configuration: exit 2.
func usageError(format string, args ...any) error {
	return &exitError{code: 2, err: fmt.Errorf(format, args...)}
}

// exitCode says what an error makes of the process: 0 for none, the carried
// code, or 1.
func exitCode(err error) int {
	if err == nil {
		return 0
	}
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	return 1
}

// warn prints one line of ours on stderr.
func (a *app) warn(format string, args ...any) {
	line := strings.TrimSpace(fmt.Sprintf(format, args...))
	fmt.Fprintf(a.Stderr, "aep-wrap: %s\n", visible(strings.ReplaceAll(line, "\n", " ")))
}

// tell says what a command did: as JSON where that is wanted, else in lines
// for people.
func (a *app) tell(r any, lines ...string) error {
	if a.cfg.JSON {
		return json.NewEncoder(a.Stdout).Encode(r)
	}
	if !a.cfg.Quiet {
		for _, line := range lines {
			fmt.Fprintln(a.Stdout, line)
		}
	}
	return nil
}
