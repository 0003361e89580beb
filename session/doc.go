// Package session is the one owner of what changes while a session lives: its
// runs, the pairing of requests and outcomes, causes, and the order (epoch,
// seq). Adapters are pure and the gate is stateless; whatever needs a memory is
// here, once for all runtimes.
//
// The rules key on AEP types and never on a vendor. The package does no I/O,
// reads no clock (times are passed in) and has no lock: a Session belongs to
// one goroutine. It never invents an outcome or an identity: what it adds is
// what follows from facts that it has seen, and a gap stays a gap.
//
// Everything it remembers is bounded (see the limits in state.go), so that a
// session of any length costs the same: when a limit is passed, the oldest
// memory goes, and what depended on it loses a cause or a name, never its
// event. The ids that were told are the largest part: sessions may share one
// Memory of them.
package session
