// Command aep-hook is the hook helper alone: it runs before and after every
// tool call of an agent, so it is a binary of its own that starts as fast as a
// shell does. It takes the names of an adapter and of an event, the payload on
// stdin, and prints the wrapper's answer. It never fails: no wrapper, no
// answer. "aep-wrap hook" is the same, slower.
package main

import (
	"os"

	"aep-wrap/agent/hookclient"
)

func main() { os.Exit(hookclient.Main(os.Args[1:])) }
