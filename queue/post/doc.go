// Package post sends events to a collector over HTTP (AEP-0003 §3.2): batches
// of lines, in each session's order, at least once, with the bytes that were
// logged.
//
// What the other side answers decides: taken in (2xx), wait and send the same
// again (429, 5xx, no answer), send it in smaller parts (413), find the line
// that it will not have (400), or stop, because asking again cannot help (401,
// 403, 426). An event that is given up is counted and told; nothing else is
// ever lost, for the log keeps it.
package post
