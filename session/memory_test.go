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
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
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
