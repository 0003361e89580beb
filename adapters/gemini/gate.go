package gemini

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// Gemini CLI asks nobody but its own user, and after our hook: a tool that the
// operator gates is held in BeforeTool, and a policy of the launch lets those
// tools pass that were answered for there.

// builtin are the tools that a pattern can mean. A policy knows no other
// wildcards than all tools, and all of a server's.
var builtin = []string{
	"activate_skill", "ask_user", "enter_plan_mode", "exit_plan_mode", "get_internal_docs", "glob", "google_web_search", "grep_search",
	"invoke_agent", "list_directory", "list_mcp_resources", "read_file", "read_many_files", "read_mcp_resource", "replace",
	"run_shell_command", "web_fetch", "write_file", "write_todos",
}

const policyFile = "gemini-gate.toml"

// gate is what the operator gates, as a policy can say it.
type gate struct {
	tools  []string // as in a policy's toolName
	screen bool     // the user has a dialog, to which silence leads
	notes  []string
}

func gateOf(l adapters.Launch, words adapters.Line) gate {
	g := gate{screen: l.TTY && !words.Has("-p", "--prompt") && len(words.Words) == 0}
	for _, p := range l.Gate {
		var means []string
		for _, t := range builtin {
			if adapters.Gated([]string{p}, t) {
				means = append(means, t)
			}
		}
		switch {
		case p == "*", serverTools.MatchString(p):
			means = []string{p}
		case toolName.MatchString(p) && len(means) == 0:
			means = []string{p}
		case len(means) == 0:
			g.notes = append(g.notes, "gemini: no policy can say the gate "+p+": what is answered for it is asked in the terminal once more")
		}
		g.tools = append(g.tools, means...)
	}
	slices.Sort(g.tools)
	if g.tools = slices.Compact(g.tools); slices.Contains(g.tools, "*") {
		g.tools = []string{"*"}
	}
	return g
}

var (
	serverTools = regexp.MustCompile(`^mcp_[A-Za-z0-9-]+_\*$`)
	toolName    = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)
)

// matcher is a regular expression for the tools.
func (g gate) matcher() string {
	var all []string
	for _, t := range g.tools {
		all = append(all, strings.ReplaceAll(regexp.QuoteMeta(t), `\*`, ".*"))
	}
	return "(?:" + strings.Join(all, "|") + ")"
}

// policy lets the tools pass. Of the user's own rules each is stronger, and
// plan mode stays what it is.
func (g gate) policy() []byte {
	return []byte("[[rule]]\ntoolName = " + string(event.AppendValue(nil, strs(g.tools))) +
		"\ndecision = \"allow\"\npriority = 1\nallowRedirection = true\nmodes = [\"default\", \"autoEdit\", \"yolo\"]\n")
}

// strict makes silence, be it that nobody answered or that we are gone, a
// question to the user, or a refusal where there is no dialog: the policy would
// let the tool pass.
func (g gate) strict(command string) string {
	silence := `{"decision":"ask"}`
	if !g.screen {
		silence = `{"decision":"deny","reason":"Nobody answered."}`
	}
	return `said=$(` + command + `) && [ -n "$said" ] && printf '%s\n' "$said" || printf '%s\n' ` + adapters.Quote(silence)
}

// policies are where the user's own are: what the settings say, or else the
// folder of the user's home.
func policies(l adapters.Launch, base string) (paths []string) {
	paths = []string{path.Join(base, ".gemini", "policies")}
	if l.ReadFile == nil {
		return paths
	}
	for _, p := range settingsFiles(l, base) {
		raw, err := l.ReadFile(p)
		if err != nil {
			continue
		}
		o, _ := adapters.Settings(raw)
		list, _ := o["policyPaths"].([]any)
		var own []string
		for _, v := range list {
			if s, ok := v.(string); ok {
				own = append(own, s)
			}
		}
		if own != nil {
			paths = own
		}
	}
	return paths
}

func strs(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}
