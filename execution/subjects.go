package execution

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
)

// subjectID is the person whom data is about.
type subjectID struct {
	SubjectID string `json:"subject_id"`
}

// bundle is everything that is kept here about a subject.
type bundle struct {
	SubjectID     string                       `json:"subject_id"`
	Agents        []Agent                      `json:"agents"`
	Runs          []Run                        `json:"runs"`
	Artifacts     []Artifact                   `json:"artifacts"`
	Events        map[string][]json.RawMessage `json:"events,omitempty"` // by run; in an export alone
	MemoryRecords []any                        `json:"memory_records"`
	Messages      []any                        `json:"messages"`
	PromptHistory []any                        `json:"prompt_history"`
	GeneratedAt   Time                         `json:"generated_at"`
}

// concerned are the records that name a subject.
func concerned(t tx, subject string) (agents []agentRecord, runs []runRecord, err error) {
	if subject == "" {
		return nil, nil, missing("subject")
	}
	err = t.Bucket([]byte("agents")).ForEach(func(_, v []byte) error {
		var a agentRecord
		if err := json.Unmarshal(v, &a); err != nil {
			return err
		}
		if slices.Contains(a.SubjectIDs, subject) {
			agents = append(agents, a)
		}
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	err = t.Bucket([]byte("runs")).ForEach(func(_, v []byte) error {
		var r runRecord
		if err := json.Unmarshal(v, &r); err != nil {
			return err
		}
		if slices.Contains(r.SubjectIDs, subject) {
			runs = append(runs, r)
		}
		return nil
	})
	if err == nil && len(agents)+len(runs) == 0 {
		err = fail(SubjectNotFound, "nothing here is about this subject")
	}
	return agents, runs, err
}

// artifactsOf are a run's.
func (t tx) artifactsOf(run string) (out []artifactRecord, err error) {
	of := t.Bucket([]byte("artifacts_of")).Bucket([]byte(run))
	if of == nil {
		return nil, nil
	}
	err = of.ForEach(func(_, id []byte) error {
		a, err := t.artifact(string(id))
		out = append(out, a)
		return err
	})
	return out, err
}

func (s *Server) subjectRead(_ context.Context, p subjectID) (any, error) { return s.bundle(p, false) }

func (s *Server) subjectExport(_ context.Context, p subjectID) (any, error) { return s.bundle(p, true) }

func (s *Server) bundle(p subjectID, whole bool) (any, error) {
	b := bundle{
		SubjectID: p.SubjectID, Agents: []Agent{}, Runs: []Run{}, Artifacts: []Artifact{},
		MemoryRecords: []any{}, Messages: []any{}, PromptHistory: []any{}, GeneratedAt: Time{s.Now()},
	}
	err := s.Store.view(func(t tx) error {
		agents, runs, err := concerned(t, p.SubjectID)
		if err != nil {
			return err
		}
		for _, a := range agents {
			b.Agents = append(b.Agents, a.Agent)
		}
		for _, r := range runs {
			b.Runs = append(b.Runs, r.Run)
			made, err := t.artifactsOf(r.ID)
			if err != nil {
				return err
			}
			for _, a := range made {
				b.Artifacts = append(b.Artifacts, a.Artifact)
			}
			if !whole {
				continue
			}
			if b.Events == nil {
				b.Events = map[string][]json.RawMessage{}
			}
			lines, _ := t.eventsAfter(r.ID, 0, int(^uint(0)>>1))
			for _, l := range lines {
				b.Events[r.ID] = append(b.Events[r.ID], l)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// Erased is a line of an erasure's manifest.
type Erased struct {
	Resource string `json:"resource"`
	ID       string `json:"id"`
}

// manifest says what an erasure reached.
type manifest struct {
	SubjectID   string     `json:"subject_id"`
	Deleted     []Erased   `json:"deleted"`
	Redacted    []Erased   `json:"redacted"`
	Retained    []Retained `json:"retained"`
	GeneratedAt Time       `json:"generated_at"`
}

// The modes of an erasure.
const (
	hardDelete = "hard_delete"
	redact     = "redact"
)

// subjectErase removes what is about a subject. A record that is about another
// as well loses the one and stays. Events that are erased from session logs
// leave their ids and positions, so that nothing which counts on them reads
// astray.
func (s *Server) subjectErase(ctx context.Context, p struct {
	subjectID
	Mode string `json:"mode"`
}) (any, error) {
	if p.Mode != hardDelete && p.Mode != redact {
		return nil, fail(InvalidParams, "mode: want hard_delete or redact")
	}
	m := manifest{SubjectID: p.SubjectID, Deleted: []Erased{}, Redacted: []Erased{}, Retained: []Retained{}, GeneratedAt: Time{s.Now()}}
	// The logs come first: should that fail half-way, the store still says what
	// there is to erase. A run that sleeps does not wake meanwhile.
	var sole []string
	err := s.Store.update(func(t tx) error {
		_, runs, err := concerned(t, p.SubjectID)
		if err != nil {
			return err
		}
		for _, r := range runs {
			if r.State == Running {
				return fail(LifecycleConflict, "%s is running: cancel it first", r.ID)
			}
		}
		for _, r := range runs {
			if len(without(r.SubjectIDs, p.SubjectID)) > 0 {
				continue
			}
			sole = append(sole, r.ID)
			if r.State == Sleeping {
				now := Time{s.Now()}
				r.State, r.EndedAt = Cancelled, &now
				if err := t.putRun(r); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, id := range sole {
		gone, kept, err := s.Runner.Forget(id, true)
		if errors.Is(err, ErrBusy) {
			return nil, fail(LifecycleConflict, "%s: its logs are in use: try again", id)
		}
		m.Deleted = append(m.Deleted, gone...)
		m.Retained = append(m.Retained, kept...)
		if err != nil {
			s.Log.Error("a run's logs cannot be erased", "run", id, "err", err)
			m.Retained = append(m.Retained, Retained{"session_log", id, "it could not be erased; the runtime's log says why"})
		}
	}
	err = s.Store.update(func(t tx) error {
		agents, runs, err := concerned(t, p.SubjectID)
		if err != nil {
			return err
		}
		for _, r := range runs {
			if len(without(r.SubjectIDs, p.SubjectID)) == 0 && !slices.Contains(sole, r.ID) {
				return fail(LifecycleConflict, "%s began meanwhile: cancel it, and erase again", r.ID)
			}
		}
		for _, r := range runs {
			others := without(r.SubjectIDs, p.SubjectID)
			if len(others) > 0 {
				r.SubjectIDs = others
				m.Redacted = append(m.Redacted, Erased{"run", r.ID})
				if err := t.putRun(r); err != nil {
					return err
				}
				continue
			}
			if err := s.eraseRun(t, r, p.Mode, &m); err != nil {
				return err
			}
		}
		for _, a := range agents {
			if err := s.eraseAgent(t, a, p.SubjectID, p.Mode, &m); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.live.changed() // who reads a run that is gone, or that slept, waits for nothing more
	return m, nil
}

func without(ids []string, id string) []string {
	return slices.DeleteFunc(slices.Clone(ids), func(s string) bool { return s == id })
}

// eraseRun erases a run that is about nobody else.
func (s *Server) eraseRun(t tx, r runRecord, mode string, m *manifest) error {
	made, err := t.artifactsOf(r.ID)
	if err != nil {
		return err
	}
	for _, a := range made {
		if err := s.removeArtifact(t, a); err != nil {
			return err
		}
		m.Deleted = append(m.Deleted, Erased{"artifact", a.ID})
	}
	if mode == hardDelete {
		m.Deleted = append(m.Deleted, Erased{"run", r.ID})
		return t.removeRun(r)
	}
	m.Redacted = append(m.Redacted, Erased{"run", r.ID})
	r.Goal, r.Inputs, r.Result, r.Metadata, r.SubjectIDs, r.Error, r.Vendor = "", nil, nil, map[string]any{}, []string{}, nil, ""
	if err := t.blank(r.ID); err != nil {
		return err
	}
	return t.putRun(r)
}

// eraseAgent erases an agent, as far as it is about nobody else and has no
// runs that stay.
func (s *Server) eraseAgent(t tx, a agentRecord, subject, mode string, m *manifest) error {
	others := without(a.SubjectIDs, subject)
	left := t.Bucket([]byte("runs_of")).Bucket([]byte(a.ID))
	hasRuns := false
	if left != nil {
		k, _ := left.Cursor().First()
		hasRuns = k != nil
	}
	if mode == hardDelete && len(others) == 0 && !hasRuns {
		m.Deleted = append(m.Deleted, Erased{"agent", a.ID})
		if left != nil {
			if err := t.Bucket([]byte("runs_of")).DeleteBucket([]byte(a.ID)); err != nil {
				return err
			}
		}
		return t.Bucket([]byte("agents")).Delete([]byte(a.ID))
	}
	a.SubjectIDs = others
	if len(others) == 0 {
		a.Name, a.Metadata, a.Constitution = "erased", map[string]any{}, Constitution{MutablePromptPolicy: a.Constitution.MutablePromptPolicy}
		a.ExternalMCPServers, a.Auth = nil, nil
		if a.LifecycleState == Active {
			a.LifecycleState = Archived
		}
	}
	a.UpdatedAt = Time{s.Now()}
	m.Redacted = append(m.Redacted, Erased{"agent", a.ID})
	return t.putAgent(a)
}

// removeRun removes a run with its events.
func (t tx) removeRun(r runRecord) error {
	if b := t.Bucket([]byte("events")); b.Bucket([]byte(r.ID)) != nil {
		if err := b.DeleteBucket([]byte(r.ID)); err != nil {
			return err
		}
	}
	if b := t.Bucket([]byte("artifacts_of")); b.Bucket([]byte(r.ID)) != nil {
		if err := b.DeleteBucket([]byte(r.ID)); err != nil {
			return err
		}
	}
	if of := t.Bucket([]byte("runs_of")).Bucket([]byte(r.AgentID)); of != nil {
		if err := of.Delete([]byte(r.ID)); err != nil {
			return err
		}
	}
	return t.Bucket([]byte("runs")).Delete([]byte(r.ID))
}

// blank empties the payloads of a run's events; their ids, types and places
// stay.
func (t tx) blank(run string) error {
	b := t.Bucket([]byte("events")).Bucket([]byte(run))
	if b == nil {
		return nil
	}
	changed := map[string][]byte{}
	err := b.ForEach(func(k, v []byte) error {
		var e Event
		if err := json.Unmarshal(v, &e); err != nil {
			return err
		}
		e.Payload = map[string]any{"redacted": true, "event": e.Payload["event"]}
		j, err := json.Marshal(e)
		changed[string(k)] = j
		return err
	})
	for k, v := range changed {
		if err == nil {
			err = b.Put([]byte(k), v)
		}
	}
	return err
}
