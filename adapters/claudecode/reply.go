package claudecode

import (
	"strings"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// Reply is what a held PermissionRequest or Elicitation hears back. An answer
// that does not fit the request is no decision: the dialog in the terminal
// stays as it is.
func Reply(m adapters.Moment, a adapters.Answer) []byte {
	switch m.Name {
	case "PermissionRequest":
		if tool, _ := m.Payload["tool_name"].(string); tool == askTool {
			return replyQuestions(m, a)
		}
		return replyPermission(a)
	case "Elicitation":
		return replyElicitation(a)
	}
	return nil
}

func output(hookName string, members map[string]any) []byte {
	members["hookEventName"] = hookName
	return event.AppendValue(nil, map[string]any{"hookSpecificOutput": members})
}

func permission(decision map[string]any) []byte {
	return output("PermissionRequest", map[string]any{"decision": decision})
}

func replyPermission(a adapters.Answer) []byte {
	switch option(a) {
	case "allow":
		return permission(map[string]any{"behavior": "allow"})
	case "deny":
		return deny(a)
	}
	return nil
}

// option is the option that an answer means. Text alone that names none is a
// refusal with its reason, never a permission.
func option(a adapters.Answer) string {
	if a.Option != "" || a.Text == "" {
		return a.Option
	}
	if t := strings.ToLower(strings.TrimSpace(a.Text)); t == "allow" || t == "deny" {
		return t
	}
	return "deny"
}

func deny(a adapters.Answer) []byte {
	message := a.Text
	if message == "" || strings.EqualFold(strings.TrimSpace(message), "deny") {
		message = "The user refused this."
	}
	return permission(map[string]any{"behavior": "deny", "message": message})
}

func replyQuestions(m adapters.Moment, a adapters.Answer) []byte {
	if a.Values == nil {
		if option(a) == "deny" {
			return deny(a)
		}
		return nil
	}
	input, _ := m.Payload["tool_input"].(map[string]any)
	given := map[string]any{}
	for _, q := range readQuestions(input["questions"]) {
		v, there := a.Values[q.field.ID]
		if !there {
			return nil
		}
		s, ok := q.label(v)
		if !ok {
			return nil
		}
		given[q.text] = s
	}
	if len(given) == 0 {
		return nil
	}
	return permission(map[string]any{
		"behavior":     "allow",
		"updatedInput": map[string]any{"questions": input["questions"], "answers": given},
	})
}

func replyElicitation(a adapters.Answer) []byte {
	switch {
	case a.Values != nil:
		return output("Elicitation", map[string]any{"action": "accept", "content": a.Values})
	case a.Option == "decline" || a.Option == "deny":
		return output("Elicitation", map[string]any{"action": "decline"})
	case a.Option == "cancel":
		return output("Elicitation", map[string]any{"action": "cancel"})
	}
	return nil
}
