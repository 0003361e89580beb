package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// claudeVersion is what the adapter's tables are pinned to.
const claudeVersion = "2.1.197"

// claudeMain is the agent as npm installs it, below the prefix.
const claudeMain = "node_modules/.bin/claude"

var (
	wrapBinary  string // the aep-wrap built from this tree
	buildErr    error
	buildOutput string
)

func TestMain(m *testing.M) {
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
		cmd := exec.Command("go", "build", "-o", dir+"/", "./cmd/aep-wrap", "./cmd/aep-hook")
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

var installed = sync.OnceValues(install)

// claude is the path of the real agent, or the test is skipped with the reason.
func claude(t *testing.T) string {
	t.Helper()
	gate(t)
	path, err := installed()
	if err != nil {
		if os.Getenv("AEP_E2E") == "required" {
			t.Fatalf("claude %s: %v", claudeVersion, err)
		}
		t.Skipf("claude %s cannot be had here: %v", claudeVersion, err)
	}
	return path
}

// install puts the agent's npm package into the cache, once for all runs.
// AEP_E2E_CLAUDE names a copy that is already there.
func install() (string, error) {
	if p := os.Getenv("AEP_E2E_CLAUDE"); p != "" {
		return p, checkVersion(p)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	prefix := filepath.Join(cache, "aep-wrap", "e2e", "claude-code-"+claudeVersion)
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
	path := filepath.Join(prefix, claudeMain)
	if checkVersion(path) == nil {
		return path, nil
	}
	for _, tool := range []string{"npm", "node"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("%s is not installed", tool)
		}
	}
	// The version is exact: npm takes an older one for an older Node without a
	// word. Install scripts are off, as newer npm has them by default; the
	// package's own, which puts the native binary in place, is run by hand.
	if err := inPrefix(prefix, "npm", "install", "--prefix", prefix, "--no-save", "--no-audit", "--no-fund",
		"--ignore-scripts", "--loglevel=error", "@anthropic-ai/claude-code@"+claudeVersion); err != nil {
		return "", err
	}
	pkg := filepath.Join(prefix, "node_modules", "@anthropic-ai", "claude-code")
	if err := inPrefix(pkg, "node", "install.cjs"); err != nil {
		return "", err
	}
	return path, checkVersion(path)
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

func checkVersion(path string) error {
	home, err := os.MkdirTemp("", "aep-e2e-version-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(home)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "DISABLE_AUTOUPDATER=1"}
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s --version on %s/%s: %w", path, runtime.GOOS, runtime.GOARCH, err)
	}
	if got, _, _ := strings.Cut(string(out), " "); got != claudeVersion {
		return errors.New("found version " + got)
	}
	return nil
}
