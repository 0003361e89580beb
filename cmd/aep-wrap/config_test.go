package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
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
