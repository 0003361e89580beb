package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"aep-wrap/adapters"
	"aep-wrap/adapters/acp"
	"aep-wrap/control"
	"aep-wrap/event"
	"aep-wrap/redaction"
	"aep-wrap/session"
)

// acpWorld is an editor and an agent with a tee between them; the test is both.
type acpWorld struct {
	t      *testing.T
	acp    *ACP
	road   *Road
	basket *basket
	target *control.Dispatcher

	editorIn  *os.File // what the editor writes
	editorOut *os.File // and reads
	agentIn   *os.File // what the agent reads
	agentOut  *os.File // and writes

	fromAgent, fromEditor *bufio.Reader
	finish                func()
}

func newACPWorld(t *testing.T, answer bool) *acpWorld {
	t.Helper()
	w := &acpWorld{t: t, basket: &basket{}}
	w.target = control.New(control.Config{
		Vendor: "acp", Accepts: []string{control.Respond, control.Cancel},
		Clock: control.Clock{Now: time.Now, After: func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }},
		Emit:  func(s string, c []byte, d []event.Draft) error { return w.road.Control(s, c, d) },
		Do:    func(control.Effect) {},
	})
	w.road = NewRoad(RoadConfig{
		Adapter: acp.Adapter(), Agent: "an-agent", Host: "h", Session: "launch", Start: time.Now(), LogDir: t.TempDir(),
		Gate:  redaction.NewGate(redaction.DefaultPolicy(), redaction.NewPipeline(redaction.Options{})),
		Sinks: []Sink{w.basket}, Control: w.target, Patience: Patience{Both: time.Minute},
	})
	w.acp = &ACP{Road: w.road, Reply: acp.Adapter().Reply, Session: "launch", Answer: answer}
	file := func(fd int) *os.File {
		_ = unix.SetNonblock(fd, true)
		return os.NewFile(uintptr(fd), "pipe")
	}
	in, editorIn, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	editorOut, out, err := pipe()
	if err != nil {
		t.Fatal(err)
	}
	spec := Spec{Stdin: os.NewFile(uintptr(in), "in"), Stdout: os.NewFile(uintptr(out), "out")}
	stdin, stdout := spec.Stdin, spec.Stdout // alive: a file that is collected closes its descriptor
	if err := w.acp.Pipe(&spec); err != nil {
		t.Fatal(err)
	}
	agentIn, err := unix.Dup(fdOf(spec.Stdin))
	if err != nil {
		t.Fatal(err)
	}
	agentOut, err := unix.Dup(fdOf(spec.Stdout))
	if err != nil {
		t.Fatal(err)
	}
	w.editorIn, w.editorOut, w.agentIn, w.agentOut = file(editorIn), file(editorOut), file(agentIn), file(agentOut)
	w.fromAgent, w.fromEditor = bufio.NewReader(w.editorOut), bufio.NewReader(w.agentIn)
	w.acp.Run(&spec)
	w.finish = sync.OnceFunc(w.acp.Finish)
	t.Cleanup(func() {
		w.editorIn.Close()
		w.agentOut.Close()
		w.agentIn.Close()
		w.finish()
		<-w.acp.inOver
		stdin.Close()
		stdout.Close()
		w.editorOut.Close()
	})
	return w
}

func (w *acpWorld) agent(lines ...string) {
	w.t.Helper()
	w.says(w.agentOut, lines)
}
func (w *acpWorld) editor(lines ...string) {
	w.t.Helper()
	w.says(w.editorIn, lines)
}
func (w *acpWorld) says(f *os.File, lines []string) {
	w.t.Helper()
	for _, l := range lines {
		if _, err := f.WriteString(l + "\n"); err != nil {
			w.t.Fatal(err)
		}
	}
}

// hears reads the next line; "" where none comes for a while.
func (w *acpWorld) hears(f *os.File, r *bufio.Reader, patience time.Duration) string {
	w.t.Helper()
	_ = f.SetReadDeadline(time.Now().Add(patience))
	line, err := r.ReadString('\n')
	if err != nil && !os.IsTimeout(err) && err != io.EOF {
		w.t.Fatal(err)
	}
	return strings.TrimSuffix(line, "\n")
}
func (w *acpWorld) agentHears(want string) {
	w.t.Helper()
	if got := w.hears(w.agentIn, w.fromEditor, patience); got != want {
		w.t.Fatalf("the agent hears %s\nwant %s", got, want)
	}
}
func (w *acpWorld) editorHears(want string) {
	w.t.Helper()
	if got := w.hears(w.editorOut, w.fromAgent, patience); got != want {
		w.t.Fatalf("the editor hears %s\nwant %s", got, want)
	}
}

// events are what was told so far.
func (w *acpWorld) events() (out []event.Event) {
	w.basket.mu.Lock()
	defer w.basket.mu.Unlock()
	for _, it := range w.basket.items {
		e, err := event.Parse(it.Line)
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, e)
	}
	return out
}

// told waits until an event of a type was told, and gives it.
func (w *acpWorld) told(typ string) event.Event {
	w.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		for _, e := range w.events() {
			if e.Type == typ {
				return e
			}
		}
	}
	w.t.Fatalf("no %s was told: %s", typ, w.types())
	return event.Event{}
}

func (w *acpWorld) types() string {
	var s []string
	for _, e := range w.events() {
		s = append(s, e.Type)
	}
	return strings.Join(s, " ")
}

const (
	acpNew     = `{"jsonrpc":"2.0","id":1,"method":"session/new","params":{"cwd":"/p"}}`
	acpNewIs   = `{"jsonrpc":"2.0","id":1,"result":{"sessionId":"s"}}`
	acpPrompt  = `{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"text","text":"go"}]}}`
	acpCallOf  = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call","toolCallId":"t1","title":"ls","kind":"execute","status":"pending","rawInput":{"command":"ls"}}}}`
	acpOptions = `"options":[{"optionId":"yes","name":"Allow","kind":"allow_once"},{"optionId":"no","name":"Deny","kind":"reject_once"}]`
	acpAsk     = `{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t1","title":"ls","rawInput":{"commands":["ls"]}},` + acpOptions + `}}`
	acpYes     = `{"jsonrpc":"2.0","id":0,"result":{"outcome":{"outcome":"selected","optionId":"yes"}}}`
	acpDone    = `{"jsonrpc":"2.0","id":2,"result":{"stopReason":"end_turn"}}`
)

// asked brings both to where the agent waits for a permission.
func (w *acpWorld) asked() event.Event {
	w.t.Helper()
	w.editor(acpNew)
	w.agentHears(acpNew)
	w.agent(acpNewIs)
	w.editorHears(acpNewIs)
	w.editor(acpPrompt)
	w.agentHears(acpPrompt)
	w.agent(acpCallOf, acpAsk)
	w.editorHears(acpCallOf)
	w.editorHears(acpAsk)
	return w.told("attention.requested")
}

func (w *acpWorld) respond(request event.Event, option string) {
	w.t.Helper()
	from := control.NewFrom("h", "someone")
	cmd := from.Respond(time.Now(), "s", request.ID, control.Answer{Option: option}, nil, event.Digest(map[string]any{"command": "ls"}))
	if r := w.target.Handle(control.Origin{Authenticated: true}, cmd.AppendJSON(nil)); r.Refusal != nil {
		w.t.Fatalf("%+v", r.Refusal)
	}
}

// Whatever goes over the wire comes out as it went in, in both directions, each
// with its end.
func TestACPBytes(t *testing.T) {
	for _, answer := range []bool{false, true} {
		t.Run(fmt.Sprintf("answer=%v", answer), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(1, 2))
			stream := func() []byte {
				var b bytes.Buffer
				for b.Len() < 300<<10 {
					switch rnd.IntN(6) {
					case 0:
						b.WriteString(acpAsk + "\n")
					case 1:
						b.WriteString(acpYes + "\r\n")
					case 2:
						b.WriteString("no JSON at all\n\n")
					case 3:
						b.WriteString(`{"jsonrpc":"2.0","method":"x","params":"` + strings.Repeat("y", rnd.IntN(100<<10)) + "\"}\n")
					case 4:
						for range rnd.IntN(300) {
							b.WriteByte(byte(rnd.IntN(256)))
						}
					case 5:
						fmt.Fprintf(&b, `{"jsonrpc":"2.0","id":%d,"result":{}}`, rnd.IntN(4))
					}
				}
				return b.Bytes()
			}
			w := newACPWorld(t, answer)
			var all sync.WaitGroup
			one := func(in, out *os.File) {
				want := stream()
				all.Go(func() {
					for b := want; len(b) > 0; {
						n := min(len(b), 1+rand.IntN(20<<10))
						if _, err := in.Write(b[:n]); err != nil {
							t.Error(err)
							return
						}
						b = b[n:]
					}
					in.Close()
				})
				all.Go(func() {
					got, err := io.ReadAll(out)
					if err != nil || !bytes.Equal(got, want) {
						t.Errorf("%d bytes came of %d, or others (%v)", len(got), len(want), err)
					}
				})
			}
			one(w.editorIn, w.agentIn)
			// The agent's end of its output is also its process's, which the
			// tee's Run has closed: this is the last one.
			one(w.agentOut, w.editorOut)
			all.Wait()
		})
	}
}

// A byte is passed on without waiting for the message's end.
func TestACPDelaysNothing(t *testing.T) {
	for _, answer := range []bool{false, true} {
		w := newACPWorld(t, answer)
		for _, s := range []struct {
			in, out *os.File
		}{{w.editorIn, w.agentIn}, {w.agentOut, w.editorOut}} {
			for _, piece := range []string{`{"jsonrpc"`, `:"2.0"`, `,"id":7`} {
				if _, err := s.in.WriteString(piece); err != nil {
					t.Fatal(err)
				}
				_ = s.out.SetReadDeadline(time.Now().Add(patience))
				buf := make([]byte, 64)
				n, err := s.out.Read(buf)
				if err != nil || string(buf[:n]) != piece {
					t.Fatalf("%q: %q, %v", piece, buf[:n], err)
				}
			}
		}
	}
}

func TestACPTells(t *testing.T) {
	w := newACPWorld(t, false)
	w.editor(`{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":1}}`, `not json`, `[{"jsonrpc":"2.0"}]`)
	for range 3 {
		w.hears(w.agentIn, w.fromEditor, patience)
	}
	w.agent(`{"jsonrpc":"2.0","id":"init","result":{}}`)
	w.editorHears(`{"jsonrpc":"2.0","id":"init","result":{}}`)
	request := w.asked()
	var data map[string]any
	if err := json.Unmarshal(request.Data, &data); err != nil {
		t.Fatal(err)
	}
	if data["options_count"] != 2.0 || data["options"] != nil || data["respond_via"] != nil {
		t.Errorf("a request that is only watched: %s", request.Data)
	}
	w.editor(acpYes)
	w.agentHears(acpYes)
	w.agent(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"tool_call_update","toolCallId":"t1","status":"completed"}}}`, acpDone)
	w.told("run.finished")
	var got []string
	run := w.told("run.started").Run
	for _, e := range w.events() {
		if e.Session != "s" {
			t.Errorf("%s is of session %q", e.Type, e.Session)
		}
		switch event.Category(e.Type) {
		case "run", "tool", "attention":
			if e.Run != run || run == "" {
				t.Errorf("%s is of run %q", e.Type, e.Run)
			}
		}
		got = append(got, e.Type)
	}
	want := "session.started x.acp.initialize.event x.aep-wrap.input.refused x.aep-wrap.input.refused x.acp.session.new run.started tool.requested attention.requested attention.answered attention.resolved tool.completed run.finished"
	if s := strings.Join(got, " "); !sameWords(s, want) {
		t.Errorf("got  %s\nwant %s", s, want)
	}
	exit(t, w.road)
}

// sameWords compares two lists whose first words, of the time before the
// session, may stand in another order.
func sameWords(a, b string) bool {
	count := func(s string) map[string]int {
		m := map[string]int{}
		for _, w := range strings.Fields(s) {
			m[w]++
		}
		return m
	}
	x, y := count(a), count(b)
	for w, n := range y {
		if x[w] != n {
			return false
		}
	}
	return len(x) == len(y)
}

const acpWithdrawn = `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":0}}`

func TestACPAnswerFromAfar(t *testing.T) {
	w := newACPWorld(t, true)
	request := w.asked()
	var data map[string]any
	if err := json.Unmarshal(request.Data, &data); err != nil || fmt.Sprint(data["respond_via"]) != "[control]" || data["options"] == nil {
		t.Errorf("%s", request.Data)
	}
	w.respond(request, "no")
	w.agentHears(`{"jsonrpc":"2.0","id":0,"result":{"outcome":{"optionId":"no","outcome":"selected"}}}`)
	w.editorHears(acpWithdrawn)
	// What the editor still says to it is not for the agent.
	w.editor(acpYes, `{"jsonrpc":"2.0","method":"later"}`)
	w.agentHears(`{"jsonrpc":"2.0","method":"later"}`)
	answered, resolved := w.told("attention.answered"), w.told("attention.resolved")
	if answered.Subject != request.ID || resolved.Subject != request.ID || !bytes.Contains(answered.Data, []byte(`"via":"control"`)) || !bytes.Contains(resolved.Data, []byte(`"answered"`)) {
		t.Errorf("%s %s", answered.Data, resolved.Data)
	}
	// A second answer comes too late, and a message in pieces passes in pieces again.
	w.respond(request, "yes")
	w.told("control.rejected")
	if _, err := w.editorIn.WriteString(`{"half`); err != nil {
		t.Fatal(err)
	}
	_ = w.agentIn.SetReadDeadline(time.Now().Add(patience))
	if b, err := w.fromEditor.Peek(6); err != nil || string(b) != `{"half` {
		t.Errorf("%q, %v", b, err)
	}
}

// An editor that withdraws with an error is kept from the agent, too.
func TestACPLateError(t *testing.T) {
	w := newACPWorld(t, true)
	w.respond(w.asked(), "yes")
	w.agentHears(`{"jsonrpc":"2.0","id":0,"result":{"outcome":{"optionId":"yes","outcome":"selected"}}}`)
	w.editorHears(acpWithdrawn)
	w.editor(`{"jsonrpc":"2.0","id":0,"error":{"code":-32800,"message":"Request cancelled"}}`, acpNew)
	w.agentHears(acpNew)
}

// An answer to other arguments than those that the agent asks about is refused.
func TestACPBound(t *testing.T) {
	w := newACPWorld(t, true)
	request := w.asked()
	cmd := control.NewFrom("h", "someone").Respond(time.Now(), "s", request.ID, control.Answer{Option: "yes"}, nil, event.Digest("rm -rf"))
	w.target.Handle(control.Origin{Authenticated: true}, cmd.AppendJSON(nil))
	w.told("control.rejected")
	w.editor(acpYes)
	w.agentHears(acpYes)
}

func TestACPEditorIsFirst(t *testing.T) {
	w := newACPWorld(t, true)
	request := w.asked()
	w.editor(acpYes)
	w.agentHears(acpYes)
	w.told("attention.answered")
	w.respond(request, "no")
	w.told("control.rejected")
	w.agent(acpDone)
	w.editorHears(acpDone) // and no word about the request
	if got := w.hears(w.agentIn, w.fromEditor, 100*time.Millisecond); got != "" {
		t.Errorf("the agent hears %s", got)
	}
}

// An answer from afar does not go into a message of the editor's; where that
// message is the editor's answer, the editor was first.
func TestACPBetweenMessages(t *testing.T) {
	for _, tt := range []struct{ name, message, agent string }{
		{"another message", `{"jsonrpc":"2.0","method":"other"}`, `{"jsonrpc":"2.0","id":0,"result":{"outcome":{"optionId":"no","outcome":"selected"}}}`},
		{"its answer", acpYes, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newACPWorld(t, true)
			request := w.asked()
			half := len(tt.message) / 2
			if _, err := w.editorIn.WriteString(tt.message[:half]); err != nil {
				t.Fatal(err)
			}
			_ = w.agentIn.SetReadDeadline(time.Now().Add(patience))
			if _, err := w.fromEditor.Peek(half); err != nil {
				t.Fatal(err)
			}
			w.respond(request, "no")
			w.told("control.accepted")
			time.Sleep(20 * time.Millisecond)
			w.editor(tt.message[half:])
			w.agentHears(tt.message)
			wait := patience
			if tt.agent == "" {
				wait = 200 * time.Millisecond
			}
			if got := w.hears(w.agentIn, w.fromEditor, wait); got != tt.agent {
				t.Errorf("then the agent hears %s\nwant %s", got, tt.agent)
			}
		})
	}
}

// However close the two are: the agent hears one answer to each request.
func TestACPOneAnswer(t *testing.T) {
	w := newACPWorld(t, true)
	w.asked()
	const n = 60
	var heard sync.Map
	const last = `{"jsonrpc":"2.0","method":"last"}`
	done := make(chan struct{})
	go func() {
		defer close(done)
		wait := patience
		for {
			_ = w.agentIn.SetReadDeadline(time.Now().Add(wait))
			line, err := w.fromEditor.ReadString('\n')
			if err != nil {
				return
			}
			if line = strings.TrimSuffix(line, "\n"); line == last { // but for what comes too much
				wait = 200 * time.Millisecond
			}
			id := responseTo([]byte(line))
			if id == "" {
				continue
			}
			if _, twice := heard.LoadOrStore(id, line); twice {
				t.Errorf("the agent hears a second answer to %s: %s", id, line)
			}
		}
	}()
	go func() { _, _ = io.Copy(io.Discard, w.editorOut) }()
	from := control.NewFrom("h", "someone")
	for i := 1; i <= n; i++ {
		id := fmt.Sprintf(`"p%d"`, i)
		w.agent(strings.Replace(acpAsk, `"id":0`, `"id":`+id, 1))
		var request string
		for end := time.Now().Add(patience); request == "" && time.Now().Before(end); time.Sleep(time.Millisecond) {
			for _, p := range w.target.Holds().Pending() {
				if p.Remote && p.ID != w.told("attention.requested").ID {
					request = p.ID
				}
			}
		}
		var both sync.WaitGroup
		both.Go(func() { w.editor(strings.Replace(acpYes, `"id":0`, `"id":`+id, 1)) })
		both.Go(func() {
			cmd := from.Respond(time.Now(), "s", request, control.Answer{Option: "no"}, nil, "")
			w.target.Handle(control.Origin{Authenticated: true}, cmd.AppendJSON(nil))
		})
		both.Wait()
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if _, ok := heard.Load(id); ok {
				break
			}
		}
		for end := time.Now().Add(patience); len(w.target.Holds().Pending()) > 1 && time.Now().Before(end); time.Sleep(time.Millisecond) {
		}
	}
	w.editor(last)
	<-done
	for i := 1; i <= n; i++ {
		if _, ok := heard.Load(fmt.Sprintf(`"p%d"`, i)); !ok {
			t.Errorf("the agent hears no answer to p%d", i)
		}
	}
}

func TestACPCancel(t *testing.T) {
	w := newACPWorld(t, true)
	w.asked()
	act := acp.Adapter().Cancel(adapters.Target{Session: "s"})[0]
	if err := w.acp.Request(context.Background(), *act.Request); err != nil {
		t.Fatal(err)
	}
	w.agentHears(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`)
	w.agentHears(`{"jsonrpc":"2.0","id":0,"result":{"outcome":{"outcome":"cancelled"}}}`)
	w.editorHears(acpWithdrawn)
	if e := w.told("attention.resolved"); !bytes.Contains(e.Data, []byte("dismissed")) {
		t.Errorf("%s", e.Data)
	}
	watching := newACPWorld(t, false)
	if err := watching.acp.Request(context.Background(), *act.Request); err == nil {
		t.Error("a tee that only watches says something")
	}
}

// A tool that is first spoken of in its own permission request is told before
// it, once, with what that says of it; an answer from afar is bound to that.
func TestACPToolOfItsPermission(t *testing.T) {
	w := newACPWorld(t, true)
	w.editor(acpNew, acpPrompt)
	w.agentHears(acpNew)
	w.agentHears(acpPrompt)
	ask := `{"jsonrpc":"2.0","id":0,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t1","title":"ls","kind":"execute","rawInput":{"command":"ls"}},` + acpOptions + `}}`
	update := func(status string) string {
		return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"` + status + `"}}}`
	}
	w.agent(acpNewIs, ask)
	w.editorHears(acpNewIs)
	w.editorHears(ask)
	request, tool := w.told("attention.requested"), w.told("tool.requested")
	var data struct {
		Tool struct {
			Name   string
			CallID string `json:"call_id"`
		}
		Args string `json:"args_digest"`
	}
	if err := json.Unmarshal(tool.Data, &data); err != nil || data.Tool.Name != "ls" || data.Tool.CallID != "t1" || data.Args != event.Digest(map[string]any{"command": "ls"}) {
		t.Errorf("%v: %s", err, tool.Data)
	}
	if tool.Seq >= request.Seq {
		t.Error("the tool is told after its request")
	}
	w.respond(request, "yes")
	w.agentHears(`{"jsonrpc":"2.0","id":0,"result":{"outcome":{"optionId":"yes","outcome":"selected"}}}`)
	w.agent(update(`tool_call","toolCallId":"t1","title":"ls","kind":"execute","status":"in_progress","rawInput":{"command":"ls"},"x":"`),
		update(`tool_call_update","toolCallId":"t1","status":"completed","x":"`), acpDone)
	w.told("run.finished")
	want := "session.started run.started tool.requested attention.requested attention.answered attention.resolved tool.completed run.finished"
	var got []string
	for _, typ := range strings.Fields(w.types()) {
		if c := event.Category(typ); c != "control" && c != "x" {
			got = append(got, typ)
		}
	}
	if s := strings.Join(got, " "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}

// An agent that is killed in the middle of a message, with a permission open:
// the editor reads what was written of it, to its end, and can say nothing more;
// nobody waits for an answer, and what was open is told to have ended.
func TestACPKilled(t *testing.T) {
	for _, answer := range []bool{false, true} {
		t.Run(fmt.Sprint("answer=", answer), func(t *testing.T) {
			w := newACPWorld(t, answer)
			w.asked()
			const torn = `{"jsonrpc":"2.0","method":"session/upd`
			if _, err := w.agentOut.WriteString(torn); err != nil {
				t.Fatal(err)
			}
			w.agentOut.Close()
			w.agentIn.Close()
			_ = w.editorOut.SetReadDeadline(time.Now().Add(patience))
			rest, err := io.ReadAll(w.fromAgent)
			if err != nil || string(rest) != torn {
				t.Errorf("the editor reads %q, %v", rest, err)
			}
			gone := false
			for end := time.Now().Add(patience); !gone && time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
				_, err := w.editorIn.WriteString(acpNew + "\n")
				gone = err != nil
			}
			if !gone {
				t.Error("the editor goes on saying things to nobody")
			}
			finished := make(chan struct{})
			go func() {
				w.finish()
				close(finished)
			}()
			select {
			case <-finished:
			case <-time.After(patience):
				t.Fatal("it waits for an agent that is gone")
			}
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			w.road.Exit(ctx, session.Exit{Signal: "SIGKILL", Code: 137})
			var got []string
			for _, e := range w.events() {
				if c := event.Category(e.Type); c == "run" || c == "session" || c == "tool" || c == "attention" {
					got = append(got, e.Type)
				}
			}
			want := "session.started run.started tool.requested attention.requested attention.resolved run.failed session.ended"
			if s := strings.Join(got, " "); s != want {
				t.Errorf("got  %s\nwant %s", s, want)
			}
		})
	}
}

// However the bytes come, the same messages are cut out of them.
func FuzzACPFrames(f *testing.F) {
	f.Add([]byte(acpAsk+"\n"+acpYes+"\r\n\n x\n"), uint8(3))
	f.Add([]byte("{\"a\":\"\\n\"}\n{"), uint8(1))
	f.Fuzz(func(t *testing.T, stream []byte, step uint8) {
		cut := func(n int) (lines []string) {
			c := cutter{tell: func(l []byte) { lines = append(lines, string(l)) }, skip: func(int) {}}
			for b := stream; len(b) > 0; {
				k := min(len(b), n)
				c.take(b[:k])
				b = b[k:]
			}
			c.end()
			return lines
		}
		whole, pieces := cut(len(stream)+1), cut(int(step)+1)
		if fmt.Sprint(whole) != fmt.Sprint(pieces) {
			t.Fatalf("%q\n%q", whole, pieces)
		}
		g := acpGate{pending: map[string]string{}, answered: map[string]bool{}}
		for _, l := range whole {
			g.asked([]byte(l))
			for id := range g.pending {
				if _, err := event.ParseJSON([]byte(id)); err != nil {
					t.Fatalf("%q is no id", id)
				}
				if !g.claim(id) || g.claim(id) {
					t.Fatalf("%s is claimed twice", id)
				}
			}
			g.swallow([]byte(l))
		}
	})
}

// Where no descriptor is left, what is closed for the editor to notice keeps its
// number all the same: what is opened next must not be written to as the
// editor's.
func TestACPWithoutDescriptors(t *testing.T) {
	w := newACPWorld(t, false)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	next, err := unix.Dup(w.acp.toEditor.to)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(next)
	low := limit
	low.Cur = uint64(next)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &limit) }()
	if f, err := os.Open(os.DevNull); err == nil {
		f.Close()
		t.Skip("there are descriptors left")
	}
	vacate(w.acp.toEditor.to)
	if _, err := unix.FcntlInt(uintptr(w.acp.toEditor.to), unix.F_GETFD, 0); err != nil {
		t.Errorf("its number is free: %v", err)
	}
}
