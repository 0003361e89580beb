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
		scenes: []scene{
			{name: "a tool call", script: "safe", args: []string{"--approval-mode", "yolo"}, same: true, want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a failing tool", script: "fail", args: []string{"--approval-mode", "yolo"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.failed", "tool.requested", "tool.failed", "run.finished", "session.ended"}},
			{name: "a file write", script: "write1", args: []string{"--approval-mode", "auto-edit"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a refusal", script: "bash1", want: []string{
				"session.started", "run.started", "tool.requested", "tool.denied", "run.finished", "session.ended"}},
		},
		missing: []string{"answers from afar were seen by hand only", "a cancel from afar stops the run, and is not always seen to have", "who interrupted a turn", "what the agent says, but for the last message of a turn"},
	})
}
