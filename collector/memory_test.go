package collector

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// apartEnv makes the test binary a collector of its own, whose memory can be
// looked at from outside.
const apartEnv = "AEP_TEST_COLLECTOR"

const (
	apartHeld     = 16 << 20
	apartInFlight = 32 << 20
	apartQueue    = 64 << 10
	apartWatch    = 200
)

func apartMain() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin) // who started us is gone
		os.Exit(0)
	}()
	_ = New(Config{Limits: Limits{HeldBytes: apartHeld, InFlight: apartInFlight, QueueBytes: apartQueue}}).Serve(context.Background(), l)
}

// highWater is the most memory that a process had, in bytes.
func highWater(t *testing.T, pid int) int {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		if v, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.Atoi(strings.Fields(v)[0])
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// Whatever is sent, and whoever does not read it, memory stays at its bound.
func TestMemoryFromOutside(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	if raceDetector {
		t.Skip("the race detector's own memory is several times what is measured: ./test runs this without it")
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), apartEnv+"=1")
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	s := &server{t: t, base: "http://" + strings.TrimSpace(addr), http: &http.Client{Transport: tr}}
	s.lives()
	idle := highWater(t, cmd.Process.Pid)

	for i := range apartWatch { // of whom none reads
		p := s.hello("both")
		p.say(fmt.Sprintf(`{"type":"subscribe","id":"%d","from":"all"}`, i))
	}
	fat := `"data":{"x":"` + strings.Repeat("x", 2000) + `"}`
	for batch := range 40 {
		var b bytes.Buffer
		for i := range 1000 {
			n := int64(batch*1000 + i)
			b.WriteString(ev(fmt.Sprint("s", n%500), 0, n, fat))
			b.WriteByte('\n')
		}
		if a := s.do("POST", "/events", ndjson, &b); a.status != 202 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	deep := ev("s", 0, 1, `"data":`+strings.Repeat(`{"a":`, 100_000)+`1`+strings.Repeat("}", 100_000))
	for range 8 {
		s.do("POST", "/events", ndjson, strings.NewReader(deep))
		s.do("POST", "/events", ndjson, io.LimitReader(endless('x'), 20<<20))
		s.do("GET", "/stream?live=0&filter="+strings.Repeat("x", 500_000), nil, nil)
	}
	s.lives()
	// The buffers, the bodies and what each consumer keeps from being freed,
	// twice for the garbage collector, and the program itself.
	const bound = 2*(apartHeld+apartInFlight+apartWatch*(apartQueue+takeBytes)) + 32<<20
	high := highWater(t, cmd.Process.Pid)
	t.Logf("idle %d MiB, at most %d MiB, bound %d MiB", idle>>20, high>>20, bound>>20)
	if high > bound {
		t.Errorf("it took %d MiB, the bound is %d MiB", high>>20, bound>>20)
	}
}

// endless is a body without an end.
type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}
