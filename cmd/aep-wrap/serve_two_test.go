package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"aep-wrap/event/eventtest"
)

// Of two serves on one log directory the second says so, is not ready, and takes
// over when the first is gone, however it went.
func TestTwoServes(t *testing.T) {
	home := t.TempDir()
	bin := buildWrap(t, home)
	start := func(stderr io.Writer) (*exec.Cmd, string) {
		healthAt := eventtest.Address(t)
		cmd := exec.Command(bin, "serve", "--hook-listen", eventtest.Address(t), "--health-listen", healthAt, "--listen", "off")
		cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
		cmd.Stderr = stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { kill(cmd) })
		return cmd, healthAt
	}
	waitFor := func(addr, want string) {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			_, ready := probeHealth(addr)
			if ready == want {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("readyz says %q, want %q", ready, want)
			}
		}
	}
	var says [3]bytes.Buffer
	first, firstAt := start(&says[0])
	waitFor(firstAt, "200 ready")
	second, secondAt := start(&says[1])
	waitFor(secondAt, "503 not ready")
	awaitMetric(t, firstAt, "aep_wrap_log_dir_contested 0")
	awaitMetric(t, secondAt, "aep_wrap_log_dir_contested 1")
	waitFor(firstAt, "200 ready")
	if err := first.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait()
	waitFor(secondAt, "200 ready")
	third, thirdAt := start(&says[2])
	waitFor(thirdAt, "503 not ready")
	if err := second.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := second.Wait(); err != nil {
		t.Error(err)
	}
	waitFor(thirdAt, "200 ready")
	kill(third)
	want := fmt.Sprintf("another aep-wrap serve (process %d) writes session logs in ", first.Process.Pid)
	if strings.Contains(says[0].String(), "another") || strings.Count(says[1].String(), want) != 1 || strings.Count(says[1].String(), "the other serve is gone") != 1 {
		t.Errorf("the first says\n%sthe second\n%s", says[0].String(), says[1].String())
	}
}

// A serve is not ready, from the first moment that it can be asked, where another
// has its log directory.
func TestAnotherServeIsKnownFromTheStart(t *testing.T) {
	a := quietApp(t)
	var flags pflag.FlagSet
	addSettings(&flags, false)
	addSettings(&flags, true)
	for name, value := range map[string]string{"listen": off, "log-dir": t.TempDir(), "hook-listen": eventtest.Address(t), "health-listen": eventtest.Address(t)} {
		if err := flags.Set(name, value); err != nil {
			t.Fatal(err)
		}
	}
	var errs []error
	if a.cfg, _, errs = loadSettings(&flags, a.Getenv, a.paths, true); len(errs) > 0 {
		t.Fatal(errs)
	}
	if err := os.Mkdir(filepath.Join(a.cfg.LogDir, ".watch"), 0o700); err != nil {
		t.Fatal(err)
	}
	other, err := lockFile(filepath.Join(a.cfg.LogDir, ".watch", "serving"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	s, err := a.startServing(&flags)
	if err != nil {
		t.Fatal(err)
	}
	defer s.closeListeners(t.Context())
	if alive, ready := probeHealth(s.health.addr); alive != 200 || ready != "503 not ready" {
		t.Errorf("%d, %s", alive, ready)
	}
}
