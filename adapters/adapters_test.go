package adapters

import (
	"strings"
	"testing"
	"time"

	"aep-wrap/event"
)

func TestCommandIndex(t *testing.T) {
	for line, want := range map[string]int{
		"claude -p":                                          0,
		`C:\bin\claude.exe`:                                  0,
		"/opt/x/claude":                                      0,
		"npx @anthropic-ai/claude-code -p hi":                1,
		"npx --yes @anthropic-ai/claude-code@2":              2,
		"npx --package=@anthropic-ai/claude-code -- claude":  3,
		"yarn dlx @anthropic-ai/claude-code":                 2,
		"bun x @anthropic-ai/claude-code":                    2,
		"node -r dotenv /a/@anthropic-ai/claude-code/cli.js": 3,
		"bun /a/@anthropic-ai/claude-code/cli.js":            1,
		"npx -p other claude":                                -1,
		"npx other claude":                                   -1,
		"pnpm add @anthropic-ai/claude-code":                 -1,
		"node /a/@anthropic-ai/claude-code":                  -1,
		"npx":                                                -1,
		"claude2":                                            -1,
		"":                                                   -1,
	} {
		if got := CommandIndex(strings.Fields(line), []string{"claude"}, []string{"@anthropic-ai/claude-code"}); got != want {
			t.Errorf("%s: %d; want %d", line, got, want)
		}
	}
}

func TestGetenv(t *testing.T) {
	l := Launch{Env: []string{"A=1", "AB=2", "A=3", "E="}}
	if v, ok := l.Getenv("A"); v != "3" || !ok {
		t.Errorf("A is %q, %v", v, ok)
	}
	if v, ok := l.Getenv("E"); v != "" || !ok {
		t.Errorf("E is %q, %v", v, ok)
	}
	if _, ok := l.Getenv("B"); ok {
		t.Error("B is there")
	}
}

func TestProxied(t *testing.T) {
	for env, want := range map[string]bool{
		"":                                       false,
		"HTTPS_PROXY=http://p":                   true,
		"http_proxy=http://p NO_PROXY=x":         true,
		"http_proxy=http://p NO_PROXY=x,*":       false,
		"HTTP_PROXY=http://p no_proxy=127.0.0.1": false,
		"HTTP_PROXY=http://p no_proxy=localhost": true,
	} {
		if got := (Launch{Env: strings.Fields(env)}).Proxied("http://127.0.0.1:1/x"); got != want {
			t.Errorf("%s: %v", env, got)
		}
	}
}

func TestValidate(t *testing.T) {
	good := Adapter{
		Name: "x-1", Title: "X", Pinned: "1", Doc: strings.Repeat("word ", 30),
		Map: func(Moment) []event.Draft { return nil },
		Vocabulary: func() []Term {
			return []Term{{Channel: Hook, Native: "a", Emits: "run.started"}, {Channel: Hook, Native: "b", Note: "no"}, {Channel: Hook, Native: "c", Emits: "x.x-1.a.b"}}
		},
		Launch: &Launching{Detect: func(Launch) bool { return false }, Wire: func(Launch, Endpoint) (Wiring, error) { return Wiring{}, nil }},
	}
	if err := Validate(good); err != nil {
		t.Errorf("a good one: %v", err)
	}
	for name, spoil := range map[string]func(*Adapter){
		"Name must be":     func(a *Adapter) { a.Name = "X 1" },
		"Title is empty":   func(a *Adapter) { a.Title = "" },
		"Doc is empty":     func(a *Adapter) { a.Doc = "soon" },
		"Map is nil":       func(a *Adapter) { a.Map = nil },
		"Vocabulary is":    func(a *Adapter) { a.Vocabulary = nil },
		"does not say why": func(a *Adapter) { a.Vocabulary = func() []Term { return []Term{{Native: "a"}} } },
		"not registered":   func(a *Adapter) { a.Vocabulary = func() []Term { return []Term{{Native: "a", Emits: "run.exploded"}} } },
		"is reserved": func(a *Adapter) {
			a.Vocabulary = func() []Term { return []Term{{Native: "a", Emits: "message.user.submitted"}} }
		},
		"only other": func(a *Adapter) {
			a.Vocabulary = func() []Term { return []Term{{Native: "a", Emits: "control.cancel"}} }
		},
		"names no native": func(a *Adapter) { a.Vocabulary = func() []Term { return []Term{{Emits: "run.started"}} } },
		"needs both":      func(a *Adapter) { a.Launch = &Launching{} },
		"Pinned is empty": func(a *Adapter) { a.Pinned = "" },
		"need each other": func(a *Adapter) { a.Reply = func(Moment, Answer) []byte { return nil } },
		"Server needs":    func(a *Adapter) { a.Server = &Serving{Events: "event"} },
		"Server: Asked": func(a *Adapter) {
			a.Server = &Serving{Events: "/event", Quiet: time.Second, Item: func(map[string]any) []Moment { return nil }, Asked: func(Moment) string { return "" }}
		},
		"a query of Known": func(a *Adapter) {
			a.Server = &Serving{Events: "/event", Quiet: time.Second, Item: func(map[string]any) []Moment { return nil }, Known: []Query{{Path: "/x"}}}
		},
	} {
		a := good
		spoil(&a)
		if err := Validate(a); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGated(t *testing.T) {
	for _, tt := range []struct {
		patterns []string
		tool     string
		want     bool
	}{
		{nil, "Bash", false},
		{[]string{"Bash"}, "Bash", true},
		{[]string{"bash"}, "Bash", true},
		{[]string{"Bash"}, "BashOutput", false},
		{[]string{"Bash*"}, "BashOutput", true},
		{[]string{"*"}, "mcp__files__read", true},
		{[]string{"mcp__*__write*"}, "mcp__files__write_all", true},
		{[]string{"mcp__*__write*"}, "mcp__files__read", false},
		{[]string{"Read", "Edit"}, "Edit", true},
		{[]string{"B.sh"}, "Bash", false},
		{[]string{""}, "Bash", false},
	} {
		if got := Gated(tt.patterns, tt.tool); got != tt.want {
			t.Errorf("%q gates %q: %v", tt.patterns, tt.tool, got)
		}
	}
}
