package collector

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

func unixPeer(conn net.Conn) (pid int) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return 0
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return 0
	}
	_ = raw.Control(func(fd uintptr) {
		if n, err := unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID); err == nil {
			pid = n
		}
	})
	return pid
}

// tcpPeer cannot be told: there is no table of connections to read.
func tcpPeer(net.Conn) int { return 0 }

// parentOf is a process's parent; false where there is no such process.
func parentOf(pid int) (int, bool) {
	p, err := unix.SysctlKinfoProc("kern.proc.pid", pid)
	if err != nil {
		return 0, false
	}
	return int(p.Eproc.Ppid), true
}
