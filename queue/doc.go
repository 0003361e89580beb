// Package queue carries events from the session logs to the network sinks.
//
// The log is the queue: an event is logged first, and a sink that falls behind
// reads on from the log at its own pace. What a Feed holds in memory is a
// window of recent lines and, for each session, the stretch of log that is
// still to be read. So memory is bounded whatever the outage, and nothing is
// shed that a log holds.
//
// Events that no log holds (it is full, missing, or cannot be written) are
// kept in a second, bounded window. When that is full, the oldest debug events
// go first, then the oldest info (AEP-0003 §8.4); notice and above have as
// much room again, and are never given up silently: every loss is counted by
// session, severity and reason, for the stream and for metrics.
//
// The package never looks into an event's data, and it never changes a line:
// the bytes that were logged are the bytes that are sent.
package queue
