package demo

import (
	"time"

	"aep-wrap/event"
)

// Step is one thing that the scripted agent does: after a while it tells its
// hook, and where Wait is set it waits so long for an answer.
type Step struct {
	After   time.Duration
	Event   string
	Payload map[string]any // without session and run, which the player adds
	Wait    time.Duration
	Then    map[string][]Step // by Answer; what comes before the next step
}

// JSON is the step's payload in a session and a run.
func (s Step) JSON(session, run string) []byte {
	p := map[string]any{"event": s.Event, "session": session, "run": run}
	for k, v := range s.Payload {
		p[k] = v
	}
	return event.AppendValue(nil, p)
}

// Note is a text that the agent was given on its way, "" where there is none.
func Note(body []byte) string {
	o, err := event.ParseObject(body)
	if err != nil {
		return ""
	}
	s, _ := o["note"].(string)
	return s
}

// Answer reads what a waiting step heard: the option's id, "values", or "" for
// no decision.
func Answer(body []byte) string {
	o, err := event.ParseObject(body)
	if err != nil {
		return ""
	}
	if s, ok := o["option"].(string); ok {
		return s
	}
	if _, ok := o["values"].(map[string]any); ok {
		return "values"
	}
	return ""
}

type obj = map[string]any

const beat = 120 * time.Millisecond

var schema = obj{
	"properties": obj{
		"env":      obj{"type": "string", "enum": []any{"staging", "production"}, "enumNames": []any{"Staging", "Production"}, "title": "Where to"},
		"replicas": obj{"type": "integer", "title": "How many", "minimum": 1, "maximum": 9},
		"why":      obj{"type": "string", "title": "Why now"},
	},
	"required": []any{"env"},
}

var (
	build  = obj{"tool": "shell", "call": "call-1", "input": obj{"command": "go build ./...", "description": "build all"}}
	read   = obj{"tool": "read_file", "call": "call-2", "input": obj{"path": "/home/demo/app/deploy.yaml"}}
	wipe   = obj{"tool": "shell", "call": "call-3", "input": obj{"command": "rm -rf /"}}
	deploy = obj{"tool": "shell", "call": "call-4", "input": obj{"command": "./deploy.sh staging", "description": "ship it"}}
	search = obj{"tool": "search", "call": "call-5", "agent": "sub-1", "input": obj{"query": "deploy.sh"}}
)

func with(base obj, more obj) obj {
	out := obj{}
	for k, v := range base {
		out[k] = v
	}
	for k, v := range more {
		out[k] = v
	}
	return out
}

// Script is a whole session: prompts, tools, a failure, a denial, a
// permission, a form, a subagent and a compaction. Where nobody can answer,
// the permission times out within a second and the form is filled in in the
// agent's own screen.
var Script = []Step{
	{0, "session_start", obj{"trigger": "startup", "model": "demo-1", "cwd": "/home/demo/app"}, 0, nil},
	{beat, "prompt", obj{"text": "Build the service and deploy it to staging."}, 0, nil},
	{beat, "plan", obj{"task": "t1", "title": "build"}, 0, nil},
	{beat, "tool", build, 0, nil},
	{2 * beat, "tool_done", with(build, obj{"output": "ok", "ms": 231}), 0, nil},
	{beat, "plan_done", obj{"task": "t1", "title": "build"}, 0, nil},
	{beat, "note", obj{"text": "looking for the manifest", "percent": 40}, 0, nil},
	{beat, "tool", read, 0, nil},
	{beat, "tool_failed", with(read, obj{"error": obj{"type": "not_found", "message": "open /home/demo/app/deploy.yaml: no such file"}, "ms": 3}), 0, nil},
	{beat, "subagent", obj{"subagent": "sub-1", "kind": "explorer"}, 0, nil},
	{beat, "tool", search, 0, nil},
	{beat, "tool_done", with(search, obj{"output": obj{"matches": []any{"scripts/deploy.sh"}}, "ms": 18}), 0, nil},
	{beat, "subagent_done", obj{"subagent": "sub-1", "kind": "explorer", "ms": 300}, 0, nil},
	{beat, "tool", wipe, 0, nil},
	{beat, "tool_blocked", with(wipe, obj{"rule": "deny-rm-rf"}), 0, nil},
	{beat, "form", obj{"form": "form-1", "title": "Where should it go?", "schema": schema}, 4 * beat, map[string][]Step{
		"values":  {{beat, "form_taken", obj{"form": "form-1"}, 0, nil}},
		"decline": {{beat, "form_taken", obj{"form": "form-1"}, 0, nil}},
		"":        {{0, "form_answered", obj{"form": "form-1", "schema": schema, "values": obj{"env": "staging", "replicas": 2, "why": "as last time"}}, 0, nil}},
	}},
	{beat, "tool", deploy, 0, nil},
	{beat, "permission", deploy, time.Second, map[string][]Step{
		"allow": {{2 * beat, "tool_done", with(deploy, obj{"output": "deployed", "ms": 240}), 0, nil}},
		"deny":  {{beat, "tool_refused", with(deploy, obj{"reason": "You did not want it deployed."}), 0, nil}},
		"":      {{0, "permission_timeout", obj{"call": "call-4", "ms": 1000}, 0, nil}},
	}},
	{beat, "done", obj{"text": "Built. See above for the deployment.", "tokens": obj{"in": 5210, "out": 640}}, 0, nil},
	{beat, "compacting", obj{}, 0, nil},
	{beat, "compacted", obj{"trigger": "auto", "tokens": 3100}, 0, nil},
	{beat, "prompt", obj{"text": "Thanks!", "run": "run-2"}, 0, nil},
	{beat, "done", obj{"text": "You are welcome.", "run": "run-2", "tokens": obj{"in": 3400, "out": 12}}, 0, nil},
	{beat, "session_end", obj{}, 0, nil},
}
