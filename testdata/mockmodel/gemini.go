package mockmodel

import (
	"encoding/json"
	"net/http"
	"path"
	"strings"
)

// gemini is the generateContent API.
var gemini = dialect{read: readGemini, write: writeGemini}

func readGemini(body []byte, r *http.Request) (request, error) {
	var in struct {
		Contents []struct {
			Role  string
			Parts []struct{ Text string }
		}
		Tools []struct {
			FunctionDeclarations []struct {
				Name                 string
				Parameters           json.RawMessage
				ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema"`
			}
		}
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return request{}, err
	}
	model, method, _ := strings.Cut(path.Base(r.URL.Path), ":")
	req := request{model: model, stream: method == "streamGenerateContent"}
	for _, c := range in.Contents {
		m := message{role: c.Role}
		if m.role == "model" {
			m.role = "assistant"
		}
		for _, p := range c.Parts {
			m.text += p.Text + "\n"
		}
		req.messages = append(req.messages, m)
	}
	for _, t := range in.Tools {
		for _, f := range t.FunctionDeclarations {
			schema := f.ParametersJSONSchema
			if schema == nil {
				schema = f.Parameters
			}
			req.tools = append(req.tools, offered(f.Name, schema))
		}
	}
	return req, nil
}

func writeGemini(w *sender, req request, ps []piece, key []string) {
	answer := func(finish string, parts ...any) map[string]any {
		candidate := map[string]any{"index": 0, "content": map[string]any{"role": "model", "parts": parts}}
		out := map[string]any{"candidates": []any{candidate}, "modelVersion": req.model, "responseId": id("resp_", key...)}
		if finish != "" {
			candidate["finishReason"] = finish
			out["usageMetadata"] = map[string]any{"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110}
		}
		return out
	}
	var all []any
	for _, p := range ps {
		if p.call != nil {
			all = append(all, map[string]any{"functionCall": map[string]any{"name": p.call.name, "args": p.call.input}})
			continue
		}
		size := len(p.text)
		if req.stream {
			size = 12
		}
		for _, s := range chop(p.text, size) {
			all = append(all, map[string]any{"text": s})
		}
	}
	if !req.stream {
		w.whole(answer("STOP", all...))
		return
	}
	for i, part := range all {
		finish := ""
		if i == len(all)-1 {
			finish = "STOP"
		}
		w.event("", answer(finish, part))
		w.pause()
	}
}
