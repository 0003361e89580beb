package collector

import (
	"context"
	"net"
	"net/http"
	"sync"
)

// caller is the process at the other end of a connection of this machine, as far
// as the system tells: by the credentials of a unix socket, or as the owner of
// the other end of a connection on loopback. An agent whose permission is asked
// for must not be who gives it (AEP-0004 §8).
type caller struct {
	conn net.Conn
	once sync.Once
	pid  int // 0 is unknown
}

type peerKey struct{}

func withPeer(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, peerKey{}, &caller{conn: conn})
}

func peerOf(r *http.Request) *caller {
	p, _ := r.Context().Value(peerKey{}).(*caller)
	return p
}

// id looks the process up when it is first asked for: of a connection of TCP
// that is no small matter.
func (p *caller) id() int {
	if p == nil {
		return 0
	}
	p.once.Do(func() {
		if p.conn.LocalAddr().Network() == "unix" {
			p.pid = unixPeer(p.conn)
		} else {
			p.pid = tcpPeer(p.conn)
		}
		p.conn = nil
	})
	return p.pid
}

// below says that a process came of another one. A process that is gone may
// have been anybody's: it counts as one that did. A wrapper adopts what loses
// its parent, so nothing leaves its tree by that.
func (p *caller) below(target *caller) bool {
	id, of := p.id(), target.id()
	if id == 0 || of == 0 {
		return false // it cannot be told
	}
	for range maxDepth {
		parent, ok := parentOf(id)
		switch {
		case !ok:
			return true
		case parent == of:
			return true
		case parent <= 1:
			return false
		}
		id = parent
	}
	return true
}

// maxDepth bounds the walk up a tree that changes meanwhile.
const maxDepth = 256
