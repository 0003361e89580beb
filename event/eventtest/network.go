package eventtest

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
)

// Network is a network in memory with one address, and the listener there: who
// waits for it in a synctest bubble waits no real time, so that nothing hangs on
// how fast a machine is.
type Network struct {
	Refuses atomic.Bool // nobody listens, for now

	conns  chan net.Conn
	closed chan struct{}
	close  sync.Once
}

// NewNetwork makes one; a bubble makes its own.
func NewNetwork() *Network {
	return &Network{conns: make(chan net.Conn), closed: make(chan struct{})}
}

// Dial connects to its address, whatever is asked for, as an http.Transport's
// DialContext does. Where nobody listens the error is a refused connection.
func (n *Network) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: n.Addr(), Err: syscall.ECONNREFUSED}
	if n.Refuses.Load() {
		return nil, refused
	}
	here, there := net.Pipe()
	select {
	case n.conns <- there:
		return here, nil
	case <-n.closed:
		return nil, refused
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (n *Network) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *Network) Close() error   { n.close.Do(func() { close(n.closed) }); return nil }
func (n *Network) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 4096} }
