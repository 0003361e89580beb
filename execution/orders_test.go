package execution

import (
	"context"
	"slices"
	"testing"
	"time"
)

// asks calls while the server is in the midst of something, and gives what it
// was told.
func (w *world) asks(method string, params any) func(string) {
	return func(string) {
		if r := w.call(method, params); r.Error != nil {
			w.t.Errorf("%s: %d %s", method, r.Error.Code, r.Error.Message)
		}
	}
}

// What ends a run while its job is being started ends the job, once.
func TestARunThatIsEndedWhileItStarts(t *testing.T) {
	for _, method := range []string{"run.cancel", "agent.cancel"} {
		t.Run(method, func(t *testing.T) {
			w := newWorld(t)
			agent := w.agent(nil)
			w.runner.when("Start", func(run string) { w.asks(method, map[string]any{"run_id": run, "agent_id": agent})(run) })
			run, j := w.run(agent)
			w.eventually("the end", func() bool { return w.state(run) == Cancelled })
			if got := j.cancelled(); !slices.Equal(got, []string{byCancel}) {
				t.Errorf("its job was told %q", got)
			}
		})
	}
	t.Run("again", func(t *testing.T) {
		w := newWorld(t)
		run, j := w.sleeper()
		w.runner.when("Start", w.asks("run.cancel", map[string]any{"run_id": run}))
		w.must("run.continue", map[string]any{"run_id": run})
		w.eventually("the end", func() bool { return w.state(run) == Cancelled })
		if got := j.cancelled(); !slices.Equal(got, []string{byCancel}) {
			t.Errorf("its job was told %q", got)
		}
	})
}

// sleeper is a run that sleeps.
func (w *world) sleeper() (run string, j *job) {
	w.t.Helper()
	run, j = w.run(w.agent(nil))
	j.tell("session.started", "", nil)
	j.end(Outcome{Lost: true})
	w.eventually("sleep", func() bool { return w.state(run) == Sleeping })
	return run, j
}

// Bounds that shrink while a run's job is being started are its own.
func TestBoundsThatShrinkWhileARunStarts(t *testing.T) {
	w := newWorld(t)
	agent := w.agent(map[string]any{"ceilings": map[string]any{"max_cycles": 5, "max_tool_calls_per_cycle": 2}})
	w.runner.when("Start", w.asks("agent.update", map[string]any{
		"agent_id": agent, "ceilings": map[string]any{"max_cycles": 1, "max_tool_calls_per_cycle": 1},
	}))
	run, j := w.run(agent)
	if got := j.holds().Bounds[maxCalls]; got != 1 {
		t.Errorf("its calls are held to %d", got)
	}
	j.turn(1)
	j.turn(2)
	w.eventually("the end", func() bool { return w.state(run) == Failed })
}

// Drain waits for a run that was let in before it, and ends it.
func TestDrainOfARunThatStarts(t *testing.T) {
	w := newWorld(t)
	agent := w.agent(nil)
	drained := make(chan error, 1)
	w.runner.when("Dir", func(string) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		go func() { defer cancel(); drained <- w.srv.Drain(ctx) }()
		w.eventually("draining", w.srv.draining.Load)
	})
	run, _ := w.run(agent)
	if err := <-drained; err != nil {
		t.Error(err)
	}
	if got := w.state(run); got != Cancelled {
		t.Errorf("what began before the end is %s", got)
	}
	w.fails(LifecycleConflict, "run.create", map[string]any{"agent_id": agent, "goal": "more"})
}

// The time that a run had may be over when a server takes it up.
func TestAWallThatWasPassedMeanwhile(t *testing.T) {
	w := newWorld(t)
	run, j := w.run(w.agent(map[string]any{"ceilings": map[string]any{"max_wall_seconds": 3600}}))
	w.close()
	w.sleep(2 * time.Hour)
	w.open()
	w.eventually("the end", func() bool { return w.state(run) == Failed })
	if got := j.cancelled(); !slices.Equal(got, []string{byCeiling}) {
		t.Errorf("its job was told %q", got)
	}
}

// A server that went between noting why a run ends and ending its job leaves
// that to the next.
func TestAnEndThatWasOnlyNoted(t *testing.T) {
	w := newWorld(t)
	run, j := w.run(w.agent(nil))
	w.close()
	w.noted(run)
	w.open()
	w.eventually("the end", func() bool { return w.state(run) == Cancelled })
	if got := j.cancelled(); !slices.Equal(got, []string{byCancel}) {
		t.Errorf("its job was told %q", got)
	}
}

// noted writes into the store, while no server has it open, that a run ends.
func (w *world) noted(run string) {
	w.t.Helper()
	store, err := OpenStore(w.dir)
	if err != nil {
		w.t.Fatal(err)
	}
	defer store.Close()
	err = store.update(func(t tx) error {
		rec, err := t.run(run)
		if err != nil {
			return err
		}
		rec.Stop = &stop{By: byCancel}
		return t.putRun(rec)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// A run that is cancelled while it is found to be lost does not fall asleep.
func TestARunThatIsCancelledWhileItIsLost(t *testing.T) {
	w := newWorld(t)
	run, j := w.run(w.agent(nil))
	j.tell("session.started", "", nil)
	w.eventually("its session", func() bool { rec, _ := w.record(run); return rec.Vendor != "" })
	met := make(chan bool)
	w.runner.when("Profiles", func(string) { w.asks("run.cancel", map[string]any{"run_id": run})(run); close(met) })
	j.end(Outcome{Lost: true})
	<-met
	w.eventually("the end", func() bool { return w.state(run) == Cancelled })
}

// Whoever cancels a sleeper has it: it is not woken in the midst of that.
func TestASleeperThatIsCancelledIsNotWoken(t *testing.T) {
	w := newWorld(t)
	run, j := w.sleeper()
	w.runner.when("Start", func(string) { t.Error("it was woken") })
	woken := false
	// The time is asked for by each call, and then for the run's end.
	w.asked = func() {
		w.mu.Lock()
		w.asked = func() {
			woken = true
			w.fails(LifecycleConflict, "run.continue", map[string]any{"run_id": run})
		}
		w.mu.Unlock()
	}
	w.must("run.cancel", map[string]any{"run_id": run})
	if !woken || w.state(run) != Cancelled {
		t.Errorf("tried %v, and it is %s", woken, w.state(run))
	}
	if got := j.cancelled(); len(got) != 0 {
		t.Errorf("what was over was told %q", got)
	}
}

// The end of one launch leaves the run's next alone.
func TestOneLaunchIsNotTheNext(t *testing.T) {
	var l live
	first, next := &liveRun{}, &liveRun{}
	l.add("r", first)
	l.add("r", next)
	l.remove("r", first)
	if l.get("r") != next {
		t.Error("the next launch is gone with the first")
	}
	l.remove("r", next)
	if len(l.ids()) != 0 {
		t.Error("it is still there")
	}
}
