package agent

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The test binary is also a process that waits in the kernel for its child to
// run another program (@vfork).
func init() {
	if len(os.Args) == 2 && os.Args[1] == "@vfork" {
		runtime.LockOSThread() // whose state is the process's
		vfork()
		time.Sleep(time.Minute)
		os.Exit(0)
	}
}

// vfork has a child run sleep, once our input is at its end.
//
//go:norace
//go:noinline
func vfork() {
	path, arg := []byte("/bin/sleep\x00"), []byte("60\x00")
	argv := []*byte{&path[0], &arg[0], nil}
	var word [1]byte
	pid, _, _ := syscall.RawSyscall6(unix.SYS_CLONE, unix.CLONE_VFORK|uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if pid == 0 { // nothing of the runtime's works here
		syscall.RawSyscall(unix.SYS_READ, 0, uintptr(unsafe.Pointer(&word)), 1)
		syscall.RawSyscall(unix.SYS_EXECVE, uintptr(unsafe.Pointer(&path[0])), uintptr(unsafe.Pointer(&argv[0])), 0)
		syscall.RawSyscall(unix.SYS_EXIT, 1, 0, 0)
	}
	runtime.KeepAlive(argv)
}

// What is stopped in the middle of a vfork is stopped all the same, both parent
// and child, and goes on when it is thawed.
func TestFreezeAmidVfork(t *testing.T) {
	cmd := exec.Command(os.Args[0], "@vfork")
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	list := func() []Proc {
		all, err := snapshot()
		if err != nil {
			t.Fatal(err)
		}
		return descend(all, func(p Proc) bool { return p.Pid == cmd.Process.Pid })
	}
	defer func() {
		for _, p := range list() {
			_ = signalProc(p, syscall.SIGKILL)
		}
		_ = cmd.Wait()
	}()
	until := func(what string, ok func([]Proc) bool) {
		t.Helper()
		for end := time.Now().Add(patience); !ok(list()); time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: %v", what, list())
			}
		}
	}
	until("the child is forked", func(l []Proc) bool { return len(l) == 2 && l[0].State == 'D' })
	// It looks four times, and each time sees what its last signals did: in a
	// bubble, where its own patience does not matter.
	var stopped []Proc
	synctest.Test(t, func(t *testing.T) {
		wait := func(what string, ok func([]Proc) bool) {
			for n := 0; !ok(list()); n++ {
				if n == 10000 {
					t.Fatalf("%s: %v", what, list())
				}
			}
		}
		looks := 0
		stopped = freeze(func() []Proc {
			switch looks++; looks {
			case 1:
			case 2:
				wait("the child is stopped", func(l []Proc) bool { return l[1].stopped() })
			case 3:
				wait("the child goes on", func(l []Proc) bool { return !l[1].stopped() })
				in.Close()
				wait("the parent goes on, and stops", func(l []Proc) bool { return l[0].stopped() })
			default:
				wait("both are stopped", func(l []Proc) bool { return l[0].stopped() && l[1].stopped() })
			}
			return list()
		})
	})
	if l := list(); len(l) != 2 || slices.ContainsFunc(l, func(p Proc) bool { return !p.stopped() }) || len(stopped) != 2 {
		t.Fatalf("stopped %v, and there are %v", stopped, l)
	}
	thaw(stopped)
	until("thawed", func(l []Proc) bool { return len(l) == 2 && !l[0].stopped() && !l[1].stopped() })
}

func TestParseStat(t *testing.T) {
	const rest = " S 7 8 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123456 1 1 18446744073709551615\n"
	for _, c := range []struct {
		in   string
		want Proc
		ok   bool
	}{
		{"42 (cat)" + rest, Proc{Pid: 42, Parent: 7, Group: 8, Start: 123456, State: 'S'}, true},
		{"42 (a) R 1 (b)\n)" + rest, Proc{Pid: 42, Parent: 7, Group: 8, Start: 123456, State: 'S'}, true},
		{"42 ()" + rest, Proc{Pid: 42, Parent: 7, Group: 8, Start: 123456, State: 'S'}, true},
		{"", Proc{}, false},
		{"42 (cat", Proc{}, false},
		{"42 (cat) S 1", Proc{}, false},
		{"x (cat)" + rest, Proc{}, false},
	} {
		got, ok := parseStat([]byte(c.in))
		if ok != c.ok || ok && got != c.want {
			t.Errorf("parseStat(%q) = %+v, %v", c.in, got, ok)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (cat) S 7 8 9 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123456 1 1\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, ok := parseStat(b); ok && (p.Pid < 0 || p.Parent < 0) {
			t.Errorf("%+v", p)
		}
	})
}
