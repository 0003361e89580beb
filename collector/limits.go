package collector

import (
	"time"

	"aep-wrap/event"
)

// Limits bound what one endpoint spends on its clients. A zero member is its
// default.
type Limits struct {
	Body       int64 // bytes of a request body, after inflation
	BatchLines int   // events in one request
	Line       int   // bytes of one event
	Depth      int   // nesting of one event's JSON, up to event.MaxDepth
	InFlight   int64 // bytes of all request bodies being read at once
	From       int   // positions in one from
	Query      int   // bytes of a request's header, its query included

	Connections   int // open connections on network addresses
	Subscriptions int // of one socket
	Claims        int // sessions that one socket claims

	SessionEvents int   // replay depth of a session: events
	SessionBytes  int   // and bytes
	Sessions      int   // sessions held
	HeldBytes     int   // bytes held over all sessions
	ReloadBytes   int64 // bytes read from session logs at the start

	QueueEvents int // events that wait for one live consumer
	QueueBytes  int // and bytes; beyond them it reads on from the replay buffers
	QueuedBytes int // bytes that wait for all of them

	Hello       time.Duration // until a socket's first frame
	Ping        time.Duration // between two pings on a socket
	Silence     time.Duration // how long a socket may be silent
	Probe       time.Duration // how long an older claim has to answer
	Heartbeat   time.Duration // between two comments on a quiet stream
	Stall       time.Duration // how long a consumer may take nothing
	BodyTimeout time.Duration // to read a request body
	Header      time.Duration // to read a request's header
	Idle        time.Duration // a kept-alive network connection without a request
	Drain       time.Duration // for open requests at the end
}

// DefaultLimits are the limits of an endpoint on a developer's machine.
func DefaultLimits() Limits {
	return Limits{
		Body:       16 << 20,
		BatchLines: 10_000,
		Line:       8 << 20,
		Depth:      event.MaxDepth,
		InFlight:   64 << 20,
		From:       10_000,
		Query:      1 << 20,

		Connections:   4096,
		Subscriptions: 256,
		Claims:        10_000,

		SessionEvents: 10_000,
		SessionBytes:  16 << 20,
		Sessions:      10_000,
		HeldBytes:     64 << 20,
		ReloadBytes:   16 << 20,

		QueueEvents: 1024,
		QueueBytes:  1 << 20,
		QueuedBytes: 64 << 20,

		Hello:       10 * time.Second,
		Ping:        30 * time.Second,
		Silence:     90 * time.Second,
		Probe:       2 * time.Second,
		Heartbeat:   20 * time.Second,
		Stall:       30 * time.Second,
		BodyTimeout: 30 * time.Second,
		Header:      10 * time.Second,
		Idle:        2 * time.Minute,
		Drain:       4 * time.Second,
	}
}

func or[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// withDefaults fills the members that are zero.
func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	or(&l.Body, d.Body)
	or(&l.BatchLines, d.BatchLines)
	or(&l.Line, d.Line)
	or(&l.Depth, d.Depth)
	or(&l.InFlight, d.InFlight)
	or(&l.From, d.From)
	or(&l.Query, d.Query)
	or(&l.Connections, d.Connections)
	or(&l.Subscriptions, d.Subscriptions)
	or(&l.Claims, d.Claims)
	or(&l.Hello, d.Hello)
	or(&l.Ping, d.Ping)
	or(&l.Silence, d.Silence)
	or(&l.Probe, d.Probe)
	or(&l.SessionEvents, d.SessionEvents)
	or(&l.SessionBytes, d.SessionBytes)
	or(&l.Sessions, d.Sessions)
	or(&l.HeldBytes, d.HeldBytes)
	or(&l.ReloadBytes, d.ReloadBytes)
	or(&l.QueueEvents, d.QueueEvents)
	or(&l.QueueBytes, d.QueueBytes)
	or(&l.QueuedBytes, d.QueuedBytes)
	or(&l.Heartbeat, d.Heartbeat)
	or(&l.Stall, d.Stall)
	or(&l.BodyTimeout, d.BodyTimeout)
	or(&l.Header, d.Header)
	or(&l.Idle, d.Idle)
	or(&l.Drain, d.Drain)
	return l
}
