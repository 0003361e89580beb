package execution

import (
	"encoding/json"
	"time"
)

// Version is the protocol's version that this package speaks.
const Version = "aep-2026-04-24"

// versions are all that can be asked for; the first is preferred.
var versions = []string{Version}

// Capability is one of the eight negotiated booleans.
type Capability string

// The capabilities of initialize.
const (
	OAuth2         Capability = "auth.oauth2"
	GDPR           Capability = "compliance.gdpr"
	ExternalMCP    Capability = "tools.mcp_external"
	ModifyPrompt   Capability = "self.modify_prompt"
	SpawnSubagent  Capability = "self.spawn_subagent"
	LearningMemory Capability = "self.learning_memory"
	PeerMessaging  Capability = "messaging.peer"
	SSE            Capability = "streaming.sse"
)

// Capabilities are all eight, in the protocol's order.
var Capabilities = []Capability{OAuth2, GDPR, ExternalMCP, ModifyPrompt, SpawnSubagent, LearningMemory, PeerMessaging, SSE}

// Constitution is what an agent is told beyond its goal.
type Constitution struct {
	ImmutableDirectives Directives `json:"immutable_directives"`
	MutablePrompt       string     `json:"mutable_prompt"`
	MutablePromptPolicy string     `json:"mutable_prompt_policy"`
}

// Directives are one text, or several; they go back as they came.
type Directives []string

// MarshalJSON implements json.Marshaler.
func (d Directives) MarshalJSON() ([]byte, error) {
	if len(d) == 1 {
		return json.Marshal(d[0])
	}
	return json.Marshal([]string(d))
}

// UnmarshalJSON implements json.Unmarshaler.
func (d *Directives) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '"' {
		*d = Directives{""}
		return json.Unmarshal(b, &(*d)[0])
	}
	return json.Unmarshal(b, (*[]string)(d))
}

// The policies of a mutable prompt.
const (
	PromptAuto     = "auto"
	PromptApproval = "approval_required"
	PromptLocked   = "locked"
)

// Ceilings bound every run of an agent; 0 is no bound.
type Ceilings struct {
	MaxCycles            int64 `json:"max_cycles,omitempty"`
	MaxSubagents         int64 `json:"max_subagents,omitempty"`
	MaxToolCallsPerCycle int64 `json:"max_tool_calls_per_cycle,omitempty"`
	MaxWallSeconds       int64 `json:"max_wall_seconds,omitempty"`
}

// Budgets bound each cycle of a run; 0 is no bound.
type Budgets struct {
	TokensPerCycle    int64 `json:"tokens_per_cycle,omitempty"`
	ToolCallsPerCycle int64 `json:"tool_calls_per_cycle,omitempty"`
	SecondsPerCycle   int64 `json:"seconds_per_cycle,omitempty"`
}

// MCPServer is an MCP server outside the runtime. Auth goes to the agent and
// is never returned.
type MCPServer struct {
	Name    string          `json:"name"`
	URL     string          `json:"url"`
	Auth    json.RawMessage `json:"auth,omitempty"`
	Enabled bool            `json:"enabled"`
}

// RunnerChoice says what carries an agent's runs out.
type RunnerChoice struct {
	ProviderID string `json:"provider_id,omitempty"`
	Model      string `json:"model,omitempty"`
}

// Spec is what an embedder says of an agent.
type Spec struct {
	Name               string         `json:"name"`
	Constitution       Constitution   `json:"constitution"`
	Toolset            []string       `json:"toolset"`
	ExternalMCPServers []MCPServer    `json:"external_mcp_servers,omitempty"`
	Ceilings           Ceilings       `json:"ceilings"`
	Budgets            Budgets        `json:"budgets"`
	SubjectIDs         []string       `json:"subject_ids"`
	Metadata           map[string]any `json:"metadata"`
	Runner             *RunnerChoice  `json:"runner"`
}

// Agent is an agent as it is returned.
type Agent struct {
	ID             string  `json:"id"`
	ParentAgentID  *string `json:"parent_agent_id"`
	RootAgentID    string  `json:"root_agent_id"`
	LifecycleState State   `json:"lifecycle_state"`
	NextWakeAt     *Time   `json:"next_wake_at"`
	CreatedAt      Time    `json:"created_at"`
	UpdatedAt      Time    `json:"updated_at"`
	Spec
}

// State is where an agent or a run is.
type State string

// The states. Active is an agent's alone, Running a run's.
const (
	Active    State = "active"
	Running   State = "running"
	Sleeping  State = "sleeping"
	Complete  State = "complete"
	Cancelled State = "cancelled"
	Failed    State = "error"
	Archived  State = "archived"
)

// Over says that a run in this state has had its terminal event.
func (s State) Over() bool { return s == Complete || s == Cancelled || s == Failed }

// Run is a run as it is returned.
type Run struct {
	ID         string         `json:"id"`
	AgentID    string         `json:"agent_id"`
	Goal       string         `json:"goal"`
	Inputs     any            `json:"inputs,omitempty"`
	State      State          `json:"state"`
	Result     any            `json:"result"`
	StartedAt  Time           `json:"started_at"`
	EndedAt    *Time          `json:"ended_at"`
	CycleCount int64          `json:"cycle_count"`
	SubjectIDs []string       `json:"subject_ids"`
	Metadata   map[string]any `json:"metadata"`
}

// Artifact is a file that a run made.
type Artifact struct {
	ID        string         `json:"id"`
	Name      string         `json:"name"`
	MIMEType  string         `json:"mime_type"`
	SizeBytes int64          `json:"size_bytes"`
	SHA256    string         `json:"sha256"`
	CreatedAt Time           `json:"created_at"`
	CreatedBy Maker          `json:"created_by"`
	RunID     string         `json:"run_id"`
	SubjectID *string        `json:"subject_id"`
	Metadata  map[string]any `json:"metadata"`
}

// Maker is who made an artifact.
type Maker struct {
	AgentID string `json:"agent_id"`
	RunID   string `json:"run_id"`
}

// Event is one message of a run's stream.
type Event struct {
	ID        string         `json:"event_id"`
	RunID     string         `json:"run_id"`
	Type      string         `json:"type"`
	EmittedAt Time           `json:"emitted_at"`
	Payload   map[string]any `json:"payload"`
}

// The types of a run's events that a wrapped agent has.
const (
	RunStarted      = "run.started"
	RunEnded        = "run.ended"
	CycleStarted    = "cycle.started"
	CycleEnded      = "cycle.ended"
	ToolCalled      = "tool.called"
	ToolReturned    = "tool.returned"
	SubagentSpawned = "subagent.spawned"
	ArtifactCreated = "artifact.created"
	ErrorEvent      = "error"
)

// Time is RFC 3339 in UTC with milliseconds.
type Time struct{ time.Time }

const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// MarshalJSON implements json.Marshaler.
func (t Time) MarshalJSON() ([]byte, error) {
	return []byte(`"` + t.UTC().Format(timeFormat) + `"`), nil
}
