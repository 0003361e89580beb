package follow

import (
	"compress/gzip"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
)

// taker is a Handler that remembers.
type taker struct {
	mu     sync.Mutex
	got    []string
	opens  map[string]int
	closes int
	syncs  int
	idles  int // how often all was looked at that there was to look at
	refuse func(line string) bool
}

func (k *taker) Open(f *File) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.opens == nil {
		k.opens = map[string]int{}
	}
	k.opens[filepath.Base(f.Path)]++
}

func (k *taker) Take(_ *File, rs []Record) (int, time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, r := range rs {
		line := string(r.Line)
		if r.Fault != "" {
			line = string(r.Fault)
		}
		if k.refuse != nil && k.refuse(line) {
			return i, 0
		}
		k.got = append(k.got, line)
	}
	return len(rs), 0
}

func (k *taker) Close(*File) { k.mu.Lock(); k.closes++; k.mu.Unlock() }
func (k *taker) Idle()       { k.mu.Lock(); k.idles++; k.mu.Unlock() }
func (k *taker) Sync()       { k.mu.Lock(); k.syncs++; k.mu.Unlock() }

func (k *taker) lines() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.got)
}

// looked waits until everything was looked at once more, however busy the machine
// is.
func (k *taker) looked(t *testing.T) {
	t.Helper()
	idles := func() int { k.mu.Lock(); defer k.mu.Unlock(); return k.idles }
	n := idles() // and one more: that was underway, and looked before
	for deadline := time.Now().Add(time.Minute); idles() < n+2; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not look any more")
		}
	}
}

// wait waits until the taker has these lines, in this order.
func (k *taker) wait(t *testing.T, want ...string) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !slices.Equal(k.lines(), want) {
		if time.Now().After(deadline) {
			t.Fatalf("got  %q\nwant %q", k.lines(), want)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// start follows until the test ends, or stop is called.
func start(t *testing.T, c Config) (stop func()) {
	t.Helper()
	if c.Say == nil {
		c.Say = func(line string) { t.Log(line) }
	}
	fo, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- fo.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// writer runs a script as a process of its own, in a directory.
func writer(t *testing.T, dir, script string) {
	t.Helper()
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
}

func lines(from, to int) (out []string) {
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf(`{"n":%d}`, i))
	}
	return out
}

// Each case is a writer's script in steps, and what is told after each.
func TestFollowing(t *testing.T) {
	for _, c := range []struct {
		name  string
		path  string // below the directory; "" is the directory
		steps []string
		want  []int // lines told after each step
	}{
		{"growing", "", []string{`echo '{"n":1}' >a.jsonl`, `echo '{"n":2}' >>a.jsonl; echo '{"n":3}' >>a.jsonl`}, []int{1, 3}},
		{"a file that is yet to come", "a.jsonl", []string{`echo '{"n":1}' >b.jsonl`, `rm b.jsonl; echo '{"n":1}' >a.jsonl`}, []int{0, 1}},
		{"new directories", "", []string{`mkdir -p x/y; echo '{"n":1}' >x/y/a.jsonl`, `mkdir x/y/z; echo '{"n":2}' >x/y/z/b.jsonl`}, []int{1, 2}},
		{"a torn line", "", []string{`printf '{"n":1}\n{"n"' >a.jsonl`, `printf ':2}' >>a.jsonl`, `printf '\n{"n":3}\n' >>a.jsonl`}, []int{1, 2, 3}},
		{"renamed", "", []string{`echo '{"n":1}' >a.jsonl`, `mv a.jsonl b.jsonl; echo '{"n":2}' >>b.jsonl`}, []int{1, 2}},
		{"rotated", "", []string{`echo '{"n":1}' >a.jsonl`, `mv a.jsonl a.jsonl.1; echo '{"n":2}' >>a.jsonl.1`, `echo '{"n":3}' >a.jsonl`}, []int{1, 2, 3}},
		{"rotated out of sight", "", []string{`echo '{"n":1}' >a.jsonl`, `mv a.jsonl a.old`, `echo '{"n":2}' >>a.old`, `echo '{"n":3}' >a.jsonl`}, []int{1, 1, 2, 3}},
		{"copied and truncated", "", []string{`echo '{"n":1}' >a.jsonl`, `cp a.jsonl a.jsonl.1; : >a.jsonl`, `echo '{"n":2}' >>a.jsonl`}, []int{1, 1, 2}},
		{"copied and truncated, and as long again", "", []string{`echo '{"n":1}' >a.jsonl`, `cp a.jsonl a.jsonl.1; : >a.jsonl; echo '{"n":2}' >>a.jsonl`}, []int{1, 2}},
		{"truncated and grown beyond", "", []string{`echo '{"n":1}' >a.jsonl`, `printf '{"n":2}\n{"n":3}\n' >a.jsonl`}, []int{1, 3}},
		{"deleted and made again", "", []string{`echo '{"n":1}' >a.jsonl`, `rm a.jsonl`, `echo '{"n":2}' >a.jsonl`, `rm a.jsonl; echo '{"n":3}' >a.jsonl`}, []int{1, 1, 2, 3}},
		{"replaced", "", []string{`echo '{"n":1}' >a.jsonl`, `printf '{"n":2}\n' >tmp; mv tmp a.jsonl`}, []int{1, 2}},
		{"a link to a file", "a.jsonl", []string{`mkdir -p v1 v2; echo '{"n":1}' >v1/l; ln -s v1/l a.jsonl`, `echo '{"n":2}' >>v1/l`, `echo '{"n":3}' >v2/l; ln -sfn v2/l a.jsonl`}, []int{1, 2, 3}},
		{"a link to a folder, which may lead in a circle", "w", []string{`mkdir -p w v; echo '{"n":9}' >v/a.jsonl; ln -s ../v w/v; ln -s . w/w; echo '{"n":1}' >w/b.jsonl`}, []int{1}},
		{"a path that is a link to a folder", "w", []string{`mkdir v; ln -s v w; echo '{"n":1}' >v/a.jsonl`, `echo '{"n":2}' >>v/a.jsonl`}, []int{1, 2}},
		{"a mounted volume's swap", "", []string{
			`mkdir ..1; echo '{"n":1}' >..1/a.jsonl; ln -s ..1 ..data; ln -s ..data/a.jsonl a.jsonl`,
			`mkdir ..2; printf '{"n":2}\n' >..2/a.jsonl; ln -s ..2 ..tmp; mv -T ..tmp ..data; rm -r ..1`}, []int{1, 2}},
		{"CRLF, NULs, several on a line", "", []string{`printf '{"n":1}\r\n\000\000{"n":2}{"n":3}\r\n' >a.jsonl`}, []int{3}},
		{"NULs that are filled", "", []string{`printf '{"n":1}\n\000\000\000\000\000\000\000\000' >a.jsonl`, `printf '{"n":2}\n' | dd of=a.jsonl bs=1 seek=8 conv=notrunc 2>/dev/null`}, []int{1, 2}},
		{"other files", "", []string{`echo '{"n":9}' >a.json; echo '{"n":9}' >b.log; echo '{"n":1}' >c.ndjson`}, []int{1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			k := &taker{}
			start(t, Config{Paths: []string{filepath.Join(dir, c.path)}, Handler: k, SlowPoll: 2 * time.Second})
			for i, step := range c.steps {
				writer(t, dir, step)
				k.wait(t, lines(1, c.want[i])...)
				k.looked(t)
			}
			time.Sleep(50 * time.Millisecond)
			k.wait(t, lines(1, c.want[len(c.want)-1])...)
		})
	}
}

// Everything works where nothing is announced, only later.
func TestPolling(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k := &taker{}
	fo, err := New(Config{Paths: []string{dir}, Handler: k, Poll: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	fo.cfg.Once = true // no announcements are asked for
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	defer func() { cancel(); <-done }()
	go func() { // as Run, without an end
		defer close(done)
		for ctx.Err() == nil {
			fo.lookEverywhere(false)
			fo.work(ctx)
			time.Sleep(10 * time.Millisecond)
		}
	}()
	writer(t, dir, `mkdir x; echo '{"n":1}' >x/a.jsonl`)
	k.wait(t, lines(1, 1)...)
	writer(t, dir, `echo '{"n":2}' >>x/a.jsonl; mv x/a.jsonl b.jsonl; sleep 0.1; echo '{"n":3}' >>b.jsonl`)
	k.wait(t, lines(1, 3)...)
}

func TestPackedLogs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store := filepath.Join(t.TempDir(), "cursors")
	plain := strings.Join(lines(1, 3), "\n") + "\n"
	write := func(name, s string) {
		t.Helper()
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		switch filepath.Ext(name) {
		case ".zst":
			z, err := zstd.NewWriter(f)
			if err != nil {
				t.Fatal(err)
			}
			z.Write([]byte(s))
			z.Close()
		case ".gz":
			z := gzip.NewWriter(f)
			z.Write([]byte(s))
			z.Close()
		default:
			f.WriteString(s)
		}
	}
	once := func() []string {
		t.Helper()
		st, err := OpenStore(store)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		k := &taker{}
		fo, err := New(Config{Paths: []string{dir}, Handler: k, Store: st, Once: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := fo.Run(context.Background()); err != nil {
			t.Fatal(err)
		}
		return k.lines()
	}
	write("2026-rollout.jsonl", plain)
	if got := once(); !slices.Equal(got, lines(1, 3)) {
		t.Fatalf("got %q", got)
	}
	// Grown by one record, packed and moved, it is still the same log.
	os.Remove(filepath.Join(dir, "2026-rollout.jsonl"))
	os.Mkdir(filepath.Join(dir, "archived"), 0o700)
	write("archived/2026-rollout.jsonl.zst", plain+`{"n":4}`+"\n")
	if got := once(); !slices.Equal(got, lines(4, 4)) {
		t.Fatalf("packed: got %q", got)
	}
	write("archived/2026-rollout.jsonl.gz", plain+`{"n":4}`+"\n"+`{"n":5}`+"\n")
	if got := once(); !slices.Equal(got, lines(5, 5)) {
		t.Fatalf("packed again: got %q", got)
	}
	if got := once(); len(got) != 0 {
		t.Fatalf("nothing is new: got %q", got)
	}
}

func TestWhereReadingBegins(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := OpenStore(filepath.Join(t.TempDir(), "cursors"))
	if err != nil {
		t.Fatal(err)
	}
	writer(t, dir, `printf '{"n":1}\n{"n":2}\n{"n":' >a.jsonl`)
	k := &taker{}
	stop := start(t, Config{Paths: []string{dir}, Handler: k, Store: store})
	k.wait(t, lines(1, 2)...)
	stop()
	if k.syncs == 0 {
		t.Error("what was taken was not brought to the disk before the cursors")
	}
	writer(t, dir, `printf '3}\n' >>a.jsonl; echo '{"n":4}' >>a.jsonl`)

	k = &taker{}
	stop = start(t, Config{Paths: []string{dir}, Handler: k, Store: store})
	k.wait(t, lines(3, 4)...)
	stop()

	k = &taker{}
	stop = start(t, Config{Paths: []string{dir}, Handler: k, Store: store, From: Start})
	k.wait(t, lines(1, 4)...)
	stop()

	writer(t, dir, `printf '{"n":5}\n{"n"' >>a.jsonl`)
	k = &taker{}
	stop = start(t, Config{Paths: []string{dir}, Handler: k, Store: store, From: Now})
	k.looked(t)
	writer(t, dir, `printf ':6}\n{"n":7}\n' >>a.jsonl; echo '{"n":8}' >b.jsonl`)
	deadline := time.Now().Add(time.Minute)
	for len(k.lines()) < 3 && time.Now().Before(deadline) {
		time.Sleep(5 * time.Millisecond)
	}
	stop()
	if got := k.lines(); !slices.Equal(got, lines(6, 8)) && !slices.Equal(got, []string{`{"n":8}`, `{"n":6}`, `{"n":7}`}) {
		t.Fatalf("from now: got %q", got)
	}
	k = &taker{}
	start(t, Config{Paths: []string{dir}, Handler: k, Store: store})
	k.looked(t)
	k.looked(t)
	if got := k.lines(); len(got) != 0 {
		t.Fatalf("what was passed over is not read later: got %q", got)
	}
}

// A record that is not taken comes again, and nothing behind it before it.
func TestWhatIsNotTakenComesAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k := &taker{}
	busy := true
	k.refuse = func(line string) bool { return busy && line == `{"n":2}` }
	start(t, Config{Paths: []string{dir}, Handler: k, Retry: 50 * time.Millisecond, Poll: 20 * time.Millisecond})
	writer(t, dir, `printf '{"n":1}\n{"n":2}\n{"n":3}\n' >a.jsonl`)
	k.wait(t, lines(1, 1)...)
	writer(t, dir, `echo '{"n":4}' >>a.jsonl`)
	time.Sleep(200 * time.Millisecond)
	k.wait(t, lines(1, 1)...)
	k.mu.Lock()
	busy = false
	k.mu.Unlock()
	k.wait(t, lines(1, 4)...)
}

// A cursor file that a crash tore, or that grew long, is still one.
func TestStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "cursors")
	s, err := OpenStore(path)
	if err != nil {
		t.Fatal(err)
	}
	c := Cursor{Path: "/x", Dev: 1, Ino: 2, Head: "h", Offset: 7, Tail: "t"}
	if err := s.save([]Cursor{c}); err != nil {
		t.Fatal(err)
	}
	c.Offset = 9
	if err := s.save([]Cursor{c}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	f, _ := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	f.WriteString(`{"path":"/x","dev":1,"ino":2,"head":"h","off":1`)
	f.WriteString(strings.Repeat("\n", compactAt))
	f.Close()
	if s, err = OpenStore(path); err != nil {
		t.Fatal(err)
	}
	if got := s.of("h"); len(got) != 1 || got[0] != c {
		t.Errorf("got %+v", got)
	}
	if fi, err := os.Stat(path); err != nil || fi.Size() > 1000 {
		t.Errorf("the file was not written anew: %v, %v", fi, err)
	}
}

func TestNamesOfLogs(t *testing.T) {
	for name, want := range map[string]bool{"a.jsonl": true, "a.jsonl.1": true, "a.jsonl-20261130": true, "a.jsonl.zst": true, "a.jsonl.1.gz": true,
		"A.NDJSON": true, "a.json": false, "a.jsonl.tmp": false, "a.jsonl.lock": false, "jsonl": false} {
		if IsLog("/x/"+name) != want {
			t.Errorf("%s: want %v", name, want)
		}
	}
}

// A line of 22 MB, as of screenshots, is told without its long strings, and
// what comes after it is.
func TestAVeryLongLine(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	k := &taker{}
	start(t, Config{Paths: []string{dir}, Handler: k})
	writer(t, dir, `{ printf '{"shot":"'; head -c 22000000 /dev/zero | tr '\0' x; printf '"}\n{"n":1}\n'; } >a.jsonl`)
	k.wait(t, `{"shot":"[22000000 bytes not read]"}`, `{"n":1}`)
}
