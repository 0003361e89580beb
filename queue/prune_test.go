package queue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
)

const day = 24 * time.Hour

// oldLog writes a log of n events whose last was written days ago. acked is how
// many a sink has; below 0 there is no sink.
func oldLog(t *testing.T, root, session string, days, n, acked int) string {
	t.Helper()
	log, err := jsonl.Open(root, "a", session)
	if err != nil {
		t.Fatal(err)
	}
	at := jsonl.Position{}
	for i := range n {
		typ := "progress.status"
		if i == 0 {
			typ = "session.started"
		}
		ref, err := log.Append(fmt.Appendf(nil, `{"aep":"0.1","id":"%s-%d","type":%q,"time":"2026-01-02T03:04:%02dZ","source":"aep://h/agent/a/session/%s","agent":"a","session":%q,"epoch":0,"seq":%d,"data":{"message":"CANARY"}}`,
			session, i, typ, i, session, session, i))
		if err != nil {
			t.Fatal(err)
		}
		if i < acked {
			at = jsonl.Position{ID: fmt.Sprintf("%s-%d", session, i), Seq: int64(i), Offset: ref.End()}
		}
	}
	// A command that came at the end is not the session's to send.
	if _, err := log.Append(fmt.Appendf(nil, `{"id":"c","type":"control.cancel","session":%q}`, session)); err != nil {
		t.Fatal(err)
	}
	if acked >= 0 {
		if err := jsonl.SavePosition(log.Path(), "local", at); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	when := time.Now().Add(-time.Duration(days) * day)
	if err := os.Chtimes(log.Path(), when, when); err != nil {
		t.Fatal(err)
	}
	return log.Path()
}

func TestPrune(t *testing.T) {
	const n = 5
	one := func() int64 { // the size of one log and its position
		root := t.TempDir()
		oldLog(t, root, "old-1", 1, n, n)
		p, err := Prune(context.Background(), root, Limits{OlderThan: 99 * day})
		if err != nil || p.LeftBytes == 0 {
			t.Fatal(p, err)
		}
		return p.LeftBytes
	}()
	all := []string{"new-1", "old-1", "old-2", "part-1", "sole-1", "zero-1"}
	for name, x := range map[string]struct {
		Limits
		gone []string
		lost int
		kept []string // with their reasons
	}{
		"nothing":            {Limits: Limits{}},
		"young":              {Limits: Limits{OlderThan: 50 * day}},
		"age":                {Limits: Limits{OlderThan: 15 * day}, gone: []string{"old-1", "old-2", "sole-1"}, kept: []string{"part-1 unsent 2", "zero-1 unsent 5"}},
		"age, forced":        {Limits: Limits{OlderThan: 15 * day, Force: true}, gone: []string{"old-1", "old-2", "part-1", "sole-1", "zero-1"}, lost: 7},
		"a dry run":          {Limits: Limits{OlderThan: 15 * day, Force: true, DryRun: true}, lost: 7},
		"size":               {Limits: Limits{MaxSize: 5*one + one/2}, gone: []string{"old-1"}},
		"size, past unsent":  {Limits: Limits{MaxSize: 3*one + one/2}, gone: []string{"old-1", "old-2", "sole-1"}, kept: []string{"part-1 unsent 2", "zero-1 unsent 5"}},
		"size, all":          {Limits: Limits{MaxSize: 1}, gone: []string{"new-1", "old-1", "old-2", "sole-1"}, kept: []string{"part-1 unsent 2", "zero-1 unsent 5"}},
		"size, spared":       {Limits: Limits{MaxSize: 1, Spare: 2 * day}, gone: []string{"old-1", "old-2", "sole-1"}, kept: []string{"part-1 unsent 2", "zero-1 unsent 5"}},
		"age, before size":   {Limits: Limits{OlderThan: 35 * day, MaxSize: 4*one + one/2}, gone: []string{"old-1", "old-2"}},
		"size, spared, aged": {Limits: Limits{OlderThan: 12 * time.Hour, MaxSize: 1, Spare: 50 * day}, gone: []string{"new-1", "old-1", "old-2", "sole-1"}, kept: []string{"part-1 unsent 2", "zero-1 unsent 5"}},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			oldLog(t, root, "old-1", 40, n, n)
			oldLog(t, root, "old-2", 30, n, n)
			oldLog(t, root, "part-1", 25, n, 3)
			oldLog(t, root, "zero-1", 24, n, 0)
			oldLog(t, root, "sole-1", 20, n, -1)
			oldLog(t, root, "new-1", 1, n, n)
			p, err := Prune(context.Background(), root, x.Limits)
			if err != nil {
				t.Fatal(err)
			}
			var gone, kept []string
			for _, s := range all {
				if _, err := os.Stat(jsonl.Path(root, "a", s)); err != nil {
					gone = append(gone, s)
				}
			}
			for _, k := range p.Kept {
				kept = append(kept, fmt.Sprintf("%s %s %d", strings.TrimSuffix(filepath.Base(k.Path), ".jsonl"), k.Why, k.Events))
			}
			if !slices.Equal(gone, x.gone) || !slices.Equal(kept, x.kept) || p.Lost != x.lost {
				t.Errorf("gone %v, kept %v, lost %d", gone, kept, p.Lost)
			}
			if went := p.Logs(); !x.DryRun && (went != len(x.gone) || p.Left != len(all)-went) {
				t.Errorf("%+v", p)
			}
			for _, s := range x.gone {
				files, _ := filepath.Glob(filepath.Join(root, "a", s+".*"))
				if len(files) != 1 || filepath.Ext(files[0]) != ".pruned" {
					t.Errorf("beside %s there is %v", s, files)
				}
			}
		})
	}
}

// What is left of a log has no payload, says where the session stands, and is
// kept over a second removal.
func TestRestOfAPrunedLog(t *testing.T) {
	root := t.TempDir()
	path := oldLog(t, root, "s", 40, 5, 5)
	prune := func() []event.Event {
		t.Helper()
		if p, err := Prune(context.Background(), root, Limits{OlderThan: day}); err != nil || p.Logs() != 1 {
			t.Fatal(p, err)
		}
		var out []event.Event
		err := jsonl.Rest(path, func(line []byte) error {
			e, err := event.Parse(line)
			if len(e.Data) > 0 {
				t.Errorf("a payload is left: %s", line)
			}
			out = append(out, e)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	want := func(es []event.Event, epoch, seq int64) {
		t.Helper()
		if len(es) != 2 || es[0].ID != "s-0" || es[1].Type != PrunedType || es[1].Position() != (event.Position{Epoch: epoch, Seq: seq}) || es[1].Time.Second() != 4 {
			t.Fatalf("%+v", es)
		}
	}
	want(prune(), 0, 4)
	log, err := jsonl.Open(root, "a", "s")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Append([]byte(`{"aep":"0.1","id":"x","type":"run.started","time":"2026-01-02T03:04:00Z","source":"aep://h/agent/a/session/s","agent":"a","session":"s","epoch":1,"seq":0}`)); err != nil {
		t.Fatal(err)
	}
	log.Close()
	old := time.Now().Add(-40 * day)
	if err := os.Chtimes(path, old, old); err != nil {
		t.Fatal(err)
	}
	want(prune(), 1, 0)
	// In the end it goes too.
	ages := time.Now().Add(-2 * restFor)
	if err := os.Chtimes(strings.TrimSuffix(path, ".jsonl")+".pruned", ages, ages); err != nil {
		t.Fatal(err)
	}
	if p, err := Prune(context.Background(), root, Limits{}); err != nil || p.Swept != 1 {
		t.Fatal(p, err)
	}
	if left, _ := filepath.Glob(filepath.Join(root, "*", "*")); len(left) > 0 {
		t.Errorf("there is %v", left)
	}
}

// Two at once, and an owner beside them: each log goes once, or stays whole.
func TestPruneBesideOthers(t *testing.T) {
	root := t.TempDir()
	for i := range 50 {
		oldLog(t, root, fmt.Sprintf("s%d", i), 40, 3, 3)
	}
	owned, err := jsonl.Open(root, "a", "s7")
	if err != nil {
		t.Fatal(err)
	}
	defer owned.Close()
	results := make(chan Pruned, 2)
	for range 2 {
		go func() {
			p, err := Prune(context.Background(), root, Limits{OlderThan: day})
			if err != nil {
				t.Error(err)
			}
			results <- p
		}()
	}
	a, b := <-results, <-results
	if a.Logs()+b.Logs() != 49 {
		t.Errorf("%d and %d went", a.Logs(), b.Logs())
	}
	if owned.Size() == 0 || slices.ContainsFunc(a.Kept, func(k KeptLog) bool { return k.Why != Owned }) {
		t.Errorf("%+v", a.Kept)
	}
	if n := len(sessionsIn(t, root)); n != 1 {
		t.Errorf("%d logs are left", n)
	}
}

func sessionsIn(t *testing.T, root string) []string {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(root, "*", "*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	return logs
}

// A log that goes, forced, under a feed that has not sent it, is counted as
// lost; what its session tells afterwards is sent from its beginning.
func TestALogIsPrunedUnderAFeed(t *testing.T) {
	root := t.TempDir()
	path := oldLog(t, root, "s", 40, 5, 0)
	f := NewFeed(Options{Sink: "local"})
	defer f.Close()
	if n, err := f.Resume(root); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if p, err := Prune(context.Background(), root, Limits{OlderThan: day, Force: true}); err != nil || p.Lost != 5 {
		t.Fatal(p, err)
	}
	for f.adopt() {
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the log was made anew")
	}
	log, err := jsonl.Open(root, "a", "s")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, err := log.Append([]byte(`{"id":"n","type":"run.started","agent":"a","session":"s","epoch":1,"seq":0}`)); err != nil {
		t.Fatal(err)
	}
	if err := f.Attach("a", "s", log); err != nil {
		t.Fatal(err)
	}
	b, err := f.Next(context.Background(), 10, 1<<20)
	if err != nil || len(b.Items) != 1 || b.Items[0].ID != "n" {
		t.Fatalf("%v: %+v", err, b.Items)
	}
	if err := f.Ack(b); err != nil {
		t.Fatal(err)
	}
}

// Only a session log of ours goes: an agent's own transcripts stand in folders
// of the same shape.
func TestPruneLeavesWhatIsNotOurs(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "-home-me-project")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	old := time.Now().Add(-1000 * time.Hour)
	files := map[string]string{
		"aaaa.jsonl":  `{"type":"user","uuid":"1","sessionId":"aaaa","message":{"role":"user","content":"hi"}}` + "\n",
		"notes.jsonl": "important\n",
		"empty.jsonl": "",
		// an event, of another session than the name says
		"other.jsonl": `{"aep":"0.1","id":"1","type":"session.started","time":"2026-01-02T03:04:05Z","source":"aep://h/agent/-home-me-project/session/s","agent":"-home-me-project","session":"s","seq":0}` + "\n",
		"yarn.lock":   "",
		"x.torn":      "x",
	}
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.WriteFile(path, []byte(text), 0o600), os.Chtimes(path, old, old)); err != nil {
			t.Fatal(err)
		}
	}
	p, err := Prune(t.Context(), root, Limits{OlderThan: time.Hour, MaxSize: 1, Force: true})
	if err != nil || p.Logs() > 0 || p.Swept > 0 || len(p.Kept) != 4 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, k := range p.Kept {
		if k.Why != Strange {
			t.Errorf("%s: %s", k.Path, k.Why)
		}
	}
	for name := range files {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}
