package agent

import (
	"bytes"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestDescend(t *testing.T) {
	all := []Proc{
		{Pid: 1}, {Pid: 10, Parent: 1}, {Pid: 11, Parent: 10}, {Pid: 12, Parent: 11, State: 'Z'}, {Pid: 13, Parent: 12},
		{Pid: 20, Parent: 1}, {Pid: 21, Parent: 20}, {Pid: 14, Parent: 10},
	}
	got := pids(descend(all, func(p Proc) bool { return p.Pid == 10 || p.Pid == 14 }))
	if want := []int{10, 14, 11, 13}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestSnapshotHoldsUs(t *testing.T) {
	all, err := snapshot()
	if err != nil {
		t.Fatal(err)
	}
	me, ok := procByID(os.Getpid())
	if !ok || me.Parent != os.Getppid() || me.Start == 0 || me.over() || me.stopped() {
		t.Errorf("%+v, %v", me, ok)
	}
	if !slices.ContainsFunc(all, func(p Proc) bool { return p.id() == me.id() }) {
		t.Error("we are not among all")
	}
}

// A number that was given to another process meanwhile is not signalled.
func TestSignalProcKnowsItsProcess(t *testing.T) {
	cmd := exec.Command("sleep", "100")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p, ok := procByID(cmd.Process.Pid)
	if !ok {
		t.Fatal("it is not there")
	}
	other := p
	other.Start++
	if err := signalProc(other, syscall.SIGKILL); err != syscall.ESRCH {
		t.Errorf("another's: %v", err)
	}
	if err := signalProc(p, syscall.SIGKILL); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	if err := signalProc(p, syscall.SIGKILL); err != syscall.ESRCH {
		t.Errorf("one that is gone: %v", err)
	}
}

// However slow a machine is at listing processes: what does not end when it is
// asked to is killed before it is given up.
func TestEndAllKills(t *testing.T) {
	cmd := exec.Command("sh", "-c", "trap '' TERM; echo; while :; do sleep 1; done")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	p, _ := procByID(cmd.Process.Pid)
	synctest.Test(t, func(*testing.T) {
		endAll(func() []Proc { time.Sleep(time.Minute); return []Proc{p} }, time.Second, slog.New(slog.DiscardHandler))
	})
	eventually(t, "its end", func() bool { return !running(p.Pid) })
	_ = cmd.Wait()
}

func TestLaunchOrder(t *testing.T) {
	o := launchOrder{path: "/bin/x", dir: "/d\xff", args: []string{"a", "", "\x00no\xfe"}, env: []string{"A=b"}, foreground: true}
	b := o.encode()
	got, err := decodeLaunch(b)
	if err != nil || got.path != o.path || got.dir != o.dir || !slices.Equal(got.args, o.args) || !slices.Equal(got.env, o.env) || !got.foreground {
		t.Errorf("%+v, %v", got, err)
	}
	for i := range b {
		if _, err := decodeLaunch(b[:i]); err == nil {
			t.Errorf("the first %d bytes are an order", i)
		}
	}
	if _, err := decodeLaunch(append(b, 0)); err == nil {
		t.Error("more than an order is one")
	}
}

func FuzzDecodeLaunch(f *testing.F) {
	o := launchOrder{path: "p", args: []string{"a"}, env: []string{"e"}}
	f.Add(o.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		if o, err := decodeLaunch(b); err == nil {
			if o.foreground {
				b[0] = 1
			}
			if !bytes.Equal(o.encode(), b) {
				t.Error("read as something else than it is")
			}
		}
	})
}
