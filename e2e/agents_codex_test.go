package e2e

import "strconv"

func init() {
	agentCases = append(agentCases, agentCase{
		adapter: "codex",
		program: program{command: "codex", npm: "@openai/codex", version: "0.171.0"},
		files: func(w *world) {
			w.write(".codex/config.toml", `model = "gpt-5.1-codex"
model_provider = "mock"

[model_providers.mock]
name = "mock"
base_url = `+strconv.Quote(w.url+"/v1")+`
wire_api = "responses"
env_key = "MOCK_KEY"

[projects.`+strconv.Quote(w.dir())+`]
trust_level = "trusted"
`)
		},
		env:   func(*world) []string { return []string{"MOCK_KEY=" + apiKey} },
		print: func(prompt string) []string { return []string{"exec", "--skip-git-repo-check", prompt} },
		scenes: []scene{
			{name: "a tool call", script: "safe", want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a failing tool", script: "fail", want: []string{
				"session.started", "run.started", "tool.requested", "tool.failed", "tool.requested", "tool.failed", "run.finished", "session.ended"}},
			{name: "a file write", script: "write1", args: []string{"-s", "workspace-write"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a refusal", script: "bash1", want: []string{
				"session.started", "run.started", "tool.requested", "tool.denied", "run.finished", "session.ended"}},
		},
	})
}
