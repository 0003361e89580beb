package kimi

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"aep-wrap/adapters"
	"aep-wrap/adapters/adaptertest"
)

func captures(t testing.TB) (ms []adapters.Moment) {
	ms = append(ms, adaptertest.Captures(t, adapters.Log, name, "logs", "wire.*")...)
	ms = append(ms, adaptertest.Captures(t, adapters.Hook, name, "hooks", "*")...)
	ms = append(ms, adaptertest.Captures(t, adapters.Stream, name, "stdout", "*")...)
	return append(ms, adaptertest.Captures(t, adapters.Transcript, name, "logs", "wire.*")...)
}

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Spec{
		Adapter: Adapter(), Corpus: []string{"kimi-code.json"}, Pins: []string{"pins.json"}, Captures: captures, Wires: wires(),
	})
}

func FuzzMap(f *testing.F) { adaptertest.Fuzz(f, Adapter(), captures(f)) }

func TestChannelsJoin(t *testing.T) {
	hook := func(n, more string) adapters.Moment {
		return adaptertest.Moment(t, adapters.Hook, n, `{"session_id":"s","cwd":"/p"`+more+`}`)
	}
	log := func(e string) adapters.Moment {
		return adaptertest.Moment(t, adapters.Transcript, "", `{"type":"context.append_loop_event","agentId":"main","time":1795986540193,"event":`+e+`}`)
	}
	const tool = `,"tool_name":"Bash","tool_call_id":"c1","tool_input":{"command":"x"}`
	call := log(`{"type":"tool.call","toolCallId":"c1","name":"Bash","args":{"command":"x"}}`)
	adaptertest.Stories(t, Adapter(), adaptertest.Said, []adaptertest.Story{
		{Name: "by both", Moments: []adapters.Moment{hook("UserPromptSubmit", `,"prompt":[],"is_steer":false`), hook("TurnStarted", `,"origin_kind":"user"`),
			hook("PreToolUse", tool), call, hook("PostToolUse", tool+`,"tool_output":"x"`),
			log(`{"type":"tool.result","toolCallId":"c1","result":{"output":"x"}}`), hook("Stop", "")},
			Want: "session.started; run.started; tool.requested; tool.completed; run.finished"},
		{Name: "refused", Moments: []adapters.Moment{hook("UserPromptSubmit", ``), hook("PermissionRequest", tool+`,"action":"Running: x"`),
			hook("PermissionResult", tool+`,"decision":"rejected"`), call,
			log(`{"type":"tool.result","toolCallId":"c1","result":{"isError":true,"output":"Tool \"Bash\" was not run because the user rejected the approval request."}}`),
			hook("Stop", "")},
			Want: "session.started; run.started; attention.requested; attention.answered rejected; attention.resolved answered; tool.requested; tool.failed; run.finished"},
		{Name: "approved", Moments: []adapters.Moment{hook("UserPromptSubmit", ``), hook("PermissionRequest", tool),
			hook("PermissionResult", tool+`,"decision":"approved"`), hook("PreToolUse", tool), hook("PostToolUse", tool)},
			Want: "session.started; run.started; attention.requested; attention.answered approved; attention.resolved answered; tool.requested; tool.completed"},
		{Name: "interrupted", Moments: []adapters.Moment{hook("UserPromptSubmit", ``), hook("PreToolUse", tool), hook("Interrupt", "")},
			Want: "session.started; run.started; tool.requested; run.cancelled user"},
		{Name: "a turn that nobody typed", Moments: []adapters.Moment{hook("TurnStarted", `,"origin_kind":"task"`), hook("Stop", "")},
			Want: "session.started; run.started; run.finished"},
	})
}

// The log's folder is named as Kimi Code 2.1.0 names it.
func TestLogs(t *testing.T) {
	want := []adapters.LogFile{{Path: "sessions/wd_proj_6bd287a5b6fd/session_1/agents/main/wire.jsonl", Session: "session_1"}}
	if got := Logs(adaptertest.Moment(t, adapters.Hook, "Stop", `{"session_id":"session_1","cwd":"/tmp/w/agents/run/proj"}`)); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	for _, raw := range []string{`{"session_id":"../../x","cwd":"/p"}`, `{"session_id":"s"}`, `{}`} {
		if got := Logs(adaptertest.Moment(t, adapters.Hook, "Stop", raw)); got != nil {
			t.Errorf("%s: %v", raw, got)
		}
	}
	for dir, want := range map[string]string{"/": "wd_workspace_", "/a/My App!/": "wd_my-app_", "/x/" + strings.Repeat("a", 50): "wd_" + strings.Repeat("a", 40) + "_", "/a/..": "wd_workspace_"} {
		if got := bucket(dir); !strings.HasPrefix(got, want) || len(got) != len(want)+12 {
			t.Errorf("%s: %s", dir, got)
		}
	}
}

// ---- launching

var endpoint, launch = adaptertest.Endpoint(Adapter()), adaptertest.Launch

func wires() []adaptertest.Wire {
	return []adaptertest.Wire{
		{Name: "plain", Launch: launch(nil, nil, "kimi"), Endpoint: endpoint},
		{Name: "held", Launch: adaptertest.Held(launch(nil, nil, "kimi")), Endpoint: endpoint},
		{Name: "npx", Endpoint: endpoint, Launch: launch(map[string]string{
			"/srv/kimi/config.toml": "default_model = \"k\"\n\n[[hooks]]\nevent = \"Stop\"\ncommand = \"say done\"\n",
		}, []string{"KIMI_CODE_HOME=/srv/kimi"}, "npx", "-y", "@moonshot-ai/kimi-code", "-p", "hi")},
		{Name: "inline", Endpoint: endpoint, Launch: launch(map[string]string{
			"/home/user/.kimi-code/config.toml": "hooks = [{event = \"Stop\", command = \"say done\"}]\n",
		}, nil, "kimi", "-p", "hi", "--output-format", "stream-json")},
	}
}

func TestDetect(t *testing.T) {
	adaptertest.Detects(t, Adapter(), map[string]bool{
		"kimi": true, "/usr/bin/kimi -p hi": true, "npx @moonshot-ai/kimi-code@2.1.0": true, "bunx @moonshot-ai/kimi-code": true,
		"node /x/node_modules/@moonshot-ai/kimi-code/dist/main.mjs": true, "kimi-cli": false, "npx kimi": false,
	})
}

func TestWire(t *testing.T) {
	adaptertest.Launches(t, Adapter(), func(l adapters.Launch, w adapters.Wiring) string {
		if len(w.Overlays) == 1 && w.SetEnv[homeVar] == "/run/aep/kimi" && w.LogRoot == "/run/aep/kimi" && slices.Equal(w.Args, l.Args) {
			return "wired"
		}
		return ""
	}, []adaptertest.Launched{
		{Name: "a session", Line: "kimi", Want: "wired"},
		{Name: "headless", Line: "kimi -p login", Want: "wired"},
		{Name: "the last one", Line: "kimi -c", Want: "wired"},
		{Name: "for an editor", Line: "kimi acp", Want: "wired"},
		{Name: "a session's name", Line: "kimi --session login", Want: "wired"},
		{Name: "a subcommand", Line: "kimi login", Want: "passthrough"},
		{Name: "after a flag", Line: "kimi -m x web", Want: "passthrough"},
		{Name: "the version", Line: "kimi --version", Want: "passthrough"},
		{Name: "inline hooks", Line: "kimi -p x --output-format stream-json", Files: map[string]string{"/home/user/.kimi-code/config.toml": "hooks = []\n"}, Want: "lists its hooks inline", Stdout: adapters.Stream},
		{Name: "under another spelling", Line: "kimi", Files: map[string]string{"/home/user/.kimi-code/config.toml": "a = 1\n  \"hooks\"= []\n[x]\n"}, Want: "lists its hooks inline"},
		{Name: "hooks of another table", Line: "kimi", Files: map[string]string{"/home/user/.kimi-code/config.toml": "a = 1\n[features]\nhooks = false\n"}, Want: "wired"},
	})
}

// What Kimi Code 2.1.0 says of a file.
func TestChecks(t *testing.T) {
	a := Adapter()
	adaptertest.Heard(t, a, map[string]string{
		"Kimi doctor\n\nOK config.toml  /dev/stdin\n\nAll checked config files are valid.\n":                                                                        "",
		"ERROR config.toml  /dev/stdin\n  Invalid configuration in /dev/stdin.\n  Validation issues:\n    hooks[0].timeout: Too big: expected number to be <=600\n": "ours with them: hooks[0].timeout: Too big",
		"  Validation issues:\n    telemetry: no\n    hooks: Invalid input: expected array, received object\n":                                                      "hooks: Invalid input",
		"  Invalid TOML in /dev/stdin: Invalid TOML document: only letter, numbers, dashes and underscores are allowed in keys (line 1, column 1)\n":                "cannot read your config.toml with our hooks after it: Invalid TOML document: only",
		"error: unknown command 'doctor'\n": "?",
	})
	l := adaptertest.Launch(map[string]string{"/home/user/.kimi-code/config.toml": "model = 1\n"}, nil, "kimi")
	w, err := Wire(l, adaptertest.Endpoint(a))
	if err != nil {
		t.Fatal(err)
	}
	if args, stdin := a.Checks[0].Ask(l, w); args[0] != "kimi" || !strings.HasPrefix(stdin, "model = 1\n") || !strings.Contains(stdin, "[[hooks]]") {
		t.Errorf("asked by %q about %q", args, stdin)
	}
}

// Whatever the user's file holds, it stands before ours as it is.
func FuzzWire(f *testing.F) {
	adaptertest.FuzzWire(f, Adapter(), "/home/user/.kimi-code/config.toml", nil, 0, func(t *testing.T, w adapters.Wiring, users string) {
		for _, c := range w.Files {
			if !strings.HasPrefix(string(c), users) {
				t.Fatalf("%q", c)
			}
		}
	})
}
