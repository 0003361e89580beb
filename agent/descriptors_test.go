package agent

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
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
