// Package client is the consumer's side of an AEP endpoint's /stream: it reads
// Server-Sent Events, reconnects, resumes where it was, and gives each event
// once. It must not interpret an event beyond its header, nor keep it.
package client
