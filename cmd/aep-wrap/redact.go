package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"aep-wrap/redaction"
)

func newRedactCmd(a *app) *cobra.Command {
	var explain, rules bool
	cmd := &cobra.Command{
		Use:   "redact",
		Short: "Filter standard input through the redaction pipeline",
		Long: `Copies standard input to standard output without what must not leave: secrets
by their look and by where they stand, the values of this environment's
sensitive variables and of those named by --secret-env, home directories, and,
unless --no-pii, e-mail addresses and telephone numbers. It is the pipeline that
every event's text goes through.

With --json, each line is an object {"id": …, "text": …} or
{"id": …, "value": …}, and comes out as one; a line that is neither comes out as
redacted text, is named on standard error, and makes the exit code 1.

--explain tells on standard error which rule hid what: line and bytes, or the
member's path, never what stood there. --rules lists the rules.`,
		Example: `  git diff | aep-wrap redact
  env | aep-wrap redact --explain
  aep-wrap redact --json --secret-env DEPLOY_PHRASE < records.jsonl`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usageError("redact: it reads standard input; write: aep-wrap redact < FILE")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, _ []string) error {
			if rules {
				return a.showRules()
			}
			return a.redact(explain)
		},
	}
	cmd.Flags().BoolVar(&explain, "explain", false, "say on standard error which rule hid what")
	cmd.Flags().BoolVar(&rules, "rules", false, "list the rules and leave")
	return cmd
}

func (a *app) showRules() error {
	enc := a.encoder()
	for _, r := range redaction.Rules() {
		var err error
		if a.cfg.JSON {
			err = enc.Encode(struct {
				ID   string `json:"id"`
				What string `json:"what"`
			}{r.ID, r.What})
		} else {
			_, err = fmt.Fprintf(a.Stdout, "%-28s %s\n", r.ID, r.What)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (a *app) redact(explain bool) error {
	f := redaction.Filter{Pipe: redaction.NewPipeline(redaction.Options{
		Home:    a.paths.home,
		NoPII:   a.cfg.NoPII,
		Secrets: redaction.ChildSecrets(a.Environ(), a.cfg.SecretEnv),
	})}
	if explain {
		what := map[string]string{}
		for _, r := range redaction.Rules() {
			what[r.ID] = r.What
		}
		f.Explain = func(line int, x redaction.Finding) {
			fmt.Fprintf(a.Stderr, "%d:%d-%d%s: %s: %s\n", line, x.Start+1, x.End, x.Path, x.Rule, what[x.Rule])
		}
	}
	if !a.cfg.JSON {
		if err := f.Text(a.Stdout, a.Stdin); err != nil {
			return fmt.Errorf("redact: %w", err)
		}
		return nil
	}
	failed, err := f.JSON(a.Stdout, a.Stdin, func(line int, err error) {
		a.warn("redact: line %d: %v; it is passed on as redacted text", line, err)
	})
	if err != nil {
		return fmt.Errorf("redact: %w", err)
	}
	if failed > 0 {
		return &exitError{code: 1}
	}
	return nil
}
