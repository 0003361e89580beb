package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"aep-wrap/adapters"
	"aep-wrap/adapters/all"
	"aep-wrap/agent"
)

// shells are the shells that functions can be written for.
var shells = map[string]func(self string, commands []string) string{
	"bash": func(self string, commands []string) string { return posixInit(self, commands, "bash") },
	"zsh":  func(self string, commands []string) string { return posixInit(self, commands, "zsh") },
	"ksh":  func(self string, commands []string) string { return posixInit(self, commands, "ksh") },
	"sh":   func(self string, commands []string) string { return posixInit(self, commands, "sh") },
	"fish": fishInit,
}

// kin are shells that another's functions are for, as SHELL names them.
var kin = map[string]string{"dash": "sh", "ash": "sh", "ksh93": "ksh", "mksh": "ksh", "rbash": "bash"}

func newShellInitCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "shell-init [bash|zsh|fish|ksh|sh]",
		Short: "Print shell functions by which the installed agents run wrapped",
		Long: `Each agent that is installed gets a function of its name, which runs it wrapped;
its exit code, its completions and aliases of its name stay as they are. Without a
word, the shell is the one in SHELL.

aepwrap off runs the agents bare in this shell, aepwrap on wrapped again, aepwrap
says which it is. AEP_WRAP=off before a command does it once. Where aep-wrap is
gone, the agents run bare.`,
		Example: `  eval "$(aep-wrap shell-init bash)"     in ~/.bashrc; zsh in ~/.zshrc
  aep-wrap shell-init fish | source      in ~/.config/fish/config.fish`,
		Args:        cobra.MaximumNArgs(1),
		ValidArgs:   []string{"bash", "zsh", "fish", "ksh", "sh"},
		Annotations: map[string]string{noConfig: ""},
		RunE: func(_ *cobra.Command, args []string) error {
			name := filepath.Base(a.Getenv("SHELL"))
			if len(args) > 0 {
				name = args[0]
			}
			if as := kin[name]; as != "" {
				name = as
			}
			write, ok := shells[name]
			switch {
			case !ok && len(args) > 0:
				return usageError("there are no functions for %q: want bash, zsh, fish, ksh or sh", name)
			case !ok:
				return usageError("SHELL is %q: say which shell, bash, zsh, fish, ksh or sh", a.Getenv("SHELL"))
			}
			self, err := os.Executable()
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(a.Stdout, write(self, a.installed()))
			return err
		},
	}
}

// installed are the commands of the agents that PATH has.
func (a *app) installed() (commands []string) {
	for _, ad := range all.List() {
		if ad.Launch == nil {
			continue
		}
		for _, c := range ad.Command {
			if _, err := agent.LookPath(c, a.Getenv("PATH")); err == nil && plainName(c) {
				commands = append(commands, c)
			}
		}
	}
	slices.Sort(commands)
	return slices.Compact(commands)
}

// plainName says whether a command's name can be a function's in every shell.
func plainName(s string) bool {
	for i, c := range s {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return false
		}
	}
	return s != ""
}

const initHead = "# Agents run wrapped by aep-wrap; aepwrap off runs them bare.\n"

func posixInit(self string, commands []string, shell string) string {
	var b strings.Builder
	b.WriteString(initHead)
	quoted := adapters.Quote(self)
	for _, c := range commands {
		head := "function " + c + " {"
		if shell == "sh" {
			// An alias of the name would take its place in the definition: it
			// is put aside, and stands before the function again afterwards.
			fmt.Fprintf(&b, "__aep_alias=$(alias %[1]s 2>/dev/null) && unalias %[1]s || __aep_alias=\n", c)
			head = c + "() {"
		}
		fmt.Fprintf(&b, `%s
	if [ "${AEP_WRAP-}" = off ] || ! [ -x %s ]; then
		command %s "$@"
	else
		command %s -- %s "$@"
	fi
}
`, head, quoted, c, quoted, c)
		if shell == "sh" {
			b.WriteString("[ -z \"$__aep_alias\" ] || eval \"alias ${__aep_alias#alias }\"\n")
		}
	}
	toggle := "function aepwrap {"
	if shell == "sh" {
		b.WriteString("unset __aep_alias\n")
		toggle = "aepwrap() {"
	}
	b.WriteString(toggle + `
	case "${1-}" in
	on) unset AEP_WRAP ;;
	off) AEP_WRAP=off; export AEP_WRAP ;;
	"") if [ "${AEP_WRAP-}" = off ]; then echo off; else echo on; fi ;;
	*) echo "aepwrap: want on or off" >&2; return 2 ;;
	esac
}
`)
	return b.String()
}

func fishInit(self string, commands []string) string {
	quote := func(s string) string {
		return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
	}
	var b strings.Builder
	b.WriteString(initHead)
	for _, c := range commands {
		fmt.Fprintf(&b, `function %[1]s --description '%[1]s, wrapped by aep-wrap'
	if test "$AEP_WRAP" = off; or not test -x %[2]s
		command %[1]s $argv
	else
		command %[2]s -- %[1]s $argv
	end
end
`, c, quote(self))
	}
	b.WriteString(`function aepwrap --description 'whether agents run wrapped: on, off'
	switch "$argv[1]"
		case on
			set -e AEP_WRAP
		case off
			set -gx AEP_WRAP off
		case ''
			if test "$AEP_WRAP" = off
				echo off
			else
				echo on
			end
		case '*'
			echo "aepwrap: want on or off" >&2
			return 2
	end
end
`)
	return b.String()
}
