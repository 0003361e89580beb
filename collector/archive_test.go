package collector

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"aep-wrap/event"
)

// local is an event of a session of its own source, as its wrapper logs it.
func local(session string, seq int64, more ...string) string {
	return strings.Replace(ev(session, 0, seq, more...), "session/s\"", "session/"+session+"\"", 1)
}

func locals(session string, n int64) (lines []string) {
	for i := range n {
		lines = append(lines, local(session, i))
	}
	return lines
}

// serveLogs runs a collector that knows the logs of a directory, and has read
// none of them.
func serveLogs(t *testing.T, dir string, l Limits) *server {
	s := serve(t, Config{Limits: l})
	s.hub.logs.dir = dir
	return s
}

// What was pushed out of a buffer is served from the session's log, on both
// bindings, and replay-exhausted is said only where the log cannot serve it.
func TestDeepReplay(t *testing.T) {
	const events = 700
	lines := locals("s", events)
	for _, tt := range []struct {
		name  string
		log   []string
		sent  []string
		whole bool
	}{
		{"a log that has all", lines, lines, true},
		{"a log with others' words in it", slices.Insert(slices.Clone(lines), 3, "junk", "", commandLine("c", "s", "x")), lines, true},
		{"no log", nil, lines, false},
		{"a log of another source", strings.Split(strings.ReplaceAll(strings.Join(lines, "\n"), "//h/", "//other/"), "\n"), lines, false},
		{"a log that ends early", lines[:600], lines, false},
		{"a name that two sources use", lines, append(slices.Clone(lines), strings.Replace(local("s", events), "//h/", "//other/", 1)), false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			s := serveLogs(t, dir, Limits{SessionEvents: 50})
			if tt.log != nil {
				writeLog(t, dir, "a", "s", 0, tt.log...)
			}
			s.post(tt.sent...)
			last := len(tt.sent)
			for _, from0 := range []int{0, 1, 333, last - 52, last - 51, last - 1} {
				body := s.replay(from("s", 0, int64(from0)))
				want, exhausted := tt.sent[from0+1:], false
				if !tt.whole && from0 < last-51 {
					want, exhausted = tt.sent[last-50:], true
				}
				if got := dataLines(body); !slices.Equal(got, want) || strings.Contains(body, "replay-exhausted") != exhausted || !strings.HasSuffix(body, ": replay-complete\n\n") {
					t.Fatalf("from %d: %d events, want %d, exhausted %v", from0, len(got), len(want), strings.Contains(body, "replay-exhausted"))
				}
			}
			p := s.hello("consumer")
			p.say(`{"type":"subscribe","id":"1","from":[{"session":"s","epoch":0,"seq":7}]}`)
			p.wants(`{"type":"subscribed","id":"1"}`)
			want := tt.sent[8:]
			if !tt.whole {
				if e := p.hear(); e["type"] != "replay-exhausted" || e["session"] != "s" {
					t.Fatal(e)
				}
				want = tt.sent[last-50:]
			}
			for _, w := range want {
				if got := p.line(); got != w {
					t.Fatalf("got  %s\nwant %s", got, w)
				}
			}
		})
	}
}

func commandLine(id, session, sender string) string {
	return fmt.Sprintf(`{"aep":"0.1","id":%q,"type":"control.cancel","time":"2026-01-02T03:04:05Z","source":"aep://h/agent/%s","agent":%q,"session":%q,"data":{"scope":"session"}}`, id, sender, sender, session)
}

// A log that goes, or goes and begins anew, is missed as one that was never
// there: what is held comes, and that it is not all is said.
func TestDeepReplayOfALogThatWent(t *testing.T) {
	lines := locals("s", 300)
	for name, anew := range map[string][]string{
		"it went":     nil,
		"a later one": {strings.Replace(local("s", 0), `"epoch":0`, `"epoch":1`, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := serveLogs(t, dir, Limits{SessionEvents: 50})
			writeLog(t, dir, "a", "s", 0, lines...)
			s.post(lines...)
			if got := dataLines(s.replay(from("s", 0, 7))); !slices.Equal(got, lines[8:]) {
				t.Fatalf("%d events", len(got))
			}
			if err := os.Remove(filepath.Join(dir, "a", "s.jsonl")); err != nil {
				t.Fatal(err)
			}
			want := lines[len(lines)-50:]
			if anew != nil {
				writeLog(t, dir, "a", "s", 0, anew...)
				s.post(anew...)
				want = append(slices.Clone(want[1:]), anew...)
			}
			// Who reads when it is missed is sent away, and told when it comes again.
			if resp, err := s.http.Get(s.base + "/stream?live=0&" + from("s", 0, 7)); err == nil {
				if _, err = io.Copy(io.Discard, resp.Body); err == nil {
					t.Error("a replay that lacks events ends as if it was whole")
				}
				resp.Body.Close()
			}
			body := s.replay(from("s", 0, 7))
			if got := dataLines(body); !slices.Equal(got, want) || !strings.Contains(body, "replay-exhausted") {
				t.Errorf("%d events, want %d; exhausted %v", len(got), len(want), strings.Contains(body, "replay-exhausted"))
			}
		})
	}
}

// A filter and a ceiling hold for what comes out of a log too.
func TestDeepReplayIsFiltered(t *testing.T) {
	dir := t.TempDir()
	s := serveLogs(t, dir, Limits{SessionEvents: 10})
	var lines, loud []string
	for i := range int64(1000) {
		l := local("s", i, `"capture":"full"`, `"data":{"state":"x","message":"CANARY"}`)
		if i%10 == 0 {
			l = local("s", i, `"severity":"error"`)
			if i > 0 {
				loud = append(loud, l)
			}
		}
		lines = append(lines, l)
	}
	writeLog(t, dir, "a", "s", 0, lines...)
	s.post(lines...)
	got := dataLines(s.replay(from("s", 0, 0) + "&filter=" + url.QueryEscape(`{"severity":{"gte":"notice"}}`)))
	if !slices.Equal(got, loud) {
		t.Errorf("%d events, want %d", len(got), len(loud))
	}
	if body := s.replay(from("s", 0, 0) + "&capture=metadata"); strings.Contains(body, "CANARY") || len(dataLines(body)) != 999 {
		t.Errorf("%d events, or a canary", len(dataLines(body)))
	}
}

// A position in a session that is not held any more is served from its log, as
// far as that was sent.
func TestReplayOfWhatIsForgotten(t *testing.T) {
	dir := t.TempDir()
	old := locals("old", 300)
	writeLog(t, dir, "a", "old", 0, old...)
	s := serveLogs(t, dir, Limits{Sessions: 2})
	s.post(old...)
	s.post(local("x", 0), local("y", 0), local("z", 0))
	if got := dataLines(s.replay("from=all")); len(got) != 2 {
		t.Fatalf("%d events are held", len(got))
	}
	if got := dataLines(s.replay(from("old", 0, 199))); !slices.Equal(got, old[200:]) {
		t.Errorf("%d events", len(got))
	}
	if got := dataLines(s.replay(from("old", 0, 299))); len(got) != 0 {
		t.Errorf("%d events", len(got))
	}
	writeLog(t, dir, "b", "old", 0, old...)
	if got := dataLines(s.replay(from("old", 0, 199))); len(got) != 0 {
		t.Errorf("two agents have it, and %d events come", len(got))
	}
}

// With inclusive=1 a position names the first event that is wanted, so that a
// session can be had from its very start.
func TestInclusive(t *testing.T) {
	dir := t.TempDir()
	s := serveLogs(t, dir, Limits{SessionEvents: 10})
	lines := locals("s", 100)
	writeLog(t, dir, "a", "s", 0, lines...)
	s.post(lines...)
	for seq, want := range map[int64][]string{0: lines, 42: lines[42:], 95: lines[95:], 99: lines[99:]} {
		if body := s.replay("inclusive=1&" + from("s", 0, seq)); !slices.Equal(dataLines(body), want) || strings.Contains(body, "exhausted") {
			t.Errorf("from %d: %d events", seq, len(dataLines(body)))
		}
	}
	if a := s.do("GET", "/stream?live=0&inclusive=2&"+from("s", 0, 1), nil, nil); a.status != 400 {
		t.Errorf("inclusive=2: %d", a.status)
	}
	if a := s.do("GET", "/events", nil, nil); !strings.Contains(a.body, inclusiveCapability) {
		t.Errorf("it is not declared: %s", a.body)
	}
	// Of a session that only the wire told of the loss is said.
	var remote []string
	for i := range int64(30) {
		remote = append(remote, local("r", i))
	}
	s.post(remote...)
	if body := s.replay("inclusive=1&" + from("r", 0, 0)); !strings.HasPrefix(body, ": replay-exhausted r 0:20\n") || !slices.Equal(dataLines(body), remote[20:]) {
		t.Errorf("%.200s", body)
	}
}

// A reader who falls behind by more than the buffer holds reads on from the
// log: it misses nothing, whatever the severity, and in order.
func TestSlowReaderOfALocalSession(t *testing.T) {
	dir := t.TempDir()
	s := serveLogs(t, dir, Limits{SessionEvents: 500, QueueEvents: 100})
	line := func(i int64) string {
		return local("s", i, []string{`"severity":"debug"`, `"severity":"notice"`}[i%2])
	}
	var all []string
	for i := range flood {
		all = append(all, line(i))
	}
	writeLog(t, dir, "a", "s", 0, all...)
	_, br := rawStream(t, s, "")
	floodSession(s, line)
	for next := int64(0); next < flood; {
		l, err := br.ReadString('\n')
		if err != nil {
			t.Fatalf("after %d events: %v", next, err)
		}
		if d, ok := strings.CutPrefix(l, "data: "); ok {
			if strings.TrimSuffix(d, "\n") != all[next] {
				t.Fatalf("want event %d, got %s", next, d)
			}
			next++
		}
	}
	if n := s.hub.counts.cut.Load() + s.hub.counts.dropped.Load(); n != 0 {
		t.Errorf("%d losses", n)
	}
}

// A redelivery does not overtake what a consumer has still to read before it.
func TestRedeliveryDoesNotOvertake(t *testing.T) {
	h := newHub(Limits{}.withDefaults())
	h.publish(itemsOf(t, locals("s", 10)...))
	c := &consumer{live: true, ceiling: event.Full}
	h.subscribe(c, nil, true, nil)
	h.publish(itemsOf(t, local("s", 5), local("s", 10), local("s", 10)))
	if got := drainHub(h, c); !slices.Equal(got, locals("s", 11)) {
		t.Errorf("got %q", got)
	}
	// Once it was delivered, it comes again.
	h.publish(itemsOf(t, local("s", 5)))
	if got := drainHub(h, c); !slices.Equal(got, []string{local("s", 5)}) {
		t.Errorf("got %q", got)
	}
}

func itemsOf(t *testing.T, lines ...string) (items []*item) {
	for _, l := range lines {
		items = append(items, mustItem(t, l))
	}
	return items
}

// drainHub is what a consumer gets until it has to wait.
func drainHub(h *hub, c *consumer) (lines []string) {
	for {
		items, st := h.next(c, nil)
		for _, it := range items {
			if c.filter.Match(&it.Header) {
				lines = append(lines, string(it.line()))
			}
		}
		if st != sending && st != replaying {
			return lines
		}
	}
}

// Whoever reads how much when, while sessions with logs are written, pushed
// out, forgotten and sent again: each gets every event, in order, also where it
// has to come back.
func TestLocalSessionsLoseNothing(t *testing.T) {
	deep := 0
	for seed := range uint64(10) {
		r := rand.New(rand.NewPCG(seed, 2))
		dir := t.TempDir()
		h := newHub(Limits{
			SessionEvents: 1 + r.IntN(60), Sessions: 1 + r.IntN(3), QueueEvents: 2 + r.IntN(20),
			HeldBytes: 10_000 + r.IntN(300_000), QueueBytes: 1000 + r.IntN(20_000),
		}.withDefaults())
		h.logs.dir = dir
		type reader struct {
			*consumer
			got [3]int64
		}
		var readers []*reader
		var seqs [3]int64
		var logs [3]*os.File
		for i := range logs {
			path := filepath.Join(dir, "a", fmt.Sprintf("s%d.jsonl", i))
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			logs[i] = f
		}
		step := func(rd *reader) state {
			items, st := h.next(rd.consumer, nil)
			for _, it := range items {
				n, _ := strconv.Atoi(it.Session[1:])
				switch {
				case it.Seq == rd.got[n]:
					rd.got[n]++
				case it.Seq > rd.got[n]:
					t.Fatalf("seed %d: of %s came %d where %d should", seed, it.Session, it.Seq, rd.got[n])
				}
			}
			for _, s := range rd.spans {
				if s.deep {
					deep++
					break
				}
			}
			return st
		}
		back := func(old *reader) *reader {
			rd := &reader{consumer: &consumer{live: true, ceiling: event.Full}, got: old.got}
			var from []resume
			for n, next := range rd.got {
				from = append(from, resume{fmt.Sprint("s", n), event.Position{Seq: next - 1}})
			}
			h.subscribe(rd.consumer, from, false, h.prepare(from))
			if len(rd.notes) > 0 {
				t.Fatalf("seed %d: exhausted: %+v", seed, rd.notes)
			}
			return rd
		}
		for i := range 3 {
			rd := &reader{consumer: &consumer{live: true, ceiling: event.Full}}
			if i == 0 {
				h.subscribe(rd.consumer, nil, true, nil)
			} else {
				h.subscribe(rd.consumer, nil, false, nil)
			}
			readers = append(readers, rd)
		}
		for range 300 {
			switch op := r.IntN(10); {
			case op < 4:
				n := r.IntN(3)
				var lines []string
				for range 1 + r.IntN(25) {
					lines = append(lines, local(fmt.Sprint("s", n), seqs[n], fmt.Sprintf(`"severity":%q`, []string{"debug", "info", "error"}[r.IntN(3)])))
					seqs[n]++
				}
				if _, err := logs[n].WriteString(strings.Join(lines, "\n") + "\n"); err != nil {
					t.Fatal(err)
				}
				h.publish(itemsOf(t, lines...))
				if r.IntN(4) == 0 { // a wrapper that is not sure
					h.publish(itemsOf(t, lines[r.IntN(len(lines)):]...))
				}
			case op == 4 && len(readers) < 8:
				readers = append(readers, back(readers[r.IntN(len(readers))]))
			default:
				i := r.IntN(len(readers))
				if step(readers[i]) == lost { // too many redeliveries at once
					h.unsubscribe(readers[i].consumer)
					readers[i] = back(readers[i])
				}
			}
		}
		for i, rd := range readers {
			for st := sending; st == sending || st == replaying; {
				if st = step(rd); st == lost {
					h.unsubscribe(rd.consumer)
					rd, st = back(rd), sending
				}
			}
			if rd.got != seqs || rd.lost {
				t.Fatalf("seed %d: reader %d has %v of %v, lost %v", seed, i, rd.got, seqs, rd.lost)
			}
			h.unsubscribe(rd.consumer)
		}
	}
	t.Logf("%d reads of logs", deep)
	if deep < 50 {
		t.Error("the test shows too little")
	}
}

// Between what was read of a log when we started and what its wrapper sends
// then may lie what it had sent before: no reader is let past it unaware.
func TestHoleBehindTheReload(t *testing.T) {
	dir := t.TempDir()
	pad := `"data":{"x":"` + strings.Repeat("x", 4000) + `"}`
	var lines []string
	for i := range int64(1500) {
		lines = append(lines, local("s", i, pad))
	}
	writeLog(t, dir, "a", "s", 0, lines...)
	if err := os.WriteFile(filepath.Join(dir, "a", "s.local.pos"), []byte(`{"epoch":0,"seq":0,"offset":0}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := serve(t, Config{LogDir: dir})
	read := len(dataLines(s.replay("from=all")))
	if read < 100 || read > 1000 {
		t.Fatalf("%d events were read", read)
	}
	s.post(lines[read-10:]...) // it follows: nothing is between
	if got := dataLines(s.replay("from=all")); !slices.Equal(got, lines) {
		t.Errorf("%d events are held", len(got))
	}

	s = serve(t, Config{LogDir: dir})
	s.post(lines[1200:]...) // it does not
	if got := dataLines(s.replay(from("s", 0, 5))); !slices.Equal(got, lines[6:]) {
		t.Errorf("%d events from 5", len(got))
	}
	if got := dataLines(s.replay(from("s", 0, int64(read)+3))); !slices.Equal(got, lines[read+4:]) {
		t.Errorf("%d events from within", len(got))
	}
	if got := dataLines(s.replay("from=all")); !slices.Equal(got, lines[1200:]) {
		t.Errorf("%d events are held", len(got))
	}
}
