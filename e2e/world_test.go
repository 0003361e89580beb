package e2e

import (
	"encoding/json"
	"errors"
	"io/fs"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"sort"
	"syscall"
	"testing"
	"time"

	"aep-wrap/testdata/mockmodel"
)

// patience bounds every wait: what has not happened by then will not.
const patience = 2 * time.Minute

// hold is a window in which whoever is to answer from afar surely does.
const hold = "10m"

// apiKey is a key that no service knows.
const apiKey = "dummy-key-of-the-tests"

// world is one machine of one user: a home, a working directory and a model.
// Its paths stay the same when it is made anew, so that two runs differ in
// nothing but what they are.
type world struct {
	t     *testing.T
	root  string
	model *mockmodel.Server
	url   string
	env   []string // added to the agent's environment

	fill    func(*world) // makes the user's files of the agent's
	program program
}

// newWorld is that of a user of claude.
func newWorld(t *testing.T) *world {
	t.Helper()
	return makeWorld(t, claudeProgram, claudeFiles)
}

func makeWorld(t *testing.T, p program, fill func(*world)) *world {
	t.Helper()
	root, err := os.MkdirTemp("", "aep-e2e-")
	if err == nil {
		root, err = filepath.EvalSymlinks(root)
	}
	if err != nil {
		t.Fatal(err)
	}
	// What was killed may still be writing its last when a test ends.
	t.Cleanup(func() {
		for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
			if err := os.RemoveAll(root); err == nil || time.Now().After(end) {
				if err != nil {
					t.Error(err)
				}
				return
			}
		}
	})
	w := &world{t: t, root: root, program: p, fill: fill}
	w.model = mockmodel.New(w.dir())
	srv := httptest.NewServer(w.model)
	t.Cleanup(srv.Close)
	w.url = srv.URL
	w.reset()
	return w
}

func (w *world) home() string   { return filepath.Join(w.root, "home") }
func (w *world) config() string { return filepath.Join(w.home(), ".claude") }
func (w *world) dir() string    { return filepath.Join(w.home(), "project") }
func (w *world) logs() string   { return filepath.Join(w.root, "logs") }

// reset makes the user's files as they are before the first run.
func (w *world) reset() {
	w.t.Helper()
	for _, d := range []string{w.home(), w.logs()} {
		if err := os.RemoveAll(d); err != nil {
			w.t.Fatal(err)
		}
	}
	w.fill(w)
	w.write("project/README.md", "A project.\n")
}

// claudeFiles are those of a user who has used claude here before, and who is
// asked for permissions: newer versions leave them to auto mode by themselves.
func claudeFiles(w *world) {
	w.t.Helper()
	w.write(".claude/settings.json", `{"permissions":{"allow":["Bash(ls:*)"],"disableAutoMode":"disable"},"env":{"USER_SETTING":"kept"}}`+"\n")
	w.write(".claude/CLAUDE.md", "Answer briefly.\n")
	state := map[string]any{
		"hasCompletedOnboarding":    true,
		"fullscreenUpsellSeenCount": 3,
		"customApiKeyResponses":     map[string]any{"approved": []string{apiKey[len(apiKey)-20:]}, "rejected": []string{}},
		"projects":                  map[string]any{w.dir(): map[string]any{"hasTrustDialogAccepted": true}},
	}
	b, err := json.Marshal(state)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(".claude/.claude.json", string(b))
}

func (w *world) write(name, content string) {
	w.t.Helper()
	path := filepath.Join(w.home(), name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// environ is the whole environment of a run; nothing is inherited but PATH.
func (w *world) environ() []string {
	path := os.Getenv("PATH")
	if p, err := w.program.installed(); err == nil {
		path = w.program.searchPath(p)
	}
	return append([]string{
		"PATH=" + path,
		"HOME=" + w.home(),
		"CLAUDE_CONFIG_DIR=" + w.config(),
		"TMPDIR=" + w.tmp(),
		"TERM=xterm-256color",
		"LANG=C.UTF-8",
		"SHELL=/bin/bash",
		"ANTHROPIC_BASE_URL=" + w.url,
		"ANTHROPIC_API_KEY=" + apiKey,
		"DISABLE_AUTOUPDATER=1",
		"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		"AEP_LOG_DIR=" + w.logs(),
		"AEP_LISTEN=off",
	}, w.env...)
}

func (w *world) tmp() string {
	d := filepath.Join(w.root, "tmp")
	if err := os.MkdirAll(d, 0o755); err != nil {
		w.t.Fatal(err)
	}
	return d
}

// result is what a run leaves to whoever started it.
type result struct {
	stdout, stderr string
	code           int // the exit code, or 128+n as a shell tells a signal
}

// run runs a command in the world to its end, with nothing on stdin.
func (w *world) run(argv ...string) result {
	w.t.Helper()
	return w.begin(argv...)()
}

// begin starts a command, and gives what waits for its end.
func (w *world) begin(argv ...string) (end func() result) {
	w.t.Helper()
	return w.start(argv...).wait
}

func exitCode(t *testing.T, err error) int {
	t.Helper()
	if err == nil {
		return 0
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		t.Fatalf("run: %v", err)
	}
	if s := exit.Sys().(syscall.WaitStatus); s.Signaled() {
		return 128 + int(s.Signal())
	}
	return exit.ExitCode()
}

// snapshot is the user's home: each file's path and content.
func (w *world) snapshot() map[string]string {
	w.t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(w.home(), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(w.home(), path)
		if err != nil {
			return err
		}
		if !d.Type().IsRegular() {
			files[name] = d.Type().String()
			return nil
		}
		b, err := os.ReadFile(path)
		files[name] = string(b)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return files
}

// volatile is what the agent makes up anew in every run, in its output and in
// its files: ids, times and measures. Everything else must be the same, byte
// for byte.
var volatile = []struct {
	re  *regexp.Regexp
	put string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UUID"},
	{regexp.MustCompile(`\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?Z`), "TIME"},
	{regexp.MustCompile(`("(?:[a-zA-Z]*[dD]uration[a-zA-Z_]*|ttft_[a-z_]*|time_to_request_ms|first_content_frame_ms|timestamp|[a-zA-Z]*Timestamp|[a-zA-Z]*(?:At|Time)|[a-zA-Z]*FPS[a-zA-Z0-9]*)": ?)-?[0-9.]+`), "${1}0"},
	{regexp.MustCompile(`("[a-z_]+_time": ?|duration_ms: )\d+`), "${1}0"},
	{regexp.MustCompile(`("(?:machineID|userID)": ?)"[0-9a-f]{64}"`), `${1}"HASH"`},
	{regexp.MustCompile(`"(agentId|agent_id)": ?"a[0-9a-f]{16}"`), `"${1}":"AGENT"`},
	{regexp.MustCompile(`agent-a[0-9a-f]{16}`), "agent-AGENT"},
	{regexp.MustCompile(`\ba[0-9a-f]{16}\b`), "AGENT"},
	{regexp.MustCompile(`("run_?[iI]d": ?)"[0-9a-z]{9}-[0-9a-f]{8}"`), `${1}"RUN"`},
	{regexp.MustCompile(`cc-socks/\d+\.sock`), "cc-socks/0.sock"},
	{regexp.MustCompile(`backup\.\d+`), "backup.0"},
}

func normal(s string) string {
	for _, v := range volatile {
		s = v.re.ReplaceAllString(s, v.put)
	}
	return s
}

// normalFiles is a snapshot without what the agent makes up; a file's name
// may hold an id too.
func normalFiles(files map[string]string) map[string]string {
	out := map[string]string{}
	for name, content := range files {
		out[normal(name)] += normal(content)
	}
	return out
}

// logFiles are the session logs that a run left.
func (w *world) logFiles() []string {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.logs(), "*", "*.jsonl"))
	if err != nil {
		w.t.Fatal(err)
	}
	sort.Strings(files)
	return files
}
