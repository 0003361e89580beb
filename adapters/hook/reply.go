package hook

import (
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

// Reason is what a refusal says to the agent.
func Reason(a adapters.Answer) string {
	if a.Text == "" || strings.EqualFold(strings.TrimSpace(a.Text), "deny") {
		return "The user refused this."
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

// Asks says for each hook by its name how the runtime waits in it.
func Asks(hooks map[string]adapters.Ask) func(adapters.Moment) adapters.Ask {
	return func(m adapters.Moment) adapters.Ask {
		if m.Channel != adapters.Hook {
			return adapters.Ask{}
		}
		return hooks[m.Name]
	}
}
