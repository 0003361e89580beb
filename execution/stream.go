package execution

import (
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

const (
	beat      = 15 * time.Second
	chunk     = 256
	writeTime = 30 * time.Second // how long a reader may take for one chunk
)

// admit makes the checks of a request beside /rpc.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, sc Scope, needs Capability) bool {
	c, bad := s.authenticate(r)
	if bad == nil {
		bad = speaks(r)
	}
	if bad == nil {
		bad = s.session(r, c)
	}
	if bad == nil && needs != "" && !s.offered[needs] {
		bad = unsupported(needs)
	}
	if bad == nil {
		bad = c.may(sc)
	}
	if bad != nil {
		s.refuse(w, bad)
	}
	return bad == nil
}

// refuse answers a request that is no call: the error is the same, and its
// status says that there is nothing else.
func (s *Server) refuse(w http.ResponseWriter, err error) {
	a := s.answer("", nil, err)
	status := codes[a.Error.Code].status
	if status == http.StatusOK {
		status = http.StatusBadRequest
	}
	if reason, _ := a.Error.Data["reason"].(string); reason == "run_not_found" || reason == "artifact_not_found" {
		status = http.StatusNotFound
	}
	s.writeAll(w, status, a)
}

// events streams a run's events: those behind since, then what comes, until
// the run's terminal.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	if !s.admit(w, r, StreamSubscribe, SSE) {
		return
	}
	id := r.PathValue("run_id")
	if err := (runID{id}).check(); err != nil {
		s.refuse(w, err)
		return
	}
	since := r.URL.Query().Get("since")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		since = last // a reconnecting reader's is the later one
	}
	at, err := s.since(id, since)
	if err != nil {
		s.refuse(w, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	out := http.NewResponseController(w)
	send := func(b []byte) bool {
		_ = out.SetWriteDeadline(time.Now().Add(writeTime))
		_, err := w.Write(b)
		return err == nil && out.Flush() == nil
	}
	if !send([]byte(": " + id + "\n\n")) {
		return
	}
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		news := s.live.wait() // before the look, so that nothing falls between
		var lines [][]byte
		var over bool
		err := s.Store.view(func(t tx) error {
			rec, err := t.run(id)
			if err != nil {
				return err
			}
			lines, at = t.eventsAfter(id, at, chunk)
			over = rec.State.Over() && len(lines) < chunk
			return nil
		})
		if err != nil {
			return // erased meanwhile
		}
		var b []byte
		for _, line := range lines {
			b = appendMessage(b, line)
		}
		if len(b) > 0 && !send(b) || over {
			return
		}
		if len(lines) == chunk {
			continue
		}
		select {
		case <-news:
		case <-tick.C:
			if !send([]byte(": beat\n\n")) {
				return
			}
		case <-r.Context().Done():
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// since gives the number after which a stream goes on.
func (s *Server) since(run, since string) (n uint64, err error) {
	err = s.Store.view(func(t tx) error {
		if _, err := t.run(run); err != nil {
			return err
		}
		oldest, newest := t.bounds(run)
		if since == "" {
			return nil
		}
		var ok bool
		if n, ok = eventNumber(since); !ok || n > newest {
			e := fail(InvalidParams, "since: this run has no event %q; without since the stream begins with its first", clip(since))
			e.Data = map[string]any{"reason": "unknown_event"}
			return e
		}
		if n+1 < oldest {
			e := fail(InvalidParams, "since: events behind %s are no longer kept; the oldest is %s", since, eventID(oldest))
			e.Data = map[string]any{"reason": "expired_event", "oldest_event_id": eventID(oldest)}
			return e
		}
		return nil
	})
	return n, err
}

// appendMessage writes an event as a message: JSON has no line breaks of its
// own, and its type and id have none either.
func appendMessage(b, line []byte) []byte {
	var head struct {
		ID   string `json:"event_id"`
		Type string `json:"type"`
	}
	if json.Unmarshal(line, &head) != nil {
		return b
	}
	return fmt.Appendf(b, "id: %s\nevent: %s\ndata: %s\n\n", head.ID, head.Type, line)
}
