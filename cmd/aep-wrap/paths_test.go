package main

import (
	"os"
	"path/filepath"
	"testing"
)

// A container's secrets are another user's, and read by a group.
func TestPrivate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	check := func(mode os.FileMode, want bool) {
		t.Helper()
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := readPrivate(path); (err == nil) != want {
			t.Errorf("mode %04o: %v", mode, err)
		}
	}
	check(0o600, true)
	check(0o640, false)
	check(0o604, false)
	if os.Getuid() != 0 {
		t.Skip("the rest gives a file to another user, which takes root")
	}
	if err := os.Chown(path, 12345, -1); err != nil {
		t.Fatal(err)
	}
	check(0o440, true)
	check(0o444, false)
	check(0o460, false)
}
