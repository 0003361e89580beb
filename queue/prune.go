package queue

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
)

// Limits say which logs are too many.
type Limits struct {
	OlderThan time.Duration // not written to for longer; 0 is no limit
	MaxSize   int64         // of all together, in bytes; 0 is no limit
	Spare     time.Duration // for their size none go that were written to within
	Force     bool          // those go too that are not wholly sent
	DryRun    bool          // nothing goes: it is only told what would

	Now  func() time.Time
	Tell func(done, of int) // called now and then
}

// Pruned is what Prune did, or would do.
type Pruned struct {
	ByAge, BySize int
	Bytes         int64
	Lost          int // events that went unsent
	Kept          []KeptLog
	Left          int   // logs that are still there
	LeftBytes     int64 // and how much they are
	Swept         int   // sessions of which only companions, or old rests, were there
}

// Logs is how many went.
func (p *Pruned) Logs() int { return p.ByAge + p.BySize }

// KeptLog is a log that was to go and did not.
type KeptLog struct {
	Path   string
	Why    Why
	Events int   // that it owes
	Pid    int   // of its owner; 0 is not known
	Err    error // of Failed
}

// Why a log was kept.
type Why string

// The reasons.
const (
	Unsent  Why = "unsent"   // a sink of its has not acknowledged all of it
	Owned   Why = "in use"   // its session has an owner, or somebody sends it
	NoLocks Why = "no locks" // whether it has one cannot be known
	Strange Why = "not ours" // it does not hold the events of the session that its name says
	Failed  Why = "failed"
)

// PrunedType is the type of the line that is left of a log that was pruned. It
// is sent to nobody. It has the log's last position, and the time up to which
// the log told.
const PrunedType = "x.aep-wrap.log.pruned"

const (
	// restFor is how long what is left of a pruned log is kept: for so long a
	// session may be taken up again, or its history read again, and nothing of it
	// is told twice.
	restFor = 180 * 24 * time.Hour
	// stray is how long files without a log must have been left alone.
	stray = time.Hour
	// tellEach is how many logs pass between two words of how far it is.
	tellEach = 16
)

// Prune removes the logs under root that are beyond the limits, the oldest
// first. What an owner has, or owes a sink, stays; Kept tells.
func Prune(ctx context.Context, root string, l Limits) (p Pruned, err error) {
	if l.Now == nil {
		l.Now = time.Now
	}
	if l.Tell == nil {
		l.Tell = func(int, int) {}
	}
	now := l.Now()
	all, err := jsonl.List(root)
	if err != nil {
		return p, fmt.Errorf("log directory %s: %w", root, err)
	}
	var logs, others []jsonl.Kept
	for _, k := range all {
		if !k.Log {
			others = append(others, k)
			continue
		}
		logs = append(logs, k)
		p.Left++
		p.LeftBytes += k.Size
	}
	slices.SortFunc(logs, func(a, b jsonl.Kept) int { return cmp.Or(a.Changed.Compare(b.Changed), cmp.Compare(a.Path, b.Path)) })
	for i := range logs {
		k := &logs[i]
		age := now.Sub(k.Changed)
		old := l.OlderThan > 0 && age > l.OlderThan
		big := l.MaxSize > 0 && p.LeftBytes > l.MaxSize && age >= l.Spare
		if !old && !big {
			break
		}
		if ctx.Err() != nil {
			return p, ctx.Err()
		}
		if i%tellEach == 0 {
			l.Tell(i, len(logs))
		}
		lost, kept := l.prune(k)
		if kept != nil {
			if !errors.Is(kept.Err, fs.ErrNotExist) {
				p.Kept = append(p.Kept, *kept)
				continue
			}
			lost = 0 // somebody else was quicker
		} else if old {
			p.ByAge++
		} else {
			p.BySize++
		}
		if kept == nil {
			p.Bytes += k.Size
		}
		p.Lost += lost
		p.Left--
		p.LeftBytes -= k.Size
	}
	own := map[string]bool{} // directories that hold logs, or what was left of some
	for _, k := range all {
		dir := filepath.Dir(k.Path)
		if !own[dir] && k.Log {
			own[dir], _ = jsonl.IsLog(k.Path) // what cannot be read says nothing
		}
		own[dir] = own[dir] || !k.Rest.IsZero()
	}
	for i := range others {
		if ctx.Err() == nil && own[filepath.Dir(others[i].Path)] && l.sweep(&others[i], now) {
			p.Swept++
		}
	}
	return p, ctx.Err()
}

// prune removes a log, and gives how many events go unsent with it, or why it
// is kept.
func (l *Limits) prune(k *jsonl.Kept) (lost int, kept *KeptLog) {
	keep := func(why Why, err error) *KeptLog {
		owned := (*jsonl.ErrOwned)(nil)
		switch {
		case errors.As(err, &owned):
			return &KeptLog{Path: k.Path, Why: Owned, Pid: owned.Pid}
		case errors.Is(err, jsonl.ErrChanged):
			return &KeptLog{Path: k.Path, Why: Owned}
		}
		return &KeptLog{Path: k.Path, Why: why, Events: lost, Err: err}
	}
	switch ours, err := jsonl.IsLog(k.Path); {
	case err != nil:
		return 0, keep(Failed, err)
	case !ours:
		return 0, keep(Strange, nil)
	}
	// It is asked without the lock first: that of a log which is to be sent is
	// somebody else's to take.
	lost, err := k.Owed()
	switch {
	case err != nil:
		return 0, keep(Failed, err)
	case lost > 0 && !l.Force:
		return 0, keep(Unsent, nil)
	}
	r, err := k.Take()
	if err != nil {
		return 0, keep(Failed, err)
	}
	defer r.Release()
	if !r.Locked() && !l.Force {
		return 0, keep(NoLocks, nil)
	}
	if lost, err = k.Owed(); err != nil { // somebody may have sent it meanwhile
		return 0, keep(Failed, err)
	}
	if lost > 0 && !l.Force {
		return 0, keep(Unsent, nil)
	}
	if l.DryRun {
		return lost, nil
	}
	rest, err := restOf(k.Path)
	if err == nil {
		err = r.Remove(rest)
	}
	if err != nil {
		return 0, keep(Failed, err)
	}
	return lost, nil
}

// sweep removes what is left without a log: of a removal that was ended in
// between, and what a removal left long ago.
func (l *Limits) sweep(k *jsonl.Kept, now time.Time) bool {
	forget := !k.Rest.IsZero() && now.Sub(k.Rest) > restFor
	if !forget && (k.Changed.IsZero() || now.Sub(k.Changed) < stray) {
		return false
	}
	if l.DryRun {
		return true
	}
	r, err := k.Take()
	if err != nil {
		return false
	}
	defer r.Release()
	if forget {
		err = r.Forget()
	}
	return errors.Join(err, r.Remove(nil)) == nil
}

// restOf is what is left of a log: what a session needs that goes on after it,
// and what a reading of the same history needs that comes later. No payload is
// among it.
func restOf(path string) ([]byte, error) {
	var started, ended []byte
	var last event.Event
	any := false
	var until time.Time
	take := func(line []byte) error {
		e, err := event.Parse(line)
		if err != nil || !e.Sequenced || e.Session == "" {
			return nil
		}
		e.Data = nil
		switch {
		case e.Type == "session.started" && started == nil:
			started = e.AppendJSON(nil)
		case e.Type == "session.ended" && ended == nil:
			ended = e.AppendJSON(nil)
		}
		if e.Time.After(until) {
			until = e.Time
		}
		if !any || last.Position().Less(e.Position()) {
			last, any = e, true
		}
		return nil
	}
	if err := jsonl.Rest(path, take); err != nil {
		return nil, err
	}
	r, err := jsonl.OpenReader(path, 0)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		line, _, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = take(line)
		}
		if err != nil && !errors.Is(err, jsonl.ErrLong) {
			return nil, err
		}
	}
	if !any {
		return nil, nil
	}
	var out []byte
	for _, line := range [][]byte{started, ended} {
		if line != nil {
			out = append(append(out, line...), '\n')
		}
	}
	last.Type, last.Time, last.Severity = PrunedType, until, event.Debug
	last.Subject, last.Cause, last.Run, last.Step = "", "", "", ""
	return append(last.AppendJSON(out), '\n'), nil
}
