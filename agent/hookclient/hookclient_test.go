package hookclient

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// serve answers one helper with fn and gives the socket.
func serve(t *testing.T, fn func(c net.Conn, greeting string, in *bufio.Reader)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in := bufio.NewReader(c)
		line, _ := in.ReadString('\n')
		fn(c, line, in)
	}()
	return path
}

func TestAsk(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	for _, tt := range []struct {
		name   string
		server func(c net.Conn, greeting string, in *bufio.Reader)
		want   string
		fails  bool
	}{
		{"no decision", func(c net.Conn, _ string, in *bufio.Reader) { io.Copy(io.Discard, in); io.WriteString(c, "=0\n") }, "", false},
		{"an answer", func(c net.Conn, _ string, in *bufio.Reader) { io.WriteString(c, "=3\nyes") }, "yes", false},
		{"held, then answered", func(c net.Conn, _ string, in *bufio.Reader) {
			io.WriteString(c, "w")
			time.Sleep(20 * time.Millisecond)
			io.WriteString(c, "ww=3\nyes")
		}, "yes", false},
		{"a long answer", func(c net.Conn, _ string, in *bufio.Reader) { io.WriteString(c, "=1048576\n"+big) }, big, false},
		{"what was sent", func(c net.Conn, greeting string, in *bufio.Reader) {
			b, _ := io.ReadAll(in)
			io.WriteString(c, "=43\n"+greeting+string(b))
		}, "AEP-HOOK/1 claude-code PreToolUse\n{\"a\": 1}\n", false},
		{"an answer cut short", func(c net.Conn, _ string, in *bufio.Reader) { io.WriteString(c, "=10\nyes") }, "", true},
		{"no answer", func(c net.Conn, _ string, in *bufio.Reader) {}, "", true},
		{"not an answer", func(c net.Conn, _ string, in *bufio.Reader) { io.WriteString(c, "HTTP/1.1 400") }, "", true},
		{"a length that is none", func(c net.Conn, _ string, in *bufio.Reader) { io.WriteString(c, "=-1\n") }, "", true},
		{"a length without end", func(c net.Conn, _ string, in *bufio.Reader) { io.WriteString(c, "="+strings.Repeat("1", 100)) }, "", true},
		{"a length beyond the bound", func(c net.Conn, _ string, in *bufio.Reader) { io.WriteString(c, "=999999999\n") }, "", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			answer, err := Ask(serve(t, tt.server), []string{"claude-code", "PreToolUse"}, strings.NewReader("{\"a\": 1}\n"))
			if (err != nil) != tt.fails {
				t.Fatalf("error %v, want one: %v", err, tt.fails)
			}
			if err == nil && string(answer) != tt.want {
				t.Fatalf("answer %q, want %q", answer, tt.want)
			}
		})
	}
}

func TestAskWithoutWrapper(t *testing.T) {
	for name, socket := range map[string]string{
		"not set":   "",
		"not there": filepath.Join(t.TempDir(), "none"),
		"too long":  "/" + strings.Repeat("x", 200),
	} {
		if _, err := Ask(socket, []string{"a"}, strings.NewReader("{}")); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A stdin that nobody closes must not keep the helper: the answer ends it.
func TestAskStdinHeldOpen(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer r.Close()
	w.WriteString(`{"a":1}`)
	start := time.Now()
	answer, err := Ask(serve(t, func(c net.Conn, _ string, in *bufio.Reader) {
		in.ReadString('}')
		io.WriteString(c, "=2\nok")
	}), []string{"a", "e"}, r)
	if err != nil || string(answer) != "ok" {
		t.Fatalf("%q, %v", answer, err)
	}
	if d := time.Since(start); d > patience/2 {
		t.Fatalf("took %v", d)
	}
}

// A wrapper that hangs is waited for no longer than the patience.
func TestAskPatience(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the deadline: not under -short")
	}
	start := time.Now()
	stop := make(chan struct{})
	defer close(stop)
	_, err := Ask(serve(t, func(c net.Conn, _ string, in *bufio.Reader) { <-stop }), []string{"a", "e"}, strings.NewReader("{}"))
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("error %v", err)
	}
	if d := time.Since(start); d < patience || d > 2*patience {
		t.Fatalf("took %v, want about %v", d, patience)
	}
}

// A payload of 50 MB goes through whole.
func TestAskLarge(t *testing.T) {
	payload := bytes.Repeat([]byte("0123456789"), 5<<20)
	got := make(chan int64, 1)
	answer, err := Ask(serve(t, func(c net.Conn, _ string, in *bufio.Reader) {
		n, _ := io.Copy(io.Discard, in)
		got <- n
		io.WriteString(c, "=2\nok")
	}), []string{"a", "e"}, bytes.NewReader(payload))
	if err != nil || string(answer) != "ok" || <-got != int64(len(payload)) {
		t.Fatalf("%q, %v", answer, err)
	}
}
