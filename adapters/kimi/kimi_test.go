package kimi

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
	ms = append(ms, adaptertest.Captures(t, adapters.Stream, name, "stdout", "*")...)
	return append(ms, adaptertest.Captures(t, adapters.Transcript, name, "logs", "wire.*")...)
}

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Spec{
		Adapter: Adapter(), Corpus: []string{"kimi-code.json"}, Pins: []string{"pins.json"}, Captures: captures, Wires: wires(),
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

func TestChannelsJoin(t *testing.T) {
	hook := func(n, more string) adapters.Moment {
		return moment(t, adapters.Hook, n, `{"session_id":"s","cwd":"/p"`+more+`}`)
	}
	log := func(e string) adapters.Moment {
		return moment(t, adapters.Transcript, "", `{"type":"context.append_loop_event","agentId":"main","time":1795986540193,"event":`+e+`}`)
	}
	const tool = `,"tool_name":"Bash","tool_call_id":"c1","tool_input":{"command":"x"}`
	call := log(`{"type":"tool.call","toolCallId":"c1","name":"Bash","args":{"command":"x"}}`)
	for _, tt := range []struct {
		name    string
		moments []adapters.Moment
		want    string
	}{
		{"by both", []adapters.Moment{hook("UserPromptSubmit", `,"prompt":[],"is_steer":false`), hook("TurnStarted", `,"origin_kind":"user"`),
			hook("PreToolUse", tool), call, hook("PostToolUse", tool+`,"tool_output":"x"`),
			log(`{"type":"tool.result","toolCallId":"c1","result":{"output":"x"}}`), hook("Stop", "")},
			"session.started; run.started; tool.requested; tool.completed; run.finished"},
		{"refused", []adapters.Moment{hook("UserPromptSubmit", ``), hook("PermissionRequest", tool+`,"action":"Running: x"`),
			hook("PermissionResult", tool+`,"decision":"rejected"`), call,
			log(`{"type":"tool.result","toolCallId":"c1","result":{"isError":true,"output":"Tool \"Bash\" was not run because the user rejected the approval request."}}`),
			hook("Stop", "")},
			"session.started; run.started; attention.requested; attention.answered rejected; attention.resolved; tool.requested; tool.failed; run.finished"},
		{"approved", []adapters.Moment{hook("UserPromptSubmit", ``), hook("PermissionRequest", tool),
			hook("PermissionResult", tool+`,"decision":"approved"`), hook("PreToolUse", tool), hook("PostToolUse", tool)},
			"session.started; run.started; attention.requested; attention.answered approved; attention.resolved; tool.requested; tool.completed"},
		{"interrupted", []adapters.Moment{hook("UserPromptSubmit", ``), hook("PreToolUse", tool), hook("Interrupt", "")},
			"session.started; run.started; tool.requested; run.cancelled"},
		{"a turn that nobody typed", []adapters.Moment{hook("TurnStarted", `,"origin_kind":"task"`), hook("Stop", "")},
			"session.started; run.started; run.finished"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := session.New(session.Config{Agent: name, Host: "h", Session: "s", State: session.NewState()})
			var got []string
			for i, m := range tt.moments {
				for _, d := range s.Bind(time.Date(2026, 7, 3, 10, 0, i, 0, time.UTC), mapMoment(m)) {
					got = append(got, strings.TrimSpace(d.Type+" "+d.Fields.Str("answer", "option")))
				}
			}
			if s := strings.Join(got, "; "); s != tt.want {
				t.Errorf("got  %s\nwant %s", s, tt.want)
			}
		})
	}
}

// The log's folder is named as Kimi Code 2.1.0 names it.
func TestLogs(t *testing.T) {
	want := []adapters.LogFile{{Path: "sessions/wd_proj_6bd287a5b6fd/session_1/agents/main/wire.jsonl", Session: "session_1"}}
	if got := Logs(moment(t, adapters.Hook, "Stop", `{"session_id":"session_1","cwd":"/tmp/w/agents/run/proj"}`)); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	for _, raw := range []string{`{"session_id":"../../x","cwd":"/p"}`, `{"session_id":"s"}`, `{}`} {
		if got := Logs(moment(t, adapters.Hook, "Stop", raw)); got != nil {
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
	for line, want := range map[string]bool{
		"kimi": true, "/usr/bin/kimi -p hi": true, "npx @moonshot-ai/kimi-code@2.1.0": true, "bunx @moonshot-ai/kimi-code": true,
		"node /x/node_modules/@moonshot-ai/kimi-code/dist/main.mjs": true, "kimi-cli": false, "npx kimi": false,
	} {
		if got := Detect(adapters.Launch{Args: strings.Fields(line)}); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

func TestWire(t *testing.T) {
	for line, want := range map[string]string{
		"kimi": "wired", "kimi -p login": "wired", "kimi -c": "wired", "kimi acp": "wired", "kimi --session login": "wired",
		"kimi login": "passthrough", "kimi -m x web": "passthrough", "kimi --version": "passthrough",
	} {
		w, err := Wire(launch(nil, nil, strings.Fields(line)...), endpoint)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(w.Notes, "\n")
		switch {
		case w.Passthrough:
			got = "passthrough"
		case len(w.Overlays) == 1 && w.SetEnv[homeVar] == "/run/aep/kimi" && w.LogRoot == "/run/aep/kimi":
			got = "wired"
		}
		if got != want || !slices.Equal(w.Args, strings.Fields(line)) {
			t.Errorf("%s: %s; want %s", line, got, want)
		}
	}
	if w, _ := Wire(launch(nil, nil, "kimi"), adapters.Endpoint{}); len(w.Notes) != 1 || len(w.Overlays) > 0 {
		t.Errorf("there is nothing to report to: %+v", w)
	}
}

// Whatever the user's file holds, it stands before ours as it is.
func FuzzWire(f *testing.F) {
	f.Add("-p\x00hi", "a = 1\n[b]\nhooks = 2")
	f.Fuzz(func(t *testing.T, line, users string) {
		args := append([]string{"kimi"}, strings.Split(line, "\x00")...)
		w, err := Wire(launch(map[string]string{"/home/user/.kimi-code/config.toml": users}, nil, args...), endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(w.Args, args) {
			t.Fatalf("%q became %q", args, w.Args)
		}
		for _, c := range w.Files {
			if !strings.HasPrefix(string(c), users) {
				t.Fatalf("%q", c)
			}
		}
	})
}
