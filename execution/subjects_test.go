package execution

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func (w *world) get(path string, change map[string]string) (*http.Response, string) {
	w.t.Helper()
	req, _ := http.NewRequest("GET", w.http.URL+path, nil)
	req.Header = w.headers(change)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp, string(b)
}

func (w *world) done(run string, j *job) {
	j.end(Outcome{})
	w.eventually("the end", func() bool { return w.state(run).Over() })
}

func TestArtifacts(t *testing.T) {
	w := newWorld(t)
	secret := filepath.Join(w.dir, "secret")
	if err := os.WriteFile(secret, []byte("not yours"), 0o600); err != nil {
		t.Fatal(err)
	}
	run, j := w.run(w.agent(nil))
	dir := filepath.Join(w.dir, run)
	for name, text := range map[string]string{"report.md": "# All", "sub/data.json": `{"a":1}`, "raw": "\x00\x01"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"out": secret, "up": "..", "self": "report.md"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	w.done(run, j)
	byName := map[string]map[string]any{}
	for _, a := range w.must("artifact.list", map[string]any{"run_id": run})["items"].([]any) {
		m := a.(map[string]any)
		byName[m["name"].(string)] = m
	}
	if len(byName) != 3 {
		t.Fatalf("%v", byName)
	}
	a := byName["sub/data.json"]
	if a["mime_type"] != "application/json" || a["size_bytes"] != 7.0 || a["sha256"] != "015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862" {
		t.Errorf("%v", a)
	}
	path := "/aep/v1/artifacts/" + a["id"].(string) + "/bytes"
	if resp, body := w.get(path, nil); resp.StatusCode != 200 || body != `{"a":1}` || resp.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%d %q %v", resp.StatusCode, body, resp.Header)
	}
	if resp, body := w.get(path, map[string]string{"Range": "bytes=1-3"}); resp.StatusCode != 206 || body != `"a"` {
		t.Errorf("%d %q", resp.StatusCode, body)
	}
	for _, id := range []string{"art_00000000000000000000000000", "art_", "..%2f..%2fsecret", "art_..%2f" + run, strings.Repeat("a", 5000)} {
		if resp, body := w.get("/aep/v1/artifacts/"+id+"/bytes", nil); resp.StatusCode != 404 || strings.Contains(body, "not yours") {
			t.Errorf("%.40s: %d %q", id, resp.StatusCode, body)
		}
	}
	if resp, _ := w.get(path, map[string]string{"Authorization": ""}); resp.StatusCode != 401 {
		t.Errorf("without a token: %d", resp.StatusCode)
	}
	// What was told of is served, and nothing that took its place.
	target := filepath.Join(dir, "sub", "data.json")
	if err := os.Remove(target); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, target); err != nil {
		t.Fatal(err)
	}
	if resp, body := w.get(path, nil); resp.StatusCode < 400 || strings.Contains(body, "not yours") {
		t.Errorf("a link out: %d %q", resp.StatusCode, body)
	}
	w.must("artifact.delete", map[string]any{"artifact_id": byName["raw"]["id"]})
	w.fails(InvalidParams, "artifact.get", map[string]any{"artifact_id": byName["raw"]["id"]})
	if _, err := os.Stat(filepath.Join(dir, "raw")); !os.IsNotExist(err) {
		t.Error("its file is still there")
	}
}

func TestSubjects(t *testing.T) {
	for _, mode := range []string{hardDelete, redact} {
		t.Run(mode, func(t *testing.T) {
			w := newWorld(t)
			w.fails(SubjectNotFound, "subject.export", map[string]any{"subject_id": "ann"})
			w.fails(SubjectNotFound, "subject.erase", map[string]any{"subject_id": "ann", "mode": mode})
			w.fails(InvalidParams, "subject.erase", map[string]any{"subject_id": "ann", "mode": "forget"})
			make := func(subjects ...string) (agent, run string) {
				agent = w.agent(map[string]any{"name": "of ann", "subject_ids": subjects})
				run, j := w.run(agent)
				j.tell("run.started", "r", map[string]any{"trigger": "user"})
				if err := os.WriteFile(filepath.Join(w.dir, run, "cv.txt"), []byte("ann's"), 0o600); err != nil {
					t.Fatal(err)
				}
				w.done(run, j)
				return agent, run
			}
			solo, soloRun := make("ann")
			both, bothRun := make("ann", "bob")
			_, bobRun := make("bob")
			before := w.events(soloRun, "")

			b, _ := json.Marshal(w.must("subject.export", map[string]any{"subject_id": "ann"}))
			for _, id := range []string{solo, soloRun, both, bothRun} {
				if !strings.Contains(string(b), id) {
					t.Errorf("the export lacks %s", id)
				}
			}
			if strings.Contains(string(b), bobRun) || !strings.Contains(string(b), "cv.txt") || !strings.Contains(string(b), before[0].ID) {
				t.Errorf("the export is %s", b)
			}
			busy, j := w.run(solo)
			w.fails(LifecycleConflict, "subject.erase", map[string]any{"subject_id": "ann", "mode": mode})
			w.done(busy, j)
			w.runner.busy = true
			w.fails(LifecycleConflict, "subject.erase", map[string]any{"subject_id": "ann", "mode": mode})
			w.runner.busy = false
			if len(w.events(soloRun, "")) != len(before) {
				t.Error("an erasure that failed has erased something")
			}

			m, _ := json.Marshal(w.must("subject.erase", map[string]any{"subject_id": "ann", "mode": mode}))
			if !strings.Contains(string(m), `{"id":"`+bothRun+`","resource":"run"}`) || !strings.Contains(string(m), "sent to a collector") {
				t.Errorf("the manifest is %s", m)
			}
			w.fails(SubjectNotFound, "subject.read", map[string]any{"subject_id": "ann"})
			if r := w.must("run.get", map[string]any{"run_id": bothRun}); fmt.Sprint(r["subject_ids"]) != "[bob]" || r["goal"] != "do it" {
				t.Errorf("of two, %v is left", r)
			}
			if len(w.events(bothRun, "")) != len(before) {
				t.Error("what is bob's too has lost events")
			}
			if _, err := os.Stat(filepath.Join(w.dir, soloRun, "cv.txt")); !os.IsNotExist(err) {
				t.Error("her file is still there")
			}
			if !slices.Contains(w.runner.gone, soloRun) || slices.Contains(w.runner.gone, bothRun) {
				t.Errorf("logs that were erased: %v", w.runner.gone)
			}
			if mode == hardDelete {
				w.fails(InvalidParams, "run.get", map[string]any{"run_id": soloRun})
				w.fails(InvalidParams, "agent.get", map[string]any{"agent_id": solo})
				return
			}
			if r := w.must("run.get", map[string]any{"run_id": soloRun}); r["goal"] != "" || r["result"] != nil {
				t.Errorf("%v", r)
			}
			after := w.events(soloRun, "")
			if len(after) != len(before) || after[1].ID != before[1].ID || after[1].Payload["redacted"] != true || after[1].Payload["trigger"] != nil {
				t.Errorf("%v", after)
			}
			if a := w.must("agent.get", map[string]any{"agent_id": solo}); a["name"] != "erased" || a["lifecycle_state"] != "archived" {
				t.Errorf("%v", a)
			}
		})
	}
}
