package collector

import (
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metric is one figure, read when it is asked for: counting costs the road no
// more than an addition.
type metric struct {
	*prometheus.Desc
	kind   prometheus.ValueType
	labels []string
	value  func() float64
}

// gauges tells Prometheus what the endpoint counts.
type gauges struct {
	c        *Collector
	metrics  []metric
	findings *prometheus.Desc
}

func (c *Collector) metrics() http.HandlerFunc {
	g := &gauges{c: c}
	add := func(kind prometheus.ValueType, name, help string, value func() float64, labels ...string) {
		var names, values []string
		for i := 0; i < len(labels); i += 2 {
			names, values = append(names, labels[i]), append(values, labels[i+1])
		}
		g.metrics = append(g.metrics, metric{prometheus.NewDesc("aep_collector_"+name, help, names, nil), kind, values, value})
	}
	count := func(v interface{ Load() int64 }) func() float64 { return func() float64 { return float64(v.Load()) } }
	held := func(f func(h *hub) int) func() float64 {
		return func() float64 {
			c.hub.mu.Lock()
			defer c.hub.mu.Unlock()
			return float64(f(c.hub))
		}
	}
	const counter, gauge = prometheus.CounterValue, prometheus.GaugeValue
	n := &c.hub.counts
	add(counter, "events_received_total", "Events taken in.", count(&n.posted), "binding", "post")
	add(counter, "events_received_total", "Events taken in.", func() float64 { return float64(n.received.Load() - n.posted.Load()) }, "binding", "socket")
	add(counter, "refused_total", "Requests, frames and events that were refused.", count(&n.refused))
	add(counter, "events_dropped_total", "Debug and info events that a slow consumer missed.", count(&n.dropped))
	add(counter, "consumers_cut_total", "Streams that were ended because their consumer was too slow.", count(&n.cut))
	add(counter, "events_unchecked_total", "Events whose payload there was no time to look at.", count(&c.look.passed))
	for _, v := range []string{commandRouted, commandUnauthorized, commandUnsupported, commandAmbiguous, commandNoRoute, commandBusy} {
		add(counter, "commands_total", "Commands, by what became of them.", count(c.claims.outcome(v)), "outcome", v)
	}
	if n := c.notify; n != nil {
		for outcome, v := range map[string]*atomic.Int64{"sent": &n.sent, "failed": &n.failed, "dropped": &n.dropped} {
			add(counter, "notifications_total", "Calls to people, by what became of them.", count(v), "outcome", outcome)
		}
	}
	add(gauge, "sessions_held", "Sessions in the replay buffers.", held(func(h *hub) int { return len(h.store.sessions) }))
	add(gauge, "events_held", "Events in the replay buffers.", held(func(h *hub) int { return h.store.events }))
	add(gauge, "bytes_held", "Bytes in the replay buffers.", held(func(h *hub) int { return h.store.bytes }))
	add(gauge, "subscriptions", "Open subscriptions, on every binding.", held(func(h *hub) int { return len(h.consumers) }))
	add(gauge, "sockets", "Open WebSocket connections.", func() float64 { return float64(c.open.count()) })
	add(gauge, "claims", "Sessions that emitters on the socket claim.", func() float64 { return float64(c.claims.count()) })
	add(gauge, "uptime_seconds", "How long the endpoint runs.", func() float64 { return time.Since(c.started).Seconds() })
	g.findings = prometheus.NewDesc("aep_collector_findings_total", "What was odd about events that were taken in all the same.", []string{"rule"}, nil)

	r := prometheus.NewRegistry()
	r.MustRegister(g, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP
}

func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for _, m := range g.metrics {
		to <- m.Desc
	}
	to <- g.findings
}

func (g *gauges) Collect(to chan<- prometheus.Metric) {
	for _, m := range g.metrics {
		to <- prometheus.MustNewConstMetric(m.Desc, m.kind, m.value(), m.labels...)
	}
	g.c.look.mu.Lock()
	defer g.c.look.mu.Unlock()
	for rule, n := range g.c.look.findings {
		to <- prometheus.MustNewConstMetric(g.findings, prometheus.CounterValue, float64(n), rule)
	}
}
