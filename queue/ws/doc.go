// Package ws sends events to a collector over a WebSocket (AEP-0003 §3.5), and
// takes the commands that come back on it. It is the emitter that a launch
// prefers: only on the socket is a session claimed, and only there do commands
// flow (AEP-0004 §4.1).
//
// # What counts as delivered
//
// A write that succeeded says nothing. Behind each batch of events goes a ping
// frame of the protocol's own, numbered; frames are taken in order, so its pong
// says that everything before it was. Only then is the batch acknowledged to
// the feed. What has no pong when a connection ends goes back to the feed, and
// is sent again by the next: delivery is at-least-once, each session's order
// holds, and the terminal consumer dedupes by (source, id). A few batches are
// under way at a time, and no more: a collector that is slow is waited for, and
// whoever offers events never is.
//
// # When the socket does not work
//
// A connection that is lost is made again, the first time at once, then with
// backoff and jitter, for ever. One is lost too that gives no error and on which
// a pong that is due does not come for twenty seconds, while nothing of a batch
// goes out either: being wrong costs that its batches are sent again, in smaller
// parts where nothing was acknowledged. Where the collector, or what stands
// before it, has no socket for us, or one on which nothing is ever acknowledged,
// events go by POST (Config.Fallback, on the same feed) and the socket is tried
// again each minute. Where asking again cannot help (a token that is refused, a
// collector of another version) the emitter stops: it says so, Flush gives up at
// once, and it asks again every five minutes all the same, because tokens and
// collectors are changed while agents run.
//
// # Claims
//
// A connection claims the sessions of the events that it carries. So after each
// hello the last acknowledged event of every live session that has nothing to
// send is sent once more, which is a legal redelivery. Live is a session that
// the feed has a log of, that was not Done, whose last event does not end it,
// and that Config.Live does not deny.
//
// The package never changes a line, and never acts on what the other side
// sends: a well-formed command is handed over, everything else is counted.
package ws
