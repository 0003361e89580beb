// Package collector is the embedded AEP endpoint: it takes events in over HTTP
// POST and the WebSocket, keeps a bounded history of each session, streams
// events out over Server-Sent Events and the WebSocket to everyone who watches,
// and routes a command to the one connection that claims its session.
//
// The bytes that come in are the bytes that go out: the collector reads an
// event's header and never re-encodes the event, but where a subscriber asked
// for a lower capture ceiling. It keeps no store of its own; what it held is
// read again from the local session logs when it starts. It must not validate
// payloads, synthesise events, or let one slow reader delay another or the
// emitters.
//
//	POST /events ─► ingest ─► hub.publish ─► store    (replay, by position)
//	                                     └─► consumer (live, by arrival)
//	GET /stream  ◄─ stream ◄──────────────── hub.next
//	GET /socket ◄─► socket ── the same two roads, both ways; and
//	                       └─► claims ─► the socket that a command is for
package collector
