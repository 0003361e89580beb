package collector

import (
	"sync/atomic"
	"time"
)

// A write costs about what a hundred events cost, so where many are made in a
// second their writers pause a moment before the next, and send together what
// came meanwhile. Where few are made, each event goes out at once.
const (
	paceWindow = 10 * time.Millisecond
	paceWrites = 100 // in a window, over all consumers
	pacePause  = 4 * time.Millisecond
)

// pace counts the writes of all streams.
type pace struct {
	window atomic.Int64 // its number
	count  atomic.Int64 // writes in it
	last   atomic.Int64 // writes in the one before
}

// wrote counts a write.
func (p *pace) wrote() {
	p.turn()
	p.count.Add(1)
}

// turn begins the next window when it is time.
func (p *pace) turn() {
	now := time.Now().UnixNano() / int64(paceWindow)
	if was := p.window.Load(); was != now && p.window.CompareAndSwap(was, now) {
		n := p.count.Swap(0)
		if was+1 != now { // nothing was written in the window between
			n = 0
		}
		p.last.Store(n)
	}
}

// rest waits a moment when there is much to write.
func (p *pace) rest() {
	p.turn()
	if max(p.last.Load(), p.count.Load()) > paceWrites {
		time.Sleep(pacePause)
	}
}
