package agent

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	getTermios  = unix.TCGETS
	setTermios  = unix.TCSETS
	inputQueued = unix.TIOCINQ
)

// waitFD is a descriptor to wait for and what is known of it then.
type waitFD struct {
	fd          int // negative: left out
	read, write bool
	ready       bool // what was asked for can be done, or fails at once
	bad         bool // hung up, or its other end is gone
}

// waitFDs waits until one of up to three descriptors is ready or bad, at most
// for timeout; a negative one is for ever.
func waitFDs(timeout time.Duration, fds ...*waitFD) error {
	var polls [3]unix.PollFd
	for i, f := range fds {
		polls[i].Fd = int32(f.fd)
		if f.read {
			polls[i].Events |= unix.POLLIN
		}
		if f.write {
			polls[i].Events |= unix.POLLOUT
		}
	}
	ms := -1
	if timeout >= 0 {
		ms = int((timeout + time.Millisecond - 1) / time.Millisecond)
	}
	for {
		_, err := unix.Poll(polls[:len(fds)], ms)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		break
	}
	for i, f := range fds {
		r := polls[i].Revents
		f.ready = r&(unix.POLLIN|unix.POLLOUT) != 0
		f.bad = r&(unix.POLLERR|unix.POLLHUP|unix.POLLNVAL) != 0
	}
	return nil
}

// terminalDev names the terminal that fd is open on; two descriptors of one
// terminal give the same, /dev/tty and its true name too.
func terminalDev(fd int) (dev uint64, ok bool) {
	if !isTerminal(fd) {
		return 0, false
	}
	if n, err := unix.IoctlGetUint32(fd, unix.TIOCGDEV); err == nil {
		return uint64(n), true
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return 0, false
	}
	return st.Rdev, true
}
