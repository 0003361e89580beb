package session

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"aep-wrap/event"
)

// What a session remembers of a payload is no more than its own words: not the
// payload in which they stood.
func TestRemembersNoPayloads(t *testing.T) {
	const payload, tools = 1800, 1000 // a tree of so short a text shares one copy of it
	s := New(Config{Agent: "a", Host: "h", Session: "s", State: NewState()})
	at := time.Now()
	before := heap()
	for n := range tools {
		tree, err := event.ParseObject(fmt.Appendf(nil, `{"run":"r","call":"call-%d","tool":"Bash","text":%q}`, n, strings.Repeat("x", payload)))
		if err != nil {
			t.Fatal(err)
		}
		word := func(name string) string { return tree[name].(string) }
		for _, typ := range []string{"tool.requested", "tool.completed"} {
			s.Bind(at, []event.Draft{{Header: event.Header{Type: typ, Run: word("run"), Time: at}, Key: word("call"), Pair: word("call"),
				Fields: event.Fields{event.Meta("tool", event.Fields{event.Meta("name", word("tool")), event.Meta("call_id", word("call"))})}}})
		}
	}
	if grown := int64(heap()) - int64(before); grown > tools*payload/2 {
		t.Errorf("%d tools with payloads of %d bytes left %d bytes", tools, payload, grown)
	}
	runtime.KeepAlive(s)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// toolCalls binds n calls of a tool, from a first number on, and gives how many
// events they made.
func toolCalls(s *Session, from, n int) (told int) {
	at := time.Now()
	for i := from; i < from+n; i++ {
		call := fmt.Sprintf("call-%d", i)
		for _, typ := range []string{"tool.requested", "tool.completed"} {
			told += len(s.Bind(at, []event.Draft{{Header: event.Header{Type: typ, Time: at}, Key: call,
				Fields: event.Fields{event.Meta("tool", event.Fields{event.Meta("name", "Bash"), event.Meta("call_id", call)})}}}))
		}
	}
	return told
}

// Sessions of one memory cost what it holds, however many events each tells,
// and each knows what it told itself and only that.
func TestSessionsShareAMemory(t *testing.T) {
	const sessions, calls, ids = 40, 1000, 1 << 12
	m := NewMemory(ids)
	all := make([]*Session, sessions)
	for i := range all {
		all[i] = New(Config{Agent: "a", Host: "h", Session: fmt.Sprint(i), State: m.NewState()})
		toolCalls(all[i], 0, 2*pastMax) // what each has to itself is full
		all[i].State().Rest()
	}
	before := heap()
	for range 3 {
		for i, s := range all {
			toolCalls(s, 2*pastMax, calls)
			if again := toolCalls(s, 2*pastMax+calls-100, 100); again != 0 {
				t.Fatalf("session %d: %d events were told twice", i, again)
			}
			s.State().Rest()
		}
	}
	if grown := int64(heap()) - int64(before); grown > 1<<20 {
		t.Errorf("%d sessions of %d calls left %d KiB", sessions, 3*calls, grown>>10)
	}
	if n := m.len(); n > 2*ids {
		t.Errorf("the memory holds %d ids", n)
	}
	// A session that begins anew knows what its log says, and nothing of what
	// was bound and never written.
	anew := New(Config{Agent: "a", Host: "h", Session: "39", State: m.NewState()})
	if n := toolCalls(anew, 2*pastMax+calls-100, 100); n < 200 {
		t.Errorf("a session that began anew told %d events of 200", n)
	}
	runtime.KeepAlive(all)
}

// Who rests is small, and knows again what it told.
func TestRestingSessions(t *testing.T) {
	const sessions = 200
	m := NewMemory(1 << 12)
	toolCalls(New(Config{Agent: "a", Host: "h", Session: "w", State: m.NewState()}), 0, 1<<13) // it is full
	all := make([]*Session, sessions)
	before := heap()
	for i := range all {
		all[i] = New(Config{Agent: "a", Host: "h", Session: fmt.Sprint(i), State: m.NewState()})
		toolCalls(all[i], 0, pastMax)
		all[i].State().Rest()
		if n := toolCalls(all[i], 0, pastMax); n != 0 {
			t.Fatalf("%d events were told twice", n)
		}
	}
	each := (int64(heap()) - int64(before)) / sessions
	t.Logf("a session that rests takes %d bytes", each)
	if each > 4<<10 {
		t.Errorf("a session that rests takes %d bytes", each)
	}
	runtime.KeepAlive(all)
}
