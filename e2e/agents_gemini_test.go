package e2e

func init() {
	agentCases = append(agentCases, agentCase{
		adapter: "gemini-cli",
		program: program{command: "gemini", npm: "@google/gemini-cli", version: "0.61.0"},
		files: func(w *world) {
			w.write(".gemini/settings.json", `{"security":{"auth":{"selectedType":"gemini-api-key"}},"general":{"enableAutoUpdate":false},"privacy":{"usageStatisticsEnabled":false}}`+"\n")
			w.write(".gemini/trustedFolders.json", `{"`+w.dir()+`":"TRUST_FOLDER"}`+"\n")
			w.write(".gemini/policies/own.toml", "[[rule]]\ntoolName = \"run_shell_command\"\ncommandPrefix = \"rm\"\ndecision = \"deny\"\npriority = 100\n")
			w.write(".gemini/GEMINI.md", "Answer briefly.\n")
		},
		env: func(w *world) []string {
			return []string{"GOOGLE_GEMINI_BASE_URL=" + w.url, "GEMINI_API_KEY=" + apiKey, "GEMINI_CLI_NO_RELAUNCH=true"}
		},
		print: func(prompt string) []string { return []string{"-m", "gemini-2.5-flash", "-p", prompt} },
		tui:   []string{"-m", "gemini-2.5-flash"},
		ready: "Type your message",
		exit:  "/quit",
		scenes: []scene{
			{name: "a tool call", script: "safe", args: []string{"--approval-mode", "yolo"}, same: true, want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a failing tool", script: "fail", args: []string{"--approval-mode", "yolo"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.failed", "tool.requested", "tool.failed", "run.finished", "session.ended"}},
			{name: "a file write", script: "write1", args: []string{"--approval-mode", "auto_edit"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a refusal", script: "remove", args: []string{"--approval-mode", "yolo"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.denied", "run.finished", "session.ended"}},
			{name: "answered and commanded from afar", remote: true, wrap: []string{"--hold", "60s", "--gate", "run_shell*"}, play: fromAfar, check: checkBy("control"), want: []string{
				"session.started",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.completed", "run.finished",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.failed", "run.finished",
				"run.started", "run.cancelled", "session.ended"},
				shows: map[string]string{"answerable": "with --gate: allow, and deny with a reason", "cancel": "Esc", "pause": "by signals, and resumed"}},
			{name: "answered at the screen", play: atTheScreen("Allow execution", "1", "\x1b", "run.cancelled"), check: checkBy("user", "user"), want: []string{
				"session.started",
				"run.started", "tool.requested", "tool.completed", "run.finished",
				"run.started", "tool.requested", "tool.failed", "run.cancelled",
				"run.started", "run.cancelled", "session.ended"}},
			{name: "instructed from afar", remote: true, wrap: []string{"--allow", "instruct"}, play: instructed, want: []string{
				"session.started", "run.started", "run.finished", "run.started", "run.finished", "session.ended"},
				shows: map[string]string{"instruct": "with the next prompt, or after a tool"}},
			{name: "cancelled headless", script: "slowtext", remote: true, args: []string{"--approval-mode", "yolo"}, play: cancelled, check: checkBy("control"), want: []string{
				"session.started", "run.started", "run.cancelled", "session.ended"},
				shows: map[string]string{"cancel": "headless: SIGINT to all its processes"}},
		},
		missing: []string{"its own dialog cannot be answered from afar", "why a turn failed", "what the agent says"},
	})
}
