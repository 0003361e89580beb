package main

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/creack/pty"

	"aep-wrap/event"
)

// Whatever a wrapper opens and closes for its agent's terminal, its connection
// to the collector lives from the launch to its end: each run has one, on which
// each event comes at once, and which it closes in good order.
func TestEachRunOnATerminalIsHeard(t *testing.T) {
	rounds := 50
	if testing.Short() {
		rounds = 5
	}
	w := newWorld(t)
	m := newMoody(t, "healthy")
	drafts := w.file("drafts", `20 x {"type":"progress.status","data":{"message":"at work","n":%d}}`)
	for i := range rounds {
		cmd := w.command([]string{"DRAFTS=" + drafts}, "--quiet", "--collector", m.url(), "--", "drafter")
		tty, err := pty.Start(cmd)
		if err != nil {
			t.Fatal(err)
		}
		said, _ := io.ReadAll(tty) // to the hangup
		err = cmd.Wait()
		tty.Close()
		m.mu.Lock()
		hellos, closed, posted := len(m.hellos), m.closed, m.by["post"]
		m.mu.Unlock()
		if err != nil || len(said) > 0 || hellos != i+1 || closed != i+1 || posted != 0 {
			log, _ := os.ReadFile(filepath.Join(w.home, ".aep", "aep-wrap.log"))
			t.Logf("%s", log)
			t.Fatalf("run %d: %v; it said %q; %d connections, %d closed in good order, %d events by POST", i, err, said, hellos, closed, posted)
		}
	}
	m.same(w)
	m.mu.Lock()
	defer m.mu.Unlock()
	late := map[string]time.Duration{} // the latest of each run
	for i, line := range m.lines {
		if e, err := event.Parse([]byte(line)); err == nil {
			late[e.Session] = max(late[e.Session], m.came[i].Sub(e.Time))
		}
	}
	lates := slices.Sorted(maps.Values(late)) // a busy machine is slow now and then
	if n := m.by["socket"]; len(lates) != rounds || lates[rounds/2] > 2*time.Second || n < 20*rounds {
		t.Errorf("%d events of %d runs, the latest %v after its time", n, len(lates), lates)
	}
	t.Logf("%d events, the latest %v after its time, of half the runs %v", m.by["socket"], lates[rounds-1], lates[rounds/2])
}
