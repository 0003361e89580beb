package claudecode

import (
	"path"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// checks: drop-in files of the policy are read by no launch, for it cannot list
// a folder.
var checks = []adapters.Check{{
	Name: "policy",
	Files: func(adapters.Launch) []string {
		return []string{path.Join(policyDir(), "managed-settings.d", "*.json")}
	},
	Found: func(_ adapters.Launch, files map[string][]byte) string {
		for name, raw := range files {
			if o, err := event.ParseObject(raw); err == nil {
				if why := (settings{policy: []map[string]any{o}, user: []map[string]any{nil}}).noHooks(); why != "" {
					return why + " in " + name
				}
			}
		}
		return ""
	},
	Fix: "ask whoever manages the policy; without hooks only its log and output are observed",
}}
