package main

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What a crash left behind goes; a launch that is beginning, or that lives,
// stays.
func TestSweep(t *testing.T) {
	base := t.TempDir()
	old := time.Now().Add(-2 * leftover)
	for _, d := range []struct {
		name    string
		made    time.Time
		socket  bool // left by nobody who listens
		listens bool
		stays   bool
	}{
		{"launch-beginning", time.Now(), true, false, true},
		{"launch-crashed", time.Now().Add(-2 * beginning), true, false, false},
		{"launch-lives", old, true, true, true},
		{"launch-without", time.Now().Add(-2 * beginning), false, false, true},
		{"launch-long-ago", old, false, false, false},
		{"other", old, false, false, true},
	} {
		t.Run(d.name, func(t *testing.T) {
			dir := filepath.Join(base, d.name)
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if d.socket {
				l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, "hook.sock")})
				if err != nil {
					t.Fatal(err)
				}
				if l.SetUnlinkOnClose(false); d.listens {
					t.Cleanup(func() { l.Close() })
				} else {
					l.Close()
				}
			}
			if err := os.Chtimes(dir, d.made, d.made); err != nil {
				t.Fatal(err)
			}
			sweep(base)
			if _, err := os.Stat(dir); (err == nil) != d.stays {
				t.Errorf("there: %v", err)
			}
		})
	}
}
