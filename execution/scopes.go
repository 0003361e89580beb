package execution

import (
	"fmt"
	"slices"
	"strings"
)

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

// ParseScopes reads scopes with commas between them; "*" is all.
func ParseScopes(s string) ([]Scope, error) {
	var out []Scope
	for name := range strings.SplitSeq(s, ",") {
		switch sc := Scope(strings.TrimSpace(name)); {
		case sc == "*":
			out = append(out, Scopes...)
		case slices.Contains(Scopes, sc):
			out = append(out, sc)
		default:
			return nil, fmt.Errorf("%q is no scope: want *, or some of %s, with commas between them", clip(name), list(Scopes))
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

func list[T ~string](words []T) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(w))
	}
	return b.String()
}
