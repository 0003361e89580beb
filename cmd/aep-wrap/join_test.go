package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"aep-wrap/event/eventtest"
)

// Where no collector can be started, or the one that was ends at once, nobody
// waits for it: neither where the log holds everything, nor where nothing does.
func TestExitDoesNotWaitForWhatCannotBeStarted(t *testing.T) {
	for name, broken := range map[string]func(aep string) error{
		"no place for it": func(aep string) error { return os.WriteFile(filepath.Join(aep, "run"), nil, 0o600) },
		"it fails":        func(aep string) error { return os.Mkdir(filepath.Join(aep, "link-key"), 0o700) },
	} {
		for _, logs := range []string{"/proc/nowhere", "logs"} {
			t.Run(name+"/"+logs, func(t *testing.T) {
				w := newWorld(t)
				aep := filepath.Join(w.home, ".aep")
				if err := os.Mkdir(aep, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := broken(aep); err != nil {
					t.Fatal(err)
				}
				if !filepath.IsAbs(logs) {
					logs = filepath.Join(w.home, logs)
				}
				ends := filepath.Join(w.home, "ends")
				promptly(t, func() (time.Duration, bool) {
					bare := w.run(nil, "--log-dir", logs, "--", "sh", "-c", ": >"+ends).over(t, ends) // what this machine needs at the least
					r := w.run([]string{"AEP_LISTEN=" + eventtest.Address(t)}, "--log-dir", logs, "--", "sh", "-c", ": >"+ends)
					if r.code != 0 || !strings.Contains(r.stderr, "aep-wrap: events w") {
						t.Errorf("%+v", r)
					}
					over := r.over(t, ends)
					return over, over < flushTime/2+bare
				})
			})
		}
	}
}

// endingCollector has the collector's place for a moment, and tells nothing of
// itself. It gives the folder where that is.
func endingCollector(t *testing.T, w *world) (run string) {
	t.Helper()
	run = filepath.Join(w.home, ".aep", "run")
	if err := os.MkdirAll(run, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, err := lockFile(filepath.Join(run, "collector.lock"))
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(500*time.Millisecond, func() { lock.Close() })
	return run
}

// A wrapper that comes while a collector ends, which has its place still, starts
// one when that is gone.
func TestStartsOneAfterOneThatEnds(t *testing.T) {
	w := newWorld(t)
	run := endingCollector(t, w)
	r := w.run([]string{"AEP_LISTEN=" + eventtest.Address(t)}, "--", "sh", "-c", "until test -e "+filepath.Join(run, "collector.json")+"; do sleep 0.1; done; sleep 0.5")
	if r.code != 0 || r.stderr != "" {
		t.Errorf("%+v", r)
	}
	var info collectorInfo
	b, err := os.ReadFile(filepath.Join(run, "collector.json"))
	if err != nil || json.Unmarshal(b, &info) != nil {
		t.Fatalf("%v: %s", err, b)
	}
	if err := syscall.Kill(info.PID, syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}

// One in the foreground that comes while another begins or ends, which has its
// place and tells nothing of itself, takes that when it is gone.
func TestCollectWaitsForOneThatEnds(t *testing.T) {
	w := newWorld(t)
	endingCollector(t, w)
	r := w.run([]string{"AEP_LISTEN=" + eventtest.Address(t)}, "collect", "--idle-exit", "100ms")
	if r.code != 0 || !strings.Contains(r.stderr, "collector at ") {
		t.Errorf("%+v", r)
	}
}
