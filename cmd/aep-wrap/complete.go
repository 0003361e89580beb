package main

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
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
// shell may show beside it.
func begins(words []string, typed string) []string {
	out := slices.DeleteFunc(words, func(w string) bool { return len(w) < len(typed) || !strings.EqualFold(w[:len(typed)], typed) })
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
