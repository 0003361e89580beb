package main

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"aep-wrap/adapters/acp"
	"aep-wrap/adapters/all"
	"aep-wrap/agent"
)

func newACPCmd(a *app) *cobra.Command {
	var answer bool
	cmd := &cobra.Command{
		Use:   "acp [flags] [--] AGENT [ARG...]",
		Short: "Stand between an editor and its agent, where they speak the Agent Client Protocol",
		Long: `An editor is given this command as its agent's. The agent is started, and every
byte passed on in both directions as it comes; what the messages say is told as
events. With --answer a permission can be answered from afar, too: the first
answer is the agent's. The editor is told by $/cancel_request that it is no
longer asked; what it answers then is kept from the agent. A run can then be
cancelled as the editor would.`,
		Example: `  aep-wrap acp -- gemini --experimental-acp
  aep-wrap acp --answer -- kimi acp`,
		Args:              cobra.MinimumNArgs(1),
		RunE:              func(_ *cobra.Command, args []string) error { return a.acp(args, answer) },
		ValidArgsFunction: a.completeAgent,
	}
	cmd.Flags().BoolVar(&answer, "answer", false, "let permissions be answered and runs be cancelled from afar")
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// acp starts the agent that args name behind a tee, and gives its exit as an
// exitError.
func (a *app) acp(args []string, answer bool) error {
	path, err := agent.LookPath(args[0], a.Getenv("PATH"))
	if err != nil {
		return startError(err)
	}
	env := a.agentEnv()
	if a.switchedOff() || a.insideWrap() {
		return bare(path, args, env)
	}
	l := &launch{app: a, path: path, args: args, env: env, start: time.Now()}
	protocol := acp.Adapter()
	if a.cfg.Agent == "" {
		a.cfg.Agent = all.AgentName(all.Detect(l.seen()), args)
	}
	a.cfg.Adapter = protocol.Name
	if !answer { // nothing of ours is ever said to the agent
		a.cfg.Deny = append(slices.Clone(a.cfg.Deny), "respond", "cancel")
	}
	l.acp = &agent.ACP{Reply: protocol.Reply, Answer: answer}
	return l.run()
}

// betweenThem puts the tee between the agent's standard streams and ours.
func (l *launch) betweenThem(spec *agent.Spec) error {
	l.acp.Road, l.acp.Session, l.acp.Log = l.road, l.id, l.log
	if l.effects != nil {
		l.effects.Request = l.acp.Request
	}
	return l.acp.Pipe(spec)
}
