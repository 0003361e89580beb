package codex

import (
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
	"aep-wrap/event"
)

// The app server: where the operator wants both to be able to answer (--dual),
// Codex's screen joins one of ours, and so do we. The hooks, which run in the
// server, tell the facts; the server tells who is asked, and takes the answer.
var server = &adapters.Serving{
	Hello: []adapters.Request{
		{Path: "initialize", Body: event.AppendValue(nil, map[string]any{
			"clientInfo": map[string]any{"name": "aep-wrap", "title": "aep-wrap", "version": "1"},
			"capabilities": map[string]any{"experimentalApi": true, "optOutNotificationMethods": []any{
				"item/agentMessage/delta", "item/reasoning/summaryTextDelta", "item/reasoning/textDelta", "item/plan/delta",
				"item/commandExecution/outputDelta", "item/fileChange/outputDelta", "item/fileChange/patchUpdated", "turn/diff/updated",
				"thread/tokenUsage/updated", "account/rateLimits/updated", "thread/readState/changed",
			}},
		})},
		{Body: []byte(`{"jsonrpc":"2.0","method":"initialized"}`)},
	},
	Item: frame,
	Part: part,
	More: more,
	Known: []adapters.Query{{Path: "thread/loaded/list", Body: []byte("{}"), Read: func(body any, _ adapters.Past) (_ []adapters.Moment, more []adapters.Query) {
		o, _ := body.(map[string]any)
		list, _ := o["data"].([]any)
		for _, x := range list {
			if id, _ := x.(string); token(id) {
				more = append(more, listen(id))
			}
		}
		return nil, more
	}}},
	Asked:  question,
	Answer: answer,
	Tells:  true,
}

// listen has the server send us what a thread asks, what waits already first.
func listen(thread string) adapters.Query {
	return adapters.Query{Path: "thread/resume", Body: event.AppendValue(nil, map[string]any{"threadId": thread, "excludeTurns": true})}
}

// more: every client hears that a thread waits for somebody; what it asks, and
// what became of that, only who listens to it. We listen only then: a thread
// that its screen has left would stay open for us.
func more(item map[string]any) []adapters.Query {
	params, _ := item["params"].(map[string]any)
	status, _ := params["status"].(map[string]any)
	thread, _ := params["threadId"].(string)
	if item["method"] != "thread/status/changed" || status["type"] != "active" && status["type"] != "idle" || !token(thread) {
		return nil
	}
	flags, _ := status["activeFlags"].([]any)
	if slices.Contains(flags, any("waitingOnApproval")) || slices.Contains(flags, any("waitingOnUserInput")) {
		return []adapters.Query{listen(thread)}
	}
	return []adapters.Query{{Path: "thread/unsubscribe", Body: event.AppendValue(nil, map[string]any{"threadId": thread})}}
}

// part: a subagent's thread is a part of its parent's session, as its hooks
// have it.
func part(item map[string]any) (part, of string) {
	params, _ := item["params"].(map[string]any)
	thread, _ := params["thread"].(map[string]any)
	if item["method"] != "thread/started" {
		return "", ""
	}
	part, _ = thread["id"].(string)
	of, _ = thread["sessionId"].(string)
	return part, of
}

// frame reads a message of the server's. A request gets the words in which it
// is told, under "ask".
func frame(o map[string]any) []adapters.Moment {
	method, _ := o["method"].(string)
	params, _ := o["params"].(map[string]any)
	thread, _ := params["threadId"].(string)
	id, ask := o["id"], map[string]any{}
	str := func(name string) string { s, _ := params[name].(string); return s }
	switch method {
	case "item/commandExecution/requestApproval":
		ask = permission("Bash", command(params), str("reason"))
	case "item/fileChange/requestApproval":
		ask = permission("apply_patch", str("grantRoot"), str("reason"))
	case "item/permissions/requestApproval":
		ask = permission("request_permissions", "", str("reason"))
	case "item/tool/requestUserInput", "mcpServer/elicitation/request":
	case "serverRequest/resolved":
		id = params["requestId"]
	default:
		return nil
	}
	if thread == "" || id == nil {
		return nil
	}
	o = maps.Clone(o)
	ask["id"] = string(event.AppendValue(nil, id))
	o["ask"] = ask
	return []adapters.Moment{{Channel: adapters.ServerBeside, Name: method, Payload: o, Session: thread}}
}

// command is what is to be run, without the shell around it where the server
// tells it so.
func command(params map[string]any) string {
	if list, _ := params["commandActions"].([]any); len(list) == 1 {
		action, _ := list[0].(map[string]any)
		if s, _ := action["command"].(string); s != "" {
			return s
		}
	}
	s, _ := params["command"].(string)
	return s
}

func permission(tool, what, why string) map[string]any {
	text := "Permission requested: " + tool
	if what != "" {
		text += " — " + what
	}
	if why != "" {
		text += " (" + why + ")"
	}
	return map[string]any{"tool": tool, "prompt": text}
}

// asks is the vocabulary of the app server's requests.
func asks() *Table {
	request := func(facts ...Fact) Row {
		return Emit("attention.requested", append([]Fact{Need("ask.id"), ofCall, Key("params.itemId", "ask.id"), Pair("ask.id")}, facts...)...)
	}
	tool := []Fact{Kind("permission"), Subject("ask.tool"), Prompt("ask.prompt"), Options(Option{ID: "allow", Label: "Allow"}, Option{ID: "deny", Label: "Deny"}), Whole("context", "params")}
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.ServerBeside,
		Name:    Named("method"),
		Other:   Nothing("the hooks and the rollout tell it"),
		Rows: map[string]Row{
			"item/commandExecution/requestApproval": request(append(tool[:len(tool):len(tool)], RespondVia)...),
			"item/fileChange/requestApproval":       request(append(tool[:len(tool):len(tool)], RespondVia)...),
			"item/permissions/requestApproval":      request(append(tool[:len(tool):len(tool)], Observed)...),
			"item/tool/requestUserInput":            request(AsForm("params.questions", "multiSelect"), atScreen).Note("answered in the screen alone"),
			"mcpServer/elicitation/request": Emit("attention.requested", Need("ask.id"), Key("params.turnId", "ask.id"), Pair("ask.id"),
				Subject("params.serverName"), Elicitation("params.message", "params.requestedSchema"), atScreen).Note("answered in the screen alone"),
			"serverRequest/resolved": Resolved("ask.id", "answered").
				Note("by whomever, and without the answer: what becomes of the tool tells that"),
		},
	})
}

var ofCall = Do("", nil, func(in *In, d *event.Draft) bool {
	d.Link.Call = in.Str("params.itemId")
	return true
})

// atScreen: a form that is answered there alone.
var atScreen = Do("", nil, func(_ *In, d *event.Draft) bool {
	for i := range d.Fields {
		if d.Fields[i].Name == "respond_via" {
			d.Fields[i].Value = []any{"oob"}
		}
	}
	return true
})

// question is the id of a request that can be answered through us.
func question(m adapters.Moment) string {
	if m.Channel != adapters.ServerBeside || !slices.Contains([]string{"item/commandExecution/requestApproval", "item/fileChange/requestApproval"}, m.Name) {
		return ""
	}
	ask, _ := m.Payload["ask"].(map[string]any)
	id, _ := ask["id"].(string)
	return id
}

// answer is the result of such a request. A refusal lets the turn go on; it
// has no place for a reason.
func answer(m adapters.Moment, a adapters.Answer) *adapters.Request {
	id, word := question(m), map[string]string{"allow": "accept", "deny": "decline"}[Chosen(a)]
	if id == "" || word == "" {
		return nil
	}
	return &adapters.Request{Body: []byte(`{"jsonrpc":"2.0","id":` + id + `,"result":{"decision":"` + word + `"}}`)}
}

// interrupt ends a turn by a request to the server.
func interrupt(t adapters.Target) adapters.Act {
	return adapters.Act{Patience: 5 * time.Second, Request: &adapters.Request{Path: "turn/interrupt",
		Body: event.AppendValue(nil, map[string]any{"threadId": t.Session, "turnId": t.Run})}}
}

func token(s string) bool {
	return s != "" && len(s) <= 128 && strings.Trim(s, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_") == ""
}

// ---- launching

// tokenVar is the variable in which the screen finds the word that lets it
// into the server.
const tokenVar = "AEP_CODEX_TOKEN"

// noDual says why a launch has no server of its own; "" is that it can.
func noDual(l adapters.Launch, e adapters.Endpoint, w adapters.Line) string {
	switch {
	case headless(w) || w.Word() == "review":
		return "nobody is asked in codex " + w.Word()
	case w.Has("--worktree"):
		return "--worktree is for local sessions only"
	case l.Both <= 0:
		return "nobody can answer from afar"
	case e.Port == 0 || e.Secret == "":
		return "there is no free port for its server"
	}
	return ""
}

// dual has the screen join a server of ours, in which the hooks run. What the
// server is asked for by the command line it is told, too.
func dual(out *adapters.Wiring, l adapters.Launch, e adapters.Endpoint, words adapters.Line, at int) {
	url := "ws://127.0.0.1:" + strconv.Itoa(e.Port)
	sum := sha256.Sum256([]byte(e.Secret))
	start := append(append(slices.Clone(l.Args[:at]), "app-server"), flags(l, e)...)
	for _, f := range []string{"-c", "--config", "--enable", "--disable"} {
		for _, v := range words.Flags[f] {
			start = append(start, f, v)
		}
	}
	start = append(start, "--listen", url, "--ws-auth", "capability-token", "--ws-token-sha256", hex.EncodeToString(sum[:]))
	out.Server = &adapters.Served{URL: url, Password: e.Secret, Start: start, Else: out.Args, Hide: []string{tokenVar}}
	join := slices.Concat(l.Args[:at], []string{"--remote", url, "--remote-auth-token-env", tokenVar})
	out.Args = slices.Concat(join, l.Args[at:])
	out.Server.Try = append(join, "--version")
	out.SetEnv = maps.Clone(out.SetEnv)
	if out.SetEnv == nil {
		out.SetEnv = map[string]string{}
	}
	out.SetEnv[tokenVar] = e.Secret
}
