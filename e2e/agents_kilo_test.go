package e2e

import "strconv"

func init() {
	agentCases = append(agentCases, agentCase{
		adapter: "kilocode",
		program: program{command: "kilo", npm: "@kilocode/cli", version: "7.7.7", finish: []string{"node", "postinstall.mjs"}},
		files: func(w *world) {
			w.write(".config/kilo/kilo.json", `{
 "model": "mock/mock-model",
 "small_model": "mock/mock-model",
 "autoupdate": false,
 "share": "disabled",
 "permission": {"bash": {"*": "ask", "ls *": "allow", "exit *": "allow"}, "edit": "allow"},
 "provider": {
  "mock": {
   "npm": "@ai-sdk/openai-compatible",
   "name": "Mock",
   "options": {"baseURL": `+strconv.Quote(w.url+"/v1")+`, "apiKey": "`+apiKey+`"},
   "models": {"mock-model": {"name": "Mock", "limit": {"context": 100000, "output": 4000}}}
  }
 }
}
`)
		},
		env: func(*world) []string {
			return []string{"KILO_DISABLE_MODELS_FETCH=1", "KILO_DISABLE_AUTOUPDATE=1", "KILO_DISABLE_LSP_DOWNLOAD=1"}
		},
		print:  func(prompt string) []string { return []string{"run", prompt} },
		ready:  "Ask anything",
		exit:   "/exit",
		either: true,
		owns:   []string{".config/kilo/"},
		scenes: []scene{
			{name: "a tool call", script: "safe", wrap: []string{"--attach", "new"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a failing tool", script: "fail", wrap: []string{"--attach", "new"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.failed", "tool.requested", "tool.failed", "run.finished", "session.ended"}},
			{name: "a file write", script: "write1", wrap: []string{"--attach", "new"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a refusal", script: "bash1", wrap: []string{"--attach", "new"}, want: []string{
				"session.started", "run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.failed", "run.finished", "session.ended"}},
			{name: "answered and commanded from afar", remote: true, play: openCodeFromAfar, check: checkBy("control"), want: []string{
				"session.started",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.completed", "run.finished",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.failed", "run.finished",
				"run.started", "run.cancelled", "session.ended"},
				shows: map[string]string{"answerable": "once, always, and reject with a reason, beside its own dialog; questions as forms", "cancel": "by its server's abort", "pause": "by signals, and resumed"}},
			{name: "answered at the screen", play: openCodeAtTheScreen, check: checkBy("user"), want: []string{
				"session.started",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.completed", "run.finished",
				"run.started", "run.cancelled", "session.ended"}},
		},
		missing: []string{"what `kilo run` asks is refused by itself, at once", "the text of a prompt", "instruct"},
	})
}
