package execution

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// The bounds of what an agent is made of.
const (
	maxName  = 200
	maxText  = 1 << 20
	maxWords = 1000
)

// agentCreate refuses what its profile cannot honour, for nobody would notice
// a ceiling or a directive that is passed over.
func (s *Server) agentCreate(_ context.Context, p Spec) (any, error) {
	now := Time{s.Now()}
	rec := agentRecord{Agent: Agent{Spec: p, LifecycleState: Active, CreatedAt: now, UpdatedAt: now}}
	rec.ID = s.ids.make(agentPrefix, now.Time)
	rec.RootAgentID = rec.ID
	profile, err := s.profileOf(p)
	if err != nil {
		return nil, err
	}
	rec.Profile = profile
	if err := s.complete(&rec); err != nil {
		return nil, err
	}
	err = s.Store.update(func(t tx) error { return t.putAgent(rec) })
	return rec.Agent, err
}

// profileOf is the profile that an agent's metadata or runner names, or the
// default.
func (s *Server) profileOf(p Spec) (string, error) {
	name, _ := p.Metadata["profile"].(string)
	if name == "" && p.Runner != nil {
		name = p.Runner.ProviderID
	}
	if name == "" {
		name = s.Runner.Default()
	}
	all := s.Runner.Profiles()
	if _, ok := all[name]; !ok {
		names := make([]string, 0, len(all))
		for n := range all {
			names = append(names, n)
		}
		slices.Sort(names)
		return "", fail(InvalidParams, "there is no profile %q: name one of %s in metadata.profile", clip(name), strings.Join(names, ", "))
	}
	return name, nil
}

// complete checks an agent's spec against the protocol and against what its
// profile can honour, fills in what was left out, and takes the MCP servers'
// auth out of what is returned.
func (s *Server) complete(rec *agentRecord) error {
	p := &rec.Spec
	can := s.Runner.Profiles()[rec.Profile]
	switch {
	case strings.TrimSpace(p.Name) == "" || len(p.Name) > maxName:
		return fail(InvalidParams, "name: want 1 to %d bytes", maxName)
	case len(p.Toolset) > maxWords || len(p.SubjectIDs) > maxWords || len(p.ExternalMCPServers) > maxWords:
		return fail(InvalidParams, "a list holds at most %d entries", maxWords)
	}
	for _, v := range []int64{p.Ceilings.MaxCycles, p.Ceilings.MaxSubagents, p.Ceilings.MaxToolCallsPerCycle, p.Ceilings.MaxWallSeconds,
		p.Budgets.TokensPerCycle, p.Budgets.ToolCallsPerCycle, p.Budgets.SecondsPerCycle} {
		if v < 0 {
			return fail(InvalidParams, "ceilings and budgets are not negative")
		}
	}
	c := &p.Constitution
	switch c.MutablePromptPolicy {
	case "":
		c.MutablePromptPolicy = PromptLocked
	case PromptAuto, PromptApproval, PromptLocked:
	default:
		return fail(InvalidParams, "constitution.mutable_prompt_policy: want auto, approval_required or locked")
	}
	if prompt := promptOf(*c); len(prompt) > maxText {
		return fail(InvalidParams, "constitution: want at most %d bytes", maxText)
	} else if prompt != "" && !can.Prompt {
		return fail(PolicyViolation, "profile %s takes no system prompt: its agents cannot be held to a constitution", rec.Profile)
	}
	if len(p.Toolset) > 0 && !can.Gate {
		return fail(CapabilityNotSupported, "profile %s cannot be held to a toolset: its tool calls cannot be held", rec.Profile)
	}
	for _, tool := range p.Toolset {
		if can.Tools != nil && !slices.Contains(can.Tools, tool) {
			e := fail(ToolNotFound, "profile %s has no tool %q; it has %s", rec.Profile, clip(tool), strings.Join(can.Tools, ", "))
			e.Data = map[string]any{"tool": clip(tool)}
			return e
		}
	}
	if (p.Ceilings.MaxToolCallsPerCycle > 0 || p.Budgets.ToolCallsPerCycle > 0) && !can.Gate {
		return fail(CapabilityNotSupported, "profile %s cannot be held to a number of tool calls: its tool calls cannot be held", rec.Profile)
	}
	if p.Runner != nil && p.Runner.Model != "" && !can.Model {
		return fail(CapabilityNotSupported, "profile %s has no choice of models", rec.Profile)
	}
	if len(p.ExternalMCPServers) > 0 && (!can.MCP || !s.offered[ExternalMCP]) {
		return unsupported(ExternalMCP)
	}
	if err := takeAuth(rec); err != nil {
		return err
	}
	p.Toolset = orEmpty(p.Toolset)
	p.SubjectIDs = orEmpty(p.SubjectIDs)
	if p.Metadata == nil {
		p.Metadata = map[string]any{}
	}
	return checkSubjects(p.SubjectIDs)
}

func takeAuth(rec *agentRecord) error {
	seen := map[string]bool{}
	auth := map[string]json.RawMessage{}
	for i := range rec.ExternalMCPServers {
		m := &rec.ExternalMCPServers[i]
		u, err := url.Parse(m.URL)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
			return fail(InvalidParams, "external_mcp_servers: %q is no http or https address", clip(m.URL))
		}
		if u.User != nil {
			return fail(InvalidParams, "external_mcp_servers: credentials belong in auth, not in the address")
		}
		if m.Name == "" {
			m.Name = u.Hostname()
		}
		if seen[m.Name] {
			return fail(InvalidParams, "external_mcp_servers: %q stands twice", clip(m.Name))
		}
		seen[m.Name], m.Enabled = true, true
		if m.Auth != nil {
			auth[m.Name] = m.Auth
		} else if old, ok := rec.Auth[m.Name]; ok {
			auth[m.Name] = old // an update that says nothing of it changes nothing
		}
		m.Auth = nil
	}
	rec.Auth = auth
	return nil
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func checkSubjects(ids []string) error {
	for _, id := range ids {
		if id == "" || len(id) > 256 {
			return fail(InvalidParams, "subject_ids: want 1 to 256 bytes each")
		}
	}
	return nil
}

// promptOf is a constitution as one text.
func promptOf(c Constitution) string {
	parts := slices.DeleteFunc(append(slices.Clone([]string(c.ImmutableDirectives)), c.MutablePrompt), func(s string) bool { return strings.TrimSpace(s) == "" })
	return strings.Join(parts, "\n\n")
}

type agentID struct {
	AgentID string `json:"agent_id"`
}

func (p agentID) check() error {
	if !isID(p.AgentID, agentPrefix) {
		return notFound("agent", p.AgentID)
	}
	return nil
}

func (s *Server) agentGet(_ context.Context, p agentID) (any, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	var rec agentRecord
	err := s.Store.view(func(t tx) (err error) { rec, err = t.agent(p.AgentID); return })
	return rec.Agent, err
}

// listing is what every list takes.
type listing struct {
	Cursor string `json:"cursor"`
	Limit  *int   `json:"limit"`
}

const (
	defaultPage = 50
	maxPage     = 200
)

func (l listing) check(prefix string) (limit int, err error) {
	limit = defaultPage
	if l.Limit != nil {
		limit = *l.Limit
	}
	if limit < 1 || limit > maxPage {
		return 0, fail(InvalidParams, "limit: want 1 to %d", maxPage)
	}
	if l.Cursor != "" && !isID(l.Cursor, prefix) {
		return 0, fail(InvalidParams, "cursor: want one that a list gave")
	}
	return limit, nil
}

// listed is a page of a list.
type listed[T any] struct {
	Items  []T     `json:"items"`
	Cursor *string `json:"cursor"`
}

func (s *Server) agentList(_ context.Context, p struct {
	listing
	RootAgentID    string `json:"root_agent_id"`
	ParentAgentID  string `json:"parent_agent_id"`
	LifecycleState State  `json:"lifecycle_state"`
	SubjectID      string `json:"subject_id"`
}) (any, error) {
	limit, err := p.check(agentPrefix)
	if err != nil {
		return nil, err
	}
	var out listed[Agent]
	err = s.Store.view(func(t tx) (err error) {
		out.Items, out.Cursor, err = page(t, t.Bucket([]byte("agents")), p.Cursor, limit, func(_ string, v []byte) (Agent, bool, error) {
			var a agentRecord
			if err := json.Unmarshal(v, &a); err != nil {
				return Agent{}, false, err
			}
			fits := (p.RootAgentID == "" || a.RootAgentID == p.RootAgentID) &&
				(p.ParentAgentID == "" || a.ParentAgentID != nil && *a.ParentAgentID == p.ParentAgentID) &&
				(p.LifecycleState == "" || a.LifecycleState == p.LifecycleState) &&
				(p.SubjectID == "" || slices.Contains(a.SubjectIDs, p.SubjectID))
			return a.Agent, fits, nil
		})
		return err
	})
	return out, err
}

// agentUpdate changes an agent. Runs that are under way keep what they were
// started with, but for ceilings, which may shrink beneath them.
func (s *Server) agentUpdate(_ context.Context, p struct {
	agentID
	Name               *string          `json:"name"`
	Metadata           *map[string]any  `json:"metadata"`
	Ceilings           *Ceilings        `json:"ceilings"`
	Budgets            *Budgets         `json:"budgets"`
	Constitution       *Constitution    `json:"constitution"`
	Toolset            *[]string        `json:"toolset"`
	ExternalMCPServers *[]MCPServer     `json:"external_mcp_servers"`
	SubjectIDs         *[]string        `json:"subject_ids"`
	Runner             *json.RawMessage `json:"runner"`
}) (any, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	var rec agentRecord
	err := s.Store.update(func(t tx) (err error) {
		if rec, err = t.agent(p.AgentID); err != nil {
			return err
		}
		if rec.LifecycleState == Archived {
			return fail(LifecycleConflict, "the agent is archived")
		}
		old := rec.Ceilings
		set(&rec.Name, p.Name)
		set(&rec.Metadata, p.Metadata)
		set(&rec.Ceilings, p.Ceilings)
		set(&rec.Budgets, p.Budgets)
		set(&rec.Constitution, p.Constitution)
		set(&rec.Toolset, p.Toolset)
		set(&rec.ExternalMCPServers, p.ExternalMCPServers)
		set(&rec.SubjectIDs, p.SubjectIDs)
		if p.Runner != nil {
			rec.Runner = nil
			if err := json.Unmarshal(*p.Runner, &rec.Runner); err != nil {
				return fail(InvalidParams, "runner: %v", err)
			}
		}
		if wider := widened(old, rec.Ceilings); wider != "" {
			running, err := s.running(t, rec.ID)
			if err != nil {
				return err
			}
			if running != "" {
				return fail(LifecycleConflict, "%s cannot be widened while %s is running", wider, running)
			}
		}
		if rec.Profile, err = s.profileOf(rec.Spec); err != nil {
			return err
		}
		if err := s.complete(&rec); err != nil {
			return err
		}
		rec.UpdatedAt = Time{s.Now()}
		return t.putAgent(rec)
	})
	if err == nil {
		err = s.hold(rec.ID)
	}
	return rec.Agent, err
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// widened names a ceiling that is higher than it was; 0 is no ceiling.
func widened(old, now Ceilings) string {
	for _, c := range []struct {
		name     string
		old, now int64
	}{
		{"max_cycles", old.MaxCycles, now.MaxCycles},
		{"max_subagents", old.MaxSubagents, now.MaxSubagents},
		{"max_tool_calls_per_cycle", old.MaxToolCallsPerCycle, now.MaxToolCallsPerCycle},
		{"max_wall_seconds", old.MaxWallSeconds, now.MaxWallSeconds},
	} {
		if c.old > 0 && (c.now == 0 || c.now > c.old) {
			return c.name
		}
	}
	return ""
}

// running is a run of an agent's that is not over; "" is none.
func (s *Server) running(t tx, agent string) (string, error) {
	of := t.Bucket([]byte("runs_of")).Bucket([]byte(agent))
	if of == nil {
		return "", nil
	}
	c := of.Cursor()
	for k, _ := c.Last(); k != nil; k, _ = c.Prev() {
		r, err := t.run(string(k))
		if err != nil {
			return "", err
		}
		if r.State == Running {
			return r.ID, nil
		}
	}
	return "", nil
}

// agentCancel ends an agent: its runs are cancelled, and it takes no further.
func (s *Server) agentCancel(ctx context.Context, p agentID) (any, error) {
	return s.endAgent(ctx, p, Cancelled)
}

// agentArchive puts an agent away, which has no run under way.
func (s *Server) agentArchive(ctx context.Context, p agentID) (any, error) {
	return s.endAgent(ctx, p, Archived)
}

func (s *Server) endAgent(ctx context.Context, p agentID, state State) (any, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	var rec agentRecord
	var open []string
	err := s.Store.update(func(t tx) (err error) {
		if rec, err = t.agent(p.AgentID); err != nil {
			return err
		}
		switch {
		case rec.LifecycleState == state || rec.LifecycleState == Archived && state == Cancelled:
			return fail(LifecycleConflict, "the agent is %s already", rec.LifecycleState)
		case state == Archived:
			running, err := s.running(t, rec.ID)
			if err != nil {
				return err
			}
			if running != "" {
				return fail(LifecycleConflict, "%s is running: cancel it first", running)
			}
		default:
			of := t.Bucket([]byte("runs_of")).Bucket([]byte(rec.ID))
			if of != nil {
				err = of.ForEach(func(k, _ []byte) error { open = append(open, string(k)); return nil })
			}
			if err != nil {
				return err
			}
		}
		rec.LifecycleState, rec.UpdatedAt = state, Time{s.Now()}
		return t.putAgent(rec)
	})
	if err != nil {
		return nil, err
	}
	for _, id := range open {
		if _, err := s.halt(ctx, id, stop{By: byCancel}); err != nil && codeOf(err) != LifecycleConflict {
			return nil, fmt.Errorf("cancelling %s: %w", id, err)
		}
	}
	return rec.Agent, nil
}
