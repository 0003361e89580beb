package execution

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/creachadair/jrpc2"

	"aep-wrap/event"
)

// The names on the wire.
const (
	rpcPath       = "/aep/v1/rpc"
	versionHeader = "Agent-Protocol-Version"
	sessionHeader = "X-AEP-Session-Id"
)

// The bounds of a request.
const (
	maxBody  = 8 << 20
	maxBatch = 100
	maxShown = 64 << 10 // of a body whose sender is unknown, to find its id
)

// Config is what a Server is made of.
type Config struct {
	Store  *Store
	Runner Runner

	// Scopes are what a bearer token allows; false for one that is unknown. It
	// compares in constant time.
	Scopes func(token string) ([]Scope, bool)
	// Capabilities are those that are served.
	Capabilities []Capability
	Name         string // of initialize's server_info
	Version      string

	// Keep is how long the events of a run that is over are kept: a day at
	// least; 0 is DefaultKeep.
	Keep time.Duration

	Now func() time.Time // nil is time.Now
	Log *slog.Logger     // nil is none
}

// Server serves the protocol. It is safe for concurrent use.
type Server struct {
	Config
	ids      ids
	sessions sessions
	offered  map[Capability]bool
	live     live
	ctx      context.Context
	stop     context.CancelFunc
	draining atomic.Bool // no run begins any more
}

// New makes a server, and takes up the runs that an earlier one left.
func New(c Config) (*Server, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Keep == 0 {
		c.Keep = DefaultKeep
	}
	c.Keep = max(c.Keep, leastKeep)
	s := &Server{Config: c, offered: map[Capability]bool{}}
	for _, name := range c.Capabilities {
		s.offered[name] = true
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.live.begin(s.pruning)
	return s, s.takeUp()
}

// Close ends every stream and lets go of the runs, which go on: the next server
// on the same store takes them up.
func (s *Server) Close() {
	s.stop()
	s.live.close()
}

// Drain cancels the runs that go on, and returns when they are over, or ctx is.
func (s *Server) Drain(ctx context.Context) error {
	s.draining.Store(true)
	for _, id := range s.live.ids() {
		if _, err := s.halt(ctx, id, stop{By: byCancel}); err != nil && codeOf(err) != LifecycleConflict {
			s.Log.Warn("a run cannot be cancelled", "run", id, "err", err)
		}
	}
	for {
		news := s.live.wait()
		left := s.live.ids()
		if len(left) == 0 {
			return nil
		}
		select {
		case <-news:
		case <-time.After(100 * time.Millisecond): // a run leaves after its news
		case <-ctx.Done():
			return fmt.Errorf("runs that did not end: %s", strings.Join(left, ", "))
		}
	}
}

// Handler serves the three paths of the protocol.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+rpcPath, s.rpc)
	mux.HandleFunc("GET /aep/v1/runs/{run_id}/events", s.events)
	mux.HandleFunc("GET /aep/v1/artifacts/{id}/bytes", s.bytes)
	return mux
}

// answer is a JSON-RPC response.
type answer struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Result  any             `json:"result,omitempty"`
	Error   *wireError      `json:"error,omitempty"`
}

type wireError struct {
	Code    Code           `json:"code"`
	Message string         `json:"message"`
	Data    map[string]any `json:"data,omitempty"`
}

func (s *Server) answer(id string, result any, err error) answer {
	a := answer{JSONRPC: "2.0", ID: json.RawMessage(id), Result: result}
	if id == "" {
		a.ID = json.RawMessage("null")
	}
	if err == nil {
		return a
	}
	var e *Error
	if !errors.As(err, &e) {
		s.Log.Error("a call failed", "err", err)
		e = fail(InternalError, "the runtime failed; its log says why")
	}
	data := map[string]any{"name": codes[e.Code].name}
	for k, v := range e.Data {
		data[k] = v
	}
	a.Result, a.Error = nil, &wireError{e.Code, e.Message, data}
	return a
}

// caller is who sends a request, as far as headers say.
type caller struct {
	token  string
	scopes map[Scope]bool
}

type callerKey struct{}

// authenticate is the first check: whose token it is.
func (s *Server) authenticate(r *http.Request) (*caller, *Error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return nil, fail(AuthnFailed, "want the header Authorization: Bearer TOKEN")
	}
	scopes, ok := s.Scopes(token)
	if !ok {
		return nil, fail(AuthnFailed, "the token is not known here")
	}
	c := &caller{token: token, scopes: map[Scope]bool{}}
	for _, sc := range scopes {
		c.scopes[sc] = true
	}
	return c, nil
}

// speaks is the second: the protocol's version.
func speaks(r *http.Request) *Error {
	asked := r.Header.Get(versionHeader)
	for _, v := range versions {
		if asked == v {
			return nil
		}
	}
	e := fail(VersionMismatch, "want the header %s: %s", versionHeader, Version)
	if asked != "" {
		e.Message = "version " + clip(asked) + " is not spoken here; " + e.Message
	}
	e.Data = map[string]any{"supported_versions": versions}
	return e
}

// session is the third: one that initialize gave to this token.
func (s *Server) session(r *http.Request, c *caller) *Error {
	id := r.Header.Get(sessionHeader)
	if id == "" {
		return fail(SessionExpired, "want the header %s, with the session_id that initialize gave", sessionHeader)
	}
	if v, ok := s.sessions.use(s.Now(), id, c.token); !ok || v != r.Header.Get(versionHeader) {
		return fail(SessionExpired, "there is no such session (any more): call initialize for another")
	}
	return nil
}

// may is the check of a scope.
func (c *caller) may(sc Scope) *Error {
	if sc == "" || c.scopes[sc] {
		return nil
	}
	e := fail(AuthzDenied, "this token lacks the scope %s", sc)
	e.Data = map[string]any{"scope": string(sc)}
	return e
}

// rpc serves JSON-RPC 2.0: a call, a notification or a batch. What concerns the
// whole request is checked once; each call then has its own answer.
func (s *Server) rpc(w http.ResponseWriter, r *http.Request) {
	c, bad := s.authenticate(r)
	if bad == nil {
		bad = speaks(r)
	}
	limit := int64(maxBody)
	if bad != nil {
		limit = maxShown
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, limit))
	var long *http.MaxBytesError
	switch {
	case err != nil && bad != nil:
		s.write(w, s.answer("", nil, bad))
		return
	case errors.As(err, &long):
		s.write(w, s.answer("", nil, fail(InvalidRequest, "a request holds at most %d bytes", maxBody)))
		return
	case err != nil:
		return // the sender is gone
	}
	requests, err := parse(body)
	if err == nil && len(requests) > maxBatch {
		err = fail(InvalidRequest, "a batch holds at most %d calls", maxBatch)
	}
	if bad != nil && (err != nil || len(requests) == 0) {
		err = bad
	}
	if err != nil {
		s.write(w, s.answer("", nil, err))
		return
	}
	var out []answer
	ctx := context.WithValue(r.Context(), callerKey{}, c)
	for _, q := range requests {
		id, result, err := q.ID, any(nil), error(nil)
		switch {
		case bad != nil:
			err = bad
		case q.Error != nil:
			err = fail(InvalidRequest, "%s", q.Error.Message)
		default:
			result, err = s.call(ctx, r, c, q)
		}
		if id != "" || q.Error != nil {
			out = append(out, s.answer(id, result, err))
		}
	}
	switch {
	case len(out) == 0 && bad != nil:
		w.WriteHeader(codes[bad.Code].status)
	case len(out) == 0:
		w.WriteHeader(http.StatusNoContent)
	case requests[0].Batch:
		s.writeAll(w, http.StatusOK, out)
	default:
		s.write(w, out[0])
	}
}

// parse reads a body as JSON-RPC 2.0 has it.
func parse(body []byte) ([]*jrpc2.ParsedRequest, error) {
	tree, err := event.ParseJSON(body)
	if err != nil {
		return nil, fail(ParseError, "the body is not JSON: %v", err)
	}
	requests, err := jrpc2.ParseRequests(body)
	if err != nil {
		return nil, fail(ParseError, "the body is not JSON: %v", err)
	}
	if len(requests) == 0 {
		return nil, fail(InvalidRequest, "the batch is empty")
	}
	members, ok := tree.([]any)
	if !ok {
		members = []any{tree}
	}
	for i, q := range requests {
		if m, ok := members[i].(map[string]any); ok && m["id"] == nil {
			if _, there := m["id"]; there {
				q.ID = "null" // discouraged, but a call all the same
			}
			continue
		}
		if q.ID != "" && q.ID[0] != '"' && strings.Trim(q.ID, "-0123456789.eE+") != "" {
			q.ID, q.Error = "", &jrpc2.Error{Message: "an id is a string or a number"}
		}
	}
	return requests, nil
}

// call makes the checks that are each call's own, in the protocol's order, and
// calls.
func (s *Server) call(ctx context.Context, r *http.Request, c *caller, q *jrpc2.ParsedRequest) (any, error) {
	if q.Method != "initialize" {
		if bad := s.session(r, c); bad != nil {
			return nil, bad
		}
	}
	m, ok := methods[q.Method]
	if !ok {
		return nil, fail(MethodNotFound, "there is no method %q", clip(q.Method))
	}
	if m.needs != "" && (!s.offered[m.needs] || m.call == nil) {
		return nil, unsupported(m.needs)
	}
	if bad := c.may(m.scope); bad != nil {
		return nil, bad
	}
	return m.call(s, ctx, q.Params)
}

func unsupported(needs Capability) *Error {
	e := fail(CapabilityNotSupported, "this runtime does not offer %s", needs)
	e.Data = map[string]any{"capability": string(needs)}
	return e
}

// decode reads a method's params. Members that it does not know are passed
// over: later versions may have them.
func decode(params json.RawMessage, p any) error {
	params = bytes.TrimSpace(params)
	if len(params) == 0 || string(params) == "null" {
		params = []byte("{}")
	}
	if params[0] != '{' {
		return fail(InvalidParams, "params are an object")
	}
	err := json.Unmarshal(params, p)
	var wrong *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrong):
		return fail(InvalidParams, "%s: a %s does not fit", wrong.Field, wrong.Value)
	case err != nil:
		return fail(InvalidParams, "params: %v", err)
	}
	return nil
}

func (s *Server) write(w http.ResponseWriter, a answer) {
	status := http.StatusOK
	if a.Error != nil {
		status = codes[a.Error.Code].status
	}
	s.writeAll(w, status, a)
}

func (s *Server) writeAll(w http.ResponseWriter, status int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		s.Log.Error("an answer cannot be told", "err", err)
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}

// initialize settles version and capabilities, and begins a session.
func (s *Server) initialize(ctx context.Context, params json.RawMessage) (any, error) {
	var p struct {
		ClientInfo            struct{ Name, Version string } `json:"client_info"`
		RequestedVersions     []string                       `json:"requested_versions"`
		RequestedCapabilities map[string]bool                `json:"requested_capabilities"`
	}
	if err := decode(params, &p); err != nil {
		return nil, err
	}
	if len(p.RequestedVersions) == 0 {
		return nil, fail(InvalidParams, "requested_versions: name at least one, such as %s", Version)
	}
	version := ""
	for _, v := range versions { // ours, the best first
		for _, asked := range p.RequestedVersions {
			if version == "" && asked == v {
				version = v
			}
		}
	}
	if version == "" {
		e := fail(VersionMismatch, "none of the requested versions is spoken here; ask for %s", Version)
		e.Data = map[string]any{"supported_versions": versions}
		return nil, e
	}
	// What was not asked for is told too: it is what the runtime supports.
	capabilities := map[string]bool{}
	for _, name := range Capabilities {
		capabilities[string(name)] = s.offered[name]
	}
	id := s.ids.make(sessionPrefix, s.Now())
	s.sessions.open(s.Now(), id, version, ctx.Value(callerKey{}).(*caller).token)
	return map[string]any{
		"server_info":      map[string]any{"name": s.Name, "version": s.Version},
		"protocol_version": version,
		"capabilities":     capabilities,
		"session_id":       id,
	}, nil
}
