package session

import (
	"strings"
	"testing"

	"aep-wrap/event"
)

// A runtime whose hooks name no call, and whose log does: each tool is told
// once, whichever is ahead, and what the log says of a call finds its tool.
func TestTwin(t *testing.T) {
	hook := func(typ string, in any) event.Draft { return say(typ, call("Bash", ""), args(in), link("Bash", in)) }
	log := func(id string, in any) event.Draft {
		return say("tool.requested", call("Bash", id), key(id), args(in), link("Bash", in))
	}
	said := func(typ, id string) event.Draft { return say(typ, call("", id), key(id)) }
	for _, tt := range []struct {
		name   string
		drafts []event.Draft
		want   string
	}{
		{"the hook is ahead", []event.Draft{hook("tool.requested", "a"), log("c1", "a"), said("tool.failed", "c1")},
			"tool.requested; tool.failed <- 1"},
		{"the log is ahead", []event.Draft{log("c1", "a"), hook("tool.requested", "a"), hook("tool.completed", "a"), said("tool.completed", "c1")},
			"tool.requested; tool.completed <- 1"},
		{"the log is read when all is over", []event.Draft{hook("tool.requested", "a"), hook("tool.completed", "a"), log("c1", "a"), said("tool.completed", "c1")},
			"tool.requested; tool.completed <- 1"},
		{"the log tells the outcome first", []event.Draft{hook("tool.requested", "a"), log("c1", "a"), said("tool.failed", "c1"), hook("tool.completed", "a"),
			hook("tool.requested", "a"), hook("tool.completed", "a")},
			"tool.requested; tool.failed <- 1; tool.requested; tool.completed <- 3"},
		{"the log is read twice", []event.Draft{hook("tool.requested", "a"), log("c1", "a"), log("c1", "a"), said("tool.failed", "c1"), said("tool.failed", "c1")},
			"tool.requested; tool.failed <- 1"},
		{"the same again: the second is the one that failed", []event.Draft{hook("tool.requested", "a"), hook("tool.completed", "a"), hook("tool.requested", "a"),
			log("c1", "a"), said("tool.completed", "c1"), log("c2", "a"), said("tool.denied", "c2")},
			"tool.requested; tool.completed <- 1; tool.requested; tool.denied <- 3"},
		{"two at once", []event.Draft{hook("tool.requested", "a"), hook("tool.requested", "b"), log("c1", "a"), log("c2", "b"),
			said("tool.denied", "c1"), hook("tool.completed", "b"), said("tool.completed", "c2")},
			"tool.requested; tool.requested; tool.denied <- 1; tool.completed <- 2"},
		{"its input was changed on the way", []event.Draft{hook("tool.requested", "a"), log("c1", "b"), said("tool.failed", "c1")},
			"tool.requested; tool.failed <- 1"},
		{"a tool that no hook told", []event.Draft{log("c1", "a"), said("tool.completed", "c1"), log("c2", "a")},
			"tool.requested; tool.completed <- 1; tool.requested"},
		{"a request about it, by its call", []event.Draft{hook("tool.requested", "a"), log("c1", "a"),
			say("attention.requested", pair("c1"), key("r1"), permission), hook("tool.completed", "a")},
			"tool.requested; attention.requested <- 1; attention.answered <- 2; attention.resolved <- 3; tool.completed <- 1"},
		{"another runtime's second call is one of its own", []event.Draft{say("tool.requested", call("Bash", ""), args("a")), say("tool.requested", call("Bash", "c1"), key("c1"), args("a"))},
			"tool.requested; tool.requested"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := New(Config{Agent: "a", Host: "h", Session: "s", State: NewState()})
			var got []string
			place := map[string]string{}
			n := 0
			for _, d := range tt.drafts {
				for _, b := range s.Bind(t0, []event.Draft{d}) {
					if b.Type == "session.started" {
						continue
					}
					n++
					place[b.ID] = string(rune('0' + n))
					line := b.Type
					if at, ok := place[b.Cause]; ok {
						line += " <- " + at
					}
					got = append(got, line)
				}
			}
			if g := strings.Join(got, "; "); g != tt.want {
				t.Errorf("got  %s\nwant %s", g, tt.want)
			}
		})
	}
}

// A log that is read anew tells nothing again that hooks told an earlier process.
func TestTwinOfAnEarlierProcess(t *testing.T) {
	st := NewState()
	first := New(Config{Agent: "a", Host: "h", Session: "s", State: NewState()})
	hook := func(typ string, n int) event.Draft {
		return say(typ, call("Bash", ""), args("a"), link("Bash", "a"), after(n))
	}
	for _, d := range first.Bind(t0, []event.Draft{hook("tool.requested", 0), hook("tool.completed", 1), hook("tool.requested", 20)}) {
		st.Fold(seal(d))
	}
	s := New(Config{Agent: "a", Host: "h", Session: "s", State: st})
	log := func(typ, id string, n int) event.Draft {
		return say(typ, call("Bash", id), key(id), args("a"), link("Bash", "a"), after(n))
	}
	out := s.Bind(t0, []event.Draft{log("tool.requested", "c1", 0), log("tool.completed", "c1", 1), log("tool.requested", "c2", 20), log("tool.failed", "c2", 21),
		log("tool.requested", "c3", 40)})
	if len(out) != 2 || out[0].Type != "tool.failed" || out[1].Type != "tool.requested" || out[1].Key != "c3" {
		t.Errorf("%+v", out)
	}
}

// What a log tells of an earlier process is no twin of what comes now.
func TestTwinIsOfNow(t *testing.T) {
	in := "a"
	st := NewState()
	first := New(Config{Agent: "a", Host: "h", Session: "s", State: NewState()})
	for _, d := range first.Bind(t0, []event.Draft{say("tool.requested", call("Bash", ""), args(in), link("Bash", in)), say("tool.completed", call("Bash", ""), link("Bash", in))}) {
		st.Fold(seal(d))
	}
	s := New(Config{Agent: "a", Host: "h", Session: "s", State: st})
	out := s.Bind(t0, []event.Draft{say("tool.requested", call("Bash", ""), args(in), link("Bash", in)),
		say("tool.requested", call("Bash", "c1"), key("c1"), args(in), link("Bash", in)), say("tool.denied", call("", "c1"), key("c1"))})
	if len(out) != 2 || out[1].Type != "tool.denied" || out[1].Cause != out[0].ID {
		t.Errorf("%+v", out)
	}
}
