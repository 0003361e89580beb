package e2e

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"aep-wrap/event"
	"aep-wrap/event/eventtest"
)

// The outage test runs real processes: a collector, a sink, and wrappers whose
// agents write events at a rate. All but the agents are killed, hard, at random
// moments. Its short form is part of every test run; the long one is
//
//	go test ./e2e -run Outage -timeout 1h -outage.rounds 50 -outage.backlog 300000 -v
var (
	outageRounds  = flag.Int("outage.rounds", 4, "rounds of the outage test")
	outageBacklog = flag.Int("outage.backlog", 30_000, "events that are written while there is no collector: 300000 are ten minutes at 500 a second")
	outageSeed    = flag.Uint64("outage.seed", 1, "seed of the outage test's rounds")
)

const (
	outageRate  = 500        // events a second
	outageBound = 64 << 10   // KiB that a wrapper may ever have needed
	ratedEnv    = "AEP_RATE" // makes this binary the agent: "RATE COUNT", RATE 0 is as fast as it goes
	goOnEnv     = "AEP_GO_ON"
)

func init() {
	if s := os.Getenv(ratedEnv); s != "" {
		os.Exit(rated(s))
	}
}

// rated plays an agent that writes numbered events at a rate, and then waits
// for a file, if it is told to.
func rated(how string) int {
	var rate, count int
	if _, err := fmt.Sscan(how, &rate, &count); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	fd, err := strconv.Atoi(os.Getenv("AEP_EVENTS_FD"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	out := os.NewFile(uintptr(fd), "events")
	severities := []string{"debug", "info", "info", "notice", "info", "warning"}
	start := time.Now()
	var buf []byte
	for n := 0; n < count; {
		due := count
		if rate > 0 {
			due = min(count, int(time.Since(start).Seconds()*float64(rate)))
		}
		buf = buf[:0]
		for ; n < due && len(buf) < 32<<10; n++ {
			buf = fmt.Appendf(buf, `{"type":"x.outage.count.up","id":"n%d","severity":%q,"data":{"n":%d,"pad":%q}}`+"\n",
				n, severities[n%len(severities)], n, strings.Repeat("p", 60))
		}
		if _, err := out.Write(buf); err != nil {
			return 1 // the wrapper was killed
		}
		if rate > 0 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	if file := os.Getenv(goOnEnv); file != "" {
		for {
			if _, err := os.Stat(file); err == nil {
				return 0
			}
			if os.Getppid() == 1 { // nobody to wait for
				return 1
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return 0
}

// outage is the place of one test.
type outage struct {
	t         *testing.T
	bin       string
	home      string
	logs, out string
	addr      string
	collector *process
	sink      *process
	peak      int // KiB, of all wrappers
	kills     map[string]int
}

// process is one that may be killed at any time.
type process struct {
	*exec.Cmd
	done chan struct{}
	err  bytes.Buffer
}

func (p *process) kill() {
	_ = p.Process.Kill()
	<-p.done
}

func (o *outage) start(env []string, args ...string) *process {
	o.t.Helper()
	p := &process{Cmd: exec.Command(o.bin, args...), done: make(chan struct{})}
	p.Env = append([]string{"HOME=" + o.home, "PATH=" + os.Getenv("PATH"), "AEP_QUIET=true"}, env...)
	p.Stderr = &p.err
	if err := p.Start(); err != nil {
		o.t.Fatal(err)
	}
	go func() {
		_ = p.Wait()
		close(p.done)
	}()
	return p
}

func (o *outage) url() string { return "http://" + o.addr }

func (o *outage) startCollector() {
	o.collector = o.start(nil, "collect", "--listen", o.addr, "--log-dir", o.logs)
}

func (o *outage) startSink() {
	o.sink = o.start([]string{"AEP_TOKEN_FILE=" + filepath.Join(o.home, ".aep", "token")}, "sink", "--out", o.out, "--collector", o.url())
}

// ready waits until the collector answers.
func (o *outage) ready() {
	o.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		resp, err := http.Get(o.url() + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
		}
	}
	o.t.Fatalf("the collector does not answer: %s", o.collector.err.String())
}

func (o *outage) startWrapper(rate, count int, goOn string) *process {
	self, err := os.Executable()
	if err != nil {
		o.t.Fatal(err)
	}
	return o.start([]string{fmt.Sprintf("%s=%d %d", ratedEnv, rate, count), goOnEnv + "=" + goOn,
		"AEP_TOKEN_FILE=" + filepath.Join(o.home, ".aep", "token")},
		"--collector", o.url(), "--log-dir", o.logs, "--agent", "rated", "--", self)
}

// watch notes how much memory a wrapper has needed, until it ends.
func (o *outage) watch(p *process, peak *int) {
	for {
		select {
		case <-p.done:
			return
		case <-time.After(50 * time.Millisecond):
			*peak = max(*peak, highWater(p.Process.Pid))
		}
	}
}

// highWater is a process's VmHWM in KiB, 0 where it cannot be read.
func highWater(pid int) int {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, ok := strings.Cut(string(status), "VmHWM:")
	if !ok {
		return 0
	}
	n, _ := strconv.Atoi(strings.Fields(rest)[0])
	return n
}

// kept reads the logs below a directory, by agent and session.
func kept(t *testing.T, dir string) map[string][]event.Event {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "*", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]event.Event{}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name, _ := filepath.Rel(dir, path)
		for line := range strings.Lines(string(raw)) {
			e, err := event.Parse([]byte(line))
			if err != nil {
				t.Fatalf("%s: %v: %s", path, err, line)
			}
			out[name] = append(out[name], e)
		}
	}
	return out
}

// inOrder says that a session's events are there once each, in the order of
// their positions, and that what its agent counted is whole up to somewhere. It
// gives how far that is.
func inOrder(t *testing.T, name string, events []event.Event) (counted int) {
	t.Helper()
	ids := map[string]bool{}
	var last event.Position
	for i, e := range events {
		if ids[e.ID] {
			t.Errorf("%s: %s is there twice", name, e.ID)
		}
		ids[e.ID] = true
		if i > 0 && !last.Less(e.Position()) {
			t.Errorf("%s: %v stands after %v, at line %d of %d", name, e.Position(), last, i+1, len(events))
			return counted
		}
		last = e.Position()
		if e.Type == "x.outage.count.up" {
			data, _ := event.ParseObject(e.Data)
			if n := fmt.Sprint(data["n"]); n != strconv.Itoa(counted) {
				t.Errorf("%s: %s stands where %d should, at line %d of %d", name, n, counted, i+1, len(events))
				return counted
			}
			counted++
		}
	}
	return counted
}

func buildWrapper(t *testing.T) string {
	dir := t.TempDir()
	cmd := exec.Command("go", "build", "-buildvcs=false", "-o", dir+"/", "./cmd/aep-wrap", "./cmd/aep-hook")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return filepath.Join(dir, "aep-wrap")
}

func TestOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	home := t.TempDir()
	o := &outage{t: t, bin: buildWrapper(t), home: home, logs: filepath.Join(home, "logs"), out: filepath.Join(home, "out"),
		addr: eventtest.Address(t), kills: map[string]int{}}
	t.Cleanup(func() {
		for _, p := range []*process{o.collector, o.sink} {
			if p != nil {
				p.kill()
			}
		}
	})
	begun := time.Now()
	o.startCollector()
	o.ready()
	o.startSink()

	whole := o.backlog(*outageBacklog)
	seed := *outageSeed
	rng := rand.New(rand.NewPCG(seed, 0))
	for round := range *outageRounds {
		whole += o.round(rng)
		if t.Failed() {
			t.Fatalf("in round %d of seed %d", round, seed)
		}
	}

	// What is left is left by crashed wrappers.
	flush := o.start([]string{"AEP_TOKEN_FILE=" + filepath.Join(home, ".aep", "token")}, "flush", "--collector", o.url(), "--log-dir", o.logs, "--timeout", "60s")
	<-flush.done
	if !flush.ProcessState.Success() {
		t.Errorf("flush: %s", flush.err.String())
	}
	logs := kept(t, o.logs)
	total, counted := 0, 0
	for name, events := range logs {
		total += len(events)
		counted += inOrder(t, name, events)
		if last := events[len(events)-1].Type; last != "session.ended" {
			t.Errorf("%s ends with %s", name, last)
		}
	}
	if counted < whole {
		t.Errorf("the logs hold %d events of the agents; those that were not killed alone wrote %d", counted, whole)
	}
	o.settled(total)
	_ = o.sink.Process.Signal(syscall.SIGTERM)
	<-o.sink.done
	sunk := kept(t, o.out)
	for name, events := range logs {
		inOrder(t, "the sink's "+name, sunk[name])
		if got := sunk[name]; !slices.EqualFunc(got, events, func(a, b event.Event) bool { return a.ID == b.ID && bytes.Equal(a.Data, b.Data) }) {
			have := map[string]bool{}
			for _, e := range got {
				have[e.ID] = true
			}
			missing := slices.DeleteFunc(slices.Clone(events), func(e event.Event) bool { return have[e.ID] })
			first := event.Position{Seq: -1}
			if len(missing) > 0 {
				first = missing[0].Position()
			}
			t.Errorf("of %s the sink has %d events and the log %d; %d are missing, the first at %v", name, len(got), len(events), len(missing), first)
		}
	}
	if len(sunk) != len(logs) {
		t.Errorf("the sink has %d sessions, there are %d", len(sunk), len(logs))
	}
	if o.peak > outageBound {
		t.Errorf("a wrapper needed %d KiB, which is beyond %d", o.peak, outageBound)
	}
	t.Logf("seed %d, %d rounds in %v: %d events of %d sessions in the logs and in the sink; killed %v; a wrapper needed %.1f MiB at most",
		seed, *outageRounds, time.Since(begun).Round(time.Second), total, len(logs), o.kills, float64(o.peak)/1024)
}

// settled waits until the sink holds so many events, as long as it goes on.
func (o *outage) settled(total int) {
	have, moved := -1, time.Now()
	for time.Since(moved) < patience {
		n := 0
		paths, _ := filepath.Glob(filepath.Join(o.out, "*", "*.jsonl"))
		for _, path := range paths {
			n += lineCount(path)
		}
		if n != have {
			have, moved = n, time.Now()
		}
		if n >= total {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	o.t.Errorf("the sink stays at %d of %d events: %s", have, total, o.sink.err.String())
}

func lineCount(path string) (n int) {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close()
	buf := make([]byte, 256<<10)
	for {
		c, err := f.Read(buf)
		n += bytes.Count(buf[:c], []byte{'\n'})
		if err != nil {
			if !errors.Is(err, io.EOF) {
				return 0
			}
			return n
		}
	}
}

// backlog is the long outage, in less time: what an agent writes at its rate in
// it is written as fast as the wrapper takes it, with no collector there. Then
// the collector is there again, and the wrapper, still the same process, sends
// it all from its log. The sink stands still meanwhile: it comes back to a
// collector that holds the newest third of it, and reads the rest all the same.
func (o *outage) backlog(n int) int {
	o.collector.kill()
	goOn := filepath.Join(o.home, "go-on")
	start := time.Now()
	p := o.startWrapper(0, n, goOn)
	var peak int
	watched := make(chan struct{})
	go func() { o.watch(p, &peak); close(watched) }()
	log := ""
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if paths, _ := filepath.Glob(filepath.Join(o.logs, "rated", "*.jsonl")); len(paths) == 1 {
			log = paths[0]
		}
		if log != "" && lineCount(log) > n {
			break
		}
		if time.Now().After(deadline) {
			o.t.Fatalf("the log has %d of %d events: %s", lineCount(log), n, p.err.String())
		}
	}
	written := time.Since(start)
	fi, err := os.Stat(log)
	if err != nil {
		o.t.Fatal(err)
	}
	size := fi.Size()
	_ = o.sink.Process.Signal(syscall.SIGSTOP)
	o.startCollector()
	o.ready()
	back := time.Now()
	for deadline := time.Now().Add(5 * time.Minute); !acknowledged(log, size); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			o.t.Fatal("the wrapper does not catch up")
		}
	}
	caught := time.Since(back)
	_ = o.sink.Process.Signal(syscall.SIGCONT)
	if err := os.WriteFile(goOn, nil, 0o600); err != nil {
		o.t.Fatal(err)
	}
	<-p.done
	<-watched
	o.peak = max(o.peak, peak)
	o.t.Logf("an outage of %v at %d events a second (%d events, %d MiB, written in %v): caught up %v after its end; the wrapper needed %.1f MiB",
		(time.Duration(n) * time.Second / outageRate).Round(time.Second), outageRate, n, size>>20, written.Round(time.Millisecond), caught.Round(time.Millisecond), float64(peak)/1024)
	return n
}

// acknowledged says whether a log's one sink has taken in so much of it.
func acknowledged(log string, size int64) bool {
	paths, _ := filepath.Glob(strings.TrimSuffix(log, ".jsonl") + ".*.pos")
	if len(paths) != 1 {
		return false
	}
	raw, _ := os.ReadFile(paths[0])
	at, err := event.ParseObject(raw)
	if err != nil {
		return false
	}
	offset, _ := strconv.ParseInt(fmt.Sprint(at["offset"]), 10, 64)
	return offset >= size
}

// round is a few seconds of one or two wrappers, in which everything may be
// killed. It gives how many events the wrappers that were not have told.
func (o *outage) round(rng *rand.Rand) (whole int) {
	const length = 3 * time.Second
	at := func() time.Duration { return time.Duration(rng.Int64N(int64(length))) }
	type blow struct {
		at   time.Duration
		name string
		do   func()
	}
	var blows []blow
	strike := func(name string, chance float64, do func()) {
		if d, hit := at(), rng.Float64() < chance; hit {
			blows = append(blows, blow{d, name, do})
		}
	}
	pause := time.Duration(rng.Int64N(int64(1500 * time.Millisecond)))
	strike("collector", 0.9, func() {
		o.collector.kill()
		time.Sleep(pause)
		o.startCollector()
	})
	strike("sink", 0.4, func() {
		o.sink.kill()
		o.startSink()
	})
	type run struct {
		*process
		count  int
		killed bool
		peak   int
	}
	var runs []*run
	for range 1 + rng.IntN(2) {
		runs = append(runs, &run{count: outageRate * (1 + rng.IntN(3))})
	}
	for _, r := range runs {
		strike("wrapper", 0.5, func() {
			select {
			case <-r.done:
			default:
				r.killed = true
				r.kill()
			}
		})
	}
	slices.SortFunc(blows, func(a, b blow) int { return int(a.at - b.at) })
	var watched sync.WaitGroup
	for _, r := range runs {
		r.process = o.startWrapper(outageRate, r.count, "")
		watched.Go(func() { o.watch(r.process, &r.peak) })
	}
	start := time.Now()
	for _, b := range blows {
		time.Sleep(time.Until(start.Add(b.at)))
		b.do()
		o.kills[b.name]++
	}
	o.ready()
	for _, r := range runs {
		select {
		case <-r.done:
		case <-time.After(patience):
			o.t.Errorf("a wrapper does not end: %s", r.err.String())
			r.kill()
		}
		if !r.killed {
			whole += r.count
			if !r.ProcessState.Success() {
				o.t.Errorf("a wrapper ended with %v: %s", r.ProcessState, r.err.String())
			}
		}
	}
	watched.Wait()
	for _, r := range runs {
		o.peak = max(o.peak, r.peak)
	}
	return whole
}
