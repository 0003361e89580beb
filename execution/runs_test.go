package execution

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// stream reads a run's events; it ends with the stream.
func (w *world) stream(run, since string, each func(Event) bool) (status int) {
	w.t.Helper()
	url := w.http.URL + "/aep/v1/runs/" + run + "/events"
	if since != "" {
		url += "?since=" + since
	}
	req, _ := http.NewRequest("GET", url, nil)
	req.Header = w.headers(nil)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		return resp.StatusCode
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	var id, typ string
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ": ")
		switch key {
		case "id":
			id = value
		case "event":
			typ = value
		case "data":
			var e Event
			if err := json.Unmarshal([]byte(value), &e); err != nil {
				w.t.Fatal(err)
			}
			if e.ID != id || e.Type != typ || e.RunID != run {
				w.t.Errorf("id %s event %s: data %s", id, typ, value)
			}
			if !each(e) {
				return 200
			}
		}
	}
	return 200
}

func (w *world) record(run string) (rec runRecord, err error) {
	err = w.srv.Store.view(func(t tx) (err error) { rec, err = t.run(run); return })
	return rec, err
}

func (w *world) events(run, since string) (all []Event) {
	w.t.Helper()
	if status := w.stream(run, since, func(e Event) bool { all = append(all, e); return true }); status != 200 {
		w.t.Fatalf("status %d", status)
	}
	for i := 1; i < len(all); i++ {
		if all[i-1].ID >= all[i].ID {
			w.t.Errorf("%s comes before %s", all[i-1].ID, all[i].ID)
		}
	}
	return all
}

func types(events []Event) (out []string) {
	for _, e := range events {
		out = append(out, e.Type)
	}
	return out
}

// turn plays a turn with one tool call.
func (j *job) turn(n int) {
	run := fmt.Sprint("r", n)
	j.tell("run.started", run, map[string]any{"trigger": "user"})
	j.tell("tool.requested", run, map[string]any{"tool": map[string]any{"name": "Bash", "call_id": fmt.Sprint("c", n)}})
	j.tell("tool.completed", run, map[string]any{"tool": map[string]any{"name": "Bash", "call_id": fmt.Sprint("c", n)}, "duration_ms": 3})
	j.tell("run.finished", run, map[string]any{"duration_ms": 5})
}

func TestARun(t *testing.T) {
	w := newWorld(t)
	agent := w.agent(map[string]any{"runner": map[string]any{"model": "m"}})
	run, j := w.run(agent)
	if o := j.order; o.Goal != "do it" || o.Prompt != "be good" || o.Model != "m" || o.Calls != nil {
		t.Errorf("ordered %+v", o)
	}
	j.tell("session.started", "", nil)
	j.turn(1)
	if err := os.WriteFile(filepath.Join(w.dir, run, "out.txt"), []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	j.tell("session.ended", "", nil)
	j.end(Outcome{})
	all := w.events(run, "")
	want := []string{RunStarted, CycleStarted, ToolCalled, ToolReturned, CycleEnded, ArtifactCreated, RunEnded}
	if got := types(all); !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	if p := all[3].Payload; p["outcome"] != "completed" || p["cycle"] != 1.0 || p["event"].(map[string]any)["type"] != "tool.completed" {
		t.Errorf("tool.returned: %v", p)
	}
	r := w.must("run.get", map[string]any{"run_id": run})
	if r["state"] != "complete" || r["cycle_count"] != 1.0 || r["ended_at"] == nil {
		t.Errorf("%v", r)
	}
	for i, e := range all {
		if got := w.events(run, e.ID); len(got) != len(all)-1-i || len(got) > 0 && got[0].ID != all[i+1].ID {
			t.Errorf("since %s: %v", e.ID, types(got))
		}
	}
	for _, since := range []string{"evt_9999999999999999", "evt_x", "1", "evt_+000000000000001"} {
		if status := w.stream(run, since, nil); status != 400 {
			t.Errorf("since %s: %d", since, status)
		}
	}
	if status := w.stream("run_00000000000000000000000000", "", nil); status != 404 {
		t.Errorf("an unknown run: %d", status)
	}
	w.fails(LifecycleConflict, "run.cancel", map[string]any{"run_id": run})
	w.fails(LifecycleConflict, "run.continue", map[string]any{"run_id": run})
}

func TestEndsOfARun(t *testing.T) {
	for _, c := range []struct {
		name    string
		play    func(*world, string, *job)
		state   State
		ceiling string
		code    Code
	}{
		{"exit", func(_ *world, _ string, j *job) { j.end(Outcome{Exit: 3}) }, Failed, "", InternalError},
		{"signal", func(_ *world, _ string, j *job) { j.end(Outcome{Signal: "KILL"}) }, Failed, "", InternalError},
		{"lost", func(_ *world, _ string, j *job) { j.end(Outcome{Lost: true}) }, Failed, "", InternalError},
		{"cancel", func(w *world, run string, _ *job) { w.must("run.cancel", map[string]any{"run_id": run}) }, Cancelled, "", 0},
		{"agent.cancel", func(w *world, run string, j *job) {
			w.must("agent.cancel", map[string]any{"agent_id": j.order.Agent})
			w.fails(LifecycleConflict, "run.create", map[string]any{"agent_id": j.order.Agent, "goal": "more"})
		}, Cancelled, "", 0},
		{"max_cycles", func(_ *world, _ string, j *job) { j.turn(1); j.turn(2); j.turn(3) }, Failed, "max_cycles", CeilingExceeded},
		{"max_subagents", func(_ *world, _ string, j *job) {
			j.tell("run.started", "r", nil)
			for range 2 {
				j.tell("delegation.subagent.started", "r", map[string]any{"agent_type": "x"})
			}
		}, Failed, "max_subagents", CeilingExceeded},
		{"tokens_per_cycle", func(_ *world, _ string, j *job) {
			j.tell("run.started", "r", nil)
			j.tell("run.finished", "r", map[string]any{"gen_ai.usage.input_tokens": 900, "gen_ai.usage.output_tokens": 200})
		}, Failed, "tokens_per_cycle", BudgetExhausted},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			run, j := w.run(w.agent(map[string]any{
				"ceilings": map[string]any{"max_cycles": 2, "max_subagents": 1}, "budgets": map[string]any{"tokens_per_cycle": 1000},
			}))
			c.play(w, run, j)
			w.eventually("the end", func() bool { return w.state(run).Over() })
			all := w.events(run, "")
			last := all[len(all)-1]
			if got := w.state(run); got != c.state || last.Type != RunEnded || last.Payload["state"] != string(c.state) {
				t.Fatalf("state %s, last %s %v", got, last.Type, last.Payload)
			}
			fault, _ := last.Payload["error"].(map[string]any)
			if c.code != 0 && (fault["code"] != float64(c.code) || c.ceiling != "" && fault["ceiling"] != c.ceiling) {
				t.Errorf("error %v", fault)
			}
		})
	}
}

func TestBoundsInTime(t *testing.T) {
	w := newWorld(t)
	for ceiling, spec := range map[string]map[string]any{
		"max_wall_seconds":  {"ceilings": map[string]any{"max_wall_seconds": 1}},
		"seconds_per_cycle": {"budgets": map[string]any{"seconds_per_cycle": 1}},
	} {
		run, j := w.run(w.agent(spec))
		j.turn(1)
		j.tell("run.started", "late", nil)
		w.eventually("the end", func() bool { return w.state(run) == Failed })
		if got := w.events(run, ""); got[len(got)-1].Payload["error"].(map[string]any)["ceiling"] != ceiling {
			t.Errorf("%s: %v", ceiling, got)
		}
	}
}

// A run's calls are held to what its agent may do, and to less when that
// shrinks. What a bound denies ends the run; what the toolset denies does not.
func TestCallsThatAreHeld(t *testing.T) {
	w := newWorld(t)
	agent := w.agent(map[string]any{"toolset": []string{"Bash"}, "ceilings": map[string]any{"max_tool_calls_per_cycle": 2}})
	run, j := w.run(agent)
	if c := j.order.Calls; c == nil || !slices.Equal(c.Tools, []string{"Bash"}) || c.Bounds[maxCalls] != 2 {
		t.Fatalf("held to %+v", c)
	}
	w.must("agent.update", map[string]any{"agent_id": agent, "ceilings": map[string]any{"max_tool_calls_per_cycle": 1}})
	if c := j.holds(); c.Bounds[maxCalls] != 1 || !slices.Equal(c.Tools, []string{"Bash"}) {
		t.Errorf("then held to %+v", c)
	}
	denied := func(rule string) {
		j.tell("tool.requested", "r", map[string]any{"tool": map[string]any{"name": "Bash"}})
		j.tell("tool.denied", "r", map[string]any{"tool": map[string]any{"name": "Bash"}, "by": "policy", "rule": rule})
	}
	j.tell("run.started", "r", nil)
	denied("toolset")
	j.tell("tool.denied", "r", map[string]any{"by": "user", "rule": maxCalls})
	j.tell("session.idle", "r", nil)
	w.eventually("its events", func() bool {
		rec, _ := w.record(run)
		return rec.Reading.At["s"].Seq == 5
	})
	if got := w.state(run); got != Running {
		t.Fatalf("a denial of the toolset's, or of a person's, made it %s", got)
	}
	denied(maxCalls)
	w.eventually("the end", func() bool { return w.state(run) == Failed })
	all := w.events(run, "")
	if fault := all[len(all)-1].Payload["error"].(map[string]any); fault["name"] != "ceiling_exceeded" || fault["ceiling"] != maxCalls {
		t.Errorf("%v", fault)
	}
}

// A call that was not held, as when nobody could be asked, ends the run at the
// latest when it is seen to have been made.
func TestACallThatWasNotHeld(t *testing.T) {
	for name, spec := range map[string]map[string]any{
		"constitution_policy_violation": {"toolset": []string{"Read"}},
		"ceiling_exceeded":              {"ceilings": map[string]any{"max_tool_calls_per_cycle": 1}},
	} {
		w := newWorld(t)
		run, j := w.run(w.agent(spec))
		j.tell("run.started", "r", nil)
		for range 2 {
			j.tell("tool.requested", "r", map[string]any{"tool": map[string]any{"name": "Bash"}})
			j.tell("tool.completed", "r", map[string]any{"tool": map[string]any{"name": "Bash"}})
		}
		w.eventually("the end", func() bool { return w.state(run) == Failed })
		if got := w.events(run, ""); got[len(got)-1].Payload["error"].(map[string]any)["name"] != name {
			t.Errorf("%s: %v", name, got[len(got)-1])
		}
	}
}

func TestWhatCannotBeHonouredIsRefused(t *testing.T) {
	w := newWorld(t)
	spec := func(extra map[string]any) map[string]any {
		p := map[string]any{"name": "a", "constitution": map[string]any{}, "toolset": []string{}}
		for k, v := range extra {
			p[k] = v
		}
		return p
	}
	plain := map[string]any{"profile": "plain"}
	for _, c := range []struct {
		want  Code
		extra map[string]any
	}{
		{InvalidParams, map[string]any{"name": ""}},
		{InvalidParams, map[string]any{"metadata": map[string]any{"profile": "no"}}},
		{InvalidParams, map[string]any{"ceilings": map[string]any{"max_cycles": -1}}},
		{InvalidParams, map[string]any{"ceilings": map[string]any{"max_cycles": 1.5}}},
		{InvalidParams, map[string]any{"constitution": map[string]any{"mutable_prompt_policy": "maybe"}}},
		{InvalidParams, map[string]any{"subject_ids": []string{""}}},
		{InvalidParams, map[string]any{"external_mcp_servers": []any{map[string]any{"url": "file:///etc/passwd"}}}},
		{InvalidParams, map[string]any{"external_mcp_servers": []any{map[string]any{"url": "https://me:pw@h/"}}}},
		{ToolNotFound, map[string]any{"toolset": []string{"Bash", "Nuke"}}},
		{PolicyViolation, map[string]any{"metadata": plain, "constitution": map[string]any{"mutable_prompt": "x"}}},
		{CapabilityNotSupported, map[string]any{"metadata": plain, "toolset": []string{"Bash"}}},
		{CapabilityNotSupported, map[string]any{"metadata": plain, "ceilings": map[string]any{"max_tool_calls_per_cycle": 1}}},
		{CapabilityNotSupported, map[string]any{"metadata": plain, "runner": map[string]any{"model": "m"}}},
		{CapabilityNotSupported, map[string]any{"metadata": plain, "external_mcp_servers": []any{map[string]any{"url": "https://h/"}}}},
	} {
		t.Run(fmt.Sprint(c.extra), func(t *testing.T) { w.fails(c.want, "agent.create", spec(c.extra)) })
	}
}

func TestAuthIsNeverReturned(t *testing.T) {
	w := newWorld(t)
	id := w.agent(map[string]any{"external_mcp_servers": []any{map[string]any{"url": "https://h/mcp", "auth": map[string]any{"bearer": "hush-hush"}}}})
	_, j := w.run(id)
	if !strings.Contains(string(j.order.MCP[0].Auth), "hush-hush") {
		t.Error("the agent does not get it")
	}
	for _, m := range []string{"agent.get", "agent.list", "agent.update"} {
		b, _ := json.Marshal(w.must(m, map[string]any{"agent_id": id}))
		if strings.Contains(string(b), "hush") || !strings.Contains(string(b), `"url":"https://h/mcp"`) {
			t.Errorf("%s: %s", m, b)
		}
	}
	w.must("agent.update", map[string]any{"agent_id": id, "external_mcp_servers": []any{map[string]any{"url": "https://h/mcp"}}})
	if _, j = w.run(id); !strings.Contains(string(j.order.MCP[0].Auth), "hush-hush") {
		t.Error("an update that does not speak of it has lost it")
	}
}

func TestCeilingsOfARunningAgent(t *testing.T) {
	w := newWorld(t)
	id := w.agent(map[string]any{"ceilings": map[string]any{"max_cycles": 5}})
	run, j := w.run(id)
	for _, wider := range []map[string]any{{"max_cycles": 6}, {"max_cycles": 0}, {}} {
		w.fails(LifecycleConflict, "agent.update", map[string]any{"agent_id": id, "ceilings": wider})
	}
	w.must("agent.update", map[string]any{"agent_id": id, "ceilings": map[string]any{"max_cycles": 1}})
	j.turn(1)
	j.turn(2)
	w.eventually("the end", func() bool { return w.state(run) == Failed })
	w.must("agent.update", map[string]any{"agent_id": id, "ceilings": map[string]any{"max_cycles": 9}})
	w.must("agent.archive", map[string]any{"agent_id": id})
	w.fails(LifecycleConflict, "agent.archive", map[string]any{"agent_id": id})
	w.fails(LifecycleConflict, "run.create", map[string]any{"agent_id": id, "goal": "x"})
}

// A server that goes, and another on the same store: the reader misses no
// event and has none twice.
func TestRestartInTheMiddleOfAStream(t *testing.T) {
	w := newWorld(t)
	run, j := w.run(w.agent(nil))
	j.turn(1)
	var all []Event
	w.stream(run, "", func(e Event) bool { all = append(all, e); return len(all) < 3 })
	w.close()
	j.turn(2)
	w.open()
	j.turn(3)
	j.end(Outcome{})
	all = append(all, w.events(run, all[len(all)-1].ID)...)
	want := []string{RunStarted}
	for range 3 {
		want = append(want, CycleStarted, ToolCalled, ToolReturned, CycleEnded)
	}
	if got := types(all); !slices.Equal(got, append(want, RunEnded)) {
		t.Errorf("%v", got)
	}
}

// A run whose process is gone sleeps, and goes on by the runtime's own
// session.
func TestSleepAndContinue(t *testing.T) {
	w := newWorld(t)
	run, j := w.run(w.agent(nil))
	j.tell("session.started", "", nil)
	j.turn(1)
	j.end(Outcome{Lost: true})
	w.eventually("sleep", func() bool { return w.state(run) == Sleeping })
	if r := w.must("run.continue", map[string]any{"run_id": run}); r["state"] != "running" {
		t.Errorf("%v", r)
	}
	if j.order.Resume != "s" {
		t.Errorf("resumed %q", j.order.Resume)
	}
	j.turn(2)
	j.end(Outcome{})
	if got := types(w.events(run, "")); !slices.Equal(got, []string{RunStarted, CycleStarted, ToolCalled, ToolReturned, CycleEnded, CycleStarted, ToolCalled, ToolReturned, CycleEnded, RunEnded}) {
		t.Errorf("%v", got)
	}
	run, j = w.run(w.agent(nil))
	j.tell("session.started", "", nil)
	j.end(Outcome{Lost: true})
	w.eventually("sleep", func() bool { return w.state(run) == Sleeping })
	w.must("run.cancel", map[string]any{"run_id": run})
	if got := w.state(run); got != Cancelled {
		t.Errorf("a cancelled sleeper is %s", got)
	}
}

func TestARunThatCannotStart(t *testing.T) {
	w := newWorld(t)
	id := w.agent(nil)
	w.runner.fail = errors.New("claude: not found")
	r := w.must("run.create", map[string]any{"agent_id": id, "goal": "x"})
	all := w.events(r["id"].(string), "")
	if got := types(all); r["state"] != "error" || !slices.Equal(got, []string{RunStarted, ErrorEvent, RunEnded}) || !strings.Contains(fmt.Sprint(all[2].Payload), "not found") {
		t.Errorf("%v %v", r, got)
	}
}

// fill puts n runs of an agent's into the store.
func (w *world) fill(agent string, n int) {
	w.t.Helper()
	err := w.srv.Store.update(func(t tx) error {
		for range n {
			r := runRecord{Run: Run{ID: w.srv.ids.make(runPrefix, time.Now()), AgentID: agent, State: Complete, SubjectIDs: []string{}}}
			if err := t.putRun(r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// A list of ten thousand is whole and in order, each entry once, while more runs
// begin; and its last page costs what its first does.
func TestLists(t *testing.T) {
	w := newWorld(t)
	id, other := w.agent(nil), w.agent(nil)
	const n, limit = 10_000, 200
	w.fill(id, n/2)
	w.fill(other, 300)
	w.fill(id, n/2)
	var all []string
	page := func(cursor any) map[string]any {
		return w.must("run.list", map[string]any{"agent_id": id, "limit": limit, "cursor": cursor})
	}
	pages := []any{""}
	for cursor := pages[0]; cursor != nil; {
		r := page(cursor)
		for _, item := range r["items"].([]any) {
			all = append(all, item.(map[string]any)["id"].(string))
		}
		if cursor = r["cursor"]; cursor != nil {
			pages = append(pages, cursor)
		}
		if len(pages) == 10 {
			w.fill(id, 150) // while somebody reads
			w.fill(other, 150)
		}
		if len(pages) > n/limit+2 {
			t.Fatal("there is no end")
		}
	}
	if len(all) != n+150 || !slices.IsSorted(all) || len(slices.Compact(slices.Clone(all))) != len(all) {
		t.Errorf("%d runs, want %d, in order and each once", len(all), n+150)
	}
	// By turns, and at their best: a busy machine is slow for either.
	first, late := time.Hour, time.Hour
	cost := func(cursor any, best *time.Duration) {
		began := time.Now()
		page(cursor)
		*best = min(*best, time.Since(began))
	}
	for range 20 {
		cost(pages[0], &first)
		cost(pages[len(pages)-2], &late) // the last that is full
	}
	t.Logf("a page takes %v at the start, %v at the end", first, late)
	if late > 10*first+10*time.Millisecond {
		t.Errorf("a page takes %v at the start and %v at the end", first, late)
	}
	for _, p := range []map[string]any{{"limit": 0}, {"limit": 201}, {"limit": "x"}, {"cursor": "../x"}} {
		p["agent_id"] = id
		w.fails(InvalidParams, "run.list", p)
	}
	if r := w.must("agent.list", map[string]any{"lifecycle_state": "archived"}); len(r["items"].([]any)) != 0 || r["cursor"] != nil {
		t.Errorf("%v", r)
	}
}
