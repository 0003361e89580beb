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

// live are the runs whose jobs are started or followed here.
type live struct {
	mu   sync.Mutex
	runs map[string]*liveRun
	// news is closed, and replaced, when any run has new events.
	news   chan struct{}
	done   sync.WaitGroup
	closed bool // nothing more is followed

	holding sync.Mutex // of giving an agent's runs its bounds
}

// liveRun is a run from before it can be found in the store until its job is
// over. What is asked of it while its job is being started is done by who
// starts it.
type liveRun struct {
	agent  string
	mu     sync.Mutex
	job    Job  // nil while it is being started
	ended  bool // its job was told to end
	timers []*time.Timer
	limits Ceilings
	budget Budgets
	tools  []string // the toolset; empty is any
}

// cancel ends its job, once.
func (r *liveRun) cancel(ctx context.Context, reason string) error {
	r.mu.Lock()
	job := r.job
	if r.ended {
		job = nil
	}
	r.ended = r.ended || job != nil
	r.mu.Unlock()
	if job == nil {
		return nil
	}
	return job.Cancel(ctx, reason)
}

// begin runs fn on a goroutine of its own, unless the server is closed.
func (l *live) begin(fn func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.done.Go(fn)
	}
}

// close waits for what was begun.
func (l *live) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.done.Wait()
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

// remove takes a run away, but not the same run's next launch.
func (l *live) remove(id string, r *liveRun) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.runs[id] == r {
		delete(l.runs, id)
	}
}

// ids are the runs that are started or followed.
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
		job, c := r.job, callsOf(Spec{Toolset: r.tools, Ceilings: spec.Ceilings, Budgets: r.budget})
		r.mu.Unlock()
		if job != nil && c != nil {
			err = errors.Join(err, job.Hold(*c))
		}
	}
	return err
}

// hold gives an agent's runs the bounds that it has now.
func (s *Server) hold(agent string) error {
	s.live.holding.Lock() // of two changes the later is given last
	defer s.live.holding.Unlock()
	var a agentRecord
	if err := s.Store.view(func(t tx) (err error) { a, err = t.agent(agent); return }); err != nil {
		return err
	}
	return s.live.ceilings(a.ID, a.Spec)
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
	r := &liveRun{agent: p.AgentID}
	err := s.Store.update(func(t tx) (err error) {
		if a, err = t.agent(p.AgentID); err != nil {
			return err
		}
		if a.LifecycleState != Active {
			return fail(LifecycleConflict, "the agent is %s", a.LifecycleState)
		}
		if err := s.enter(rec.ID, r); err != nil {
			return err
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
		s.live.remove(rec.ID, r)
		return nil, err
	}
	return s.launch(ctx, r, a, rec, rec.Goal, "")
}

// enter makes a run one of the live, unless the runtime is ending: it is one
// before it is asked, so that Drain finds it there, or it finds Drain.
func (s *Server) enter(run string, r *liveRun) error {
	s.live.add(run, r)
	if s.draining.Load() {
		return fail(LifecycleConflict, "the runtime is ending")
	}
	return nil
}

// launch starts a run's job and begins to follow it. A job that cannot be
// started is a run that ended in error, not a call that failed: the run is
// there, and its events say why.
func (s *Server) launch(ctx context.Context, r *liveRun, a agentRecord, rec runRecord, goal, resume string) (any, error) {
	job, err := s.start(ctx, a, rec, goal, resume)
	if err != nil {
		s.Log.Error("a run could not be started", "run", rec.ID, "err", err)
		err = s.finish(rec.ID, Failed, &Fault{Code: InternalError, Name: "start_failed", Message: err.Error()})
		s.live.remove(rec.ID, r)
	} else {
		s.follow(r, a, rec, job)
	}
	if err != nil {
		return nil, err
	}
	err = s.Store.view(func(t tx) (err error) { rec, err = t.run(rec.ID); return })
	return rec.Run, err
}

// start has a run carried out.
func (s *Server) start(ctx context.Context, a agentRecord, rec runRecord, goal, resume string) (Job, error) {
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
	return s.Runner.Start(context.WithoutCancel(ctx), order)
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
		r := &liveRun{agent: o.a.ID}
		s.live.add(o.r.ID, r)
		s.follow(r, o.a, o.r, s.Runner.Find(o.r.ID))
	}
	return err
}

// follow maps what a run's job shows, enforces its bounds and ends the run
// when the job is over.
func (s *Server) follow(r *liveRun, a agentRecord, rec runRecord, job Job) {
	r.mu.Lock()
	r.job, r.limits, r.budget, r.tools = job, a.Ceilings, a.Budgets, a.Toolset
	r.mu.Unlock()
	if n := a.Ceilings.MaxWallSeconds; n > 0 {
		left := rec.StartedAt.Add(time.Duration(n) * time.Second).Sub(s.Now())
		r.after(max(left, 0), func() { s.exceed(rec.ID, &Ceiling{"max_wall_seconds", CeilingExceeded, n}) })
	}
	for cycle := range rec.Reading.Cycles { // of a run that is taken up: its budget begins anew
		s.time(rec.ID, r, cycle, a.Budgets.SecondsPerCycle)
	}
	s.live.begin(func() {
		defer s.live.remove(rec.ID, r)
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
	if err := s.settle(rec.ID, r, a.Ceilings); err != nil {
		s.Log.Error("a run did not get what was asked of it while it was started", "run", rec.ID, "err", err)
	}
}

// settle does what was asked of a run when its job was not there yet: it was
// ended, or its bounds were narrowed from what it has.
func (s *Server) settle(run string, r *liveRun, has Ceilings) error {
	var rec runRecord
	var a agentRecord
	err := s.Store.view(func(t tx) (err error) {
		if rec, err = t.run(run); err == nil {
			a, err = t.agent(rec.AgentID)
		}
		return err
	})
	switch {
	case err != nil || rec.State != Running:
		return err
	case rec.Stop != nil:
		return r.cancel(context.WithoutCancel(s.ctx), rec.Stop.By)
	case a.Ceilings != has:
		return s.hold(a.ID)
	}
	return nil
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
	r.after(time.Duration(seconds)*time.Second, func() {
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
}

// after has fn called in a while, unless the run's job is over by then.
func (r *liveRun) after(d time.Duration, fn func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.timers = append(r.timers, time.AfterFunc(d, fn))
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
		err = r.cancel(ctx, why.By)
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
		if err = s.sleep(id); errors.Is(err, errStopped) {
			return s.over(id, x)
		}
		return err
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
		if rec.Stop != nil {
			return errStopped
		}
		rec.State = Sleeping
		return t.putRun(rec)
	})
}

var errStopped = errors.New("it was ended meanwhile")

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
	r := &liveRun{}
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
		case rec.Stop != nil:
			return fail(LifecycleConflict, "the run is being ended already")
		case a.LifecycleState != Active:
			return fail(LifecycleConflict, "the agent is %s", a.LifecycleState)
		case !can.Resume || rec.Vendor == "":
			return fail(CapabilityNotSupported, "profile %s cannot go on with a run", rec.Profile)
		}
		r.agent = a.ID
		if err := s.enter(rec.ID, r); err != nil {
			return err
		}
		rec.State = Running
		return t.putRun(rec)
	})
	if err != nil {
		s.live.remove(p.RunID, r)
		return nil, err
	}
	return s.launch(ctx, r, a, rec, continueWord, rec.Vendor)
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
