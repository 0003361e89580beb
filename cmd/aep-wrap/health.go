package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// stalled is how long the loop of serve may take for one turn.
const stalled = 30 * time.Second

// health tells others how serve is: a supervisor, and who gathers metrics.
type health struct {
	addr string
	http *http.Server
}

// listenHealth serves at addr until close.
func (s *serving) listenHealth(addr string) (*health, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("cannot listen on %s: %w; another address, or off: --health-listen", addr, reason(err))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", s.metrics.handler())
	h := &health{addr: l.Addr().String(), http: &http.Server{
		Handler: mux, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10,
	}}
	go func() { _ = h.http.Serve(l) }() // it ends by close
	return h, nil
}

func (h *health) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if h.http.Shutdown(ctx) != nil {
		_ = h.http.Close()
	}
}

// healthz says whether the process lives and its loops turn.
func (s *serving) healthz(w http.ResponseWriter, _ *http.Request) {
	since := time.Since(time.UnixMilli(s.turned.Load()))
	if since > stalled && !s.draining.Load() {
		tellHealth(w, http.StatusServiceUnavailable, map[string]any{"status": "stalled", "since_ms": since.Milliseconds()})
		return
	}
	tellHealth(w, http.StatusOK, map[string]any{"status": "ok"})
}

// readiness is how serve stands. A collector that cannot be reached is told,
// and is no reason not to be ready: the log keeps what it does not take, and an
// agent is not to wait for it.
type readiness struct {
	Status    string                    `json:"status"`
	LogDir    string                    `json:"log_dir"`
	Sessions  int                       `json:"sessions"`
	Holds     int                       `json:"holds"`
	Collector map[string]collectorState `json:"collector,omitempty"` // by the way that events take
}

// collectorState is how a way to the collector stands.
type collectorState struct {
	By       string `json:"by,omitempty"` // what carries events now, or tries to
	State    string `json:"state"`
	Since    string `json:"since"`
	Word     string `json:"word,omitempty"`      // why nothing gets through
	NoSocket string `json:"no_socket,omitempty"` // why it is not by the socket
}

func (s *serving) readyz(w http.ResponseWriter, _ *http.Request) {
	st := s.hub.Stats()
	r := readiness{Status: "ready", LogDir: "ok", Sessions: st.Live, Holds: st.Held, Collector: s.out.states()}
	code := http.StatusOK
	if err := roomIn(s.app.cfg.LogDir); err != nil {
		r.Status, r.LogDir, code = "not ready", reason(err).Error(), http.StatusServiceUnavailable
	}
	if other := s.other.Load(); other != nil {
		r.Status, r.LogDir, code = "not ready", *other+" writes in it", http.StatusServiceUnavailable
	}
	if s.draining.Load() {
		r.Status, code = "draining", http.StatusServiceUnavailable
	}
	tellHealth(w, code, r)
}

// room is what a directory of session logs must have, in bytes: less is too
// little for what one hook may tell.
const room = 64 << 10

// roomIn says whether something can be written in a directory: a full disk
// takes a small file still.
func roomIn(dir string) error {
	f, err := os.CreateTemp(dir, ".room-")
	if err != nil {
		return err
	}
	_, err = f.Write(make([]byte, room))
	return errors.Join(err, f.Close(), os.Remove(f.Name()))
}

func tellHealth(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // whoever asked has gone
}

// states are how the ways to the collector stand, by the agent whose socket it
// is; post is that of all others.
func (s *watchSinks) states() map[string]collectorState {
	out := map[string]collectorState{}
	for _, w := range s.ways() {
		if w.kind == byPost && w.attempts == 0 {
			continue // nothing was sent by it
		}
		out[cmp.Or(w.agent, byPost)] = collectorState{w.by, w.state, w.since.UTC().Format(time.RFC3339), w.word, w.noSocket}
	}
	return out
}
