// Package agent is the one room that touches processes and vendors' channels.
// It starts the agent, stands between it and the user's terminal, serves the
// hooks and follows the logs that an adapter names, and carries what they say
// down the road: session, gate, log, queue.
//
// The promise of a launch is that the agent and its terminal behave exactly as
// without us. Where both the standard input and output are one terminal the
// agent gets a PTY of its own, with the user's settings and size, and a small
// shim (the same binary, started again) leads its session, so that job control
// works as under a shell. Everywhere else it gets the same descriptors in the
// same process group, and nothing stands in between but, where an adapter
// reads it, a copy of its standard output. See Start.
//
// What the package must not do: decide about events (adapters, session and
// redaction do), write to the user's terminal what the agent did not write, or
// end the process.
//
// What it cannot do:
//
//   - Typed-ahead input that was already handed to the PTY is not given back
//     when the agent ends.
//   - Of the signal dispositions that a parent left ignored, those of SIGHUP,
//     SIGINT, SIGTSTP, SIGTTIN and SIGTTOU alone are handed down. For the rest,
//     SIGPIPE of a systemd service say, the Go runtime installs its handlers
//     before any code of ours runs, and keeps what it found where only it can
//     read it; the agent starts with the default. Who needs another starts it
//     by a shell: aep-wrap -- sh -c 'trap "" PIPE; exec agent'.
//   - A standard descriptor that was closed is open on /dev/null in the agent:
//     the Go runtime opens it so, and it then cannot be told from one that a
//     supervisor has opened on /dev/null to be read and written. A write that
//     goes nowhere is the smaller harm than an agent whose first file becomes
//     its standard output.
package agent
