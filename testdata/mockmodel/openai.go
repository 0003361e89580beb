package mockmodel

import (
	"encoding/json"
	"net/http"
)

// chat is the Chat Completions API.
var chat = dialect{read: readChat, write: writeChat}

func readChat(body []byte, _ *http.Request) (request, error) {
	var in struct {
		Model    string
		Stream   bool
		Messages []struct {
			Role    string
			Content parts
		}
		Tools []struct {
			Function struct {
				Name       string
				Parameters json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return request{}, err
	}
	req := request{model: in.Model, stream: in.Stream}
	for _, m := range in.Messages {
		req.messages = append(req.messages, message{m.Role, m.Content.text()})
	}
	for _, t := range in.Tools {
		req.tools = append(req.tools, offered(t.Function.Name, t.Function.Parameters))
	}
	return req, nil
}

func writeChat(w *sender, req request, ps []piece, key []string) {
	text, calls, finish := "", []any{}, "stop"
	for _, p := range ps {
		if p.call == nil {
			text += p.text
			continue
		}
		finish = "tool_calls"
		calls = append(calls, map[string]any{"index": len(calls), "id": "call_" + p.call.id, "type": "function",
			"function": map[string]any{"name": p.call.name, "arguments": p.call.arguments()}})
	}
	usage := map[string]any{"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
	base := func(object string, choices ...any) map[string]any {
		if choices == nil {
			choices = []any{}
		}
		return map[string]any{"id": id("chatcmpl-", key...), "object": object, "created": 1700000000, "model": req.model, "choices": choices}
	}
	if !req.stream {
		msg := map[string]any{"role": "assistant", "content": text}
		if len(calls) > 0 {
			msg["tool_calls"] = calls
		}
		out := base("chat.completion", map[string]any{"index": 0, "message": msg, "finish_reason": finish})
		out["usage"] = usage
		w.whole(out)
		return
	}
	chunk := func(delta map[string]any, finish any) {
		w.event("", base("chat.completion.chunk", map[string]any{"index": 0, "delta": delta, "finish_reason": finish}))
	}
	chunk(map[string]any{"role": "assistant", "content": ""}, nil)
	for _, s := range chop(text, 12) {
		chunk(map[string]any{"content": s}, nil)
		w.pause()
	}
	for _, c := range calls {
		chunk(map[string]any{"tool_calls": []any{c}}, nil)
	}
	chunk(map[string]any{}, finish)
	last := base("chat.completion.chunk")
	last["usage"] = usage
	w.event("", last)
	w.event("", done)
}

// responses is the Responses API, streamed.
var responses = dialect{read: readResponses, write: writeResponse}

func readResponses(body []byte, _ *http.Request) (request, error) {
	type item struct {
		Type    string
		Role    string
		Content parts
	}
	var in struct {
		Model string
		Input json.RawMessage
		Tools []struct {
			Type, Name string
			Parameters json.RawMessage
			Tools      []struct { // of a namespace
				Type, Name string
				Parameters json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return request{}, err
	}
	req := request{model: in.Model, stream: true}
	var items []item
	var prompt string
	if json.Unmarshal(in.Input, &prompt) == nil {
		items = []item{{Role: "user", Content: parts{{Type: "text", Text: prompt}}}}
	} else if err := json.Unmarshal(in.Input, &items); err != nil {
		return request{}, err
	}
	for _, it := range items {
		m := message{it.Role, it.Content.text()}
		switch it.Type {
		case "function_call", "custom_tool_call", "local_shell_call", "reasoning":
			m.role = "assistant"
		case "function_call_output", "custom_tool_call_output":
			m.role = "tool"
		}
		// A turn is several items.
		if n := len(req.messages); m.role == "assistant" && n > 0 && req.messages[n-1].role == "assistant" {
			continue
		}
		req.messages = append(req.messages, m)
	}
	for _, t := range in.Tools {
		for _, sub := range t.Tools {
			o := offered(sub.Name, sub.Parameters)
			o.freeform, o.namespace = sub.Type == "custom", t.Name
			req.tools = append(req.tools, o)
		}
		o := offered(t.Name, t.Parameters)
		o.freeform = t.Type == "custom"
		req.tools = append(req.tools, o)
	}
	return req, nil
}

func writeResponse(w *sender, req request, ps []piece, key []string) {
	n := 0
	send := func(typ string, more map[string]any) {
		more["type"], more["sequence_number"] = typ, n
		n++
		w.event(typ, more)
	}
	resp := map[string]any{"id": id("resp_", key...), "object": "response", "created_at": 1700000000,
		"status": "in_progress", "model": req.model, "output": []any{}}
	send("response.created", map[string]any{"response": resp})
	var output []any
	for i, p := range ps {
		var item map[string]any
		added := func(member string, v any) {
			start := map[string]any{}
			for k, v := range item {
				start[k] = v
			}
			start[member], start["status"] = v, "in_progress"
			send("response.output_item.added", map[string]any{"output_index": i, "item": start})
		}
		switch c := p.call; {
		case c == nil:
			item = map[string]any{"type": "message", "id": id("msg_", append(key, string(rune('0'+i)))...), "role": "assistant", "status": "completed",
				"content": []any{map[string]any{"type": "output_text", "text": p.text, "annotations": []any{}}}}
			added("content", []any{})
			at := func(member, s string) map[string]any {
				return map[string]any{"item_id": item["id"], "output_index": i, "content_index": 0, member: s}
			}
			for _, s := range chop(p.text, 12) {
				send("response.output_text.delta", at("delta", s))
				w.pause()
			}
			send("response.output_text.done", at("text", p.text))
		case c.text != "":
			item = map[string]any{"type": "custom_tool_call", "id": "ctc_" + c.id, "call_id": "call_" + c.id, "name": c.name, "input": c.text, "status": "completed"}
			added("input", "")
		default:
			item = map[string]any{"type": "function_call", "id": "fc_" + c.id, "call_id": "call_" + c.id, "name": c.name, "arguments": c.arguments(), "status": "completed"}
			if c.namespace != "" {
				item["namespace"] = c.namespace
			}
			added("arguments", "")
		}
		send("response.output_item.done", map[string]any{"output_index": i, "item": item})
		output = append(output, item)
	}
	resp["status"], resp["output"] = "completed", output
	resp["usage"] = map[string]any{"input_tokens": 100, "input_tokens_details": map[string]any{"cached_tokens": 0},
		"output_tokens": 10, "output_tokens_details": map[string]any{"reasoning_tokens": 0}, "total_tokens": 110}
	send("response.completed", map[string]any{"response": resp})
}
