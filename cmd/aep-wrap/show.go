package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/clipperhouse/displaywidth"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"aep-wrap/event"
)

// look is how lines for people are drawn.
type look struct{ colour bool }

// lookOf is the look that suits w: colours are for terminals whose user did
// not refuse them.
func (a *app) lookOf(w io.Writer) look {
	f, ok := w.(interface{ Fd() uintptr })
	return look{ok && term.IsTerminal(int(f.Fd())) && a.Getenv("NO_COLOR") == "" && a.Getenv("TERM") != "dumb"}
}

// terminalWidth is how many cells a line of w has; 0 where w is no terminal, or
// one that does not say.
func terminalWidth(w any) int {
	f, ok := w.(interface{ Fd() uintptr })
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return max(width, 0)
}

// roomFlag gives a command --wide, and says how many cells its lines have; 0 is
// as many as they take.
func (a *app) roomFlag(cmd *cobra.Command) func() int {
	wide := cmd.Flags().Bool("wide", false, "whole lines, also where they are wider than the terminal")
	return func() int {
		if *wide {
			return 0
		}
		return terminalWidth(a.Stdout)
	}
}

// cells is how many cells of a terminal visible text takes.
func cells(s string) int { return displaywidth.String(s) }

// fit shortens visible text to n cells.
func fit(s string, n int) string {
	switch {
	case len(s) <= n || cells(s) <= n:
		return s
	case n <= 0:
		return ""
	}
	return displaywidth.TruncateString(s, n, "…")
}

// pad fills visible text up to n cells; colours are put around the whole.
func pad(s string, n int) string { return s + strings.Repeat(" ", max(0, n-cells(s))) }

// narrow makes columns fit into room: each gives, in its turn, what it has beyond
// its floor.
func narrow(widths []int, room int, turns ...floor) {
	over := -room
	for _, w := range widths {
		over += w
	}
	for _, t := range turns {
		give := min(max(0, over), max(0, widths[t.column]-t.cells))
		widths[t.column] -= give
		over -= give
	}
}

// floor is how narrow a column may become.
type floor struct{ column, cells int }

// The colours, as a terminal is told them.
const (
	dim    = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
	purple = "1;35"
	bold   = "1"
)

func (l look) paint(colour, s string) string {
	if !l.colour || colour == "" || s == "" {
		return s
	}
	return "\x1b[" + colour + "m" + s + "\x1b[0m"
}

// kinds colour an event by its type, the first that fits.
var kinds = []struct{ prefix, colour string }{
	{"error.", red}, {"run.failed", red}, {"tool.failed", red}, {"tool.denied", red}, {"control.rejected", red},
	{"attention.requested", purple}, {"attention.timeout", yellow}, {"attention.", green},
	{"run.cancelled", yellow}, {"run.", bold}, {"session.", bold}, {"tool.completed", green}, {"control.", yellow},
}

func colourOf(h *event.Header) string {
	if h.Severity >= event.Error {
		return red
	}
	for _, k := range kinds {
		if strings.HasPrefix(h.Type, k.prefix) {
			return k.colour
		}
	}
	if h.Severity == event.Debug {
		return dim
	}
	return ""
}

// visible makes text of an agent's safe to print on one line: what would move
// the cursor, colour, hide or reorder is shown as what it is.
func visible(s string) string {
	if !strings.ContainsFunc(s, hidden) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteByte(' ')
		case r == '\r':
			b.WriteString(`\r`)
		case !hidden(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}

// hidden says of a rune that it shows nothing of its own: controls, formats
// (bidirectional ones among them), line separators, private use, and the
// spaces that look like none.
func hidden(r rune) bool {
	return r != ' ' && (unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs) ||
		r == 0x115f || r == 0x1160 || r == 0x3164 || r == 0xffa0)
}

// clip shortens text to n characters.
func clip(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	r := []rune(s)
	return string(r[:n-1]) + "…"
}

// said are the members of a type's data that tell most of it, in the order in
// which they are read; "/" goes into an object. A type that is not here is told
// by those of anyType.
var said = map[string][]string{
	"session.started":               {"client/name", "client/version", "gen_ai.request.model"},
	"session.ended":                 {"reason"},
	"session.compacted":             {"trigger", "strategy"},
	"run.started":                   {"trigger", "prompt"},
	"run.finished":                  {"summary"},
	"run.cancelled":                 {"by", "reason"},
	"run.failed":                    {"reason", "error/type", "error/message"},
	"tool.completed":                {"status"},
	"tool.failed":                   {"error/type", "error/message"},
	"tool.denied":                   {"by", "rule"},
	"delegation.subagent.started":   {"agent_type", "role", "child/agent"},
	"delegation.subagent.stopped":   {"agent_type", "status"},
	"attention.requested":           {"kind", "prompt"},
	"attention.answered":            {"answer/option", "answer/text", "via"},
	"attention.resolved":            {"resolution"},
	"attention.routed":              {"to", "via"},
	"progress.status":               {"phase", "message"},
	"progress.task.planned":         {"task/title"},
	"progress.task.completed":       {"task/title", "status"},
	"progress.artifact.produced":    {"artifact/name"},
	"error.raised":                  {"error/type", "error/message"},
	"control.rejected":              {"reason", "detail"},
	"assessment.guardrail.recorded": {"guardrail.verdict"},
}

var anyType = []string{"status", "state", "kind", "phase", "reason", "trigger", "resolution", "name", "title", "message", "text", "detail", "error/type", "error/message"}

// told is what one event says to people.
type told struct {
	subject string
	state   string
	took    time.Duration // as the sender measured it, or 0
}

// tell reads an event for people. What it gives is not yet fit to print.
func tell(e *event.Event) told {
	t := told{subject: e.Subject}
	tree, err := event.ParseObject(e.Data)
	if err != nil {
		return t
	}
	get := func(path string) string {
		v := any(tree)
		for name := range strings.SplitSeq(path, "/") {
			o, ok := v.(map[string]any)
			if !ok {
				return ""
			}
			v = o[name]
		}
		switch v := v.(type) {
		case string:
			return v
		case json.Number:
			return v.String()
		case bool:
			return fmt.Sprint(v)
		}
		return ""
	}
	if strings.HasPrefix(e.Type, "attention.") && e.Type != "attention.requested" {
		t.subject = "" // the request's id, which the reader has just seen
	} else if t.subject == "" {
		t.subject = get("tool/name")
	}
	paths, ok := said[e.Type]
	if !ok {
		paths = anyType
	}
	var parts []string
	for _, p := range paths {
		if v := get(p); v != "" && v != t.subject {
			parts = append(parts, v)
		}
	}
	t.state = strings.Join(parts, " · ")
	if ms, ok := tree["duration_ms"].(json.Number); ok {
		if n, err := ms.Float64(); err == nil && n >= 0 && n < 1e15 {
			t.took = time.Duration(n * float64(time.Millisecond))
		}
	}
	return t
}

// span writes a duration as people read it.
func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
