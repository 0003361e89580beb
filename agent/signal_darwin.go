package agent

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// systemSignals are what this system adds to passedOn.
var systemSignals = []os.Signal{syscall.SIGIO, syscall.SIGEMT}

// ignoring gives a function that says whether this process ignores a signal,
// as far as Go tells.
func ignoring() func(os.Signal) bool { return signal.Ignored }

// stopSelf stops this process as sig would, or its group; false is that nobody
// would continue it. Go gives no way back to a signal's default here, so the
// others of the group get sig and we a SIGSTOP; the kernel's rule for groups
// that no shell looks after is applied by hand.
func stopSelf(sig syscall.Signal, group bool) (restore func(), ok bool) {
	restore = func() {}
	if sig != syscall.SIGSTOP {
		parent := os.Getppid()
		mine, err1 := unix.Getsid(0)
		its, err2 := unix.Getsid(parent)
		at, err3 := unix.Getpgid(parent)
		if err1 != nil || err2 != nil || err3 != nil || mine != its || at == unix.Getpgrp() {
			return restore, false
		}
		if group {
			_ = syscall.Kill(0, sig)
			time.Sleep(time.Millisecond)
		}
	}
	return restore, syscall.Kill(os.Getpid(), syscall.SIGSTOP) == nil
}

// withoutTTOU calls f where a change of the terminal's settings is made from
// the background too, instead of stopping us. There is no way back from
// ignoring it here; it is done when the agent has ended.
func withoutTTOU(f func()) {
	signal.Ignore(syscall.SIGTTOU)
	f()
}
