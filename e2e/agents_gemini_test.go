package e2e

func init() {
	agentCases = append(agentCases, agentCase{
		adapter: "gemini-cli",
		program: program{command: "gemini", npm: "@google/gemini-cli", version: "0.61.0"},
		files: func(w *world) {
			w.write(".gemini/settings.json", `{"security":{"auth":{"selectedType":"gemini-api-key"}},"general":{"enableAutoUpdate":false},"privacy":{"usageStatisticsEnabled":false}}`+"\n")
			w.write(".gemini/trustedFolders.json", `{"`+w.dir()+`":"TRUST_FOLDER"}`+"\n")
			w.write(".gemini/policies/own.toml", "[[rule]]\ntoolName = \"run_shell_command\"\ncommandPrefix = \"touch\"\ndecision = \"deny\"\npriority = 100\n")
			w.write(".gemini/GEMINI.md", "Answer briefly.\n")
		},
		env: func(w *world) []string {
			return []string{"GOOGLE_GEMINI_BASE_URL=" + w.url, "GEMINI_API_KEY=" + apiKey, "GEMINI_CLI_NO_RELAUNCH=true"}
		},
		print: func(prompt string) []string { return []string{"-m", "gemini-2.5-flash", "-p", prompt} },
		scenes: []scene{
			{name: "a tool call", script: "safe", args: []string{"--approval-mode", "yolo"}, same: true, want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a failing tool", script: "fail", args: []string{"--approval-mode", "yolo"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.failed", "tool.requested", "tool.failed", "run.finished", "session.ended"}},
			{name: "a file write", script: "write1", args: []string{"--approval-mode", "auto_edit"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a refusal", script: "bash1", args: []string{"--approval-mode", "yolo"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.denied", "run.finished", "session.ended"}},
		},
	})
}
