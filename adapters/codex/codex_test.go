package codex

import (
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

func captures(t testing.TB) (ms []adapters.Moment) {
	ms = append(ms, adaptertest.Captures(t, adapters.Hook, name, "hooks", "*")...)
	ms = append(ms, adaptertest.Captures(t, adapters.Hook, name, "sequences", "*")...)
	return append(ms, adaptertest.Captures(t, adapters.Transcript, name, "logs", "*")...)
}

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Spec{
		Adapter: Adapter(), Corpus: []string{"codex.json"}, Pins: []string{"pins.json"}, Captures: captures, Wires: wires(),
	})
}

func FuzzMap(f *testing.F) { adaptertest.Fuzz(f, Adapter(), captures(f)) }

// The rollout is ahead of the hooks: what it says of a tool's end counts, and
// nothing is told twice.
func TestRolloutJoins(t *testing.T) {
	hook := func(n, more string) adapters.Moment {
		return moment(t, adapters.Hook, n, `{"session_id":"s","turn_id":"t1"`+more+`}`)
	}
	log := func(payload string) adapters.Moment {
		return moment(t, adapters.Transcript, "event_msg", `{"type":"event_msg","timestamp":"2026-07-03T10:00:00Z","payload":`+payload+`}`)
	}
	for _, tt := range []struct {
		name    string
		moments []adapters.Moment
		want    string
	}{
		{"a command that failed", []adapters.Moment{
			hook("UserPromptSubmit", `,"prompt":"go"`),
			hook("PreToolUse", `,"tool_name":"Bash","tool_use_id":"c1","tool_input":{"command":"false"}`),
			log(`{"type":"item_completed","thread_id":"s","turn_id":"t1","item":{"type":"CommandExecution","id":"c1","status":"failed","aggregated_output":"","exit_code":1}}`),
			hook("PostToolUse", `,"tool_name":"Bash","tool_use_id":"c1","tool_input":{"command":"false"},"tool_response":""`),
			hook("Stop", ``),
			log(`{"type":"task_complete","turn_id":"t1","root_turn_id":"t1","last_agent_message":"x","duration_ms":3}`),
		}, "session.started; run.started t1; tool.requested t1; tool.failed t1; run.finished t1"},
		{"a patch, which has no PostToolUse", []adapters.Moment{
			hook("UserPromptSubmit", ``),
			hook("PreToolUse", `,"tool_name":"Bash","tool_use_id":"c1","tool_input":{"command":"apply_patch"}`),
			log(`{"type":"item_completed","thread_id":"s","turn_id":"t1","item":{"type":"FileChange","id":"c1","status":"completed","stdout":"ok"}}`),
			hook("Stop", ``),
		}, "session.started; run.started t1; tool.requested t1; tool.completed t1; run.finished t1"},
		{"an interrupt, told twice", []adapters.Moment{
			hook("UserPromptSubmit", ``),
			log(`{"type":"turn_aborted","turn_id":"t1","root_turn_id":"t1","reason":"interrupted"}`),
			hook("Interrupt", ``),
		}, "session.started; run.started t1; run.cancelled t1"},
		{"a turn's error, which fires no hook", []adapters.Moment{
			hook("UserPromptSubmit", ``),
			log(`{"type":"task_complete","turn_id":"t1","root_turn_id":"t1","error":{"message":"m","codex_error_info":"other"},"duration_ms":3}`),
		}, "session.started; run.started t1; run.failed t1"},
		{"a permission refused", []adapters.Moment{
			hook("UserPromptSubmit", ``),
			hook("PreToolUse", `,"tool_name":"Bash","tool_use_id":"c0","tool_input":{"command":"other"}`),
			hook("PreToolUse", `,"tool_name":"Bash","tool_use_id":"c1","tool_input":{"command":"rm"}`),
			hook("PermissionRequest", `,"tool_name":"Bash","tool_input":{"command":"rm","description":"why"}`),
			moment(t, adapters.Transcript, "response_item", `{"type":"response_item","timestamp":"2026-07-03T10:00:00Z","payload":{"type":"function_call_output","call_id":"c1","output":"exec_command failed: CreateProcess { message: \"Rejected(\\\"no\\\")\" }"}}`),
		}, "session.started; run.started t1; tool.requested t1; tool.requested t1; attention.requested t1; attention.answered t1; attention.resolved t1; tool.failed t1"},
		{"a subagent's turn is a step of its parent's", []adapters.Moment{
			hook("UserPromptSubmit", ``),
			moment(t, adapters.Hook, "SubagentStart", `{"session_id":"s","turn_id":"t2","agent_id":"a1","agent_type":"default"}`),
			moment(t, adapters.Hook, "UserPromptSubmit", `{"session_id":"s","turn_id":"t2","agent_id":"a1","prompt":"inner"}`),
			moment(t, adapters.Hook, "PreToolUse", `{"session_id":"s","turn_id":"t2","agent_id":"a1","tool_name":"Bash","tool_use_id":"c2","tool_input":{}}`),
			log(`{"type":"item_completed","thread_id":"a1","turn_id":"t2","item":{"type":"CommandExecution","id":"c2","status":"completed","aggregated_output":"x"}}`),
			log(`{"type":"task_complete","turn_id":"t2","root_turn_id":"t1","error":{"message":"m"}}`),
			moment(t, adapters.Hook, "SubagentStop", `{"session_id":"s","turn_id":"t2","agent_id":"a1","agent_type":"default"}`),
			hook("Stop", ``),
		}, "session.started; run.started t1; delegation.subagent.started t1; tool.requested t1/a1; tool.completed t1/a1; delegation.subagent.stopped t1; run.finished t1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := session.New(session.Config{Agent: name, Host: "h", Session: "s", State: session.NewState()})
			var got []string
			for i, m := range tt.moments {
				for _, d := range s.Bind(time.Date(2026, 7, 3, 10, 0, i, 0, time.UTC), mapMoment(m)) {
					got = append(got, strings.Trim(d.Type+" "+d.Run+"/"+d.Step, " /"))
				}
			}
			if s := strings.Join(got, "; "); s != tt.want {
				t.Errorf("got  %s\nwant %s", s, tt.want)
			}
		})
	}
}

func moment(t testing.TB, c adapters.Channel, n, raw string) adapters.Moment {
	t.Helper()
	p, err := event.ParseObject([]byte(raw))
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return adapters.Moment{Channel: c, Name: n, Payload: p, Raw: []byte(raw), Session: "s"}
}

func TestLogs(t *testing.T) {
	m := moment(t, adapters.Hook, "SubagentStop", `{"session_id":"s","transcript_path":"/h/a.jsonl","agent_transcript_path":"/h/b.jsonl"}`)
	want := []adapters.LogFile{{Path: "/h/a.jsonl", Session: "s"}, {Path: "/h/b.jsonl", Session: "s"}}
	if got := Logs(m); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	if got := Logs(moment(t, adapters.Hook, "SessionStart", `{"session_id":"s","transcript_path":null}`)); got != nil {
		t.Errorf("an ephemeral session has none: %v", got)
	}
}

// ---- launching

var endpoint, launch = adaptertest.Endpoint(Adapter()), adaptertest.Launch

func wires() []adaptertest.Wire {
	spaced := endpoint
	spaced.Helper = []string{"/opt/my tools/it's/aep-wrap", "hook", name}
	return []adaptertest.Wire{
		{Name: "plain", Launch: launch(nil, nil, "codex"), Endpoint: endpoint},
		{Name: "held", Launch: adaptertest.Held(launch(nil, nil, "codex")), Endpoint: endpoint},
		{Name: "npx", Launch: launch(nil, []string{"AEP_HOOKS=all"}, "npx", "-y", "@openai/codex", "exec", "--json", "go"), Endpoint: spaced},
		{Name: "hooks-off", Launch: launch(map[string]string{"/home/user/.codex/config.toml": "model = \"x\"\n[features]\nhooks = false # no\n"}, nil,
			"codex", "exec", "--json", "go"), Endpoint: endpoint},
	}
}

func TestDetect(t *testing.T) {
	for line, want := range map[string]bool{
		"codex": true, "/usr/bin/codex exec hi": true, "npx @openai/codex@0.171.0": true, "bunx @openai/codex": true,
		"node /x/node_modules/@openai/codex/bin/codex.js exec": true, "codexx": false, "npx codex-other": false, "node codex.js": false,
	} {
		if got := Detect(adapters.Launch{Args: strings.Fields(line)}); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

func TestWire(t *testing.T) {
	config := "/home/user/.codex/config.toml"
	for _, tt := range []struct {
		name, line string
		files      map[string]string
		env        []string
		want       string // "wired", "passthrough", or words of the note
		stdout     adapters.Channel
	}{
		{"a prompt", "codex hello", nil, nil, "wired", ""},
		{"headless", "codex -m x exec --json hello", nil, nil, "wired", ""},
		{"resumed", "codex resume --last", nil, nil, "wired", ""},
		{"a flag's value is no subcommand", "codex -m mcp", nil, nil, "wired", ""},
		{"nor are images", "codex -i a.png login.png --search", nil, nil, "wired", ""},
		{"a subcommand", "codex -c a=1 mcp list", nil, nil, "passthrough", ""},
		{"the version", "codex --version", nil, nil, "passthrough", ""},
		{"help", "codex exec --help", nil, nil, "passthrough", ""},
		{"a remote app server", "codex --remote ws://127.0.0.1:1", nil, nil, "remote", ""},
		{"hooks of the command line's own", "codex -c hooks.Stop=[] exec --json x", nil, nil, "hooks of its own (-c hooks.Stop)", adapters.Stream},
		{"disabled", "codex exec --json --disable hooks x", nil, nil, "--disable hooks", adapters.Stream},
		{"disabled by -c", "codex --config=features.hooks=false", nil, nil, "features.hooks=false", ""},
		{"disabled by the user", "codex", map[string]string{config: "[features]\nhooks=false\n"}, nil, "config.toml disables hooks", ""},
		{"elsewhere", "codex", map[string]string{"/x/config.toml": "features.hooks = false"}, []string{"CODEX_HOME=/x"}, "config.toml disables hooks", ""},
		{"not this feature", "codex", map[string]string{config: "[other]\nhooks=false\n"}, nil, "wired", ""},
		{"policy", "codex", map[string]string{"/etc/codex/requirements.toml": "allow_managed_hooks_only = true\n[x]\n"}, nil, "policy", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := Wire(launch(tt.files, tt.env, strings.Fields(tt.line)...), endpoint)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.Join(w.Notes, "\n")
			switch {
			case w.Passthrough:
				got = "passthrough"
			case len(w.Args) > len(strings.Fields(tt.line)):
				got = "wired"
			}
			if !strings.Contains(got, tt.want) || w.Stdout != tt.stdout {
				t.Errorf("%s (stdout %q); want %s", got, w.Stdout, tt.want)
			}
		})
	}
	if w, _ := Wire(launch(nil, nil, "codex"), adapters.Endpoint{}); len(w.Args) != 1 || len(w.Notes) != 1 {
		t.Errorf("there is nothing to report to: %q", w.Args)
	}
}

// The hash of a hook is the one that the binary gives it (app-server,
// hooks/list).
func TestHash(t *testing.T) {
	h := hooked{name: "PreToolUse", timeout: 10}
	e := adapters.Endpoint{Helper: []string{"/opt/my tools/aep-wrap", "hook", name}}
	if got, want := hash(h, e.HelperCommand(h.name)), "sha256:dc967312b7b1a7e1a52764688ed7d47707bf451a6685dbf84b93c204f725eeaf"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// Whatever the words: all of them are there afterwards, in their order.
func FuzzWire(f *testing.F) {
	f.Add("exec\x00--json\x00go")
	f.Add("-c\x00hooks.Stop=[]\x00--\x00mcp")
	f.Fuzz(func(t *testing.T, line string) {
		args := append([]string{"codex"}, strings.Split(line, "\x00")...)
		w, err := Wire(launch(nil, nil, args...), endpoint)
		if err != nil {
			t.Fatal(err)
		}
		n := len(w.Args) - len(args)
		if n < 0 || !slices.Equal(w.Args[1+n:], args[1:]) {
			t.Fatalf("%q became %q", args, w.Args)
		}
	})
}
