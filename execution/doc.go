// Package execution is the runtime's side of the Agent Execution Protocol
// (ADR-0003, aep-2026-04-24): JSON-RPC 2.0 at POST /aep/v1/rpc, a run's events
// by SSE, artifacts' bytes. It keeps agents, runs, events and artifacts on
// disk, and has a Runner carry runs out.
//
// It must not start a process, know a vendor or read an agent's output: a
// Runner does, on the same road as any wrapped agent, and what the embedder is
// told of a run is mapped from the events of that road.
package execution
