package event

import "math"

// The registered types of AEP 0.1 (AEP-0002 §4, §5), to be read beside the
// protocol's schemas: one entry a type, one line a member, at Metadata unless
// it says otherwise. A test holds the table to the schemas, in both
// directions.
var registry = types(
	// A conversation or unit of work.
	mandatory("session.started",
		text("label").redacted(),
		object("parent", text("session").required(), text("run"), text("agent")),
		object("client", text("name").required(), text("version")),
		text("gen_ai.request.model"),
		text("cwd").redacted(),
	),
	mandatory("session.ended",
		enum("reason", "normal", "error", "timeout", "killed", "compaction"),
		count("duration_ms"),
		count("runs"),
	),
	optional("session.compacted",
		text("trigger"),
		text("strategy"),
		count("estimated_token_count"),
		count("forgotten"),
		inputTokens,
		outputTokens,
	),

	// An activation within it.
	mandatory("run.started",
		enum("trigger", "user", "schedule", "agent", "control", "resume"),
		text("prompt").redacted(),
		inputTokens,
		outputTokens,
		cost,
	),
	mandatory("run.finished",
		count("duration_ms"),
		text("summary").redacted(),
		inputTokens,
		outputTokens,
		cost,
	),
	mandatory("run.failed",
		text("reason").required(),
		fault,
		count("duration_ms"),
	),
	mandatory("run.cancelled",
		enum("by", "user", "control", "policy", "shutdown"),
		text("reason").redacted(),
		count("duration_ms"),
	),
	optional("run.step.started",
		text("name").redacted(),
		count("initial_num_steps"),
	),
	optional("run.step.finished",
		text("status"),
	),

	// Tools.
	mandatory("tool.requested",
		tool.required(),
		text("args_digest"),
		object("args_redacted").redacted(),
		object("args").full(),
	),
	mandatory("tool.completed",
		tool.required(),
		count("duration_ms"),
		text("status"),
		text("result_digest"),
		textOrObject("result_redacted").redacted(),
		textOrObject("result").full(),
		inputTokens,
		outputTokens,
		cost,
	),
	mandatory("tool.failed",
		tool.required(),
		fault.required(),
		count("duration_ms"),
	),
	mandatory("tool.denied",
		tool.required(),
		enum("by", "policy", "user_setting", "runtime").required(),
		text("rule"),
	),

	// Moments that need a human. attention.routed is session-scoped to the
	// registry, without seq to the envelope.
	mandatory("attention.requested",
		enum("kind", "permission", "input", "auth", "review", "form", "other").required(),
		text("prompt").required().star(),
		array("options", object("", text("id").required(), text("label").required().star())),
		array("fields", object("",
			text("id").required(),
			enum("type", "string", "number", "boolean", "select").required(),
			text("label").required().star(),
			boolean("required"),
			boolean("multi"),
			boolean("other"),
			array("choices", object("", text("id").required(), text("label").required().star())), // required of a select: see Check
			number("min"),
			number("max"),
		)),
		instant("expires_at"),
		array("respond_via", enum("", "control", "oob")),
		object("context").full(),
	),
	mandatory("attention.answered",
		answer.required(),
		text("by"),
		enum("via", "control", "oob"),
	),
	mandatory("attention.resolved",
		enum("resolution", "answered", "auto", "dismissed").required(),
		count("latency_ms"),
	),
	mandatory("attention.timeout",
		count("after_ms"),
	),
	optional("attention.routed",
		text("to"),
		text("via"),
	),

	// Progress and delegation.
	optional("progress.status",
		text("message").redacted(),
		text("phase"),
		number("percent").between(0, 100),
	),
	optional("progress.task.planned",
		task,
		text("parent"),
	),
	optional("progress.task.completed",
		task,
		text("status"),
	),
	optional("progress.artifact.produced",
		object("artifact",
			text("id"),
			text("name").redacted(),
			text("mime"),
			count("bytes"),
			text("uri").redacted(),
		),
	),
	optional("delegation.subagent.started",
		child,
		text("agent_type"),
		text("role"),
	),
	optional("delegation.subagent.stopped",
		child,
		text("agent_type"),
		text("status"),
		count("duration_ms"),
	),

	// The emitter itself.
	agentWide("agent.presence",
		enum("state", "online", "offline", "busy").required(),
	),
	agentWide("agent.idle",
		count("since_ms"),
		text("reason"),
	),
	agentWide("agent.health",
		enum("status", "ok", "degraded", "failing").required(),
		text("detail").redacted(),
	),
	agentWide("agent.heartbeat",
		count("tick"),
		count("interval_ms"),
	),

	// Faults and state.
	optional("error.raised",
		fault,
		text("code"),
		boolean("fatal"),
	),
	optional("state.snapshot",
		object("state").redacted(),
		text("key"),
		count("rev"),
	),
	optional("state.delta",
		array("delta", object("")).redacted(),
		text("key"),
		count("rev"),
	),

	// Retrieval and assessment (experimental).
	optional("resource.retrieval.requested",
		text("query").redacted(),
		text("query_digest"),
		text("corpus"),
		count("top_k"),
	),
	optional("resource.retrieval.returned",
		array("documents", document),
		count("count"),
		text("corpus"),
		count("duration_ms"),
	),
	optional("resource.retrieval.reranked",
		text("query").redacted(),
		text("query_digest"),
		text("model"),
		count("top_k"),
		array("input_documents", document),
		array("output_documents", document),
		count("count"),
		count("duration_ms"),
	),
	optional("resource.citation.recorded",
		array("citations", object("",
			object("source", text("id"), text("uri").redacted(), text("title").redacted()),
			text("cited_text_redacted").redacted(),
			text("cited_text").full(),
			object("offset",
				object("char", integral("start"), integral("end")),
				object("page", integral("page"), integral("start"), integral("end")),
				object("block", integral("block"), integral("start"), integral("end")),
			),
			count("document_index"),
		)),
		count("count"),
	),
	optional("assessment.evaluation.recorded",
		text("gen_ai.evaluation.name"),
		number("gen_ai.evaluation.score.value"),
		text("gen_ai.evaluation.score.label"),
		text("gen_ai.evaluation.explanation").redacted(),
		text("evaluator"),
	),
	optional("assessment.feedback.received",
		number("rating"),
		text("label"),
		text("comment").redacted(),
		text("correction").redacted(),
		text("source"),
	),
	optional("assessment.guardrail.recorded",
		object("guardrail",
			enum("stage", "input", "output"),
			enum("verdict", "allowed", "flagged", "blocked", "modified"),
			array("categories", object("", text("name"), number("score"))),
			object("detector", text("name"), text("version")),
			text("explanation").redacted(),
		),
	),

	// Control (experimental): commands, and the target's acks.
	command("control.attention.respond",
		answer.required(),
	),
	command("control.cancel",
		enum("scope", "run", "session").required(),
		text("reason").redacted(),
	),
	command("control.pause"),
	command("control.resume"),
	optional("control.accepted"),
	optional("control.rejected",
		enum("reason", "unsupported", "unauthorized", "busy", "refused", "invalid").required(),
		text("detail").redacted(),
	),

	// Conversation: reserved, without a form.
	TypeInfo{Type: "message.user.submitted", Status: Reserved, Scope: SessionScope},
	TypeInfo{Type: "message.agent.replied", Status: Reserved, Scope: SessionScope},
)

// Members that several types share.
var (
	inputTokens  = count("gen_ai.usage.input_tokens")
	outputTokens = count("gen_ai.usage.output_tokens")
	cost         = object("cost", text("currency").required(), amount("total"), amount("prompt"), amount("completion"), amount("cache"), amount("reasoning"))
	fault        = object("error", text("type"), text("message").redacted())
	tool         = object("tool", text("name").required(), text("call_id"))
	task         = object("task", text("id"), text("title").redacted())
	child        = object("child", text("session"), text("run"), text("agent"))
	document     = object("", text("id"), number("score"), text("content_redacted").redacted(), text("content").full(), object("metadata"))
	answer       = object("answer", text("option"), text("text").redacted(), object("values").perKey())
)

func types(all ...TypeInfo) map[string]TypeInfo {
	m := make(map[string]TypeInfo, len(all))
	for _, t := range all {
		m[t.Type] = t
	}
	return m
}

func typeInfo(typ string, status Status, scope Scope, members []Fact) TypeInfo {
	return TypeInfo{Type: typ, Status: status, Scope: scope, Data: &Fact{Type: Object, Members: members}}
}

func mandatory(typ string, members ...Fact) TypeInfo {
	return typeInfo(typ, Mandatory, SessionScope, members)
}
func optional(typ string, members ...Fact) TypeInfo {
	return typeInfo(typ, Optional, SessionScope, members)
}
func agentWide(typ string, members ...Fact) TypeInfo {
	return typeInfo(typ, Optional, AgentScope, members)
}
func command(typ string, members ...Fact) TypeInfo {
	return typeInfo(typ, Optional, CommandScope, members)
}

func text(name string) Fact         { return Fact{Name: name, Type: String} }
func textOrObject(name string) Fact { return Fact{Name: name, Type: String | Object} }
func instant(name string) Fact      { return Fact{Name: name, Type: String, Instant: true} }
func boolean(name string) Fact      { return Fact{Name: name, Type: Boolean} }
func number(name string) Fact       { return Fact{Name: name, Type: Number} }
func integral(name string) Fact     { return Fact{Name: name, Type: Integer} }
func count(name string) Fact        { return integral(name).between(0, math.Inf(1)) }
func amount(name string) Fact       { return number(name).between(0, math.Inf(1)) }

func enum(name string, values ...string) Fact {
	return Fact{Name: name, Type: String, Enum: values}
}
func object(name string, members ...Fact) Fact {
	return Fact{Name: name, Type: Object, Members: members}
}
func array(name string, item Fact) Fact {
	return Fact{Name: name, Type: Array, Item: &item}
}

func (f Fact) redacted() Fact { f.Level = Redacted; return f }
func (f Fact) full() Fact     { f.Level = Full; return f }
func (f Fact) required() Fact { f.Required = true; return f }
func (f Fact) star() Fact     { f.Star = true; return f }
func (f Fact) perKey() Fact   { f.PerKey = true; return f }
func (f Fact) between(min, max float64) Fact {
	f.Bounded, f.Min, f.Max = true, min, max
	return f
}
