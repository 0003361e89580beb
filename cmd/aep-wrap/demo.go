package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"aep-wrap/adapters/demo"
	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
)

// demoAgent is the hidden subcommand that is the scripted agent's process.
const demoAgent = "demo-agent"

func newDemoCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Play a whole session of a scripted agent, for people without an agent at hand",
		Long: `A scripted agent plays a session: prompts, tools, a failure, a denial, a
permission, a form, a subagent and a compaction. It is wrapped as any agent is:
its events are in the log and at the collector. Its form and its permission wait
up to 20 seconds each for an answer (aep-wrap pending, aep-wrap respond, or the
page), or as long as --hold says; where nobody could answer, a second.`,
		Example: `  aep-wrap demo
  aep-wrap --hold 5m demo              time enough to answer from another terminal
  aep-wrap --capture redacted demo     the same, with its words
  aep-wrap tail                        watch it from another terminal`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return a.demo() },
	}
}

func newDemoAgentCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:         demoAgent,
		Hidden:      true,
		Args:        cobra.NoArgs,
		Annotations: map[string]string{noConfig: ""},
		RunE: func(cmd *cobra.Command, _ []string) error {
			url := a.Getenv("AEP_HOOK_URL")
			if url == "" {
				return usageError("%s is what aep-wrap demo starts", demoAgent)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT)
			defer stop()
			p := &player{out: a.Stdout, url: url, session: event.NewID(time.Now())}
			err := p.play(ctx, demo.Script)
			if ctx.Err() != nil && cmd.Context().Err() == nil {
				_, err = p.tell(cmd.Context(), demo.Step{Event: "stopped", Payload: map[string]any{"run": p.run}})
				return cmp.Or(err, error(&exitError{code: 130}))
			}
			return err
		},
	}
}

// demo wraps ourselves as the scripted agent, and shows the timeline.
func (a *app) demo() error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	a.cfg.Adapter = demo.Adapter().Name
	if a.cfg.Hold < 0 {
		a.cfg.Hold = demoHold
	}
	l := &launch{app: a, path: self, args: []string{self, demoAgent}, env: a.agentEnv(), start: time.Now()}
	err = l.run()
	if l.road == nil || l.logDir == "" || a.cfg.Quiet {
		return err
	}
	for _, session := range l.road.Sessions() {
		path := jsonl.Path(l.logDir, l.name, session)
		fmt.Fprintf(a.Stdout, "\nThe session as its log tells it (%s):\n\n", tilde(path, a.paths.home))
		if terr := a.showTimeline(path); terr != nil {
			err = errors.Join(err, terr)
		}
	}
	return err
}

// hintAfter is how long a question stays without a word on how to answer it.
const hintAfter = time.Second

// demoHold is how long the scripted agent waits for an answer from afar.
const demoHold = 20 * time.Second

// player plays the script as an agent would: it tells its hooks, and waits for
// an answer where it asks.
type player struct {
	out     io.Writer
	url     string
	session string
	run     string // the one that was begun last
}

func (p *player) play(ctx context.Context, steps []demo.Step) error {
	for _, s := range steps {
		if err := sleep(ctx, s.After); err != nil {
			return err
		}
		fmt.Fprintf(p.out, "demo: %s\n", s.Event)
		if s.Event == "prompt" {
			p.run = runOf(s)
		}
		asked := time.Now()
		hint := func() bool { return true }
		if s.Wait > 0 {
			hint = time.AfterFunc(hintAfter, func() {
				fmt.Fprintf(p.out, "demo: %s waits for an answer: see aep-wrap pending, then aep-wrap respond\n", s.Event)
			}).Stop
		}
		answer, err := p.tell(ctx, s)
		hint()
		if err != nil {
			return err
		}
		if s.Wait == 0 {
			continue
		}
		if answer == "" { // nobody through the hook: the agent's own dialog waits
			if err := sleep(ctx, s.Wait-time.Since(asked)); err != nil {
				return err
			}
		}
		if err := p.play(ctx, s.Then[answer]); err != nil {
			return err
		}
	}
	return nil
}

func (p *player) tell(ctx context.Context, s demo.Step) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/"+s.Event, bytes.NewReader(s.JSON(p.session, firstRun)))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("hook %s: %s", s.Event, resp.Status)
	}
	if note := demo.Note(body); note != "" {
		fmt.Fprintf(p.out, "demo: was told: %s\n", visible(note))
	}
	return demo.Answer(body), err
}

// firstRun is the run of the script's steps that name no other.
const firstRun = "run-1"

func runOf(s demo.Step) string {
	if run, ok := s.Payload["run"].(string); ok {
		return run
	}
	return firstRun
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
