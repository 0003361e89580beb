package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aep-wrap/collector/pagetest"
)

// page opens the collector's page as the user would.
func (w *world) page(s pagetest.Size) *pagetest.Tab {
	w.t.Helper()
	r := w.send("token", "show", "--url")
	if r.code != 0 {
		w.t.Fatalf("token show --url: %+v", r)
	}
	tb := pagetest.Open(w.t, strings.TrimSpace(r.stdout), s)
	tb.Live()
	return tb
}

// What the real claude asks on its screen is answered from the page in a
// browser: allowed, refused with a reason that the model reads, a form filled
// in; and what is answered before the screen settles on the page.
func TestPageTUI(t *testing.T) {
	argv := append([]string{wrapper(t), "--hold", hold, "--capture", "redacted", "--"}, claude(t), "--session-id", sessionID)
	pagetest.Need(t)
	t.Cleanup(pagetest.Close)
	w := commanded(t)
	p := w.open(argv...)
	p.see(prompted)
	tb := w.page(pagetest.Desk)
	tb.Sees("claude-code")

	p.enter("one [[script:bash1]]")
	p.see("Do you want to proceed")
	tb.Sees("Let it use Bash?")
	tb.Sees("made.txt")
	tb.Shot("asked")
	tb.Press(`.card:not(.over) [data-option="allow"]`)
	p.see("The file is made")
	tb.Sees("Answered by you: Allow")
	tb.Shot("allowed")

	p.see(prompted)
	p.enter("two [[script:write1]]")
	p.see("Do you want to create")
	tb.Sees("Let it use Write?")
	tb.Write(".card:not(.over) .why", "Write it elsewhere, please.")
	tb.Press(`.card:not(.over) [data-option="deny"]`)
	w.told("attention.resolved", 2)
	tb.Sees("Answered by you: Deny")
	tb.Shot("denied")

	p.see(prompted)
	p.enter("three [[script:write1]]")
	p.see("Do you want to create")
	tb.Until("the card", `document.querySelector('.card:not(.over)')`)
	p.press("Do you want to create", "1")
	w.told("attention.resolved", 3)
	tb.Sees("in the agent’s own screen")

	p.see(prompted)
	p.enter("four [[script:ask]]")
	p.see("Which colour")
	tb.Until("the form", `document.querySelector('.card:not(.over) .form')`)
	tb.Shot("form")
	tb.Press(".card:not(.over) .answers .permit")
	tb.Sees("need another look")
	for i := range tb.Count(".card:not(.over) .form > .field") {
		tb.PressNth(".card:not(.over) .form > .field", i, ".pick")
	}
	tb.Press(".card:not(.over) .answers .permit")
	p.see("Thanks for the answer")
	w.told("attention.resolved", 4)
	tb.Until("nothing open", `!document.querySelector('.card:not(.over)')`)
	tb.Shot("settled")

	phone := w.page(pagetest.Phone)
	phone.Press("#tab-fleet")
	phone.Press("#sessions .entry")
	phone.Sees("attention.resolved")
	phone.Shot("session")

	p.see(prompted)
	p.enter("/exit")
	if code := p.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	p.restored()
	tb.Until("its end", `document.querySelector('#sessions .state.ended')`)
	if !w.heard("Write it elsewhere, please.") {
		t.Error("the model was not told why it was refused")
	}
	if _, err := os.Stat(filepath.Join(w.dir(), "made.txt")); err != nil {
		t.Error("what was allowed was not done")
	}
}

// The scripted agent, as anyone can try it: its form and its permission,
// answered from the page.
func TestPageDemo(t *testing.T) {
	wrapper(t)
	pagetest.Need(t)
	t.Cleanup(pagetest.Close)
	w := commanded(t)
	demo := w.start(wrapper(t), "--hold", hold, "--capture", "redacted", "demo")
	w.told("attention.requested", 1)
	tb := w.page(pagetest.Desk)
	tb.Sees("Where should it go?")
	tb.Shot("form")
	tb.Press(".answers .permit")
	tb.Sees("One field needs another look.")
	tb.Press(".pick")
	tb.Write(".form > .field:nth-child(2) input", "3")
	tb.Press(".answers .permit")
	tb.Sees("Answered by you: Where to = Staging, How many = 3.")
	tb.Until("the permission", `document.querySelector('.card:not(.over) [data-option="allow"]')`)
	tb.Shot("permission")
	tb.Press(`.card:not(.over) [data-option="allow"]`)
	tb.Sees("Answered by you: Allow.")
	if r := demo.wait(); r.code != 0 {
		t.Errorf("%+v", r)
	}
	tb.Until("its end", `document.querySelector('#sessions .state.ended')`)
	tb.Press("#sessions .entry")
	tb.Until("all of it", `[...document.querySelectorAll('.row .name')].some((e) => e.innerText === 'session.ended')`)
	tb.Shot("session")
	files := w.logFiles()
	if len(files) != 1 {
		t.Fatalf("%v", files)
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"env":"staging"`, `"replicas":3`, `"option":"allow"`, `"via":"control"`} {
		if !bytes.Contains(b, []byte(want)) {
			t.Errorf("the log lacks %s", want)
		}
	}
}
