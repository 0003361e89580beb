package eventtest

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// CPU is how long a processor is busy with f, on f's own thread: what it waits
// while the machine is busy with others does not count.
func CPU(t testing.TB, f func()) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	now := func() time.Duration {
		var at unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &at); err != nil {
			t.Fatalf("the thread's clock: %v", err)
		}
		return time.Duration(at.Nano())
	}
	start := now()
	f()
	return now() - start
}
