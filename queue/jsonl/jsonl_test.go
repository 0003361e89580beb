package jsonl

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if root := os.Getenv("JSONL_TEST_OWNER"); root != "" { // another process that owns a session
		l, err := Open(root, "a", "s")
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		_, err = l.Append([]byte(`{"id":"theirs"}`))
		fmt.Println("owned", err)
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // without Close, as a crash would
	}
	goleak.VerifyTestMain(m)
}

func line(id string) []byte { return fmt.Appendf(nil, `{"id":%q,"session":"s","seq":1}`, id) }

func lines(t *testing.T, l *Log) (got []string) {
	t.Helper()
	if err := l.Replay(func(b []byte) error { got = append(got, string(b)); return nil }); err != nil {
		t.Fatal(err)
	}
	return got
}

func open(t *testing.T, root string) *Log {
	t.Helper()
	l, err := Open(root, "a", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestAppendAndReplay(t *testing.T) {
	root := filepath.Join(t.TempDir(), "deep", "root")
	l := open(t, root)
	ref, err := l.Append([]byte(`{"n":1}`))
	if err != nil || ref != (Ref{Path: filepath.Join(root, "a", "s.jsonl"), Off: 0, Len: 8}) {
		t.Fatalf("%v %v", ref, err)
	}
	refs, err := l.AppendBatch(nil, [][]byte{[]byte(`{"n":2}`), []byte(`{"n":33}`)})
	if err != nil || len(refs) != 2 || refs[0].Off != 8 || refs[1].Off != 16 || refs[1].End() != 25 || l.Size() != 25 {
		t.Fatalf("%v %v %d", refs, err, l.Size())
	}
	for name, bad := range map[string][]byte{"two lines": []byte("a\nb"), "none": {}} {
		if _, err := l.Append(bad); !errors.Is(err, ErrLine) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := l.AppendBatch(nil, [][]byte{line("x"), bad}); !errors.Is(err, ErrLine) {
			t.Errorf("%s in a batch: %v", name, err)
		}
	}
	want := []string{`{"n":1}`, `{"n":2}`, `{"n":33}`}
	if got := lines(t, l); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v", got)
	}
	stop := errors.New("stop")
	if err := l.Replay(func([]byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("replay: %v", err)
	}
	for path, mode := range map[string]os.FileMode{root: 0o700, filepath.Dir(l.Path()): 0o700, l.Path(): 0o600, beside(l.Path(), ".lock"): 0o600} {
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", path, st.Mode(), err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(line("late")); !errors.Is(err, ErrClosed) {
		t.Errorf("append after close: %v", err)
	}
	if _, err := os.Stat(beside(l.Path(), ".lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the lock file stays: %v", err)
	}
	if got := lines(t, open(t, root)); len(got) != 3 {
		t.Errorf("after a restart: %v", got)
	}
}

func TestOneOwner(t *testing.T) {
	root := t.TempDir()
	l := open(t, root)
	_, err := Open(root, "a", "s")
	owned := (*ErrOwned)(nil)
	if !errors.As(err, &owned) || owned.Pid != os.Getpid() {
		t.Fatalf("a second owner: %v", err)
	}
	if _, err := Open(root, "a", "other"); err != nil {
		t.Fatalf("another session: %v", err)
	}
	l.Close()

	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "JSONL_TEST_OWNER="+root)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 64)
	n, _ := out.Read(said)
	if !strings.HasPrefix(string(said[:n]), "owned <nil>") {
		t.Fatalf("the other process: %q", said[:n])
	}
	if _, err = Open(root, "a", "s"); !errors.As(err, &owned) || owned.Pid != cmd.Process.Pid {
		t.Errorf("owned by %d: %v", cmd.Process.Pid, err)
	}
	if err != nil && !strings.Contains(err.Error(), fmt.Sprint(cmd.Process.Pid)) {
		t.Errorf("the owner is not named: %v", err)
	}
	_ = cmd.Process.Kill()
	in.Close()
	_ = cmd.Wait()
	l = open(t, root) // a dead owner's lock is free, though its file stays
	if got := lines(t, l); len(got) != 1 {
		t.Errorf("its line: %v", got)
	}
}

// TestOwnersTakeTurns has many openers race over one lock file that comes and
// goes: never two at once.
func TestOwnersTakeTurns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	var held chan struct{} = make(chan struct{}, 1)
	done := make(chan error, 8)
	for range 8 {
		go func() {
			for range 200 {
				l, _, err := take(path, "x.jsonl")
				if owned := (*ErrOwned)(nil); errors.As(err, &owned) {
					continue
				}
				if err != nil {
					done <- err
					return
				}
				select {
				case held <- struct{}{}:
				default:
					done <- errors.New("two owners")
					return
				}
				<-held
				l.Release()
			}
			done <- nil
		}()
	}
	for range 8 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestMend(t *testing.T) {
	whole := string(line("1")) + "\n"
	for _, c := range []struct{ name, file, want, aside string }{
		{"nothing", "", "", ""},
		{"whole lines", whole, whole, ""},
		{"half a line", whole + `{"id":"2","se`, whole, `{"id":"2","se` + "\n"},
		{"a line that lacks its newline", whole + `{"id":"2"}`, whole + `{"id":"2"}` + "\n", ""},
		{"half a line alone", `{"id`, "", `{"id` + "\n"},
		{"zeros after a power cut", whole + "\x00\x00\x00\x00", whole, "\x00\x00\x00\x00\n"},
		{"a number is no event", whole + "12", whole, "12\n"},
		{"a long half line", whole + `{"id":"` + strings.Repeat("x", 200<<10), whole, `{"id":"` + strings.Repeat("x", 200<<10) + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := t.TempDir()
			path := Path(root, "a", "s")
			_ = os.Mkdir(filepath.Dir(path), 0o755)
			_ = os.WriteFile(path, []byte(c.file), 0o644)
			l := open(t, root)
			got, _ := os.ReadFile(path)
			aside, _ := os.ReadFile(beside(path, ".torn"))
			if string(got) != c.want || string(aside) != c.aside || l.Size() != int64(len(c.want)) {
				t.Errorf("got %q and %q (size %d)", got, aside, l.Size())
			}
			ref, err := l.Append(line("new"))
			if err != nil || ref.Off != int64(len(c.want)) {
				t.Errorf("append: %v %v", ref, err)
			}
			if st, _ := os.Stat(path); st.Mode().Perm() != 0o600 {
				t.Errorf("mode %v", st.Mode())
			}
		})
	}
}

func TestRefusesWhatIsNoLog(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "a")
	_ = os.Mkdir(dir, 0o700)
	_ = os.WriteFile(filepath.Join(root, "elsewhere"), nil, 0o600)
	_ = os.Symlink(filepath.Join(root, "elsewhere"), filepath.Join(dir, "s.jsonl"))
	if _, err := Open(root, "a", "s"); err == nil {
		t.Error("a symlink was followed")
	}
	_ = syscall.Mkfifo(filepath.Join(dir, "p.jsonl"), 0o600)
	if _, err := Open(root, "a", "p"); err == nil {
		t.Error("a pipe was taken")
	}
	if _, err := Open(filepath.Join(root, "elsewhere"), "a", "s"); err == nil {
		t.Error("a file was taken as the directory")
	}
	if _, err := os.Stat(filepath.Join(dir, "s.lock")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a refused log leaves its lock: %v", err)
	}
}

// TestFullDisk limits the size that this process may write to stand in for a
// full disk: a write beyond it is short, then fails.
func TestFullDisk(t *testing.T) {
	if os.Getenv("JSONL_TEST_FULL") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
		cmd.Env = append(os.Environ(), "JSONL_TEST_FULL=1")
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestFullDisk")) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	l := open(t, t.TempDir())
	first, _ := l.Append(line("1"))
	var old syscall.Rlimit
	_ = syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old)
	limit := old
	limit.Cur = uint64(first.End()) + 10
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Skip("the file size cannot be limited:", err)
	}
	_, err := l.Append(line("2"))
	if !errors.Is(err, syscall.EFBIG) || !strings.Contains(err.Error(), l.Path()) {
		t.Errorf("the first line too many: %v", err)
	}
	if st, _ := os.Stat(l.Path()); st.Size() != first.End() {
		t.Errorf("half a line stays: %d bytes", st.Size())
	}
	if l.retry.IsZero() {
		t.Error("it is not left alone")
	}
	l.retry = time.Now().Add(time.Hour)
	for range 3 {
		if _, err := l.Append(line("3")); !errors.Is(err, ErrSuspended) {
			t.Errorf("the next: %v", err)
		}
	}
	if n := l.Lost(); n != 4 {
		t.Errorf("lost %d", n)
	}
	_ = syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old)
	l.retry = time.Now()
	if ref, err := l.Append(line("4")); err != nil || ref.Off != first.End() {
		t.Errorf("with room again: %v %v", ref, err)
	}
	if got := lines(t, l); len(got) != 2 {
		t.Errorf("the log: %q", got)
	}
}

func TestHalfALineThatStaysIsSetApart(t *testing.T) {
	l := open(t, t.TempDir())
	_, _ = l.Append(line("1"))
	// As after a short write whose rest could not be cut off.
	_, _ = l.f.Write([]byte(`{"id":"ha`))
	l.size, l.torn = l.size+9, true
	ref, err := l.Append(line("2"))
	if err != nil {
		t.Fatal(err)
	}
	r, _ := OpenReader(l.Path(), ref.Off)
	defer r.Close()
	if got, at, err := r.Next(); err != nil || string(got) != string(line("2")) || at != ref {
		t.Errorf("at %v: %q %v %v", ref, got, at, err)
	}
}

func TestLimit(t *testing.T) {
	l := open(t, t.TempDir())
	l.Limit(int64(len(line("1"))) + 1)
	if _, err := l.Append(line("1")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(line("2")); !errors.Is(err, ErrCapped) {
		t.Errorf("beyond the limit: %v", err)
	}
}

func TestReaderFollows(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.jsonl")
	f, _ := os.Create(path)
	defer f.Close()
	r, err := OpenReader(path, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.max = 200 << 10
	want := func(wantLine string, wantErr error) {
		t.Helper()
		got, ref, err := r.Next()
		if !errors.Is(err, wantErr) || string(got) != wantLine {
			t.Fatalf("got %.40q (%d bytes), %v", got, len(got), err)
		}
		if err == nil {
			at := make([]byte, ref.Len)
			if _, err := f.ReadAt(at, ref.Off); err != nil || string(at) != wantLine+"\n" {
				t.Fatalf("%v holds %.40q", ref, at)
			}
		}
	}
	write := func(s string) { _, _ = f.WriteString(s) }
	want("", io.EOF)
	write("one\ntw")
	want("one", nil)
	want("", io.EOF)
	want("", io.EOF)
	write("o\n\n \r\nthree\r\n")
	want("two", nil)
	want("three\r", nil)
	long := strings.Repeat("l", 150<<10)
	write(long)
	want("", io.EOF)
	write(long[:40<<10] + "\n")
	want(long+long[:40<<10], nil)
	write(strings.Repeat(long, 4))
	want("", io.EOF)
	write(long + "\nafter\n")
	want("", ErrLong)
	want("after", nil)
	want("", io.EOF)
}

func TestSafeName(t *testing.T) {
	plain := []string{"s_8f2c", "fa53200c-2053-4ae7-86df-62afd036ad94", "a.b", "unknown", "x", strings.Repeat("n", maxName)}
	for _, s := range plain {
		if got := SafeName(s); got != s {
			t.Errorf("%q became %q", s, got)
		}
	}
	odd := []string{
		"", ".", "..", ".hidden", "a/b", "a_b/", "../../etc/passwd", "a\x00b", "a\nb", "con", "NUL.txt", "lpt1", "com9.x", "-rf", "a.",
		"ünï", "unï", "a b", "a:b", "a~b", strings.Repeat("n", maxName+1), strings.Repeat("n", maxName) + "m", strings.Repeat("ü", 400), "\xff\xfe", "\xff", "x~" + strings.Repeat("0", 32),
	}
	seen := map[string]string{}
	for _, s := range append(plain, odd...) {
		got := SafeName(s)
		if other, ok := seen[strings.ToLower(got)]; ok {
			t.Errorf("%q and %q are both %q", s, other, got)
		}
		seen[strings.ToLower(got)] = s
		checkName(t, s, got)
	}
	for _, s := range odd {
		if SafeName(s) == s {
			t.Errorf("%q stayed", s)
		}
	}
	if got := SafeName("my session: fix #12"); !strings.HasPrefix(got, "my_session__fix__12~") {
		t.Errorf("not readable: %q", got)
	}
}

func checkName(t *testing.T, s, got string) {
	t.Helper()
	longest := got + "." + strings.Repeat("s", 60) + ".pos.tmp"
	if got == "" || len(longest) > 255 || strings.ContainsAny(got, "/\\\x00:*?\"<>|\n ") || got[0] == '.' || got[0] == '-' || got[len(got)-1] == '.' || reserved(got) {
		t.Errorf("%q became %q", s, got)
	}
}

func FuzzSafeName(f *testing.F) {
	f.Add("a", "b")
	f.Add("../x", ".._x")
	f.Fuzz(func(t *testing.T, a, b string) {
		checkName(t, a, SafeName(a))
		if a != b && SafeName(a) == SafeName(b) {
			t.Errorf("%q and %q are both %q", a, b, SafeName(a))
		}
	})
}

func TestPositions(t *testing.T) {
	root := t.TempDir()
	l := open(t, root)
	var refs []Ref
	for i := range 5 {
		ref, err := l.Append(fmt.Appendf(nil, `{"id":"e%d","session":"s","epoch":2,"seq":%d}`, i, i*10))
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, ref)
	}
	if _, ok, err := LoadPosition(l.Path(), "post"); ok || err != nil {
		t.Fatalf("a position before any: %v %v", ok, err)
	}
	p := Position{ID: "e2", Epoch: 2, Seq: 20, Offset: refs[2].End()}
	if err := SavePosition(l.Path(), "post.x/y", p); err != nil {
		t.Fatal(err)
	}
	got, ok, err := LoadPosition(l.Path(), "post.x/y")
	if err != nil || !ok || got != p {
		t.Fatalf("%v %v %v", got, ok, err)
	}
	for _, c := range []struct {
		name string
		p    Position
		want int64
	}{
		{"the start", Position{}, 0},
		{"as saved", p, refs[3].Off},
		{"a wrong offset", Position{ID: "e2", Epoch: 2, Seq: 20, Offset: 7}, refs[3].Off},
		{"an offset beyond the end", Position{ID: "e2", Epoch: 2, Seq: 20, Offset: 1 << 40}, refs[3].Off},
		{"no offset", Position{ID: "e4", Epoch: 2, Seq: 40}, refs[4].End()},
		{"an event that is gone: the next position", Position{ID: "gone", Epoch: 2, Seq: 15, Offset: 3}, refs[2].Off},
		{"an event of an earlier epoch", Position{ID: "gone", Epoch: 1, Seq: 99}, 0},
		{"all is older", Position{ID: "gone", Epoch: 3}, refs[4].End()},
	} {
		if off, err := Locate(l.Path(), c.p); err != nil || off != c.want {
			t.Errorf("%s: %d, want %d (%v)", c.name, off, c.want, err)
		}
	}
	_ = os.WriteFile(sinkPath(l.Path(), "bad", ".pos"), []byte("{"), 0o600)
	if p, ok, err := LoadPosition(l.Path(), "bad"); err == nil || !ok || p != (Position{}) {
		t.Errorf("a broken position: %v %v %v", p, ok, err)
	}
	files, _ := filepath.Glob(filepath.Join(root, "a", "*"))
	for _, f := range files {
		if strings.HasSuffix(f, ".tmp") {
			t.Errorf("%s stays", f)
		}
	}
}

func FuzzParsePosition(f *testing.F) {
	f.Add([]byte(`{"id":"01","epoch":1,"seq":2,"offset":3}`))
	f.Add([]byte(`{"epoch":-1}`))
	f.Add([]byte(`{"offset":1e99}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := ParsePosition(raw)
		if err != nil && p != (Position{}) {
			t.Errorf("an error with %v", p)
		}
		if p.Epoch < 0 || p.Seq < 0 || p.Offset < 0 {
			t.Errorf("%v", p)
		}
	})
}

func TestReadHead(t *testing.T) {
	h, ok := ReadHead([]byte(` {"aep":"0.1","id":"A\"b\\","type":"tool.requested","data":{"id":"no","seq":9,"x":["}",{"y":"\\\""}]},"session":"s","epoch":3,"seq":0,"severity":"debug","agent":"é"} ` + "\r"))
	want := Head{ID: `A"b\`, Type: "tool.requested", Session: "s", Epoch: 3, Seq: 0, Sequenced: true, Severity: "debug", Agent: "é"}
	if !ok || h != want {
		t.Errorf("%v %+v", ok, h)
	}
	if h, ok := ReadHead([]byte(`{"type":"control.cancel","session":"s"}`)); !ok || !h.Foreign() {
		t.Errorf("a command: %v %+v", ok, h)
	}
	if h, ok := ReadHead([]byte(`{"type":"agent.idle"}`)); !ok || h.Foreign() {
		t.Errorf("an agent's event: %v %+v", ok, h)
	}
	for _, bad := range []string{"", "{", "[]", "12", `{"a"}`, `{"a":}`, `{"a":1`, `{"a":1}x`, `{"a":"`, `{"a":[}`, `{1:2}`, `{"a":1,}`} {
		if _, ok := ReadHead([]byte(bad)); ok {
			t.Errorf("%s was taken", bad)
		}
	}
}

func FuzzReadHead(f *testing.F) {
	f.Add([]byte(`{"id":"a","session":"s","seq":1,"data":{"a":[1,2,{"b":"c\\\""}]}}`))
	f.Add([]byte(`{"seq": 1e3 , "id" : "\u0041"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, ok := ReadHead(raw)
		if !json.Valid(raw) {
			return
		}
		var m map[string]json.RawMessage
		object := json.Unmarshal(raw, &m) == nil && m != nil
		if object != ok {
			t.Fatalf("an object: %v, taken: %v: %q", object, ok, raw)
		}
		if !ok || bytes.Contains(raw, []byte(`\u`)) {
			return
		}
		var id string
		if json.Unmarshal(m["id"], &id) == nil && id != h.ID {
			t.Fatalf("id %q, want %q in %q", h.ID, id, raw)
		}
	})
}

// FuzzMend opens a log with any tail: what was whole stays, and what is
// appended can be read back.
func FuzzMend(f *testing.F) {
	f.Add([]byte("{}\n{"))
	f.Add([]byte("{}"))
	f.Add([]byte("\n\n\x00"))
	f.Fuzz(func(t *testing.T, tail []byte) {
		root := t.TempDir()
		path := Path(root, "a", "s")
		_ = os.Mkdir(filepath.Dir(path), 0o700)
		_ = os.WriteFile(path, tail, 0o600)
		l, err := Open(root, "a", "s")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		var want []string
		if i := bytes.LastIndexByte(tail, '\n'); i >= 0 {
			for _, s := range strings.Split(string(tail[:i]), "\n") {
				if len(bytes.TrimSpace([]byte(s))) > 0 {
					want = append(want, s)
				}
			}
			tail = tail[i+1:]
		}
		if len(tail) > 0 && tail[0] == '{' && json.Valid(tail) {
			want = append(want, string(tail))
		}
		if _, err := l.Append(line("new")); err != nil {
			t.Fatal(err)
		}
		if got := lines(t, l); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", append(want, string(line("new")))) {
			t.Errorf("got %q, want %q and the new line", got, want)
		}
	})
}

func BenchmarkAppend(b *testing.B) {
	l, err := Open(b.TempDir(), "a", "s")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	event := bytes.Repeat([]byte("x"), 420)
	b.SetBytes(int64(len(event)) + 1)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := l.Append(event); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendBatch(b *testing.B) {
	l, err := Open(b.TempDir(), "a", "s")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	batch := make([][]byte, 64)
	for i := range batch {
		batch[i] = bytes.Repeat([]byte("x"), 420)
	}
	b.SetBytes(421 * 64)
	b.ReportAllocs()
	var refs []Ref
	for b.Loop() {
		if refs, err = l.AppendBatch(refs[:0], batch); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadHead(b *testing.B) {
	raw := []byte(`{"aep":"0.1","id":"01JX9YB3P4T90000000000GOLD","type":"tool.completed","subject":"Bash","time":"2026-07-03T10:15:04.221Z","source":"aep://host-a/agent/claude-code/session/s_8f2c","agent":"claude-code","session":"s_8f2c","run":"r_0042","step":"turn-3","seq":3,"cause":"01JX9YB2Z1QK0000000000GOLD","capture":"metadata","data":{"tool":{"name":"Bash","call_id":"t_91"},"status":"success","duration_ms":1240,"gen_ai.usage.input_tokens":142,"gen_ai.usage.output_tokens":87}}`)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		ReadHead(raw)
	}
}
