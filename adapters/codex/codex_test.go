package codex

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"aep-wrap/adapters"
	"aep-wrap/adapters/adaptertest"
	"aep-wrap/event"
)

func captures(t testing.TB) (ms []adapters.Moment) {
	ms = append(ms, adaptertest.Captures(t, adapters.Log, name, "logs", "*")...)
	ms = append(ms, adaptertest.Captures(t, adapters.Hook, name, "hooks", "*")...)
	ms = append(ms, adaptertest.Captures(t, adapters.Hook, name, "sequences", "*")...)
	for _, raw := range []string{approval, patch, rights, input, elicit, resolved} {
		ms = append(ms, served(t, raw)...)
	}
	return append(ms, adaptertest.Captures(t, adapters.Transcript, name, "logs", "*")...)
}

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Spec{
		Adapter: Adapter(), Corpus: []string{"codex.json"}, Pins: []string{"pins.json"}, Captures: captures, Wires: wires(),
	})
}

func FuzzMap(f *testing.F) { adaptertest.Fuzz(f, Adapter(), captures(f)) }

// ran says an event with its run and step.
func ran(d event.Draft, _ map[string]int) string {
	return strings.Trim(d.Type+" "+d.Run+"/"+d.Step, " /")
}

// The rollout is ahead of the hooks: what it says of a tool's end counts, and
// nothing is told twice.
func TestRolloutJoins(t *testing.T) {
	hook := func(n, more string) adapters.Moment {
		return adaptertest.Moment(t, adapters.Hook, n, `{"session_id":"s","turn_id":"t1"`+more+`}`)
	}
	log := func(payload string) adapters.Moment {
		return adaptertest.Moment(t, adapters.Transcript, "event_msg", `{"type":"event_msg","timestamp":"2026-07-03T10:00:00Z","payload":`+payload+`}`)
	}
	adaptertest.Stories(t, Adapter(), ran, []adaptertest.Story{
		{Name: "a command that failed", Moments: []adapters.Moment{
			hook("UserPromptSubmit", `,"prompt":"go"`),
			hook("PreToolUse", `,"tool_name":"Bash","tool_use_id":"c1","tool_input":{"command":"false"}`),
			log(`{"type":"item_completed","thread_id":"s","turn_id":"t1","item":{"type":"CommandExecution","id":"c1","status":"failed","aggregated_output":"","exit_code":1}}`),
			hook("PostToolUse", `,"tool_name":"Bash","tool_use_id":"c1","tool_input":{"command":"false"},"tool_response":""`),
			hook("Stop", ``),
			log(`{"type":"task_complete","turn_id":"t1","root_turn_id":"t1","last_agent_message":"x","duration_ms":3}`),
		}, Want: "session.started; run.started t1; tool.requested t1; tool.failed t1; run.finished t1"},
		{Name: "a patch, which has no PostToolUse", Moments: []adapters.Moment{
			hook("UserPromptSubmit", ``),
			hook("PreToolUse", `,"tool_name":"Bash","tool_use_id":"c1","tool_input":{"command":"apply_patch"}`),
			log(`{"type":"item_completed","thread_id":"s","turn_id":"t1","item":{"type":"FileChange","id":"c1","status":"completed","stdout":"ok"}}`),
			hook("Stop", ``),
		}, Want: "session.started; run.started t1; tool.requested t1; tool.completed t1; run.finished t1"},
		{Name: "an interrupt, told twice", Moments: []adapters.Moment{
			hook("UserPromptSubmit", ``),
			log(`{"type":"turn_aborted","turn_id":"t1","root_turn_id":"t1","reason":"interrupted"}`),
			hook("Interrupt", ``),
		}, Want: "session.started; run.started t1; run.cancelled t1"},
		{Name: "a turn's error, which fires no hook", Moments: []adapters.Moment{
			hook("UserPromptSubmit", ``),
			log(`{"type":"task_complete","turn_id":"t1","root_turn_id":"t1","error":{"message":"m","codex_error_info":"other"},"duration_ms":3}`),
		}, Want: "session.started; run.started t1; run.failed t1"},
		{Name: "a permission refused", Moments: []adapters.Moment{
			hook("UserPromptSubmit", ``),
			hook("PreToolUse", `,"tool_name":"Bash","tool_use_id":"c0","tool_input":{"command":"other"}`),
			hook("PreToolUse", `,"tool_name":"Bash","tool_use_id":"c1","tool_input":{"command":"rm"}`),
			hook("PermissionRequest", `,"tool_name":"Bash","tool_input":{"command":"rm","description":"why"}`),
			adaptertest.Moment(t, adapters.Transcript, "response_item", `{"type":"response_item","timestamp":"2026-07-03T10:00:00Z","payload":{"type":"function_call_output","call_id":"c1","output":"exec_command failed: CreateProcess { message: \"Rejected(\\\"no\\\")\" }"}}`),
		}, Want: "session.started; run.started t1; tool.requested t1; tool.requested t1; attention.requested t1; attention.answered t1; attention.resolved t1; tool.failed t1"},
		{Name: "a subagent's turn is a step of its parent's", Moments: []adapters.Moment{
			hook("UserPromptSubmit", ``),
			adaptertest.Moment(t, adapters.Hook, "SubagentStart", `{"session_id":"s","turn_id":"t2","agent_id":"a1","agent_type":"default"}`),
			adaptertest.Moment(t, adapters.Hook, "UserPromptSubmit", `{"session_id":"s","turn_id":"t2","agent_id":"a1","prompt":"inner"}`),
			adaptertest.Moment(t, adapters.Hook, "PreToolUse", `{"session_id":"s","turn_id":"t2","agent_id":"a1","tool_name":"Bash","tool_use_id":"c2","tool_input":{}}`),
			log(`{"type":"item_completed","thread_id":"a1","turn_id":"t2","item":{"type":"CommandExecution","id":"c2","status":"completed","aggregated_output":"x"}}`),
			log(`{"type":"task_complete","turn_id":"t2","root_turn_id":"t1","error":{"message":"m"}}`),
			adaptertest.Moment(t, adapters.Hook, "SubagentStop", `{"session_id":"s","turn_id":"t2","agent_id":"a1","agent_type":"default"}`),
			hook("Stop", ``),
		}, Want: "session.started; run.started t1; delegation.subagent.started t1; tool.requested t1/a1; tool.completed t1/a1; delegation.subagent.stopped t1; run.finished t1"},
	})
}

// The app server's messages, as a client of it got them.
const (
	listened = `{"method":"thread/status/changed","params":{"threadId":"s","status":{"type":"active","activeFlags":["waitingOnApproval"]}}}`
	over     = `{"method":"thread/status/changed","params":{"threadId":"s","status":{"type":"active","activeFlags":[]}}}`
	approval = `{"method":"item/commandExecution/requestApproval","id":0,"params":{"kind":"command","threadId":"s","turnId":"t1","itemId":"c1","startedAtMs":1795986959156,
		"environmentId":"local","reason":"why","command":"/bin/bash -lc 'rm x'","cwd":"/home/user/proj","commandActions":[{"type":"unknown","command":"rm x"}],
		"availableDecisions":["accept",{"acceptWithExecpolicyAmendment":{"execpolicy_amendment":["rm","x"]}},"cancel"]}}`
	patch    = `{"method":"item/fileChange/requestApproval","id":1,"params":{"threadId":"s","turnId":"t1","itemId":"c2","startedAtMs":1,"reason":null,"grantRoot":null}}`
	rights   = `{"method":"item/permissions/requestApproval","id":2,"params":{"threadId":"s","turnId":"t1","itemId":"c3","cwd":"/","permissions":{"network":{"enabled":true}},"startedAtMs":1,"reason":"net"}}`
	input    = `{"method":"item/tool/requestUserInput","id":3,"params":{"threadId":"s","turnId":"t1","itemId":"c4","isBlocking":true,"questions":[{"id":"q","header":"H","question":"Which?","options":[{"label":"A","description":"a"}]}]}}`
	elicit   = `{"method":"mcpServer/elicitation/request","id":4,"params":{"threadId":"s","turnId":"t1","serverName":"srv","mode":"form","message":"m","requestedSchema":{"type":"object","properties":{"n":{"type":"string"}}}}}`
	resolved = `{"method":"serverRequest/resolved","params":{"threadId":"s","requestId":0},"emittedAtMs":1}`
)

func served(t testing.TB, raw string) []adapters.Moment {
	o, err := event.ParseObject([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	return server.Item(o)
}

// What the server asks is of the tool that the hooks told of, and is over when
// the server says so, whoever answered.
func TestServerJoins(t *testing.T) {
	hook := func(n, more string) adapters.Moment {
		return adaptertest.Moment(t, adapters.Hook, n, `{"session_id":"s","turn_id":"t1"`+more+`}`)
	}
	ask := served(t, approval)[0]
	adaptertest.Stories(t, Adapter(), ran, []adaptertest.Story{
		{Name: "allowed at the screen", Moments: []adapters.Moment{
			hook("UserPromptSubmit", ``),
			hook("PreToolUse", `,"tool_name":"Bash","tool_use_id":"c1","tool_input":{"command":"rm x"}`),
			ask, ask, served(t, resolved)[0], served(t, resolved)[0],
			hook("PostToolUse", `,"tool_name":"Bash","tool_use_id":"c1","tool_input":{"command":"rm x"},"tool_response":""`),
		}, Want: "session.started; run.started t1; tool.requested t1; attention.requested t1; attention.resolved t1; tool.completed t1"},
		{Name: "of a tool that no hook told of", Moments: []adapters.Moment{hook("UserPromptSubmit", ``), ask, served(t, resolved)[0]},
			Want: "session.started; run.started t1; attention.requested t1; attention.resolved t1"},
	})
	if got := answer(ask, adapters.Answer{Option: "deny", Text: "no"}); string(got.Body) != `{"jsonrpc":"2.0","id":0,"result":{"decision":"decline"}}` {
		t.Errorf("%s", got.Body)
	}
	for _, raw := range []string{rights, input, elicit} {
		if ms := served(t, raw); len(ms) != 1 || question(ms[0]) != "" {
			t.Errorf("%s can be answered", raw)
		}
	}
}

// We listen to a thread while it waits for somebody, and no longer.
func TestServerListens(t *testing.T) {
	for raw, want := range map[string]string{listened: "thread/resume", over: "thread/unsubscribe", approval: "", `{"method":"thread/closed","params":{"threadId":"s"}}`: ""} {
		o, err := event.ParseObject([]byte(raw))
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, q := range server.More(o) {
			got += q.Path
		}
		if got != want {
			t.Errorf("%s: %s; want %s", raw, got, want)
		}
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
		{Name: "dual", Launch: dualed("codex", "-c", "model_reasoning_effort=high", "resume", "--last"), Endpoint: endpoint},
		{Name: "npx", Launch: launch(nil, []string{"AEP_HOOKS=all"}, "npx", "-y", "@openai/codex", "exec", "--json", "go"), Endpoint: spaced},
		{Name: "hooks-off", Launch: launch(map[string]string{"/home/user/.codex/config.toml": "model = \"x\"\n[features]\nhooks = false # no\n"}, nil,
			"codex", "exec", "--json", "go"), Endpoint: endpoint},
	}
}

func dualed(words ...string) adapters.Launch {
	l := adaptertest.Held(launch(nil, nil, words...))
	l.Dual = true
	return l
}

// Where nobody could answer, or nobody is asked, --dual changes nothing.
func TestDual(t *testing.T) {
	nobody := dualed("codex")
	nobody.Both = 0
	for _, l := range []adapters.Launch{dualed("codex", "exec", "hi"), dualed("codex", "review"), dualed("codex", "--worktree"), nobody} {
		w, err := Wire(l, endpoint)
		if err != nil || w.Server != nil || len(w.Notes) != 1 || !strings.Contains(w.Notes[0], "--dual changes nothing") {
			t.Errorf("%q: %+v %v", l.Args, w, err)
		}
	}
}

func TestDetect(t *testing.T) {
	adaptertest.Detects(t, Adapter(), map[string]bool{
		"codex": true, "/usr/bin/codex exec hi": true, "npx @openai/codex@0.171.0": true, "bunx @openai/codex": true,
		"node /x/node_modules/@openai/codex/bin/codex.js exec": true, "codexx": false, "npx codex-other": false, "node codex.js": false,
	})
}

const (
	config = "/home/user/.codex/config.toml"
	no     = "[features]\nhooks = false\n"
	yes    = "features.hooks = true\n"
	trusts = "[projects.\"/home/user/proj\"]\ntrust_level = \"trusted\"\n"
)

func TestWire(t *testing.T) {
	adaptertest.Launches(t, Adapter(), func(l adapters.Launch, w adapters.Wiring) string {
		if len(w.Args) > len(l.Args) {
			return "wired"
		}
		return ""
	}, []adaptertest.Launched{
		{Name: "a prompt", Line: "codex hello", Want: "wired"},
		{Name: "headless", Line: "codex -m x exec --json hello", Want: "wired"},
		{Name: "resumed", Line: "codex resume --last", Want: "wired"},
		{Name: "a flag's value is no subcommand", Line: "codex -m mcp", Want: "wired"},
		{Name: "nor are images", Line: "codex -i a.png login.png --search", Want: "wired"},
		{Name: "a subcommand", Line: "codex -c a=1 mcp list", Want: "passthrough"},
		{Name: "the version", Line: "codex --version", Want: "passthrough"},
		{Name: "help", Line: "codex exec --help", Want: "passthrough"},
		{Name: "a remote app server", Line: "codex --remote ws://127.0.0.1:1", Want: "remote"},
		{Name: "hooks of the command line's own", Line: "codex -c hooks.Stop=[] exec --json x", Want: "hooks of its own (-c hooks.Stop)", Stdout: adapters.Stream},
		{Name: "disabled", Line: "codex exec --json --disable hooks x", Want: "--disable hooks", Stdout: adapters.Stream},
		{Name: "disabled by -c", Line: "codex --config=features.hooks=false", Want: "-c disables hooks (features.hooks)"},
		{Name: "disabled by the user", Line: "codex", Files: map[string]string{config: "[features]\nhooks=false\n"}, Want: "config.toml disables hooks"},
		{Name: "elsewhere", Line: "codex", Files: map[string]string{"/x/config.toml": "features.hooks = false"}, Env: []string{"CODEX_HOME=/x"}, Want: "config.toml disables hooks"},
		{Name: "not this feature", Line: "codex", Files: map[string]string{config: "[other]\nhooks=false\n"}, Want: "wired"},
		{Name: "policy", Line: "codex", Files: map[string]string{"/etc/codex/requirements.toml": "allow_managed_hooks_only = true\n[x]\n"}, Want: "allows managed hooks only"},
		{Name: "policy on features", Line: "codex --enable hooks", Files: map[string]string{"/etc/codex/requirements.toml": "[features]\nhooks = false"}, Want: "requirements.toml forbids hooks (features.hooks)"},
		{Name: "by its old name", Line: "codex", Files: map[string]string{config: "features = { a = true, codex_hooks = false }"}, Want: "(features.codex_hooks)"},
		{Name: "disabled by its old name", Line: "codex --disable codex_hooks", Want: "--disable codex_hooks"},
		{Name: "a table in -c", Line: "codex -c features={hooks=false}", Want: "-c disables hooks (features.hooks)"},
		{Name: "the system", Line: "codex", Files: map[string]string{"/etc/codex/config.toml": no}, Want: "/etc/codex/config.toml disables"},
		{Name: "the user is stronger than the system", Line: "codex", Files: map[string]string{"/etc/codex/config.toml": no, config: yes}, Want: "wired"},
		{Name: "a folder that is trusted", Line: "codex", Files: map[string]string{"/home/user/proj/.codex/config.toml": no, config: trusts}, Want: "/home/user/proj/.codex/config.toml disables"},
		{Name: "one that is not", Line: "codex", Files: map[string]string{"/home/user/proj/.codex/config.toml": no}, Want: "wired"},
		{Name: "its repository", Line: "codex -C a/b", Files: map[string]string{"/home/user/proj/.codex/config.toml": no, "/home/user/proj/.git/HEAD": "ref", config: trusts}, Want: "/home/user/proj/.codex/config.toml disables"},
		{Name: "in its repository", Line: "codex -C a/b", Files: map[string]string{"/home/user/proj/a/b/.codex/config.toml": no, "/home/user/proj/.git/HEAD": "ref", config: trusts}, Want: "/home/user/proj/a/b/.codex/config.toml disables"},
		{Name: "below one that is trusted", Line: "codex -C a/b", Files: map[string]string{"/home/user/proj/a/b/.codex/config.toml": no, config: trusts}, Want: "wired"},
		{Name: "no repository", Line: "codex -C a/b", Files: map[string]string{"/home/user/proj/.codex/config.toml": no, config: trusts}, Want: "wired"},
		{Name: "a profile", Line: "codex -p quiet", Files: map[string]string{"/home/user/.codex/quiet.config.toml": no}, Want: "quiet.config.toml disables"},
		{Name: "a profile that wants them", Line: "codex -p loud", Files: map[string]string{"/home/user/.codex/loud.config.toml": yes, config: no}, Want: "wired"},
		{Name: "the command line is stronger", Line: "codex --enable hooks", Files: map[string]string{config: no}, Want: "wired"},
		{Name: "but for what is managed", Line: "codex --enable hooks", Files: map[string]string{"/etc/codex/managed_config.toml": no}, Want: "managed_config.toml disables"},
	})
}

func TestChecks(t *testing.T) {
	const key = "[hooks.state.\"/<session-flags>/config.toml:%s:0:0\"]\nenabled = %s\n"
	adaptertest.Checks(t, Adapter(), []adaptertest.Checked{
		{Name: "hook list", Files: map[string]string{config: fmt.Sprintf(key, "pre_tool_use", "false") + fmt.Sprintf(key, "stop", "false")}, Want: config + ": Stop, PreToolUse"},
		{Name: "hook list", Files: map[string]string{config: fmt.Sprintf(key, "stop", "true")}},
		{Name: "hook list", Files: map[string]string{config: strings.ReplaceAll(fmt.Sprintf(key, "stop", "false"), "<session-flags>", "home")}},
		{Name: "profile", Files: map[string]string{"/home/user/.codex/quiet.config.toml": no}, Want: "features.hooks in /home/user/.codex/quiet.config.toml"},
		{Name: "profile", Files: map[string]string{"/home/user/.codex/loud.config.toml": yes}},
	})
}

// What Codex says of our hooks, as version 0.171.0 says it.
func TestTrust(t *testing.T) {
	c := checks[slices.IndexFunc(checks, func(c adapters.Check) bool { return c.Ask != nil })]
	w, err := Wire(launch(nil, nil, "codex"), endpoint)
	if err != nil {
		t.Fatal(err)
	}
	args, stdin := c.Ask(launch(nil, nil, "codex"), w)
	if args[len(args)-1] != "app-server" || len(args) != len(w.Args)+1 {
		t.Errorf("asked by %q", args)
	}
	for line := range strings.Lines(stdin) {
		if _, err := event.ParseObject([]byte(line)); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	all := func(trust string, enabled bool, but ...string) map[string]any {
		list := []any{map[string]any{"key": "/home/user/.codex/config.toml:stop:0:0", "enabled": true, "trustStatus": "untrusted"}}
		for _, h := range installed {
			if !h.onRequest && !slices.Contains(but, h.name) {
				list = append(list, map[string]any{"key": hookKey(h), "enabled": enabled, "trustStatus": trust})
			}
		}
		return map[string]any{"id": "hooks", "result": map[string]any{"data": []any{map[string]any{"hooks": list}}}}
	}
	for _, tt := range []struct {
		line map[string]any
		want string
		done bool
	}{
		{map[string]any{"id": "hello", "result": map[string]any{}}, "", false},
		{map[string]any{"method": "thread/started"}, "", false},
		{map[string]any{"id": "hooks", "error": map[string]any{"code": -32601}}, "cannot say", true},
		{all("trusted", true), "", true},
		{all("modified", true), "it does not trust our hooks for SessionStart, ", true},
		{all("trusted", false), "it has switched off our hooks for ", true},
		{all("trusted", true, "Stop"), "it does not know our hooks for Stop", true},
		{all("blocked", true), " are blocked", true},
	} {
		if what, done := c.Heard(string(event.AppendValue(nil, tt.line))); done != tt.done || (what == "") != (tt.want == "") || !strings.Contains(what, tt.want) {
			t.Errorf("%v: %q, %v; want %q", tt.line, what, done, tt.want)
		}
	}
}

// The hash of a hook is the one that the binary gives it (app-server,
// hooks/list).
func TestHash(t *testing.T) {
	h := hooked{name: "PreToolUse", timeout: 10}
	e := adapters.Endpoint{Helper: []string{"/opt/my tools/aep-wrap", "hook", name}}
	if got, want := hash(h, e.HelperCommand(h.name, adapters.Unasked)), "sha256:dc967312b7b1a7e1a52764688ed7d47707bf451a6685dbf84b93c204f725eeaf"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

func FuzzWire(f *testing.F) {
	adaptertest.FuzzWire(f, Adapter(), "/home/user/.codex/config.toml", nil, 100, nil)
}
