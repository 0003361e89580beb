package collector

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
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
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// tcpPeer finds who has the other end of a connection on loopback: the entry
// of the kernel's table whose ends are ours turned round has the inode of its
// socket, and who has that socket open is its owner.
func tcpPeer(conn net.Conn) int {
	theirs, err1 := netip.ParseAddrPort(conn.RemoteAddr().String())
	ours, err2 := netip.ParseAddrPort(conn.LocalAddr().String())
	if err1 != nil || err2 != nil || !theirs.Addr().Unmap().IsLoopback() {
		return 0
	}
	inode := ""
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		b, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range bytes.Lines(b) {
			f := strings.Fields(string(line))
			if len(f) > 9 && same(f[1], theirs) && same(f[2], ours) {
				inode = f[9]
			}
		}
	}
	if inode == "" || inode == "0" {
		return 0
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && to == "socket:["+inode+"]" {
			pid, _ := strconv.Atoi(strings.Split(l, "/")[2])
			return pid
		}
	}
	return 0
}

// same says whether an entry of the table, "0100007F:1F90" or the like of
// IPv6, is an address. Each four bytes stand there as a number of this machine.
func same(entry string, a netip.AddrPort) bool {
	host, port, ok := strings.Cut(entry, ":")
	n, err := strconv.ParseUint(port, 16, 16)
	raw, herr := hex.DecodeString(host)
	if !ok || err != nil || herr != nil || uint16(n) != a.Port() || len(raw)%4 != 0 {
		return false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	addr, ok := netip.AddrFromSlice(raw)
	return ok && addr.Unmap() == a.Addr().Unmap()
}

// parentOf is a process's parent; false where there is no such process.
func parentOf(pid int) (int, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	end := bytes.LastIndexByte(b, ')') // the name before it may hold anything
	if err != nil || end < 0 {
		return 0, false
	}
	f := bytes.Fields(b[end+1:])
	if len(f) < 2 || len(f[0]) != 1 || f[0][0] == 'Z' || f[0][0] == 'X' {
		return 0, false
	}
	parent, err := strconv.Atoi(string(f[1]))
	return parent, err == nil
}
