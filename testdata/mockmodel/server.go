package mockmodel

import (
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// maxBody bounds a request: agents send their whole conversation, and their
// tools' descriptions, each time.
const maxBody = 64 << 20

// Server is the model server, an http.Handler.
type Server struct {
	dir string

	mu      sync.Mutex
	heard   []Heard
	changed chan struct{}
}

// Heard is a request that the server got.
type Heard struct {
	Method, Path string
	Script       string // the script that answered, if one did
	Body         []byte
	// Broken says that the client went away before its answer was whole.
	Broken bool
}

// New makes a server for an agent that works in dir.
func New(dir string) *Server {
	return &Server{dir: dir, changed: make(chan struct{})}
}

// Heard lists the requests so far, and gives a channel that is closed when
// the list changes.
func (s *Server) Heard() ([]Heard, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Heard(nil), s.heard...), s.changed
}

func (s *Server) note(h Heard) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard = append(s.heard, h)
	s.tell()
	return len(s.heard) - 1
}

func (s *Server) broken(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard[i].Broken = true
	s.tell()
}

func (s *Server) tell() {
	close(s.changed)
	s.changed = make(chan struct{})
}

type request struct {
	Model    string            `json:"model"`
	Stream   bool              `json:"stream"`
	Messages []message         `json:"messages"`
	Tools    []json.RawMessage `json:"tools"`
}

type message struct {
	Role    string  `json:"role"`
	Content content `json:"content"`
}

// content is a string, or a list of blocks of which only text counts here.
type content []struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

func (c *content) UnmarshalJSON(b []byte) error {
	var s string
	if json.Unmarshal(b, &s) == nil {
		*c = content{{Type: "text", Text: s}}
		return nil
	}
	type plain content
	return json.Unmarshal(b, (*plain)(c))
}

func (c content) text() string {
	var b strings.Builder
	for _, p := range c {
		if p.Type == "text" {
			b.WriteString(p.Text)
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	h := Heard{Method: r.Method, Path: r.URL.Path, Body: body}
	switch {
	case r.Method == http.MethodPost && r.URL.Path == "/v1/messages/count_tokens":
		s.note(h)
		reply(w, http.StatusOK, map[string]any{"input_tokens": 100})
	case r.Method == http.MethodPost && r.URL.Path == "/v1/messages":
		var req request
		if err := json.Unmarshal(body, &req); err != nil {
			s.note(h)
			fail(w, http.StatusBadRequest, err.Error())
			return
		}
		turn, key := choose(req, s.dir)
		h.Script = key[0]
		i := s.note(h)
		if err := answer(w, r, req, turn, key); err != nil {
			s.broken(i)
		}
	case r.Method == http.MethodHead:
		s.note(h)
	default:
		s.note(h)
		fail(w, http.StatusNotFound, "the mock model does not serve "+r.Method+" "+r.URL.Path)
	}
}

func readBody(r *http.Request) ([]byte, error) {
	var src io.Reader = r.Body
	switch enc := r.Header.Get("Content-Encoding"); enc {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(r.Body)
		if err != nil {
			return nil, err
		}
		src = z
	default:
		return nil, fmt.Errorf("content encoding %q is not read here", enc)
	}
	b, err := io.ReadAll(io.LimitReader(src, maxBody+1))
	if err == nil && len(b) > maxBody {
		err = fmt.Errorf("a request of more than %d bytes", maxBody)
	}
	return b, err
}

func reply(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func fail(w http.ResponseWriter, status int, detail string) {
	w.Header().Set("x-should-retry", "false")
	reply(w, status, map[string]any{
		"type":  "error",
		"error": map[string]any{"type": "invalid_request_error", "message": detail},
	})
}

// id derives an id of the vendor's shape from what it names.
func id(prefix string, parts ...string) string {
	h := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return prefix + hex.EncodeToString(h[:12])
}

// toolName is the name by which the request offers a tool: agents have
// renamed the one that starts subagents.
func toolName(req request, name string) string {
	if name != "Agent" {
		return name
	}
	for _, raw := range req.Tools {
		var t struct {
			Name string `json:"name"`
		}
		if json.Unmarshal(raw, &t) == nil && (t.Name == "Agent" || t.Name == "Task") {
			return t.Name
		}
	}
	return name
}

// answer sends a turn, streamed or whole. Its error is the client's going
// away.
func answer(w http.ResponseWriter, r *http.Request, req request, turn Turn, key []string) error {
	if turn.Status != 0 {
		fail(w, turn.Status, "a scripted error")
		return nil
	}
	stop := "end_turn"
	blocks := make([]map[string]any, 0, len(turn.Blocks))
	for i, b := range turn.Blocks {
		if b.Tool == "" {
			blocks = append(blocks, map[string]any{"type": "text", "text": b.Text})
			continue
		}
		stop = "tool_use"
		blocks = append(blocks, map[string]any{
			"type":  "tool_use",
			"id":    id("toolu_", append(key, fmt.Sprint(i))...),
			"name":  toolName(req, b.Tool),
			"input": b.Input,
		})
	}
	usage := map[string]any{"input_tokens": 100, "output_tokens": 10,
		"cache_creation_input_tokens": 0, "cache_read_input_tokens": 0}
	msg := map[string]any{
		"id": id("msg_", key...), "type": "message", "role": "assistant", "model": req.Model,
		"content": blocks, "stop_reason": stop, "stop_sequence": nil, "usage": usage,
	}
	w.Header().Set("request-id", id("req_", key...))
	if !req.Stream {
		reply(w, http.StatusOK, msg)
		return nil
	}
	return stream(w, r, msg, blocks, turn.Pace)
}

// stream sends a message as server-sent events: its start, each block as a
// start, deltas and a stop, and its end.
func stream(w http.ResponseWriter, r *http.Request, msg map[string]any, blocks []map[string]any, pace time.Duration) error {
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	send := func(typ string, more map[string]any) error {
		more["type"] = typ
		data, err := json.Marshal(more)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", typ, data); err != nil {
			return err
		}
		return out.Flush()
	}
	stop, usage := msg["stop_reason"], msg["usage"]
	msg["content"], msg["stop_reason"] = []any{}, nil
	if err := send("message_start", map[string]any{"message": msg}); err != nil {
		return err
	}
	for i, b := range blocks {
		for _, part := range pieces(b) {
			part["index"] = i
			typ := part["type"].(string)
			if err := send(typ, part); err != nil {
				return err
			}
			if pace == 0 || typ != "content_block_delta" {
				continue
			}
			select {
			case <-time.After(pace):
			case <-r.Context().Done():
				return r.Context().Err()
			}
		}
	}
	if err := send("message_delta", map[string]any{
		"delta": map[string]any{"stop_reason": stop, "stop_sequence": nil}, "usage": usage}); err != nil {
		return err
	}
	return send("message_stop", map[string]any{})
}

// pieces is the life of one block on the stream.
func pieces(b map[string]any) []map[string]any {
	var start map[string]any
	var deltas []map[string]any
	if b["type"] == "text" {
		start = map[string]any{"type": "text", "text": ""}
		for _, s := range chop(b["text"].(string), 12) {
			deltas = append(deltas, map[string]any{"type": "text_delta", "text": s})
		}
	} else {
		start = map[string]any{"type": "tool_use", "id": b["id"], "name": b["name"], "input": map[string]any{}}
		input, err := json.Marshal(b["input"])
		if err != nil {
			input = []byte("{}")
		}
		for _, s := range chop(string(input), 40) {
			deltas = append(deltas, map[string]any{"type": "input_json_delta", "partial_json": s})
		}
	}
	out := []map[string]any{{"type": "content_block_start", "content_block": start}}
	for _, d := range deltas {
		out = append(out, map[string]any{"type": "content_block_delta", "delta": d})
	}
	return append(out, map[string]any{"type": "content_block_stop"})
}

// chop cuts s into pieces of about n bytes, between characters.
func chop(s string, n int) []string {
	var out []string
	for len(s) > n {
		k := n
		for k > 0 && !utf8.RuneStart(s[k]) {
			k--
		}
		out, s = append(out, s[:k]), s[k:]
	}
	return append(out, s)
}
