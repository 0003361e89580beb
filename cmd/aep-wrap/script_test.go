package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/rogpeppe/go-internal/testscript"

	"aep-wrap/agent"
	"aep-wrap/agent/hookclient"
	"aep-wrap/event/eventtest"
)

// patience is how long a test waits for what comes at once on an idle machine.
const patience = 3 * time.Minute

// noSleep keeps the race detector from holding up each process of ours for a
// second at its end.
const noSleep = "GORACE=atexit_sleep_ms=0"

func TestMain(m *testing.M) {
	if agent.IsShim(os.Args) {
		os.Exit(agent.ShimMain(os.Args))
	}
	testscript.Main(m, map[string]func(){
		"aep-wrap": main,
		"aep-hook": func() { os.Exit(hookclient.Main(os.Args[1:])) },
		"claude":   func() { os.Exit(playClaude(os.Args[1:])) },
		"drafter":  func() { os.Exit(drafter()) },
		"get":      get,
		"lingers":  lingers,
		"onpty":    onPTY,
		"saying":   saying,
		"standin":  standInMain,
	})
}

// TestScript runs the command line as people do: the binary itself, one
// script a case, each with a home of its own.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Setup: func(env *testscript.Env) error {
			home := filepath.Join(env.WorkDir, "home")
			if err := os.Mkdir(home, 0o755); err != nil {
				return err
			}
			env.Setenv("HOME", home)
			env.Setenv("XDG_RUNTIME_DIR", "")
			env.Setenv("AEP_LISTEN", "off") // a script that needs a collector says so
			name, value, _ := strings.Cut(noSleep, "=")
			env.Setenv(name, value)
			env.Setenv("LOGS", filepath.Join(home, ".aep", "logs"))
			env.Defer(func() { endCollector(filepath.Join(home, ".aep", "run", "collector.json")) })
			return nil
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "root":
				return os.Getuid() == 0, nil
			case "mount":
				return canMount(), nil
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"answering":  answering,
			"received":   received,
			"nowhere":    nowhere,
			"mode":       mode,
			"freeport":   freeport,
			"tinydisk":   tinydisk,
			"eventually": eventually,
			"offers":     offers,
		},
	})
}

// endCollector ends a collector that a script left behind.
func endCollector(info string) {
	var c collectorInfo
	if raw, err := os.ReadFile(info); err == nil && json.Unmarshal(raw, &c) == nil && c.PID > 1 {
		syscall.Kill(c.PID, syscall.SIGTERM)
	}
}

// get [-s SOCKET] [-t TOKEN] [-d JSON] URL: prints the status and the body; with
// JSON it posts that.
func get() {
	fs := flag.NewFlagSet("get", flag.ExitOnError)
	socket := fs.String("s", "", "unix socket")
	token := fs.String("t", "", "bearer token")
	data := fs.String("d", "", "JSON to post")
	fs.Parse(os.Args[1:])
	client := endpoint{Socket: *socket}.client()
	req, err := http.NewRequest("GET", fs.Arg(0), nil)
	if *data != "" {
		if req, err = http.NewRequest("POST", fs.Arg(0), strings.NewReader(*data)); err == nil {
			req.Header.Set("Content-Type", "application/json")
		}
	}
	if err == nil && *token != "" {
		req.Header.Set("Authorization", "Bearer "+*token)
	}
	var resp *http.Response
	if err == nil {
		resp, err = client.Do(req)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(resp.StatusCode)
	io.Copy(os.Stdout, resp.Body)
}

// lingers: begins a hook that never comes, says so by the file lingering, and goes
// when the file gone is there.
func lingers() {
	c, err := net.Dial("unix", os.Getenv("AEP_HOOK_SOCKET"))
	if err == nil {
		defer c.Close()
		err = os.WriteFile("lingering", nil, 0o600)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat("gone"); err == nil {
			return
		}
	}
}

// onPTY COMMAND...: runs the command on a terminal of 80 by 24. When it prints
// RESIZE the terminal becomes 100 by 33, when it prints TYPE "hello" is typed.
func onPTY() {
	cmd := exec.Command(os.Args[1], os.Args[2:]...)
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer time.AfterFunc(patience, func() { cmd.Process.Kill() }).Stop()
	sc := bufio.NewScanner(tty)
	for sc.Scan() {
		line := strings.TrimRight(sc.Text(), "\r")
		fmt.Println(line)
		switch line {
		case "RESIZE":
			pty.Setsize(tty, &pty.Winsize{Rows: 33, Cols: 100})
		case "TYPE":
			io.WriteString(tty, "hello\r")
		}
	}
	if err := cmd.Wait(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// saying [-pty] TEXT COMMAND...: runs the command, on a terminal or on a pipe, until
// what it prints matches TEXT, and ends it a moment later by an interrupt.
func saying() {
	args := os.Args[1:]
	onPTY := args[0] == "-pty"
	if onPTY {
		args = args[1:]
	}
	text := regexp.MustCompile(args[0])
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Stderr = os.Stderr
	var out io.Reader
	var err error
	if onPTY {
		cmd.Stderr = nil
		out, err = pty.StartWithSize(cmd, &pty.Winsize{Rows: 24, Cols: 80})
	} else if out, err = cmd.StdoutPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer time.AfterFunc(patience, func() { cmd.Process.Kill() }).Stop()
	var said []byte
	found := false
	for b := make([]byte, 4<<10); ; {
		n, err := out.Read(b)
		os.Stdout.Write(bytes.ReplaceAll(b[:n], []byte("\r\n"), []byte("\n")))
		if said = append(said, b[:n]...); !found && text.Match(said) {
			found = true
			time.AfterFunc(500*time.Millisecond, func() { cmd.Process.Signal(os.Interrupt) })
		}
		if err != nil {
			break
		}
	}
	cmd.Wait()
	if !found {
		fmt.Fprintf(os.Stderr, "it did not say %s\n", text)
		os.Exit(1)
	}
}

// answering STATUS|hang: starts a collector that answers every POST so, and
// sets $COLLECTOR; what it was sent is kept in $WORK/received.
func answering(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: answering STATUS|hang")
	}
	var status int
	if args[0] != "hang" {
		_, err := fmt.Sscan(args[0], &status)
		ts.Check(err)
	}
	kept := ts.MkAbs("received")
	var mu sync.Mutex
	stop := make(chan struct{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		f, err := os.OpenFile(kept, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			fmt.Fprintf(f, "%s %s %s\n%s\n", r.Method, r.URL.Path, r.Header, body)
			f.Close()
		}
		mu.Unlock()
		if status == 0 {
			select {
			case <-stop:
			case <-r.Context().Done():
			}
			return
		}
		w.WriteHeader(status)
	})}
	go srv.Serve(l)
	ts.Defer(func() { close(stop); srv.Close() })
	ts.Setenv("COLLECTOR", "http://"+l.Addr().String())
}

// received TEXT: what the collector of answering was sent holds TEXT.
func received(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: received TEXT")
	}
	b, _ := os.ReadFile(ts.MkAbs("received"))
	if got := bytes.Contains(b, []byte(args[0])); got == neg {
		ts.Fatalf("received %q: %v; the collector was sent %d bytes, at last:\n%s", args[0], got, len(b), b[max(0, len(b)-2000):])
	}
}

// nowhere TEXT [DIR]: no file under $HOME/.aep, nor what the collector was
// sent, holds TEXT.
func nowhere(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: nowhere TEXT...")
	}
	places := []string{filepath.Join(ts.Getenv("HOME"), ".aep"), ts.MkAbs("received")}
	looked := 0
	for _, place := range places {
		filepath.WalkDir(place, func(path string, d os.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			b, err := os.ReadFile(path)
			ts.Check(err)
			looked++
			for _, text := range args {
				if bytes.Contains(b, []byte(text)) {
					ts.Fatalf("%s holds %q:\n%s", path, text, b)
				}
			}
			return nil
		})
	}
	if looked == 0 {
		ts.Fatalf("nowhere: there was nothing to look at")
	}
}

// canMount says whether a file system can be mounted by who runs the test.
func canMount() bool {
	dir, err := os.MkdirTemp("", "mount-")
	if err != nil {
		return false
	}
	defer os.RemoveAll(dir)
	return exec.Command("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", dir).Run() == nil && exec.Command("umount", dir).Run() == nil
}

// tinydisk DIR: makes DIR a file system of 300 KiB.
func tinydisk(ts *testscript.TestScript, neg bool, args []string) {
	dir := ts.MkAbs(args[0])
	ts.Check(os.Mkdir(dir, 0o755))
	ts.Check(exec.Command("mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", dir).Run())
	ts.Defer(func() { exec.Command("umount", "-l", dir).Run() })
}

// mode PERM FILE: the file's permission bits are PERM.
func mode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: mode PERM FILE")
	}
	fi, err := os.Stat(ts.MkAbs(args[1]))
	ts.Check(err)
	if got := fmt.Sprintf("%o", fi.Mode().Perm()); got != args[0] {
		ts.Fatalf("%s has mode %s, want %s", args[1], got, args[0])
	}
}

// freeport NAME: sets NAME to a loopback address that nobody listens on.
// With "taken" as a second word somebody does, for as long as the script runs.
func freeport(ts *testscript.TestScript, neg bool, args []string) {
	l, err := eventtest.Listen()
	ts.Check(err)
	ts.Setenv(args[0], l.Addr().String())
	if len(args) == 2 && args[1] == "taken" {
		ts.Defer(func() { l.Close() })
		return
	}
	l.Close()
}

// eventually COMMAND...: runs the command until it succeeds.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(30 * time.Millisecond) {
		if err = ts.Exec(args[0], args[1:]...); (err == nil) != neg {
			return
		}
	}
	ts.Fatalf("eventually %s: %v", strings.Join(args, " "), err)
}

// offers WORD...: asks as a shell does what may come at the last word, until
// something is offered: a collector that is slow is not waited for.
func offers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) == 0 {
		ts.Fatalf("usage: offers WORD...")
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(30 * time.Millisecond) {
		ts.Check(ts.Exec("aep-wrap", append([]string{"__complete"}, args...)...))
		if !strings.HasPrefix(ts.ReadFile("stdout"), ":") {
			return
		}
	}
	ts.Fatalf("nothing is offered")
}

// claudeSettings are the settings that playClaude is started with. It plays Claude Code as far as a wrapper can tell: it reads the
// settings that it is started with and calls their hooks for each line of the
// file that PLAY names, {"event": …, "payload": …}. A line {"out": …} is
// printed, {"env": NAME} prints a variable, {"wait": FILE} waits until that is
// there, {"exit": N} ends it.
type claudeSettings struct {
	Hooks map[string][]struct {
		Hooks []struct {
			Type    string            `json:"type"`
			URL     string            `json:"url"`
			Command string            `json:"command"`
			Args    []string          `json:"args"`
			Headers map[string]string `json:"headers"`
		} `json:"hooks"`
	} `json:"hooks"`
}

func playClaude(args []string) int {
	var settings claudeSettings
	if i := slices.Index(args, "--settings"); i >= 0 && i+1 < len(args) {
		raw, err := os.ReadFile(args[i+1])
		if err != nil {
			raw = []byte(args[i+1])
		}
		if err := json.Unmarshal(raw, &settings); err != nil {
			fmt.Fprintln(os.Stderr, "settings:", err)
			return 1
		}
	}
	play, err := os.Open(os.Getenv("PLAY"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var worst time.Duration // of a hook
	if file := os.Getenv("PLAY_WORST"); file != "" {
		defer func() { os.WriteFile(file, []byte(worst.String()), 0o600) }()
	}
	sc := bufio.NewScanner(play)
	sc.Buffer(nil, 64<<20)
	for sc.Scan() {
		var step struct {
			Event   string
			Payload json.RawMessage
			Raw     *string
			Out     string
			Env     string
			Exit    *int
			Wait    string
		}
		if err := json.Unmarshal(sc.Bytes(), &step); err != nil {
			fmt.Fprintln(os.Stderr, "play:", err)
			return 1
		}
		payload := []byte(step.Payload)
		if step.Raw != nil {
			payload = []byte(*step.Raw)
		}
		switch {
		case step.Out != "":
			fmt.Println(step.Out)
		case step.Env != "":
			fmt.Printf("%s=%s\n", step.Env, os.Getenv(step.Env))
		case step.Wait != "":
			for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				if _, err := os.Stat(step.Wait); err == nil {
					break
				}
			}
		case step.Exit != nil:
			return *step.Exit
		}
		for _, group := range settings.Hooks[step.Event] {
			for _, h := range group.Hooks {
				start := time.Now()
				switch h.Type {
				case "http":
					resp, err := http.Post(h.URL, "application/json", bytes.NewReader(payload))
					if err != nil {
						fmt.Fprintln(os.Stderr, "hook:", err)
						return 1
					}
					body, _ := io.ReadAll(resp.Body)
					resp.Body.Close()
					if resp.StatusCode != 200 || len(body) > 0 {
						fmt.Fprintf(os.Stderr, "hook %s: %s %s\n", step.Event, resp.Status, body)
						return 1
					}
				case "command":
					cmd := exec.Command(h.Command, h.Args...)
					if len(h.Args) == 0 {
						cmd = exec.Command("/bin/sh", "-c", h.Command)
					}
					cmd.Stdin = bytes.NewReader(payload)
					out, err := cmd.CombinedOutput()
					if err != nil || len(out) > 0 {
						fmt.Fprintf(os.Stderr, "hook %s: %v %s\n", step.Event, err, out)
						return 1
					}
				}
				worst = max(worst, time.Since(start))
			}
		}
	}
	return 0
}
