// Package adapters holds what is peculiar to each agent runtime, as values.
//
// An Adapter describes; it never does. This package and those below it import
// no os, net, exec or clock: the agent package reads channels, starts
// processes and writes files, and asks an adapter what they mean. Adapters do
// not import redaction, session, queue or agent, and never compare a capture
// level: they give every field its level and leave the rest to the gate.
package adapters

import (
	"time"

	"aep-wrap/event"
)

// Channel names a way in which a runtime shows what it does. The same fact may
// come by several; each gives it the same Draft.Key.
type Channel string

// The channels known to the agent package.
const (
	Hook       Channel = "hook"       // a hook's JSON payload
	Stream     Channel = "stream"     // a line of the runtime's machine-readable stdout
	Transcript Channel = "transcript" // a line of the runtime's own session log, beside its hooks
	Log        Channel = "log"        // the same line where nothing but the log tells of the session
	Telemetry  Channel = "telemetry"  // an OTLP log record
	Drafts     Channel = "drafts"     // a line of {type, data, …} from a program that speaks AEP itself
	Process    Channel = "process"    // start and exit of the process, seen by us
)

// Moment is one native thing that a runtime showed. It is read-only.
type Moment struct {
	Channel Channel
	Name    string         // the native name: "PreToolUse", "assistant"
	Payload map[string]any // as event.ParseJSON gives it; nil when not an object
	Raw     []byte         // the payload as it came, where at hand: a tree has lost the order of members
	Time    time.Time      // when it was seen
	Session string         // the session, where the channel knows it and the payload does not
	Cut     int            // long strings in it that are told by their length alone

	// Held says that the runtime waits for what we answer to this moment, and
	// that an answer may come from afar: a request in it is answerable through
	// us (respond_via control), otherwise only in the runtime's own screen.
	Held bool

	// Gated says that it is held because the operator gates this tool: the
	// runtime itself would have asked nobody, so Map adds the request.
	Gated bool
}

// Adapter says all that is peculiar to one runtime. Its functions are pure:
// equal input, equal output, nothing touched. A part that the runtime lacks is
// nil. Validate says what a complete adapter needs.
type Adapter struct {
	Name    string   // the vendor token of x.{vendor}.* and the default agent name: "claude-code"
	Title   string   // for people: "Claude Code"
	Command []string // command names that start it: "claude"
	Pinned  string   // the runtime's version that the tables were checked against
	Doc     string   // doc.md: what it sees, what it cannot, how it is hooked and answered

	// Launch is how the runtime is started so that it reports to us; nil for
	// one that is only watched.
	Launch *Launching

	// Checks are what else may keep the runtime from being heard.
	Checks []Check

	// Map turns a moment into whole, ungated drafts; nil is "nothing happened
	// that the protocol speaks of". What it does not know becomes an x.* draft.
	Map func(Moment) []event.Draft

	// Vocabulary gives the table behind Map, for people and for tests.
	Vocabulary func() []Term

	// Logs gives the runtime's own session logs that a moment names: each line
	// that is written to them from this launch on becomes a Moment of channel
	// Transcript. Nil for a runtime that keeps none.
	Logs func(Moment) []LogFile

	// Reading is how session logs are read where nothing else tells of the
	// session: yesterday's, or those of an agent that others started. Nil for a
	// runtime whose logs say too little, or that keeps none.
	Reading *Reading

	// Asks says whether the runtime waits in this moment for a decision that
	// may come from afar, and how. Nil for one that never does.
	Asks func(Moment) Ask

	// Reply is what a held hook hears back for an answer; nil is "no
	// decision", on which the runtime asks in its own way.
	Reply func(Moment, Answer) []byte

	// Server is how a runtime that is a server is followed and told things; nil
	// for one that is none.
	Server *Serving

	// Steer says that a prompt while a run is open goes into that run: it
	// starts none.
	Steer bool

	// Instruct is what a hook hears back that hands the model a text on its
	// way; nil for a moment in which the runtime reads none. The part is nil
	// for a runtime that never does.
	Instruct func(m Moment, text string) []byte

	// Cancel gives the runtime's own means of ending a run, gentlest first:
	// each is tried until the run is seen to end. Signals for any process
	// follow by themselves. Nil where there are no own ones.
	Cancel func(Target) []Act
}

// LogFile is a session log of the runtime's own, one JSON object a line.
type LogFile struct {
	Path    string // relative to Wiring.LogRoot, unless absolute
	Session string // Moment.Session of its lines
}

// Reading is the optional part of an adapter whose runtime's logs can be read
// alone, on channel Log.
type Reading struct {
	// Paths are what the paths of its logs end with, as patterns of path.Match:
	// "projects/*/*.jsonl". They are a first guess; Identify decides.
	Paths []string

	// Beside are patterns of files of JSON lines beside them that tell of no
	// session: indexes, histories of what was typed.
	Beside []string

	// Identify says which session a file tells of, by its path and one of its
	// first records. It is asked record by record until it knows; false is "not
	// by this one".
	Identify func(path string, record map[string]any) (Identity, bool)

	// Apart says that the log names turns, or calls, otherwise than the hooks do.
	// Where hooks tell of a session, it is read as beside them: by the table of
	// channel Transcript.
	Apart bool
}

// Identity is what a session log tells of itself.
type Identity struct {
	Session string
	Step    string // the subagent whose log it is: its turns are no runs
	Run     string // the run that all of it is a part of
	Fork    string // the session whose history it may repeat
	Version string // of the runtime or of the layout, a token
	Strange bool   // a layout or a version that the table was not made for
}

// Names of the moments of channel Process. Start's payload is {command, args,
// cwd, pid}, its Session the launch's own id; exits are the session's to tell.
const (
	ProcessStart = "start"
)

// Term is a row of a vocabulary as people read it.
type Term struct {
	Channel Channel
	Native  string      // "PreToolUse"
	When    string      // the case of it that the row is about: "tool_name = AskUserQuestion"
	Emits   string      // "tool.requested", or "" for nothing
	Fields  []TermField // what of the native payload goes where
	Note    string      // why nothing, or what is special
}

// TermField says which part of a native payload a draft shows, and from which
// capture level on. Nothing else of a payload may appear in an event: the
// suite holds an adapter to its own terms.
type TermField struct {
	Member string // "tool.name"; "subject", "run" … of the envelope in parentheses
	From   string // the payload's path: "tool_input"
	Level  event.Level
}

// Answer is a decision about a held request, in the protocol's words.
type Answer struct {
	Option string
	Text   string
	Values map[string]any
}

// Ask is how a runtime waits for a decision. The zero value: it does not.
type Ask struct {
	Held bool   // its hook waits for us
	Both bool   // its own dialog can be answered meanwhile: a long hold takes nothing from anybody
	Lone bool   // it would ask nobody else, and go on at once: it is held only for as long as the operator says (--hold)
	Gate string // the tool's name, where nobody is asked unless the operator gates it (--gate)
}

// Target is what a cancel is about.
type Target struct {
	Session string // the runtime's own id of the session
	Run     string
	TTY     bool // the runtime has its screen in our terminal
}

// Act is one means: exactly one of Keys, Signal and Request is set.
type Act struct {
	Keys    string   // typed into the runtime's terminal
	Signal  string   // sent to its process: "INT"
	Tree    bool     // the signal goes to all its processes: its launcher keeps one to itself
	Request *Request // sent to its server
	Then    string   // typed once the run was seen to end: what tidies the screen up

	Patience time.Duration // how long the next means waits for this one's effect
}

// Request is an HTTP request to a runtime's own server.
type Request struct {
	Method string
	Path   string // with its query, below the server's base URL
	Body   []byte // JSON; nil is none
}

// Launching is the optional part of an adapter that starts its runtime.
type Launching struct {
	// Detect says whether this command line starts the runtime (also by an
	// absolute path, npx, bunx or node).
	Detect func(Launch) bool
	// Wire gives the same launch, reporting to us. It touches no user file.
	// Words that start no session (mcp, login, update …) come back with
	// Passthrough set.
	Wire func(Launch, Endpoint) (Wiring, error)
	// Dual says that Wire heeds Launch.Dual.
	Dual bool
}

// Launch is a command about to be started.
type Launch struct {
	Args []string // argv as the user typed it; Args[0] is the command
	Path string   // the resolved executable, absolute
	Env  []string // "NAME=value", as the child would get it
	Dir  string   // the working directory, absolute
	Home string   // the user's home, "" when unknown
	TTY  bool     // stdin and stdout are terminals

	// What the operator allows others to do in this launch.
	Hold time.Duration // how long a hook may wait for an answer from afar; 0: nobody can answer, hooks must not wait
	Both time.Duration // the same where the runtime's own dialog stays usable meanwhile (Ask.Both)
	Gate []string      // tools that the operator gates, patterns with *; nil is none

	Attach string // the URL of a running server that the command shall join, or AttachNew; "" is none
	Dual   bool   // what it asks shall be answerable from afar while its own dialog stays usable, at the price of another way to run it

	// ReadFile reads a user's file (settings that must be merged). It is the
	// only outside thing that Wire may ask for.
	ReadFile func(path string) ([]byte, error)
}

// AttachNew is the Launch.Attach that asks for a server of ours, for a command
// that has none inside and joins one otherwise than it runs alone.
const AttachNew = "new"

// Endpoint is where a runtime shall report to. It exists before the launch and
// is gone after it.
type Endpoint struct {
	HookURL string                              // http://127.0.0.1:PORT/hook/SECRET ; POST {HookURL}/{adapter}/{event} with the payload as body
	OTLPURL string                              // http://127.0.0.1:PORT/otlp/SECRET ; POST {OTLPURL}/v1/logs, http/json
	Helper  []string                            // argv prefix of the hook helper: {"/…/aep-hook", "claude-code"}; the event's name may follow; stdin is the payload
	Asking  func(within time.Duration) []string // Helper for a hook in which somebody may be asked and that may take so long; nil is Helper
	Socket  string                              // the unix socket that the helper finds in AEP_HOOK_SOCKET
	Dir     string                              // a private directory (0700) of this launch, for Wiring.Files
	Port    int                                 // of loopback, free just now, for a server inside the runtime; 0 is none
	Secret  string                              // made for this launch: the password of that server
}

// Wiring is what a launch becomes.
type Wiring struct {
	Passthrough bool              // start it bare: nothing to observe
	Args        []string          // the whole argv
	SetEnv      map[string]string // added to the child's environment
	UnsetEnv    []string
	Files       map[string][]byte // name → content, written 0600 into Endpoint.Dir before the start
	Overlays    []Overlay         // folders in Endpoint.Dir that show others, made after the files
	Stdout      Channel           // Stream when stdout is a machine-readable stream to be tee'd; else ""
	EventsFD    bool              // give the child a pipe for drafts, its number in AEP_EVENTS_FD
	Logs        []LogFile         // logs that are known before any moment names them
	LogRoot     string            // the folder that logs with relative paths are in
	Server      *Served           // where the runtime's server will be; nil is none
	Notes       []string          // one line each for the user: what could not be wired and why
}

// Overlay is a folder of the launch that shows another by links to its
// entries, so that a runtime which can be told of its home alone finds ours in
// it beside the user's. Files that the wiring puts there hide entries of their
// names. What the runtime adds, or puts in a link's place, goes to the folder
// that is shown when the runtime has ended.
type Overlay struct {
	Dir  string   // its name in Endpoint.Dir
	Of   string   // the folder that it shows, absolute; it need not be there
	Only []string // the entries that it shows; nil is all
	Make []string // folders that are made in Of beforehand, as the runtime would make them
}
