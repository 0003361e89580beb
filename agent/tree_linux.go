package agent

import (
	"bytes"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// snapshot lists all processes that /proc shows us.
func snapshot() ([]Proc, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	all := make([]Proc, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			if p, ok := procByID(pid); ok {
				all = append(all, p)
			}
		}
	}
	return all, nil
}

func procByID(pid int) (Proc, bool) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return Proc{}, false
	}
	return parseStat(b)
}

// parseStat reads a line of /proc/PID/stat. The command's name is in
// parentheses and may hold any byte, parentheses and newlines too.
func parseStat(b []byte) (p Proc, ok bool) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return p, false
	}
	f := bytes.Fields(b[end+1:])
	if len(f) < 20 || len(f[0]) != 1 {
		return p, false
	}
	ok = true
	num := func(b []byte) uint64 {
		n, err := strconv.ParseUint(string(b), 10, 63)
		ok = ok && err == nil
		return n
	}
	p = Proc{
		Pid: int(num(bytes.TrimSpace(b[:open]))), State: f[0][0],
		Parent: int(num(f[1])), Group: int(num(f[2])), Start: num(f[19]),
	}
	return p, ok
}

// signalProc sends a signal to the process that was listed, and to no other
// that has its number by now: the descriptor holds on to one process, and the
// start read after it was opened says whether it is the listed one.
func signalProc(p Proc, sig syscall.Signal) error {
	ours.Lock() // adopted takes a pidfd for somebody's claim on a child
	defer ours.Unlock()
	fd, err := unix.PidfdOpen(p.Pid, 0)
	if err == unix.ENOSYS || err == unix.EPERM || err == unix.EMFILE || err == unix.ENFILE {
		if now, ok := procByID(p.Pid); !ok || now.Start != p.Start {
			return syscall.ESRCH
		}
		return syscall.Kill(p.Pid, sig)
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if now, ok := procByID(p.Pid); !ok || now.Start != p.Start {
		return syscall.ESRCH
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// adoptOrphans makes this process the parent of those of its descendants whose
// own parent is gone, so that they are still found.
func adoptOrphans() {
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
}

// adopted lists our children that are neither ours to wait for nor of somebody
// in this process who started them by os/exec: its os.Process holds a pidfd
// until it is waited for, so our own descriptors say which children are whose.
// The caller holds the lock of ours.
func adopted(all []Proc) []Proc {
	self := os.Getpid()
	var held map[int]bool
	var out []Proc
	for _, p := range all {
		if p.Parent != self {
			continue
		}
		if held == nil {
			held = heldPids()
		}
		if !held[p.Pid] && !ours.pids[p.Pid] {
			out = append(out, p)
		}
	}
	return out
}

// strangers is adopted, for who does not hold the lock of ours.
func strangers(all []Proc) []Proc {
	ours.Lock()
	defer ours.Unlock()
	return adopted(all)
}

// heldPids are the processes that this process holds a pidfd of.
func heldPids() map[int]bool {
	held := map[int]bool{}
	entries, _ := os.ReadDir("/proc/self/fdinfo")
	for _, e := range entries {
		b, err := os.ReadFile("/proc/self/fdinfo/" + e.Name())
		if err != nil {
			continue
		}
		for line := range bytes.Lines(b) {
			if rest, ok := bytes.CutPrefix(line, []byte("Pid:")); ok {
				if pid, err := strconv.Atoi(string(bytes.TrimSpace(rest))); err == nil && pid > 0 {
					held[pid] = true
				}
			}
		}
	}
	return held
}

// reapStrangers takes the ended children that nobody here waits for: those
// that we adopted, and as PID 1 everybody's. It looks (WNOWAIT) before it
// takes, so that no child is stolen from who started it. The returned function
// ends it.
func reapStrangers() (stop func()) {
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, unix.SIGCHLD)
	done, gone := make(chan struct{}), make(chan struct{})
	// Without pidfds (an old kernel, a strict sandbox) os/exec leaves no mark on
	// its children. Whoever started them must then have waited long since.
	patience := time.Duration(0)
	if fd, err := unix.PidfdOpen(os.Getpid(), 0); err == nil {
		unix.Close(fd)
	} else {
		patience = 5 * time.Second
	}
	go func() {
		defer close(gone)
		since := map[procID]time.Time{}
		behind, pause := 0, 50*time.Millisecond
		for {
			pid := reapFirst(patience)
			var again <-chan time.Time
			if pid == 0 {
				clear(since)
				behind, pause = 0, 50*time.Millisecond
			} else {
				// Somebody's, or too young, and others may stand behind it. Who waits
				// for it does so at once, as a rule; only then are all looked at.
				if pid == behind {
					reapOnce(since, patience)
				}
				behind, again = pid, time.After(pause)
				pause = min(2*pause, 5*time.Second)
			}
			select {
			case <-ch:
			case <-again:
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(ch)
		close(done)
		<-gone
	}
}

// endedChild is a child that has ended and was not taken yet, or 0.
func endedChild() int {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	if err != nil || info.Signo == 0 {
		return 0
	}
	// si_pid comes first in the union, which is aligned as a pointer is.
	at := unsafe.Offsetof(info.Code) + unsafe.Sizeof(uintptr(0))
	return int(*(*int32)(unsafe.Add(unsafe.Pointer(&info), at)))
}

// reapFirst takes strangers for as long as the kernel names one first, and
// gives the child that it names instead.
func reapFirst(patience time.Duration) int {
	ours.Lock()
	defer ours.Unlock()
	for {
		pid := endedChild()
		if pid == 0 || patience > 0 || ours.pids[pid] || heldPids()[pid] {
			return pid
		}
		_, _ = syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
	}
}

// reapOnce takes the strangers that have been over for patience.
func reapOnce(since map[procID]time.Time, patience time.Duration) {
	all, err := snapshot()
	if err != nil {
		return
	}
	ours.Lock()
	defer ours.Unlock()
	for _, p := range adopted(all) {
		if p.State != 'Z' {
			continue
		}
		first, ok := since[p.id()]
		if !ok {
			first = time.Now()
			since[p.id()] = first
		}
		if time.Since(first) >= patience {
			_, _ = syscall.Wait4(p.Pid, nil, syscall.WNOHANG, nil)
			delete(since, p.id())
		}
	}
}
