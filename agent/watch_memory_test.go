package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"aep-wrap/agent/follow"
	"aep-wrap/session"
)

// codexRollout is a session log of so many turns, a minute each.
func codexRollout(id, more string, turns int) string {
	var b strings.Builder
	from := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	at := func(n int) string { return from.Add(time.Duration(n) * time.Minute).Format(time.RFC3339) }
	fmt.Fprintf(&b, `{"timestamp":%q,"type":"session_meta","payload":{"session_id":%q,"id":%q,"cli_version":"0.171.0"%s}}`+"\n", at(0), id, id, more)
	for n := range turns {
		fmt.Fprintf(&b, `{"timestamp":%q,"type":"event_msg","payload":{"type":"item_completed","turn_id":"turn%d","item":{"type":"UserMessage","content":[{"type":"text","text":"go"}]}}}`+"\n", at(n), n)
		fmt.Fprintf(&b, `{"timestamp":%q,"type":"response_item","payload":{"type":"function_call","name":"exec_command","arguments":"{\"cmd\":\"x\"}","call_id":"c%d"}}`+"\n", at(n), n)
		fmt.Fprintf(&b, `{"timestamp":%q,"type":"event_msg","payload":{"type":"task_complete","turn_id":"turn%d","root_turn_id":"turn%d","last_agent_message":"done"}}`+"\n", at(n), n, n)
	}
	return b.String()
}

// A watch remembers less than it told. What it forgot is in the session's log:
// it is told once, whoever brings it again, when and however often.
func TestTheForgottenIsToldOnce(t *testing.T) {
	logs, dir, other, fork := t.TempDir(), t.TempDir(), t.TempDir(), t.TempDir()
	const turns, remembered = 60, 50
	const events = 1 + 3*turns
	writeFile(t, filepath.Join(dir, "rollout-1-a.jsonl"), codexRollout("a", "", turns))
	writeFile(t, filepath.Join(other, "rollout-1-o.jsonl"), codexRollout("o", "", turns))
	writeFile(t, filepath.Join(fork, "rollout-2-b.jsonl"), codexRollout("b", `,"forked_from_id":"a"`, turns+1))
	start := func() *Watch {
		w := newTestWatch(t, logs)
		w.memory = session.NewMemory(remembered)
		return w
	}
	read := func(w *Watch, dir string) {
		t.Helper()
		fo, err := follow.New(follow.Config{Paths: []string{dir}, Handler: w, Once: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := fo.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	check := func(when string) {
		t.Helper()
		got := sessionLogs(t, logs)
		for key, es := range got {
			ids := make([]string, len(es))
			for i, e := range es {
				ids[i] = e.ID
			}
			if d := twice(ids); len(d) > 0 {
				t.Fatalf("%s: %s has %d ids twice", when, key, len(d))
			}
		}
		for _, s := range []string{"a", "o"} {
			if es, there := got["codex/"+s]; there && len(es) != events {
				t.Fatalf("%s: %s has %d events, want %d", when, s, len(es), events)
			}
		}
		want := []string{"session.started", "run.started", "tool.requested", "run.finished"}
		if b, there := got["codex/b"]; there && !slices.Equal(types(b), want) {
			t.Fatalf("%s: the fork: %q, want %q", when, types(b), want)
		}
	}
	w := start()
	for round := range 2 {
		for _, d := range []string{dir, other, dir, dir, other} {
			read(w, d)
			check(fmt.Sprintf("round %d", round))
		}
		w.CloseAll() // as after a while without news
	}
	read(w, other)
	read(w, fork)
	check("the fork")
	w.CloseAll()
	for range 2 {
		w = start()
		for _, d := range []string{dir, other, fork} {
			read(w, d)
			check("a new watch")
		}
		w.CloseAll()
	}
	if n := len(sessionLogs(t, logs)); n != 3 {
		t.Errorf("%d sessions", n)
	}
}
