package queue

import (
	"bytes"
	"errors"
	"io"

	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
)

var errShort = errors.New("it ends before the events that were written to it")

// readItems reads the events between two offsets of a log, within the bounds;
// one event always fits. It gives the offset that it reached, and how many
// lines it passed over because they are no events. Lines about a session by
// others (commands) are not the session's to send.
func readItems(path string, off, end int64, maxEvents int, maxBytes int64) (items []Item, reached int64, passed int, err error) {
	r, err := jsonl.OpenReader(path, off)
	if err != nil {
		return nil, off, 0, err
	}
	defer r.Close()
	reached = off
	for reached < end && len(items) < max(maxEvents, 1) {
		line, ref, err := r.Next()
		if errors.Is(err, jsonl.ErrLong) {
			reached = ref.End()
			passed++
			continue
		}
		if errors.Is(err, io.EOF) {
			return items, reached, passed, errShort
		}
		if err != nil {
			return items, reached, passed, err
		}
		if len(items) > 0 && int64(ref.Len) > maxBytes {
			break
		}
		h, ok := jsonl.ReadHead(line)
		reached = ref.End()
		switch {
		case !ok:
			passed++
			continue
		case h.Foreign():
			continue
		}
		severity := event.Info
		if h.Severity != "" {
			if s, err := event.ParseSeverity(h.Severity); err == nil {
				severity = s
			}
		}
		maxBytes -= int64(ref.Len)
		items = append(items, Item{
			ID: h.ID, Severity: severity, Sequenced: h.Sequenced,
			Position: event.Position{Epoch: h.Epoch, Seq: h.Seq}, Line: bytes.Clone(line), Log: ref,
		})
	}
	return items, reached, passed, nil
}
