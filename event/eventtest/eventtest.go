// Package eventtest helps tests that read the protocol's public conformance
// corpus, that say what something may cost, or that want an address or a network
// of their own. The corpus is data of the protocol's, not of this repository: a
// test that needs it is skipped, with a clear word, where it is not at hand. Only
// tests import this package.
package eventtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// Conformance gives the corpus's directory: $AEP_CONFORMANCE, or the default
// that ./test names. It skips the test where neither
// is there, and fails it where AEP_CONFORMANCE names a directory that is not.
func Conformance(t testing.TB) string {
	t.Helper()
	dir, named := os.LookupEnv("AEP_CONFORMANCE")
	if !named || dir == "" {
		named = false
		dir = filepath.Join(root(t), "..", "shared", "conformance")
	}
	if _, err := os.Stat(filepath.Join(dir, "fixtures")); err != nil {
		if named {
			t.Fatalf("AEP_CONFORMANCE=%s holds no fixtures directory: %v", dir, err)
		}
		t.Skipf("protocol corpus not found at %s; set AEP_CONFORMANCE", dir)
	}
	return dir
}

// root is the repository's root: the nearest directory upward with a go.mod.
func root(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatalf("working directory: %v", err)
	}
	for d := dir; ; d = filepath.Dir(d) {
		if _, err := os.Stat(filepath.Join(d, "go.mod")); err == nil {
			return d
		}
		if d == filepath.Dir(d) {
			t.Fatalf("no go.mod above %s", dir)
		}
	}
}

// JSON reads the corpus's file into v; the path is given in elements below the
// corpus's directory.
func JSON(t testing.TB, v any, path ...string) {
	t.Helper()
	raw := File(t, path...)
	if err := json.Unmarshal(raw, v); err != nil {
		t.Fatalf("%s: %v", filepath.Join(path...), err)
	}
}

// File reads a file of the corpus.
func File(t testing.TB, path ...string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(append([]string{Conformance(t)}, path...)...))
	if err != nil {
		t.Fatalf("protocol corpus: %v", err)
	}
	return raw
}

// Lines reads a JSONL file of the corpus, one element a line.
func Lines(t testing.TB, path ...string) [][]byte {
	t.Helper()
	var lines [][]byte
	sc := bufio.NewScanner(bytes.NewReader(File(t, path...)))
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		if line := bytes.TrimSpace(sc.Bytes()); len(line) > 0 {
			lines = append(lines, bytes.Clone(line))
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatalf("%s: %v", filepath.Join(path...), err)
	}
	return lines
}
