package collector

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"aep-wrap/event"
)

// body makes a batch of n ordinary metadata events.
func body(session string, from, n int) []byte {
	var b bytes.Buffer
	for i := from; i < from+n; i++ {
		fmt.Fprintf(&b, `{"aep":"0.1","id":"01JX9YB3P4T9%014d","type":"tool.completed","subject":"Bash","time":"2026-07-03T10:15:04.221Z","source":"aep://host-a/agent/claude-code/session/%s","agent":"claude-code","session":"%s","run":"r_0042","step":"turn-3","seq":%d,"cause":"01JX9YB2Z1QK0000000000GOLD","severity":"info","capture":"metadata","data":{"tool":{"name":"Bash","call_id":"t_91"},"status":"success","duration_ms":1240,"gen_ai.usage.input_tokens":142}}`+"\n", i, session, session, i)
	}
	return b.Bytes()
}

// serveBench runs a collector for a benchmark.
func serveBench(b *testing.B, cfg Config) string {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- New(cfg).Serve(ctx, l) }()
	b.Cleanup(func() {
		stop()
		<-done
		http.DefaultClient.CloseIdleConnections()
	})
	return "http://" + l.Addr().String()
}

func post(b *testing.B, base string, body []byte) {
	req, err := http.NewRequest("POST", base+"/events", bytes.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	req.Header = ndjson
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if resp.StatusCode != 202 {
		b.Fatal(resp.Status)
	}
}

// cpu is the processor time that this process has used.
func cpu() time.Duration {
	var r unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &r) != nil {
		return 0
	}
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

// BenchmarkPost sends batches over one connection. Its cpu-ns/event holds the
// client's part too.
func BenchmarkPost(b *testing.B) {
	for _, batch := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(batch), func(b *testing.B) {
			base := serveBench(b, Config{})
			const sessions = 64
			b.ReportAllocs()
			seq := 0
			start := cpu()
			events := 0
			for b.Loop() {
				b.StopTimer()
				before := cpu()
				lines := body(fmt.Sprint("s_8f2c", seq/batch%sessions), seq, batch)
				start += cpu() - before
				b.StartTimer()
				post(b, base, lines)
				seq += batch
				events += batch
			}
			b.ReportMetric(float64((cpu()-start).Nanoseconds())/float64(events), "cpu-ns/event")
			b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
		})
	}
}

// BenchmarkTakeIn is what a batch costs between its bytes and the buffers.
func BenchmarkTakeIn(b *testing.B) {
	c := New(Config{})
	const batch = 1000
	lines := body("s_8f2c", 0, batch)
	b.SetBytes(int64(len(lines)))
	b.ReportAllocs()
	n := 0
	start := cpu()
	for b.Loop() {
		// Other ids: nothing is a redelivery.
		items, status, p := c.parse(lines, true)
		if status != 0 {
			b.Fatal(p)
		}
		for _, it := range items {
			n++
			it.Seq = int64(n)
			it.ID = fmt.Sprint(n)
		}
		c.hub.publish(items)
	}
	b.ReportMetric(float64((cpu()-start).Nanoseconds())/float64(b.N*batch), "cpu-ns/event")
}

// BenchmarkFanOut publishes to consumers of which half match.
func BenchmarkFanOut(b *testing.B) {
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h := newHub(Limits{}.withDefaults())
			for i := range n {
				f, err := event.CompileFilter([]byte(fmt.Sprintf(`{"type":["tool.*","x.a%d.*"]}`, i)))
				if i%2 == 1 {
					f, err = event.CompileFilter([]byte(`{"type":"attention.*"}`))
				}
				if err != nil {
					b.Fatal(err)
				}
				h.subscribe(&consumer{filter: f, live: true, ceiling: event.Full}, nil, false, nil)
			}
			line := bytes.TrimSpace(body("s", 0, 1))
			hd, _, err := event.ParseHeader(line)
			if err != nil {
				b.Fatal(err)
			}
			var into []*item
			b.ReportAllocs()
			i := 0
			start := cpu()
			for b.Loop() {
				it := newItem(hd, line)
				it.Seq = int64(i)
				it.ID = fmt.Sprint(i)
				h.publish([]*item{it})
				if i++; i%64 == 0 {
					for _, c := range h.consumers {
						into, _ = h.next(c, into[:0])
					}
				}
			}
			b.ReportMetric(float64((cpu()-start).Nanoseconds())/float64(b.N), "cpu-ns/event")
		})
	}
}

// BenchmarkReplay reads 10,000 held events over HTTP.
func BenchmarkReplay(b *testing.B) {
	base := serveBench(b, Config{})
	for i := range 10 {
		post(b, base, body("s", i*1000, 1000))
	}
	b.ReportAllocs()
	start := cpu()
	for b.Loop() {
		resp, err := http.Get(base + "/stream?live=0&from=all")
		if err != nil {
			b.Fatal(err)
		}
		n, err := io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if err != nil || n < 10_000*100 {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64((cpu()-start).Microseconds())/1000/float64(b.N), "cpu-ms/replay")
}

// BenchmarkScan is the floor: one look at each byte of an event.
func BenchmarkScan(b *testing.B) {
	lines := bytes.Split(bytes.TrimSpace(body("s_8f2c", 0, 1000)), newline)
	b.Run("header", func(b *testing.B) {
		b.ReportAllocs()
		start := cpu()
		i := 0
		for b.Loop() {
			if _, _, err := event.ParseHeader(lines[i%1000]); err != nil {
				b.Fatal(err)
			}
			i++
		}
		b.ReportMetric(float64((cpu()-start).Nanoseconds())/float64(b.N), "cpu-ns/event")
	})
	b.Run("copy", func(b *testing.B) {
		b.ReportAllocs()
		i := 0
		for b.Loop() {
			_ = strings.Clone(string(lines[i%1000]))
			i++
		}
	})
}

// BenchmarkFloor is the floor of taking a batch in: the envelopes are read, and nothing
// kept; and what encoding/json needs to find the same text valid.
func BenchmarkFloor(b *testing.B) {
	const batch = 1000
	lines := bytes.Split(bytes.TrimSpace(body("s_8f2c", 0, batch)), newline)
	for _, c := range []struct {
		name string
		scan func([]byte) bool
	}{
		{"series", func() func([]byte) bool {
			var s event.Series
			return func(l []byte) bool { _, _, err := s.ParseHeader(l); return err == nil }
		}()},
		{"json.Valid", json.Valid},
	} {
		b.Run(c.name, func(b *testing.B) {
			start := cpu()
			for b.Loop() {
				for _, l := range lines {
					if !c.scan(l) {
						b.Fatal(string(l))
					}
				}
			}
			b.ReportMetric(float64((cpu()-start).Nanoseconds())/float64(b.N*batch), "cpu-ns/event")
		})
	}
}
