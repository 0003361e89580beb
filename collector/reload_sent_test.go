package collector

import (
	"os"
	"path/filepath"
	"testing"
)

// How much of a log is taken at the start: what was sent of it, and a little
// more; all of one that is sent nowhere.
func TestSent(t *testing.T) {
	const size = 10 << 20
	for name, x := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"sent nowhere":         {nil, size},
		"nothing sent":         {map[string]string{"s.local.pos": `{"epoch":0,"seq":0,"offset":0}`}, unsaved},
		"half sent":            {map[string]string{"s.local.pos": `{"id":"x","epoch":0,"seq":9,"offset":5000000}`}, 5_000_000 + unsaved},
		"to the end":           {map[string]string{"s.local.pos": `{"id":"x","epoch":0,"seq":9,"offset":10485760}`}, size},
		"the furthest":         {map[string]string{"s.a.pos": `{"offset":7}`, "s.b.pos": `{"offset":1000000}`, "s.c.pos": `{"offset":2}`}, 1_000_000 + unsaved},
		"another session's":    {map[string]string{"s.x.local.pos": `{"offset":7}`}, size},
		"one that is no place": {map[string]string{"s.local.pos": `{"offset":-7}`}, size},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range x.files {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := sent(filepath.Join(dir, "s.jsonl"), size); got != x.want {
				t.Errorf("got %d, want %d", got, x.want)
			}
		})
	}
}
