package post

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"aep-wrap/queue"
	"aep-wrap/queue/jsonl"
)

// emitter is another process: it goes on with a session where its log ends,
// and sends to the collector, until it is killed or has nothing more to say.
func emitter(root, url string, until int) error {
	log, err := jsonl.Open(root, "a", "s")
	if err != nil {
		return err
	}
	n := 0
	if err := log.Replay(func([]byte) error { n++; return nil }); err != nil {
		return err
	}
	f := queue.NewFeed(queue.Options{Sink: "p", MaxEvents: 50, SaveEvery: 5 * time.Millisecond})
	if err := f.Attach("a", "s", log); err != nil {
		return err
	}
	e, err := New(Config{URL: url, MaxEvents: 40, MinWait: time.Millisecond, MaxWait: 10 * time.Millisecond}, f)
	if err != nil {
		return err
	}
	go func() { _ = e.Run(context.Background()) }()
	for ; n < until; n++ {
		it := item(n)
		if it.Log, err = log.Append(it.Line); err != nil {
			return err
		}
		f.Offer(it)
		if n%20 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if err := e.Flush(context.Background()); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return log.Close()
}

func init() {
	if root := os.Getenv("POST_TEST_EMITTER"); root != "" {
		var until int
		_, _ = fmt.Sscan(os.Getenv("POST_TEST_UNTIL"), &until)
		if err := emitter(root, os.Getenv("POST_TEST_URL"), until); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// TestKilled kills the emitter at random points, again and again, while the
// collector fails now and then: in the end the log and the collector have
// every event, once after dedupe, in order.
func TestKilled(t *testing.T) {
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	const each = 2000
	c := newCollector(t, func(n int, _ []string, w http.ResponseWriter) bool {
		switch n % 9 {
		case 3:
			return status(w, 503, "")
		case 6: // taken in, but the answer is lost
			conn, _, _ := w.(http.Hijacker).Hijack()
			conn.Close()
			return true
		}
		return accept(w)
	})
	root := t.TempDir()
	r := rand.New(rand.NewPCG(3, 4))
	run := func(until int, kill time.Duration) {
		t.Helper()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "POST_TEST_EMITTER="+root, "POST_TEST_URL="+c.URL, fmt.Sprint("POST_TEST_UNTIL=", until))
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
	for i := range rounds {
		run((i+1)*each, time.Duration(20+r.IntN(150))*time.Millisecond)
	}
	run(rounds*each, 0)

	log, err := jsonl.Open(root, "a", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	var logged []string
	_ = log.Replay(func(line []byte) error {
		h, _ := jsonl.ReadHead(line)
		logged = append(logged, h.ID)
		return nil
	})
	same(t, logged, numbers(0, rounds*each))
	taken := deduped(c.got())
	same(t, taken, logged)
	t.Logf("%d events, %d sent again after a kill or a lost answer", len(taken), len(c.got())-len(taken))
}
