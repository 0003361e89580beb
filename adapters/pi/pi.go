// Package pi is what is peculiar to the pi coding agent: its session log as a
// vocabulary. It is only watched. doc.md says what is seen and what is not. It
// does no I/O.
package pi

import (
	_ "embed"
	"encoding/json"
	"path"
	"strings"

	"aep-wrap/adapters"
	. "aep-wrap/adapters/hook"
)

//go:embed doc.md
var doc string

const name = "pi"

// Adapter is pi.
func Adapter() adapters.Adapter {
	return adapters.Adapter{
		Name:       name,
		Title:      "pi",
		Pinned:     "0.73.1",
		Doc:        doc,
		Map:        mapMoment,
		Vocabulary: terms,
		Reading:    reading,
	}
}

var mapMoment, terms = Merge(log)

// reading is how a session's log is read.
var reading = &adapters.Reading{
	Paths:    []string{"sessions/*/*_*.jsonl"},
	Identify: identify,
}

// layout is that of the session log which the table was made for.
const layout = "3"

// identify knows a session's log by its header. A fork names the log that it
// came from, and repeats its entries, ids and all.
func identify(_ string, record map[string]any) (id adapters.Identity, ok bool) {
	session, _ := record["id"].(string)
	_, placed := record["cwd"].(string)
	if record["type"] != "session" || session == "" || !placed {
		return id, false
	}
	version, _ := record["version"].(json.Number)
	id = adapters.Identity{Session: session, Version: version.String(), Strange: version != layout}
	if from, _ := record["parentSession"].(string); from != "" {
		_, id.Fork, _ = strings.Cut(strings.TrimSuffix(path.Base(strings.ReplaceAll(from, `\`, "/")), ".jsonl"), "_")
	}
	return id, true
}

// log is the vocabulary of the session log. A message goes by its role.
func log() *Table {
	usage := []Fact{Int("gen_ai.usage.input_tokens", "message.usage.input"), Int("gen_ai.usage.output_tokens", "message.usage.output")}
	ended := func(typ string, facts ...Fact) Row {
		return Emit(typ, append([]Fact{Str("stop_reason", "message.stopReason")}, facts...)...)
	}
	return New(Vocabulary{
		Vendor:  name,
		Channel: adapters.Transcript,
		Time:    "timestamp",
		Rows:    Passed("custom", "custom_message", "label", "message/custom", "message/branchSummary", "message/compactionSummary"),
	}).Alone(map[string]Row{
		"session": When(Has("parentSession"), started("fork"), started("startup")),
		"message/user": Emit("run.started", Need("id"), Key("id"), Const("trigger", "user"), Text("prompt", "message.content")).
			Note("also of a prompt that steers: the log does not tell the two apart"),
		"message/assistant": Many(
			Each("message.content", Switch("type", map[string]Row{
				"toolCall": Emit("tool.requested", Tool("name", "id"), Content("args", "arguments")),
			}, Nothing("what the agent says is not told")), Nothing("no content")),
			VendorAs("model.usage", append([]Fact{Need("id"), Key("id"), Str("gen_ai.response.model", "message.model"),
				Int("cache_read_tokens", "message.usage.cacheRead"), Int("cache_creation_tokens", "message.usage.cacheWrite"),
				Str("stop_reason", "message.stopReason")}, usage...)...),
			Switch("message.stopReason", map[string]Row{
				"toolUse": Nothing("the turn goes on"),
				"error":   ended("run.failed", Const("reason", "error"), Fault(Const("type", "error"), "message.errorMessage")),
				"aborted": ended("run.cancelled", Const("by", "user")),
			}, ended("run.finished", append(usage, Text("summary", "message.content"))...))),
		"message/toolResult": Switch("message.isError", map[string]Row{
			"true": Emit("tool.failed", Tool("message.toolName", "message.toolCallId"), Fault(Const("type", "error"), "message.content")),
		}, Emit("tool.completed", Tool("message.toolName", "message.toolCallId"), Content("result", "message.content"))),
		"message/bashExecution": VendorAs("user.bash", Key("id"), Int("exit_code", "message.exitCode"), Bool("cancelled", "message.cancelled")).
			Note("a command that the user ran by hand"),
		"compaction":            Emit("session.compacted", Key("id")),
		"branch_summary":        VendorAs("session.tree", Key("id")),
		"session_info":          VendorAs("session.info", Key("id")),
		"model_change":          VendorAs("model.select", Key("id"), Str("provider", "provider"), Str("model", "modelId")),
		"thinking_level_change": VendorAs("thinking.select", Key("id"), Str("level", "thinkingLevel")),
	}).NamedBy(func(in *In) string {
		n := in.Str("type")
		if n == "message" {
			n += "/" + in.Str("message.role")
		}
		return n
	})
}

func started(reason string) Row {
	return Emit("session.started", Key("id"), Object("client", Const("name", name)), Const("reason", reason), Text("cwd", "cwd"))
}
