package main

import (
	"context"
	"errors"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"aep-wrap/adapters/aeprpc"
	"aep-wrap/agent"
	"aep-wrap/control"
	"aep-wrap/event"
	"aep-wrap/session"
)

func newAttachCmd(a *app) *cobra.Command {
	var run string
	cmd := &cobra.Command{
		Use:   "attach URL",
		Short: "Follow a runtime of the Agent Execution Protocol",
		Long: `Follows a runtime that speaks the Agent Execution Protocol (aep-2026-04-24), as
an embedder of it, and tells what its runs do as events: an agent there is a
session here, a run a run, a cycle a step. Without --run every run that goes on
is followed, and those that begin. A run is cancelled by aep-wrap cancel. Where
the runtime has its agents' changes of their prompts approved, and the token may
(agent.write), a change is approved or rejected by aep-wrap respond.

--token, or better --token-file, is the runtime's; without them it is that of
aep-wrap token show, which a runtime of your own takes. What is told goes to the
per-user collector.

With --run it ends with the run; otherwise by a signal, with exit code 0.`,
		Example: `  aep-wrap attach http://127.0.0.1:8788
  aep-wrap attach https://runtime.example --token-file token --run run_01k`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usageError("attach: want one URL, such as http://%s; see %s --help", runtimeAddr, cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return a.attach(ctx, args[0], run)
		},
	}
	cmd.Flags().StringVar(&run, "run", "", "follow this `RUN` alone, to its end")
	return cmd
}

// attach follows a runtime as a launch without a process: the road, the sink
// and the target of commands are the same.
func (a *app) attach(ctx context.Context, url, run string) error {
	ad := aeprpc.Adapter()
	if name := a.cfg.Adapter; name != "" && name != ad.Name {
		return usageError("--adapter %s: attach follows runtimes of the Agent Execution Protocol, which is %s", name, ad.Name)
	}
	if a.cfg.Collector != "" {
		return usageError("--collector: attach sends to the per-user collector; the token is the runtime's")
	}
	token, err := a.collectorToken()
	if err != nil {
		return err
	}
	l := &launch{app: a, adapter: ad, name: a.cfg.Agent, start: time.Now(), log: a.newOwnLog(), tails: map[string]*agent.Tail{}}
	if l.name == "" {
		l.name = ad.Name
	}
	l.id = event.NewID(l.start)
	l.checkLogDir()
	far, err := agent.NewRuntime(agent.RuntimeConfig{URL: url, Token: token, Run: run, Reply: ad.Reply, Log: l.log, Say: l.say})
	if err != nil {
		return usageError("%w", err)
	}
	offers, err := far.Connect(ctx)
	if err != nil {
		return err
	}
	if a.cfg.Listen != off {
		can := control.Can{Vendor: ad.Name, Respond: offers[agent.ModifyPrompt] && a.cfg.Hold != 0, More: []string{control.Cancel}}
		types, notes, err := control.Accepts(can, a.cfg.Allow, a.cfg.Deny)
		if err != nil {
			return usageError("%w", err)
		}
		for _, n := range notes {
			l.say(n)
		}
		l.target = control.New(control.Config{
			Vendor: ad.Name, Accepts: types, Policy: a.cfg.policyOfAnswers(), Clock: systemClock,
			Emit: func(session string, command []byte, drafts []event.Draft) error {
				return l.road.Control(session, command, drafts)
			},
			Do: func(e control.Effect) { go func() { l.target.Done(e, cancelFar(far, e)) }() },
		})
	}
	if err := l.makeSink(); err != nil {
		return err
	}
	l.makeRoad()
	if l.sink != nil {
		l.sink.start()
	}
	err = far.Follow(ctx, l.road)
	l.writeOut(session.Exit{Left: true}) // the last facts are on their way still; the sessions go on
	var ferr error
	if within(flushTime, func(ctx context.Context) { ferr = l.road.Flush(ctx) }); ferr != nil {
		l.trouble("events wait in the log: %s", l.sink.word())
	}
	l.closeSink()
	return err
}

// cancelFar cancels a run at the runtime. Sessions there are agents, which are
// their embedders' to end.
func cancelFar(far *agent.Runtime, e control.Effect) error {
	if e.Whole {
		return errors.New("a session here is an agent of the runtime, which its embedder ends; cancel its run")
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialWait)
	defer cancel()
	return far.Cancel(ctx, e.Run)
}
