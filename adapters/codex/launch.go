package codex

import (
	"crypto/sha256"
	"encoding/hex"
	"path"
	"slices"
	"strings"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/hook"
	"aep-wrap/event"
)

// commandLine is how Codex is started.
var commandLine = adapters.CommandLine{
	Commands: []string{"codex"},
	Packages: []string{"@openai/codex"},
	Grammar: adapters.Grammar{
		Valued: []string{
			"-c", "--config", "--enable", "--disable", "--remote", "--remote-auth-token-env", "-m", "--model", "--local-provider",
			"-p", "--profile", "-s", "--sandbox", "-C", "--cd", "--add-dir", "-a", "--ask-for-approval", "--thread-source",
			"--cyber-access-program", "--output-schema", "--color", "-o", "--output-last-message",
		},
		Variadic: []string{"-i", "--image"},
	},
	Idle: []string{
		"agents", "login", "logout", "mcp", "mcp-server", "plugin", "app-server", "remote-control", "completion", "update", "doctor",
		"sandbox", "debug", "apply", "a", "queue", "archive", "delete", "migrate-rollouts", "migrate-nfs-db", "unarchive", "cloud",
		"exec-server", "features", "help",
	},
	Asks: []string{"-h", "--help", "-V", "--version"},
}

// Wire gives hooks by -c before the user's words, and with them the hashes by
// which Codex trusts them: an untrusted hook is passed over.
func Wire(l adapters.Launch, e adapters.Endpoint) (adapters.Wiring, error) {
	out, words, at, session := commandLine.Begin(l)
	if !session {
		return out, nil
	}
	if why := noHooks(l, e, words); why != "" {
		out.Notes = []string{"codex: " + why + "; its hooks are not installed"}
		if headless(words) && words.Has("--json", "--experimental-json") {
			out.Stdout = adapters.Stream
		}
		return out, nil
	}
	wants := l.Dual
	l.Dual = false
	out.Args = append(append(slices.Clone(l.Args[:at]), flags(l, e)...), l.Args[at:]...)
	if e.Socket != "" {
		out.SetEnv = map[string]string{"AEP_HOOK_SOCKET": e.Socket}
	}
	if !wants {
		return out, nil
	}
	if why := noDual(l, e, words); why != "" {
		out.Notes = append(out.Notes, "codex: "+why+": --dual changes nothing")
		return out, nil
	}
	l.Dual = true
	dual(&out, l, e, words, at)
	return out, nil
}

func headless(w adapters.Line) bool { return slices.Contains([]string{"exec", "e"}, w.Word()) }

// noHooks says why no hook of ours would run; "" is that they will.
func noHooks(l adapters.Launch, e adapters.Endpoint, w adapters.Line) string {
	if len(e.Helper) == 0 {
		return "there is nothing for hooks to report to"
	}
	if w.Has("--remote") {
		return "the session is a remote app server's"
	}
	for _, kv := range slices.Concat(w.Flags["-c"], w.Flags["--config"]) {
		key, _, _ := strings.Cut(kv, "=")
		if key = strings.TrimSpace(key); key == "hooks" || strings.HasPrefix(key, "hooks.") {
			return "the command line has hooks of its own (-c " + key + "), which ours would replace"
		}
	}
	return off(l, w)
}

// home is where Codex keeps its files.
func home(l adapters.Launch) string {
	if d, _ := l.Getenv("CODEX_HOME"); d != "" {
		return d
	}
	return path.Join(l.Home, ".codex")
}

// ---- hooks

type hooked struct {
	name      string
	timeout   int64 // seconds
	onRequest bool  // only for who asks for it in AEP_HOOKS
}

// installed are the hooks that are installed. Codex cuts those of SessionEnd
// and Interrupt off after three seconds, whatever is written here.
var installed = []hooked{
	{"SessionStart", 10, false}, {"SessionEnd", 3, false}, {"UserPromptSubmit", 10, false}, {"Stop", 10, false}, {"Interrupt", 3, false},
	{"PreToolUse", 10, false}, {"PostToolUse", 10, false}, {"PermissionRequest", 10, false},
	{"SubagentStart", 10, false}, {"SubagentStop", 10, false}, {"PostCompact", 10, false},
	{"PreModelRequest", 10, true},
}

// waits gives a hook in which somebody may be asked the time for it.
func (h hooked) waits(l adapters.Launch) hooked {
	held := time.Duration(0)
	switch {
	case h.name == "PermissionRequest":
		held = l.Hold
	case h.name == "PreToolUse" && len(l.Gate) > 0:
		held = l.Both
	}
	h.timeout = int64(adapters.Outlast(held, time.Duration(h.timeout)*time.Second).Seconds())
	return h
}

// flags are the words that install the hooks.
func flags(l adapters.Launch, e adapters.Endpoint) (out []string) {
	var trusted []string
	for _, h := range installed {
		if h.onRequest && !l.Wants(h.name) || l.Dual && h.name == "PermissionRequest" { // its server asks us
			continue
		}
		h = h.waits(l)
		command := e.HelperCommand(h.name, time.Duration(h.timeout)*time.Second)
		line := `hooks.` + h.name + `=[{hooks=[{type="command",command=` + quoted(command) + `,timeout=` + itoa(h.timeout) + `}]}]`
		out = append(out, "-c", line)
		trusted = append(trusted, quoted(hookKey(h))+`={trusted_hash=`+quoted(hash(h, command))+`}`)
	}
	return append(out, "-c", "hooks.state={"+strings.Join(trusted, ",")+"}")
}

// hash is what Codex knows a hook by: the SHA-256 of its canonical JSON.
func hash(h hooked, command string) string {
	sum := sha256.Sum256(event.AppendValue(nil, map[string]any{
		"event_name": hook.Snake(h.name),
		"hooks":      []any{map[string]any{"async": false, "command": command, "timeout": h.timeout, "type": "command"}},
	}))
	return "sha256:" + hex.EncodeToString(sum[:])
}

// quoted is a string in TOML, which reads JSON's as its own.
func quoted(s string) string { return string(event.AppendValue(nil, s)) }

func itoa(n int64) string { return string(event.AppendValue(nil, n)) }
