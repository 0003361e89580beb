package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"sync"

	"github.com/coder/websocket"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// A server that speaks JSON-RPC over a WebSocket, and a runtime that is told
// things by the lines of a file.

var errGone = errors.New("there is no connection to the agent's server")

// calls are what was asked of a server over its connection, and waits for an
// answer.
type calls struct {
	mu      sync.Mutex
	conn    *websocket.Conn // nil while there is none
	last    int
	waiting map[string]func(result any, size int, err error)
}

// socket follows one connection.
func (s *Server) socket() error {
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	header := http.Header{}
	if s.cfg.At.Password != "" {
		header.Set("Authorization", "Bearer "+s.cfg.At.Password)
	}
	patient, done := context.WithTimeout(ctx, serverPatience)
	conn, res, err := websocket.Dial(patient, s.base.String(), &websocket.DialOptions{HTTPClient: s.client, HTTPHeader: header})
	done()
	if res != nil && res.Body != nil {
		res.Body.Close()
	}
	if err != nil {
		return err
	}
	defer func() { _ = conn.CloseNow() }()
	conn.SetReadLimit(maxBody)
	s.calls.begin(conn)
	defer s.calls.end()
	s.hello(ctx)
	for {
		kind, frame, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		if kind == websocket.MessageText {
			wake(s.heard)
			s.frame(ctx, frame)
		}
	}
}

func (c *calls) begin(conn *websocket.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.waiting = conn, map[string]func(any, int, error){}
}

func (c *calls) end() {
	c.mu.Lock()
	left := c.waiting
	c.conn, c.waiting = nil, nil
	c.mu.Unlock()
	for _, done := range left {
		done(nil, 0, errGone)
	}
}

// hello opens a connection; the server is there when it has answered.
func (s *Server) hello(ctx context.Context) {
	hello := s.cfg.Serving.Hello
	s.call(ctx, hello[0].Path, hello[0].Body, func(_ any, _ int, err error) {
		if err != nil {
			s.cfg.Log.Warn("the agent's server refuses us", "err", err)
			return
		}
		for _, r := range hello[1:] {
			if err := s.send(ctx, r.Body); err != nil {
				return
			}
		}
		s.isUp()
		for _, q := range s.cfg.Serving.Known {
			s.ask(ctx, q)
		}
	})
}

// ask asks what the server knows, and what that leads to.
func (s *Server) ask(ctx context.Context, q adapters.Query) {
	s.call(ctx, q.Path, q.Body, func(result any, size int, err error) {
		if err != nil {
			s.cfg.Log.Info("the server does not say what it knows", "path", q.Path, "err", err)
			return
		}
		if q.Read == nil {
			return
		}
		var more []adapters.Query
		s.take(size, func() (ms []adapters.Moment) {
			ms, more = q.Read(result, s.past())
			return ms
		})
		for _, q := range more {
			s.ask(ctx, q)
		}
	})
}

// call calls a method. done is called once: by the goroutine that reads, or at
// once where nothing was sent.
func (s *Server) call(ctx context.Context, method string, params []byte, done func(result any, size int, err error)) {
	c := &s.calls
	c.mu.Lock()
	if c.conn == nil || len(c.waiting) >= maxQueries {
		c.mu.Unlock()
		done(nil, 0, errGone)
		return
	}
	c.last++
	id := "aep-" + strconv.Itoa(c.last)
	c.waiting[id] = done
	c.mu.Unlock()
	frame := append([]byte(`{"jsonrpc":"2.0","id":"`+id+`","method":`), event.AppendValue(nil, method)...)
	if params != nil {
		frame = append(append(frame, `,"params":`...), params...)
	}
	if err := s.send(ctx, append(frame, '}')); err != nil {
		if done := c.take(id); done != nil {
			done(nil, 0, err)
		}
	}
}

func (c *calls) take(id string) func(any, int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := c.waiting[id]
	delete(c.waiting, id)
	return done
}

// send sends a message as it stands.
func (s *Server) send(ctx context.Context, frame []byte) error {
	s.calls.mu.Lock()
	conn := s.calls.conn
	s.calls.mu.Unlock()
	if conn == nil {
		return errGone
	}
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	return conn.Write(ctx, websocket.MessageText, frame)
}

// frame takes a message of the server's: an answer to a call of ours, or an
// item.
func (s *Server) frame(ctx context.Context, raw []byte) {
	payload, err := event.ParseObject(raw)
	if err != nil {
		s.cfg.Road.Refuse(Refusal{Channel: adapters.Server, Reason: refusalReason(err), Bytes: len(raw)})
		return
	}
	if _, item := payload["method"]; !item {
		id, _ := payload["id"].(string)
		if done := s.calls.take(id); done != nil {
			done(payload["result"], len(raw), failed(payload["error"]))
		}
		return
	}
	s.parts(payload)
	s.take(len(raw), func() []adapters.Moment { return s.cfg.Serving.Item(payload) })
	if s.cfg.Serving.More == nil {
		return
	}
	more, err := guarded(func() []adapters.Query { return s.cfg.Serving.More(payload) })
	if err != nil {
		s.cfg.Log.Error("the adapter failed", "channel", adapters.Server, "err", err)
	}
	for _, q := range more {
		s.ask(ctx, q)
	}
}

// parts remembers which session an item says to be a part of which.
func (s *Server) parts(payload map[string]any) {
	if s.cfg.Serving.Part == nil {
		return
	}
	_, _ = guarded(func() bool {
		part, of := s.cfg.Serving.Part(payload)
		if part != "" && of != "" && part != of && len(s.part) < maxSeen {
			s.part[part] = of
		}
		return true
	})
}

func failed(v any) error {
	if v == nil {
		return nil
	}
	e := &RPCError{}
	if raw, err := json.Marshal(v); err == nil {
		_ = json.Unmarshal(raw, e)
	}
	return e
}

// requestByCall is Request of such a server.
func (s *Server) requestByCall(ctx context.Context, r adapters.Request) error {
	if r.Path == "" {
		return s.send(ctx, r.Body)
	}
	answer := make(chan error, 1)
	s.call(ctx, r.Path, r.Body, func(_ any, _ int, err error) { answer <- err })
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", r.Path, ctx.Err())
	}
}

// lines follows the file that the runtime writes, until the server is closed.
func (s *Server) lines() error {
	t := Follow(TailConfig{
		Path: s.cfg.At.Writes, Log: s.cfg.Log,
		Line: func(line []byte) {
			wake(s.heard)
			s.item(line)
		},
		Skip: func(n int) { s.cfg.Road.Refuse(Refusal{Channel: adapters.Server, Reason: "too_large", Bytes: n}) },
	})
	s.isUp()
	<-s.ctx.Done()
	ctx, cancel := context.WithTimeout(context.Background(), serverQuiet)
	defer cancel()
	t.Drain(ctx)
	return errGivenUp
}

// write tells such a runtime something.
func (s *Server) write(line []byte) error {
	f, err := os.OpenFile(s.cfg.At.Reads, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return reasonOf(err)
	}
	defer f.Close()
	if _, err = f.Write(append(line[:len(line):len(line)], '\n')); err != nil {
		return reasonOf(err)
	}
	return nil
}
