package e2e

import "strconv"

func init() {
	agentCases = append(agentCases, agentCase{
		adapter: "kimi-code",
		program: program{command: "kimi", npm: "@moonshot-ai/kimi-code", version: "2.1.0", node: 22},
		files: func(w *world) {
			w.write(".kimi-code/config.toml", "# The user's own.\n[[hooks]]\nevent = \"Stop\"\ncommand = "+strconv.Quote("echo stop >> "+w.home()+"/users-hook.log")+"\n")
		},
		env: func(w *world) []string {
			return []string{"KIMI_MODEL_NAME=mock-model", "KIMI_MODEL_API_KEY=" + apiKey, "KIMI_MODEL_PROVIDER_TYPE=openai", "KIMI_MODEL_BASE_URL=" + w.url + "/v1"}
		},
		print: func(prompt string) []string { return []string{"-p", prompt} },
		scenes: []scene{
			{name: "a tool call", script: "safe", same: true, want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a failing tool", script: "fail", want: []string{
				"session.started", "run.started", "tool.requested", "tool.failed", "tool.requested", "tool.failed", "run.finished", "session.ended"}},
			{name: "a file write", script: "write1", want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
		},
	})
}
