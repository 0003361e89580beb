package agent

import (
	"time"

	"golang.org/x/sys/unix"
)

const (
	getTermios  = unix.TIOCGETA
	setTermios  = unix.TIOCSETA
	inputQueued = 0x4004667f // FIONREAD
)

// waitFD is a descriptor to wait for and what is known of it then.
type waitFD struct {
	fd          int // negative: left out
	read, write bool
	ready       bool // what was asked for can be done, or fails at once
	bad         bool // hung up, or its other end is gone; never known here
}

// waitFDs waits until one of the descriptors is ready, at most for timeout; a
// negative one is for ever. It is select(2): poll does not know this system's
// terminals.
func waitFDs(timeout time.Duration, fds ...*waitFD) error {
	for {
		var r, w unix.FdSet
		top := -1
		for _, f := range fds {
			if f.fd < 0 {
				continue
			}
			if f.fd >= unix.FD_SETSIZE {
				return unix.EMFILE
			}
			if f.read {
				r.Set(f.fd)
			}
			if f.write {
				w.Set(f.fd)
			}
			top = max(top, f.fd)
		}
		var tv *unix.Timeval
		if timeout >= 0 {
			v := unix.NsecToTimeval(timeout.Nanoseconds())
			tv = &v
		}
		_, err := unix.Select(top+1, &r, &w, nil, tv)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		for _, f := range fds {
			f.ready = f.fd >= 0 && (f.read && r.IsSet(f.fd) || f.write && w.IsSet(f.fd))
		}
		return nil
	}
}

// terminalDev names the terminal that fd is open on.
func terminalDev(fd int) (dev uint64, ok bool) {
	if !isTerminal(fd) {
		return 0, false
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil {
		return 0, false
	}
	return uint64(st.Rdev), true
}
