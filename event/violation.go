package event

import (
	"fmt"
	"strings"
)

// Violation is a rule of the protocol that an event, or a stream of them,
// breaks. Rule names it for programs, Section is where the protocol states it,
// Detail says what stands there and what should.
type Violation struct {
	Rule    string
	Section string
	Detail  string
}

func (v *Violation) Error() string { return v.Section + " (" + v.Rule + "): " + v.Detail }

// The rules of a single envelope.
const (
	RuleJSON      = "json"             // not one JSON object, or one that readers would read differently
	RuleDuplicate = "duplicate-member" // an attribute stands twice
	RuleVersion   = "version"          // aep is not a version of ours
	RuleMajor     = "major-version"    // aep names another major version: a line to skip, not to judge
	RuleRequired  = "required"         // a required attribute is missing
	RuleValue     = "attribute-value"  // an attribute's value is not of its type, or empty
	RuleType      = "type-form"        // type is not {category}.{rest} or x.{vendor}.{category}.{rest}
	RuleCategory  = "category"         // type's category is not in the closed set
	RuleScope     = "scope"            // session, run, step or seq where the type's scope wants none, or none where it wants it
	RuleExtension = "extension"        // a bad extension attribute's name or value
)

// The rules of payloads and of streams.
const (
	RulePayload     = "payload"         // data is off its type's schema
	RuleCapture     = "capture"         // data says more than capture allows
	RuleForm        = "form"            // a form's field is incomplete
	RuleAnswer      = "form-answer"     // an answer's value does not fit its form
	RuleOutcome     = "commanded-cause" // a commanded outcome cites no command
	RuleTerminal    = "terminal"        // a second terminal of a run or session
	RulePosition    = "position"        // a position that is taken, or that goes back
	RuleIdentity    = "identity"        // one (source, id) for two different events
	RuleAck         = "ack"             // a second ack decision for one command
	RuleAttention   = "attention-open"  // session.ended before a pending request was closed
	RuleBlankLine   = "blank-line"      // JSONL has no blank lines
	RuleLineTooLong = "line-too-long"   // a line beyond what is read
)

func violation(rule, section, format string, args ...any) *Violation {
	return &Violation{rule, section, fmt.Sprintf(format, args...)}
}

// quote shows a value of the other side's in a message: short, printable.
func quote(s string) string {
	const most = 40
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
