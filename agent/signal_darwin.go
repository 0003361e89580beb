package agent

import (
	"os"
	"os/signal"
	"syscall"
)

// systemSignals are what this system adds to passedOn.
var systemSignals = []os.Signal{syscall.SIGIO, syscall.SIGEMT}

// ignored says whether this process ignores s, as far as Go tells.
func ignored(s os.Signal) bool { return signal.Ignored(s) }
