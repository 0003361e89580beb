package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"aep-wrap/adapters"
	"aep-wrap/control"
)

// How long each means of ending something is given to work.
const (
	actPatience   = 2 * time.Second // of an adapter's act that names none
	askPatience   = 3 * time.Second // of a signal that asks a run to end
	wholeGrace    = 5 * time.Second // of a signal that asks the agent to end, before SIGKILL
	wholePatience = 30 * time.Second
	standPatience = 2 * time.Second // until a tree stands still, or goes on
	exitPatience  = 3 * time.Second // of a process whose run was cancelled
	lookEvery     = 20 * time.Millisecond
)

// Effects carries out what accepted commands ask for: the other end of a
// control.Dispatcher's Do.
type Effects struct {
	Control *control.Dispatcher
	// Cancel is the adapter's; nil is a runtime without means of its own.
	Cancel func(adapters.Target) []adapters.Act
	// Request asks the runtime's server; nil where it has none.
	Request func(context.Context, adapters.Request) error
	Log     *slog.Logger

	process atomic.Pointer[Process]
}

// Started says which process the effects are on. Before, nothing can be done.
func (x *Effects) Started(p *Process) { x.process.Store(p) }

// Do begins an effect, and tells the dispatcher at its end.
func (x *Effects) Do(e control.Effect) {
	do := effects[e.Type]
	if do == nil { // an instruction waits for the runtime's next hook
		return
	}
	go func() {
		err := x.run(do, e)
		if err != nil {
			x.Log.Warn("a command could not be carried out", "type", e.Type, "session", e.Session, "err", err)
		}
		x.Control.Done(e, err)
	}()
}

func (x *Effects) run(do func(*Effects, *Process, control.Effect) error, e control.Effect) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a fault in aep-wrap: %v", p)
		}
	}()
	p := x.process.Load()
	if p == nil {
		return errors.New("the agent has not started yet")
	}
	return do(x, p, e)
}

var effects = map[string]func(*Effects, *Process, control.Effect) error{
	control.Pause:  func(_ *Effects, p *Process, _ control.Effect) error { return p.standStill() },
	control.Resume: func(_ *Effects, p *Process, _ control.Effect) error { return p.goOn() },
	control.Cancel: (*Effects).cancel,
}

// standStill pauses the whole tree, and looks whether it does stand still. One
// of which a part runs on is let go on whole.
func (p *Process) standStill() error {
	if err := p.Pause(); err != nil {
		return err
	}
	deadline := time.Now().Add(standPatience)
	for {
		left := slices.DeleteFunc(p.tree(), func(q Proc) bool { return q.stopped() })
		switch {
		case len(left) == 0 && p.ownEnded():
			return ErrEnded
		case len(left) == 0:
			return nil
		case time.Now().After(deadline):
			_ = p.Resume()
			return fmt.Errorf("%d of the agent's processes did not stop", len(left))
		}
		time.Sleep(lookEvery)
	}
}

// goOn continues what was paused, and looks whether it goes on.
func (p *Process) goOn() error {
	p.mu.Lock()
	stopped := slices.Clone(p.paused)
	p.mu.Unlock()
	if err := p.Resume(); err != nil {
		return err
	}
	deadline := time.Now().Add(standPatience)
	for {
		left := 0
		for _, q := range stopped {
			if now, ok := procByID(q.Pid); ok && now.Start == q.Start && now.stopped() {
				left++
			}
		}
		switch {
		case left == 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%d of the agent's processes did not go on", left)
		}
		time.Sleep(lookEvery)
	}
}

// meant says whether an end of the agent from now on is our doing.
func (p *Process) meant(end bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		p.terminated = end
	}
}

func (p *Process) ownEnded() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reaped
}

// cancel ends a run, or the session with all its processes.
func (x *Effects) cancel(p *Process, e control.Effect) error {
	if e.Stopped { // what stands still hears nothing
		if err := p.goOn(); err != nil && !errors.Is(err, ErrNotPaused) {
			return err
		}
	}
	if e.Whole {
		return x.whole(p, e)
	}
	target := adapters.Target{Session: e.Session, Run: e.Run, TTY: p.HasTerminal()}
	acts, err := x.acts(target)
	if err != nil {
		return err
	}
	// Who sits before the runtime's screen loses no session for a run: where
	// its own means fail, the run goes on, and that is told. Without a screen
	// the process is the run.
	if len(acts) == 0 || !target.TTY {
		acts = append(acts, adapters.Act{Signal: "INT", Patience: askPatience}, adapters.Act{Signal: "INT", Patience: askPatience},
			adapters.Act{Signal: "TERM", Patience: wholeGrace})
	}
	if !target.TTY { // what ends of it is ended by us, with its tools
		p.meant(true)
		defer func() {
			select {
			case <-p.Done():
			case <-time.After(exitPatience): // a run ends a moment before its process
				p.meant(false)
			}
		}()
	}
	var last error
	for _, a := range acts {
		if err := x.act(p, a); errors.Is(err, ErrEnded) {
			return nil // what its end leaves open is told by the session
		} else if err != nil {
			x.Log.Info("one means of ending a run failed", "act", a, "err", err)
			last = err
			continue
		}
		if x.landed(p, e, patienceOf(a)) {
			if a.Then != "" {
				_ = p.Inject([]byte(a.Then)) // the run has ended in any case
			}
			return nil
		}
	}
	if target.TTY {
		if last == nil {
			last = errors.New("the agent did not stop when asked to")
		}
		return fmt.Errorf("the run goes on: %w", last)
	}
	return x.whole(p, e)
}

func (x *Effects) acts(t adapters.Target) ([]adapters.Act, error) {
	if x.Cancel == nil {
		return nil, nil
	}
	return guarded(func() []adapters.Act { return slices.Clone(x.Cancel(t)) })
}

// act tries one means.
func (x *Effects) act(p *Process, a adapters.Act) error {
	switch {
	case a.Keys != "":
		return p.Inject([]byte(a.Keys))
	case a.Signal != "":
		sig := unix.SignalNum("SIG" + strings.TrimPrefix(a.Signal, "SIG"))
		if sig == 0 {
			return fmt.Errorf("the adapter names a signal %q, of which there is none", a.Signal)
		}
		if a.Tree {
			return p.signalTree(sig)
		}
		return p.Signal(sig)
	case a.Request != nil && x.Request != nil:
		ctx, cancel := context.WithTimeout(context.Background(), patienceOf(a))
		defer cancel()
		return x.Request(ctx, *a.Request)
	}
	return errors.New("the means is not there in this launch")
}

func patienceOf(a adapters.Act) time.Duration {
	if a.Patience <= 0 {
		return actPatience
	}
	return a.Patience
}

// landed waits until a cancel's run was seen to end, or the agent did.
func (x *Effects) landed(p *Process, e control.Effect, patience time.Duration) bool {
	deadline := time.After(patience)
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !x.Control.Landed(e) {
		select {
		case <-p.Done():
			return true
		case <-deadline:
			return x.Control.Landed(e)
		case <-tick.C:
		}
	}
	return true
}

// whole ends the agent and all that came of it.
func (x *Effects) whole(p *Process, e control.Effect) error {
	sig := syscall.SIGTERM
	if acts, err := x.acts(adapters.Target{Session: e.Session}); err == nil {
		for _, a := range acts { // the strongest that the runtime handles in order
			if s := unix.SignalNum("SIG" + strings.TrimPrefix(a.Signal, "SIG")); s != 0 && s != syscall.SIGKILL && s != syscall.SIGINT {
				sig = s
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), wholePatience)
	defer cancel()
	if err := p.Terminate(ctx, sig, wholeGrace); err != nil {
		return fmt.Errorf("the agent did not end: %w", err)
	}
	return nil
}
