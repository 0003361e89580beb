package claudecode

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/adaptertest"
	"aep-wrap/event"
	"aep-wrap/event/eventtest"
	"aep-wrap/redaction"
	"aep-wrap/session"
)

func captures(t testing.TB) (ms []adapters.Moment) {
	for _, c := range []struct {
		channel adapters.Channel
		dir     string
	}{{adapters.Hook, "hooks"}, {adapters.Hook, "sequences"}, {adapters.Stream, "stdout"}, {adapters.Transcript, "logs"}, {adapters.Log, "logs"}} {
		ms = append(ms, adaptertest.Captures(t, c.channel, name, c.dir, "*")...)
	}
	return ms
}

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Spec{
		Adapter:  Adapter(),
		Pins:     []string{"pins.json"},
		Captures: captures,
		Wires:    wires(),
	})
}

func FuzzMap(f *testing.F) { adaptertest.Fuzz(f, Adapter(), captures(f)) }

// ---- the corpus's two forms

func TestForms(t *testing.T) {
	var pins map[string]struct {
		Input    json.RawMessage
		Redacted json.RawMessage `json:"expected_data"`
		Metadata json.RawMessage `json:"expected_data_metadata"`
	}
	var file map[string]json.RawMessage
	eventtest.JSON(t, &file, "fixtures", "mappings", "claude-code.json")
	delete(file, "$comment")
	raw, _ := json.Marshal(file)
	if err := json.Unmarshal(raw, &pins); err != nil {
		t.Fatal(err)
	}
	moments := map[string]func(json.RawMessage) adapters.Moment{
		"ask_user_question": func(in json.RawMessage) adapters.Moment {
			return held(t, `{"hook_event_name":"PermissionRequest","session_id":"s","tool_name":"AskUserQuestion","tool_input":`+string(in)+`}`)
		},
		"elicitation": func(in json.RawMessage) adapters.Moment {
			return held(t, `{"hook_event_name":"Elicitation","session_id":"s","mcp_server_name":"m",`+strings.TrimSpace(string(in))[1:])
		},
	}
	if len(pins) != len(moments) {
		t.Errorf("the corpus has %d forms, and %d are tested", len(pins), len(moments))
	}
	for name, pin := range pins {
		for level, want := range map[event.Level]json.RawMessage{event.Metadata: pin.Metadata, event.Redacted: pin.Redacted} {
			t.Run(name+"/"+level.String(), func(t *testing.T) {
				m := moments[name](pin.Input)
				ds := Adapter().Map(m)
				if len(ds) != 1 || ds[0].Type != "attention.requested" {
					t.Fatalf("%d drafts", len(ds))
				}
				equalJSON(t, seal(t, ds[0], level).Data, want)

				m.Held = false
				e := seal(t, Adapter().Map(m)[0], level)
				if !strings.Contains(string(e.Data), `"respond_via":["oob"]`) {
					t.Errorf("not held, it says %s", e.Data)
				}
			})
		}
	}
}

func held(t testing.TB, raw string) adapters.Moment {
	t.Helper()
	p, err := event.ParseObject([]byte(raw))
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	n, _ := p["hook_event_name"].(string)
	return adapters.Moment{Channel: adapters.Hook, Name: n, Payload: p, Raw: []byte(raw), Held: true}
}

func seal(t testing.TB, d event.Draft, l event.Level) event.Event {
	t.Helper()
	d.Agent = name
	e, err := redaction.NewGate(redaction.Policy{Ceiling: l}, redaction.NewPipeline(redaction.Options{})).Seal(&d)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func equalJSON(t testing.TB, got, want []byte) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal(got, &g); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(want, &w); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(g, w) {
		t.Errorf("got %s\nwant %s", got, want)
	}
}

func TestPermissionPromptIsStructuralAtMetadata(t *testing.T) {
	m := held(t, `{"hook_event_name":"PermissionRequest","session_id":"s","tool_name":"Bash","tool_input":{"command":"rm -rf build/"}}`)
	d := Adapter().Map(m)[0]
	for l, want := range map[event.Level]string{
		event.Metadata: "claude-code requests permission: Bash",
		event.Redacted: "Permission requested: Bash — rm -rf build/",
	} {
		var data struct{ Prompt string }
		if err := json.Unmarshal(seal(t, d, l).Data, &data); err != nil || data.Prompt != want {
			t.Errorf("%s: %q, %v; want %q", l, data.Prompt, err, want)
		}
	}
	if d.Link.Tool != "Bash" || d.Link.Args != event.Digest(m.Payload["tool_input"]) {
		t.Errorf("link %+v", d.Link)
	}
}

// ---- replies

func TestReply(t *testing.T) {
	permission := held(t, `{"hook_event_name":"PermissionRequest","tool_name":"Bash","tool_input":{"command":"ls"}}`)
	ask := held(t, `{"hook_event_name":"PermissionRequest","tool_name":"AskUserQuestion","tool_input":{"questions":[
		{"question":"Which color?","options":[{"label":"Red"},{"label":"Blue"}]},
		{"question":"Which sizes?","multiSelect":true,"options":[{"label":"S, small"},{"label":"L"}]}]}}`)
	elicit := held(t, `{"hook_event_name":"Elicitation","mcp_server_name":"m","requested_schema":{"properties":{"name":{"type":"string"}}}}`)
	for _, tt := range []struct {
		name   string
		m      adapters.Moment
		answer adapters.Answer
		want   string
	}{
		{"allow", permission, adapters.Answer{Option: "allow"}, `{"behavior":"allow"}`},
		{"deny", permission, adapters.Answer{Option: "deny"}, `{"behavior":"deny","message":"The user refused this."}`},
		{"deny with a reason", permission, adapters.Answer{Option: "deny", Text: "not on a Friday"}, `{"behavior":"deny","message":"The user refused this. not on a Friday"}`},
		{"text is a refusal", permission, adapters.Answer{Text: "yes please"}, `{"behavior":"deny","message":"The user refused this. yes please"}`},
		{"text that is an option", permission, adapters.Answer{Text: " Allow "}, `{"behavior":"allow"}`},
		{"nothing", permission, adapters.Answer{}, ""},
		{"form", ask, adapters.Answer{Values: map[string]any{"1": "2", "2": []any{"1", "2"}}},
			`{"behavior":"allow","updatedInput":{"answers":{"Which color?":"Blue","Which sizes?":"S, small, L"},"questions":[{"options":[{"label":"Red"},{"label":"Blue"}],"question":"Which color?"},{"multiSelect":true,"options":[{"label":"S, small"},{"label":"L"}],"question":"Which sizes?"}]}}`},
		{"form, in words", ask, adapters.Answer{Values: map[string]any{"1": "teal", "2": []any{"2"}}},
			`{"behavior":"allow","updatedInput":{"answers":{"Which color?":"teal","Which sizes?":"L"},"questions":[{"options":[{"label":"Red"},{"label":"Blue"}],"question":"Which color?"},{"multiSelect":true,"options":[{"label":"S, small"},{"label":"L"}],"question":"Which sizes?"}]}}`},
		{"half a form", ask, adapters.Answer{Values: map[string]any{"1": "2"}}, ""},
		{"form refused", ask, adapters.Answer{Option: "deny"}, `{"behavior":"deny","message":"The user refused this."}`},
		{"form allowed without answers", ask, adapters.Answer{Option: "allow"}, ""},
		{"elicitation", elicit, adapters.Answer{Values: map[string]any{"name": "Zed"}}, `{"action":"accept","content":{"name":"Zed"},"hookEventName":"Elicitation"}`},
		{"elicitation declined", elicit, adapters.Answer{Option: "decline"}, `{"action":"decline","hookEventName":"Elicitation"}`},
		{"elicitation cancelled", elicit, adapters.Answer{Option: "cancel"}, `{"action":"cancel","hookEventName":"Elicitation"}`},
		{"gate, allow", held(t, `{"hook_event_name":"PreToolUse","tool_name":"Bash"}`), adapters.Answer{Option: "allow"}, `{"hookEventName":"PreToolUse","permissionDecision":"allow"}`},
		{"gate, deny", held(t, `{"hook_event_name":"PreToolUse","tool_name":"Bash"}`), adapters.Answer{Option: "deny", Text: "no"}, `{"hookEventName":"PreToolUse","permissionDecision":"deny","permissionDecisionReason":"The user refused this. no"}`},
		{"no request", held(t, `{"hook_event_name":"Stop"}`), adapters.Answer{Option: "allow"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := string(Reply(tt.m, tt.answer))
			want := tt.want
			if strings.HasPrefix(want, `{"behavior"`) {
				want = `{"decision":` + want + `,"hookEventName":"PermissionRequest"}`
			}
			if want != "" {
				want = `{"hookSpecificOutput":` + want + `}`
			}
			if got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
		})
	}
}

// What was replied to a form is what PostToolUse then tells of it.
func TestAnswersComeBack(t *testing.T) {
	questions := `[{"question":"Which sizes?","multiSelect":true,"options":[{"label":"S, small"},{"label":"S"},{"label":"L"}]}]`
	for _, want := range []any{[]any{"1", "3"}, []any{"2"}, []any{"2", "3"}} {
		m := held(t, `{"hook_event_name":"PermissionRequest","tool_name":"AskUserQuestion","tool_input":{"questions":`+questions+`}}`)
		var reply struct {
			HookSpecificOutput struct {
				Decision struct{ UpdatedInput json.RawMessage }
			}
		}
		if err := json.Unmarshal(Reply(m, adapters.Answer{Values: map[string]any{"1": want}}), &reply); err != nil {
			t.Fatal(err)
		}
		done := held(t, `{"hook_event_name":"PostToolUse","tool_name":"AskUserQuestion","tool_use_id":"t","tool_input":{"questions":`+questions+`},"tool_response":`+string(reply.HookSpecificOutput.Decision.UpdatedInput)+`}`)
		ds := Adapter().Map(done)
		if got := ds[0].Fields.Get("answer", "values"); !reflect.DeepEqual(got, map[string]any{"1": want}) {
			t.Errorf("replied %v, told %v", want, got)
		}
	}
}

// ---- one fact, several channels

// A session's hooks and its transcript, told in the order in which they came,
// and the transcript once more: each fact is in the stream once.
func TestChannelsJoin(t *testing.T) {
	hooks := adaptertest.Captures(t, adapters.Hook, name, "sequences", "00-87-events.jsonl")
	lines := adaptertest.Captures(t, adapters.Transcript, name, "logs", "interactive-many-events-compact.jsonl")
	if len(hooks) == 0 || len(lines) == 0 {
		t.Skip("the captures are not at hand")
	}
	id := hooks[0].Payload["session_id"].(string)
	s := session.New(session.Config{Agent: name, Host: "h", Session: id, State: session.NewState()})
	now := time.Date(2026, 11, 29, 21, 0, 0, 0, time.UTC)
	var out []event.Draft
	tell := func(ms []adapters.Moment) {
		for _, m := range ms {
			now = now.Add(time.Millisecond)
			out = append(out, s.Bind(now, mapMoment(m))...)
		}
	}
	// The hooks up to each prompt, then what the log says up to the next one.
	for len(hooks) > 0 || len(lines) > 0 {
		n := next(hooks, func(m adapters.Moment) bool { return m.Name == "UserPromptSubmit" })
		tell(hooks[:n])
		hooks = hooks[n:]
		k := next(lines, func(m adapters.Moment) bool { return m.Payload["promptSource"] != nil })
		tell(lines[:k])
		lines = lines[k:]
	}
	again := len(out)
	tell(adaptertest.Captures(t, adapters.Transcript, name, "logs", "interactive-many-events-compact.jsonl"))
	if len(out) != again {
		t.Errorf("read again, the log tells %d more events: %v", len(out)-again, types(out[again:]))
	}

	runs, tools, ids := map[string][]string{}, map[string][]string{}, map[string]bool{}
	for _, d := range out {
		if ids[d.ID] {
			t.Errorf("%s is told twice: %s", d.Type, d.ID)
		}
		ids[d.ID] = true
		switch event.Category(d.Type) {
		case "run":
			runs[d.Run] = append(runs[d.Run], d.Type)
		case "tool":
			call := d.Fields.Str("tool", "call_id")
			tools[call] = append(tools[call], d.Type)
		}
	}
	for _, tt := range []struct{ run, end string }{
		{"fe2c5e57-ba7b-46b2-bed1-ad58970e9388", "run.finished"},
		{"17a4cd25-a452-4771-8a39-52afcb0dfd4f", "run.cancelled"}, // No in the dialog
		{"71c34f91-61b2-4c6b-a4a5-54d082de4348", "run.cancelled"}, // Esc in the dialog
		{"eef0be18-71c2-4564-8be0-b6ce7b533cc7", "run.cancelled"}, // Esc while a tool ran
		{"b711c66b-a122-4cdf-a81e-b7cfab4c0a73", "run.cancelled"}, // Esc while it wrote
		{"1f334bc0-76ee-40a4-a72e-b823f2a358af", "run.failed"},
	} {
		if got := runs[tt.run]; !reflect.DeepEqual(got, []string{"run.started", tt.end}) {
			t.Errorf("run %s: %v; want it started and then %s", tt.run, got, tt.end)
		}
	}
	for _, d := range out {
		if d.Type == "run.cancelled" && d.Fields.Str("by") != "user" && d.Run != "7735aede-df4b-4ffc-b474-edecc3ebae6d" {
			t.Errorf("run %s was cancelled by %q", d.Run, d.Fields.Str("by"))
		}
	}
	for call, ts := range tools {
		if len(ts) > 2 || ts[0] != "tool.requested" {
			t.Errorf("tool %s: %v", call, ts)
		}
	}
	if got := tools["toolu_ac1927e3d4f644959c2f25e3"]; !reflect.DeepEqual(got, []string{"tool.requested", "tool.failed"}) {
		t.Errorf("a refused tool: %v", got)
	}
	if n := len(s.State().Pending()); n != 0 {
		t.Errorf("%d requests wait at the end", n)
	}
}

func next(ms []adapters.Moment, prompt func(adapters.Moment) bool) int {
	for i, m := range ms {
		if i > 0 && prompt(m) {
			return i
		}
	}
	return len(ms)
}

func types(ds []event.Draft) (out []string) {
	for _, d := range ds {
		out = append(out, d.Type+" "+d.Key)
	}
	return out
}

// A visit with a subagent in the background, as a newer version writes its logs:
// read alone they tell all of it, and nothing in them is strange.
func TestNewerLog(t *testing.T) {
	s := session.New(session.Config{Agent: name, Host: "h", Session: "00000000-0000-4000-8000-000000000001", State: session.NewState()})
	var got []string
	for _, file := range []string{"background-session-2.1.332.jsonl", "background-subagent-2.1.332.jsonl"} {
		raw, err := os.ReadFile(filepath.Join("testdata", "logs", file))
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(raw) {
			o, err := event.ParseObject(line)
			if err != nil {
				t.Fatal(err)
			}
			m := adapters.Moment{Channel: adapters.Log, Payload: o}
			if id, ok := identify(file, o); ok && id.Strange {
				t.Errorf("strange: %s", line)
			}
			for _, d := range s.Bind(time.Time{}, mapMoment(m)) {
				if d.Type != "x.claude-code.model.usage" {
					got = append(got, strings.TrimSpace(d.Type+" "+d.Subject+" "+d.Fields.Str("trigger")))
				}
			}
		}
	}
	want := []string{"session.started",
		"run.started  user", "tool.requested Agent", "tool.completed Agent", "run.finished",
		"run.started  agent", "run.finished",
		"delegation.subagent.started a68d65f255991d78b", "tool.requested Bash", "tool.completed Bash", "delegation.subagent.stopped a68d65f255991d78b"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestLogs(t *testing.T) {
	m := held(t, `{"hook_event_name":"PreToolUse","session_id":"s1","transcript_path":"/h/.claude/projects/p/s1.jsonl","agent_id":"a1"}`)
	want := []adapters.LogFile{{Path: "/h/.claude/projects/p/s1.jsonl", Session: "s1"}, {Path: "/h/.claude/projects/p/s1/subagents/agent-a1.jsonl", Session: "s1"}}
	if got := Logs(m); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	m.Payload["agent_id"] = "../../../../etc/passwd"
	if got := Logs(m); !reflect.DeepEqual(got, want[:1]) {
		t.Errorf("a hostile agent id: %v", got)
	}
	if got := Logs(adapters.Moment{Channel: adapters.Hook}); got != nil {
		t.Errorf("no payload: %v", got)
	}
}

// ---- launching

var endpoint, launch = adaptertest.Endpoint(Adapter()), adaptertest.Launch

func wires() []adaptertest.Wire {
	return []adaptertest.Wire{
		{Name: "plain", Launch: launch(nil, nil, "claude"), Endpoint: endpoint},
		{Name: "stream", Launch: launch(nil, nil, "claude", "-p", "hi", "--output-format", "stream-json", "--verbose"), Endpoint: endpoint},
		{Name: "users-settings", Endpoint: endpoint, Launch: launch(map[string]string{
			"/home/user/proj/my.json": `{"model":"opus","hooks":{"Stop":[{"hooks":[{"type":"command","command":"say done"}]}],"WorktreeCreate":[{"hooks":[]}]},
				"permissions":{"allow":["Read(/docs/**)","Read(//etc/hosts)","Bash(/bin/ls)","Edit(src/**)"],"deny":["Read(/secrets/**)"]},
				"sandbox":{"filesystem":{"allowWrite":["./out","/tmp/x","~/y"]}}}`,
		}, nil, "claude", "--settings", "a.json", "--model", "opus", "--settings=my.json", "--", "--settings")},
		{Name: "held", Launch: answerable(launch(nil, nil, "claude")), Endpoint: endpoint},
		{Name: "npx", Launch: launch(nil, nil, "npx", "-y", "@anthropic-ai/claude-code", "-p", "hi"), Endpoint: endpoint},
		{Name: "no-http", Endpoint: endpoint, Launch: launch(map[string]string{
			policyDir() + "/managed-settings.json": `{"allowedHttpHookUrls":["https://hooks.example.com/*"]}`,
		}, nil, "claude")},
	}
}

// answerable is a launch in which others may answer, and Bash is gated.
func answerable(l adapters.Launch) adapters.Launch {
	l.Hold, l.Both, l.Gate = 8*time.Second, time.Hour, []string{"Bash"}
	return l
}

func TestWire(t *testing.T) {
	settings := "/home/user/.claude/settings.json"
	policy := policyDir() + "/managed-settings.json"
	hook := func(w adapters.Wiring, name string) map[string]any {
		var s struct {
			Hooks map[string][]struct{ Hooks []map[string]any }
		}
		if err := json.Unmarshal(w.Files[settingsFile], &s); err != nil {
			return nil
		}
		list := s.Hooks[name]
		if len(list) == 0 {
			return nil
		}
		return list[len(list)-1].Hooks[0]
	}
	for _, tt := range []struct {
		name  string
		files map[string]string
		env   []string
		args  string
		check func(w adapters.Wiring) error
	}{
		{"a subcommand is passed through", nil, nil, "claude mcp list", passthrough(true)},
		{"so is the version", nil, nil, "claude --version", passthrough(true)},
		{"after flags too", nil, nil, "claude --model opus --debug api mcp", passthrough(true)},
		{"a session of its background is looked after", nil, nil, "claude stop 1a2b", passthrough(true)},
		{"one that goes on without this terminal", nil, nil, "claude --bg fix it", passthrough(true)},
		{"or elsewhere", nil, nil, "claude --cloud=fix it", passthrough(true)},
		{"a newer flag's value is none", nil, nil, "claude --permission-prompts none --system-prompt-snapshot off --environment stop --autocompact auto", wired},
		{"a prompt that is called so is none", nil, nil, "claude -p mcp2", passthrough(false)},
		{"a flag's value is none", nil, nil, "claude --model update hello", passthrough(false)},
		{"nor is a list's", nil, nil, "claude --allowedTools Bash doctor", passthrough(false)},
		{"nor a session to resume", nil, nil, "claude -r install", passthrough(false)},
		{"nor what comes after --", nil, nil, "claude -- --version", passthrough(false)},
		{"bare has no hooks", nil, nil, "claude --bare -p hi", noted("--bare")},
		{"nor has safe mode", nil, []string{"CLAUDE_CODE_SAFE_MODE=1"}, "claude", noted("--safe-mode")},
		{"a user's true stays", map[string]string{settings: `{"disableAllHooks":true}`}, nil, "claude", noted("your settings disable all hooks")},
		{"in --settings too", nil, nil, `claude --settings {"disableAllHooks":true}`, noted("your --settings disable all hooks")},
		{"and is undone only by the user", map[string]string{settings: `{"disableAllHooks":true}`, "/home/user/proj/.claude/settings.json": `{"disableAllHooks":false}`}, nil, "claude", wired},
		{"policy: none at all", map[string]string{policy: `{"disableAllHooks":true}`}, nil, "claude", noted("policy disables all hooks")},
		{"policy: managed only", map[string]string{policy: `{"allowManagedHooksOnly":true}`}, nil, "claude", noted("managed hooks only")},
		{"policy: plugins only", map[string]string{policy: `{"strictPluginOnlyCustomization":["hooks"]}`}, nil, "claude", noted("hooks of plugins only")},
		{"no such file", nil, nil, "claude --settings nope.json", noted("cannot be read")},
		{"no JSON", nil, nil, "claude --settings {nope}", noted("no valid JSON")},
		{"a proxy in the way", nil, []string{"HTTPS_PROXY=http://proxy:3128", "NO_PROXY=.example.com"}, "claude", func(w adapters.Wiring) error {
			if h := hook(w, "PreToolUse"); h["type"] != "command" || w.SetEnv["OTEL_LOGS_EXPORTER"] != "" {
				return errors.New("it still goes through the proxy")
			}
			return nil
		}},
		{"a proxy that is kept out", nil, []string{"HTTPS_PROXY=http://proxy:3128", "no_proxy=localhost,127.0.0.1"}, "claude", func(w adapters.Wiring) error {
			if h := hook(w, "PreToolUse"); h["type"] != "http" {
				return errors.New("http works here")
			}
			return nil
		}},
		{"telemetry of the user's own", nil, []string{"OTEL_SERVICE_NAME=x"}, "claude", noTelemetry},
		{"in settings", map[string]string{settings: `{"env":{"CLAUDE_CODE_ENABLE_TELEMETRY":"0"}}`}, nil, "claude", noTelemetry},
		{"session start is a command", nil, nil, "claude", func(w adapters.Wiring) error {
			h := hook(w, "SessionStart")
			if h["type"] != "command" || h["command"] != "/opt/aep/aep-hook" || !reflect.DeepEqual(h["args"], []any{name, "SessionStart"}) {
				return errors.New("it is not, or a shell would parse it")
			}
			return nil
		}},
		{"a fork's start is not the new session's", nil, nil, "claude -r s1 --fork-session", func(w adapters.Wiring) error {
			if h := hook(w, "SessionStart"); !reflect.DeepEqual(h["args"], []any{name, forked}) {
				return errors.New("it is told as the new one's")
			}
			return nil
		}},
		{"beside a dialog a permission may wait", nil, nil, "claude", asked("PermissionRequest", 3630)},
		{"where nobody else is asked it may not, for long", nil, nil, "claude -p hi", asked(unattended, 38)},
		{"unless somebody is", nil, nil, "claude -p --input-format stream-json --permission-prompt-tool stdio", asked("PermissionRequest", 3630)},
		{"what is never hooked", nil, []string{"AEP_HOOKS=all"}, "claude", func(w adapters.Wiring) error {
			if hook(w, "WorktreeCreate") != nil || hook(w, "WorktreeRemove") != nil {
				return errors.New("the act is taken over")
			}
			if hook(w, "MessageDisplay") == nil {
				return errors.New("it was asked for")
			}
			return nil
		}},
		{"what is not hooked unasked", nil, nil, "claude", func(w adapters.Wiring) error {
			if hook(w, "MessageDisplay") != nil || hook(w, "ConfigChange") != nil {
				return errors.New("nobody asked for it")
			}
			return nil
		}},
		{"stream only of --print", nil, nil, "claude --output-format stream-json", func(w adapters.Wiring) error {
			if w.Stdout != "" {
				return errors.New("there is a screen")
			}
			return nil
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, err := Wire(answerable(launch(tt.files, tt.env, strings.Fields(tt.args)...)), endpoint)
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.check(w); err != nil {
				t.Errorf("%s: %v\n%v %v\n%s", tt.args, err, w.Args, w.Notes, w.Files[settingsFile])
			}
			if strings.Contains(string(w.Files[settingsFile]), "disableAllHooks\":false") {
				t.Error("it undoes a user's true")
			}
		})
	}
}

// Whatever the words: all of them are there afterwards, in their order, but
// for the --settings that went into the file.
func FuzzWire(f *testing.F) {
	for _, w := range wires() {
		f.Add(strings.Join(w.Launch.Args[1:], "\x00"))
	}
	f.Add("--settings")
	f.Add("--settings\x00{\"hooks\":{\"Stop\":7}}\x00-p")
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, "\x00")
		w, err := Wire(launch(nil, nil, append([]string{"claude"}, args...)...), endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Files) == 0 {
			if !reflect.DeepEqual(w.Args[1:], args) {
				t.Fatalf("not wired, and changed: %q", w.Args)
			}
			return
		}
		if w.Args[0] != "claude" || w.Args[1] != "--settings" || !json.Valid(w.Files[settingsFile]) {
			t.Fatalf("%q\n%s", w.Args, w.Files[settingsFile])
		}
		rest := w.Args[3:]
		for i := 0; i < len(args); i++ {
			if len(rest) > 0 && rest[0] == args[i] {
				rest = rest[1:]
				continue
			}
			if strings.HasPrefix(args[i], "--settings=") {
				continue
			}
			if args[i] == "--settings" && i+1 < len(args) {
				i++
				continue
			}
			t.Fatalf("%q is lost: %q became %q", args[i], args, w.Args)
		}
		if len(rest) > 0 {
			t.Fatalf("%q was added", rest)
		}
	})
}

// asked: PermissionRequest is told under this name, and may take so many seconds.
func asked(told string, seconds int) func(adapters.Wiring) error {
	return func(w adapters.Wiring) error {
		var s struct {
			Hooks map[string][]struct {
				Hooks []struct {
					URL     string
					Timeout int
				}
			}
		}
		if err := json.Unmarshal(w.Files[settingsFile], &s); err != nil {
			return err
		}
		if h := s.Hooks["PermissionRequest"][0].Hooks[0]; path.Base(h.URL) != told || h.Timeout != seconds {
			return fmt.Errorf("it is told at %s within %d s", h.URL, h.Timeout)
		}
		return nil
	}
}

func passthrough(want bool) func(adapters.Wiring) error {
	return func(w adapters.Wiring) error {
		if w.Passthrough != want || want && len(w.Files) > 0 {
			return errors.New("passthrough is " + map[bool]string{true: "set", false: "not set"}[w.Passthrough])
		}
		return nil
	}
}

func noted(words string) func(adapters.Wiring) error {
	return func(w adapters.Wiring) error {
		if len(w.Files) > 0 || len(w.Notes) != 1 || !strings.Contains(w.Notes[0], words) {
			return errors.New("want one note that says " + words + ", and nothing installed")
		}
		return nil
	}
}

func wired(w adapters.Wiring) error {
	if len(w.Files) != 1 || len(w.Notes) != 0 || w.Args[1] != "--settings" || w.Args[2] != path.Join(endpoint.Dir, settingsFile) {
		return errors.New("not wired")
	}
	return nil
}

func noTelemetry(w adapters.Wiring) error {
	for k := range w.SetEnv {
		if strings.HasPrefix(k, "OTEL_") || k == "CLAUDE_CODE_ENABLE_TELEMETRY" {
			return errors.New("it sets " + k)
		}
	}
	return wired(w)
}

// ---- speed

func BenchmarkMap(b *testing.B) {
	for _, n := range []string{"PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop", "PermissionRequest"} {
		raw := map[string]string{
			"PreToolUse":        `{"session_id":"s","prompt_id":"p","tool_name":"Bash","tool_use_id":"t","tool_input":{"command":"ls -la"}}`,
			"PostToolUse":       `{"session_id":"s","prompt_id":"p","tool_name":"Bash","tool_use_id":"t","tool_input":{"command":"ls -la"},"tool_response":{"stdout":"x"},"duration_ms":12}`,
			"UserPromptSubmit":  `{"session_id":"s","prompt_id":"p","prompt":"fix it"}`,
			"Stop":              `{"session_id":"s","prompt_id":"p","last_assistant_message":"done"}`,
			"PermissionRequest": `{"session_id":"s","prompt_id":"p","tool_name":"Bash","tool_input":{"command":"ls -la"}}`,
		}[n]
		p, err := event.ParseObject([]byte(raw))
		if err != nil {
			b.Fatal(err)
		}
		m := adapters.Moment{Channel: adapters.Hook, Name: n, Payload: p}
		b.Run(n, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				mapMoment(m)
			}
		})
	}
}

// An elicitation's answer comes back as ids and numbers at metadata, with the
// free text only above: the session knows the form that the payload leaves out.
func TestElicitationAnswer(t *testing.T) {
	s := session.New(session.Config{Agent: name, Host: "h", Session: "s", State: session.NewState()})
	ask := held(t, `{"hook_event_name":"Elicitation","session_id":"s","mcp_server_name":"m","requested_schema":{"properties":{
		"env":{"type":"string","enum":["staging","production"]},"n":{"type":"integer"},"why":{"type":"string"}}}}`)
	done := held(t, `{"hook_event_name":"ElicitationResult","session_id":"s","mcp_server_name":"m","action":"accept","content":{"env":"staging","n":3,"why":"because","extra":true}}`)
	now := time.Date(2026, 7, 3, 10, 0, 0, 0, time.UTC)
	s.Bind(now, mapMoment(ask))
	out := s.Bind(now, mapMoment(done))
	if len(out) != 2 || out[0].Type != "attention.answered" || out[1].Type != "attention.resolved" {
		t.Fatalf("%v", types(out))
	}
	for l, want := range map[event.Level]string{
		event.Metadata: `{"answer":{"values":{"env":"staging","n":3}},"via":"oob"}`,
		event.Redacted: `{"answer":{"values":{"env":"staging","n":3,"why":"because"}},"via":"oob"}`,
	} {
		equalJSON(t, seal(t, out[0], l).Data, []byte(want))
	}
}

// No in the dialog fires no hook. The log says it, and the request is answered.
func TestRefusedInTheDialog(t *testing.T) {
	s := session.New(session.Config{Agent: name, Host: "h", Session: "s", State: session.NewState()})
	now := time.Date(2026, 7, 3, 10, 0, 0, 0, time.UTC)
	line := func(raw string) adapters.Moment {
		m := held(t, raw)
		m.Channel, m.Held = adapters.Transcript, false
		return m
	}
	var out []event.Draft
	for _, m := range []adapters.Moment{
		held(t, `{"hook_event_name":"UserPromptSubmit","session_id":"s","prompt_id":"p","prompt":"go"}`),
		held(t, `{"hook_event_name":"PreToolUse","session_id":"s","prompt_id":"p","tool_name":"Bash","tool_use_id":"t1","tool_input":{"command":"ls"}}`),
		held(t, `{"hook_event_name":"PermissionRequest","session_id":"s","prompt_id":"p","tool_name":"Bash","tool_input":{"command":"ls"}}`),
		line(`{"type":"user","sessionId":"s","promptId":"p","message":{"content":[{"type":"tool_result","tool_use_id":"t1","is_error":true,"content":"The user doesn't want to proceed with this tool use. The tool use was rejected"}]},"toolUseResult":"User rejected tool use"}`),
		line(`{"type":"user","sessionId":"s","promptId":"p","message":{"content":[{"type":"text","text":"[Request interrupted by user for tool use]"}]}}`),
	} {
		out = append(out, s.Bind(now, mapMoment(m))...)
	}
	var got []string
	for _, d := range out {
		got = append(got, strings.TrimSpace(d.Type+" "+d.Fields.Str("answer", "option")+d.Fields.Str("by")))
	}
	want := []string{"session.started", "run.started", "tool.requested", "attention.requested",
		"attention.answered deny", "attention.resolved", "tool.failed", "run.cancelled user"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestChecks(t *testing.T) {
	adaptertest.Checks(t, Adapter(), []adaptertest.Checked{
		{Name: "policy", Files: map[string]string{}, Want: ""},
		{Name: "policy", Files: map[string]string{policyDir() + "/managed-settings.d/10.json": `{"model":"x"}`}, Want: ""},
		{Name: "policy", Files: map[string]string{policyDir() + "/managed-settings.d/10.json": `{"allowManagedHooksOnly":true}`},
			Want: "policy allows managed hooks only (allowManagedHooksOnly) in " + policyDir() + "/managed-settings.d/10.json"},
		{Name: "policy", Files: map[string]string{policyDir() + "/managed-settings.d/20.json": `{"disableAllHooks":true}`}, Want: "policy disables all hooks"},
	})
}
