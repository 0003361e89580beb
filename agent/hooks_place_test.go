package agent

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/agent/hookclient"
)

// A place stays: its address, its secret and its socket are those that agents
// were told, whose hooks go to whoever knows their adapter.
func TestHookPlace(t *testing.T) {
	before := runtime.NumGoroutine()
	socket := filepath.Join(t.TempDir(), "h.sock")
	claude, rest := &witness{}, &witness{}
	start := func() (*HookServer, error) {
		return ServeHooks(HookConfig{Observer: rest, Place: &HookPlace{Listen: "127.0.0.1:0", Secret: "word-word-word-word", Socket: socket, Group: -1},
			Serves: func(name string) Observer {
				if name == "claude-code" {
					return claude
				}
				return nil
			}})
	}
	h, err := start()
	if err != nil {
		t.Fatal(err)
	}
	var e adapters.Endpoint
	h.Endpoint(&e)
	post := func(url string) int {
		resp, err := http.Post(url, "application/json", strings.NewReader(`{"session_id":"s"}`))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if !strings.HasSuffix(e.HookURL, "/hook/word-word-word-word") || e.Socket != socket {
		t.Errorf("it is at %s and %s", e.HookURL, e.Socket)
	}
	if fi, err := os.Stat(socket); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	if code := post(e.HookURL + "/claude-code/Stop"); code != 200 {
		t.Error(code)
	}
	if _, err := hookclient.Ask(socket, []string{"claude-code", "Stop"}, strings.NewReader(`{}`)); err != nil {
		t.Error(err)
	}
	post(e.HookURL + "/nobody/Stop")
	if ms, _ := claude.take(); len(ms) != 2 {
		t.Errorf("it took %d hooks, want 2", len(ms))
	}
	if _, rs := rest.take(); len(rs) != 1 || rs[0].Reason != "unknown_adapter" {
		t.Errorf("refused: %v", rs)
	}
	h.SetSecret("other-other-other-other")
	if code := post(e.HookURL + "/claude-code/Stop"); code != 404 {
		t.Errorf("the old secret still counts: %d", code)
	}
	if second, err := start(); err == nil || !strings.Contains(err.Error(), "already") {
		t.Errorf("a second one at the same socket: %v", err)
	} else {
		second.Close(context.Background())
	}
	h.Close(context.Background())

	// What a crash left is no obstacle.
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	l.Close()
	if h, err = start(); err != nil {
		t.Fatal(err)
	}
	h.Close(context.Background())
	http.DefaultClient.CloseIdleConnections()
	for end := time.Now().Add(patience); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}
