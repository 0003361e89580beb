package follow

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// What changed its place, its length or its name behind our back. The first step
// is there before following begins; n is told, and x is not. No slow poll comes
// to help where one is not said.
func TestFollowingWhatIsMoved(t *testing.T) {
	for _, c := range []struct {
		name  string
		path  string
		from  From
		slow  time.Duration
		steps []string
		want  []int
	}{
		{"now: an empty file", "", Now, 0, []string{`: >a.jsonl`, `echo '{"n":1}' >>a.jsonl`, `echo '{"n":2}' >>a.jsonl`}, []int{0, 1, 2}},
		{"now: its first line is torn", "", Now, 0, []string{`printf '{"n' >a.jsonl`, `printf '":1}\n{"n":2}\n' >>a.jsonl`}, []int{0, 2}},
		{"now: torn behind an object's end", "", Now, 0, []string{`printf '{"x":0}\n{}{"n":1' >a.jsonl`, `printf '}\n{"n":2}\n' >>a.jsonl`}, []int{0, 2}},
		{"now: torn, and cut off", "", Now, 0, []string{`printf '{"x":0}\n{"n":' >a.jsonl`, `truncate -s 8 a.jsonl; printf '{"n":1}\n{"n":2}\n' >>a.jsonl`}, []int{0, 2}},
		{"now: several on a line", "", Now, 0, []string{`printf '{"x":0}{"x":1}' >a.jsonl`, `printf '{"n":1}' >>a.jsonl`}, []int{0, 1}},
		{"now: a long line, torn", "", Now, 0, []string{
			`{ echo '{"x":0}'; head -c 600000 /dev/zero | tr '\0' ' '; printf '{"x":1}{"n":'; } >a.jsonl`, `printf '1}\n{"n":2}\n' >>a.jsonl`}, []int{0, 2}},
		{"now: packed", "", Now, 0, []string{`printf '{"x":1}\n{"x":2}\n' | gzip >a.jsonl.gz`, `echo '{"n":1}' | gzip >>a.jsonl.gz`}, []int{0, 1}},
		{"now: packed later", "", Now, 0, []string{`echo '{"x":1}' >a.jsonl`, `echo '{"n":1}' >>a.jsonl`, `gzip a.jsonl; sleep 0.3; echo '{"n":2}' >b.jsonl`}, []int{0, 1, 2}},
		{"now: replaced", "", Now, 0, []string{`echo '{"x":1}' >a.jsonl`, `echo '{"n":1}' >b; mv b a.jsonl`}, []int{0, 1}},
		{"now: copied", "", Now, 0, []string{`echo '{"x":1}' >a.jsonl`, `cp a.jsonl b.jsonl; echo '{"n":1}' >>b.jsonl`}, []int{0, 1}},
		{"a torn line is cut off", "", Saved, 0, []string{`printf '{"n":1}\n{"x":7' >a.jsonl`, `truncate -s 8 a.jsonl; echo '{"n":2}' >>a.jsonl`}, []int{1, 2}},
		{"a long torn line is cut off", "", Saved, 0, []string{`{ echo '{"n":1}'; printf '{"x":"'; head -c 600000 /dev/zero | tr '\0' x; } >a.jsonl`,
			`truncate -s 8 a.jsonl; printf '{"n":2}\n{"n":3}\n' >>a.jsonl`}, []int{1, 3}},
		{"what is no object is cut off", "", Saved, 0, []string{`printf '{"n":1}\nx7' >a.jsonl`, `truncate -s 8 a.jsonl; echo '{"n":2}' >>a.jsonl`}, []int{1, 2}},
		{"the same anew", "", Saved, 0, []string{`printf '{"n":1}\n{"n":2}\n' >a.jsonl`, `cp a.jsonl b; rm a.jsonl; sleep 0.3; cp b a.jsonl`, `echo '{"n":3}' >>a.jsonl`}, []int{2, 2, 3}},
		{"another name", "", Saved, 2 * time.Second, []string{`printf '{"n":1}\n{"n":2}\n' >a.jsonl`, `ln a.jsonl b.jsonl; echo '{"n":3}' >>b.jsonl`,
			`rm a.jsonl; echo '{"n":4}' >>b.jsonl; sleep 3; echo '{"n":5}' >>b.jsonl`}, []int{2, 3, 5}},
		{"names that are swapped", "", Saved, 0, []string{`echo '{"n":1}' >a.jsonl`, `echo '{"n":2}' >b.jsonl`,
			`mv a.jsonl t; mv b.jsonl a.jsonl; mv t b.jsonl; echo '{"n":3}' >>a.jsonl`, `echo '{"n":4}' >>b.jsonl`}, []int{1, 2, 3, 4}},
		{"a root yet to come", "d/e/f", Saved, 0, []string{`true`, `mkdir -p d/e/f; echo '{"n":1}' >d/e/f/a.jsonl`, `echo '{"n":2}' >>d/e/f/b.jsonl`}, []int{0, 1, 2}},
		{"a root that goes and comes", "d", Saved, 0, []string{`mkdir d; echo '{"n":1}' >d/a.jsonl`, `rm -r d`, `mkdir d; echo '{"n":2}' >d/a.jsonl`, `echo '{"n":3}' >>d/b.jsonl`}, []int{1, 1, 2, 3}},
		{"another root", "d", Saved, 0, []string{`mkdir d; echo '{"n":1}' >d/a.jsonl`, `mv d old; mkdir d; echo '{"n":2}' >d/a.jsonl`, `echo '{"n":3}' >>d/a.jsonl`, `echo '{"n":4}' >d/b.jsonl`}, []int{1, 2, 3, 4}},
		{"another folder", "", Saved, 0, []string{`mkdir d; echo '{"n":1}' >d/a.jsonl`, `mv d e; mkdir d; echo '{"n":2}' >d/a.jsonl`, `echo '{"n":3}' >>d/a.jsonl`, `echo '{"n":4}' >>e/a.jsonl`}, []int{1, 2, 3, 4}},
		{"a root away and back", "d", Saved, 0, []string{`mkdir d; echo '{"n":1}' >d/a.jsonl`, `mv d x; echo '{"n":2}' >>x/a.jsonl; sleep 0.3; mv x d; echo '{"n":3}' >>d/a.jsonl`,
			`echo '{"n":4}' >>d/a.jsonl`, `mv d x; sleep 6; echo '{"n":5}' >>x/a.jsonl; echo '{"n":6}' >x/b.jsonl; mv x d`, `echo '{"n":7}' >>d/a.jsonl`}, []int{1, 3, 4, 6, 7}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "logs")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			slow := c.slow
			if slow == 0 {
				slow = time.Hour
			}
			k := &taker{}
			writer(t, dir, c.steps[0])
			start(t, Config{Paths: []string{filepath.Join(dir, c.path)}, Handler: k, From: c.from, SlowPoll: slow})
			k.looked(t)
			for i, step := range c.steps {
				if i > 0 {
					writer(t, dir, step)
				}
				k.wait(t, lines(1, c.want[i])...)
				time.Sleep(100 * time.Millisecond)
				k.looked(t)
			}
			k.wait(t, lines(1, c.want[len(c.want)-1])...)
		})
	}
}

// A cursor of a log that was torn when it was passed over is where its next record
// begins, whatever that will be.
func TestPassedOverWhileTorn(t *testing.T) {
	dir := t.TempDir()
	store, err := OpenStore(filepath.Join(t.TempDir(), "cursors"))
	if err != nil {
		t.Fatal(err)
	}
	once := func(from From) []string {
		t.Helper()
		k := &taker{}
		fo, err := New(Config{Paths: []string{dir}, Handler: k, Store: store, Once: true, From: from})
		if err != nil {
			t.Fatal(err)
		}
		if err := fo.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		return k.lines()
	}
	writer(t, dir, `printf '{"x":0}\n{"n":' >a.jsonl`)
	if got := once(Now); len(got) != 0 {
		t.Fatalf("got %q", got)
	}
	writer(t, dir, `truncate -s 8 a.jsonl; printf '{"n":1}\n{"n":2}\n' >>a.jsonl`)
	if got := once(Saved); !slices.Equal(got, lines(1, 2)) {
		t.Fatalf("got %q", got)
	}
}
