package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"aep-wrap/adapters"
	"aep-wrap/control"
	"aep-wrap/event"
)

const (
	serverPatience = 30 * time.Second       // of one request
	firstPatience  = 500 * time.Millisecond // for the first sign of an answer to what can be asked again
	silenceWorth   = 20 * time.Second       // without a sign of the server is worth a word
	serverQuiet    = 150 * time.Millisecond
	maxBody        = 64 << 20    // bytes of an answer to a query
	knownPatience  = time.Minute // of one asking for what is known
	maxQueries     = 256         // calls that wait for an answer
	maxSeen        = 1024        // sessions and requests that are remembered
)

const eventStream = "text/event-stream"

// ServerRoad takes what a server tells: a Road.
type ServerRoad interface {
	Observe(m adapters.Moment, size int)
	Refuse(x Refusal)
	Ask(m adapters.Moment, size int, reply func(adapters.Answer) []byte) *control.Hold
}

// ServerConfig says which server is followed.
type ServerConfig struct {
	Serving *adapters.Serving
	At      adapters.Served
	Road    ServerRoad
	Log     *slog.Logger
	Say     func(line string) // tells the user what stands in the way, once; may be nil

	// Beside says whether the runtime's hooks tell the facts as well; nil is
	// never.
	Beside func() bool

	dial func(ctx context.Context, network, address string) (net.Conn, error) // nil is the real network; for tests
}

// Server follows a runtime's server: its event stream, over and over until it
// is closed, and what it asks. Everything it sends is an answer that was given
// through us, or what a cancel asks for.
type Server struct {
	cfg    ServerConfig
	base   *url.URL
	client *http.Client
	ctx    context.Context
	cancel context.CancelFunc

	begun   time.Time
	late    *time.Timer   // tells that it is not there yet
	refused bool          // nothing will come; read once done is closed
	done    chan struct{} // the stream is no longer followed
	up      chan struct{} // it was there once
	closing chan struct{}
	once    sync.Once
	answers sync.WaitGroup
	telling context.Context // of the answers that are on their way
	giveUp  context.CancelFunc
	heard   chan struct{} // something came

	calls calls // of one that speaks JSON-RPC

	// The following goroutine's own.
	seen  []string
	last  map[string]time.Time // session → the newest time that was told of it, by the server's clock
	asked map[string]bool
	part  map[string]string // session → the one that it is a part of
}

// errGivenUp is what no second try would mend.
var errGivenUp = errors.New("given up")

// FollowServer starts following.
func FollowServer(c ServerConfig) (*Server, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	base, err := url.Parse(c.At.URL)
	if !c.Serving.Lines && (err != nil || base.Host == "") {
		return nil, fmt.Errorf("the server's address is no URL: it must look like http://127.0.0.1:4096")
	}
	if base.User != nil {
		c.At.User = base.User.Username()
		c.At.Password, _ = base.User.Password()
		base.User = nil
	}
	s := &Server{cfg: c, base: base, begun: time.Now(), done: make(chan struct{}), up: make(chan struct{}), closing: make(chan struct{}), heard: make(chan struct{}, 1),
		last: map[string]time.Time{}, asked: map[string]bool{}, part: map[string]string{}}
	s.client = &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DialContext: c.dial, DisableCompression: true, ResponseHeaderTimeout: serverPatience},
		// An address that the server sends us on to is not the one that we were
		// told to trust with a password.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	s.late = time.AfterFunc(silenceWorth, func() { c.Log.Warn("the agent's server does not answer: nothing of it is seen", "for", silenceWorth) })
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.telling, s.giveUp = context.WithCancel(context.Background())
	go s.run()
	return s, nil
}

// isUp notes that the server is there.
func (s *Server) isUp() {
	select {
	case <-s.up:
		return
	default:
		close(s.up)
		s.late.Stop()
	}
	if late := time.Since(s.begun); late > silenceWorth {
		s.say("the agent's server answered after " + late.Round(time.Second).String() + " only: what was over by then is not told")
	}
}

// Up is closed when the server was there for the first time.
func (s *Server) Up() <-chan struct{} { return s.up }

// Close follows the stream to its end: until the server closes it, or has
// nothing more to say for a moment, and answers that are on their way are told.
// ctx bounds that. What still waits for an answer hears none.
func (s *Server) Close(ctx context.Context) {
	s.once.Do(func() { close(s.closing) })
	quiet := time.NewTimer(serverQuiet)
	defer quiet.Stop()
wait:
	for {
		select {
		case <-s.heard:
			quiet.Reset(serverQuiet)
		case <-quiet.C:
			break wait
		case <-s.done:
			break wait
		case <-ctx.Done():
			break wait
		}
	}
	s.cancel()
	<-s.done
	select {
	case <-s.up:
	default:
		if waited := time.Since(s.begun); waited > silenceWorth && !s.refused {
			s.say("the agent's server gave no answer in " + waited.Round(time.Second).String() + ": nothing of it was seen")
		}
	}
	defer context.AfterFunc(ctx, s.giveUp)()
	s.answers.Wait()
	s.giveUp()
	s.client.CloseIdleConnections()
}

func (s *Server) run() {
	defer close(s.done)
	defer s.late.Stop()
	patience := firstPatience
	retry := newRetry()
	for {
		begun := time.Now()
		err := s.stream(patience)
		if errors.Is(err, errNoAnswer) {
			patience = min(2*patience, serverPatience)
		} else {
			patience = firstPatience
		}
		if s.refused = errors.Is(err, errGivenUp); s.refused || s.ctx.Err() != nil {
			return
		}
		s.cfg.Log.Debug("the server's stream ended", "err", err)
		if time.Since(begun) > retry.MaxInterval {
			retry.Reset()
		}
		select {
		case <-time.After(retry.NextBackOff()):
		case <-s.closing:
			return
		case <-s.ctx.Done():
			return
		}
	}
}

// stream follows the stream once. A runtime that is about to start may take a
// request and never answer it, where it answers the next: patience is how long
// the first sign of an answer is waited for.
func (s *Server) stream(patience time.Duration) error {
	switch {
	case s.cfg.Serving.Lines:
		return s.lines()
	case s.cfg.Serving.Hello != nil:
		return s.socket()
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	res, err := s.patient(ctx, adapters.Request{Method: http.MethodGet, Path: s.cfg.Serving.Events}, eventStream, patience)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if kind := res.Header.Get("Content-Type"); !strings.HasPrefix(kind, eventStream) {
		return fmt.Errorf("GET %s: %q is no event stream", s.cfg.Serving.Events, kind)
	}
	s.isUp()
	// A server that is gone without a word is noticed by its silence.
	alive := time.AfterFunc(s.cfg.Serving.Quiet, cancel)
	defer alive.Stop()
	first := true
	return readEvents(&lively{res.Body, func() { alive.Reset(s.cfg.Serving.Quiet) }}, func(data []byte) {
		wake(s.heard)
		s.item(data)
		if first { // it is listening now: what comes after is in the stream
			first = false
			alive.Stop() // nobody reads it meanwhile
			s.known(ctx)
			alive.Reset(s.cfg.Serving.Quiet)
		}
	}, func(n int) {
		s.cfg.Road.Refuse(Refusal{Channel: adapters.Server, Reason: "too_large", Bytes: n})
	})
}

func (s *Server) item(data []byte) {
	payload, err := event.ParseObject(data)
	if err != nil {
		s.cfg.Road.Refuse(Refusal{Channel: adapters.Server, Reason: refusalReason(err), Bytes: len(data)})
		return
	}
	s.take(len(data), func() []adapters.Moment { return s.cfg.Serving.Item(payload) })
}

// take hands on what a part of the adapter's made of something.
func (s *Server) take(size int, read func() []adapters.Moment) {
	ms, err := guarded(read)
	if err != nil {
		s.cfg.Log.Error("the adapter failed", "channel", adapters.Server, "err", err)
		s.cfg.Road.Refuse(Refusal{Channel: adapters.Server, Reason: "adapter_fault", Bytes: size})
		return
	}
	for _, m := range ms {
		s.moment(m, size)
	}
}

func (s *Server) moment(m adapters.Moment, size int) {
	if of := s.part[m.Session]; of != "" {
		m.Session = of
	}
	if m.Session != "" {
		s.remember(m)
	}
	if s.cfg.Beside != nil && s.cfg.Beside() {
		m.Channel = adapters.ServerBeside
	}
	v := s.cfg.Serving
	if v.Asked == nil || s.cfg.At.Settled {
		s.cfg.Road.Observe(m, size)
		return
	}
	id, err := guarded(func() string { return v.Asked(m) })
	switch {
	case err != nil || id == "":
		s.cfg.Road.Observe(m, size)
		return
	case s.asked[id]:
		return // told, and waited for
	}
	if len(s.asked) >= maxSeen {
		clear(s.asked)
	}
	s.asked[id] = true
	hold := s.cfg.Road.Ask(m, size, func(a adapters.Answer) []byte {
		r := v.Answer(m, a)
		if r == nil {
			return nil
		}
		return append([]byte{}, r.Body...)
	})
	if hold == nil {
		return
	}
	s.answers.Go(func() { s.await(hold, m) })
}

// await waits for an answer and tells the server.
func (s *Server) await(hold *control.Hold, m adapters.Moment) {
	hold.Wait(s.ctx)
	a, ok := hold.Answer()
	if !ok {
		return
	}
	r, err := guarded(func() *adapters.Request { return s.cfg.Serving.Answer(m, adapters.Answer(a)) })
	if err == nil && r == nil {
		err = errors.New("there is no request for it")
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(s.telling, serverPatience)
		defer cancel()
		err = s.tell(ctx, *r)
	}
	if err != nil {
		s.cfg.Log.Warn("an answer did not reach the agent's server", "err", err)
		hold.Undelivered()
		return
	}
	if !s.cfg.Serving.Tells {
		hold.Applied()
	}
}

// remember keeps the sessions that were heard of, the last one last, and what
// was the last of each.
func (s *Server) remember(m adapters.Moment) {
	if v := s.cfg.Serving; v.When != nil {
		if at, err := guarded(func() time.Time { return v.When(m) }); err == nil && at.After(s.last[m.Session]) {
			s.last[m.Session] = at
		}
	}
	if n := len(s.seen); n > 0 && s.seen[n-1] == m.Session {
		return
	}
	if i := slices.Index(s.seen, m.Session); i >= 0 {
		s.seen = slices.Delete(s.seen, i, i+1)
	} else if len(s.seen) >= maxSeen {
		delete(s.last, s.seen[0])
		s.seen = slices.Delete(s.seen, 0, 1)
	}
	s.seen = append(s.seen, m.Session)
}

// known asks for what was before the stream.
func (s *Server) known(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, knownPatience)
	defer cancel()
	past := s.past()
	var ask func(adapters.Query)
	ask = func(q adapters.Query) {
		body, size, err := s.query(ctx, q.Path)
		if err != nil {
			if ctx.Err() == nil {
				s.cfg.Log.Warn("the server does not say what it knows", "path", q.Path, "err", err)
			}
			return
		}
		wake(s.heard)
		var more []adapters.Query
		s.take(size, func() (ms []adapters.Moment) {
			ms, more = q.Read(body, past)
			return ms
		})
		for _, q := range more {
			ask(q)
		}
	}
	for _, q := range s.cfg.Serving.Known {
		ask(q)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		s.cfg.Log.Warn("the server is too slow to say all that it knows", "for", knownPatience)
	}
}

func (s *Server) past() adapters.Past {
	return adapters.Past{Seen: slices.Clone(s.seen), Last: maps.Clone(s.last)}
}

var (
	// errNoAnswer is that a server took a request and gave no sign of an answer.
	errNoAnswer = errors.New("no answer")
	errTooLarge = errors.New("its answer is too large")
)

// statusError is that a server's answer is not a good one.
type statusError struct {
	method, path string
	code         int
}

func (e *statusError) Error() string {
	return fmt.Sprintf("%s %s: the server answered %d", e.method, e.path, e.code)
}

// passing says of a request's error whether another try may mend it, and whether
// the request was refused: it is then known not to be done.
func passing(err error) (passes, refused bool) {
	var answered *statusError
	if errors.As(err, &answered) {
		return answered.code >= 500 || answered.code == http.StatusTooManyRequests, true
	}
	var op *net.OpError
	return err != nil && !errors.Is(err, errTooLarge), errors.As(err, &op) && op.Op == "dial"
}

func newRetry() *backoff.ExponentialBackOff {
	return backoff.NewExponentialBackOff(backoff.WithInitialInterval(30*time.Millisecond), backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
}

// patient sends a request, and gives up where there is no sign of an answer for
// so long.
func (s *Server) patient(ctx context.Context, r adapters.Request, accept string, patience time.Duration) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	waiting := time.AfterFunc(patience, func() { cancel(errNoAnswer) })
	res, err := s.do(ctx, r, accept)
	if !waiting.Stop() && err == nil { // the answer came with the end of our patience, and its body is cut off
		res.Body.Close()
		err = errNoAnswer
	}
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errNoAnswer) {
			err = fmt.Errorf("%s %s: %w for %s", r.Method, r.Path, cause, patience)
		}
		cancel(nil)
		return nil, err
	}
	res.Body = &closing{res.Body, cancel}
	return res, nil
}

// closing is a body whose request ends with it.
type closing struct {
	io.ReadCloser
	end context.CancelCauseFunc
}

func (c *closing) Close() error {
	c.end(nil)
	return c.ReadCloser.Close()
}

// lively calls alive whenever something was read.
type lively struct {
	io.Reader
	alive func()
}

func (w *lively) Read(p []byte) (int, error) {
	n, err := w.Reader.Read(p)
	if n > 0 {
		w.alive()
	}
	return n, err
}

// whole sends a request once and reads its answer. It gives up where nothing of
// that comes for so long.
func (s *Server) whole(ctx context.Context, r adapters.Request, patience time.Duration) ([]byte, error) {
	res, err := s.patient(ctx, r, "application/json", patience)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	stuck := time.AfterFunc(patience, func() { res.Body.(*closing).end(errNoAnswer) })
	defer stuck.Stop()
	raw, err := io.ReadAll(io.LimitReader(&lively{res.Body, func() { stuck.Reset(patience) }}, maxBody+1))
	switch {
	case err != nil && ctx.Err() == nil && !stuck.Stop():
		err = fmt.Errorf("%s %s: %w in the middle of one for %s", r.Method, r.Path, errNoAnswer, patience)
	case err == nil && len(raw) > maxBody:
		err = errTooLarge
	}
	return raw, err
}

// insist sends a request until it has an answer: a server that is about to
// start, or to come back, may refuse one, or take it and never answer it. One
// that was taken so, and is then no longer there to be answered, was done.
func (s *Server) insist(ctx context.Context, r adapters.Request) (raw []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	taken := false
	retry := newRetry()
	for patience := firstPatience; ; {
		raw, err = s.whole(ctx, r, patience)
		var no *statusError
		if taken && r.Method != http.MethodGet && errors.As(err, &no) && no.code == http.StatusNotFound {
			return nil, nil
		}
		again, refused := passing(err)
		if !again {
			return raw, err
		}
		taken = taken || !refused
		if errors.Is(err, errNoAnswer) {
			patience *= 2
		}
		select {
		case <-time.After(retry.NextBackOff()):
		case <-ctx.Done():
			return nil, err
		}
	}
}

func (s *Server) query(ctx context.Context, path string) (body any, size int, err error) {
	raw, err := s.insist(ctx, adapters.Request{Method: http.MethodGet, Path: path})
	if err == nil {
		body, err = event.ParseJSON(raw)
	}
	return body, len(raw), err
}

// tell has the server hear an answer.
func (s *Server) tell(ctx context.Context, r adapters.Request) error {
	if s.cfg.Serving.Events == "" {
		return s.Request(ctx, r)
	}
	_, err := s.insist(ctx, r)
	return err
}

// Request asks the server to do something.
func (s *Server) Request(ctx context.Context, r adapters.Request) error {
	switch {
	case s.cfg.Serving.Lines:
		return s.write(r.Body)
	case s.cfg.Serving.Hello != nil:
		return s.requestByCall(ctx, r)
	}
	res, err := s.do(ctx, r, "application/json")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(res.Body, 1<<20)) // so that the connection can be used again
	return nil
}

// do sends a request; any answer but a good one is an error.
func (s *Server) do(ctx context.Context, r adapters.Request, accept string) (*http.Response, error) {
	u := *s.base
	path, query, _ := strings.Cut(r.Path, "?")
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	u.RawQuery = strings.Trim(query+"&"+s.cfg.At.Query, "&")
	var body io.Reader
	if r.Body != nil {
		body = bytes.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, u.String(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", accept)
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.cfg.At.Password != "" {
		req.SetBasicAuth(s.cfg.At.User, s.cfg.At.Password)
	}
	res, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	res.Body.Close()
	err = &statusError{r.Method, path, res.StatusCode}
	if accept == eventStream && (res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden) {
		s.say("the agent's server at " + s.base.Host + " wants another password: nothing of it is seen")
		return nil, fmt.Errorf("%w: %w", errGivenUp, err)
	}
	return nil, err
}

func (s *Server) say(line string) {
	s.cfg.Log.Warn(line)
	if s.cfg.Say != nil {
		s.cfg.Say(line)
	}
}

// readEvents reads an event stream to its end: data is called with the data of
// an item, skip with the size of one over the bound.
func readEvents(r io.Reader, data func([]byte), skip func(int)) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var item, line []byte
	over := 0
	for {
		piece, err := in.ReadSlice('\n')
		if over > 0 || len(line)+len(item)+len(piece) > maxLine {
			over += len(line) + len(item) + len(piece)
			line, item = nil, nil
			// The item ends with an empty line.
			if errors.Is(err, bufio.ErrBufferFull) {
				continue
			}
			if len(bytes.TrimRight(piece, "\r\n")) == 0 || err != nil {
				skip(over)
				over = 0
			}
			if err != nil {
				return err
			}
			continue
		}
		line = append(line, piece...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return err // a torn last item is nobody's
		}
		text := bytes.TrimRight(line, "\r\n")
		if len(text) == 0 {
			if len(item) > 0 {
				data(item)
			}
			item = item[:0]
		} else if rest, ok := bytes.CutPrefix(text, []byte("data:")); ok {
			if len(item) > 0 {
				item = append(item, '\n')
			}
			item = append(item, bytes.TrimPrefix(rest, []byte(" "))...)
		}
		if line = line[:0]; cap(line) > 1<<20 {
			line = nil
		}
		if cap(item) > 1<<20 && len(item) == 0 {
			item = nil
		}
	}
}
