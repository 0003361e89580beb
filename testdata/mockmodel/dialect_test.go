package mockmodel

import (
	"encoding/json"
	"io"
	"strings"
	"testing"
)

// Each dialect gets the script's turn that its conversation is at, in the
// words of the tools that it offers.
func TestDialects(t *testing.T) {
	_, url := serve(t)
	const (
		chatTools = `"tools":[{"type":"function","function":{"name":"bash","parameters":{"properties":{"command":{}}}}},
			{"type":"function","function":{"name":"write","parameters":{"properties":{"filePath":{},"content":{}}}}}]`
		codexTools = `"tools":[{"type":"function","name":"exec_command","parameters":{"properties":{"cmd":{},"sandbox_permissions":{},"justification":{}}}},
			{"type":"custom","name":"apply_patch"},
			{"type":"namespace","name":"agents","tools":[{"type":"function","name":"spawn_agent","parameters":{"properties":{"message":{}}}}]}]`
		geminiTools = `"tools":[{"functionDeclarations":[{"name":"run_shell_command","parametersJsonSchema":{"properties":{"command":{},"description":{}}}},
			{"name":"write_file","parameters":{"properties":{"file_path":{},"content":{}}}}]}]`
	)
	for _, tt := range []struct {
		name, path, body string
		want, not        []string
	}{
		{"chat", "/v1/chat/completions", `{"model":"m",` + chatTools + `,"messages":[{"role":"system","content":"[[script:err]]"},{"role":"user","content":"[[script:bash1]]"}]}`,
			[]string{`"finish_reason":"tool_calls"`, `"name":"bash"`, `touch /work/dir/made.txt`}, []string{"description", "sandbox", "data:"}},
		{"chat, a stream", "/v1/chat/completions", `{"model":"m","stream":true,` + chatTools + `,"messages":[{"role":"user","content":[{"type":"text","text":"[[script:write1]]"}]}]}`,
			[]string{`"delta"`, `"name":"write"`, `\"filePath\":\"/work/dir/note.txt\"`, "data: [DONE]"}, nil},
		{"chat, after a tool", "/v1/chat/completions", `{"model":"m",` + chatTools + `,"messages":[{"role":"user","content":"[[script:bash1]]"},
			{"role":"assistant","content":null,"tool_calls":[{"id":"c"}]},{"role":"tool","content":"ok"}]}`, []string{"The file is made."}, []string{"tool_calls"}},
		{"responses", "/v1/responses", `{"model":"m",` + codexTools + `,"input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"[[script:bash1]]"}]}]}`,
			[]string{"event: response.completed", `"name":"exec_command"`, `\"sandbox_permissions\":\"require_escalated\"`, `\"cmd\":\"touch`}, []string{"description"}},
		{"responses, a patch", "/v1/responses", `{"model":"m",` + codexTools + `,"input":"[[script:write1]]"}`,
			[]string{`"type":"custom_tool_call"`, `*** Add File: note.txt\n+a note\n`}, []string{`"type":"function_call"`}},
		{"responses, in a namespace", "/v1/responses", `{"model":"m",` + codexTools + `,"input":"[[script:sub]]"}`,
			[]string{`"namespace":"agents"`, `\"message\":\"Do it`}, nil},
		{"responses, after a turn of several items", "/v1/responses", `{"model":"m",` + codexTools + `,"input":[{"type":"message","role":"user","content":"[[script:fail]]"},
			{"type":"reasoning"},{"type":"message","role":"assistant","content":"x"},{"type":"function_call","call_id":"c"},{"type":"function_call_output","output":"no"}]}`,
			[]string{"exit 3"}, []string{"Both failed"}},
		{"gemini", "/v1beta/models/flash:generateContent", `{` + geminiTools + `,"contents":[{"role":"user","parts":[{"text":"[[script:write1]]"}]}]}`,
			[]string{`"functionCall"`, `"name":"write_file"`, `"finishReason":"STOP"`, `"modelVersion":"flash"`}, []string{"data:"}},
		{"gemini, a stream, after a tool", "/v1beta/models/flash:streamGenerateContent", `{` + geminiTools + `,"contents":[{"role":"user","parts":[{"text":"[[script:safe]]"}]},
			{"role":"model","parts":[{"functionCall":{"name":"run_shell_command"}}]},{"role":"user","parts":[{"functionResponse":{}}]}]}`,
			[]string{"data: ", `"text":"Listed the f"`, `"finishReason":"STOP"`}, []string{"functionCall"}},
		{"a side request", "/v1/chat/completions", `{"messages":[{"role":"user","content":"[[script:err]]"}]}`, []string{"A mock title"}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if !json.Valid([]byte(tt.body)) {
				t.Fatal("the test's own request is no JSON")
			}
			resp := post(t, url, tt.path, tt.body)
			b, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != 200 {
				t.Fatalf("%d %v: %s", resp.StatusCode, err, b)
			}
			for _, w := range tt.want {
				if !strings.Contains(string(b), w) {
					t.Errorf("the answer lacks %s: %s", w, b)
				}
			}
			for _, n := range tt.not {
				if strings.Contains(string(b), n) {
					t.Errorf("the answer has %s: %s", n, b)
				}
			}
		})
	}
}
