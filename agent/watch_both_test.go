package agent

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"aep-wrap/adapters"
	"aep-wrap/adapters/all"
	"aep-wrap/agent/follow"
	"aep-wrap/event"
)

// A turn as one runtime tells it by its hooks and by its log: NAME payload, or >
// and a line. N is the turn's number, T the time.
type bothWays struct {
	adapter, path, head string
	turn                []string
	compaction          []string // where both tell one
}

var bothTold = []bothWays{
	{"claude-code", "projects/p/s.jsonl", "", []string{
		`UserPromptSubmit {"session_id":"s","prompt_id":"rN","prompt":"go"}`,
		`>{"type":"user","promptId":"rN","promptSource":"typed","message":{"role":"user","content":"go"},CLAUDE}`,
		`>{"type":"assistant","message":{"id":"mN","model":"x","stop_reason":"tool_use","content":[{"type":"tool_use","id":"tN","name":"Bash","input":{"command":"x"}}]},CLAUDE}`,
		`PreToolUse {"session_id":"s","prompt_id":"rN","tool_name":"Bash","tool_use_id":"tN","tool_input":{"command":"x"}}`,
		`PostToolUse {"session_id":"s","prompt_id":"rN","tool_name":"Bash","tool_use_id":"tN","tool_input":{"command":"x"},"tool_response":{"stdout":"y"}}`,
		`>{"type":"user","toolUseResult":{"stdout":"y"},"message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"tN","content":"y"}]},CLAUDE}`,
		`>{"type":"assistant","message":{"id":"eN","model":"x","stop_reason":"end_turn","content":[{"type":"text","text":"done"}]},CLAUDE}`,
		`Stop {"session_id":"s","prompt_id":"rN","last_assistant_message":"done"}`,
	}, []string{`PostCompact {"session_id":"s","trigger":"auto"}`, `>{"type":"system","subtype":"compact_boundary","compactMetadata":{"trigger":"auto"},CLAUDE}`}},
	{"codex", "sessions/2026/11/30/rollout-s.jsonl", `{"timestamp":"T","type":"session_meta","payload":{"id":"s","cli_version":"0.120.0","cwd":"/w","originator":"codex","thread_source":"user"}}`, []string{
		`UserPromptSubmit {"session_id":"s","turn_id":"rN","prompt":"go"}`,
		`>{"timestamp":"T","type":"event_msg","payload":{"type":"item_completed","turn_id":"rN","item":{"type":"UserMessage","id":"iN","content":"go"}}}`,
		`PreToolUse {"session_id":"s","turn_id":"rN","tool_name":"Bash","tool_use_id":"tN","tool_input":{"command":"x"}}`,
		`>{"timestamp":"T","type":"response_item","payload":{"type":"function_call","name":"exec_command","call_id":"tN","arguments":"{\"cmd\":\"x\"}"}}`,
		`PostToolUse {"session_id":"s","turn_id":"rN","tool_name":"Bash","tool_use_id":"tN","tool_response":"y"}`,
		`Stop {"session_id":"s","turn_id":"rN","last_assistant_message":"done"}`,
		`>{"timestamp":"T","type":"event_msg","payload":{"type":"task_complete","turn_id":"rN","last_agent_message":"done"}}`,
	}, []string{`PostCompact {"session_id":"s","turn_id":"c","trigger":"auto"}`,
		`>{"timestamp":"T","type":"event_msg","payload":{"type":"item_completed","turn_id":"c","item":{"type":"ContextCompaction","id":"kN"}}}`}},
	{"gemini", "tmp/p/chats/session-s.jsonl", `{"sessionId":"s","projectHash":"h","startTime":"T","lastUpdated":"T","kind":"main"}`, []string{
		`BeforeAgent {"session_id":"s","timestamp":"T","prompt":"go"}`,
		`>{"id":"uN","timestamp":"T","type":"user","content":[{"text":"go"}]}`,
		`BeforeTool {"session_id":"s","timestamp":"T","tool_name":"run_shell_command","tool_input":{"command":"x"}}`,
		`>{"id":"gN","timestamp":"T","type":"gemini","content":"","tokens":{"input":1,"output":1},"model":"x"}`,
		`AfterTool {"session_id":"s","timestamp":"T","tool_name":"run_shell_command","tool_input":{"command":"x"},"tool_response":{"llmContent":"y"}}`,
		`>{"id":"gN","timestamp":"T","type":"gemini","content":"","tokens":{"input":1,"output":1},"model":"x","toolCalls":[{"id":"tN","name":"run_shell_command","args":{"command":"x"},"status":"success","timestamp":"T","result":[{"functionResponse":{"id":"tN","response":{"output":"y"}}}]}]}`,
		`AfterAgent {"session_id":"s","timestamp":"T","prompt":"go"}`,
	}, nil},
	{"qwen", "projects/p/chats/s.jsonl", "", []string{
		`UserPromptSubmit {"session_id":"s","prompt_id":"s########N","prompt":"go","submitted_prompt":"go"}`,
		`>{"uuid":"uN","type":"user","provenance":"real_user","message":{"role":"user","parts":[{"text":"go"}]},QWEN}`,
		`>{"uuid":"aN","type":"assistant","provenance":"x","message":{"role":"model","parts":[{"functionCall":{"id":"tN","name":"shell","args":{"command":"x"}}}]},QWEN}`,
		`PreToolUse {"session_id":"s","prompt_id":"s########N","tool_name":"shell","tool_use_id":"tN","tool_input":{"command":"x"}}`,
		`PostToolUse {"session_id":"s","prompt_id":"s########N","tool_name":"shell","tool_use_id":"tN","tool_response":{"output":"y"}}`,
		`>{"uuid":"rN","type":"tool_result","provenance":"x","message":{"role":"user","parts":[{"functionResponse":{"id":"tN","name":"shell","response":{"output":"y"}}}]},QWEN}`,
		`>{"uuid":"eN","type":"assistant","provenance":"x","message":{"role":"model","parts":[{"text":"done"}]},QWEN}`,
		`Stop {"session_id":"s","prompt_id":"s########N","last_assistant_message":"done"}`,
	}, []string{`PostCompact {"session_id":"s","trigger":"auto"}`, `>{"uuid":"kN","type":"system","subtype":"chat_compression","provenance":"x",QWEN}`}},
	{"kimi", "sessions/w/s/agents/main/wire.jsonl", `{"type":"metadata","protocol_version":"1.5","created_at":1796001062260}`, []string{
		`UserPromptSubmit {"session_id":"s","prompt":"go","is_steer":false}`,
		`>{"type":"turn.prompt","promptId":"pN","origin":{"kind":"user"},"input":"go","time":M}`,
		`>{"type":"context.append_loop_event","event":{"type":"tool.call","name":"Bash","toolCallId":"tN","args":{"command":"x"}},"time":M}`,
		`PreToolUse {"session_id":"s","tool_name":"Bash","tool_call_id":"tN","tool_input":{"command":"x"}}`,
		`PostToolUse {"session_id":"s","tool_name":"Bash","tool_call_id":"tN","tool_output":"y"}`,
		`>{"type":"context.append_loop_event","event":{"type":"tool.result","toolCallId":"tN","result":{"output":"y"}},"time":M}`,
		`>{"type":"turn.ended","reason":"completed","time":M}`,
		`Stop {"session_id":"s"}`,
	}, []string{`PostCompact {"session_id":"s","trigger":"auto"}`, `>{"type":"full_compaction.complete","time":M}`}},
	{"copilot", "session-state/s/events.jsonl", `{"type":"session.start","id":"b","timestamp":"T","data":{"sessionId":"s","version":1,"copilotVersion":"1.0.0"}}`, []string{
		`userPromptSubmitted {"sessionId":"s","timestamp":M,"prompt":"go"}`,
		`>{"type":"user.message","id":"uN","timestamp":"T","data":{"content":"go"}}`,
		`preToolUse {"sessionId":"s","timestamp":M,"toolName":"bash","toolArgs":{"command":"x"}}`,
		`>{"type":"tool.execution_start","id":"xN","timestamp":"T","data":{"toolName":"bash","toolCallId":"tN","arguments":{"command":"x"}}}`,
		`postToolUse {"sessionId":"s","timestamp":M,"toolName":"bash","toolArgs":{"command":"x"},"toolResult":{"resultType":"success","textResultForLlm":"y"}}`,
		`>{"type":"tool.execution_complete","id":"yN","timestamp":"T","data":{"toolCallId":"tN","success":true}}`,
		`>{"type":"assistant.message","id":"eN","timestamp":"T","data":{"content":"done"}}`,
		`agentStop {"sessionId":"s","timestamp":M,"stopReason":"end_turn"}`,
	}, nil},
}

// player plays what a runtime tells, to one watch after the other.
type player struct {
	t    *testing.T
	both *bothWays
	a    *adapters.Adapter
	logs string
	now  time.Time
	w    *Watch
	file *follow.File
	off  int64
	told []string // lines of the log
	n    int      // hooks
}

// newPlayer begins a session of a runtime, whose log has its head.
func newPlayer(t *testing.T, both *bothWays) *player {
	t.Helper()
	a, ok := all.Find(both.adapter)
	if !ok {
		t.Fatal("no such adapter")
	}
	p := &player{t: t, both: both, a: &a, logs: t.TempDir(), now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)}
	p.restart()
	if both.head != "" {
		p.line(p.fill(both.head, 0))
	}
	return p
}

func (p *player) restart() {
	if p.w != nil {
		p.w.CloseAll()
	}
	p.w = NewWatch(WatchConfig{Adapters: all.List(), Host: "h", LogDir: p.logs, Gate: testGate(event.Metadata), Now: func() time.Time { return p.now },
		Say: func(line string) { p.t.Error(line) }})
	p.file = nil
}

func (p *player) fill(s string, n int) string {
	at := p.now.Format(time.RFC3339Nano)
	s = strings.NewReplacer(
		"CLAUDE", `"parentUuid":"p","isSidechain":false,"uuid":"l`+strconv.Itoa(len(p.told))+`","timestamp":"T","userType":"external","sessionId":"s","version":"2.1.197"`,
		"QWEN", `"sessionId":"s","parentUuid":null,"version":"0.20.0","timestamp":"T"`).Replace(s)
	return strings.NewReplacer(`N"`, strconv.Itoa(n)+`"`, `"T"`, `"`+at+`"`, ":M", fmt.Sprint(":", p.now.UnixMilli())).Replace(s)
}

func (p *player) line(s string) {
	p.told = append(p.told, s)
	if p.file == nil {
		p.file = &follow.File{Path: "/x/" + p.both.path, Head: "head", First: []byte(p.told[0])}
		p.w.Open(p.file)
	}
	p.take(s)
}

func (p *player) take(s string) {
	r := follow.Record{Start: p.off, End: p.off + int64(len(s)), Line: []byte(s)}
	p.off = r.End + 1
	if n, _ := p.w.Take(p.file, []follow.Record{r}); n != 1 {
		p.t.Fatalf("not taken: %s", s)
	}
}

func (p *player) hook(s string) {
	name, payload, _ := strings.Cut(s, " ")
	tree, err := event.ParseObject([]byte(payload))
	if err != nil {
		p.t.Fatal(err, payload)
	}
	p.n++
	if again, _ := p.w.Hook(p.a, adapters.Moment{Channel: adapters.Hook, Name: name, Payload: tree, Raw: []byte(payload), Time: p.now}, fmt.Sprint("h", p.n)); again > 0 {
		p.t.Fatalf("not taken: %s", s)
	}
}

// play plays steps in their order, or each log line before the hook before it.
func (p *player) play(steps []string, n int, logFirst bool) {
	steps = slices.Clone(steps)
	if logFirst {
		for i := 1; i < len(steps); i++ {
			if steps[i][0] == '>' && steps[i-1][0] != '>' {
				steps[i-1], steps[i] = steps[i], steps[i-1]
			}
		}
	}
	for _, s := range steps {
		p.now = p.now.Add(30 * time.Millisecond)
		if s = p.fill(s, n); s[0] == '>' {
			p.line(s[1:])
		} else {
			p.hook(s)
		}
	}
	p.now = p.now.Add(10 * time.Second)
}

func (p *player) counts() map[string]int {
	p.w.CloseAll()
	out := map[string]int{}
	for _, e := range sessionLogs(p.t, p.logs)[p.a.Name+"/s"] {
		if e.Type != "session.started" && !strings.HasPrefix(e.Type, "x.") {
			out[e.Type]++
		}
	}
	return out
}

// What a session's hooks and its log both tell is told once, whichever is ahead,
// also when the watch is another one in between, and when the log is read anew.
// What the log alone tells is told too.
func TestHooksAndLogTogether(t *testing.T) {
	for i := range bothTold {
		both := &bothTold[i]
		t.Run(both.adapter, func(t *testing.T) {
			p := newPlayer(t, both)
			want := map[string]int{}
			turns := func(n int) {
				for _, typ := range []string{"run.started", "run.finished", "tool.requested", "tool.completed"} {
					want[typ] += n
				}
			}
			p.play(both.turn, 1, false)
			p.play(both.turn, 2, true)
			turns(2)
			if both.compaction != nil {
				p.play(both.compaction, 1, false)
				p.play(both.compaction, 2, true)
				want["session.compacted"] = 2
			}
			if got := p.counts(); !maps.Equal(got, want) {
				t.Fatalf("got %v, want %v", got, want)
			}
			p.restart()
			p.play(both.turn, 3, false)
			p.play(both.turn, 4, true)
			turns(2)
			if got := p.counts(); !maps.Equal(got, want) {
				t.Fatalf("another watch: got %v, want %v", got, want)
			}
			p.restart()
			lines := p.told
			p.file, p.off = &follow.File{Path: "/x/" + both.path, Head: "head", First: []byte(lines[0])}, 0
			p.w.Open(p.file)
			for _, s := range lines {
				p.take(s)
			}
			if got := p.counts(); !maps.Equal(got, want) {
				t.Fatalf("read anew: got %v, want %v", got, want)
			}
			// While nobody heard the hooks, the log tells; a turn's end that it does
			// not tell comes with the next prompt.
			p.restart()
			p.file, p.told = nil, lines[:1]
			p.now = p.now.Add(time.Hour)
			alone := slices.DeleteFunc(slices.Clone(both.turn), func(s string) bool { return s[0] != '>' })
			p.play(alone, 5, false)
			p.play(alone, 6, false)
			got := p.counts()
			if got["run.started"] != want["run.started"]+2 || got["tool.requested"] != want["tool.requested"]+2 {
				t.Fatalf("by its log alone: got %v, before %v", got, want)
			}
		})
	}
}

// A log may be ahead of the first hook that is heard.
func TestTheLogIsAheadOfTheFirstHook(t *testing.T) {
	for i := range bothTold {
		both := &bothTold[i]
		if both.adapter == "qwen" { // its hooks name the turn otherwise: the log's is told as cut off
			continue
		}
		t.Run(both.adapter, func(t *testing.T) {
			p := newPlayer(t, both)
			p.play(both.turn, 1, true)
			p.play(both.turn, 2, true)
			want := map[string]int{"run.started": 2, "run.finished": 2, "tool.requested": 2, "tool.completed": 2}
			if got := p.counts(); !maps.Equal(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

// Who hooks calls alone, to be asked about them, has the rest told by the log.
func TestHooksOfCallsAlone(t *testing.T) {
	for i := range bothTold {
		both := &bothTold[i]
		if !slices.Contains([]string{"claude-code", "codex", "qwen", "kimi"}, both.adapter) { // whose hooks name calls
			continue
		}
		t.Run(both.adapter, func(t *testing.T) {
			p := newPlayer(t, both)
			steps := slices.DeleteFunc(slices.Clone(both.turn), func(s string) bool { return s[0] != '>' && !strings.HasPrefix(s, "PreToolUse") })
			p.play(steps, 1, false)
			p.play(steps, 2, false)
			got := p.counts()
			if got["run.started"] != 2 || got["tool.requested"] != 2 || got["run.finished"] != 2 {
				t.Errorf("got %v", got)
			}
		})
	}
}
