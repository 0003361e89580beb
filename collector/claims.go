package collector

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// claims are the live (connection, session) pairs: a connection claims the
// sessions of the events that it sends, until it ends or says that the session
// did. Nothing else claims: no command, no POST, no declaration.
type claims struct {
	mu    sync.Mutex
	by    map[string][]*claim // by session
	total int

	outcomes [6]atomic.Int64
}

type claim struct {
	session, source string
	*socket
}

// What becomes of a command: it is routed, or refused with one of the codes of
// AEP-0004 §4.2, or with busy where its target does not listen.
const (
	commandRouted       = "routed"
	commandUnauthorized = "unauthorized"
	commandUnsupported  = "unsupported"
	commandAmbiguous    = "ambiguous"
	commandNoRoute      = "no-route"
	commandBusy         = "busy"
)

func (c *claims) outcome(code string) *atomic.Int64 {
	return &c.outcomes[slices.Index([]string{commandRouted, commandUnauthorized, commandUnsupported, commandAmbiguous, commandNoRoute, commandBusy}, code)]
}

func (c *claims) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.total
}

// take makes a claim, and gives the other connections that claim the same
// session of the same source: one of them may be what is left of ours.
func (c *claims) take(n *claim) (older []*socket) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.by[n.session] {
		if o.source == n.source {
			older = append(older, o.socket)
		}
	}
	if c.by == nil {
		c.by = map[string][]*claim{}
	}
	c.by[n.session] = append(c.by[n.session], n)
	c.total++
	return older
}

func (c *claims) drop(n *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	rest := c.by[n.session]
	i := slices.Index(rest, n)
	if i < 0 {
		return
	}
	c.total--
	if rest = slices.Delete(rest, i, i+1); len(rest) == 0 {
		delete(c.by, n.session)
	} else {
		c.by[n.session] = rest
	}
}

// target finds where a command goes: to the one connection that claims the
// session and accepts the type, or nowhere (AEP-0004 §4).
func (c *claims) target(it *item) (to *socket, code, detail string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch found := c.by[it.Session]; {
	case len(found) == 0:
		return nil, commandNoRoute, "no connected emitter has this session"
	case len(found) > 1:
		return nil, commandAmbiguous, "more than one connected emitter claims this session"
	case !found[0].hello.accepts[it.Type]:
		return nil, commandUnsupported, "the session's emitter does not declare that it accepts " + it.Type
	default:
		return found[0].socket, commandRouted, ""
	}
}

// roster lists every claim, by session, then by age.
func (c *claims) roster() []entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := make([]entry, 0, c.total)
	for session, all := range c.by {
		for _, o := range all {
			out = append(out, entry{session, o.hello.agent, o.hello.instance, o.hello.control, o.hello.emits})
		}
	}
	slices.SortStableFunc(out, func(a, b entry) int { return cmp.Compare(a.Session, b.Session) })
	return out
}
