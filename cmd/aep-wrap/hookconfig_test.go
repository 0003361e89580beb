package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// hookCommand is a command hook as a runtime is told of it.
type hookCommand struct {
	argv    []string
	timeout int // seconds
}

// hookCommands finds the command hooks in what an agent is told, in whatever
// form.
func hookCommands(t *testing.T, told string) (out []hookCommand) {
	t.Helper()
	var tree any
	if json.Unmarshal([]byte(told), &tree) != nil { // Codex's words, as a shell reads them
		plain, err := exec.Command("sh", "-c", "set -- "+told+"\nfor w; do printf '%s\\n' \"$w\"; done").Output()
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`command=("(?:[^"\\]|\\.)*"),timeout=(\d+)`).FindAllStringSubmatch(string(plain), -1) {
			var line string
			if err := json.Unmarshal([]byte(m[1]), &line); err != nil {
				t.Fatal(err)
			}
			n, _ := strconv.Atoi(m[2])
			out = append(out, hookCommand{[]string{"sh", "-c", line}, n})
		}
		return out
	}
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				walk(x)
			}
		case map[string]any:
			for _, x := range v {
				walk(x)
			}
			if v["type"] != "command" {
				return
			}
			c := hookCommand{}
			if n, ok := v["timeout"].(float64); ok {
				c.timeout = int(n)
			} else if n, ok := v["timeoutSec"].(float64); ok {
				c.timeout = int(n)
			}
			line, ok := v["command"].(string)
			if !ok {
				line = v["bash"].(string)
			}
			if c.argv = []string{"sh", "-c", line}; v["args"] != nil {
				c.argv = []string{line}
				for _, a := range v["args"].([]any) {
					c.argv = append(c.argv, a.(string))
				}
			}
			out = append(out, c)
		}
	}
	walk(tree)
	return out
}

// What an agent is told of a hook directory brings each of its hooks there, under
// the names of the agent and the hook. In those that may be answered it waits, for
// less time than its runtime gives it, and hears the answer; in others it does not.
func TestHookConfigForADirectory(t *testing.T) {
	for agent, tt := range map[string]struct {
		file string // of what is written; "" is what is printed
		asks string // the hook that may be answered
		n    int    // how many there are, at least
	}{
		"claude-code": {"claude-settings.json", "PreToolUse", 15},
		"codex":       {"", "PreToolUse", 8},
		"qwen-code":   {"qwen-system-defaults.json", "PreToolUse", 12},
		"copilot":     {"copilot/hooks.json", "preToolUse", 8},
	} {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			hooks, out := filepath.Join(w.home, "a hook's dir"), filepath.Join(w.home, "out")
			if err := os.Mkdir(hooks, 0o700); err != nil {
				t.Fatal(err)
			}
			r := w.run(nil, "hook-config", agent, "--hooks", hooks, "--out", out, "--gate", "Bash", "--hold", "60s")
			if r.code != 0 {
				t.Fatalf("%+v", r)
			}
			told := r.stdout
			if tt.file != "" {
				b, err := os.ReadFile(filepath.Join(out, tt.file))
				if err != nil {
					t.Fatal(err)
				}
				told = string(b)
			}
			list := hookCommands(t, told)
			if len(list) < tt.n {
				t.Errorf("%d hooks in %s", len(list), told)
			}
			asked := false
			for _, c := range list {
				line := strings.Join(c.argv, " ")
				cmd := exec.Command(c.argv[0], c.argv[1:]...)
				cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
				cmd.Stdin = strings.NewReader(`{"session_id":"s"}`)
				var said strings.Builder
				cmd.Stdout, cmd.Stderr = &said, &said
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				held := false
				if m := regexp.MustCompile(`AEP_HOOK_WAIT=(\d+) `).FindStringSubmatch(line); m != nil {
					held = true
					if n, _ := strconv.Atoi(m[1]); n < 60 || n >= c.timeout {
						t.Errorf("it waits %d s where its runtime waits %d: %s", n, c.timeout, line)
					}
				}
				name := theHook(t, hooks)
				if want := "." + agent + "."; !strings.Contains(name, want) || strings.HasSuffix(name, ".held.json") != held {
					t.Errorf("%s became %s", line, name)
				}
				want := ""
				if held {
					asked = asked || strings.Contains(name, "."+tt.asks+".")
					want = `{"answer":1}`
					if err := os.WriteFile(filepath.Join(hooks, strings.TrimSuffix(name, "json")+"reply"), []byte(want), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				if err := cmd.Wait(); err != nil || said.String() != want {
					t.Errorf("%s: %v, it said %q, want %q", line, err, said.String(), want)
				}
				_ = os.Remove(filepath.Join(hooks, name))
			}
			if !asked {
				t.Errorf("nobody is asked in %s", tt.asks)
			}
		})
	}
}

// theHook waits for the one hook of a directory.
func theHook(t *testing.T, dir string) string {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		if found, _ := filepath.Glob(filepath.Join(dir, "*.json")); len(found) == 1 {
			return filepath.Base(found[0])
		}
		if time.Now().After(end) {
			t.Fatal("no hook came")
		}
	}
}

// What cannot be done says what is missing.
func TestHookConfigSaysWhatIsMissing(t *testing.T) {
	for args, want := range map[string]string{
		"claude-code":            "want --hook-listen, --hook-socket or --hooks",
		"claude-code --hooks /h": "want --hook-script PATH",
		"claude-code --hooks /h --hook-script hookdir.sh":        "want an absolute path",
		"claude-code --hooks /h --hooks /i --hook-script /h.sh":  "from 2 directories",
		"copilot --hooks /h --hook-script /h.sh":                 "want --out DIR",
		"opencode --hooks /h --hook-script /h.sh":                "OpenCode reports only to a wrapper that starts it",
		"opencode --hook-listen 127.0.0.1:1":                     "OpenCode reports only to a wrapper that starts it",
		"kimi-code --hook-listen 127.0.0.1:1":                    "Kimi Code reports only to a wrapper that starts it",
		"codex --hook-listen 127.0.0.1:1":                        "the hooks of Codex are commands, which reach no port: want --hook-socket or --hooks",
		"copilot --hook-listen 127.0.0.1:1":                      "are commands, which reach no port",
		"claude-code --hook-listen 127.0.0.1:1 --output=":        "want the name of a file",
		"claude-code --hook-listen 127.0.0.1:1 --output -":       "want the name of a file",
		"gemini-cli --hooks /h --hook-script /h.sh":              "its hooks need more than a file",
		"pi --hooks /h --hook-script /h.sh":                      "has no hooks that could be sent elsewhere",
		"claude-code --hook-listen 127.0.0.1:1 --hook-script /x": "--hook-script goes with --hooks",
	} {
		if r := newWorld(t).run(nil, append([]string{"hook-config"}, strings.Fields(args)...)...); r.code == 0 || !strings.Contains(r.stderr, want) || strings.Count(r.stderr, "\n") > 1 {
			t.Errorf("%s: %+v, want %q", args, r, want)
		}
	}
}
