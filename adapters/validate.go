package adapters

import (
	"errors"
	"fmt"
	"strings"

	"aep-wrap/event"
)

// Validate says what an adapter lacks to be one: a name fit for x.{vendor}, a
// page about it, a table whose every row either emits a type that exists or
// says why it emits nothing, and the parts of what it launches.
func Validate(a Adapter) error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("adapter %q: "+format, append([]any{a.Name}, args...)...))
	}
	if !vendorToken(a.Name) {
		bad("Name must be lowercase letters, digits, - and _, starting with a letter or digit: it is the vendor of x.%s.*", a.Name)
	}
	if a.Title == "" {
		bad("Title is empty: give the runtime's name as people write it")
	}
	if len(strings.Fields(a.Doc)) < 20 {
		bad("Doc is empty or a stub: embed doc.md, which says what it sees, what it cannot, how it is hooked and answered")
	}
	if a.Map == nil {
		bad("Map is nil: without it nothing is observed")
	}
	var vocabulary []Term
	if a.Vocabulary != nil {
		vocabulary = a.Vocabulary()
	}
	if len(vocabulary) == 0 {
		bad("Vocabulary is empty: give the table behind Map")
	}
	for _, t := range vocabulary {
		if why := checkTerm(t); why != "" {
			bad("vocabulary row %s %s: %s", t.Channel, t.Native, why)
		}
	}
	if l := a.Launch; l != nil {
		if l.Detect == nil || l.Wire == nil {
			bad("Launch needs both Detect and Wire")
		}
		if a.Pinned == "" {
			bad("Pinned is empty: say which version of the runtime the tables were checked against")
		}
	}
	for _, c := range a.Checks {
		files, asks := c.Files != nil && c.Found != nil, c.Ask != nil && c.Heard != nil
		if c.Name == "" || files == asks || c.Fix == "" {
			bad("Checks: %q needs a name, its fix, and either files and what is found in them or a question and what is heard", c.Name)
		}
	}
	if r := a.Reading; r != nil && (r.Identify == nil || len(r.Paths) == 0) {
		bad("Reading needs Paths and Identify: without them no log is known for one of its own")
	}
	if (a.Asks == nil) != (a.Reply == nil) {
		bad("Asks and Reply need each other: a question that cannot be answered, or an answer to none")
	}
	if v := a.Server; v != nil {
		switch {
		case v.Item == nil:
			bad("Server needs Item")
		case v.Hello == nil && !v.Lines && (!strings.HasPrefix(v.Events, "/") || v.Quiet <= 0):
			bad("Server needs Events (a path) and Quiet, or Hello, or Lines")
		case (v.Asked == nil) != (v.Answer == nil) || v.Answer != nil && a.Asks == nil:
			bad("Server: Asked, Answer and Asks need each other: what is asked has an id, and an answer is a request")
		}
		for _, q := range v.Known {
			if q.Path == "" || v.Hello == nil && !strings.HasPrefix(q.Path, "/") || q.Read == nil {
				bad("Server: a query of Known needs a path and Read")
			}
		}
	}
	return errors.Join(errs...)
}

func checkTerm(t Term) string {
	switch {
	case t.Native == "":
		return "it names no native moment"
	case t.Emits == "" && t.Note == "":
		return "it emits nothing and does not say why"
	case t.Emits == "" || strings.HasPrefix(t.Emits, "x."):
		return ""
	}
	info, ok := event.Lookup(t.Emits)
	switch {
	case !ok:
		return "it emits " + t.Emits + ", which is not registered; a vendor's fact is x.{vendor}.…"
	case info.Status == event.Reserved:
		return "it emits " + t.Emits + ", which is reserved"
	case event.ScopeOf(t.Emits) == event.CommandScope:
		return "it emits " + t.Emits + ", which only other senders may"
	}
	return ""
}

func vendorToken(s string) bool {
	for i, c := range []byte(s) {
		letter := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '-' && c != '_') {
			return false
		}
	}
	return s != ""
}
