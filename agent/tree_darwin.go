package agent

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// snapshot lists all processes by sysctl.
func snapshot() ([]Proc, error) {
	infos, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil, err
	}
	all := make([]Proc, len(infos))
	for i := range infos {
		all[i] = procOf(&infos[i])
	}
	return all, nil
}

// The values of p_stat in <sys/proc.h>.
var states = map[int8]byte{1: 'R', 2: 'R', 3: 'S', 4: 'T', 5: 'Z'}

func procOf(k *unix.KinfoProc) Proc {
	state := states[k.Proc.P_stat]
	if state == 0 {
		state = 'R'
	}
	return Proc{
		Pid: int(k.Proc.P_pid), Parent: int(k.Eproc.Ppid), Group: int(k.Eproc.Pgid),
		Start: uint64(k.Proc.P_starttime.Sec)*1e6 + uint64(k.Proc.P_starttime.Usec),
		State: state,
	}
}

func procByID(pid int) (Proc, bool) {
	infos, err := unix.SysctlKinfoProcSlice("kern.proc.pid", pid)
	if err != nil || len(infos) != 1 {
		return Proc{}, false
	}
	return procOf(&infos[0]), true
}

// signalProc sends a signal to the process that was listed. Without pidfds
// there is an instant between the look and the signal.
func signalProc(p Proc, sig syscall.Signal) error {
	if now, ok := procByID(p.Pid); !ok || now.Start != p.Start {
		return syscall.ESRCH
	}
	return syscall.Kill(p.Pid, sig)
}

// adoptOrphans does nothing: this kernel gives orphans to launchd. What is
// remembered of the tree while its links still held (Process.remember) stands
// in for it.
func adoptOrphans() {}

func strangers([]Proc) []Proc { return nil }

// reapStrangers has nobody to reap: there is no PID 1 but launchd.
func reapStrangers() (stop func()) { return func() {} }
