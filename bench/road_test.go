package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/all"
	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
	"aep-wrap/redaction"
	"aep-wrap/session"
)

// payloads are the hook payloads of one run of the agent with one tool call,
// in order; one a line.
func payloads(tb testing.TB) [][]byte {
	tb.Helper()
	b, err := os.ReadFile("testdata/claude-code.jsonl")
	if err != nil {
		tb.Fatal(err)
	}
	return bytes.Split(bytes.TrimSpace(b), []byte("\n"))
}

// A hook by HTTP, from the request to the empty answer, on an open connection.
func BenchmarkHookHTTP(b *testing.B) {
	e := hookServer(b)
	payload := payloads(b)[1]
	url := e.HookURL + "/claude-code/PreToolUse"
	b.SetBytes(int64(len(payload)))
	for b.Loop() {
		resp, err := http.Post(url, "application/json", bytes.NewReader(payload))
		if err != nil {
			b.Fatal(err)
		}
		if resp.StatusCode != http.StatusOK {
			b.Fatal(resp.Status)
		}
		resp.Body.Close()
	}
}

// policies are the ceilings at which the road is measured.
var policies = map[string]redaction.Policy{
	"metadata": redaction.DefaultPolicy(),
	"redacted": {Ceiling: event.Redacted},
	"full":     {Ceiling: event.Full},
}

// The road of one goroutine, per event: a payload is parsed, mapped, bound,
// gated, encoded and written to the session log.
func BenchmarkRoad(b *testing.B) {
	for _, level := range []string{"metadata", "redacted", "full"} {
		b.Run(level, func(b *testing.B) { road(b, policies[level], true) })
	}
}

// The same from the tree on: what the goal of 100,000 events/s is about.
func BenchmarkRoadParsed(b *testing.B) {
	for _, level := range []string{"metadata", "redacted", "full"} {
		b.Run(level, func(b *testing.B) { road(b, policies[level], false) })
	}
}

func road(b *testing.B, policy redaction.Policy, parse bool) {
	adapter, ok := all.Find("claude-code")
	if !ok {
		b.Fatal("no adapter claude-code")
	}
	gate := redaction.NewGate(policy, redaction.NewPipeline(redaction.Options{Home: "/home/dev"}))
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	log, err := jsonl.Open(b.TempDir(), "claude-code", "bench")
	if err != nil {
		b.Fatal(err)
	}
	defer log.Close()
	s := session.New(session.Config{Agent: "claude-code", Host: "bench", Session: "bench", Start: start, State: session.NewState()})

	// Ids are new in every turn, or all but the first turn would be dropped as
	// repetitions.
	raw := payloads(b)
	number := 0
	fresh := func(p []byte) []byte {
		id := fmt.Sprintf("%08d", number)
		p = bytes.ReplaceAll(p, []byte("PROMPT"), []byte("p"+id))
		return bytes.ReplaceAll(p, []byte("CALL"), []byte("c"+id))
	}
	// Trees for 64 runs: between the measured turns they get new ids, which
	// costs next to nothing beside what is measured.
	var batch []map[string]any
	for range 64 {
		for _, p := range raw {
			tree, err := event.ParseObject(p)
			if err != nil {
				b.Fatal(err)
			}
			batch = append(batch, tree)
		}
	}
	refill := func() {
		for i, tree := range batch {
			if i%len(raw) == 0 {
				number++
			}
			id := fmt.Sprintf("%08d", number)
			tree["prompt_id"] = "p" + id
			if tree["tool_use_id"] != nil {
				tree["tool_use_id"] = "toolu_c" + id
			}
		}
	}
	// As the agent's road does it: an event is a line of its own, and what has
	// come together is written at once.
	const together = 16 << 10
	var lines [][]byte
	var refs []jsonl.Ref
	pending := 0
	var events, written int64
	flush := func() {
		var err error
		if refs, err = log.AppendBatch(refs[:0], lines); err != nil {
			b.Fatal(err)
		}
		clear(lines)
		lines, pending = lines[:0], 0
	}
	one := func(tree map[string]any) {
		name, _ := tree["hook_event_name"].(string)
		drafts := s.Bind(start, adapter.Map(adapters.Moment{Channel: adapters.Hook, Name: name, Payload: tree, Time: start}))
		for i := range drafts {
			e, err := gate.Seal(&drafts[i])
			if err != nil {
				b.Fatal(err)
			}
			line := e.AppendJSON(nil)
			lines = append(lines, line)
			events++
			written += int64(len(line)) + 1
			if pending += len(line); pending > together {
				flush()
			}
		}
	}
	i := 0
	refill()
	b.ReportAllocs()
	var idle time.Duration // processor time that was not the road's
	begun := processorTime(b)
	for b.Loop() {
		if parse {
			if i%len(raw) == 0 {
				number++
			}
			tree, err := event.ParseObject(fresh(raw[i%len(raw)]))
			if err != nil {
				b.Fatal(err)
			}
			one(tree)
			i++
			continue
		}
		if i == len(batch) {
			b.StopTimer()
			before := processorTime(b)
			refill()
			idle += processorTime(b) - before
			i = 0
			b.StartTimer()
		}
		one(batch[i])
		i++
	}
	flush()
	if events == 0 {
		b.Fatal("no event came of it")
	}
	busy := processorTime(b) - begun - idle
	b.ReportMetric(float64(events)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(float64(events)/busy.Seconds(), "events/cpu-s")
	b.ReportMetric(float64(written)/float64(events), "bytes/event")
}

// processorTime is what this process has used of the processors, the garbage
// collector's share included: on a busy machine a truer measure than a clock.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// texts are what the pipeline reads: source code and logs without a secret in
// them, and the same with one in every few lines.
func texts() map[string]string {
	clean := `func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// The commit 3f786850e387550fdab836ed7e6dc881de23001b made this faster.
	if err := s.check(r.Context(), r.URL.Path); err != nil {
		return fmt.Errorf("check %s: %w", r.URL.Path, err)
	}
2026-11-02T10:11:12Z INFO request id=0197f3a2-7d1c-7aa0-9c5e-4a1b2c3d4e5f status=200 bytes=18231
ok  	example.com/server/internal/router	0.412s	coverage: 81.2% of statements
`
	dirty := clean + `export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY
curl -H "Authorization: Bearer sk-ant-REDACTME0123456789abcdefghijklmnop" https://user:hunter22@example.com/x?token=abcdef0123456789
db: {"password": "correct horse", "user": "app"} mail ann@example.com in /home/dev/app
`
	return map[string]string{
		"clean": strings.Repeat(clean, 64<<10/len(clean)),
		"dirty": strings.Repeat(dirty, 64<<10/len(dirty)),
	}
}

// The text pipeline, in MB/s.
func BenchmarkPipeline(b *testing.B) {
	p := redaction.NewPipeline(redaction.Options{
		Home:    "/home/dev",
		Secrets: []redaction.Secret{{Name: "SERVICE_TOKEN", Value: "value-of-the-environment-4711"}},
	})
	for _, name := range []string{"clean", "dirty"} {
		text := texts()[name]
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			var out string
			for b.Loop() {
				out = p.Text(text)
			}
			if hidden := strings.Contains(out, "[REDACTED"); hidden != (name == "dirty") {
				b.Fatalf("hidden: %v", hidden)
			}
		})
	}
}

// The payloads are JSON, or the benchmarks measure refusals.
func TestPayloads(t *testing.T) {
	for i, p := range payloads(t) {
		var m map[string]any
		if err := json.Unmarshal(p, &m); err != nil || m["hook_event_name"] == nil {
			t.Errorf("line %d: %v", i+1, err)
		}
	}
}
