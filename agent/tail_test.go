package agent

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

type gathered struct {
	mu    sync.Mutex
	lines []string
	over  []int
}

func (g *gathered) line(b []byte) { g.mu.Lock(); g.lines = append(g.lines, string(b)); g.mu.Unlock() }
func (g *gathered) skip(n int)    { g.mu.Lock(); g.over = append(g.over, n); g.mu.Unlock() }

func (g *gathered) wait(t *testing.T, want ...string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		g.mu.Lock()
		got := slices.Clone(g.lines)
		g.mu.Unlock()
		if slices.Equal(got, want) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("lines %q, want %q", got, want)
		}
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "later", "s.jsonl")
	var g gathered
	tail := Follow(TailConfig{Path: path, Since: time.Now(), Line: g.line, Skip: g.skip})
	os.Mkdir(filepath.Dir(path), 0o700)
	put(t, path, "one\r\n\n  \ntw")
	g.wait(t, "one")
	put(t, path, "o\nthree")
	g.wait(t, "one", "two")
	// replaced by another file
	os.Rename(path, path+".old")
	put(t, path, "four\n")
	g.wait(t, "one", "two", "four")
	// truncated
	os.Truncate(path, 0)
	time.Sleep(2 * pollIdle / 10)
	put(t, path, "5\n")
	g.wait(t, "one", "two", "four", "5")
	// gone and back
	os.Remove(path)
	put(t, path, "six\n{\"whole\":1}")
	g.wait(t, "one", "two", "four", "5", "six")
	put(t, path+".other", "not ours\n")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tail.Drain(ctx)
	g.wait(t, "one", "two", "four", "5", "six", `{"whole":1}`)
}

// What was written to a file just before another took its place, or it went, is
// told, before what the other holds.
func TestTailReadsToTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.jsonl")
	var g gathered
	tail := &Tail{cfg: TailConfig{Path: path}, cut: cutter{tell: g.line, skip: g.skip}}
	put(t, path, "one\n")
	tail.open(true)
	tail.read()
	put(t, path, "two\n")
	if err := os.Rename(path, path+".old"); err != nil {
		t.Fatal(err)
	}
	put(t, path, "three\n")
	tail.read()
	put(t, path, "four\n")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	tail.read()
	if got := strings.Join(g.lines, " "); got != "one two three four" {
		t.Errorf("told: %s", got)
	}
	tail.file.Close()
}

// Who asks is told what is there, before anything else happens.
func TestTailCatchUp(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.jsonl")
	var g gathered
	tail := Follow(TailConfig{Path: path, Line: g.line, Skip: g.skip})
	for i := range 50 {
		put(t, path, fmt.Sprintln("line", i))
		tail.CatchUp(patience)
		g.mu.Lock()
		n := len(g.lines)
		g.mu.Unlock()
		if n != i+1 {
			t.Fatalf("%d lines told, %d are there", n, i+1)
		}
	}
	tail.Drain(context.Background())
	tail.CatchUp(patience) // at once, for it has ended
}

// What was there before the launch is history.
func TestTailStart(t *testing.T) {
	long := strings.Repeat("x", 1000)
	for _, tt := range []struct {
		name    string
		content string
		age     time.Duration // since the last change, before the launch
		want    int           // lines told of it
	}{
		{"old", "a\nb\n", time.Hour, 0},
		{"changed since", "a\nb\n", -time.Second, 2},
		{"changed since, and long", strings.Repeat(long+"\n", 3000), -time.Second, rewind/1001 - 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.jsonl")
			put(t, path, tt.content)
			launch := time.Now()
			os.Chtimes(path, launch.Add(-tt.age), launch.Add(-tt.age))
			var g gathered
			tail := Follow(TailConfig{Path: path, Since: launch, Line: g.line, Skip: g.skip})
			put(t, path, "new\n")
			tail.Drain(context.Background())
			if len(g.lines) != tt.want+1 || g.lines[len(g.lines)-1] != "new" {
				t.Fatalf("%d lines, want %d and the new one", len(g.lines), tt.want)
			}
			for _, l := range g.lines[:tt.want] {
				if l != "a" && l != "b" && l != long {
					t.Fatalf("a torn line was told: %q", l)
				}
			}
		})
	}
}

// A line without end costs no memory beyond the bound, and what follows it is
// told.
func TestTailLongLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.jsonl")
	var g gathered
	tail := Follow(TailConfig{Path: path, Line: g.line, Skip: g.skip})
	big := strings.Repeat("y", 1<<20)
	for range maxLine>>20 + 2 {
		put(t, path, big)
	}
	put(t, path, "\nafter\n"+strings.Repeat("z", 200<<10)+"\nend\n")
	tail.Drain(context.Background())
	if len(g.lines) != 3 || g.lines[0] != "after" || len(g.lines[1]) != 200<<10 || g.lines[2] != "end" {
		t.Fatalf("%d lines", len(g.lines))
	}
	if len(g.over) != 1 || g.over[0] != maxLine+2<<20 {
		t.Fatalf("passed over %v", g.over)
	}
}

// Whatever pieces a writer writes, the lines are those of the whole.
func FuzzLines(f *testing.F) {
	f.Add("a\nbb\r\nccc\n\n", uint8(1))
	f.Add("{\"a\":1}\n{\"b\":", uint8(3))
	f.Fuzz(func(t *testing.T, text string, step uint8) {
		n := int(step%16) + 1
		var got []string
		cut := cutter{tell: func(b []byte) { got = append(got, string(b)) }, skip: func(int) {}}
		for b := []byte(text); len(b) > 0; {
			m := min(n, len(b))
			cut.take(b[:m])
			b = b[m:]
		}
		var want []string
		lines := bytes.Split([]byte(text), []byte("\n"))
		for _, l := range lines[:len(lines)-1] {
			if l = bytes.TrimSpace(l); len(l) > 0 {
				want = append(want, string(l))
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) || len(got) != len(want) {
			t.Fatalf("%q, want %q", got, want)
		}
	})
}
