package e2e

func init() {
	agentCases = append(agentCases, agentCase{
		adapter: "kilocode",
		program: program{command: "kilo", npm: "@kilocode/cli", version: "7.7.7", finish: []string{"node", "postinstall.mjs"}},
		files: func(w *world) {
			w.write(".config/kilo/kilo.json", openCodeSettings(w, ""))
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
