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

// dialect is a way of asking and of answering.
type dialect struct {
	read  func(body []byte, r *http.Request) (request, error)
	write func(w *sender, req request, ps []piece, key []string)
}

// dialects by the end of the path that is asked for.
var dialects = []struct {
	end string
	dialect
}{
	{"/v1/messages", anthropic},
	{"/chat/completions", chat},
	{"/responses", responses},
	{":generateContent", gemini},
	{":streamGenerateContent", gemini},
}

// counts are the paths at which tokens are counted.
var counts = map[string]string{"/count_tokens": "input_tokens", ":countTokens": "totalTokens"}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(r)
	if err != nil {
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	h := Heard{Method: r.Method, Path: r.URL.Path, Body: body}
	if r.Method == http.MethodPost {
		for _, d := range dialects {
			if strings.HasSuffix(r.URL.Path, d.end) {
				s.answer(w, r, d.dialect, h)
				return
			}
		}
	}
	s.note(h)
	for end, member := range counts {
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, end) {
			reply(w, http.StatusOK, map[string]any{member: 100})
			return
		}
	}
	switch {
	case r.Method == http.MethodHead:
	case r.Method == http.MethodGet && r.Header.Get("Upgrade") != "":
		fail(w, http.StatusUpgradeRequired, "the mock model speaks no websocket")
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/models"):
		reply(w, http.StatusOK, map[string]any{"object": "list", "models": []any{},
			"data": []any{map[string]any{"id": "mock-model", "object": "model", "context_length": 131072}}})
	default:
		fail(w, http.StatusNotFound, "the mock model does not serve "+r.Method+" "+r.URL.Path)
	}
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, d dialect, h Heard) {
	req, err := d.read(h.Body, r)
	if err != nil {
		s.note(h)
		fail(w, http.StatusBadRequest, err.Error())
		return
	}
	turn, key := choose(req, s.dir)
	h.Script = key[0]
	i := s.note(h)
	if turn.Status != 0 {
		fail(w, turn.Status, "a scripted error")
		return
	}
	out := &sender{ResponseWriter: w, r: r, pace: turn.Pace}
	d.write(out, req, req.pieces(turn, key), key)
	if out.err != nil {
		s.broken(i)
	}
}

// sender sends an answer, whole or as server-sent events. Its error is the
// client's going away; after it nothing more is sent.
type sender struct {
	http.ResponseWriter
	r    *http.Request
	pace time.Duration
	open bool
	err  error
}

// done is the event that ends a stream of chat completions.
const done = "[DONE]"

func (w *sender) whole(v any) { reply(w, http.StatusOK, v) }

func (w *sender) event(name string, v any) {
	if !w.open {
		w.open = true
		w.Header().Set("Content-Type", "text/event-stream")
	}
	if w.err != nil {
		return
	}
	data := []byte(done)
	if v != done {
		if data, w.err = json.Marshal(v); w.err != nil {
			return
		}
	}
	if name != "" {
		name = "event: " + name + "\n"
	}
	if _, w.err = fmt.Fprintf(w, "%sdata: %s\n\n", name, data); w.err == nil {
		w.err = http.NewResponseController(w.ResponseWriter).Flush()
	}
}

// pause waits between the pieces of a slow answer.
func (w *sender) pause() {
	if w.pace == 0 || w.err != nil {
		return
	}
	select {
	case <-time.After(w.pace):
	case <-w.r.Context().Done():
		w.err = w.r.Context().Err()
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
