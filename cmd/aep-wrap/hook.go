package main

import (
	"github.com/spf13/cobra"

	"aep-wrap/agent/hookclient"
)

func newHookCmd(*app) *cobra.Command {
	return &cobra.Command{
		Use:   "hook AGENT [EVENT]",
		Short: "The hook helper: stdin to the wrapper, its answer to stdout",
		Long: `What a wrapped agent runs for its hooks where it cannot call the wrapper by
HTTP. It carries the payload on stdin to the wrapper that AEP_HOOK_SOCKET names,
and the answer to stdout. It fails open: whatever is wrong, it prints nothing
and exits 0. aep-hook is the same as a binary of its own, which starts faster.`,
		Example:     `  echo '{"session_id": "s1"}' | aep-wrap hook claude-code Stop`,
		Args:        cobra.ArbitraryArgs, // fewer or more are no decision, not an error
		Annotations: map[string]string{noConfig: ""},

		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if asksHelp(args) {
				return cmd.Help()
			}
			return &exitError{code: hookclient.Main(args)}
		},
	}
}
