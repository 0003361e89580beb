package codex

import (
	"path"
	"slices"
	"strings"

	"aep-wrap/adapters"
	"aep-wrap/adapters/hook"
	"aep-wrap/event"
)

// checks: Codex itself says which hooks of a launch it would run. A profile
// speaks only in launches that name it, and a hook that was switched off in
// its list of hooks stays off.
var checks = []adapters.Check{
	{
		Name:  "hook list",
		Files: func(l adapters.Launch) []string { return []string{path.Join(home(l), "config.toml")} },
		Found: func(_ adapters.Launch, files map[string][]byte) string {
			for file, raw := range files {
				if names := switchedOff(string(raw)); names != nil {
					return "switched off one by one (hooks.state … enabled = false) in " + file + ": " + strings.Join(names, ", ")
				}
			}
			return ""
		},
		Fix: "switch them on in /hooks of a wrapped codex, or take these hooks.state tables out",
	},
	{
		Name:  "profile",
		Files: func(l adapters.Launch) []string { return []string{profile(l, "*")} },
		Found: func(_ adapters.Launch, files map[string][]byte) string {
			var found []string
			for file, raw := range files {
				if name, value := feature(string(raw)); value == "false" {
					found = append(found, "features."+name+" in "+file)
				}
			}
			slices.Sort(found)
			if found == nil {
				return ""
			}
			return "a profile disables hooks: " + strings.Join(found, ", ")
		},
		Fix:  "change it there, or start codex without that profile",
		Here: true,
	},
	{
		Name:  "hook trust",
		Waits: true,
		Ask: func(l adapters.Launch, w adapters.Wiring) ([]string, string) {
			return append(slices.Clone(w.Args), "app-server"), string(slices.Concat(
				call("hello", "initialize", server.Hello[0].Body), []byte("\n"), server.Hello[1].Body, []byte("\n"),
				call("hooks", "hooks/list", event.AppendValue(nil, map[string]any{"cwds": []any{l.Dir}})), []byte("\n")))
		},
		Heard: func(line string) (what string, done bool) {
			o, err := event.ParseObject([]byte(line))
			if err != nil || o["id"] != "hooks" {
				return "", false
			}
			result, _ := o["result"].(map[string]any)
			if result == nil {
				return "this version cannot say which hooks it trusts (hooks/list)", true
			}
			return untrusted(result), true
		},
		Fix: "look for features.hooks in its config files and profiles; after an update of codex, update aep-wrap",
	},
}

// switchedOff are the hooks of ours that the user switched off.
func switchedOff(raw string) (names []string) {
	for _, h := range installed {
		if setting(raw, "hooks.state."+quoted(hookKey(h)), "enabled") == "false" {
			names = append(names, h.name)
		}
	}
	return names
}

// untrusted says what an answer to hooks/list has against our hooks.
func untrusted(result map[string]any) string {
	state := map[string]string{} // by the hook's key
	data, _ := result["data"].([]any)
	for _, d := range data {
		of, _ := d.(map[string]any)
		list, _ := of["hooks"].([]any)
		for _, x := range list {
			h, _ := x.(map[string]any)
			key, _ := h["key"].(string)
			trust, _ := h["trustStatus"].(string)
			if on, _ := h["enabled"].(bool); !on {
				trust = "disabled"
			}
			state[key] = trust
		}
	}
	by := map[string][]string{}
	for _, h := range installed {
		if s := state[hookKey(h)]; !h.onRequest && s != "trusted" {
			by[s] = append(by[s], h.name)
		}
	}
	for _, s := range []string{"", "untrusted", "modified", "disabled"} {
		what := map[string]string{"": "it does not know", "untrusted": "it does not trust", "modified": "it does not trust", "disabled": "it has switched off"}[s]
		if by[s] != nil {
			return what + " our hooks for " + strings.Join(by[s], ", ")
		}
	}
	for s, names := range by {
		return "our hooks for " + strings.Join(names, ", ") + " are " + s
	}
	return ""
}

// hookKey is what Codex calls a hook of ours.
func hookKey(h hooked) string { return "/<session-flags>/config.toml:" + hook.Snake(h.name) + ":0:0" }

func call(id, method string, params []byte) []byte {
	return []byte(`{"jsonrpc":"2.0","id":` + quoted(id) + `,"method":` + quoted(method) + `,"params":` + string(params) + `}`)
}
