package gemini

import (
	"path"

	"aep-wrap/adapters"
)

// checks: in a folder that is not trusted Gemini runs no hooks.
var checks = []adapters.Check{{
	Name: "folder trust",
	Files: func(l adapters.Launch) []string {
		return append(settingsFiles(l, geminiHome(l)), path.Join(geminiHome(l), ".gemini", trusted))
	},
	Found: func(l adapters.Launch, files map[string][]byte) string {
		if v, _ := l.Getenv("GEMINI_CLI_TRUST_WORKSPACE"); v == "true" {
			return ""
		}
		for name, raw := range files {
			o, _ := adapters.Settings(raw)
			if path.Base(name) == trusted {
				if adapters.Trusted(l.Dir, o) {
					return ""
				}
				continue
			}
			security, _ := o["security"].(map[string]any)
			if t, _ := security["folderTrust"].(map[string]any); t["enabled"] == false {
				return ""
			}
		}
		return "this folder is not trusted: no hook runs in it"
	},
	Fix:  "start gemini here and trust the folder, or give --skip-trust",
	Here: true,
}}

const trusted = "trustedFolders.json"

func geminiHome(l adapters.Launch) string {
	if base, _ := l.Getenv(homeVar); base != "" {
		return base
	}
	return l.Home
}
