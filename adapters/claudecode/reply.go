package claudecode

import (
	"aep-wrap/adapters"
	"aep-wrap/adapters/hook"
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
		return hook.Decision(a)
	case "Elicitation":
		return replyElicitation(a)
	}
	return nil
}

func permission(decision map[string]any) []byte {
	return hook.Output("PermissionRequest", map[string]any{"decision": decision})
}

func replyQuestions(m adapters.Moment, a adapters.Answer) []byte {
	if a.Values == nil {
		if hook.Declined(a) || hook.Chosen(a) == "deny" {
			return permission(map[string]any{"behavior": "deny", "message": hook.Reason(a)})
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
		return hook.Output("Elicitation", map[string]any{"action": "accept", "content": a.Values})
	case a.Option == "cancel":
		return hook.Output("Elicitation", map[string]any{"action": "cancel"})
	case hook.Declined(a):
		return hook.Output("Elicitation", map[string]any{"action": "decline"})
	}
	return nil
}
