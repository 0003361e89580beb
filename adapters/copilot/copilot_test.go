package copilot

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
	ms = append(ms, adaptertest.Captures(t, adapters.Log, name, "logs", "session-events.jsonl")...)
	ms = append(ms, adaptertest.Captures(t, adapters.Hook, name, "hooks", "*")...)
	ms = append(ms, adaptertest.Captures(t, adapters.Transcript, name, "logs", "session-events.jsonl")...)
	return append(ms, adaptertest.Captures(t, adapters.Stream, name, "stdout", "*")...)
}

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Spec{
		Adapter: Adapter(), Pins: []string{"pins.json"}, Captures: captures, Wires: wires(),
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

// The hooks are ahead of the session log and name no call: each fact is told
// once, and what only the log knows finds its tool.
func TestChannelsJoin(t *testing.T) {
	const tool = `,"toolName":"bash","toolArgs":{"command":"x","description":"d"}`
	hook := func(n, more string) adapters.Moment {
		return moment(t, adapters.Hook, n, `{"sessionId":"s","timestamp":1796005483606`+more+`}`)
	}
	log := func(typ, data string) adapters.Moment {
		return moment(t, adapters.Transcript, typ, `{"type":"`+typ+`","id":"`+typ+`","timestamp":"2026-11-30T02:24:43.320Z","data":`+data+`}`)
	}
	begun := log("tool.execution_start", `{"toolCallId":"c1","toolName":"bash","arguments":{"command":"x","description":"d"}}`)
	asked := log("permission.requested", `{"requestId":"r1","permissionRequest":{"kind":"shell","toolCallId":"c1","fullCommandText":"x"}}`)
	decided := func(kind string) adapters.Moment {
		return log("permission.completed", `{"requestId":"r1","toolCallId":"c1","result":{"kind":"`+kind+`"}}`)
	}
	refused := func(message string) adapters.Moment {
		return log("tool.execution_complete", `{"toolCallId":"c1","success":false,"error":{"code":"denied","message":"`+message+`"}}`)
	}
	prompt, pre := hook("userPromptSubmitted", `,"prompt":"p"`), hook("preToolUse", tool)
	post := func(text string) adapters.Moment {
		return hook("postToolUse", tool+`,"toolResult":{"resultType":"success","textResultForLlm":"`+text+`"}`)
	}
	for _, tt := range []struct {
		name    string
		moments []adapters.Moment
		want    string
	}{
		{"a tool", []adapters.Moment{hook("sessionStart", `,"source":"new"`), prompt, pre, post(`ok\n<shellId: 0 completed with exit code 0>`), begun,
			log("tool.execution_complete", `{"toolCallId":"c1","success":true,"shellExecution":{"exitCode":0},"result":{"content":"ok"}}`), hook("agentStop", `,"stopReason":"end_turn"`), hook("sessionEnd", `,"reason":"complete"`)},
			"session.started; run.started; tool.requested; tool.completed; run.finished; session.ended"},
		{"a command that failed", []adapters.Moment{prompt, pre, post(`oops\n<shellId: 0 completed with exit code 3>`), begun,
			log("tool.execution_complete", `{"toolCallId":"c1","success":true,"shellExecution":{"exitCode":3},"result":{"content":"oops"}}`)},
			"session.started; run.started; tool.requested; tool.failed exit_code"},
		{"the log alone tells that a command failed", []adapters.Moment{prompt, pre, begun,
			log("tool.execution_complete", `{"toolCallId":"c1","success":true,"shellExecution":{"exitCode":3},"result":{"content":"oops"}}`), post("oops")},
			"session.started; run.started; tool.requested; tool.failed exit_code"},
		{"asked and allowed", []adapters.Moment{prompt, pre, hook("permissionRequest", tool), hook("notification", `,"notification_type":"permission_prompt"`), begun, asked,
			decided("approved"), post("ok")},
			"session.started; run.started; tool.requested; attention.requested; attention.answered allow; attention.resolved; tool.completed"},
		{"asked and refused", []adapters.Moment{prompt, pre, begun, asked, decided("denied-interactively-by-user"), refused("The user rejected this tool call. User feedback: x")},
			"session.started; run.started; tool.requested; attention.requested; attention.answered deny; attention.resolved; tool.failed rejected"},
		{"nobody to ask", []adapters.Moment{prompt, pre, begun, asked, decided("denied-no-approval-rule-and-could-not-request-from-user"), refused("Permission denied because no interactive user response was available.")},
			"session.started; run.started; tool.requested; attention.requested; attention.resolved; tool.denied runtime"},
		{"refused from afar", []adapters.Moment{prompt, pre, begun, refused("Denied by preToolUse hook: " + refusal + ": not today")},
			"session.started; run.started; tool.requested; tool.failed rejected"},
		{"forbidden by a rule of the user's", []adapters.Moment{prompt, pre, begun, refused("Permission to run this tool was denied due to the following rules: `shell(x:*)`")},
			"session.started; run.started; tool.requested; tool.denied user_setting"},
		{"forbidden by a hook of the user's", []adapters.Moment{prompt, pre, begun, refused("Denied by preToolUse hook: never")},
			"session.started; run.started; tool.requested; tool.denied policy"},
		{"interrupted at the dialog", []adapters.Moment{prompt, pre, begun, asked, log("abort", `{"reason":"user_initiated"}`), decided("cancelled")},
			"session.started; run.started; tool.requested; attention.requested; attention.resolved; run.cancelled user"},
		{"a turn that failed", []adapters.Moment{prompt, hook("errorOccurred", `,"errorContext":"model_call","error":{"message":"m"}`), log("session.error", `{"errorType":"query","message":"m"}`)},
			"session.started; run.started; error.raised model_call; run.failed query"},
		{"a subagent's turn is a step of its parent's", []adapters.Moment{prompt,
			hook("subagentStart", `,"agentId":"a1","agentName":"general","parentAgentId":"s"`),
			moment(t, adapters.Hook, "userPromptSubmitted", `{"sessionId":"a1","agentId":"a1","parentAgentId":"s","prompt":"inner"}`),
			moment(t, adapters.Hook, "preToolUse", `{"sessionId":"a1","agentId":"a1","parentAgentId":"s"`+tool+`}`),
			moment(t, adapters.Transcript, "tool.execution_start", `{"type":"tool.execution_start","agentId":"a1","data":{"toolCallId":"c1","toolName":"bash","arguments":{"command":"x","description":"d"}}}`),
			moment(t, adapters.Hook, "postToolUse", `{"sessionId":"a1","agentId":"a1","parentAgentId":"s"`+tool+`,"toolResult":{"resultType":"success","textResultForLlm":"ok"}}`),
			moment(t, adapters.Hook, "agentStop", `{"sessionId":"a1","agentId":"a1","parentAgentId":"s"}`),
			hook("subagentStop", `,"agentId":"a1","agentName":"general","parentAgentId":"s"`), hook("agentStop", "")},
			"session.started; run.started; delegation.subagent.started; tool.requested /a1; tool.completed /a1; delegation.subagent.stopped; run.finished"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := session.New(session.Config{Agent: name, Host: "h", Session: "s", State: session.NewState()})
			var got []string
			run := ""
			for i, m := range tt.moments {
				for _, d := range s.Bind(time.Date(2026, 7, 3, 10, 0, i, 0, time.UTC), mapMoment(m)) {
					if d.Type == "run.started" {
						run = d.Run
					}
					if !strings.HasPrefix(d.Type, "session.") && d.Run != run {
						t.Errorf("%s is of run %q", d.Type, d.Run)
					}
					line := d.Type
					if d.Step != "" {
						line += " /" + d.Step
					}
					got = append(got, strings.TrimSpace(line+" "+d.Fields.Str("answer", "option")+d.Fields.Str("error", "type")+d.Fields.Str("by")))
				}
			}
			if s := strings.Join(got, "; "); s != tt.want {
				t.Errorf("got  %s\nwant %s", s, tt.want)
			}
		})
	}
}

func TestReply(t *testing.T) {
	for _, tt := range []struct {
		hook string
		a    adapters.Answer
		want string
	}{
		{"preToolUse", adapters.Answer{Option: "allow"}, `{"permissionDecision":"allow"}`},
		{"preToolUse", adapters.Answer{Option: "deny"}, `{"permissionDecision":"deny","permissionDecisionReason":"The user refused this."}`},
		{"preToolUse", adapters.Answer{Text: "not today"}, `{"permissionDecision":"deny","permissionDecisionReason":"The user refused this: not today"}`},
		{"preToolUse", adapters.Answer{Option: "later"}, ""},
		{"postToolUse", adapters.Answer{Option: "allow"}, ""},
	} {
		if got := string(Reply(adapters.Moment{Channel: adapters.Hook, Name: tt.hook}, tt.a)); got != tt.want {
			t.Errorf("%s %+v: %s; want %s", tt.hook, tt.a, got, tt.want)
		}
	}
}

func TestInstruct(t *testing.T) {
	for _, tt := range []struct {
		m    adapters.Moment
		text string
		want string
	}{
		{moment(t, adapters.Hook, "postToolUse", `{"sessionId":"s"}`), "go on", `{"additionalContext":"go on"}`},
		{moment(t, adapters.Hook, "postToolUse", `{"sessionId":"a","agentId":"a"}`), "go on", ""},
		{moment(t, adapters.Hook, "agentStop", `{"sessionId":"s"}`), "go on", ""},
		{moment(t, adapters.Transcript, "postToolUse", `{}`), "go on", ""},
		{moment(t, adapters.Hook, "postToolUse", `{}`), "", ""},
	} {
		if got := string(Instruct(tt.m, tt.text)); got != tt.want {
			t.Errorf("%+v: %s; want %s", tt.m, got, tt.want)
		}
	}
}

func TestAsksAndCancel(t *testing.T) {
	a := Adapter()
	if got := a.Asks(moment(t, adapters.Hook, "preToolUse", `{"toolName":"bash"}`)); got != (adapters.Ask{Gate: "bash"}) {
		t.Errorf("%+v", got)
	}
	// It runs for tools that need no permission, too: to hold it would hold them.
	if got := a.Asks(moment(t, adapters.Hook, "permissionRequest", `{"toolName":"bash"}`)); got != (adapters.Ask{}) {
		t.Errorf("%+v", got)
	}
	// Two keys at once, and a pair more only when the log must have told of the first.
	acts := Cancel(adapters.Target{TTY: true})
	for _, a := range acts {
		if a.Keys != adapters.EscTwice || a.Patience < 5*time.Second {
			t.Errorf("%+v", a)
		}
	}
	if len(acts) != 2 {
		t.Errorf("%+v", acts)
	}
	if acts := Cancel(adapters.Target{}); acts != nil {
		t.Errorf("%+v", acts)
	}
}

func TestLogs(t *testing.T) {
	want := []adapters.LogFile{{Path: "session-state/s-1/events.jsonl", Session: "s-1"}}
	for _, raw := range []string{`{"sessionId":"s-1"}`, `{"sessionId":"a","agentId":"a","parentAgentId":"s-1"}`} {
		if got := Logs(moment(t, adapters.Hook, "agentStop", raw)); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v", raw, got)
		}
	}
	for _, raw := range []string{`{"sessionId":"../../x"}`, `{"sessionId":""}`, `{}`} {
		if got := Logs(moment(t, adapters.Hook, "agentStop", raw)); got != nil {
			t.Errorf("%s: %v", raw, got)
		}
	}
}

// ---- launching

var endpoint, launch = adaptertest.Endpoint(Adapter()), adaptertest.Launch

func wires() []adaptertest.Wire {
	gated := launch(nil, []string{"COPILOT_HOME=/srv/copilot"}, "npx", "-y", "@github/copilot", "-p", "hi", "--allow-all-tools")
	gated.Gate, gated.Hold, gated.Both = []string{"bash"}, time.Hour, time.Hour
	return []adaptertest.Wire{
		{Name: "plain", Launch: launch(nil, nil, "copilot"), Endpoint: endpoint},
		{Name: "gated", Launch: gated, Endpoint: endpoint},
		{Name: "connect", Launch: launch(nil, nil, "copilot", "--connect", "x", "--output-format", "json"), Endpoint: endpoint},
	}
}

func TestDetect(t *testing.T) {
	adaptertest.Detects(t, Adapter(), map[string]bool{
		"copilot": true, "/usr/bin/copilot -p hi": true, "npx @github/copilot@1.0.102": true, "bunx @github/copilot": true,
		"node /x/node_modules/@github/copilot/index.js": true, "copilot2": false, "npx copilot": false,
	})
}

func TestWire(t *testing.T) {
	const managed = "/etc/github-copilot/managed-settings.json"
	adaptertest.Launches(t, Adapter(), func(l adapters.Launch, w adapters.Wiring) string {
		if slices.Equal(w.Args, append([]string{"copilot", "--plugin-dir", "/run/aep/copilot"}, l.Args[1:]...)) && w.LogRoot == "/home/user/.copilot" {
			return "wired"
		}
		return ""
	}, []adaptertest.Launched{
		{Name: "a session", Line: "copilot", Want: "wired"},
		{Name: "headless", Line: "copilot -p login", Want: "wired"},
		{Name: "resumed", Line: "copilot --resume", Want: "wired"},
		{Name: "for an editor", Line: "copilot --acp", Want: "wired"},
		{Name: "tools are no subcommands", Line: "copilot --allow-tool mcp plugin -p x", Want: "wired"},
		{Name: "a subcommand", Line: "copilot login", Want: "passthrough"},
		{Name: "after a flag", Line: "copilot --model x mcp list", Want: "passthrough"},
		{Name: "the version", Line: "copilot --version", Want: "passthrough"},
		{Name: "help", Line: "copilot help config", Want: "passthrough"},
		{Name: "a session elsewhere", Line: "copilot --connect x", Want: "another process's"},
		{Name: "an environment elsewhere", Line: "copilot --environment-host x --output-format json", Want: "another process's", Stdout: adapters.Stream},
		{Name: "policy", Line: "copilot", Files: map[string]string{managed: `{"allowManagedHooksOnly":true}`}, Want: "allows managed hooks only"},
		{Name: "a policy on other things", Line: "copilot", Files: map[string]string{managed: `{"allowManagedHooksOnly":false,"strictPluginOnlyCustomization":true}`}, Want: "wired"},
	})
}

// A hook that fails forbids the tool: whatever becomes of the helper, its
// command does not fail.
func TestHooksNeverFail(t *testing.T) {
	w, err := Wire(launch(nil, nil, "copilot"), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	o, err := event.ParseObject(w.Files["copilot/hooks.json"])
	if err != nil {
		t.Fatal(err)
	}
	all, _ := o["hooks"].(map[string]any)
	if len(all) != len(installed) {
		t.Errorf("%d hooks; want %d", len(all), len(installed))
	}
	for n, list := range all {
		for _, h := range list.([]any) {
			if bash, _ := h.(map[string]any)["bash"].(string); !strings.HasSuffix(bash, " "+n+" || exit 0") {
				t.Errorf("%s: %q", n, bash)
			}
		}
	}
}

// Whatever the words: all of them are there afterwards, in their order.
func FuzzWire(f *testing.F) {
	f.Add("-p\x00hi")
	f.Add("--allow-tool\x00a\x00b\x00--\x00mcp")
	f.Fuzz(func(t *testing.T, line string) {
		args := append([]string{"copilot"}, strings.Split(line, "\x00")...)
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
