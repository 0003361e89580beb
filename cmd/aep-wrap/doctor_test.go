package main

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func newTestDoctor(t *testing.T, base string) *doctor {
	t.Helper()
	a := &app{Getenv: func(string) string { return "" }, Environ: func() []string { return nil }, paths: paths{home: "/h", aep: t.TempDir()}}
	a.cfg.Collector, a.cfg.LogDir = base, t.TempDir()
	return &doctor{app: a, now: time.Now, space: freeSpace, watch: canWatch}
}

// What was found, one a line: state, check, what.
func (d *doctor) told() string {
	var b strings.Builder
	for _, f := range d.found {
		b.WriteString(f.State + " " + f.Check + ": " + f.What + "\n")
		if f.State == stateFinding && f.Fix == "" {
			b.WriteString("a finding without a fix\n")
		}
	}
	return b.String()
}

func TestDoctorMachine(t *testing.T) {
	d := newTestDoctor(t, "")
	d.space = func(string) (int64, error) { return 5 << 20, nil }
	d.watch = func() error { return errors.New("too many open files") }
	d.logs()
	d.inotify()
	got := d.told()
	for _, want := range []string{"finding logs: ", "5 MiB free", "finding watching files: changes of files are not announced: too many open files"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	for made, want := range map[string]string{
		"": "ok clock", "2026-01-01T00:00:00Z": "ok clock", time.Now().Add(48 * time.Hour).Format(time.RFC3339): "before this program was made",
	} {
		d.found, d.made = nil, made
		if d.clock(); !strings.Contains(d.told(), want) {
			t.Errorf("made %q: %s", made, d.told())
		}
	}
}

func TestDoctorCollector(t *testing.T) {
	for _, tt := range []struct {
		name   string
		serve  http.HandlerFunc
		off    time.Duration
		goes   bool
		expect string
	}{
		{"one that speaks", answer(200, `{"aep":["0.1"]}`), 0, true, "ok collector: "},
		{"one of another time", answer(200, `{"aep":["0.1"]}`), time.Hour, true, "finding clock: it is 1h0m"},
		{"one that refuses the token", answer(401, `{"error":"unauthorized"}`), 0, false, "finding token: "},
		{"one that allows nothing", answer(403, `{"error":"forbidden"}`), 0, false, "finding token: "},
		{"one of another version", answer(200, `{"aep":["9.9"]}`), 0, false, `finding collector: BASE speaks AEP ["9.9"]`},
		{"something else", answer(200, `<html>`), 0, false, "and not what a collector does"},
		{"nothing there", answer(404, `{}`), 0, false, "answers 404 Not Found"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			srv := httptest.NewServer(tt.serve)
			defer srv.Close()
			d := newTestDoctor(t, srv.URL)
			d.now = func() time.Time { return time.Now().Add(tt.off) }
			if goes := d.collector(); goes != tt.goes {
				t.Errorf("goes on: %v", goes)
			}
			if got := strings.ReplaceAll(d.told(), srv.URL, "BASE"); !strings.Contains(got, tt.expect) || strings.Contains(got, "without a fix") {
				t.Errorf("%q is missing in\n%s", tt.expect, got)
			}
		})
	}
}

func answer(code int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = w.Write([]byte(body))
	}
}

func TestDoctorLines(t *testing.T) {
	f := symptom{Check: "logs", Agent: "codex", State: stateFinding, What: "no\x1broom", Fix: "make some"}
	if got, want := f.line(false), "finding  logs           codex: no"; !strings.HasPrefix(got, want) || strings.Contains(got, "\x1b") || !strings.Contains(got, "→ make some") {
		t.Errorf("%q", got)
	}
	if got := f.line(true); !strings.HasPrefix(got, "\x1b[31mfinding ") {
		t.Errorf("%q", got)
	}
}
