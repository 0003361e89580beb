package eventtest

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
)

// asked is how many addresses this process has asked for: no test gets another's,
// which may not listen there yet, or not at the moment.
var asked atomic.Int64

// Listen listens at a loopback port which nobody is given who asks the kernel for
// any, also once it is given back: those ports are higher. Processes that run
// beside each other look in different places.
func Listen() (l net.Listener, err error) {
	const first, ports, apart = 10_000, 20_000, 211
	for range ports {
		port := first + (int64(os.Getpid())*apart+asked.Add(1))%ports
		if l, err = net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("no loopback port is free: %w", err)
}

// Address is a loopback address at which nobody listens, and that stays so until
// the test does.
func Address(t testing.TB) string {
	t.Helper()
	l, err := Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
