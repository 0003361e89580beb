package all

import (
	"os"
	"slices"
	"strings"
	"testing"

	"aep-wrap/adapters"
)

func TestEveryAdapterIsValid(t *testing.T) {
	for _, a := range List() {
		if err := adapters.Validate(a); err != nil {
			t.Error(err)
		}
	}
}

func TestNamesAreUnique(t *testing.T) {
	seen := map[string]string{}
	for _, a := range List() {
		for _, n := range append([]string{a.Name}, a.Command...) {
			if other, twice := seen[n]; twice && other != a.Name {
				t.Errorf("%s is the name of %s and of %s", n, other, a.Name)
			}
			seen[n] = a.Name
		}
	}
}

// A folder of adapters that is not in the list is dead code that looks alive.
func TestNoFolderIsUnlisted(t *testing.T) {
	dirs, err := os.ReadDir("..")
	if err != nil {
		t.Fatal(err)
	}
	own, err := os.ReadFile("all.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range dirs {
		if !d.IsDir() || slices.Contains([]string{"all", "hook", "adaptertest", "testdata"}, d.Name()) {
			continue
		}
		if !strings.Contains(string(own), d.Name()+".Adapter(),") {
			t.Errorf("adapters/%s is not in List", d.Name())
		}
	}
}

func TestFind(t *testing.T) {
	for name, want := range map[string]string{"claude-code": "claude-code", "claude": "claude-code", "generic": "generic", "demo": "demo"} {
		if a, ok := Find(name); !ok || a.Name != want {
			t.Errorf("Find(%q) = %q, %v; want %q", name, a.Name, ok, want)
		}
	}
	if a, ok := Find("nobody"); ok {
		t.Errorf("Find(nobody) = %q", a.Name)
	}
}

func TestDetect(t *testing.T) {
	for line, want := range map[string]string{
		"claude":                                                             "claude-code",
		"/usr/local/bin/claude -p hi":                                        "claude-code",
		"npx @anthropic-ai/claude-code -p hi":                                "claude-code",
		"npx -y @anthropic-ai/claude-code@latest":                            "claude-code",
		"npx -p @anthropic-ai/claude-code claude":                            "claude-code",
		"bunx @anthropic-ai/claude-code@2.1.197":                             "claude-code",
		"pnpm dlx @anthropic-ai/claude-code":                                 "claude-code",
		"npm exec -- @anthropic-ai/claude-code":                              "claude-code",
		"node /opt/node_modules/@anthropic-ai/claude-code/cli.js -p hi":      "claude-code",
		"node --max-old-space-size=4096 /x/@anthropic-ai/claude-code/cli.js": "claude-code",
		"bun run /x/node_modules/@anthropic-ai/claude-code/cli.js":           "claude-code",
		"/x/node_modules/@anthropic-ai/claude-code/bin/claude.exe":           "claude-code",
		"node server.js claude":                                              "generic",
		"npx cowsay claude":                                                  "generic",
		"npm run claude":                                                     "generic",
		"sh -c claude":                                                       "generic",
		"claudette":                                                          "generic",
		"true":                                                               "generic",
	} {
		a := Detect(adapters.Launch{Args: strings.Fields(line)})
		if a.Name != want {
			t.Errorf("%s: %s; want %s", line, a.Name, want)
		}
	}
	if a := Detect(adapters.Launch{}); a.Name != "generic" {
		t.Errorf("no words: %s", a.Name)
	}
}

func TestAgentName(t *testing.T) {
	generic, _ := Find("generic")
	claude, _ := Find("claude")
	if n := AgentName(generic, []string{"/usr/bin/make", "all"}); n != "make" {
		t.Errorf("make is %q", n)
	}
	if n := AgentName(claude, []string{"npx", "x"}); n != "claude-code" {
		t.Errorf("claude is %q", n)
	}
}
