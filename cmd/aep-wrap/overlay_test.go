package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"aep-wrap/adapters"
)

func put(t *testing.T, content string, path ...string) {
	t.Helper()
	p := filepath.Join(path...)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, content string, path ...string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(path...))
	if err != nil || string(b) != content {
		t.Errorf("%s is %q, %v; want %q", filepath.Join(path...), b, err, content)
	}
}

func TestOverlays(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	put(t, "settings", home, ".x", "settings.json")
	put(t, "old", home, ".x", "projects.json")
	put(t, "theirs", home, ".x", "ext", "theirs", "e.json")
	put(t, "user's", home, ".x", "ext", "ours", "e.json") // of the same name as ours: hidden, and kept
	put(t, "env", home, ".env")
	put(t, "private", home, "other")
	put(t, "ours", dir, "h", ".x", "ext", "ours", "e.json")
	o, err := makeOverlays(dir, []adapters.Overlay{
		{Dir: "h", Of: home, Only: []string{".env"}},
		{Dir: "h/.x", Of: home + "/.x", Make: []string{"tmp"}},
		{Dir: "h/.x/ext", Of: home + "/.x/ext"},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := filepath.Join(dir, "h")
	want(t, "settings", h, ".x", "settings.json")
	want(t, "theirs", h, ".x", "ext", "theirs", "e.json")
	want(t, "ours", h, ".x", "ext", "ours", "e.json")
	want(t, "env", h, ".env")
	if _, err := os.Lstat(filepath.Join(h, "other")); err == nil {
		t.Error("an entry is shown that is not among those to show")
	}

	// The agent writes through links, replaces one, and makes files anew.
	put(t, "settings 2", h, ".x", "settings.json")
	put(t, "log", h, ".x", "tmp", "log")
	put(t, "new", h, ".x", "projects.tmp")
	if err := os.Rename(filepath.Join(h, ".x", "projects.tmp"), filepath.Join(h, ".x", "projects.json")); err != nil {
		t.Fatal(err)
	}
	put(t, "id", h, ".x", "id")
	put(t, "added", h, ".x", "ext", "added", "e.json")
	put(t, "changed", h, ".x", "ext", "ours", "e.json")
	put(t, "stray", h, "stray")
	if err := o.bringHome(); err != nil {
		t.Fatal(err)
	}
	want(t, "settings 2", home, ".x", "settings.json")
	want(t, "log", home, ".x", "tmp", "log")
	want(t, "new", home, ".x", "projects.json")
	want(t, "id", home, ".x", "id")
	want(t, "added", home, ".x", "ext", "added", "e.json")
	want(t, "user's", home, ".x", "ext", "ours", "e.json")
	want(t, "private", home, "other")
	if _, err := os.Lstat(filepath.Join(home, "stray")); err == nil {
		t.Error("an entry came home that is not among those to show")
	}
}

// A user who never ran the agent has nothing to show, and gets what it made.
func TestOverlayOfNothing(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	o, err := makeOverlays(dir, []adapters.Overlay{{Dir: "h", Of: filepath.Join(home, "a", "b")}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(home, "a")); err == nil {
		t.Error("a folder was made for nothing")
	}
	put(t, "id", dir, "h", "id")
	if err := o.bringHome(); err != nil {
		t.Fatal(err)
	}
	want(t, "id", home, "a", "b", "id")
}

// What the agent changed of a copy is not lost without a word.
func TestOverlayOfACopy(t *testing.T) {
	home, dir := t.TempDir(), t.TempDir()
	put(t, "user's", home, "config")
	put(t, "user's and ours", dir, "h", "config")
	o, err := makeOverlays(dir, []adapters.Overlay{{Dir: "h", Of: home}})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.bringHome(); err != nil {
		t.Errorf("nothing was changed: %v", err)
	}
	put(t, "changed", dir, "h", "config")
	if err := o.bringHome(); err == nil || !strings.Contains(err.Error(), filepath.Join(home, "config")) {
		t.Errorf("a changed copy: %v", err)
	}
	want(t, "user's", home, "config")
}

func TestOverlayRefuses(t *testing.T) {
	for _, v := range []adapters.Overlay{{Dir: "../x", Of: "/"}, {Dir: "x", Of: "relative"}, {Dir: "/x", Of: "/"}} {
		if _, err := makeOverlays(t.TempDir(), []adapters.Overlay{v}); err == nil {
			t.Errorf("%+v was made", v)
		}
	}
}

// What a link of the user's names takes the change, not the link; a folder and
// a file do not take each other's place.
func TestMove(t *testing.T) {
	d := t.TempDir()
	put(t, "dotfiles", d, "dotfiles", "x")
	if err := os.Symlink(filepath.Join(d, "dotfiles", "x"), filepath.Join(d, "x")); err != nil {
		t.Fatal(err)
	}
	put(t, "new", d, "new")
	if err := move(filepath.Join(d, "new"), filepath.Join(d, "x")); err != nil {
		t.Fatal(err)
	}
	want(t, "new", d, "dotfiles", "x")
	put(t, "file", d, "f")
	put(t, "inside", d, "folder", "f")
	if err := move(filepath.Join(d, "f"), filepath.Join(d, "folder")); err == nil {
		t.Error("a file took a folder's place")
	}
	put(t, "copied", d, "c")
	if err := copyFile(filepath.Join(d, "c"), filepath.Join(d, "c2"), 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, "copied", d, "c2")
}
