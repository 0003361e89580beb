package collector

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"aep-wrap/event"
)

// Config is what an endpoint is made of.
type Config struct {
	// Token admits on network addresses, as a bearer, to everything; Tokens
	// are others, each with its roles. Without any a loopback address is open
	// to watch and emit, and takes no commands. A unix socket is trusted by its
	// file mode alone.
	Token  string
	Tokens []Token

	// LinkKey signs the tokens of devices that links let in; without one there
	// are no links. See SetLinkKey.
	LinkKey []byte

	// Origins are the web origins, besides our own, whose pages may use the
	// endpoint: "https://watch.example".
	Origins []string
	// Hosts are the names, besides localhost and addresses, that the endpoint
	// is reached by.
	Hosts []string
	// TLS serves network listeners over TLS.
	TLS *tls.Config
	// BehindProxy says that a proxy on a trusted path ends TLS for us, and
	// checks Host.
	BehindProxy bool

	// LogDir holds session logs, read when Serve starts; "" for none.
	LogDir string
	// IdleExit ends Serve when nobody was connected by the socket or watched,
	// and nothing came in, for that long; 0 is never.
	IdleExit time.Duration

	// Notify calls people when an agent asks something; without a URL nobody.
	Notify Notify

	Limits Limits
	Log    *slog.Logger
}

// Collector is one endpoint.
type Collector struct {
	cfg    Config
	limits Limits
	log    *slog.Logger
	hub    *hub

	inFlight atomic.Int64 // bytes of bodies being read
	ready    atomic.Bool
	tokens   atomic.Pointer[admittance]
	links    links
	notify   *notifier // nil where nobody is called
	started  time.Time

	// draining is closed when open streams have to end.
	draining  chan struct{}
	drainOnce sync.Once

	local  atomic.Int64 // open connections on unix sockets
	taken  atomic.Int64 // connections that are, or may be, taken over from net/http
	claims claims
	open   sockets
	guests guests
	pace   pace
	look   *inspector
	stats  http.HandlerFunc // of /metrics
	active atomic.Int64     // when something last came in, Unix nanoseconds

	routes map[string]route
}

// route is what one path answers.
type route struct {
	methods map[string]method
}

// method is how a path answers one method, and who may ask: those who have one
// of the roles, or everybody where there is none.
type method struct {
	roles Role
	serve http.HandlerFunc
}

func get(roles Role, serve http.HandlerFunc) route {
	return route{map[string]method{"GET": {roles, serve}}}
}

// New makes an endpoint. It serves nothing yet.
func New(cfg Config) *Collector {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	hosts := make([]string, len(cfg.Hosts))
	for i, h := range cfg.Hosts {
		hosts[i] = strings.ToLower(h)
	}
	cfg.Hosts = hosts
	c := &Collector{
		cfg:      cfg,
		limits:   cfg.Limits.withDefaults(),
		log:      cfg.Log,
		started:  time.Now(),
		draining: make(chan struct{}),
	}
	c.hub = newHub(c.limits)
	c.hub.logs.dir = cfg.LogDir
	c.look = newInspector(c.log)
	c.hub.report = c.look.report
	if c.notify = newNotifier(cfg.Notify, c.log); c.notify != nil {
		c.hub.heard = c.notify.hear
	}
	c.stats = c.metrics()
	c.SetTokens(append([]Token{{Value: cfg.Token, Roles: AllRoles}}, cfg.Tokens...))
	c.SetLinkKey(cfg.LinkKey)
	c.routes = map[string]route{
		"/events":          {map[string]method{"GET": {AllRoles, c.discovery}, "POST": {Emit, c.ingest}}},
		"/.well-known/aep": get(AllRoles, c.discovery),
		"/stream":          get(Watch, c.stream),
		"/socket":          get(AllRoles, c.socket),
		"/link":            {map[string]method{"POST": {AllRoles, c.mintLink}}},
		"/erase":           {map[string]method{"POST": {AllRoles, c.erase}}},
		"/link/exchange":   {map[string]method{"POST": {0, c.exchangeLink}}},
		"/healthz":         get(0, c.healthz),
		"/readyz":          get(0, c.readyz),
		"/metrics":         get(Watch, func(w http.ResponseWriter, r *http.Request) { c.stats(w, r) }),
	}
	for path, serve := range pages() {
		c.routes[path] = get(0, serve)
	}
	c.touch()
	return c
}

// SetTokens replaces the tokens that network addresses ask for. Streams and
// sockets whose token does not allow any more what it did are ended. An
// endpoint that asked for one never stops asking: no tokens then admit nobody.
func (c *Collector) SetTokens(tokens []Token) {
	a := admittanceOf(tokens)
	if old := c.tokens.Load(); len(*a) == 0 && old != nil && len(*old) > 0 {
		a = &admittance{{}}
	}
	c.tokens.Store(a)
	c.guests.review(c.allowed)
}

// Handler serves the endpoint's paths.
func (c *Collector) Handler() http.Handler { return http.HandlerFunc(c.serve) }

func (c *Collector) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	if !c.guard(w, r) {
		return
	}
	rt, ok := c.routes[r.URL.Path]
	if !ok {
		fail(w, http.StatusNotFound, problem{Error: "not-found", Detail: "the endpoint's paths are /events, /stream, /socket, /healthz, /readyz, /metrics and /"})
		return
	}
	asked := r.Method
	if asked == http.MethodHead && r.URL.Path != "/stream" {
		asked = http.MethodGet
	}
	how, ok := rt.methods[asked]
	if !ok {
		var methods []string
		for m := range rt.methods {
			methods = append(methods, m)
		}
		methods = append(methods, http.MethodOptions)
		slices.Sort(methods)
		// A browser asks without its token.
		if r.Method == http.MethodOptions {
			c.preflight(w, r, methods)
			return
		}
		h.Set("Allow", strings.Join(methods, ", "))
		fail(w, http.StatusMethodNotAllowed, problem{Error: "method-not-allowed", Allow: methods})
		return
	}
	if how.roles != 0 {
		switch may := c.allowed(r); {
		case may == 0:
			h.Set("WWW-Authenticate", `Bearer realm="aep"`)
			c.refuse(w, http.StatusUnauthorized, problem{Error: "unauthorized",
				Detail: "send the endpoint's token: Authorization: Bearer TOKEN"})
			return
		case may&how.roles == 0:
			c.refuse(w, http.StatusForbidden, problem{Error: "forbidden",
				Detail: fmt.Sprintf("this token allows %v; %s %s wants %v", may, r.Method, r.URL.Path, how.roles)})
			return
		}
	}
	how.serve(w, r)
}

// discovery serves the document of AEP-0003 §3.4. It declares what is served,
// and no more.
func (c *Collector) discovery(w http.ResponseWriter, r *http.Request) {
	reply(w, http.StatusOK, map[string]any{
		"aep":          []string{event.Version},
		"role":         "collector",
		"endpoints":    map[string]string{"events": "/events", "stream": "/stream", "socket": "/socket"},
		"capabilities": c.capabilities(c.allowed(r)),
	})
}

// capabilities are what who has these roles may depend on (AEP-0003 §4).
func (c *Collector) capabilities(may Role) map[string]any {
	caps := map[string]any{
		"filters":      []string{"attr-match"},
		"replay":       map[string]any{"buffer": c.limits.SessionEvents, "all": true},
		"capture":      []string{"none", "metadata", "redacted", "full"},
		"roster":       map[string]any{},
		"experimental": map[string]any{inclusiveCapability: map[string]any{}},
	}
	if may&Control != 0 {
		// Commands are routed; the endpoint itself is no target.
		caps["control"] = map[string]any{"accepts": []string{}}
	}
	return caps
}

// health is what /healthz tells; the counts go to who may watch.
type health struct {
	OK        bool   `json:"ok"`
	Sessions  *int   `json:"sessions,omitempty"`
	Events    *int   `json:"events,omitempty"`
	Bytes     *int   `json:"bytes,omitempty"`
	Consumers *int   `json:"consumers,omitempty"`
	Received  *int64 `json:"received,omitempty"`
	Refused   *int64 `json:"refused,omitempty"`
	Dropped   *int64 `json:"dropped,omitempty"`
	Cut       *int64 `json:"cut,omitempty"`
	UptimeS   *int64 `json:"uptime_s,omitempty"`
}

func (c *Collector) healthz(w http.ResponseWriter, r *http.Request) {
	h := health{OK: true}
	if c.allowed(r)&Watch != 0 {
		c.hub.mu.Lock()
		sessions, events, bytes, consumers := len(c.hub.store.sessions), c.hub.store.events, c.hub.store.bytes, len(c.hub.consumers)
		c.hub.mu.Unlock()
		n := &c.hub.counts
		received, refused, dropped, cut := n.received.Load(), n.refused.Load(), n.dropped.Load(), n.cut.Load()
		uptime := int64(time.Since(c.started).Seconds())
		h = health{true, &sessions, &events, &bytes, &consumers, &received, &refused, &dropped, &cut, &uptime}
	}
	reply(w, http.StatusOK, h)
}

func (c *Collector) readyz(w http.ResponseWriter, _ *http.Request) {
	select {
	case <-c.draining:
		fail(w, http.StatusServiceUnavailable, problem{Error: "draining"})
	default:
		if !c.ready.Load() {
			fail(w, http.StatusServiceUnavailable, problem{Error: "starting"})
			return
		}
		reply(w, http.StatusOK, health{OK: true})
	}
}

func (c *Collector) touch() { c.active.Store(time.Now().UnixNano()) }

// Check refuses a listener that would let strangers in, as Serve does.
func (c *Collector) Check(l net.Listener) error {
	addr, ok := l.Addr().(*net.TCPAddr)
	if !ok || addr.IP.IsLoopback() {
		return nil
	}
	switch {
	case len(*c.tokens.Load()) == 0:
		return fmt.Errorf("collector: %s can be reached from other machines: set a token, or listen on 127.0.0.1", addr)
	case c.cfg.TLS == nil && !c.cfg.BehindProxy:
		return fmt.Errorf("collector: %s can be reached from other machines: give a TLS certificate and key, say that a proxy ends TLS, or listen on 127.0.0.1", addr)
	}
	return nil
}

// Serve reads the session logs and then serves the listeners until ctx is done
// or, with IdleExit, nobody needs it; both give nil. It closes the listeners.
// A unix socket's clients are trusted: its owner must have made it 0600.
func (c *Collector) Serve(ctx context.Context, listeners ...net.Listener) error {
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	for _, l := range listeners {
		if err := c.Check(l); err != nil {
			return err
		}
	}
	if c.cfg.LogDir != "" {
		if err := c.Reload(c.cfg.LogDir); err != nil {
			c.log.Warn("session logs were not read", "dir", c.cfg.LogDir, "error", err)
		}
	}
	c.touch()
	if c.notify != nil {
		calling, stop := context.WithCancel(context.WithoutCancel(ctx))
		told := make(chan struct{})
		go func() { defer close(told); c.notify.run(calling) }()
		defer func() { stop(); <-told }()
	}
	go c.look.run()
	c.ready.Store(true)

	ended := make(chan error, len(listeners))
	servers := make([]*http.Server, len(listeners))
	for i, l := range listeners {
		servers[i] = c.server(l)
		if l.Addr().Network() != "unix" {
			l = limit(l, c.limits.Connections)
			if c.cfg.TLS != nil {
				l = tls.NewListener(l, c.cfg.TLS)
			}
		}
		go func() { ended <- servers[i].Serve(l) }()
	}
	err := c.wait(ctx, ended)
	c.drainOnce.Do(func() { close(c.draining) })
	c.hub.hurry()
	timeout, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.limits.Drain)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() { c.open.drain(timeout) })
	for _, s := range servers {
		wg.Go(func() {
			if s.Shutdown(timeout) != nil {
				s.Close()
			}
		})
	}
	wg.Wait()
	// Of what net/http does not know any more none is new from here on.
	for c.taken.Load() > 0 && timeout.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	c.look.close()
	return err
}

// wait returns when the endpoint has to end.
func (c *Collector) wait(ctx context.Context, ended <-chan error) error {
	var tick <-chan time.Time
	if c.cfg.IdleExit > 0 {
		t := time.NewTicker(max(c.cfg.IdleExit/20, 10*time.Millisecond))
		defer t.Stop()
		tick = t.C
	}
	review := time.NewTicker(reviewEvery)
	defer review.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-review.C:
			c.guests.review(c.allowed)
		case err := <-ended:
			if errors.Is(err, http.ErrServerClosed) {
				return nil
			}
			return fmt.Errorf("collector: %w", err)
		case <-tick:
			if c.local.Load() > 0 || c.open.count() > 0 || c.hub.watching() > 0 {
				c.touch()
			}
			if time.Since(time.Unix(0, c.active.Load())) >= c.cfg.IdleExit {
				c.log.Info("nobody needs the collector: ending", "idle", c.cfg.IdleExit)
				return nil
			}
		}
	}
}

func (c *Collector) server(l net.Listener) *http.Server {
	s := &http.Server{
		Handler:           c.Handler(),
		ReadHeaderTimeout: c.limits.Header,
		IdleTimeout:       c.limits.Idle,
		MaxHeaderBytes:    c.limits.Query,
		ConnContext:       connContext,
		ErrorLog:          slog.NewLogLogger(c.log.Handler(), slog.LevelWarn),
	}
	if l.Addr().Network() == "unix" {
		// A wrapper whose agent is quiet keeps its connection, and so keeps us.
		s.IdleTimeout = 365 * 24 * time.Hour
		s.ConnState = func(_ net.Conn, st http.ConnState) {
			switch st {
			case http.StateNew:
				c.local.Add(1)
			case http.StateClosed, http.StateHijacked:
				c.local.Add(-1)
			}
		}
	}
	return s
}

// limited is a listener with a bound on its open connections: who comes when
// it is reached waits in the backlog.
type limited struct {
	net.Listener
	slots chan struct{}
	done  chan struct{}
	once  sync.Once
}

func limit(l net.Listener, n int) net.Listener {
	return &limited{Listener: l, slots: make(chan struct{}, n), done: make(chan struct{})}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.slots <- struct{}{}:
	case <-l.done:
		return nil, net.ErrClosed
	}
	conn, err := l.Listener.Accept()
	if err != nil {
		<-l.slots
		return nil, err
	}
	return &limitedConn{Conn: conn, free: sync.OnceFunc(func() { <-l.slots })}, nil
}

func (l *limited) Close() error {
	l.once.Do(func() { close(l.done) })
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	free func()
}

func (c *limitedConn) Close() error {
	defer c.free()
	return c.Conn.Close()
}
