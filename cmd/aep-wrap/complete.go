package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"aep-wrap/adapters"
	"aep-wrap/adapters/all"
	"aep-wrap/agent"
)

// completionWait is how long a shell waits for words of ours.
const completionWait = 1500 * time.Millisecond

// completing readies us for a shell that asks what could follow: the
// configuration as far as it can be read.
func (a *app) completing(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	a.cfg, _ = loadConfig(cmd.Flags(), a.Getenv, a.paths)
	return context.WithTimeout(context.Background(), completionWait)
}

// begins keeps the words that go on from what was typed, each with what a
// shell may show beside it. The shell shows a word as it is: one of others'
// making that would not be seen as it stands, or be taken for a flag, is not
// offered.
func begins(words []string, typed string) []string {
	out := slices.DeleteFunc(words, func(w string) bool {
		word, _, _ := strings.Cut(w, "\t")
		return len(w) < len(typed) || !strings.EqualFold(w[:len(typed)], typed) || strings.HasPrefix(word, "-") || visible(word) != word
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// beside adds what a shell may show beside a word.
func beside(word, what string) string {
	if what = visible(clip(what, 60)); what == "" {
		return word
	}
	return word + "\t" + what
}

// completeNothing keeps the shell from offering files to a command that takes no
// word.
func completeNothing(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		completeNothing(c)
	}
	if cmd.ValidArgsFunction == nil && cmd.ValidArgs == nil && cmd.Args != nil && cmd.Args(cmd, []string{"x"}) != nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
}

// completeAgent completes the agent's command, as far as it is installed, and
// files after it.
func (a *app) completeAgent(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	var words []string
	for _, ad := range all.List() {
		for _, command := range ad.Command {
			if _, err := agent.LookPath(command, a.Getenv("PATH")); err == nil {
				words = append(words, beside(command, ad.Title))
			}
		}
	}
	return begins(words, typed), cobra.ShellCompDirectiveDefault
}

// completeAdapter completes an adapter of those that are chosen.
func completeAdapter(chosen func(*adapters.Adapter) bool) cobra.CompletionFunc {
	return func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		var words []string
		for _, ad := range all.List() {
			if len(args) == 0 && chosen(&ad) {
				words = append(words, beside(ad.Name, ad.Title))
			}
		}
		return begins(words, typed), cobra.ShellCompDirectiveNoFileComp
	}
}

func anyAdapter(*adapters.Adapter) bool { return true }

// isAgent says of an adapter that it is of an agent that people install.
func isAgent(ad *adapters.Adapter) bool { return ad.Launch != nil && len(ad.Command) > 0 }

// completeRun completes a run of the session that was named: the open one.
func (a *app) completeRun(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := a.completing(cmd)
	defer cancel()
	var words []string
	if f, err := a.held(ctx, `{"type":["run.*"]}`); err == nil && len(args) == 1 {
		for _, m := range f.list() {
			if m.run != "" && strings.HasPrefix(m.name, args[0]) {
				words = append(words, beside(m.run, m.name))
			}
		}
	}
	return begins(words, typed), cobra.ShellCompDirectiveNoFileComp
}

// completeTarget completes a session that is connected.
func (a *app) completeTarget(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := a.completing(cmd)
	defer cancel()
	claims, err := a.roster(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []string
	for _, c := range claims {
		words = append(words, beside(c.Session, c.Agent))
	}
	return begins(words, typed), cobra.ShellCompDirectiveNoFileComp
}

// completeLog completes a session that has a log here.
func (a *app) completeLog(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	_, cancel := a.completing(cmd)
	defer cancel()
	return begins(a.sessionNames(), typed), cobra.ShellCompDirectiveDefault
}

// completeRequest completes a session that waits, and then what it waits for.
func (a *app) completeRequest(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []string
	for _, q := range a.completable(cmd) {
		switch {
		case len(args) == 0:
			words = append(words, beside(q.Session, q.agent))
		case strings.HasPrefix(q.Session, args[0]):
			words = append(words, beside(q.ID, q.prompt))
		}
	}
	return begins(words, typed), cobra.ShellCompDirectiveNoFileComp
}

// completeOption completes an option of the request that was named.
func (a *app) completeOption(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	var words []string
	for _, q := range a.completable(cmd) {
		if len(args) == 2 && strings.HasPrefix(q.Session, args[0]) && strings.HasPrefix(q.ID, args[1]) {
			for _, o := range q.Options {
				words = append(words, beside(o.ID, o.Label))
			}
		}
	}
	return begins(words, typed), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) completable(cmd *cobra.Command) []*ask {
	ctx, cancel := a.completing(cmd)
	defer cancel()
	f, err := a.requests(ctx)
	if err != nil {
		return nil
	}
	return f.waiting(time.Now())
}

// filterOf writes an attr-match filter.
func filterOf(members map[string]any) []byte {
	b, err := json.Marshal(members)
	if err != nil {
		return []byte("{}") // strings alone: it cannot fail
	}
	return b
}
