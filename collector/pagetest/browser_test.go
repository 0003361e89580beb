// Package pagetest tries the collector's page as people use it: in a browser,
// against a collector and a target that are real but for the agent. It is
// apart from the collector so that nothing of a browser's driver gets into it.
package pagetest

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"aep-wrap/collector"
)

const (
	token   = "page-test-token-all-roles"
	watches = "page-test-token-watch-only"
)

// browser is the one process that all tests share, and how it is ended.
var browser struct {
	once sync.Once
	ctx  context.Context
	stop func()
	why  string // it is not there
}

func TestMain(m *testing.M) {
	code := m.Run()
	if browser.stop != nil {
		browser.stop()
	}
	os.Exit(code)
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

// world is a collector with its log, and the tabs that look at it.
type world struct {
	t    *testing.T
	base string
	log  *syncBuffer
	c    *collector.Collector
	stop func()
}

type syncBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// newWorld starts a collector, or skips where there is no browser.
func newWorld(t *testing.T, limits collector.Limits) *world {
	t.Helper()
	t.Parallel()
	return newWorldAlone(t, limits)
}

func newWorldAlone(t *testing.T, limits collector.Limits) *world {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: no browser is started")
	}
	browser.once.Do(startBrowser)
	if browser.why != "" {
		t.Skip("the page is not tried in a browser: " + browser.why)
	}
	w := &world{t: t, log: &syncBuffer{}}
	w.serve(limits, "127.0.0.1:0")
	t.Cleanup(func() { w.stop() })
	return w
}

// serve runs a collector of its own, until it is stopped.
func (w *world) serve(limits collector.Limits, address string) {
	w.t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		w.t.Fatal(err)
	}
	w.base = "http://" + l.Addr().String()
	w.c = collector.New(collector.Config{
		Tokens: []collector.Token{{Value: token, Roles: collector.AllRoles}, {Value: watches, Roles: collector.Watch}},
		Log:    slog.New(slog.NewTextHandler(w.log, &slog.HandlerOptions{Level: slog.LevelDebug})), Limits: limits,
	})
	w.c.SetLinkKey([]byte("a key that signs the devices' tokens"))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.c.Serve(ctx, l) }()
	w.stop = sync.OnceFunc(func() {
		stop()
		if err := <-done; err != nil {
			w.t.Errorf("the collector: %v", err)
		}
	})
}

// tab is a page in a browser context of its own, as on another device.
type tab struct {
	t    *testing.T
	ctx  context.Context
	name string

	mu     sync.Mutex
	broken []string // what its console held against it
}

type size struct {
	w, h   int64
	mobile bool
}

var (
	desk  = size{1360, 860, false}
	phone = size{390, 844, true}
)

// open opens the page with a token in its fragment.
func (w *world) open(tok string, s size) *tab {
	w.t.Helper()
	return w.openAt(w.base+"/#token="+tok, s)
}

func (w *world) openAt(url string, s size) *tab {
	w.t.Helper()
	ctx, stop := chromedp.NewContext(browser.ctx, chromedp.WithNewBrowserContext())
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	tb := &tab{t: w.t, ctx: ctx, name: "desk"}
	if s.mobile {
		tb.name = "phone"
	}
	heard := make(chan struct{})
	w.t.Cleanup(func() {
		tb.shot("last")
		cancel()
		stop()
		<-heard
		tb.mu.Lock()
		defer tb.mu.Unlock()
		for _, b := range tb.broken {
			w.t.Errorf("the browser's console: %s", b)
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
				strings.Contains(m.Text, "requires 'TrustedHTML' assignment") { // a test tries it

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
	tb.run(view, chromedp.Navigate(url))
	return tb
}

func (tb *tab) run(actions ...chromedp.Action[chromedp.Void]) {
	tb.t.Helper()
	if err := chromedp.Do(tb.ctx, actions...); err != nil {
		tb.shot("failed")
		tb.t.Fatal(err)
	}
}

// js is an expression's value.
func js[T any](tb *tab, expression string) T {
	tb.t.Helper()
	v, err := chromedp.Run(tb.ctx, chromedp.Evaluate[T](expression, chromedp.EvalAwaitPromise))
	if err != nil {
		tb.shot("failed")
		tb.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// until waits for an expression to be true.
func (tb *tab) until(what, expression string) {
	tb.t.Helper()
	tb.within(20*time.Second, what, expression)
}

func (tb *tab) within(d time.Duration, what, expression string) {
	tb.t.Helper()
	for end := time.Now().Add(d); !js[bool](tb, "!!("+expression+")"); time.Sleep(30 * time.Millisecond) {
		if time.Now().After(end) {
			tb.shot("failed")
			tb.t.Fatalf("waited in vain for %s; the page says\n%s", what, js[string](tb, "document.body.innerText.slice(0, 4000)"))
		}
	}
}

// sees waits for a text on the page, as people see it.
func (tb *tab) sees(text string) {
	tb.t.Helper()
	q, _ := json.Marshal(text)
	tb.until(fmt.Sprintf("%q", text), "document.body.innerText.includes("+string(q)+")")
}

func (tb *tab) live() {
	tb.t.Helper()
	tb.until("the connection", `document.getElementById('link').dataset.link === 'on'`)
}

// press clicks what a selector finds, where it is, once the list is steady.
func (tb *tab) press(selector string) {
	tb.t.Helper()
	tb.run(chromedp.WaitVisible(chromedp.CSS(selector)), chromedp.Sleep(400*time.Millisecond), chromedp.Click(chromedp.CSS(selector)))
}

// write types into what a selector finds.
func (tb *tab) write(selector, text string) {
	tb.t.Helper()
	tb.run(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// shot keeps a picture where AEP_SHOTS names a folder.
func (tb *tab) shot(name string) {
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

// scheme has the page think that the system is dark, or light.
func (tb *tab) scheme(name string) {
	tb.t.Helper()
	params := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}}
	if _, err := chromedp.Call(tb.ctx, emulation.SetEmulatedMedia, params); err != nil {
		tb.t.Fatal(err)
	}
}
