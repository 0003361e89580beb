package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"aep-wrap/control"
	"aep-wrap/queue/jsonl"
)

// What is known of a session to which there is no way.
const (
	sessionUnknown = "unknown" // nobody has heard of it
	sessionEnded   = "ended"
	sessionGone    = "gone"    // its wrapper died without an end
	sessionWatched = "watched" // by its log alone: nobody is there to carry anything out
	sessionAway    = "away"    // it goes on, and its wrapper is not connected
)

// whereabouts says what is known of a session that nobody connected claims, and
// that for people. It is "" where nothing could be asked.
func (t *target) whereabouts(ctx context.Context) (known, words string) {
	a := t.app
	f, err := a.held(ctx, "")
	if err != nil {
		return "", ""
	}
	m, err := a.known(f, t.name)
	if many := (*control.AmbiguousError)(nil); errors.As(err, &many) {
		err = a.ambiguous("session", t.name, many.Found, func(string) string { return "" })
		return sessionUnknown, fmt.Sprintf("no session that is connected now begins with %q; %v", t.name, err)
	}
	if m == nil {
		return sessionUnknown, fmt.Sprintf("there is no session %q%s", visible(t.name), t.others())
	}
	now := time.Now()
	who := fmt.Sprintf("session %s (%s)", visible(m.name), visible(m.agent))
	look := "; aep-wrap timeline " + shellWord(m.name) + " shows it"
	switch {
	case m.ended:
		return sessionEnded, fmt.Sprintf("%s has ended, %s%s", who, past(now.Sub(m.last)), look)
	case jsonl.IsWatched(jsonl.Path(a.cfg.LogDir, m.agent, m.name)):
		return sessionWatched, fmt.Sprintf("%s is only watched: nobody is with its agent who could carry a command out", who)
	case !a.lives(m, now):
		return sessionGone, fmt.Sprintf("%s is gone without an end, its last event came %s: its wrapper died, or has lost its way to the collector%s", who, past(now.Sub(m.last)), look)
	}
	return sessionAway, fmt.Sprintf("the wrapper of %s is not connected to the collector now: wait until it is back (aep-wrap roster), or answer at the agent itself", who)
}

// known finds a session by its name, or the beginning of it, among those that the
// collector holds, else in the logs. It is nil where there is none.
func (a *app) known(f *fleet, name string) (*member, error) {
	find := func() (*member, error) {
		var names []string
		for _, m := range f.list() {
			names = append(names, m.name)
		}
		found, err := control.Resolve(name, slices.Compact(slices.Sorted(slices.Values(names))))
		if err != nil {
			return nil, err
		}
		for _, m := range f.list() {
			if m.name == found {
				return m, nil
			}
		}
		return nil, nil
	}
	m, err := find()
	if err == nil || errors.As(err, new(*control.AmbiguousError)) {
		return m, err
	}
	path, err := a.findLog(name)
	if err != nil {
		return nil, nil // as of several of that beginning: the word is still no session's name
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, nil
	}
	defer file.Close()
	r := bufio.NewReader(file)
	for {
		line, err := r.ReadBytes('\n')
		f.add(line)
		if err != nil {
			break
		}
	}
	m, _ = find()
	return m, nil
}

// others are the sessions that may have been meant, and where all of them are.
func (t *target) others() string {
	if len(t.roster) == 0 {
		return "; no session is connected now (aep-wrap ps)"
	}
	var names []string
	for _, c := range t.roster {
		names = append(names, c.Session)
	}
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(distance(t.name, a), distance(t.name, b)) })
	words := "; connected are "
	if near := len(t.name) / 3; distance(t.name, names[0]) <= near {
		words = "; did you mean "
		names = slices.DeleteFunc(names, func(n string) bool { return distance(t.name, n) > near })
	}
	more := ""
	if len(names) > 8 {
		more = fmt.Sprintf(", and %d more", len(names)-8)
		names = names[:8]
	}
	words += visible(strings.Join(names, ", ")) + more
	if strings.HasPrefix(words, "; did") {
		words += "?"
	}
	return words + " (aep-wrap ps)"
}

// distance is how many characters of what was typed have to be changed, added or
// left out for it to be a name, or as much of one as was typed.
func distance(typed, name string) int {
	a, b := []rune(strings.ToLower(typed)), []rune(strings.ToLower(name))
	row := make([]int, len(b)+1) // of changes from nothing typed
	for j := range row {
		row[j] = j
	}
	for i, r := range a {
		before := row[0]
		row[0] = i + 1
		for j, s := range b {
			change := before
			if r != s {
				change++
			}
			before = row[j+1]
			row[j+1] = min(change, row[j]+1, before+1)
		}
	}
	return slices.Min(row) // what follows of the name need not be typed
}
