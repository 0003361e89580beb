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
//
// There are three kinds. One speaks HTTP, and has Events. One speaks JSON-RPC
// over a WebSocket, and has Hello: an item is a message of the server's own, a
// path is a method, a body its params. One has Lines: an item is a line of a
// file that it writes. A request without a path is said to the latter two as it
// stands.
type Serving struct {
	// Events is the path of the event stream (text/event-stream).
	Events string

	// Hello opens a connection; the first has an answer, and all else waits for
	// that.
	Hello []Request

	// Lines says that the runtime writes items into a file and reads what it is
	// told from another.
	Lines bool

	// Quiet is how long the event stream may be silent. It is dead after that:
	// the runtime sends heartbeats.
	Quiet time.Duration

	// Item reads the data of one item of the stream. Several moments are
	// several facts; none is a heartbeat, or a thing that no session knows of.
	Item func(item map[string]any) []Moment

	// More gives what an item is a reason to ask for, where the server is asked
	// by calls. Nil is never.
	More func(item map[string]any) []Query

	// Part reads an item that says that a session is a part of another: what it
	// shows is told of that. Nil is never; "" is not by this one.
	Part func(item map[string]any) (part, of string)

	// When is the newest time that a moment tells, by the server's own clock; zero
	// where it tells none. Nil is never.
	When func(Moment) time.Time

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

	// Tells says that an item tells when what was asked is settled, by whomever:
	// that an answer was taken in without an error proves nothing.
	Tells bool
}

// Query reads what a server knows.
type Query struct {
	Path string
	Body []byte // of a call; nil is none
	// Read gives the moments that an answer's body tells of, and further
	// queries.
	Read func(body any, past Past) ([]Moment, []Query)
}

// Past is what was heard of a server before it is asked what it knows.
type Past struct {
	Seen []string             // the sessions that moments of the server named, the last one last
	Last map[string]time.Time // of each, the newest time that one told (see Serving.When)
}

// Served is where the server of a launch is. Its password is never told.
type Served struct {
	URL      string // its base; "" where it has none
	Writes   string // the file that it writes its items into,
	Reads    string // and that in which it finds what it is told
	Query    string // added to every request: "directory=…"
	User     string // "" where the password is a bearer's token
	Password string

	// Start is the command line of a server of our own, for a command that has
	// none inside: it is started before the command, and ended after it. Where
	// it does not come up, the command is started as Else says; nil is as the
	// user typed it.
	Start []string
	Else  []string
	Hide  []string // variables that it is started without: its tools would have them

	// Try is a command line that ends at once, and fails where this version of
	// the runtime does not know the words by which the command joins our server:
	// it is started as Else says then. Nil is nothing to try.
	Try []string

	// Settled says that the command answers whatever its server asks, at once:
	// nobody else can.
	Settled bool

	// Foreign is a server that was there before the launch, and stays: what it
	// runs does not end with the command.
	Foreign bool
}
