package aepwrap_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"aep-wrap/adapters/all"
)

// The page of the agents is made of what the end-to-end tests recorded of them.
func TestAgentsPageIsCurrent(t *testing.T) {
	files, err := filepath.Glob("e2e/testdata/agents/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no recordings: %v", err)
	}
	var table, scenes strings.Builder
	table.WriteString("| agent | version | answerable | cancel | pause | instruct | missing |\n|---|---|---|---|---|---|---|\n")
	for _, a := range all.List() {
		raw, err := os.ReadFile(filepath.Join("e2e", "testdata", "agents", a.Name+".json"))
		if os.IsNotExist(err) {
			continue
		}
		var rec struct {
			Agent, Version string
			Scenes         map[string][]string
			Shows          map[string][]string
			Missing        []string
		}
		if err == nil {
			err = json.Unmarshal(raw, &rec)
		}
		if err != nil {
			t.Fatal(err)
		}
		if rec.Version != a.Pinned {
			t.Errorf("%s was seen at %s, and its adapter is pinned to %s", a.Name, rec.Version, a.Pinned)
		}
		files = slices.DeleteFunc(files, func(f string) bool { return filepath.Base(f) == a.Name+".json" })
		fmt.Fprintf(&table, "| %s | %s |", a.Title, rec.Version)
		for _, column := range []string{"answerable", "cancel", "pause", "instruct"} {
			fmt.Fprintf(&table, " %s |", orNone(rec.Shows[column]))
		}
		fmt.Fprintf(&table, " %s |\n", orNone(rec.Missing))

		fmt.Fprintf(&scenes, "## %s\n\n", a.Title)
		seen := map[string]bool{}
		for _, name := range slices.Sorted(maps.Keys(rec.Scenes)) {
			for _, typ := range rec.Scenes[name] {
				seen[typ] = true
			}
		}
		fmt.Fprintf(&scenes, "Seen: %s.\n\n", code(slices.Sorted(maps.Keys(seen))))
		for _, name := range slices.Sorted(maps.Keys(rec.Scenes)) {
			fmt.Fprintf(&scenes, "* %s: %s\n", name, code(rec.Scenes[name]))
		}
		scenes.WriteString("\n")
	}
	for _, f := range files {
		t.Errorf("%s is of no adapter", f)
	}
	generated(t, "docs/agents.md", "agents", table.String()+"\n"+scenes.String())
}

func orNone(words []string) string {
	if len(words) == 0 {
		return "—"
	}
	return strings.Join(words, "; ")
}

func code(words []string) string { return "`" + strings.Join(words, "` `") + "`" }
