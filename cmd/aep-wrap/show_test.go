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
	plain := string((&tailPrinter{}).appendLine(nil, e))
	if strings.ContainsRune(plain, '\x1b') || strings.Count(plain, "\n") != 1 || !strings.Contains(plain, `\x1b]0;t\x07`) {
		t.Errorf("got %q", plain)
	}
	coloured := string((&tailPrinter{look: look{true}}).appendLine(nil, e))
	if rest := strings.NewReplacer("\x1b[31m", "", "\x1b[2m", "", "\x1b[0m", "").Replace(coloured); strings.ContainsRune(rest, '\x1b') || rest == coloured {
		t.Errorf("got %q", coloured)
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
	causes := map[int]int{}
	const n = 50_000
	for i := 1; i < n; i++ {
		causes[i] = i - 1
	}
	s := scenes(t, causes, n)
	start := time.Now()
	order, branch := s.tree()
	if len(order) != n || len([]rune(branch[n-1])) > 2*maxBranch || time.Since(start) > 5*time.Second {
		t.Errorf("%d in %v, branch of %d", len(order), time.Since(start), len(branch[n-1]))
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
