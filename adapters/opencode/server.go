package opencode

import (
	"maps"
	"slices"
	"strings"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/hook"
	"aep-wrap/event"
)

// quiet is how long the stream may be silent: its heartbeat is every ten
// seconds.
const quiet = 35 * time.Second

// todoItem is the name that an item of todo.updated's list is told under.
const todoItem = "todo.item"

// item reads an item of the stream: {id, type, properties}. What no session
// knows of is left out: heartbeats, plugins and catalogs that were loaded, and
// a fork's frames that repeat others.
func item(o map[string]any) []adapters.Moment {
	typ, _ := o["type"].(string)
	props, _ := o["properties"].(map[string]any)
	session := sessionOf(typ, props)
	if typ == "message.part.delta" || typ != "file.edited" && session == "" {
		return nil
	}
	out := []adapters.Moment{{Channel: adapters.Server, Name: typ, Payload: o, Session: session}}
	if typ == "todo.updated" {
		list, _ := props["todos"].([]any)
		for _, x := range list {
			out = append(out, moment(todoItem, map[string]any{"sessionID": props["sessionID"], "todo": x}))
		}
	}
	return out
}

func sessionOf(typ string, props map[string]any) string {
	if s, _ := props["sessionID"].(string); s != "" {
		return s
	}
	info, _ := props["info"].(map[string]any)
	s, _ := info["sessionID"].(string)
	if s == "" && strings.HasPrefix(typ, "session.") {
		s, _ = info["id"].(string)
	}
	return s
}

func moment(typ string, props map[string]any) adapters.Moment {
	return adapters.Moment{Channel: adapters.Server, Name: typ, Payload: map[string]any{"type": typ, "properties": props}, Session: sessionOf(typ, props)}
}

// ---- what was before

// known: the sessions that are at work, with their last prompt and its tools,
// and what waits for an answer in them.
var known = []adapters.Query{{Path: "/session/status", Read: atWork}}

func atWork(body any, seen []string) (ms []adapters.Moment, more []adapters.Query) {
	all, ok := body.(map[string]any)
	if !ok {
		return nil, nil
	}
	for _, id := range seen {
		if all[id] == nil { // it came to rest unseen
			ms = append(ms, moment("session.idle", map[string]any{"sessionID": id}))
		}
	}
	busy := map[string]bool{}
	for _, id := range slices.Sorted(maps.Keys(all)) {
		status, _ := all[id].(map[string]any)
		if status["type"] == "idle" || !token(id) {
			continue
		}
		busy[id] = true
		more = append(more,
			adapters.Query{Path: "/session/" + id, Read: func(body any, _ []string) ([]adapters.Moment, []adapters.Query) {
				info, ok := body.(map[string]any)
				if !ok {
					return nil, nil
				}
				return []adapters.Moment{moment("session.created", map[string]any{"sessionID": id, "info": info})}, nil
			}},
			adapters.Query{Path: "/session/" + id + "/message", Read: func(body any, _ []string) ([]adapters.Moment, []adapters.Query) {
				return messages(id, body), nil
			}})
	}
	return ms, append(more,
		adapters.Query{Path: "/permission", Read: waiting("permission.asked", busy)},
		adapters.Query{Path: "/question", Read: waiting("question.asked", busy)})
}

// messages are the last prompt and what came of it so far.
func messages(session string, body any) (ms []adapters.Moment) {
	list, _ := body.([]any)
	for i := len(list) - 1; i >= 0; i-- {
		o, _ := list[i].(map[string]any)
		info, _ := o["info"].(map[string]any)
		if info["role"] == "user" {
			info = maps.Clone(info)
			delete(info, "summary") // with it, it would be one told again
			ms = append(ms, moment("message.updated", map[string]any{"sessionID": session, "info": info}))
			list = list[i+1:]
			break
		}
	}
	if ms == nil {
		return nil
	}
	for _, x := range list {
		o, _ := x.(map[string]any)
		parts, _ := o["parts"].([]any)
		for _, y := range parts {
			part, _ := y.(map[string]any)
			if part["type"] != "tool" {
				continue
			}
			state, _ := part["state"].(map[string]any)
			if state["status"] != "running" && state["status"] != "pending" {
				asked := maps.Clone(part)
				asked["state"] = map[string]any{"status": "running", "input": state["input"]}
				ms = append(ms, moment("message.part.updated", map[string]any{"sessionID": session, "part": asked}))
			}
			ms = append(ms, moment("message.part.updated", map[string]any{"sessionID": session, "part": part}))
		}
	}
	return ms
}

// waiting are the requests of busy sessions: one whose run was aborted stays
// listed.
func waiting(typ string, busy map[string]bool) func(any, []string) ([]adapters.Moment, []adapters.Query) {
	return func(body any, _ []string) (ms []adapters.Moment, _ []adapters.Query) {
		list, _ := body.([]any)
		for _, x := range list {
			o, _ := x.(map[string]any)
			if session, _ := o["sessionID"].(string); busy[session] {
				ms = append(ms, moment(typ, o))
			}
		}
		return ms, nil
	}
}

// ---- answers

// read gives a moment's native name and its properties, as an item of the
// server's or of a plugin's.
func read(m adapters.Moment) (name string, props map[string]any) {
	o := m.Payload
	if m.Channel == adapters.Hook {
		if o["kind"] == "permission.ask" {
			props, _ = o["permission"].(map[string]any)
			return "permission.ask", props
		}
		o, _ = o["event"].(map[string]any)
	}
	name, _ = o["type"].(string)
	props, _ = o["properties"].(map[string]any)
	return name, props
}

// asks: the server's questions, which its own screen asks at the same time.
func asks(m adapters.Moment) adapters.Ask {
	if m.Channel != adapters.Server || asked(m) == "" {
		return adapters.Ask{}
	}
	return adapters.Ask{Held: true, Both: true}
}

func asked(m adapters.Moment) string {
	name, props := read(m)
	id, _ := props["id"].(string)
	if m.Channel == adapters.ServerBeside || name != "permission.asked" && name != "question.asked" || !token(id) {
		return ""
	}
	return id
}

// reply is the body of what the server is told, or what a plugin's hook is.
func reply(m adapters.Moment, a adapters.Answer) []byte {
	if name, _ := read(m); name == "permission.ask" {
		if word := hook.Chosen(a); word == "allow" || word == "deny" {
			return event.AppendValue(nil, map[string]any{"status": word})
		}
		return nil
	}
	if r := answer(m, a); r != nil {
		return r.Body
	}
	return nil
}

// replies are the server's words for an answer's.
var replies = map[string]string{"once": "once", "always": "always", "reject": "reject", "allow": "once", "deny": "reject"}

// answer is the request that answers what a moment asks. A refusal with a
// reason lets the model go on with it, one without ends the run.
func answer(m adapters.Moment, a adapters.Answer) *adapters.Request {
	name, props := read(m)
	id := asked(m)
	if id == "" {
		return nil
	}
	if name == "question.asked" {
		path := "/question/" + id
		if list := chosen(props["questions"], a.Values); a.Values != nil && list != nil {
			return post(path+"/reply", map[string]any{"answers": list})
		}
		if hook.Declined(a) {
			return post(path+"/reject", map[string]any{})
		}
		return nil
	}
	word := replies[hook.Chosen(a)]
	if word == "" {
		return nil
	}
	body := map[string]any{"reply": word}
	if word == "reject" && a.Text != "" {
		body["message"] = hook.Reason(a)
	}
	return post("/permission/"+id+"/reply", body)
}

func post(path string, body map[string]any) *adapters.Request {
	r := &adapters.Request{Method: "POST", Path: path}
	if body != nil {
		r.Body = event.AppendValue(nil, body)
	}
	return r
}

// cancel: the server ends the run and what it started; Esc, twice, is what the
// user would press.
func cancel(t adapters.Target) (acts []adapters.Act) {
	if token(t.Session) {
		acts = append(acts, adapters.Act{Request: post("/session/"+t.Session+"/abort", nil), Patience: 5 * time.Second})
	}
	if t.TTY {
		acts = append(acts, adapters.Act{Keys: adapters.EscTwice, Patience: 3 * time.Second})
	}
	return acts
}
