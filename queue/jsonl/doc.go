// Package jsonl is the session log: one file a session, one event a line
// (AEP-0003 §3.1), at {root}/{agent}/{session}.jsonl. The log is written before
// anything else hears of an event, and it is the persistent queue: a sink that
// fell behind, or a restarted wrapper, streams on from it at its last
// acknowledged position. There is no second store.
//
// Files beside a log, of the same name but for the end:
//
//	{session}.jsonl       the log, append only, mode 0600
//	{session}.watched     its last owner only watched the session, and cannot say that it ended
//	{session}.lock        held with flock by the session's one owner, with its pid
//	{session}.{sink}.pos  how far a sink has taken the log in
//	{session}.{sink}.sending  held by who sends the log on for an owner that died
//	{session}.torn        half lines that a crash left at the log's end
//	{session}.want        somebody whose session it is waits for one that watches it
//	{session}.pruned      what is left of a log that was removed: see Removal
//
// The package knows nothing of events but where an envelope keeps its id, its
// position and the like (see Head). It never looks at content.
package jsonl
