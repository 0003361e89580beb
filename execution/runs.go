package execution

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"aep-wrap/event"
)

type runID struct {
	RunID string `json:"run_id"`
}

func (p runID) check() error {
	if !isID(p.RunID, runPrefix) {
		return notFound("run", p.RunID)
	}
	return nil
}

// live are the runs whose jobs are followed here.
type live struct {
	mu   sync.Mutex
	runs map[string]*liveRun
	// news is closed, and replaced, when any run has new events.
	news chan struct{}
	done sync.WaitGroup
}

type liveRun struct {
	job    Job
	agent  string
	mu     sync.Mutex
	timers []*time.Timer
	limits Ceilings
	budget Budgets
	tools  []string // the toolset; empty is any
}

func (l *live) add(id string, r *liveRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs == nil {
		l.runs = map[string]*liveRun{}
	}
	l.runs[id] = r
}

func (l *live) get(id string) *liveRun {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.runs[id]
}

func (l *live) remove(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.runs, id)
}

// ids are the runs that are followed.
func (l *live) ids() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Sorted(maps.Keys(l.runs))
}

// ceilings gives an agent's runs new, narrower bounds.
func (l *live) ceilings(agent string, spec Spec) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.runs {
		if r.agent != agent {
			continue
		}
		r.mu.Lock()
		r.limits = spec.Ceilings
		c := callsOf(Spec{Toolset: r.tools, Ceilings: spec.Ceilings, Budgets: r.budget})
		r.mu.Unlock()
		if c != nil {
			err = errors.Join(err, r.job.Hold(*c))
		}
	}
	return err
}

// changed tells who waits that there may be new events.
func (l *live) changed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.news != nil {
		close(l.news)
		l.news = nil
	}
}

// wait is closed at the next change.
func (l *live) wait() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.news == nil {
		l.news = make(chan struct{})
	}
	return l.news
}

// runCreate starts a run of an agent's: one that is active.
func (s *Server) runCreate(ctx context.Context, p struct {
	agentID
	Goal       string   `json:"goal"`
	Inputs     any      `json:"inputs"`
	SubjectIDs []string `json:"subject_ids"`
}) (any, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	if p.Goal == "" || len(p.Goal) > maxText {
		return nil, fail(InvalidParams, "goal: want 1 to %d bytes", maxText)
	}
	if err := checkSubjects(p.SubjectIDs); err != nil {
		return nil, err
	}
	now := s.Now()
	rec := runRecord{Run: Run{
		ID: s.ids.make(runPrefix, now), AgentID: p.AgentID, Goal: p.Goal, Inputs: p.Inputs, State: Running, StartedAt: Time{now},
		SubjectIDs: orEmpty(p.SubjectIDs), Metadata: map[string]any{},
	}}
	var a agentRecord
	err := s.Store.update(func(t tx) (err error) {
		if a, err = t.agent(p.AgentID); err != nil {
			return err
		}
		switch {
		case a.LifecycleState != Active:
			return fail(LifecycleConflict, "the agent is %s", a.LifecycleState)
		case s.draining.Load():
			return fail(LifecycleConflict, "the runtime is ending")
		}
		for _, id := range a.SubjectIDs {
			if !slices.Contains(rec.SubjectIDs, id) {
				rec.SubjectIDs = append(rec.SubjectIDs, id)
			}
		}
		rec.Profile = a.Profile
		if rec.Dir, err = s.Runner.Dir(rec.ID, a.Profile); err != nil {
			return err
		}
		if rec.Before, err = before(rec.Dir); err != nil {
			return err
		}
		if err := t.putRun(rec); err != nil {
			return err
		}
		return t.append(rec.ID, []Event{{Type: RunStarted, EmittedAt: rec.StartedAt, Payload: map[string]any{"agent_id": rec.AgentID, "profile": rec.Profile}}})
	})
	if err != nil {
		return nil, err
	}
	return s.launch(ctx, a, rec, rec.Goal, "")
}

// launch starts a run's job and begins to follow it. A job that cannot be
// started is a run that ended in error, not a call that failed: the run is
// there, and its events say why.
func (s *Server) launch(ctx context.Context, a agentRecord, rec runRecord, goal, resume string) (any, error) {
	goal, err := withInputs(goal, rec.Inputs)
	if err != nil {
		return nil, err
	}
	servers := slices.Clone(a.ExternalMCPServers)
	for i := range servers {
		servers[i].Auth = a.Auth[servers[i].Name]
	}
	order := Order{
		Run: rec.ID, Agent: a.ID, Profile: rec.Profile, Dir: rec.Dir, Goal: goal, Prompt: promptOf(a.Constitution), MCP: servers, Resume: resume,
		Calls: callsOf(a.Spec),
	}
	if a.Runner != nil {
		order.Model = a.Runner.Model
	}
	job, err := s.Runner.Start(context.WithoutCancel(ctx), order)
	if err != nil {
		s.Log.Error("a run could not be started", "run", rec.ID, "err", err)
		fault := &Fault{Code: InternalError, Name: "start_failed", Message: err.Error()}
		if err := s.finish(rec.ID, Failed, fault); err != nil {
			return nil, err
		}
	} else {
		s.follow(a, rec, job)
	}
	err = s.Store.view(func(t tx) (err error) { rec, err = t.run(rec.ID); return })
	return rec.Run, err
}

// callsOf is what an agent's tool calls are held to; nil is nothing: they are its
// own, or a person's to permit.
func callsOf(s Spec) *Calls {
	c := Calls{Tools: s.Toolset, Bounds: map[string]int64{}}
	if n := s.Ceilings.MaxToolCallsPerCycle; n > 0 {
		c.Bounds[maxCalls] = n
	}
	if n := s.Budgets.ToolCallsPerCycle; n > 0 {
		c.Bounds[callsBudget] = n
	}
	if len(c.Tools)+len(c.Bounds) == 0 {
		return nil
	}
	return &c
}

// withInputs puts a run's inputs below its goal, as the agent reads them.
func withInputs(goal string, inputs any) (string, error) {
	if inputs == nil {
		return goal, nil
	}
	b, err := json.MarshalIndent(inputs, "", "  ")
	if err != nil {
		return "", err
	}
	return goal + "\n\nInputs:\n" + string(b), nil
}

// takeUp follows the runs that were not over when an earlier server ended.
func (s *Server) takeUp() error {
	type open struct {
		a agentRecord
		r runRecord
	}
	var found []open
	err := s.Store.view(func(t tx) error {
		return t.Bucket([]byte("runs")).ForEach(func(_, v []byte) error {
			var r runRecord
			if err := json.Unmarshal(v, &r); err != nil {
				return err
			}
			if r.State != Running {
				return nil
			}
			a, err := t.agent(r.AgentID)
			if err == nil {
				found = append(found, open{a, r})
			}
			return err
		})
	})
	for _, o := range found {
		s.follow(o.a, o.r, s.Runner.Find(o.r.ID))
	}
	return err
}

// follow maps what a run's job shows, enforces its bounds and ends the run
// when the job is over.
func (s *Server) follow(a agentRecord, rec runRecord, job Job) {
	r := &liveRun{job: job, agent: a.ID, limits: a.Ceilings, budget: a.Budgets, tools: a.Toolset}
	if n := a.Ceilings.MaxWallSeconds; n > 0 {
		left := rec.StartedAt.Add(time.Duration(n) * time.Second).Sub(s.Now())
		r.timers = append(r.timers, time.AfterFunc(max(left, 0), func() { s.exceed(rec.ID, &Ceiling{"max_wall_seconds", CeilingExceeded, n}) }))
	}
	for cycle := range rec.Reading.Cycles { // of a run that is taken up: its budget begins anew
		s.time(rec.ID, r, cycle, a.Budgets.SecondsPerCycle)
	}
	s.live.add(rec.ID, r)
	s.live.done.Go(func() {
		defer s.live.remove(rec.ID)
		err := job.Follow(s.ctx, func(line []byte) error { return s.took(rec.ID, r, line) })
		r.mu.Lock()
		for _, t := range r.timers {
			t.Stop()
		}
		r.mu.Unlock()
		if s.ctx.Err() != nil {
			return // the next server takes it up
		}
		if err == nil {
			err = s.over(rec.ID, job.Outcome())
		}
		if err != nil {
			s.Log.Error("a run cannot be followed", "run", rec.ID, "err", err)
		}
	})
}

// took takes in a line of a run's session logs.
func (s *Server) took(run string, r *liveRun, line []byte) error {
	e, err := event.Parse(line)
	if err != nil || !e.Sequenced {
		return nil // a command, or what a crash left of a line
	}
	r.mu.Lock()
	limits, budget, tools := r.limits, r.budget, r.tools
	r.mu.Unlock()
	var st step
	err = s.Store.update(func(t tx) error {
		rec, err := t.run(run)
		if err != nil {
			return err
		}
		at, seen := rec.Reading.At[e.Session]
		if seen && !at.Less(e.Position()) {
			return errSeen
		}
		st = rec.Reading.take(&e, limits, budget, tools)
		rec.Reading.At[e.Session] = e.Position()
		rec.CycleCount = rec.Reading.Count
		if e.Type == "session.started" && rec.Vendor == "" {
			rec.Vendor = e.Session
		}
		if err := t.append(run, st.events); err != nil {
			return err
		}
		return t.putRun(rec)
	})
	if errors.Is(err, errSeen) {
		return nil
	}
	if err != nil {
		return err
	}
	if len(st.events) > 0 {
		s.live.changed()
	}
	if st.over != nil {
		s.exceed(run, st.over)
	}
	if st.began != "" {
		s.time(run, r, st.began, budget.SecondsPerCycle)
	}
	return nil
}

// time ends a run of which a cycle takes longer than its budget says.
func (s *Server) time(run string, r *liveRun, cycle string, seconds int64) {
	if seconds <= 0 {
		return
	}
	t := time.AfterFunc(time.Duration(seconds)*time.Second, func() {
		open := false
		err := s.Store.view(func(t tx) error {
			rec, err := t.run(run)
			_, open = rec.Reading.Cycles[cycle]
			return err
		})
		if err == nil && open && s.ctx.Err() == nil {
			s.exceed(run, &Ceiling{"seconds_per_cycle", BudgetExhausted, seconds})
		}
	})
	r.mu.Lock()
	r.timers = append(r.timers, t)
	r.mu.Unlock()
}

var errSeen = errors.New("taken in before")

// exceed ends a run that passed a bound.
func (s *Server) exceed(run string, c *Ceiling) {
	why := stop{By: byCeiling, Fault: &Fault{
		Code: c.Code, Name: codes[c.Code].name, Ceiling: c.Name,
		Message: fmt.Sprintf("%s is %d", c.Name, c.Bound),
	}}
	if c.Code == PolicyViolation {
		why.Fault.Message = "a tool was used that is not in the agent's toolset: it could not be held"
	}
	if _, err := s.halt(context.WithoutCancel(s.ctx), run, why); err != nil && codeOf(err) != LifecycleConflict {
		s.Log.Error("a run that passed a bound cannot be ended", "run", run, "ceiling", c.Name, "err", err)
	}
}

// halt notes why a run is ended, once, and ends its job.
func (s *Server) halt(ctx context.Context, id string, why stop) (rec runRecord, err error) {
	err = s.Store.update(func(t tx) (err error) {
		if rec, err = t.run(id); err != nil {
			return err
		}
		switch {
		case rec.State == Sleeping && why.By == byCancel:
			rec.Stop = &why
			return t.putRun(rec)
		case rec.State != Running:
			return fail(LifecycleConflict, "the run is %s", rec.State)
		case rec.Stop != nil:
			return fail(LifecycleConflict, "the run is being ended already")
		}
		rec.Stop = &why
		return t.putRun(rec)
	})
	if err != nil {
		return rec, err
	}
	if rec.State == Sleeping {
		err = s.finish(id, Cancelled, nil)
	} else if r := s.live.get(id); r != nil {
		err = r.job.Cancel(ctx, why.By)
	}
	if err != nil {
		return rec, err
	}
	err = s.Store.view(func(t tx) (err error) { rec, err = t.run(id); return })
	return rec, err
}

// over ends a run whose job is over.
func (s *Server) over(id string, x Outcome) error {
	var rec runRecord
	err := s.Store.view(func(t tx) (err error) { rec, err = t.run(id); return })
	if err != nil {
		return err
	}
	switch {
	case rec.Stop != nil && rec.Stop.Fault != nil:
		return s.finish(id, Failed, rec.Stop.Fault)
	case rec.Stop != nil:
		return s.finish(id, Cancelled, nil)
	case x.Lost && rec.Vendor != "" && s.Runner.Profiles()[rec.Profile].Resume:
		return s.sleep(id)
	case x.Lost:
		return s.finish(id, Failed, &Fault{Code: InternalError, Name: "lost", Message: "the agent's process is gone, and nobody saw it end"})
	case x.Signal != "":
		return s.finish(id, Failed, &Fault{Code: InternalError, Name: "signal", Message: "the agent died of " + x.Signal})
	case x.Exit != 0:
		return s.finish(id, Failed, &Fault{Code: InternalError, Name: "exit", Message: fmt.Sprintf("the agent exited with %d", x.Exit)})
	}
	return s.finish(id, Complete, nil)
}

// sleep leaves a run without a terminal: its process is gone and nobody saw it
// end, as after a crash of the machine, but its runtime can go on where it was.
func (s *Server) sleep(id string) error {
	return s.Store.update(func(t tx) error {
		rec, err := t.run(id)
		if err != nil || rec.State != Running {
			return err
		}
		rec.State = Sleeping
		return t.putRun(rec)
	})
}

// finish gives a run its terminal: what it made is looked through first, so
// that nothing of it comes after its end.
func (s *Server) finish(id string, state State, fault *Fault) error {
	made, err := s.harvest(id)
	if err != nil {
		s.Log.Error("what a run made cannot be looked through", "run", id, "err", err)
	}
	now := Time{s.Now()}
	err = s.Store.update(func(t tx) error {
		rec, err := t.run(id)
		if err != nil {
			return err
		}
		if rec.State.Over() {
			return nil
		}
		events, err := s.artifacts(t, &rec, made)
		if err != nil {
			return err
		}
		rec.State, rec.Error, rec.EndedAt, rec.Stop = state, fault, &now, nil
		rec.Result = map[string]any{"state": state, "artifacts": len(events)}
		end := map[string]any{"state": state, "cycle_count": rec.CycleCount}
		if fault != nil {
			rec.Result = map[string]any{"state": state, "artifacts": len(events), "error": fault}
			events = append(events, Event{Type: ErrorEvent, EmittedAt: now, Payload: map[string]any{"error": fault, "fatal": true}})
			end["error"] = fault
		}
		events = append(events, Event{Type: RunEnded, EmittedAt: now, Payload: end})
		if err := t.append(id, events); err != nil {
			return err
		}
		return t.putRun(rec)
	})
	s.live.changed()
	return err
}

func (s *Server) runGet(_ context.Context, p runID) (any, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	var rec runRecord
	err := s.Store.view(func(t tx) (err error) { rec, err = t.run(p.RunID); return })
	return rec.Run, err
}

func (s *Server) runList(_ context.Context, p struct {
	agentID
	listing
}) (any, error) {
	if err := p.agentID.check(); err != nil {
		return nil, err
	}
	limit, err := p.listing.check(runPrefix)
	if err != nil {
		return nil, err
	}
	var out listed[Run]
	err = s.Store.view(func(t tx) error {
		if _, err := t.agent(p.AgentID); err != nil {
			return err
		}
		var err error
		out.Items, out.Cursor, err = page(t, t.Bucket([]byte("runs_of")).Bucket([]byte(p.AgentID)), p.Cursor, limit, func(id string, _ []byte) (Run, bool, error) {
			r, err := t.run(id)
			return r.Run, err == nil, err
		})
		return err
	})
	return out, err
}

func (s *Server) runCancel(ctx context.Context, p runID) (any, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	rec, err := s.halt(ctx, p.RunID, stop{By: byCancel})
	return rec.Run, err
}

// runContinue wakes a sleeping run: the runtime's own session is resumed. Its
// events go on behind those that there are.
func (s *Server) runContinue(ctx context.Context, p runID) (any, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	var rec runRecord
	var a agentRecord
	err := s.Store.update(func(t tx) (err error) {
		if rec, err = t.run(p.RunID); err != nil {
			return err
		}
		if a, err = t.agent(rec.AgentID); err != nil {
			return err
		}
		can := s.Runner.Profiles()[rec.Profile]
		switch {
		case rec.State != Sleeping:
			return fail(LifecycleConflict, "the run is %s", rec.State)
		case a.LifecycleState != Active:
			return fail(LifecycleConflict, "the agent is %s", a.LifecycleState)
		case s.draining.Load():
			return fail(LifecycleConflict, "the runtime is ending")
		case !can.Resume || rec.Vendor == "":
			return fail(CapabilityNotSupported, "profile %s cannot go on with a run", rec.Profile)
		}
		rec.State = Running
		return t.putRun(rec)
	})
	if err != nil {
		return nil, err
	}
	return s.launch(ctx, a, rec, continueWord, rec.Vendor)
}

// continueWord is what an agent hears that shall go on.
const continueWord = "Continue."

func codeOf(err error) Code {
	var e *Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}
