// Package all is the explicit list of adapters: the one place where they meet.
// It decides nothing but which of them knows a command line.
package all

import (
	"strings"

	"aep-wrap/adapters"
	"aep-wrap/adapters/acp"
	"aep-wrap/adapters/aeprpc"
	"aep-wrap/adapters/claudecode"
	"aep-wrap/adapters/codex"
	"aep-wrap/adapters/copilot"
	"aep-wrap/adapters/demo"
	"aep-wrap/adapters/gemini"
	"aep-wrap/adapters/generic"
	"aep-wrap/adapters/kilo"
	"aep-wrap/adapters/kimi"
	"aep-wrap/adapters/opencode"
	"aep-wrap/adapters/pi"
	"aep-wrap/adapters/qwen"
)

// List gives every adapter. Where two know a command line, the first counts;
// generic, which takes what is left, is the last.
func List() []adapters.Adapter {
	return []adapters.Adapter{
		claudecode.Adapter(),
		codex.Adapter(),
		qwen.Adapter(),
		gemini.Adapter(),
		kimi.Adapter(),
		opencode.Adapter(),
		kilo.Adapter(),
		copilot.Adapter(),
		pi.Adapter(),
		acp.Adapter(),
		aeprpc.Adapter(),
		demo.Adapter(),
		generic.Adapter(),
	}
}

// Find gives the adapter of a name, or of a command's: "claude-code", "claude".
func Find(name string) (adapters.Adapter, bool) {
	list := List()
	for _, a := range list {
		if a.Name == name {
			return a, true
		}
	}
	for _, a := range list {
		for _, c := range a.Command {
			if c == name {
				return a, true
			}
		}
	}
	return adapters.Adapter{}, false
}

// Detect gives the adapter that knows a command line; generic knows any.
func Detect(l adapters.Launch) adapters.Adapter {
	list := List()
	for _, a := range list {
		if a.Launch != nil && a.Launch.Detect(l) {
			return a
		}
	}
	return list[len(list)-1]
}

// AgentName is the name on the events of a launch: the adapter's, or for any
// other command its own.
func AgentName(a adapters.Adapter, args []string) string {
	if a.Name != generic.Adapter().Name {
		return a.Name
	}
	return strings.ToValidUTF8(generic.AgentName(args), "")
}
