package control

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"aep-wrap/event"
)

// Link is a connection on which commands go out, and on which the events of
// the addressed session, and error frames, come in. Receive returns when ctx
// ends.
type Link interface {
	Send(ctx context.Context, line []byte) error
	Receive(ctx context.Context) (Message, error)
}

// Message is one thing that came in: an event or a refusal. Neither is
// something else, to be passed over.
type Message struct {
	Event   *event.Event
	Refusal *Refusal
}

// SenderConfig says how a command is followed.
type SenderConfig struct {
	Window time.Duration // the target's ack_window_ms; DefaultWindow
	Retry  time.Duration // silence after which the same command is sent again; a quarter of Window
	Follow bool          // on to the outcome
	Wait   time.Duration // for how long after the ack an outcome is waited for; 0 is without end
	Source string        // of the addressed session, where it is known: other sources' acks are not the target's
	Clock  Clock         // for Run
}

// Status is how a command stands.
type Status int

// The statuses. All but Open are final.
const (
	Open        Status = iota // neither ack nor outcome yet
	Accepted                  // and, with Follow, the outcome that it asked for was seen
	Rejected                  // by the target, or by a relay's error frame
	TimedOut                  // no ack within the window: as a rejection with reason timeout (AEP-0004 §3)
	Failed                    // accepted, and another outcome than the one asked for was seen
	Outstanding               // accepted, and no outcome within Wait
)

// Exit codes of a command that sends a command.
const (
	ExitAccepted = 0
	ExitUsage    = 2
	ExitRefused  = 3
	ExitTimeout  = 4
)

// Result is what came of a command.
type Result struct {
	Status  Status
	Reason  string       // of Rejected: a reason of AEP-0004 §3 or an error frame's code; "timeout" of TimedOut
	Detail  string       // for people
	Ack     *event.Event // nil where a frame or silence settled it
	Outcome *event.Event // the last event that was taken for the outcome
}

// ExitCode maps a result to 0 accepted, 3 refused, 4 timeout.
func (r Result) ExitCode() int {
	switch r.Status {
	case Accepted:
		return ExitAccepted
	case Rejected, Failed:
		return ExitRefused
	}
	return ExitTimeout
}

// String says what came of the command, for people.
func (r Result) String() string {
	with := func(s string) string {
		if r.Detail != "" {
			return s + ": " + r.Detail
		}
		return s
	}
	switch r.Status {
	case Accepted:
		return with("accepted")
	case Rejected:
		return with("refused (" + r.Reason + ")")
	case Failed:
		return with("accepted, but it did not come to it")
	case Outstanding:
		return "accepted, with no outcome yet"
	case TimedOut:
		return with("no answer (timeout)")
	}
	return "waiting"
}

// Sender follows one command from its sending to its ack, and on to its
// outcome (AEP-0004 §6). It is a state machine: it is told what came in and
// what time it is, and says when to send and when to look again. Run is the
// loop around it. It belongs to one goroutine.
type Sender struct {
	c    SenderConfig
	cmd  event.Event
	line []byte
	want outcome

	first, last time.Time // of sending
	moved       bool      // it was sent on a connection that is no more
	away        bool      // and on this one the target is not back yet
	ackedAt     time.Time
	step        bool // an outcome's first part was seen
	res         Result
}

// NewSender makes the sender of a command.
func NewSender(cmd event.Event, c SenderConfig) *Sender {
	if c.Window <= 0 {
		c.Window = DefaultWindow
	}
	if c.Retry <= 0 {
		c.Retry = c.Window / 4
	}
	s := &Sender{c: c, cmd: cmd, line: cmd.AppendJSON(nil), want: cited}
	for typ, w := range outcomes {
		if cmd.Type == typ {
			s.want = w
		}
	}
	if isInstruct(cmd.Type) {
		s.want = instructed
	}
	return s
}

// Line is the command on the wire: the same bytes each time.
func (s *Sender) Line() []byte { return s.line }

// Result is how the command stands.
func (s *Sender) Result() Result { return s.res }

// Next says whether the command is to be sent now, and when to ask again. A
// zero time is: only when something came in. With a final status there is
// nothing more to do.
func (s *Sender) Next(now time.Time) (send bool, again time.Time) {
	switch {
	case s.res.Status != Open:
		return false, time.Time{}
	case s.res.Ack != nil:
		if s.c.Wait <= 0 {
			return false, time.Time{}
		}
		end := s.ackedAt.Add(s.c.Wait)
		if !now.Before(end) {
			s.res.Status = Outstanding
			return false, time.Time{}
		}
		return false, end
	case s.first.IsZero():
		s.first, s.last = now, now
		send = true
	case !now.Before(s.first.Add(s.c.Window)):
		if s.res.Outcome != nil { // it was heard: the outcome cites it
			s.finish(Accepted, "")
			return false, time.Time{}
		}
		s.res.Status, s.res.Reason = TimedOut, "timeout"
		return false, time.Time{}
	case now.Sub(s.last) >= s.retry():
		s.last, send = now, true
	}
	again = s.last.Add(s.retry())
	if end := s.first.Add(s.c.Window); end.Before(again) {
		again = end
	}
	return send, again
}

// soon is how long a target is given, each time, to be back at a relay that we
// are back at.
const soon = 500 * time.Millisecond

func (s *Sender) retry() time.Duration {
	if s.away {
		return min(s.c.Retry, soon)
	}
	return s.c.Retry
}

// Reconnected says that the link is a new one: a command without its ack is
// sent once more.
func (s *Sender) Reconnected() { s.last, s.moved, s.away = time.Time{}, !s.first.IsZero(), false }

// Refusal takes an error frame. Whatever its code, it refuses the command of
// its cause: but where the link is a new one, a relay that has no way to the
// session says nothing of what became of the command on the old one, and the
// target may only not be back yet. It is asked again until the window is over.
func (s *Sender) Refusal(r *Refusal) {
	switch {
	case r.Cause != s.cmd.ID || s.res.Status != Open || s.res.Ack != nil:
	case s.moved && r.Code == NoRoute:
		s.away, s.res.Detail = true, "the connection was lost, and is back, but "+cmp.Or(r.Detail, "nobody there has this session")
	default:
		s.res.Status, s.res.Reason, s.res.Detail = Rejected, r.Code, r.Detail
	}
}

// Event takes an event that came in.
func (s *Sender) Event(e *event.Event, now time.Time) {
	if s.res.Status != Open || e.Session != s.cmd.Session || s.c.Source != "" && e.Sequenced && e.Source != s.c.Source {
		return
	}
	if isAck(e.Type) {
		if e.Cause == s.cmd.ID && s.res.Ack == nil {
			s.ack(e, now)
		}
		return
	}
	if !e.Sequenced {
		return
	}
	cites := e.Cause == s.cmd.ID || s.res.Ack != nil && e.Cause == s.res.Ack.ID
	switch verdict, detail := s.want(s, e, cites); verdict {
	case Accepted, Failed:
		if !s.c.Follow && s.res.Ack == nil {
			s.res.Outcome = keep(e) // the ack was lost on the way
			return
		}
		if s.c.Follow {
			s.res.Outcome = keep(e)
			s.finish(verdict, detail)
		}
	case Open:
	}
}

func (s *Sender) finish(st Status, detail string) { s.res.Status, s.res.Detail = st, detail }

func (s *Sender) ack(e *event.Event, now time.Time) {
	s.res.Ack, s.ackedAt, s.res.Detail = keep(e), now, ""
	if e.Type == "control.rejected" {
		data, _ := event.ParseObject(e.Data)
		s.res.Status = Rejected
		s.res.Reason, _ = data["reason"].(string)
		s.res.Detail, _ = data["detail"].(string)
		return
	}
	if !s.c.Follow {
		s.res.Status = Accepted
	}
}

func keep(e *event.Event) *event.Event { c := *e; return &c }

// outcome judges an event: Accepted is what the command asked for, Failed what
// shows that it will not come, Open says nothing. cites says whether the event
// names the command, or its ack, as its cause.
type outcome func(s *Sender, e *event.Event, cites bool) (Status, string)

// outcomes are those of the core commands (AEP-0004 §5).
var outcomes = map[string]outcome{
	Respond: func(s *Sender, e *event.Event, _ bool) (Status, string) {
		if e.Subject != s.cmd.Subject {
			return Open, ""
		}
		switch e.Type {
		case "attention.answered":
			s.step = e.Cause == s.cmd.ID || s.res.Ack != nil && e.Cause == s.res.Ack.ID
		case "attention.resolved":
			data, _ := event.ParseObject(e.Data)
			how, _ := data["resolution"].(string)
			if s.step && how == "answered" {
				return Accepted, "answered"
			}
			return Failed, "the request was resolved otherwise (" + how + ")"
		case "attention.timeout":
			return Failed, "the request timed out"
		}
		return Open, ""
	},
	Cancel: func(s *Sender, e *event.Event, cites bool) (Status, string) {
		data, _ := event.ParseObject(s.cmd.Data)
		if data["scope"] == "session" {
			switch {
			case e.Type == "session.ended", e.Type == "x.aep-wrap.session.exited":
				return Accepted, "the session ended"
			case cites && e.Type == "error.raised":
				return failure(e)
			}
			return Open, ""
		}
		switch of := cites || s.cmd.Run != "" && e.Run == s.cmd.Run; {
		case e.Type == "run.cancelled" && of:
			return Accepted, "the run was cancelled"
		case (e.Type == "run.finished" || e.Type == "run.failed") && of:
			return Failed, "the run ended otherwise (" + strings.TrimPrefix(e.Type, "run.") + ")"
		case cites && e.Type == "error.raised":
			return failure(e)
		case e.Type == "session.ended":
			return Failed, "the session ended"
		}
		return Open, ""
	},
	Pause:  phase("paused"),
	Resume: phase("resumed"),
}

func phase(want string) outcome {
	return func(_ *Sender, e *event.Event, cites bool) (Status, string) {
		data, _ := event.ParseObject(e.Data)
		switch {
		case cites && e.Type == "progress.status" && data["phase"] == want:
			return Accepted, want
		case cites && e.Type == "error.raised":
			return failure(e)
		case e.Type == "session.ended":
			return Failed, "the session ended"
		}
		return Open, ""
	}
}

func instructed(_ *Sender, e *event.Event, cites bool) (Status, string) {
	switch {
	case cites && strings.HasSuffix(e.Type, ".instruction.delivered"):
		return Accepted, "delivered"
	case cites && strings.HasSuffix(e.Type, ".instruction.dropped"):
		data, _ := event.ParseObject(e.Data)
		why, _ := data["reason"].(string)
		return Failed, "dropped (" + why + ")"
	case cites && e.Type == "error.raised":
		return failure(e)
	}
	return Open, ""
}

// cited is for commands that only their vendor knows: whatever cites them.
func cited(_ *Sender, e *event.Event, cites bool) (Status, string) {
	switch {
	case cites && e.Type == "error.raised":
		return failure(e)
	case cites:
		return Accepted, e.Type
	}
	return Open, ""
}

func failure(e *event.Event) (Status, string) {
	data, _ := event.ParseObject(e.Data)
	if m := str(data["error"], "message"); m != "" {
		return Failed, m
	}
	code, _ := data["code"].(string)
	return Failed, code
}

// ErrLink says that a link broke before the command was settled. The command
// may be sent on with another: Reconnected, then Run again.
var ErrLink = errors.New("the connection broke")

// Run sends the command and follows it until it is settled, ctx ends, or the
// link breaks. The link is subscribed to the session already.
func (s *Sender) Run(ctx context.Context, link Link) (Result, error) {
	ctx, cancel := context.WithCancel(ctx)
	type in struct {
		m   Message
		err error
	}
	incoming := make(chan in)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			m, err := link.Receive(ctx)
			select {
			case incoming <- in{m, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	defer func() { cancel(); <-ended }()
	for {
		send, again := s.Next(s.c.Clock.Now())
		if s.res.Status != Open {
			return s.res, nil
		}
		if send {
			if err := link.Send(ctx, s.line); err != nil {
				return s.res, broke(ctx, err)
			}
		}
		wake := make(chan struct{}, 1)
		stop := func() bool { return true }
		if !again.IsZero() {
			stop = s.c.Clock.After(again.Sub(s.c.Clock.Now()), func() { wake <- struct{}{} })
		}
		select {
		case x := <-incoming:
			stop()
			switch {
			case x.err != nil:
				return s.res, broke(ctx, x.err)
			case x.m.Refusal != nil:
				s.Refusal(x.m.Refusal)
			case x.m.Event != nil:
				s.Event(x.m.Event, s.c.Clock.Now())
			}
		case <-wake:
		case <-ctx.Done():
			stop()
			return s.res, ctx.Err()
		}
	}
}

func broke(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ErrLink, err)
}
