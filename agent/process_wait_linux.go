package agent

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// waitAgent blocks until the agent has stopped or ended and says which. What
// became of it is taken from the kernel under mu: who holds mu and sees reaped
// unset may signal the pid, which cannot be another's, and who counts the stops
// and looks for one that is not taken misses none.
func (p *Process) waitAgent() (syscall.WaitStatus, error) {
	for {
		err := unix.Waitid(unix.P_PID, p.pid, nil, unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		var st syscall.WaitStatus
		p.mu.Lock()
		got, err := syscall.Wait4(p.pid, &st, syscall.WUNTRACED|syscall.WNOHANG, nil)
		ended := got == p.pid && (st.Exited() || st.Signaled())
		stopped := got == p.pid && st.Stopped()
		if ended {
			p.reaped = true
		}
		if stopped {
			p.stops++
		}
		p.mu.Unlock()
		if err != nil && err != syscall.EINTR {
			return 0, err
		}
		if ended || stopped {
			return st, nil
		}
		// Continued between the two calls: a stop that is over is no news.
	}
}

// stopUntaken says whether a child's stop waits to be taken.
func stopUntaken(pid int) bool {
	var news unix.Siginfo
	err := unix.Waitid(unix.P_PID, pid, &news, unix.WSTOPPED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && news.Signo != 0
}
