package collector

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/cenkalti/backoff/v4"

	"aep-wrap/event"
	"aep-wrap/redaction"
)

// Notify says where people are called when an agent asks something.
type Notify struct {
	// URL is an ntfy topic (ntfy://HOST/TOPIC, or ntfy+http:// where it is
	// local), or a webhook that takes JSON (https://, or http:// where it is
	// local). It may hold credentials: a password alone is a bearer token. Who
	// knows it can read or write there: it is told to nobody.
	URL string
	// Capture is how much a call says: Metadata, or Redacted, with which the
	// question itself leaves the machine as far as its event holds it.
	Capture event.Level
	// Page is where the page is reached, for the link; "" for none.
	Page string
}

// place is a Notify's URL as it was read.
type place struct {
	url   string // where it is posted
	host  string // as it may be told
	topic string // of ntfy; "" is a webhook
	auth  string
}

// ParseNotify checks a Notify's URL. The error does not repeat it.
func ParseNotify(raw string) error {
	_, err := parseNotify(raw)
	return err
}

func parseNotify(raw string) (place, error) {
	var p place
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.Fragment != "" {
		return p, errors.New("want ntfy://HOST/TOPIC, or the https:// address of a webhook")
	}
	scheme, ntfy := strings.CutPrefix(u.Scheme, "ntfy")
	switch {
	case ntfy && scheme == "":
		scheme = "https"
	case ntfy:
		scheme = strings.TrimPrefix(scheme, "+")
	}
	switch {
	case scheme != "https" && scheme != "http":
		return p, fmt.Errorf("no such scheme as %s: want ntfy://HOST/TOPIC, or the https:// address of a webhook", clip(u.Scheme))
	case scheme == "http" && !nearby(u.Hostname()):
		return p, errors.New("want https, but for an address of this machine or network")
	}
	if u.User != nil {
		if password, ok := u.User.Password(); ok && u.User.Username() == "" {
			p.auth = "Bearer " + password
		} else {
			r := http.Request{Header: http.Header{}}
			r.SetBasicAuth(u.User.Username(), password)
			p.auth = r.Header.Get("Authorization")
		}
		if strings.ContainsAny(p.auth, "\r\n\x00") {
			return p, errors.New("the credentials have a line break in them")
		}
	}
	u.Scheme, u.User, p.host = scheme, nil, u.Host
	if ntfy {
		path := strings.Trim(u.Path, "/")
		i := strings.LastIndexByte(path, '/')
		if p.topic = path[i+1:]; p.topic == "" || u.RawQuery != "" {
			return p, errors.New("want a topic behind the host: ntfy://HOST/TOPIC")
		}
		u.Path, u.RawPath = "/"+path[:i+1], ""
	}
	p.url = u.String()
	return p, nil
}

// nearby says whether a host is an address of this machine or of a private
// network: what is sent there crosses no other.
func nearby(host string) bool {
	if host == "localhost" || strings.HasSuffix(host, ".localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && (a.IsLoopback() || a.IsPrivate())
}

// notifier calls people. It never holds up what is taken in: what it has to
// tell waits in a short queue, and what waits too long, or is answered
// meanwhile, is not told.
type notifier struct {
	to      place
	capture event.Level
	page    string
	http    *http.Client
	log     *slog.Logger
	retry   func() backoff.BackOff
	wake    chan struct{}

	mu      sync.Mutex
	known   [2]map[[2]string]struct{} // requests that were heard of, the newer ones first
	queue   []*item
	current string             // the request that is being told
	settled context.CancelFunc // ends the telling of it

	sent, failed, dropped atomic.Int64
	quiet                 bool // run's: the trouble was told
}

// The bounds of notifications.
const (
	maxNotes   = 64
	maxKnown   = 4096
	noteStale  = 10 * time.Minute // what an emitter tells that late calls nobody
	noteTry    = 10 * time.Second // one try
	noteEffort = 5 * time.Minute  // all tries
	maxNote    = 1000             // characters of a question
)

// newNotifier makes what tells n; nil where nobody is to be called.
func newNotifier(n Notify, log *slog.Logger) *notifier {
	if n.URL == "" {
		return nil
	}
	to, err := parseNotify(n.URL)
	if err != nil {
		log.Error("nobody is notified", "error", err)
		return nil
	}
	return &notifier{
		to: to, capture: min(n.Capture, event.Redacted), page: strings.TrimRight(n.Page, "/"), log: log, wake: make(chan struct{}, 1),
		http: &http.Client{Timeout: noteTry, Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		retry: func() backoff.BackOff {
			return backoff.NewExponentialBackOff(backoff.WithInitialInterval(time.Second),
				backoff.WithMaxInterval(time.Minute), backoff.WithMaxElapsedTime(noteEffort))
		},
	}
}

// hear is told each event that comes in, and, as not live, each that a log held.
// It is called under the hub's lock. A request is told once: what is said again
// after a reconnect, or was known before a restart, calls nobody.
func (n *notifier) hear(it *item, live bool) {
	switch it.Type {
	case "attention.requested":
		n.mu.Lock()
		if !n.fresh(it) || !live || time.Since(it.Time) > noteStale {
			n.mu.Unlock()
			return
		}
		if len(n.queue) >= maxNotes {
			n.queue = slices.Delete(n.queue, 0, 1)
			n.dropped.Add(1)
		}
		n.queue = append(n.queue, it)
		n.mu.Unlock()
		select {
		case n.wake <- struct{}{}:
		default:
		}
	case "attention.answered", "attention.resolved", "attention.timeout":
		n.mu.Lock()
		n.queue = slices.DeleteFunc(n.queue, func(q *item) bool { return q.ID == it.Subject && q.Session == it.Session })
		if n.settled != nil && n.current == it.Session+" "+it.Subject {
			n.settled()
		}
		n.mu.Unlock()
	}
}

// fresh remembers a request, and says whether it is a new one.
func (n *notifier) fresh(it *item) bool {
	key := [2]string{it.Source, it.ID}
	for _, k := range n.known {
		if _, ok := k[key]; ok {
			return false
		}
	}
	if n.known[0] == nil || len(n.known[0]) >= maxKnown/2 {
		n.known[1], n.known[0] = n.known[0], map[[2]string]struct{}{}
	}
	n.known[0][key] = struct{}{}
	return true
}

// run tells what is to be told until ctx ends.
func (n *notifier) run(ctx context.Context) {
	defer n.http.CloseIdleConnections()
	for {
		it, telling, done := n.next(ctx)
		if it == nil {
			select {
			case <-ctx.Done():
				return
			case <-n.wake:
			}
			continue
		}
		n.tell(telling, it)
		done()
	}
}

// next takes what is to be told next, with a context that ends when it need
// not be any more.
func (n *notifier) next(ctx context.Context) (it *item, telling context.Context, done func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.queue) == 0 || ctx.Err() != nil {
		return nil, nil, nil
	}
	it = n.queue[0]
	n.queue = slices.Delete(n.queue, 0, 1)
	n.current = it.Session + " " + it.ID
	telling, n.settled = context.WithCancel(ctx)
	return it, telling, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.settled()
		n.settled, n.current = nil, ""
	}
}

// errNotTold is an answer that another try would not change.
type errNotTold struct{ status int }

func (e errNotTold) Error() string { return "it answers " + strconv.Itoa(e.status) }

func (n *notifier) tell(ctx context.Context, it *item) {
	c, err := n.call(it)
	if err == nil {
		if !c.until.IsZero() {
			var stop context.CancelFunc
			ctx, stop = context.WithDeadline(ctx, c.until)
			defer stop()
		}
		var body []byte
		if body, err = c.encode(n.to); err == nil {
			err = backoff.Retry(func() error { return n.post(ctx, body) }, backoff.WithContext(n.retry(), ctx))
		}
	}
	switch {
	case err == nil:
		n.sent.Add(1)
		n.quiet = false
	case ctx.Err() != nil:
		n.dropped.Add(1) // answered, or over, before it could be told
	default:
		n.failed.Add(1)
		if !n.quiet {
			n.quiet = true
			n.log.Warn("a notification could not be sent; the next failures are counted only", "host", n.to.host, "error", told(err))
		}
	}
}

// told is an error without the URL in it.
func told(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return err.Error()
}

func (n *notifier) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, n.to.url, bytes.NewReader(body))
	if err != nil {
		return backoff.Permanent(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "aep-wrap")
	if n.to.auth != "" {
		req.Header.Set("Authorization", n.to.auth)
	}
	resp, err := n.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10))
	switch s := resp.StatusCode; {
	case s < 300:
		return nil
	case s >= 500, s == http.StatusTooManyRequests, s == http.StatusRequestTimeout:
		if after, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && after > 0 {
			select {
			case <-time.After(min(time.Duration(after)*time.Second, time.Minute)):
			case <-ctx.Done():
			}
		}
		return errNotTold{s}
	}
	return backoff.Permanent(errNotTold{resp.StatusCode})
}

// call is what people are told, and, in JSON, what a webhook gets.
type call struct {
	Type    string            `json:"type"`
	ID      string            `json:"id"`
	Session string            `json:"session"`
	Agent   string            `json:"agent"`
	Host    string            `json:"host,omitempty"`
	Kind    string            `json:"kind"`
	Prompt  string            `json:"prompt"`
	Options []json.RawMessage `json:"options"`
	Expires string            `json:"expires_at,omitempty"`
	Link    string            `json:"link,omitempty"`

	until time.Time
}

// call makes an event a call, at the level that is allowed and no higher.
func (n *notifier) call(it *item) (*call, error) {
	line, err := redaction.DownlevelLine(it.line(), n.capture)
	if err != nil {
		return nil, err
	}
	_, data, err := event.ParseHeader(line)
	if err != nil {
		return nil, err
	}
	var d struct {
		Kind, Prompt string
		Options      []json.RawMessage
		Expires      string `json:"expires_at"`
	}
	if len(data) > 0 {
		_ = json.Unmarshal(data, &d) // what is of another form is not told
	}
	c := &call{Type: it.Type, ID: it.ID, Session: it.Session, Agent: it.Agent, Kind: plainText(d.Kind), Prompt: plainText(d.Prompt), Options: d.Options, Expires: d.Expires}
	if u, err := url.Parse(it.Source); err == nil && u.Scheme == "aep" {
		c.Host = u.Host
	}
	if c.Prompt == "" {
		c.Prompt = plainText(it.Agent) + " waits for an answer"
	}
	if c.Options == nil {
		c.Options = []json.RawMessage{}
	}
	if t, err := time.Parse(time.RFC3339, d.Expires); err == nil {
		c.until = t
	}
	if n.page != "" {
		c.Link = n.page + "/#" + url.Values{"session": {it.Session}, "request": {it.ID}}.Encode()
	}
	return c, nil
}

// encode writes a call as its place wants it.
func (c *call) encode(to place) ([]byte, error) {
	if to.topic == "" {
		return json.Marshal(c)
	}
	title := plainText(c.Agent)
	if c.Host != "" {
		title += " on " + plainText(c.Host)
	}
	if c.Kind != "" {
		title += " asks: " + c.Kind
	}
	return json.Marshal(struct {
		Topic    string   `json:"topic"`
		Title    string   `json:"title"`
		Message  string   `json:"message"`
		Priority int      `json:"priority"`
		Tags     []string `json:"tags"`
		Click    string   `json:"click,omitempty"`
	}{to.topic, title, c.Prompt, 4, []string{"raised_hand"}, c.Link})
}

// plainText shortens text of an agent's, and shows what would hide or reorder
// it as a mark.
func plainText(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return r
		case unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs):
			return '\uFFFD'
		}
		return r
	}, s)
	if r := []rune(s); len(r) > maxNote {
		s = string(r[:maxNote]) + "…"
	}
	return s
}
