package e2e

func init() {
	agentCases = append(agentCases, agentCase{
		adapter: "claude-code",
		program: claudeProgram,
		files:   claudeFiles,
		env:     func(*world) []string { return nil },
		print:   func(prompt string) []string { return []string{"-p", prompt} },
		ready:   prompted,
		exit:    "/exit",
		owns:    []string{".claude/.claude.json"},
		logs:    ".claude/projects/",
		scenes: []scene{
			{name: "a tool call", script: "safe", want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a failing tool", script: "fail", args: []string{"--allowedTools=Bash"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.failed", "tool.requested", "tool.failed", "run.finished", "session.ended"}},
			{name: "a file write", script: "write1", args: []string{"--permission-mode", "acceptEdits"}, want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			// The log, which alone tells of it without the stream, may lag behind the run's end.
			{name: "a refusal", script: "bash1", args: []string{"--output-format", "stream-json", "--verbose"}, want: []string{
				"session.started", "run.started", "tool.requested", "attention.requested", "attention.resolved", "tool.denied", "run.finished", "session.ended"}},
			{name: "answered and commanded from afar", remote: true, play: fromAfar, check: checkBy("control"), want: []string{
				"session.started",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.completed", "run.finished",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.failed", "run.finished",
				"run.started", "run.cancelled", "session.ended"},
				shows: map[string]string{"answerable": "allow, and deny with a reason, beside its own dialog; questions as forms", "cancel": "Esc", "pause": "by signals, and resumed"}},
			{name: "answered at the screen", play: atTheScreen("Do you want to proceed", "1", "\x1b", "run.cancelled"), check: checkBy("user", "user"), want: []string{
				"session.started",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.completed", "run.finished",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.failed", "run.cancelled",
				"run.started", "run.cancelled", "session.ended"}},
			{name: "answered headless", script: "bash1", remote: true, wrap: []string{"--hold", hold}, play: func(s *stage) { s.respond("--option", "allow") }, want: []string{
				"session.started", "run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.completed", "run.finished", "session.ended"},
				shows: map[string]string{"answerable": "headless: within --hold"}},
			{name: "gated headless", script: "bash1", remote: true, wrap: []string{"--gate", "Bash"}, play: func(s *stage) { s.respond("--option", "allow") }, want: []string{
				"session.started", "run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.completed", "run.finished", "session.ended"},
				shows: map[string]string{"answerable": "headless: with --gate"}},
			{name: "instructed from afar", remote: true, wrap: []string{"--allow", "instruct"}, play: instructed, want: []string{
				"session.started", "run.started", "run.finished", "run.started", "run.finished", "session.ended"},
				shows: map[string]string{"instruct": "with the next prompt, or around a tool"}},
			{name: "cancelled headless", script: "slowtext", remote: true, play: cancelled, check: checkBy("control"), want: []string{
				"session.started", "run.started", "run.cancelled", "session.ended"},
				shows: map[string]string{"cancel": "headless: SIGINT"}},
		},
		missing: []string{"what it says, but for the last message of a turn", "a prompt that an Esc takes back: its run ends, by nobody known", "policy in drop-in files or by MDM that forbids hooks is not read"},
	})
}
