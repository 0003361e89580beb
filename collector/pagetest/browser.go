// Package pagetest opens the collector's page in a browser, as people use it.
// It is for tests, its own and those of the whole, and apart from the collector
// so that nothing of a browser's driver gets into a program. Its own tests are
// against a collector and a target that are real but for the agent.
package pagetest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// browser is the one process that all tests share, and how it is ended.
var browser struct {
	once sync.Once
	ctx  context.Context
	stop func()
	why  string // it is not there
}

// Need skips the test, with a word, where there is no browser.
func Need(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: no browser is started")
	}
	browser.once.Do(startBrowser)
	if browser.why != "" {
		t.Skip("the page is not tried in a browser: " + browser.why)
	}
}

// Close ends the browser, if there is one; the next test that needs one starts
// another. No test may be at work with it.
func Close() {
	if browser.stop != nil {
		browser.stop()
		browser.stop = nil
		browser.once = sync.Once{}
	}
}

func startBrowser() {
	var path string
	for _, name := range []string{os.Getenv("AEP_CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if name == "" {
			continue
		}
		if p, err := exec.LookPath(name); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		browser.why = "no Chromium: install Debian's package chromium, or name one in AEP_CHROMIUM"
		return
	}
	dir, err := os.MkdirTemp("", "aep-page-")
	if err != nil {
		browser.why = err.Error()
		return
	}
	opts := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.UserDataDir(dir), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("lang", "en-GB"), chromedp.WSURLReadTimeout(time.Minute))
	actx, stopAlloc := chromedp.NewExecAllocator(context.Background(), opts...)
	ctx, stop := chromedp.NewContext(actx)
	browser.stop = func() {
		stop()
		stopAlloc()
		os.RemoveAll(dir)
	}
	if err := chromedp.Do(ctx); err != nil {
		browser.why = "Chromium does not start: " + err.Error()
		return
	}
	browser.ctx = ctx
}

// Tab is a page in a browser context of its own, as on another device.
type Tab struct {
	t    testing.TB
	ctx  context.Context
	name string

	mu     sync.Mutex
	broken []string // what its console held against it
}

// Size is a screen.
type Size struct {
	w, h   int64
	mobile bool
}

// The screens that the page is looked at on.
var (
	Desk  = Size{1360, 860, false}
	Phone = Size{390, 844, true}
)

// Open opens an address, in a browser context of its own, as on another device.
// At the test's end the tab is closed, and what its console held against the
// page fails the test.
func Open(t testing.TB, url string, s Size) *Tab {
	t.Helper()
	Need(t)
	ctx, stop := chromedp.NewContext(browser.ctx, chromedp.WithNewBrowserContext())
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	tb := &Tab{t: t, ctx: ctx, name: "desk"}
	if s.mobile {
		tb.name = "phone"
	}
	heard := make(chan struct{})
	t.Cleanup(func() {
		tb.Shot("last")
		cancel()
		stop()
		<-heard
		tb.mu.Lock()
		defer tb.mu.Unlock()
		for _, b := range tb.broken {
			t.Errorf("the browser's console: %s", b)
		}
	})
	messages := chromedp.Console(ctx)
	go func() {
		defer close(heard)
		for m, err := range messages {
			if err != nil {
				return
			}
			// That a collector cannot be reached is no fault of the page.
			if m.Type != chromedp.ConsoleException && m.Type != chromedp.ConsoleError || strings.Contains(m.Text, "net::ERR_") || strings.Contains(m.Text, "Failed to load resource") ||
				strings.Contains(m.Text, "requires 'TrustedHTML' assignment") { // which a test tries
				continue
			}
			tb.mu.Lock()
			tb.broken = append(tb.broken, fmt.Sprint(m))
			tb.mu.Unlock()
		}
	}()
	view := chromedp.EmulateViewport(s.w, s.h)
	if s.mobile {
		view = chromedp.EmulateViewport(s.w, s.h, chromedp.EmulateMobile, chromedp.EmulateTouch, chromedp.EmulateScale(2))
	}
	tb.Run(view, chromedp.Navigate(url))
	return tb
}

// Run does what a driver's actions say.
func (tb *Tab) Run(actions ...chromedp.Action[chromedp.Void]) {
	tb.t.Helper()
	if err := chromedp.Do(tb.ctx, actions...); err != nil {
		tb.Shot("failed")
		tb.t.Fatal(err)
	}
}

// JS is an expression's value.
func JS[T any](tb *Tab, expression string) T {
	tb.t.Helper()
	v, err := chromedp.Run(tb.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		tb.Shot("failed")
		tb.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// Until waits for an expression to be true.
func (tb *Tab) Until(what, expression string) {
	tb.t.Helper()
	tb.Within(40*time.Second, what, expression)
}

// Within is Until, with another patience.
func (tb *Tab) Within(d time.Duration, what, expression string) {
	tb.t.Helper()
	for end := time.Now().Add(d); !JS[bool](tb, "!!("+expression+")"); time.Sleep(30 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Shot("failed")
			tb.t.Fatalf("waited in vain for %s; the page says\n%s", what, JS[string](tb, "document.body.innerText.slice(0, 4000)"))
		}
	}
}

// Sees waits for a text on the page, as people see it.
func (tb *Tab) Sees(text string) {
	tb.t.Helper()
	q, _ := json.Marshal(text)
	tb.Until(fmt.Sprintf("%q", text), "document.body.innerText.includes("+string(q)+")")
}

// Live waits for the page to be connected.
func (tb *Tab) Live() {
	tb.t.Helper()
	tb.Until("the connection", `document.getElementById('link').dataset.link === 'on'`)
}

// Press clicks what a selector finds, where it is, once the list is steady.
func (tb *Tab) Press(selector string) {
	tb.t.Helper()
	tb.Run(chromedp.WaitVisible(chromedp.CSS(selector)), chromedp.Sleep(400*time.Millisecond), chromedp.Click(chromedp.CSS(selector)))
}

// Write types into what a selector finds.
func (tb *Tab) Write(selector, text string) {
	tb.t.Helper()
	tb.Run(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// Shot keeps a picture where AEP_SHOTS names a folder.
func (tb *Tab) Shot(name string) {
	dir := os.Getenv("AEP_SHOTS")
	if dir == "" {
		return
	}
	b, err := chromedp.Run(tb.ctx, chromedp.CaptureScreenshot())
	if err != nil {
		tb.t.Log("no picture:", err)
		return
	}
	file := strings.NewReplacer("/", "-", " ", "_").Replace(tb.t.Name()) + "-" + tb.name + "-" + name + ".png"
	if err := os.WriteFile(filepath.Join(dir, file), b, 0o600); err != nil {
		tb.t.Log(err)
	}
}

// Scheme has the page think that the system is dark, or light.
func (tb *Tab) Scheme(name string) {
	tb.t.Helper()
	params := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}
	if _, err := chromedp.Call(tb.ctx, emulation.SetEmulatedMedia, params); err != nil {
		tb.t.Fatal(err)
	}
}

// Count is how many elements a selector finds.
func (tb *Tab) Count(selector string) int {
	tb.t.Helper()
	q, _ := json.Marshal(selector)
	return JS[int](tb, "document.querySelectorAll("+string(q)+").length")
}

// PressNth clicks the first of inner in the nth, from 0, of what outer finds.
func (tb *Tab) PressNth(outer string, n int, inner string) {
	tb.t.Helper()
	o, _ := json.Marshal(outer)
	i, _ := json.Marshal(inner)
	JS[string](tb, fmt.Sprintf("(() => { document.querySelectorAll(%s)[%d].querySelector(%s).click(); return ''; })()", o, n, i))
}

// Nameless are the controls in sight that a screen reader could not name.
func (tb *Tab) Nameless() string {
	tb.t.Helper()
	return JS[string](tb, `[...document.querySelectorAll('button, input, select, textarea, [role], pre[tabindex], fieldset')]
		.filter((e) => e.checkVisibility() && !['status', 'timer', 'alert', 'group'].includes(e.getAttribute('role')))
		.filter((e) => !(e.getAttribute('aria-label') || document.getElementById(e.getAttribute('aria-labelledby') ?? '') || [...e.labels ?? []].some((l) => l.innerText.trim()) || e.querySelector('legend') || e.innerText?.trim()))
		.map((e) => e.outerHTML.slice(0, 200)).join('\n')`)
}

// Tab presses the Tab key until an expression about the page is true.
func (tb *Tab) Tab(what, expression string) {
	tb.t.Helper()
	for range 60 {
		if JS[bool](tb, "!!("+expression+")") {
			return
		}
		tb.Run(chromedp.KeyEvent("\t"))
	}
	tb.t.Fatalf("the Tab key does not come to %s", what)
}
