package collector

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// accepted is the accepted end of a connection to a listener.
func accepted(t *testing.T, network, address string) net.Conn {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Skipf("no %s at %s here: %v", network, address, err)
	}
	defer l.Close()
	c, err := net.Dial(network, l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	a, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	return a
}

func TestPeer(t *testing.T) {
	for _, at := range [][2]string{{"unix", filepath.Join(t.TempDir(), "s")}, {"tcp", "127.0.0.1:0"}, {"tcp", "[::1]:0"}} {
		t.Run(at[1], func(t *testing.T) {
			p := &caller{conn: accepted(t, at[0], at[1])}
			if id := p.id(); id != os.Getpid() {
				t.Errorf("the peer is %d, we are %d", id, os.Getpid())
			}
		})
	}
}

func TestBelow(t *testing.T) {
	who := func(pid int) *caller {
		p := &caller{pid: pid}
		p.once.Do(func() {})
		return p
	}
	child := exec.Command("sh", "-c", "sleep 60; true")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { child.Process.Kill(); child.Wait() })
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	self, kid := who(os.Getpid()), who(child.Process.Pid)
	for name, tt := range map[string]struct {
		from, to *caller
		want     bool
	}{
		"a child":              {kid, self, true},
		"a child's child":      {kid, who(os.Getppid()), true},
		"its parent":           {self, kid, false},
		"itself":               {self, self, false},
		"who is gone":          {who(gone.Process.Pid), self, true},
		"who is not known":     {nil, self, false},
		"a target of no known": {kid, who(0), false},
	} {
		if got := tt.from.below(tt.to); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
