package check

import (
	"context"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
)

const composeFile = "../compose/compose.yaml"

// loadCompose reads a compose file as docker compose does.
func loadCompose(file string) error {
	o, err := cli.NewProjectOptions([]string{file}, cli.WithName("aep-wrap"), cli.WithConsistency(true), cli.WithInterpolation(true))
	if err != nil {
		return err
	}
	_, err = o.LoadProject(context.Background())
	return err
}

func TestCompose(t *testing.T) {
	if err := loadCompose(composeFile); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(composeFile)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, put string }{
		{"command: [serve", "comand: [serve"},
		{"- spool:/var/lib/aep", "- spol:/var/lib/aep"},
		{"depends_on: {sidecar:", "depends_on: {sidecars:"},
		{"stop_grace_period: 20s", "stop_grace_period: soon"},
	} {
		if !strings.Contains(string(text), c.old) {
			t.Errorf("it has no %q any more", c.old)
		}
		file := path.Join(t.TempDir(), "compose.yaml")
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), c.old, c.put, 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := loadCompose(file); err == nil {
			t.Errorf("%q is taken", c.put)
		}
	}
}

// Everything that the image is built of is sent to the builder.
func TestDockerIgnore(t *testing.T) {
	text, err := os.ReadFile("../../.dockerignore")
	if err != nil {
		t.Fatal(err)
	}
	sent := strings.Fields(string(text))
	cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if .Main}}{{$.ImportPath}}{{end}}{{end}}", "./cmd/aep-wrap", "./cmd/aep-hook")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	if len(strings.Fields(string(out))) < 10 {
		t.Fatalf("the program is made of %q?", out)
	}
	for _, pkg := range strings.Fields(string(out)) {
		dir := strings.Split(pkg, "/")[1]
		if !slices.Contains(sent, "!"+dir) {
			t.Errorf(".dockerignore keeps %s back, of which the program is built", dir)
		}
	}
}
