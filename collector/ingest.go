package collector

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"aep-wrap/event"
)

// contentTypes are the bodies that POST /events reads, and whether one holds
// an event per line.
var contentTypes = map[string]bool{
	"application/json":     false,
	"application/x-ndjson": true,
}

// ingest serves POST /events. A body is taken whole or refused whole.
func (c *Collector) ingest(w http.ResponseWriter, r *http.Request) {
	c.touch()
	if r.Header.Get("AEP-Version") != event.Version {
		c.hub.counts.refused.Add(1)
		reply(w, http.StatusUpgradeRequired, map[string][]string{"versions": {event.Version}})
		return
	}
	mediaType, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	lines, known := contentTypes[mediaType]
	if !known {
		c.refuse(w, http.StatusUnsupportedMediaType, problem{Error: "unsupported-content-type",
			Detail: "want application/json with one event, or application/x-ndjson with one event per line"})
		return
	}
	body, release, status, p := c.readBody(w, r)
	if status != 0 {
		release()
		c.refuse(w, status, p)
		discardRest(w, r)
		return
	}
	items, status, p := c.parse(body, lines)
	release()
	if status != 0 {
		c.refuse(w, status, p)
		return
	}
	c.hub.counts.posted.Add(int64(len(items)))
	c.hub.publish(items)
	c.look.look(items)
	w.WriteHeader(http.StatusAccepted)
}

func (c *Collector) refuse(w http.ResponseWriter, status int, p problem) {
	c.hub.counts.refused.Add(1)
	fail(w, status, p)
}

// discardRest reads on for a moment after a refusal, so that a client which
// writes its whole body before it reads hears the answer, not a reset.
func discardRest(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	_ = rc.Flush()
	_ = rc.SetReadDeadline(time.Now().Add(2 * time.Second))
	_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, 64<<20))
}

// bodyStep is the first size of a body's buffer. It grows as the body arrives:
// a length that is only promised reserves nothing.
const bodyStep = 64 << 10

var bodyPool = sync.Pool{New: func() any { b := make([]byte, 0, bodyStep); return &b }}

// readBody reads the body, inflated, within the limits. A status other than 0
// refuses it. The body is valid until release.
func (c *Collector) readBody(w http.ResponseWriter, r *http.Request) (body []byte, release func(), status int, p problem) {
	var reserved int64
	pooled := bodyPool.Get().(*[]byte)
	buf := (*pooled)[:0]
	release = func() {
		c.inFlight.Add(-reserved)
		if cap(buf) <= 1<<20 {
			*pooled = buf[:0]
			bodyPool.Put(pooled)
		}
	}
	tooLarge := problem{Error: "payload-too-large", Limit: "body", Max: c.limits.Body,
		Detail: fmt.Sprintf("the body has more than %d bytes: send fewer events at once", c.limits.Body)}
	if r.ContentLength > c.limits.Body {
		return nil, release, http.StatusRequestEntityTooLarge, tooLarge
	}
	src := io.Reader(r.Body)
	switch enc := strings.ToLower(r.Header.Get("Content-Encoding")); enc {
	case "", "identity":
	case "gzip":
		z, err := gzip.NewReader(io.LimitReader(src, c.limits.Body+1))
		if err != nil {
			return nil, release, http.StatusBadRequest, problem{Error: "invalid-body", Detail: "gzip: " + err.Error()}
		}
		src = z
	default:
		return nil, release, http.StatusUnsupportedMediaType, problem{Error: "unsupported-content-encoding", Detail: "want gzip, or none"}
	}
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Now().Add(c.limits.BodyTimeout))
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := src.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		reserved += int64(n)
		if c.inFlight.Add(int64(n)) > c.limits.InFlight {
			w.Header().Set("Retry-After", "1")
			return nil, release, http.StatusServiceUnavailable, problem{Error: "busy", Limit: "in-flight",
				Detail: "too many bodies are being read: send it again"}
		}
		if int64(len(buf)) > c.limits.Body {
			return nil, release, http.StatusRequestEntityTooLarge, tooLarge
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, release, http.StatusBadRequest, problem{Error: "invalid-body", Detail: bodyError(err)}
		}
	}
	_ = rc.SetReadDeadline(time.Time{})
	return buf, release, 0, problem{}
}

func bodyError(err error) string {
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "the body did not arrive in time"
	}
	return err.Error()
}

// parse reads the events of a body. The first that fails refuses them all.
func (c *Collector) parse(body []byte, lines bool) (items []*item, status int, p problem) {
	count := 1
	if lines {
		if count = countLines(body); count > c.limits.BatchLines {
			return nil, http.StatusRequestEntityTooLarge, problem{Error: "too-many-events", Limit: "batch",
				Max: int64(c.limits.BatchLines), Count: int64(count),
				Detail: fmt.Sprintf("%d events in one request, at most %d: send fewer at once", count, c.limits.BatchLines)}
		}
	}
	items = make([]*item, 0, count)
	series := event.Series{Depth: c.limits.Depth}
	number := 0
	for rest := body; ; {
		line := rest
		more := false
		if lines {
			line, rest, more = bytes.Cut(rest, newline)
		}
		number++
		if line = bytes.TrimSpace(line); len(line) > 0 || !lines {
			it, status, p := c.parseLine(&series, line)
			if status == 0 && isCommand(it.Type) {
				status, p = http.StatusForbidden, problem{Error: "unauthorized", Rule: "control-binding", Section: "AEP-0004 §4.1",
					Detail: it.Type + ": commands are taken only on the authenticated WebSocket, not over POST"}
			}
			if status != 0 {
				index := len(items)
				p.Line, p.Index = number, &index
				if lines {
					p.Detail = fmt.Sprintf("line %d: %s", number, p.Detail)
				}
				return nil, status, p
			}
			items = append(items, it)
		}
		if !more {
			return items, 0, problem{}
		}
	}
}

var newline = []byte{'\n'}

// countLines counts the lines that hold something.
func countLines(body []byte) int {
	n := 0
	for len(body) > 0 {
		line, rest, _ := bytes.Cut(body, newline)
		if len(bytes.TrimSpace(line)) > 0 {
			n++
		}
		body = rest
	}
	return n
}

// parseLine reads one event, on whatever binding it came. A status other than
// 0 refuses it.
func (c *Collector) parseLine(series *event.Series, line []byte) (*item, int, problem) {
	if len(line) > c.limits.Line {
		return nil, http.StatusRequestEntityTooLarge, problem{Error: "payload-too-large", Limit: "line", Max: int64(c.limits.Line),
			Detail: fmt.Sprintf("an event of %d bytes, at most %d", len(line), c.limits.Line)}
	}
	h, _, err := series.ParseHeader(line)
	if err != nil {
		p := problem{Error: "invalid-event", Detail: err.Error()}
		var v *event.Violation
		if errors.As(err, &v) {
			p.Rule, p.Section, p.Detail = v.Rule, v.Section, v.Detail
		}
		return nil, http.StatusBadRequest, p
	}
	return newItem(h, line), 0, problem{}
}

// isCommand says whether a type is an order to a session's owner, not a fact
// about it: acknowledgements are facts, and so is attention.routed.
func isCommand(typ string) bool {
	return event.ScopeOf(typ) == event.CommandScope && typ != "attention.routed"
}

// trimSpace is bytes.TrimSpace of JSON's white space, for who is called with
// little else.
func trimSpace(b []byte) []byte { return bytes.Trim(b, " \t\r\n") }
