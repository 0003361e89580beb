// Package event speaks AEP 0.1, the Agent Event Protocol: the envelope, the
// drafts that become envelopes, ids, canonical JSON and digests, the type
// registry with its capture levels, the rules of single events and of streams,
// and attr-match filters.
//
// It is the bottom of the house: every other package imports it, and it
// imports none of them. It must not do I/O of its own, keep mutable global
// state that can be seen, read a clock, or know any vendor.
//
// Parse and ParseHeader hold a received line to the envelope's rules, which is
// all that an endpoint may refuse an event for. Check and Stream hold events
// to the rules of their payloads and of their order; ValidateReader is all of
// them together, for a file of JSON lines.
package event
