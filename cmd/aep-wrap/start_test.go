package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// What the packages of ours make before main begins, every start pays for, those
// of a short command and of the hook helper's fallback among them: tables of a
// few words, and no expression that compiles to a large program.
func TestLittleIsMadeBeforeMain(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector counts otherwise")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	most := map[string]int{"aep-wrap/redaction": 128 << 10, "aep-wrap/event": 64 << 10}
	seen := 0
	for _, m := range regexp.MustCompile(`(?m)^init (aep-wrap/\S+) @.* ms clock, (\d+) bytes`).FindAllStringSubmatch(string(out), -1) {
		name := m[1]
		if strings.HasPrefix(name, "aep-wrap/cmd/") { // the tests' own are among it
			continue
		}
		n, err := strconv.Atoi(m[2])
		if err != nil {
			t.Fatal(err)
		}
		seen++
		limit := most[name]
		if limit == 0 {
			limit = 32 << 10
		}
		if n > limit {
			t.Errorf("%s makes %d bytes before main, want %d at most", name, n, limit)
		}
	}
	if seen < 10 {
		t.Errorf("%d packages were seen:\n%s", seen, out)
	}
}
