package agent

import (
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// waitChild blocks until the child has stopped or ended and says which. An
// ended child is taken from the kernel under mu, with reaped set, so that who
// holds mu and sees reaped unset may signal the pid: it cannot be another's.
func waitChild(pid int, mu *sync.Mutex, reaped *bool) (syscall.WaitStatus, error) {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		var st syscall.WaitStatus
		mu.Lock()
		got, err := syscall.Wait4(pid, &st, syscall.WUNTRACED|syscall.WNOHANG, nil)
		ended := got == pid && (st.Exited() || st.Signaled())
		if ended {
			*reaped = true
		}
		mu.Unlock()
		if err != nil && err != syscall.EINTR {
			return 0, err
		}
		if got == pid && (ended || st.Stopped()) {
			return st, nil
		}
		// Continued between the two calls: a stop that is over is no news.
	}
}
