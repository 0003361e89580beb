package ws

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"

	"aep-wrap/event"
)

// Capabilities are what hello declares of us (AEP-0003 §4).
type Capabilities struct {
	Emits        []string       `json:"emits,omitempty"`   // categories
	Capture      []string       `json:"capture,omitempty"` // levels
	Control      *Control       `json:"control,omitempty"` // left out where there is no OnCommand
	Experimental map[string]any `json:"experimental,omitempty"`
}

// Control is capabilities.control: the types of commands that are accepted.
type Control struct {
	Accepts     []string `json:"accepts"`
	AckWindowMS int64    `json:"ack_window_ms,omitempty"`
}

type identity struct {
	Agent    string `json:"agent"`
	Instance string `json:"instance,omitempty"`
}

type hello struct {
	Type         string       `json:"type"`
	Versions     []string     `json:"versions"`
	Role         string       `json:"role"`
	Identity     identity     `json:"identity"`
	Capabilities Capabilities `json:"capabilities"`
}

func (h hello) encode() ([]byte, error) {
	h.Type, h.Role, h.Versions = "hello", "emitter", []string{event.Version}
	return json.Marshal(h)
}

func pingFrame(dst []byte, t int64) []byte {
	return append(strconv.AppendInt(append(dst, `{"type":"ping","t":`...), t, 10), '}')
}

// pongFrame echoes a ping's t; nil is a ping without one.
func pongFrame(t []byte) []byte {
	if t == nil {
		return []byte(`{"type":"pong"}`)
	}
	return append(append([]byte(`{"type":"pong","t":`), t...), '}')
}

func closingFrame(reason string) []byte {
	raw, _ := json.Marshal(struct {
		Type      string   `json:"type"`
		Reason    string   `json:"reason"`
		Delivered []string `json:"delivered"` // per subscription, of which an emitter has none
	}{"closing", reason, []string{}})
	return raw
}

func errorFrame(code, cause, detail string) []byte {
	raw, _ := json.Marshal(struct {
		Type   string `json:"type"`
		Code   string `json:"code"`
		Cause  string `json:"cause,omitempty"`
		Detail string `json:"detail,omitempty"`
	}{"error", code, cause, detail})
	return raw
}

// frame is a connection-scoped message: its type has no dot (AEP-0003 §2).
type frame struct {
	typ      string
	versions []string // hello, error
	t        any      // ping, pong
	echo     []byte   // ping: t as it is to be echoed; nil where there is none
	code     string   // error
	detail   string   //
	about    string   // error: the id of the event that it is about, or ""
	reason   string   // closing
	at       []delivered
}

// delivered is a position of a closing frame.
type delivered struct {
	session string
	event.Position
}

// maxEcho bounds what a ping makes us send.
const maxEcho = 1 << 10

var (
	errNoObject = errors.New("not a JSON object")
	errNoType   = errors.New("an object without a type")
	errEvent    = errors.New("an event") // or would be one: its type has a dot
)

// parseFrame reads a message. It gives errEvent for one that is an event, or
// would be. Members of another type than expected count as absent.
func parseFrame(raw []byte) (f frame, err error) {
	o, err := event.ParseObject(raw)
	if err != nil {
		return f, errors.Join(errNoObject, err)
	}
	f.typ = text(o, "type")
	switch {
	case f.typ == "":
		return f, errNoType
	case strings.Contains(f.typ, "."):
		return f, errEvent
	}
	switch f.typ {
	case "hello":
		f.versions = list(o["versions"])
	case "error":
		f.versions, f.code, f.detail = list(o["versions"]), text(o, "code"), text(o, "detail")
		if f.about = text(o, "cause"); f.about == "" {
			f.about = text(o, "id")
		}
	case "closing":
		f.reason = text(o, "reason")
		at, _ := o["delivered"].([]any)
		for _, v := range at {
			p, _ := v.(map[string]any)
			d := delivered{session: text(p, "session")}
			var okE, okS bool
			d.Epoch, okE = integer(p["epoch"])
			d.Seq, okS = integer(p["seq"])
			if d.session != "" && okS && (okE || p["epoch"] == nil) {
				f.at = append(f.at, d)
			}
		}
	case "ping", "pong":
		t, given := o["t"]
		f.t = t
		if given && f.typ == "ping" {
			f.echo = event.AppendValue(nil, t)
		}
	}
	return f, nil
}

func text(o map[string]any, name string) string {
	s, _ := o[name].(string)
	return s
}

func list(v any) (out []string) {
	vs, _ := v.([]any)
	for _, v := range vs {
		if s, ok := v.(string); ok {
			out = append(out, s)
		}
	}
	return out
}

// integer reads a whole number, also one that went through a float on its way.
func integer(v any) (int64, bool) {
	n, ok := v.(json.Number)
	if !ok {
		return 0, false
	}
	if i, err := n.Int64(); err == nil {
		return i, true
	}
	d, err := n.Float64()
	if i := int64(d); err == nil && d == float64(i) && i > -1<<53 && i < 1<<53 {
		return i, true
	}
	return 0, false
}

// chosen says whether a hello selects our version, and ours alone (AEP-0003
// §4 rule 1).
func chosen(versions []string) bool { return slices.Equal(versions, []string{event.Version}) }

// isCommand says whether an event is a command to a target.
func isCommand(h *event.Header) bool {
	return event.ScopeOf(h.Type) == event.CommandScope && event.Category(h.Type) != "attention"
}
