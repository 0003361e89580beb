package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
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
the line of the file. The exit code is 0 when nothing is, and 2 when something is.
What files the settings name is not looked at.`,
		Example: `  aep-wrap config check
  aep-wrap config check deploy.yaml`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
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
	line := func(err error) (n int) {
		_, _ = fmt.Sscanf(strings.TrimPrefix(err.Error(), path+":"), "%d", &n)
		return n
	}
	slices.SortStableFunc(errs, func(a, b error) int { return cmp.Compare(line(a), line(b)) })
	for _, err := range errs {
		a.warn("%v", err)
	}
	switch {
	case len(errs) > 0:
		return &exitError{code: 2}
	case a.cfg.Quiet:
	case found == nil:
		fmt.Fprintf(a.Stdout, "%s is not there: the defaults hold\n", visible(path))
	default:
		fmt.Fprintf(a.Stdout, "%s: %s, nothing wrong\n", visible(path), count(len(found), "setting"))
	}
	return nil
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
