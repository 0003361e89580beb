package execution

import (
	"context"
	"errors"
)

// Runner carries runs out: each is an agent launched headless with a goal, as
// if by hand, on the same road as any other. It is safe for concurrent use.
type Runner interface {
	// Profiles are the commands that agents can run, by name.
	Profiles() map[string]Profile
	// Default is the profile of an agent that names none; "" is none.
	Default() string
	// Dir makes the directory in which a run works.
	Dir(run, profile string) (string, error)
	// Start begins a run and returns when its process was started.
	Start(ctx context.Context, o Order) (Job, error)
	// Find gives the job of a run that was started before, perhaps by another
	// runtime on the same store: it may be over. Its session logs are there.
	Find(run string) Job
	// Forget removes what is kept of a run's job: logs, and what was passed on
	// from them as far as it is reached. Lines of the logs become tombstones where
	// keep says so: their ids and positions stay. The error is ErrBusy, and
	// nothing is gone, where somebody is at the logs.
	Forget(run string, keep bool) ([]Erased, []Retained, error)
}

// ErrBusy says that a run's logs are being written or sent.
var ErrBusy = errors.New("the run's logs are in use")

// Profile says what a command can honour of what an embedder asks. What it
// cannot is refused when the agent is created.
type Profile struct {
	Tools  []string // the tools that it has; nil is that they are not known, and any can be named
	Prompt bool     // it takes a system prompt
	MCP    bool     // it takes MCP servers
	Model  bool     // a model can be chosen
	Resume bool     // a run can go on where it was: run.continue
	Gate   bool     // its tool calls can be held: toolsets and ceilings of calls can be honoured
}

// Order is a run to be carried out.
type Order struct {
	Run, Agent string
	Profile    string
	Dir        string // where it works; it is there
	Goal       string
	Prompt     string // the constitution, as one text; "" is none
	Model      string
	MCP        []MCPServer // with their auth
	Calls      *Calls      // what its tool calls are held to; nil is nothing
	Resume     string      // the vendor's session to go on with; "" is a new one
}

// Calls are what a run's tool calls are held to, each before it is made. What is
// denied is told as tool.denied, by policy, with its rule: toolset, or the
// bound's name.
type Calls struct {
	Tools  []string         // that may be used; empty is any
	Bounds map[string]int64 // of one cycle, by name
}

// Job is a run's launch.
type Job interface {
	// Follow gives every line of the run's session logs, from the beginning,
	// each log's in order, and goes on as they grow, until the launch is over
	// and all was given. Whoever reads again gets them again.
	Follow(ctx context.Context, line func([]byte) error) error
	// Outcome is how it ended; it is asked after Follow.
	Outcome() Outcome
	// Cancel ends it, as control.cancel of its session does. It returns when
	// that was taken, not when it is over.
	Cancel(ctx context.Context, reason string) error
	// Hold gives its tool calls other bounds from now on.
	Hold(c Calls) error
}

// Outcome is how a launch ended.
type Outcome struct {
	Exit   int
	Signal string
	Lost   bool // it died with us or was killed, and nobody saw how
}

// Retained is something that an erasure did not reach, and why.
type Retained struct {
	Resource string `json:"resource"`
	ID       string `json:"id"`
	Reason   string `json:"reason"`
}
