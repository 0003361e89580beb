package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/agent/hookclient"
)

// What is passed over of a text is its long strings, whose lengths stand there;
// however the text is cut into pieces.
func TestThinner(t *testing.T) {
	x := func(n int) string { return strings.Repeat("x", n) }
	escaped := strings.Repeat(`\"`, longString/2+1)
	for name, tt := range map[string]struct{ in, want string }{
		"short":      {`{"a":"b\"c\\","d":[1,{}]}`, `{"a":"b\"c\\","d":[1,{}]}`},
		"at bound":   {`{"a":"` + x(longString) + `"}`, `{"a":"` + x(longString) + `"}`},
		"over bound": {`{"a":"` + x(longString+1) + `","b":1}`, `{"a":"[65537 bytes not read]","b":1}`},
		"escapes":    {`["` + escaped + `","\\"]`, `["[65538 bytes not read]","\\"]`},
		"a key":      {`{"` + x(longString+1) + `":"v"}`, `{"[65537 bytes not read]":"v"}`},
		"crowded": {`["` + strings.Repeat(x(longString)+`","`, 8) + x(70000) + `","` + x(crowdString) + `"]`,
			`["` + strings.Repeat(x(longString)+`","`, 7) + `[65536 bytes not read]","[70000 bytes not read]","` + x(crowdString) + `"]`},
		"no end": {`{"a":"` + x(longString+1), `{"a":"`},
	} {
		for _, piece := range []int{1, 7, 4096, len(tt.in)} {
			th := &thinner{}
			for b := []byte(tt.in); len(b) > 0; {
				n := min(piece, len(b))
				th.feed(b[:n])
				b = b[n:]
			}
			if string(th.out) != tt.want {
				t.Errorf("%s in pieces of %d: %.200s, want %.200s", name, piece, th.out, tt.want)
			}
			if got := strings.Count(tt.want, " bytes not read]"); th.cuts != got {
				t.Errorf("%s: %d cuts, want %d", name, th.cuts, got)
			}
		}
	}
}

// What was an object stays one, with the same members.
func FuzzThinner(f *testing.F) {
	for _, tt := range payloads {
		f.Add(tt.payload)
	}
	f.Fuzz(func(t *testing.T, s string) {
		wide := strings.ReplaceAll(s, "#", strings.Repeat("x", longString))
		th := &thinner{}
		for b := []byte(wide); len(b) > 0; {
			n := min(1+rand.IntN(longString), len(b))
			th.feed(b[:n])
			b = b[n:]
		}
		var before, after map[string]any
		if json.Unmarshal([]byte(wide), &before) != nil {
			return
		}
		if err := json.Unmarshal(th.out, &after); err != nil {
			t.Fatalf("%v: %.100q of %.100q", err, th.out, s)
		}
		if th.cuts == 0 && string(th.out) != wide {
			t.Fatalf("nothing was cut of %.100q, which became %.100q", s, th.out)
		}
	})
}

// A request of which something was passed over is held for a gate alone: nobody
// else could be shown it.
func TestCutIsNotHeld(t *testing.T) {
	ad := adapters.Adapter{Name: "x",
		Asks: func(m adapters.Moment) adapters.Ask {
			return adapters.Ask{Held: true, Gate: fmt.Sprint(m.Payload["tool"])}
		},
		Reply: func(adapters.Moment, adapters.Answer) []byte { return nil }}
	for _, tt := range []struct {
		tool  string
		cut   int
		held  bool
		gated bool
	}{{"a", 0, true, false}, {"a", 1, false, false}, {"gated", 1, true, true}} {
		a := answering{adapter: &ad, responds: true, patience: &Patience{Hold: 1, Gate: 1, Gated: func(tool string) bool { return tool == "gated" }}}
		m := adapters.Moment{Payload: map[string]any{"tool": tt.tool}, Cut: tt.cut}
		if a.weigh(&m); m.Held != tt.held || m.Gated != tt.gated {
			t.Errorf("%+v: held %v, gated %v", tt, m.Held, m.Gated)
		}
	}
}

// How long a runtime waits is told by how it asks: where it would go on at once
// and asks nobody else, only as long as the operator says.
func TestWindows(t *testing.T) {
	usual := Patience{Hold: 8 * time.Second, Both: time.Hour, Gate: time.Hour, Gated: func(tool string) bool { return tool == "gated" }}
	said := usual
	said.Hold, said.Both, said.Lone = time.Minute, time.Minute, time.Minute
	for _, tt := range []struct {
		ask         adapters.Ask
		usual, said time.Duration
	}{
		{adapters.Ask{}, 0, 0},
		{adapters.Ask{Held: true}, 8 * time.Second, time.Minute},
		{adapters.Ask{Held: true, Both: true}, time.Hour, time.Minute},
		{adapters.Ask{Held: true, Lone: true}, 0, time.Minute},
		{adapters.Ask{Gate: "gated"}, time.Hour, time.Hour},
		{adapters.Ask{Gate: "another"}, 0, 0},
	} {
		ad := adapters.Adapter{Name: "x", Asks: func(adapters.Moment) adapters.Ask { return tt.ask }, Reply: func(adapters.Moment, adapters.Answer) []byte { return nil }}
		for p, want := range map[*Patience]time.Duration{&usual: tt.usual, &said: tt.said} {
			a := answering{adapter: &ad, responds: true, patience: p}
			m := adapters.Moment{}
			if got := a.weigh(&m); got != want || m.Held != (want > 0) {
				t.Errorf("%+v: held %v for %v, want %v", tt.ask, m.Held, got, want)
			}
		}
	}
}

// Of large payloads no more are kept for runtimes that wait than there is room
// for: the others wait for nothing.
func TestHeldLarge(t *testing.T) {
	release := make(chan struct{})
	h, e, _ := startHooks(t, func(adapters.Moment) *Held {
		return &Held{wait: func(ctx context.Context) []byte {
			select {
			case <-release:
				return []byte(`{"held":true}`)
			case <-ctx.Done():
				return nil
			}
		}}
	})
	const each, fit = 900 << 10, maxHeldLarge / (900 << 10)
	body := `{"a":"` + strings.Repeat("x", each) + `"}`
	answers := make(chan string, 2*fit)
	for range 2 * fit {
		go func() {
			resp, err := http.Post(e.HookURL+"/claude-code/E", "application/json", strings.NewReader(body))
			if err != nil {
				answers <- err.Error()
				return
			}
			defer resp.Body.Close()
			b, _ := io.ReadAll(resp.Body)
			answers <- string(b)
		}()
	}
	for range fit {
		select {
		case a := <-answers:
			if a != "" {
				t.Errorf("one for which there is no room hears %q", a)
			}
		case <-time.After(patience):
			t.Fatal("those for which there is no room wait")
		}
	}
	// Small ones have room always.
	small := make(chan string, 1)
	go func() {
		b, _ := hookclient.Ask(e.Socket, []string{"claude-code", "E"}, strings.NewReader(`{}`))
		small <- string(b)
	}()
	time.Sleep(50 * time.Millisecond)
	close(release)
	for range fit {
		if a := <-answers; a != `{"held":true}` {
			t.Errorf("one that waits hears %q", a)
		}
	}
	if a := <-small; a != `{"held":true}` {
		t.Errorf("a small one hears %q", a)
	}
	for end := time.Now().Add(patience); h.heldOver.Load() != 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes count as held", h.heldOver.Load())
		}
	}
}

// Large payloads that come slowly have their turns as long as nobody else wants
// them, and no longer.
func TestSlowOnesLoseTheirTurns(t *testing.T) { synctest.Test(t, slowOnesLoseTheirTurns) }

func slowOnesLoseTheirTurns(t *testing.T) {
	x := newIntake()
	ended := make(chan *payload, maxLarge)
	var writers []*io.PipeWriter
	stop := make(chan struct{})
	for range maxLarge {
		r, w := io.Pipe()
		writers = append(writers, w)
		go func() { ended <- x.read(r, true) }()
		go func() {
			_, _ = io.WriteString(w, `{"a":"`+strings.Repeat("x", 2*smallPayload))
			for {
				select {
				case <-stop:
					_, _ = io.WriteString(w, `"}`)
					return
				case <-time.After(20 * time.Millisecond):
					_, _ = io.WriteString(w, "x")
				}
			}
		}()
	}
	for len(x.reading) < maxLarge {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(slowTurn + 2*time.Second*smallPayload/slowest)
	if n := len(x.reading); n != maxLarge {
		t.Errorf("%d of %d have their turns, and nobody waits", n, maxLarge)
	}
	quick := `{"b":"` + strings.Repeat("y", 1<<20) + `"}`
	for range 2 {
		begun := time.Now()
		p := x.read(strings.NewReader(quick), true)
		if p.reason != "" {
			t.Errorf("a quick one after %s: %s", time.Since(begun), p.reason)
		}
		x.back(p)
	}
	close(stop)
	reasons := map[string]int{}
	for range maxLarge {
		p := <-ended
		reasons[p.reason]++
		x.back(p)
	}
	if reasons["slow"] != 1 || reasons[""] != maxLarge-1 || len(x.reading) != 0 || x.demand.Load() != 0 { // one is enough for one quick one at a time
		t.Errorf("%v, and %d turns are taken", reasons, len(x.reading))
	}
	for _, w := range writers {
		w.Close()
	}
}
