package pagetest

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"aep-wrap/collector"
)

// A session's own view: pause, resume, instruct, cancel, as far as it declares
// that it takes them; and the keyboard on its events.
func TestControl(t *testing.T) {
	w := newWorld(t, collector.Limits{})
	tg := w.emitter("claude-code", "s-control", everything...)
	tg.begin("/home/u/project")
	call := tg.emit("tool.requested", obj{"tool": obj{"name": "Read"}, "args": obj{"file_path": "/etc/hosts"}}, obj{"run": "r1", "subject": "Read", "cause": "s-control-000001"})
	tg.emit("tool.completed", obj{"tool": obj{"name": "Read"}, "duration_ms": 12}, obj{"run": "r1", "subject": "Read", "cause": call})
	shy := w.emitter("codex", "s-shy", "control.attention.respond")
	shy.begin("/srv")

	tb := w.open(token, desk)
	tb.sees("s-control")
	tb.press(`#sessions li:last-child .entry`)
	tb.until("the view", `!document.getElementById('session').hidden`)
	tb.press("#to-inbox")
	tb.run(chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll('.entry')].find((b) => b.innerText.includes('s-control')).click()`))
	tb.until("the events", `document.querySelectorAll('.row:not([hidden])').length >= 4`)
	tb.sees("Pause")
	if got := js[string](tb, `document.activeElement.id`); got != "title" {
		t.Errorf("the focus is on %q", got)
	}
	tb.shot("session")

	tb.press("#pause")
	c := tg.hear()
	if c["type"] != "control.pause" || c["seq"] != nil {
		t.Errorf("%v", c)
	}
	ack := tg.accept(c)
	tg.emit("progress.status", obj{"phase": "paused"}, obj{"cause": ack})
	tb.sees("Pause: Accepted; paused.")
	tb.until("resume", `!document.getElementById('resume').hidden && document.getElementById('pause').hidden`)
	tb.press("#resume")
	c = tg.hear()
	ack = tg.accept(c)
	tg.emit("progress.status", obj{"phase": "resumed"}, obj{"cause": ack})
	tb.sees("Resume: Accepted; resumed.")

	tb.write("#instruction", "use tabs")
	tb.press("#instruct button")
	c = tg.hear()
	if c["type"] != "x.fake.control.instruct" || c["data"].(obj)["text"] != "use tabs" {
		t.Errorf("%v", c)
	}
	tg.accept(c)
	tg.emit("x.fake.instruction.delivered", obj{"queued_ms": 3}, obj{"cause": c["id"]})
	tb.sees("Tell the agent: Accepted; the agent was told.")

	tb.press("#cancel-run")
	tb.sees("Cancel what it is doing?")
	tb.shot("sure")
	tb.run(chromedp.KeyEvent("\x1b")) // Escape keeps it
	tb.until("the dialog to go", `!document.getElementById('sure').open`)
	if n := len(tg.commands); n != 0 {
		t.Errorf("%d commands were sent", n)
	}
	tb.press("#cancel-run")
	tb.write("#reason", "wrong branch")
	tb.press("#sure-yes")
	c = tg.hear()
	if c["type"] != "control.cancel" || c["run"] != "r1" || c["data"].(obj)["scope"] != "run" || c["data"].(obj)["reason"] != "wrong branch" || c["capture"] != "full" {
		t.Errorf("%v", c)
	}
	ack = tg.accept(c)
	tg.emit("run.cancelled", obj{"by": "control"}, obj{"run": "r1", "cause": ack})
	tb.sees("Cancel the run: Accepted; the run was cancelled.")
	tb.until("no run to cancel", `document.getElementById('cancel-run').hidden`)

	// The keyboard: from an event to its cause, to all of it, and back.
	press := func(k string) {
		js[bool](tb, fmt.Sprintf(`document.getElementById('events').dispatchEvent(new KeyboardEvent('keydown', { key: %q, bubbles: true, cancelable: true }))`, k))
	}
	current := `document.querySelector('.row.current .name').innerText`
	tb.run(chromedp.Focus(chromedp.CSS("#events")))
	press("Home")
	tb.until("a current event", `document.getElementById('events').getAttribute('aria-activedescendant')`)
	if got := js[string](tb, current); got != "session.started" {
		t.Errorf("Home is %q", got)
	}
	for range 3 {
		press("ArrowDown")
	}
	if got := js[string](tb, current); got != "tool.completed" {
		t.Errorf("the fourth is %q", got)
	}
	press("ArrowLeft")
	if got := js[string](tb, current); got != "tool.requested" {
		t.Errorf("its cause is %q", got)
	}
	press("Enter")
	tb.until("the details", `document.activeElement.id === 'detail-title'`)
	tb.sees("/etc/hosts")
	tb.sees("led to")
	tb.shot("detail")
	tb.run(chromedp.KeyEvent("\x1b"))
	tb.until("the list", `document.activeElement.id === 'events'`)
	tb.run(chromedp.Click(chromedp.CSS("input[value=cause] + span")))
	tb.until("the tree", `document.getElementById('events').getAttribute('role') === 'tree' && document.querySelector('.row[aria-level="3"]')`)
	tb.shot("tree")

	tb.press("#cancel-session")
	tb.press("#sure-yes")
	c = tg.hear()
	if c["data"].(obj)["scope"] != "session" {
		t.Errorf("%v", c)
	}
	ack = tg.accept(c)
	tg.emit("session.ended", obj{"reason": "killed"}, obj{"cause": ack})
	tb.sees("End the session: Accepted; the session ended.")
	tb.until("no controls", `document.querySelectorAll('#controls > button:not([hidden])').length === 0`)

	// What a session does not declare is not offered.
	tb.run(chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll('.entry')].find((b) => b.innerText.includes('s-shy')).click()`))
	tb.sees("s-shy")
	if n := js[int](tb, `document.querySelectorAll('#controls > button:not([hidden]), #controls > form:not([hidden])').length`); n != 0 {
		t.Errorf("%d controls that were not declared", n)
	}
	tb.run(chromedp.NavigateBack())
	tb.until("the session before", `document.getElementById('facts').innerText.includes('s-control')`)
}

// Hundreds of thousands of events, and a flood of them, leave the page usable:
// it holds the rows that are seen, and answers at once.
func TestFlood(t *testing.T) {
	w := newWorldAlone(t, collector.Limits{SessionEvents: 400_000, SessionBytes: 400 << 20, HeldBytes: 400 << 20})
	tg := w.emitter("demo", "s-flood", everything...)
	tg.begin("/srv")
	many, n := 40_000, 0
	if v, err := strconv.Atoi(os.Getenv("AEP_PAGE_EVENTS")); err == nil {
		many = v
	}
	status := func(i int) string {
		return fmt.Sprintf(`{"aep":"0.1","id":"n%d","type":"progress.status","time":"2026-11-30T10:00:00.000Z","source":"aep://host-a/agent/demo/session/s-flood","agent":"demo","session":"s-flood","run":"r1","seq":%d,"severity":"debug","data":{"phase":"step %d"}}`, i, 10+i, i)
	}
	w.post(t, many, func() string { n++; return status(n) })
	tb := w.open(token, desk)
	tb.live()
	began := time.Now()
	tb.until("the session", `document.querySelector('#sessions .entry')`)
	tb.run(chromedp.Evaluate[chromedp.Void](`document.querySelector('#sessions .entry').click()`))
	tb.within(40*time.Second, "all of it", fmt.Sprintf(`parseInt(document.getElementById('count').innerText.replace(/\D/g, '')) >= %d`, many))
	t.Logf("%d events after %v", many, time.Since(began).Round(time.Millisecond))
	if rows := js[int](tb, `document.querySelectorAll('.row').length`); rows > 120 {
		t.Errorf("%d rows on the page", rows)
	}
	tb.shot("many")
	took := js[float64](tb, `(() => { const t = performance.now(); document.querySelector('input[value=cause]').click(); return performance.now() - t; })()`)
	t.Logf("the order by cause took %.0f ms", took)
	tb.run(chromedp.Click(chromedp.CSS("input[value=time] + span")))

	// The flood: 2000 a second for three seconds, as the page is used.
	js[string](tb, `(() => { window.gaps = []; let last = performance.now(); const f = () => { const now = performance.now(); window.gaps.push(now - last); last = now; if (window.gaps) requestAnimationFrame(f); }; requestAnimationFrame(f); return ''; })()`)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); <-tick.C {
		w.post(t, 20, func() string { n++; return status(n) })
	}
	tb.until("all of them", fmt.Sprintf(`parseInt(document.getElementById('count').innerText.replace(/\D/g, '')) >= %d`, n))
	gaps := js[[]float64](tb, `window.gaps.sort((a, b) => b - a).slice(0, 5)`)
	t.Logf("%d events; the longest frames: %.0f ms", n, gaps)
	if gaps[0] > 1000 {
		t.Errorf("the page stood still for %.0f ms", gaps[0])
	}
	_, _ = tg.ask("Bash", obj{"command": "echo hi"}, nil)
	tb.sees("echo hi")
	tb.press(`[data-option="allow"]`)
	tg.hear()
}

// Two hundred sessions, and a list that can be searched.
func TestFleet(t *testing.T) {
	w := newWorld(t, collector.Limits{})
	i := 0
	agents := []string{"claude-code", "codex", "gemini-cli", "opencode", "qwen-code"}
	w.post(t, 400, func() string {
		s, agent := i/2, agents[i/2%len(agents)]
		typ, data := "session.started", fmt.Sprintf(`{"cwd":"/home/u/src/project-%d"}`, s)
		if i%2 == 1 {
			typ, data = []string{"run.started", "run.finished", "session.ended", "run.failed"}[s%4], `{}`
		}
		line := fmt.Sprintf(`{"aep":"0.1","id":"e%d","type":%q,"time":%q,"source":"aep://host-%d/agent/%s/session/s_%04d","agent":%q,"session":"s_%04d","run":"r1","seq":%d,"capture":"redacted","data":%s}`,
			i, typ, time.Now().Add(time.Duration(i-400)*time.Minute).UTC().Format(time.RFC3339), s%3, agent, s, agent, s, i%2, data)
		i++
		return line
	})
	tg := w.emitter("claude-code", "s-ask", everything...)
	tg.begin("/srv")
	tg.ask("Bash", obj{"command": "make deploy"}, nil)
	tb := w.open(token, desk)
	tb.sees("At work · 50")
	tb.sees("Ended · 50")
	tb.until("the request", `document.querySelector('[data-option]')`)
	tb.shot("fleet")
	ph := w.open(token, phone)
	ph.live()
	ph.run(chromedp.Click(chromedp.CSS("#tab-fleet")))
	ph.sees("At work · 50")
	ph.shot("fleet")
	tb.write("#search", "project-77")
	tb.until("one", `document.querySelectorAll('#sessions .entry').length === 1`)
	tb.run(chromedp.Click(chromedp.CSS("#sessions .entry")))
	tb.sees("host-2")
	// By its address, on another device.
	url := js[string](tb, `location.href`)
	other := w.openAt(url+"&token="+token, phone)
	other.sees("project-77")
	if got := js[string](other, `location.href`); got != url {
		t.Errorf("the address is %q, want %q", got, url)
	}
	other.shot("session")
}
