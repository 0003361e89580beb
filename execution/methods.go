package execution

import (
	"context"
	"encoding/json"
)

// method is a row of the protocol: what it takes to be allowed to call it, and
// what is called.
type method struct {
	scope Scope      // of the token; "" for initialize alone, which every token may call
	needs Capability // "" is none
	call  func(s *Server, ctx context.Context, params json.RawMessage) (any, error)
}

// methods is the protocol, for whoever reviews who may do what. A method whose
// capability is never served here is in it all the same: it has to fail as
// such, and not as an unknown one.
var methods map[string]method

func init() {
	methods = map[string]method{
		"initialize": {"", "", (*Server).initialize},

		"agent.create":                {AgentWrite, "", typed((*Server).agentCreate)},
		"agent.get":                   {AgentRead, "", typed((*Server).agentGet)},
		"agent.list":                  {AgentRead, "", typed((*Server).agentList)},
		"agent.update":                {AgentWrite, "", typed((*Server).agentUpdate)},
		"agent.cancel":                {RunCancel, "", typed((*Server).agentCancel)},
		"agent.archive":               {AgentWrite, "", typed((*Server).agentArchive)},
		"agent.approve_prompt_change": {AgentWrite, ModifyPrompt, nil},

		"run.create":   {RunCreate, "", typed((*Server).runCreate)},
		"run.get":      {RunRead, "", typed((*Server).runGet)},
		"run.list":     {RunRead, "", typed((*Server).runList)},
		"run.cancel":   {RunCancel, "", typed((*Server).runCancel)},
		"run.continue": {RunCreate, "", typed((*Server).runContinue)},

		"artifact.get":    {RunRead, "", typed((*Server).artifactGet)},
		"artifact.list":   {RunRead, "", typed((*Server).artifactList)},
		"artifact.delete": {AgentWrite, "", typed((*Server).artifactDelete)},

		"memory.write":  {MemoryWrite, LearningMemory, nil},
		"memory.read":   {MemoryRead, LearningMemory, nil},
		"memory.search": {MemoryRead, LearningMemory, nil},
		"memory.delete": {MemoryWrite, LearningMemory, nil},

		"message.send":  {AgentWrite, PeerMessaging, nil},
		"message.inbox": {AgentRead, PeerMessaging, nil},
		"message.list":  {AgentRead, PeerMessaging, nil},

		"subject.export": {SubjectExport, GDPR, typed((*Server).subjectExport)},
		"subject.read":   {SubjectRead, GDPR, typed((*Server).subjectRead)},
		"subject.erase":  {SubjectErase, GDPR, typed((*Server).subjectErase)},
	}
}

// typed has a method's params decoded. They are an object: the protocol names
// them all.
func typed[P any](fn func(*Server, context.Context, P) (any, error)) func(*Server, context.Context, json.RawMessage) (any, error) {
	return func(s *Server, ctx context.Context, params json.RawMessage) (any, error) {
		var p P
		if err := decode(params, &p); err != nil {
			return nil, err
		}
		return fn(s, ctx, p)
	}
}
