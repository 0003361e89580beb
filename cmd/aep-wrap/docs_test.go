package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

var updateDocs = flag.Bool("update-docs", false, "write docs/cli.md anew")

// docs/cli.md is what the command line says of itself.
func TestCommandLinePageIsCurrent(t *testing.T) {
	const file = "../../docs/cli.md"
	want := commandLinePage(newRootCmd(quietApp(t)))
	have, err := os.ReadFile(file)
	if err != nil && !*updateDocs {
		t.Fatal(err)
	}
	if bytes.Equal(have, want) {
		return
	}
	if *updateDocs {
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Errorf("docs/cli.md is not what the command line says: run go test ./cmd/aep-wrap -run CommandLinePage -update-docs\n%s",
		cmp.Diff(string(have), string(want)))
}

func commandLinePage(root *cobra.Command) []byte {
	var b bytes.Buffer
	b.WriteString("# The command line\n\n<!-- Made of the commands' own words; a test holds it current. -->\n\n")
	writeCommand(&b, root, 2)
	b.WriteString("## Completion\n\n```sh\n" + `source <(aep-wrap completion bash)      in ~/.bashrc; it wants the package bash-completion
source <(aep-wrap completion zsh)       in ~/.zshrc, after compinit
aep-wrap completion fish | source       in ~/.config/fish/config.fish
` + "```\n\n" + `A shell completes commands, flags and the values that they know, the agents that
are installed, and what there is at the moment: sessions (for cancel, pause, tail
--session), requests and their options (for respond), runs (for cancel --run), logs
(for timeline). That is asked of the collector, for a second and a half at most; one
that does not run is not started. There is a script for PowerShell, too.

## Settings

Every setting is a flag, an environment variable and a key of
` + "`~/.aep/config.yaml`" + ` under one name. The flag counts first, then the
variable, then the file. A value that cannot be is refused before the agent
starts, with exit code 2 and what to write instead.

| flag | environment | key | default | |
|---|---|---|---|---|
`)
	for _, s := range settings {
		name := "--" + s.name
		if s.arg != "" {
			name += " " + s.arg
		}
		def := ""
		if s.def != "" {
			def = "`" + s.def + "`"
		}
		usage := s.usage
		if s.list {
			usage += "; may be given several times, or as a list with commas in the environment"
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | `%s` | %s | %s |\n", strings.ReplaceAll(name, "|", `\|`), s.env(), s.name, def, usage)
	}
	return b.Bytes()
}

// writeCommand writes a command and those below it. Hidden ones are not for
// people.
func writeCommand(b *bytes.Buffer, c *cobra.Command, level int) {
	fmt.Fprintf(b, "%s %s\n\n", strings.Repeat("#", level), c.CommandPath())
	long := c.Long
	if long == "" {
		long = c.Short + "."
	}
	fmt.Fprintf(b, "%s\n\n```\n%s\n```\n\n", strings.TrimSpace(long), c.UseLine())
	if c.Example != "" {
		fmt.Fprintf(b, "```sh\n%s\n```\n\n", strings.ReplaceAll(strings.TrimRight(c.Example, "\n"), "\n  ", "\n")[2:])
	}
	rows := 0
	c.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		if rows++; rows == 1 {
			b.WriteString("| flag | |\n|---|---|\n")
		}
		arg, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if arg != "" {
			name += " " + arg
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "[]" && f.DefValue != "0" {
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(b, "| `%s` | %s |\n", strings.ReplaceAll(name, "|", `\|`), strings.ReplaceAll(usage, "|", `\|`))
	})
	if rows > 0 {
		b.WriteString("\n")
	}
	if c.HasParent() {
		var names []string
		settingsOf(c).VisitAll(func(f *pflag.Flag) { names = append(names, "`--"+f.Name+"`") })
		if len(names) > 0 {
			fmt.Fprintf(b, "Settings: %s.\n\n", strings.Join(names, " "))
		}
	} else {
		for _, g := range c.Groups() {
			var names []string
			for _, sub := range c.Commands() {
				if sub.GroupID == g.ID && sub.IsAvailableCommand() {
					names = append(names, fmt.Sprintf("[%s](#aep-wrap-%s)", sub.Name(), sub.Name()))
				}
			}
			fmt.Fprintf(b, "* %s %s\n", g.Title, strings.Join(names, ", "))
		}
		b.WriteString("\nEvery command takes every [setting](#settings) as a flag; with each stand those that\nmatter to it. A word that is neither a command nor found in `PATH`, and near to a\ncommand, is told which may be meant.\n\n")
	}
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "completion" {
			writeCommand(b, sub, min(level+1, 4))
		}
	}
}
