package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"aep-wrap/event"
)

// engine is podman, and the image that was built by our Dockerfile: what a
// cluster does with the image and with the manifests, as far as one machine has
// it. Both tests are for those who ask for them:
//
//	podman build -t localhost/aep-wrap:dev . && AEP_E2E=1 AEP_E2E_IMAGE=localhost/aep-wrap:dev go test ./e2e -run Container -v
type engine struct {
	t     *testing.T
	image string
}

// Names on the engine that are the test's own.
const (
	podNetwork  = "aep-e2e"
	podPrefix   = "aep-e2e-"
	parentTrace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)

func newEngine(t *testing.T) *engine {
	t.Helper()
	gate(t)
	e := &engine{t: t, image: os.Getenv("AEP_E2E_IMAGE")}
	if e.image == "" {
		t.Skip("AEP_E2E_IMAGE names no image: podman build -t localhost/aep-wrap:dev . makes one")
	}
	if _, err := exec.LookPath("podman"); err != nil {
		t.Skip("podman is not installed")
	}
	if r := e.run("image", "exists", e.image); r.code != 0 {
		t.Fatalf("podman has no image %s: %s", e.image, r.stderr)
	}
	return e
}

func (e *engine) run(words ...string) result { return e.feed("", words...) }

// feed runs podman with this on its standard input.
func (e *engine) feed(in string, words ...string) result {
	e.t.Helper()
	cmd := exec.Command("podman", words...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &errs
	cmd.WaitDelay = 5 * time.Second
	err := cmd.Start()
	if err == nil {
		end := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() })
		err = cmd.Wait()
		end.Stop()
	}
	return result{out.String(), errs.String(), exitCode(e.t, err)}
}

func (e *engine) must(words ...string) string {
	e.t.Helper()
	r := e.run(words...)
	if r.code != 0 {
		e.t.Fatalf("podman %s: exit code %d: %s%s", strings.Join(words, " "), r.code, r.stdout, r.stderr)
	}
	return r.stdout
}

// The image as a cluster runs it: nothing to write to, no rights, little memory.
func TestContainerImage(t *testing.T) {
	e := newEngine(t)
	var is []struct {
		Size   int64
		Config struct {
			User       string
			Entrypoint []string
			Labels     map[string]string
		}
	}
	if err := json.Unmarshal([]byte(e.must("image", "inspect", e.image)), &is); err != nil || len(is) != 1 {
		t.Fatalf("inspect: %v, %d", err, len(is))
	}
	c := is[0].Config
	if c.User != "65532:65532" || !slices.Equal(c.Entrypoint, []string{"/usr/local/bin/aep-wrap"}) {
		t.Errorf("it runs as %s, and %q", c.User, c.Entrypoint)
	}
	for _, label := range []string{"title", "description", "licenses", "version", "revision"} {
		if c.Labels["org.opencontainers.image."+label] == "" {
			t.Errorf("no label %s", label)
		}
	}
	if is[0].Size > 30<<20 {
		t.Errorf("it is of %d bytes", is[0].Size)
	}
	hard := []string{"run", "--rm", "--network=none", "--read-only", "--read-only-tmpfs=false", "--cap-drop=ALL",
		"--security-opt=no-new-privileges", "--memory=64m", "--memory-swap=64m", "--pids-limit=64"}
	for _, tt := range []struct {
		words string
		code  int
		says  string
	}{
		{"", 0, "Usage:"},
		{"--version", 0, "linux/"},
		{"serve --help", 0, "--hook-listen"},
		{"adapters", 0, "claude-code"},
		{"config show", 0, "log-dir"},
		{"hook-dir-script", 0, "#!/bin/sh"},
		{"pending", 0, "nothing waits"},
		{"ps", 0, "no session"},
		{"flush", 0, "nothing was left behind"},
		{"prune", 0, "nothing to remove"},
		// Where something has to be written, it is said what, and what to do.
		{"doctor", 1, "another place: --log-dir DIR"},
		{"hook-config claude-code --hook-listen 127.0.0.1:9465", 1, "another place: --hook-secret-file FILE"},
		{"unpack /opt/aep", 1, "read-only file system"},
		{"serve --hooks /var/run/hooks", 1, "read-only file system"},
		{"watch --hooks /var/run/hooks", 1, "read-only file system"},
		{"collect --listen 127.0.0.1:8787", 1, "read-only file system"},
		// The agent comes first: what cannot be told does not stop it.
		{"-- aep-wrap --version", 0, "linux/"},
	} {
		t.Run(tt.words, func(t *testing.T) {
			e := &engine{t: t, image: e.image}
			r := e.run(slices.Concat(hard, []string{e.image}, strings.Fields(tt.words))...)
			if r.code != tt.code || !strings.Contains(r.stdout+r.stderr, tt.says) {
				t.Errorf("exit code %d, want %d and %q: %s%s", r.code, tt.code, tt.says, r.stdout, r.stderr)
			}
			if strings.Contains(r.stderr, "panic") {
				t.Errorf("it panics: %s", r.stderr)
			}
		})
	}
}

// object is one of a manifest's.
type object = map[string]any

// asPods gives the objects of a folder of manifests as podman takes them: of a Job
// and a Deployment their pods; a native sidecar, which it does not know, as a
// container that starts before the others; no probes, for it asks them by a shell.
func (e *engine) asPods(set string, edit func(container object)) (pods map[string]string) {
	e.t.Helper()
	files, err := filepath.Glob("../deploy/manifests/" + set + "/*.yaml")
	if err != nil || len(files) == 0 {
		e.t.Fatalf("manifests %s: %v, %q", set, err, files)
	}
	pods = map[string]string{}
	for _, f := range files {
		if filepath.Base(f) == "kustomization.yaml" {
			continue
		}
		text, err := os.ReadFile(f)
		if err != nil {
			e.t.Fatal(err)
		}
		for doc := range strings.SplitSeq(string(text), "\n---\n") {
			var o object
			if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
				e.t.Fatalf("%s: %v", f, err)
			}
			name, _ := o["metadata"].(object)["name"].(string)
			switch o["kind"] {
			case "Job", "Deployment":
				o = e.asPod(name, o["spec"].(object)["template"].(object), edit)
			case "ConfigMap":
			default:
				continue
			}
			b, err := yaml.Marshal(o)
			if err != nil {
				e.t.Fatal(err)
			}
			pods[name] = string(b)
		}
	}
	return pods
}

func (e *engine) asPod(name string, template object, edit func(container object)) object {
	spec := template["spec"].(object)
	var first, all []any
	initial, _ := spec["initContainers"].([]any)
	for _, c := range initial {
		if _, stays := c.(object)["restartPolicy"]; stays {
			delete(c.(object), "restartPolicy")
			all = append(all, c)
		} else {
			first = append(first, c)
		}
	}
	all = append(all, spec["containers"].([]any)...)
	for _, c := range slices.Concat(first, all) {
		c := c.(object)
		if strings.HasPrefix(c["image"].(string), "aep-wrap:") {
			c["image"] = e.image
		}
		maps.DeleteFunc(c, func(k string, _ any) bool { return strings.HasSuffix(k, "Probe") })
		// A volume's name is the engine's own.
		for _, m := range c["volumeMounts"].([]any) {
			m.(object)["name"] = podPrefix + m.(object)["name"].(string)
		}
		edit(c)
	}
	for _, v := range spec["volumes"].([]any) {
		v := v.(object)
		v["name"] = podPrefix + v["name"].(string)
		for _, source := range []string{"secret", "configMap"} { // which some versions want said
			if s, ok := v[source].(object); ok {
				s["optional"] = false
			}
		}
	}
	spec["initContainers"], spec["containers"] = first, all
	return object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name, "labels": template["metadata"].(object)["labels"]}, "spec": spec}
}

// clear takes away what is the test's own.
func (e *engine) clear() {
	for _, pod := range []string{"aep-wrap-agent", "aep-wrap-collector"} {
		e.run("pod", "rm", "--force", "--ignore", pod)
	}
	e.run("secret", "rm", "aep-wrap-token")
	for name := range strings.FieldsSeq(e.run("volume", "ls", "--quiet").stdout) {
		if strings.HasPrefix(name, podPrefix) || name == "aep-wrap-token" {
			e.run("volume", "rm", "--force", name)
		}
	}
	e.run("network", "rm", "--force", podNetwork)
}

// begin makes the network, the token, and the collector.
func (e *engine) begin(pods map[string]string) {
	e.t.Helper()
	if r := e.run("pod", "exists", "aep-wrap-agent"); r.code == 0 {
		e.t.Fatal("a pod aep-wrap-agent is there already, which is not ours")
	}
	e.t.Cleanup(func() {
		if e.t.Failed() {
			for _, c := range []string{"aep-wrap-collector-collector", "aep-wrap-agent-aep-wrap", "aep-wrap-agent-agent"} {
				r := e.run("logs", c)
				e.t.Logf("%s:\n%s%s", c, r.stdout, r.stderr)
			}
		}
		e.clear()
	})
	e.must("network", "create", podNetwork)
	e.play("apiVersion: v1\nkind: Secret\nmetadata: {name: aep-wrap-token}\ndata: {token: " + base64.StdEncoding.EncodeToString([]byte(podToken)) + "}\n")
	e.play(pods["aep-wrap-collector"])
	waitFor(e.t, "the collector answers", func() bool { return e.collector("ps").code == 0 })
}

func (e *engine) play(manifest string) {
	e.t.Helper()
	if r := e.feed(manifest, "kube", "play", "--network", podNetwork, "-"); r.code != 0 {
		e.t.Fatalf("kube play: exit code %d: %s%s\n%s", r.code, r.stdout, r.stderr, manifest)
	}
}

// agent plays the agent's pod anew; its volumes are empty.
func (e *engine) agent(pods map[string]string) {
	e.t.Helper()
	e.run("pod", "rm", "--force", "aep-wrap-agent")
	documents := []string{pods["aep-wrap-agent"]}
	if example := pods["aep-wrap-example"]; example != "" {
		documents = append([]string{example}, documents...)
	}
	e.play(strings.Join(documents, "\n---\n"))
}

func (e *engine) collector(words ...string) result {
	return e.run(append([]string{"exec", "aep-wrap-collector-collector", "aep-wrap"}, words...)...)
}

// asked waits for a request that can be answered, of a session not seen before.
func (e *engine) asked(seen map[string]bool) (session, id string) {
	e.t.Helper()
	waitFor(e.t, "a permission is pending", func() bool {
		for line := range strings.Lines(e.collector("pending", "--json").stdout) {
			var w struct{ Session, ID string }
			if json.Unmarshal([]byte(line), &w) == nil && w.Session != "" && !seen[w.Session] {
				session, id = w.Session, w.ID
			}
		}
		return id != ""
	})
	seen[session] = true
	return session, id
}

// ended is a container's exit code.
func (e *engine) ended(container string) string {
	e.t.Helper()
	return strings.TrimSpace(e.must("wait", container))
}

// told are the events of a session, as the spool has them.
func (e *engine) told(session string) (out []event.Event) {
	e.t.Helper()
	spool := strings.TrimSpace(e.must("volume", "inspect", "--format", "{{.Mountpoint}}", podPrefix+"aep-spool"))
	b, err := os.ReadFile(filepath.Join(spool, "logs/claude-code", session+".jsonl"))
	if err != nil {
		e.t.Fatal(err)
	}
	for line := range bytes.Lines(b) {
		ev, err := event.Parse(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			e.t.Fatal(err)
		}
		out = append(out, ev)
	}
	return out
}

// The manifests' pods, each container as they say: the agent's permission is held
// by the sidecar and answered at the collector, in another pod; the agent ends,
// with its own exit code, and the sidecar after it, told everything.
func TestContainerSidecar(t *testing.T) {
	e := newEngine(t)
	pods := e.asPods("sidecar", func(c object) {
		if c["name"] == "aep-wrap" {
			c["env"] = append(c["env"].([]any), object{"name": "TRACEPARENT", "value": parentTrace})
		}
	})
	e.begin(pods)
	seen := map[string]bool{}
	for _, tt := range []struct {
		answer string
		code   string
		told   []string
	}{
		{"allow", "0", []string{"attention.answered", "tool.completed", "session.ended"}},
		{"deny", "3", []string{"attention.answered", "session.ended"}},
		{"SIGTERM", "4", []string{"attention.resolved"}}, // to the sidecar: nothing is held any more
	} {
		t.Run(tt.answer, func(t *testing.T) {
			e := &engine{t: t, image: e.image}
			e.agent(pods)
			session, id := e.asked(seen)
			status := e.must("exec", "aep-wrap-agent-agent", "cat", "/proc/self/status")
			for _, want := range []string{"CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"} {
				if !strings.Contains(status, want) {
					t.Errorf("no %q for the agent: %s", want, status)
				}
			}
			if r := e.run("exec", "aep-wrap-agent-agent", "wget", "-qO-", "http://127.0.0.1:9464/readyz"); r.code != 0 {
				t.Errorf("/readyz: %s%s", r.stdout, r.stderr)
			}
			drained := make(chan result, 1)
			if tt.answer == "SIGTERM" {
				go func() { drained <- e.run("stop", "--time", "30", "aep-wrap-agent-aep-wrap") }()
			} else if r := e.collector("respond", session, id, "--option", tt.answer); r.code != 0 {
				t.Fatalf("respond: %s%s", r.stdout, r.stderr)
			}
			if got := e.ended("aep-wrap-agent-agent"); got != tt.code {
				t.Errorf("the agent ended with %s, want %s", got, tt.code)
			}
			if tt.answer != "SIGTERM" {
				waitFor(t, "all is told", func() bool { return slices.Contains(kinds(e.told(session)), "session.ended") })
				go func() { drained <- e.run("stop", "--time", "30", "aep-wrap-agent-aep-wrap") }()
			}
			begun := time.Now()
			if r := <-drained; r.code != 0 {
				t.Errorf("stop: %s%s", r.stdout, r.stderr)
			}
			if got := e.ended("aep-wrap-agent-aep-wrap"); got != "0" {
				t.Errorf("the sidecar ended with %s", got)
			}
			t.Logf("the sidecar ended after %v", time.Since(begun).Round(100*time.Millisecond))
			told := e.told(session)
			for _, want := range append(tt.told, "attention.requested") {
				if !slices.Contains(kinds(told), want) {
					t.Errorf("no %s is told: %q", want, kinds(told))
				}
			}
			for _, ev := range told { // a command is its sender's
				if !strings.HasPrefix(ev.Type, "control.") && !strings.HasPrefix(ev.Traceparent, parentTrace[:35]) {
					t.Errorf("%s has the trace %q", ev.Type, ev.Traceparent)
				}
			}
			// What it told has reached the collector, in the other pod.
			if r := e.collector("ps", "--all"); !strings.Contains(r.stdout, session[:8]) {
				t.Errorf("the collector knows no %s: %s", session, r.stdout)
			}
		})
	}
}

// The wrapper as PID 1 of the agent's container.
func TestContainerEntrypoint(t *testing.T) {
	e := newEngine(t)
	pods := e.asPods("entrypoint", func(c object) {
		if c["name"] == "agent" {
			c["args"] = []any{"/bin/sh", "-c", "echo parent $PPID; exit 7"}
		}
	})
	e.begin(pods)
	e.agent(pods)
	if got := e.ended("aep-wrap-agent-agent"); got != "7" {
		t.Errorf("it ended with %s", got)
	}
	if said := e.run("logs", "aep-wrap-agent-agent"); !strings.Contains(said.stdout, "parent 1\n") {
		t.Errorf("it says %q %q", said.stdout, said.stderr)
	}
	if r := e.collector("ps", "--all"); !strings.Contains(r.stdout, "ended") {
		t.Errorf("the collector knows of no end: %s%s", r.stdout, r.stderr)
	}
}
