package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
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
	gocmp "github.com/google/go-cmp/cmp"
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
	nearAddress = "192.0.2.1" // of the collector: another host, to whoever sends
)

// newPod makes a pod whose agent's side has this program as "agent", wherever it
// lies: its user may not go where tests have it installed.
func newPod(t *testing.T, agent string) *pod {
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
	for dir := root; dir != "/"; dir = filepath.Dir(dir) {
		if fi, err := os.Stat(dir); err != nil || fi.Mode()&1 == 0 {
			t.Skipf("%s is closed to other users, and the tests' own are such: set TMPDIR (%v)", dir, err)
		}
	}
	hosts := p.path("hosts")
	if err := os.WriteFile(hosts, []byte("127.0.0.1 localhost\n"+nearAddress+" aep-wrap-collector\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p.near = p.network("ip address add "+nearAddress+"/32 dev lo && mount --bind \"$0\" /etc/hosts", hosts)
	p.far = p.network("touch \"$0\" && mount --bind \"$1\" \"$0\"", p.path("agent"), cmp.Or(agent, "/bin/sh"))
	// As a kubelet makes an emptyDir with an fsGroup, but for others' right to it.
	for dir, user := range map[string]int{"hooks": 0, "spool": 0, "token": 0, "collector": sidecarUser, "home": agentUser} {
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
	token := filepath.Join(root, "token/token")
	if err := os.WriteFile(token, []byte(podToken), 0o440); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(token, 0, podGroup); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(bin, "unpack", filepath.Join(root, "tools")).CombinedOutput(); err != nil {
		t.Fatalf("unpack: %v: %s", err, out)
	}
	return p
}

// network makes a network namespace in which there is a loopback and nothing
// else, with mounts of its own, and gives a process that lives in both. Its
// script is what else is to be made there.
func (p *pod) network(script string, args ...string) int {
	p.t.Helper()
	script = "ip link set lo up && " + script + " && echo up && exec sleep 600"
	cmd := exec.Command("unshare", append([]string{"--net", "--mount", "sh", "-c", script}, args...)...)
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
	ns := "/proc/" + strconv.Itoa(side) + "/ns/"
	words := []string{"--net=" + ns + "net", "--mount=" + ns + "mnt", "setpriv", "--reuid", strconv.Itoa(user), "--regid", strconv.Itoa(user),
		"--groups", strconv.Itoa(podGroup), "--no-new-privs", "--bounding-set=-all", "sh", "-c", `umask 077; exec "$@"`, "sh"}
	cmd := exec.Command("nsenter", append(words, argv...)...)
	cmd.Dir = "/"
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "XDG_RUNTIME_DIR="}, env...)
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func (p *pod) path(name string) string { return filepath.Join(p.root, name) }

func (p *pod) aep() string { return p.path("tools/aep-wrap") }

// ours is the environment of who answers.
func (p *pod) ours() []string {
	return []string{"HOME=" + p.path("collector"), "AEP_TOKEN=" + podToken, "AEP_COLLECTOR=http://127.0.0.1:8787"}
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

// startCollector starts the collector as the manifest has it.
func (p *pod) startCollector() {
	p.t.Helper()
	env, args := p.container("collector.yaml", "collector", "collector")
	p.start(p.command(p.near, sidecarUser, env, append([]string{p.aep()}, args...)...), "collector")
	waitFor(p.t, "the collector is ready", func() bool { return p.ready(8787) })
}

// container is what the manifests say of a container, with the pod's own paths in
// the place of its mounts.
func (p *pod) container(file, name, data string) (env, args []string) {
	p.t.Helper()
	type container struct {
		Name string
		Args []string
		Env  []struct{ Name, Value string }
	}
	var m struct {
		Spec struct {
			Template struct {
				Spec struct {
					InitContainers []container `yaml:"initContainers"`
					Containers     []container
				}
			}
		}
	}
	text, err := os.ReadFile("../deploy/manifests/sidecar/" + file)
	if err == nil {
		text, _, _ = bytes.Cut(text, []byte("\n---\n"))
		err = yaml.Unmarshal(text, &m)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	here := strings.NewReplacer("/var/run/aep/hooks", p.path("hooks"), "/var/lib/aep", p.path(data), "/run/secrets/aep", p.path("token"))
	for _, c := range slices.Concat(m.Spec.Template.Spec.InitContainers, m.Spec.Template.Spec.Containers) {
		if c.Name != name {
			continue
		}
		for _, e := range c.Env {
			env = append(env, e.Name+"="+here.Replace(e.Value))
		}
		for _, a := range c.Args {
			args = append(args, here.Replace(a))
		}
	}
	if len(args) == 0 {
		p.t.Fatalf("%s has no container %s any more", file, name)
	}
	return env, args
}

// startSidecar starts the sidecar as the manifest has it, and this beside.
func (p *pod) startSidecar(more ...string) {
	p.t.Helper()
	env, args := p.container("agent.yaml", "aep-wrap", "spool")
	p.sidecar = p.start(p.command(p.near, sidecarUser, append(env, more...), append([]string{p.aep()}, args...)...), "sidecar")
	waitFor(p.t, "the sidecar is ready", func() bool { return p.ready(9464) })
}

// inside runs f in a side's network.
func (p *pod) inside(side int, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with its network
		done <- func() error {
			ns, err := os.Open("/proc/" + strconv.Itoa(side) + "/ns/net")
			if err != nil {
				return err
			}
			defer ns.Close()
			if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			return f()
		}()
	}()
	return <-done
}

// ready asks /readyz in the sidecar's network.
func (p *pod) ready(port int) bool {
	var answer []byte
	err := p.inside(p.near, func() error {
		conn, err := net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		if err != nil {
			return err
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		fmt.Fprintf(conn, "GET /readyz HTTP/1.0\r\nHost: 127.0.0.1:%d\r\n\r\n", port)
		answer, err = io.ReadAll(conn)
		return err
	})
	p.last = fmt.Sprintf("%s (%v)", answer, err)
	return bytes.HasPrefix(answer, []byte("HTTP/1.0 200")) || bytes.HasPrefix(answer, []byte("HTTP/1.1 200"))
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
	cmd := p.command(side, sidecarUser, p.ours(), append([]string{p.aep()}, words...)...)
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
	p := newPod(t, "")
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

// The real claude in one network namespace, under a user of its own, with hooks
// that write into the directory and with nothing of ours but that script: its
// permissions are held and answered from the other namespace, in its screen and
// headless.
func TestTwoNamespacesClaude(t *testing.T) {
	program, err := filepath.EvalSymlinks(claude(t))
	if err != nil {
		t.Fatal(err)
	}
	p := newPod(t, program)
	w := newWorld(t)
	if err := p.inside(p.far, func() error {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		srv := httptest.NewUnstartedServer(w.model)
		srv.Listener.Close()
		srv.Listener = l
		srv.Start()
		t.Cleanup(srv.Close)
		w.url = srv.URL
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	w.write(".claude/hooks.json", p.claudeHooks(w))
	w.env = []string{"AEP_HOOK_DIR=" + p.path("hooks")}
	w.tmp()
	if out, err := exec.Command("chown", "-R", fmt.Sprintf("%d:%d", agentUser, agentUser), w.root).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	claude := func(words ...string) []string {
		return p.command(p.far, agentUser, nil, slices.Concat([]string{"sh", "-c", `cd "$0" && exec "$@"`, w.dir(), p.path("agent"), "--settings", w.config() + "/hooks.json"}, words)...).Args
	}
	p.startCollector()
	p.startSidecar("AEP_GATE=Bash")
	made := func(name string) bool {
		_, err := os.Stat(filepath.Join(w.dir(), name))
		return err == nil
	}
	answer := func(option, name string) string {
		session, request := p.asked()
		if made(name) {
			t.Error("it did not wait for the answer")
		}
		if r := p.send(p.near, "respond", session, request, "--option", option); r.code != 0 {
			t.Fatalf("respond: exit %d: %s%s", r.code, r.stdout, r.stderr)
		}
		return session
	}
	said := func(session string, want ...string) {
		t.Helper()
		waitFor(t, "all is told of "+session, func() bool { return slices.Contains(kinds(p.told()[session]), "session.ended") })
		got := slices.DeleteFunc(kinds(p.told()[session]), func(typ string) bool { return event.Category(typ) == "control" })
		if d := gocmp.Diff(want, got); d != "" {
			t.Errorf("events (- want + got):\n%s", d)
		}
	}

	t.Run("headless, gated", func(t *testing.T) {
		end := w.begin(claude("-p", "--allowedTools=Bash", "--", "go [[script:bash1]]")...)
		session := answer("deny", "made.txt")
		if r := end(); r.code != 0 || made("made.txt") {
			t.Errorf("denied from afar, claude ended with %d: %s%s; the file is there: %v", r.code, r.stdout, r.stderr, made("made.txt"))
		}
		said(session, "session.started", "run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved",
			"tool.failed", "run.finished", "session.ended")

		end = w.begin(claude("-p", "--allowedTools=Bash", "--", "go [[script:bash1]]")...)
		session = answer("allow", "made.txt")
		if r := end(); r.code != 0 || !made("made.txt") {
			t.Errorf("allowed from afar, claude ended with %d: %s%s; the file is there: %v", r.code, r.stdout, r.stderr, made("made.txt"))
		}
		said(session, "session.started", "run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved",
			"tool.completed", "run.finished", "session.ended")
	})

	t.Run("in its screen", func(t *testing.T) {
		term := w.open(claude()...)
		term.see(prompted)
		term.enter("go [[script:write1]]")
		term.see("Do you want to create")
		session := answer("allow", "note.txt")
		term.see("The file is written")
		if !made("note.txt") {
			t.Error("allowed from afar, no file was written")
		}
		term.see(prompted) // its last words are there before its Stop hook has run
		term.enter("/exit")
		if code := term.wait(); code != 0 {
			t.Errorf("claude ended with %d", code)
		}
		said(session, "session.started", "run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved",
			"tool.completed", "run.finished", "session.ended")
	})
}

// claudeHooks are the settings by which claude reports to the directory: the
// hooks that hook-config names, each by the script.
func (p *pod) claudeHooks(w *world) string {
	p.t.Helper()
	r := w.run(wrapper(p.t), "hook-config", "claude-code", "--hook-listen", "127.0.0.1:9465")
	var config struct {
		Hooks map[string][]struct {
			Matcher string           `json:"matcher,omitempty"`
			Hooks   []map[string]any `json:"hooks"`
		} `json:"hooks"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &config); err != nil || len(config.Hooks) < 5 {
		p.t.Fatalf("hook-config: %v: %s%s", err, r.stdout, r.stderr)
	}
	for name, groups := range config.Hooks {
		wait := ""
		if name == "PreToolUse" || name == "PermissionRequest" {
			wait = "AEP_HOOK_WAIT=600 "
		}
		for _, g := range groups {
			for i, h := range g.Hooks {
				g.Hooks[i] = map[string]any{"type": "command", "command": wait + "sh " + p.path("tools/hookdir.sh") + " claude-code " + name, "timeout": h["timeout"]}
				if wait != "" {
					g.Hooks[i]["timeout"] = 630
				}
			}
		}
	}
	b, err := json.Marshal(config)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b)
}
