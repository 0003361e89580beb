package agent

import (
	"bytes"
	"os"
	"os/signal"
	"strconv"
	"syscall"
)

// systemSignals are what this system adds to passedOn: the real-time signals
// too, but for the two that a C library keeps for itself.
var systemSignals = func() []os.Signal {
	out := []os.Signal{syscall.SIGIO, syscall.SIGPWR, syscall.SIGSTKFLT}
	for n := 34; n <= 64; n++ {
		out = append(out, syscall.Signal(n))
	}
	return out
}()

// ignored says whether this process ignores s. The kernel is asked too: of the
// job signals Go tells nothing until they are subscribed to.
func ignored(s os.Signal) bool {
	if signal.Ignored(s) {
		return true
	}
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := bytes.Cut(status, []byte("\nSigIgn:\t"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	mask, err := strconv.ParseUint(string(line), 16, 64)
	n, ok := s.(syscall.Signal)
	return err == nil && ok && mask&(1<<(n-1)) != 0
}
