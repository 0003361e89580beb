package ws

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coder/websocket"

	"aep-wrap/event"
)

// fault is why a try to connect, or a connection, ended.
type fault struct {
	what   verdict
	word   string        // for people
	status int           // of an HTTP answer
	err    error         // where there was none
	after  time.Duration // as the other side asks
	final  bool          // noSocket that is a refusal where there is no POST
	absent bool          // nobody was there at all

	// Of a connection.
	progress bool // something was acknowledged, or nothing was to be
	ours     bool // it ended because we wanted it to
	unacked  int  // batches without a pong
	tooBig   bool // a frame was more than it takes
}

type verdict uint8

const (
	later    verdict = iota // try again
	noSocket                // there is none here: POST may do
	never                   // asking again cannot help
	over                    // the feed is closed
)

// verdicts is what an answer to the upgrade means. One that is not here passes:
// the collector may be behind something that is being set up. A final one is a
// refusal where events cannot go by POST.
var verdicts = map[int]struct {
	what  verdict
	final bool
	word  string
}{
	http.StatusUnauthorized:      {never, true, "the token is missing or wrong; give the collector's token with --token, --token-file or AEP_TOKEN"},
	http.StatusForbidden:         {noSocket, true, "this token, or something on the way, does not allow a socket; ask for a token that may emit"},
	http.StatusBadRequest:        {noSocket, false, "it does not see an upgrade; does a proxy on the way speak WebSocket?"},
	http.StatusNotFound:          {noSocket, false, "it has no socket there"},
	http.StatusMethodNotAllowed:  {noSocket, false, "it has no socket there"},
	http.StatusNotAcceptable:     {noSocket, false, "it has no socket there"},
	http.StatusGone:              {noSocket, false, "it has no socket there"},
	http.StatusUpgradeRequired:   {noSocket, false, "it wants another upgrade than ours"},
	http.StatusNotImplemented:    {noSocket, false, "it does not do upgrades"},
	http.StatusOK:                {noSocket, false, "it answered with a page; is this an AEP collector?"},
	http.StatusNoContent:         {noSocket, false, "it answered without a socket; is this an AEP collector?"},
	http.StatusMovedPermanently:  {never, true, "it moved"},
	http.StatusFound:             {never, true, "it moved"},
	http.StatusSeeOther:          {never, true, "it moved"},
	http.StatusTemporaryRedirect: {never, true, "it moved"},
	http.StatusPermanentRedirect: {never, true, "it moved"},
}

const (
	maxDocument = 1 << 20 // of discovery
	maxMessage  = 1 << 20 // that is read on the socket
)

// connect finds the socket, upgrades, and comes to an agreement: hello in both
// directions, and a first ping with its pong, for a socket that acknowledges
// nothing is no use to us.
func (e *Emitter) connect(ctx context.Context) (*conn, *fault) {
	e.count(func(s *Stats) { s.Attempts++ })
	hctx, cancel := context.WithTimeout(ctx, e.c.Handshake)
	defer cancel()
	sockets, f := e.discover(hctx)
	if f != nil {
		return nil, f
	}
	var c *conn
	for _, u := range sockets {
		if c, f = e.upgrade(hctx, u); f == nil || f.status != http.StatusNotFound {
			break
		}
	}
	if f != nil {
		return nil, f
	}
	if f := c.agree(ctx); f != nil {
		c.abandon()
		return nil, f
	}
	c.since = e.c.Clock.Now()
	return c, nil
}

// discover gives the places where the socket may be, the likeliest first.
func (e *Emitter) discover(ctx context.Context) ([]string, *fault) {
	if e.fixed {
		return []string{e.base.String()}, nil
	}
	at := func(path string) string {
		u := *e.base
		u.Path += path
		return u.String()
	}
	origin := *e.base
	origin.Path = "/.well-known/aep"
	for _, u := range []string{at("/events"), origin.String()} {
		doc, f := e.document(ctx, u)
		if f != nil {
			return nil, f
		}
		if doc == nil {
			continue
		}
		if len(doc.AEP) > 0 && !slices.Contains(doc.AEP, event.Version) {
			return nil, &fault{what: never, word: versionWord(doc.AEP)}
		}
		if doc.Endpoints.Socket == "" {
			return nil, &fault{what: noSocket, word: "it offers no socket"}
		}
		s, err := e.base.Parse(doc.Endpoints.Socket)
		if err != nil {
			return nil, &fault{what: noSocket, word: "its discovery document names no readable socket"}
		}
		switch s.Scheme {
		case "ws":
			s.Scheme = "http"
		case "wss":
			s.Scheme = "https"
		}
		if s.Scheme != e.base.Scheme || s.Host != e.base.Host {
			return nil, &fault{what: noSocket, word: "its socket is elsewhere, at " + strconv.QuoteToGraphic(shown(s.String())) + "; give that address if you trust it"}
		}
		if s.RawQuery == "" {
			s.RawQuery = e.base.RawQuery
		}
		if e.base.Path != "" { // it may not know the path that a proxy puts before it
			return []string{s.String(), at("/socket")}, nil
		}
		return []string{s.String()}, nil
	}
	return []string{at("/socket")}, nil
}

// document is what a collector says of itself (AEP-0003 §3.4).
type document struct {
	AEP       []string `json:"aep"`
	Endpoints struct {
		Socket string `json:"socket"`
	} `json:"endpoints"`
}

// document gets a discovery document; nil is none there.
func (e *Emitter) document(ctx context.Context, u string) (*document, *fault) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u, nil)
	if err != nil {
		return nil, &fault{word: plain(err), err: err}
	}
	e.headers(req.Header)
	req.Header.Set("Accept", "application/json")
	resp, err := e.c.Client.Do(req)
	if err != nil {
		return nil, unreached(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument))
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		return nil, answered(resp)
	case resp.StatusCode/100 != 2 || err != nil:
		return nil, nil
	}
	var d document
	if json.Unmarshal(body, &d) != nil || d.AEP == nil {
		return nil, nil
	}
	return &d, nil
}

func (e *Emitter) headers(h http.Header) {
	h.Set("AEP-Version", event.Version)
	h.Set("User-Agent", "aep-wrap")
	if e.c.Token != "" {
		h.Set("Authorization", "Bearer "+e.c.Token)
	}
}

// upgrade makes the WebSocket.
func (e *Emitter) upgrade(ctx context.Context, u string) (*conn, *fault) {
	t := &tap{RoundTripper: e.c.Client.Transport, now: e.c.Clock.Now}
	client := *e.c.Client
	client.Transport = t
	header := http.Header{}
	e.headers(header)
	ws, resp, err := websocket.Dial(ctx, u, &websocket.DialOptions{ //nolint:bodyclose // Dial has closed it, or it is the connection
		HTTPClient: &client, HTTPHeader: header, CompressionMode: websocket.CompressionDisabled,
		OnPingReceived: func(context.Context, []byte) bool { return !t.out.full() },
	})
	switch {
	case err == nil:
	case resp == nil:
		return nil, unreached(err)
	case resp.StatusCode == http.StatusSwitchingProtocols:
		return nil, &fault{what: noSocket, status: resp.StatusCode, word: "it upgrades to something else than a WebSocket"}
	default:
		return nil, answered(resp)
	}
	ws.SetReadLimit(maxMessage)
	return newConn(e, ws, t.out), nil
}

// answered is the fault of an HTTP answer that is no upgrade.
func answered(resp *http.Response) *fault {
	v, known := verdicts[resp.StatusCode]
	f := &fault{what: v.what, word: v.word, final: v.final, status: resp.StatusCode}
	switch {
	case !known && resp.StatusCode/100 == 2:
		f.what, f.word = noSocket, "it answered without a socket; is this an AEP collector?"
	case !known:
		f.word = "it answered " + strconv.QuoteToGraphic(resp.Status)
		f.after = retryAfter(resp.Header.Get("Retry-After"), time.Now())
	case resp.StatusCode/100 == 3:
		f.word = "it moved to " + strconv.QuoteToGraphic(resp.Header.Get("Location")) + "; give that address if you trust it"
	}
	return f
}

// unreached is the fault of a request without an answer.
func unreached(err error) *fault {
	op := (*net.OpError)(nil)
	name := (*net.DNSError)(nil)
	return &fault{word: plain(err), err: err, absent: errors.As(err, &op) && op.Op == "dial" || errors.As(err, &name)}
}

// plain is an error of the client without the URL, which may hold secrets.
func plain(err error) string {
	if u := (*url.Error)(nil); errors.As(err, &u) {
		if u.Timeout() {
			return "no answer in time"
		}
		err = u.Err
	}
	if strings.Contains(err.Error(), "readLoopPeekFailLocked") { // net/http's word for bytes that nobody asked for
		return "it answered with something that is not HTTP"
	}
	return err.Error()
}

// retryAfter reads the header: seconds, or a date.
func retryAfter(v string, now time.Time) time.Duration {
	v = strings.TrimSpace(v)
	if s, err := strconv.ParseInt(v, 10, 32); err == nil {
		return time.Duration(max(s, 0)) * time.Second
	}
	if t, err := http.ParseTime(v); err == nil {
		return max(t.Sub(now), 0)
	}
	return 0
}

func versionWord(theirs []string) string {
	if len(theirs) == 0 {
		return fmt.Sprintf("it does not speak AEP %s; use a collector, or an aep-wrap, of the other's version", event.Version)
	}
	return fmt.Sprintf("it speaks AEP %s and not %s; use a collector, or an aep-wrap, of the other's version",
		strconv.QuoteToGraphic(clip(strings.Join(theirs, ", "), 100)), event.Version)
}

// clip shortens what the other side says, for people.
func clip(s string, n int) string { return s[:min(len(s), n)] }

// agree says hello, hears hello, and has a first ping answered.
func (c *conn) agree(ctx context.Context) *fault {
	caps := Capabilities{}
	if c.e.c.Capabilities != nil {
		caps = c.e.c.Capabilities()
	}
	if c.e.c.OnCommand == nil {
		caps.Control = nil
	}
	raw, err := hello{Identity: identity{c.e.c.Agent, c.e.c.Instance}, Capabilities: caps}.encode()
	if err != nil {
		return &fault{what: never, word: "our hello cannot be told: " + err.Error()}
	}
	stop := context.AfterFunc(ctx, c.kill)
	defer stop()
	late := time.AfterFunc(c.e.c.Hello, c.kill)
	f := c.exchange(raw)
	if !late.Stop() {
		return &fault{word: fmt.Sprintf("it did not say hello, and answer a ping, within %v", c.e.c.Hello)}
	}
	return f
}

func (c *conn) exchange(hello []byte) *fault {
	if err := c.write(hello); err != nil {
		return c.broke(err)
	}
	f, wrong := c.first()
	if wrong != nil {
		return wrong
	}
	switch {
	case f.typ == "error":
		return refusal(f)
	case f.typ != "hello":
		_ = c.write(errorFrame("hello-required", "", "the first frame in each direction is hello"))
		return &fault{word: "it did not begin with hello"}
	case len(f.versions) == 1 && !chosen(f.versions):
		return &fault{what: never, word: versionWord(f.versions)}
	case !chosen(f.versions):
		return &fault{what: noSocket, word: "its hello does not select one version"}
	}
	t := c.nextPing()
	if err := c.write(pingFrame(nil, t)); err != nil {
		return c.broke(err)
	}
	for {
		raw, err := c.readText()
		if err != nil {
			return c.broke(err)
		}
		f, err := parseFrame(raw)
		if err != nil {
			continue
		}
		switch f.typ {
		case "ping":
			_ = c.write(pongFrame(f.echo))
		case "pong":
			if n, ok := integer(f.t); ok && n == t {
				return nil
			}
		case "error":
			return refusal(f)
		case "closing":
			return &fault{word: closingWord(f.reason)}
		}
	}
}

// first reads the first frame.
func (c *conn) first() (frame, *fault) {
	raw, err := c.readText()
	if err != nil {
		return frame{}, c.broke(err)
	}
	f, err := parseFrame(raw)
	if err != nil {
		_ = c.write(errorFrame("hello-required", "", "the first frame in each direction is hello"))
		return frame{}, &fault{word: "it did not begin with hello"}
	}
	return f, nil
}

// refusal is the fault of an error frame that is about the connection.
func refusal(f frame) *fault {
	word := "it refused with " + strconv.QuoteToGraphic(clip(f.code, 100))
	if f.detail != "" {
		word += ": " + strconv.QuoteToGraphic(clip(f.detail, 300))
	}
	switch f.code {
	case "version-unsupported":
		return &fault{what: never, word: versionWord(f.versions)}
	case "unauthorized":
		return &fault{what: never, word: word + "; ask for a token that may emit"}
	}
	return &fault{word: word}
}

func closingWord(reason string) string {
	return "it closed: " + strconv.QuoteToGraphic(clip(reason, 200))
}
