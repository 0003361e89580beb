package agent

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/all"
	"aep-wrap/agent/follow"
	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
	"aep-wrap/redaction"
	"aep-wrap/session"
)

func testGate(l event.Level) *redaction.Gate {
	return redaction.NewGate(redaction.Policy{Ceiling: l}, redaction.NewPipeline(redaction.Options{}))
}

func newTestWatch(t testing.TB, logDir string) *Watch {
	return NewWatch(WatchConfig{Adapters: all.List(), Host: "h", LogDir: logDir, Gate: testGate(event.Full),
		Say: func(line string) { t.Log(line) }})
}

// readOnce reads paths to their end and gives what every session log holds by
// then, by agent and session.
func readOnce(t testing.TB, logDir string, store *follow.Store, paths ...string) map[string][]event.Event {
	t.Helper()
	w := newTestWatch(t, logDir)
	fo, err := follow.New(follow.Config{Paths: paths, Handler: w, Once: true, Store: store})
	if err != nil {
		t.Fatal(err)
	}
	if err := fo.Run(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.CloseAll()
	return sessionLogs(t, logDir)
}

// sessionLogs gives what every session log holds by now: somebody may be writing
// to it.
func sessionLogs(t testing.TB, logDir string) map[string][]event.Event {
	t.Helper()
	out := map[string][]event.Event{}
	files, err := filepath.Glob(filepath.Join(logDir, "*", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			if !strings.HasSuffix(line, "\n") {
				continue // it is being written
			}
			e, err := event.Parse([]byte(line))
			if err != nil {
				t.Fatalf("%s: %v: %s", f, err, line)
			}
			if v := event.Check(e); len(v) > 0 {
				t.Errorf("%s: %v: %s", f, v, line)
			}
			key := e.Agent + "/" + e.Session
			out[key] = append(out[key], e)
		}
	}
	return out
}

// bare is an event without its position, which differs between emitters.
func bare(e event.Event) string {
	e.Epoch, e.Seq = 0, 0
	return string(e.AppendJSON(nil))
}

func bares(es []event.Event) (out []string) {
	for _, e := range es {
		out = append(out, bare(e))
	}
	return out
}

func capturesDir(t testing.TB) string {
	t.Helper()
	dir := whereCaptures()
	if _, err := os.Stat(dir); err != nil {
		t.Skipf("no captures of real runtimes here (AEP_CAPTURES): %v", err)
	}
	return dir
}

func whereCaptures() string {
	dir := os.Getenv("AEP_CAPTURES")
	if dir == "" {
		corpus := os.Getenv("AEP_CONFORMANCE")
		if corpus == "" {
			corpus = filepath.Join("..", "..", "shared", "conformance")
		}
		dir = filepath.Join(filepath.Dir(corpus), "captures")
	}
	return dir
}

// captures are the folders of session logs that the runtimes wrote: those among
// the adapters' own, and beside them those of the captures that are there.
func captures(t testing.TB) (dirs []string) {
	t.Helper()
	for _, pattern := range []string{filepath.Join(whereCaptures(), "*", "logs"), filepath.Join("..", "adapters", "*", "testdata")} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, dir := range found {
			if logs, _ := filepath.Glob(filepath.Join(dir, "*.jsonl")); len(logs) > 0 {
				dirs = append(dirs, dir)
			}
		}
	}
	if len(dirs) == 0 {
		t.Fatal("no session logs")
	}
	return dirs
}

// Every log that was captured, read twice, gives the same events; read again
// into the same session logs, it gives none.
func TestCapturedLogsReadTwice(t *testing.T) {
	for _, dir := range captures(t) {
		t.Run(filepath.Base(filepath.Dir(dir)), func(t *testing.T) {
			logs := t.TempDir()
			first := readOnce(t, logs, nil, dir)
			if len(first) == 0 {
				t.Fatal("nothing is told of it")
			}
			second := readOnce(t, t.TempDir(), nil, dir)
			again := readOnce(t, logs, nil, dir)
			for key, events := range first {
				if strings.HasPrefix(key, "aep-wrap/") {
					continue
				}
				t.Logf("%s: %d events", key, len(events))
				if a, b := bares(events), bares(second[key]); !slices.Equal(a, b) {
					t.Errorf("%s: a second reading gives\n%s\nnot\n%s", key, strings.Join(b, "\n"), strings.Join(a, "\n"))
				}
				if len(again[key]) != len(events) {
					t.Errorf("%s: read again, %d events became %d: %s", key, len(events), len(again[key]), strings.Join(bares(again[key][len(events):]), "\n"))
				}
				s := event.NewStream()
				for _, e := range events {
					if v := s.Add(e); len(v) > 0 {
						t.Errorf("%s: %v: %s", key, v, bare(e))
					}
				}
			}
			if !slices.Equal(slices.Sorted(maps.Keys(first)), slices.Sorted(maps.Keys(second))) {
				t.Errorf("other sessions: %v, %v", slices.Sorted(maps.Keys(first)), slices.Sorted(maps.Keys(second)))
			}
		})
	}
}

// fact is what two channels must agree on.
func fact(e event.Event) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", e.Type, e.Subject, callOf(e)))
}

func callOf(e event.Event) string {
	p, err := event.ParseObject(e.Data)
	if err != nil {
		return ""
	}
	tool, _ := p["tool"].(map[string]any)
	call, _ := tool["call_id"].(string)
	return call
}

// A session that was recorded both ways tells the same facts by its hooks and
// by its log, under the same ids. What only one of them can tell is named here.
func TestHooksAndLogsAgree(t *testing.T) {
	root := capturesDir(t)
	for _, c := range []struct {
		agent, session, hooks string
		logs                  map[string]string // where they lie in the runtime's home
	}{
		{"claude-code", "fa53200c-2053-4ae7-86df-62afd036ad94", "claude-code/sequences/00-87-events.jsonl", map[string]string{
			"claude-code/logs/interactive-many-events-compact.jsonl": "projects/-home-dev-app/fa53200c-2053-4ae7-86df-62afd036ad94.jsonl",
			"claude-code/logs/agent-a19349c1f4ab238d9.jsonl":         "projects/-home-dev-app/fa53200c-2053-4ae7-86df-62afd036ad94/subagents/agent-a19349c1f4ab238d9.jsonl"}},
		{"codex", "01a2291a-20c9-7191-a9dd-badad5c8e0ab", "codex/sequences/00-64-events.jsonl", map[string]string{
			"codex/logs/rollout-2026-11-29T20-58-28-01a2291a-20c9-7191-a9dd-badad5c8e0ab.jsonl": "sessions/2026/11/29/rollout-2026-11-29T20-58-28-01a2291a-20c9-7191-a9dd-badad5c8e0ab.jsonl",
			"codex/logs/rollout-2026-11-29T20-59-57-01a2291b-8055-7c31-ba12-d8fe2dff684e.jsonl": "sessions/2026/11/29/rollout-2026-11-29T20-59-57-01a2291b-8055-7c31-ba12-d8fe2dff684e.jsonl"}},
		{"codex", "01a22918-f640-7552-a438-368595bd7a15", "codex/sequences/04-13-events.jsonl", map[string]string{
			"codex/logs/rollout-2026-11-29T20-57-11-01a22918-f640-7552-a438-368595bd7a15.jsonl": "sessions/2026/11/29/rollout-2026-11-29T20-57-11-01a22918-f640-7552-a438-368595bd7a15.jsonl"}},
		{"codex", "01a2291b-d13e-72a2-9cf8-3dc10d1940b9", "codex/sequences/10-5-events.jsonl", map[string]string{
			"codex/logs/rollout-2026-11-29T21-00-18-01a2291b-d13e-72a2-9cf8-3dc10d1940b9.jsonl": "sessions/2026/11/29/rollout-2026-11-29T21-00-18-01a2291b-d13e-72a2-9cf8-3dc10d1940b9.jsonl"}},
	} {
		t.Run(c.agent+"/"+c.session[:8], func(t *testing.T) {
			byHooks := replayHooks(t, c.agent, c.session, filepath.Join(root, c.hooks))
			home := t.TempDir()
			for from, to := range c.logs {
				raw, err := os.ReadFile(filepath.Join(root, from))
				if err != nil {
					t.Fatal(err)
				}
				to = filepath.Join(home, to)
				if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(to, raw, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			byLog := readOnce(t, t.TempDir(), nil, home)[c.agent+"/"+c.session]
			compareFacts(t, byHooks, byLog)
		})
	}
}

// compareFacts holds two tellings of a session against each other. A request
// for a permission and what became of it are in no log, nor are a session's
// end and a vendor's own hooks; a tool that was refused or cut off fires no
// hook at its end, and what a model call used is in the log alone.
func compareFacts(t *testing.T, byHooks, byLog []event.Event) {
	t.Helper()
	ended, requested := map[string]bool{}, map[string]bool{}
	for _, e := range byHooks {
		switch e.Type {
		case "tool.completed", "tool.failed", "tool.denied":
			ended[callOf(e)] = true
		case "tool.requested":
			requested[callOf(e)] = true
		}
	}
	hooksAlone := func(e event.Event) bool {
		return event.Category(e.Type) == "attention" || event.Category(e.Type) == "x" || e.Type == "session.ended"
	}
	logAlone := func(e event.Event) bool {
		switch e.Type {
		case "tool.failed", "tool.denied":
			return !ended[callOf(e)]
		case "tool.requested":
			return !requested[callOf(e)] // of a tool that there is not: no hook
		case "tool.completed":
			return !ended[callOf(e)] // a patch through the shell, or a command that outlived its run: no hook
		}
		return event.Category(e.Type) == "x"
	}
	count, ids := map[string]int{}, map[string]string{}
	for _, e := range byHooks {
		if !hooksAlone(e) {
			count[fact(e)]++
			ids[fact(e)] = e.ID
		}
	}
	same := 0
	for _, e := range byLog {
		f := fact(e)
		if count[f] == 0 {
			if !logAlone(e) {
				t.Errorf("the hooks do not tell: %s, run %s", f, e.Run)
			}
			continue
		}
		count[f]--
		same++
		// A compaction has a name in the log alone, and a run's facts look alike.
		if event.Category(e.Type) != "run" && e.Type != "session.compacted" && e.Type != "session.started" && e.ID != ids[f] {
			t.Errorf("%s has two ids: %s by hooks, %s by the log", f, ids[f], e.ID)
		}
	}
	for f, n := range count {
		if n > 0 {
			t.Errorf("the log does not tell: %s (%d)", f, n)
		}
	}
	runs := func(es []event.Event) (out []string) {
		for _, e := range es {
			if event.Category(e.Type) == "run" {
				out = append(out, e.Type+" "+e.Run+" "+e.ID)
			}
		}
		slices.Sort(out)
		return out
	}
	if a, b := runs(byHooks), runs(byLog); !slices.Equal(a, b) {
		t.Errorf("runs by hooks\n%s\nby the log\n%s", strings.Join(a, "\n"), strings.Join(b, "\n"))
	}
	t.Logf("%d events by hooks, %d by the log, %d of both", len(byHooks), len(byLog), same)
}

// replayHooks gives the events of a recorded sequence of hooks.
func replayHooks(t *testing.T, agent, name, file string) (out []event.Event) {
	t.Helper()
	a, ok := all.Find(agent)
	if !ok {
		t.Fatal(agent)
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := session.New(session.Config{Agent: agent, Host: "h", Session: name, State: session.NewState()})
	gate := testGate(event.Full)
	at := time.Date(2026, 11, 29, 20, 47, 0, 0, time.UTC)
	for line := range strings.Lines(string(raw)) {
		rec, err := event.ParseObject([]byte(strings.TrimSpace(line)))
		if err != nil {
			t.Fatal(err)
		}
		payload, _ := rec["payload"].(map[string]any)
		n, _ := rec["event"].(string)
		for _, d := range s.Bind(at, a.Map(adapters.Moment{Channel: adapters.Hook, Name: n, Payload: payload, Time: at})) {
			e, err := gate.Seal(&d)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, e)
		}
		at = at.Add(time.Second)
	}
	return out
}

// write writes a file with all folders above it.
func writeFile(t testing.TB, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func appendFile(t testing.TB, path, content string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
}

// claudeLine is a line of a Claude Code transcript; more is its members.
func claudeLine(session string, n int, more string) string {
	return fmt.Sprintf(`{"parentUuid":"p","isSidechain":false,"uuid":"u%d","timestamp":"%s","userType":"external","sessionId":%q,"version":"2.1.197",%s}`+"\n",
		n, time.Date(2026, 11, 29, 12, 0, n, 0, time.UTC).Format(time.RFC3339), session, more)
}

func claudePrompt(session string, n int) string {
	return claudeLine(session, n, fmt.Sprintf(`"type":"user","promptId":"r%d","promptSource":"typed","message":{"role":"user","content":"go"}`, n))
}

func claudeTool(session string, n int) string {
	return claudeLine(session, n, fmt.Sprintf(`"type":"assistant","message":{"id":"m%d","model":"x","stop_reason":"tool_use","usage":{"input_tokens":1,"output_tokens":2},"content":[{"type":"tool_use","id":"t%d","name":"Bash","input":{"command":"x"}}]}`, n, n))
}

func claudeEnd(session string, n int) string {
	return claudeLine(session, n, fmt.Sprintf(`"type":"assistant","message":{"id":"m%d","model":"x","stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":2},"content":[{"type":"text","text":"done"}]}`, n))
}

func types(es []event.Event) (out []string) {
	for _, e := range es {
		out = append(out, e.Type)
	}
	return out
}

// A session that another process owns is told by that one: what it told up to
// its end is never told again, what comes after is.
func TestAnOwnedSessionIsLeftAlone(t *testing.T) {
	logs, dir := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "projects", "p", "s1.jsonl")
	writeFile(t, file, claudePrompt("s1", 1))
	wrapper, err := jsonl.Open(logs, "claude-code", "s1")
	if err != nil {
		t.Fatal(err)
	}
	w := newTestWatch(t, logs)
	fo, err := follow.New(follow.Config{Paths: []string{dir}, Handler: w, Retry: 50 * time.Millisecond, Poll: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- fo.Run(ctx) }()
	defer func() { cancel(); <-done }()
	time.Sleep(300 * time.Millisecond)
	if n := wrapper.Size(); n != 0 {
		t.Fatalf("%d bytes were written beside the owner", n)
	}
	// The wrapper tells its session, and ends it.
	s := session.New(session.Config{Agent: "claude-code", Host: "h", Session: "s1", State: session.NewState()})
	at := time.Date(2026, 11, 29, 12, 0, 3, 0, time.UTC)
	gate := testGate(event.Full)
	drafts := s.Bind(at, []event.Draft{{Header: event.Header{Type: "run.started", Run: "r1"}, Key: "r1"}})
	drafts = append(drafts, s.Exit(at.Add(500*time.Millisecond), session.Exit{})...)
	for i := range drafts {
		e, err := gate.Seal(&drafts[i])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := wrapper.Append(e.AppendJSON(nil)); err != nil {
			t.Fatal(err)
		}
	}
	appendFile(t, file, claudeTool("s1", 2)) // told by the wrapper, by then
	if err := wrapper.Close(); err != nil {
		t.Fatal(err)
	}
	appendFile(t, file, claudePrompt("s1", 5)+claudeEnd("s1", 6)) // resumed without a wrapper
	want := []string{"session.started", "run.started", "run.finished", "session.ended", "run.started", "x.claude-code.model.usage", "run.finished"}
	want[2] = types(sessionLogs(t, logs)["claude-code/s1"])[2] // how a run that was open ends is the wrapper's
	deadline := time.Now().Add(patience)
	for {
		got := types(sessionLogs(t, logs)["claude-code/s1"])
		if slices.Equal(got, want) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("got  %q\nwant %q", got, want)
		}
		time.Sleep(20 * time.Millisecond)
	}
	if w.Stats().Owned == 0 {
		t.Error("that the session was owned is not counted")
	}
}

// A wrapper that starts on a session which a watch has just told gets it.
func TestAWrapperGetsTheSession(t *testing.T) {
	logs, dir := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(dir, "projects", "p", "s1.jsonl"), claudePrompt("s1", 1))
	w := newTestWatch(t, logs)
	fo, err := follow.New(follow.Config{Paths: []string{dir}, Handler: w, Poll: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- fo.Run(ctx) }()
	defer func() { cancel(); <-done }()
	deadline := time.Now().Add(patience)
	for w.Stats().Events == 0 && time.Now().Before(deadline) {
		time.Sleep(10 * time.Millisecond)
	}
	// Long before it gives up what has no news; on a busy machine it may not hear
	// at once that somebody asks.
	for begun := time.Now(); ; {
		log, err := jsonl.Open(logs, "claude-code", "s1")
		if err == nil {
			log.Close()
			break
		}
		if time.Since(begun) > idleAfter/2 {
			t.Fatalf("the watch keeps a session that is wanted: %v", err)
		}
	}
}

// Two watches over the same logs tell everything once.
func TestTwoWatches(t *testing.T) {
	logs, dir := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "projects", "p", "s1.jsonl")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2)
	for range 2 {
		fo, err := follow.New(follow.Config{Paths: []string{dir}, Handler: newTestWatch(t, logs), Retry: 50 * time.Millisecond, Poll: 20 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		go func() { done <- fo.Run(ctx) }()
	}
	defer func() { cancel(); <-done; <-done }()
	writeFile(t, file, "")
	want := 1
	for n := 1; n <= 20; n++ {
		appendFile(t, file, claudePrompt("s1", n)+claudeTool("s1", n)+claudeEnd("s1", n))
		want += 4 // the two messages have one id
		time.Sleep(30 * time.Millisecond)
	}
	deadline := time.Now().Add(patience)
	for {
		got := sessionLogs(t, logs)["claude-code/s1"]
		if len(got) == want {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d events, want %d: %q", len(got), want, types(got))
		}
		time.Sleep(20 * time.Millisecond)
	}
	time.Sleep(3 * time.Second) // the other one takes the session over, and has nothing to add
	if got := sessionLogs(t, logs)["claude-code/s1"]; len(got) != want {
		t.Fatalf("%d events became %d", want, len(got))
	}
}

// What a fork repeats of its parent is not told again.
func TestForks(t *testing.T) {
	dir := t.TempDir()
	line := func(id, session, more string) string {
		return fmt.Sprintf(`{"timestamp":"2026-11-29T12:00:00Z","type":"session_meta","payload":{"session_id":%q,"id":%q,"cli_version":"0.171.0"%s}}`+"\n", session, id, more)
	}
	turn := func(n int) string {
		return fmt.Sprintf(`{"timestamp":"2026-11-29T12:00:%02dZ","type":"event_msg","payload":{"type":"item_completed","turn_id":"turn%d","item":{"type":"UserMessage","content":[{"type":"text","text":"go"}]}}}`+"\n"+
			`{"timestamp":"2026-11-29T12:00:%02dZ","type":"response_item","payload":{"type":"function_call","name":"exec_command","arguments":"{\"cmd\":\"x\"}","call_id":"c%d"}}`+"\n"+
			`{"timestamp":"2026-11-29T12:00:%02dZ","type":"event_msg","payload":{"type":"task_complete","turn_id":"turn%d","root_turn_id":"turn%d","last_agent_message":"done"}}`+"\n", n, n, n, n, n, n, n)
	}
	writeFile(t, filepath.Join(dir, "rollout-1-a.jsonl"), line("a", "a", "")+turn(1)+turn(2))
	writeFile(t, filepath.Join(dir, "rollout-2-b.jsonl"), line("b", "b", `,"forked_from_id":"a"`)+turn(1)+turn(2)+turn(3))
	got := readOnce(t, t.TempDir(), nil, dir)
	if n := len(got["codex/a"]); n != 7 {
		t.Errorf("the parent: %q", types(got["codex/a"]))
	}
	if want := []string{"session.started", "run.started", "tool.requested", "run.finished"}; !slices.Equal(types(got["codex/b"]), want) {
		t.Errorf("the fork: %q, want %q", types(got["codex/b"]), want)
	}
}

// A layout or a version that nobody knows is told, once.
func TestWhatIsNotKnownIsTold(t *testing.T) {
	logs, dir := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(dir, "strange.jsonl"), "{\"hello\":1}\n{\"hello\":2}\n")
	writeFile(t, filepath.Join(dir, "projects", "p", "s9.jsonl"), strings.ReplaceAll(claudePrompt("s9", 1), "2.1.197", "9.0.0"))
	writeFile(t, filepath.Join(dir, "projects", "p", "s8.jsonl"), claudeLine("s8", 1, `"type":"brand-new"`)+"not json\n")
	writeFile(t, filepath.Join(dir, "history.jsonl"), "{\"display\":\"x\"}\n")
	for range 2 {
		got := readOnce(t, logs, nil, dir)
		if want := []string{"session.started", "x.aep-wrap.log.unknown"}; !slices.Equal(types(got["aep-wrap/watch"]), want) {
			t.Errorf("got %q, want %q", types(got["aep-wrap/watch"]), want)
		}
		if want := []string{"session.started", "x.aep-wrap.log.strange", "run.started"}; !slices.Equal(types(got["claude-code/s9"]), want) {
			t.Errorf("got %q, want %q", types(got["claude-code/s9"]), want)
		}
		if want := []string{"session.started", "x.claude-code.log.record", "x.aep-wrap.input.refused"}; !slices.Equal(types(got["claude-code/s8"]), want) {
			t.Errorf("got %q, want %q", types(got["claude-code/s8"]), want)
		}
	}
}

// What is no UTF-8 is mended, and what is beside it told; a string of more than
// 64 KiB is told by its length, and its record is.
func TestBadBytesAndLongStrings(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("x", 70<<10)
	writeFile(t, filepath.Join(dir, "projects", "p", "s1.jsonl"),
		strings.Replace(claudePrompt("s1", 1), `"go"`, "\"g\xff\xfeo\"", 1)+
			strings.Replace(claudeTool("s1", 2), `"command":"x"`, `"command":"`+long+`"`, 1)+claudeEnd("s1", 3))
	got := readOnce(t, t.TempDir(), nil, dir)["claude-code/s1"]
	want := []string{"session.started", "run.started", "tool.requested", "x.claude-code.model.usage", "x.claude-code.model.usage", "run.finished"}
	if !slices.Equal(types(got), want) {
		t.Errorf("got %q, want %q", types(got), want)
	}
	if raw := string(got[1].Data); !strings.Contains(raw, "g\uFFFDo") {
		t.Errorf("the prompt: %s", raw)
	}
	if raw := string(got[2].Data); !strings.Contains(raw, fmt.Sprintf("[%d bytes not read]", len(long))) {
		t.Errorf("the tool: %.200s", raw)
	}
}

// That a log is of no layout, or of no version, that is known is told also when
// it could not be told at once.
func TestWhatIsStrangeIsToldInTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		agent, session, path, typ string
		lines                     []string
	}{
		"version": {"claude-code", "s1", "/x/projects/p/s1.jsonl", "x.aep-wrap.log.strange", []string{strings.Replace(claudePrompt("s1", 1), "2.1.197", "9.0.0", 1)}},
		"layout":  {own, watchSession, "/x/y.jsonl", "x.aep-wrap.log.unknown", slices.Repeat([]string{`{"a":1}`}, identifyIn+2)},
	} {
		t.Run(name, func(t *testing.T) {
			logs := t.TempDir()
			owner, err := jsonl.Open(logs, c.agent, c.session)
			if err != nil {
				t.Fatal(err)
			}
			w := newTestWatch(t, logs)
			now := time.Now()
			w.cfg.Now = func() time.Time { now = now.Add(2 * retryOwned); return now }
			f := &follow.File{Path: c.path, Head: "head", First: []byte(c.lines[0])}
			w.Open(f)
			var records []follow.Record
			for i, line := range c.lines {
				records = append(records, follow.Record{Start: int64(i * 1000), End: int64(i*1000 + 999), Line: []byte(line)})
			}
			for range 2 {
				if n, _ := w.Take(f, records); n == len(records) {
					t.Fatal("taken, and the session is another's")
				}
			}
			owner.Close()
			if n, _ := w.Take(f, records); n != len(records) {
				t.Fatalf("%d records are taken", n)
			}
			w.Close(f)
			w.CloseAll()
			if got := types(sessionLogs(t, logs)[c.agent+"/"+c.session]); !slices.Contains(got, c.typ) {
				t.Errorf("got %q", got)
			}
			if n := w.Stats().Unknown; name == "layout" && n != 1 {
				t.Errorf("%d unknown files", n)
			}
		})
	}
}
