// Package collector is the embedded AEP endpoint: it takes events in over HTTP
// POST, keeps a bounded history of each session, and streams events out over
// Server-Sent Events to everyone who watches.
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
package collector
