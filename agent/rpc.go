package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cenkalti/backoff/v4"

	"aep-wrap/adapters"
	"aep-wrap/control"
	"aep-wrap/event"
)

// The Agent Execution Protocol's words (ADR-0003), as an embedder uses them.
const (
	rpcVersion   = "aep-2026-04-24"
	rpcPath      = "/aep/v1/rpc"
	rpcApprove   = "agent.approve_prompt_change"
	rpcExpired   = -32010
	rpcPatience  = 30 * time.Second
	rpcSilence   = 2 * time.Minute // of a run's stream, after which it is taken up anew
	rpcLookEvery = 3 * time.Second // for runs that began
	rpcMaxBody   = 16 << 20
	rpcMaxRuns   = 256 // that are followed at once
)

// ModifyPrompt is the capability of a runtime whose agents change their own
// prompts, which its embedders approve.
const ModifyPrompt = "self.modify_prompt"

// RuntimeConfig says which runtime is followed.
type RuntimeConfig struct {
	URL, Token string
	Run        string // "" is every run that goes on, and those that begin
	// Reply is the adapter's: the params by which the runtime is told an answer.
	Reply func(adapters.Moment, adapters.Answer) []byte
	Log   *slog.Logger
	Say   func(line string)
}

// runtimeRoad is where what a runtime tells goes: a Road.
type runtimeRoad interface {
	Ask(m adapters.Moment, size int, reply func(adapters.Answer) []byte) *control.Hold
}

// Runtime is an embedder's view of a runtime that speaks the Agent Execution
// Protocol: it follows runs, each over as many connections as it takes, cancels
// them, and approves changes of prompts.
type Runtime struct {
	cfg     RuntimeConfig
	road    runtimeRoad
	base    string
	client  *http.Client
	id      atomic.Int64
	mu      sync.Mutex
	session string
	agents  map[string]string // of each run that was seen
	follow  map[string]bool   // runs that are, or were, followed
	answers sync.WaitGroup
}

// RPCError is a call that the runtime refused.
type RPCError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

func (e *RPCError) Error() string { return fmt.Sprintf("%s (%d)", e.Message, e.Code) }

// NewRuntime makes the view; nothing is asked before Connect.
func NewRuntime(c RuntimeConfig) (*Runtime, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	u, err := url.Parse(c.URL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("that is no URL of a runtime: it must look like http://127.0.0.1:8788")
	}
	return &Runtime{
		cfg: c, base: strings.TrimSuffix(u.String(), "/"), agents: map[string]string{}, follow: map[string]bool{},
		client: &http.Client{
			Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, ResponseHeaderTimeout: rpcPatience},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // our token is for this host
		},
	}, nil
}

// Connect makes the first contact, which must work, and says what the runtime
// offers.
func (r *Runtime) Connect(ctx context.Context) (offers map[string]bool, err error) {
	return r.initialize(ctx)
}

// Follow follows until the run that was named has ended, or ctx does. Contacts
// that fail are tried again for ever.
func (r *Runtime) Follow(ctx context.Context, road runtimeRoad) error {
	r.road = road
	ctx, cancel := context.WithCancel(ctx)
	defer r.client.CloseIdleConnections()
	defer r.answers.Wait()
	defer cancel()
	var runs sync.WaitGroup
	defer runs.Wait()
	if r.cfg.Run != "" {
		agent, err := r.agentOf(ctx, r.cfg.Run)
		if err != nil {
			return err
		}
		return r.run(ctx, agent, r.cfg.Run)
	}
	for {
		found, err := r.running(ctx)
		if err != nil && ctx.Err() == nil {
			r.cfg.Log.Warn("the runtime's runs cannot be listed", "err", err)
		}
		for run, agent := range found {
			if r.begin(run) {
				runs.Go(func() {
					if err := r.run(ctx, agent, run); err != nil && ctx.Err() == nil {
						r.say(fmt.Sprintf("run %s is no longer followed: %v", run, err))
					}
				})
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rpcLookEvery):
		}
	}
}

// begin says whether a run is to be followed from now on.
func (r *Runtime) begin(run string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.follow[run] || len(r.follow) >= rpcMaxRuns {
		return false
	}
	r.follow[run] = true
	return true
}

// Cancel cancels a run.
func (r *Runtime) Cancel(ctx context.Context, run string) error {
	return r.call(ctx, "run.cancel", map[string]any{"run_id": run}, nil)
}

func (r *Runtime) say(line string) {
	r.cfg.Log.Warn(line)
	if r.cfg.Say != nil {
		r.cfg.Say(line)
	}
}

// initialize begins a session with the runtime.
func (r *Runtime) initialize(ctx context.Context) (offers map[string]bool, err error) {
	var got struct {
		SessionID    string          `json:"session_id"`
		Capabilities map[string]bool `json:"capabilities"`
	}
	r.mu.Lock()
	r.session = ""
	r.mu.Unlock()
	err = r.once(ctx, "initialize", map[string]any{
		"client_info":            map[string]string{"name": "aep-wrap", "version": rpcVersion},
		"requested_versions":     []string{rpcVersion},
		"requested_capabilities": map[string]bool{"streaming.sse": true, ModifyPrompt: true},
	}, &got)
	switch {
	case err != nil:
		return nil, err
	case !got.Capabilities["streaming.sse"]:
		return nil, errors.New("the runtime does not stream events (streaming.sse): nothing of it can be followed")
	}
	r.mu.Lock()
	r.session = got.SessionID
	r.mu.Unlock()
	return got.Capabilities, nil
}

// call calls a method, in a session that is made anew where the runtime has
// forgotten it.
func (r *Runtime) call(ctx context.Context, method string, params, result any) error {
	err := r.once(ctx, method, params, result)
	var refused *RPCError
	if errors.As(err, &refused) && refused.Code == rpcExpired {
		if _, err = r.initialize(ctx); err == nil {
			err = r.once(ctx, method, params, result)
		}
	}
	return err
}

func (r *Runtime) once(ctx context.Context, method string, params, result any) error {
	ctx, cancel := context.WithTimeout(ctx, rpcPatience)
	defer cancel()
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": r.id.Add(1), "method": method, "params": params})
	if err != nil {
		return err
	}
	res, err := r.send(ctx, http.MethodPost, rpcPath, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, rpcMaxBody))
	if err != nil {
		return err
	}
	var answer struct {
		Result json.RawMessage `json:"result"`
		Error  *RPCError       `json:"error"`
	}
	if err := json.Unmarshal(raw, &answer); err != nil {
		return fmt.Errorf("%s: the runtime answered %s, and not with JSON-RPC", method, res.Status)
	}
	switch {
	case answer.Error != nil:
		return fmt.Errorf("%s: %w", method, answer.Error)
	case result == nil:
		return nil
	}
	return json.Unmarshal(answer.Result, result)
}

func (r *Runtime) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, r.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+r.cfg.Token)
	req.Header.Set("Agent-Protocol-Version", rpcVersion)
	r.mu.Lock()
	if r.session != "" {
		req.Header.Set("X-AEP-Session-Id", r.session)
	}
	r.mu.Unlock()
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	} else {
		req.Header.Set("Accept", "text/event-stream")
	}
	return r.client.Do(req)
}

func (r *Runtime) agentOf(ctx context.Context, run string) (string, error) {
	var got struct {
		AgentID string `json:"agent_id"`
	}
	err := r.call(ctx, "run.get", map[string]any{"run_id": run}, &got)
	return got.AgentID, err
}

// page is a page of a list.
type page[T any] struct {
	Items  []T    `json:"items"`
	Cursor string `json:"cursor"`
}

// running are the runs that go on, with their agents.
func (r *Runtime) running(ctx context.Context) (map[string]string, error) {
	out := map[string]string{}
	type item struct {
		ID    string `json:"id"`
		State string `json:"state"`
	}
	list := func(method string, params map[string]any, each func(item) error) error {
		for {
			var p page[item]
			if err := r.call(ctx, method, params, &p); err != nil {
				return err
			}
			for _, i := range p.Items {
				if err := each(i); err != nil {
					return err
				}
			}
			if p.Cursor == "" || p.Cursor == params["cursor"] {
				return nil
			}
			params["cursor"] = p.Cursor
		}
	}
	err := list("agent.list", map[string]any{"limit": 200}, func(a item) error {
		if a.State == "archived" {
			return nil
		}
		return list("run.list", map[string]any{"agent_id": a.ID, "limit": 200}, func(run item) error {
			if run.State == "running" || run.State == "sleeping" {
				out[run.ID] = a.ID
			}
			return nil
		})
	})
	return out, err
}

// run follows one run to its end.
func (r *Runtime) run(ctx context.Context, agent, run string) error {
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(15*time.Second), backoff.WithMaxElapsedTime(0))
	since, lost := "", false
	for {
		over, err := r.stream(ctx, agent, run, &since, func() {
			retry.Reset()
			if lost {
				lost = false
				r.say("the runtime at " + r.base + " is there again")
			}
		})
		var refused *RPCError
		switch {
		case over || ctx.Err() != nil:
			return nil
		case errors.As(err, &refused) && refused.Code == rpcExpired:
			_, err = r.initialize(ctx)
		case errors.As(err, &refused):
			return err
		}
		if err != nil && !lost {
			lost = true
			r.say(fmt.Sprintf("the runtime at %s is lost, and tried again: %v", r.base, err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retry.NextBackOff()):
		}
	}
}

// stream reads a run's events behind since; over says that its terminal was
// among them.
func (r *Runtime) stream(ctx context.Context, agent, run string, since *string, alive func()) (over bool, err error) {
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	path := "/aep/v1/runs/" + url.PathEscape(run) + "/events"
	if *since != "" {
		path += "?since=" + url.QueryEscape(*since)
	}
	res, err := r.send(reading, http.MethodGet, path, nil)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		var answer struct {
			Error *RPCError `json:"error"`
		}
		raw, _ := io.ReadAll(io.LimitReader(res.Body, 1<<20))
		if json.Unmarshal(raw, &answer) == nil && answer.Error != nil {
			return false, answer.Error
		}
		return false, fmt.Errorf("the stream of %s: %s", run, res.Status)
	}
	silence := time.AfterFunc(rpcSilence, cancel)
	defer silence.Stop()
	first := sync.OnceFunc(alive)
	err = readEvents(&lively{res.Body, func() { silence.Reset(rpcSilence); first() }}, func(data []byte) {
		tree, err := event.ParseObject(data)
		if err != nil {
			r.cfg.Log.Warn("an event of the runtime's cannot be read", "run", run, "err", err)
			return
		}
		typ, _ := tree["type"].(string)
		id, _ := tree["event_id"].(string)
		m := adapters.Moment{Channel: adapters.Server, Name: typ, Payload: tree, Raw: data, Session: agent, Time: time.Now()}
		if at, ok := tree["emitted_at"].(string); ok {
			if t, err := time.Parse(time.RFC3339, at); err == nil {
				m.Time = t
			}
		}
		if hold := r.road.Ask(m, len(data), func(a adapters.Answer) []byte { return r.cfg.Reply(m, a) }); hold != nil {
			r.answers.Go(func() { r.await(ctx, hold) })
		}
		if id != "" {
			*since = id
		}
		over = over || typ == "run.ended"
	}, func(n int) { r.cfg.Log.Warn("an event of the runtime's is too long", "run", run, "bytes", n) })
	if over {
		return true, nil
	}
	if err == nil {
		err = errors.New("the stream ended before the run")
	}
	return false, err
}

// await waits for an answer to a prompt's change and tells the runtime. It
// outlives the stream that asked: the change is the agent's, not the run's.
func (r *Runtime) await(ctx context.Context, hold *control.Hold) {
	params := hold.Wait(ctx)
	if _, ok := hold.Answer(); !ok {
		return
	}
	var asked struct {
		Approve bool `json:"approve"`
	}
	_ = json.Unmarshal(params, &asked) // of the adapter's making
	var got struct {
		Applied *bool `json:"applied"`
	}
	err := r.call(context.WithoutCancel(ctx), rpcApprove, json.RawMessage(params), &got)
	if err == nil && asked.Approve && got.Applied != nil && !*got.Applied {
		err = errors.New("the runtime did not apply it")
	}
	if err != nil {
		r.say(fmt.Sprintf("an answer to a prompt's change was not applied: %v", err))
		hold.Undelivered()
		return
	}
	hold.Applied()
}
