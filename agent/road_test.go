package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/event"
	"aep-wrap/queue"
	"aep-wrap/queue/jsonl"
	"aep-wrap/redaction"
	"aep-wrap/session"
)

// plain is an adapter whose payloads are the drafts: {type, key, session, time}.
var plain = adapters.Adapter{
	Name: "plain",
	Map: func(m adapters.Moment) []event.Draft {
		if m.Name == "panic" {
			panic("a fault in a table")
		}
		str := func(k string) string { s, _ := m.Payload[k].(string); return s }
		if str("type") == "" {
			return nil
		}
		d := event.Draft{Header: event.Header{Type: str("type"), Session: str("session"), Run: str("run")}, Key: str("key")}
		if t := str("time"); t != "" {
			d.Time, _ = time.Parse(time.RFC3339Nano, t)
		}
		return []event.Draft{d}
	},
	Logs: func(m adapters.Moment) []adapters.LogFile {
		if p, ok := m.Payload["log"].(string); ok {
			return []adapters.LogFile{{Path: p, Session: "s"}}
		}
		return nil
	},
}

// basket is a Sink that keeps what it is offered.
type basket struct {
	mu    sync.Mutex
	items []queue.Item
	stuck chan struct{} // where set, Offer waits for it

	losses map[string][]queue.Loss
}

func (b *basket) Attach(string, string, *jsonl.Log) error { return nil }
func (b *basket) Done(string, string)                     {}
func (b *basket) Flush(context.Context) error             { return nil }
func (b *basket) TakeLosses(_, session string) []queue.Loss {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := b.losses[session]
	delete(b.losses, session)
	return out
}
func (b *basket) Offer(it queue.Item) {
	if b.stuck != nil {
		<-b.stuck
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.items = append(b.items, it)
}

type told struct {
	mu    sync.Mutex
	lines []string
}

func (s *told) say(l string) { s.mu.Lock(); s.lines = append(s.lines, l); s.mu.Unlock() }

func newTestRoad(t *testing.T, logDir string) (*Road, *basket, *told) {
	t.Helper()
	b, s := &basket{}, &told{}
	return NewRoad(RoadConfig{
		Adapter: plain, Agent: "plain", Host: "h", Session: "launch", Start: time.Now(), LogDir: logDir,
		Gate:  redaction.NewGate(redaction.DefaultPolicy(), redaction.NewPipeline(redaction.Options{})),
		Sinks: []Sink{b}, Say: s.say,
	}), b, s
}

func moment(kv ...string) adapters.Moment {
	p := map[string]any{}
	for i := 0; i < len(kv); i += 2 {
		p[kv[i]] = kv[i+1]
	}
	return adapters.Moment{Channel: adapters.Hook, Name: "m", Payload: p, Time: time.Now()}
}

func exit(t *testing.T, r *Road) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	r.Exit(ctx, session.Exit{})
	if ctx.Err() != nil {
		t.Fatal("the road did not end")
	}
}

// readLog reads a session's log, each line checked alone and all as a stream.
func readLog(t *testing.T, dir, session string) []event.Event {
	t.Helper()
	raw, err := os.ReadFile(jsonl.Path(dir, "plain", session))
	if err != nil {
		t.Fatal(err)
	}
	var out []event.Event
	stream := event.NewStream()
	for line := range bytes.SplitSeq(bytes.TrimSpace(raw), []byte("\n")) {
		e, err := event.Parse(line)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		for _, v := range append(event.Check(e), stream.Add(e)...) {
			t.Errorf("%s: %v", line, v)
		}
		out = append(out, e)
	}
	return out
}

func count(es []event.Event, typ string) (n int) {
	for _, e := range es {
		if e.Type == typ {
			n++
		}
	}
	return n
}

// Whatever many channels bring at once is in the log and in the sink in one
// order, that of seq, each once.
func TestRoadOrder(t *testing.T) {
	dir := t.TempDir()
	r, b, said := newTestRoad(t, dir)
	const writers, each = 8, 250
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				r.Observe(moment("type", "x.plain.thing.seen", "session", "s"+fmt.Sprint(w%2), "key", fmt.Sprint(w, "-", i)), 100)
			}
		})
	}
	wg.Wait()
	exit(t, r)
	if len(said.lines) > 0 {
		t.Errorf("said %q", said.lines)
	}
	total := 0
	for _, s := range []string{"s0", "s1"} {
		es := readLog(t, dir, s)
		if n := count(es, "x.plain.thing.seen"); n != writers/2*each {
			t.Errorf("%s: %d events", s, n)
		}
		if es[0].Type != "session.started" || es[len(es)-1].Type != "session.ended" {
			t.Errorf("%s starts with %s and ends with %s", s, es[0].Type, es[len(es)-1].Type)
		}
		total += len(es)
		at := 0
		for _, it := range b.items {
			if it.Session != s {
				continue
			}
			if it.ID != es[at].ID || it.Position != es[at].Position() {
				t.Fatalf("%s: the sink's %d is %s, the log's %s", s, at, it.ID, es[at].ID)
			}
			line := make([]byte, it.Log.Len)
			f, err := os.Open(it.Log.Path)
			if err != nil {
				t.Fatal(err)
			}
			f.ReadAt(line, it.Log.Off)
			f.Close()
			if string(line) != string(it.Line)+"\n" {
				t.Fatalf("the log's place of %s holds %q", it.ID, line)
			}
			at++
		}
		if at != len(es) {
			t.Errorf("%s: the sink had %d of %d", s, at, len(es))
		}
	}
	if st := r.Stats(); st.Events != int64(total) || st.Dropped != 0 || st.Unlogged != 0 {
		t.Errorf("stats %+v, events %d", st, total)
	}
}

// A session that is wrapped already is told by its owner alone.
func TestRoadOwned(t *testing.T) {
	dir := t.TempDir()
	first, _, _ := newTestRoad(t, dir)
	first.Observe(moment("type", "run.started", "session", "s", "run", "r1", "key", "1"), 0)
	for deadline := time.Now().Add(patience); first.Stats().Events < 2 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	second, b, said := newTestRoad(t, dir)
	for i := range 3 {
		second.Observe(moment("type", "run.started", "session", "s", "run", "r2", "key", fmt.Sprint(i)), 0)
	}
	second.Observe(moment("type", "run.started", "session", "other", "run", "r2"), 0)
	exit(t, second)
	for _, it := range b.items {
		if it.Session == "s" {
			t.Errorf("told: %s", it.Line)
		}
	}
	if len(said.lines) != 1 || !strings.Contains(said.lines[0], "session s is already told by another aep-wrap") {
		t.Errorf("said %q", said.lines)
	}
	exit(t, first)
	if es := readLog(t, dir, "s"); count(es, "run.started") != 1 || count(es, "session.ended") != 1 {
		t.Errorf("%d events", len(es))
	}
	readLog(t, dir, "other")
}

// A session that goes on is told on from its log: a new epoch, facts known
// from before not again.
func TestRoadResumes(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 {
		r, _, _ := newTestRoad(t, dir)
		r.Observe(moment("type", "x.plain.thing.seen", "session", "s", "key", "same"), 0)
		r.Observe(moment("type", "x.plain.thing.seen", "session", "s", "key", fmt.Sprint("new", i)), 0)
		exit(t, r)
	}
	es := readLog(t, dir, "s")
	if n := count(es, "x.plain.thing.seen"); n != 4 {
		t.Errorf("%d facts, want 4", n)
	}
	if n := count(es, "session.ended"); n != 1 {
		t.Errorf("%d ends", n)
	}
	if last := es[len(es)-1]; last.Epoch != 2 || last.Type != "x.aep-wrap.session.exited" {
		t.Errorf("the last is %s of epoch %d", last.Type, last.Epoch)
	}
}

// Without a log events still reach the sinks, and the user hears of it once.
func TestRoadWithoutLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "file")
	os.WriteFile(dir, nil, 0o600)
	r, b, said := newTestRoad(t, dir)
	for i := range 5 {
		r.Observe(moment("type", "x.plain.thing.seen", "session", "s", "key", fmt.Sprint(i)), 0)
	}
	exit(t, r)
	if len(b.items) != 7 {
		t.Fatalf("%d events reached the sink", len(b.items))
	}
	for _, it := range b.items {
		if it.Log.Path != "" || it.Position.Epoch == 0 {
			t.Errorf("%s: log %v, epoch %d; want no log, and the start time", it.ID, it.Log, it.Position.Epoch)
		}
	}
	if len(said.lines) != 1 || !strings.Contains(said.lines[0], "cannot write the session log") {
		t.Errorf("said %q", said.lines)
	}
	if r.Stats().Unlogged != 7 {
		t.Errorf("stats %+v", r.Stats())
	}
}

// Refused inputs are told in the session, rarely when they are many, and never
// with a word of what they were.
func TestRoadRefusals(t *testing.T) {
	dir := t.TempDir()
	r, _, _ := newTestRoad(t, dir)
	r.ObserveLine(adapters.Stream, "s", []byte(`{"torn`)) // before there is a session
	r.Observe(moment("type", "run.started", "session", "s", "run", "r"), 0)
	r.Observe(adapters.Moment{Channel: adapters.Hook, Name: "panic", Payload: map[string]any{}}, 10)
	r.Refuse(Refusal{Channel: adapters.Hook, Name: "secret words\nand more", Reason: "not_json", Bytes: 3})
	for range 1000 {
		r.Refuse(Refusal{Channel: adapters.Hook, Name: "E", Reason: "not_json"})
	}
	exit(t, r)
	es := readLog(t, dir, "s")
	if es[0].Type != "session.started" {
		t.Errorf("starts with %s", es[0].Type)
	}
	var datas []string
	for _, e := range es {
		if e.Type == "x.aep-wrap.input.refused" {
			datas = append(datas, string(e.Data))
		}
	}
	if len(datas) > 45 || len(datas) < 35 {
		t.Errorf("%d refusals told of 1003", len(datas))
	}
	all := strings.Join(datas, "\n")
	for _, want := range []string{`"channel":"stream"`, `"reason":"adapter_fault"`, `"name":"E"`, `"count":512`} {
		if !strings.Contains(all, want) {
			t.Errorf("not told: %s\n%s", want, all)
		}
	}
	if strings.Contains(all, "secret") {
		t.Error(all)
	}
	if r.Stats().Refused != 1003 {
		t.Errorf("stats %+v", r.Stats())
	}
}

// What a session log tells of before the launch is history.
func TestRoadHistory(t *testing.T) {
	dir := t.TempDir()
	r, _, _ := newTestRoad(t, dir)
	line := func(key string, at time.Time) []byte {
		b, _ := json.Marshal(map[string]string{"type": "x.plain.thing.seen", "key": key, "time": at.UTC().Format("2006-01-02T15:04:05.000Z")})
		return b
	}
	r.ObserveLine(adapters.Transcript, "s", line("old", r.cfg.Start.Add(-time.Hour)))
	r.ObserveLine(adapters.Transcript, "s", line("same", r.cfg.Start))
	r.ObserveLine(adapters.Transcript, "s", line("new", r.cfg.Start.Add(time.Hour)))
	exit(t, r)
	if n := count(readLog(t, dir, "s"), "x.plain.thing.seen"); n != 2 {
		t.Errorf("%d told, want 2", n)
	}
}

func TestRoadFollows(t *testing.T) {
	r, _, _ := newTestRoad(t, t.TempDir())
	var files []adapters.LogFile
	r.cfg.Follow = func(f adapters.LogFile) { files = append(files, f) }
	r.Observe(moment("log", "/x"), 0)
	m := moment("log", "/y")
	m.Channel = adapters.Transcript
	r.Observe(m, 0)
	exit(t, r)
	if len(files) != 1 || files[0].Path != "/x" {
		t.Errorf("followed %v", files)
	}
}

// A road that is held up holds a hook no longer than its patience; what found
// no room is told.
func TestRoadHeldUp(t *testing.T) { synctest.Test(t, roadHeldUp) }

func roadHeldUp(t *testing.T) {
	dir := t.TempDir()
	r, b, _ := newTestRoad(t, dir)
	b.stuck = make(chan struct{})
	r.Observe(moment("type", "run.started", "session", "s", "run", "r"), 0)
	synctest.Wait()
	start := time.Now()
	for i := 0; r.Stats().Dropped < 2; i++ {
		if i > inboxCount+10 {
			t.Fatal("the inbox has no bound")
		}
		r.Observe(moment("type", "x.plain.thing.seen", "session", "s", "key", fmt.Sprint(i)), 0)
	}
	if d := time.Since(start); d != 2*hookPatience {
		t.Errorf("hooks were held up %v", d)
	}
	// The bytes have a bound too.
	r.Observe(moment("type", "x.plain.thing.seen", "session", "big", "key", "1"), inboxBytes)
	synctest.Wait()
	for i := range 3 {
		r.Observe(moment("type", "x.plain.thing.seen", "session", "big", "key", fmt.Sprint("b", i)), inboxBytes/2+1)
	}
	if n := r.Stats().Dropped; n < 4 {
		t.Errorf("%d dropped", n)
	}
	close(b.stuck)
	r.Observe(moment("type", "x.plain.thing.seen", "session", "s", "key", "after"), 0)
	exit(t, r)
	es := readLog(t, dir, "s")
	if n := count(es, "x.aep-wrap.queue.dropped"); n != 1 {
		t.Errorf("told %d times of what found no room", n)
	}
}

// What a sink lost of a session is told in it, and not again and again.
func TestRoadTellsLosses(t *testing.T) {
	dir := t.TempDir()
	r, b, _ := newTestRoad(t, dir)
	lost := func(reason string, n int) []queue.Loss {
		return []queue.Loss{{Agent: "plain", Session: "s", Reason: reason, Events: map[event.Severity]int{event.Debug: n, event.Notice: 1}}}
	}
	b.losses = map[string][]queue.Loss{"s": lost("too-large", 2)}
	r.Observe(moment("type", "run.started", "session", "s", "run", "r"), 0)
	for deadline := time.Now().Add(patience); r.Stats().Events < 3 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	for i := range 20 {
		b.mu.Lock()
		b.losses["s"] = lost("refused", i)
		b.mu.Unlock()
		r.Observe(moment("type", "x.plain.thing.seen", "session", "s", "key", fmt.Sprint(i)), 0)
	}
	exit(t, r)
	var got []string
	for _, e := range readLog(t, dir, "s") {
		if e.Type == "x.aep-wrap.queue.dropped" {
			got = append(got, string(e.Data))
		}
	}
	want := []string{
		`{"reason":"too-large","dropped":3,"by_severity":{"debug":2,"notice":1}}`,
		`{"reason":"refused","dropped":20,"by_severity":{"debug":19,"notice":1}}`,
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("told %s, want %s", got, want)
	}
}

// Sessions without end do not become lanes without end.
func TestRoadManySessions(t *testing.T) {
	dir := t.TempDir()
	r, _, _ := newTestRoad(t, dir)
	const n = maxLanes + 50
	for i := range n {
		s := fmt.Sprint("s", i)
		r.Observe(moment("type", "session.ended", "session", s), 0)
		if i >= maxLanes-1 {
			for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
				if r.Stats().Events >= int64(2*(i+1)) {
					break
				}
			}
		}
	}
	r.Observe(moment("type", "x.plain.thing.seen", "session", "s0", "key", "late"), 0)
	if got := len(r.lanes); got > maxLanes {
		t.Errorf("%d lanes", got)
	}
	if got := len(r.Sessions()); got != n {
		t.Errorf("%d sessions, want %d", got, n)
	}
	exit(t, r)
	if es := readLog(t, dir, "s0"); count(es, "x.plain.thing.seen") != 1 {
		t.Errorf("a late word of a parked session is lost: %d events", len(es))
	}
	if d := r.Stats().Dropped; d != 0 {
		t.Errorf("%d dropped", d)
	}
}

// A session that is spoken of again while its lane, which was given up, still
// writes, is told on when that is done, however long that takes: nobody else has
// it.
func TestRoadSpeaksAgainOfAParkedSession(t *testing.T) {
	synctest.Test(t, roadSpeaksAgainOfAParkedSession)
}

func roadSpeaksAgainOfAParkedSession(t *testing.T) {
	dir := t.TempDir()
	r, b, said := newTestRoad(t, dir)
	b.stuck = make(chan struct{})
	for i := range maxLanes {
		s, typ := fmt.Sprint("s", i), "x.plain.thing.seen"
		if i < 2 {
			typ = "session.ended"
		}
		r.Observe(moment("type", typ, "session", s, "key", s), 0)
	}
	synctest.Wait() // all are about to offer what they have written
	r.Observe(moment("type", "x.plain.thing.seen", "session", "another", "key", "1"), 0)
	r.Observe(moment("type", "x.plain.thing.seen", "session", "s0", "key", "late"), 0)
	time.Sleep(time.Minute)
	close(b.stuck)
	exit(t, r)
	if es := readLog(t, dir, "s0"); count(es, "x.plain.thing.seen") != 1 || len(said.lines) > 0 {
		t.Errorf("%d events, said %q", len(es), said.lines)
	}
}

// What the agent wrote before it ended is read, however slowly it is taken in.
func TestLinesPipeSlow(t *testing.T) {
	r, _, _ := newTestRoad(t, t.TempDir())
	defer exit(t, r)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close() // a descendant that keeps it
	l := r.NewLines(adapters.Drafts, "s")
	got := 0
	l.cut.tell = func([]byte) { got++; time.Sleep(100 * time.Microsecond) }
	stop, done := make(chan struct{}), make(chan struct{})
	go func() { l.ReadPipe(read, stop); close(done) }()
	const lines = 2000
	line := `{"pad":"` + strings.Repeat("x", 90) + "\"}\n"
	for range lines {
		if _, err := write.WriteString(line); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-done
	if got != lines {
		t.Errorf("%d of %d lines were taken in", got, lines)
	}
}

func TestLinesPipe(t *testing.T) {
	dir := t.TempDir()
	r, _, _ := newTestRoad(t, dir)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer write.Close() // a descendant that keeps it
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() { r.NewLines(adapters.Drafts, "s").ReadPipe(read, stop); close(done) }()
	write.WriteString(`{"type":"run.started","run":"r"}` + "\n" + `{"type":"x.plain.thing.seen"}`)
	close(stop)
	select {
	case <-done:
	case <-time.After(patience):
		t.Fatal("the pipe is waited for without end")
	}
	exit(t, r)
	if es := readLog(t, dir, "s"); count(es, "run.started") != 1 || count(es, "x.plain.thing.seen") != 1 {
		t.Errorf("%d events", len(es))
	}
}
