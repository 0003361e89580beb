package collector

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"aep-wrap/event"
)

// The roles that a hello declares (AEP-0003 §4 rule 2).
const (
	roleEmitter  = "emitter"
	roleConsumer = "consumer"
	roleBoth     = "both"
)

// greeting is what a hello says, as far as the endpoint goes by it.
type greeting struct {
	role            string
	agent, instance string
	control, emits  json.RawMessage // as they were declared; nil where they were not
	accepts         map[string]bool
}

// errVersion is a hello without a version of ours.
var errVersion = errors.New("want version " + event.Version)

// parseHello reads a hello frame. Members that the endpoint does not know, and
// declarations of another form than the protocol's, are no reason to refuse it.
func parseHello(raw []byte, tree map[string]any) (greeting, error) {
	var g greeting
	versions, _ := tree["versions"].([]any)
	if !slices.Contains(versions, any(event.Version)) {
		return g, errVersion
	}
	switch g.role, _ = tree["role"].(string); g.role {
	case roleEmitter, roleConsumer, roleBoth:
	default:
		return g, errors.New("role: want emitter, consumer or both")
	}
	identity, _ := tree["identity"].(map[string]any)
	g.agent, _ = identity["agent"].(string)
	g.instance, _ = identity["instance"].(string)
	declared, _ := tree["capabilities"].(map[string]any)
	if control, ok := declared["control"].(map[string]any); ok {
		g.control = member(raw, "capabilities", "control")
		accepts, _ := control["accepts"].([]any)
		g.accepts = make(map[string]bool, len(accepts))
		for _, a := range accepts {
			if s, ok := a.(string); ok {
				g.accepts[s] = true
			}
		}
	}
	if _, ok := declared["emits"].([]any); ok {
		g.emits = member(raw, "capabilities", "emits")
	}
	return g, nil
}

// member is a member's value as it stands in a JSON text that was read
// already.
func member(raw []byte, path ...string) json.RawMessage {
	for _, name := range path {
		d := jsontext.NewDecoder(strings.NewReader(string(raw)))
		if _, err := d.ReadToken(); err != nil {
			return nil
		}
		for {
			key, err := d.ReadToken()
			if err != nil || key.Kind() != '"' {
				return nil
			}
			found := key.String() == name
			v, err := d.ReadValue()
			if err != nil {
				return nil
			}
			if found {
				raw = slices.Clone(v)
				break
			}
		}
	}
	return raw
}

// parseSubscribe reads a subscribe frame's members (AEP-0003 §6.5).
func parseSubscribe(tree map[string]any, maxFrom int) (subscription, error) {
	sub := subscription{ceiling: event.Full, live: true}
	filter, given := tree["filter"]
	if !given {
		filter = map[string]any{}
	}
	var err error
	if sub.filter, err = event.CompileFilter(event.AppendValue(nil, filter)); err != nil {
		return sub, err
	}
	if v, given := tree["capture"]; given {
		level, _ := v.(string)
		if sub.ceiling, err = event.ParseLevel(level); err != nil {
			return sub, fmt.Errorf("capture: %w", err)
		}
	}
	if v, given := tree["from"]; given {
		sub.from, sub.all, err = readFrom(v, maxFrom)
	}
	return sub, err
}

// The frames that the endpoint says.

// refusal is an error frame: about a request, by its id, or about an event, by
// its cause.
type refusal struct {
	Type     string   `json:"type"`
	ID       string   `json:"id,omitempty"`
	Cause    string   `json:"cause,omitempty"`
	Code     string   `json:"code"`
	Detail   string   `json:"detail,omitempty"`
	Rule     string   `json:"rule,omitempty"`
	Section  string   `json:"section,omitempty"`
	Versions []string `json:"versions,omitempty"`
}

func encode(frame any) []byte {
	b := encodeJSON(frame)
	return b[:len(b)-1]
}

type answerFrame struct {
	Type string `json:"type"`
	ID   string `json:"id"`
}

type exhaustedFrame struct {
	Type     string         `json:"type"`
	Sub      string         `json:"sub"`
	Session  string         `json:"session"`
	Earliest event.Position `json:"earliest"`
}

type rosterFrame struct {
	Type    string  `json:"type"`
	ID      string  `json:"id"`
	Entries []entry `json:"entries"`
}

// entry is one live claim (AEP-0003 §4.1): what its connection declared, and
// no word more.
type entry struct {
	Session  string          `json:"session"`
	Agent    string          `json:"agent,omitempty"`
	Instance string          `json:"instance,omitempty"`
	Control  json.RawMessage `json:"control,omitempty"`
	Emits    json.RawMessage `json:"emits,omitempty"`
}

type closingFrame struct {
	Type      string      `json:"type"`
	Reason    string      `json:"reason"`
	Delivered []delivered `json:"delivered"`
}

// delivered is the last position of a session that a subscription was sent.
type delivered struct {
	Sub     string `json:"sub"`
	Session string `json:"session"`
	event.Position
}
