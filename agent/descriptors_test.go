package agent

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"aep-wrap/agent/hookclient"
)

// An agent's start and end touch no descriptor but their own. One that is
// closed twice is another's by then: a connection to the collector that nobody
// reads any more, or a log.
func TestDescriptorsOfOthers(t *testing.T) {
	rounds := 25
	if testing.Short() {
		rounds = 5
	}
	ends := map[string]func(t *testing.T){
		"without a terminal": func(t *testing.T) { start(t, Spec{}, "true").Wait() },
		"with a copy":        func(t *testing.T) { start(t, Spec{TeeStdout: io.Discard}, "echo", "x").Wait() },
		"on a terminal":      func(t *testing.T) { onTerminal(t, "true").Wait() },
		"that cannot be started": func(t *testing.T) {
			s := newScreen(t)
			defer s.master.Close()
			defer s.slave.Close()
			file := t.TempDir() + "/no-program"
			if err := os.WriteFile(file, []byte("\x7fELF no"), 0o755); err != nil {
				t.Fatal(err)
			}
			if p, err := Start(Spec{Path: file, Args: []string{file}, Stdin: s.slave, Stdout: s.slave, Stderr: s.slave}); err == nil {
				p.Wait()
			}
		},
		"that is killed while somebody types": func(t *testing.T) {
			p := onTerminal(t, "sleep", "100")
			var typists sync.WaitGroup
			for range 3 {
				typists.Go(func() {
					for !errors.Is(p.Inject([]byte("x")), ErrEnded) {
					}
				})
			}
			time.Sleep(5 * time.Millisecond)
			_ = p.Signal(syscall.SIGKILL)
			p.Wait()
			typists.Wait()
		},
		"whose output somebody keeps": func(t *testing.T) {
			start(t, Spec{TeeStdout: io.Discard}, "sh", "-c", "sleep 0.1 &").Wait()
		},
		"whose terminal somebody keeps": func(t *testing.T) { onTerminal(t, "sh", "-c", "sleep 0.1 &").Wait() },
		"whose terminal goes": func(t *testing.T) {
			p, s := startOnTerminal(t, "sleep", "100")
			s.master.Close()
			p.Wait()
		},
		"that is paused": func(t *testing.T) {
			p := onTerminal(t, "sleep", "100")
			if err := errors.Join(p.Pause(), p.Resume(), p.Pause()); err != nil {
				t.Error(err)
			}
			_ = p.Terminate(t.Context(), syscall.SIGTERM, time.Second)
		},
		"of an editor's": func(t *testing.T) {
			w := newACPWorld(t, true)
			w.editor(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`)
			w.editorIn.Close()
			w.agentOut.Close()
			w.finish()
			<-w.acp.inOver
		},
		"of an editor's, whose output somebody keeps": func(t *testing.T) {
			w := newACPWorld(t, true)
			w.finish()
			w.agentOut.Close()
			w.editorIn.Close()
			<-w.acp.inOver
		},
		"of an editor's that goes first": func(t *testing.T) {
			w := newACPWorld(t, true)
			w.editorOut.Close()
			<-w.acp.over
			w.agentIn.Close()
			w.finish()
			<-w.acp.inOver
		},
		"whose hooks come by a socket": func(t *testing.T) {
			h, err := ServeHooks(HookConfig{Adapter: "a", Dir: t.TempDir(), Observer: &witness{}})
			if err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if _, err := hookclient.Ask(h.socket, []string{"a", "Stop"}, strings.NewReader(`{"x":1}`)); err != nil {
					t.Error(err)
				}
			}
			h.Close(t.Context())
		},
	}
	for name, run := range ends {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			stop := make(chan struct{})
			var others sync.WaitGroup
			for i := range 4 {
				path := filepath.Join(dir, strconv.Itoa(i))
				others.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							keepDescriptor(t, path)
						}
					}
				})
			}
			for range rounds {
				run(t)
			}
			close(stop)
			others.Wait()
		})
	}
}

// onTerminal starts an agent on a terminal whose output nobody wants.
func onTerminal(t *testing.T, args ...string) *Process {
	p, _ := startOnTerminal(t, args...)
	return p
}

// keepDescriptor opens a file for a moment: in which nobody else closes it, nor
// writes into it.
func keepDescriptor(t *testing.T, path string) {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_TRUNC|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		t.Error(err)
		return
	}
	var opened, now unix.Stat_t
	if err := unix.Fstat(fd, &opened); err != nil {
		t.Error("it was closed at once:", err)
		return
	}
	time.Sleep(300 * time.Microsecond)
	switch err := unix.Fstat(fd, &now); {
	case err != nil:
		t.Error("somebody closed it:", err)
		return
	case now.Ino != opened.Ino:
		t.Error("somebody closed it, and it is another file")
		return
	case now.Size != 0:
		t.Errorf("somebody wrote %d bytes into it", now.Size)
	}
	if err := unix.Close(fd); err != nil {
		t.Error("somebody closed it:", err)
	}
}

// A pump that is on its way out when its agent's terminal is left still reads
// its waker: which is no other's descriptor until the pump has ended.
func TestLatePump(t *testing.T) {
	in, err := newWaker()
	if err != nil {
		t.Fatal(err)
	}
	out, err := newWaker()
	if err != nil {
		t.Fatal(err)
	}
	late := &terminal{inWake: in, outWake: out, inDone: make(chan struct{})}
	late.closeWakers()
	open := func(fd int) bool {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		return err == nil
	}
	if time.Sleep(20 * time.Millisecond); !open(in.r) || !open(in.w) {
		t.Error("it was closed under the pump")
	}
	close(late.inDone)
	for end := time.Now().Add(patience); open(in.r) || open(in.w); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it was not closed")
		}
	}
}
