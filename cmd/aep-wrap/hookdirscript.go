package main

import (
	_ "embed"
	"io"

	"github.com/spf13/cobra"
)

//go:embed hookdir.sh
var hookDirScript string

func newHookDirScriptCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "hook-dir-script",
		Short: "Print the shell script by which an agent elsewhere hands its hooks over",
		Long: `Prints a POSIX shell script that writes a hook's payload into a directory which
aep-wrap watch takes hooks from: for an agent in another container, with nothing
of aep-wrap in it but this script. The agent runs it as its hook command, with
the adapter's name and, where the payload does not say it, the hook's:

  AEP_HOOK_DIR=/shared/hooks sh hookdir.sh claude-code PreToolUse

AEP_HOOK_WAIT=SECONDS has it wait for an answer, which it prints. Without one in
that time, or where the directory cannot be written, it prints nothing and
succeeds: the agent asks in its own way.`,
		Example:     `  aep-wrap hook-dir-script > hookdir.sh`,
		Args:        cobra.NoArgs,
		Annotations: map[string]string{noConfig: ""},
		RunE: func(*cobra.Command, []string) error {
			_, err := io.WriteString(a.Stdout, hookDirScript)
			return err
		},
	}
}
