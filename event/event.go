package event

import (
	"encoding/json"
	"time"
)

// Version is the envelope version this package speaks (attribute "aep").
const Version = "0.1"

// Header is the envelope without its data: the context attributes of
// AEP-0001 §5. An absent optional attribute is the zero value.
type Header struct {
	ID      string // unique per Source; (Source, ID) is the idempotency key
	Type    string // {category}.{rest} or x.{vendor}.{category}.{rest}
	Subject string // what is acted upon; in later attention events the request's id
	Time    time.Time
	Source  string // aep://{host}/agent/{agent}/session/{session}
	Agent   string
	Session string // empty on agent.* events
	Run     string
	Step    string

	// Sequenced says whether (Epoch, Seq) is a position: true on every
	// session-scoped event but commands and attention.routed.
	Sequenced bool
	Epoch     int64
	Seq       int64

	Cause       string
	Traceparent string
	Severity    Severity
	Capture     Level // the level that the data honours

	// Ext are extension attributes (AEP-0001 §5.4): name [a-z0-9]{1,20}, not
	// a core name; value string, bool or int64. Add them with SetExt, which
	// refuses a bad one.
	Ext map[string]any
}

// Position is a place in a session's order (AEP-0001 §7).
type Position struct {
	Epoch int64 `json:"epoch"`
	Seq   int64 `json:"seq"`
}

// Less orders positions by epoch, then seq.
func (p Position) Less(q Position) bool {
	return p.Epoch < q.Epoch || p.Epoch == q.Epoch && p.Seq < q.Seq
}

// Event is one envelope, ready for the wire.
type Event struct {
	Header
	Data json.RawMessage // a JSON object, or nil
}

// Position is the event's place in its session; meaningful when Sequenced.
func (h *Header) Position() Position { return Position{h.Epoch, h.Seq} }
