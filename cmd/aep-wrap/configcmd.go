package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func newConfigCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check the configuration, or show what holds and where it comes from",
		Long: `The settings of every command may stand in one YAML file, ~/.aep/config.yaml or
the one that --config names: a key that a command does not know, it leaves alone.`,
		Example: `  aep-wrap config check deploy.yaml
  aep-wrap config show`,
		Annotations: map[string]string{noConfig: ""},
		Args:        cobra.NoArgs,
		RunE:        func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	check := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Say all that is wrong with a configuration file",
		Long: `Reads the file and says all that is wrong with it, each on a line of its own with
the line of the file; with --json as one object {"file", "found", "settings",
"findings": [{"line", "text"}]}. The exit code is 0 when nothing is, and 2 when
something is. What files the settings name is not looked at.`,
		Example: `  aep-wrap config check
  aep-wrap config check deploy.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			a.cfg, _, _ = loadSettings(cmd.Flags(), a.Getenv, a.paths, false) // --json and --quiet; what is wrong is said below
			path := a.paths.config()
			if len(args) > 0 {
				path = args[0]
			}
			return a.checkConfig(path, len(args) > 0 || a.paths.configGiven())
		},
	}
	var serve pflag.FlagSet
	addSettings(&serve, true)
	show := &cobra.Command{
		Use:   "show",
		Short: "Show the settings that hold, and where each comes from",
		Long: `Shows every setting that has a value, and where it was found: a flag, an
environment variable, a line of the file, or the default. Tokens and the addresses
of notifications are hidden. What is wrong is said, and makes the exit code 2.`,
		Example: `  aep-wrap config show
  AEP_CAPTURE=redacted aep-wrap config show --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.showConfig(cmd.Flags()) },
	}
	show.Flags().AddFlagSet(&serve)
	serve.VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	cmd.AddCommand(check, show)
	return cmd
}

// checked is what config check --json tells.
type checked struct {
	File     string    `json:"file"`
	Found    bool      `json:"found"`    // else the defaults hold
	Settings int       `json:"settings"` // how many it names that there are
	Findings []mistake `json:"findings"`
}

type mistake struct {
	Line int    `json:"line,omitempty"`
	Text string `json:"text"`
}

// checkConfig says all that is wrong with a file.
func (a *app) checkConfig(path string, named bool) error {
	found, errs := readConfigFile(path, named)
	for _, s := range settings {
		from := found[s.name]
		for i, v := range from.values {
			if err := s.take(&config{}, v); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", from.of(i), err))
			}
		}
	}
	told := checked{File: path, Found: found != nil, Settings: len(found), Findings: []mistake{}}
	for _, err := range errs {
		m := mistake{Text: err.Error()}
		if rest, here := strings.CutPrefix(m.Text, path+":"); here {
			if n, text, numbered := strings.Cut(rest, ": "); numbered {
				if line, err := strconv.Atoi(n); err == nil {
					m = mistake{line, text}
				}
			}
		}
		told.Findings = append(told.Findings, m)
	}
	slices.SortStableFunc(told.Findings, func(a, b mistake) int { return cmp.Compare(a.Line, b.Line) })
	switch {
	case a.cfg.JSON:
		if err := a.encoder().Encode(told); err != nil {
			return err
		}
	case len(errs) > 0:
		for _, m := range told.Findings {
			a.warn("%s", m.in(path))
		}
	case a.cfg.Quiet:
	case found == nil:
		fmt.Fprintf(a.Stdout, "%s is not there: the defaults hold\n", visible(path))
	default:
		fmt.Fprintf(a.Stdout, "%s: %s, nothing wrong\n", visible(path), count(len(found), "setting"))
	}
	if len(errs) > 0 {
		return &exitError{code: 2}
	}
	return nil
}

func (m mistake) in(path string) string {
	if m.Line == 0 {
		return m.Text
	}
	return fmt.Sprintf("%s:%d: %s", path, m.Line, m.Text)
}

// holding is a setting as config show tells it.
type holding struct {
	Name   string   `json:"name"`
	Values []string `json:"values"`
	From   string   `json:"from"`
}

func (a *app) showConfig(fs *pflag.FlagSet) error {
	c, found, errs := loadSettings(fs, a.Getenv, a.paths, true)
	var rows []holding
	for _, s := range settings {
		from := found[s.name]
		if len(from.values) == 0 {
			continue
		}
		values := slices.Clone(from.values)
		for i := range values {
			values[i] = s.shown(values[i])
		}
		rows = append(rows, holding{s.name, values, strings.TrimSuffix(from.where, ": "+s.name)})
	}
	for _, err := range errs {
		a.warn("%v", err)
	}
	if c.JSON {
		raw, err := json.Marshal(rows)
		if err != nil {
			return err
		}
		fmt.Fprintf(a.Stdout, "%s\n", raw)
	} else {
		w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
		for _, r := range rows {
			fmt.Fprintf(w, "%s\t%s\t%s\n", r.Name, visible(strings.Join(r.Values, ", ")), visible(r.From))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if len(errs) > 0 {
		return &exitError{code: 2}
	}
	return nil
}
