package agent

import (
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieBy ends this process by sig, without a second core dump beside the
// agent's: the limit keeps a file from being written, the flag keeps a piped
// core handler from being started. It goes to the kernel directly because Go
// answers a SIGSEGV or SIGQUIT of its own with a traceback.
func dieBy(sig syscall.Signal) {
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	_ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
	runtime.LockOSThread()
	_ = setAction(sig, sigDefault)
	var none unix.Sigset_t
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil)
	_ = unix.Tgkill(unix.Getpid(), unix.Gettid(), sig)
	time.Sleep(100 * time.Millisecond) // a signal that does not end a process comes to nothing
}
