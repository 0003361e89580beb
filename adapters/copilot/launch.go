package copilot

import (
	"path"
	"slices"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// commandLine is how Copilot is started.
var commandLine = adapters.CommandLine{
	Commands: []string{"copilot"},
	Packages: []string{"@github/copilot"},
	Grammar: adapters.Grammar{
		Valued: []string{
			"-i", "--interactive", "-p", "--prompt", "--model", "--reasoning-effort", "--context", "--auto-tier", "--agent", "-n", "--name",
			"--session-id", "-C", "--log-dir", "--extension-sdk-path", "--log-level", "--stream", "--output-format", "--add-dir", "--attachment",
			"--disable-mcp-server", "--enable-mcp-server", "--add-github-mcp-toolset", "--add-github-mcp-tool", "--plugin-dir",
			"--additional-mcp-config", "--mcp-github-auth", "--max-autopilot-continues", "--mode", "--environment-host",
			"--environment-compute-id", "--dynamic-retrieval", "--max-ai-credits", "--usage-output-file",
		},
		Variadic: []string{
			"--allow-tool", "--deny-tool", "--available-tools", "--excluded-tools", "--secret-env-vars", "--allow-url", "--deny-url",
		},
		Optional: []string{"-r", "--resume", "--connect", "--share", "--bash-env", "--mouse"},
	},
	Idle: []string{
		"app", "login", "help", "init", "config", "update", "version", "workflow", "sessions", "memories", "plugin", "mcp", "skill",
		"instruction", "lsp", "sandbox", "completion",
	},
	Asks: []string{"-h", "--help", "-v", "--version"},
}

// homeVar names the folder of Copilot's files.
const homeVar = "COPILOT_HOME"

// plugin is the folder of the plugin that brings our hooks.
const plugin = "copilot"

// Wire gives Copilot a plugin of ours, whose hooks run beside the user's.
func Wire(l adapters.Launch, e adapters.Endpoint) (adapters.Wiring, error) {
	out, words, at, session := commandLine.Begin(l)
	if !session {
		return out, nil
	}
	if why := noHooks(l, e, words); why != "" {
		out.Notes = []string{"copilot: " + why + "; its hooks are not installed"}
		if words.Value("--output-format") == "json" {
			out.Stdout = adapters.Stream
		}
		return out, nil
	}
	out.Args = append(append(slices.Clone(l.Args[:at]), "--plugin-dir", path.Join(e.Dir, plugin)), l.Args[at:]...)
	out.Files = map[string][]byte{
		plugin + "/plugin.json": []byte(`{"name":"aep-wrap","version":"1.0.0","hooks":"hooks.json"}` + "\n"),
		plugin + "/hooks.json":  append(event.AppendValue(nil, map[string]any{"version": 1, "hooks": hooksOf(l, e)}), '\n'),
	}
	if e.Socket != "" {
		out.SetEnv = map[string]string{"AEP_HOOK_SOCKET": e.Socket}
	}
	out.LogRoot, _ = l.Getenv(homeVar)
	if out.LogRoot == "" {
		out.LogRoot = path.Join(l.Home, ".copilot")
	}
	return out, nil
}

// noHooks says why no hook of ours would run; "" is that they will.
func noHooks(l adapters.Launch, e adapters.Endpoint, w adapters.Line) string {
	switch {
	case len(e.Helper) == 0 || e.Dir == "":
		return "there is nothing for hooks to report to"
	case w.Has("--connect"), w.Has("--environment-host"):
		return "the session is another process's"
	case l.ReadFile == nil:
		return ""
	}
	if raw, err := l.ReadFile(policy); err == nil {
		if o, err := adapters.Settings(raw); err == nil && o["allowManagedHooksOnly"] == true {
			return policy + " allows managed hooks only (allowManagedHooksOnly)"
		}
	}
	return ""
}

// policy is what an administrator gives.
const policy = "/etc/github-copilot/managed-settings.json"

type hooked struct {
	name    string
	waits   bool // may be held for an answer
	timeout int  // seconds
}

// installed are the hooks that are installed. A hook that is cut off lets the
// tool run; one that fails forbids it.
var installed = []hooked{
	{"sessionStart", false, 10}, {"sessionEnd", false, 10}, {"userPromptSubmitted", false, 10}, {"agentStop", false, 10},
	{"preToolUse", true, 10}, {"postToolUse", false, 10}, {"postToolUseFailure", false, 10}, {"errorOccurred", false, 10},
	{"notification", false, 10}, {"subagentStart", false, 10}, {"subagentStop", false, 10},
}

// margin is what a hook may take beyond its hold, in seconds.
const margin = 10

func hooksOf(l adapters.Launch, e adapters.Endpoint) map[string]any {
	all := map[string]any{}
	for _, h := range installed {
		timeout := h.timeout
		if h.waits && len(l.Gate) > 0 {
			timeout = max(timeout, int(l.Hold.Seconds())+margin)
			timeout = max(timeout, int(l.Both.Seconds())+margin)
		}
		// Copilot takes a command that fails for a refusal: also one that is
		// no longer there.
		all[h.name] = []any{map[string]any{"type": "command", "bash": e.HelperCommand(h.name, time.Duration(timeout)*time.Second) + " || exit 0", "timeoutSec": timeout}}
	}
	return all
}
