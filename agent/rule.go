package agent

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// Terms are the tool calls that an agent may make, as a file has them. Whoever
// launched the agent may change the file meanwhile.
type Terms struct {
	Tools []string         `json:"tools,omitempty"` // empty is any
	Calls map[string]int64 `json:"calls,omitempty"` // bounds of one run's calls, by their names
}

// Rule decides about tool calls at once, where nobody needs to be asked. It is
// safe for concurrent use.
type Rule struct {
	path  string
	mu    sync.Mutex
	terms Terms
	calls map[string]int64 // of each session's run
}

// OpenRule reads the terms that a rule decides by.
func OpenRule(path string) (*Rule, error) {
	r := &Rule{path: path, calls: map[string]int64{}}
	return r, r.read()
}

// read reads the terms anew. Where that fails those that were read before stand.
func (r *Rule) read() error {
	b, err := os.ReadFile(r.path)
	if err != nil {
		return err
	}
	var t Terms
	if err := json.Unmarshal(b, &t); err != nil {
		return fmt.Errorf("%s: %w", r.path, err)
	}
	r.terms = t
	return nil
}

// verdict is what a rule says of a call. One that neither allows nor denies it
// leaves it to whoever decides without a rule.
type verdict struct {
	allow, deny bool
	name        string // what denies it
	reason      string // as the model reads it
}

// begin says that a run of a session's began.
func (r *Rule) begin(session string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.calls, session)
}

// judge decides about a call, and counts it.
func (r *Rule) judge(session, tool string) verdict {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = r.read()
	r.calls[session]++
	if len(r.terms.Tools) > 0 && !slices.Contains(r.terms.Tools, tool) {
		return verdict{deny: true, name: "toolset", reason: tool + " is not in this agent's toolset"}
	}
	for _, name := range slices.Sorted(maps.Keys(r.terms.Calls)) {
		if n := r.terms.Calls[name]; n > 0 && r.calls[session] > n {
			return verdict{deny: true, name: name, reason: fmt.Sprintf("the run has made its %d tool calls (%s)", n, name)}
		}
	}
	return verdict{allow: len(r.terms.Tools) > 0}
}

// ruled has the rule decide about a moment in which the runtime asks whether it
// may use a tool. ok is that the matter is settled; what was denied is told of
// as the rule's.
func (r *Road) ruled(m adapters.Moment, size int) (h *Held, ok bool) {
	rule := r.patience.Rule
	if rule == nil || r.adapter.Asks == nil || r.adapter.Reply == nil {
		return nil, false
	}
	ask, err := guarded(func() adapters.Ask { return r.adapter.Asks(m) })
	if err != nil || ask.Gate == "" {
		return nil, false
	}
	var of event.Draft
	if drafts, err := r.drafts(m); err == nil && len(drafts) > 0 {
		of = drafts[0]
	}
	v := rule.judge(r.sessionOf(&of, m), ask.Gate)
	asked := r.patience.Gated != nil && r.patience.Gated(ask.Gate)
	if !v.deny && (!v.allow || asked) {
		return nil, false
	}
	answer := adapters.Answer{Option: "allow"}
	var denied *verdict
	if v.deny {
		denied, answer = &v, adapters.Answer{Option: "deny", Text: v.reason}
	}
	r.observe(m, size, 0, nil, denied)
	m.Held, m.Gated = true, true
	b, err := guarded(func() []byte { return r.adapter.Reply(m, answer) })
	if err != nil {
		r.fault(m, err)
	}
	return &Held{bytes: b}, true
}

// withDenial adds to the drafts of a call that a rule denied it.
func withDenial(drafts []event.Draft, v *verdict) []event.Draft {
	i := slices.IndexFunc(drafts, func(d event.Draft) bool { return d.Type == "tool.requested" })
	if v == nil || i < 0 {
		return drafts
	}
	d := drafts[i]
	d.Type, d.Severity = "tool.denied", event.Warning
	fields := event.Fields{event.Meta("by", "policy"), event.Meta("rule", v.name)}
	if j := slices.IndexFunc(d.Fields, func(f event.Field) bool { return f.Name == "tool" }); j >= 0 {
		fields = append(event.Fields{d.Fields[j]}, fields...)
	}
	d.Fields = fields
	return slices.Insert(slices.Clone(drafts), i+1, d)
}
