package claudecode

import (
	"path"
	"runtime"
	"slices"
	"strings"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

var packages = []string{"@anthropic-ai/claude-code"}

// Detect finds Claude Code in a command line.
func Detect(l adapters.Launch) bool { return index(l.Args) >= 0 }

func index(args []string) int { return adapters.CommandIndex(args, []string{"claude"}, packages) }

// subcommands start no session of this terminal.
var subcommands = []string{
	"agents", "attach", "auth", "auto-mode", "config", "daemon", "design-login", "doctor", "gateway", "import", "install", "kill",
	"login", "logout", "logs", "mcp", "migrate-installer", "plugin", "plugins", "project", "purge", "remote-control", "rc", "respawn",
	"rm", "self-hosted-runner", "server", "setup-token", "stop", "ultrareview", "update", "upgrade", "workspace-trust",
}

// elsewhere are flags that print something and end, or have the session run
// without this terminal and after this launch.
var elsewhere = []string{"-v", "--version", "-h", "--help", "--bg", "--background", "--cloud", "--desktop"}

// grammar is the syntax of its flags.
var grammar = adapters.Grammar{
	Valued: []string{
		"--add-dir", "--agent", "--agents", "--allowedTools", "--allowed-tools", "--append-system-prompt", "--append-system-prompt-file",
		"--autocompact", "--betas", "--debug-file", "--disallowedTools", "--disallowed-tools", "--effort", "--environment", "--fallback-model",
		"--file", "--input-format",
		"--json-schema", "--max-budget-usd", "--max-turns", "--mcp-config", "--model", "-n", "--name", "--output-format", "--permission-mode",
		"--permission-prompt-tool", "--permission-prompts", "--plugin-dir", "--plugin-url", "--remote-control-session-name-prefix", "--session-id", "--setting-sources",
		"--settings", "--managed-settings", "--system-prompt", "--system-prompt-file", "--system-prompt-snapshot", "--tools",
	},
	Variadic: []string{"--add-dir", "--allowedTools", "--allowed-tools", "--betas", "--disallowedTools", "--disallowed-tools", "--file", "--mcp-config", "--tools"},
	Optional: []string{"-d", "--debug", "-r", "--resume", "-w", "--worktree", "--from-pr", "--prompt-suggestions", "--remote-control", "--teleport", "--cloud"},
}

// words is what a command line says, as far as it matters here.
type words struct {
	settings    string // the last --settings
	hasSettings bool
	output      string
	print       bool
	fork        bool
	bare        bool
	safe        bool
	hookEvents  bool     // its stream tells of every hook
	asks        bool     // somebody is there to be asked for a permission: --permission-prompt-tool
	idle        bool     // it asks for something other than a session
	rest        []string // without any --settings
}

func read(args []string) words {
	var w words
	positional := false
	for i := 0; i < len(args); i++ {
		a := args[i]
		if a == "--" {
			w.rest = append(w.rest, args[i:]...)
			return w
		}
		flag, value, joined := strings.Cut(a, "=")
		n := 0 // words that follow as the flag's value
		if !joined {
			n = grammar.Values(a, args[i+1:])
		}
		if n > 0 {
			value = args[i+1]
		}
		switch flag {
		case "--settings":
			if joined || n > 0 {
				w.settings, w.hasSettings = value, true
				i += n
				continue
			}
		case "--output-format":
			w.output = value
		case "-p", "--print":
			w.print = true
		case "--fork-session":
			w.fork = true
		case "--bare":
			w.bare = true
		case "--safe-mode":
			w.safe = true
		case "--include-hook-events":
			w.hookEvents = true
		case "--permission-prompt-tool":
			w.asks = true
		}
		switch {
		case slices.Contains(elsewhere, flag):
			w.idle = true
		case !strings.HasPrefix(a, "-") && !positional:
			positional = true
			w.idle = w.idle || slices.Contains(subcommands, a)
		}
		w.rest = append(w.rest, args[i:i+1+n]...)
		i += n
	}
	return w
}

// Wire adds our settings file before the user's words. What the user put into
// --settings is in it, for of two only the last counts.
func Wire(l adapters.Launch, e adapters.Endpoint) (adapters.Wiring, error) {
	bare := adapters.Wiring{Args: slices.Clone(l.Args)}
	at := index(l.Args)
	if at < 0 {
		return bare, nil
	}
	w := read(l.Args[at+1:])
	if w.idle {
		bare.Passthrough = true
		return bare, nil
	}
	note := func(s string) adapters.Wiring {
		bare.Notes = append(bare.Notes, s)
		bare.Stdout = stdout(w)
		return bare
	}
	switch {
	case w.bare || on(l, "CLAUDE_CODE_SIMPLE"):
		return note("claude: --bare skips hooks; only its own output is observed"), nil
	case w.safe || on(l, "CLAUDE_CODE_SAFE_MODE"):
		return note("claude: --safe-mode skips hooks; only its own output is observed"), nil
	case w.hookEvents && stdout(w) != "":
		return note("claude: --include-hook-events would tell of our hooks too; only its own output is observed"), nil
	}

	ours := map[string]any{}
	if w.hasSettings {
		var why string
		if ours, why = userSettings(l, w.settings); ours == nil {
			return note("claude: its hooks are not installed: the --settings given " + why), nil
		}
	}
	s := readSettings(l, ours)
	if why := s.noHooks(); why != "" {
		return note("claude: " + why + "; only its own output and log are observed"), nil
	}
	alone := (w.print || !l.TTY) && !w.asks
	r := reporting{e: e, http: e.HookURL != "", start: "SessionStart", alone: alone, more: requested(l), waits: waits(l, alone)}
	var notes []string
	if why := s.noHTTP(l, e); r.http && why != "" {
		r.http = false
		notes = append(notes, "claude: "+why+"; command hooks are used instead, which cost a process each")
	}
	if !r.http && len(e.Helper) == 0 {
		return note("claude: its hooks are not installed: there is nothing for them to report to"), nil
	}
	if w.fork {
		r.start = forked
	}
	r.silent = stdout(w) != ""
	addHooks(ours, r)

	out := adapters.Wiring{
		Args:   append(append(slices.Clone(l.Args[:at+1]), "--settings", path.Join(e.Dir, settingsFile)), w.rest...),
		Files:  map[string][]byte{settingsFile: append(event.AppendValue(nil, ours), '\n')},
		Stdout: stdout(w),
		Notes:  notes,
		SetEnv: map[string]string{},
	}
	if e.Socket != "" {
		out.SetEnv["AEP_HOOK_SOCKET"] = e.Socket
	}
	if e.OTLPURL != "" && s.telemetryFree(l) && !l.Proxied(e.OTLPURL) {
		for _, kv := range telemetryEnv {
			out.SetEnv[kv[0]] = kv[1]
		}
		out.SetEnv["OTEL_EXPORTER_OTLP_LOGS_ENDPOINT"] = e.OTLPURL + "/v1/logs"
	}
	return out, nil
}

const settingsFile = "claude-settings.json"

// stdout says whether standard output is a stream of events. Without --print
// there is a screen.
func stdout(w words) adapters.Channel {
	if w.print && w.output == "stream-json" {
		return adapters.Stream
	}
	return ""
}

func on(l adapters.Launch, name string) bool {
	v, _ := l.Getenv(name)
	return truth(v)
}

func truth(v string) bool {
	return slices.Contains([]string{"1", "true", "yes", "on"}, strings.ToLower(strings.TrimSpace(v)))
}

// ---- hooks

// reporting says where the hooks report to.
type reporting struct {
	e     adapters.Endpoint
	http  bool
	start string // the name under which SessionStart is told
	alone bool   // no dialog stands beside a request for a permission
	more  []hooked
	waits map[string]int // seconds that hooks which are held may take
	// silent: the stream on stdout would tell of the hooks at the start, and
	// must stay as it is without us. Its own first line tells the start.
	silent bool
}

// installed are the hooks that are installed, and how long each may take, in
// seconds. The others come only on request: WorktreeCreate and WorktreeRemove
// take the act over, MessageDisplay and its like are many.
var installed = []hooked{
	{"Setup", 10}, {"SessionStart", 10}, {"SessionEnd", 5},
	{"UserPromptSubmit", 10}, {"Stop", 10}, {"StopFailure", 10},
	{"PreToolUse", 10}, {"PostToolUse", 10}, {"PostToolUseFailure", 10},
	{"PermissionRequest", 10}, {"PermissionDenied", 10},
	{"Elicitation", 10}, {"ElicitationResult", 10},
	{"Notification", 10},
	{"SubagentStart", 10}, {"SubagentStop", 10},
	{"TaskCreated", 10}, {"TaskCompleted", 10}, {"TeammateIdle", 10},
	{"PostCompact", 10},
}

// waits is how long hooks may take in which somebody is asked: longer than the
// wrapper holds them.
func waits(l adapters.Launch, alone bool) map[string]int {
	out := map[string]int{}
	allow := func(hook string, d time.Duration) {
		if d > 0 {
			out[hook] = int((d + 30*time.Second).Seconds())
		}
	}
	if alone {
		allow("PermissionRequest", l.Hold)
	} else {
		allow("PermissionRequest", l.Both)
	}
	allow("Elicitation", l.Hold)
	if len(l.Gate) > 0 {
		allow("PreToolUse", l.Both)
	}
	return out
}

// commandOnly are the hooks for which Claude Code skips type "http".
var commandOnly = []string{"SessionStart", "Setup"}

// onRequest are the hooks that are installed for who asks for them by name, or
// for all of them, in AEP_HOOKS.
var onRequest = []hooked{
	{"UserPromptExpansion", 10}, {"PostToolBatch", 10}, {"InstructionsLoaded", 10}, {"ConfigChange", 10},
	{"CwdChanged", 10}, {"FileChanged", 10}, {"MessageDisplay", 10},
	// Older versions pass over names that they do not know.
	{"DirectoryAdded", 10}, {"PreModelSwitch", 10}, {"PostModelSwitch", 10}, {"PreSkillShellCommand", 10},
}

type hooked struct {
	name    string
	timeout int
}

// requested are those that the user asked for.
func requested(l adapters.Launch) []hooked {
	return slices.DeleteFunc(slices.Clone(onRequest), func(h hooked) bool { return !l.Wants(h.name) })
}

// addHooks puts our hooks after those that the settings have.
func addHooks(settings map[string]any, r reporting) {
	old, _ := settings["hooks"].(map[string]any)
	all := make(map[string]any, len(old)+len(installed))
	for k, v := range old {
		all[k] = v
	}
	for _, h := range append(slices.Clone(installed), r.more...) {
		entry := r.entry(h.name, max(h.timeout, r.waits[h.name]))
		if entry == nil {
			continue
		}
		list, _ := all[h.name].([]any)
		all[h.name] = append(slices.Clone(list), map[string]any{"hooks": []any{entry}})
	}
	settings["hooks"] = all
}

func (r reporting) entry(hook string, timeout int) map[string]any {
	if r.silent && slices.Contains(commandOnly, hook) {
		return nil
	}
	told := hook
	switch {
	case hook == "SessionStart":
		told = r.start
	case hook == "PermissionRequest" && r.alone:
		told = unattended
	}
	if r.http && !slices.Contains(commandOnly, hook) {
		return map[string]any{"type": "http", "url": r.e.HookURL + "/" + name + "/" + told, "timeout": timeout}
	}
	words := r.e.HelperArgs(told, time.Duration(timeout)*time.Second)
	if words == nil {
		return nil
	}
	var args []any
	for _, a := range words[1:] {
		args = append(args, a)
	}
	// With args, no shell parses the words.
	return map[string]any{"type": "command", "command": words[0], "args": args, "timeout": timeout}
}

// telemetryEnv turns the log records on that tell of decisions, and nothing
// else: no metrics, no traces, no prompts.
var telemetryEnv = [][2]string{
	{"CLAUDE_CODE_ENABLE_TELEMETRY", "1"},
	{"OTEL_LOGS_EXPORTER", "otlp"},
	{"OTEL_EXPORTER_OTLP_LOGS_PROTOCOL", "http/json"},
	{"OTEL_LOGS_EXPORT_INTERVAL", "200"},
}

// ---- the user's settings

// settings are what may stand in the way of our hooks, by source: the
// administrator's policy, and all that the user has.
type settings struct {
	policy []map[string]any
	user   []map[string]any // user, project, local, --settings
}

// policyDir is where the administrator's settings are.
func policyDir() string {
	if runtime.GOOS == "darwin" {
		return "/Library/Application Support/ClaudeCode"
	}
	return "/etc/claude-code"
}

func readSettings(l adapters.Launch, flag map[string]any) settings {
	s := settings{user: []map[string]any{flag}}
	file := func(p string) map[string]any {
		if l.ReadFile == nil {
			return nil
		}
		raw, err := l.ReadFile(p)
		if err != nil {
			return nil
		}
		o, _ := event.ParseObject(raw)
		return o
	}
	for _, p := range []string{path.Join(policyDir(), "managed-settings.json"), path.Join(configDir(l), "remote-settings.json")} {
		if o := file(p); o != nil {
			s.policy = append(s.policy, o)
		}
	}
	for _, p := range []string{
		path.Join(configDir(l), "settings.json"),
		path.Join(l.Dir, ".claude", "settings.json"),
		path.Join(l.Dir, ".claude", "settings.local.json"),
	} {
		if o := file(p); o != nil {
			s.user = append(s.user, o)
		}
	}
	return s
}

func configDir(l adapters.Launch) string {
	if d, ok := l.Getenv("CLAUDE_CONFIG_DIR"); ok && d != "" {
		return d
	}
	return path.Join(l.Home, ".claude")
}

func isTrue(o map[string]any, key string) bool { b, _ := o[key].(bool); return b }

// noHooks says why no hook of ours would run; "" is that they will.
func (s settings) noHooks() string {
	for _, p := range s.policy {
		switch {
		case isTrue(p, "disableAllHooks"):
			return "policy disables all hooks (disableAllHooks)"
		case isTrue(p, "allowManagedHooksOnly"):
			return "policy allows managed hooks only (allowManagedHooksOnly)"
		}
		if strict, _ := p["strictPluginOnlyCustomization"].([]any); isTrue(p, "strictPluginOnlyCustomization") || slices.Contains(strict, any("hooks")) {
			return "policy allows hooks of plugins only (strictPluginOnlyCustomization)"
		}
	}
	// The last source that says it counts; ours says nothing, so that a user's
	// true stays true. --settings is the last.
	for _, u := range slices.Backward(s.user[1:]) {
		if v, ok := u["disableAllHooks"].(bool); ok && s.user[0]["disableAllHooks"] == nil {
			if v {
				return "your settings disable all hooks (disableAllHooks)"
			}
			return ""
		}
	}
	if isTrue(s.user[0], "disableAllHooks") {
		return "your --settings disable all hooks (disableAllHooks)"
	}
	return ""
}

// noHTTP says why an http hook to us would not arrive.
func (s settings) noHTTP(l adapters.Launch, e adapters.Endpoint) string {
	for i, o := range slices.Concat(s.policy, s.user) {
		if list, ok := o["allowedHttpHookUrls"].([]any); ok {
			whose := "your settings allow"
			if i < len(s.policy) {
				whose = "policy allows"
			}
			if !slices.ContainsFunc(list, func(p any) bool { return p == "*" }) {
				return whose + " http hooks to listed addresses only (allowedHttpHookUrls)"
			}
		}
		if box, ok := o["sandbox"].(map[string]any); ok && isTrue(box, "enabled") {
			return "the sandbox sends http hooks through its proxy"
		}
	}
	if l.Proxied(e.HookURL) {
		return "a proxy is set (HTTP_PROXY) that NO_PROXY does not except 127.0.0.1 from"
	}
	return ""
}

// telemetryFree says that nobody has a say about telemetry yet: neither the
// environment nor the env of any settings.
func (s settings) telemetryFree(l adapters.Launch) bool {
	about := func(k string) bool {
		return strings.HasPrefix(k, "OTEL_") || k == "CLAUDE_CODE_ENABLE_TELEMETRY"
	}
	for _, kv := range l.Env {
		if k, _, _ := strings.Cut(kv, "="); about(k) {
			return false
		}
	}
	for _, o := range slices.Concat(s.policy, s.user) {
		env, _ := o["env"].(map[string]any)
		for k := range env {
			if about(k) {
				return false
			}
		}
		if o["otelHeadersHelper"] != nil {
			return false
		}
	}
	return true
}

// ---- --settings

// userSettings reads what the user gave to --settings: JSON, or a file's path.
// A file's relative paths are relative to its folder; ours stands elsewhere,
// so they are made absolute.
func userSettings(l adapters.Launch, given string) (_ map[string]any, why string) {
	if t := strings.TrimSpace(given); strings.HasPrefix(t, "{") && strings.HasSuffix(t, "}") {
		o, err := event.ParseObject([]byte(t))
		if err != nil {
			return nil, "are no valid JSON"
		}
		return o, ""
	}
	p := given
	if rest, ok := strings.CutPrefix(p, "~/"); ok && l.Home != "" {
		p = path.Join(l.Home, rest)
	}
	if !path.IsAbs(p) {
		p = path.Join(l.Dir, p)
	}
	if l.ReadFile == nil {
		return nil, "cannot be read"
	}
	raw, err := l.ReadFile(p)
	if err != nil {
		return nil, "cannot be read"
	}
	o, err := event.ParseObject([]byte(strings.TrimPrefix(string(raw), "\ufeff")))
	if err != nil {
		return nil, "are no valid JSON"
	}
	anchor(o, path.Dir(p))
	return o, ""
}

// pathTools are the tools whose permission rules are paths, where one leading
// slash means the settings file's folder and two the root.
var pathTools = []string{"Read", "Edit", "Write", "MultiEdit", "NotebookEdit", "Glob", "Grep", "LS"}

// anchor makes the paths absolute that are relative to the settings file.
func anchor(o map[string]any, dir string) {
	if p, ok := o["permissions"].(map[string]any); ok {
		p = clone(p)
		for _, k := range []string{"allow", "deny", "ask"} {
			each(p, k, func(rule string) string {
				tool, arg, ok := strings.Cut(rule, "(/")
				if !ok || !slices.Contains(pathTools, tool) || strings.HasPrefix(arg, "/") {
					return rule
				}
				return tool + "(/" + path.Join(dir, "x")[:len(path.Join(dir, "x"))-1] + arg
			})
		}
		o["permissions"] = p
	}
	box, _ := o["sandbox"].(map[string]any)
	fs, ok := box["filesystem"].(map[string]any)
	if !ok {
		return
	}
	box, fs = clone(box), clone(fs)
	for _, k := range []string{"allowWrite", "denyWrite", "allowRead", "denyRead"} {
		each(fs, k, func(p string) string {
			if strings.HasPrefix(p, "/") || strings.HasPrefix(p, "~") || strings.HasPrefix(p, "*") {
				return p
			}
			return path.Join(dir, p)
		})
	}
	box["filesystem"] = fs
	o["sandbox"] = box
}

func clone(o map[string]any) map[string]any {
	out := make(map[string]any, len(o))
	for k, v := range o {
		out[k] = v
	}
	return out
}

// each changes the strings of a list.
func each(o map[string]any, key string, change func(string) string) {
	list, ok := o[key].([]any)
	if !ok {
		return
	}
	out := make([]any, len(list))
	for i, v := range list {
		if s, ok := v.(string); ok {
			v = change(s)
		}
		out[i] = v
	}
	o[key] = out
}
