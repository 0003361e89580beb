package pagetest

import (
	"testing"

	"aep-wrap/collector"
)

// An agent asks; a person allows; two tabs see what comes of it.
func TestAllow(t *testing.T) {
	w := newWorld(t, collector.Limits{})
	tg := w.emitter("claude-code", "s-allow", everything...)
	tg.begin("/home/u/project")
	one, two := w.open(token, desk), w.open(token, phone)
	one.live()
	one.sees("Nothing waits for you.")
	one.shot("empty")
	two.shot("empty")
	call, request := tg.ask("Bash", obj{"command": "rm -rf build/ && make", "description": "clean build"}, nil)
	for _, tb := range []*tab{one, two} {
		tb.sees("rm -rf build/ && make")
		tb.sees("/home/u/project")
		tb.sees("host-a")
		tb.sees("0123456789ab")
		tb.sees("left")
		tb.shot("asked")
	}
	one.scheme("dark")
	one.shot("dark")
	two.scheme("dark")
	two.shot("dark")
	if title := js[string](one, "document.title"); title != "(1) aep-wrap" {
		t.Errorf("the title is %q", title)
	}
	one.press(`[data-option="allow"]`)
	c := tg.hear()
	data := c["data"].(obj)
	if c["type"] != "control.attention.respond" || c["subject"] != request || c["cause"] != request || c["seq"] != nil ||
		data["answer"].(obj)["option"] != "allow" || data["args_digest"] != digest || c["agent"] != "aep-wrap-page" {
		t.Errorf("the command: %v", c)
	}
	one.sees("Sending…")
	tg.accept(c)
	one.sees("Accepted. Waiting for what comes of it…")
	one.shot("accepted")
	tg.settle(c)
	one.sees("Answered by you: Allow.")
	two.sees("Answered by aep-wrap-page: Allow.")
	tg.emit("tool.completed", obj{"tool": obj{"name": "Bash"}}, obj{"cause": call, "subject": "Bash"})
	one.sees("It ran.")
	if n := js[int](two, `document.querySelectorAll('.card:not(.over)').length`); n != 0 {
		t.Errorf("%d cards are open", n)
	}
	one.shot("settled")
	two.shot("settled")
}

// A refusal with a reason reaches the agent as one answer.
func TestDeny(t *testing.T) {
	w := newWorld(t, collector.Limits{})
	tg := w.emitter("codex", "s-deny", everything...)
	tg.begin("/srv")
	tg.ask("shell", obj{"command": "git push --force"}, nil)
	tb := w.open(token, desk)
	tb.sees("git push --force")
	tb.write(".why", "not on main")
	tb.press(`[data-option="deny"]`)
	c := tg.hear()
	if a := c["data"].(obj)["answer"].(obj); a["option"] != "deny" || a["text"] != "not on main" || c["capture"] != "full" {
		t.Errorf("the command: %v", c)
	}
	tg.accept(c)
	tg.settle(c)
	tb.sees("Answered by you: Deny (“not on main”).")
}

// A command without an answer is sent again with the same id, then told as
// timed out; another try is the same command still.
func TestTimeout(t *testing.T) {
	w := newWorld(t, collector.Limits{})
	tg := w.emitter("codex", "s-late", everything...)
	tg.begin("/srv")
	tg.ask("shell", obj{"command": "ls"}, nil)
	tb := w.open(token, desk)
	tb.press(`[data-option="allow"]`)
	first := tg.hear()
	again := tg.hear()
	if first["id"] != again["id"] || first["time"] != again["time"] {
		t.Errorf("another command: %v, %v", first, again)
	}
	tb.sees("No answer within 2 s (timeout).")
	tb.shot("timeout")
	for len(tg.commands) > 0 {
		<-tg.commands
	}
	tb.press(".foot .link")
	if c := tg.hear(); c["id"] != first["id"] {
		t.Errorf("another command: %v", c)
	}
	tg.accept(first)
	tg.settle(first)
	tb.sees("Answered by you: Allow.")
}

// What the target, or the collector, refuses is said with its reason, and the
// request can be answered again as long as it waits.
func TestRefused(t *testing.T) {
	w := newWorld(t, collector.Limits{})
	tg := w.emitter("codex", "s-no", everything...)
	tg.begin("/srv")
	_, request := tg.ask("shell", obj{"command": "ls"}, nil)
	tb := w.open(token, desk)
	tb.press(`[data-option="allow"]`)
	tg.reject(tg.hear(), "refused", "answered 12 ms after it was asked")
	tb.sees("Refused by the agent’s wrapper, refused: answered 12 ms after it was asked")
	tb.press(`[data-option="allow"]`)
	c := tg.hear()
	tg.accept(c)
	tg.emit("attention.timeout", obj{"after_ms": 8000}, obj{"subject": request})
	tb.sees("Timed out: nobody answered in time")

	// One that is answered in the agent's own screen meanwhile.
	_, request = tg.ask("shell", obj{"command": "pwd"}, nil)
	tb.sees("pwd")
	tg.emit("attention.resolved", obj{"resolution": "dismissed"}, obj{"subject": request})
	tb.sees("Settled in the agent’s own screen.")

	// An impostor makes the session ambiguous: nobody is commanded.
	tg.ask("shell", obj{"command": "whoami"}, nil)
	tb.sees("whoami")
	im := w.emitter("impostor", "s-no", everything...)
	im.emit("progress.status", nil)
	tb.sees("More than one connection claims this session")
	if n := js[int](tb, `document.querySelectorAll('.card:not(.over) [data-option]').length`); n != 0 {
		t.Errorf("%d buttons", n)
	}
	tb.shot("ambiguous")
	im.ws.CloseNow()
	tb.until("the buttons", `document.querySelector('.card:not(.over) [data-option]')`)

	// The session ends: what waits is closed.
	tg.emit("session.ended", obj{"reason": "normal"})
	tb.sees("The session ended before an answer.")
}
