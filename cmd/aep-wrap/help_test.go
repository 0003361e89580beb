package main

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func quietApp(t *testing.T) *app {
	home := t.TempDir()
	getenv := func(name string) string {
		if name == "HOME" {
			return home
		}
		return ""
	}
	return &app{Stdin: strings.NewReader(""), Stdout: io.Discard, Stderr: io.Discard,
		Getenv: getenv, Environ: func() []string { return nil }, paths: findPaths(getenv)}
}

// Every command says which settings matter to it, and every setting is somewhere.
func TestHelpKnowsAllCommandsAndSettings(t *testing.T) {
	root := newRootCmd(quietApp(t))
	root.InitDefaultHelpCmd()
	paths := map[string]bool{}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		path := strings.TrimPrefix(strings.TrimPrefix(c.CommandPath(), "aep-wrap"), " ")
		if c.IsAvailableCommand() && c.Name() != "help" {
			paths[path] = true
			if _, ok := matters[path]; !ok {
				t.Errorf("%q: which settings matter to it?", path)
			}
			if c.Parent() == root && c.GroupID == "" {
				t.Errorf("%q is in no group", path)
			}
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(root)
	part := map[string]bool{}
	in := map[string]int{}
	for _, p := range settingParts {
		part[p.name] = true
		for _, s := range p.settings {
			in[s]++
		}
	}
	for _, s := range settings {
		if want := map[bool]int{false: 1}[s.serve]; in[s.name] != want {
			t.Errorf("--%s is in %d parts, want %d", s.name, in[s.name], want)
		}
		if part[s.name] {
			t.Errorf("%s is a part and a setting", s.name)
		}
	}
	for name := range otherwise {
		command, setting, _ := strings.Cut(name, " ")
		if !slices.Contains(strings.Fields(matters[command]), setting) {
			t.Errorf("--%s does not matter to %s", setting, command)
		}
	}
	for path, words := range matters {
		if !paths[path] {
			t.Errorf("%q is no command", path)
		}
		for word := range strings.FieldsSeq(words) {
			if !part[word] && !slices.ContainsFunc(settings, func(s setting) bool { return s.name == word && !s.serve }) {
				t.Errorf("%q: %q is neither a part nor a setting", path, word)
			}
		}
	}
}

func TestNearCommands(t *testing.T) {
	root := newRootCmd(quietApp(t))
	for word, want := range map[string]string{
		"tial":     "aep-wrap tail",
		"TAIL":     "aep-wrap tail",
		"penidng":  "aep-wrap pending",
		"pz":       "aep-wrap ps",
		"timelien": "aep-wrap timeline",
		"valid":    "aep-wrap validate",
		"x":        "",
		"":         "",
		"cat":      "",
		"claude":   "",
		"my-agent": "",
		"demo-":    "aep-wrap demo",
	} {
		if got := nearCommands(root, word); got != want {
			t.Errorf("%q: %q, want %q", word, got, want)
		}
	}
}

// Help of what is no command is no help of the whole.
func TestHelpOfNoCommand(t *testing.T) {
	for word, want := range map[string]string{
		"docter":      `no command "docter"; did you mean aep-wrap doctor`,
		"claude":      `no command "claude"; see aep-wrap --help`,
		"token nwe":   `no command "token nwe"; see`,
		"token new":   "",
		"flags":       "",
		"help":        "",
		"serve extra": `no command "serve extra"`,
	} {
		r := newWorld(t).run(nil, append([]string{"help"}, strings.Fields(word)...)...)
		if (r.code == 0) != (want == "") || r.code != 0 && (r.code != 2 || r.stdout != "") || !strings.Contains(r.stderr, want) {
			t.Errorf("help %s: %d, %q", word, r.code, r.stderr)
		}
	}
}
