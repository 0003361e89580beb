package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"aep-wrap/adapters"
	"aep-wrap/agent"
	"aep-wrap/agent/follow"
	"aep-wrap/collector"
	"aep-wrap/event"
	"aep-wrap/queue"
)

// everything are figures in which nothing is 0.
func everything() figures {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	q := queue.Stats{Offered: 9, Events: 1, Bytes: 2, LooseEvents: 3, LooseBytes: 4, BehindBytes: 5, BehindOwners: 6,
		Dropped: map[queue.Dropped]int64{{Severity: event.Debug, Reason: queue.ReasonFull}: 7}}
	pruned := &pruneTally{}
	for _, n := range []*atomic.Int64{&pruned.logs, &pruned.bytes, &pruned.hooks, &pruned.unsent} {
		n.Store(9)
	}
	return figures{
		now:   now,
		watch: agent.WatchStats{Records: 1, Events: 2, Refused: 3, Unknown: 4, Owned: 5, Failed: 6, Live: 7, Held: 8, Cut: 9},
		tally: agent.Tally{
			Events:   map[agent.Told]int64{{Category: "tool", Severity: event.Info}: 1},
			Requests: map[string]int64{"timeout": 2},
			Commands: map[agent.Commanded]int64{{Verb: "respond", Outcome: "accepted"}: 3},
			Refused:  map[agent.RefusedFor]int64{{Channel: adapters.Hook, Reason: "too_large"}: 4},
			Hooks:    map[string]int64{"codex": 5},
			Spoke:    map[agent.Voice]time.Time{{Adapter: "codex", Channel: adapters.Hook}: now.Add(-6 * time.Second)},
		},
		redactions: map[string]int64{"home": 7},
		logs:       &follow.Stats{Files: 1, Dirs: 2, Polled: 3, Records: 4, Bytes: 5, Faults: 6, Cut: 7, Behind: 8, Unread: 10, Lag: 9 * time.Second},
		ways: []way{
			{kind: "post", queue: q, waiting: time.Second, state: "retrying", events: 1, bytes: 2, attempts: 3, failed: 4, class: queue.Slow, refused: refusals(5, 6)},
			{kind: "socket", agent: "codex", queue: q, waiting: time.Second, state: "connected", events: 1, bytes: 2, attempts: 3, failed: 4, class: queue.Slow, refused: refusals(5, 6)},
		},
		pruned: pruned, draining: true, notAlone: true,
	}
}

// Every row of the table tells what was counted, under names that a linter of
// metrics has nothing against.
func TestMetricsTellEverything(t *testing.T) {
	m := newMetrics(everything)
	m.hook("codex", false, time.Millisecond)
	m.hook("codex", true, time.Second)
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, s := range f.Metric {
			got[f.GetName()] += s.GetGauge().GetValue() + s.GetCounter().GetValue() + float64(s.GetHistogram().GetSampleCount())
		}
	}
	for _, s := range metricTable {
		if got["aep_wrap_"+s.name] == 0 {
			t.Errorf("aep_wrap_%s tells nothing", s.name)
		}
	}
	for _, name := range []string{hookSeconds, heldSeconds} {
		if got[name] != 1 {
			t.Errorf("%s: %v, want 1", name, got[name])
		}
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
}

// No label is of unbounded values.
func TestMetricsHaveFewLabels(t *testing.T) {
	few := []string{"category", "severity", "adapter", "channel", "reason", "rule", "outcome", "verb", "sink", "agent", "state", "class"}
	for _, s := range metricTable {
		for _, l := range s.labels {
			if !slices.Contains(few, l) {
				t.Errorf("aep_wrap_%s: the label %s is not among those that have few values", s.name, l)
			}
		}
	}
}

// docs/metrics.md is the table, and what the collector tells of itself.
func TestMetricsPageIsCurrent(t *testing.T) {
	const file = "../../docs/metrics.md"
	want := metricsPage(t)
	have, err := os.ReadFile(file)
	if err != nil && !*updateDocs {
		t.Fatal(err)
	}
	switch {
	case bytes.Equal(have, want):
	case *updateDocs:
		if err := os.WriteFile(file, want, 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("docs/metrics.md is not what is told: run go test ./cmd/aep-wrap -run MetricsPage -update-docs\n%s", cmp.Diff(string(have), string(want)))
	}
}

func metricsPage(t *testing.T) []byte {
	var b bytes.Buffer
	b.WriteString(`# Metrics

<!-- Made of the table in cmd/aep-wrap/metrics.go; a test holds it current. -->

` + "`aep-wrap serve` tells of itself at `/metrics` of `--health-listen`, and the collector at `/metrics` of its own\naddress (a token with the role `watch` opens it). Both speak the text format of Prometheus." + ` No
label is a session's name, a path or a word of an agent's: the number of series
does not grow with what agents do. A series is there from the first time that
there is something to count.

## Of serve

| metric | type | labels | |
|---|---|---|---|
`)
	row := func(name, kind string, labels []string, help string) {
		for i, l := range labels {
			labels[i] = "`" + l + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", name, kind, strings.Join(labels, " "), help)
	}
	for _, s := range metricTable {
		row("aep_wrap_"+s.name, map[prometheus.ValueType]string{counter: "counter", gauge: "gauge"}[s.kind], slices.Clone(s.labels), s.help)
	}
	row(hookSeconds, "histogram", []string{"adapter"}, hookSecondsHelp)
	row(heldSeconds, "histogram", []string{"adapter"}, heldSecondsHelp)
	row("aep_wrap_build_info", "gauge", []string{"version"}, "1; its label is the version.")
	b.WriteString("\nA `sink` is a way to the collector: `post`, or `socket`, which is that of an `agent` whose sessions take\ncommands. While there is no socket they go by POST, and are counted with it: `posting`, or `retrying` where POST\nfails too. `go_*` and `process_*` are those of every Go program.\n\n## Of the collector\n\n| metric | type | |\n|---|---|---|\n")
	for _, f := range collectorMetrics(t) {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f[0], f[1], f[2])
	}
	b.WriteString(`
## What to watch

` + "```promql" + `
# nothing gets through to the collector, for five minutes
max by (sink, agent) (aep_wrap_queue_age_seconds) > 300
# events are lost
rate(aep_wrap_events_shed_total[5m]) > 0
# hooks cost their agents more than 50 ms, one in a hundred
histogram_quantile(0.99, sum by (le) (rate(aep_wrap_hook_duration_seconds_bucket[5m]))) > 0.05
# an agent's hooks have fallen silent while its log goes on
aep_wrap_channel_silence_seconds{channel="hook"} > 600 and on (adapter) aep_wrap_channel_silence_seconds{channel="log"} < 60
` + "```\n")
	return b.Bytes()
}

// collectorMetrics are the name, type and meaning of each of the collector's
// own.
func collectorMetrics(t *testing.T) (out [][3]string) {
	t.Helper()
	c := collector.New(collector.Config{})
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://127.0.0.1/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d: %s", w.Code, w.Body)
	}
	help := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^# (HELP|TYPE) (aep_collector_\S+) (.*)$`).FindAllStringSubmatch(w.Body.String(), -1) {
		if m[1] == "HELP" {
			help[m[2]] = m[3]
			continue
		}
		out = append(out, [3]string{m[2], m[3], help[m[2]]})
	}
	if len(out) == 0 {
		t.Fatal("the collector told no metrics")
	}
	return out
}
