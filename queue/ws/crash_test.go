package ws

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"aep-wrap/event"
	"aep-wrap/queue"
	"aep-wrap/queue/jsonl"
	"aep-wrap/queue/post"
)

var (
	rounds = flag.Int("rounds", 5, "of killing the emitter, and the collector, in TestKilled")
	seed   = flag.Uint64("seed", 0, "of TestKilled; 0 is the day's")
)

const sessions = 3

// emitter is another process: it goes on with its sessions where their logs
// end, and sends, until it is killed or has nothing more to say.
func emitter(root, url string, until int) error {
	f := queue.NewFeed(queue.Options{Sink: "w", MaxEvents: 60, SaveEvery: 5 * time.Millisecond})
	var open [sessions]*jsonl.Log
	var n [sessions]int
	for i := range open {
		name := fmt.Sprint("s", i)
		log, err := jsonl.Open(root, "a", name)
		if err != nil {
			return err
		}
		defer log.Close()
		if err := log.Replay(func([]byte) error { n[i]++; return nil }); err != nil {
			return err
		}
		if err := f.Attach("a", name, log); err != nil {
			return err
		}
		open[i] = log
	}
	e, err := New(Config{URL: url, Agent: "a", MaxEvents: 40, MinWait: time.Millisecond, MaxWait: 20 * time.Millisecond,
		PingEvery: 50 * time.Millisecond, Timeout: 200 * time.Millisecond, Hello: 200 * time.Millisecond, RetrySocket: 100 * time.Millisecond,
		Fallback: func(f *queue.Feed) (Poster, error) {
			return post.New(post.Config{URL: url, MaxEvents: 40, MinWait: time.Millisecond, MaxWait: 20 * time.Millisecond}, f)
		}}, f)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	for more := true; more; {
		more = false
		for i, log := range open {
			if n[i] >= until {
				continue
			}
			more = true
			name := fmt.Sprint("s", i)
			it := queue.Item{Agent: "a", Session: name, ID: fmt.Sprintf("%s-%d", name, n[i]), Severity: event.Info, Sequenced: true,
				Position: event.Position{Seq: int64(n[i])}, Line: line(name, n[i], "progress.status")}
			if it.Log, err = log.Append(it.Line); err != nil {
				return err
			}
			f.Offer(it)
			if n[i]++; n[i]%20 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
	}
	if err := e.Flush(context.Background()); err != nil {
		return err
	}
	cancel()
	if err := <-ended; err != nil {
		return err
	}
	return f.Close()
}

func init() {
	if root := os.Getenv("WS_TEST_EMITTER"); root != "" {
		var until int
		_, _ = fmt.Sscan(os.Getenv("WS_TEST_UNTIL"), &until)
		if err := emitter(root, os.Getenv("WS_TEST_URL"), until); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// dice is a collector's behaviour, at random: each socket ends in some way at
// some frame. What it has taken in stays taken, as with a collector behind
// which a sink has written it down.
func dice(r *rand.Rand, mu *sync.Mutex) func(int, *peer) {
	n := func(to int) int { mu.Lock(); defer mu.Unlock(); return r.IntN(to) }
	return func(_ int, p *peer) {
		switch n(12) {
		case 0: // accepts and dies
			return
		case 1: // never says hello
			p.eat(3)
			return
		case 2: // garbage
			p.send("\x00")
			return
		}
		if !p.hello() {
			return
		}
		end, how := n(400), n(6)
		for i := 0; how == 5 || i < end; i++ {
			m := p.next()
			if m == "" {
				return
			}
			t, ping := p.message(m)
			if ping && (how != 4 || i < end/2) { // 4 stops to pong in the middle
				p.send(`{"type":"pong","t":` + t + `}`)
			}
			if how == 3 && i == end/2 {
				_ = p.ws.Write(p.ctx, websocket.MessageText, []byte("garbage \x01"))
			}
		}
		switch how { // otherwise the line goes dead
		case 0:
			p.send(`{"type":"closing","reason":"drain","delivered":[]}`)
			p.behaveOn()
		case 1:
			_ = p.ws.Close(websocket.StatusGoingAway, "bye")
		case 2:
			_ = p.ws.Write(p.ctx, websocket.MessageBinary, []byte("x"))
			p.behaveOn()
		}
	}
}

// TestKilled kills the emitter, as kill -9 does, and the collector, at random
// points, while the collector misbehaves in every way it knows: in the end the
// logs and the collector have every event, once after dedupe, in the order of
// each session.
func TestKilled(t *testing.T) {
	s := *seed
	if s == 0 {
		s = uint64(time.Now().Unix() / 86400)
	}
	t.Logf("-seed %d -rounds %d", s, *rounds)
	r := rand.New(rand.NewPCG(s, 1))
	var mu sync.Mutex
	const each = 500
	c := newCollector(t)
	d := rand.New(rand.NewPCG(s, 2))
	c.script = dice(d, &mu)
	c.upgrade = func(_ int, w http.ResponseWriter, _ *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if refuse := d.IntN(8) == 0; refuse {
			w.WriteHeader([]int{404, 503}[d.IntN(2)])
			return true
		}
		return false
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	defer func() { c.kill() }()
	var server *http.Server
	up := func() {
		if l == nil {
			for range 100 {
				if l, err = net.Listen("tcp", addr); err == nil {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
		server = &http.Server{Handler: http.HandlerFunc(c.serve)}
		go func(s *http.Server, l net.Listener) {
			if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				t.Error(err)
			}
		}(server, l)
		l = nil
	}
	down := func() {
		_ = server.Close()
		c.kill()
	}
	root := t.TempDir()
	run := func(until int, kill time.Duration) {
		t.Helper()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "WS_TEST_EMITTER="+root, "WS_TEST_URL=http://"+addr, fmt.Sprint("WS_TEST_UNTIL=", until))
		var said strings.Builder
		cmd.Stderr = &said
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if kill > 0 {
			time.AfterFunc(kill, func() { _ = cmd.Process.Kill() })
		}
		if err := cmd.Wait(); err != nil && kill == 0 || said.Len() > 0 {
			t.Fatalf("%v: %s", err, said.String())
		}
	}
	ms := func(from, to int) time.Duration { return time.Duration(from+r.IntN(to-from)) * time.Millisecond }
	for i := range *rounds {
		up()
		a, b := ms(20, 200), ms(20, 100)
		var restarts sync.WaitGroup
		restarts.Go(func() { // and the collector, in the middle
			time.Sleep(a)
			down()
			time.Sleep(b)
			up()
		})
		run((i+1)*each, ms(30, 400))
		restarts.Wait()
		down()
	}
	up()
	run(*rounds*each, 0)
	down()

	c.mu.Lock() // what a killed emitter wrote may be read still
	arrived := maps.Clone(c.lines)
	c.mu.Unlock()
	again := len(c.got())
	for i := range sessions {
		name := fmt.Sprint("s", i)
		want := numbers(name, 0, *rounds*each)
		log, err := jsonl.Open(root, "a", name)
		if err != nil {
			t.Fatal(err)
		}
		var logged, taken []string
		_ = log.Replay(func(line []byte) error {
			h, _ := jsonl.ReadHead(line)
			logged = append(logged, h.ID)
			if arrived[h.ID] != string(line) {
				t.Errorf("%s: other bytes arrived: %q", h.ID, arrived[h.ID])
			}
			return nil
		})
		log.Close()
		for _, id := range c.got() {
			if strings.HasPrefix(id, name+"-") {
				taken = append(taken, id)
			}
		}
		same(t, logged, want)
		same(t, deduped(taken), want)
		again -= len(want)
	}
	t.Logf("%d events over %d sockets and %d by POST, %d sent again", sessions**rounds*each, c.count(), len(c.via("post")), again)
}
