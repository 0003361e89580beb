package agent

import (
	"os"
	"strconv"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// closed is the descriptor table's word for a number that stays closed.
const closed = ^uintptr(0)

// inherited are the descriptors above 2 that were handed to this process to be
// handed on: a make jobserver's, a shell's process substitution's. Everything
// that Go opens is close-on-exec; what is not came from our parent.
var inherited = sync.OnceValue(func() map[int]bool {
	set := map[int]bool{}
	entries, _ := os.ReadDir("/dev/fd")
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd < 3 {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			set[fd] = true
		}
	}
	return set
})

// ExtraFD is the number under which the agent finds Spec.ExtraFiles[i]. It is
// 3+i, but for a process that was itself handed descriptors: those keep their
// numbers.
func ExtraFD(i int) int {
	taken := inherited()
	fd := 3
	for {
		for taken[fd] {
			fd++
		}
		if i == 0 {
			return fd
		}
		i--
		fd++
	}
}

// table lays out a child's descriptors: std on 0, 1 and 2, then extra where
// ExtraFD says, with what we inherited left where it is. The numbers of the
// extra ones are at, in order.
func table(std [3]int, extra ...int) (files []uintptr, at []int) {
	for _, fd := range std {
		files = append(files, uintptr(fd))
	}
	taken := inherited()
	for i, fd := range extra {
		n := ExtraFD(i)
		for len(files) < n {
			files = append(files, closed)
		}
		files = append(files, uintptr(fd))
		at = append(at, n)
	}
	for n := 3; n < len(files); n++ {
		if taken[n] {
			files[n] = uintptr(n)
		}
	}
	return files, at
}

// spawn starts a process. It differs from os.StartProcess in that it leaves
// inherited descriptors as they are and the waiting to us, who must see stops.
func spawn(file string, argv, env []string, dir string, files []uintptr, sys *syscall.SysProcAttr) (pid int, err error) {
	ours.Lock()
	defer ours.Unlock()
	err = asExec(file, argv, func(file string, argv []string) error {
		pid, err = syscall.ForkExec(file, argv, &syscall.ProcAttr{Dir: dir, Env: env, Files: files, Sys: sys})
		return err
	})
	if err == nil {
		ours.pids[pid] = true
	}
	return pid, err
}

// ours are the children whose end somebody here waits for; the reaper of
// strangers leaves them alone. The lock is held over a start, so that no child
// ends before it is known.
var ours = struct {
	sync.Mutex
	pids map[int]bool
}{pids: map[int]bool{}}

func disown(pid int) {
	ours.Lock()
	delete(ours.pids, pid)
	ours.Unlock()
}

// fdOf is the number of an open file, -1 without one. The description is as a
// child expects it: File.Fd undoes the non-blocking mode that Go has put a
// file into, and leaves one that came from elsewhere.
func fdOf(f *os.File) int {
	if f == nil {
		return -1
	}
	return int(f.Fd())
}
