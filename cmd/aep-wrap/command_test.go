package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"aep-wrap/collector"
	"aep-wrap/control"
	"aep-wrap/event"
)

// perUser is a per-user collector at its socket, which can go away and come
// back.
type perUser struct {
	t    *testing.T
	app  *app
	out  *bytes.Buffer
	err  *bytes.Buffer
	stop context.CancelFunc
	done chan struct{}
}

func newPerUser(t *testing.T) *perUser {
	home := t.TempDir()
	if len(home) > 60 { // a socket's path is short
		var err error
		if home, err = os.MkdirTemp("", "aw"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(home) })
	}
	getenv := func(name string) string {
		if name == "HOME" {
			return home
		}
		return ""
	}
	p := &perUser{t: t, out: &bytes.Buffer{}, err: &bytes.Buffer{}}
	p.app = &app{Stdin: strings.NewReader(""), Stdout: p.out, Stderr: p.err, Getenv: getenv, Environ: func() []string { return nil }, paths: findPaths(getenv)}
	p.app.cfg.JSON = true
	p.start()
	t.Cleanup(p.end)
	return p
}

func (p *perUser) start() {
	p.t.Helper()
	path := p.app.paths.collectorSocket(p.app.Getenv)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		p.t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		p.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	p.stop, p.done = stop, make(chan struct{})
	go func() {
		defer close(p.done)
		_ = collector.New(collector.Config{Limits: collector.Limits{Drain: 50 * time.Millisecond}}).Serve(ctx, l)
	}()
}

func (p *perUser) end() { p.stop(); <-p.done }

// wrapper is a connected emitter: it gives each command that reaches it to hear,
// and sends the lines that this gives.
func (p *perUser) wrapper(window int, hear func(e *event.Event, line []byte) []string) (leave func()) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ws, _, err := websocket.Dial(ctx, "http://collector/socket", &websocket.DialOptions{HTTPClient: p.app.endpoint().client()})
	if err != nil {
		p.t.Fatal(err)
	}
	send := func(lines ...string) {
		for _, l := range lines {
			_ = ws.Write(ctx, websocket.MessageText, []byte(l))
		}
	}
	send(`{"type":"hello","versions":["0.1"],"role":"emitter","identity":{"agent":"demo"},"capabilities":{"control":{"accepts":["control.pause"],"ack_window_ms":`+
		mustJSON(window)+`}}}`, told1("s", 0, "session.started", "", "{}"), `{"type":"ping","t":1}`)
	claimed := make(chan struct{})
	go func() {
		once := sync.OnceFunc(func() { close(claimed) })
		for {
			_, raw, err := ws.Read(ctx)
			if err != nil {
				return
			}
			if strings.Contains(string(raw), `"pong"`) {
				once()
			}
			if e, err := event.Parse(raw); err == nil {
				send(hear(&e, bytes.Clone(raw))...)
			}
		}
	}()
	select {
	case <-claimed:
	case <-time.After(patience):
		p.t.Fatal("no pong")
	}
	return func() { _ = ws.CloseNow(); cancel() }
}

func mustJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// told1 is one event of session s of the demo agent.
func told1(session string, seq int, typ, cause, data string) string {
	return `{"aep":"0.1","id":"` + typ + "-" + mustJSON(seq) + `","type":"` + typ + `","time":"2026-07-03T10:00:00Z","source":"aep://h/agent/demo/session/` + session +
		`","agent":"demo","session":"` + session + `","seq":` + mustJSON(seq) + `,` + map[bool]string{true: `"cause":"` + cause + `",`}[cause != ""] + `"data":` + data + `}`
}

// A collector that goes away while a command waits for its answer is reached
// again when it is back, and is given the same bytes, however much later than
// we the wrapper is back; an outcome that came while nobody listened is seen.
func TestCommandOverABrokenConnection(t *testing.T) {
	t.Run("the wrapper is back", func(t *testing.T) { brokenConnection(t, func(*perUser) {}) })
	t.Run("the wrapper is back later", func(t *testing.T) {
		brokenConnection(t, func(p *perUser) { p.until(`commands_total{outcome="no-route"} 2`) })
	})
}

// until waits until the collector counts so.
func (p *perUser) until(count string) {
	p.t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		resp, err := p.app.endpoint().client().Get("http://collector/metrics")
		if err != nil {
			p.t.Fatal(err)
		}
		told, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		switch {
		case err != nil:
			p.t.Fatal(err)
		case strings.Contains(string(told), count):
			return
		case time.Now().After(end):
			p.t.Fatalf("not %s in %s", count, told)
		}
	}
}

func brokenConnection(t *testing.T, absent func(*perUser)) {
	t.Helper()
	p := newPerUser(t)
	var mu sync.Mutex
	var heard []string
	first := make(chan struct{}, 1)
	leave := p.wrapper(20000, func(_ *event.Event, line []byte) []string {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, string(line))
		first <- struct{}{}
		return nil // the ack is lost
	})
	result := make(chan error, 1)
	go func() {
		tg, err := p.app.target(context.Background(), "s")
		if err != nil {
			result <- err
			return
		}
		result <- tg.send(context.Background(), from().Pause(time.Now(), tg.name), following{wait: true, timeout: time.Minute}, "")
	}()
	<-first
	leave()
	p.end()
	p.start()
	absent(p)
	defer p.wrapper(20000, func(e *event.Event, line []byte) []string {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, string(line))
		return []string{told1("s", 1, "control.accepted", e.ID, "{}"), told1("s", 2, "progress.status", e.ID, `{"phase":"paused"}`)}
	})()
	select {
	case err := <-result:
		if err != nil {
			t.Fatalf("%v\n%s", err, p.err)
		}
	case <-time.After(patience):
		t.Fatal("no result")
	}
	mu.Lock()
	defer mu.Unlock()
	if len(heard) < 2 || heard[0] != heard[len(heard)-1] {
		t.Errorf("not the same command again: %q", heard)
	}
	if out := p.out.String(); !strings.Contains(out, `"status":"accepted","detail":"paused"`) || !strings.Contains(out, `"outcome":"progress.status"`) {
		t.Errorf("told %s", out)
	}
	if !strings.Contains(p.err.String(), "the connection is lost") {
		t.Errorf("said %q", p.err)
	}
}

// A collector that does not come back is a timeout, not a wait without end.
func TestCommandWithoutACollector(t *testing.T) {
	p := newPerUser(t)
	first := make(chan struct{}, 4)
	leave := p.wrapper(1000, func(*event.Event, []byte) []string { first <- struct{}{}; return nil })
	defer leave()
	go func() { <-first; p.stop() }()
	tg, err := p.app.target(context.Background(), "s")
	if err != nil {
		t.Fatal(err)
	}
	err = tg.send(context.Background(), from().Pause(time.Now(), tg.name), following{}, "")
	var e *exitError
	if !errors.As(err, &e) || e.code != control.ExitTimeout {
		t.Errorf("%v", err)
	}
	if !strings.Contains(p.out.String(), `"status":"timeout","reason":"timeout"`) {
		t.Errorf("told %s", p.out)
	}
}

// What stands in the fleet is what the events say, in whatever order they come.
func TestFleet(t *testing.T) {
	f := newFleet()
	take := func(lines ...string) {
		for _, l := range lines {
			if _, err := event.Parse([]byte(l)); err != nil {
				t.Fatal(err)
			}
			f.add([]byte(l))
		}
	}
	state := func(want string) {
		t.Helper()
		if got := f.list()[0].state(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
	run := func(seq int, typ string) string {
		return strings.Replace(told1("s", seq, typ, "", "{}"), `"seq"`, `"run":"r","seq"`, 1)
	}
	settled := func(seq int, typ, subject string) string {
		return strings.Replace(told1("s", seq, typ, "", "{}"), `"seq"`, `"subject":"`+subject+`","seq"`, 1)
	}
	take(told1("s", 0, "session.started", "", "{}"))
	state("idle")
	take(run(1, "run.started"))
	state("working")
	take(told1("s", 2, "attention.requested", "", `{"kind":"input","prompt":"?"}`))
	state("waiting")
	take(told1("s", 3, "progress.status", "", `{"phase":"paused"}`))
	state("paused")
	take(told1("s", 4, "progress.status", "", `{"phase":"resumed"}`), settled(5, "attention.answered", "attention.requested-2"))
	state("working")
	// An end that comes before its beginning, and what is told again, ask nobody.
	take(settled(8, "attention.timeout", "attention.requested-7"), told1("s", 7, "attention.requested", "", `{}`), told1("s", 2, "attention.requested", "", `{}`))
	state("working")
	if n := len(f.waiting(time.Now())); n != 0 {
		t.Errorf("%d wait", n)
	}
	take(run(9, "run.failed"))
	state("failed")
	take(told1("s", 10, "attention.requested", "", `{"expires_at":"2020-01-01T00:00:00Z"}`))
	if n := len(f.waiting(time.Now())); n != 0 {
		t.Errorf("%d wait that have expired", n)
	}
	take(told1("s", 11, "session.ended", "", "{}"))
	state("ended")
	// Late words do not bring it back; a run that begins does.
	take(run(6, "run.started"))
	state("ended")
	take(strings.Replace(run(12, "run.started"), `"run":"r"`, `"run":"r2"`, 1))
	state("working")
	// A session of the same name elsewhere is another one.
	take(strings.Replace(told1("s", 0, "session.started", "", "{}"), "aep://h/", "aep://other/", 1))
	if len(f.sessions) != 2 {
		t.Errorf("%d sessions", len(f.sessions))
	}
}

func TestShortest(t *testing.T) {
	names := []string{"01K5AAAAAAAA", "01K5AAAAAABB", "short", "01K5AAAAAABBC", "übergröße-eins", "übergröße-zwei"}
	short := shortest(names)
	for _, n := range names {
		got, err := control.Resolve(short[n], names)
		if err != nil || got != n {
			t.Errorf("%s: %q is %q, %v", n, short[n], got, err)
		}
	}
	if short["01K5AAAAAAAA"] != "01K5AAAAAAA" || short["short"] != "short" || short["01K5AAAAAABB"] != "01K5AAAAAABB" {
		t.Errorf("%q", short)
	}
}

// No word of an agent's ends the notification, or begins another sequence.
func TestBellIsOneSequence(t *testing.T) {
	b := bell{"osc9"}
	got := b.sequence("demo: \x1b\\\x1b]52;c;x\a\x9c\u009c\n\u202e" + strings.Repeat("x", 1000))
	body, ok := strings.CutSuffix(strings.TrimPrefix(got, "\x1b]9;"), "\x1b\\")
	if !ok || strings.ContainsAny(body, "\x1b\a\n\u009c\u202e") || strings.Contains(body, "\x9c") || len(body) > 900 {
		t.Errorf("%q", got)
	}
}
