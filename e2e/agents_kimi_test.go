package e2e

import "strconv"

func init() {
	agentCases = append(agentCases, agentCase{
		adapter: "kimi-code",
		program: program{command: "kimi", npm: "@moonshot-ai/kimi-code", version: "2.1.0", node: 22},
		files: func(w *world) {
			w.write(".kimi-code/config.toml", "# The user's own.\n[[hooks]]\nevent = \"Stop\"\ncommand = "+strconv.Quote("echo stop >> "+w.home()+"/users-hook.log")+"\n"+
				"[[hooks]]\nevent = \"PreToolUse\"\nmatcher = \"Bash\"\ncommand = "+strconv.Quote("grep -q 'rm -f' && echo nothing is removed here >&2 && exit 2; exit 0")+"\n")
		},
		env: func(w *world) []string {
			return []string{"KIMI_MODEL_NAME=mock-model", "KIMI_MODEL_API_KEY=" + apiKey, "KIMI_MODEL_PROVIDER_TYPE=openai", "KIMI_MODEL_BASE_URL=" + w.url + "/v1"}
		},
		print: func(prompt string) []string { return []string{"-p", prompt} },
		first: func(s *stage) { s.press("Trust this folder", "\r") },
		ready: "Welcome to Kimi Code",
		exit:  "/exit",
		scenes: []scene{
			{name: "a tool call", script: "safe", same: true, want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a failing tool", script: "fail", want: []string{
				"session.started", "run.started", "tool.requested", "tool.failed", "tool.requested", "tool.failed", "run.finished", "session.ended"}},
			{name: "a file write", script: "write1", want: []string{
				"session.started", "run.started", "tool.requested", "tool.completed", "run.finished", "session.ended"}},
			{name: "a refusal", script: "remove", want: []string{ // by the user's hook
				"session.started", "run.started", "tool.requested", "tool.failed", "run.finished", "session.ended"}},
			{name: "answered and commanded from afar", remote: true, args: []string{"--yolo"}, wrap: []string{"--hold", "60s", "--gate", "Bash"}, play: fromAfar, check: checkBy("control"), want: []string{
				"session.started",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.completed", "run.finished",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.failed", "run.finished",
				"run.started", "run.cancelled", "session.ended"},
				shows: map[string]string{"answerable": "with --gate: deny with a reason; what is allowed its own rules decide", "cancel": "Esc", "pause": "by signals, and resumed"}},
			{name: "answered at the screen", play: atTheScreen("Run this command", "1", "3", "run.finished"), check: checkBy("user"), want: []string{
				"session.started",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.completed", "run.finished",
				"run.started", "tool.requested", "attention.requested", "attention.answered", "attention.resolved", "tool.failed", "run.finished",
				"run.started", "run.cancelled", "session.ended"}},
			{name: "instructed from afar", remote: true, wrap: []string{"--allow", "instruct"}, play: instructed, want: []string{
				"session.started", "run.started", "run.finished", "run.started", "run.finished", "session.ended"},
				shows: map[string]string{"instruct": "with the next prompt"}},
			{name: "cancelled headless", script: "slowtext", remote: true, play: cancelled, check: checkBy("control"), want: []string{
				"session.started", "run.started", "run.cancelled", "session.ended"},
				shows: map[string]string{"cancel": "headless: SIGINT"}},
		},
		missing: []string{"its own dialog cannot be answered from afar", "a text for the model before the next prompt", "the log of a subagent", "that a hook of the user's forbade a tool, which is told as failed"},
	})
}
