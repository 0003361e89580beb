package agent

import "syscall"

// waitAgent blocks until the agent has stopped or ended and says which. Here
// the kernel has no peek that can be trusted (its waitid returns for stopped
// children that it was not asked about), so there is an instant between the
// taking of an ended child and reaped in which its pid could be another's.
func (p *Process) waitAgent() (syscall.WaitStatus, error) {
	for {
		var st syscall.WaitStatus
		got, err := syscall.Wait4(p.pid, &st, syscall.WUNTRACED, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return 0, err
		}
		ended := got == p.pid && (st.Exited() || st.Signaled())
		stopped := got == p.pid && st.Stopped()
		p.mu.Lock()
		if ended {
			p.reaped = true
		}
		if stopped {
			p.stops++
		}
		p.mu.Unlock()
		if ended || stopped {
			return st, nil
		}
	}
}

// stopUntaken is not to be seen here.
func stopUntaken(int) bool { return false }
