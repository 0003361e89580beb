// Command aep-wrap runs an agent and tells what it does as Agent Event
// Protocol events; its other subcommands read, watch and check such events.
//
// This package is the command line alone: one file per subcommand, and the one
// place that wires the rooms together. It alone ends the process; it decides
// nothing about events.
package main

import "os"

func main() {
	os.Exit(execute(newApp(), os.Args[1:]))
}
