package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// sessionID names the session of headless runs, so that two runs write the
// same files.
const sessionID = "5e551073-0000-4000-8000-000000000001"

// formats are the ways in which a headless agent writes its answer.
var formats = map[string][]string{
	"text":        nil,
	"json":        {"--output-format", "json"},
	"stream-json": {"--output-format", "stream-json", "--verbose"},
}

// headless lists the scripts that end by themselves without a terminal, and
// the protocol's account of each.
var headless = []struct {
	script string
	args   []string
	events []string
}{
	{"hello", nil, []string{
		"session.started", "run.started", "run.finished", "session.ended"}},
	{"safe", nil, []string{
		"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
	{"write1", []string{"--permission-mode", "acceptEdits"}, []string{
		"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
	{"fail", []string{"--allowedTools=Bash"}, []string{
		"session.started", "run.started", "tool.requested", "tool.failed", "tool.requested", "tool.failed", "run.finished", "session.ended"}},
	{"sub", nil, []string{
		"session.started", "run.started", "tool.requested", "delegation.subagent.started", "tool.requested", "tool.completed",
		"delegation.subagent.stopped", "tool.completed", "run.finished", "session.ended"}},
	{"err", nil, []string{
		"session.started", "run.started", "run.failed", "session.ended"}},
}

func headlessArgs(script, format string, more []string) []string {
	args := append([]string{"-p", "--session-id", sessionID}, formats[format]...)
	return append(append(args, more...), "go [[script:"+script+"]]")
}

// What an agent says, how it ends and what it leaves on disk is the same with
// and without us.
func TestHeadlessIsTheSameWrapped(t *testing.T) {
	agent := claude(t)
	for _, c := range headless {
		for format := range formats {
			t.Run(c.script+"/"+format, func(t *testing.T) {
				w := newWorld(t)
				before := w.snapshot()
				args := append([]string{agent}, headlessArgs(c.script, format, c.args)...)
				bare := w.run(args...)
				bareHome := w.snapshot()
				if format != "text" && !strings.Contains(bare.stdout, sessionID) {
					t.Fatalf("the bare run did not do its work: %+v", bare)
				}

				w.reset()
				wrapped := w.run(append([]string{wrapper(t), "--"}, args...)...)
				wrappedHome := w.snapshot()

				if d := cmp.Diff(lines(bare.stdout), lines(wrapped.stdout)); d != "" {
					t.Errorf("stdout differs (- bare + wrapped):\n%s", d)
				}
				if d := cmp.Diff(lines(bare.stderr), lines(wrapped.stderr)); d != "" {
					t.Errorf("stderr differs (- bare + wrapped):\n%s", d)
				}
				if bare.code != wrapped.code {
					t.Errorf("exit code %d, bare %d", wrapped.code, bare.code)
				}
				if d := cmp.Diff(names(bareHome), names(wrappedHome)); d != "" {
					t.Errorf("files differ (- bare + wrapped):\n%s", d)
				}
				for _, name := range []string{".claude/settings.json", ".claude/CLAUDE.md", "project/README.md"} {
					if before[name] != wrappedHome[name] {
						t.Errorf("%s was changed:\n%s", name, wrappedHome[name])
					}
				}
				if d := cmp.Diff(normalState(t, bareHome), normalState(t, wrappedHome)); d != "" {
					t.Errorf(".claude.json differs (- bare + wrapped):\n%s", d)
				}

				events := w.events()
				if d := cmp.Diff(c.events, types(events)); d != "" {
					t.Errorf("events (- want + got):\n%s", d)
				}
				for _, e := range events {
					if e.Session != sessionID {
						t.Errorf("%s has session %q", e.Type, e.Session)
					}
				}
			})
		}
	}
}

// The normaliser hides what is made up and nothing else: two bare runs are
// equal by it, and runs of two scripts are not.
func TestBareRunsAreEqualOnlyToThemselves(t *testing.T) {
	agent := claude(t)
	w := newWorld(t)
	run := func(script string) (string, map[string]any) {
		w.reset()
		r := w.run(append([]string{agent}, headlessArgs(script, "stream-json", nil)...)...)
		return normal(r.stdout), normalState(t, w.snapshot())
	}
	out1, state1 := run("sub")
	out2, state2 := run("sub")
	if d := cmp.Diff(lines(out1), lines(out2)); d != "" {
		t.Errorf("two bare runs differ:\n%s", d)
	}
	if d := cmp.Diff(state1, state2); d != "" {
		t.Errorf("two bare runs leave different state:\n%s", d)
	}
	if out3, _ := run("safe"); out3 == out1 {
		t.Error("runs of two scripts look the same: the normaliser hides too much")
	}
}

func lines(s string) []string { return strings.SplitAfter(normal(s), "\n") }

// names are a snapshot's paths. Backups of the agent's own state and the mark of
// its cleaning up come and go with its timing; what lies below .aep is ours.
func names(files map[string]string) map[string]bool {
	out := map[string]bool{}
	for name := range normalFiles(files) {
		if !strings.Contains(name, "/backups/") && name != ".claude/.last-cleanup" && !strings.HasPrefix(name, ".aep/") {
			out[name] = true
		}
	}
	return out
}

// normalState is the agent's own state file without what it makes up.
func normalState(t *testing.T, files map[string]string) map[string]any {
	t.Helper()
	var m map[string]any
	if err := json.Unmarshal([]byte(normal(files[".claude/.claude.json"])), &m); err != nil {
		t.Fatalf(".claude.json: %v\n%s", err, files[".claude/.claude.json"])
	}
	return m
}
