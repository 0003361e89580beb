package agent

import (
	"sync"
	"syscall"
)

// waitChild blocks until the child has stopped or ended and says which. Here
// the kernel has no peek that can be trusted (its waitid returns for stopped
// children that it was not asked about), so there is an instant between the
// taking of an ended child and reaped in which its pid could be another's.
func waitChild(pid int, mu *sync.Mutex, reaped *bool) (syscall.WaitStatus, error) {
	for {
		var st syscall.WaitStatus
		got, err := syscall.Wait4(pid, &st, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		if got == pid && (st.Exited() || st.Signaled()) {
			mu.Lock()
			*reaped = true
			mu.Unlock()
			return st, nil
		}
		if got == pid && st.Stopped() {
			return st, nil
		}
	}
}
