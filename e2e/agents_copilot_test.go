package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"time"
)

func init() {
	agentCases = append(agentCases, agentCase{
		adapter: "copilot",
		program: program{command: "copilot", npm: "@github/copilot", version: "1.0.102", node: 22},
		files: func(w *world) {
			w.write(".copilot/settings.json", `{"banner":"never"}`+"\n")
			w.write("project/AGENTS.md", "Answer briefly.\n")
		},
		env: func(w *world) []string {
			// It unpacks itself, 235 MB, into the user's cache: one for all runs.
			cache, err := os.UserCacheDir()
			if err != nil {
				w.t.Fatal(err)
			}
			return []string{"XDG_CACHE_HOME=" + filepath.Join(cache, "aep-wrap", "e2e", "copilot-cache"), "COPILOT_OFFLINE=true", "COPILOT_AUTO_UPDATE=false", "COPILOT_PROVIDER_BASE_URL=" + w.url + "/v1",
				"COPILOT_PROVIDER_API_KEY=" + apiKey, "COPILOT_MODEL=mock-model"}
		},
		print: func(prompt string) []string { return []string{"-p", prompt} },
		first: func(s *stage) { s.press("Confirm folder trust", "1") },
		ready: "Manual Approval",
		exit:  "/exit",
		scenes: []scene{
			{name: "a tool call", script: "safe", args: []string{"--allow-all-tools"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a failing tool", script: "fail", args: []string{"--allow-all-tools"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.failed", "tool.requested", "tool.failed", "run.finished", "session.ended"}},
			{name: "a file write", script: "write1", args: []string{"--allow-all-tools"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a refusal", script: "remove", args: []string{"--allow-all-tools", "--deny-tool=shell(rm:*)"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.denied", "run.finished", "session.ended"}},
			{name: "answered and commanded from afar", remote: true, wrap: []string{"--hold", "60s", "--gate", "bash"}, play: fromAfar, check: checkBy("control"), want: []string{
				"session.started",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.completed", "run.finished",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.failed", "run.finished",
				"run.started", "run.cancelled", "session.ended"},
				shows: map[string]string{"answerable": "with --gate: allow, and deny with a reason", "cancel": "Esc twice", "pause": "by signals, and resumed"}},
			{name: "answered at the screen", play: func(s *stage) {
				const dialog = "Do you want to run this command"
				s.ask("bash1")
				s.press(dialog, "1")
				s.told("run.finished", 1)
				s.ask("bash1")
				s.see(dialog)
				s.keys("3")
				s.enter("not so")
				s.told("run.finished", 2)
				s.ask("slowtext")
				s.see("slow words")
				escTwice(s, func() { // two keys, and no key with Alt: of three, two in any case
					time.Sleep(200 * time.Millisecond)
					s.keys(keyEsc)
					time.Sleep(350 * time.Millisecond)
				})
				// The last of them may come when the run is cancelled already, and
				// leave it waiting for another.
				again := time.Now().Add(5 * time.Second)
				s.eventually("it to rest", func() bool {
					text := s.text()
					if strings.Contains(text, "to interrupt") && time.Now().After(again) {
						again = time.Now().Add(5 * time.Second)
						s.keys(keyEsc)
						time.Sleep(300 * time.Millisecond)
						s.keys(keyEsc)
					}
					return !strings.Contains(text, "esc interrupt") && !strings.Contains(text, "to interrupt")
				})
			}, check: checkBy("user"), want: []string{
				"session.started",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.completed", "run.finished",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.failed", "run.finished",
				"run.started", "run.cancelled", "session.ended"}},
		},
		missing: []string{"questions to the user and forms of MCP servers are told nowhere"},
	})
}

// escTwice presses Esc twice until the run is told to be cancelled: an agent that
// is short of time may read both as one key, or the second too late.
func escTwice(s *stage, between func()) {
	var again time.Time
	s.eventually("the run to be cancelled", func() bool {
		if s.tells("run.cancelled") > 0 {
			return true
		}
		if time.Now().After(again) {
			again = time.Now().Add(15 * time.Second)
			s.keys(keyEsc)
			between()
			s.keys(keyEsc)
		}
		return false
	})
}
