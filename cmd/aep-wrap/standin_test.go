package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/coder/websocket"

	"aep-wrap/event"
)

// standIn [-accepts TYPES] [-mute] [-deaf N] [-asks KINDS] SESSION: an agent's
// wrapper as a collector sees it. It claims a session with an open run, asks
// what it is to ask, and does what it is told, until its session is cancelled.
// What it was told goes to the file told-SESSION, a line each.
type standIn struct {
	agent    string
	ws       *websocket.Conn
	session  string
	seq      int64
	run      string
	paused   bool
	asks     map[string]string // what waits, by its kind
	acks     map[string][]byte // by command
	deaf     int               // deliveries that are passed over
	mute     bool
	reported *os.File
}

func standInMain() {
	fs := flag.NewFlagSet("standin", flag.ExitOnError)
	accepts := fs.String("accepts", "control.attention.respond,control.cancel,control.pause,control.resume,x.demo.control.instruct", "")
	agent := fs.String("agent", "demo", "")
	mute := fs.Bool("mute", false, "")
	deaf := fs.Int("deaf", 0, "")
	asks := fs.String("asks", "", "")
	window := fs.Int("window", 2000, "")
	fs.Parse(os.Args[1:])
	s := &standIn{agent: *agent, session: fs.Arg(0), asks: map[string]string{}, acks: map[string][]byte{}, deaf: *deaf, mute: *mute}
	if err := s.serve(strings.Split(*accepts, ","), strings.FieldsFunc(*asks, func(r rune) bool { return r == ',' }), *window); err != nil {
		fmt.Fprintln(os.Stderr, "standin:", err)
		os.Exit(1)
	}
}

func (s *standIn) serve(accepts, asks []string, window int) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience) // of all that a script does
	defer cancel()
	socket := filepath.Join(os.Getenv("HOME"), ".aep", "run", "collector.sock")
	ws, _, err := websocket.Dial(ctx, "http://collector/socket", &websocket.DialOptions{HTTPClient: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		},
	}}})
	if err != nil {
		return err
	}
	s.ws = ws
	if s.reported, err = os.Create("told-" + s.session); err != nil {
		return err
	}
	if err := s.write(map[string]any{"type": "hello", "versions": []string{"0.1"}, "role": "emitter",
		"identity":     map[string]string{"agent": s.agent, "instance": "standin"},
		"capabilities": map[string]any{"control": map[string]any{"accepts": accepts, "ack_window_ms": window}}}); err != nil {
		return err
	}
	s.tell("session.started", "", "", nil)
	s.run = "r_" + s.session
	s.tell("run.started", "", "", map[string]any{"trigger": "user"})
	for i, kind := range asks {
		s.ask(fmt.Sprintf("q%d-%s", i+1, kind), kind)
	}
	for {
		_, raw, err := ws.Read(ctx)
		if err != nil {
			return err
		}
		e, err := event.Parse(raw)
		if err != nil {
			continue // a frame
		}
		if done, err := s.take(&e); done || err != nil {
			return err
		}
	}
}

// requests are what it can ask.
var requests = map[string]map[string]any{
	"permission": {"kind": "permission", "prompt": "Bash: rm -rf \x1b[31mbuild", "options": []any{
		map[string]any{"id": "allow", "label": "Allow once"}, map[string]any{"id": "deny", "label": "Deny"}}},
	"form": {"kind": "form", "prompt": "How large?", "fields": []any{
		map[string]any{"id": "size", "type": "select", "label": "Size", "required": true, "choices": []any{map[string]any{"id": "s", "label": "S"}, map[string]any{"id": "m", "label": "M"}}},
		map[string]any{"id": "copies", "type": "number", "label": "Copies", "min": 1, "max": 9}}},
	"input": {"kind": "input", "prompt": "Which branch?"},
	"oob":   {"kind": "permission", "prompt": "sudo", "respond_via": []any{"oob"}, "options": []any{map[string]any{"id": "allow", "label": "Allow"}}},
}

func (s *standIn) ask(id, kind string) {
	data := map[string]any{"expires_at": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)}
	for k, v := range requests[kind] {
		data[k] = v
	}
	s.asks[id] = kind
	s.put(event.Event{Header: event.Header{ID: id, Type: "attention.requested", Severity: event.Notice, Capture: event.Redacted}}, data)
}

func (s *standIn) write(frame any) error {
	raw, err := json.Marshal(frame)
	if err != nil {
		return err
	}
	return s.ws.Write(context.Background(), websocket.MessageText, raw)
}

func (s *standIn) tell(typ, subject, cause string, data map[string]any) string {
	return s.put(event.Event{Header: event.Header{Type: typ, Subject: subject, Cause: cause}}, data)
}

func (s *standIn) put(e event.Event, data map[string]any) string {
	now := time.Now()
	if e.ID == "" {
		e.ID = event.NewID(now)
	}
	e.Time, e.Source, e.Agent, e.Session, e.Run = now, event.Source("hosta", s.agent, s.session), s.agent, s.session, s.run
	e.Sequenced, e.Seq = true, s.seq
	s.seq++
	if data != nil {
		e.Data = event.AppendValue(nil, tree(data))
	}
	line := e.AppendJSON(nil)
	if err := s.ws.Write(context.Background(), websocket.MessageText, line); err != nil {
		fmt.Fprintln(os.Stderr, "standin:", err)
	}
	if strings.HasPrefix(e.Type, "control.") {
		s.acks[e.Cause] = line
	}
	return e.ID
}

// tree makes plain Go values a JSON tree.
func tree(v any) any {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	out, err := event.ParseJSON(raw)
	if err != nil {
		panic(err)
	}
	return out
}

func (s *standIn) take(e *event.Event) (done bool, err error) {
	fmt.Fprintf(s.reported, "%s %s %s capture=%s run=%s %s\n", e.Type, e.ID, e.Subject, e.Capture, e.Run, e.Data)
	if s.mute {
		return false, nil
	}
	if s.deaf > 0 {
		s.deaf--
		return false, nil
	}
	if ack, ok := s.acks[e.ID]; ok {
		return false, s.ws.Write(context.Background(), websocket.MessageText, ack)
	}
	accept := func() { s.tell("control.accepted", "", e.ID, nil) }
	reject := func(reason, detail string) {
		s.put(event.Event{Header: event.Header{Type: "control.rejected", Cause: e.ID, Capture: event.Redacted}}, map[string]any{"reason": reason, "detail": detail})
	}
	data, _ := event.ParseObject(e.Data)
	switch {
	case e.Type == "control.attention.respond":
		if s.asks[e.Subject] == "" {
			reject("invalid", "no such request in this session")
			break
		}
		delete(s.asks, e.Subject)
		accept()
		s.put(event.Event{Header: event.Header{Type: "attention.answered", Subject: e.Subject, Cause: e.ID, Capture: event.Redacted}},
			map[string]any{"answer": data["answer"], "via": "control"})
		s.tell("attention.resolved", e.Subject, e.ID, map[string]any{"resolution": "answered"})
	case e.Type == "control.cancel" && data["scope"] == "session":
		accept()
		s.tell("run.cancelled", "", e.ID, map[string]any{"by": "control"})
		s.run = ""
		s.tell("session.ended", "", e.ID, map[string]any{"reason": "cancelled"})
		time.Sleep(100 * time.Millisecond)
		return true, s.ws.Close(websocket.StatusNormalClosure, "")
	case e.Type == "control.cancel":
		if s.run == "" || e.Run != "" && e.Run != s.run {
			reject("refused", "no such run is open")
			break
		}
		accept()
		s.tell("run.cancelled", "", e.ID, map[string]any{"by": "control"})
		s.run = ""
	case e.Type == "control.pause", e.Type == "control.resume":
		pause := e.Type == "control.pause"
		if s.paused == pause {
			reject("refused", "it is so already")
			break
		}
		s.paused = pause
		accept()
		s.tell("progress.status", "", e.ID, map[string]any{"phase": map[bool]string{true: "paused", false: "resumed"}[pause]})
	case strings.HasSuffix(e.Type, ".control.instruct"):
		accept()
		time.Sleep(50 * time.Millisecond)
		s.tell("x.demo.instruction.dropped", "", e.ID, map[string]any{"reason": "session_ended"})
	case slices.Contains([]string{"control.accepted", "control.rejected"}, e.Type):
	default:
		reject("unsupported", "")
	}
	return false, nil
}
