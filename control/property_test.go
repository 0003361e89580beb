package control

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"aep-wrap/event"
	"aep-wrap/session"
)

// A story is a launch under random commands and moments. Whatever comes in
// whatever order, the stream keeps the protocol's rules (told holds each event
// to them), each command has one ack and redelivery the same bytes, each
// request one decision, each accepted instruction one end.
type story struct {
	*world
	next func(n int) int

	mu    sync.Mutex
	sent  []event.Event
	acks  map[string][]byte
	holds map[string]*asked
	runs  int
}

type asked struct {
	hold  *Hold
	gone  context.CancelFunc
	heard chan []byte
}

func (s *story) pick(list ...string) string { return list[s.next(len(list))] }

// requestID is a request that was once asked, or none.
func (s *story) requestID() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ids := []string{"nothing"}
	for id := range s.holds {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids[s.next(len(ids))]
}

func (s *story) command() event.Event {
	from, name, now := []From{me, you}[s.next(2)], s.pick("a", "a", "b", "c"), s.Now()
	switch s.next(9) {
	case 0, 1, 2:
		a := Answer{Option: s.pick("allow", "deny", "maybe")}
		if s.next(3) == 0 {
			a = Answer{Text: s.pick("allow", "use rg")}
		}
		return from.Respond(now, name, s.requestID(), a, nil, "")
	case 3:
		return from.CancelRun(now, name, s.pick("", "r1", "r2", "r99"), s.pick("", "why"))
	case 4:
		if s.next(4) > 0 {
			return from.Pause(now, name)
		}
		return from.CancelSession(now, name, "")
	case 5:
		return from.Pause(now, name)
	case 6:
		return from.Resume(now, name)
	case 7:
		return from.Instruct(now, Instruct(agent), name, s.pick("one", "two", ""))
	}
	return from.command(now, s.pick("x.demo.control.rewind", "x.acme.control.fly"), name, nil, false)
}

// deliver sends a command, and holds what comes back to what came before.
func (s *story) deliver(c event.Event) {
	r := s.send(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Ack != nil {
		if old := s.acks[c.Source+c.ID]; old != nil && !bytes.Equal(old, r.Ack) {
			s.t.Errorf("another ack for %s\n%s\n%s", c.ID, old, r.Ack)
		}
		s.acks[c.Source+c.ID] = r.Ack
	}
}

func (s *story) step() {
	name := s.pick("a", "a", "b")
	switch s.next(14) {
	case 0, 1, 2, 3:
		c := s.command()
		s.mu.Lock()
		s.sent = append(s.sent, c)
		s.mu.Unlock()
		for range 1 + s.next(2) {
			s.deliver(c)
		}
	case 4:
		s.mu.Lock()
		n := len(s.sent)
		var c event.Event
		if n > 0 {
			c = s.sent[s.next(n)]
		}
		s.mu.Unlock()
		if n > 0 {
			s.deliver(c)
		}
	case 5, 6:
		s.mu.Lock()
		key := fmt.Sprint("k", len(s.holds))
		s.mu.Unlock()
		h, id := s.ask(name, key, time.Duration(1+s.next(60))*time.Second, permission(), nil)
		if id == "" {
			return
		}
		ctx, gone := context.WithCancel(context.Background())
		a := &asked{h, gone, make(chan []byte, 2)}
		go func() { a.heard <- h.Wait(ctx) }()
		s.mu.Lock()
		s.holds[id] = a
		s.mu.Unlock()
	case 7:
		s.mu.Lock()
		s.runs++
		id := fmt.Sprint("r", s.runs%40)
		s.mu.Unlock()
		s.run(name, id)
	case 8:
		s.tell(name, event.Draft{Header: event.Header{Type: s.pick("run.finished", "run.failed", "run.cancelled"), Run: s.pick("", "r1", "r2", "r3")},
			Fields: event.Fields{event.Meta("reason", "x")}})
	case 9:
		for _, e := range s.take() {
			var err error
			if s.next(4) == 0 {
				err = fmt.Errorf("could not")
			}
			s.Done(e, err)
		}
	case 10:
		y := s.Take(name)
		y.Done(s.next(3) > 0)
	case 11:
		s.clock.move(time.Duration(s.next(20)) * time.Second)
	case 12:
		id := s.requestID()
		s.mu.Lock()
		a := s.holds[id]
		s.mu.Unlock()
		if a == nil {
			return
		}
		if s.next(2) == 0 {
			a.gone()
		} else {
			s.tell(name, event.Draft{Header: event.Header{Type: "attention.answered", Subject: id}, Fields: event.Fields{
				event.Meta("answer", event.Fields{event.Meta("option", "deny")}), event.Meta("via", "oob")}})
		}
	case 13:
		s.Holds().Resolve(s.requestID(), s.pick("answered", "dismissed"))
	}
}

// close ends the story, and counts.
func (s *story) close() {
	for _, e := range s.take() {
		s.Done(e, nil)
	}
	for _, name := range []string{"a", "b"} {
		s.exit(name, session.Exit{})
	}
	if p := s.Holds().Pending(); len(p) > 0 {
		s.t.Errorf("still pending: %v", p)
	}
	heard := map[string]bool{}
	for id, a := range s.holds {
		heard[id] = <-a.heard != nil
		a.gone()
	}
	acks, owed := map[string]int{}, map[string]int{}
	accepted := map[string]int{}
	subjects := map[string]string{}
	for _, e := range s.events {
		switch {
		case e.Type == Respond:
			subjects[e.ID] = e.Subject
		case isAck(e.Type):
			acks[e.Cause]++
			if e.Type == "control.accepted" {
				if q, ok := subjects[e.Cause]; ok {
					accepted[q]++
				}
			}
		case strings.HasPrefix(e.Type, "x.demo.instruction."):
			owed[e.Cause]++
		case e.Type == "run.cancelled" && bytes.Contains(e.Data, []byte(`"control"`)) && subjects[e.Cause] == "" && acks[e.Cause] != 1:
			s.t.Errorf("a run cancelled by control cites %q", e.Cause)
		}
	}
	for _, c := range s.sent {
		r := s.send(c)
		switch n := acks[c.ID]; {
		case c.Session == "c":
			if n != 0 || r.Refusal == nil {
				s.t.Errorf("a command to nobody has %d acks, %+v", n, r)
			}
		case n != 1:
			s.t.Errorf("%s has %d acks\n%s", c.Type, n, c.AppendJSON(nil))
		case r.Ack == nil:
			s.t.Errorf("%s has no recorded ack", c.Type)
		}
		if old := s.acks[c.Source+c.ID]; old != nil && !bytes.Equal(old, r.Ack) {
			s.t.Errorf("another ack in the end\n%s\n%s", old, r.Ack)
		}
		if c.Type == Instruct(agent) && bytes.Contains(r.Ack, []byte("control.accepted")) && owed[c.ID] != 1 {
			s.t.Errorf("an instruction has %d ends", owed[c.ID])
		}
	}
	for id, h := range heard {
		if n := accepted[id]; n > 1 || h != (n == 1) {
			s.t.Errorf("request %s: %d answers accepted, heard %v", id, n, h)
		}
	}
}

func newStory(t testing.TB, next func(int) int) *story {
	s := &story{world: newWorld(t), next: next, acks: map[string][]byte{}, holds: map[string]*asked{}}
	s.run("a", "r0")
	s.run("b", "r00")
	return s
}

func TestStories(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 4))
		s := newStory(t, rng.IntN)
		for range 300 {
			s.step()
		}
		s.close()
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// The same, by many at once.
func TestConcurrentStories(t *testing.T) {
	for seed := range uint64(6) {
		s := newStory(t, rand.IntN)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 100 {
					s.step()
				}
			})
		}
		wg.Wait()
		s.close()
		if t.Failed() {
			t.Fatalf("round %d", seed)
		}
	}
}
