package opencode_test

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/adaptertest"
	"aep-wrap/adapters/kilo"
	"aep-wrap/adapters/opencode"
	"aep-wrap/event"
	"aep-wrap/event/eventtest"
	"aep-wrap/redaction"
	"aep-wrap/session"
)

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Spec{Adapter: opencode.Adapter(), Corpus: []string{"opencode.json"}, Pins: []string{"pins.json"}, Captures: streams, Wires: wires(), Declared: adaptertest.NamedBy("type", "kind", "event.type")})
}

func FuzzMap(f *testing.F) { adaptertest.Fuzz(f, opencode.Adapter(), streams(f)) }

// streams are the items of the recorded streams in testdata.
func streams(t testing.TB) (ms []adapters.Moment) {
	files, err := filepath.Glob(filepath.Join("testdata", "streams", "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no recorded streams: %v", err)
	}
	for _, f := range files {
		ms = append(ms, stream(t, opencode.Adapter(), f)...)
	}
	return ms
}

// stream reads a recorded stream as the agent would.
func stream(t testing.TB, a adapters.Adapter, file string) (ms []adapters.Moment) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(raw))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		o, err := event.ParseObject(lines.Bytes())
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, m := range a.Server.Item(o) {
			m.Held = a.Asks(m).Held
			ms = append(ms, m)
		}
	}
	return ms
}

// ---- the corpus' other blocks

type shown struct {
	Type    string         `json:"type"`
	Data    map[string]any `json:"data"`
	Subject string         `json:"subject,omitempty"`
}

func seal(t *testing.T, a adapters.Adapter, ds []event.Draft) (out []shown) {
	t.Helper()
	gate := redaction.NewGate(redaction.DefaultPolicy(), redaction.NewPipeline(redaction.Options{}))
	for _, d := range ds {
		d.Agent = a.Name
		if d.Type == "attention.resolved" && d.Subject == "" {
			d.Subject = d.Pair
		}
		e, err := gate.Seal(&d)
		if err != nil {
			t.Fatal(err)
		}
		s := shown{Type: e.Type, Subject: e.Subject, Data: map[string]any{}}
		if len(e.Data) > 0 {
			if err := json.Unmarshal(e.Data, &s.Data); err != nil {
				t.Fatal(err)
			}
		}
		out = append(out, s)
	}
	return out
}

func text(v any) string { b, _ := json.MarshalIndent(v, "", " "); return string(b) }

// The two ways in which the corpus has the stream read: alone, and beside a
// plugin.
func TestStreamModes(t *testing.T) {
	for file, a := range map[string]adapters.Adapter{"opencode.json": opencode.Adapter(), "kilocode.json": kilo.Adapter()} {
		var corpus struct {
			Moments map[string]struct {
				Input struct {
					Event json.RawMessage `json:"event"`
				} `json:"input"`
			} `json:"moments"`
			Modes struct {
				Modes map[string]map[string]*shown `json:"modes"`
			} `json:"sse_modes"`
		}
		if err := json.Unmarshal(eventtest.File(t, "fixtures", "mappings", file), &corpus); err != nil {
			t.Fatal(err)
		}
		if len(corpus.Modes.Modes) == 0 {
			t.Fatalf("%s pins no modes", file)
		}
		for name, modes := range corpus.Modes.Modes {
			if name == "permission_asked" || name == "question_asked" {
				continue // the fork's pins are of a reader that cannot answer; we do
			}
			for mode, channel := range map[string]adapters.Channel{"primary": adapters.Server, "companion": adapters.ServerBeside} {
				t.Run(a.Name+"/"+name+"/"+mode, func(t *testing.T) {
					p, err := event.ParseObject(corpus.Moments[name].Input.Event)
					if err != nil {
						t.Fatal(err)
					}
					m := adapters.Moment{Channel: channel, Payload: p, Held: true}
					got := seal(t, a, a.Map(m))
					var want []shown
					if pin := modes[mode]; pin != nil {
						want = []shown{*pin}
					}
					if text(got) != text(want) {
						t.Errorf("got %s\nwant %s", text(got), text(want))
					}
				})
			}
		}
	}
}

// A todo list comes whole each time: told one by one and each once, its items
// are the changes that the corpus pins.
func TestTodos(t *testing.T) {
	var corpus struct {
		Todos struct {
			Input    struct{ Prev, Next json.RawMessage } `json:"input"`
			Expected []shown                              `json:"expected"`
		} `json:"todos"`
	}
	if err := json.Unmarshal(eventtest.File(t, "fixtures", "mappings", "opencode.json"), &corpus); err != nil {
		t.Fatal(err)
	}
	a := opencode.Adapter()
	s := session.New(session.Config{Agent: a.Name, Host: "h", Session: "s", State: session.NewState()})
	told := func(list json.RawMessage) (got []shown) {
		o, err := event.ParseObject([]byte(`{"type":"todo.updated","properties":{"sessionID":"s","todos":` + string(list) + `}}`))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range a.Server.Item(o) {
			got = append(got, seal(t, a, s.Bind(time.Time{}, a.Map(m)))...)
		}
		return got
	}
	told(corpus.Todos.Input.Prev)
	if got, want := text(told(corpus.Todos.Input.Next)), text(corpus.Todos.Expected); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
	if got := told(corpus.Todos.Input.Next); got != nil {
		t.Errorf("the same list again: %s", text(got))
	}
}

// ---- recorded streams, bound

// What a recorded stream becomes, as a session binds it: type, subject of a
// tool, run or step.
func TestStreams(t *testing.T) {
	for _, tt := range []struct{ file, want string }{
		{"shell-once", "session.started; run.started 1; tool.requested bash 1; attention.requested bash 1; attention.answered 1 once; attention.resolved 1; tool.completed bash 1; run.finished 1"},
		{"write-always", "session.started; run.started 1; attention.requested external_directory 1; tool.requested write 1; attention.answered 1 always; attention.resolved 1; attention.requested edit 1; attention.answered 1 always; attention.resolved 1; tool.completed write 1; run.finished 1"},
		{"reject", "session.started; run.started 1; attention.requested bash 1; tool.requested bash 1; attention.answered 1 reject; attention.resolved 1; tool.failed bash 1 rejected; run.finished 1"},
		{"reject-message", "session.started; run.started 1; attention.requested bash 1; tool.requested bash 1; attention.answered 1 reject; attention.resolved 1; tool.failed bash 1 rejected; run.finished 1"},
		{"two", "session.started; run.started 1; attention.requested bash 1; tool.requested bash 1; attention.requested bash 1; tool.requested bash 1; attention.answered 1 once; attention.resolved 1; attention.answered 1 once; attention.resolved 1; tool.completed bash 1; tool.failed bash 1 tool_error; run.finished 1"},
		{"abort-in-tool", "session.started; run.started 1; attention.requested bash 1; tool.requested bash 1; attention.answered 1 once; attention.resolved 1; run.cancelled 1; tool.failed bash 1 interrupted"},
		{"abort-asking", "session.started; run.started 1; attention.requested bash 1; tool.requested bash 1; attention.resolved 1; run.cancelled 1; tool.failed bash 1 interrupted"},
		{"error", "session.started; run.started 1; run.failed 1 api_error"},
		{"task", "session.started; run.started 1; tool.requested task 1; delegation.subagent.started 1; tool.completed task 1; delegation.subagent.stopped 1; run.finished 1 | session.started; run.started 1; tool.requested bash 1; attention.requested bash 1; attention.answered 1 once; attention.resolved 1; tool.failed bash 1 tool_error; run.finished 1"},
		{"question", "session.started; run.started 1; attention.requested 1; tool.requested question 1; attention.resolved 1; tool.completed question 1; run.finished 1"},
		{"steer", "session.started; run.started 1; tool.requested bash 1; attention.requested bash 1; attention.answered 1 once; attention.resolved 1; tool.completed bash 1; run.finished 1"},
		{"todo", "session.started; run.started 1; progress.task.planned 1; progress.task.planned 1; tool.requested todowrite 1; tool.completed todowrite 1; run.finished 1"},
	} {
		t.Run(tt.file, func(t *testing.T) {
			got := bound(t, opencode.Adapter(), filepath.Join("testdata", "streams", tt.file+".jsonl"))
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func bound(t *testing.T, a adapters.Adapter, file string) string {
	sessions, names, got := map[string]*session.Session{}, []string{}, map[string][]string{}
	runs := map[string]int{}
	for i, m := range stream(t, a, file) {
		for _, d := range a.Map(m) {
			if d.Session == "" { // a file's, told of no session: of the last
				d.Session = names[len(names)-1]
			}
			s := sessions[d.Session]
			if s == nil {
				s = session.New(session.Config{Agent: a.Name, Host: "h", Session: d.Session, State: session.NewState(), Steer: a.Steer})
				sessions[d.Session] = s
				names = append(names, d.Session)
			}
			for _, b := range s.Bind(time.Date(2026, 7, 3, 10, 0, i, 0, time.UTC), []event.Draft{d}) {
				if strings.HasPrefix(b.Type, "x.") {
					continue
				}
				words := []string{b.Type}
				if event.Category(b.Type) == "tool" || b.Type == "attention.requested" && !strings.HasPrefix(b.Subject, "que_") {
					words = append(words, b.Subject)
				}
				if b.Run != "" {
					if runs[b.Session+b.Run] == 0 {
						runs[b.Session+b.Run] = len(slices.Compact(slices.Collect(valuesOf(runs, b.Session)))) + 1
					}
					words = append(words, string(rune('0'+runs[b.Session+b.Run])))
				}
				for _, p := range [][]string{{"answer", "option"}, {"error", "type"}} {
					if s := b.Fields.Str(p...); s != "" {
						words = append(words, s)
					}
				}
				got[d.Session] = append(got[d.Session], strings.Join(words, " "))
			}
		}
	}
	var out []string
	for _, n := range names {
		out = append(out, strings.Join(got[n], "; "))
	}
	return strings.Join(out, " | ")
}

func valuesOf(runs map[string]int, session string) func(func(int) bool) {
	return func(yield func(int) bool) {
		for k, n := range runs {
			if strings.HasPrefix(k, session) && !yield(n) {
				return
			}
		}
	}
}

// ---- answers

func TestAnswers(t *testing.T) {
	a := opencode.Adapter()
	permission := item(t, `{"type":"permission.asked","properties":{"id":"per_1","sessionID":"s","permission":"bash"}}`)
	question := item(t, `{"type":"question.asked","properties":{"id":"que_1","sessionID":"s","questions":[{"question":"Which?","options":[{"label":"A"},{"label":"B"}]},{"question":"All?","multiple":true,"options":[{"label":"C"},{"label":"D"}]},{"question":"Why?","options":[]}]}}`)
	for _, tt := range []struct {
		name string
		m    adapters.Moment
		a    adapters.Answer
		want string
	}{
		{"once", permission, adapters.Answer{Option: "once"}, `POST /permission/per_1/reply {"reply":"once"}`},
		{"always", permission, adapters.Answer{Option: "always"}, `POST /permission/per_1/reply {"reply":"always"}`},
		{"reject", permission, adapters.Answer{Option: "reject"}, `POST /permission/per_1/reply {"reply":"reject"}`},
		{"reject with a reason", permission, adapters.Answer{Option: "reject", Text: "use make"}, `POST /permission/per_1/reply {"message":"use make","reply":"reject"}`},
		{"a reason alone refuses", permission, adapters.Answer{Text: "use make"}, `POST /permission/per_1/reply {"message":"use make","reply":"reject"}`},
		{"allow, in the other agents' word", permission, adapters.Answer{Option: "allow"}, `POST /permission/per_1/reply {"reply":"once"}`},
		{"no such option", permission, adapters.Answer{Option: "perhaps"}, ""},
		{"a form", question, adapters.Answer{Values: map[string]any{"1": "2", "2": []any{"1", "2"}, "3": "because"}}, `POST /question/que_1/reply {"answers":[["B"],["C","D"],["because"]]}`},
		{"a choice of the user's own", question, adapters.Answer{Values: map[string]any{"1": "neither", "2": []any{"1"}, "3": "x"}}, `POST /question/que_1/reply {"answers":[["neither"],["C"],["x"]]}`},
		{"half a form", question, adapters.Answer{Values: map[string]any{"1": "2"}}, ""},
		{"a form refused", question, adapters.Answer{Option: "reject"}, `POST /question/que_1/reject {}`},
		{"an id that is none", item(t, `{"type":"permission.asked","properties":{"id":"../x","sessionID":"s","permission":"bash"}}`), adapters.Answer{Option: "once"}, ""},
		{"nothing is asked", item(t, `{"type":"session.idle","properties":{"sessionID":"s"}}`), adapters.Answer{Option: "once"}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got := ""
			if r := a.Server.Answer(tt.m, tt.a); r != nil {
				got = r.Method + " " + r.Path + " " + string(r.Body)
			}
			if got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func item(t testing.TB, raw string) adapters.Moment {
	t.Helper()
	o, err := event.ParseObject([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	ms := opencode.Adapter().Server.Item(o)
	if len(ms) == 0 {
		t.Fatalf("no moment: %s", raw)
	}
	return ms[0]
}

func TestItemsOfNoSession(t *testing.T) {
	for _, raw := range []string{
		`{"type":"server.connected","properties":{}}`, `{"type":"server.heartbeat","properties":{}}`, `{"type":"plugin.added","properties":{"id":"x"}}`,
		`{"type":"sync","syncEvent":{}}`, `{"type":"message.part.delta","properties":{"sessionID":"s"}}`, `{"type":"pty.created","properties":{"info":{"id":"pty_1"}}}`, `{}`,
	} {
		o, _ := event.ParseObject([]byte(raw))
		if ms := opencode.Adapter().Server.Item(o); ms != nil {
			t.Errorf("%s is told as %v", raw, ms)
		}
	}
}

// What a server knows when it is joined in the middle of a run, and after a
// time in which nobody listened.
func TestKnown(t *testing.T) {
	const before, gap = 1700000000000, 1700000010000 // the last item came between them
	user := func(id string, at int) string {
		return fmt.Sprintf(`{"info":{"id":%q,"role":"user","summary":{},"time":{"created":%d}},"parts":[]}`, id, at)
	}
	answer := func(id, of string, from, to int, more, parts string) string {
		return fmt.Sprintf(`{"info":{"id":%q,"role":"assistant","parentID":%q,"time":{"created":%d,"completed":%d},"tokens":{"output":1}%s},"parts":[%s]}`, id, of, from, to, more, parts)
	}
	bash := func(id string, from, to int) string {
		return fmt.Sprintf(`{"id":%q,"type":"tool","tool":"bash","callID":%q,"state":{"status":"completed","input":{},"output":"x","time":{"start":%d,"end":%d}}}`, id, "call_"+id, from, to)
	}
	const stopped, calls, aborted, failed = `,"finish":"stop"`, `,"finish":"tool-calls"`, `,"error":{"name":"MessageAbortedError","data":{}}`, `,"error":{"name":"APIError","data":{"message":"no"}}`
	old := user("msg_1", before) + "," + answer("msg_2", "msg_1", before+1, before+9, stopped, bash("prt_0", before+2, before+3))
	for name, tt := range map[string]struct {
		status, messages, permissions string
		told                          []string // before, by the stream
		last                          int64    // when; 0 is before the gap
		later                         string   // the status, asked again
		want                          string
	}{
		"joined in the middle of a run": {
			status: `{"ses_1":{"type":"busy"},"ses_2":{"type":"idle"}}`,
			messages: `[{"info":{"id":"msg_0","role":"user"},"parts":[]},{"info":{"id":"msg_1","role":"user","summary":{}},"parts":[]},
				{"info":{"id":"msg_2","role":"assistant"},"parts":[{"id":"prt_1","type":"text"},
					{"id":"prt_2","type":"tool","tool":"read","callID":"c1","state":{"status":"completed","input":{},"output":"x"}},
					{"id":"prt_3","type":"tool","tool":"bash","callID":"c2","state":{"status":"running","input":{"command":"ls"}}}]}]`,
			permissions: `[{"id":"per_0","sessionID":"ses_2","permission":"bash","tool":{"callID":"c0"}},{"id":"per_1","sessionID":"ses_1","permission":"bash","tool":{"callID":"c2"}}]`,
			want:        "session.started; run.started; tool.requested read; tool.completed read; tool.requested bash; attention.requested bash",
		},
		"joined at rest": {status: `{}`, messages: "[" + old + "]", want: ""},
		"a run ended": {
			status: `{}`, told: []string{"msg_1"},
			messages: "[" + user("msg_1", before) + "," + answer("msg_2", "msg_1", before+1, gap+1, calls, bash("prt_1", gap, gap+1)) + "," + answer("msg_3", "msg_1", gap+2, gap+3, stopped, "") + "]",
			want:     "tool.requested bash; tool.completed bash; x.opencode.message.updated; x.opencode.message.updated; run.finished",
		},
		"a run ended, and one began and ended": {
			status: `{}`, told: []string{"msg_1"},
			messages: "[" + user("msg_1", before) + "," + answer("msg_2", "msg_1", before+1, gap, stopped, "") + "," + user("msg_3", gap+1) + "," + answer("msg_4", "msg_3", gap+2, gap+4, stopped, bash("prt_1", gap+2, gap+3)) + "]",
			want:     "x.opencode.message.updated; run.finished; run.started; tool.requested bash; tool.completed bash; x.opencode.message.updated; run.finished",
		},
		"nothing was": {status: `{}`, told: []string{"msg_1", "idle"}, messages: "[" + old + "]", want: ""},
		"a run was cancelled, and one failed": {
			status: `{}`, told: []string{"msg_1"},
			messages: "[" + user("msg_1", before) + "," + answer("msg_2", "msg_1", before+1, gap, aborted, "") + "," + user("msg_3", gap+1) + "," + answer("msg_4", "msg_3", gap+2, gap+4, failed, "") + "]",
			want:     "x.opencode.message.updated; run.cancelled; run.started; x.opencode.message.updated; x.opencode.session.error; run.failed",
		},
		"a prompt came into a run": {
			status: `{}`, told: []string{"msg_1"},
			messages: "[" + user("msg_1", before) + "," + user("msg_3", gap+1) + "," + answer("msg_2", "msg_1", before+1, gap+2, stopped, "") + "," + answer("msg_4", "msg_3", gap+3, gap+4, stopped, bash("prt_1", gap+3, gap+4)) + "]",
			want:     "x.opencode.message.updated; tool.requested bash; tool.completed bash; x.opencode.message.updated; run.finished",
		},
		"a run goes on": {
			status: `{"ses_1":{"type":"busy"}}`, told: []string{"msg_1"},
			messages: "[" + user("msg_1", before) + "," + answer("msg_2", "msg_1", before+1, gap, stopped, "") + "," + user("msg_3", gap+1) + "," + answer("msg_4", "msg_3", gap+2, gap+4, stopped, bash("prt_1", gap+2, gap+3)) + "]",
			want:     "x.opencode.message.updated; run.finished; run.started; tool.requested bash; tool.completed bash; x.opencode.message.updated",
		},
		"a run ended without a word": {status: `{}`, told: []string{"msg_1"}, messages: "[" + user("msg_1", before) + "]", want: "run.cancelled"},
		"a run was cut off with the server": {
			status: `{}`, told: []string{"msg_1"},
			messages: "[" + user("msg_1", before) + `,{"info":{"id":"msg_2","role":"assistant","parentID":"msg_1","time":{"created":1700000000001}},"parts":[]}]`,
			want:     "run.cancelled",
		},
		"a run ends while it is asked":   {status: `{"ses_1":{"type":"busy"}}`, later: `{}`, told: []string{"msg_1"}, messages: "[" + user("msg_1", before) + "]", want: ""},
		"the messages are not to be had": {status: `{}`, told: []string{"msg_1"}, messages: `{"name":"UnknownError"}`, want: "run.cancelled"},
		"all but the word that a run ended was heard": {
			status: `{}`, told: []string{"msg_1"}, last: gap + 500,
			messages: "[" + user("msg_1", before) + "," + answer("msg_2", "msg_1", before+1, gap, stopped, "") + "]",
			want:     "x.opencode.message.updated; run.finished",
		},
		"a run ended before the one that goes on": {
			status: `{"ses_1":{"type":"busy"}}`, told: []string{"msg_1", "idle", "msg_3"}, last: gap,
			messages: "[" + user("msg_1", before) + "," + answer("msg_2", "msg_1", before+1, gap-1, stopped, "") + "," + user("msg_3", gap) + "]",
			want:     "x.opencode.message.updated",
		},
		"a failure that was heard is told once": {
			status: `{}`, told: []string{"msg_1", "error"}, last: gap,
			messages: "[" + user("msg_1", before) + "," + answer("msg_2", "msg_1", before+1, gap, failed, "") + "]",
			want:     "x.opencode.message.updated",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := opencode.Adapter()
			bodies := map[string]string{
				"/session/status": tt.status, "/session/ses_1": `{"id":"ses_1","version":"1.18.33"}`, "/session/ses_1/message": tt.messages,
				"/permission": cmp.Or(tt.permissions, "[]"), "/question": `[]`,
			}
			s := session.New(session.Config{Agent: a.Name, Host: "h", Session: "ses_1", State: session.NewState(), Steer: true})
			var got []string
			take := func(ms []adapters.Moment) {
				for _, m := range ms {
					for _, d := range a.Map(m) {
						for _, b := range s.Bind(time.Time{}, []event.Draft{d}) {
							got = append(got, strings.TrimSpace(b.Type+" "+b.Subject))
						}
					}
				}
			}
			item := func(typ, props string) {
				o, err := event.ParseObject([]byte(`{"type":"` + typ + `","properties":` + props + `}`))
				if err != nil {
					t.Fatal(err)
				}
				take(a.Server.Item(o))
			}
			var past adapters.Past
			if tt.told != nil {
				past = adapters.Past{Seen: []string{"ses_1"}, Last: map[string]time.Time{"ses_1": time.UnixMilli(cmp.Or(tt.last, gap-1))}}
			}
			for _, told := range tt.told {
				switch told {
				case "idle":
					item("session.idle", `{"sessionID":"ses_1"}`)
				case "error":
					item("session.error", `{"sessionID":"ses_1","error":{"name":"APIError","data":{"message":"no"}}}`)
				default:
					item("message.updated", `{"sessionID":"ses_1","info":{"id":"`+told+`","role":"user"}}`)
				}
			}
			got = nil
			var ask func(q adapters.Query)
			ask = func(q adapters.Query) {
				body, err := event.ParseJSON([]byte(bodies[q.Path]))
				if q.Path == "/session/status" {
					bodies[q.Path] = cmp.Or(tt.later, tt.status)
				}
				if err != nil {
					t.Fatalf("%s: %v", q.Path, err)
				}
				ms, more := q.Read(body, past)
				take(ms)
				for _, q := range more {
					ask(q)
				}
			}
			for _, q := range a.Server.Known {
				ask(q)
			}
			if s := strings.Join(got, "; "); s != tt.want {
				t.Errorf("got  %s\nwant %s", s, tt.want)
			}
		})
	}
}

// ---- launching

func wires() []adaptertest.Wire {
	end := adaptertest.Endpoint(opencode.Adapter())
	l := adaptertest.Launch
	return []adaptertest.Wire{
		{Name: "plain", Launch: l(nil, nil, "opencode"), Endpoint: end},
		{Name: "npx", Launch: l(nil, nil, "npx", "-y", "opencode-ai@1.18.33", "-m", "x/y", "."), Endpoint: end},
		{Name: "run", Launch: beside(l(nil, nil, "opencode", "--pure", "run", "--format", "json", "go")), Endpoint: end},
		{Name: "serve", Launch: l(nil, []string{"OPENCODE_SERVER_PASSWORD=theirs"}, "opencode", "serve"), Endpoint: end},
		{Name: "attach", Launch: l(nil, nil, "opencode", "attach", "http://127.0.0.1:4096/", "-p", "theirs", "--dir", "sub dir"), Endpoint: end},
	}
}

// beside is a launch that asks for a server of ours.
func beside(l adapters.Launch) adapters.Launch {
	l.Attach = adapters.AttachNew
	return l
}

func TestWire(t *testing.T) {
	a := opencode.Adapter()
	for _, tt := range []struct {
		name, line, attach string
		args, url          string // "" is as it was, and none
		ours               bool   // the password
		note               string
	}{
		{"a terminal", "opencode", "", "opencode --port 4712", "http://127.0.0.1:4712", true, ""},
		{"a folder", "opencode ./sub -c", "", "opencode --port 4712 ./sub -c", "http://127.0.0.1:4712", true, ""},
		{"the user's port", "opencode --port 5000", "", "", "http://127.0.0.1:5000", false, ""},
		{"the user's host", "opencode --port=5000 --hostname 0.0.0.0", "", "", "http://127.0.0.1:5000", false, ""},
		{"port 0 is any", "opencode --port 0", "", "opencode --port 4712 --port 0", "http://127.0.0.1:4712", true, ""},
		{"a server", "opencode serve", "", "opencode serve --port 4712", "http://127.0.0.1:4712", false, ""},
		{"headless", "opencode run go", "", "", "", false, "--attach new"},
		{"headless, beside a server of ours", "opencode run go", "new", "opencode run --attach http://127.0.0.1:4712 --dir /home/user/proj go", "http://127.0.0.1:4712", true, ""},
		{"headless, joined", "opencode run --attach http://h:1 go", "", "", "http://h:1", false, ""},
		{"a flag's value is no subcommand", "opencode -m run", "", "opencode --port 4712 -m run", "http://127.0.0.1:4712", true, ""},
		{"attach", "opencode attach http://h:1/", "", "", "http://h:1", false, ""},
		{"attach, asked of us", "opencode -c", "http://h:1", "opencode attach http://h:1 -c", "http://h:1", false, ""},
		{"run, asked of us to join", "opencode run go", "http://h:1", "opencode run --attach http://h:1 --dir /home/user/proj go", "http://h:1", false, ""},
		{"serve cannot join", "opencode serve --port 1", "http://h:1", "", "http://127.0.0.1:1", false, "--attach is for"},
		{"no URL", "opencode attach h:1", "", "", "", false, "not an http URL"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := adaptertest.Launch(nil, nil, strings.Fields(tt.line)...)
			l.Attach = tt.attach
			w, err := a.Launch.Wire(l, adaptertest.Endpoint(a))
			if err != nil {
				t.Fatal(err)
			}
			want := tt.args
			if want == "" {
				want = tt.line
			}
			url, ours := "", false
			if w.Server != nil {
				url, ours = w.Server.URL, w.Server.Password == "PASSWORD"
			}
			if got := strings.Join(w.Args, " "); got != want || url != tt.url || ours != tt.ours || !strings.Contains(strings.Join(w.Notes, "\n"), tt.note) || (tt.note == "") != (w.Notes == nil) {
				t.Errorf("%s\nurl %s, ours %v, notes %q", got, url, ours, w.Notes)
			}
			if _, set := w.SetEnv["OPENCODE_SERVER_PASSWORD"]; set != tt.ours {
				t.Errorf("the environment: %v", w.SetEnv)
			}
		})
	}
	const global, here = "/home/user/.config/opencode/opencode.jsonc", "/home/user/proj/opencode.json"
	settled := map[string]string{global: `{"server": {"port": 5001, "hostname": "127.0.0.2"}} // mine`}
	for _, tt := range []struct {
		line      string
		files     map[string]string
		env       []string
		args, url string
	}{
		{"opencode serve", settled, nil, "opencode serve", "http://127.0.0.2:5001"},
		{"opencode web --port 6 --hostname ::1", settled, nil, "opencode web --port 6 --hostname ::1", "http://[::1]:6"},
		{"opencode", settled, nil, "opencode --port 4712", "http://127.0.0.1:4712"},
		{"opencode serve", map[string]string{global: settled[global], here: `{"server":{"hostname":"0.0.0.0"}}`}, nil, "opencode serve", "http://127.0.0.1:5001"},
		{"opencode serve", map[string]string{"/c.json": `{"server":{"port":7}}`}, []string{"OPENCODE_CONFIG=/c.json"}, "opencode serve", "http://127.0.0.1:7"},
		{"opencode serve", nil, []string{`OPENCODE_CONFIG_CONTENT={"server":{"hostname":"h"}}`}, "opencode serve --port 4712", "http://h:4712"},
		{"opencode serve", map[string]string{here: `{"server":{"port":0,"hostname":5}}`}, nil, "opencode serve --port 4712", "http://127.0.0.1:4712"},
	} {
		w, err := a.Launch.Wire(adaptertest.Launch(tt.files, tt.env, strings.Fields(tt.line)...), adaptertest.Endpoint(a))
		if err != nil || w.Server == nil || w.Server.URL != tt.url || strings.Join(w.Args, " ") != tt.args {
			t.Errorf("%s with %v %v: %q at %+v, %v", tt.line, tt.files, tt.env, w.Args, w.Server, err)
		}
	}
	for _, line := range []string{"opencode models", "opencode --help", "opencode -v", "opencode auth login", "opencode run --help"} {
		if w, _ := a.Launch.Wire(adaptertest.Launch(nil, nil, strings.Fields(line)...), adaptertest.Endpoint(a)); !w.Passthrough {
			t.Errorf("%s is not passed through", line)
		}
	}
}

func TestDetect(t *testing.T) {
	for line, want := range map[string]bool{
		"opencode": true, "/usr/bin/opencode run hi": true, "npx opencode-ai@1.18.33": true, "bunx opencode-ai": true, "bun x opencode-ai run": true,
		"node /x/node_modules/opencode-ai/bin/opencode.js": true, "opencoder": false, "npx opencode": false, "kilo": false,
	} {
		if got := opencode.Adapter().Launch.Detect(adapters.Launch{Args: strings.Fields(line)}); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}

// Whatever the words: all of them are there afterwards, in their order.
func FuzzWire(f *testing.F) {
	f.Add("run\x00--format\x00json\x00go")
	f.Add("attach\x00http://x\x00--dir\x00é")
	f.Fuzz(func(t *testing.T, line string) {
		a := opencode.Adapter()
		args := append([]string{"opencode"}, strings.Split(line, "\x00")...)
		w, err := a.Launch.Wire(adaptertest.Launch(nil, nil, args...), adaptertest.Endpoint(a))
		if err != nil {
			t.Fatal(err)
		}
		rest := args
		for _, word := range w.Args {
			if len(rest) > 0 && word == rest[0] {
				rest = rest[1:]
			}
		}
		if len(rest) > 0 || len(w.Args) > len(args)+4 {
			t.Fatalf("%q became %q", args, w.Args)
		}
	})
}
