package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// nullEnv makes this program the null server.
const nullEnv = "AEP_BENCH_NULL"

func init() {
	if os.Getenv(nullEnv) != "" {
		serveNull()
		os.Exit(0) //nolint:forbidigo // this process is the null server alone, also where it is a test's
	}
}

// serveNull reads requests and says 202, until its standard input ends.
func serveNull() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Println(l.Addr())
	srv := http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusAccepted)
	})}
	go func() { _ = srv.Serve(l) }()
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// startNull starts the null server as a process of its own.
func startNull() (host string, pid int, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", 0, nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), nullEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", 0, nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", 0, nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", 0, nil, err
	}
	stop = func() {
		in.Close()
		_ = cmd.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		stop()
		return "", 0, nil, fmt.Errorf("the null server does not start: %w", err)
	}
	return strings.TrimSpace(line), cmd.Process.Pid, stop, nil
}
