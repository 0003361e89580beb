package e2e

import (
	"bufio"
	"encoding/json"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"aep-wrap/event"
)

// editor is an editor that has started an agent by the Agent Client Protocol:
// it says what its script says, and chooses a permission's option, or leaves
// its dialog open.
type editor struct {
	t      *testing.T
	in     io.WriteCloser
	choose string // the kind of option; "" leaves the dialog open
	heard  chan map[string]any
	notes  []string
}

func (e *editor) say(m map[string]any) {
	e.t.Helper()
	m["jsonrpc"] = "2.0"
	b, err := json.Marshal(m)
	if err != nil {
		e.t.Fatal(err)
	}
	if _, err := e.in.Write(append(b, '\n')); err != nil {
		e.t.Fatal(err)
	}
}

// call waits for the result of a request, answering what the agent asks
// meanwhile.
func (e *editor) call(id int, method string, params any) map[string]any {
	e.t.Helper()
	e.say(map[string]any{"id": id, "method": method, "params": params})
	timeout := time.After(2 * patience)
	for {
		select {
		case m, ok := <-e.heard:
			if !ok {
				e.t.Fatalf("the agent has ended without an answer to %s", method)
			}
			if m["method"] == nil && m["id"] == float64(id) {
				result, ok := m["result"].(map[string]any)
				if !ok {
					e.t.Fatalf("%s: %v", method, m)
				}
				return result
			}
			e.asked(m)
		case <-timeout:
			e.t.Fatalf("no answer to %s", method)
		}
	}
}

func (e *editor) asked(m map[string]any) {
	e.t.Helper()
	method, _ := m["method"].(string)
	switch {
	case m["id"] == nil:
		e.notes = append(e.notes, method)
	case method != "session/request_permission":
		e.say(map[string]any{"id": m["id"], "error": map[string]any{"code": -32601, "message": "not here"}})
	case e.choose != "":
		params, _ := m["params"].(map[string]any)
		options, _ := params["options"].([]any)
		for _, o := range options {
			if o, _ := o.(map[string]any); o["kind"] == e.choose {
				e.say(map[string]any{"id": m["id"], "result": map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": o["optionId"]}}})
				return
			}
		}
		e.t.Errorf("no option of kind %s: %v", e.choose, options)
	}
}

// An editor, the tee and a real agent: the editor allows a command, or it is
// refused from afar while the editor's dialog is open.
func TestACP(t *testing.T) {
	for _, a := range agentCases {
		args, ok := map[string][]string{"copilot": {"--acp"}, "kimi": {"acp"}}[a.program.command]
		if !ok {
			continue
		}
		for _, way := range []string{"editor", "afar"} {
			t.Run(a.program.command+"/"+way, func(t *testing.T) {
				path := a.program.path(t)
				w := makeWorld(t, a.program, a.files)
				w.env = a.env(w)
				stop := func() {}
				words := []string{"acp"}
				e := &editor{t: t, choose: "allow_once", heard: make(chan map[string]any, 1024)}
				if way == "afar" {
					stop = w.collect()
					words, e.choose = append(words, "--answer"), ""
				}
				cmd := exec.Command(wrapper(t), append(append(words, "--", path), args...)...)
				cmd.Dir, cmd.Env = w.dir(), w.environ()
				var err error
				if e.in, err = cmd.StdinPipe(); err != nil {
					t.Fatal(err)
				}
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				go func() {
					defer close(e.heard)
					r := bufio.NewReader(out)
					for {
						line, err := r.ReadBytes('\n')
						var m map[string]any
						if json.Unmarshal(line, &m) == nil {
							e.heard <- m
						}
						if err != nil {
							return
						}
					}
				}()
				e.call(1, "initialize", map[string]any{"protocolVersion": 1, "clientCapabilities": map[string]any{"fs": map[string]any{"readTextFile": false, "writeTextFile": false}}})
				opened := e.call(2, "session/new", map[string]any{"cwd": w.dir(), "mcpServers": []any{}})
				answered := make(chan struct{})
				go func() {
					defer close(answered)
					if way == "afar" {
						(&stage{world: w}).respondBy("reject")
					}
				}()
				result := e.call(3, "session/prompt", map[string]any{"sessionId": opened["sessionId"], "prompt": []any{map[string]any{"type": "text", "text": "go [[script:bash1]]"}}})
				<-answered
				if result["stopReason"] != "end_turn" {
					t.Errorf("%v", result)
				}
				e.in.Close()
				for range e.heard { // to the end of its output
				}
				if err := cmd.Wait(); err != nil {
					t.Errorf("the agent ended with %v", err)
				}
				stop()
				events := w.events()
				got := slices.DeleteFunc(types(events), func(typ string) bool { return event.Category(typ) == "control" })
				outcome := "tool.completed"
				if way == "afar" {
					outcome = "tool.failed"
					if !slices.Contains(e.notes, "$/cancel_request") {
						t.Errorf("the editor was not told: %s", strings.Join(e.notes, " "))
					}
				}
				want := []string{"session.started", "run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", outcome, "run.finished", "session.ended"}
				if d := cmp.Diff(want, got); d != "" {
					t.Errorf("events (- want + got):\n%s", d)
				}
			})
		}
	}
}

// respondBy answers the request that waits with the first option whose id
// holds a word.
func (s *stage) respondBy(word string) {
	s.eventually("a request that can be answered", func() bool {
		for line := range strings.Lines(s.run(wrapper(s.world.t), "pending", "--json").stdout) {
			var p struct {
				ID, Session string
				Answerable  bool
				Options     []struct{ ID string }
			}
			if json.Unmarshal([]byte(line), &p) != nil || !p.Answerable {
				continue
			}
			for _, o := range p.Options {
				if strings.Contains(o.ID, word) {
					s.command("respond", p.Session, p.ID, "--option", o.ID)
					return true
				}
			}
		}
		return false
	})
}
