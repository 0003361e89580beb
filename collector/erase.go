package collector

import (
	"net/http"

	"aep-wrap/event"
)

// erase serves POST /erase: {"session": S, "source": SRC} takes the content out of
// what is held of a session. Ids, types and positions stay, so that whoever
// resumes goes on where it was. It is for this machine's own processes, by the
// socket whose file mode lets them in: no token allows it.
func (c *Collector) erase(w http.ResponseWriter, r *http.Request) {
	if r.Context().Value(trusted{}) == nil {
		c.refuse(w, http.StatusForbidden, problem{Error: "forbidden", Detail: "events are erased by the endpoint's local socket alone"})
		return
	}
	var ask struct {
		Session string `json:"session"`
		Source  string `json:"source"`
	}
	if !c.readLink(w, r, &ask) {
		return
	}
	if ask.Session == "" || ask.Source == "" {
		c.refuse(w, http.StatusBadRequest, problem{Error: "invalid-erase", Detail: "want session and source"})
		return
	}
	reply(w, http.StatusOK, map[string]int{"events": c.hub.erase(ask.Session, ask.Source)})
}

// erase replaces what is held of a session, in its buffer and in what waits for
// consumers. What is about a session without being its own, such as a command,
// is erased with it. It gives how many events there were.
func (h *hub) erase(session, source string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	erased := map[*item]*item{}
	of := func(it *item) *item {
		if it.Session != session || it.Sequenced && it.Source != source {
			return it
		}
		if erased[it] == nil {
			e := event.Erased(it.Header)
			n := newItem(e.Header, e.AppendJSON(nil))
			n.key, n.hash = it.key, it.hash
			erased[it] = n
		}
		return erased[it]
	}
	n := 0
	if b := h.store.sessions[session]; b != nil {
		for i, it := range b.items {
			e := of(it)
			if e == it {
				continue
			}
			n++
			b.items[i] = e
			b.bytes += e.cost() - it.cost()
			h.store.bytes += e.cost() - it.cost()
			if h.store.seen[it.hash] == it {
				h.store.seen[it.hash] = e
			}
		}
	}
	for _, c := range h.consumers {
		for i, it := range c.queue {
			e := of(it)
			c.queue[i] = e
			c.queued += e.cost() - it.cost()
			h.queued += e.cost() - it.cost()
		}
	}
	return n
}
