package e2e

func init() {
	agentCases = append(agentCases, agentCase{
		adapter: "qwen-code",
		program: program{command: "qwen", npm: "@qwen-code/qwen-code", version: "0.24.4", node: 22},
		files: func(w *world) {
			w.write(".qwen/settings.json", "{\n  \"security\": {\n    \"auth\": {\n      \"selectedType\": \"openai\"\n    }\n  },\n  \"general\": {\n    \"disableAutoUpdate\": true\n  },\n  \"$version\": 4\n}")
			w.write(".qwen/QWEN.md", "Answer briefly.\n")
		},
		env: func(w *world) []string {
			return []string{"OPENAI_BASE_URL=" + w.url + "/v1", "OPENAI_API_KEY=" + apiKey, "OPENAI_MODEL=mock-model"}
		},
		print: func(prompt string) []string { return []string{"-p", prompt} },
		tui:   []string{"--approval-mode", "default"},
		ready: "Type your message",
		exit:  "/quit",
		scenes: []scene{
			{name: "a tool call", script: "safe", args: []string{"--approval-mode", "yolo"}, same: true, want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a failing tool", script: "fail", args: []string{"--approval-mode", "yolo"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.failed", "tool.requested", "tool.failed", "run.finished", "session.ended"}},
			{name: "a file write", script: "write1", args: []string{"--approval-mode", "auto-edit"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a refusal", script: "bash1", want: []string{
				"session.started", "run.started", "tool.requested", "tool.denied", "run.finished", "session.ended"}},
			{name: "answered and commanded from afar", remote: true, wrap: []string{"--hold", "60s"}, play: qwenFromAfar, check: checkBy("control"), want: []string{
				"session.started",
				"run.started", "attention.requested", "attention.answered", "tool.requested", "attention.resolved", "tool.completed", "run.finished",
				"run.started", "attention.requested", "attention.answered", "tool.requested", "attention.resolved", "tool.failed", "run.finished",
				"run.started", "run.cancelled", "session.ended"},
				shows: map[string]string{"answerable": "allow, and deny with a reason; its dialog is locked for the 8 s of the hold", "cancel": "Esc", "pause": "by signals, and resumed"}},
			{name: "answered at the screen", play: qwenAtTheScreen, want: []string{
				"session.started",
				"run.started", "attention.requested", "tool.requested", "attention.answered", "attention.resolved", "tool.completed", "run.finished",
				"run.started", "attention.requested", "tool.requested", "attention.answered", "attention.resolved", "tool.failed", "run.cancelled",
				"run.started", "run.cancelled", "session.ended"}},
			{name: "dual: answered and commanded from afar", remote: true, wrap: []string{"--dual"}, play: qwenDual, check: checkBy(nil, "control"), want: []string{
				"session.started",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.completed", "run.finished",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.failed", "run.cancelled",
				"run.started", "run.cancelled", "session.ended"},
				shows: map[string]string{"answerable": "with --dual: allow and deny, beside its own dialog; a denial ends the run"}},
			{name: "dual: answered at the screen", remote: true, wrap: []string{"--dual"}, play: qwenAtTheScreen, want: []string{
				"session.started",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.completed", "run.finished",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.failed", "run.cancelled",
				"run.started", "run.cancelled", "session.ended"}},
			{name: "instructed from afar", remote: true, wrap: []string{"--allow", "instruct"}, play: instructed, want: []string{
				"session.started", "run.started", "run.finished", "run.started", "run.finished", "session.ended"},
				shows: map[string]string{"instruct": "with the next prompt, or around a tool"}},
			{name: "cancelled headless", script: "slowtext", remote: true, play: cancelled, check: checkBy("control"), want: []string{
				"session.started", "run.started", "run.cancelled", "session.ended"},
				shows: map[string]string{"cancel": "headless: SIGINT"}},
		},
		missing: []string{"who interrupted a turn", "what the agent says, but for the last message of a turn"},
	})
}

func qwenFromAfar(s *stage) {
	fromAfar(s)
	qwenEmpty(s)
}

// qwenAtTheScreen is a visit at whose end the box is emptied: an Esc puts the
// prompt that it stops back there.
func qwenAtTheScreen(s *stage) {
	atTheScreen("Allow execution of", "\r", keyEsc, "run.cancelled")(s)
	s.see("Request cancelled")
	s.keys("\x15")
	qwenEmpty(s)
}

// qwenEmpty waits until nothing is in the box but what it says by itself: an Esc
// from afar is followed by the key that empties it, and would take what is typed
// before.
func qwenEmpty(s *stage) {
	s.see("Request cancelled")
	s.see(`(?m)^>\s*($|Type your message|The script)`)
}

// qwenDual is a visit from afar in which a denial ends the run, as in the
// dialog.
func qwenDual(s *stage) {
	s.ask("bash1")
	s.respond("--option", "allow")
	s.told("run.finished", 1)
	s.ask("bash1")
	s.respond("--option", "deny")
	s.told("run.cancelled", 1)
	s.ask("slowtext")
	s.see("slow words")
	s.command("cancel", s.session())
	s.told("run.cancelled", 2)
	qwenEmpty(s)
}
