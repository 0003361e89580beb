package session

import (
	"slices"
	"time"

	"aep-wrap/event"
)

// rule is what binding means for one type. Both functions say false to drop
// the draft. join comes before the draft's id is known, apply after: a draft
// that was seen before never gets to apply, so it changes nothing.
type rule struct {
	join        func(*Session, *event.Draft, *facts) bool
	apply       func(*Session, *event.Draft, *facts) bool
	sessionWide bool // never in a run
}

// rules is the table of all rules; a type that is not in it is placed as it
// comes, in the open run.
var rules map[string]rule

func init() { // rules drain by rules, which a literal may not
	rules = map[string]rule{
		"session.started": {apply: (*Session).startSession, sessionWide: true},
		"session.ended":   {apply: (*Session).endSession, sessionWide: true},

		"run.started":   {join: (*Session).nameRun, apply: (*Session).startRun},
		"run.finished":  {join: (*Session).nameEnd, apply: (*Session).endRun},
		"run.failed":    {join: (*Session).nameEnd, apply: (*Session).endRun},
		"run.cancelled": {join: (*Session).nameEnd, apply: (*Session).endRun},

		"tool.requested": {join: (*Session).joinTool, apply: (*Session).requestTool},
		"tool.completed": {join: (*Session).joinTool, apply: (*Session).endTool},
		"tool.failed":    {join: (*Session).joinTool, apply: (*Session).endTool},
		"tool.denied":    {join: (*Session).joinTool, apply: (*Session).endTool},

		"attention.requested": {join: (*Session).joinRequest, apply: (*Session).request},
		"attention.answered":  {join: (*Session).joinAttention, apply: (*Session).answer},
		"attention.resolved":  {join: (*Session).joinAttention, apply: (*Session).closed},
		"attention.timeout":   {join: (*Session).joinAttention, apply: (*Session).closed},

		"delegation.subagent.started":  {apply: (*Session).open},
		"progress.task.planned":        {apply: (*Session).open},
		"resource.retrieval.requested": {apply: (*Session).open},
		"run.step.started":             {apply: (*Session).open},

		"delegation.subagent.stopped": {apply: pairedWith("delegation.subagent.started")},
		"progress.task.completed":     {apply: pairedWith("progress.task.planned")},
		"resource.retrieval.returned": {apply: pairedWith("resource.retrieval.requested")},
		"resource.retrieval.reranked": {apply: pairedWith("resource.retrieval.requested")},
		"run.step.finished":           {apply: pairedWith("run.step.started")},

		"control.accepted": {sessionWide: true},
		"control.rejected": {sessionWide: true},
	}
}

// startSession: a session starts once for each emitter that begins it. After a
// synthesized start, the runtime's own comes too late.
func (s *Session) startSession(d *event.Draft, _ *facts) bool {
	d.Run, d.Step = "", ""
	return !s.began
}

// endSession closes what is open, and ends a session once over all epochs.
func (s *Session) endSession(d *event.Draft, _ *facts) bool {
	d.Run, d.Step = "", ""
	if s.exited {
		return false
	}
	s.closeRequests(d.Time, everyRequest)
	s.drain(d.Time)
	s.exited = true
	if s.st.ended {
		s.demote(d)
		d.Type, d.Key, d.ID = "x.aep-wrap.session.exited", "", ""
		return true
	}
	if !s.st.first.IsZero() {
		d.Fields = withDefault(d.Fields, "duration_ms", since(s.st.first, d.Time))
	}
	d.Fields = withDefault(d.Fields, "runs", s.st.runs)
	return true
}

// nameRun gives a run that the runtime does not name an id of its own: from
// the fact's key, so that a second reading gives the same one, or a fresh one.
func (s *Session) nameRun(d *event.Draft, _ *facts) bool {
	switch {
	case d.Run != "":
	case d.Key != "":
		d.Run = event.DeriveID(s.cfg.Agent, s.cfg.Session, "run", d.Key)
	default:
		d.Run = event.NewID(d.Time)
	}
	return true
}

// nameEnd names the end of a run that its vendor does not name by the run: it
// ends once, whoever tells it. An end of before the open run began, read again
// or overtaken by its start, is not its.
func (s *Session) nameEnd(d *event.Draft, _ *facts) bool {
	if d.Run == "" && s.st.open.len() == 1 {
		o, _ := s.st.open.oldest()
		if (s.cfg.History || d.Link.Dated) && d.Time.Before(o.at) {
			return false
		}
		d.Run = o.id
	}
	if d.Key == "" {
		d.Key = d.Run
	}
	return true
}

// startRun opens a run once. A run that is still open was cut off unseen.
func (s *Session) startRun(d *event.Draft, _ *facts) bool {
	if _, open := s.st.open.get(d.Run); open || s.st.over.has(d.Run) {
		return false
	}
	if s.cfg.Steer && s.st.open.len() > 0 {
		// Told again later, it starts none either.
		s.st.over.add(d.Run)
		return false
	}
	if !s.cfg.Overlap {
		s.drain(d.Time)
	}
	s.greet(d.Time)
	setCause(d, s.st.started)
	return true
}

// drain ends the open runs as cut off, with no claim by whom.
func (s *Session) drain(at time.Time) {
	s.st.open.all(func(id string, _ *run) bool {
		s.rule(at, &event.Draft{Header: event.Header{Type: "run.cancelled", Run: id, Time: at, Severity: event.Notice}, Key: id})
		return true
	})
}

// endRun ends a run once over all epochs. The end of an unnamed run is the end
// of the one that is open; where none is, nothing ended.
func (s *Session) endRun(d *event.Draft, _ *facts) bool {
	if d.Run == "" {
		if s.st.open.len() != 1 {
			return false
		}
		o, _ := s.st.open.oldest()
		d.Run = o.id
	}
	if s.st.over.has(d.Run) {
		return false
	}
	// A run that was cut off waits for nothing any more. One that finished may
	// have left something in the background that still does: a step of its own.
	cut := d.Type != "run.finished"
	if !cut {
		s.failRefused(d)
	}
	s.closeRequests(d.Time, func(r *request) bool { return r.run == d.Run && (cut || r.step == "") })
	r, ok := s.st.open.get(d.Run)
	if !ok {
		return true
	}
	if d.Type == "run.failed" && r.failed != "" {
		setCause(d, r.failed)
	}
	setCause(d, r.started)
	if !r.at.IsZero() {
		d.Fields = withDefault(d.Fields, "duration_ms", since(r.at, d.Time))
	}
	return true
}

// failRefused tells the outcome of the tools that were refused in a run which
// went on and has finished. The runtime's own word for it may come later, by a
// log that lags behind: what was refused has no other outcome.
func (s *Session) failRefused(end *event.Draft) {
	s.st.tools.all(func(_ string, t *tool) bool {
		if t.refused && t.run == end.Run && t.call != "" && !t.outcome {
			s.rule(end.Time, &event.Draft{
				Header: event.Header{Type: "tool.failed", Subject: t.name, Time: end.Time, Severity: event.Error}, Key: t.call, Pair: t.call,
				Fields: event.Fields{event.Meta("tool", event.Fields{event.Meta("name", t.name), event.Meta("call_id", t.call)}),
					event.Meta("error", event.Fields{event.Meta("type", "user_rejected")})},
			})
		}
		return true
	})
}

// openRun tells the start of a run that the runtime names and whose start was
// not seen, when it is the only one about. A run beside an open one may be a
// part of it (a subagent's turn), so nothing is claimed.
func (s *Session) openRun(d *event.Draft) {
	if d.Run == "" || s.st.open.len() > 0 || s.st.over.has(d.Run) {
		return
	}
	s.rule(d.Time, &event.Draft{Header: event.Header{Type: "run.started", Run: d.Run, Time: d.Time}, Key: d.Run})
}

// open is for whatever a later event of a pair will cite: it belongs to its
// run, and a run that is not known to be open is.
func (s *Session) open(d *event.Draft, _ *facts) bool {
	s.openRun(d)
	if r := s.runOf(d); r != nil {
		setCause(d, r.started)
	}
	return true
}

func (s *Session) runOf(d *event.Draft) *run {
	if d.Run == "" && s.st.open.len() == 1 {
		r, _ := s.st.open.oldest()
		return r
	}
	r, _ := s.st.open.get(d.Run)
	return r
}

// pairedWith is for the later event of a pair: it cites the opener, and is of
// its run and step.
func pairedWith(typ string) func(*Session, *event.Draft, *facts) bool {
	return func(s *Session, d *event.Draft, f *facts) bool {
		if f.pair == "" {
			return true
		}
		o, ok := s.st.pairs.get(typ + " " + f.pair)
		if !ok { // opened before a restart: the vendor's key is not on the wire, but the id is
			o.id = event.DeriveID(s.cfg.Agent, s.cfg.Session, typ, f.pair)
			if !s.st.seen.has(o.id) {
				return true
			}
		}
		belong(d, o)
		return true
	}
}

// joinTool adds the tool's name by its call id, and finds the request of a
// tool to which its vendor gives no call id.
func (s *Session) joinTool(d *event.Draft, f *facts) bool {
	if s.twin(d, f) {
		return false
	}
	t := s.toolOf(d, f)
	if named := f.tool != "" && f.tool != "unknown"; !named && t != nil && t.name != "" {
		f.tool = t.name
		d.Fields = withTool(d.Fields, t.name)
		if d.Subject == "" || d.Subject == "unknown" || d.Subject == f.call {
			d.Subject = t.name
		}
	}
	if f.tool == "" {
		s.demote(d)
		return true
	}
	if d.Subject == "" {
		d.Subject = f.tool
	}
	f.about = t
	return true
}

// toolOf is the tool that an outcome speaks of, open or not; nil for a
// request.
func (s *Session) toolOf(d *event.Draft, f *facts) *tool {
	if d.Type == "tool.requested" {
		return nil
	}
	if f.call != "" {
		if t, ok := s.st.tools.get(f.call); ok {
			return t
		}
		t, _ := s.st.past.get(f.call)
		return t
	}
	link := d.Link
	if link.Tool == "" {
		link.Tool = f.tool
	}
	if t := s.linked(link, func(t *tool) bool { return t.call == "" || t.twin }); t != nil || d.Link.Tool == "" {
		return t
	}
	return s.echoed(d.Link)
}

// linked finds the oldest open tool that looks like link and passes ok. Where
// none has just these arguments (a hook may have changed them), the name alone
// does, if it can mean one tool only.
func (s *Session) linked(link event.Link, ok func(*tool) bool) (found *tool) {
	if link.Call != "" {
		if t, there := s.st.tools.get(link.Call); there && ok(t) {
			return t
		}
		return nil
	}
	if link.Tool == "" {
		return nil
	}
	var named *tool
	n := 0
	s.st.tools.all(func(_ string, t *tool) bool {
		if t.name != link.Tool || !ok(t) {
			return true
		}
		if link.Args == "" || t.args == "" || t.args == link.Args {
			found = t
			return false
		}
		named, n = t, n+1
		return true
	})
	if found == nil && n == 1 {
		found = named
	}
	return found
}

// requestTool: some runtimes ask first, and tell of the tool when it may run
// or is refused. Its cause is then the request.
func (s *Session) requestTool(d *event.Draft, f *facts) bool {
	s.st.requests.all(func(_ string, r *request) bool {
		l := r.link
		like := l.Tool != "" && l.Tool == f.tool && (l.Args == "" || f.args == "" || l.Args == f.args)
		if r.tool == "" && (like && l.Call == "" || l.Call != "" && l.Call == f.call) {
			setCause(d, r.id)
			return false
		}
		return true
	})
	return s.open(d, nil)
}

// endTool: a call has one outcome. A permission that waits for a tool that
// came to its outcome was settled in the agent's own screen.
func (s *Session) endTool(d *event.Draft, f *facts) bool {
	t := f.about
	if t == nil {
		return true
	}
	if t.id == "" { // its request was never seen: the id alone may be one used again
		return true
	}
	if t.outcome {
		return false
	}
	belong(d, opener{t.id, t.run, t.step})
	said := ""
	switch fault := str(d.Fields, "error", "type"); {
	case d.Type == "tool.completed", d.Type == "tool.failed" && !refused[fault]:
		said = "allow"
	case d.Type == "tool.failed" && rejected[fault]:
		said = "deny"
	}
	s.st.requests.all(func(_ string, r *request) bool {
		switch {
		case r.tool != t.id:
		case said != "" && r.kind == "permission" && r.answer == "":
			s.answeredLocally(d.Time, r, said)
		default:
			s.closeOne(d.Time, r)
		}
		return true
	})
	return true
}

// refused are the error types by which a runtime says that a tool failed
// because it was not let run: no permission can be read from them.
var refused = map[string]bool{
	"cancelled": true, "canceled": true, "denied": true, "interrupt": true, "interrupted": true,
	"permission_denied": true, "rejected": true, "user_rejected": true,
}

// rejected are those of them that say that a person refused it.
var rejected = map[string]bool{"rejected": true, "user_rejected": true}

// joinRequest finds the tool that a request is about: by the call id that it
// is paired by, or by its looks. A request that its vendor gives no name to
// takes the tool's, so that two channels give it one id: without a name, a tool
// is asked for once.
func (s *Session) joinRequest(d *event.Draft, f *facts) bool {
	t, _ := s.st.tools.get(d.Pair)
	if d.Pair == "" {
		t = nil
	}
	if t == nil {
		if t = s.linked(d.Link, func(t *tool) bool { return !t.asked }); t == nil {
			t = s.linked(d.Link, func(*tool) bool { return true })
		}
	}
	if t == nil {
		return true
	}
	f.about = t
	if f.pair == "" {
		f.pair = callKey(t.call, t.id)
	}
	if d.Key == "" {
		d.Key = f.pair
	}
	if d.Subject == "" {
		d.Subject = t.name
	}
	return true
}

func (s *Session) request(d *event.Draft, f *facts) bool {
	d.Severity = max(d.Severity, event.Notice)
	if t := f.about; t != nil {
		belong(d, opener{t.id, t.run, t.step})
	}
	s.open(d, f)
	if s.st.requests.len() >= s.st.requests.max {
		r, _ := s.st.requests.oldest()
		s.closeOne(d.Time, r)
	}
	return true
}

// joinAttention finds the request that a later attention event speaks of, and
// makes its event id the subject. Words about a request that had its terminal
// are dropped; words about one that was never seen become a vendor's event.
func (s *Session) joinAttention(d *event.Draft, f *facts) bool {
	r := s.requestOf(d)
	if r != nil {
		d.Subject, f.pair = r.id, ""
		if d.Run == "" {
			d.Run = r.run
		}
		if d.Step == "" {
			d.Step = r.step
		}
		return true
	}
	for _, key := range []string{d.Subject, d.Pair} {
		if key != "" && (s.st.closed.has(key) || s.st.closed.has("pair "+key)) {
			return false
		}
	}
	if str(d.Fields, "resolution") == "auto" {
		return false // decided without a person, and without a question
	}
	s.demote(d)
	return true
}

func (s *Session) requestOf(d *event.Draft) (found *request) {
	for _, key := range []string{d.Subject, d.Pair} {
		if key == "" {
			continue
		}
		if r, ok := s.st.requests.get(key); ok {
			return r
		}
		if r, ok := s.st.requests.get(event.DeriveID(s.cfg.Agent, s.cfg.Session, "attention.requested", key)); ok {
			return r
		}
		s.st.requests.all(func(_ string, r *request) bool {
			if r.pair == key || r.call == key {
				found = r
			}
			return found == nil
		})
		if found != nil {
			return found
		}
	}
	if t := s.linked(d.Link, func(t *tool) bool { return t.asked }); t != nil {
		s.st.requests.all(func(_ string, r *request) bool {
			if r.tool == t.id {
				found = r
			}
			return found == nil
		})
		return found
	}
	// Words about no request in particular are about the only one there is.
	if d.Subject == "" && d.Pair == "" && d.Link == (event.Link{}) && s.st.requests.len() == 1 {
		found, _ = s.st.requests.oldest()
	}
	return found
}

// answer: a request has one answer.
func (s *Session) answer(d *event.Draft, f *facts) bool {
	r, ok := s.st.requests.get(d.Subject)
	if !ok || r.answer != "" {
		return false
	}
	setCause(d, r.id)
	if t, ok := s.st.tools.get(callKey(r.call, r.tool)); ok && r.kind == "permission" && str(d.Fields, "answer", "option") == "deny" {
		t.refused = true
	}
	d.Fields = withSpec(d.Fields, r.form)
	if f.via != "control" && !slices.Contains(s.settle, r.id) {
		s.settle = append(s.settle, r.id)
	}
	return true
}

func (s *Session) closed(d *event.Draft, _ *facts) bool {
	r, ok := s.st.requests.get(d.Subject)
	if !ok {
		return false
	}
	setCause(d, r.answer)
	setCause(d, r.id)
	if r.answer != "" && str(d.Fields, "resolution") == "auto" {
		// What the runtime takes for a decision without a person is the answer
		// that it was given through its hook.
		d.Fields = withValue(d.Fields, "resolution", "answered")
	}
	name := "latency_ms"
	if d.Type == "attention.timeout" {
		name = "after_ms"
		d.Severity = max(d.Severity, event.Notice)
	}
	if !r.at.IsZero() {
		d.Fields = withDefault(d.Fields, name, since(r.at, d.Time))
	}
	return true
}

// belong makes a draft the consequence of an opener.
func belong(d *event.Draft, o opener) {
	setCause(d, o.id)
	if d.Run == "" {
		d.Run = o.run
	}
	if d.Step == "" {
		d.Step = o.step
	}
}

// setCause names what led to a draft, unless it knows better.
func setCause(d *event.Draft, id string) {
	if d.Cause == "" {
		d.Cause = id
	}
}

func since(from, to time.Time) int64 { return max(to.Sub(from).Milliseconds(), 0) }
