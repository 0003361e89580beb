package main

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"aep-wrap/agent"
	"aep-wrap/agent/follow"
	"aep-wrap/queue"
	"aep-wrap/queue/post"
	"aep-wrap/queue/ws"
)

// figures are what the rooms counted, at one moment.
type figures struct {
	now        time.Time
	watch      agent.WatchStats
	tally      agent.Tally
	redactions map[string]int64
	logs       *follow.Stats // nil where none are followed
	ways       []way
	pruned     *pruneTally
	draining   bool
	notAlone   bool
}

// way is a way to the collector: POST, or the socket of an agent's sessions,
// which go by POST too while there is no socket.
type way struct {
	kind, agent string // post or socket; "" for POST
	by          string // which of them it is now; "" is neither until something is changed
	queue       queue.Stats
	waiting     time.Duration
	state       string
	since       time.Time
	word        string // why nothing gets through; "" where all is well
	noSocket    string // why it is by POST
	events      int64
	bytes       int64
	attempts    int64
	failed      int64
	class       string           // of the last failure; "" is none yet
	refused     map[string]int64 // by reason
}

// What can carry events.
const (
	byPost   = "post"
	bySocket = "socket"
)

// The states of a way, all of which are told: the one of now is 1.
var wayStates = map[string][]string{
	byPost:   {string(post.Idle), string(post.Retrying), string(post.Stopped)},
	bySocket: {string(ws.Connecting), string(ws.Connected), string(ws.Posting), string(ws.Retrying), string(ws.Stopped)},
}

// series is one metric of /metrics. Its labels have few values: no session's
// name, no path, no word of a runtime's is one.
type series struct {
	name   string // after aep_wrap_
	kind   prometheus.ValueType
	labels []string
	help   string
	read   func(f *figures, tell func(v float64, labels ...string))
}

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// ofWays tells a figure of each way to the collector.
func ofWays(v func(*way) float64) func(*figures, func(float64, ...string)) {
	return func(f *figures, tell func(float64, ...string)) {
		for i := range f.ways {
			w := &f.ways[i]
			tell(v(w), w.kind, w.agent)
		}
	}
}

// one tells a figure without labels.
func one(v func(*figures) float64) func(*figures, func(float64, ...string)) {
	return func(f *figures, tell func(float64, ...string)) { tell(v(f)) }
}

// ofLogs tells a figure of the logs that are followed, where some are.
func ofLogs(v func(*follow.Stats) float64) func(*figures, func(float64, ...string)) {
	return func(f *figures, tell func(float64, ...string)) {
		if f.logs != nil {
			tell(v(f.logs))
		}
	}
}

var wayLabels = []string{"sink", "agent"}

// metricTable is /metrics of serve. docs/metrics.md is made of it.
var metricTable = []series{
	{"events_total", counter, []string{"category", "severity"}, "Events told, by the first word of their type; x is what vendors call their own.",
		func(f *figures, tell func(float64, ...string)) {
			for k, n := range f.tally.Events {
				tell(float64(n), k.Category, k.Severity.String())
			}
		}},
	{"events_unsealed_total", counter, nil, "Events that could not be told: a fault of ours, and in the log of aep-wrap.",
		one(func(f *figures) float64 { return float64(f.watch.Failed) })},
	{"hooks_total", counter, []string{"adapter"}, "Hooks taken.",
		func(f *figures, tell func(float64, ...string)) {
			for k, n := range f.tally.Hooks {
				tell(float64(n), k)
			}
		}},
	{"hooks_cut_total", counter, nil, "Of them, those of more than 1 MiB, of whose long strings the length is told.",
		one(func(f *figures) float64 { return float64(f.watch.Cut) })},
	{"inputs_refused_total", counter, []string{"channel", "reason"}, "Hooks and records that could not be read.",
		func(f *figures, tell func(float64, ...string)) {
			for k, n := range f.tally.Refused {
				tell(float64(n), string(k.Channel), k.Reason)
			}
		}},
	{"channel_silence_seconds", gauge, []string{"adapter", "channel"}, "How long nothing came by a channel that spoke since the start.",
		func(f *figures, tell func(float64, ...string)) {
			for k, at := range f.tally.Spoke {
				tell(max(0, f.now.Sub(at).Seconds()), k.Adapter, string(k.Channel))
			}
		}},
	{"redactions_total", counter, []string{"rule"}, "Places where a redaction rule hid something (aep-wrap redact --rules lists them).",
		func(f *figures, tell func(float64, ...string)) {
			for k, n := range f.redactions {
				tell(float64(n), k)
			}
		}},
	{"requests_total", counter, []string{"outcome"}, "Questions of agents: requested, and how they ended: answered, dismissed or timeout.",
		func(f *figures, tell func(float64, ...string)) {
			for k, n := range f.tally.Requests {
				tell(float64(n), k)
			}
		}},
	{"holds", gauge, nil, "Hooks that wait for an answer from afar now.",
		one(func(f *figures) float64 { return float64(f.watch.Held) })},
	{"commands_total", counter, []string{"verb", "outcome"}, "Commands that came, by what they were answered: accepted, or why not.",
		func(f *figures, tell func(float64, ...string)) {
			for k, n := range f.tally.Commands {
				tell(float64(n), k.Verb, k.Outcome)
			}
		}},
	{"sessions", gauge, nil, "Sessions whose log is open here.",
		one(func(f *figures) float64 { return float64(f.watch.Live) })},
	{"sessions_left_total", counter, nil, "Times that a session was left to the wrapper that runs it.",
		one(func(f *figures) float64 { return float64(f.watch.Owned) })},
	{"draining", gauge, nil, "1 from the signal to end on.",
		one(func(f *figures) float64 { return truth(f.draining) })},

	{"log_dir_contested", gauge, nil, "1 while another serve writes session logs in the same directory.",
		one(func(f *figures) float64 { return truth(f.notAlone) })},

	{"prune_logs_total", counter, nil, "Session logs that were removed for their age, or for the size of all.", one(func(f *figures) float64 { return float64(f.pruned.logs.Load()) })},
	{"prune_bytes_total", counter, nil, "Bytes of them.", one(func(f *figures) float64 { return float64(f.pruned.bytes.Load()) })},
	{"prune_hooks_total", counter, nil, "Archived hooks that were removed.", one(func(f *figures) float64 { return float64(f.pruned.hooks.Load()) })},
	{"prune_kept_unsent", gauge, nil, "Session logs beyond the limits that are kept, since the collector has not taken all of them.",
		one(func(f *figures) float64 { return float64(f.pruned.unsent.Load()) })},

	{"follow_files", gauge, nil, "Session logs that are followed.", ofLogs(func(s *follow.Stats) float64 { return float64(s.Files) })},
	{"follow_directories", gauge, nil, "Directories that are looked through.", ofLogs(func(s *follow.Stats) float64 { return float64(s.Dirs) })},
	{"follow_directories_polled", gauge, nil, "Of them, those whose file system announces nothing.", ofLogs(func(s *follow.Stats) float64 { return float64(s.Polled) })},
	{"follow_files_behind", gauge, nil, "Session logs with something unread.", ofLogs(func(s *follow.Stats) float64 { return float64(s.Behind) })},
	{"follow_lag_seconds", gauge, nil, "How long the oldest of it waits.", ofLogs(func(s *follow.Stats) float64 { return s.Lag.Seconds() })},
	{"follow_unread_bytes", gauge, nil, "Bytes of it, as they stand in the files.", ofLogs(func(s *follow.Stats) float64 { return float64(s.Unread) })},
	{"follow_records_total", counter, nil, "Records of session logs that were read.", ofLogs(func(s *follow.Stats) float64 { return float64(s.Records) })},
	{"follow_bytes_total", counter, nil, "Bytes of session logs that were read.", ofLogs(func(s *follow.Stats) float64 { return float64(s.Bytes) })},
	{"follow_faults_total", counter, nil, "Records that were none.", ofLogs(func(s *follow.Stats) float64 { return float64(s.Faults) })},
	{"follow_strings_cut_total", counter, nil, "Strings of more than 64 KiB, of which the length is told.", ofLogs(func(s *follow.Stats) float64 { return float64(s.Cut) })},
	{"follow_logs_unknown_total", counter, nil, "Logs of a layout that no adapter knows.",
		one(func(f *figures) float64 { return float64(f.watch.Unknown) })},

	{"queue_events_total", counter, wayLabels, "Events on their way out.", ofWays(func(w *way) float64 { return float64(w.queue.Offered) })},
	{"queue_events", gauge, wayLabels, "Events that wait in memory.", ofWays(func(w *way) float64 { return float64(w.queue.Events + w.queue.LooseEvents) })},
	{"queue_bytes", gauge, wayLabels, "Bytes that wait in memory.", ofWays(func(w *way) float64 { return float64(w.queue.Bytes + w.queue.LooseBytes) })},
	{"queue_behind_bytes", gauge, wayLabels, "Bytes that wait in the session logs alone.", ofWays(func(w *way) float64 { return float64(w.queue.BehindBytes) })},
	{"queue_behind_sessions", gauge, wayLabels, "Session logs of earlier processes that are not sent to their end.", ofWays(func(w *way) float64 { return float64(w.queue.BehindOwners) })},
	{"queue_age_seconds", gauge, wayLabels, "How long what waits has waited without the collector taking anything; 0 where nothing waits.",
		ofWays(func(w *way) float64 { return w.waiting.Seconds() })},
	{"events_shed_total", counter, []string{"sink", "agent", "severity", "reason"}, "Events that never reach the collector; what a session log holds still stands there.",
		func(f *figures, tell func(float64, ...string)) {
			for i := range f.ways {
				for k, n := range f.ways[i].queue.Dropped {
					tell(float64(n), f.ways[i].kind, f.ways[i].agent, k.Severity.String(), k.Reason)
				}
			}
		}},
	{"sink_events_total", counter, wayLabels, "Events that the collector took.", ofWays(func(w *way) float64 { return float64(w.events) })},
	{"sink_bytes_total", counter, wayLabels, "Bytes of them, as sent.", ofWays(func(w *way) float64 { return float64(w.bytes) })},
	{"sink_attempts_total", counter, wayLabels, "Requests, or tries to connect.", ofWays(func(w *way) float64 { return float64(w.attempts) })},
	{"sink_failures_total", counter, wayLabels, "Of them, those that came to nothing.", ofWays(func(w *way) float64 { return float64(w.failed) })},
	{"sink_refused_total", counter, []string{"sink", "agent", "reason"}, "Events that the collector will not have.",
		func(f *figures, tell func(float64, ...string)) {
			for i := range f.ways {
				for k, n := range f.ways[i].refused {
					tell(float64(n), f.ways[i].kind, f.ways[i].agent, k)
				}
			}
		}},
	{"sink_last_failure", gauge, []string{"sink", "agent", "class"}, "1 for the class of the last failure of a way to the collector, also where it works again, 0 for the others.",
		func(f *figures, tell func(float64, ...string)) {
			for i := range f.ways {
				w := &f.ways[i]
				for _, class := range queue.Classes {
					tell(truth(class == w.class), w.kind, w.agent, class)
				}
			}
		}},
	{"sink_state", gauge, []string{"sink", "agent", "state"}, "1 for the state that a way to the collector is in, 0 for the others.",
		func(f *figures, tell func(float64, ...string)) {
			for i := range f.ways {
				w := &f.ways[i]
				for _, state := range wayStates[w.kind] {
					tell(truth(state == w.state), w.kind, w.agent, state)
				}
			}
		}},
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// The histograms, which are told of each hook as it ends.
const (
	hookSeconds     = "aep_wrap_hook_duration_seconds"
	hookSecondsHelp = "How long hooks kept their agents waiting that nobody was asked about."
	heldSeconds     = "aep_wrap_hook_held_seconds"
	heldSecondsHelp = "How long hooks were held for an answer from afar."
)

// metrics is /metrics of a serve.
type metrics struct {
	read       func() figures
	descs      []*prometheus.Desc
	took, held *prometheus.HistogramVec
	registry   *prometheus.Registry
}

// newMetrics makes the metrics of what read gives, which is asked at each
// scrape.
func newMetrics(read func() figures) *metrics {
	m := &metrics{read: read, registry: prometheus.NewRegistry()}
	for _, s := range metricTable {
		m.descs = append(m.descs, prometheus.NewDesc("aep_wrap_"+s.name, s.help, s.labels, nil))
	}
	m.took = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: hookSeconds, Help: hookSecondsHelp,
		Buckets: []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, 1}}, []string{"adapter"})
	m.held = prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: heldSeconds, Help: heldSecondsHelp,
		Buckets: []float64{.5, 1, 2, 5, 10, 30, 60, 300, 900, 3600}}, []string{"adapter"})
	m.registry.MustRegister(m, m.took, m.held, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "aep_wrap_build_info", Help: "1; its label is the version.",
			ConstLabels: prometheus.Labels{"version": readBuildInfo().Version}}, func() float64 { return 1 }))
	return m
}

// hook notes how long a hook took.
func (m *metrics) hook(adapter string, held bool, d time.Duration) {
	h := m.took
	if held {
		h = m.held
	}
	h.WithLabelValues(adapter).Observe(d.Seconds())
}

func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// Describe tells what Collect gives.
func (m *metrics) Describe(to chan<- *prometheus.Desc) {
	for _, d := range m.descs {
		to <- d
	}
}

// Collect reads what was counted up to now.
func (m *metrics) Collect(to chan<- prometheus.Metric) {
	f := m.read()
	for i, s := range metricTable {
		s.read(&f, func(v float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(m.descs[i], s.kind, v, labels...)
		})
	}
}

// figures are those of now.
func (s *serving) figures() figures {
	f := s.watching.figures()
	f.draining, f.notAlone, f.pruned = s.draining.Load(), s.other.Load() != nil, &s.pruned
	return f
}

// figures are those of now.
func (w *watching) figures() figures {
	f := figures{now: time.Now(), watch: w.hub.Stats(), tally: w.hub.Tally(), redactions: w.gate.Redactions(), ways: w.out.ways()}
	if w.logs != nil {
		s := w.logs.Stats()
		f.logs = &s
	}
	return f
}

// ways are the ways to the collector.
func (s *watchSinks) ways() (out []way) {
	if s.post == nil {
		return nil
	}
	p := s.post.Stats()
	w := way{kind: byPost, by: byPost, queue: s.post.feed.Stats(), waiting: s.post.feed.Waiting(), state: string(p.State), since: p.Since, word: p.Word, events: p.Events,
		bytes: p.Bytes, attempts: p.Attempts, failed: p.Retries, class: p.Class, refused: refusals(p.Refused, p.TooLarge)}
	if p.State == post.Stopped {
		w.by = ""
	}
	out = append(out, w)
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, x := range s.socket {
		if x != nil {
			out = append(out, x.way(name))
		}
	}
	return out
}

func refusals(invalid, large int64) map[string]int64 {
	return map[string]int64{post.ReasonRefused: invalid, post.ReasonTooLarge: large}
}
