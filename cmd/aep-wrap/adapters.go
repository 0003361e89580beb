package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"aep-wrap/adapters"
	"aep-wrap/adapters/all"
)

func newAdaptersCmd(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adapters",
		Short: "List the agents that are known, or show how one is read",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return a.listAdapters() },
	}
	cmd.AddCommand(&cobra.Command{
		Use:     "show NAME",
		Short:   "Show an adapter: how it is hooked, and what each native event becomes",
		Example: "  aep-wrap adapters show claude-code",
		Args:    cobra.ExactArgs(1),

		ValidArgsFunction: completeAdapter(anyAdapter),
		RunE:              func(_ *cobra.Command, args []string) error { return a.showAdapter(args[0]) },
	})
	return cmd
}

func adapterNames() []string {
	var names []string
	for _, ad := range all.List() {
		names = append(names, ad.Name)
	}
	return names
}

// findAdapter finds an adapter by its name, or by its command's.
func findAdapter(name string) (adapters.Adapter, error) {
	if ad, ok := all.Find(name); ok {
		return ad, nil
	}
	return adapters.Adapter{}, usageError("there is no adapter %q; want one of %s", name, strings.Join(adapterNames(), ", "))
}

// adapterJSON is an adapter as --json prints it.
type adapterJSON struct {
	Name       string     `json:"name"`
	Title      string     `json:"title"`
	Command    []string   `json:"command,omitempty"`
	Pinned     string     `json:"pinned,omitempty"`
	Answers    bool       `json:"answers"`
	Cancels    bool       `json:"cancels"`
	Instructs  bool       `json:"instructs"`
	Vocabulary []termJSON `json:"vocabulary,omitempty"`
}

type termJSON struct {
	Channel adapters.Channel `json:"channel"`
	Native  string           `json:"native"`
	When    string           `json:"when,omitempty"`
	Emits   string           `json:"emits,omitempty"`
	Fields  []fieldJSON      `json:"fields,omitempty"`
	Note    string           `json:"note,omitempty"`
}

type fieldJSON struct {
	Member string `json:"member"`
	From   string `json:"from,omitempty"`
	Level  string `json:"level"`
}

func toJSON(ad adapters.Adapter, whole bool) adapterJSON {
	j := adapterJSON{Name: ad.Name, Title: ad.Title, Command: ad.Command, Pinned: ad.Pinned, Answers: ad.Reply != nil, Cancels: ad.Cancel != nil, Instructs: ad.Instruct != nil}
	if !whole {
		return j
	}
	for _, t := range ad.Vocabulary() {
		row := termJSON{Channel: t.Channel, Native: t.Native, When: t.When, Emits: t.Emits, Note: t.Note}
		for _, f := range t.Fields {
			row.Fields = append(row.Fields, fieldJSON{f.Member, f.From, f.Level.String()})
		}
		j.Vocabulary = append(j.Vocabulary, row)
	}
	return j
}

func (a *app) listAdapters() error {
	if a.cfg.JSON {
		enc := json.NewEncoder(a.Stdout)
		for _, ad := range all.List() {
			if err := enc.Encode(toJSON(ad, false)); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tAGENT\tCOMMAND\tCHECKED AGAINST")
	for _, ad := range all.List() {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", ad.Name, ad.Title, strings.Join(ad.Command, ", "), ad.Pinned)
	}
	return w.Flush()
}

func (a *app) showAdapter(name string) error {
	ad, err := findAdapter(name)
	if err != nil {
		return err
	}
	if a.cfg.JSON {
		return json.NewEncoder(a.Stdout).Encode(toJSON(ad, true))
	}
	fmt.Fprintf(a.Stdout, "%s\n", strings.TrimSpace(ad.Doc))
	if len(ad.Vocabulary()) == 0 {
		return nil
	}
	fmt.Fprintln(a.Stdout)
	w := tabwriter.NewWriter(a.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CHANNEL\tNATIVE\tBECOMES\tNOTE")
	for _, t := range ad.Vocabulary() {
		native, emits := t.Native, cmp.Or(t.Emits, "nothing")
		if t.When != "" {
			native += " (" + t.When + ")"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", t.Channel, native, emits, t.Note)
	}
	return w.Flush()
}
