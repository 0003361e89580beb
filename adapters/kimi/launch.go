package kimi

import (
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// commandLine is how Kimi Code is started.
var commandLine = adapters.CommandLine{
	Commands: []string{"kimi"},
	Packages: []string{"@moonshot-ai/kimi-code"},
	Grammar: adapters.Grammar{
		Valued:   []string{"-m", "--model", "-p", "--prompt", "--output-format", "--skills-dir", "--agent", "--agent-file", "--add-dir"},
		Optional: []string{"-S", "--session", "-r", "--resume"},
	},
	Idle: []string{
		"export", "fork", "provider", "session", "web", "server", "rc", "remote", "login", "doctor", "vis", "install-desktop", "migrate",
		"upgrade", "update", "help",
	},
	Asks: []string{"-h", "--help", "-V", "--version"},
}

// homeVar names the folder of Kimi Code's files.
const homeVar = "KIMI_CODE_HOME"

const home, config = "kimi", "config.toml"

// inlineHooks: a list of hooks that is written in one cannot be added to. It
// stands before the first table, or it is that table's.
var (
	inlineHooks = regexp.MustCompile(`(?m)^[ \t]*"?hooks"?[ \t]*=`)
	table       = regexp.MustCompile(`(?m)^[ \t]*\[`)
)

func inline(config string) bool {
	if at := table.FindStringIndex(config); at != nil {
		config = config[:at[0]]
	}
	return inlineHooks.MatchString(config)
}

// Wire shows Kimi Code the user's folder by links, with a config.toml that is
// the user's and our hooks after it.
func Wire(l adapters.Launch, e adapters.Endpoint) (adapters.Wiring, error) {
	out, words, _, session := commandLine.Begin(l)
	if !session {
		return out, nil
	}
	base, _ := l.Getenv(homeVar)
	if base == "" && l.Home != "" {
		base = path.Join(l.Home, ".kimi-code")
	}
	users := ""
	if l.ReadFile != nil {
		raw, err := l.ReadFile(path.Join(base, config))
		if err == nil {
			users = string(raw)
		}
	}
	why := ""
	switch {
	case len(e.Helper) == 0:
		why = "there is nothing for hooks to report to"
	case !path.IsAbs(base):
		why = "its folder is not known"
	case inline(users):
		why = "your config.toml lists its hooks inline (hooks = […]), which cannot be added to"
	}
	if why != "" {
		out.Notes = []string{"kimi: " + why + "; its hooks are not installed"}
		if words.Value("--output-format") == "stream-json" {
			out.Stdout = adapters.Stream
		}
		return out, nil
	}
	out.Files = map[string][]byte{home + "/" + config: []byte(users + hooksOf(l, e))}
	out.Overlays = []adapters.Overlay{{Dir: home, Of: base, Make: []string{"sessions"}}}
	out.SetEnv = map[string]string{homeVar: path.Join(e.Dir, home)}
	out.LogRoot = path.Join(e.Dir, home)
	if e.Socket != "" {
		out.SetEnv["AEP_HOOK_SOCKET"] = e.Socket
	}
	return out, nil
}

// installed are the hooks that are installed.
var installed = []string{
	"SessionStart", "SessionEnd", "UserPromptSubmit", "TurnStarted", "Stop", "StopFailure", "Interrupt",
	"PreToolUse", "PostToolUse", "PostToolUseFailure", "PermissionRequest", "PermissionResult",
	"SubagentStart", "SubagentStop", "PreCompact", "PostCompact", "Notification",
}

// timeout is how long a hook may take, and longest is how long one may that
// somebody is asked in: Kimi Code refuses a file that says more.
const (
	timeout = 10 * time.Second
	longest = 600 * time.Second
)

// hooksOf writes our hooks in TOML, which reads JSON's strings as its own.
func hooksOf(l adapters.Launch, e adapters.Endpoint) string {
	var b strings.Builder
	for _, h := range installed {
		within := timeout
		if h == "PreToolUse" && len(l.Gate) > 0 {
			within = min(adapters.Outlast(l.Both, timeout), longest)
		}
		b.WriteString("\n[[hooks]]\nevent = \"" + h + "\"\ncommand = ")
		b.Write(event.AppendValue(nil, e.HelperCommand(h, within)))
		b.WriteString("\ntimeout = " + strconv.Itoa(int(within.Seconds())) + "\n")
	}
	return b.String()
}
