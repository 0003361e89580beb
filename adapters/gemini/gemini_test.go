package gemini

import (
	"fmt"
	"testing"

	"aep-wrap/adapters"
	"aep-wrap/adapters/adaptertest"
	"aep-wrap/event"
)

func captures(t testing.TB) (ms []adapters.Moment) {
	ms = append(ms, adaptertest.Captures(t, adapters.Log, name, "logs", "*")...)
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

// caused says an event with the place of its cause, but for what is the run's.
func caused(d event.Draft, place map[string]int) string {
	if c, ok := place[d.Cause]; ok && c > 0 && d.Type != "tool.requested" {
		return fmt.Sprintf("%s <- %d", d.Type, c)
	}
	return d.Type
}

// Tools are paired by input and order; what fires no hook is told by the log.
func TestChannelsJoin(t *testing.T) {
	hook := func(n, more string) adapters.Moment {
		return adaptertest.Moment(t, adapters.Hook, n, `{"session_id":"s","transcript_path":"/l"`+more+`}`)
	}
	log := func(tool, args, err string) adapters.Moment {
		return adaptertest.Moment(t, adapters.Transcript, "gemini", `{"type":"gemini","id":"m1","toolCalls":[{"id":"c1","name":"`+tool+`","args":`+args+`,"result":[{"functionResponse":{"response":{`+err+`}}}]}]}`)
	}
	const sh = `,"tool_name":"run_shell_command","tool_input":{"command":`
	prompt := hook("BeforeAgent", `,"prompt":"go"`)
	adaptertest.Stories(t, Adapter(), caused, []adaptertest.Story{
		{Name: "two at once, ended out of order", Moments: []adapters.Moment{prompt,
			hook("BeforeTool", sh+`"a"}`), hook("BeforeTool", sh+`"b"}`),
			hook("AfterTool", sh+`"b"},"tool_response":{"llmContent":"Output: x\nExit Code: 2\nProcess"}`),
			hook("AfterTool", sh+`"a"},"tool_response":{"llmContent":"Output: x\nProcess"}`),
			hook("AfterAgent", "")},
			Want: "session.started; run.started; tool.requested; tool.requested; tool.failed <- 3; tool.completed <- 2; run.finished <- 1"},
		{Name: "written again and again", Moments: []adapters.Moment{prompt, log("nope", "{}", `"error":"Tool \"nope\" not found."`), log("nope", "{}", `"error":"Tool \"nope\" not found."`)},
			Want: "session.started; run.started; tool.requested; tool.failed <- 2"},
		{Name: "cancelled while it ran", Moments: []adapters.Moment{prompt, hook("BeforeTool", sh+`"a"}`),
			log("run_shell_command", `{"command":"a"}`, `"error":"[Operation Cancelled] Reason: User cancelled tool execution."`)},
			Want: "session.started; run.started; tool.requested; tool.failed <- 2"},
		{Name: "refused before it ran, which BeforeTool had told", Moments: []adapters.Moment{prompt, hook("BeforeTool", sh+`"a"}`),
			log("run_shell_command", `{"command":"a"}`, `"error":"Tool execution denied by policy."`), hook("AfterAgent", "")},
			Want: "session.started; run.started; tool.requested; tool.denied <- 2; run.finished <- 1"},
		{Name: "one that ran, and the same refused", Moments: []adapters.Moment{prompt, hook("BeforeTool", sh+`"a"}`), hook("AfterTool", sh+`"a"},"tool_response":{}`),
			hook("BeforeTool", sh+`"a"}`), log("run_shell_command", `{"command":"a"}`, `"error":"Tool execution blocked: no"`)},
			Want: "session.started; run.started; tool.requested; tool.completed <- 2; tool.requested; tool.failed <- 4"},
		{Name: "interrupted", Moments: []adapters.Moment{prompt, adaptertest.Moment(t, adapters.Transcript, "info", `{"type":"info","id":"i1","content":"Request cancelled."}`),
			adaptertest.Moment(t, adapters.Transcript, "info", `{"type":"info","id":"i2","content":"Something else."}`), prompt},
			Want: "session.started; run.started; run.cancelled <- 1; run.started"},
		{Name: "ended three times", Moments: []adapters.Moment{prompt, hook("SessionEnd", ""), hook("SessionEnd", ""), hook("SessionEnd", "")},
			Want: "session.started; run.started; run.cancelled <- 1; session.ended"},
		{Name: "nothing compressed", Moments: []adapters.Moment{prompt, hook("PreCompress", `,"trigger":"auto"`), hook("PreCompress", `,"trigger":"manual"`)},
			Want: "session.started; run.started; session.compacted"},
	})
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
	adaptertest.Detects(t, Adapter(), map[string]bool{
		"gemini": true, "/usr/bin/gemini -p hi": true, "npx @google/gemini-cli@0.61.0": true, "bunx @google/gemini-cli": true,
		"node /x/node_modules/@google/gemini-cli/bundle/gemini.js": true, "gemini2": false, "npx gemini": false,
	})
}

func TestWire(t *testing.T) {
	user, project := "/home/user/.gemini/settings.json", "/home/user/proj/.gemini/settings.json"
	adaptertest.Launches(t, Adapter(), func(_ adapters.Launch, w adapters.Wiring) string {
		if len(w.Overlays) > 0 && w.SetEnv[homeVar] != "" {
			return "wired"
		}
		return ""
	}, []adaptertest.Launched{
		{Name: "a session", Line: "gemini", Want: "wired"},
		{Name: "headless", Line: "gemini -o stream-json -p mcp", Want: "wired"},
		{Name: "a subcommand", Line: "gemini -m x mcp list", Want: "passthrough"},
		{Name: "a list", Line: "gemini --list-sessions", Want: "passthrough"},
		{Name: "no extensions", Line: "gemini -e none -o stream-json -p x", Want: "-e none", Stdout: adapters.Stream},
		{Name: "a sandbox", Line: "gemini", Env: []string{"GEMINI_SANDBOX=docker"}, Want: "sandbox"},
		{Name: "no sandbox", Line: "gemini", Env: []string{"GEMINI_SANDBOX=false"}, Want: "wired"},
		{Name: "a sandbox in settings", Line: "gemini", Files: map[string]string{user: `{"tools":{"sandbox":"docker"}}`}, Want: "tools.sandbox"},
		{Name: "hooks are off", Line: "gemini", Files: map[string]string{user: `{"hooksConfig":{"enabled":false}}`}, Want: "disable hooks"},
		{Name: "comments", Line: "gemini", Files: map[string]string{user: "// mine\n{\"hooksConfig\": {\"enabled\": false /* so */}}"}, Want: "disable hooks"},
		{Name: "and on again", Line: "gemini", Files: map[string]string{user: `{"hooksConfig":{"enabled":false}}`, project: `{"hooksConfig":{"enabled":true}}`}, Want: "wired"},
		{Name: "listed extensions only", Line: "gemini", Files: map[string]string{"/etc/gemini-cli/settings.json": "{// x\n\"security\":{\"allowedExtensions\":[\"a\"]}}"}, Want: "allowedExtensions"},
		{Name: "another home", Line: "gemini", Files: map[string]string{"/x/.gemini/settings.json": `{"hooksConfig":{"enabled":false}}`}, Env: []string{"GEMINI_CLI_HOME=/x"}, Want: "disable hooks"},
	})
}

func FuzzWire(f *testing.F) {
	adaptertest.FuzzWire(f, Adapter(), "/home/user/.gemini/settings.json", nil, 100, nil)
}

func TestChecks(t *testing.T) {
	const trust = "/home/user/.gemini/trustedFolders.json"
	const not = "this folder is not trusted"
	adaptertest.Checks(t, Adapter(), []adaptertest.Checked{
		{Name: "folder trust", Want: not},
		{Name: "folder trust", Files: map[string]string{trust: `{"/home/user/proj":"TRUST_FOLDER"}`}},
		{Name: "folder trust", Files: map[string]string{trust: `{"/home/user":"TRUST_FOLDER"}`}},
		{Name: "folder trust", Files: map[string]string{trust: `{"/home/user/other":"TRUST_PARENT"}`}},
		{Name: "folder trust", Files: map[string]string{trust: `{"/home/user/project":"TRUST_FOLDER"}`}, Want: not},
		{Name: "folder trust", Files: map[string]string{trust: `{"/home/user/proj":"DO_NOT_TRUST"}`}, Want: not},
		{Name: "folder trust", Files: map[string]string{"/home/user/.gemini/settings.json": `{"security":{"folderTrust":{"enabled":false}}}`}},
		{Name: "folder trust", Env: []string{"GEMINI_CLI_TRUST_WORKSPACE=true"}},
	})
}
