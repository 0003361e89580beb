package gemini

import (
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// commandLine is how Gemini CLI is started.
var commandLine = adapters.CommandLine{
	Commands: []string{"gemini"},
	Packages: []string{"@google/gemini-cli"},
	Grammar: adapters.Grammar{
		Valued: []string{
			"-m", "--model", "-p", "--prompt", "-i", "--prompt-interactive", "--approval-mode", "--session-file", "--session-id",
			"--delete-session", "-o", "--output-format",
		},
		Variadic: []string{
			"--policy", "--admin-policy", "--allowed-mcp-server-names", "--allowed-tools", "-e", "--extensions", "--include-directories",
		},
		Optional: []string{"-r", "--resume", "-w", "--worktree"},
	},
	Idle: []string{"mcp", "extensions", "extension", "skills", "skill", "hooks", "hook", "gemma"},
	Asks: []string{"-h", "--help", "-v", "--version", "-l", "--list-extensions", "--list-sessions", "--delete-session"},
}

// homeVar names the folder that holds .gemini, in the user's home's place.
const homeVar = "GEMINI_CLI_HOME"

// extension is the name of the extension that brings our hooks.
const extension = "aep-wrap"

// Wire shows Gemini CLI the user's home by links, with an extension of ours
// among the user's that has our hooks.
func Wire(l adapters.Launch, e adapters.Endpoint) (adapters.Wiring, error) {
	out, words, at, session := commandLine.Begin(l)
	if !session {
		return out, nil
	}
	base, _ := l.Getenv(homeVar)
	if base == "" {
		base = l.Home
	}
	if why := noHooks(l, e, words, base); why != "" {
		out.Notes = []string{"gemini: " + why + "; its hooks are not installed"}
		if words.Value("-o", "--output-format") == "stream-json" {
			out.Stdout = adapters.Stream
		}
		return out, nil
	}
	const home, dot = "gemini", "gemini/.gemini"
	ours := dot + "/extensions/" + extension
	g := gateOf(l, words)
	out.Files = map[string][]byte{
		ours + "/gemini-extension.json": []byte(`{"name":"` + extension + `","version":"1.0.0"}` + "\n"),
		ours + "/hooks/hooks.json":      append(event.AppendValue(nil, map[string]any{"hooks": hooksOf(l, e, g)}), '\n'),
	}
	var flags []string
	if words.Has("-e", "--extensions") {
		// The user names the extensions to use: ours is one more.
		flags = append(flags, "--extensions="+extension)
	}
	if len(g.tools) > 0 {
		out.Files[policyFile] = g.policy()
		flags = append(flags, "--policy="+path.Join(e.Dir, policyFile))
		// Ours would take the place of the user's own, unless those are given too.
		if !words.Has("--policy") {
			for _, p := range policies(l, base) {
				flags = append(flags, "--policy="+p)
			}
		}
	}
	out.Notes = append(out.Notes, g.notes...)
	if flags != nil {
		out.Args = slices.Concat(l.Args[:at], flags, l.Args[at:])
	}
	out.Overlays = []adapters.Overlay{
		{Dir: dot + "/extensions", Of: path.Join(base, ".gemini", "extensions")},
		{Dir: dot, Of: path.Join(base, ".gemini"), Make: []string{"tmp", "history"}},
		{Dir: home, Of: base, Only: []string{".agents", ".env"}},
	}
	out.SetEnv = map[string]string{homeVar: path.Join(e.Dir, home)}
	if e.Socket != "" {
		out.SetEnv["AEP_HOOK_SOCKET"] = e.Socket
	}
	return out, nil
}

// noHooks says why no hook of ours would run; "" is that they will.
func noHooks(l adapters.Launch, e adapters.Endpoint, w adapters.Line, base string) string {
	sandbox, _ := l.Getenv("GEMINI_SANDBOX")
	switch {
	case len(e.Helper) == 0:
		return "there is nothing for hooks to report to"
	case !path.IsAbs(base):
		return "there is no home to show it"
	case w.Has("-s", "--sandbox"), sandbox != "" && sandbox != "false" && sandbox != "0":
		return "a sandbox cannot see what a launch adds to its home"
	case slices.ContainsFunc(slices.Concat(w.Flags["-e"], w.Flags["--extensions"]), func(v string) bool { return strings.EqualFold(v, "none") }):
		return "-e none turns extensions off, by which hooks are brought"
	}
	if l.ReadFile == nil {
		return ""
	}
	enabled := any(nil)
	for _, p := range settingsFiles(l, base) {
		raw, err := l.ReadFile(p)
		if err != nil {
			continue
		}
		// Settings may have comments, which leave the word to be seen.
		if strings.Contains(string(raw), `"allowedExtensions"`) {
			return "settings allow listed extensions only (security.allowedExtensions), by which hooks are brought"
		}
		o, _ := adapters.Settings(raw)
		if c, _ := o["hooksConfig"].(map[string]any); c["enabled"] != nil {
			enabled = c["enabled"]
		}
		if t, _ := o["tools"].(map[string]any); t["sandbox"] != nil && t["sandbox"] != false {
			return "settings ask for a sandbox (tools.sandbox), which cannot see what a launch adds to its home"
		}
	}
	if enabled == false {
		return "settings disable hooks (hooksConfig.enabled)"
	}
	return ""
}

// settingsFiles are the settings, the weakest first.
func settingsFiles(l adapters.Launch, base string) []string {
	system, _ := l.Getenv("GEMINI_CLI_SYSTEM_SETTINGS_PATH")
	if system == "" {
		system = systemDir() + "/settings.json"
	}
	defaults, _ := l.Getenv("GEMINI_CLI_SYSTEM_DEFAULTS_PATH")
	if defaults == "" {
		defaults = path.Join(path.Dir(system), "system-defaults.json")
	}
	return []string{defaults, path.Join(base, ".gemini", "settings.json"), path.Join(l.Dir, ".gemini", "settings.json"), system}
}

func systemDir() string {
	if runtime.GOOS == "darwin" {
		return "/Library/Application Support/GeminiCli"
	}
	return "/etc/gemini-cli"
}

type hooked struct {
	name      string
	onRequest bool
}

// installed are the hooks that are installed; those on request come for who
// asks for them in AEP_HOOKS. AfterModel would hold every chunk up.
var installed = []hooked{
	{"SessionStart", false}, {"SessionEnd", false}, {"BeforeAgent", false}, {"AfterAgent", false},
	{"BeforeTool", false}, {"AfterTool", false}, {"Notification", false}, {"PreCompress", false},
	{"BeforeModel", true}, {"BeforeToolSelection", true},
}

// timeout is how long a hook may take.
const timeout = 10 * time.Second

func hooksOf(l adapters.Launch, e adapters.Endpoint, g gate) map[string]any {
	all := map[string]any{}
	for _, h := range installed {
		if h.onRequest && !l.Wants(h.name) {
			continue
		}
		entry := func(command string, within time.Duration) map[string]any {
			return map[string]any{"hooks": []any{map[string]any{"type": "command", "name": extension, "command": command, "timeout": within.Milliseconds()}}}
		}
		all[h.name] = []any{entry(e.HelperCommand(h.name, timeout), timeout)}
		if h.name == "BeforeTool" && len(l.Gate) > 0 {
			within := adapters.Outlast(l.Both, timeout)
			command := e.HelperCommand(h.name, within)
			held := entry(command, within)
			all[h.name] = []any{held}
			if len(g.tools) > 0 {
				strict := entry(g.strict(command), within)
				strict["matcher"] = "^" + g.matcher() + "$"
				held["matcher"] = "^(?!" + g.matcher() + "$)"
				all[h.name] = []any{held, strict}
			}
		}
	}
	return all
}
