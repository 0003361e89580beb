// Package redaction is the privacy promise of the protocol, kept in one place.
//
// A Pipeline takes secrets, operator-listed values, home paths and personal
// data out of text (AEP-0003 §9.4), in that order. A Gate seals a draft into
// an event: it applies the capture ceiling, writes digests of the originals,
// synthesises the structural forms, and runs the pipeline over every free
// text. Downlevel lowers an event at a hop, which knows nothing but the
// registry.
//
// It is the only place where capture levels are compared and the only one
// that decides what a secret is. It must not do I/O beyond the reader and the
// writer that Filter is given, must not know a vendor's payloads, and must
// never put a value that it hid into an error, a log or a finding.
//
// How a secret is told apart: by its own shape (vendor prefixes, PEM, JWT), or
// by where it stands (a name, a separator and a value; a header; a URL's user
// part; a command's option). Names are split into words and judged by their
// last ones, values by their form, so that max_tokens=4096, getToken(),
// ${PASSWORD} and "the token expired" stay whole without a list of them.
// Everything is one pass of an Aho-Corasick automaton whose hits are checked
// by bounded, hand-written scanners: linear in the input, and cheap where
// nothing is found.
package redaction
