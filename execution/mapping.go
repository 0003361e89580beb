package execution

import (
	"encoding/json"
	"maps"
	"slices"

	"aep-wrap/event"
)

// told has, for each event type of a session, the type by which an embedder
// hears of it. What is not here is the session's alone.
var told = map[string]string{
	"run.started":   CycleStarted,
	"run.finished":  CycleEnded,
	"run.failed":    CycleEnded,
	"run.cancelled": CycleEnded,

	"tool.requested": ToolCalled,
	"tool.completed": ToolReturned,
	"tool.failed":    ToolReturned,
	"tool.denied":    ToolReturned,

	"delegation.subagent.started": SubagentSpawned,
	"error.raised":                ErrorEvent,
}

// outcomes says for each ending which.
var outcomes = map[string]string{
	"run.finished": "complete", "run.failed": "error", "run.cancelled": "cancelled",
	"tool.completed": "completed", "tool.failed": "failed", "tool.denied": "denied",
}

// step is what one event of a session comes to.
type step struct {
	events []Event
	began  string   // the cycle that this event begins
	over   *Ceiling // passed by this event
}

// Ceiling is a bound that was passed.
type Ceiling struct {
	Name  string
	Code  Code
	Bound int64
}

// take maps an event of a run's session, whose position was not taken before.
// It is pure but for r, which remembers.
func (r *reading) take(e *event.Event, limits Ceilings, budgets Budgets, tools []string) (s step) {
	r.make()
	data, _ := payload(e)
	name, ok := told[e.Type]
	cycle := e.Run
	switch e.Type {
	case "run.started":
		r.Count++
		s.began = cycle
		r.Cycles[cycle] = r.Count
		r.Calls[cycle], r.Tokens[cycle] = 0, 0
		if limits.MaxCycles > 0 && r.Count > limits.MaxCycles {
			s.over = &Ceiling{"max_cycles", CeilingExceeded, limits.MaxCycles}
		}
	case "tool.requested":
		r.Calls[cycle]++
	case "tool.completed":
		// A call that could not be held, as when the agent does not ask before
		// it, is seen here at the latest.
		tool, _ := data["tool"].(map[string]any)
		name, _ := tool["name"].(string)
		if len(tools) > 0 && name != "" && !slices.Contains(tools, name) {
			s.over = &Ceiling{"toolset", PolicyViolation, int64(len(tools))}
		} else if n := least(limits.MaxToolCallsPerCycle, budgets.ToolCallsPerCycle); n > 0 && r.Calls[cycle] > n {
			s.over = &Ceiling{maxCalls, CeilingExceeded, n}
		}
	case "tool.denied":
		switch name, _ := data["rule"].(string); {
		case data["by"] != "policy":
		case name == maxCalls:
			s.over = &Ceiling{name, CeilingExceeded, limits.MaxToolCallsPerCycle}
		case name == callsBudget:
			s.over = &Ceiling{name, BudgetExhausted, budgets.ToolCallsPerCycle}
		}
	case "delegation.subagent.started":
		r.Subagents++
		if limits.MaxSubagents > 0 && r.Subagents > limits.MaxSubagents {
			s.over = &Ceiling{"max_subagents", CeilingExceeded, limits.MaxSubagents}
		}
	}
	if n := tokens(data); n > 0 {
		if name == CycleEnded { // the whole cycle's, tool calls and all
			r.Tokens[cycle] = max(r.Tokens[cycle], n)
		} else {
			r.Tokens[cycle] += n
		}
		if budgets.TokensPerCycle > 0 && r.Tokens[cycle] > budgets.TokensPerCycle && s.over == nil {
			s.over = &Ceiling{"tokens_per_cycle", BudgetExhausted, budgets.TokensPerCycle}
		}
	}
	if ok {
		p := maps.Clone(data)
		if p == nil {
			p = map[string]any{}
		}
		if n, open := r.Cycles[cycle]; open {
			p["cycle"] = n
		}
		if o := outcomes[e.Type]; o != "" {
			p["outcome"] = o
		}
		// Where it comes from: the same event in the session's own stream.
		p["event"] = map[string]any{"id": e.ID, "type": e.Type, "session": e.Session, "epoch": e.Epoch, "seq": e.Seq}
		s.events = append(s.events, Event{Type: name, EmittedAt: Time{e.Time}, Payload: p})
	}
	if name == CycleEnded {
		delete(r.Cycles, cycle)
		delete(r.Calls, cycle)
		delete(r.Tokens, cycle)
	}
	return s
}

// The bounds of tool calls, by the protocol's names.
const (
	maxCalls    = "max_tool_calls_per_cycle"
	callsBudget = "tool_calls_per_cycle"
)

// least is the smaller bound of two; 0 is none.
func least(a, b int64) int64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

func (r *reading) make() {
	if r.At == nil {
		r.At = map[string]event.Position{}
	}
	if r.Cycles == nil {
		r.Cycles, r.Calls, r.Tokens = map[string]int64{}, map[string]int64{}, map[string]int64{}
	}
}

func payload(e *event.Event) (map[string]any, error) {
	if len(e.Data) == 0 {
		return nil, nil
	}
	var m map[string]any
	err := json.Unmarshal(e.Data, &m)
	return m, err
}

// tokens are those that an event says were used.
func tokens(data map[string]any) (n int64) {
	for _, name := range []string{"gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"} {
		if v, ok := data[name].(float64); ok && v > 0 {
			n += int64(v)
		}
	}
	return n
}
