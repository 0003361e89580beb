package adapters

import (
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestGrammar(t *testing.T) {
	g := Grammar{Valued: []string{"-c", "--model"}, Variadic: []string{"--image"}, Optional: []string{"--resume"}}
	for _, tt := range []struct {
		line  string
		words string
		flags map[string][]string
	}{
		{"exec --json hello", "exec hello", map[string][]string{"--json": {""}}},
		{"-c a=1 exec -c b=2", "exec", map[string][]string{"-c": {"a=1", "b=2"}}},
		{"--model=x --image a b --json", "", map[string][]string{"--model": {"x"}, "--image": {"a", "b"}, "--json": {""}}},
		{"--resume id go", "go", map[string][]string{"--resume": {"id"}}},
		{"--resume --json", "", map[string][]string{"--resume": {""}, "--json": {""}}},
		{"-- exec", "", map[string][]string{}},
		{"- --model", "-", map[string][]string{"--model": {""}}},
		{"--image", "", map[string][]string{"--image": {""}}},
	} {
		got := g.Read(strings.Fields(tt.line))
		if strings.Join(got.Words, " ") != tt.words || !reflect.DeepEqual(got.Flags, tt.flags) {
			t.Errorf("%s: %q %q", tt.line, got.Words, got.Flags)
		}
	}
	l := g.Read(strings.Fields("-c a -c b -m x go"))
	if l.Value("-c", "--config") != "b" || l.Word() != "x" || !l.Has("--config", "-m") || l.Has("--json") || (Line{}).Word() != "" {
		t.Errorf("%+v", l)
	}
}

func TestWants(t *testing.T) {
	for env, want := range map[string]bool{"all": true, "A,Stop": true, "Stop": true, "Stopped": false, "": false} {
		if got := (Launch{Env: []string{"AEP_HOOKS=" + env}}).Wants("Stop"); got != want {
			t.Errorf("%q: %v", env, got)
		}
	}
}

// A shell reads each word of the helper's command line as it was.
func TestHelperCommand(t *testing.T) {
	words := []string{"/opt/a b/it's $HOME \"x\"", "codex"}
	line := Endpoint{Helper: append([]string{"printf", `%s\n`}, words...)}.HelperCommand("Pre Tool", Unasked)
	out, err := exec.Command("sh", "-c", line).Output()
	if err != nil {
		t.Fatalf("%s: %v", line, err)
	}
	if got, want := string(out), strings.Join(append(words, "Pre Tool"), "\n")+"\n"; got != want {
		t.Errorf("%s gives %q; want %q", line, got, want)
	}
	if (Endpoint{}).HelperCommand("x", 0) != "" {
		t.Error("there is no helper")
	}
	asking := Endpoint{Helper: []string{"h"}, Asking: func(within time.Duration) []string { return []string{"w=" + within.String(), "h"} }}
	for within, want := range map[time.Duration]string{Unasked: "h x", time.Minute: "w=1m0s h x"} {
		if got := asking.HelperCommand("x", within); got != want {
			t.Errorf("%v: %s, want %s", within, got, want)
		}
	}
	if Quote("/usr/bin/aep-hook") != "/usr/bin/aep-hook" || Quote("") != "''" {
		t.Error("Quote")
	}
}
