package jsonl

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

// A log that was erased keeps its lines' places: whoever took in a part of it
// goes on with the next line, wherever that stands now. Nothing of the content
// is left, nor in what a crash put beside it.
func TestErase(t *testing.T) {
	root := t.TempDir()
	l, err := Open(root, "a", "s")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		line := fmt.Sprintf(`{"id":"e%d","session":"s","epoch":1,"seq":%d,"data":{"secret":%q}}`, i, i, strings.Repeat("x", i*37))
		ref, err := l.Append([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		if i == 7 {
			if err := SavePosition(l.Path(), "post-a~b", Position{ID: "e7", Epoch: 1, Seq: 7, Offset: ref.End()}); err != nil {
				t.Fatal(err)
			}
		}
	}
	path := l.Path()
	short := func(line []byte) []byte {
		h, ok := ReadHead(line)
		if !ok {
			return nil
		}
		return fmt.Appendf(nil, `{"id":%q,"session":"s","epoch":%d,"seq":%d}`, h.ID, h.Epoch, h.Seq)
	}
	if err := Erase(path, short); !errors.As(err, new(*ErrOwned)) {
		t.Fatalf("a log that is being written: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	lock, err := LockSink(path, "post-a~b")
	if err != nil {
		t.Fatal(err)
	}
	if err := Erase(path, short); !errors.As(err, new(*ErrOwned)) {
		t.Fatalf("a log that is being sent: %v", err)
	}
	lock.Release()
	if err := os.WriteFile(beside(path, ".torn"), []byte(`{"secret":"xxx`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Erase(path, short); err != nil {
		t.Fatal(err)
	}
	at, ok, err := LoadPosition(path, "post-a~b")
	if err != nil || !ok || at.ID != "e7" {
		t.Fatalf("%+v %v %v", at, ok, err)
	}
	off, err := Locate(path, at)
	if err != nil || off != at.Offset {
		t.Errorf("it goes on at %d (%v), and has %d saved", off, err, at.Offset)
	}
	r, err := OpenReader(path, off)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := 8; i < 20; i++ {
		line, _, err := r.Next()
		if h, _ := ReadHead(line); err != nil || h.ID != fmt.Sprintf("e%d", i) {
			t.Fatalf("%s comes where e%d should: %v", line, i, err)
		}
	}
	// A position without its offset, as an older or another writer's, does as well.
	if again, err := Locate(path, Position{ID: "e7", Epoch: 1, Seq: 7, Offset: 5}); err != nil || again != off {
		t.Errorf("by its place alone: %d, %v", again, err)
	}
	if again, err := Locate(path, Position{ID: "gone", Epoch: 1, Seq: 7, Offset: 5}); err != nil || again != off {
		t.Errorf("by its position alone: %d, %v", again, err)
	}
	left, err := os.ReadDir(root + "/a")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range left {
		b, err := os.ReadFile(root + "/a/" + f.Name())
		if err != nil || strings.Contains(string(b), "secret") {
			t.Errorf("%s: %s %v", f.Name(), b, err)
		}
	}
}
