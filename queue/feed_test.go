package queue

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// source is a session with its log, that offers to feeds.
type source struct {
	t       *testing.T
	session string
	log     *jsonl.Log
	n       int
}

func newSource(t *testing.T, root, session string) *source {
	t.Helper()
	l, err := jsonl.Open(root, "a", session)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return &source{t: t, session: session, log: l}
}

func (s *source) item(severity event.Severity, pad int) Item {
	it := Item{Agent: "a", Session: s.session, ID: fmt.Sprintf("%s-%d", s.session, s.n), Severity: severity, Sequenced: true, Position: event.Position{Seq: int64(s.n)}}
	it.Line = fmt.Appendf(nil, `{"id":%q,"type":"progress.status","agent":"a","session":%q,"seq":%d,"severity":%q,"data":{"pad":%q}}`, it.ID, s.session, s.n, severity, strings.Repeat("p", pad))
	s.n++
	return it
}

// logged makes n events, logs and offers them.
func (s *source) logged(f *Feed, n int) {
	s.t.Helper()
	for range n {
		it := s.item(event.Info, 100)
		ref, err := s.log.Append(it.Line)
		if err != nil {
			s.t.Fatal(err)
		}
		it.Log = ref
		f.Offer(it)
	}
}

func newFeed(t *testing.T, o Options) *Feed {
	t.Helper()
	f := NewFeed(o)
	t.Cleanup(func() { f.Close() })
	return f
}

func next(t *testing.T, f *Feed, events int) Batch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	b, err := f.Next(ctx, events, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func none(t *testing.T, f *Feed) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if b, err := f.Next(ctx, 10, 1<<20); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v %v, want nothing", ids(b), err)
	}
}

func ids(b Batch) (out []string) {
	for _, it := range b.Items {
		out = append(out, it.ID)
	}
	return out
}

// all takes and acknowledges everything until n events came.
func all(t *testing.T, f *Feed, n int) (got []string) {
	t.Helper()
	for len(got) < n {
		b := next(t, f, 7)
		got = append(got, ids(b)...)
		if err := f.Ack(b); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

func want(t *testing.T, got []string, session string, from, to int) {
	t.Helper()
	i := from
	for _, id := range got {
		if !strings.HasPrefix(id, session+"-") {
			continue
		}
		if id != fmt.Sprintf("%s-%d", session, i) {
			t.Fatalf("%s comes where %s-%d should: %v", id, session, i, got)
		}
		i++
	}
	if i != to {
		t.Fatalf("%s ends before %d, want %d: %v", session, i, to, got)
	}
}

func TestOrderAndBounds(t *testing.T) {
	root := t.TempDir()
	f := newFeed(t, Options{Sink: "x"})
	a, b := newSource(t, root, "A"), newSource(t, root, "B")
	for range 5 {
		a.logged(f, 2)
		b.logged(f, 1)
	}
	one := next(t, f, 4)
	if len(one.Items) != 4 {
		t.Fatalf("a batch of %d", len(one.Items))
	}
	ctx := t.Context()
	two, err := f.Next(ctx, 100, int64(len(one.Items[0].Line)*2+10))
	if err != nil || len(two.Items) != 2 {
		t.Fatalf("a batch of %d for two lines' bytes: %v", len(two.Items), err)
	}
	small, err := f.Next(ctx, 1, 1)
	if err != nil || len(small.Items) != 1 {
		t.Fatalf("one event always fits: %v %v", small, err)
	}
	got := append(append(ids(one), ids(two)...), ids(small)...)
	for _, x := range []Batch{one, two, small} {
		_ = f.Ack(x)
	}
	got = append(got, all(t, f, 8)...)
	want(t, got, "A", 0, 10)
	want(t, got, "B", 0, 5)
	none(t, f)
	if s := f.Stats(); s.Events != 0 || s.Bytes != 0 || s.Acked != 15 || s.Offered != 15 {
		t.Errorf("%+v", s)
	}
}

func TestBehindReadsOnFromTheLog(t *testing.T) {
	f := newFeed(t, Options{Sink: "x", MaxEvents: 10, MaxBytes: 1 << 20})
	a := newSource(t, t.TempDir(), "A")
	a.logged(f, 1000)
	s := f.Stats()
	if s.Events != 10 || s.BehindBytes == 0 || len(s.Dropped) != 0 {
		t.Fatalf("%+v", s)
	}
	got := all(t, f, 500)
	a.logged(f, 500) // while behind
	got = append(got, all(t, f, 1500-len(got))...)
	want(t, got, "A", 0, 1500)
	a.logged(f, 3) // caught up: from memory again
	if s := f.Stats(); s.Events != 3 || s.BehindBytes != 0 {
		t.Errorf("%+v", s)
	}
	want(t, all(t, f, 3), "A", 1500, 1503)
	none(t, f)
	if l := f.TakeLosses("", ""); len(l) != 0 {
		t.Errorf("lost %v", l)
	}
}

func TestBytesBoundTheWindow(t *testing.T) {
	f := newFeed(t, Options{MaxBytes: 1000})
	a := newSource(t, t.TempDir(), "A")
	a.logged(f, 50)
	if s := f.Stats(); s.Bytes > 1000 || s.Events == 0 {
		t.Errorf("%+v", s)
	}
	want(t, all(t, f, 50), "A", 0, 50)
}

// TestTheBehindDoesNotStarve has one session that is always at work, and one
// that is behind: both move.
func TestTheBehindDoesNotStarve(t *testing.T) {
	root := t.TempDir()
	f := newFeed(t, Options{MaxEvents: 20})
	a, b := newSource(t, root, "A"), newSource(t, root, "B")
	b.logged(f, 200)
	var got []string
	for range 80 {
		a.logged(f, 1)
		x := next(t, f, 10)
		got = append(got, ids(x)...)
		_ = f.Ack(x)
	}
	want(t, got, "B", 0, 200)
	got = append(got, all(t, f, 280-len(got))...)
	want(t, got, "A", 0, 80)
}

func TestNack(t *testing.T) {
	for _, window := range []int{1000, 3} { // from memory; mostly from the log
		t.Run(fmt.Sprint(window), func(t *testing.T) {
			f := newFeed(t, Options{MaxEvents: window})
			a := newSource(t, t.TempDir(), "A")
			a.logged(f, 20)
			one, two, three := next(t, f, 3), next(t, f, 3), next(t, f, 3)
			want(t, append(append(ids(one), ids(two)...), ids(three)...), "A", 0, 9)
			_ = f.Ack(three) // out of turn: nothing before it is done
			f.Nack(one)
			f.Nack(two) // went back with one
			_ = f.Ack(two)
			got := all(t, f, 17)
			if len(got) != 17 { // 0..5 again, 9..19; three was taken in
				t.Fatalf("%v", got)
			}
			want(t, append(got[:6:6], ids(three)...), "A", 0, 9)
			want(t, got[6:], "A", 9, 20)
			none(t, f)
			if s := f.Stats(); s.Events != 0 || s.Bytes != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}

func TestShedding(t *testing.T) {
	losses := 0
	f := newFeed(t, Options{LooseEvents: 10, OnLoss: func() { losses++ }})
	s := &source{t: t, session: "A"}
	severities := []event.Severity{event.Debug, event.Info, event.Notice}
	for i := range 30 { // debug, info, notice, debug, …
		f.Offer(s.item(severities[i%3], 1))
	}
	if n := f.Stats().LooseEvents; n != 20 { // every info, every notice
		t.Fatalf("%d in memory", n)
	}
	for range 10 { // beyond the room that notice and above have of their own
		f.Offer(s.item(event.Notice, 1))
	}
	if n := f.Stats().LooseEvents; n != 20 {
		t.Fatalf("%d in memory", n)
	}
	f.Offer(s.item(event.Debug, 1)) // no room: the oldest debug is itself
	f.Offer(s.item(event.Error, 1)) // in the place of the oldest notice
	b := next(t, f, 100)
	_ = f.Ack(b)
	var info, notice, errs int
	for i, it := range b.Items {
		switch it.Severity {
		case event.Info:
			info++
		case event.Notice:
			notice++
		case event.Error:
			errs++
		default:
			t.Errorf("%s %v stayed", it.ID, it.Severity)
		}
		if i > 0 && b.Items[i-1].Position.Seq >= it.Position.Seq {
			t.Errorf("%d after %d", it.Position.Seq, b.Items[i-1].Position.Seq)
		}
	}
	if info != 10 || notice != 9 || errs != 1 {
		t.Errorf("%d info, %d notices, %d errors", info, notice, errs)
	}
	got := f.TakeLosses("a", "A")
	if len(got) != 1 || got[0].Reason != ReasonFull || got[0].Events[event.Debug] != 11 || got[0].Events[event.Info] != 0 || got[0].Events[event.Notice] != 11 || got[0].Total() != 22 {
		t.Errorf("%v", got)
	}
	if losses != 22 || len(f.TakeLosses("", "")) != 0 {
		t.Errorf("%d calls", losses)
	}
	if d := f.Stats().Dropped; d[Dropped{event.Debug, ReasonFull}] != 11 || d[Dropped{event.Notice, ReasonFull}] != 11 {
		t.Errorf("%v", d)
	}
}

func TestALossIsTold(t *testing.T) {
	d := Loss{Agent: "a", Session: "s", Reason: ReasonFull, Events: map[event.Severity]int{event.Debug: 2, event.Notice: 1, event.Error: 0}}.Draft()
	if d.Type != "x.aep-wrap.queue.dropped" || d.Severity < event.Notice || d.Fields.Str("reason") != ReasonFull || d.Fields.Get("dropped") != 3 {
		t.Errorf("%+v", d)
	}
	if debug, errs := d.Fields.Get("by_severity", "debug"), d.Fields.Get("by_severity", "error"); debug != 2 || errs != nil {
		t.Errorf("debug %v, error %v", debug, errs)
	}
}

// TestShedsTheOldest is the order of AEP-0003 §8.4: debug before info, the
// oldest first, whatever is logged between them.
func TestShedsTheOldest(t *testing.T) {
	f := newFeed(t, Options{LooseEvents: 3})
	s := newSource(t, t.TempDir(), "A")
	for _, v := range []event.Severity{event.Info, event.Debug, event.Info, event.Debug, event.Info} {
		f.Offer(s.item(v, 1)) // 0 2 4
		s.logged(f, 1)        // 1 3 5
	}
	var got []string
	for _, it := range next(t, f, 100).Items {
		got = append(got, it.ID)
	}
	if fmt.Sprint(got) != "[A-0 A-1 A-3 A-4 A-5 A-7 A-8 A-9]" { // 2 and 6 were debug
		t.Errorf("got %v", got)
	}
}

// TestStretchesStayFew alternates logged and unlogged events over a long
// outage: what is in memory stays bounded.
func TestStretchesStayFew(t *testing.T) {
	f := newFeed(t, Options{MaxEvents: 5, LooseEvents: 5})
	s := newSource(t, t.TempDir(), "A")
	for range 3000 {
		s.logged(f, 1)
		f.Offer(s.item(event.Debug, 1))
	}
	f.mu.Lock()
	l := f.lane("a", "A")
	if n := len(l.q); n > 200 {
		t.Errorf("%d entries", n)
	}
	if n := len(f.waiting[0]); n > 200 {
		t.Errorf("%d wait", n)
	}
	f.mu.Unlock()
	got := all(t, f, 3005)
	last := -1
	for _, id := range got {
		var n int
		fmt.Sscanf(id, "A-%d", &n)
		if n <= last {
			t.Fatalf("%d after %d", n, last)
		}
		last = n
	}
}

func TestUnloggedDoNotPileUp(t *testing.T) {
	f := newFeed(t, Options{})
	s := &source{t: t, session: "A"}
	for range 5000 {
		f.Offer(s.item(event.Info, 1))
		_ = f.Ack(next(t, f, 10))
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if n := len(f.waiting[index(event.Info)]); n > 100 {
		t.Errorf("%d entries wait to be shed, of none in memory", n)
	}
	if f.loose != (amount{}) {
		t.Errorf("%+v", f.loose)
	}
}

func TestRestart(t *testing.T) {
	root := t.TempDir()
	f := NewFeed(Options{Sink: "x"})
	a := newSource(t, root, "A")
	if err := f.Attach("a", "A", a.log); err != nil {
		t.Fatal(err)
	}
	a.logged(f, 10)
	_ = f.Ack(next(t, f, 4))
	next(t, f, 4) // out, never acknowledged
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Next(t.Context(), 1, 1); !errors.Is(err, ErrClosed) {
		t.Errorf("next after close: %v", err)
	}
	f.Offer(a.item(event.Info, 1))
	a.n--

	f = newFeed(t, Options{Sink: "x"})
	if err := f.Attach("a", "A", a.log); err != nil {
		t.Fatal(err)
	}
	a.logged(f, 5)
	want(t, all(t, f, 11), "A", 4, 15)
	none(t, f)

	// The same session again, in the same process: nothing twice.
	a.logged(f, 2)
	if err := f.Attach("a", "A", a.log); err != nil {
		t.Fatal(err)
	}
	want(t, all(t, f, 2), "A", 15, 17)
	none(t, f)

	// Another place has taken in nothing yet.
	other := newFeed(t, Options{Sink: "y"})
	if err := other.Attach("a", "A", a.log); err != nil {
		t.Fatal(err)
	}
	want(t, all(t, other, 17), "A", 0, 17)
}

func TestPositionsAreSavedInTime(t *testing.T) {
	f := newFeed(t, Options{Sink: "x", SaveEvery: 10 * time.Millisecond})
	a := newSource(t, t.TempDir(), "A")
	_ = f.Attach("a", "A", a.log)
	a.logged(f, 3)
	_ = f.Ack(next(t, f, 2))
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if p, ok, _ := jsonl.LoadPosition(a.log.Path(), "x"); ok && p.ID == "A-1" && p.Seq == 1 {
			return
		}
	}
	t.Error("the position was not saved")
}

func TestResume(t *testing.T) {
	root := t.TempDir()
	f := NewFeed(Options{Sink: "x"})
	live, dead, private, done := newSource(t, root, "live"), newSource(t, root, "dead"), newSource(t, root, "private"), newSource(t, root, "done")
	for _, s := range []*source{live, dead, done} {
		_ = f.Attach("a", s.session, s.log)
	}
	done.logged(f, 3)
	_ = f.Ack(next(t, f, 3))
	live.logged(f, 3)
	dead.logged(f, 3)
	for range 3 { // never meant for this sink
		_, _ = private.log.Append(private.item(event.Info, 1).Line)
	}
	f.Close()
	for _, s := range []*source{dead, private, done} {
		s.log.Close()
	}
	torn, _ := os.OpenFile(dead.log.Path(), os.O_APPEND|os.O_WRONLY, 0)
	_, _ = torn.WriteString(`{"type":"control.cancel","session":"dead","id":"cmd"}` + "\n" + `{"id":"half`)
	torn.Close()

	f = newFeed(t, Options{Sink: "x", SaveEvery: 10 * time.Millisecond})
	if n, err := f.Resume(root); err != nil || n != 2 { // dead, and live, whose lock is still to be seen
		t.Errorf("found %d: %v", n, err)
	}
	if n, _ := f.Resume(root); n != 0 {
		t.Errorf("found %d again", n)
	}
	want(t, all(t, f, 3), "dead", 0, 3)
	none(t, f)
	sending := func() []string { left, _ := filepath.Glob(filepath.Join(root, "a", "*.sending")); return left }
	for end := time.Now().Add(time.Minute); (f.Stats().Sessions != 0 || len(sending()) != 0) && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
	if s, left := f.Stats(), sending(); s.Sessions != 0 || len(left) != 0 {
		t.Errorf("the session is not let go: %+v, left %v", s, left)
	}
	// Its owner comes back and goes on, with nothing twice.
	back, err := jsonl.Open(root, "a", "dead")
	if err != nil {
		t.Fatal(err)
	}
	dead.log = back
	_ = f.Attach("a", "dead", back)
	dead.logged(f, 2)
	want(t, all(t, f, 2), "dead", 3, 5)
	back.Close()
}

// TestAgentEventsGoTheirLogsWay: agent.* events name no session, but stand in
// a session's log. They do not move its position past what is still to come.
func TestAgentEventsGoTheirLogsWay(t *testing.T) {
	root := t.TempDir()
	f := NewFeed(Options{Sink: "x"})
	a, b := newSource(t, root, "A"), newSource(t, root, "B")
	for _, s := range []*source{a, b} {
		_ = f.Attach("a", s.session, s.log)
		s.logged(f, 3)
		it := Item{Agent: "a", ID: "idle-" + s.session, Line: fmt.Appendf(nil, `{"id":"idle-%s","type":"agent.idle","agent":"a"}`, s.session)}
		it.Log, _ = s.log.Append(it.Line)
		f.Offer(it)
		s.logged(f, 2)
	}
	got := ids(next(t, f, 5))
	if fmt.Sprint(got) != "[A-0 A-1 A-2 idle-A A-3]" {
		t.Fatalf("%v", got)
	}
	if s := f.Stats(); s.LooseEvents != 0 || s.Sessions != 2 {
		t.Errorf("%+v", s)
	}
	second := next(t, f, 3)
	if fmt.Sprint(ids(second)) != "[B-0 B-1 B-2]" {
		t.Fatalf("%v", ids(second))
	}
	_ = f.Ack(second) // A's first five are still out
	f.Close()
	f = newFeed(t, Options{Sink: "x"})
	for _, s := range []*source{a, b} {
		_ = f.Attach("a", s.session, s.log)
	}
	if got := all(t, f, 9); fmt.Sprint(got) != "[A-0 A-1 A-2 idle-A A-3 A-4 idle-B B-3 B-4]" {
		t.Errorf("%v", got)
	}
}

func TestAnOwnerComesBackWhileItsLogIsSentOn(t *testing.T) {
	root := t.TempDir()
	f := NewFeed(Options{Sink: "x"})
	a := newSource(t, root, "A")
	_ = f.Attach("a", "A", a.log)
	a.logged(f, 4)
	f.Close()
	a.log.Close()
	f = newFeed(t, Options{Sink: "x"})
	_, _ = f.Resume(root)
	out := next(t, f, 2)
	a.log, _ = jsonl.Open(root, "a", "A")
	defer a.log.Close()
	_ = f.Attach("a", "A", a.log)
	a.logged(f, 2)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := f.Drained(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("its events are not waited for: %v", err)
	}
	_ = f.Ack(out)
	want(t, append(ids(out), all(t, f, 4)...), "A", 0, 6)
	none(t, f)
}

func TestTwoProcessesResumeOnce(t *testing.T) {
	root := t.TempDir()
	a := newSource(t, root, "A")
	f := NewFeed(Options{Sink: "x"})
	_ = f.Attach("a", "A", a.log)
	a.logged(f, 5)
	f.Close()
	a.log.Close()
	one, two := newFeed(t, Options{Sink: "x"}), newFeed(t, Options{Sink: "x"})
	_, _ = one.Resume(root)
	_, _ = two.Resume(root)
	b := next(t, one, 100)
	none(t, two)
	want(t, ids(b), "A", 0, 5)
	// A session that is being sent on can still be resumed by its user.
	l, err := jsonl.Open(root, "a", "A")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestALogThatGoesAway(t *testing.T) {
	var said bytes.Buffer
	f := newFeed(t, Options{MaxEvents: 2, Log: slog.New(slog.NewTextHandler(&said, nil))})
	a := newSource(t, t.TempDir(), "A")
	a.logged(f, 10)
	_ = os.Remove(a.log.Path())
	want(t, all(t, f, 2), "A", 0, 2)
	none(t, f)
	if l := f.TakeLosses("a", "A"); len(l) != 1 || l[0].Reason != ReasonUnreadable || l[0].Events[event.Info] != 8 {
		t.Errorf("%v", l)
	}
	if !strings.Contains(said.String(), a.log.Path()) {
		t.Errorf("said %q", said.String())
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := f.Drained(ctx); err != nil {
		t.Errorf("not drained: %v", err)
	}
}

func TestALogThatCannotBeReadNow(t *testing.T) {
	var said bytes.Buffer
	f := newFeed(t, Options{MaxEvents: 2, Log: slog.New(slog.NewTextHandler(&said, nil))})
	root := t.TempDir()
	a, b := newSource(t, root, "A"), newSource(t, root, "B")
	a.logged(f, 10)
	path := a.log.Path()
	_ = os.Rename(path, path+".away")
	_ = os.Mkdir(path, 0o700) // opens, and cannot be read
	got := all(t, f, 2)
	none(t, f)
	b.logged(f, 3) // the others go on
	want(t, all(t, f, 3), "B", 0, 3)
	_ = os.Remove(path)
	_ = os.Rename(path+".away", path)
	want(t, append(got, all(t, f, 8)...), "A", 0, 10)
	if l := f.TakeLosses("", ""); len(l) != 0 || strings.Count(said.String(), "trying again") != 1 {
		t.Errorf("lost %v, said %s", l, said.String())
	}
}

func TestGarbageInALogIsPassedOverAndCounted(t *testing.T) {
	f := newFeed(t, Options{MaxEvents: 1})
	a := newSource(t, t.TempDir(), "A")
	a.logged(f, 2)
	_, _ = a.log.Append([]byte("garbage"))
	_, _ = a.log.Append([]byte(`{"type":"control.pause","session":"A","id":"cmd"}`))
	a.logged(f, 2)
	want(t, all(t, f, 4), "A", 0, 4)
	if l := f.TakeLosses("a", "A"); len(l) != 1 || l[0].Total() != 1 || l[0].Reason != ReasonUnreadable {
		t.Errorf("%v", l)
	}
}

func TestDrainedAndDone(t *testing.T) {
	f := newFeed(t, Options{})
	a := newSource(t, t.TempDir(), "A")
	if err := f.Drained(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.logged(f, 4)
	got := make(chan error, 1)
	go func() { got <- f.Drained(context.Background()) }()
	b := next(t, f, 10)
	select {
	case err := <-got:
		t.Fatalf("drained with a batch out: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	f.Done("a", "A")
	_ = f.Ack(b)
	if err := <-got; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	a.logged(f, 1)
	if err := f.Drained(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("drained: %v", err)
	}
	go func() { got <- f.Drained(context.Background()) }()
	time.Sleep(5 * time.Millisecond)
	f.Close()
	if err := <-got; !errors.Is(err, ErrClosed) {
		t.Errorf("drained after close: %v", err)
	}
}

// TestManySessionsAtOnce offers from many goroutines while a moody consumer
// takes, gives back and acknowledges: nothing is lost, nothing doubled after
// dedupe, and each session stays in order.
func TestManySessionsAtOnce(t *testing.T) {
	const sessions, events = 20, 300
	root := t.TempDir()
	f := newFeed(t, Options{Sink: "x", MaxEvents: 50, SaveEvery: time.Millisecond})
	var wg sync.WaitGroup
	for i := range sessions {
		s := newSource(t, root, fmt.Sprintf("s%d", i))
		_ = f.Attach("a", s.session, s.log)
		wg.Go(func() {
			for range events {
				s.logged(f, 1)
			}
			f.Done("a", s.session)
		})
	}
	r := rand.New(rand.NewPCG(1, 2))
	last := map[string]int64{}
	taken := 0
	for taken < sessions*events {
		b := next(t, f, 1+r.IntN(60))
		if r.IntN(3) == 0 {
			f.Nack(b)
			continue
		}
		for _, it := range b.Items {
			if p, ok := last[it.Session]; ok && it.Position.Seq != p+1 || !ok && it.Position.Seq != 0 {
				t.Fatalf("%s: %d after %d", it.Session, it.Position.Seq, p)
			}
			last[it.Session] = it.Position.Seq
			taken++
		}
		_ = f.Ack(b)
	}
	wg.Wait()
	if s := f.Stats(); s.Events != 0 || s.Bytes != 0 || s.BehindBytes != 0 || len(s.Dropped) != 0 {
		t.Errorf("%+v", s)
	}
}

func BenchmarkOfferNextAck(b *testing.B) {
	f := NewFeed(Options{})
	defer f.Close()
	l, err := jsonl.Open(b.TempDir(), "a", "s")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	line := bytes.Repeat([]byte("x"), 420)
	ctx := context.Background()
	b.ReportAllocs()
	off := int64(0)
	n := 0
	for b.Loop() {
		f.Offer(Item{Agent: "a", Session: "s", ID: "01JX9YB3P4T90000000000GOLD", Sequenced: true, Line: line, Log: Ref{Path: l.Path(), Off: off, Len: 421}})
		off += 421
		if n++; n%500 == 0 {
			batch, err := f.Next(ctx, 1000, 1<<20)
			if err != nil {
				b.Fatal(err)
			}
			_ = f.Ack(batch)
		}
	}
}

func BenchmarkBehind(b *testing.B) {
	s := &source{session: "A"}
	l, err := jsonl.Open(b.TempDir(), "a", "A")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	var lines [][]byte
	for range 10000 {
		lines = append(lines, s.item(event.Info, 300).Line)
	}
	if _, err := l.AppendBatch(nil, lines); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(l.Size())
	b.ReportAllocs()
	for b.Loop() {
		f := NewFeed(Options{})
		if err := f.Attach("a", "A", l); err != nil {
			b.Fatal(err)
		}
		for n := 0; n < len(lines); {
			batch, err := f.Next(context.Background(), 1000, 1<<20)
			if err != nil {
				b.Fatal(err)
			}
			n += len(batch.Items)
			_ = f.Ack(batch)
		}
		f.Close()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(lines)), "ns/event")
}

// How long something waits is told from the last acknowledgement on, whatever
// is offered meanwhile.
func TestWaiting(t *testing.T) {
	root := t.TempDir()
	f := NewFeed(Options{})
	defer f.Close()
	s := newSource(t, root, "s")
	s.logged(f, 1)
	if err := f.Attach("a", "s", s.log); err != nil { // a stretch of log to be read
		t.Fatal(err)
	}
	time.Sleep(30 * time.Millisecond)
	s.logged(f, 3)
	if w := f.Waiting(); w < 30*time.Millisecond {
		t.Errorf("waits for %v", w)
	}
	for f.Waiting() > 0 {
		b, err := f.Next(t.Context(), 1, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		before := time.Now()
		if err := f.Ack(b); err != nil {
			t.Fatal(err)
		}
		if w := f.Waiting(); w > time.Since(before) {
			t.Fatalf("waits for %v after an acknowledgement", w)
		}
	}
	before := time.Now()
	s.logged(f, 1)
	if w := f.Waiting(); w <= 0 || w > time.Since(before) {
		t.Errorf("waits for %v", w)
	}
}

// What is read from a log begins slowly, doubles each second, and stays within
// the pace; what is in memory is not held back. In a bubble, where nothing but the
// pace takes time.
func TestPace(t *testing.T) { synctest.Test(t, pace) }

func pace(t *testing.T) {
	f := newFeed(t, Options{MaxEvents: 100, Pace: 2000})
	s := newSource(t, t.TempDir(), "A")
	s.logged(f, 5000)
	start := time.Now()
	var got []string
	at := func(n int) time.Duration {
		for len(got) < n {
			b := next(t, f, 1000)
			got = append(got, ids(b)...)
			_ = f.Ack(b)
		}
		return time.Since(start)
	}
	if d := at(100); d > 0 {
		t.Errorf("what is in memory took %v", d)
	}
	first := at(1000) // 200 at once, the others at little more than 1000 a second
	second := at(5000) - first
	t.Logf("the first 1000 took %v, the other 4000 %v", first, second)
	if first < 450*time.Millisecond || first > 900*time.Millisecond {
		t.Errorf("the first 1000 took %v", first)
	}
	if second < 1800*time.Millisecond || second > 3*time.Second {
		t.Errorf("the other 4000 took %v", second)
	}
	want(t, got, "A", 0, 5000)
}

// What another feed here sends is left to it, also when its owner has closed it
// and it is not saved yet how far it came, and when it was found before.
func TestResumeLeavesOurOwn(t *testing.T) {
	root := t.TempDir()
	own := NewFeed(Options{Sink: "x", SaveEvery: time.Hour})
	defer own.Close()
	early, late, dead := newSource(t, root, "early"), newSource(t, root, "late"), newSource(t, root, "dead")
	for _, s := range []*source{early, late, dead} {
		if err := own.Attach("a", s.session, s.log); err != nil {
			t.Fatal(err)
		}
		s.logged(own, 3)
	}
	_ = own.Ack(next(t, own, 9))
	for _, s := range []*source{early, late, dead} {
		s.log.Close()
	}
	ours := map[string]bool{early.log.Path(): true}
	f := newFeed(t, Options{Sink: "x", Own: func(path string) bool { return ours[path] }})
	if n, err := f.Resume(root); err != nil || n != 2 {
		t.Errorf("found %d: %v", n, err)
	}
	ours[late.log.Path()] = true
	want(t, all(t, f, 3), "dead", 0, 3)
	none(t, f)
	if s := f.Stats(); s.BehindOwners > 1 {
		t.Errorf("%+v", s)
	}
}
