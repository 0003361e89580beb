package aepwrap_test

import (
	"fmt"
	"strings"
	"testing"

	"aep-wrap/adapters/all"
)

// The page of the adapters is made of their values: what they say of
// themselves, and the table that they map by.
func TestAdaptersPageIsCurrent(t *testing.T) {
	var b strings.Builder
	cell := func(s string) string {
		return strings.ReplaceAll(strings.ReplaceAll(s, "|", `\|`), "\n", " ")
	}
	for _, a := range all.List() {
		fmt.Fprintf(&b, "## %s\n\n", a.Title)
		fmt.Fprintf(&b, "Name `%s`", a.Name)
		if len(a.Command) > 0 {
			fmt.Fprintf(&b, " · started by `%s`", strings.Join(a.Command, "`, `"))
		}
		if a.Pinned != "" {
			fmt.Fprintf(&b, " · checked against %s", a.Pinned)
		}
		b.WriteString("\n\n")
		// The page's own headings go below the adapter's.
		doc := strings.TrimSpace(a.Doc)
		if first, rest, ok := strings.Cut(doc, "\n"); ok && strings.HasPrefix(first, "# ") {
			doc = strings.TrimSpace(rest)
		}
		for line := range strings.Lines(doc) {
			if strings.HasPrefix(line, "#") {
				b.WriteString("#")
			}
			b.WriteString(line)
		}
		b.WriteString("\n\n| channel | native | becomes | |\n|---|---|---|---|\n")
		for _, term := range a.Vocabulary() {
			emits := "nothing"
			if term.Emits != "" {
				emits = "`" + cell(term.Emits) + "`"
			}
			fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", term.Channel, cell(term.Native), emits, cell(term.Note))
		}
		b.WriteString("\n")
	}
	generated(t, "docs/adapters.md", "adapters", b.String())
}
