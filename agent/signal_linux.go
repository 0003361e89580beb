package agent

import (
	"bytes"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// systemSignals are what this system adds to passedOn.
var systemSignals = []os.Signal{syscall.SIGIO, syscall.SIGPWR, syscall.SIGSTKFLT}

// ignoring gives a function that says whether this process ignored a signal
// when it was called. The kernel is asked too: of the job signals Go tells
// nothing until they are subscribed to.
func ignoring() func(os.Signal) bool {
	status, _ := os.ReadFile("/proc/self/status")
	_, rest, _ := bytes.Cut(status, []byte("\nSigIgn:\t"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	mask, _ := strconv.ParseUint(string(line), 16, 64)
	return func(s os.Signal) bool {
		n, ok := s.(syscall.Signal)
		return ok && mask&(1<<(n-1)) != 0 || signal.Ignored(s)
	}
}

// The dispositions that setAction sets.
const (
	sigDefault = 0
	sigIgnore  = 1
)

// setAction gives sig another disposition than Go's, which comes back with the
// returned function. os/signal cannot: its Reset leaves a signal that was
// subscribed to with Go's own handler, which does not stop the process.
func setAction(sig syscall.Signal, how byte) (restore func()) {
	var now, was [64]byte // struct sigaction begins with the handler; all else is fine as zeros
	now[0] = how
	if *(*uint16)(unsafe.Pointer(&[2]byte{1, 0})) != 1 { // big-endian
		now[0], now[7] = 0, how
	}
	set := func(to, from *[64]byte) {
		_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(to)), uintptr(unsafe.Pointer(from)), 8, 0, 0)
	}
	set(&now, &was)
	return func() { set(&was, nil) }
}

// stopSelf stops this process by sig, or its group; false is that it could
// not try. Until restore is called the signal has its default disposition: it
// may be another thread that takes it, later than this returns.
func stopSelf(sig syscall.Signal, group bool) (restore func(), ok bool) {
	restore = func() {}
	if sig != syscall.SIGSTOP && !ignoring()(sig) {
		restore = setAction(sig, sigDefault)
	}
	pid := os.Getpid()
	if group {
		pid = 0
	}
	return restore, syscall.Kill(pid, sig) == nil
}

// withoutTTOU calls f where a change of the terminal's settings is made from
// the background too, instead of stopping us.
func withoutTTOU(f func()) {
	defer setAction(syscall.SIGTTOU, sigIgnore)()
	f()
}
