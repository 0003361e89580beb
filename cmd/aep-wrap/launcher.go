package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"aep-wrap/agent"
	"aep-wrap/control"
	"aep-wrap/event"
	"aep-wrap/execution"
	"aep-wrap/queue/jsonl"
)

// launcher carries runs out: each is an aep-wrap run of its own, which lives on
// when we go. What is kept of a run stands in a directory of its name:
//
//	log/      its session logs
//	work/     where it works, unless the profile says where
//	goal      what it read on its standard input
//	out, err  what it wrote
//	pid       of the wrapper
//	rule.json what its tool calls are held to
//	mcp.json  the MCP servers, with their auth, while it runs
type launcher struct {
	app *app
	dir string
	set *profileSet
}

func (l *launcher) Profiles() map[string]execution.Profile {
	out := map[string]execution.Profile{}
	for name, p := range l.set.Profiles {
		out[name] = p.can()
	}
	return out
}

func (l *launcher) Default() string { return l.set.Default }

func (l *launcher) place(run string) string { return filepath.Join(l.dir, run) }

func (l *launcher) Dir(run, profile string) (string, error) {
	if p := l.set.Profiles[profile]; p != nil && p.Dir != "" {
		return p.Dir, nil
	}
	dir := filepath.Join(l.place(run), "work")
	return dir, os.MkdirAll(dir, 0o700)
}

func (l *launcher) Start(_ context.Context, o execution.Order) (execution.Job, error) {
	p := l.set.Profiles[o.Profile]
	if p == nil {
		return nil, fmt.Errorf("the profile %s is gone from the file of profiles", o.Profile)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	place := l.place(o.Run)
	if err := os.MkdirAll(place, 0o700); err != nil {
		return nil, err
	}
	mcp := ""
	if len(o.MCP) > 0 {
		mcp = filepath.Join(place, "mcp.json")
		if err := os.WriteFile(mcp, mcpFile(o.MCP), 0o600); err != nil {
			return nil, err
		}
	}
	command, onStdin := p.args(o, mcp)
	args := []string{"run", "--quiet", "--log-dir", filepath.Join(place, "log")}
	args = append(args, p.Wrap...)
	j := l.job(o.Run)
	if o.Calls != nil {
		if err := j.Hold(*o.Calls); err != nil {
			return nil, err
		}
		args = append(args, "--gate-rule", j.rule())
	}
	cmd := exec.Command(self, append(append(args, "--"), command...)...)
	cmd.Dir = o.Dir
	cmd.Env = slices.DeleteFunc(l.app.Environ(), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return name == "AEP_LOG_DIR" || name == "AEP_GATE" || name == "AEP_GATE_RULE" || name == wrappedEnv
	})
	for k, v := range p.Env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // it outlives us
	goal := []byte(nil)
	if onStdin {
		goal = []byte(o.Goal)
	}
	if err := os.WriteFile(filepath.Join(place, "goal"), goal, 0o600); err != nil {
		return nil, err
	}
	for _, f := range []struct {
		name string
		flag int
		to   func(*os.File)
	}{
		{"goal", os.O_RDONLY, func(f *os.File) { cmd.Stdin = f }},
		{"out", os.O_CREATE | os.O_WRONLY | os.O_APPEND, func(f *os.File) { cmd.Stdout = f }},
		{"err", os.O_CREATE | os.O_WRONLY | os.O_APPEND, func(f *os.File) { cmd.Stderr = f }},
	} {
		file, err := os.OpenFile(filepath.Join(place, f.name), f.flag, 0o600)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		f.to(file)
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	j.ended = make(chan struct{})
	j.pid = cmd.Process.Pid
	if err := os.WriteFile(filepath.Join(place, "pid"), []byte(strconv.Itoa(j.pid)), 0o600); err != nil {
		l.app.warn("%v", err) // it is watched by us, and by nobody after us
	}
	go func() {
		defer close(j.ended)
		_ = cmd.Wait()
		if mcp != "" {
			os.Remove(mcp)
		}
		j.mu.Lock()
		defer j.mu.Unlock()
		ws, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
		j.outcome = &execution.Outcome{Exit: cmd.ProcessState.ExitCode()}
		if ws.Signaled() {
			j.outcome.Signal = unix.SignalName(ws.Signal())
		}
	}()
	return j, nil
}

// mcpFile tells MCP servers in the form that agents commonly read.
func mcpFile(servers []execution.MCPServer) []byte {
	type server struct {
		Type    string            `json:"type"`
		URL     string            `json:"url"`
		Headers map[string]string `json:"headers,omitempty"`
	}
	out := map[string]server{}
	for _, m := range servers {
		var auth struct {
			Bearer  string            `json:"bearer"`
			Headers map[string]string `json:"headers"`
		}
		_ = json.Unmarshal(m.Auth, &auth)
		s := server{Type: "http", URL: m.URL, Headers: auth.Headers}
		if auth.Bearer != "" {
			if s.Headers == nil {
				s.Headers = map[string]string{}
			}
			s.Headers["Authorization"] = "Bearer " + auth.Bearer
		}
		out[m.Name] = s
	}
	b, _ := json.Marshal(map[string]any{"mcpServers": out})
	return b
}

func (l *launcher) Find(run string) execution.Job {
	j := l.job(run)
	if b, err := os.ReadFile(filepath.Join(l.place(run), "pid")); err == nil {
		j.pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
	}
	return j
}

func (l *launcher) job(run string) *launchedJob {
	return &launchedJob{app: l.app, dir: l.place(run), read: map[string]int64{}}
}

// launchedJob is a run's wrapper.
type launchedJob struct {
	app   *app
	dir   string
	pid   int
	ended chan struct{} // nil where it is not our child
	read  map[string]int64

	mu      sync.Mutex
	outcome *execution.Outcome
	session string // of its logs, the first: that which a cancel ends
	reason  string // of the last session.ended
}

// The pace of a look at a run's logs: fast while something comes.
const (
	lookSoon = 20 * time.Millisecond
	lookLate = 500 * time.Millisecond
)

func (j *launchedJob) Follow(ctx context.Context, fn func([]byte) error) error {
	for wait := lookSoon; ; {
		alive := j.alive() // before the look: what is written last is seen
		n, err := j.look(fn)
		switch {
		case err != nil:
			return err
		case n == 0 && !alive:
			return nil
		case n > 0:
			wait = lookSoon
		default:
			wait = min(wait*3/2, lookLate)
		}
		if n == 0 {
			if err := sleep(ctx, wait); err != nil {
				return err
			}
		}
	}
}

// look gives the lines that came since the last look.
func (j *launchedJob) look(fn func([]byte) error) (n int, err error) {
	logs, err := filepath.Glob(filepath.Join(j.dir, "log", "*", "*.jsonl"))
	if err != nil {
		return 0, err
	}
	for _, path := range logs {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		k, err := j.lines(f, path, fn)
		f.Close()
		if n += k; err != nil {
			return n, err
		}
	}
	return n, nil
}

// lookMost is how much of a log is read at once, unless one line is longer.
const lookMost = 1 << 20

func (j *launchedJob) lines(f *os.File, path string, fn func([]byte) error) (n int, err error) {
	for size := lookMost; ; {
		buf := make([]byte, size)
		k, _ := f.ReadAt(buf, j.read[path])
		end := bytes.LastIndexByte(buf[:k], '\n') + 1
		if end == 0 {
			if k == size { // a line that is longer than that
				size *= 2
				continue
			}
			return n, nil
		}
		for line := range bytes.Lines(buf[:end]) {
			j.note(line)
			if err := fn(bytes.TrimSuffix(line, []byte("\n"))); err != nil {
				return n, err
			}
			n++
		}
		j.read[path] += int64(end)
	}
}

// note remembers what a line says of the session that commands go to.
func (j *launchedJob) note(line []byte) {
	if !bytes.Contains(line, []byte(`"session.`)) {
		return
	}
	e, err := event.Parse(line)
	if err != nil {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch e.Type {
	case "session.started":
		if j.session == "" {
			j.session = e.Session
		}
	case "session.ended":
		j.reason = text(e.Data, "reason")
	}
}

// alive says whether the wrapper lives.
func (j *launchedJob) alive() bool {
	if j.ended != nil {
		select {
		case <-j.ended:
			return false
		default:
			return true
		}
	}
	if j.pid <= 0 || syscall.Kill(j.pid, 0) != nil {
		return false
	}
	// The number may be another's by now: a wrapper that lives holds its logs.
	locks, _ := filepath.Glob(filepath.Join(j.dir, "log", "*", "*.lock"))
	return slices.ContainsFunc(locks, held)
}

// held says whether somebody has the lock at path.
func held(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	err = unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	return errors.Is(err, unix.EWOULDBLOCK)
}

func (j *launchedJob) Outcome() execution.Outcome {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case j.outcome != nil:
		return *j.outcome
	case j.reason == "normal":
		return execution.Outcome{}
	case j.reason == "error":
		return execution.Outcome{Exit: 1}
	case j.reason == "killed":
		return execution.Outcome{Signal: "SIGTERM"}
	}
	return execution.Outcome{Lost: true}
}

// Cancel ends the run's session; where no command reaches it, its wrapper,
// which ends the agent with it.
func (j *launchedJob) Cancel(ctx context.Context, reason string) error {
	j.mu.Lock()
	session := j.session
	j.mu.Unlock()
	if session != "" {
		err := j.command(ctx, session, from().CancelSession(time.Now(), session, reason), "")
		if err == nil {
			return nil
		}
		j.app.newOwnLog().Warn("a run could not be cancelled by command", "session", session, "err", err)
	}
	if !j.alive() {
		return nil
	}
	return syscall.Kill(j.pid, syscall.SIGTERM)
}

func (j *launchedJob) rule() string { return filepath.Join(j.dir, "rule.json") }

// Hold says what the run's wrapper decides by, which reads it before each call:
// neither we nor a collector need to be there.
func (j *launchedJob) Hold(c execution.Calls) error {
	b, err := json.Marshal(agent.Terms{Tools: c.Tools, Calls: c.Bounds})
	if err != nil {
		return err
	}
	tmp := j.rule() + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, j.rule())
}

// command sends a command and waits for its ack.
func (j *launchedJob) command(ctx context.Context, session string, cmd event.Event, source string) error {
	t, err := j.app.target(ctx, session)
	if err != nil {
		return err
	}
	defer func() { t.socket.Close() }()
	if err := t.subscribe(ctx, false); err != nil {
		return err
	}
	r, err := control.NewSender(j.app.label(cmd), control.SenderConfig{Source: source, Clock: systemClock}).Run(ctx, link{t.socket})
	if err == nil && r.Status != control.Accepted {
		err = errors.New(r.String())
	}
	return err
}

// Forget erases what a run's launch left, here and in the per-user collector's
// memory. Of its logs the ids and positions stay, as events without content.
func (l *launcher) Forget(run string, keep bool) (gone []execution.Erased, kept []execution.Retained, err error) {
	place := l.place(run)
	logs, err := filepath.Glob(filepath.Join(place, "log", "*", "*.jsonl"))
	if err != nil {
		return nil, nil, err
	}
	sessions := map[string]string{} // and their sources
	for _, path := range logs {
		err := jsonl.Erase(path, func(line []byte) []byte {
			h, _, err := event.ParseHeader(line)
			if err != nil {
				return nil // what a crash left of a line tells nothing
			}
			if h.Sequenced {
				sessions[h.Session] = h.Source
			}
			e := event.Erased(h)
			return e.AppendJSON(nil)
		})
		if owned := (*jsonl.ErrOwned)(nil); errors.As(err, &owned) {
			return nil, nil, fmt.Errorf("%w: %w", execution.ErrBusy, err)
		}
		if err != nil {
			return nil, nil, err
		}
		gone = append(gone, execution.Erased{Resource: "session_log", ID: strings.TrimSuffix(filepath.Base(path), ".jsonl")})
	}
	entries, err := os.ReadDir(place)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, err
	}
	for _, e := range entries {
		if keep && e.Name() == "log" {
			continue
		}
		if err := os.RemoveAll(filepath.Join(place, e.Name())); err != nil {
			return nil, nil, err
		}
	}
	for session, source := range sessions {
		switch n, err := l.app.eraseHeld(session, source); {
		case err != nil:
			kept = append(kept, execution.Retained{Resource: "collector_buffer", ID: session, Reason: "the collector of this machine could not be told: " + err.Error()})
		case n > 0:
			gone = append(gone, execution.Erased{Resource: "collector_buffer", ID: session})
		}
	}
	return gone, append(kept,
		execution.Retained{Resource: "shipped_events", ID: run, Reason: "what pages, sinks and other collectors took before is theirs to erase"},
		execution.Retained{Resource: "agent_transcripts", ID: run, Reason: "what the agent keeps of its own, such as its session files, is not reached"},
	), nil
}

// eraseHeld has the per-user collector erase what it holds of a session. One that
// does not run holds nothing.
func (a *app) eraseHeld(session, source string) (events int, err error) {
	socket := a.paths.collectorSocket(a.Getenv)
	body, err := json.Marshal(map[string]string{"session": session, "source": source})
	if err != nil {
		return 0, err
	}
	client := &http.Client{Timeout: dialWait, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
	resp, err := client.Post("http://aep-collector/erase", "application/json", bytes.NewReader(body))
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return 0, nil
	case err != nil:
		return 0, err
	}
	defer resp.Body.Close()
	var told struct{ Events int }
	if resp.StatusCode != http.StatusOK {
		return 0, errors.New(resp.Status)
	}
	err = json.NewDecoder(resp.Body).Decode(&told)
	return told.Events, err
}
