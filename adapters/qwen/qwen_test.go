package qwen

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/adaptertest"
	"aep-wrap/event"
	"aep-wrap/session"
)

func captures(t testing.TB) []adapters.Moment {
	return adaptertest.Captures(t, adapters.Hook, name, "hooks", "*")
}

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Spec{
		Adapter: Adapter(), Corpus: []string{"qwen-code.json"}, Pins: []string{"pins.json"}, Captures: captures, Wires: wires(),
	})
}

func FuzzMap(f *testing.F) { adaptertest.Fuzz(f, Adapter(), captures(f)) }

func moment(t testing.TB, c adapters.Channel, n, raw string) adapters.Moment {
	t.Helper()
	p, err := event.ParseObject([]byte(raw))
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return adapters.Moment{Channel: c, Name: n, Payload: p, Raw: []byte(raw), Session: "s"}
}

// The stream and the hooks name a call alike, in whatever order they come.
func TestChannelsJoin(t *testing.T) {
	hook := func(n, more string) adapters.Moment {
		return moment(t, adapters.Hook, n, `{"session_id":"s","prompt_id":"s########0"`+more+`}`)
	}
	line := func(raw string) adapters.Moment { return moment(t, adapters.Stream, "", raw) }
	const tool = `,"tool_name":"run_shell_command","tool_input":{"command":"ls"}`
	prompt := hook("UserPromptSubmit", `,"prompt":"go"`)
	again := hook("UserPromptSubmit", `,"prompt":""`)
	use := line(`{"type":"assistant","session_id":"s","message":{"content":[{"type":"tool_use","id":"c1","name":"run_shell_command","input":{"command":"ls"}}]}}`)
	pre := hook("PreToolUse", tool+`,"tool_use_id":"toolu_1","tool_call_id":"c1"`)
	batch := func(status, text string) adapters.Moment {
		return hook("PostToolBatch", `,"tool_calls":[{"tool_name":"run_shell_command","tool_input":{"command":"ls"},"tool_use_id":"c1","tool_call_id":"c1","status":"`+status+`",
			"tool_response":{"error":"`+text+`","error_type":"execution_denied","response_parts":[{"functionResponse":{"response":{"error":"`+text+`"}}}]}}]`)
	}
	for _, tt := range []struct {
		name    string
		moments []adapters.Moment
		want    string
	}{
		{"a tool that ran, by both", []adapters.Moment{prompt, use, pre,
			hook("PostToolUse", tool+`,"tool_use_id":"toolu_1","tool_call_id":"c1","tool_response":{}`),
			line(`{"type":"user","session_id":"s","message":{"content":[{"type":"tool_result","tool_use_id":"c1","is_error":false,"content":"x"}]}}`),
			batch("success", ""), again, hook("Stop", ""), line(`{"type":"result","session_id":"s","uuid":"u1","subtype":"success","is_error":false}`),
			hook("Stop", "")},
			"session.started; run.started; tool.requested; tool.completed; run.finished; x.qwen-code.run.usage"},
		{"a failure, by the hooks alone", []adapters.Moment{prompt, pre,
			hook("PostToolUseFailure", tool+`,"tool_use_id":"toolu_1","tool_call_id":"c1","error":"no"`), batch("error", "no"), hook("Stop", "")},
			"session.started; run.started; tool.requested; tool.failed; run.finished"},
		{"denied by a rule", []adapters.Moment{prompt, batch("error", `Qwen Code requires permission to use \"x\". Matching deny rule: \"x\".`), hook("Stop", "")},
			"session.started; run.started; tool.requested; tool.denied user_setting; run.finished"},
		{"allowed in the dialog", []adapters.Moment{prompt, hook("PermissionRequest", tool), pre,
			hook("PostToolUse", tool+`,"tool_use_id":"toolu_1","tool_call_id":"c1","tool_response":{}`)},
			"session.started; run.started; attention.requested; tool.requested; attention.answered allow; attention.resolved answered; tool.completed"},
		{"refused in the dialog", []adapters.Moment{prompt, hook("PermissionRequest", tool), batch("cancelled", "[Operation Cancelled] Reason: User did not allow tool call")},
			"session.started; run.started; attention.requested; tool.requested; attention.answered deny; attention.resolved answered; tool.failed"},
		{"a turn that ended by itself", []adapters.Moment{prompt, hook("Stop", ""), hook("Notification", `,"notification_type":"idle_prompt"`)},
			"session.started; run.started; run.finished; progress.status"},
		{"an interrupt, which fires no hook of its own", []adapters.Moment{prompt, hook("Notification", `,"notification_type":"idle_prompt"`), hook("Notification", `,"notification_type":"idle_prompt"`)},
			"session.started; run.started; run.cancelled; progress.status; progress.status"},
		{"a turn that failed, by the stream", []adapters.Moment{prompt, line(`{"type":"result","session_id":"s","uuid":"u2","subtype":"error_during_execution","is_error":true,"error":{"message":"m"}}`)},
			"session.started; run.started; run.failed; x.qwen-code.run.usage"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := session.New(session.Config{Agent: name, Host: "h", Session: "s", State: session.NewState()})
			var got []string
			for i, m := range tt.moments {
				for _, d := range s.Bind(time.Date(2026, 7, 3, 10, 0, i, 0, time.UTC), mapMoment(m)) {
					got = append(got, strings.TrimSpace(d.Type+" "+d.Fields.Str("answer", "option")+d.Fields.Str("by")+d.Fields.Str("resolution")))
				}
			}
			if s := strings.Join(got, "; "); s != tt.want {
				t.Errorf("got  %s\nwant %s", s, tt.want)
			}
		})
	}
}

func TestLogs(t *testing.T) {
	want := []adapters.LogFile{{Path: "/h/a.jsonl", Session: "s"}}
	if got := Logs(moment(t, adapters.Hook, "Stop", `{"session_id":"s","transcript_path":"/h/a.jsonl"}`)); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	if got := Logs(adapters.Moment{Channel: adapters.Stream}); got != nil {
		t.Errorf("%v", got)
	}
}

// ---- launching

var endpoint, launch = adaptertest.Endpoint(Adapter()), adaptertest.Launch

func wires() []adaptertest.Wire {
	return []adaptertest.Wire{
		{Name: "plain", Launch: launch(nil, nil, "qwen"), Endpoint: endpoint},
		{Name: "held", Launch: adaptertest.Held(launch(nil, nil, "qwen")), Endpoint: endpoint},
		{Name: "npx", Endpoint: endpoint, Launch: launch(map[string]string{
			"/etc/corp/system-defaults.json": `{"model":{"name":"m"},"hooks":{"Stop":[{"hooks":[{"type":"command","command":"say done"}]}]}}`,
		}, []string{"QWEN_CODE_SYSTEM_SETTINGS_PATH=/etc/corp/settings.json", "AEP_HOOKS=all"}, "npx", "-y", "@qwen-code/qwen-code", "-o", "stream-json", "hi")},
		{Name: "no-http", Endpoint: endpoint, Launch: launch(map[string]string{
			"/home/user/.qwen/settings.json": `{"security":{"allowedHttpHookUrls":["https://hooks.example.com/*"]}}`,
		}, nil, "qwen")},
	}
}

func TestDetect(t *testing.T) {
	for line, want := range map[string]bool{
		"qwen": true, "/usr/bin/qwen hi": true, "npx @qwen-code/qwen-code@0.24.4": true, "bunx @qwen-code/qwen-code": true,
		"node /x/node_modules/@qwen-code/qwen-code/cli-entry.js": true, "qwen2": false, "npx qwen-other": false,
	} {
		if got := Detect(adapters.Launch{Args: strings.Fields(line)}); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

func TestWire(t *testing.T) {
	user, project := "/home/user/.qwen/settings.json", "/home/user/proj/.qwen/settings.json"
	for _, tt := range []struct {
		name, line string
		files      map[string]string
		env        []string
		want       string // "http", "command", "passthrough", or words of the note
		stdout     adapters.Channel
	}{
		{"a session", "qwen", nil, nil, "http", ""},
		{"headless", "qwen -p hi --output-format stream-json", nil, nil, "http", adapters.Stream},
		{"on a screen", "qwen -i hi -o stream-json", nil, nil, "http", ""},
		{"resumed", "qwen --resume mcp", nil, nil, "http", ""},
		{"a subcommand", "qwen mcp list", nil, nil, "passthrough", ""},
		{"after a flag", "qwen -m x serve", nil, nil, "passthrough", ""},
		{"the version", "qwen -v", nil, nil, "passthrough", ""},
		{"bare", "qwen --bare -o stream-json hi", nil, nil, "skip hooks", adapters.Stream},
		{"hooks are off", "qwen", map[string]string{user: `{"disableAllHooks":true}`}, nil, "disable all hooks", ""},
		{"and on again", "qwen", map[string]string{user: `{"disableAllHooks":true}`, project: `{"disableAllHooks":false}`}, nil, "http", ""},
		{"another home", "qwen", map[string]string{"/q/settings.json": `{"disableAllHooks":true}`}, []string{"QWEN_HOME=/q"}, "disable all hooks", ""},
		{"defaults that cannot be read", "qwen", map[string]string{"/d.json": `{// x`}, []string{"QWEN_CODE_SYSTEM_DEFAULTS_PATH=/d.json"}, "no plain JSON", ""},
		{"a proxy", "qwen", nil, []string{"HTTPS_PROXY=http://p"}, "command", ""},
		{"a proxy in a flag", "qwen --proxy http://p", nil, nil, "command", ""},
		{"a proxy in settings", "qwen", map[string]string{project: `{"proxy":"http://p"}`}, nil, "command", ""},
		{"all addresses", "qwen", map[string]string{user: `{"security":{"allowedHttpHookUrls":["*"]}}`}, nil, "http", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := Wire(launch(tt.files, tt.env, strings.Fields(tt.line)...), endpoint)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(w.Notes, "\n")
			if w.Passthrough {
				got = "passthrough"
			} else if f := string(w.Files[defaultsFile]); f != "" {
				if got = "command"; strings.Contains(f, `"type":"http"`) {
					got = "http"
				}
				if w.SetEnv[defaultsVar] != "/run/aep/"+defaultsFile {
					t.Errorf("%v", w.SetEnv)
				}
			}
			if !strings.Contains(got, tt.want) || w.Stdout != tt.stdout {
				t.Errorf("%s (stdout %q); want %s", got, w.Stdout, tt.want)
			}
		})
	}
}

// Of two permission hooks that answer without a decision Qwen Code makes a
// denial. Ours says nothing: it is a command, whatever the others are.
func TestPermissionIsACommand(t *testing.T) {
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
		if want := map[bool]string{true: "command", false: "http"}[n == permission]; typ != want {
			t.Errorf("%s is a %s", n, typ)
		}
	}
}

func FuzzWire(f *testing.F) {
	f.Add("-p\x00hi", "{}")
	f.Add("--\x00mcp", `{"hooks":{"Stop":7}}`)
	f.Fuzz(func(t *testing.T, line, defaults string) {
		args := append([]string{"qwen"}, strings.Split(line, "\x00")...)
		w, err := Wire(launch(map[string]string{"/d.json": defaults}, []string{"QWEN_CODE_SYSTEM_DEFAULTS_PATH=/d.json"}, args...), endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(w.Args, args) {
			t.Fatalf("%q became %q", args, w.Args)
		}
		for _, f := range w.Files {
			if !json.Valid(f) {
				t.Fatalf("%s", f)
			}
		}
	})
}
