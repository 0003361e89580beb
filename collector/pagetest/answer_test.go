package pagetest

import (
	"testing"

	"github.com/chromedp/chromedp"

	"aep-wrap/collector"
)

// An agent asks; a person allows; two tabs see what comes of it.
func TestAllow(t *testing.T) {
	w := newWorld(t, collector.Limits{})
	tg := w.emitter("claude-code", "s-allow", everything...)
	tg.begin("/home/u/project")
	one, two := w.open(token, Desk), w.open(token, Phone)
	one.Live()
	one.Sees("Nothing waits for you.")
	one.Shot("empty")
	two.Shot("empty")
	call, request := tg.ask("Bash", obj{"command": "rm -rf build/ && make", "description": "clean build"}, nil)
	for _, tb := range []*Tab{one, two} {
		tb.Sees("rm -rf build/ && make")
		tb.Sees("/home/u/project")
		tb.Sees("host-a")
		tb.Sees("0123456789ab")
		tb.Sees("left")
		tb.Shot("asked")
	}
	one.Scheme("dark")
	one.Shot("dark")
	two.Scheme("dark")
	two.Shot("dark")
	if title := JS[string](one, "document.title"); title != "(1) aep-wrap" {
		t.Errorf("the title is %q", title)
	}
	one.Press(`[data-option="allow"]`)
	c := tg.hear()
	data := c["data"].(obj)
	if c["type"] != "control.attention.respond" || c["subject"] != request || c["cause"] != request || c["seq"] != nil ||
		data["answer"].(obj)["option"] != "allow" || data["args_digest"] != digest || c["agent"] != "aep-wrap-page" {
		t.Errorf("the command: %v", c)
	}
	one.Sees("Sending…")
	tg.accept(c)
	one.Sees("Accepted. Waiting for what comes of it…")
	one.Shot("accepted")
	tg.settle(c)
	one.Sees("Answered by you: Allow.")
	two.Sees("Answered by aep-wrap-page: Allow.")
	tg.emit("tool.completed", obj{"tool": obj{"name": "Bash"}}, obj{"cause": call, "subject": "Bash"})
	one.Sees("It ran.")
	if n := JS[int](two, `document.querySelectorAll('.card:not(.over)').length`); n != 0 {
		t.Errorf("%d cards are open", n)
	}
	one.Shot("settled")
	two.Shot("settled")
}

// A refusal with a reason reaches the agent as one answer, given by the
// keyboard alone.
func TestDeny(t *testing.T) {
	w := newWorld(t, collector.Limits{})
	tg := w.emitter("codex", "s-deny", everything...)
	tg.begin("/srv")
	tg.ask("shell", obj{"command": "git push --force"}, nil)
	tb := w.open(token, Desk)
	tb.Sees("git push --force")
	tb.Tab("the reason", `document.activeElement.className === 'why'`)
	tb.Run(chromedp.KeyEvent("not on main"))
	tb.Run(chromedp.KeyEvent("\t", chromedp.KeyModifiers(chromedp.ModifierShift)))
	tb.Until("the refusal in focus", `document.activeElement.dataset.option === 'deny'`)
	tb.Run(chromedp.KeyEvent("\r"))
	c := tg.hear()
	if a := c["data"].(obj)["answer"].(obj); a["option"] != "deny" || a["text"] != "not on main" || c["capture"] != "full" {
		t.Errorf("the command: %v", c)
	}
	tg.accept(c)
	// What was pressed takes nothing more, and the keyboard is not lost with it.
	tb.Until("the title in focus", `document.querySelector('.answers fieldset').disabled && document.activeElement.className === 'title'`)
	tg.settle(c)
	tb.Sees("Answered by you: Deny (“not on main”).")
	if got := JS[string](tb, `document.activeElement.className`); got != "title" {
		t.Errorf("the focus went to %q", got)
	}
	if n := tb.Nameless(); n != "" {
		t.Errorf("without a name: %s", n)
	}
}

// A command without an answer is sent again with the same id, then told as
// timed out; another try is the same command still.
func TestTimeout(t *testing.T) {
	w := newWorld(t, collector.Limits{})
	w.window = 2000
	tg := w.emitter("codex", "s-late", everything...)
	tg.begin("/srv")
	tg.ask("shell", obj{"command": "ls"}, nil)
	tb := w.open(token, Desk)
	tb.Press(`[data-option="allow"]`)
	first := tg.hear()
	again := tg.hear()
	if first["id"] != again["id"] || first["time"] != again["time"] {
		t.Errorf("another command: %v, %v", first, again)
	}
	tb.Sees("No answer within 2 s (timeout).")
	tb.Shot("timeout")
	for len(tg.commands) > 0 {
		<-tg.commands
	}
	tb.Press(".foot .link")
	if c := tg.hear(); c["id"] != first["id"] {
		t.Errorf("another command: %v", c)
	}
	tg.accept(first)
	tg.settle(first)
	tb.Sees("Answered by you: Allow.")
}

// What the target, or the collector, refuses is said with its reason, and the
// request can be answered again as long as it waits.
func TestRefused(t *testing.T) {
	w := newWorld(t, collector.Limits{})
	tg := w.emitter("codex", "s-no", everything...)
	tg.begin("/srv")
	_, request := tg.ask("shell", obj{"command": "ls"}, nil)
	tb := w.open(token, Desk)
	tb.Press(`[data-option="allow"]`)
	tg.reject(tg.hear(), "refused", "answered 12 ms after it was asked")
	tb.Sees("Refused by the agent’s wrapper, refused: answered 12 ms after it was asked")
	tb.Press(`[data-option="allow"]`)
	c := tg.hear()
	tg.accept(c)
	tg.emit("attention.timeout", obj{"after_ms": 8000}, obj{"subject": request})
	tb.Sees("Timed out: nobody answered in time")

	// One that is answered in the agent's own screen meanwhile.
	_, request = tg.ask("shell", obj{"command": "pwd"}, nil)
	tb.Sees("pwd")
	tg.emit("attention.resolved", obj{"resolution": "dismissed"}, obj{"subject": request})
	tb.Sees("Settled in the agent’s own screen.")

	// An impostor makes the session ambiguous: nobody is commanded.
	tg.ask("shell", obj{"command": "whoami"}, nil)
	tb.Sees("whoami")
	im := w.emitter("impostor", "s-no", everything...)
	im.emit("progress.status", nil)
	tb.Sees("More than one connection claims this session")
	if n := JS[int](tb, `document.querySelectorAll('.card:not(.over) [data-option]').length`); n != 0 {
		t.Errorf("%d buttons", n)
	}
	tb.Shot("ambiguous")
	im.ws.CloseNow()
	tb.Until("the buttons", `document.querySelector('.card:not(.over) [data-option]')`)

	// The session ends: what waits is closed.
	tg.emit("session.ended", obj{"reason": "normal"})
	tb.Sees("The session ended before an answer.")
}
