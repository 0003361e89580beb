package qwen

import (
	"path"
	"slices"
	"strings"

	"aep-wrap/adapters"
)

// truthy: what Qwen Code takes for a yes in a variable.
func truthy(l adapters.Launch, name string) bool {
	v, _ := l.Getenv(name)
	return slices.Contains([]string{"1", "true", "yes", "on"}, strings.ToLower(strings.TrimSpace(v)))
}

// trusts says whether the settings of the launch's folder count: all folders'
// do, unless the user wants to trust folders one by one (folderTrust).
func trusts(l adapters.Launch, home string, get func(string) map[string]any, settings ...map[string]any) bool {
	asked := false
	for _, o := range settings {
		security, _ := o["security"].(map[string]any)
		trust, _ := security["folderTrust"].(map[string]any)
		if b, ok := trust["enabled"].(bool); ok {
			asked = b
		}
	}
	if !asked {
		return true
	}
	file, _ := l.Getenv("QWEN_CODE_TRUSTED_FOLDERS_PATH")
	if file == "" {
		file = path.Join(home, "trustedFolders.json")
	}
	return adapters.Trusted(l.Dir, get(file))
}
