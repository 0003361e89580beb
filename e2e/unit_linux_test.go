package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The unit in a systemd that runs in a container: installed as its first lines
// say, reloaded, killed, and stopped while a hook waits. It is for those who have
// podman and name an image of a system with systemd and bash:
//
//	AEP_E2E=1 AEP_E2E_SYSTEMD=localhost/systemd go test ./e2e -run Unit -v
func TestUnit(t *testing.T) {
	bin := wrapper(t)
	e := &engine{t: t, image: os.Getenv("AEP_E2E_SYSTEMD")}
	if e.image == "" {
		t.Skip("AEP_E2E_SYSTEMD names no image with systemd")
	}
	const name = podPrefix + "systemd"
	unit, err := os.ReadFile("../deploy/systemd/aep-wrap.service")
	if err != nil {
		t.Fatal(err)
	}
	var install []string
	for line := range strings.Lines(string(unit)) {
		if words, ok := strings.CutPrefix(line, "#   "); ok {
			install = append(install, words)
		}
	}
	src := t.TempDir()
	for file, text := range map[string]string{
		"aep-wrap.service": string(unit),
		"config.yaml": "hook-socket: /run/aep-wrap/hook.sock\nhook-socket-group: aep\nhook-secret-file: /etc/aep-wrap/hook-secret\n" +
			"collector: http://127.0.0.1:8787\ntoken-file: /etc/aep-wrap/token\n",
		"token": podToken, "hook-secret": strings.Repeat("5ecre7", 8),
	} {
		if err := os.WriteFile(filepath.Join(src, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			r := e.run("exec", name, "journalctl", "--no-pager", "-u", "aep-wrap")
			t.Logf("%s%s", r.stdout, r.stderr)
		}
		e.run("rm", "--force", name)
	})
	e.must("run", "--detach", "--name", name, "--privileged", "--systemd=always", "--network=none", "-v", src+":/src:ro",
		"-v", filepath.Dir(bin)+":/bin-of-ours:ro", e.image, "/lib/systemd/systemd")
	in := func(script string) string {
		t.Helper()
		r := e.run("exec", name, "bash", "-ec", script)
		if r.code != 0 {
			t.Fatalf("%s: exit code %d: %s%s", script, r.code, r.stdout, r.stderr)
		}
		return strings.TrimSpace(r.stdout)
	}
	waitFor(t, "systemd", func() bool {
		state := e.run("exec", name, "systemctl", "is-system-running").stdout
		return strings.HasPrefix(state, "running") || strings.HasPrefix(state, "degraded")
	})
	in("cp -r /src /tmp/src; cp /bin-of-ours/* /tmp/src; cd /tmp/src\n" + strings.Join(install, ""))
	in("systemd-run -q --unit=collect -p User=nobody -p Group=aep -p Environment='HOME=/tmp AEP_TOKEN_FILE=/etc/aep-wrap/token' aep-wrap collect --listen 127.0.0.1:8787")

	const sender = "export AEP_COLLECTOR=http://127.0.0.1:8787 AEP_TOKEN_FILE=/etc/aep-wrap/token; "
	calls := 0
	ask := func() (answered func() string) {
		calls++
		call := strings.Repeat("x", calls)
		done := make(chan string, 1)
		go func() {
			r := e.feed(`{"session_id":"s","hook_event_name":"PermissionRequest","prompt_id":"p","tool_name":"Bash","tool_input":{"command":"`+call+`"}}`,
				"exec", "-i", name, "setpriv", "--reuid=nobody", "--regid=nogroup", "--groups=aep", "env", "AEP_HOOK_SOCKET=/run/aep-wrap/hook.sock",
				"aep-hook", "claude-code", "PermissionRequest")
			done <- r.stdout + r.stderr
		}()
		return func() string { t.Helper(); return <-done }
	}
	pending := func() (id string) {
		t.Helper()
		waitFor(t, "a permission is pending", func() bool {
			var w struct{ ID string }
			line, _, _ := strings.Cut(e.run("exec", name, "bash", "-c", sender+"aep-wrap pending --json").stdout, "\n")
			_ = json.Unmarshal([]byte(line), &w)
			id = w.ID
			return id != ""
		})
		return id
	}

	heard := ask()
	in(sender + "aep-wrap respond s " + pending() + " --option allow")
	if got := heard(); !strings.Contains(got, `"behavior":"allow"`) {
		t.Errorf("allowed from afar, the hook heard %q", got)
	}

	pid := func() string { return in("systemctl show -P MainPID aep-wrap") }
	before := pid()
	in("systemctl reload aep-wrap")
	waitFor(t, "its settings are read again", func() bool {
		return strings.Contains(in("journalctl -u aep-wrap -o cat --no-pager"), "were read again")
	})
	if now := pid(); now != before {
		t.Errorf("reloaded, it is another process: %s, %s", before, now)
	}

	in("kill -KILL " + before)
	waitFor(t, "it is started again", func() bool { now := pid(); return now != "0" && now != before })
	waitFor(t, "it is ready", func() bool {
		return strings.HasPrefix(e.run("exec", name, "systemctl", "is-active", "aep-wrap").stdout, "active")
	})

	heard = ask()
	pending()
	begun := time.Now()
	in("systemctl stop aep-wrap")
	t.Logf("it stopped in %v", time.Since(begun).Round(10*time.Millisecond))
	if got := heard(); got != "" {
		t.Errorf("stopped, the hook heard %q", got)
	}
	if got := in("systemctl show -P Result -P ExecMainStatus aep-wrap"); got != "success\n0" {
		t.Errorf("stopped: %q", got)
	}

	in("echo 'drain: soon' >> /etc/aep-wrap/config.yaml; ! systemctl start aep-wrap")
	if got := in("systemctl show -P ExecMainStatus -P SubState aep-wrap"); !strings.Contains(got, "failed") || !strings.Contains(got, "2") {
		t.Errorf("with a wrong file: %q", got)
	}
}
