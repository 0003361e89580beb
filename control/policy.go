package control

import (
	"fmt"
	"slices"
	"time"
)

// Question is what a Policy judges: a command that passed every other gate.
type Question struct {
	Command *Command
	Origin  Origin
	// Age is how long a respond's request has been told; negative for other
	// commands and unknown requests.
	Age time.Duration
}

// Policy says why a command is refused, or "" (AEP-0004 §8: a target refuses
// what looks wrong to it, on top of any ACL). It is called with no lock held.
type Policy func(Question) string

// TooFast refuses answers that come sooner after their request than a person
// can have read it.
func TooFast(least time.Duration) Policy {
	return func(q Question) string {
		if q.Age >= 0 && q.Age < least {
			return fmt.Sprintf("answered %d ms after it was asked; at least %d ms are expected", q.Age.Milliseconds(), least.Milliseconds())
		}
		return ""
	}
}

// OnlyFrom refuses commands of senders by another agent name. The name is
// asserted, not proven: it keeps out strangers, not impostors.
func OnlyFrom(agents ...string) Policy {
	return func(q Question) string {
		if slices.Contains(agents, q.Command.Agent) {
			return ""
		}
		return "the sender is not known here"
	}
}

// Policies asks each in turn; the first refusal counts.
func Policies(all ...Policy) Policy {
	return func(q Question) string {
		for _, p := range all {
			if why := p(q); why != "" {
				return why
			}
		}
		return ""
	}
}
