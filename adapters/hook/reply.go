package hook

import (
	"slices"
	"strings"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// Chosen is the option that an answer to a permission means. Text alone that
// names none is a refusal with its reason, never a permission.
func Chosen(a adapters.Answer) string {
	if a.Option != "" || a.Text == "" {
		return a.Option
	}
	if t := strings.ToLower(strings.TrimSpace(a.Text)); t == "allow" || t == "deny" {
		return t
	}
	return "deny"
}

// Declined says that an answer to a form refuses it, in any of the words by
// which one that lists no options can be refused.
func Declined(a adapters.Answer) bool {
	return slices.Contains([]string{"decline", "deny", "reject", "cancel"}, a.Option)
}

// Refused is what a refusal says that gives no reason.
const Refused = "The user refused this."

// Reason is what a refusal says to the agent.
func Reason(a adapters.Answer) string {
	if a.Text == "" || strings.EqualFold(strings.TrimSpace(a.Text), "deny") {
		return Refused
	}
	return a.Text
}

// Decision is what a held PermissionRequest hears back, in the form that
// several runtimes share; nil for an answer that is none.
func Decision(a adapters.Answer) []byte {
	switch Chosen(a) {
	case "allow":
		return Output("PermissionRequest", map[string]any{"decision": map[string]any{"behavior": "allow"}})
	case "deny":
		return Output("PermissionRequest", map[string]any{"decision": map[string]any{"behavior": "deny", "message": Reason(a)}})
	}
	return nil
}

// Output is a hook's answer in that form.
func Output(hookName string, members map[string]any) []byte {
	members["hookEventName"] = hookName
	return event.AppendValue(nil, map[string]any{"hookSpecificOutput": members})
}

// Verdict is what a gated PreToolUse hears back, in the form that several
// runtimes share; nil for an answer that is none.
func Verdict(a adapters.Answer) []byte {
	switch Chosen(a) {
	case "allow":
		return Output("PreToolUse", map[string]any{"permissionDecision": "allow"})
	case "deny":
		return Output("PreToolUse", map[string]any{"permissionDecision": "deny", "permissionDecisionReason": Reason(a)})
	}
	return nil
}

// Veto is what a gated hook hears back of a runtime in which a hook can refuse
// and never allow: what passes is the runtime's own to decide.
func Veto(a adapters.Answer) []byte {
	if Chosen(a) == "allow" {
		return []byte("{}")
	}
	return Verdict(a)
}

// Asks says for each hook by its name how the runtime waits in it. In this
// table an Ask's Gate is the path at which the payload names the tool.
func Asks(hooks map[string]adapters.Ask) func(adapters.Moment) adapters.Ask {
	return func(m adapters.Moment) adapters.Ask {
		if m.Channel != adapters.Hook {
			return adapters.Ask{}
		}
		ask := hooks[m.Name]
		if ask.Gate != "" {
			in := In{Moment: &m, at: m.Payload}
			if ask.Gate = in.Str(ask.Gate); !name(ask.Gate) {
				ask.Gate = ""
			}
		}
		return ask
	}
}

// AsksBeside are the hooks that wait, and what the screen asks by another way
// while its own dialog stays usable.
func AsksBeside(question func(adapters.Moment) string, hooks map[string]adapters.Ask) func(adapters.Moment) adapters.Ask {
	asks := Asks(hooks)
	return func(m adapters.Moment) adapters.Ask {
		if question(m) != "" {
			return adapters.Ask{Held: true, Both: true}
		}
		return asks(m)
	}
}

// Told hands the model a text in the hooks that are named, each by its output's
// member additionalContext, in the form that several runtimes share. A
// subagent's hooks, which name it, are left out: what they hear the subagent
// reads.
func Told(hooks ...string) func(adapters.Moment, string) []byte {
	return func(m adapters.Moment, text string) []byte {
		if m.Channel != adapters.Hook || text == "" || m.Payload["agent_id"] != nil || !slices.Contains(hooks, m.Name) {
			return nil
		}
		return Output(m.Name, map[string]any{"additionalContext": text})
	}
}
