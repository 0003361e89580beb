// Package control is the road back: commands in, decisions and drafts out
// (AEP-0004), and the other end of it, the sender's.
//
//   - Dispatcher is the target: it gates commands, decides each once, acks it,
//     sends the recorded ack again on redelivery, and follows what comes of it.
//   - Holds keeps the attention requests that wait for an answer from afar: one
//     atomic settle for each, a timer of its own, and failing open.
//   - From builds commands, Sender follows one through its ack to its outcome.
//   - Accepts computes what a target declares, Resolve finds an id by a prefix.
//
// The package does nothing itself. It does no I/O and has no clock, and of
// goroutines only the one by which Sender.Run waits for its link: time and timers come by Clock, what is to be told leaves by Emit,
// what is to be done leaves by Do. It judges commands by declared facts and
// never by a vendor. Nothing is claimed that was not observed: an accepted
// command promises a try, and its outcome is told by whoever saw it.
//
// # What is told, and in which order
//
// Emit is given the command's own line and then the drafts that follow from
// it, ack first. The line is an event of the sender's, without a position
// (AEP-0004 §2.2): whoever writes the session's log puts it there before the
// ack, byte-identical or down-levelled, so that the log alone says who
// commanded what, with what result. It is not passed on to sinks: a relay that
// delivered the command has persisted it (§4.4), and would take it for a
// command once more. Nothing is done before its ack was taken by Emit, and what
// Emit could not take is not done.
package control

import "time"

// Clock is time as it is handed in. After calls f once, d from now, on a
// goroutine of its own, unless stop is called before; stop says whether it
// came in time (as time.AfterFunc and Timer.Stop do).
type Clock struct {
	Now   func() time.Time
	After func(d time.Duration, f func()) (stop func() bool)
}
