package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"aep-wrap/event"
	"aep-wrap/event/eventtest"
	"aep-wrap/queue/jsonl"
)

// drafter plays a program that writes drafts of its own. Each line of the file
// that DRAFTS names is one of: a draft, which is written as it is; "N x DRAFT",
// N times that draft, with %d counting on; "wait FILE", until the file is
// there, and FILE.waited says that it does; "hang".
func drafter() int {
	fd, err := strconv.Atoi(os.Getenv("AEP_EVENTS_FD"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "AEP_EVENTS_FD:", err)
		return 1
	}
	out := os.NewFile(uintptr(fd), "events")
	raw, err := os.ReadFile(os.Getenv("DRAFTS"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	count := 0
	for line := range strings.Lines(string(raw)) {
		line = strings.TrimSpace(line)
		times := 1
		if n, rest, ok := strings.Cut(line, " x "); ok {
			times, _ = strconv.Atoi(n)
			line = rest
		}
		switch {
		case line == "":
			continue
		case line == "hang":
			time.Sleep(time.Minute)
			return 1
		case strings.HasPrefix(line, "wait "):
			file := line[len("wait "):]
			if err := os.WriteFile(file+".waited", nil, 0o600); err != nil {
				return 1
			}
			for range 6000 {
				if _, err := os.Stat(file); err == nil {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			continue
		}
		for range times {
			if _, err := fmt.Fprintln(out, strings.Replace(line, "%d", strconv.Itoa(count), 1)); err != nil {
				return 1
			}
			count++
		}
	}
	return 0
}

// world is a home of its own, and the binary in it.
type world struct {
	t    *testing.T
	home string
	logs string
	env  []string
}

func newWorld(t *testing.T) *world {
	home := t.TempDir()
	w := &world{t: t, home: home, logs: filepath.Join(home, ".aep", "logs")}
	w.env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir(), "AEP_LISTEN=off", "TERM=dumb", noSleep}
	return w
}

// file writes a file of the world, and gives its path.
func (w *world) file(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.home, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

func (w *world) command(env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(w.t.Context(), "aep-wrap", args...)
	cmd.Env = append(slices.Clone(w.env), env...)
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

type outcome struct {
	stdout, stderr string
	code           int
	took           time.Duration
	ended          time.Time
}

// over is how long the wrapper outlived its agent, whose last deed was to write a
// file.
func (r outcome) over(t *testing.T, file string) time.Duration {
	t.Helper()
	fi, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	return r.ended.Sub(fi.ModTime())
}

// promptly wants it to be so in one of some tries: a busy machine is slow now and
// then, and what waits does so each time.
func promptly(t *testing.T, try func() (took time.Duration, prompt bool)) {
	t.Helper()
	var all []time.Duration
	for range 5 {
		took, prompt := try()
		if all = append(all, took); prompt {
			return
		}
	}
	t.Errorf("it took %v", all)
}

func (w *world) run(env []string, args ...string) outcome {
	w.t.Helper()
	cmd := w.command(env, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	start := time.Now()
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		w.t.Fatal(err)
	}
	return outcome{out.String(), errs.String(), cmd.ProcessState.ExitCode(), time.Since(start), time.Now()}
}

// logged gives the lines of all logs, log by log.
func (w *world) logged() map[string][]string {
	w.t.Helper()
	out := map[string][]string{}
	paths, _ := filepath.Glob(filepath.Join(w.logs, "*", "*.jsonl"))
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			w.t.Fatal(err)
		}
		out[path] = strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n")
	}
	return out
}

// valid says that all logs are, by the binary's own word.
func (w *world) valid() {
	w.t.Helper()
	for path := range w.logged() {
		if r := w.run(nil, "validate", path); r.code != 0 {
			w.t.Errorf("%s: %s%s", path, r.stdout, r.stderr)
		}
	}
}

// moody is a collector that behaves as its mood is.
type moody struct {
	t    *testing.T
	addr string
	mood atomic.Value // string

	mu     sync.Mutex
	srv    *http.Server
	lines  []string
	came   []time.Time // when each of them did
	hellos []map[string]any
	closed int            // connections that said so
	by     map[string]int // events by binding
}

func newMoody(t *testing.T, mood string) *moody {
	l, err := eventtest.Listen()
	if err != nil {
		t.Fatal(err)
	}
	m := &moody{t: t, addr: l.Addr().String(), by: map[string]int{}}
	m.mood.Store(mood)
	if mood == "absent" {
		l.Close()
	} else {
		m.serve(l)
	}
	t.Cleanup(func() {
		if m.srv != nil {
			m.srv.Close()
		}
	})
	return m
}

func (m *moody) url() string { return "http://" + m.addr }

// heal makes it healthy.
func (m *moody) heal() {
	m.t.Helper()
	if m.mood.Swap("healthy") != "absent" {
		return
	}
	l, err := net.Listen("tcp", m.addr)
	if err != nil {
		m.t.Fatal(err)
	}
	m.serve(l)
}

func (m *moody) serve(l net.Listener) {
	m.srv = &http.Server{Handler: m, ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		switch m.mood.Load() {
		case "hangs up":
			c.Close()
		case "garbage":
			io.WriteString(c, "\x00\xff\x13\x37 there is nothing to be understood here\r\n\r\n{]")
			c.Close()
		}
		return ctx
	}}
	go m.srv.Serve(l)
}

func (m *moody) take(binding string, lines ...string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines = append(m.lines, lines...)
	for range lines {
		m.came = append(m.came, time.Now())
	}
	m.by[binding] += len(lines)
}

// count is how many lines it took in.
func (m *moody) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.lines)
}

// got gives what it took in, each event once, session by session, in the order
// in which it came.
func (m *moody) got() map[string][]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out, seen := map[string][]string{}, map[string]bool{}
	for _, line := range m.lines {
		e, err := event.Parse([]byte(line))
		if err != nil {
			m.t.Errorf("took in no event: %v: %s", err, line)
			continue
		}
		if !seen[e.Source+" "+e.ID] {
			seen[e.Source+" "+e.ID] = true
			out[e.Agent+"/"+e.Session] = append(out[e.Agent+"/"+e.Session], line)
		}
	}
	return out
}

// same says that it took in exactly what the logs hold, in their order.
func (m *moody) same(w *world) {
	m.t.Helper()
	got := m.got()
	logs := w.logged()
	for path, want := range logs {
		name := filepath.Base(filepath.Dir(path)) + "/" + strings.TrimSuffix(filepath.Base(path), ".jsonl")
		if !slices.Equal(got[name], want) {
			m.t.Errorf("of %s it has %d events and the log %d:\n%s\n---\n%s", name, len(got[name]), len(want), strings.Join(got[name], "\n"), strings.Join(want, "\n"))
		}
	}
	if len(got) != len(logs) || len(logs) == 0 {
		m.t.Errorf("it has %d sessions, and there are %d logs", len(got), len(logs))
	}
}

func (m *moody) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	mood := m.mood.Load().(string)
	versions := []string{"0.1"}
	switch mood {
	case "500":
		w.WriteHeader(500)
		return
	case "hang":
		select {
		case <-r.Context().Done():
		case <-m.t.Context().Done():
		}
		return
	case "slow":
		time.Sleep(100 * time.Millisecond)
	case "newer":
		versions = []string{"9.1", "9.0"}
	}
	switch {
	case r.Method == "POST" && mood == "newer":
		w.WriteHeader(http.StatusUpgradeRequired)
	case r.Method == "POST":
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		m.take("post", strings.Split(strings.TrimSpace(string(body)), "\n")...)
		w.WriteHeader(http.StatusAccepted)
	case r.URL.Path == "/socket":
		m.socket(w, r, mood, versions)
	case r.URL.Path == "/events":
		w.Header().Set("Content-Type", "application/json")
		json.NewEncoder(w).Encode(map[string]any{"aep": versions, "endpoints": map[string]string{"events": "/events", "socket": "/socket"}})
	default:
		http.NotFound(w, r)
	}
}

func (m *moody) socket(w http.ResponseWriter, r *http.Request, mood string, versions []string) {
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return
	}
	defer ws.CloseNow()
	ws.SetReadLimit(-1)
	ctx := r.Context()
	say := func(s string) { _ = ws.Write(ctx, websocket.MessageText, []byte(s)) }
	for n := 0; ; n++ {
		_, raw, err := ws.Read(ctx)
		if err != nil || mood == "one frame" && n > 0 {
			return
		}
		var f map[string]any
		if json.Unmarshal(raw, &f) != nil {
			m.t.Errorf("no JSON: %s", raw)
			return
		}
		switch f["type"] {
		case "hello":
			m.mu.Lock()
			m.hellos = append(m.hellos, f)
			m.mu.Unlock()
			v, _ := json.Marshal(versions[:1])
			say(`{"type":"hello","role":"both","versions":` + string(v) + `,"capabilities":{}}`)
			if mood == "garbage frames" {
				for _, s := range []string{"{]", "null", `{"type":7}`, `{"type":"pong","t":"x"}`, `{"type":"roster","id":[]}`, `{"type":"closing"`} {
					say(s)
				}
			}
		case "ping":
			if mood == "slow" {
				time.Sleep(100 * time.Millisecond)
			}
			say(fmt.Sprintf(`{"type":"pong","t":%v}`, f["t"]))
		case "closing":
			m.mu.Lock()
			m.closed++
			m.mu.Unlock()
		default:
			m.take("socket", string(raw))
		}
	}
}

const claudePlay = `{"event":"SessionStart","payload":{"hook_event_name":"SessionStart","session_id":"11111111-2222-4333-8444-555555555555","source":"startup","cwd":"/w"}}
{"event":"UserPromptSubmit","payload":{"hook_event_name":"UserPromptSubmit","session_id":"11111111-2222-4333-8444-555555555555","prompt":"go","cwd":"/w"}}
{"event":"PreToolUse","payload":{"hook_event_name":"PreToolUse","session_id":"11111111-2222-4333-8444-555555555555","tool_name":"Bash","tool_input":{"command":"ls"},"tool_use_id":"t1"}}
{"event":"PostToolUse","payload":{"hook_event_name":"PostToolUse","session_id":"11111111-2222-4333-8444-555555555555","tool_name":"Bash","tool_input":{"command":"ls"},"tool_response":{"stdout":"x"},"tool_use_id":"t1"}}
{"out":"said"}
{"event":"Stop","payload":{"hook_event_name":"Stop","session_id":"11111111-2222-4333-8444-555555555555"}}
{"event":"SessionEnd","payload":{"hook_event_name":"SessionEnd","session_id":"11111111-2222-4333-8444-555555555555","reason":"other"}}
{"exit":3}
`

// Whatever mood the collector is in, the agent, its hooks and its end do not
// feel it, the log has everything, and the collector has it in the end: at
// once where it takes events in, by flush where it did not.
func TestCollectorMoods(t *testing.T) {
	for name, x := range map[string]struct {
		arrives bool
		binding string // by which, where it arrives
		says    string // on stderr
		delay   time.Duration
	}{
		"healthy":        {arrives: true, binding: "socket"},
		"slow":           {arrives: true, binding: "socket"},
		"garbage frames": {arrives: true, binding: "socket"},
		"one frame":      {arrives: true, binding: "post"},
		"absent":         {says: "refused"},
		"500":            {says: "500"},
		"hangs up":       {says: "EOF|reset|hung up|closed"},
		"garbage":        {says: "malformed|EOF|reset|not HTTP"},
		"newer":          {says: "it speaks AEP \"9.1, 9.0\" and not 0.1"},
		"hang":           {says: "in time|answer", delay: flushTime},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			var w *world
			var m *moody
			var r outcome
			promptly(t, func() (time.Duration, bool) {
				w, m = newWorld(t), newMoody(t, name)
				bare := w.run([]string{"HOME=" + t.TempDir()}, "--", "true") // what this machine needs at the least
				worst := filepath.Join(w.home, "worst")
				r = w.run([]string{"PLAY=" + w.file("play", claudePlay), "PLAY_WORST=" + worst}, "--collector", m.url(), "claude")
				if r.code != 3 || r.stdout != "said\n" {
					t.Errorf("the agent: code %d, said %q; %s", r.code, r.stdout, r.stderr)
				}
				b, err := os.ReadFile(worst)
				if err != nil {
					t.Fatal(err)
				}
				hook, err := time.ParseDuration(string(b))
				if err != nil {
					t.Fatal(err)
				}
				over := r.over(t, worst)
				t.Logf("%v, %v after its agent (another %v), slowest hook %s; %s", r.took, over, bare.took, hook, r.stderr)
				return r.took, hook <= time.Second && (x.arrives || over < 3*flushTime/4+x.delay && r.took < 3*flushTime/4+x.delay+2*bare.took)
			})
			w.valid()
			if x.arrives {
				if r.stderr != "" {
					t.Errorf("said %q", r.stderr)
				}
				m.mu.Lock()
				if m.by[x.binding] == 0 {
					t.Errorf("events came by %v", m.by)
				}
				m.mu.Unlock()
			} else {
				said := false
				for word := range strings.SplitSeq(x.says, "|") {
					said = said || strings.Contains(r.stderr, word)
				}
				if !said || !strings.HasPrefix(r.stderr, "aep-wrap: events wait in the log: ") || strings.Count(r.stderr, "\n") != 1 {
					t.Errorf("said %q", r.stderr)
				}
				m.heal()
				if r := w.run(nil, "flush", "--collector", m.url(), "--timeout", "20s"); r.code != 0 {
					t.Errorf("flush: %+v", r)
				}
			}
			m.same(w)
		})
	}
}

// An agent that outlives a collector's silence does not wait for it once more
// at its end.
func TestExitDoesNotWaitForTheSilent(t *testing.T) {
	w := newWorld(t)
	m := newMoody(t, "hang")
	ends := filepath.Join(w.home, "ends")
	promptly(t, func() (time.Duration, bool) {
		bare := w.run(nil, "--", "sh", "-c", ": >"+ends).over(t, ends) // what this machine needs at the least
		r := w.run(nil, "--collector", m.url(), "--", "sh", "-c", "sleep 3; : >"+ends)
		if !strings.Contains(r.stderr, "wait in the log") {
			t.Errorf("%+v", r)
		}
		over := r.over(t, ends)
		return over, over < flushTime/2+bare
	})
}

// What hello declares is so.
func TestHello(t *testing.T) {
	w := newWorld(t)
	m := newMoody(t, "healthy")
	w.run([]string{"PLAY=" + w.file("play", claudePlay)}, "--collector", strings.Replace(m.url(), "http:", "ws:", 1)+"/socket", "claude")
	m.mu.Lock()
	hellos := slices.Clone(m.hellos)
	m.mu.Unlock()
	if len(hellos) != 1 {
		t.Fatalf("%d hellos", len(hellos))
	}
	h, _ := json.Marshal(hellos[0])
	var got struct {
		Role         string
		Identity     struct{ Agent, Instance string }
		Capabilities struct {
			Emits, Capture []string
			Control        *struct{ Accepts []string }
		}
	}
	if err := json.Unmarshal(h, &got); err != nil {
		t.Fatal(err)
	}
	host, pid, _ := strings.Cut(got.Identity.Instance, "/")
	if _, err := strconv.Atoi(pid); err != nil || host != hostname() || got.Identity.Agent != "claude-code" || got.Role != "emitter" {
		t.Errorf("%s", h)
	}
	if !slices.Equal(got.Capabilities.Capture, []string{"none", "metadata", "redacted"}) {
		t.Errorf("capture %q", got.Capabilities.Capture)
	}
	declared := map[string]bool{}
	for _, c := range got.Capabilities.Emits {
		declared[c] = true
	}
	for _, lines := range m.got() {
		for _, line := range lines {
			e, _ := event.Parse([]byte(line))
			if !declared[event.Category(e.Type)] {
				t.Errorf("%s is not of %q", e.Type, got.Capabilities.Emits)
			}
		}
	}
	if declared["resource"] || declared["control"] {
		t.Errorf("emits %q", got.Capabilities.Emits)
	}
}

// Where no log can be written and the collector is away for long, what is shed
// is told in the stream, by number and severity, and to the user.
func TestLossesAreTold(t *testing.T) {
	w := newWorld(t)
	m := newMoody(t, "500")
	const early, late = 20_000, 10 // more than memory holds by far: some is shed before all is read
	on := filepath.Join(w.home, "on")
	drafts := w.file("drafts", fmt.Sprintf(`{"type":"run.started","run":"r"}
%d x {"type":"x.test.count.up","id":"n%%d","severity":"debug","data":{"n":1}}
{"type":"x.test.count.notice","severity":"notice"}
wait %s
%d x {"type":"x.test.count.up","id":"n%%d","data":{"n":2}}
`, early, on, late))
	cmd := w.command([]string{"DRAFTS=" + drafts}, "--collector", m.url(), "--log-dir", "/proc/nowhere", "--", "drafter")
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	comes := func(what string, is func() bool) {
		t.Helper()
		for end := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("never came: %s", what)
			}
		}
	}
	comes("the end of the many", func() bool { _, err := os.Stat(on + ".waited"); return err == nil }) // they are read, and shed
	m.heal()
	comes("what was not shed", func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		return slices.ContainsFunc(m.lines, func(l string) bool { return strings.Contains(l, `"x.test.count.notice"`) })
	})
	w.file("on", "")
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, errs.String())
	}
	got := m.got()
	if len(got) != 1 {
		t.Fatalf("%d sessions; %s", len(got), errs.String())
	}
	counted, dropped, notices := 0, 0, 0
	var last event.Position
	for _, lines := range got {
		for i, line := range lines {
			e, _ := event.Parse([]byte(line))
			if i > 0 && !last.Less(e.Position()) {
				t.Errorf("%v after %v", e.Position(), last)
			}
			last = e.Position()
			switch e.Type {
			case "x.test.count.up":
				counted++
			case "x.test.count.notice":
				notices++
			case "x.aep-wrap.queue.dropped":
				var d struct {
					Reason     string
					Dropped    int
					BySeverity map[string]int `json:"by_severity"`
				}
				if err := json.Unmarshal(e.Data, &d); err != nil || d.Reason != "queue-full" || d.BySeverity["debug"] != d.Dropped {
					t.Errorf("%v: %s", err, line)
				}
				dropped += d.Dropped
			}
		}
	}
	if counted+dropped != early+late || dropped == 0 || notices != 1 {
		t.Errorf("%d arrived, %d are told as dropped, of %d; %d notices", counted, dropped, early+late, notices)
	}
	if !strings.Contains(errs.String(), "cannot write session logs") || !strings.Contains(errs.String(), fmt.Sprintf("%d events did not reach the collector", dropped)) {
		t.Errorf("said %q", errs.String())
	}
}

// crash starts wrappers whose agents write drafts and hang, and kills them all
// when their logs hold a line with text. It gives the logs, in their order.
func (w *world) crash(drafts, text string, collectors ...string) (logs []string) {
	w.t.Helper()
	for _, url := range collectors {
		before := w.logged()
		cmd := w.command([]string{"DRAFTS=" + w.file("drafts", drafts)}, "--collector", url, "--", "drafter")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			w.t.Fatal(err)
		}
		defer func() {
			cmd.Process.Kill()
			cmd.Wait()
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}()
		found := ""
		for deadline := time.Now().Add(patience); found == "" && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			for path, lines := range w.logged() {
				if _, old := before[path]; !old && strings.Contains(strings.Join(lines, "\n"), text) {
					found = path
				}
			}
		}
		if found == "" {
			w.t.Fatalf("no log has %q", text)
		}
		logs = append(logs, found)
	}
	return logs
}

const openDrafts = `{"type":"run.started","run":"r1"}
{"type":"tool.requested","data":{"tool":{"name":"grep","call_id":"c1"}}}
{"type":"attention.requested","id":"q1","subject":"deploy","data":{"kind":"input","prompt":"Which region?"}}
hang
`

// What crashed wrappers left is closed and sent by the next start, and by
// flush; what somebody owns is left alone.
func TestOrphans(t *testing.T) {
	for _, by := range []string{"the next start", "flush"} {
		t.Run(by, func(t *testing.T) {
			w := newWorld(t)
			m := newMoody(t, "500")
			left := w.crash(openDrafts, "attention.requested", m.url(), m.url(), "http://127.0.0.1:1")
			elsewhere := left[2]
			for _, path := range left {
				if log := strings.Join(w.logged()[path], "\n"); strings.Contains(log, "session.ended") {
					t.Fatalf("%s", log)
				}
			}
			// A torn last line, as a crash of the machine leaves it.
			f, err := os.OpenFile(left[0], os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(f, `{"aep":"0.1","id":"torn`)
			f.Close()
			// One that lives.
			owned, err := jsonl.Open(w.logs, "drafter", "lives")
			if err != nil {
				t.Fatal(err)
			}
			defer owned.Close()
			lives := strings.ReplaceAll(w.logged()[left[1]][0], strings.TrimSuffix(filepath.Base(left[1]), ".jsonl"), "lives")
			if _, err := owned.Append([]byte(lives)); err != nil {
				t.Fatal(err)
			}
			m.heal()
			if by == "flush" {
				r := w.run(nil, "flush", "--json", "--collector", m.url())
				var got flushed
				if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.code != 0 {
					t.Fatalf("%v %+v", err, r)
				}
				if got.Closed != 3 || got.Running != 1 || got.Logs != 2 || got.Left != 0 || got.Sent == 0 {
					t.Errorf("%+v", got)
				}
				if r := w.run(nil, "flush", "--collector", m.url()); r.code != 0 || r.stdout != "nothing was left behind; 1 session running\n" {
					t.Errorf("once more: %+v", r)
				}
			} else {
				sent := filepath.Join(w.home, "sent")
				go func() { // the agent ends when all has come
					for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
						m.mu.Lock()
						n := 0
						for _, l := range m.lines {
							if strings.Contains(l, `"type":"session.ended"`) {
								n++
							}
						}
						m.mu.Unlock()
						if n >= 2 {
							break
						}
					}
					_ = os.WriteFile(sent, nil, 0o600)
				}()
				w.run(nil, "--collector", m.url(), "--", "sh", "-c", "until test -e "+sent+"; do sleep 0.1; done; sleep 0.5")
			}
			logs := w.logged()
			for _, path := range left {
				log := strings.Join(logs[path], "\n")
				for _, typ := range []string{"attention.resolved", "run.cancelled", "session.ended"} {
					if strings.Count(log, `"type":"`+typ+`"`) != 1 {
						t.Errorf("%s of %s:\n%s", typ, path, log)
					}
				}
			}
			if got := logs[owned.Path()]; !slices.Equal(got, []string{lives}) {
				t.Errorf("the living session's log is %q", got)
			}
			os.Remove(owned.Path())
			w.valid()
			// The one that was sent elsewhere is nobody's business here.
			os.Remove(elsewhere)
			m.same(w)
			leftovers, _ := filepath.Glob(filepath.Join(w.logs, "*", "*.lock"))
			if len(leftovers) != 1 {
				t.Errorf("locks %q", leftovers)
			}
		})
	}
}

func TestFlushSaysWhatIsLeft(t *testing.T) {
	w := newWorld(t)
	m := newMoody(t, "500")
	w.run(nil, "--collector", m.url(), "--", "true")
	r := w.run(nil, "flush", "--collector", m.url(), "--timeout", "1s")
	if r.code != 1 || !strings.Contains(r.stdout, "1 log left to send") || !strings.Contains(r.stderr, "stay") {
		t.Errorf("%+v", r)
	}
	if r := w.run(nil, "flush"); r.code != 0 || r.stdout != "nothing was left behind\n" {
		t.Errorf("%+v", r)
	}
}

// A capture is replayed as a session of its own.
func TestReplay(t *testing.T) {
	w := newWorld(t)
	m := newMoody(t, "healthy")
	drafts := w.file("drafts", `{"type":"run.started","run":"r1"}
{"type":"tool.requested","data":{"tool":{"name":"grep","call_id":"c1"},"args":{"pattern":"x"}}}
{"type":"tool.completed","data":{"tool":{"name":"grep","call_id":"c1"},"result":"3 matches"}}
{"type":"attention.requested","id":"q1","subject":"deploy","data":{"kind":"input","prompt":"Which region?"}}
{"type":"attention.answered","subject":"q1","data":{"answer":{"text":"eu"},"via":"oob"}}
{"type":"run.finished","run":"r1"}
`)
	if r := w.run([]string{"DRAFTS=" + drafts}, "--capture", "redacted", "--", "drafter"); r.code != 0 {
		t.Fatalf("%+v", r)
	}
	var lines []string
	for _, l := range w.logged() {
		lines = l
	}
	old, _ := event.Parse([]byte(lines[0]))
	command := fmt.Sprintf(`{"aep":"0.1","id":"cmd-1","type":"control.cancel","time":"2026-01-01T00:00:00Z","source":"aep://h/agent/who","agent":"who","session":%q,"data":{"scope":"session"}}`, old.Session)
	idle := `{"aep":"0.1","id":"idle-1","type":"agent.idle","time":"2026-01-01T00:00:00Z","source":"aep://h/agent/drafter","agent":"drafter"}`
	file := w.file("capture.jsonl", strings.Join(append(append([]string{command}, lines...), lines[1], idle), "\n"))

	r := w.run(nil, "replay", "--json", "--speed", "max", "--capture", "redacted", "--collector", m.url(), file)
	var told replayed
	if err := json.Unmarshal([]byte(r.stdout), &told); err != nil || r.code != 0 {
		t.Fatalf("%v %+v", err, r)
	}
	if told.Events != len(lines)+1 || told.Skipped != 1 || len(told.Sessions) != 1 || r.stderr != "" {
		t.Errorf("%+v %+v", told, r)
	}
	fresh := told.Sessions[old.Session]
	got := m.got()["drafter/"+fresh]
	if len(got) != len(lines) || len(m.got()["drafter/"]) != 1 {
		t.Fatalf("%d of %d arrived: %v", len(got), len(lines), m.got())
	}
	ids := map[string]string{}
	for i := range lines {
		a, _ := event.Parse([]byte(lines[i]))
		b, _ := event.Parse([]byte(got[i]))
		if b.ID == a.ID || b.Ext["replayid"] != a.ID || b.Ext["replayof"] != a.Session || b.Type != a.Type || b.Seq != int64(i) || b.Epoch != 0 || b.Run != a.Run {
			t.Errorf("%s\nbecame %s", lines[i], got[i])
		}
		ids[a.ID] = b.ID
		for _, ref := range [][2]string{{a.Cause, b.Cause}, {a.Subject, b.Subject}} {
			want := ref[0]
			if ids[want] != "" {
				want = ids[want]
			}
			if ref[1] != want {
				t.Errorf("%s\nrefers to %s, want %s", got[i], ref[1], want)
			}
		}
		if !bytes.Equal(a.Data, b.Data) {
			t.Errorf("%s\nbecame %s", a.Data, b.Data)
		}
	}
	if r := w.run(nil, "validate", w.file("out.jsonl", strings.Join(got, "\n"))); r.code != 0 {
		t.Errorf("%+v", r)
	}

	// In the pace that it had, and lowered to what may be said.
	start := time.Now()
	first, _ := event.Parse([]byte(lines[0]))
	shifted := slices.Clone(lines[:3])
	for i := range shifted {
		e, _ := event.Parse([]byte(lines[i]))
		e.Time = first.Time.Add(time.Duration(i) * time.Second)
		shifted[i] = string(e.AppendJSON(nil))
	}
	r = w.run(nil, "replay", "--speed", "4", "--collector", m.url(), w.file("slow.jsonl", strings.Join(shifted, "\n")))
	if took := time.Since(start); r.code != 0 || took < 500*time.Millisecond || !strings.HasSuffix(r.stdout, "sent 3 events of 3\n") {
		t.Errorf("%v %+v", took, r)
	}
	for session, lines := range m.got() {
		if session != "drafter/"+fresh && session != "drafter/" && strings.Contains(strings.Join(lines, "\n"), "redacted") {
			t.Errorf("%s", lines)
		}
	}

	// What is no capture is sent nowhere.
	before := m.count()
	bad := w.file("bad.jsonl", lines[0]+"\n{\"aep\":\"0.1\"}\n")
	if r := w.run(nil, "replay", "--collector", m.url(), bad); r.code != 1 || !strings.Contains(r.stderr, "line 2 is no event") || m.count() != before {
		t.Errorf("%+v", r)
	}
	for _, args := range [][]string{{"replay"}, {"replay", "--speed", "0", file}, {"replay", "/nowhere"}, {"replay", file}} {
		if r := w.run(nil, args...); r.code != 2 {
			t.Errorf("%q: %+v", args, r)
		}
	}
}
