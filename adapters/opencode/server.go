package opencode

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
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

// maxHistories is how many sessions' messages are asked for: those that were
// heard of last.
const maxHistories = 20

// when is the newest time that a moment tells.
func when(m adapters.Moment) (at time.Time) {
	_, props := read(m)
	info, _ := props["info"].(map[string]any)
	part, _ := props["part"].(map[string]any)
	state, _ := part["state"].(map[string]any)
	for _, o := range []map[string]any{props, info, part, state} {
		times, _ := o["time"].(map[string]any)
		for _, v := range []any{o["time"], times["created"], times["updated"], times["completed"], times["start"], times["end"]} {
			if ms, ok := millis(v); ok && time.UnixMilli(ms).After(at) {
				at = time.UnixMilli(ms)
			}
		}
	}
	return at
}

// known: the sessions that are at work, what they are at, and what waits for an
// answer in them; then, of sessions that were told of, the runs since.
var known = []adapters.Query{{Path: "/session/status", Read: atWork}}

func atWork(body any, past adapters.Past) (_ []adapters.Moment, more []adapters.Query) {
	busy, ok := working(body)
	if !ok {
		return nil, nil
	}
	for _, id := range slices.Sorted(maps.Keys(busy)) {
		more = append(more,
			adapters.Query{Path: "/session/" + id, Read: func(body any, _ adapters.Past) ([]adapters.Moment, []adapters.Query) {
				info, ok := body.(map[string]any)
				if !ok {
					return nil, nil
				}
				return []adapters.Moment{moment("session.created", map[string]any{"sessionID": id, "info": info})}, nil
			}},
			history(id, past, true))
	}
	more = append(more,
		adapters.Query{Path: "/permission", Read: waiting("permission.asked", busy)},
		adapters.Query{Path: "/question", Read: waiting("question.asked", busy)})
	for _, id := range past.Seen[max(len(past.Seen)-maxHistories, 0):] {
		if !busy[id] && token(id) {
			more = append(more, history(id, past, false))
		}
	}
	return nil, append(more, adapters.Query{Path: "/session/status", Read: atRest(busy)})
}

// working are the sessions that are at work.
func working(status any) (busy map[string]bool, ok bool) {
	all, ok := status.(map[string]any)
	busy = map[string]bool{}
	for id, v := range all {
		if o, _ := v.(map[string]any); o["type"] != "idle" && token(id) {
			busy[id] = true
		}
	}
	return busy, ok
}

// runCut is the name under which a run is told that is over, nobody heard how.
const runCut = "run.cut"

// atRest ends the runs that ended unseen and left no word of it. All that is
// known of them was told. What was at work when the stream had begun ends in it.
func atRest(before map[string]bool) func(any, adapters.Past) ([]adapters.Moment, []adapters.Query) {
	return func(body any, past adapters.Past) (ms []adapters.Moment, _ []adapters.Query) {
		busy, ok := working(body)
		for _, id := range past.Seen {
			if ok && !busy[id] && !before[id] {
				ms = append(ms, moment(runCut, map[string]any{"sessionID": id}))
			}
		}
		return ms, nil
	}
}

// lag is how much later than its own time a thing is told in the stream.
const lag = 2 * time.Second

// history tells what was in a session since what the stream told last of it;
// where it told nothing, what came of the last prompt of one that is at work.
// What was told already is known by its names, but for the end of a run: that is
// told of the run that is open.
func history(session string, past adapters.Past, busy bool) adapters.Query {
	return adapters.Query{Path: "/session/" + session + "/message", Read: func(body any, _ adapters.Past) (ms []adapters.Moment, _ []adapters.Query) {
		all := timeline(session, body)
		from, prompt := len(all), -1
		for i, e := range all {
			if e.prompt != "" {
				prompt = i
			}
		}
		last, told := past.Last[session]
		switch {
		case told:
			from, _ = slices.BinarySearchFunc(all, last.Add(-lag).UnixMilli(), func(e entry, at int64) int { return cmp.Compare(e.at, at) })
		case busy && prompt >= 0:
			from = prompt
		}
		for i, e := range all {
			due := i >= from
			switch {
			case e.ends && i > prompt && busy:
				due = false // it goes on
			case e.ends && i > prompt && !e.failed:
				due = true // told again, it ends nothing
			case e.ends && told:
				due = e.at > last.UnixMilli() || e.at == last.UnixMilli() && !e.failed // a failure is told before its time
			}
			if due {
				ms = append(ms, e.moments...)
			}
		}
		return ms, nil
	}}
}

// entry is what the stream told of a message at one time.
type entry struct {
	at           int64
	moments      []adapters.Moment
	prompt       string // the id of a prompt's message
	of           string // the prompt that it came of, where it ends
	ends, failed bool
}

// timeline is what was in a session, in that order.
func timeline(session string, body any) (all []entry) {
	list, _ := body.([]any)
	for _, x := range list {
		o, _ := x.(map[string]any)
		all = append(all, entries(session, o)...)
	}
	slices.SortStableFunc(all, func(a, b entry) int { return cmp.Compare(a.at, b.at) })
	prompt := ""
	return slices.DeleteFunc(all, func(e entry) bool {
		if e.prompt != "" {
			prompt = e.prompt
		}
		return e.ends && !e.failed && e.of != prompt // one that came meanwhile goes on
	})
}

func entries(session string, message map[string]any) (out []entry) {
	info, _ := message["info"].(map[string]any)
	span, _ := info["time"].(map[string]any)
	begun, _ := millis(span["created"])
	ended, over := millis(span["completed"])
	at := func(at int64, typ, name string, v any) adapters.Moment {
		props := map[string]any{"sessionID": session, name: v}
		if at > 0 {
			props["time"] = json.Number(strconv.FormatInt(at, 10))
		}
		return moment(typ, props)
	}
	add := func(t int64, typ, name string, v any) {
		out = append(out, entry{at: t, moments: []adapters.Moment{at(t, typ, name, v)}})
	}
	if info["role"] == "user" {
		info = maps.Clone(info)
		delete(info, "summary") // with it, it would be one told again
		add(begun, "message.updated", "info", info)
		out[0].prompt, _ = info["id"].(string)
		return out
	}
	parts, _ := message["parts"].([]any)
	for _, y := range parts {
		part, _ := y.(map[string]any)
		if part["type"] != "tool" {
			continue
		}
		state, _ := part["state"].(map[string]any)
		span, _ := state["time"].(map[string]any)
		from, ok := millis(span["start"])
		if !ok {
			from = begun
		}
		if state["status"] != "running" && state["status"] != "pending" {
			asked := maps.Clone(part)
			asked["state"] = map[string]any{"status": "running", "input": state["input"]}
			add(from, "message.part.updated", "part", asked)
			if from, ok = millis(span["end"]); !ok {
				from = max(begun, ended)
			}
		}
		add(from, "message.part.updated", "part", part)
	}
	if !over {
		return out
	}
	add(ended, "message.updated", "info", info)
	fault, failed := info["error"].(map[string]any)
	if finish, _ := info["finish"].(string); failed || finish != "" && finish != "tool-calls" {
		e := entry{at: ended, ends: true, failed: failed}
		e.of, _ = info["parentID"].(string)
		if failed {
			e.moments = append(e.moments, at(ended, "session.error", "error", fault))
		}
		e.moments = append(e.moments, at(ended, "session.idle", "status", nil))
		out = append(out, e)
	}
	return out
}

// waiting are the requests of busy sessions: one whose run was aborted stays
// listed.
func waiting(typ string, busy map[string]bool) func(any, adapters.Past) ([]adapters.Moment, []adapters.Query) {
	return func(body any, _ adapters.Past) (ms []adapters.Moment, _ []adapters.Query) {
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
