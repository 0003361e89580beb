package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"aep-wrap/adapters/all"
	"aep-wrap/collector/client"
	"aep-wrap/control"
	"aep-wrap/event"
	"aep-wrap/redaction"
)

// senderAgent is who the command line says it is, to whom it commands.
const senderAgent = "aep-wrap"

// exitCodes is what every command that commands says of its exit code.
const exitCodes = `The exit code is 0 when the command was accepted, 2 for a mistake on the command
line, 3 when it was refused, or there is no such session (the reason is on standard
error), 4 when nobody answered in time, and 1 when the collector cannot be reached.
Accepted means that the agent will try: --wait follows to what came of it, and then 0 is that it
came to what was asked, and 3 that it did not.`

// following is how far a command is followed.
type following struct {
	wait    bool
	timeout time.Duration
}

func (o *following) flags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.wait, "wait", false, "follow the command to what comes of it")
	fs.DurationVar(&o.timeout, "timeout", 0, "with --wait: for so long after the ack (0: without end)")
}

func (o *following) check() error {
	switch {
	case o.timeout < 0:
		return usageError("--timeout %v: want a time such as 30s, or 0 for without end", o.timeout)
	case o.timeout > 0 && !o.wait:
		return usageError("--timeout is how long --wait waits: write both")
	}
	return nil
}

// sessionArg is the checker of commands whose first word is a session.
func sessionArg(n int, words string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != n || slices.Contains(args, "") {
			return usageError("%s: want %s; see %s --help", cmd.Name(), words, cmd.CommandPath())
		}
		return nil
	}
}

// target is a session that commands go to, and the connection to it.
type target struct {
	app    *app
	socket *client.Socket
	name   string
	claim  *client.Claim // nil where nobody connected claims it
	roster []client.Claim
}

// target connects, and finds the session that a person meant.
func (a *app) target(ctx context.Context, name string) (*target, error) {
	s, err := a.socket(ctx)
	if err != nil {
		return nil, err
	}
	t := &target{app: a, socket: s}
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	if t.roster, err = s.Roster(ctx); err != nil {
		s.Close()
		return nil, a.explain(err)
	}
	if err := t.find(name); err != nil {
		s.Close()
		return nil, err
	}
	return t, nil
}

// find resolves a session's name among those that are claimed. A name that
// nobody claims is sent as it is: the collector, and not the roster of a moment
// ago, says whether it has a way to it.
func (t *target) find(name string) error {
	var names []string
	for _, c := range t.roster {
		names = append(names, c.Session)
	}
	found, err := control.Resolve(name, names)
	if many := (*control.AmbiguousError)(nil); errors.As(err, &many) {
		return t.app.ambiguous("session", name, many.Found, func(s string) string {
			for _, c := range t.roster {
				if c.Session == s {
					return c.Agent
				}
			}
			return ""
		})
	}
	t.name = name
	if err != nil {
		return nil
	}
	t.name = found
	for i, c := range t.roster {
		if c.Session == found {
			t.claim = &t.roster[i]
		}
	}
	return nil
}

// ambiguous lists what a beginning may mean.
func (a *app) ambiguous(what, prefix string, found []string, of func(string) string) error {
	list := make([]string, 0, len(found))
	for _, id := range found[:min(len(found), 8)] {
		if more := of(id); more != "" {
			list = append(list, visible(id)+" ("+visible(clip(more, 60))+")")
		} else {
			list = append(list, visible(id))
		}
	}
	if n := len(found) - len(list); n > 0 {
		list = append(list, fmt.Sprintf("and %d more", n))
	}
	return usageError("%q is the beginning of several %ss: %s; write more of it", prefix, what, strings.Join(list, ", "))
}

// from is our identity as a sender.
func from() control.From { return control.NewFrom(hostname(), senderAgent) }

// label says of a command that carries a person's words how much they say: what
// the redaction pipeline would change is labelled full. It is sent as it was
// written, for an agent could do nothing with less.
func (a *app) label(cmd event.Event) event.Event {
	if cmd.Capture != event.Redacted {
		return cmd
	}
	pipe := redaction.NewPipeline(redaction.Options{Home: a.paths.home, NoPII: a.cfg.NoPII, Secrets: redaction.ChildSecrets(a.Environ(), a.cfg.SecretEnv)})
	tree, err := event.ParseObject(cmd.Data)
	if err != nil || string(event.AppendValue(nil, pipe.Value(tree))) != string(event.AppendValue(nil, tree)) {
		cmd.Capture = event.Full
	}
	return cmd
}

// systemClock is the time of day, for a Sender.
var systemClock = control.Clock{Now: time.Now, After: func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }}

// send sends a command and follows it as far as it is to be. A connection that
// breaks is made again, and the same command sent again on it: a target that
// had it answers with the ack that it gave.
func (t *target) send(ctx context.Context, cmd event.Event, o following, source string) error {
	a := t.app
	defer func() { t.socket.Close() }()
	cmd = a.label(cmd)
	cfg := control.SenderConfig{Follow: o.wait, Wait: o.timeout, Source: source, Clock: systemClock}
	if t.claim != nil {
		cfg.Window = t.claim.Window()
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := t.subscribe(ctx, false); err != nil {
		return a.explain(err)
	}
	s := control.NewSender(cmd, cfg)
	for {
		res, err := s.Run(ctx, link{t.socket})
		switch {
		case err == nil:
			return a.report(ctx, cmd, res, t)
		case ctx.Err() != nil:
			_ = a.report(ctx, cmd, s.Result(), t)
			return &exitError{code: 130}
		case !errors.Is(err, control.ErrLink):
			return a.explain(err)
		}
		if !a.cfg.Quiet {
			a.warn("the connection is lost (%s); trying again", visible(err.Error()))
		}
		if !t.again(ctx, s) {
			return a.report(ctx, cmd, s.Result(), t)
		}
	}
}

// again makes the connection anew, as long as the command is not settled.
func (t *target) again(ctx context.Context, s *control.Sender) bool {
	t.socket.Close()
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		if s.Next(time.Now()); s.Result().Status != control.Open || ctx.Err() != nil {
			return false
		}
		socket, err := t.app.socket(ctx)
		if err == nil {
			old := t.socket
			t.socket = socket
			if err = t.subscribe(ctx, true); err == nil {
				s.Reconnected()
				return true
			}
			socket.Close()
			t.socket = old
		}
		_ = sleep(ctx, wait)
	}
}

// subscribe asks for what the session tells: ack and outcome are among it.
// After a break all that is held of it is asked for, so that an outcome that
// came meanwhile is seen.
func (t *target) subscribe(ctx context.Context, all bool) error {
	ctx, cancel := context.WithTimeout(ctx, dialWait)
	defer cancel()
	return t.socket.Subscribe(ctx, "session", map[string]any{"session": t.name}, all)
}

// link is a connection as a Sender sees it.
type link struct{ *client.Socket }

func (l link) Receive(ctx context.Context) (control.Message, error) {
	f, err := l.Socket.Receive(ctx)
	m := control.Message{Event: f.Event}
	if e := f.Error; e != nil {
		m.Refusal = &control.Refusal{Cause: e.Cause, Code: e.Code, Detail: e.Detail}
	}
	return m, err
}

// outcomeRecord is a result as --json tells it.
type outcomeRecord struct {
	Command string `json:"command"` // its id
	Type    string `json:"type"`
	Session string `json:"session"`
	Subject string `json:"subject,omitempty"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Detail  string `json:"detail,omitempty"`
	Ack     string `json:"ack,omitempty"`
	Outcome string `json:"outcome,omitempty"` // the type of what came of it
	// Known is what is known of a session to which there is no way: unknown,
	// ended, gone, watched or away.
	Known string `json:"session_state,omitempty"`
	Exit  int    `json:"exit"`
}

var statusWords = map[control.Status]string{
	control.Open: "unsettled", control.Accepted: "accepted", control.Rejected: "refused",
	control.TimedOut: "timeout", control.Failed: "failed", control.Outstanding: "outstanding",
}

// report tells what came of a command, and gives its exit code.
func (a *app) report(ctx context.Context, cmd event.Event, r control.Result, t *target) error {
	known, why := "", ""
	if r.Status == control.Rejected && r.Reason == control.NoRoute && t.claim == nil {
		known, why = t.whereabouts(ctx)
	}
	if a.cfg.JSON {
		o := outcomeRecord{Command: cmd.ID, Type: cmd.Type, Session: cmd.Session, Subject: cmd.Subject,
			Status: statusWords[r.Status], Reason: r.Reason, Detail: r.Detail, Known: known, Exit: r.ExitCode()}
		if r.Ack != nil {
			o.Ack = r.Ack.ID
		}
		if r.Outcome != nil {
			o.Outcome = r.Outcome.Type
		}
		if err := a.encoder().Encode(o); err != nil {
			return err
		}
	}
	if r.Status == control.Accepted {
		if !a.cfg.JSON && !a.cfg.Quiet {
			fmt.Fprintln(a.Stdout, visible(r.String()))
		}
		return nil
	}
	words := cmp.Or(why, r.String()+hint(cmd, r, t))
	return &exitError{code: r.ExitCode(), err: errors.New(words)}
}

// hint says what to do about a refusal, where that is known.
func hint(cmd event.Event, r control.Result, t *target) string {
	switch {
	case r.Status != control.Rejected:
		return ""
	case r.Reason == control.Unsupported && strings.HasSuffix(cmd.Type, ".control.instruct"):
		if t.claim != nil {
			if ad, known := all.Find(t.claim.Agent); known && ad.Instruct == nil {
				return "; there is no way to hand " + visible(t.claim.Agent) + " a text (docs/agents.md)"
			}
		}
		return "; an agent takes instructions when it was started with --allow instruct"
	case r.Reason == control.Unsupported && t.claim != nil:
		if accepts := t.claim.Accepts(); len(accepts) > 0 {
			return "; it accepts " + strings.Join(accepts, ", ")
		}
		return "; it accepts no commands"
	case cmd.Type == control.Cancel && text(cmd.Data, "scope") == "run":
		return "; --scope session ends the agent itself"
	}
	return ""
}

// words gives a person's words: as written, or, for -, from standard input.
func (a *app) words(flag, v string) (string, error) {
	if v != "-" {
		return v, nil
	}
	b, err := io.ReadAll(io.LimitReader(bufio.NewReader(a.Stdin), 1<<20))
	if err != nil {
		return "", fmt.Errorf("%s -: %w", flag, err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}
