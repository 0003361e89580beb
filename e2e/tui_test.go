package e2e

import (
	"slices"
	"strings"
	"testing"

	"aep-wrap/event"

	"github.com/google/go-cmp/cmp"
)

// prompted is the agent at rest: an empty prompt, and the footer that it shows
// while it does nothing.
const prompted = `❯[\s\x{a0}]*(Try "[^\n]*)?\n─+\n\s+(⏸ manual mode on · )?\? for shortcuts`

// ways are bare and wrapped: what a person sees and does is one and the same
// test.
var ways = []string{"bare", "wrapped"}

// launch is the command line that starts the agent in one of the ways.
func launch(t *testing.T, way string) []string {
	t.Helper()
	argv := []string{claude(t), "--session-id", sessionID}
	if way == "wrapped" {
		argv = append([]string{wrapper(t), "--"}, argv...)
	}
	return argv
}

// A whole visit by a person: a question, a permission given, one refused, a
// form filled in, an answer stopped with Esc, and the way out. The person must
// not be able to tell the two apart.
func TestTUI(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			argv := launch(t, way)
			w := newWorld(t)
			p := w.open(argv...)
			// That a person stopped a run stands in the agent's transcript
			// alone, which is written a moment behind: a script that goes on
			// faster than a person must wait for it.
			told := func(typ string, n int) {
				if way == "wrapped" {
					w.told(typ, n)
				}
			}
			p.see(prompted)

			p.enter("one [[script:hello]]")
			p.see("Hello there")

			p.see(prompted)
			p.enter("two [[script:bash1]]")
			p.press("Do you want to proceed", "1")
			p.see("The file is made")

			p.see(prompted)
			p.enter("three [[script:write1]]")
			p.press("Do you want to create", keyEsc)
			p.see("What should Claude do instead|[Rr]ejected")
			told("run.cancelled", 1)

			p.see(prompted)
			p.enter("four [[script:ask]]")
			p.press("Which colour", "2")
			p.see("Which sizes")
			p.keys("1")
			p.see(`\[[^ ]\] Small`)
			p.keys(keyRight) // on to the review of the answers
			p.see("Submit answers")
			p.keys("1")
			p.see("Thanks for the answer")

			p.see(prompted)
			p.enter("five [[script:slowtext]]")
			p.see("slow words")
			p.keys(keyEsc)
			p.see("Interrupted")
			told("run.cancelled", 2)

			p.see(prompted)
			p.enter("/exit")
			if code := p.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			p.restored()
			if way == "wrapped" {
				checkVisit(t, w.events())
			}
		})
	}
}

// runs splits a session by run: the types of each, in order.
func runs(events []event.Event) [][]string {
	var order []string
	byRun := map[string][]string{}
	for _, e := range events {
		if e.Run == "" || event.Category(e.Type) == "x" || event.Category(e.Type) == "progress" {
			continue
		}
		if byRun[e.Run] == nil {
			order = append(order, e.Run)
		}
		byRun[e.Run] = append(byRun[e.Run], e.Type)
	}
	var out [][]string
	for _, r := range order {
		out = append(out, byRun[r])
	}
	return out
}

func checkVisit(t *testing.T, events []event.Event) {
	t.Helper()
	ts := types(events)
	if ts[0] != "session.started" || ts[len(ts)-1] != "session.ended" {
		t.Errorf("the session is not framed: %v", ts)
	}
	rs := runs(events)
	if len(rs) != 5 {
		t.Fatalf("want five runs, have %d: %v", len(rs), rs)
	}
	if d := cmp.Diff([]string{"run.started", "run.finished"}, rs[0]); d != "" {
		t.Errorf("the first run: %s", d)
	}

	// Each request is closed, and before the run is.
	for i, ending := range map[int]string{1: "run.finished", 2: "run.cancelled", 3: "run.finished", 4: "run.cancelled"} {
		r := rs[i]
		if r[0] != "run.started" || !slices.Contains(r, ending) {
			t.Errorf("run %d is not started and %s: %v", i+1, ending, r)
		}
		asked := slices.Index(r, "attention.requested")
		closed := max(slices.Index(r, "attention.resolved"), slices.Index(r, "attention.timeout"))
		if i != 4 && (asked < 0 || closed < asked || closed > slices.Index(r, ending)) {
			t.Errorf("run %d does not ask and close what it asked before it ends: %v", i+1, r)
		}
	}
	if !slices.Contains(rs[1], "tool.completed") {
		t.Errorf("the permitted command did not complete: %v", rs[1])
	}
	if slices.Contains(rs[2], "tool.completed") || slices.Contains(rs[2], "tool.denied") {
		t.Errorf("a file that a person refused was written, or refused by policy: %v", rs[2])
	}

	kinds := []string{}
	for _, e := range events {
		switch e.Type {
		case "attention.requested":
			kinds = append(kinds, data(t, e)["kind"].(string))
			if e.Severity < event.Notice {
				t.Errorf("a request of severity %s", e.Severity)
			}
		case "run.cancelled":
			if by := data(t, e)["by"]; by != "user" {
				t.Errorf("run.cancelled by %v", by)
			}
		}
	}
	if d := cmp.Diff([]string{"permission", "permission", "form"}, kinds); d != "" {
		t.Errorf("kinds of requests: %s", d)
	}
	if n := strings.Count(strings.Join(ts, " "), "run.cancelled"); n != 2 {
		t.Errorf("two runs were cancelled, told %d times", n)
	}
}

// Ctrl-Z gives the shell back, fg the agent, as often as one likes.
func TestTUISuspend(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			argv := launch(t, way)
			w := newWorld(t)
			w.write(".inputrc", "set enable-bracketed-paste off\n")
			w.env = []string{"PS1=shell> ", "INPUTRC=" + w.home() + "/.inputrc"}
			p := w.open("bash", "--norc", "--noprofile", "-i")
			p.see(`shell>\s*$`)
			p.keys(strings.Join(argv, " ") + "\r")
			p.see(prompted)
			for _, round := range []string{"one", "two"} {
				p.keys(keyCtrlZ)
				p.see(`(?s)Stopped.*shell>\s*$`)
				p.keys("clear; echo here-$((20+2))-" + round + "\r")
				p.see("here-22-" + round)
				p.keys("fg\r")
				p.see(prompted)
				p.enter(round + " [[script:hello]]")
				p.see("(?s)" + round + ` \[\[script:hello\]\].*Hello there`)
				p.see(prompted)
			}
			p.enter("/exit")
			p.see(`shell>\s*$`)
			p.keys("echo code-$?-\r")
			p.see("code-0-")
			p.keys("exit\r")
			if code := p.wait(); code != 0 {
				t.Errorf("the shell ended with %d", code)
			}
			p.restored()
			if way == "wrapped" {
				want := []string{"session.started", "run.started", "run.finished", "run.started", "run.finished", "session.ended"}
				if d := cmp.Diff(want, types(w.events())); d != "" {
					t.Errorf("events (- want + got):\n%s", d)
				}
			}
		})
	}
}

// A closed window ends the agent, and the log says so.
func TestTUIHangup(t *testing.T) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			argv := launch(t, way)
			w := newWorld(t)
			p := w.open(argv...)
			p.see(prompted)
			p.enter("one [[script:bash1]]")
			p.see("Do you want to proceed")
			p.hangUp()
			// Newer versions mostly see the end of their input first, and leave with 0.
			if code := p.wait(); code != 129 && code != 0 {
				t.Errorf("exit code %d, want that of a hangup, 129, or of an end of input", code)
			}
			if way == "bare" {
				return
			}
			events := w.events()
			only(t, events, "session.ended")
			only(t, events, "attention.requested")
			r := runs(events)
			if len(r) != 1 || !slices.Contains(r[0], "run.cancelled") && !slices.Contains(r[0], "run.failed") {
				t.Errorf("the open run is not closed: %v", r)
			}
		})
	}
}
