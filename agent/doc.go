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
// end the process. What it cannot do: a terminal's typed-ahead input that was
// already handed to the PTY is not given back when the agent ends; and of the
// signal dispositions that a parent left ignored, the Go runtime hands down
// those of SIGHUP, SIGINT, SIGTSTP, SIGTTIN and SIGTTOU alone.
package agent
