package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"aep-wrap/agent/follow"
	"aep-wrap/event"
	"aep-wrap/queue"
	"aep-wrap/queue/jsonl"
)

// A session log that is pruned makes no history new: not for a watch that goes
// on, not for one that reads all from the start, and not for a fork that is made
// of it later. What comes after is told, in its order.
func TestAPrunedLogIsNotToldAgain(t *testing.T) {
	logs, dir := t.TempDir(), t.TempDir()
	file := filepath.Join(dir, "p", "s1.jsonl")
	writeFile(t, file, claudePrompt("s1", 1)+claudeTool("s1", 2)+claudeEnd("s1", 3))
	open := func() *follow.Store {
		store, err := follow.OpenStore(filepath.Join(logs, ".watch", "cursors"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { store.Close() })
		return store
	}
	read := func(from follow.From) []event.Event {
		t.Helper()
		w := newTestWatch(t, logs)
		fo, err := follow.New(follow.Config{Paths: []string{dir}, From: from, Handler: w, Once: true, Store: open()})
		if err != nil {
			t.Fatal(err)
		}
		if err := fo.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		w.CloseAll()
		return sessionLogs(t, logs)["claude-code/s1"]
	}
	first := read(follow.Saved)
	if len(first) < 3 {
		t.Fatalf("%v", types(first))
	}
	last := first[len(first)-1]
	old := time.Now().Add(-48 * time.Hour)
	path := jsonl.Path(logs, "claude-code", "s1")
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	p, err := queue.Prune(context.Background(), logs, queue.Limits{OlderThan: 24 * time.Hour})
	if err != nil || p.Logs() != 1 {
		t.Fatalf("%+v %v", p, err)
	}
	for _, from := range []follow.From{follow.Saved, follow.Start} {
		if again := read(from); len(again) > 0 {
			t.Fatalf("from %s it is told again: %v", from, types(again))
		}
	}
	// The agent goes on, and somebody reads it all once more.
	appendFile(t, file, claudePrompt("s1", 11)+claudeEnd("s1", 12))
	count := 0
	for _, from := range []follow.From{follow.Saved, follow.Start, follow.Start} {
		more := read(from)
		if len(more) == 0 || slices.ContainsFunc(more, func(e event.Event) bool {
			return slices.ContainsFunc(first, func(o event.Event) bool { return o.ID == e.ID })
		}) {
			t.Fatalf("from %s: %v", from, types(more))
		}
		if at := more[0].Position(); !last.Position().Less(at) || more[0].Type != "run.started" {
			t.Fatalf("from %s it goes on with %s at %+v, after %+v", from, more[0].Type, at, last.Position())
		}
		if count == 0 {
			count = len(more)
		}
		if len(more) != count {
			t.Fatalf("it grows from %d: %v", count, types(more))
		}
	}
}

// A fork that is made of a session whose log is pruned tells what it would tell
// if that log was there.
func TestAForkOfAPrunedLog(t *testing.T) {
	turn := func(n int) string {
		return fmt.Sprintf(`{"timestamp":"2026-11-29T12:00:%02dZ","type":"event_msg","payload":{"type":"item_completed","turn_id":"turn%d","item":{"type":"UserMessage","content":[{"type":"text","text":"go"}]}}}`+"\n"+
			`{"timestamp":"2026-11-29T12:00:%02dZ","type":"event_msg","payload":{"type":"task_complete","turn_id":"turn%d","root_turn_id":"turn%d","last_agent_message":"done"}}`+"\n", n, n, n, n, n)
	}
	meta := func(id, more string) string {
		return fmt.Sprintf(`{"timestamp":"2026-11-29T12:00:%s","type":"session_meta","payload":{"session_id":%q,"id":%q,"cli_version":"0.171.0"}}`+"\n", more, id, id)
	}
	var told [2][]string
	for i, prune := range []bool{false, true} {
		logs, dir := t.TempDir(), t.TempDir()
		writeFile(t, filepath.Join(dir, "rollout-1-a.jsonl"), meta("a", "00Z")+turn(1)+turn(2))
		readOnce(t, logs, nil, dir)
		if prune {
			old := time.Now().Add(-48 * time.Hour)
			if err := os.Chtimes(jsonl.Path(logs, "codex", "a"), old, old); err != nil {
				t.Fatal(err)
			}
			if p, err := queue.Prune(context.Background(), logs, queue.Limits{OlderThan: time.Hour}); err != nil || p.Logs() != 1 {
				t.Fatalf("%+v %v", p, err)
			}
		}
		writeFile(t, filepath.Join(dir, "rollout-2-b.jsonl"),
			strings.Replace(meta("b", "05Z"), `"id":"b"`, `"id":"b","forked_from_id":"a"`, 1)+turn(1)+turn(2)+turn(6))
		for _, e := range readOnce(t, logs, nil, dir)["codex/b"] {
			told[i] = append(told[i], bare(e))
		}
	}
	if len(told[0]) == 0 || !slices.Equal(told[0], told[1]) {
		t.Errorf("with the log\n%s\nwithout\n%s", strings.Join(told[0], "\n"), strings.Join(told[1], "\n"))
	}
}
