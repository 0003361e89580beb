package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"aep-wrap/event"
)

func newValidateCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "validate FILE|-",
		Short: "Check a log of events against the protocol",
		Long: `Reads JSON lines and names each line that breaks a rule: of the format, the
envelope, its type's payload, and of the stream that the lines are. "-" reads
standard input. Exit code 1 means that there are findings.`,
		Example: `  aep-wrap validate ~/.aep/logs/claude-code/01JX9YB2Z1QK.jsonl
  aep-wrap tail --json --from all | aep-wrap validate -
  aep-wrap validate --json run.jsonl | jq -r .rule | sort | uniq -c`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError("validate: want one FILE, or - for standard input")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			name, in := args[0], a.Stdin
			if name != "-" {
				f, err := os.Open(name)
				if err != nil {
					return usageError("validate: %w", err)
				}
				defer f.Close()
				if fi, err := f.Stat(); err == nil && fi.IsDir() {
					return usageError("validate: %s is a directory: name one of its files", name)
				}
				in = f
			} else {
				name = "stdin"
			}
			n, err := a.validate(name, in)
			if err != nil {
				return fmt.Errorf("validate: %s: %w", name, err)
			}
			if n > 0 {
				return &exitError{code: 1}
			}
			return nil
		},
	}
}

// finding is one row of validate --json.
type finding struct {
	Line    int    `json:"line"`
	Rule    string `json:"rule"`
	Section string `json:"section"`
	Detail  string `json:"detail"`
	Skipped bool   `json:"skipped,omitempty"` // another major version: passed over, not judged
}

// validate reads in, prints each finding and a summary, and says how many
// findings there are.
func (a *app) validate(name string, in io.Reader) (findings int, err error) {
	look := a.lookOf(a.Stdout)
	lines := &lineCounter{r: in}
	enc := json.NewEncoder(a.Stdout)
	enc.SetEscapeHTML(false)
	bad, last := 0, 0 // lines with findings, which come in order
	err = event.ValidateReader(lines, func(line int, v event.Violation) {
		skipped := v.Rule == event.RuleMajor
		if !skipped {
			findings++
			if line != last {
				bad++
			}
			last = line
		}
		if a.cfg.JSON {
			_ = enc.Encode(finding{line, v.Rule, v.Section, v.Detail, skipped})
			return
		}
		rule := look.paint(red, v.Rule)
		if skipped {
			rule = look.paint(yellow, "skipped")
		}
		fmt.Fprintf(a.Stdout, "%s:%d: %s: %s (%s)\n", visible(name), line, rule, visible(v.Detail), v.Section)
	})
	if err != nil {
		return findings, err
	}
	switch {
	case a.cfg.JSON:
		_ = enc.Encode(map[string]any{"summary": map[string]int{"lines": lines.n(), "findings": findings, "bad_lines": bad}})
	case a.cfg.Quiet:
	case findings == 0:
		fmt.Fprintf(a.Stdout, "%s: %s, nothing to find fault with\n", visible(name), count(lines.n(), "line"))
	default:
		fmt.Fprintf(a.Stdout, "%s: %s, %s on %s\n", visible(name), count(lines.n(), "line"), count(findings, "finding"), count(bad, "line"))
	}
	return findings, nil
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// lineCounter counts the lines that pass through it.
type lineCounter struct {
	r     io.Reader
	ends  int
	after bool // something follows the last line end
}

func (l *lineCounter) Read(p []byte) (int, error) {
	n, err := l.r.Read(p)
	for _, b := range p[:n] {
		if l.after = b != '\n'; !l.after {
			l.ends++
		}
	}
	return n, err
}

func (l *lineCounter) n() int {
	if l.after {
		return l.ends + 1
	}
	return l.ends
}
