package qwen

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"aep-wrap/adapters"
	"aep-wrap/adapters/adaptertest"
	"aep-wrap/event"
)

func captures(t testing.TB) []adapters.Moment {
	ms := adaptertest.Captures(t, adapters.Hook, name, "hooks", "*")
	for _, raw := range []string{tool, request, allowed, refused, late} {
		ms = append(ms, written(t, raw))
	}
	return ms
}

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Spec{
		Adapter: Adapter(), Corpus: []string{"qwen-code.json"}, Pins: []string{"pins.json"}, Captures: captures, Wires: wires(),
	})
}

func FuzzMap(f *testing.F) { adaptertest.Fuzz(f, Adapter(), captures(f)) }

// The stream and the hooks name a call alike, in whatever order they come.
func TestChannelsJoin(t *testing.T) {
	hook := func(n, more string) adapters.Moment {
		return adaptertest.Moment(t, adapters.Hook, n, `{"session_id":"s","prompt_id":"s########0"`+more+`}`)
	}
	line := func(raw string) adapters.Moment { return adaptertest.Moment(t, adapters.Stream, "", raw) }
	const tool = `,"tool_name":"run_shell_command","tool_input":{"command":"ls"}`
	prompt := hook("UserPromptSubmit", `,"prompt":"go"`)
	again := hook("UserPromptSubmit", `,"prompt":""`)
	use := line(`{"type":"assistant","session_id":"s","message":{"content":[{"type":"tool_use","id":"c1","name":"run_shell_command","input":{"command":"ls"}}]}}`)
	pre := hook("PreToolUse", tool+`,"tool_use_id":"toolu_1","tool_call_id":"c1"`)
	next := adaptertest.Moment(t, adapters.Hook, "UserPromptSubmit", `{"session_id":"s","prompt_id":"s########1","prompt":"go on"}`)
	idle := hook("Notification", `,"notification_type":"idle_prompt","timestamp":"2030-01-01T00:00:00.000Z"`)
	at := func(m adapters.Moment, second int) adapters.Moment {
		m.Payload = maps.Clone(m.Payload)
		m.Payload["timestamp"] = fmt.Sprintf("2026-01-01T00:00:0%d.000Z", second)
		return m
	}
	batch := func(status, text string) adapters.Moment {
		return hook("PostToolBatch", `,"tool_calls":[{"tool_name":"run_shell_command","tool_input":{"command":"ls"},"tool_use_id":"c1","tool_call_id":"c1","status":"`+status+`",
			"tool_response":{"error":"`+text+`","error_type":"execution_denied","response_parts":[{"functionResponse":{"response":{"error":"`+text+`"}}}]}}]`)
	}
	adaptertest.Stories(t, Adapter(), adaptertest.Said, []adaptertest.Story{
		{Name: "a tool that ran, by both", Moments: []adapters.Moment{prompt, use, pre,
			hook("PostToolUse", tool+`,"tool_use_id":"toolu_1","tool_call_id":"c1","tool_response":{}`),
			line(`{"type":"user","session_id":"s","message":{"content":[{"type":"tool_result","tool_use_id":"c1","is_error":false,"content":"x"}]}}`),
			batch("success", ""), again, hook("Stop", ""), line(`{"type":"result","session_id":"s","uuid":"u1","subtype":"success","is_error":false}`),
			hook("Stop", "")},
			Want: "session.started; run.started; tool.requested; tool.completed; run.finished; x.qwen-code.run.usage"},
		{Name: "a failure, by the hooks alone", Moments: []adapters.Moment{prompt, pre,
			hook("PostToolUseFailure", tool+`,"tool_use_id":"toolu_1","tool_call_id":"c1","error":"no"`), batch("error", "no"), hook("Stop", "")},
			Want: "session.started; run.started; tool.requested; tool.failed; run.finished"},
		{Name: "denied by a rule", Moments: []adapters.Moment{prompt, batch("error", `Qwen Code requires permission to use \"x\". Matching deny rule: \"x\".`), hook("Stop", "")},
			Want: "session.started; run.started; tool.requested; tool.denied user_setting; run.finished"},
		{Name: "allowed in the dialog", Moments: []adapters.Moment{prompt, hook("PermissionRequest", tool), pre,
			hook("PostToolUse", tool+`,"tool_use_id":"toolu_1","tool_call_id":"c1","tool_response":{}`)},
			Want: "session.started; run.started; attention.requested; tool.requested; attention.answered allow; attention.resolved answered; tool.completed"},
		{Name: "refused in the dialog", Moments: []adapters.Moment{prompt, hook("PermissionRequest", tool), batch("cancelled", "[Operation Cancelled] Reason: User did not allow tool call")},
			Want: "session.started; run.started; attention.requested; tool.requested; attention.answered deny; attention.resolved answered; tool.failed"},
		{Name: "a turn that ended by itself", Moments: []adapters.Moment{prompt, hook("Stop", ""), idle},
			Want: "session.started; run.started; run.finished; progress.status"},
		{Name: "an interrupt, which fires no hook of its own", Moments: []adapters.Moment{prompt, idle, idle},
			Want: "session.started; run.started; run.cancelled; progress.status; progress.status"},
		{Name: "an interrupt of which the hook names an earlier turn", Moments: []adapters.Moment{prompt, hook("Stop", ""), next, idle},
			Want: "session.started; run.started; run.finished; run.started; run.cancelled; progress.status"},
		{Name: "an interrupt of which the hook names no turn", Moments: []adapters.Moment{prompt, adaptertest.Moment(t, adapters.Hook, "Notification", `{"session_id":"s","notification_type":"idle_prompt","timestamp":"2030-01-01T00:00:00.000Z"}`)},
			Want: "session.started; run.started; run.cancelled; progress.status"},
		{Name: "it waits, told late: the next prompt has come", Moments: []adapters.Moment{at(prompt, 1), at(hook("Stop", ""), 2), at(next, 4), at(idle, 3)},
			Want: "session.started; run.started; run.finished; run.started; progress.status"},
		{Name: "a turn that failed, by the stream", Moments: []adapters.Moment{prompt, line(`{"type":"result","session_id":"s","uuid":"u2","subtype":"error_during_execution","is_error":true,"error":{"message":"m"}}`)},
			Want: "session.started; run.started; run.failed; x.qwen-code.run.usage"},
	})
}

// What the screen writes into its file, with --dual.
const (
	tool    = `{"type":"assistant","session_id":"s","message":{"content":[{"type":"tool_use","id":"c1","name":"run_shell_command","input":{"command":"ls"}}]}}`
	request = `{"type":"control_request","request_id":"r1","request":{"subtype":"can_use_tool","tool_name":"run_shell_command","tool_use_id":"c1","input":{"command":"ls"},
		"permission_suggestions":[{"type":"allow","label":"Allow Command","description":"Execute: ls"}],"blocked_path":null}}`
	allowed = `{"type":"control_response","response":{"subtype":"success","request_id":"r1","response":{"allowed":true}}}`
	refused = `{"type":"control_response","response":{"subtype":"success","request_id":"r1","response":{"allowed":false}}}`
	late    = `{"type":"control_response","response":{"subtype":"error","request_id":"r1","error":"tool call is no longer awaiting approval"}}`
)

func written(t testing.TB, raw string) adapters.Moment {
	o, err := event.ParseObject([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	ms := server.Item(o)
	if len(ms) != 1 {
		t.Fatalf("%s: %d moments", raw, len(ms))
	}
	if ms[0].Session == "" {
		ms[0].Session = "s" // that which was told of last
	}
	return ms[0]
}

// What the screen asks is of the tool that its file told of before, and is
// answered where it was, in its words.
func TestDualJoins(t *testing.T) {
	hook := func(n, more string) adapters.Moment {
		return adaptertest.Moment(t, adapters.Hook, n, `{"session_id":"s","prompt_id":"s########0"`+more+`}`)
	}
	const call = `,"tool_name":"run_shell_command","tool_input":{"command":"ls"},"tool_use_id":"toolu_1","tool_call_id":"c1"`
	prompt := hook("UserPromptSubmit", `,"prompt":"go"`)
	ask := written(t, request)
	adaptertest.Stories(t, Adapter(), adaptertest.Said, []adaptertest.Story{
		{Name: "allowed at the screen", Moments: []adapters.Moment{prompt, written(t, tool), ask, written(t, allowed), hook("PreToolUse", call),
			hook("PostToolUse", call+`,"tool_response":{}`), hook("Stop", "")},
			Want: "session.started; run.started; tool.requested; attention.requested; attention.answered allow; attention.resolved answered; tool.completed; run.finished"},
		{Name: "refused", Moments: []adapters.Moment{prompt, written(t, tool), ask, written(t, refused), written(t, late)},
			Want: "session.started; run.started; tool.requested; attention.requested; attention.answered deny; attention.resolved answered"},
	})
	if got := answer(ask, adapters.Answer{Text: "not now"}); got == nil || string(got.Body) != `{"allowed":false,"request_id":"r1","type":"confirmation_response"}` {
		t.Errorf("%+v", got)
	}
	if server.Item(map[string]any{"type": "stream_event"}) != nil {
		t.Error("pieces of what is said are moments")
	}
}

// Where nobody could answer, or there is no screen, --dual changes nothing.
func TestDual(t *testing.T) {
	for line, want := range map[string]bool{"qwen": true, "qwen --approval-mode default": true, "qwen -p hi": false, "qwen --json-file f": false} {
		l := dualed(strings.Fields(line)...)
		w, err := Wire(l, endpoint)
		switch {
		case err != nil:
			t.Fatal(err)
		case (w.Server != nil) != want:
			t.Errorf("%s: %+v", line, w)
		case want && (w.Args[1] != "--json-file" || strings.Contains(string(w.Files[defaultsFile]), permission)):
			t.Errorf("%s: %q, or %s is hooked", line, w.Args, permission)
		case !want && (len(w.Notes) != 1 || !strings.Contains(w.Notes[0], "--dual changes nothing")):
			t.Errorf("%s: %q", line, w.Notes)
		}
	}
}

func dualed(words ...string) adapters.Launch {
	l := adaptertest.Held(launch(nil, nil, words...))
	l.Dual, l.TTY = true, true
	return l
}

// ---- launching

var endpoint, launch = adaptertest.Endpoint(Adapter()), adaptertest.Launch

func wires() []adaptertest.Wire {
	return []adaptertest.Wire{
		{Name: "plain", Launch: launch(nil, nil, "qwen"), Endpoint: endpoint},
		{Name: "held", Launch: adaptertest.Held(launch(nil, nil, "qwen")), Endpoint: endpoint},
		{Name: "dual", Launch: dualed("qwen", "--approval-mode", "default"), Endpoint: endpoint},
		{Name: "npx", Endpoint: endpoint, Launch: launch(map[string]string{
			"/etc/corp/system-defaults.json": `{"model":{"name":"m"},"hooks":{"Stop":[{"hooks":[{"type":"command","command":"say done"}]}]}}`,
		}, []string{"QWEN_CODE_SYSTEM_SETTINGS_PATH=/etc/corp/settings.json", "AEP_HOOKS=all"}, "npx", "-y", "@qwen-code/qwen-code", "-o", "stream-json", "hi")},
		{Name: "no-http", Endpoint: endpoint, Launch: launch(map[string]string{
			"/home/user/.qwen/settings.json": `{"security":{"allowedHttpHookUrls":["https://hooks.example.com/*"]}}`,
		}, nil, "qwen")},
	}
}

func TestDetect(t *testing.T) {
	adaptertest.Detects(t, Adapter(), map[string]bool{
		"qwen": true, "/usr/bin/qwen hi": true, "npx @qwen-code/qwen-code@0.24.4": true, "bunx @qwen-code/qwen-code": true,
		"node /x/node_modules/@qwen-code/qwen-code/cli-entry.js": true, "qwen2": false, "npx qwen-other": false,
	})
}

func TestWire(t *testing.T) {
	const asks = `{"security":{"folderTrust":{"enabled":true}}}`
	user, project := "/home/user/.qwen/settings.json", "/home/user/proj/.qwen/settings.json"
	adaptertest.Launches(t, Adapter(), func(_ adapters.Launch, w adapters.Wiring) string {
		switch f := string(w.Files[defaultsFile]); {
		case f == "" || w.SetEnv[defaultsVar] != "/run/aep/"+defaultsFile:
			return ""
		case strings.Contains(f, `"type":"http"`):
			return "http"
		}
		return "command"
	}, []adaptertest.Launched{
		{Name: "a session", Line: "qwen", Want: "http"},
		{Name: "headless", Line: "qwen -p hi --output-format stream-json", Want: "http", Stdout: adapters.Stream},
		{Name: "on a screen", Line: "qwen -i hi -o stream-json", Want: "http"},
		{Name: "resumed", Line: "qwen --resume mcp", Want: "http"},
		{Name: "a subcommand", Line: "qwen mcp list", Want: "passthrough"},
		{Name: "after a flag", Line: "qwen -m x serve", Want: "passthrough"},
		{Name: "the version", Line: "qwen -v", Want: "passthrough"},
		{Name: "bare", Line: "qwen --bare -o stream-json hi", Want: "skip hooks", Stdout: adapters.Stream},
		{Name: "hooks are off", Line: "qwen", Files: map[string]string{user: `{"disableAllHooks":true}`}, Want: "disable all hooks"},
		{Name: "and on again", Line: "qwen", Files: map[string]string{user: `{"disableAllHooks":true}`, project: `{"disableAllHooks":false}`}, Want: "http"},
		{Name: "another home", Line: "qwen", Files: map[string]string{"/q/settings.json": `{"disableAllHooks":true}`}, Env: []string{"QWEN_HOME=/q"}, Want: "disable all hooks"},
		{Name: "defaults that cannot be read", Line: "qwen", Files: map[string]string{"/d.json": `{// x`}, Env: []string{"QWEN_CODE_SYSTEM_DEFAULTS_PATH=/d.json"}, Want: "no JSON"},
		{Name: "comments", Line: "qwen", Files: map[string]string{user: "// mine\n{\"disableAllHooks\": true /* so */}"}, Want: "disable all hooks"},
		{Name: "a word that is as good as yes", Line: "qwen", Files: map[string]string{user: `{"disableAllHooks":"true"}`}, Want: "disable all hooks"},
		{Name: "a folder that is not trusted", Line: "qwen", Files: map[string]string{user: asks, project: `{"disableAllHooks":true}`}, Want: "http"},
		{Name: "nor does it say yes", Line: "qwen", Files: map[string]string{user: `{"disableAllHooks":true,` + asks[1:], project: `{"disableAllHooks":false}`}, Want: "disable all hooks"},
		{Name: "a folder that is trusted", Line: "qwen", Files: map[string]string{user: asks, project: `{"disableAllHooks":true}`,
			"/home/user/.qwen/trustedFolders.json": `{"/home/user/proj":"TRUST_FOLDER"}`}, Want: "disable all hooks"},
		{Name: "safe mode by the environment", Line: "qwen", Env: []string{"QWEN_CODE_SAFE_MODE=On"}, Want: "skip hooks"},
		{Name: "bare by the environment", Line: "qwen", Env: []string{"QWEN_CODE_SIMPLE=1"}, Want: "skip hooks"},
		{Name: "neither", Line: "qwen", Env: []string{"QWEN_CODE_SAFE_MODE=0"}, Want: "http"},
		{Name: "a proxy", Line: "qwen", Env: []string{"HTTPS_PROXY=http://p"}, Want: "command"},
		{Name: "a proxy in a flag", Line: "qwen --proxy http://p", Want: "command"},
		{Name: "a proxy in settings", Line: "qwen", Files: map[string]string{project: `{"proxy":"http://p"}`}, Want: "command"},
		{Name: "all addresses", Line: "qwen", Files: map[string]string{user: `{"security":{"allowedHttpHookUrls":["*"]}}`}, Want: "http"},
	})
}

// Of two permission hooks that answer without a decision Qwen Code makes a
// denial. Ours says nothing: it is a command, whatever the others are. So is the
// one that tells of an interrupt, which leaves late by http.
func TestSomeHooksAreCommands(t *testing.T) {
	w, err := Wire(launch(nil, nil, "qwen"), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	var s struct {
		Hooks map[string][]struct{ Hooks []map[string]any }
	}
	if err := json.Unmarshal(w.Files[defaultsFile], &s); err != nil {
		t.Fatal(err)
	}
	for n, list := range s.Hooks {
		typ := list[0].Hooks[0]["type"]
		if want := map[bool]string{true: "command", false: "http"}[n == permission || n == notification]; typ != want {
			t.Errorf("%s is a %s", n, typ)
		}
	}
}

func FuzzWire(f *testing.F) {
	adaptertest.FuzzWire(f, Adapter(), "/d.json", []string{defaultsVar + "=/d.json"}, 0, nil)
}
