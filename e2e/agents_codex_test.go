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

[tui]
screen_reader_detection_done = true

[tui.model_availability_nux]
"gpt-6.1-sol" = 4
`)
		},
		env:   func(*world) []string { return []string{"MOCK_KEY=" + apiKey} },
		print: func(prompt string) []string { return []string{"exec", "--skip-git-repo-check", prompt} },
		tui:   nil,
		ready: "Ask Codex to do anything",
		exit:  "/quit",
		scenes: []scene{
			{name: "a tool call", script: "safe", want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a failing tool", script: "fail", want: []string{
				"session.started", "run.started", "tool.requested", "tool.failed", "tool.requested", "tool.failed", "run.finished", "session.ended"}},
			{name: "a file write", script: "write1", args: []string{"-s", "workspace-write"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a refusal", script: "bash1", want: []string{
				"session.started", "run.started", "tool.requested", "tool.denied", "run.finished", "session.ended"}},
			{name: "answered and commanded from afar", remote: true, wrap: []string{"--hold", hold}, play: fromAfar, check: checkBy("control"), want: []string{
				"session.started",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.completed", "run.finished",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.failed", "run.finished",
				"run.started", "run.cancelled", "session.ended"},
				shows: map[string]string{"answerable": "allow, and deny with a reason; its dialog is locked for the 8 s of the hold", "cancel": "Esc", "pause": "by signals, and resumed"}},
			{name: "answered at the screen", play: atTheScreen("Would you like to run", "y", "\x1b", "run.cancelled"), check: checkBy("user", "user"), want: []string{
				"session.started",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.completed", "run.finished",
				"run.started", "tool.requested", "attention.requested", "attention.resolved", "tool.failed", "run.cancelled",
				"run.started", "run.cancelled", "session.ended"}},
			{name: "dual: answered and commanded from afar", remote: true, wrap: []string{"--dual"}, play: fromAfar, check: checkBy("control"), want: []string{
				"session.started",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.completed", "run.finished",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.failed", "run.finished",
				"run.started", "run.cancelled", "session.ended"},
				shows: map[string]string{"answerable": "with --dual: allow and deny, beside its own dialog", "cancel": "with --dual: by its server's interrupt"}},
			{name: "dual: answered at the screen", remote: true, wrap: []string{"--dual"}, play: atTheScreen("Would you like to run", "y", "\x1b", "run.cancelled"), check: checkBy("user", "user"), want: []string{
				"session.started",
				"run.started", "tool.requested", "attention.requested", "attention.resolved", "tool.completed", "run.finished",
				"run.started", "tool.requested", "attention.requested", "attention.resolved", "tool.failed", "run.cancelled",
				"run.started", "run.cancelled", "session.ended"}},
			{name: "instructed from afar", remote: true, wrap: []string{"--allow", "instruct"}, play: instructed, want: []string{
				"session.started", "run.started", "run.finished", "run.started", "run.finished", "session.ended"},
				shows: map[string]string{"instruct": "with the next prompt, or around a tool"}},
			{name: "cancelled headless", script: "slowtext", remote: true, play: cancelled, check: checkBy("control"), want: []string{
				"session.started", "run.started", "run.cancelled", "session.ended"},
				shows: map[string]string{"cancel": "headless: SIGINT"}},
		},
		missing: []string{"what goes on in the background after its turn was interrupted", "web searches, plans and what the agent says", "a prompt typed while a turn runs"},
	})
}
