package collector

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"aep-wrap/event/eventtest"
)

// The public corpus, by both bindings: what fails the envelope is refused, and
// its neighbours in the batch with it; what fails its type's schema, or only
// together with other events, is taken in and reported.
func TestCorpus(t *testing.T) {
	var file struct {
		Cases []struct {
			Name, Rule string
			Event      json.RawMessage
			Events     []json.RawMessage
		}
	}
	eventtest.JSON(t, &file, "fixtures", "invalid", "cases.json")
	if len(file.Cases) == 0 {
		t.Fatal("no cases")
	}
	for _, c := range file.Cases {
		t.Run(c.Name, func(t *testing.T) {
			s := serve(t, Config{})
			lines := c.Events
			envelope := c.Event != nil && !strings.Contains(c.Rule, "payload schema") && !strings.Contains(c.Rule, "field_spec")
			if c.Event != nil {
				lines = []json.RawMessage{c.Event}
			}
			var body bytes.Buffer
			taken := 0
			for _, l := range lines {
				var e struct{ Type string }
				_ = json.Unmarshal(l, &e)
				if c.Event == nil && isCommand(e.Type) {
					continue // refused for what it is
				}
				_ = json.Compact(&body, l)
				body.WriteByte('\n')
				taken++
			}
			text := body.String()
			em := s.hello("emitter")
			if envelope {
				a := s.do("POST", "/events", ndjson, strings.NewReader(ev("s", 0, 0)+"\n"+text))
				var p problem
				_ = json.Unmarshal([]byte(a.body), &p)
				if a.status != http.StatusBadRequest || p.Error != "invalid-event" || p.Line != 2 || p.Rule == "" || p.Detail == "" {
					t.Errorf("POST: %d %s", a.status, a.body)
				}
				em.say(strings.TrimSpace(text))
				if c.Name == "single-segment type" {
					em.barrier() // on the socket it is a frame of a type that nobody knows
				} else {
					em.barrier(`{"type":"error","code":"invalid-event"}`)
				}
				if s.hub.store.events != 0 {
					t.Error("something was taken in")
				}
				return
			}
			for l := range strings.Lines(text) {
				em.say(strings.TrimSpace(l))
			}
			em.barrier()
			if a := s.do("POST", "/events", ndjson, strings.NewReader(text)); a.status != http.StatusAccepted {
				t.Errorf("POST: %d %s", a.status, a.body)
			}
			if got := s.hub.counts.received.Load(); got != int64(2*taken) {
				t.Errorf("%d were taken in, of %d", got, 2*taken)
			}
		})
	}
	t.Run("golden", func(t *testing.T) {
		s := serve(t, Config{Token: "t"}).as("t")
		em, watch := s.hello("emitter"), s.hello("consumer")
		watch.say(`{"type":"subscribe","id":"a"}`)
		watch.wants(`{"type":"subscribed","id":"a"}`)
		for _, l := range eventtest.Lines(t, "fixtures", "golden", "golden.jsonl") {
			em.say(string(l))
			var e struct{ ID, Type string }
			_ = json.Unmarshal(l, &e)
			if isCommand(e.Type) {
				em.barrier(`{"type":"error","code":"unsupported"}`)
				continue
			}
			em.barrier()
			if got := watch.line(); got != string(l) {
				t.Errorf("got  %s\nwant %s", got, l)
			}
		}
	})
}
