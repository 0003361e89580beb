package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"golang.org/x/sys/unix"

	"aep-wrap/event"
)

// pod is what a pod is to its containers, made of what the kernel has: a network
// namespace with a loopback of its own for each side, users that differ, and
// directories that a group of both owns. Sidecar and collector are on one side,
// the agent is on the other: all that they share is a directory.
type pod struct {
	t       *testing.T
	root    string
	near    int // a process in the network of the sidecar
	far     int // and in the agent's
	sidecar *exec.Cmd
	last    string // what was heard of readiness
}

// The users of the two sides, and the group that owns the volumes.
const (
	sidecarUser = 65532
	agentUser   = 10001
	podGroup    = 4242
	podToken    = "token-of-the-tests"
)

func newPod(t *testing.T) *pod {
	t.Helper()
	bin := wrapper(t)
	if os.Getuid() != 0 {
		t.Skip("network namespaces and users of the tests' own take root")
	}
	for _, tool := range []string{"unshare", "nsenter", "setpriv", "ip"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed (on Debian: util-linux, iproute2)", tool)
		}
	}
	root, err := os.MkdirTemp("", "aep-pod-")
	if err != nil {
		t.Fatal(err)
	}
	p := &pod{t: t, root: root}
	t.Cleanup(func() {
		if t.Failed() {
			p.show()
		}
		_ = os.RemoveAll(root)
	})
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	p.near, p.far = p.network(), p.network()
	// As a kubelet makes an emptyDir with an fsGroup, but for others' right to it.
	for dir, user := range map[string]int{"hooks": 0, "spool": 0, "collector": sidecarUser, "home": agentUser} {
		path := filepath.Join(root, dir)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		group := podGroup
		if user != 0 {
			group = user
		}
		if err := os.Chown(path, user, group); err != nil {
			t.Fatal(err)
		}
		if user == 0 {
			if err := os.Chmod(path, 0o770|os.ModeSetgid); err != nil {
				t.Fatal(err)
			}
		}
	}
	if out, err := exec.Command(bin, "unpack", filepath.Join(root, "tools")).CombinedOutput(); err != nil {
		t.Fatalf("unpack: %v: %s", err, out)
	}
	return p
}

// network makes a network namespace in which there is a loopback and nothing
// else, and gives a process that lives in it.
func (p *pod) network() int {
	p.t.Helper()
	cmd := exec.Command("unshare", "--net", "sh", "-c", "ip link set lo up && echo up && exec sleep 600")
	out, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	if b, err := io.ReadAll(io.LimitReader(out, 3)); string(b) != "up\n" {
		p.t.Skipf("no network namespace can be made here: %v: %s", err, errs.String())
	}
	return cmd.Process.Pid
}

// command is one of a side's, as its user, whose umask lets nobody read.
func (p *pod) command(side, user int, env []string, argv ...string) *exec.Cmd {
	words := []string{"--net=/proc/" + strconv.Itoa(side) + "/ns/net", "setpriv", "--reuid", strconv.Itoa(user), "--regid", strconv.Itoa(user),
		"--groups", strconv.Itoa(podGroup), "--no-new-privs", "--bounding-set=-all", "sh", "-c", `umask 077; exec "$@"`, "sh"}
	cmd := exec.Command("nsenter", append(words, argv...)...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "XDG_RUNTIME_DIR="}, env...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func (p *pod) path(name string) string { return filepath.Join(p.root, name) }

func (p *pod) aep() string { return p.path("tools/aep-wrap") }

// ours is the environment of the sidecar's side.
func (p *pod) ours(home string) []string {
	return []string{"HOME=" + p.path(home), "AEP_LOG_DIR=" + p.path(home+"/logs"), "AEP_TOKEN=" + podToken,
		"AEP_COLLECTOR=http://127.0.0.1:8787", "AEP_CAPTURE_FOR=attention=redacted"}
}

// start starts what goes on in the background.
func (p *pod) start(cmd *exec.Cmd, log string) *exec.Cmd {
	p.t.Helper()
	f, err := os.OpenFile(p.path(log+".out"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		p.t.Fatal(err)
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

func (p *pod) startCollector() {
	p.t.Helper()
	p.start(p.command(p.near, sidecarUser, slices.DeleteFunc(p.ours("collector"), func(kv string) bool { return strings.HasPrefix(kv, "AEP_COLLECTOR=") }),
		p.aep(), "collect", "--listen", "127.0.0.1:8787"), "collector")
	waitFor(p.t, "the collector is ready", func() bool { return p.ready(8787) })
}

// manifest is what the example's pod says of a container.
type manifest struct {
	Spec struct {
		Template struct {
			Spec struct {
				InitContainers []struct {
					Name string
					Args []string
				} `yaml:"initContainers"`
			}
		}
	}
}

// startSidecar starts the sidecar as the manifest has it.
func (p *pod) startSidecar() {
	p.t.Helper()
	text, err := os.ReadFile("../deploy/manifests/sidecar/agent.yaml")
	if err != nil {
		p.t.Fatal(err)
	}
	var m manifest
	if err := yaml.Unmarshal(text, &m); err != nil {
		p.t.Fatal(err)
	}
	var args []string
	for _, c := range m.Spec.Template.Spec.InitContainers {
		if c.Name == "aep-wrap" {
			for _, a := range c.Args {
				args = append(args, strings.Replace(a, "/var/run/aep/hooks", p.path("hooks"), 1))
			}
		}
	}
	p.sidecar = p.start(p.command(p.near, sidecarUser, p.ours("spool"), append([]string{p.aep()}, args...)...), "sidecar")
	waitFor(p.t, "the sidecar is ready", func() bool { return p.ready(9464) })
}

// ready asks /readyz in the sidecar's network.
func (p *pod) ready(port int) bool {
	answer := make(chan string, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its network
		answer <- func() string {
			ns, err := os.Open("/proc/" + strconv.Itoa(p.near) + "/ns/net")
			if err != nil {
				return err.Error()
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return err.Error()
			}
			conn, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
			if err != nil {
				return err.Error()
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			fmt.Fprintf(conn, "GET /readyz HTTP/1.0\r\nHost: 127.0.0.1:%d\r\n\r\n", port)
			b, _ := io.ReadAll(conn)
			return string(b)
		}()
	}()
	a := <-answer
	p.last = a
	return strings.HasPrefix(a, "HTTP/1.0 200") || strings.HasPrefix(a, "HTTP/1.1 200")
}

// agent starts the example's agent on its side.
func (p *pod) agent() (ended func() result) {
	p.t.Helper()
	env := []string{"HOME=" + p.path("home"), "AEP_HOOK_DIR=" + p.path("hooks"), "AEP_HOOKDIR_SH=" + p.path("tools/hookdir.sh"), "AEP_PERMISSION_WAIT=600"}
	script, err := filepath.Abs("../deploy/helm/aep-wrap/files/agent.sh")
	if err != nil {
		p.t.Fatal(err)
	}
	text, err := os.ReadFile(script)
	if err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(p.path("agent.sh"), text, 0o644); err != nil {
		p.t.Fatal(err)
	}
	cmd := p.command(p.far, agentUser, env, "/bin/sh", p.path("agent.sh"))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = cmd.Process.Kill() })
	return func() result {
		p.t.Helper()
		end := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		defer end.Stop()
		err := cmd.Wait()
		return result{out.String(), errs.String(), exitCode(p.t, err)}
	}
}

// send runs a sender's command on a side.
func (p *pod) send(side int, words ...string) result {
	p.t.Helper()
	home := "collector"
	cmd := p.command(side, sidecarUser, p.ours(home), append([]string{p.aep()}, words...)...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	return result{out.String(), errs.String(), exitCode(p.t, err)}
}

// asked waits for a request that can be answered.
func (p *pod) asked() (session, id string) {
	p.t.Helper()
	waitFor(p.t, "a permission is pending", func() bool {
		r := p.send(p.near, "pending", "--json")
		for line := range strings.Lines(r.stdout) {
			var w struct{ Session, ID, Request string }
			if json.Unmarshal([]byte(line), &w) == nil && w.Session != "" {
				session, id = w.Session, w.ID+w.Request
			}
		}
		return id != ""
	})
	return session, id
}

// told are the events of the sessions that the sidecar's logs hold.
func (p *pod) told() map[string][]event.Event {
	p.t.Helper()
	files, err := filepath.Glob(p.path("spool/logs/claude-code/*.jsonl"))
	if err != nil {
		p.t.Fatal(err)
	}
	out := map[string][]event.Event{}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			p.t.Fatal(err)
		}
		ids := map[string]bool{}
		for line := range bytes.Lines(b) {
			e, err := event.Parse(bytes.TrimSuffix(line, []byte("\n")))
			if err != nil {
				p.t.Errorf("%s: %v", f, err)
				continue
			}
			if ids[e.ID] {
				p.t.Errorf("%s: %s %s is told twice", f, e.Type, e.ID)
			}
			ids[e.ID] = true
			out[e.Session] = append(out[e.Session], e)
		}
	}
	return out
}

func (p *pod) show() {
	p.t.Logf("last heard of readiness: %s", p.last)
	for _, pattern := range []string{"*.out", "spool/logs/*/*.jsonl", "hooks/*"} {
		files, _ := filepath.Glob(p.path(pattern))
		for _, f := range files {
			b, _ := os.ReadFile(f)
			p.t.Logf("%s:\n%s", f, b)
		}
	}
}

// kinds are the types of a session's events.
func kinds(es []event.Event) (out []string) {
	for _, e := range es {
		out = append(out, e.Type)
	}
	return out
}

// An agent asks in one network namespace, under one user; it is answered from
// another one, under another, and all that they share is a directory. The
// sidecar dies and the agent goes on; the next one tells what happened.
func TestTwoNamespaces(t *testing.T) {
	p := newPod(t)
	p.startCollector()
	p.startSidecar()
	if r := p.send(p.near, "roster"); r.code != 0 {
		t.Fatalf("the collector is not reached on its own side: %s%s", r.stdout, r.stderr)
	}
	if r := p.send(p.far, "roster"); r.code == 0 {
		t.Fatalf("the agent's side reaches the collector: %s", r.stdout)
	}

	end := p.agent()
	first, request := p.asked()
	if r := p.send(p.near, "respond", first, request, "--option", "allow"); r.code != 0 {
		t.Fatalf("respond: exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if r := end(); r.code != 0 || !strings.Contains(r.stdout, "allowed") {
		t.Fatalf("answered from afar, the agent says %q, exit code %d: %s", r.stdout, r.code, r.stderr)
	}

	end = p.agent()
	second, request := p.asked()
	if r := p.send(p.near, "respond", second, request, "--option", "deny"); r.code != 0 {
		t.Fatalf("respond: exit %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if r := end(); r.code != 3 || !strings.Contains(r.stdout, "denied") {
		t.Fatalf("denied from afar, the agent says %q, exit code %d: %s", r.stdout, r.code, r.stderr)
	}

	// A file that the sidecar may not read holds nothing up.
	if err := os.WriteFile(p.path("hooks/0.claude-code.Stop.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}

	end = p.agent()
	third, _ := p.asked()
	if err := p.sidecar.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.sidecar.Wait()
	begun := time.Now()
	if r := end(); r.code != 4 || !strings.Contains(r.stdout, "my own dialog") {
		t.Fatalf("its sidecar killed, the agent says %q, exit code %d: %s", r.stdout, r.code, r.stderr)
	}
	t.Logf("without its sidecar, the agent went on after %v", time.Since(begun).Round(time.Second))

	p.startSidecar()
	waitFor(t, "the next sidecar tells what it finds", func() bool { return slices.Contains(kinds(p.told()[third]), "session.ended") })
	if _, err := os.Stat(p.path("hooks/0.claude-code.Stop.json.refused")); err != nil {
		t.Errorf("the unreadable hook: %v", err)
	}

	// SIGTERM lets go of what is held, and ends with 0.
	end = p.agent()
	fourth, _ := p.asked()
	if err := p.sidecar.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if got := exitCode(t, p.sidecar.Wait()); got != 0 {
		t.Errorf("the sidecar ended with %d", got)
	}
	if r := end(); r.code != 4 {
		t.Errorf("its sidecar drained, the agent says %q, exit code %d: %s", r.stdout, r.code, r.stderr)
	}
	told := p.told()
	for session, want := range map[string]string{first: "attention.answered", second: "attention.answered", third: "attention.resolved", fourth: "attention.resolved"} {
		if got := kinds(told[session]); !slices.Contains(got, want) || !slices.Contains(got, "attention.requested") {
			t.Errorf("session %s: %q; want %s", session, got, want)
		}
	}
	left, err := filepath.Glob(p.path("hooks/*.held.*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in the directory: %q", left)
	}
}
