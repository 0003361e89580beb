package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"aep-wrap/agent"
)

// A file in which the parser would be lost for minutes is refused at once; the
// mark that some editors write at a file's start is none of its words.
func TestConfigFileThatIsNone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	for _, tt := range []struct{ name, text, want string }{
		{"deep", "secret-env: " + strings.Repeat("[", 100_000), "nested too deep"},
		{"deep and closed", "secret-env: " + strings.Repeat("{a: ", 1000) + strings.Repeat("}", 1000), "nested too deep"},
		{"large", "# " + strings.Repeat("x", maxConfig), "too large"},
		{"a mark", "\ufeffquiet: true\n", ""},
		{"a list", "secret-env: [A, B]\n", ""},
	} {
		if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		found, errs := readConfigFile(path, true)
		switch {
		case tt.want == "" && (len(errs) > 0 || len(found) != 1):
			t.Errorf("%s: %v", tt.name, errs)
		case tt.want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), tt.want)):
			t.Errorf("%s: %v, want %q", tt.name, errs, tt.want)
		}
	}
}

// What YAML allows and would be taken for something else, or be lost, is refused
// with its line.
func TestConfigFileThatIsOdd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	var bomb strings.Builder
	bomb.WriteString("a0: &a0 [x]\n")
	for i := range 20 {
		fmt.Fprintf(&bomb, "a%d: &a%d [%s]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*a%d, ", i), 10))
	}
	for text, want := range map[string]string{
		"quiet: true\n---\njson: true\n":                     "2: a second document",
		"quiet: true\n...\njson: true\n":                     "3: a second document",
		"---\n---\nquiet: true\n":                            "2: a second document",
		"# words\n---\n# words\nquiet: true\n...\n# words\n": "",
		"%YAML 1.1\n---\nquiet: true\n":                      "1: want settings alone, without directives",
		"quiet: true\nagent: !!binary aGVsbG8=\n":            "2: the tag !!binary",
		"agent: !mine x\n":                                   "1: the tag !mine",
		"quiet: true\nsecret-env:\n  - !mine A\n":            "3: the tag !mine",
		"secret-env: !!seq [A]\n":                            "1: the tag !!seq",
		"!!map {quiet: true}\n":                              "1: the tag !!map",
		"agent: !!int x\n":                                   "1: the tag !!int",
		"agent: !!str 5\n":                                   "",
		"quiet: !!bool true\n":                               "",
		"agent: !!str\n  a: b\n":                             "2: not YAML",
		"agent: &a x\n":                                      "1: \"&\": want each value",
		"deny: *\n":                                          "1: \"*\": want each value",
		"deny: '*'\n":                                        "",
		"<<: {quiet: true}\n":                                "1: \"<<\": want each value",
		bomb.String():                                        "1: \"&\": want each value",
		"quiet: true\nquiet: false\n":                        "2: not YAML: mapping key \"quiet\" already defined",
		"capture-for:\n  tool: full\n  tool: none\n":         "3: not YAML: mapping key \"tool\" already defined",
		"quiet: true\nagent: [\n":                            "2: not YAML",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		found, errs := readConfigFile(path, true)
		switch {
		case want == "" && (len(errs) > 0 || len(found) != 1):
			t.Errorf("%q: %v %v", text, found, errs)
		case want != "" && (len(errs) == 0 || !strings.HasPrefix(errs[0].Error(), path+":"+want)):
			t.Errorf("%.200q: %v, want %q", text, errs, want)
		}
	}
	const profile = "profiles:\n  a: {command: [x]}\n"
	for text, want := range map[string]string{profile: "", profile + "---\n" + profile: "line 3: a second document", "# &a\nprofiles: &p\n  a: {command: [x]}\n": "line 2"} {
		if _, err := parseProfiles(path, []byte(text)); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// No error tells the password of a URL, whatever setting it is of and however
// wrong it is; and config show does not.
func TestPasswordsOfURLsAreNotTold(t *testing.T) {
	const password = "s3cret"
	n := 0
	for _, s := range settings {
		if s.arg != "URL" {
			continue
		}
		n++
		for _, v := range []string{
			"http://user:s3cret@host.example:port", "ftp://user:s3cret@host.example", "http://user:s3cret@host.example/x?y#z",
			"http://user:s3cret@host.example", "https://s3cret@host.example/a", "http://user:s3cret%40host.example", "user:s3cret@host.example", "http://us er:s3/cret@@host",
			"ws://user:\"s3cret\"@ho st", "//user:s3cret@host",
		} {
			var fs pflag.FlagSet
			addSettings(&fs, false)
			if err := fs.Set(s.name, v); err != nil {
				t.Fatal(err)
			}
			_, found, errs := loadSettings(&fs, func(string) string { return "" }, paths{}, true)
			for _, err := range errs {
				if strings.Contains(err.Error(), password) || strings.Contains(err.Error(), "s3/cret") {
					t.Errorf("--%s %s: %v", s.name, v, err)
				}
			}
			for _, v := range found[s.name].values {
				if strings.Contains(s.shown(v), password) {
					t.Errorf("--%s %s is shown as %s", s.name, v, s.shown(v))
				}
			}
		}
	}
	if n < 4 {
		t.Errorf("%d settings are URLs", n)
	}
	t.Setenv("HTTPS_PROXY", "http://user:s3cret@ho st:1")
	req, err := http.NewRequest(http.MethodGet, "https://collector.example", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proxyOf(req); err != nil && strings.Contains(err.Error(), password) {
		t.Error(err)
	}
}

// --hold is how long every question waits; without it, each has its own time.
func TestHold(t *testing.T) {
	for hold, want := range map[time.Duration]agent.Patience{
		-1:          {Hold: holdAlone, Both: holdLong, Gate: holdLong},
		0:           {},
		time.Minute: {Hold: time.Minute, Both: time.Minute, Lone: time.Minute, Gate: time.Minute},
	} {
		got := (&config{Hold: hold}).patience()
		got.Gated = nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v: got %+v, want %+v", hold, got, want)
		}
	}
}
