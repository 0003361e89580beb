package gemini

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

func captures(t testing.TB) (ms []adapters.Moment) {
	ms = append(ms, adaptertest.Captures(t, adapters.Hook, name, "hooks", "*")...)
	ms = append(ms, adaptertest.Captures(t, adapters.Stream, name, "stdout", "*")...)
	return append(ms, adaptertest.Captures(t, adapters.Transcript, name, "logs", "*")...)
}

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Spec{
		Adapter: Adapter(), Corpus: []string{"gemini-cli.json"}, Pins: []string{"pins.json"}, Captures: captures, Wires: wires(),
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

// Tools are paired by input and order; what fires no hook is told by the log.
func TestChannelsJoin(t *testing.T) {
	hook := func(n, more string) adapters.Moment {
		return moment(t, adapters.Hook, n, `{"session_id":"s","transcript_path":"/l"`+more+`}`)
	}
	log := func(tool, args, err string) adapters.Moment {
		return moment(t, adapters.Transcript, "gemini", `{"type":"gemini","id":"m1","toolCalls":[{"id":"c1","name":"`+tool+`","args":`+args+`,"result":[{"functionResponse":{"response":{`+err+`}}}]}]}`)
	}
	const sh = `,"tool_name":"run_shell_command","tool_input":{"command":`
	prompt := hook("BeforeAgent", `,"prompt":"go"`)
	for _, tt := range []struct {
		name    string
		moments []adapters.Moment
		want    string
	}{
		{"two at once, ended out of order", []adapters.Moment{prompt,
			hook("BeforeTool", sh+`"a"}`), hook("BeforeTool", sh+`"b"}`),
			hook("AfterTool", sh+`"b"},"tool_response":{"llmContent":"Output: x\nExit Code: 2\nProcess"}`),
			hook("AfterTool", sh+`"a"},"tool_response":{"llmContent":"Output: x\nProcess"}`),
			hook("AfterAgent", "")},
			"session.started; run.started; tool.requested; tool.requested; tool.failed <- 3; tool.completed <- 2; run.finished <- 1"},
		{"written again and again", []adapters.Moment{prompt, log("nope", "{}", `"error":"Tool \"nope\" not found."`), log("nope", "{}", `"error":"Tool \"nope\" not found."`)},
			"session.started; run.started; tool.requested; tool.failed <- 2"},
		{"cancelled while it ran", []adapters.Moment{prompt, hook("BeforeTool", sh+`"a"}`),
			log("run_shell_command", `{"command":"a"}`, `"error":"[Operation Cancelled] Reason: User cancelled tool execution."`)},
			"session.started; run.started; tool.requested; tool.failed <- 2"},
		{"refused before it ran, which BeforeTool had told", []adapters.Moment{prompt, hook("BeforeTool", sh+`"a"}`),
			log("run_shell_command", `{"command":"a"}`, `"error":"Tool execution denied by policy."`), hook("AfterAgent", "")},
			"session.started; run.started; tool.requested; tool.denied <- 2; run.finished <- 1"},
		{"interrupted", []adapters.Moment{prompt, moment(t, adapters.Transcript, "info", `{"type":"info","id":"i1","content":"Request cancelled."}`),
			moment(t, adapters.Transcript, "info", `{"type":"info","id":"i2","content":"Something else."}`), prompt},
			"session.started; run.started; run.cancelled <- 1; run.started"},
		{"ended three times", []adapters.Moment{prompt, hook("SessionEnd", ""), hook("SessionEnd", ""), hook("SessionEnd", "")},
			"session.started; run.started; run.cancelled <- 1; session.ended"},
		{"nothing compressed", []adapters.Moment{prompt, hook("PreCompress", `,"trigger":"auto"`), hook("PreCompress", `,"trigger":"manual"`)},
			"session.started; run.started; session.compacted"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := session.New(session.Config{Agent: name, Host: "h", Session: "s", State: session.NewState()})
			var got []string
			place := map[string]string{}
			for i, m := range tt.moments {
				for _, d := range s.Bind(time.Date(2026, 7, 3, 10, 0, i, 0, time.UTC), mapMoment(m)) {
					line := d.Type
					if c := place[d.Cause]; c > "0" && d.Type != "tool.requested" {
						line += " <- " + c
					}
					place[d.ID] = string(rune('0' + len(got)))
					got = append(got, line)
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
	if got := Logs(moment(t, adapters.Hook, "AfterAgent", `{"session_id":"s","transcript_path":"/h/a.jsonl"}`)); !reflect.DeepEqual(got, want) {
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
		{Name: "plain", Launch: launch(nil, nil, "gemini"), Endpoint: endpoint},
		{Name: "held", Launch: adaptertest.Held(launch(nil, nil, "gemini")), Endpoint: endpoint},
		{Name: "npx", Endpoint: endpoint, Launch: launch(nil, []string{"GEMINI_CLI_HOME=/srv/home", "AEP_HOOKS=BeforeModel"},
			"npx", "-y", "@google/gemini-cli", "-e", "theirs", "-p", "hi")},
		{Name: "sandbox", Endpoint: endpoint, Launch: launch(nil, nil, "gemini", "-s", "-o", "stream-json", "-p", "hi")},
	}
}

func TestDetect(t *testing.T) {
	for line, want := range map[string]bool{
		"gemini": true, "/usr/bin/gemini -p hi": true, "npx @google/gemini-cli@0.61.0": true, "bunx @google/gemini-cli": true,
		"node /x/node_modules/@google/gemini-cli/bundle/gemini.js": true, "gemini2": false, "npx gemini": false,
	} {
		if got := Detect(adapters.Launch{Args: strings.Fields(line)}); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

func TestWire(t *testing.T) {
	user, project := "/home/user/.gemini/settings.json", "/home/user/proj/.gemini/settings.json"
	for _, tt := range []struct {
		name, line string
		files      map[string]string
		env        []string
		want       string // "wired", "passthrough", or words of the note
		stdout     adapters.Channel
	}{
		{"a session", "gemini", nil, nil, "wired", ""},
		{"headless", "gemini -o stream-json -p mcp", nil, nil, "wired", ""},
		{"a subcommand", "gemini -m x mcp list", nil, nil, "passthrough", ""},
		{"a list", "gemini --list-sessions", nil, nil, "passthrough", ""},
		{"no extensions", "gemini -e none -o stream-json -p x", nil, nil, "-e none", adapters.Stream},
		{"a sandbox", "gemini", nil, []string{"GEMINI_SANDBOX=docker"}, "sandbox", ""},
		{"no sandbox", "gemini", nil, []string{"GEMINI_SANDBOX=false"}, "wired", ""},
		{"a sandbox in settings", "gemini", map[string]string{user: `{"tools":{"sandbox":"docker"}}`}, nil, "tools.sandbox", ""},
		{"hooks are off", "gemini", map[string]string{user: `{"hooksConfig":{"enabled":false}}`}, nil, "disable hooks", ""},
		{"and on again", "gemini", map[string]string{user: `{"hooksConfig":{"enabled":false}}`, project: `{"hooksConfig":{"enabled":true}}`}, nil, "wired", ""},
		{"listed extensions only", "gemini", map[string]string{"/etc/gemini-cli/settings.json": "{// x\n\"security\":{\"allowedExtensions\":[\"a\"]}}"}, nil, "allowedExtensions", ""},
		{"another home", "gemini", map[string]string{"/x/.gemini/settings.json": `{"hooksConfig":{"enabled":false}}`}, []string{"GEMINI_CLI_HOME=/x"}, "disable hooks", ""},
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
			case len(w.Overlays) > 0 && w.SetEnv[homeVar] != "":
				got = "wired"
			}
			if tt.name == "no extensions" || tt.name == "a sandbox" {
				if len(w.Files) > 0 || len(w.SetEnv) > 0 {
					t.Errorf("it is wired: %v", w.SetEnv)
				}
			}
			if !strings.Contains(got, tt.want) || w.Stdout != tt.stdout && tt.want != "wired" {
				t.Errorf("%s (stdout %q); want %s", got, w.Stdout, tt.want)
			}
		})
	}
}

func FuzzWire(f *testing.F) {
	f.Add("-p\x00hi", "{}")
	f.Add("-e\x00a\x00--\x00mcp", `{"hooksConfig":7,"tools":[]}`)
	f.Fuzz(func(t *testing.T, line, settings string) {
		args := append([]string{"gemini"}, strings.Split(line, "\x00")...)
		w, err := Wire(launch(map[string]string{"/home/user/.gemini/settings.json": settings}, nil, args...), endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if n := len(w.Args) - len(args); n < 0 || n > 1 || !slices.Equal(w.Args[1+n:], args[1:]) {
			t.Fatalf("%q became %q", args, w.Args)
		}
		for _, f := range w.Files {
			if !json.Valid(f) {
				t.Fatalf("%s", f)
			}
		}
	})
}
