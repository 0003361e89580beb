package qwen

import (
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// commandLine is how Qwen Code is started.
var commandLine = adapters.CommandLine{
	Commands: []string{"qwen"},
	Packages: []string{"@qwen-code/qwen-code"},
	Grammar: adapters.Grammar{
		Valued: []string{
			"--telemetry-target", "--telemetry-otlp-endpoint", "--telemetry-otlp-protocol", "--telemetry-outfile", "--proxy", "-m", "--model",
			"-p", "--prompt", "-i", "--prompt-interactive", "--system-prompt", "--append-system-prompt", "--output-style", "--sandbox-image",
			"--approval-mode", "--channel", "--mcp-config", "--openai-logging-dir", "--openai-api-key", "--openai-base-url", "--input-format",
			"-o", "--output-format", "--json-fd", "--json-file", "--json-schema", "--input-file", "--session-id", "--max-session-turns",
			"--max-wall-time", "--max-tool-calls", "--max-subagent-depth", "--auth-type",
		},
		Variadic: []string{
			"--fallback-model", "--allowed-mcp-server-names", "--allowed-tools", "-e", "--extensions", "--include-directories", "--add-dir",
			"--core-tools", "--exclude-tools", "--disabled-slash-commands",
		},
		Optional: []string{"-r", "--resume", "--worktree"},
	},
	Idle: []string{"auth", "board", "channel", "extensions", "hooks", "mcp", "review", "sandbox", "serve", "sessions", "update"},
	Asks: []string{"-h", "--help", "-v", "--version", "-l", "--list-extensions"},
}

// defaultsVar names the settings that all others are merged over.
const defaultsVar = "QWEN_CODE_SYSTEM_DEFAULTS_PATH"

const defaultsFile = "qwen-system-defaults.json"

// Wire puts our hooks into a copy of the system's default settings, over which
// Qwen Code merges all others: lists of hooks are joined.
func Wire(l adapters.Launch, e adapters.Endpoint) (adapters.Wiring, error) {
	out, words, at, session := commandLine.Begin(l)
	if !session {
		return out, nil
	}
	if words.Value("-o", "--output-format") == "stream-json" && (!l.TTY || headless(words)) {
		out.Stdout = adapters.Stream
	}
	note := func(s string) { out.Notes = append(out.Notes, "qwen: "+s) }
	s, why := read(l)
	switch {
	case why != "":
		note(why + "; its hooks are not installed")
		return out, nil
	case truthy(l, "QWEN_CODE_SAFE_MODE"), truthy(l, "QWEN_CODE_SIMPLE"):
		note("QWEN_CODE_SAFE_MODE and QWEN_CODE_SIMPLE skip hooks; only its own output is observed")
		return out, nil
	case words.Has("--bare", "--safe-mode"):
		note("--bare and --safe-mode skip hooks; only its own output is observed")
		return out, nil
	case s.says("disableAllHooks"):
		note("its settings disable all hooks (disableAllHooks); only its own output is observed")
		return out, nil
	case len(e.Helper) == 0:
		note("there is nothing for hooks to report to; its hooks are not installed")
		return out, nil
	}
	url := e.HookURL
	if why := s.noHTTP(l, e, words); url != "" && why != "" {
		url = ""
		note(why + "; command hooks are used instead, which cost a process each")
	}
	if why := noDual(l, words); l.Dual && why != "" {
		l.Dual = false
		note(why + ": --dual changes nothing")
	}
	defaults := s.defaults
	addHooks(defaults, l, e, url)
	out.Files = map[string][]byte{defaultsFile: append(event.AppendValue(nil, defaults), '\n')}
	out.SetEnv = map[string]string{defaultsVar: path.Join(e.Dir, defaultsFile)}
	if e.Socket != "" {
		out.SetEnv["AEP_HOOK_SOCKET"] = e.Socket
	}
	if l.Dual {
		wireDual(&out, e, at)
	}
	return out, nil
}

// headless: a prompt on the command line is answered at once, without -i.
func headless(w adapters.Line) bool {
	return !w.Has("-i", "--prompt-interactive") && (w.Has("-p", "--prompt") || len(w.Words) > 0)
}

// ---- settings

// settings are what may stand in the way of our hooks, the weakest first.
type settings struct {
	defaults map[string]any
	all      []map[string]any
}

// read reads the settings; why says that the defaults, which ours must hold,
// cannot be read.
func read(l adapters.Launch) (s settings, why string) {
	system, _ := l.Getenv("QWEN_CODE_SYSTEM_SETTINGS_PATH")
	if system == "" {
		system = systemDir() + "/settings.json"
	}
	file, _ := l.Getenv(defaultsVar)
	if file == "" {
		file = path.Join(path.Dir(system), "system-defaults.json")
	}
	s.defaults = map[string]any{}
	if l.ReadFile == nil {
		return s, ""
	}
	if raw, err := l.ReadFile(file); err == nil {
		o, err := adapters.Settings(raw)
		if err != nil {
			return s, file + " is no JSON, and ours would take its place"
		}
		s.defaults = o
	}
	s.all = append(s.all, s.defaults)
	home, _ := l.Getenv("QWEN_HOME")
	if home == "" {
		home = path.Join(l.Home, ".qwen")
	}
	get := func(p string) map[string]any {
		raw, err := l.ReadFile(p)
		if err != nil {
			return nil
		}
		o, _ := adapters.Settings(raw)
		return o
	}
	users, projects, policy := get(path.Join(home, "settings.json")), get(path.Join(l.Dir, ".qwen", "settings.json")), get(system)
	if !trusts(l, home, get, s.defaults, users, policy) {
		projects = nil
	}
	s.all = append(s.all, users, projects, policy)
	return s, ""
}

func systemDir() string {
	if runtime.GOOS == "darwin" {
		return "/Library/Application Support/QwenCode"
	}
	return "/etc/qwen-code"
}

// says reads a yes or no: the strongest that says it counts.
func (s settings) says(key string) bool {
	for _, o := range slices.Backward(s.all) {
		switch v := o[key].(type) {
		case bool:
			return v
		case string: // which is as good as yes to it, whatever it says
			return v != ""
		}
	}
	return false
}

// noHTTP says why an http hook to us would not arrive.
func (s settings) noHTTP(l adapters.Launch, e adapters.Endpoint, w adapters.Line) string {
	for _, o := range s.all {
		security, _ := o["security"].(map[string]any)
		if list, _ := security["allowedHttpHookUrls"].([]any); len(list) > 0 && !slices.Contains(list, any("*")) {
			return "settings allow http hooks to listed addresses only (security.allowedHttpHookUrls)"
		}
		if p, _ := o["proxy"].(string); p != "" {
			return "settings name a proxy"
		}
	}
	if w.Has("--proxy") || l.Proxied(e.HookURL) {
		return "a proxy is set that 127.0.0.1 is not excepted from"
	}
	return ""
}

// ---- hooks

type hooked struct {
	name      string
	timeout   int // seconds
	onRequest bool
}

// installed are the hooks that are installed; those on request come for who
// asks for them in AEP_HOOKS.
var installed = []hooked{
	{"SessionStart", 10, false}, {"SessionEnd", 5, false},
	{"UserPromptSubmit", 10, false}, {"Stop", 10, false}, {"StopFailure", 10, false},
	{"PreToolUse", 10, false}, {"PostToolUse", 10, false}, {"PostToolUseFailure", 10, false}, {"PostToolBatch", 10, false},
	{permission, 10, false},
	{"SubagentStart", 10, false}, {"SubagentStop", 10, false}, {"TodoCreated", 10, false}, {"TodoCompleted", 10, false},
	{"PostCompact", 10, false}, {notification, 10, false},
	{"InstructionsLoaded", 10, true}, {"MessageDisplay", 10, true}, {"UserPromptExpansion", 10, true},
}

// Two hooks are always commands. Of two PermissionRequest hooks that answer
// without a decision Qwen Code makes a denial, and an http hook always answers;
// a command that prints nothing does not. And a Notification is waited for by
// nobody: its request was seen to leave up to half a minute late, where a
// command starts at once.
const (
	permission   = "PermissionRequest"
	notification = "Notification"
)

// within is how long a hook may take, in seconds, with the time for somebody to
// be asked in it.
func (h hooked) within(l adapters.Launch) int {
	held := time.Duration(0)
	switch {
	case h.name == permission:
		held = l.Hold
	case h.name == "PreToolUse" && len(l.Gate) > 0:
		held = l.Both
	}
	return int(adapters.Outlast(held, time.Duration(h.timeout)*time.Second).Seconds())
}

// commandTimeout writes seconds as a command's timeout: from 1000 on it is read
// as milliseconds.
func commandTimeout(seconds int) int {
	if seconds >= 1000 {
		return seconds * 1000
	}
	return seconds
}

// addHooks puts our hooks after those that the settings have.
func addHooks(settings map[string]any, l adapters.Launch, e adapters.Endpoint, url string) {
	old, _ := settings["hooks"].(map[string]any)
	all := make(map[string]any, len(old)+len(installed))
	for k, v := range old {
		all[k] = v
	}
	for _, h := range installed {
		if h.onRequest && !l.Wants(h.name) || l.Dual && h.name == permission { // its screen asks us
			continue
		}
		entry := map[string]any{"type": "http", "url": strings.Join([]string{url, name, h.name}, "/"), "timeout": h.within(l)}
		if url == "" || h.name == permission || h.name == notification {
			entry = map[string]any{"type": "command", "command": e.HelperCommand(h.name, time.Duration(h.within(l))*time.Second), "timeout": commandTimeout(h.within(l))}
		}
		list, _ := all[h.name].([]any)
		all[h.name] = append(slices.Clone(list), map[string]any{"hooks": []any{entry}})
	}
	settings["hooks"] = all
}
