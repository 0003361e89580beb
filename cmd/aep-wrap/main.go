// Command aep-wrap runs an agent and tells what it does as Agent Event
// Protocol events; its other subcommands read, watch and check such events.
//
// This package is the command line alone: one file per subcommand, and the one
// place that wires the rooms together. It alone ends the process; it decides
// nothing about events.
package main

import (
	"os"

	"aep-wrap/agent"
	"aep-wrap/agent/hookclient"
)

func main() {
	// The shim and the hook helper run at every start and every tool call: they
	// branch off before anything of the command line is built.
	if agent.IsShim(os.Args) {
		os.Exit(agent.ShimMain(os.Args))
	}
	if len(os.Args) > 1 && os.Args[1] == "hook" && !asksHelp(os.Args[2:]) {
		os.Exit(hookclient.Main(os.Args[2:]))
	}
	os.Exit(execute(newApp(), os.Args[1:]))
}

// asksHelp says whether a person wants to know what the hook helper is. Any
// other words are an agent's, for which it has one exit code whatever they are:
// to some runtimes another one is a refusal.
func asksHelp(args []string) bool {
	return len(args) == 1 && (args[0] == "-h" || args[0] == "--help")
}
