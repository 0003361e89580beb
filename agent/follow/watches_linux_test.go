package follow

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const inNamespace = "AEP_TEST_FEW_WATCHES"

// Where the kernel gives no watch more, or no listener at all, that is said and
// the rest is polled. The limit is that of a user namespace of the test's own.
func TestOutOfWatches(t *testing.T) {
	if limit := os.Getenv(inNamespace); limit != "" {
		name, n, _ := strings.Cut(limit, "=")
		if err := os.WriteFile("/proc/sys/user/"+name, []byte(n), 0); err != nil {
			fmt.Println("no limit:", err)
			return
		}
		fewWatches(t)
		return
	}
	for limit, word := range map[string]string{"max_inotify_watches=2": "no watch is left for", "max_inotify_instances=0": "no change is announced"} {
		t.Run(limit, func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(self, "-test.run=^TestOutOfWatches$", "-test.v")
			cmd.Env = append(os.Environ(), inNamespace+"="+limit)
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
				GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
			}
			out, err := cmd.CombinedOutput()
			switch {
			case err != nil && len(out) == 0:
				t.Skipf("no user namespace can be made: %v", err)
			case err != nil:
				t.Fatalf("%v\n%s", err, out)
			case strings.Contains(string(out), "no limit:"):
				t.Skipf("%s", out)
			case !strings.Contains(string(out), word):
				t.Errorf("it is not said:\n%s", out)
			}
		})
	}
}

// fewWatches follows more directories than there are watches.
func fewWatches(t *testing.T) {
	dir := t.TempDir()
	writer(t, dir, `mkdir a b c d; echo '{"n":1}' >a/x.jsonl`)
	k := &taker{}
	var mu sync.Mutex
	start(t, Config{Paths: []string{dir}, Handler: k, Poll: 20 * time.Millisecond, SlowPoll: time.Hour, Say: func(line string) {
		mu.Lock()
		defer mu.Unlock()
		t.Log(line)
	}})
	k.wait(t, lines(1, 1)...)
	for i, sub := range []string{"d", "c", "b"} {
		writer(t, filepath.Join(dir, sub), fmt.Sprintf(`echo '{"n":%d}' >x.jsonl`, i+2))
		k.wait(t, lines(1, i+2)...)
	}
	writer(t, dir, `echo '{"n":5}' >>c/x.jsonl; mv d/x.jsonl d/y.jsonl; echo '{"n":6}' >>d/y.jsonl`)
	for deadline := time.Now().Add(time.Minute); len(k.lines()) < 6; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got %q", k.lines())
		}
	}
}
