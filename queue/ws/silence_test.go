package ws

import (
	"context"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"aep-wrap/queue"
)

// TestDeadSocket is a connection on which nothing comes any more, and that
// gives no error: a network that went away, a proxy that lost who is behind it.
// What was sent there goes by another one after twenty seconds, and not before;
// we who were stopped meanwhile have heard nothing for that reason.
func TestDeadSocket(t *testing.T) {
	for name, v := range map[string]struct {
		offered  []int // events, each at the time of an advance
		advances []time.Duration
		alive    int // advances after which the first connection is still in use
	}{
		"a batch":                   {[]int{1}, []time.Duration{19 * time.Second, time.Second}, 1},
		"a batch after a rest":      {[]int{0, 1}, []time.Duration{15 * time.Second, 19 * time.Second, time.Second}, 2},
		"a batch and another":       {[]int{1, 1}, []time.Duration{10 * time.Second, 9 * time.Second, time.Second}, 2},
		"we were stopped":           {[]int{1}, []time.Duration{time.Hour, 19 * time.Second, time.Second}, 2},
		"we were stopped, and late": {[]int{1}, []time.Duration{19 * time.Second, time.Hour, 20 * time.Second}, 2},
		"many batches":              {[]int{4000}, []time.Duration{20 * time.Second}, 0},
		"batch after batch":         {[]int{1, 1, 1, 1}, []time.Duration{6 * time.Second, 6 * time.Second, 6 * time.Second, 2 * time.Second}, 3},
	} {
		t.Run(name, inside(func(t *testing.T) {
			m := newManual()
			c := newCollector(t)
			c.script = func(n int, p *peer) {
				if n > 1 {
					p.behave()
					return
				}
				p.hello()
				p.pongs(1)
				<-p.ctx.Done()
			}
			client := c.startInside()
			f := queue.NewFeed(queue.Options{})
			e := start(t, Config{URL: c.URL, Client: client, Clock: m.clock()}, f)
			until(t, "connected", func() bool { return e.Stats().State == Connected && m.next() > 0 })
			n := 0
			for i, d := range v.advances {
				if i < len(v.offered) && v.offered[i] > 0 {
					offer(f, n, n+v.offered[i])
					n += v.offered[i]
					until(t, "a batch under way", func() bool { return e.Stats().InFlight > 0 })
					synctest.Wait() // it is written, as far as that goes
				}
				if i <= v.alive && e.Stats().State != Connected {
					t.Fatalf("left before advance %d", i)
				}
				m.advance(d)
				synctest.Wait()
			}
			until(t, "the end of it", func() bool { return e.Stats().State == Retrying && m.next() > 0 || e.Stats().Hellos == 2 })
			m.advance(time.Second)
			until(t, "another connection", func() bool { return e.Stats().Hellos == 2 })
			flush(t, e)
			same(t, deduped(c.got()), numbers("s", 0, n))
		}))
	}
}

// inside runs a test in a bubble, where time passes when all wait for it: how fast
// a machine is does not matter.
func inside(f func(*testing.T)) func(*testing.T) {
	return func(t *testing.T) { synctest.Test(t, f) }
}

// TestSlowIsNotDead has a collector take its time for each answer, and a network
// for each byte: one connection is enough, and nothing is sent twice.
func TestSlowIsNotDead(t *testing.T) {
	const patience = time.Second
	for name, v := range map[string]struct {
		answer time.Duration // for each batch, one after the other
		write  time.Duration // for each 64 KiB, on our side
	}{
		"a quarter of the patience for each answer": {answer: patience / 4},
		"a megabyte that takes longer to go out":    {write: patience / 8},
	} {
		t.Run(name, inside(func(t *testing.T) {
			c := newCollector(t)
			c.script = func(_ int, p *peer) { slowly(p, func(int) time.Duration { return v.answer }) }
			client := c.startInside()
			f := queue.NewFeed(queue.Options{})
			for i := range 80 { // of 16 KiB
				it := item(i)
				it.Line = []byte(strings.Replace(string(it.Line), `"data":{`, `"data":{"x":"`+strings.Repeat("y", 16<<10)+`",`, 1))
				f.Offer(it)
			}
			network := client.Transport.(*http.Transport)
			dial := network.DialContext
			network.DialContext = func(ctx context.Context, net_, addr string) (net.Conn, error) {
				conn, err := dial(ctx, net_, addr)
				return &narrow{Conn: conn, each: v.write}, err
			}
			batch := 10
			if v.write > 0 {
				batch = 80
			}
			e := start(t, Config{URL: c.URL, Client: client, MaxEvents: batch, MaxBytes: 2 << 20, Timeout: patience}, f)
			flush(t, e)
			same(t, c.got(), numbers("s", 0, 80))
			if s := e.Stats(); s.Hellos != 1 {
				t.Errorf("%+v", s)
			}
		}))
	}
}

// TestSlowerThanOurPatience is a collector that needs longer for a full batch
// than is waited for it: batches become as small as it can answer, and stay so.
func TestSlowerThanOurPatience(t *testing.T) { inside(slowerThanOurPatience)(t) }

func slowerThanOurPatience(t *testing.T) {
	c := newCollector(t)
	c.script = func(_ int, p *peer) {
		slowly(p, func(events int) time.Duration { return time.Duration(events) * time.Millisecond })
	}
	client := c.startInside()
	f := queue.NewFeed(queue.Options{})
	offer(f, 0, 4000)
	e := start(t, Config{URL: c.URL, Client: client, Timeout: 400 * time.Millisecond}, f)
	flush(t, e)
	same(t, deduped(c.got()), numbers("s", 0, 4000))
	if s := e.Stats(); s.Hellos > 3 || len(c.got()) > 12000 {
		t.Errorf("%d events were sent for 4000: %+v", len(c.got()), s)
	}
}

// slowly takes in and answers one batch after the other, as a collector of one
// worker does.
func slowly(p *peer, pause func(events int) time.Duration) {
	p.hello()
	p.pongs(1)
	type asked struct {
		t      string
		events int
	}
	work := make(chan asked, 1000)
	ctx, dismiss := context.WithCancel(p.ctx)
	var worker sync.WaitGroup
	defer worker.Wait()
	defer close(work)
	defer dismiss()
	worker.Go(func() {
		for a := range work {
			select {
			case <-time.After(pause(a.events)):
				p.send(`{"type":"pong","t":` + a.t + `}`)
			case <-ctx.Done():
			}
		}
	})
	events := 0
	for {
		m := p.next()
		if m == "" {
			return
		}
		if id, ping := p.message(m); ping {
			work <- asked{id, events}
			events = 0
		} else {
			events++
		}
	}
}

// narrow is a network that takes its time.
type narrow struct {
	net.Conn
	each time.Duration // for each 64 KiB
}

func (n *narrow) Write(b []byte) (done int, err error) {
	for piece := range slices.Chunk(b, 64<<10) {
		time.Sleep(n.each * time.Duration(len(piece)) >> 16)
		m, err := n.Conn.Write(piece)
		if done += m; err != nil {
			return done, err
		}
	}
	return done, nil
}
