package mockmodel

import (
	"encoding/json"
	"net/http"
	"strings"
)

// anthropic is the Messages API.
var anthropic = dialect{read: readMessages, write: writeMessage}

// parts is a string, or a list of blocks of which only text counts here.
type parts []struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func (c *parts) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*c = parts{{Type: "text", Text: s}}
		return nil
	}
	type plain parts
	return json.Unmarshal(b, (*plain)(c))
}

func (c parts) text() string {
	var b strings.Builder
	for _, p := range c {
		switch p.Type {
		case "text", "input_text", "output_text":
			b.WriteString(p.Text)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func readMessages(body []byte, _ *http.Request) (request, error) {
	var in struct {
		Model    string
		Stream   bool
		Messages []struct {
			Role    string
			Content parts
		}
		Tools []struct {
			Name        string
			InputSchema json.RawMessage `json:"input_schema"`
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
		req.tools = append(req.tools, offered(t.Name, t.InputSchema))
	}
	return req, nil
}

// writeMessage sends a message whole, or as server-sent events: its start, each
// block as a start, deltas and a stop, and its end.
func writeMessage(w *sender, req request, ps []piece, key []string) {
	stop := "end_turn"
	blocks := make([]map[string]any, 0, len(ps))
	for _, p := range ps {
		if p.call == nil {
			blocks = append(blocks, map[string]any{"type": "text", "text": p.text})
			continue
		}
		stop = "tool_use"
		blocks = append(blocks, map[string]any{"type": "tool_use", "id": "toolu_" + p.call.id, "name": p.call.name, "input": p.call.input})
	}
	usage := map[string]any{"input_tokens": 100, "output_tokens": 10,
		"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
	msg := map[string]any{
		"id": id("msg_", key...), "type": "message", "role": "assistant", "model": req.model,
		"content": blocks, "stop_reason": stop, "stop_sequence": nil, "usage": usage,
	}
	w.Header().Set("request-id", id("req_", key...))
	if !req.stream {
		w.whole(msg)
		return
	}
	send := func(typ string, more map[string]any) {
		more["type"] = typ
		w.event(typ, more)
	}
	msg["content"], msg["stop_reason"] = []any{}, nil
	send("message_start", map[string]any{"message": msg})
	for i, b := range blocks {
		delta := func(d map[string]any) { send("content_block_delta", map[string]any{"index": i, "delta": d}) }
		if b["type"] == "text" {
			send("content_block_start", map[string]any{"index": i, "content_block": map[string]any{"type": "text", "text": ""}})
			for _, s := range chop(b["text"].(string), 12) {
				delta(map[string]any{"type": "text_delta", "text": s})
				w.pause()
			}
		} else {
			send("content_block_start", map[string]any{"index": i, "content_block": map[string]any{
				"type": "tool_use", "id": b["id"], "name": b["name"], "input": map[string]any{}}})
			for _, s := range chop(ps[i].call.arguments(), 40) {
				delta(map[string]any{"type": "input_json_delta", "partial_json": s})
				w.pause()
			}
		}
		send("content_block_stop", map[string]any{"index": i})
	}
	send("message_delta", map[string]any{"delta": map[string]any{"stop_reason": stop, "stop_sequence": nil}, "usage": usage})
	send("message_stop", map[string]any{})
}
