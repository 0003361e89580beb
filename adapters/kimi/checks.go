package kimi

import (
	"strings"

	"aep-wrap/adapters"
)

// checks: one fault in the user's hooks, and Kimi Code passes over all hooks of
// the file, ours with them. It says itself what it makes of the file.
var checks = []adapters.Check{{
	Name: "config.toml",
	Ask: func(_ adapters.Launch, w adapters.Wiring) ([]string, string) {
		return []string{"kimi", "doctor", "config", stdin}, string(w.Files[home+"/"+config])
	},
	Heard: func(line string) (what string, done bool) {
		word := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(word, "OK "+config):
			return "", true
		case strings.HasPrefix(word, "Invalid TOML"):
			_, why, _ := strings.Cut(word, stdin+": ")
			return "Kimi Code cannot read your config.toml with our hooks after it: " + why, true
		case strings.HasPrefix(word, "hooks[") || strings.HasPrefix(word, "hooks:"):
			return "Kimi Code passes over all hooks of your config.toml, and ours with them: " + word, true
		}
		return "", false
	},
	Fix: "mend the hook in the config.toml of your Kimi Code folder (~/.kimi-code, or KIMI_CODE_HOME): kimi doctor",
}}

// stdin is a path by which a file is asked about that is nowhere else.
const stdin = "/dev/stdin"
