package agent

import (
	"os"
	"syscall"
)

// Exit says how the agent ended.
type Exit struct {
	// Code is what a shell shows as $?: the exit code, or 128 and the signal.
	Code int
	// Signal is the one that it died by, 0 when it exited.
	Signal syscall.Signal
	// Core says that it left a core dump.
	Core bool
	// Passed is the last signal that asks a process to end, was sent to the
	// wrapper and passed on: SIGTERM in a shutdown, SIGHUP when the terminal
	// went away. It is 0 when there was none.
	Passed syscall.Signal
	// Terminated says that Terminate ended it.
	Terminated bool
	// Hangup says that the user's terminal went away before.
	Hangup bool
}

func exitOf(st syscall.WaitStatus) Exit {
	if st.Signaled() {
		return Exit{Code: 128 + int(st.Signal()), Signal: st.Signal(), Core: st.CoreDump()}
	}
	return Exit{Code: st.ExitStatus()}
}

// Reraise ends this process as the agent ended, where a signal did that: our
// parent then sees the same signal. It returns the exit code to use when the
// agent exited, or when we cannot die by a signal: as PID 1, which the kernel
// protects from its own.
func Reraise(x Exit) int {
	if x.Signal != 0 && os.Getpid() != 1 {
		dieBy(x.Signal)
	}
	return x.Code
}
