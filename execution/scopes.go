package execution

// Scope is what a token allows, apart from capabilities.
type Scope string

// The scopes.
const (
	AgentRead       Scope = "agent.read"
	AgentWrite      Scope = "agent.write"
	RunRead         Scope = "run.read"
	RunCreate       Scope = "run.create"
	RunCancel       Scope = "run.cancel"
	StreamSubscribe Scope = "stream.subscribe"
	MemoryRead      Scope = "memory.read"
	MemoryWrite     Scope = "memory.write"
	ToolInvoke      Scope = "tool.invoke"
	SubjectRead     Scope = "subject.read"
	SubjectErase    Scope = "subject.erase"
	SubjectExport   Scope = "subject.export"
)

// Scopes are all of them.
var Scopes = []Scope{
	AgentRead, AgentWrite, RunRead, RunCreate, RunCancel, StreamSubscribe, MemoryRead, MemoryWrite,
	ToolInvoke, SubjectRead, SubjectErase, SubjectExport,
}
