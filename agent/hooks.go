package agent

import (
	"bufio"
	"compress/gzip"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/agent/hookclient"
)

// Observer takes what the channels bring in. Size is the payload's, in bytes.
// Hook is Observe for a hook, which may hear something.
type Observer interface {
	Observe(m adapters.Moment, size int)
	Hook(m adapters.Moment, size int) *Held
	Refuse(x Refusal)
}

// HookConfig says what a HookServer serves.
type HookConfig struct {
	Adapter  string   // the one adapter whose hooks are taken
	Dir      string   // a directory of our own (0700) for the socket
	Observer Observer // takes them, and whatever cannot be read
	Log      *slog.Logger

	// Place is where agents find us that others started; nil is a place for one
	// launch. Serves gives, there, who takes the hooks of an adapter, and nil for
	// one that nobody knows.
	Place  *HookPlace
	Serves func(adapter string) Observer

	// Took hears of each hook that was taken how long its agent waited, and
	// whether for an answer from afar. Nil is nobody.
	Took func(adapter string, held bool, d time.Duration)
}

// HookPlace is a place that stays from one start to the next. What is empty
// is not served.
type HookPlace struct {
	Listen string // an address on loopback
	Secret string // the word in the path of its URLs
	Socket string // path of the unix socket
	Group  int    // a group whose users reach the socket; negative is none
}

// HookServer is where a runtime reports to: HTTP on loopback under a secret
// path, and a unix socket of mode 0600 for the helper; both are made for one
// launch, or stand at a place that agents were told of. It answers every request at once, with no decision, unless the
// observer has the runtime wait for one, and it never answers with an error
// that a runtime could take for one.
type HookServer struct {
	cfg      HookConfig
	secret   atomic.Pointer[string]
	http     *http.Server
	httpAddr string
	socket   string
	unix     net.Listener
	intake   *intake
	heldOver atomic.Int64 // bytes of large payloads whose runtime waits for an answer
	conns    sync.WaitGroup
	requests chan struct{}
	helpers  chan struct{}
	ctx      context.Context
	cancel   context.CancelFunc
}

// ServeHooks starts the server. Where one of its two halves cannot listen the
// other works and the error says what is missing; the server is never nil.
func ServeHooks(c HookConfig) (*HookServer, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Place == nil {
		c.Place = &HookPlace{Listen: "127.0.0.1:0", Secret: NewSecret(), Socket: filepath.Join(c.Dir, "hook.sock"), Group: -1}
	}
	if c.Serves == nil {
		c.Serves = func(adapter string) Observer {
			if adapter != c.Adapter {
				return nil
			}
			return c.Observer
		}
	}
	h := &HookServer{cfg: c, intake: newIntake(), requests: make(chan struct{}, maxConns), helpers: make(chan struct{}, maxConns)}
	h.SetSecret(c.Place.Secret)
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h, errors.Join(h.listenHTTP(), h.listenUnix())
}

// SetSecret changes the word that requests by HTTP must know.
func (h *HookServer) SetSecret(word string) { h.secret.Store(&word) }

// NewSecret is a word that nobody can guess.
func NewSecret() string {
	var b [24]byte
	rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

// Endpoint fills in where the runtime reports to; a half that does not listen
// leaves its fields empty.
func (h *HookServer) Endpoint(e *adapters.Endpoint) {
	if h.httpAddr != "" {
		e.HookURL = "http://" + h.httpAddr + "/hook/" + *h.secret.Load()
		e.OTLPURL = "http://" + h.httpAddr + "/otlp/" + *h.secret.Load()
	}
	e.Socket = h.socket
}

// Close takes nothing new, ends what is held with no decision, and waits for
// what was already read, up to ctx.
func (h *HookServer) Close(ctx context.Context) {
	h.cancel()
	if h.unix != nil {
		h.unix.Close()
	}
	if h.http != nil {
		if err := h.http.Shutdown(ctx); err != nil {
			h.http.Close()
		}
	}
	done := make(chan struct{})
	go func() { h.conns.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// ---- HTTP

func (h *HookServer) listenHTTP() error {
	at := h.cfg.Place.Listen
	if at == "" {
		return nil
	}
	l, err := net.Listen("tcp", at)
	if err != nil {
		return fmt.Errorf("no port on loopback for http hooks: %w", err)
	}
	h.httpAddr = l.Addr().String()
	mux := http.NewServeMux()
	mux.HandleFunc("POST /hook/{secret}/{adapter}", h.hook)
	mux.HandleFunc("POST /hook/{secret}/{adapter}/{event}", h.hook)
	if h.cfg.Adapter != "" { // its path does not say whose it is
		mux.HandleFunc("POST /otlp/{secret}/v1/{signal}", h.otlp)
	}
	h.http = &http.Server{
		Handler:           h.guard(mux),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       5 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(h.cfg.Log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return h.ctx },
	}
	go h.http.Serve(l)
	return nil
}

// guard keeps out whoever is not a runtime that was told the secret: web pages
// (their requests carry an Origin, or a Host that was rebound to us) and other
// local programs. All see a server where nothing is.
func (h *HookServer) guard(next http.Handler) http.Handler {
	_, port, _ := net.SplitHostPort(h.httpAddr)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, rest, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		secret, _, _ := strings.Cut(rest, "/")
		known := subtle.ConstantTimeCompare([]byte(secret), []byte(*h.secret.Load())) == 1
		local := r.Host == h.httpAddr || r.Host == "localhost:"+port
		if !known || !local || r.Header.Get("Origin") != "" {
			http.NotFound(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (h *HookServer) hook(w http.ResponseWriter, r *http.Request) {
	began := time.Now()
	select {
	case h.requests <- struct{}{}:
		defer func() { <-h.requests }()
	default:
		h.take(r.PathValue("adapter"), r.PathValue("event"), &payload{reason: "busy"})
		return
	}
	held := h.take(r.PathValue("adapter"), r.PathValue("event"), h.body(w, r))
	defer h.took(r.PathValue("adapter"), held, began)
	if held == nil {
		return // 200 and an empty body: no decision
	}
	answer := held.Answer(r.Context())
	if len(answer) == 0 {
		held.Told(nil)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
	err := r.Context().Err() // later it may only say that who has the answer went
	if err == nil {
		_, err = w.Write(answer)
	}
	if err == nil {
		err = http.NewResponseController(w).Flush()
	}
	held.Told(err)
}

// took tells of a hook that is answered.
func (h *HookServer) took(adapter string, held *Held, began time.Time) {
	if h.cfg.Took != nil && h.cfg.Serves(adapter) != nil {
		h.cfg.Took(adapter, held.Waits(), time.Since(began))
	}
}

// body reads a request's body within the bounds.
func (h *HookServer) body(w http.ResponseWriter, r *http.Request) *payload {
	ctl := http.NewResponseController(w)
	var in io.Reader = &pacedReader{r: r.Body, deadline: func(t time.Time) { ctl.SetReadDeadline(t) }}
	defer ctl.SetReadDeadline(time.Time{})
	switch strings.ToLower(r.Header.Get("Content-Encoding")) {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(in)
		if err != nil {
			return &payload{reason: "not_gzip"}
		}
		in = z
	default:
		return &payload{reason: "unknown_encoding"}
	}
	return h.intake.read(in, false)
}

// pacedReader gives each read a deadline of its own, and all of them one.
type pacedReader struct {
	r        io.Reader
	deadline func(time.Time)
	end      time.Time
}

func (p *pacedReader) Read(b []byte) (int, error) {
	now := time.Now()
	if p.end.IsZero() {
		p.end = now.Add(readTotal)
	}
	t := now.Add(stall)
	if t.After(p.end) {
		t = p.end
	}
	p.deadline(t)
	return p.r.Read(b)
}

// take makes a payload a moment and hands it on.
func (h *HookServer) take(adapter, name string, p *payload) (held *Held) {
	observer := h.cfg.Serves(adapter)
	if observer == nil {
		observer, p.reason = h.cfg.Observer, "unknown_adapter"
	}
	h.intake.work(p, func(p *payload, tree map[string]any) {
		if p.reason != "" {
			observer.Refuse(Refusal{Channel: adapters.Hook, Name: name, Reason: p.reason, Bytes: p.size})
			return
		}
		if name == "" {
			name, _ = tree["hook_event_name"].(string)
		}
		held = observer.Hook(adapters.Moment{Channel: adapters.Hook, Name: name, Payload: tree, Raw: p.raw, Cut: p.cut, Time: time.Now()}, p.size)
		if n := len(p.raw); p.turn && held.Waits() {
			held = h.bounded(held, int64(n))
		}
	})
	return held
}

// bounded has a runtime that waits with a large payload wait for nothing where
// there are many of them.
func (h *HookServer) bounded(held *Held, bytes int64) *Held {
	out := *held
	if h.heldOver.Add(bytes) > maxHeldLarge {
		out.wait = func(ctx context.Context) []byte {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return held.wait(ctx)
		}
	}
	out.told = func(err error) {
		h.heldOver.Add(-bytes)
		held.Told(err)
	}
	return &out
}

// ---- the unix socket

func (h *HookServer) listenUnix() error {
	path := h.cfg.Place.Socket
	if path == "" {
		return nil
	}
	l, err := bindSocket(path, h.cfg.Place.Group)
	if err != nil {
		return fmt.Errorf("no socket for command hooks: %w", err)
	}
	h.unix, h.socket = l, path
	h.conns.Add(1)
	go func() {
		defer h.conns.Done()
		for {
			c, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil { // out of descriptors, most likely
				select {
				case <-h.ctx.Done():
					return
				case <-time.After(20 * time.Millisecond):
				}
				continue
			}
			select {
			case h.helpers <- struct{}{}:
				h.conns.Add(1)
				go func() {
					defer h.conns.Done()
					defer func() { <-h.helpers }()
					defer c.Close()
					h.helper(c.(*net.UnixConn))
				}()
			default:
				c.Close() // which is no decision
			}
		}
	}()
	return nil
}

// bindSocket listens at path, where nobody else does: what a crash left there
// is removed.
func bindSocket(path string, group int) (net.Listener, error) {
	if fi, err := os.Lstat(path); err == nil && fi.Mode().Type() == os.ModeSocket {
		if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
			c.Close()
			return nil, fmt.Errorf("%s: somebody listens there already", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, err
	}
	mode := os.FileMode(0o600)
	if group >= 0 {
		mode, err = 0o660, os.Lchown(path, -1, group)
	}
	if err = errors.Join(err, os.Chmod(path, mode)); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// helper serves one run of the hook helper. Whom the group lets in, the
// socket's mode has let in.
func (h *HookServer) helper(c *net.UnixConn) {
	if uid, err := peerUID(c); h.cfg.Place.Group < 0 && (err != nil || uid != os.Getuid()) {
		h.cfg.Log.Warn("a helper of another user was turned away", "uid", uid, "err", err)
		return
	}
	paced := &pacedReader{r: c, deadline: func(t time.Time) { c.SetReadDeadline(t) }}
	in := bufio.NewReaderSize(paced, 4<<10)
	greeting, err := in.ReadSlice('\n')
	began := time.Now()
	words := strings.Fields(string(greeting))
	if err != nil || len(words) < 2 || len(words) > 3 || words[0] != hookclient.Greeting {
		return
	}
	name := ""
	if len(words) == 3 {
		name = words[2]
	}
	held := h.take(words[1], name, h.intake.read(in, true))
	defer h.took(words[1], held, began)
	var answer []byte
	if held.Waits() {
		ctx, stop := whileThere(h.ctx, c)
		answer = held.Answer(ctx)
		stop()
	} else {
		answer = held.Answer(h.ctx)
	}
	c.SetWriteDeadline(time.Now().Add(stall))
	_, err = c.Write(append(append(strconv.AppendInt([]byte{hookclient.Answering}, int64(len(answer)), 10), '\n'), answer...))
	held.Told(err)
}

// whileThere is a context that ends when the helper has gone away. The helper
// closes its writing half after the payload, so an end of input says nothing:
// it is told again and again that its moment is held, and a write that fails
// does say it. After stop nothing more is written.
func whileThere(ctx context.Context, c *net.UnixConn) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer cancel()
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for {
			c.SetWriteDeadline(time.Now().Add(stall))
			if _, err := c.Write([]byte{hookclient.Waiting}); err != nil {
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	return ctx, func() { cancel(); <-ended }
}
