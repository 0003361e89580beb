package adapters

import "time"

// Server is the channel of a runtime that is a server: an item of its event
// stream. ServerBeside is the same where the runtime's hooks report as well:
// the facts are theirs to tell, and the stream tells what they do not.
const (
	Server       Channel = "server"
	ServerBeside Channel = "server-beside"
)

// Serving is the optional part of an adapter whose runtime is a server, or has
// one inside: what its event stream says, and what it can be asked to do. The
// agent package connects and asks; all here is pure.
type Serving struct {
	// Events is the path of the event stream (text/event-stream).
	Events string

	// Quiet is how long the stream may be silent. It is dead after that: the
	// runtime sends heartbeats.
	Quiet time.Duration

	// Item reads the data of one item of the stream. Several moments are
	// several facts; none is a heartbeat, or a thing that no session knows of.
	Item func(item map[string]any) []Moment

	// Known are asked whenever a stream begins, before its first item: what
	// happened before, or while there was none. What was told already is known
	// by its names.
	Known []Query

	// Asked is the id of what a moment asks, by which the server is answered;
	// "" for a moment that asks nothing.
	Asked func(Moment) string

	// Answer is the request that tells the server an answer to what was asked;
	// nil for one that it cannot be told. Adapter.Reply is its body.
	Answer func(Moment, Answer) *Request
}

// Query reads what a server knows.
type Query struct {
	Path string
	// Read gives the moments that an answer's body tells of, and further
	// queries. Seen are the sessions that moments of the server named so far.
	Read func(body any, seen []string) ([]Moment, []Query)
}

// Served is where the server of a launch is. Its password is never told.
type Served struct {
	URL      string // its base
	Query    string // added to every request: "directory=…"
	User     string
	Password string

	// Start is the command line of a server of our own, for a command that has
	// none inside: it is started before the command, and ended after it. Where
	// it does not come up, the command is started as the user typed it.
	Start []string

	// Settled says that the command answers whatever its server asks, at once:
	// nobody else can.
	Settled bool

	// Foreign is a server that was there before the launch, and stays: what it
	// runs does not end with the command.
	Foreign bool
}
