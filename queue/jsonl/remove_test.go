package jsonl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestCompanion(t *testing.T) {
	for file, want := range map[string][3]string{
		"s.jsonl":              {"s", ".jsonl", ""},
		"a.b.jsonl":            {"a.b", ".jsonl", ""},
		"s.lock":               {"s", ".lock", ""},
		"s.local.pos":          {"s", ".pos", "local"},
		"a.b.local.pos":        {"a.b", ".pos", "local"},
		"s.h_1~00ff.sending":   {"s", ".sending", "h_1~00ff"},
		"s.local.pos.tmp":      {"s", ".pos.tmp", "local"},
		"s.pruned":             {"s", ".pruned", ""},
		"s.pruned.tmp":         {"s", ".pruned.tmp", ""},
		"s.pos.jsonl":          {"s.pos", ".jsonl", ""},
		"notes.txt":            {},
		".pos":                 {},
		"local.pos":            {},
		".jsonl":               {"", ".jsonl", ""},
		"s.local.pos.jsonl.gz": {},
	} {
		if name, end, sink := companion(file); name != want[0] || name != "" && [3]string{name, end, sink} != want {
			t.Errorf("%s: %q %q %q", file, name, end, sink)
		}
	}
}

// kept is what List says of the only session.
func kept(t *testing.T, root string) *Kept {
	t.Helper()
	all, err := List(root)
	if err != nil || len(all) != 1 {
		t.Fatalf("%v: %+v", err, all)
	}
	return &all[0]
}

func own(epoch, seq int) []byte {
	return fmt.Appendf(nil, `{"id":"e%d-%d","type":"run.started","agent":"a","session":"s","epoch":%d,"seq":%d}`, epoch, seq, epoch, seq)
}

// killed gives up a removal as the kernel does for who was killed.
func killed(r *Removal) {
	for _, l := range r.locks {
		l.f.Close()
	}
	r.done()
}

// A removal that is ended at any of its steps leaves the whole log, or nothing
// that harms: who goes on with the session has its position, no sink passes over
// what is told then, and the next removal takes what is left.
func TestRemovalEndedAtAnyStep(t *testing.T) {
	rest := []byte(`{"id":"e0-9","type":"x.gone","agent":"a","session":"s","epoch":0,"seq":9}` + "\n")
	for n := 0; ; n++ {
		root := t.TempDir()
		log := open(t, root)
		var whole []string
		for i := range 10 {
			if _, err := log.Append(own(0, i)); err != nil {
				t.Fatal(err)
			}
			whole = append(whole, string(own(0, i)))
		}
		path := log.Path()
		for _, sink := range []string{"local", "far:1"} {
			if err := SavePosition(path, sink, Position{ID: "e0-9", Seq: 9, Offset: log.Size()}); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(MarkWatched(path), os.WriteFile(beside(path, ".torn"), []byte("x"), 0o600), log.Close()); err != nil {
			t.Fatal(err)
		}
		k := kept(t, root)
		if owed, err := k.Owed(); owed != 0 || err != nil {
			t.Fatal(owed, err)
		}
		r, err := k.Take()
		if err != nil {
			t.Fatal(err)
		}
		steps := r.steps(rest)
		if n > len(steps) {
			r.Release()
			break
		}
		for _, step := range steps[:n] {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
		killed(r)

		log = open(t, root) // the session is taken up again
		got := lines(t, log)
		_, gone := os.Stat(beside(path, ".pruned"))
		switch size := log.Size(); {
		case size > 0 && !slices.Equal(got[len(got)-10:], whole):
			t.Fatalf("after %d steps the log is\n%s", n, strings.Join(got, "\n"))
		case size == 0 && (gone != nil || !slices.Equal(got, []string{strings.TrimSpace(string(rest))})):
			t.Fatalf("after %d steps there is no rest: %v", n, got)
		}
		before := log.Size()
		if _, err := log.Append(own(1, 0)); err != nil {
			t.Fatal(err)
		}
		for _, sink := range []string{"local", "far:1"} {
			at, ok, err := LoadPosition(path, sink)
			if err != nil {
				t.Fatal(err)
			}
			off, err := Locate(path, at)
			if want := before; err != nil || ok && off != want || !ok && off != 0 {
				t.Fatalf("after %d steps %s goes on at %d, not at %d: %v", n, sink, off, want, err)
			}
			if err := SavePosition(path, sink, Position{ID: "e1-0", Epoch: 1, Offset: log.Size()}); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
		if r, err = kept(t, root).Take(); err != nil {
			t.Fatal(err)
		}
		if err := r.Remove(rest); err != nil {
			t.Fatal(err)
		}
		r.Release()
		left, err := filepath.Glob(filepath.Join(root, "*", "*"))
		if err != nil || !slices.Equal(left, []string{beside(path, ".pruned")}) {
			t.Fatalf("after %d steps and a removal there is %v", n, left)
		}
	}
}

func TestTakeToRemove(t *testing.T) {
	root := t.TempDir()
	log := open(t, root)
	if _, err := log.Append(own(0, 0)); err != nil {
		t.Fatal(err)
	}
	k := kept(t, root)
	owned := (*ErrOwned)(nil)
	if _, err := k.Take(); !errors.As(err, &owned) || owned.Pid != os.Getpid() {
		t.Errorf("its owner has it, and it is taken: %v", err)
	}
	if err := errors.Join(SavePosition(log.Path(), "local", Position{}), log.Close()); err != nil {
		t.Fatal(err)
	}
	k = kept(t, root)
	if n, err := k.Owed(); n != 1 || err != nil {
		t.Errorf("it owes %d: %v", n, err)
	}
	if err := os.WriteFile(beside(log.Path(), ".local.pos"), []byte("no position"), 0o600); err != nil {
		t.Fatal(err)
	}
	if n, err := k.Owed(); n != 1 || err != nil {
		t.Errorf("by a position that cannot be read it owes %d: %v", n, err)
	}
	sending, err := LockSink(log.Path(), "local")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Take(); !errors.As(err, &owned) {
		t.Errorf("somebody sends it, and it is taken: %v", err)
	}
	sending.Release()
	if err := os.Chtimes(log.Path(), time.Now(), time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Take(); !errors.Is(err, ErrChanged) {
		t.Errorf("it changed, and is taken: %v", err)
	}
	if left, err := filepath.Glob(filepath.Join(root, "a*", "*.lock")); err != nil || len(left) > 0 {
		t.Errorf("locks are left: %v", left)
	}
}
