package adapters

import (
	"slices"
	"strings"
	"time"
)

// Grammar is as much of a command line's syntax as tells a subcommand or a
// prompt from the value of a flag.
type Grammar struct {
	Valued   []string // flags that always take the next word
	Variadic []string // flags that take all words up to the next flag
	Optional []string // flags that take the next word unless it is a flag
}

// Line is a command line as a Grammar reads it.
type Line struct {
	Words []string            // what is neither a flag nor a flag's value, up to "--"
	Flags map[string][]string // each flag's values; an empty string where it has none
}

// Read reads the words after the command.
func (g Grammar) Read(args []string) Line {
	l := Line{Flags: map[string][]string{}}
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "--":
			return l
		case !isFlag(a):
			l.Words = append(l.Words, a)
			continue
		}
		flag, value, joined := strings.Cut(a, "=")
		if joined {
			l.Flags[flag] = append(l.Flags[flag], value)
			continue
		}
		n := g.Values(flag, args[i+1:])
		if n == 0 {
			l.Flags[flag] = append(l.Flags[flag], "")
		}
		l.Flags[flag] = append(l.Flags[flag], args[i+1:i+1+n]...)
		i += n
	}
	return l
}

// Values counts the words that a flag takes of those that follow.
func (g Grammar) Values(flag string, next []string) int {
	switch {
	case len(next) == 0:
		return 0
	case slices.Contains(g.Variadic, flag):
		if n := slices.IndexFunc(next, isFlag); n >= 0 {
			return n
		}
		return len(next)
	case slices.Contains(g.Valued, flag), slices.Contains(g.Optional, flag) && !isFlag(next[0]):
		return 1
	}
	return 0
}

// isFlag: a lone dash is a file's name, that of standard input.
func isFlag(w string) bool { return len(w) > 1 && w[0] == '-' }

// Has says whether one of the flags is there.
func (l Line) Has(flags ...string) bool {
	return slices.ContainsFunc(flags, func(f string) bool { return l.Flags[f] != nil })
}

// Value is the last value of any of the flags that has one.
func (l Line) Value(flags ...string) (v string) {
	for _, f := range flags {
		if vs := l.Flags[f]; len(vs) > 0 {
			v = vs[len(vs)-1]
		}
	}
	return v
}

// Word is the first word that is no flag's, or "".
func (l Line) Word() string {
	if len(l.Words) == 0 {
		return ""
	}
	return l.Words[0]
}

// Wants says whether the user asked for a hook that is installed on request
// only, in AEP_HOOKS: by its name among others, or by "all".
func (l Launch) Wants(hook string) bool {
	v, _ := l.Getenv("AEP_HOOKS")
	return v == "all" || slices.Contains(strings.Split(v, ","), hook)
}

// Quote makes a word that a shell reads as it is.
func Quote(word string) string {
	plain := func(c rune) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.ContainsRune("/._-+=:@%,", c)
	}
	if word != "" && strings.IndexFunc(word, func(c rune) bool { return !plain(c) }) < 0 {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// Unasked is how long a hook may take, at most, in which nobody is asked.
const Unasked = 10 * time.Second

// HelperArgs is the argv of the hook helper for an event whose hook may take so
// long; nil where there is no helper.
func (e Endpoint) HelperArgs(event string, within time.Duration) []string {
	switch {
	case len(e.Helper) == 0:
		return nil
	case within > Unasked && e.Asking != nil:
		return append(slices.Clone(e.Asking(within)), event)
	}
	return append(slices.Clone(e.Helper), event)
}

// HelperCommand is the command line by which a shell runs it; "" where there is
// no helper.
func (e Endpoint) HelperCommand(event string, within time.Duration) string {
	words := e.HelperArgs(event, within)
	for i, w := range words {
		words[i] = Quote(w)
	}
	return strings.Join(words, " ")
}
