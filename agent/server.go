package agent

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
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
	serverPatience = 30 * time.Second // of one request
	firstPatience  = 2 * time.Second  // for the first sign of an answer to what can be asked again
	silenceWorth   = 20 * time.Second // without a sign of the server is worth a word
	serverQuiet    = 150 * time.Millisecond
	maxBody        = 64 << 20 // bytes of an answer to a query
	maxQueries     = 256      // of one asking for what is known
	maxSeen        = 1024     // sessions and requests that are remembered
)

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
	last  time.Time // when an item came
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
	s := &Server{cfg: c, base: base, begun: time.Now(), done: make(chan struct{}), up: make(chan struct{}), closing: make(chan struct{}), heard: make(chan struct{}, 1), asked: map[string]bool{}, part: map[string]string{}}
	s.client = &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, DisableCompression: true, ResponseHeaderTimeout: serverPatience},
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
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(30*time.Millisecond), backoff.WithMaxInterval(2*time.Second), backoff.WithMaxElapsedTime(0))
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
	res, err := s.get(ctx, s.cfg.Serving.Events, "text/event-stream", patience)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	s.isUp()
	// A server that is gone without a word is noticed by its silence.
	alive := time.AfterFunc(s.cfg.Serving.Quiet, cancel)
	defer alive.Stop()
	first := true
	return readEvents(res.Body, func() { alive.Reset(s.cfg.Serving.Quiet) }, func(data []byte) {
		wake(s.heard)
		s.item(data)
		if first { // it is listening now: what comes after is in the stream
			first = false
			s.known(ctx)
		}
		s.last = time.Now()
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
		s.remember(m.Session)
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
		err = s.Request(ctx, *r)
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

// remember keeps the sessions that were heard of, the last one last.
func (s *Server) remember(session string) {
	if n := len(s.seen); n > 0 && s.seen[n-1] == session {
		return
	}
	if i := slices.Index(s.seen, session); i >= 0 {
		s.seen = slices.Delete(s.seen, i, i+1)
	} else if len(s.seen) >= maxSeen {
		s.seen = slices.Delete(s.seen, 0, 1)
	}
	s.seen = append(s.seen, session)
}

// known asks for what was before the stream.
func (s *Server) known(ctx context.Context) {
	asked := 0
	var ask func(adapters.Query)
	ask = func(q adapters.Query) {
		if asked++; asked > maxQueries || ctx.Err() != nil {
			return
		}
		body, size, err := s.query(ctx, q.Path)
		if err != nil {
			s.cfg.Log.Warn("the server does not say what it knows", "path", q.Path, "err", err)
			return
		}
		var more []adapters.Query
		s.take(size, func() (ms []adapters.Moment) {
			ms, more = q.Read(body, s.past())
			return ms
		})
		for _, q := range more {
			ask(q)
		}
	}
	for _, q := range s.cfg.Serving.Known {
		ask(q)
	}
}

func (s *Server) past() adapters.Past { return adapters.Past{Seen: slices.Clone(s.seen), Last: s.last} }

// errNoAnswer is that a server took a request and gave no sign of an answer.
var errNoAnswer = errors.New("no answer")

// get asks for something, and gives up where there is no sign of an answer for
// so long.
func (s *Server) get(ctx context.Context, path, accept string, patience time.Duration) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	waiting := time.AfterFunc(patience, func() { cancel(errNoAnswer) })
	res, err := s.do(ctx, adapters.Request{Method: http.MethodGet, Path: path}, accept)
	if !waiting.Stop() && err == nil { // the answer came with the end of our patience, and its body is cut off
		res.Body.Close()
		err = errNoAnswer
	}
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, errNoAnswer) {
			err = fmt.Errorf("GET %s: %w for %s", path, cause, patience)
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

func (s *Server) query(ctx context.Context, path string) (body any, size int, err error) {
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	var res *http.Response
	for patience := firstPatience; ; patience *= 2 {
		if res, err = s.get(ctx, path, "application/json", patience); !errors.Is(err, errNoAnswer) || patience >= serverPatience {
			break
		}
	}
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxBody+1))
	if err == nil && len(raw) > maxBody {
		err = errors.New("its answer is too large")
	}
	if err == nil {
		body, err = event.ParseJSON(raw)
	}
	return body, len(raw), err
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
	err = fmt.Errorf("%s %s: the server answered %d", r.Method, path, res.StatusCode)
	if accept == "text/event-stream" && (res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden) {
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

// readEvents reads a text/event-stream to its end: alive is called whenever
// bytes came, data with the data of an item, skip with the size of one over the
// bound.
func readEvents(r io.Reader, alive func(), data func([]byte), skip func(int)) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var item, line []byte
	over := 0
	for {
		piece, err := in.ReadSlice('\n')
		if len(piece) > 0 {
			alive()
		}
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
