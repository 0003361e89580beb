package session

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"aep-wrap/event"
)

var t0 = time.Date(2026, 7, 3, 10, 0, 0, 0, time.UTC)

// say makes a draft in a line: type, then options.
func say(typ string, opts ...func(*event.Draft)) event.Draft {
	d := event.Draft{Header: event.Header{Type: typ}}
	for _, o := range opts {
		o(&d)
	}
	return d
}

func key(k string) func(*event.Draft)     { return func(d *event.Draft) { d.Key = k } }
func pair(k string) func(*event.Draft)    { return func(d *event.Draft) { d.Pair = k } }
func inRun(r string) func(*event.Draft)   { return func(d *event.Draft) { d.Run = r } }
func step(r string) func(*event.Draft)    { return func(d *event.Draft) { d.Step = r } }
func subject(r string) func(*event.Draft) { return func(d *event.Draft) { d.Subject = r } }
func cause(c string) func(*event.Draft)   { return func(d *event.Draft) { d.Cause = c } }
func after(s int) func(*event.Draft) {
	return func(d *event.Draft) { d.Time = t0.Add(time.Duration(s) * time.Second) }
}
func meta(name string, v any) func(*event.Draft) {
	return func(d *event.Draft) { d.Fields = append(d.Fields, event.Meta(name, v)) }
}
func call(name, id string) func(*event.Draft) {
	return func(d *event.Draft) {
		var f event.Fields
		if name != "" {
			f = append(f, event.Meta("name", name))
		}
		if id != "" {
			f = append(f, event.Meta("call_id", id))
			d.Pair = id
		}
		d.Fields = append(d.Fields, event.Meta("tool", f))
	}
}
func args(v any) func(*event.Draft) {
	return func(d *event.Draft) { d.Fields = append(d.Fields, event.Family("args", v)) }
}
func link(tool string, v any) func(*event.Draft) {
	return func(d *event.Draft) {
		d.Link = event.Link{Tool: tool}
		if v != nil {
			d.Link.Args = event.Digest(v)
		}
	}
}
func ofCall(id string) func(*event.Draft) {
	return func(d *event.Draft) { d.Link = event.Link{Call: id} }
}
func options(ids ...string) func(*event.Draft) {
	return func(d *event.Draft) {
		var list []event.Fields
		for _, id := range ids {
			list = append(list, event.Fields{event.Meta("id", id), event.Labelled("label", id, id)})
		}
		d.Fields = append(d.Fields, event.Meta("options", list))
	}
}

var permission = meta("kind", "permission")

// seal is the gate at its simplest: every structural member, so that a bound
// draft can be logged, parsed and folded.
func seal(d event.Draft) event.Event {
	var tree func(any) any
	tree = func(v any) any {
		switch v := v.(type) {
		case event.Fields:
			m := map[string]any{}
			for _, f := range v {
				switch {
				case f.Kind == event.Content && f.Name == "args":
					m["args_digest"] = event.Digest(f.Value)
				case f.Kind == event.Label:
					m[f.Name] = f.Alt
				case f.Kind == event.Plain && f.Level <= event.Metadata:
					m[f.Name] = tree(f.Value)
				}
			}
			return m
		case []event.Fields:
			list := []any{}
			for _, f := range v {
				list = append(list, tree(f))
			}
			return list
		}
		return v
	}
	e := event.Event{Header: d.Header}
	if len(d.Fields) > 0 {
		raw, err := json.Marshal(tree(d.Fields))
		if err != nil {
			panic(err)
		}
		e.Data = raw
	}
	return e
}

// story renders bound drafts for comparison: position, type, subject, run and
// step, the cause as the type and place of the event meant, severity, data.
type story struct {
	ids  map[string]string
	runs map[string]string
	last event.Position
	any  bool
}

func (st *story) tell(t *testing.T, ds []event.Draft) (lines []string) {
	t.Helper()
	if st.ids == nil {
		st.ids, st.runs = map[string]string{}, map[string]string{}
	}
	for _, d := range ds {
		if d.ID == "" || st.ids[d.ID] != "" {
			t.Errorf("id %q is empty or used twice", d.ID)
		}
		if d.Source == "" || d.Agent == "" {
			t.Errorf("%s lacks its source or agent", d.Type)
		}
		var b strings.Builder
		if d.Sequenced {
			fmt.Fprintf(&b, "%d:%d %s", d.Epoch, d.Seq, d.Type)
			if st.any && !st.last.Less(d.Position()) {
				t.Errorf("%s at %v follows %v", d.Type, d.Position(), st.last)
			}
			st.last, st.any = d.Position(), true
		} else {
			fmt.Fprintf(&b, "- %s", d.Type)
		}
		st.ids[d.ID] = fmt.Sprintf("%s@%d:%d", d.Type, d.Epoch, d.Seq)
		name := func(id string) string {
			if n, ok := st.ids[id]; ok {
				return n
			}
			return id
		}
		if d.Subject != "" {
			fmt.Fprintf(&b, " (%s)", name(d.Subject))
		}
		if d.Run != "" {
			r := d.Run
			if len(r) == 26 { // a made one
				if st.runs[r] == "" {
					st.runs[r] = fmt.Sprintf("made-%d", len(st.runs)+1)
				}
				r = st.runs[r]
			}
			fmt.Fprintf(&b, " run=%s", r)
		}
		if d.Step != "" {
			fmt.Fprintf(&b, " step=%s", d.Step)
		}
		if d.Cause != "" {
			fmt.Fprintf(&b, " <- %s", name(d.Cause))
		}
		if d.Severity != event.Info {
			fmt.Fprintf(&b, " %s", d.Severity)
		}
		if e := seal(d); len(e.Data) > 0 {
			fmt.Fprintf(&b, " %s", e.Data)
		}
		lines = append(lines, b.String())
	}
	return lines
}

func conf() Config {
	return Config{Agent: "acme", Host: "h", Session: "s1", Start: t0, State: NewState()}
}

func TestBind(t *testing.T) {
	ls := map[string]any{"command": "ls"}
	rm := map[string]any{"command": "rm"}
	for _, c := range []struct {
		name    string
		conf    func(*Config)
		batches [][]event.Draft
		exit    *Exit
		want    string
	}{
		{
			name:    "a session as it should be",
			batches: [][]event.Draft{{say("session.started", key("s1"))}, {say("run.started", inRun("r1"), key("r1"))}, {say("tool.requested", call("Bash", "c1"), step("t1"))}, {say("tool.completed", call("Bash", "c1"), after(2))}, {say("run.finished", inRun("r1"), after(3))}, {say("session.ended", after(4), meta("reason", "normal"))}},
			exit:    &Exit{},
			want: `
0:0 session.started
0:1 run.started run=r1 <- session.started@0:0
0:2 tool.requested (Bash) run=r1 step=t1 <- run.started@0:1 {"tool":{"call_id":"c1","name":"Bash"}}
0:3 tool.completed (Bash) run=r1 step=t1 <- tool.requested@0:2 {"tool":{"call_id":"c1","name":"Bash"}}
0:4 run.finished run=r1 <- run.started@0:1 {"duration_ms":3000}
0:5 session.ended {"duration_ms":4000,"reason":"normal","runs":1}`,
		},
		{
			name:    "first sight starts a session, and the runtime's own start comes too late",
			batches: [][]event.Draft{{say("x.acme.hook.fired")}, {say("session.started", key("late"))}},
			want: `
0:0 session.started
0:1 x.acme.hook.fired`,
		},
		{
			name:    "a fact by two channels is one event",
			batches: [][]event.Draft{{say("run.started", inRun("r1"), key("r1"))}, {say("tool.requested", call("Bash", "c1"), key("c1"))}, {say("tool.requested", call("Bash", "c1"), key("c1"))}, {say("run.started", inRun("r1"), key("r1"))}},
			want: `
0:0 session.started
0:1 run.started run=r1 <- session.started@0:0
0:2 tool.requested (Bash) run=r1 <- run.started@0:1 {"tool":{"call_id":"c1","name":"Bash"}}`,
		},
		{
			name:    "a call has one outcome, whatever the channels call it",
			batches: [][]event.Draft{{say("run.started", inRun("r1"))}, {say("tool.requested", call("Bash", "c1"))}, {say("tool.failed", call("Bash", "c1"))}, {say("tool.completed", call("", "c1"))}},
			want: `
0:0 session.started
0:1 run.started run=r1 <- session.started@0:0
0:2 tool.requested (Bash) run=r1 <- run.started@0:1 {"tool":{"call_id":"c1","name":"Bash"}}
0:3 tool.failed (Bash) run=r1 <- tool.requested@0:2 {"tool":{"call_id":"c1","name":"Bash"}}`,
		},
		{
			name:    "a call id used again is a new call",
			batches: [][]event.Draft{{say("tool.requested", call("A", "c"))}, {say("tool.completed", call("", "c"))}, {say("tool.requested", call("B", "c"))}, {say("tool.completed", call("", "c"))}},
			want: `
0:0 session.started
0:1 tool.requested (A) {"tool":{"call_id":"c","name":"A"}}
0:2 tool.completed (A) <- tool.requested@0:1 {"tool":{"call_id":"c","name":"A"}}
0:3 tool.requested (B) {"tool":{"call_id":"c","name":"B"}}
0:4 tool.completed (B) <- tool.requested@0:3 {"tool":{"call_id":"c","name":"B"}}`,
		},
		{
			name:    "an outcome whose tool nobody named is no tool event",
			batches: [][]event.Draft{{say("tool.completed", call("", "c9"), func(d *event.Draft) { d.Fields = append(d.Fields, event.Family("result", "secret")) })}},
			want: `
0:0 session.started
0:1 x.acme.tool.completed {"tool":{"call_id":"c9"}}`,
		},
		{
			name:    "tools without call ids pair by their looks, oldest first",
			batches: [][]event.Draft{{say("tool.requested", call("sh", ""), args(ls))}, {say("tool.requested", call("sh", ""), args(rm))}, {say("tool.completed", call("sh", ""), link("sh", rm))}, {say("tool.completed", call("sh", ""), link("sh", ls))}, {say("tool.completed", call("sh", ""), link("sh", ls))}},
			want: `
0:0 session.started
0:1 tool.requested (sh) {"args_digest":"` + event.Digest(ls) + `","tool":{"name":"sh"}}
0:2 tool.requested (sh) {"args_digest":"` + event.Digest(rm) + `","tool":{"name":"sh"}}
0:3 tool.completed (sh) <- tool.requested@0:2 {"tool":{"name":"sh"}}
0:4 tool.completed (sh) <- tool.requested@0:1 {"tool":{"name":"sh"}}
0:5 tool.completed (sh) {"tool":{"name":"sh"}}`,
		},
		{
			name:    "a stale run is drained at the next start, its tools and requests with it",
			batches: [][]event.Draft{{say("run.started", inRun("r1"))}, {say("tool.requested", call("Bash", "c1"))}, {say("attention.requested", permission, link("Bash", nil))}, {say("run.started", inRun("r2"), after(5))}, {say("attention.requested", permission, link("Bash", nil))}, {say("run.cancelled", inRun("r1"))}},
			want: `
0:0 session.started
0:1 run.started run=r1 <- session.started@0:0
0:2 tool.requested (Bash) run=r1 <- run.started@0:1 {"tool":{"call_id":"c1","name":"Bash"}}
0:3 attention.requested (Bash) run=r1 <- tool.requested@0:2 notice {"kind":"permission"}
0:4 attention.resolved (attention.requested@0:3) run=r1 <- attention.requested@0:3 {"latency_ms":5000,"resolution":"dismissed"}
0:5 run.cancelled run=r1 <- run.started@0:1 notice {"duration_ms":5000}
0:6 run.started run=r2 <- session.started@0:0
0:7 attention.requested run=r2 <- run.started@0:6 notice {"kind":"permission"}`,
		},
		{
			name:    "a runtime with runs side by side drains none",
			conf:    func(c *Config) { c.Overlap = true },
			batches: [][]event.Draft{{say("run.started", inRun("r1"))}, {say("run.started", inRun("r2"))}, {say("tool.requested", call("Bash", "c1"))}, {say("run.finished")}, {say("run.finished", inRun("r1"))}, {say("run.finished")}},
			want: `
0:0 session.started
0:1 run.started run=r1 <- session.started@0:0
0:2 run.started run=r2 <- session.started@0:0
0:3 tool.requested (Bash) {"tool":{"call_id":"c1","name":"Bash"}}
0:4 run.finished run=r1 <- run.started@0:1 {"duration_ms":0}
0:5 run.finished run=r2 <- run.started@0:2 {"duration_ms":0}`,
		},
		{
			name:    "a prompt while a run is open steers it, and told again after its end it starts none",
			conf:    func(c *Config) { c.Steer = true },
			batches: [][]event.Draft{{say("run.started", key("m1"))}, {say("run.started", key("m2"))}, {say("run.finished")}, {say("run.started", key("m2"))}, {say("run.started", key("m1"))}, {say("run.finished")}, {say("run.started", inRun("r3"), key("m3"))}},
			want: `
0:0 session.started
0:1 run.started run=made-1 <- session.started@0:0
0:2 run.finished run=made-1 <- run.started@0:1 {"duration_ms":0}
0:3 run.started run=r3 <- session.started@0:0`,
		},
		{
			name: "a request that names a call and has a name of its own is about that call, told before or after it",
			batches: [][]event.Draft{{say("run.started", inRun("r1")), say("tool.requested", call("Bash", "c1")), say("tool.requested", call("Bash", "c2"))},
				{say("attention.requested", permission, pair("p1"), key("p1"), ofCall("c2"))}, {say("attention.requested", permission, pair("p2"), key("p2"), ofCall("c3"))},
				{say("tool.requested", call("Edit", "c3"))}, {say("tool.completed", call("Edit", "c3"))}},
			want: `
0:0 session.started
0:1 run.started run=r1 <- session.started@0:0
0:2 tool.requested (Bash) run=r1 <- run.started@0:1 {"tool":{"call_id":"c1","name":"Bash"}}
0:3 tool.requested (Bash) run=r1 <- run.started@0:1 {"tool":{"call_id":"c2","name":"Bash"}}
0:4 attention.requested (Bash) run=r1 <- tool.requested@0:3 notice {"kind":"permission"}
0:5 attention.requested run=r1 <- run.started@0:1 notice {"kind":"permission"}
0:6 tool.requested (Edit) run=r1 <- attention.requested@0:5 {"tool":{"call_id":"c3","name":"Edit"}}
0:7 attention.answered (attention.requested@0:5) run=r1 <- attention.requested@0:5 {"answer":{},"via":"oob"}
0:8 attention.resolved (attention.requested@0:5) run=r1 <- attention.answered@0:7 {"latency_ms":0,"resolution":"answered"}
0:9 tool.completed (Edit) run=r1 <- tool.requested@0:6 {"tool":{"call_id":"c3","name":"Edit"}}`,
		},
		{
			name:    "runs without names are named, and end once",
			batches: [][]event.Draft{{say("run.started", meta("trigger", "user"))}, {say("tool.requested", call("Bash", "c1"))}, {say("run.finished")}, {say("run.finished")}, {say("run.started")}, {say("run.failed", meta("reason", "error"))}},
			want: `
0:0 session.started
0:1 run.started run=made-1 <- session.started@0:0 {"trigger":"user"}
0:2 tool.requested (Bash) run=made-1 <- run.started@0:1 {"tool":{"call_id":"c1","name":"Bash"}}
0:3 run.finished run=made-1 <- run.started@0:1 {"duration_ms":0}
0:4 run.started run=made-2 <- session.started@0:0
0:5 run.failed run=made-2 <- run.started@0:4 {"duration_ms":0,"reason":"error"}`,
		},
		{
			name:    "a named run whose start was missed is started by its first tool, and its real start is late",
			batches: [][]event.Draft{{say("tool.requested", call("Bash", "c1"), inRun("r7"))}, {say("run.started", inRun("r7"), key("k"), meta("trigger", "user"))}, {say("run.finished", inRun("r7"))}, {say("run.started", inRun("r7"), key("k2"))}},
			want: `
0:0 session.started
0:1 run.started run=r7 <- session.started@0:0
0:2 tool.requested (Bash) run=r7 <- run.started@0:1 {"tool":{"call_id":"c1","name":"Bash"}}
0:3 run.finished run=r7 <- run.started@0:1 {"duration_ms":0}`,
		},
		{
			name:    "an unknown run beside an open one, or after the fact, is not claimed to start",
			batches: [][]event.Draft{{say("session.compacted", inRun("r0"))}, {say("run.started", inRun("r1"))}, {say("tool.requested", call("Bash", "c1"), inRun("sub"))}, {say("run.finished", inRun("r1"))}, {say("tool.requested", call("Bash", "c2"), inRun("r1"))}},
			want: `
0:0 session.started
0:1 session.compacted run=r0
0:2 run.started run=r1 <- session.started@0:0
0:3 tool.requested (Bash) run=sub {"tool":{"call_id":"c1","name":"Bash"}}
0:4 run.finished run=r1 <- run.started@0:2 {"duration_ms":0}
0:5 tool.requested (Bash) run=r1 {"tool":{"call_id":"c2","name":"Bash"}}`,
		},
		{
			name:    "a failed run cites the failed tool, unless it went on after it",
			batches: [][]event.Draft{{say("run.started", inRun("r1"))}, {say("tool.requested", call("A", "c1"))}, {say("tool.failed", call("A", "c1"))}, {say("run.failed")}, {say("run.started", inRun("r2"))}, {say("tool.requested", call("A", "c2"))}, {say("tool.failed", call("A", "c2"))}, {say("tool.requested", call("A", "c3"))}, {say("run.failed")}},
			want: `
0:0 session.started
0:1 run.started run=r1 <- session.started@0:0
0:2 tool.requested (A) run=r1 <- run.started@0:1 {"tool":{"call_id":"c1","name":"A"}}
0:3 tool.failed (A) run=r1 <- tool.requested@0:2 {"tool":{"call_id":"c1","name":"A"}}
0:4 run.failed run=r1 <- tool.failed@0:3 {"duration_ms":0}
0:5 run.started run=r2 <- session.started@0:0
0:6 tool.requested (A) run=r2 <- run.started@0:5 {"tool":{"call_id":"c2","name":"A"}}
0:7 tool.failed (A) run=r2 <- tool.requested@0:6 {"tool":{"call_id":"c2","name":"A"}}
0:8 tool.requested (A) run=r2 <- run.started@0:5 {"tool":{"call_id":"c3","name":"A"}}
0:9 run.failed run=r2 <- run.started@0:5 {"duration_ms":0}`,
		},
		{
			name:    "a permission answered through us: the applier's cause stands, and it resolves",
			batches: [][]event.Draft{{say("tool.requested", call("Bash", "c1"), args(ls))}, {say("attention.requested", permission, options("allow", "deny"), link("Bash", ls))}, {say("attention.answered", pair("c1"), cause("cmd-1"), meta("answer", event.Fields{event.Meta("option", "allow")}), meta("via", "control"))}, {say("attention.resolved", pair("c1"), meta("resolution", "answered"), after(4))}, {say("tool.completed", call("", "c1"))}},
			want: `
0:0 session.started
0:1 tool.requested (Bash) {"args_digest":"` + event.Digest(ls) + `","tool":{"call_id":"c1","name":"Bash"}}
0:2 attention.requested (Bash) <- tool.requested@0:1 notice {"kind":"permission","options":[{"id":"allow","label":"allow"},{"id":"deny","label":"deny"}]}
0:3 attention.answered (attention.requested@0:2) <- cmd-1 {"answer":{"option":"allow"},"via":"control"}
0:4 attention.resolved (attention.requested@0:2) <- attention.answered@0:3 {"latency_ms":4000,"resolution":"answered"}
0:5 tool.completed (Bash) <- tool.requested@0:1 {"tool":{"call_id":"c1","name":"Bash"}}`,
		},
		{
			name:    "a tool that is told of after it was asked for belongs to the request that looks like it",
			batches: [][]event.Draft{{say("attention.requested", permission, options("allow", "deny"), subject("Bash"), link("Bash", ls))}, {say("attention.requested", permission, options("allow", "deny"), subject("Bash"), link("Bash", "other"))}, {say("tool.requested", call("Bash", "c1"), args(ls))}, {say("tool.completed", call("Bash", "c1"), after(3))}, {say("tool.requested", call("Bash", "c2"), args(ls))}, {say("tool.completed", call("Bash", "c2"))}},
			want: `
0:0 session.started
0:1 attention.requested (Bash) notice {"kind":"permission","options":[{"id":"allow","label":"allow"},{"id":"deny","label":"deny"}]}
0:2 attention.requested (Bash) notice {"kind":"permission","options":[{"id":"allow","label":"allow"},{"id":"deny","label":"deny"}]}
0:3 tool.requested (Bash) <- attention.requested@0:1 {"args_digest":"` + event.Digest(ls) + `","tool":{"call_id":"c1","name":"Bash"}}
0:4 attention.answered (attention.requested@0:1) <- attention.requested@0:1 {"answer":{"option":"allow"},"via":"oob"}
0:5 attention.resolved (attention.requested@0:1) <- attention.answered@0:4 {"latency_ms":3000,"resolution":"answered"}
0:6 tool.completed (Bash) <- tool.requested@0:3 {"tool":{"call_id":"c1","name":"Bash"}}
0:7 tool.requested (Bash) {"args_digest":"` + event.Digest(ls) + `","tool":{"call_id":"c2","name":"Bash"}}
0:8 tool.completed (Bash) <- tool.requested@0:7 {"tool":{"call_id":"c2","name":"Bash"}}`,
		},
		{
			name:    "a local yes is known by the tool having run",
			batches: [][]event.Draft{{say("tool.requested", call("Bash", "c1"), args(ls))}, {say("attention.requested", permission, options("allow", "deny"), link("Bash", ls))}, {say("tool.completed", call("Bash", "c1"), after(3))}, {say("attention.resolved", pair("c1"), meta("resolution", "dismissed"))}},
			want: `
0:0 session.started
0:1 tool.requested (Bash) {"args_digest":"` + event.Digest(ls) + `","tool":{"call_id":"c1","name":"Bash"}}
0:2 attention.requested (Bash) <- tool.requested@0:1 notice {"kind":"permission","options":[{"id":"allow","label":"allow"},{"id":"deny","label":"deny"}]}
0:3 attention.answered (attention.requested@0:2) <- attention.requested@0:2 {"answer":{"option":"allow"},"via":"oob"}
0:4 attention.resolved (attention.requested@0:2) <- attention.answered@0:3 {"latency_ms":3000,"resolution":"answered"}
0:5 tool.completed (Bash) <- tool.requested@0:1 {"tool":{"call_id":"c1","name":"Bash"}}`,
		},
		{
			name:    "no permission is read from a denial, a refusal, a form or foreign options",
			batches: [][]event.Draft{{say("tool.requested", call("A", "c1"))}, {say("attention.requested", permission, pair("c1"))}, {say("tool.denied", call("A", "c1"))}, {say("tool.requested", call("B", "c2"))}, {say("attention.requested", permission, pair("c2"))}, {say("tool.failed", call("B", "c2"), meta("error", event.Fields{event.Meta("type", "interrupt")}))}, {say("tool.requested", call("C", "c3"))}, {say("attention.requested", meta("kind", "form"), pair("c3"))}, {say("tool.completed", call("C", "c3"))}, {say("tool.requested", call("D", "c4"))}, {say("attention.requested", permission, options("once", "reject"), pair("c4"))}, {say("tool.completed", call("D", "c4"))}},
			want: `
0:0 session.started
0:1 tool.requested (A) {"tool":{"call_id":"c1","name":"A"}}
0:2 attention.requested (A) <- tool.requested@0:1 notice {"kind":"permission"}
0:3 attention.resolved (attention.requested@0:2) <- attention.requested@0:2 {"latency_ms":0,"resolution":"dismissed"}
0:4 tool.denied (A) <- tool.requested@0:1 {"tool":{"call_id":"c1","name":"A"}}
0:5 tool.requested (B) {"tool":{"call_id":"c2","name":"B"}}
0:6 attention.requested (B) <- tool.requested@0:5 notice {"kind":"permission"}
0:7 attention.resolved (attention.requested@0:6) <- attention.requested@0:6 {"latency_ms":0,"resolution":"dismissed"}
0:8 tool.failed (B) <- tool.requested@0:5 {"error":{"type":"interrupt"},"tool":{"call_id":"c2","name":"B"}}
0:9 tool.requested (C) {"tool":{"call_id":"c3","name":"C"}}
0:10 attention.requested (C) <- tool.requested@0:9 notice {"kind":"form"}
0:11 attention.resolved (attention.requested@0:10) <- attention.requested@0:10 {"latency_ms":0,"resolution":"dismissed"}
0:12 tool.completed (C) <- tool.requested@0:9 {"tool":{"call_id":"c3","name":"C"}}
0:13 tool.requested (D) {"tool":{"call_id":"c4","name":"D"}}
0:14 attention.requested (D) <- tool.requested@0:13 notice {"kind":"permission","options":[{"id":"once","label":"once"},{"id":"reject","label":"reject"}]}
0:15 attention.answered (attention.requested@0:14) <- attention.requested@0:14 {"answer":{},"via":"oob"}
0:16 attention.resolved (attention.requested@0:14) <- attention.answered@0:15 {"latency_ms":0,"resolution":"answered"}
0:17 tool.completed (D) <- tool.requested@0:13 {"tool":{"call_id":"c4","name":"D"}}`,
		},
		{
			name:    "two channels of one permission are one request; equal calls are two",
			batches: [][]event.Draft{{say("tool.requested", call("A", "c1"), args(ls)), say("tool.requested", call("A", "c2"), args(ls))}, {say("attention.requested", permission, link("A", ls))}, {say("attention.requested", permission, link("A", ls))}, {say("attention.requested", permission, pair("c1"), link("A", ls))}},
			want: `
0:0 session.started
0:1 tool.requested (A) {"args_digest":"` + event.Digest(ls) + `","tool":{"call_id":"c1","name":"A"}}
0:2 tool.requested (A) {"args_digest":"` + event.Digest(ls) + `","tool":{"call_id":"c2","name":"A"}}
0:3 attention.requested (A) <- tool.requested@0:1 notice {"kind":"permission"}
0:4 attention.requested (A) <- tool.requested@0:2 notice {"kind":"permission"}`,
		},
		{
			name:    "a tool that asks twice by names of its own has two requests",
			batches: [][]event.Draft{{say("tool.requested", call("A", "c1"))}, {say("attention.requested", permission, pair("p1"), link("A", nil))}, {say("attention.resolved", pair("p1"), meta("resolution", "answered"))}, {say("attention.requested", permission, pair("p2"), link("A", nil))}},
			want: `
0:0 session.started
0:1 tool.requested (A) {"tool":{"call_id":"c1","name":"A"}}
0:2 attention.requested (A) <- tool.requested@0:1 notice {"kind":"permission"}
0:3 attention.resolved (attention.requested@0:2) <- attention.requested@0:2 {"latency_ms":0,"resolution":"answered"}
0:4 attention.requested (A) <- tool.requested@0:1 notice {"kind":"permission"}`,
		},
		{
			name:    "an answer in the agent's own screen is resolved with it, and once",
			batches: [][]event.Draft{{say("attention.requested", meta("kind", "form"), pair("e1"))}, {say("attention.answered", subject("e1"), meta("answer", event.Fields{}), meta("via", "oob"), after(2)), say("attention.resolved", subject("e1"), meta("resolution", "answered"), after(2))}, {say("attention.answered", pair("e1"))}, {say("attention.timeout", pair("e1"))}, {say("attention.requested", meta("kind", "input"), pair("e2"))}, {say("attention.answered", meta("via", "oob"))}},
			want: `
0:0 session.started
0:1 attention.requested notice {"kind":"form"}
0:2 attention.answered (attention.requested@0:1) <- attention.requested@0:1 {"answer":{},"via":"oob"}
0:3 attention.resolved (attention.requested@0:1) <- attention.answered@0:2 {"latency_ms":2000,"resolution":"answered"}
0:4 attention.requested notice {"kind":"input"}
0:5 attention.answered (attention.requested@0:4) <- attention.requested@0:4 {"via":"oob"}
0:6 attention.resolved (attention.requested@0:4) <- attention.answered@0:5 {"latency_ms":0,"resolution":"answered"}`,
		},
		{
			name:    "a timeout, and words about a request that nobody saw",
			batches: [][]event.Draft{{say("attention.requested", permission, pair("p1"))}, {say("attention.timeout", pair("p1"), after(9))}, {say("attention.answered", pair("never"), meta("via", "oob"), meta("answer", event.Fields{event.Meta("option", "x"), event.Text("text", "free")}))}},
			want: `
0:0 session.started
0:1 attention.requested notice {"kind":"permission"}
0:2 attention.timeout (attention.requested@0:1) <- attention.requested@0:1 notice {"after_ms":9000}
0:3 x.acme.attention.answered {"answer":{"option":"x"},"via":"oob"}`,
		},
		{
			name:    "a request of a step outlives the run that finished, not the one that was cancelled",
			batches: [][]event.Draft{{say("run.started", inRun("r1"))}, {say("tool.requested", call("A", "c0"))}, {say("attention.requested", permission, pair("c0"))}, {say("tool.requested", call("A", "c1"), step("sub"))}, {say("attention.requested", permission, pair("c1"))}, {say("run.finished")}, {say("run.started", inRun("r2"))}, {say("tool.completed", call("A", "c1"))}, {say("attention.requested", meta("kind", "input"), pair("i1"))}, {say("run.cancelled", meta("by", "user"))}},
			want: `
0:0 session.started
0:1 run.started run=r1 <- session.started@0:0
0:2 tool.requested (A) run=r1 <- run.started@0:1 {"tool":{"call_id":"c0","name":"A"}}
0:3 attention.requested (A) run=r1 <- tool.requested@0:2 notice {"kind":"permission"}
0:4 tool.requested (A) run=r1 step=sub <- run.started@0:1 {"tool":{"call_id":"c1","name":"A"}}
0:5 attention.requested (A) run=r1 step=sub <- tool.requested@0:4 notice {"kind":"permission"}
0:6 attention.resolved (attention.requested@0:3) run=r1 <- attention.requested@0:3 {"latency_ms":0,"resolution":"dismissed"}
0:7 run.finished run=r1 <- run.started@0:1 {"duration_ms":0}
0:8 run.started run=r2 <- session.started@0:0
0:9 attention.answered (attention.requested@0:5) run=r1 step=sub <- attention.requested@0:5 {"answer":{},"via":"oob"}
0:10 attention.resolved (attention.requested@0:5) run=r1 step=sub <- attention.answered@0:9 {"latency_ms":0,"resolution":"answered"}
0:11 tool.completed (A) run=r1 step=sub <- tool.requested@0:4 {"tool":{"call_id":"c1","name":"A"}}
0:12 attention.requested run=r2 <- run.started@0:8 notice {"kind":"input"}
0:13 attention.resolved (attention.requested@0:12) run=r2 <- attention.requested@0:12 {"latency_ms":0,"resolution":"dismissed"}
0:14 run.cancelled run=r2 <- run.started@0:8 {"by":"user","duration_ms":0}`,
		},
		{
			name:    "subagents, tasks and steps cite what opened them",
			batches: [][]event.Draft{{say("run.started", inRun("r1"))}, {say("delegation.subagent.started", pair("a1"), subject("a1"))}, {say("run.step.started", pair("1"), step("1"))}, {say("run.step.finished", pair("1"))}, {say("run.finished")}, {say("delegation.subagent.stopped", pair("a1"), subject("a1"))}, {say("progress.task.completed", pair("unknown"))}},
			want: `
0:0 session.started
0:1 run.started run=r1 <- session.started@0:0
0:2 delegation.subagent.started (a1) run=r1 <- run.started@0:1
0:3 run.step.started run=r1 step=1 <- run.started@0:1
0:4 run.step.finished run=r1 step=1 <- run.step.started@0:3
0:5 run.finished run=r1 <- run.started@0:1 {"duration_ms":0}
0:6 delegation.subagent.stopped (a1) run=r1 <- delegation.subagent.started@0:2
0:7 progress.task.completed`,
		},
		{
			name:    "others' events are never ours, agent events have no place, each sender's command has its ack",
			batches: [][]event.Draft{{say("agent.idle", inRun("r1"))}, {say("control.cancel"), say("attention.routed"), say("x.acme.control.instruct")}, {say("control.accepted", cause("cmd"))}, {say("control.rejected", cause("cmd"))}},
			want: `
- agent.idle
0:0 session.started
0:1 control.accepted <- cmd
0:2 control.rejected <- cmd`,
		},
		{
			name:    "a hook's decision is the answer that it was given, or nobody's, or about nothing",
			batches: [][]event.Draft{{say("tool.requested", call("Bash", "c1"))}, {say("attention.requested", permission, pair("c1"))}, {say("attention.answered", pair("c1"), cause("cmd"), meta("via", "control"))}, {say("attention.resolved", pair("c1"), meta("resolution", "auto"))}, {say("tool.requested", call("Bash", "c2"))}, {say("attention.requested", permission, pair("c2"))}, {say("attention.resolved", pair("c2"), meta("resolution", "auto"))}, {say("attention.resolved", pair("c3"), meta("resolution", "auto"))}},
			want: `
0:0 session.started
0:1 tool.requested (Bash) {"tool":{"call_id":"c1","name":"Bash"}}
0:2 attention.requested (Bash) <- tool.requested@0:1 notice {"kind":"permission"}
0:3 attention.answered (attention.requested@0:2) <- cmd {"via":"control"}
0:4 attention.resolved (attention.requested@0:2) <- attention.answered@0:3 {"latency_ms":0,"resolution":"answered"}
0:5 tool.requested (Bash) {"tool":{"call_id":"c2","name":"Bash"}}
0:6 attention.requested (Bash) <- tool.requested@0:5 notice {"kind":"permission"}
0:7 attention.resolved (attention.requested@0:6) <- attention.requested@0:6 {"latency_ms":0,"resolution":"auto"}`,
		},
		{
			name: "what was refused in a run that finished has failed, whoever tells it later",
			batches: [][]event.Draft{{say("run.started", inRun("r1"))}, {say("tool.requested", call("Bash", "c1")), say("tool.requested", call("Bash", "c2"))},
				{say("attention.requested", permission, pair("c1"))}, {say("attention.answered", pair("c1"), cause("cmd"), meta("via", "control"), meta("answer", event.Fields{event.Meta("option", "deny")}))},
				{say("run.finished", inRun("r1"))}, {say("tool.failed", call("", "c1"), key("c1"))}},
			want: `
0:0 session.started
0:1 run.started run=r1 <- session.started@0:0
0:2 tool.requested (Bash) run=r1 <- run.started@0:1 {"tool":{"call_id":"c1","name":"Bash"}}
0:3 tool.requested (Bash) run=r1 <- run.started@0:1 {"tool":{"call_id":"c2","name":"Bash"}}
0:4 attention.requested (Bash) run=r1 <- tool.requested@0:2 notice {"kind":"permission"}
0:5 attention.answered (attention.requested@0:4) run=r1 <- cmd {"answer":{"option":"deny"},"via":"control"}
0:6 attention.resolved (attention.requested@0:4) run=r1 <- attention.answered@0:5 {"latency_ms":0,"resolution":"answered"}
0:7 tool.failed (Bash) run=r1 <- tool.requested@0:2 error {"error":{"type":"user_rejected"},"tool":{"call_id":"c1","name":"Bash"}}
0:8 run.finished run=r1 <- run.started@0:1 {"duration_ms":0}`,
		},
		{
			name:    "the vendor's end closes what is open",
			batches: [][]event.Draft{{say("run.started", inRun("r1"))}, {say("attention.requested", permission, pair("p"))}, {say("attention.requested", permission, pair("q"))}, {say("attention.answered", pair("q"), cause("cmd"), meta("via", "control"))}, {say("session.ended", meta("reason", "normal"))}, {say("session.ended", meta("reason", "killed"))}},
			exit:    &Exit{Code: 1},
			want: `
0:0 session.started
0:1 run.started run=r1 <- session.started@0:0
0:2 attention.requested run=r1 <- run.started@0:1 notice {"kind":"permission"}
0:3 attention.requested run=r1 <- run.started@0:1 notice {"kind":"permission"}
0:4 attention.answered (attention.requested@0:3) run=r1 <- cmd {"via":"control"}
0:5 attention.resolved (attention.requested@0:2) run=r1 <- attention.requested@0:2 {"latency_ms":0,"resolution":"dismissed"}
0:6 attention.resolved (attention.requested@0:3) run=r1 <- attention.answered@0:4 {"latency_ms":0,"resolution":"answered"}
0:7 run.cancelled run=r1 <- run.started@0:1 notice {"duration_ms":0}
0:8 session.ended {"duration_ms":0,"reason":"normal","runs":1}`,
		},
		{
			name:    "where there is no log, the start time is the epoch",
			conf:    func(c *Config) { c.State = nil; c.Start = time.UnixMilli(1234) },
			batches: [][]event.Draft{{say("progress.status")}},
			want: `
1234:0 session.started
1234:1 progress.status`,
		},
		{
			name:    "an empty log of a session that began elsewhere is no new session",
			conf:    func(c *Config) { c.Start = time.UnixMilli(77) },
			batches: [][]event.Draft{{say("session.started", meta("trigger", "resume"))}},
			want: `
77:0 session.started {"trigger":"resume"}`,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			cf := conf()
			if c.conf != nil {
				c.conf(&cf)
			}
			s := New(cf)
			var st story
			var got []string
			for _, b := range c.batches {
				got = append(got, st.tell(t, s.Bind(t0, b))...)
			}
			if c.exit != nil {
				got = append(got, st.tell(t, s.Exit(t0.Add(time.Minute), *c.exit))...)
			}
			if d := cmp.Diff(strings.Split(strings.TrimSpace(c.want), "\n"), got); d != "" {
				t.Errorf("(-want +got)\n%s", d)
			}
		})
	}
}

func TestExit(t *testing.T) {
	for _, c := range []struct {
		name string
		exit Exit
		want string
	}{
		{"code 0 claims nothing", Exit{}, `run.cancelled {"duration_ms":60000} | session.ended {"duration_ms":60000,"reason":"normal","runs":1}`},
		{"a code is a failure", Exit{Code: 7}, `run.failed {"duration_ms":60000,"error":{"type":"exit"},"reason":"exit 7"} | session.ended {"duration_ms":60000,"reason":"error","runs":1}`},
		{"an interrupt is the user's", Exit{Signal: "SIGINT"}, `run.cancelled {"by":"user","duration_ms":60000} | session.ended {"duration_ms":60000,"reason":"killed","runs":1}`},
		{"also where the agent made a code of it", Exit{Code: 130}, `run.cancelled {"by":"user","duration_ms":60000} | session.ended {"duration_ms":60000,"reason":"killed","runs":1}`},
		{"a hangup is a shutdown", Exit{Signal: "SIGHUP"}, `run.cancelled {"by":"shutdown","duration_ms":60000} | session.ended {"duration_ms":60000,"reason":"killed","runs":1}`},
		{"a crash is a failure", Exit{Signal: "SIGSEGV"}, `run.failed {"duration_ms":60000,"error":{"type":"signal"},"reason":"signal SIGSEGV"} | session.ended {"duration_ms":60000,"reason":"killed","runs":1}`},
		{"who is known is told", Exit{Signal: "SIGKILL", By: "control", Cause: "cmd"}, `run.cancelled <- cmd {"by":"control","duration_ms":60000} | session.ended <- cmd {"duration_ms":60000,"reason":"killed","runs":1}`},
		{"a user's cancel that ends well", Exit{By: "user"}, `run.cancelled {"by":"user","duration_ms":60000} | session.ended {"duration_ms":60000,"reason":"normal","runs":1}`},
		{"nothing is known", Exit{Code: -1}, `run.cancelled {"duration_ms":60000} | session.ended {"duration_ms":60000,"runs":1}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := New(conf())
			s.Bind(t0, []event.Draft{say("run.started", inRun("r1"))})
			var got []string
			for _, d := range s.Exit(t0.Add(time.Minute), c.exit) {
				l := d.Type
				if d.Cause == "cmd" {
					l += " <- cmd"
				}
				got = append(got, l+" "+string(seal(d).Data))
			}
			if g := strings.Join(got, " | "); g != c.want {
				t.Errorf("got  %s\nwant %s", g, c.want)
			}
			if more := s.Exit(t0, c.exit); len(more) != 0 {
				t.Errorf("a second exit gave %v", more)
			}
		})
	}
}

// fold restores a session from what it gave.
func fold(ds []event.Draft) *State {
	st := NewState()
	for _, d := range ds {
		st.Fold(seal(d))
	}
	return st
}

func TestRestart(t *testing.T) {
	var st story
	var log []event.Draft
	var got []string
	start := func() *Session {
		c := conf()
		c.State = fold(log)
		return New(c)
	}
	take := func(ds []event.Draft) {
		got = append(got, st.tell(t, ds)...)
		log = append(log, ds...)
	}
	s := start()
	take(s.Bind(t0, []event.Draft{
		say("session.started", key("startup")), say("run.started", inRun("r1"), key("r1")),
		say("tool.requested", call("Bash", "c1"), key("c1")), say("attention.requested", permission, options("allow"), pair("c1")),
		say("delegation.subagent.started", key("a1"), pair("a1")),
	}))
	// The wrapper dies. The next one goes on from the log.
	s = start()
	take(s.Recover(t0.Add(time.Second)))
	take(s.Recover(t0.Add(time.Second)))
	take(s.Bind(t0, []event.Draft{
		say("session.started", key("startup")), say("session.started", key("resume")), say("session.started", key("compact")),
		say("run.started", inRun("r1"), key("r1")),
		say("tool.completed", call("", "c1"), key("c1")),
		say("delegation.subagent.stopped", key("a1"), pair("a1")),
		say("run.finished", inRun("r1"), after(5)),
	}))
	take(s.Exit(t0.Add(6*time.Second), Exit{}))
	// The vendor resumes the ended session under the same id, twice.
	s = start()
	take(s.Bind(t0, []event.Draft{say("run.started", inRun("r2")), say("run.finished", inRun("r1")), say("run.cancelled", inRun("r1"))}))
	take(s.Exit(t0.Add(7*time.Second), Exit{Code: 3}))
	s = start()
	take(s.Bind(t0, []event.Draft{say("session.ended", meta("reason", "normal"))}))
	take(s.Exit(t0.Add(7*time.Second), Exit{Signal: "SIGKILL"}))

	want := `
0:0 session.started
0:1 run.started run=r1 <- session.started@0:0
0:2 tool.requested (Bash) run=r1 <- run.started@0:1 {"tool":{"call_id":"c1","name":"Bash"}}
0:3 attention.requested (Bash) run=r1 <- tool.requested@0:2 notice {"kind":"permission","options":[{"id":"allow","label":"allow"}]}
0:4 delegation.subagent.started run=r1 <- run.started@0:1
1:0 attention.resolved (attention.requested@0:3) run=r1 <- attention.requested@0:3 {"latency_ms":1000,"resolution":"dismissed"}
1:1 session.started
1:2 tool.completed (Bash) run=r1 <- tool.requested@0:2 {"tool":{"call_id":"c1","name":"Bash"}}
1:3 delegation.subagent.stopped run=r1 <- delegation.subagent.started@0:4
1:4 run.finished run=r1 <- run.started@0:1 {"duration_ms":5000}
1:5 session.ended {"duration_ms":6000,"reason":"normal","runs":1}
2:0 run.started run=r2 <- session.started@0:0
2:1 run.failed run=r2 <- run.started@2:0 error {"duration_ms":7000,"error":{"type":"exit"},"reason":"exit 3"}
2:2 x.aep-wrap.session.exited {"code":3}
3:0 x.aep-wrap.session.exited {"reason":"normal"}`
	if d := cmp.Diff(strings.Split(strings.TrimSpace(want), "\n"), got); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
}

func TestExitSaysNothingOfAnEarlierProcess(t *testing.T) {
	c := conf()
	c.State = fold(New(conf()).Bind(t0, []event.Draft{say("run.started", inRun("r1"))}))
	s := New(c)
	s.Bind(t0, []event.Draft{say("progress.status")})
	var got []string
	for _, d := range s.Exit(t0, Exit{Code: 7, By: "user"}) {
		got = append(got, d.Type+string(seal(d).Data))
	}
	want := []string{`run.cancelled{"duration_ms":0}`, `session.ended{"duration_ms":0,"reason":"error","runs":1}`}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestBindLeavesDraftsAlone(t *testing.T) {
	s := New(conf())
	s.Bind(t0, []event.Draft{say("tool.requested", call("Bash", "c1"))})
	fields := make(event.Fields, 1, 8)
	fields[0] = event.Meta("tool", event.Fields{event.Meta("call_id", "c1")})
	in := []event.Draft{{Header: event.Header{Type: "tool.completed"}, Pair: "c1", Fields: fields}, say("run.started", inRun("r")), {Header: event.Header{Type: "run.finished"}, Fields: fields}}
	want := fmt.Sprintf("%#v", in)
	s.Bind(t0, in)
	if got := fmt.Sprintf("%#v", in); got != want {
		t.Errorf("the drafts were changed:\n%s\n%s", want, got)
	}
	if spare := fields[:2][1]; spare.Name != "" {
		t.Errorf("the fields' spare room was written to: %v", spare)
	}
}

func TestMadeRunsNeverRepeat(t *testing.T) {
	seen := map[string]bool{}
	for range 100 { // as many restarts in one millisecond
		c := conf()
		c.State = nil
		for _, d := range New(c).Bind(t0, []event.Draft{say("run.started")}) {
			if d.Type == "run.started" {
				if seen[d.Run] {
					t.Fatalf("run %s was made twice", d.Run)
				}
				seen[d.Run] = true
			}
		}
	}
	if len(seen) != 100 {
		t.Fatalf("%d runs", len(seen))
	}
}

func TestMemoryIsBounded(t *testing.T) {
	s := New(conf())
	pending := map[string]bool{}
	n := 0
	count := func(ds []event.Draft) {
		for _, d := range ds {
			n++
			switch d.Type {
			case "attention.requested":
				pending[d.ID] = true
			case "attention.resolved":
				if !pending[d.Subject] {
					t.Fatalf("resolved %s, which does not wait", d.Subject)
				}
				delete(pending, d.Subject)
			}
		}
	}
	for i := range seenMax / 2 {
		k := fmt.Sprint(i)
		count(s.Bind(t0, []event.Draft{
			say("tool.requested", call("A", k), key(k)),
			say("attention.requested", permission, pair("p"+k), key(k)),
			say("delegation.subagent.started", pair(k), key(k)),
			say("tool.requested", call("B", "b"+k)), say("tool.completed", call("B", "b"+k)),
		}))
	}
	st := s.State()
	for name, got := range map[string][2]int{
		"tools": {st.tools.len(), toolsMax}, "past": {st.past.len(), pastMax}, "requests": {st.requests.len(), requestsMax},
		"pairs": {st.pairs.len(), pairsMax}, "seen": {st.seen.in.len(), 2 * seenMax},
		"closed": {st.closed.in.len(), 2 * closedMax},
	} {
		if got[0] > got[1] || got[0] == 0 {
			t.Errorf("%s holds %d of at most %d", name, got[0], got[1])
		}
	}
	if len(pending) != requestsMax {
		t.Errorf("%d requests wait, want %d", len(pending), requestsMax)
	}
	count(s.Exit(t0, Exit{}))
	if len(pending) != 0 {
		t.Errorf("%d requests outlived the session", len(pending))
	}
}

func TestTable(t *testing.T) {
	tb := newTable[int](3)
	for i, k := range []string{"a", "b", "c", "a", "d"} {
		tb.put(k, i)
	}
	var got []string
	tb.all(func(k string, v int) bool { got = append(got, fmt.Sprint(k, v)); tb.del(k); return true })
	if want := []string{"b1", "c2", "d4"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if _, ok := tb.oldest(); ok || tb.len() != 0 || tb.first != nil || tb.last != nil {
		t.Error("the table is not empty")
	}
	tb.put("x", 1)
	if v, ok := tb.get("x"); !ok || v != 1 {
		t.Error("x is lost")
	}
}

func TestRecent(t *testing.T) {
	r := newRecent(NewMemory(4))
	r.add("young")
	for i := range 20 {
		r.add(fmt.Sprint(i))
		if !r.has("young") { // asking keeps it
			t.Fatalf("lost after %d", i)
		}
	}
	if r.has("0") || !r.has("19") || r.has("") {
		t.Error("the oldest should be gone and the newest there")
	}
	if n := r.in.len(); n > 8 {
		t.Errorf("holds %d", n)
	}
}

// A set of hashes holds what was added and nothing else, while it grows and
// when it is full.
func TestHashes(t *testing.T) {
	for _, most := range []int{1, 5, 64, 1000, 1 << 13} {
		var s hashes
		rnd := rand.New(rand.NewPCG(1, uint64(most)))
		want := map[uint64]bool{}
		for range 2 {
			for len(want) < most {
				h := rnd.Uint64()
				if len(want)%3 == 1 {
					h >>= 50 // they stand close together at the begin
				} else if len(want)%3 == 2 {
					h |= 0xfffff << 44 // and at the end
				}
				want[max(h, 1)] = true
				s.add(h, most)
				if !s.has(h) || s.n != len(want) {
					t.Fatalf("of %d: %x is lost, or counted twice: %d of %d", most, h, s.n, len(want))
				}
			}
			for h := range want {
				if !s.has(h) {
					t.Fatalf("of %d: %x is lost", most, h)
				}
			}
			for range 1000 {
				if h := rnd.Uint64(); s.has(h) != want[h] {
					t.Fatalf("of %d: %x was never added", most, h)
				}
			}
			if len(s.slots) > most/3*4+64 {
				t.Errorf("of %d: %d slots", most, len(s.slots))
			}
			s.clear()
			clear(want)
			if s.n != 0 || s.has(0) {
				t.Error("cleared, and not empty")
			}
		}
	}
}

func TestForeign(t *testing.T) {
	for typ, want := range map[string]bool{
		"control.accepted": false, "control.rejected": false, "control.cancel": true, "control.attention.respond": true,
		"attention.routed": true, "attention.requested": false, "x.acme.control.instruct": true, "x.acme.session.control": false,
		"x.acme": false, "run.started": false,
	} {
		if foreign(typ) != want {
			t.Errorf("foreign(%s) = %v", typ, !want)
		}
	}
}
