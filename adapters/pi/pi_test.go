package pi

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/adaptertest"
	"aep-wrap/event"
	"aep-wrap/session"
)

// logs are session logs that pi wrote.
func logs(t testing.TB) map[string][]adapters.Moment {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatal("no session logs", err)
	}
	out := map[string][]adapters.Moment{}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		base := strings.TrimSuffix(filepath.Base(f), ".jsonl")
		for line := range bytes.Lines(raw) {
			out[base] = append(out[base], moment(t, strings.TrimSpace(string(line))))
		}
	}
	return out
}

func moment(t testing.TB, raw string) adapters.Moment {
	t.Helper()
	p, err := event.ParseObject([]byte(raw))
	if err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	typ, _ := p["type"].(string)
	return adapters.Moment{Channel: adapters.Log, Name: typ, Payload: p, Raw: []byte(raw), Session: "s"}
}

func captures(t testing.TB) (ms []adapters.Moment) {
	for _, log := range logs(t) {
		ms = append(ms, log...)
	}
	for _, raw := range more {
		ms = append(ms, moment(t, raw))
	}
	return ms
}

// more are entries as pi's page about its session log has them, of kinds that
// the logs at hand lack.
var more = []string{
	`{"type":"session","version":3,"id":"u2","timestamp":"2026-11-30T06:58:06.702Z","cwd":"/home/dev/app","parentSession":"/home/dev/.pi/agent/sessions/--home-dev-app--/2026-11-30T06-58-06-702Z_u1.jsonl"}`,
	`{"type":"message","id":"a0","parentId":"a1","timestamp":"2026-11-30T06:58:06.702Z","message":{"role":"assistant","content":[],"stopReason":"aborted","usage":{"input":1,"output":0}}}`,
	`{"type":"message","id":"a2","parentId":"a1","timestamp":"2026-11-30T06:58:06.702Z","message":{"role":"bashExecution","command":"ls","output":"x","exitCode":0,"cancelled":false,"truncated":false}}`,
	`{"type":"branch_summary","id":"a3","parentId":"a1","timestamp":"2026-11-30T06:58:06.702Z","fromId":"a0","summary":"tried A"}`,
	`{"type":"custom","id":"a4","parentId":"a1","timestamp":"2026-11-30T06:58:06.702Z","customType":"x","data":{"n":1}}`,
	`{"type":"label","id":"a5","parentId":"a1","timestamp":"2026-11-30T06:58:06.702Z","targetId":"a1","label":"here"}`,
	`{"type":"brand_new","id":"a6","parentId":"a1","timestamp":"2026-11-30T06:58:06.702Z"}`,
}

func TestAdapter(t *testing.T) {
	adaptertest.Run(t, adaptertest.Spec{Adapter: Adapter(), Captures: captures})
}

func FuzzMap(f *testing.F) { adaptertest.Fuzz(f, Adapter(), captures(f)) }

// What the logs tell, each event with the word that says the most of it.
func TestLogs(t *testing.T) {
	want := map[string]string{
		"session": "session.started startup; x.pi.model.select; x.pi.thinking.select; " +
			"run.started; tool.requested bash; x.pi.model.usage; tool.completed bash; x.pi.model.usage; run.finished stop; " +
			"run.started; tool.requested bash; x.pi.model.usage; tool.failed bash; tool.requested bash; x.pi.model.usage; tool.failed bash; x.pi.model.usage; run.finished stop; " +
			"run.started; x.pi.model.usage; run.failed error",
		"compacted": "session.started startup; x.pi.model.select; x.pi.thinking.select; x.pi.session.info; session.compacted; " +
			"tool.requested write; x.pi.model.usage; tool.completed write; x.pi.model.usage",
	}
	for base, log := range logs(t) {
		id, ok := identify("", log[0].Payload)
		if !ok || id.Strange || id.Version != "3" || id.Session == "" {
			t.Errorf("%s: %+v", base, id)
		}
		if got := told(log); got != want[base] {
			t.Errorf("%s:\ngot  %s\nwant %s", base, got, want[base])
		}
	}
	if got, want := told([]adapters.Moment{moment(t, more[0]), moment(t, `{"type":"message","id":"a9","timestamp":"2026-11-30T06:58:05Z","message":{"role":"user","content":"go"}}`), moment(t, more[1]), moment(t, more[6])}),
		"session.started fork; run.started; x.pi.model.usage; run.cancelled aborted; x.pi.log.record"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func told(log []adapters.Moment) string {
	s := session.New(session.Config{Agent: name, Host: "h", Session: "s", State: session.NewState(), History: true})
	var out []string
	for _, m := range log {
		for _, d := range s.Bind(time.Date(2026, 11, 30, 7, 0, 0, 0, time.UTC), mapMoment(m)) {
			word := d.Fields.Str("stop_reason") + d.Fields.Str("reason")
			switch event.Category(d.Type) {
			case "tool":
				word = d.Subject
			case "x":
				word = ""
			case "run":
				word = d.Fields.Str("stop_reason")
			}
			out = append(out, strings.TrimSpace(d.Type+" "+word))
		}
	}
	return strings.Join(out, "; ")
}

func TestIdentify(t *testing.T) {
	id, ok := identify("", moment(t, more[0]).Payload)
	if !ok || id.Session != "u2" || id.Fork != "u1" {
		t.Errorf("%+v, %v", id, ok)
	}
	for raw, strange := range map[string]bool{
		`{"type":"session","version":3,"id":"u","cwd":"/x"}`: false, `{"type":"session","version":4,"id":"u","cwd":"/x"}`: true,
		`{"type":"session","id":"u","cwd":"/x"}`: true,
	} {
		if id, ok := identify("", moment(t, raw).Payload); !ok || id.Strange != strange {
			t.Errorf("%s: %+v, %v", raw, id, ok)
		}
	}
	others := []map[string]any{{"type": "session"}, {"type": "message", "id": "u", "cwd": "/x"}, {"id": "u", "version": json.Number("3")}}
	if i := slices.IndexFunc(others, func(r map[string]any) bool { _, ok := identify("", r); return ok }); i >= 0 {
		t.Errorf("taken for pi's: %v", others[i])
	}
}
