package collector

import (
	"net/url"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// Who came with a token that is taken away has to go, and nobody else.
func TestRevokedTokenEndsWhatIsOpen(t *testing.T) {
	s := serve(t, Config{Tokens: []Token{{Value: "old", Roles: Watch | Control}, {Value: "kept", Roles: AllRoles}, {Value: "less", Roles: AllRoles}}})
	old := s.open("access_token=old", nil)
	kept := s.open("access_token=kept", nil)
	less := s.open("access_token=less", nil)
	oldSocket, keptSocket, lessSocket := s.dial("access_token=old", nil), s.dial("access_token=kept", nil), s.dial("access_token=less", nil)
	for _, p := range []*peer{oldSocket, keptSocket, lessSocket} {
		p.greet("consumer")
		p.say(`{"type":"subscribe","id":"1"}`)
		p.wants(`{"type":"subscribed","id":"1"}`)
	}
	s.SetTokens([]Token{{Value: "kept", Roles: AllRoles}, {Value: "less", Roles: Watch}})
	if m := old.next(); !strings.HasPrefix(m.Comment, "unauthorized") {
		t.Errorf("got %+v", m)
	}
	_ = old.ends()
	for _, p := range []*peer{oldSocket, lessSocket} { // a socket keeps what it was let do, so it ends when that is less
		if e := p.hear(); e["type"] != "closing" || e["reason"] != "unauthorized" {
			t.Errorf("got %v", e)
		}
		p.closes(websocket.StatusPolicyViolation)
	}
	a := s.do("POST", "/events", head("Authorization", "Bearer kept", "AEP-Version", "0.1", "Content-Type", "application/x-ndjson"), strings.NewReader(ev("s", 0, 1)))
	if a.status != 202 {
		t.Fatal(a.body)
	}
	for _, st := range []*stream{kept, less} {
		st.data(ev("s", 0, 1))
	}
	if got := keptSocket.line(); got != ev("s", 0, 1) {
		t.Errorf("got %s", got)
	}
}

func TestDepthLimit(t *testing.T) {
	s := serve(t, Config{Limits: Limits{Depth: 20}})
	nested := func(n int) string {
		return ev("s", 0, int64(n), `"data":`+strings.Repeat(`{"a":`, n)+`1`+strings.Repeat("}", n))
	}
	s.post(nested(15))
	a := s.do("POST", "/events", ndjson, strings.NewReader(nested(25)))
	if a.status != 400 || !strings.Contains(a.body, "nested deeper than 20") {
		t.Errorf("%d %s", a.status, a.body)
	}
	p := s.hello("emitter")
	p.say(nested(26))
	if e := p.hear(); e["code"] != "invalid-event" {
		t.Errorf("got %v", e)
	}
}

// What waits for all consumers together is bounded: beyond it they read from
// the buffers, and miss nothing.
func TestQueuesTogetherAreBounded(t *testing.T) {
	h := newHub(Limits{QueuedBytes: 20_000}.withDefaults())
	var all []*consumer
	for range 50 {
		c := &consumer{live: true}
		h.subscribe(c, nil, false, nil)
		all = append(all, c)
	}
	var want []string
	for i := range int64(100) {
		want = append(want, ev("s", 0, i))
		h.publish(itemsOf(t, want[i]))
		if h.queued > 20_000 {
			t.Fatalf("%d bytes wait", h.queued)
		}
	}
	for i, c := range all {
		if got := drainHub(h, c); len(got) != len(want) || got[99] != want[99] {
			t.Fatalf("consumer %d has %d events", i, len(got))
		}
		if i%2 == 0 {
			h.unsubscribe(c)
		}
	}
	h.publish(itemsOf(t, ev("s", 0, 100)))
	for i, c := range all {
		if i%2 == 1 {
			h.unsubscribe(c)
		}
	}
	if h.queued != 0 {
		t.Errorf("%d bytes wait for nobody", h.queued)
	}
}

// A device's token ends with its time, also where it is in use.
func TestExpiredGuests(t *testing.T) {
	s := serve(t, Config{Token: "t"})
	st := s.open("access_token=t&filter="+url.QueryEscape(`{"session":"none"}`), nil)
	s.tokens.Store(&admittance{{}}) // as if its time were over
	s.guests.review(s.allowed)
	if m := st.next(); !strings.HasPrefix(m.Comment, "unauthorized") {
		t.Errorf("got %+v", m)
	}
}
