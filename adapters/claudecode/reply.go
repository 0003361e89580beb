package claudecode

import (
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/hook"
)

// Reply is what a held PermissionRequest or Elicitation, or a gated PreToolUse,
// hears back. An answer that does not fit the request is no decision: the
// dialog in the terminal stays as it is.
func Reply(m adapters.Moment, a adapters.Answer) []byte {
	switch m.Name {
	case "PermissionRequest", unattended:
		if tool, _ := m.Payload["tool_name"].(string); tool == askTool {
			return replyQuestions(m, a)
		}
		return hook.Decision(withReason(a))
	case "PreToolUse":
		return hook.Verdict(withReason(a))
	case "Elicitation":
		return replyElicitation(a)
	}
	return nil
}

// withReason has what the model is told of a refusal begin with words that are
// always the same: the tool's result in Claude Code's log begins so too, and
// tells of the refusal where nothing else does.
func withReason(a adapters.Answer) adapters.Answer {
	if hook.Chosen(a) != "deny" {
		return a
	}
	why := hook.Reason(a)
	if why != hook.Refused {
		why = hook.Refused + " " + why
	}
	return adapters.Answer{Option: "deny", Text: why}
}

func permission(decision map[string]any) []byte {
	return hook.Output("PermissionRequest", map[string]any{"decision": decision})
}

func replyQuestions(m adapters.Moment, a adapters.Answer) []byte {
	if a.Values == nil {
		if hook.Declined(a) || hook.Chosen(a) == "deny" {
			return permission(map[string]any{"behavior": "deny", "message": withReason(adapters.Answer{Option: "deny", Text: a.Text}).Text})
		}
		return nil
	}
	input, _ := m.Payload["tool_input"].(map[string]any)
	given := map[string]any{}
	for _, q := range hook.ReadQuestions(input["questions"], multi) {
		v, there := a.Values[q.Field.ID]
		if !there {
			return nil
		}
		s, ok := label(q.Field, v)
		if !ok {
			return nil
		}
		given[q.Text] = s
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

// told are the hooks in which Claude Code reads a text for the model. Stop does
// too, but the run would go on after its end was told; and what a subagent's
// hooks hear, the subagent reads.
var told = hook.Told("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "PostToolUseFailure", "PostToolBatch")

// Instruct hands the model a text.
func Instruct(m adapters.Moment, text string) []byte {
	if id, _ := m.Payload["agent_id"].(string); id != "" {
		return nil
	}
	return told(m, text)
}

const esc = "\x1b"

// Cancel interrupts a run as a person would: by Esc before the screen, else by
// SIGINT, which a first second or so may swallow. SIGINT would end the screen's
// whole session.
func Cancel(t adapters.Target) []adapters.Act {
	if t.TTY {
		return []adapters.Act{{Keys: esc, Patience: 3 * time.Second}, {Keys: esc, Patience: 5 * time.Second}}
	}
	return []adapters.Act{{Signal: "INT", Patience: 3 * time.Second}, {Signal: "INT", Patience: 3 * time.Second}}
}
