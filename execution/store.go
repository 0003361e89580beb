package execution

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"aep-wrap/event"
)

// Store keeps what embedders were told and may ask for again, in one file:
//
//	agents        id → agentRecord
//	runs          id → runRecord
//	runs_of       agent id → {run id}
//	events        run id → {number → Event}
//	artifacts     id → artifactRecord
//	artifacts_of  run id → {name → artifact id}
//
// Ids sort by the time of their making, so a list's cursor is an id. Every
// change is one transaction: what a run's events say and how far its session
// logs were read cannot come apart. It is safe for concurrent use.
type Store struct {
	db *bbolt.DB
}

var buckets = []string{"agents", "runs", "runs_of", "events", "artifacts", "artifacts_of"}

// ErrLocked says that another runtime has the store open.
var ErrLocked = errors.New("another runtime uses it")

// OpenStore opens the store in dir, which is made where it is missing.
func OpenStore(dir string) (*Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "runtime.db")
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: 2 * time.Second, FreelistType: bbolt.FreelistMapType})
	if errors.Is(err, bolterrors.ErrTimeout) {
		err = ErrLocked
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		for _, name := range buckets {
			if _, err := tx.CreateBucketIfNotExists([]byte(name)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		_ = db.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return &Store{db}, nil
}

// Close closes it.
func (s *Store) Close() error { return s.db.Close() }

// agentRecord is an agent as it is kept: with what is never returned.
type agentRecord struct {
	Agent
	Profile string                     `json:"profile"`
	Auth    map[string]json.RawMessage `json:"auth,omitempty"` // of MCP servers, by name
}

// runRecord is a run as it is kept.
type runRecord struct {
	Run
	Profile string            `json:"profile"`
	Dir     string            `json:"dir"`              // where it works
	Before  map[string]string `json:"before,omitempty"` // what was there at the start: path to sha256
	Vendor  string            `json:"vendor,omitempty"` // the runtime's own session, by which it is resumed
	Stop    *stop             `json:"stop,omitempty"`   // why we end it
	Error   *Fault            `json:"error,omitempty"`  // of its end
	Reading reading           `json:"reading"`
}

// stop is why a run was ended before its own end: it was cancelled, or passed
// a bound.
type stop struct {
	By    string `json:"by"`
	Fault *Fault `json:"fault,omitempty"`
}

const (
	byCancel  = "cancel"
	byCeiling = "ceiling"
)

// Fault is why a run ended in error, as its run.ended tells.
type Fault struct {
	Code    Code   `json:"code"`
	Name    string `json:"name"`
	Message string `json:"message"`
	Ceiling string `json:"ceiling,omitempty"` // the bound that was passed
}

// reading is how far a run's session logs were mapped, and what the mapping
// has to remember.
type reading struct {
	At        map[string]event.Position `json:"at,omitempty"`     // by session
	Count     int64                     `json:"count,omitempty"`  // cycles that began
	Cycles    map[string]int64          `json:"cycles,omitempty"` // open ones, by the protocol's run
	Calls     map[string]int64          `json:"calls,omitempty"`  // tool calls of the open ones
	Tokens    map[string]int64          `json:"tokens,omitempty"`
	Subagents int64                     `json:"subagents,omitempty"`
}

type artifactRecord struct {
	Artifact
	Path string `json:"path"` // below the run's directory, with slashes
}

// tx is a transaction, with the store's words.
type tx struct{ *bbolt.Tx }

func (s *Store) update(fn func(tx) error) error {
	return s.db.Update(func(t *bbolt.Tx) error { return fn(tx{t}) })
}

func (s *Store) view(fn func(tx) error) error {
	return s.db.View(func(t *bbolt.Tx) error { return fn(tx{t}) })
}

func (t tx) get(bucket, id string, v any) (bool, error) {
	b := t.Bucket([]byte(bucket)).Get([]byte(id))
	if b == nil {
		return false, nil
	}
	return true, json.Unmarshal(b, v)
}

func (t tx) put(bucket, id string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return t.Bucket([]byte(bucket)).Put([]byte(id), b)
}

func (t tx) agent(id string) (a agentRecord, err error) {
	ok, err := t.get("agents", id, &a)
	if err == nil && !ok {
		err = notFound("agent", id)
	}
	return a, err
}

func (t tx) run(id string) (r runRecord, err error) {
	ok, err := t.get("runs", id, &r)
	if err == nil && !ok {
		err = notFound("run", id)
	}
	return r, err
}

func (t tx) artifact(id string) (a artifactRecord, err error) {
	ok, err := t.get("artifacts", id, &a)
	if err == nil && !ok {
		err = notFound("artifact", id)
	}
	return a, err
}

func (t tx) putAgent(a agentRecord) error { return t.put("agents", a.ID, a) }

func (t tx) putRun(r runRecord) error {
	of, err := t.Bucket([]byte("runs_of")).CreateBucketIfNotExists([]byte(r.AgentID))
	if err != nil {
		return err
	}
	if err := of.Put([]byte(r.ID), []byte{}); err != nil {
		return err
	}
	return t.put("runs", r.ID, r)
}

func (t tx) putArtifact(a artifactRecord) error {
	of, err := t.Bucket([]byte("artifacts_of")).CreateBucketIfNotExists([]byte(a.RunID))
	if err != nil {
		return err
	}
	if err := of.Put([]byte(a.Path), []byte(a.ID)); err != nil {
		return err
	}
	return t.put("artifacts", a.ID, a)
}

// artifactAt is the artifact that a run has at a path; "" is none.
func (t tx) artifactAt(run, path string) string {
	of := t.Bucket([]byte("artifacts_of")).Bucket([]byte(run))
	if of == nil {
		return ""
	}
	return string(of.Get([]byte(path)))
}

// append gives a run's next events their ids and keeps them.
func (t tx) append(run string, events []Event) error {
	if len(events) == 0 {
		return nil
	}
	b, err := t.Bucket([]byte("events")).CreateBucketIfNotExists([]byte(run))
	if err != nil {
		return err
	}
	for i := range events {
		n, err := b.NextSequence()
		if err != nil {
			return err
		}
		events[i].ID, events[i].RunID = eventID(n), run
		j, err := json.Marshal(events[i])
		if err != nil {
			return err
		}
		if err := b.Put(number(n), j); err != nil {
			return err
		}
	}
	return nil
}

// eventsAfter gives up to max of a run's events after number n, as they are
// told.
func (t tx) eventsAfter(run string, n uint64, max int) (lines [][]byte, last uint64) {
	b := t.Bucket([]byte("events")).Bucket([]byte(run))
	last = n
	if b == nil {
		return nil, last
	}
	c := b.Cursor()
	for k, v := c.Seek(number(n + 1)); k != nil && len(lines) < max; k, v = c.Next() {
		lines = append(lines, append([]byte(nil), v...))
		last = binary.BigEndian.Uint64(k)
	}
	return lines, last
}

// bounds are the numbers of the oldest event of a run that is held, or would be
// the next, and of the newest that there ever was.
func (t tx) bounds(run string) (oldest, newest uint64) {
	b := t.Bucket([]byte("events")).Bucket([]byte(run))
	if b == nil {
		return 1, 0
	}
	newest = b.Sequence()
	oldest = newest + 1
	if k, _ := b.Cursor().First(); k != nil {
		oldest = binary.BigEndian.Uint64(k)
	}
	return oldest, newest
}

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// eventID makes ids that sort as numbers do.
func eventID(n uint64) string { return fmt.Sprintf("%s%016d", eventPrefix, n) }

func eventNumber(id string) (n uint64, ok bool) {
	if len(id) != len(eventPrefix)+16 {
		return 0, false
	}
	_, err := fmt.Sscanf(id, eventPrefix+"%016d", &n)
	return n, err == nil && eventID(n) == id
}

// page walks a bucket's ids after the cursor, up to limit that fit.
func page[R any](t tx, b *bbolt.Bucket, cursor string, limit int, load func(id string, v []byte) (R, bool, error)) (items []R, next *string, err error) {
	items = []R{}
	if b == nil {
		return items, nil, nil
	}
	c := b.Cursor()
	k, v := c.First()
	if cursor != "" {
		if k, v = c.Seek([]byte(cursor)); string(k) == cursor {
			k, v = c.Next()
		}
	}
	last := ""
	for ; k != nil; k, v = c.Next() {
		r, fits, err := load(string(k), v)
		if err != nil {
			return nil, nil, err
		}
		if !fits {
			continue
		}
		if len(items) == limit {
			return items, &last, nil
		}
		items, last = append(items, r), string(k)
	}
	return items, nil, nil
}
