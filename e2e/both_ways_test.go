package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"aep-wrap/event"
)

// A session that is wrapped, and whose own log a watch reads afterwards without
// knowing of the wrapper, is told the same both ways: the same facts, by type,
// subject and call, of the same runs, under the same ids where one is a fact of
// its own.
func TestToldBothWays(t *testing.T) {
	for _, c := range []struct {
		agent, logs string
		scripts     map[string][]string // and the arguments of each
		argv        func(w *world, script string, more []string) []string
		world       func(t *testing.T) *world
	}{
		{
			agent: "claude-code", logs: ".claude/projects",
			scripts: map[string][]string{"safe": nil, "write1": {"--permission-mode", "acceptEdits"}, "fail": {"--allowedTools=Bash"}, "sub": nil, "subback": nil, "err": nil},
			world:   newWorld,
			argv: func(w *world, script string, more []string) []string {
				return append([]string{claude(w.t)}, headlessArgs(script, "text", more)...)
			},
		},
		{
			agent: "codex", logs: ".codex/sessions",
			scripts: map[string][]string{"safe": nil, "write1": {"-s", "workspace-write"}, "fail": nil, "bash1": nil},
			world: func(t *testing.T) *world {
				a := caseOf(t, "codex")
				w := makeWorld(t, a.program, a.files)
				w.env = a.env(w)
				return w
			},
			argv: func(w *world, script string, more []string) []string {
				a := caseOf(w.t, "codex")
				return append(append([]string{a.program.path(w.t)}, more...), a.print("go [[script:"+script+"]]")...)
			},
		},
	} {
		for script, more := range c.scripts {
			t.Run(c.agent+"/"+script, func(t *testing.T) {
				bin := wrapper(t)
				w := c.world(t)
				w.run(append([]string{bin, "--"}, c.argv(w, script, more)...)...)
				wrapped := w.events()
				again := filepath.Join(w.root, "watched")
				w.env = append(w.env, "AEP_LOG_DIR="+again)
				if r := w.run(bin, "watch", "--once", "--from", "start", filepath.Join(w.home(), c.logs)); r.code != 0 || strings.Contains(r.stderr, "version or layout") {
					t.Fatalf("watch: exit %d\n%s%s", r.code, r.stdout, r.stderr)
				}
				files, err := filepath.Glob(filepath.Join(again, c.agent, "*.jsonl"))
				if err != nil || len(files) != 1 {
					t.Fatalf("session logs of the watch: %q, %v", files, err)
				}
				watched := w.parse(files[0])
				a, b := sharedFacts(t, wrapped), sharedFacts(t, watched)
				if !slices.Equal(a, b) {
					t.Errorf("wrapped:\n\t%s\nwatched:\n\t%s", strings.Join(a, "\n\t"), strings.Join(b, "\n\t"))
				}
				t.Logf("%d events wrapped, %d watched, %d facts of both", len(wrapped), len(watched), len(a))
				if raw, err := os.ReadFile(files[0]); err == nil && t.Failed() {
					t.Logf("%s", raw)
				}
			})
		}
	}
}

func caseOf(t *testing.T, adapter string) agentCase {
	t.Helper()
	i := slices.IndexFunc(agentCases, func(a agentCase) bool { return a.adapter == adapter })
	if i < 0 {
		t.Fatalf("no case of %s", adapter)
	}
	return agentCases[i]
}

// sharedFacts are what both ways must tell. A session's end is the wrapper's to see, a
// permission's request the hooks'; what vendors add differs by channel.
func sharedFacts(t *testing.T, events []event.Event) (out []string) {
	t.Helper()
	for _, e := range events {
		switch event.Category(e.Type) {
		case "attention", "control", "x":
			continue
		}
		if e.Type == "session.ended" {
			continue
		}
		call := ""
		if event.Category(e.Type) == "tool" {
			if tool, ok := data(t, e)["tool"].(map[string]any); ok {
				call, _ = tool["call_id"].(string)
			}
		}
		id := ""
		if event.Category(e.Type) == "tool" || event.Category(e.Type) == "run" {
			id = e.ID
		}
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s", e.Type, e.Subject, call, e.Run, id)))
	}
	slices.Sort(out)
	return out
}
