package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"aep-wrap/collector"
	"aep-wrap/collector/client"
	"aep-wrap/event"
	"aep-wrap/event/eventtest"
	"aep-wrap/queue/jsonl"
)

func TestVisible(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"plain text, ünïcödé, 漢字, 👍", "plain text, ünïcödé, 漢字, 👍"},
		{"\x1b[31mred\x1b[0m", `\x1b[31mred\x1b[0m`},
		{"a\nb\r\nc\td", `a\nb\r\nc d`},
		{"\x00\x07\x7f", `\x00\x07\x7f`},
		{"C1 \u009b31m", `C1 \x9b31m`},
		{"right\u202eleft\u2066iso", `right\u202eleft\u2066iso`},
		{"zero\u200bwidth\ufeff", `zero\u200bwidth\ufeff`},
		{"line\u2028sep", `line\u2028sep`},
		{"tag\U000e0041", `tag\U000e0041`},
		{"filler\u3164", `filler\u3164`},
		{"bad \xff\xfe utf8", `bad \xff\xfe utf8`},
		{"a real \uFFFD stays", "a real \uFFFD stays"},
	} {
		if got := visible(tt.in); got != tt.want {
			t.Errorf("visible(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func FuzzVisible(f *testing.F) {
	f.Add("\x1b]0;x\x07\u202e\xff")
	f.Fuzz(func(t *testing.T, s string) {
		got := visible(s)
		if strings.ContainsFunc(got, hidden) || strings.ContainsAny(got, "\n\r\t\x1b") {
			t.Fatalf("%q becomes %q", s, got)
		}
	})
}

func TestColourIsForTerminals(t *testing.T) {
	a := &app{Getenv: func(string) string { return "" }}
	if a.lookOf(&bytes.Buffer{}).colour {
		t.Error("a buffer gets colours")
	}
	var e client.Event
	e.Line = []byte(`{"aep":"0.1","id":"1","type":"tool.failed","subject":"\u001b[2J","time":"2026-01-02T03:04:05Z","source":"aep://h","agent":"a","session":"s","seq":1,"data":{"error":{"type":"x","message":"\u001b]0;t\u0007"}}}`)
	var err error
	if e.Header, _, err = event.ParseHeader(e.Line); err != nil {
		t.Fatal(err)
	}
	plain := string((&tailPrinter{room: cellsOf(0)}).appendLine(nil, e))
	if strings.ContainsRune(plain, '\x1b') || strings.Count(plain, "\n") != 1 || !strings.Contains(plain, `\x1b]0;t\x07`) {
		t.Errorf("got %q", plain)
	}
	coloured := string((&tailPrinter{look: look{true}, room: cellsOf(0)}).appendLine(nil, e))
	if rest := strings.NewReplacer("\x1b[31m", "", "\x1b[2m", "", "\x1b[0m", "").Replace(coloured); strings.ContainsRune(rest, '\x1b') || rest == coloured {
		t.Errorf("got %q", coloured)
	}
}

func cellsOf(n int) func() int { return func() int { return n } }

func TestFit(t *testing.T) {
	for _, tt := range []struct {
		in    string
		cells int
		n     int
		want  string
	}{
		{"plain", 5, 5, "plain"},
		{"plain", 5, 4, "pla…"},
		{"plain", 5, 1, "…"},
		{"plain", 5, 0, ""},
		{"plain", 5, -3, ""},
		{"ünïcödé", 7, 4, "ünï…"},
		{"漢字漢字", 8, 8, "漢字漢字"},
		{"漢字漢字", 8, 6, "漢字…"}, // half a character is none
		{"漢字漢字", 8, 5, "漢字…"},
		{"e\u0301e\u0301e\u0301", 3, 2, "e\u0301…"},
		{"👍👍👍", 6, 4, "👍…"},
	} {
		if got := cells(tt.in); got != tt.cells {
			t.Errorf("cells(%q) = %d, want %d", tt.in, got, tt.cells)
		}
		if got := fit(tt.in, tt.n); got != tt.want {
			t.Errorf("fit(%q, %d) = %q, want %q", tt.in, tt.n, got, tt.want)
		}
		if got := pad(fit(tt.in, tt.n), 10); tt.n > 0 && cells(got) != 10 {
			t.Errorf("pad(%q, 10) has %d cells", got, cells(got))
		}
	}
}

// No line is longer than the terminal is wide, whatever stands in it, and nothing
// is left out where there is none.
func TestLinesFitTheTerminal(t *testing.T) {
	const lines = `{"aep":"0.1","id":"1","type":"session.started","time":"2026-01-02T03:04:05Z","source":"aep://h","agent":"an-agent-with-a-long-name","session":"01JX9YB2Z1QK3M5V7X9Z1B3D5F","seq":1}
{"aep":"0.1","id":"2","type":"run.started","time":"2026-01-02T03:04:06Z","source":"aep://h","agent":"an-agent-with-a-long-name","session":"01JX9YB2Z1QK3M5V7X9Z1B3D5F","run":"r","seq":2,"cause":"1"}
{"aep":"0.1","id":"3","type":"x.some-vendor.attention.resumed_once_more.and_again","subject":"漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字漢字","time":"2026-01-02T03:04:07Z","source":"aep://h","agent":"an-agent-with-a-long-name","session":"01JX9YB2Z1QK3M5V7X9Z1B3D5F","run":"r","seq":3,"cause":"2","data":{"status":"👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍👍 \u001b[2Jto the end"}}
{"aep":"0.1","id":"4","type":"session.compacted","time":"2026-01-02T03:04:08Z","source":"aep://h","agent":"an-agent-with-a-long-name","session":"01JX9YB2Z1QK3M5V7X9Z1B3D5F","seq":4}
{"aep":"0.1","id":"5","type":"tool.completed","subject":"Bash","time":"2026-01-02T05:04:07Z","source":"aep://h","agent":"an-agent-with-a-long-name","session":"01JX9YB2Z1QK3M5V7X9Z1B3D5F","run":"r","seq":5,"cause":"3","data":{"status":"success","duration_ms":7260000}}
`
	s := newStory(false)
	var events []client.Event
	for line := range strings.Lines(lines) {
		line = strings.TrimSuffix(line, "\n")
		s.add([]byte(line))
		e := client.Event{Line: []byte(line)}
		var err error
		if e.Header, _, err = event.ParseHeader(e.Line); err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	s.sort()
	views := map[string]func(room int) string{
		"timeline": func(room int) string {
			var b strings.Builder
			(&drawing{w: &b, s: s, room: room}).draw(false)
			return b.String()
		},
		"tree": func(room int) string {
			var b strings.Builder
			(&drawing{w: &b, s: s, room: room}).draw(true)
			return b.String()
		},
		"tail": func(room int) string {
			var b []byte
			p := &tailPrinter{room: cellsOf(room)}
			for _, e := range events {
				b = p.appendLine(b, e)
			}
			return string(b)
		},
		"table": func(room int) string {
			var b bytes.Buffer
			a := &app{Stdout: &b, Getenv: func(string) string { return "" }}
			if err := a.table([][]string{{"A", "B", "C"}, {"whole", strings.Repeat("漢字", 30), strings.Repeat("to the end ", 30)}}, room, floor{1, 8}, floor{2, 8}); err != nil {
				t.Fatal(err)
			}
			return b.String()
		},
	}
	for name, view := range views {
		for _, room := range []int{40, 50, 80, 109, 110, 200} {
			for line := range strings.Lines(view(room)) {
				line = strings.TrimSuffix(line, "\n")
				if n := cells(line); n > room && !strings.HasPrefix(line, "an-agent") { // the session's whole name
					t.Errorf("%s: %d cells of %d: %q", name, n, room, line)
				}
			}
		}
		if whole := view(0); !strings.Contains(whole, "to the end") || strings.Contains(whole, "…") {
			t.Errorf("%s: something is left out:\n%s", name, whole)
		}
	}
	if whole := views["timeline"](0); strings.Count(whole, "run r\n") != 1 {
		t.Errorf("a run that goes on is named again:\n%s", whole)
	}
	if line := views["tail"](80); !strings.Contains(line, "01JX9YB2 ") {
		t.Errorf("the session's name does not do as an argument:\n%s", line)
	}
}

func scenes(t *testing.T, causes map[int]int, n int) *story {
	t.Helper()
	s := newStory(false)
	for i := range n {
		cause := ""
		if c, ok := causes[i]; ok {
			cause = fmt.Sprintf(`,"cause":"%d"`, c)
		}
		s.add([]byte(fmt.Sprintf(`{"aep":"0.1","id":"%d","type":"progress.status","time":"2026-01-02T03:04:05Z","source":"aep://h","agent":"a","session":"s","seq":%d%s}`, i, i, cause)))
	}
	return s.sort()
}

func TestTree(t *testing.T) {
	for _, tt := range []struct {
		name   string
		causes map[int]int
		n      int
		want   []string
	}{
		{"roots", nil, 3, []string{"0", "1", "2"}},
		{"a tree", map[int]int{1: 0, 2: 1, 3: 0, 4: 2}, 6, []string{"0", "├ 1", "│ └ 2", "│   └ 4", "└ 3", "5"}},
		{"a cause elsewhere", map[int]int{1: 77}, 2, []string{"0", "1"}},
		{"its own cause", map[int]int{1: 1}, 2, []string{"0", "1"}},
		{"a ring", map[int]int{0: 2, 1: 0, 2: 1, 3: 2}, 4, []string{"0", "└ 1", "  └ 2", "    └ 3"}},
		{"a tail on a ring", map[int]int{0: 1, 1: 2, 2: 1}, 3, []string{"1", "├ 0", "└ 2"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := scenes(t, tt.causes, tt.n)
			order, branch := s.tree()
			var got []string
			for n, i := range order {
				got = append(got, branch[n]+s.scenes[i].ID)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

// A long chain is no reason to take long, or to go deep.
func TestLongChain(t *testing.T) {
	chain := func(n int) (took time.Duration) {
		causes := map[int]int{}
		for i := 1; i < n; i++ {
			causes[i] = i - 1
		}
		s := scenes(t, causes, n)
		var order []int
		var branch []string
		took = eventtest.CPU(t, func() { order, branch = s.tree() })
		if len(order) != n || len([]rune(branch[n-1])) > 2*maxBranch {
			t.Errorf("%d, branch of %d", len(order), len(branch[n-1]))
		}
		return took
	}
	const n = 5_000
	least := chain(n)
	for range 4 { // what the collector of garbage adds is not the same each time
		least = min(least, chain(n))
	}
	if took := chain(10 * n); took > 50*least {
		t.Errorf("%v for ten times as many as took %v", took, least)
	}
}

// The keeper ended at any point, at any of its steps, and started again holds
// every event once, in order.
func TestKeeperSurvivesItsDeath(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- collector.New(collector.Config{}).Serve(ctx, l) }()
	tr := &http.Transport{}
	defer func() {
		tr.CloseIdleConnections()
		stop()
		<-done
	}()
	base := "http://" + l.Addr().String()
	dir := t.TempDir()
	a := &app{Stderr: &bytes.Buffer{}, Getenv: func(string) string { return "" }}
	cfg := client.Config{Base: base, HTTP: &http.Client{Transport: tr}}

	r := rand.New(rand.NewPCG(1, 2))
	want := map[string][]string{}
	seq := map[string]int{}
	for round := range 30 {
		var body strings.Builder
		for range 1 + r.IntN(40) {
			session := fmt.Sprint("s", r.IntN(4), "/x") // a name that is none for a file
			line := fmt.Sprintf(`{"aep":"0.1","id":"%s-%d","type":"progress.status","time":"2026-01-02T03:04:05Z","source":"aep://h","agent":"a","session":"%s","seq":%d}`, session, seq[session], session, seq[session])
			seq[session]++
			want[session] = append(want[session], line)
			body.WriteString(line + "\n")
		}
		req, err := http.NewRequest("POST", base+"/events", strings.NewReader(body.String()))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("AEP-Version", "0.1")
		req.Header.Set("Content-Type", "application/x-ndjson")
		resp, err := cfg.HTTP.Do(req)
		if err != nil || resp.StatusCode != 202 {
			t.Fatal(err, resp)
		}
		resp.Body.Close()

		// It dies after some events: without a flush, and sometimes in a line.
		k, err := openKeeper(dir, a.warn)
		if err != nil {
			t.Fatal(err)
		}
		k.rotate = sinkRotate
		left := r.IntN(60)
		died := fmt.Errorf("killed")
		follow := cfg
		follow.All, follow.From, follow.Once = true, k.positions, true
		if round%3 == 0 {
			follow.Flush = k.flush
		}
		err = client.Follow(t.Context(), follow, func(e client.Event) error {
			if left--; left < 0 {
				if round%2 == 0 {
					tear(t, k.path(&e.Header), e.Line)
				}
				return died
			}
			return k.keep(e)
		})
		for _, f := range k.open {
			f.log.Close()
		}
		k.lock.Close()
		if err != nil && err != died {
			t.Fatal(err)
		}
	}
	follow := cfg
	follow.Once = true
	if err := a.sink(t.Context(), follow, dir, sinkRotate); err != nil {
		t.Fatal(err)
	}
	aside := 0
	for session, lines := range want {
		path := jsonl.Path(dir, "a", session)
		var got []byte
		for _, part := range append(parts(path), path) {
			text, err := os.ReadFile(part)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, text...)
			if part != path && (len(text) < sinkRotate || len(text) > sinkRotate+1000) {
				t.Errorf("%s has %d bytes", part, len(text))
			}
		}
		aside += len(parts(path))
		if string(got) != strings.Join(lines, "\n")+"\n" {
			t.Errorf("%s: %d lines, want %d", session, bytes.Count(got, []byte("\n")), len(lines))
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "positions.json")); err != nil {
		t.Error(err)
	}
	if aside == 0 {
		t.Error("no file was put aside")
	}
}

// sinkRotate is where the tests' sinks put a file aside.
const sinkRotate = 3000

// tear leaves half a line at a file's end, as a death in a write does.
func tear(t *testing.T, path string, line []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if os.IsNotExist(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(line[:len(line)/2]); err != nil {
		t.Fatal(err)
	}
}

func TestKeeperPlaces(t *testing.T) {
	dir := t.TempDir()
	k, err := openKeeper(dir, func(string, ...any) {})
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	if _, err := openKeeper(dir, nil); err == nil || !strings.Contains(err.Error(), "another sink") {
		t.Errorf("a second keeper: %v", err)
	}
	keep := func(id, typ, agent, rest string) {
		t.Helper()
		line := fmt.Sprintf(`{"aep":"0.1","id":%q,"type":%q,"time":"2026-01-02T03:04:05Z","source":"aep://h","agent":%q%s}`, id, typ, agent, rest)
		h, _, err := event.ParseHeader([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if err := k.keep(client.Event{Header: h, Line: []byte(line)}); err != nil {
			t.Fatal(err)
		}
	}
	keep("1", "session.started", "claude-code", `,"session":"s","seq":0`)
	keep("2", "control.cancel", "phone", `,"session":"s","data":{"scope":"run"}`)
	keep("3", "agent.health", "claude-code", ``)
	keep("4", "control.cancel", "phone", `,"session":"unknown","data":{"scope":"run"}`)
	k.owners = map[string]string{} // as after a start
	keep("5", "control.pause", "phone", `,"session":"s"`)
	for i := range openFiles + 10 {
		keep(fmt.Sprint("many", i), "session.started", "many", fmt.Sprintf(`,"session":"m%d","seq":0`, i))
	}
	keep("1", "session.started", "claude-code", `,"session":"s","seq":0`)
	if err := k.flush(); err != nil {
		t.Fatal(err)
	}
	if len(k.open) > openFiles {
		t.Errorf("%d files are open", len(k.open))
	}
	for path, lines := range map[string]int{"claude-code/s.jsonl": 3, "claude-code.jsonl": 1, "phone/unknown.jsonl": 1, "many/m0.jsonl": 1} {
		got, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil || bytes.Count(got, []byte("\n")) != lines {
			t.Errorf("%s: %v, %d lines, want %d", path, err, bytes.Count(got, []byte("\n")), lines)
		}
	}
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		typed, name string
		want        int
	}{
		{"abc", "abc", 0},
		{"abc", "abcdef", 0}, // the beginning of it
		{"abd", "abcdef", 1},
		{"acb", "abcdef", 1},
		{"ABC", "abcdef", 0},
		{"abcdef", "abc", 3},
		{"xyz", "abc", 3},
		{"", "abc", 0},
	} {
		if got := distance(tt.typed, tt.name); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.typed, tt.name, got, tt.want)
		}
	}
}

// No command hands a name of others' making to the terminal as it stands.
func TestNamesAreShownVisibly(t *testing.T) {
	const evil = "v\x1b[31m\u009b\u202ex\nnext"
	w := newWorld(t)
	log := w.file(evil+".jsonl", "{}\n")
	config := w.file(evil+".yaml", "quiet: false\n")
	dir := filepath.Join(w.logs, "ag")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	old := filepath.Join(dir, evil+".jsonl")
	if err := os.WriteFile(old, []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(old, time.Time{}, time.Now().AddDate(-1, 0, 0)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"prune"}, {"prune", "--dry-run"}, {"flush"}, {"validate", log}, {"timeline", log}, {"timeline", evil}, {"replay", log}, {"watch", "--once", log},
		{"config", "check", config}, {"config", "check", log + "none"}, {"--config", config, "config", "show"},
		{"adapters", "show", evil}, {"doctor", evil}, {"hook-config", evil}, {"help", evil}, {"respond", evil, "x", "--option", "y"}, {"token", "new", evil},
		{"unpack", "/dev/null/" + evil}, {"--capture", evil, "ps"}, {"--log-dir", "/dev/null/" + evil, "ps"}, {evil}, {"--" + evil}, {"ps", evil},
	} {
		r := w.run(nil, args...)
		for line := range strings.Lines(r.stdout + r.stderr) {
			if s := strings.TrimSuffix(line, "\n"); visible(s) != s || strings.HasPrefix(s, "next") {
				t.Errorf("%q shows %q", args, line)
			}
		}
		if r.stdout+r.stderr == "" && args[0] != "flush" {
			t.Errorf("%q says nothing", args)
		}
	}
}
