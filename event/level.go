package event

import "fmt"

// Level is a capture level (AEP-0001 §8.2): how much of what happened an event
// may say. Levels are ordered None < Metadata < Redacted < Full; the zero
// value is Metadata, the protocol's default.
type Level int8

// The capture levels, in order.
const (
	None     Level = -1 // the envelope alone, no data
	Metadata Level = 0  // structure: names, ids, counts, digests; no free text
	Redacted Level = 1  // free text that went through the redaction pipeline
	Full     Level = 2  // the original
)

var levelNames = [...]string{"none", "metadata", "redacted", "full"}

// String gives the level's name on the wire.
func (l Level) String() string {
	if l < None || l > Full {
		return fmt.Sprintf("level(%d)", int8(l))
	}
	return levelNames[l+1]
}

// ParseLevel reads a level's name as it stands on the wire. The error names
// the four that exist.
func ParseLevel(s string) (Level, error) {
	for i, n := range levelNames {
		if n == s {
			return Level(i - 1), nil
		}
	}
	return Metadata, fmt.Errorf("capture level %q: want none, metadata, redacted or full", s)
}

// Severity is an event's weight (AEP-0001 §8.1), ordered Debug < Info <
// Notice < Warning < Error < Critical. The zero value is Info, the default.
type Severity int8

// The severities, in order.
const (
	Debug    Severity = -1
	Info     Severity = 0
	Notice   Severity = 1
	Warning  Severity = 2
	Error    Severity = 3
	Critical Severity = 4
)

var severityNames = [...]string{"debug", "info", "notice", "warning", "error", "critical"}

// String gives the severity's name on the wire.
func (s Severity) String() string {
	if s < Debug || s > Critical {
		return fmt.Sprintf("severity(%d)", int8(s))
	}
	return severityNames[s+1]
}

// ParseSeverity reads a severity's name as it stands on the wire.
func ParseSeverity(s string) (Severity, error) {
	for i, n := range severityNames {
		if n == s {
			return Severity(i - 1), nil
		}
	}
	return Info, fmt.Errorf("severity %q: want debug, info, notice, warning, error or critical", s)
}
