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
		print:   func(prompt string) []string { return []string{"run", prompt} },
		ready:   "Ask anything",
		exit:    "/exit",
		either:  true,
		owns:    []string{".config/kilo/"},
		scenes:  openCodeScenes,
		missing: []string{"what `kilo run` asks is refused by itself, at once", "the text of a prompt", "instruct"},
	})
}
