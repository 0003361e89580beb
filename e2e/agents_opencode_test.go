package e2e

import "strconv"

func init() {
	agentCases = append(agentCases, agentCase{
		adapter: "opencode",
		program: program{command: "opencode", npm: "opencode-ai", version: "1.18.33", finish: []string{"node", "postinstall.mjs"}},
		files: func(w *world) {
			w.write(".config/opencode/opencode.json", openCodeSettings(w, `
 "$schema": "https://opencode.ai/config.json",`))
			// At its first start OpenCode installs a package for plugins; not where
			// it seems to be there.
			plugin := `{"dependencies": {"@opencode-ai/plugin": "1.18.33"}`
			w.write(".config/opencode/package.json", plugin+"}")
			w.write(".config/opencode/package-lock.json", `{"lockfileVersion": 3, "packages": {"": `+plugin+"}}}")
			w.write(".config/opencode/node_modules/.keep", "")
		},
		env: func(*world) []string {
			return []string{"OPENCODE_DISABLE_MODELS_FETCH=1", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_LSP_DOWNLOAD=1"}
		},
		print:   func(prompt string) []string { return []string{"run", prompt} },
		tui:     nil,
		ready:   "Ask anything",
		exit:    "/exit",
		either:  true,
		scenes:  openCodeScenes,
		missing: []string{"what `opencode run` asks is refused by itself, at once", "the text of a prompt", "instruct"},
	})
}

// openCodeSettings are those by which OpenCode, or its fork, asks the mock model.
// OpenCode writes its schema in front of them where it is not there.
func openCodeSettings(w *world, schema string) string {
	return `{` + schema + `
 "model": "mock/mock-model",
 "small_model": "mock/mock-model",
 "autoupdate": false,
 "share": "disabled",
 "permission": {"bash": {"*": "ask", "ls *": "allow", "exit *": "allow"}, "edit": "allow"},
 "provider": {
  "mock": {
   "npm": "@ai-sdk/openai-compatible",
   "name": "Mock",
   "options": {"baseURL": ` + strconv.Quote(w.url+"/v1") + `, "apiKey": "` + apiKey + `"},
   "models": {"mock-model": {"name": "Mock", "limit": {"context": 100000, "output": 4000}}}
  }
 }
}
`
}

// openCodeScenes are those of OpenCode and of its fork.
var openCodeScenes = []scene{
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
}

func openCodeFromAfar(s *stage) { fromAfarBy(s, "once", "reject") }

func openCodeAtTheScreen(s *stage) {
	s.ask("bash1")
	s.press("Permission required", "\r")
	s.told("run.finished", 1)
	s.ask("slowtext")
	s.see("slow words")
	escTwice(s, func() { s.see("again to interrupt") })
}
