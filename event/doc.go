// Package event speaks AEP 0.1, the Agent Event Protocol: the envelope, the
// drafts that become envelopes, ids, canonical JSON and digests, the type
// registry with its capture levels, validation, and attr-match filters.
//
// It is the bottom of the house: every other package imports it, and it
// imports none of them. It must not do I/O, keep mutable global state, read a
// clock, or know any vendor.
package event
