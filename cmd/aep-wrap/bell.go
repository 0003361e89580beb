package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"
)

// bell calls a person to the terminal that watches. It never goes to an
// agent's own screen: whatever we wrote there would be in its picture.
type bell struct {
	how string // "", bell or osc9
}

// ringTime is how new a request has to be for a bell: what a replay tells rings
// for nobody.
const ringTime = time.Minute

// Set reads the flag's value.
func (b *bell) Set(v string) error {
	if v != "bell" && v != "osc9" {
		return fmt.Errorf("%q: want bell or osc9", v)
	}
	b.how = v
	return nil
}

func (b *bell) String() string { return b.how }

// Type is the placeholder in help.
func (b *bell) Type() string { return "bell|osc9" }

func (b *bell) flag(cmd *cobra.Command) {
	f := cmd.Flags().VarPF(b, "bell", "", "at a new request ring the terminal's bell, or, with --bell=osc9, have it show a notification")
	f.NoOptDefVal = "bell"
	_ = cmd.RegisterFlagCompletionFunc("bell", cobra.FixedCompletions([]string{"bell", "osc9"}, cobra.ShellCompDirectiveNoFileComp))
}

// ring rings where there is a terminal: beside the output, else in it.
func (b *bell) ring(a *app, words string) {
	if b.how == "" {
		return
	}
	for _, w := range []io.Writer{a.Stderr, a.Stdout} {
		if isTerminal(w) {
			_, _ = io.WriteString(w, b.sequence(words))
			return
		}
	}
}

// sequence is what rings. A notification holds an agent's words: nothing in
// them can end it, or begin another.
func (b *bell) sequence(words string) string {
	if b.how == "bell" {
		return "\a"
	}
	words = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return -1
		}
		return r
	}, visible(clip(words, 200)))
	return "\x1b]9;" + words + "\x1b\\"
}
