package jsonl

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestLastOwn(t *testing.T) {
	own := func(n, size int) string {
		return fmt.Sprintf(`{"id":"e%d","type":"run.started","session":"s","seq":%d,"x":"%s"}`, n, n, strings.Repeat("x", size))
	}
	const (
		command = `{"id":"c","type":"control.cancel","session":"s"}`
		agent   = `{"id":"i","type":"agent.idle"}`
		noEvent = `half a line`
	)
	for name, x := range map[string]struct {
		lines []string
		at    Position // Offset -1 is the log's end
		max   int64
		want  string
	}{
		"the last":              {[]string{own(0, 0), own(1, 0)}, Position{ID: "e1", Seq: 1, Offset: -1}, 1 << 20, "e1"},
		"not the last":          {[]string{own(0, 0), own(1, 0)}, Position{ID: "e0"}, 1 << 20, "e0"},
		"an offset that is off": {[]string{own(0, 0), own(1, 0)}, Position{ID: "e1", Seq: 1, Offset: 3}, 1 << 20, "e1"},
		"behind others":         {[]string{own(0, 0), own(1, 0), command, noEvent, agent}, Position{ID: "i", Offset: -1}, 1 << 20, "e1"},
		"a long line":           {[]string{own(0, 0), own(1, 200_000)}, Position{ID: "e1", Seq: 1, Offset: -1}, 1 << 20, "e1"},
		"too long a line":       {[]string{own(0, 0), own(1, 200_000)}, Position{ID: "e1", Seq: 1, Offset: -1}, 100_000, ""},
		"too far back":          {append([]string{own(0, 0)}, strings.Split(strings.Repeat(agent+"\n", 100), "\n")[:100]...), Position{ID: "i", Offset: -1}, 1000, ""},
		"none of its own":       {[]string{agent, command}, Position{ID: "c", Offset: -1}, 1 << 20, ""},
		"nothing yet":           {[]string{own(0, 0)}, Position{}, 1 << 20, ""},
	} {
		t.Run(name, func(t *testing.T) {
			log, err := Open(t.TempDir(), "a", "s")
			if err != nil {
				t.Fatal(err)
			}
			defer log.Close()
			refs := map[string]Ref{}
			for _, l := range x.lines {
				ref, err := log.Append([]byte(l))
				if err != nil {
					t.Fatal(err)
				}
				if h, ok := ReadHead([]byte(l)); ok {
					refs[h.ID] = ref
				}
			}
			if x.at.Offset < 0 {
				x.at.Offset = log.Size()
			}
			line, h, ref, ok, err := LastOwn(log.Path(), x.at, x.max)
			if err != nil || ok != (x.want != "") || h.ID != x.want || ref != refs[x.want] {
				t.Fatalf("%v %v %+v %+v", ok, err, h, ref)
			}
			if ok && (len(line)+1 != ref.Len || !strings.HasSuffix(string(line), "}")) {
				t.Errorf("%q", line)
			}
		})
	}
	if _, _, _, _, err := LastOwn(t.TempDir()+"/none.jsonl", Position{ID: "x"}, 100); err == nil {
		t.Error("no log, and no error")
	}
}

func TestLast(t *testing.T) {
	const (
		first   = `{"id":"e0","type":"run.started","session":"s","seq":0}` + "\n"
		last    = `{"id":"e1","type":"run.finished","session":"s","seq":1}` + "\n"
		command = `{"id":"c","type":"control.cancel","session":"s"}` + "\n"
	)
	for name, x := range map[string]struct {
		log  string
		max  int64
		want string
	}{
		"the last":         {first + last, 1 << 20, "e1"},
		"behind a command": {first + command, 1 << 20, "e0"},
		"half a line":      {first + last + `{"id":"e2","ty`, 1 << 20, "e1"},
		"only half a line": {`{"id":"e2"`, 1 << 20, ""},
		"too far back":     {first + strings.Repeat(command, 100), 500, ""},
		"empty":            {"", 1 << 20, ""},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s.jsonl")
			if err := os.WriteFile(path, []byte(x.log), 0o600); err != nil {
				t.Fatal(err)
			}
			_, h, ref, ok, err := Last(path, x.max)
			if err != nil || ok != (x.want != "") || h.ID != x.want {
				t.Fatalf("%v %v %+v", ok, err, h)
			}
			if ok && x.log[ref.Off:ref.End()] != map[string]string{"e0": first, "e1": last}[x.want] {
				t.Errorf("%+v", ref)
			}
		})
	}
}

// Who starts while somebody only looks waits for it; who only looks does not. In
// a bubble, where a machine that is slow makes nobody late.
func TestOwnersWaitForThoseWhoLook(t *testing.T) { synctest.Test(t, ownersWaitForThoseWhoLook) }

func ownersWaitForThoseWhoLook(t *testing.T) {
	root := t.TempDir()
	looks, err := OpenPath(Path(root, "a", "s"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := OpenPath(Path(root, "a", "s")); !errors.As(err, new(*ErrOwned)) {
		t.Fatalf("got %v", err)
	}
	go func() {
		time.Sleep(ownPatience - time.Millisecond)
		if !Wanted(Path(root, "a", "s")) {
			t.Error("nobody says that it is waited for")
		}
		looks.Close()
	}()
	log, err := Open(root, "a", "s")
	if err != nil {
		t.Fatal(err)
	}
	if !log.Locked() {
		t.Error("a lock that holds nothing")
	}
	log.Close()
}

// Who wants to own a log does not take one that only looks after it, in the same
// process, for an owner. In a bubble, where no glance takes time.
func TestGlance(t *testing.T) { synctest.Test(t, glance) }

func glance(t *testing.T) {
	root := t.TempDir()
	path := Path(root, "a", "s")
	l, err := OpenPath(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append([]byte(`{"id":"1"}`)); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var looking sync.WaitGroup
	looking.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Microsecond):
			}
			if n, err := Settle(path); err != nil && !errors.As(err, new(*ErrOwned)) || err == nil && n == 0 {
				t.Errorf("%d bytes, %v", n, err)
			}
		}
	})
	for i := range 300 {
		time.Sleep(100 * time.Microsecond) // both are woken at once
		l, err := OpenPath(path)
		if err != nil {
			t.Errorf("%d: %v", i, err)
			break
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	looking.Wait()
}
