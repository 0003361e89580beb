package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/coder/websocket"

	"aep-wrap/event"
)

// SocketConfig says how an endpoint's /socket is reached, and as whom.
type SocketConfig struct {
	Base  string // the endpoint's origin
	Token string
	HTTP  *http.Client
	Agent string // of hello's identity
}

// Socket is a consumer's connection on the WebSocket binding (AEP-0003 §3.5):
// the one on which commands go out. One goroutine at a time receives; Send may
// be called beside it. A context that ends during a call ends the connection.
type Socket struct {
	ws      *websocket.Conn
	Control bool // the endpoint routes this connection's commands
}

// Claim is a live session in the roster (AEP-0003 §4.1), with what its emitter
// declared.
type Claim struct {
	Session  string          `json:"session"`
	Agent    string          `json:"agent,omitempty"`
	Instance string          `json:"instance,omitempty"`
	Control  json.RawMessage `json:"control,omitempty"`
	Emits    json.RawMessage `json:"emits,omitempty"`
}

// Accepts are the command types that the claim's emitter takes.
func (c *Claim) Accepts() []string {
	var d struct{ Accepts []string }
	_ = json.Unmarshal(c.Control, &d)
	return d.Accepts
}

// Window is how long the emitter has for an ack; 0 where it did not say.
func (c *Claim) Window() time.Duration {
	var d struct {
		Window float64 `json:"ack_window_ms"`
	}
	if json.Unmarshal(c.Control, &d) != nil || d.Window <= 0 || d.Window > 1e9 {
		return 0
	}
	return time.Duration(d.Window * float64(time.Millisecond))
}

// Frame is what came in: an event, or an error frame.
type Frame struct {
	Event *event.Event
	Error *ErrorFrame
}

// ErrorFrame is a refusal that concerns this connection alone (AEP-0003 §2).
type ErrorFrame struct {
	ID     string `json:"id"`
	Cause  string `json:"cause"`
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func (e *ErrorFrame) Error() string {
	if e.Detail == "" {
		return "the collector refuses: " + e.Code
	}
	return "the collector refuses: " + e.Code + ": " + e.Detail
}

// DialSocket connects and greets.
func DialSocket(ctx context.Context, cfg SocketConfig) (*Socket, error) {
	header := http.Header{}
	if cfg.Token != "" {
		header.Set("Authorization", "Bearer "+cfg.Token)
	}
	ws, resp, err := websocket.Dial(ctx, strings.TrimRight(cfg.Base, "/")+"/socket", &websocket.DialOptions{
		HTTPClient: cfg.HTTP, HTTPHeader: header, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			return nil, refusedUpgrade(resp)
		}
		return nil, plain(err)
	}
	ws.SetReadLimit(messageBytes)
	s := &Socket{ws: ws}
	if err := s.greet(ctx, cfg.Agent); err != nil {
		_ = ws.CloseNow()
		return nil, err
	}
	return s, nil
}

func refusedUpgrade(resp *http.Response) error {
	defer resp.Body.Close()
	resp.Header.Set("Content-Type", "application/json") // whatever it is, it is no stream
	if resp.StatusCode == http.StatusOK {
		return &PermanentError{http.StatusNotFound, "no AEP socket"}
	}
	return refusal(resp)
}

func (s *Socket) greet(ctx context.Context, agent string) error {
	err := s.write(ctx, map[string]any{"type": "hello", "versions": []string{event.Version}, "role": "consumer",
		"identity": map[string]string{"agent": agent}, "capabilities": map[string]any{}})
	if err != nil {
		return err
	}
	raw, err := s.frame(ctx, "hello", "")
	if err != nil {
		return err
	}
	var hello struct {
		Capabilities struct {
			Control json.RawMessage `json:"control"`
		} `json:"capabilities"`
	}
	if err := json.Unmarshal(raw, &hello); err != nil {
		return fmt.Errorf("the collector's hello: %w", err)
	}
	s.Control = len(hello.Capabilities.Control) > 0
	return nil
}

// Roster asks for the live claims. It is asked before anything is subscribed.
func (s *Socket) Roster(ctx context.Context) ([]Claim, error) {
	if err := s.write(ctx, map[string]any{"type": "roster", "id": "roster"}); err != nil {
		return nil, err
	}
	raw, err := s.frame(ctx, "roster", "roster")
	if err != nil {
		return nil, err
	}
	var roster struct{ Entries []Claim }
	if err := json.Unmarshal(raw, &roster); err != nil {
		return nil, fmt.Errorf("the collector's roster: %w", err)
	}
	return roster.Entries, nil
}

// Subscribe asks for the events that match a filter: live ones, and with all
// everything that is held first. When it returns the endpoint has taken the
// subscription, and no event from then on is missed.
func (s *Socket) Subscribe(ctx context.Context, id string, filter map[string]any, all bool) error {
	frame := map[string]any{"type": "subscribe", "id": id, "filter": filter}
	if all {
		frame["from"] = "all"
	}
	if err := s.write(ctx, frame); err != nil {
		return err
	}
	_, err := s.frame(ctx, "subscribed", id)
	return err
}

// Send sends an event's line.
func (s *Socket) Send(ctx context.Context, line []byte) error {
	return closed(s.ws.Write(ctx, websocket.MessageText, line))
}

// Receive waits for the next event or error frame. Pings are answered; what is
// neither is passed over.
func (s *Socket) Receive(ctx context.Context) (Frame, error) {
	for {
		raw, err := s.read(ctx)
		if err != nil {
			return Frame{}, err
		}
		if e, err := event.Parse(raw); err == nil {
			return Frame{Event: &e}, nil
		}
		if typ, _ := head(raw); typ == "error" {
			e := &ErrorFrame{}
			if json.Unmarshal(raw, e) == nil {
				return Frame{Error: e}, nil
			}
		}
	}
}

// Close ends the connection in good order, or at once where the other side
// does not.
func (s *Socket) Close() { _ = s.ws.Close(websocket.StatusNormalClosure, "") }

// frame waits for a frame of a type, and of an id where there is one to tell.
func (s *Socket) frame(ctx context.Context, want, id string) ([]byte, error) {
	for {
		raw, err := s.read(ctx)
		if err != nil {
			return nil, err
		}
		typ, of := head(raw)
		switch {
		case typ == want && (id == "" || of == id):
			return raw, nil
		case typ == "error" && (of == "" || of == id):
			e := &ErrorFrame{}
			if err := json.Unmarshal(raw, e); err != nil {
				return nil, err
			}
			return nil, e
		}
	}
}

func head(raw []byte) (typ, id string) {
	var h struct{ Type, ID string }
	_ = json.Unmarshal(raw, &h)
	return h.Type, h.ID
}

// read gives the next message that is not a ping.
func (s *Socket) read(ctx context.Context) ([]byte, error) {
	for {
		kind, raw, err := s.ws.Read(ctx)
		if err != nil {
			return nil, closed(err)
		}
		if kind != websocket.MessageText {
			continue
		}
		var ping struct {
			Type string
			T    json.RawMessage `json:"t,omitempty"`
		}
		if len(raw) > 4<<10 || json.Unmarshal(raw, &ping) != nil || ping.Type != "ping" {
			return raw, nil
		}
		pong := map[string]any{"type": "pong"}
		if len(ping.T) > 0 {
			pong["t"] = ping.T
		}
		if err := s.write(ctx, pong); err != nil {
			return nil, err
		}
	}
}

func (s *Socket) write(ctx context.Context, frame map[string]any) error {
	raw, err := json.Marshal(frame)
	if err != nil {
		return err
	}
	return s.Send(ctx, raw)
}

// closed says in words why a connection ended.
func closed(err error) error {
	var c websocket.CloseError
	switch {
	case errors.As(err, &c) && c.Reason != "":
		return fmt.Errorf("the collector closed the connection: %s", c.Reason)
	case errors.As(err, &c), errors.Is(err, io.EOF):
		return errors.New("the collector closed the connection")
	}
	return err
}
