package agent

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"aep-wrap/adapters"
	"aep-wrap/agent/follow"
	"aep-wrap/control"
	"aep-wrap/event"
	"aep-wrap/queue"
	"aep-wrap/queue/jsonl"
	"aep-wrap/redaction"
	"aep-wrap/session"
)

// The bounds of a watch.
const (
	identifyIn = 16                     // records in which a log must tell whose it is
	maxWatched = 4096                   // sessions that are remembered at once
	tidyEvery  = 250 * time.Millisecond // how often sessions are looked through
	maxTold    = 1 << 17                // ids that are remembered, of all sessions together
	apart      = 30 * time.Second       // what two channels may say of when a fact was
	manyLogs   = 16                     // from which a file system is synced, not each log
	idleAfter  = 30 * time.Second       // how long a session without news is owned
	firstOwned = 5 * time.Millisecond   // when an owned session is asked for again: its owner may only have looked
	retryOwned = time.Second            // and how often in the end
	yield      = 200 * time.Millisecond // how long one is left alone that its owner wants
)

// WatchConfig says what a watch makes of what it reads.
type WatchConfig struct {
	Adapters    []adapters.Adapter // the candidates, in their order; one is not asked
	Agent       string             // the agent name on events; "" is the adapter's
	Host        string
	Traceparent string
	LogDir      string // root of the session logs; it must be writable
	Gate        *redaction.Gate
	Sinks       []Sink
	Log         *slog.Logger
	Say         func(line string)
	Now         func() time.Time

	// Nobodys is called with the path of a file that no adapter knows, or in which
	// nothing is a record. Nil is nobody who wants to know.
	Nobodys func(path string)
	// Accepts are the types of commands that sessions of an adapter take; nil,
	// or none, takes no commands, and nothing waits for an answer. Only what
	// passes by a hook can be answered: no process is ours.
	Accepts  func(a *adapters.Adapter) []string
	Policy   control.Policy
	Patience Patience // its Reachable is not asked:
	// Reachable says whether an answer to an agent's hook could come at all. Nil
	// is always.
	Reachable func(agent string, gated bool) bool
}

// Watch makes events of session logs and of hook directories that others
// write. It is a follow.Handler.
//
// What it tells of a session goes to that session's log first, whose lock it
// holds while it writes. A session whose lock another process has is left
// alone, and so is what that process told: the watch goes on when the lock is
// free. Event ids are derived from the vendor's ids, or from the record's place
// in its file, so that reading a thing again tells nothing new.
//
// A hook whose runtime waits may be held for an answer from afar: then its
// session is the target of commands, as a launch's is.
type Watch struct {
	cfg WatchConfig
	*office
	draining atomic.Bool

	work     sync.Mutex // one record, hook or command at a time
	maxOwned int        // sessions with an open log at once
	tidied   time.Time

	mu       sync.Mutex // Sync waits for no record
	sessions map[string]*watched
	unsynced []string // logs that were given up, and are not on the disk yet
	tick     int64
	said     sync.Map

	stats struct{ records, refused, unknown, owned, cut atomic.Int64 }
}

// WatchStats counts what passed and what did not.
type WatchStats struct {
	Records int64 // read
	Events  int64 // written to session logs
	Refused int64 // records that could not be read
	Unknown int64 // files of a layout that no adapter knows
	Owned   int64 // times that a session was left to its owner
	Failed  int64 // drafts that could not be sealed
	Live    int   // sessions that are ours now
	Held    int   // hooks that wait for an answer
	Cut     int64 // hooks of which long strings were passed over
}

// NewWatch makes a watch.
func NewWatch(c WatchConfig) *Watch {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Say == nil {
		c.Say = func(string) {}
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	// A session takes two descriptors, and its own log one.
	owned := 4096
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) == nil {
		owned = max(32, int(min(limit.Cur/4, 4096)))
	}
	return &Watch{cfg: c, sessions: map[string]*watched{}, maxOwned: owned,
		office: &office{gate: c.Gate, sinks: c.Sinks, note: c.Log, now: c.Now, memory: session.NewMemory(maxTold)}}
}

// Stats gives the counters.
func (w *Watch) Stats() WatchStats {
	s := &w.stats
	out := WatchStats{Records: s.records.Load(), Events: w.events.Load(), Refused: s.refused.Load(), Unknown: s.unknown.Load(),
		Owned: s.owned.Load(), Failed: w.failed.Load(), Cut: s.cut.Load()}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range w.sessions {
		if d.log != nil {
			out.Live++
		}
		out.Held += int(d.held.Load())
	}
	return out
}

// say tells the user a thing once.
func (w *Watch) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	if _, twice := w.said.LoadOrStore(line, true); !twice {
		w.cfg.Log.Warn(line)
		w.cfg.Say(line)
	}
}

// ---- files

// reading is what is known of a followed file.
type reading struct {
	adapter *adapters.Adapter // nil until known
	id      adapters.Identity
	known   bool
	asked   int       // records that were asked whose they are
	refused int       // records that are none
	clock   time.Time // of the newest record that said
	unknown bool      // it was told that nobody knows it
	warned  bool      // it was told that its version is not known
	with    int64     // with the record that begins there: it may come again
}

// Open is called with a file's first record.
func (w *Watch) Open(f *follow.File) {
	r := &reading{}
	f.Data = r
	if f.First == nil {
		return
	}
	if record, err := event.ParseObject(valid(f.First)); err == nil {
		r.clock = timeOf(record)
		w.identify(f, r, record)
	}
}

// Close forgets a file. What was told of it stays; that nobody knew it is told
// now at the latest.
func (w *Watch) Close(f *follow.File) {
	w.work.Lock()
	defer w.work.Unlock()
	if r, ok := f.Data.(*reading); ok && !r.known {
		switch {
		case r.asked > 0:
			if d := w.strange(f, r, -1); d != nil {
				_ = w.write(w.session(nil, own, watchSession), entry{at: w.cfg.Now(), drafts: d}) // it was said, and a later reading tells it again
			}
		case r.refused > 0:
			w.nobodys(f)
		}
	}
	f.Data = nil
}

// strange tells once of a file that no adapter knows.
func (w *Watch) strange(f *follow.File, r *reading, with int64) []event.Draft {
	if r.unknown && r.with != with {
		return nil
	}
	again := r.unknown
	r.unknown, r.with = true, with
	for i := range w.cfg.Adapters {
		if rd := w.cfg.Adapters[i].Reading; rd != nil && pathFits(f.Path, rd.Beside) {
			return nil
		}
	}
	if !again {
		w.stats.unknown.Add(1)
		w.nobodys(f)
	}
	w.say("no adapter knows the layout of %s: nothing is told of it", f.Path)
	at := r.clock
	if at.IsZero() {
		at = w.cfg.Now()
	}
	return []event.Draft{{Header: event.Header{Type: "x.aep-wrap.log.unknown", Severity: event.Warning, Time: at}, Key: f.Head,
		Fields: event.Fields{event.Meta("file", f.Head), event.Meta("records", r.asked)}}}
}

// nobodys tells of a file that no adapter knows.
func (w *Watch) nobodys(f *follow.File) {
	if w.cfg.Nobodys != nil {
		w.cfg.Nobodys(f.Path)
	}
}

// identify asks the adapters whose log this is: those whose patterns the path
// fits first.
func (w *Watch) identify(f *follow.File, r *reading, record map[string]any) {
	if r.known || r.unknown {
		return
	}
	r.asked++
	var rest []*adapters.Adapter
	try := func(a *adapters.Adapter) bool {
		id, ok := a.Reading.Identify(filepath.ToSlash(f.Path), record)
		if !ok {
			return false
		}
		r.adapter, r.id, r.known = a, id, true
		if r.id.Session == "" {
			r.id.Session = "log-" + f.Head
		}
		return true
	}
	for i := range w.cfg.Adapters {
		a := &w.cfg.Adapters[i]
		switch {
		case a.Reading == nil:
		case !pathFits(f.Path, a.Reading.Paths):
			rest = append(rest, a)
		case try(a):
			return
		}
	}
	for _, a := range rest {
		if try(a) {
			return
		}
	}
}

// pathFits says whether a path ends in what one of the patterns says.
func pathFits(file string, patterns []string) bool {
	file = filepath.ToSlash(file)
	for _, ext := range []string{".zst", ".gz"} {
		file = strings.TrimSuffix(file, ext)
	}
	segments := strings.Split(file, "/")
	for _, p := range patterns {
		n := strings.Count(p, "/") + 1
		if len(segments) < n {
			continue
		}
		if ok, err := path.Match(p, strings.Join(segments[len(segments)-n:], "/")); ok && err == nil {
			return true
		}
	}
	return false
}

// valid is a record's text as UTF-8: what is none is mended, since a fact
// beside it is still one.
func valid(line []byte) []byte {
	if utf8.Valid(line) {
		return line
	}
	return []byte(strings.ToValidUTF8(string(line), "\uFFFD"))
}

// timeOf reads the time that a record carries under one of the usual names.
func timeOf(record map[string]any) time.Time {
	for _, name := range []string{"timestamp", "time", "ts", "startTime", "created_at"} {
		switch v := record[name].(type) {
		case string:
			if t, err := time.Parse(time.RFC3339Nano, v); err == nil {
				return t
			}
		case interface{ Int64() (int64, error) }:
			if ms, err := v.Int64(); err == nil && ms > 1e11 && ms < 1<<43 {
				return time.UnixMilli(ms).UTC()
			}
		}
	}
	return time.Time{}
}

// sheet is what records of a file told in one session, in order.
type sheet struct {
	agent, session string
	drafts         []event.Draft
	upTo           int // records of which all is told once this is written
}

// Take makes events of records, and says how many of them are told.
func (w *Watch) Take(f *follow.File, records []follow.Record) (told int, again time.Duration) {
	w.work.Lock()
	defer w.work.Unlock()
	r := f.Data.(*reading)
	now := w.cfg.Now()
	if r.adapter != nil && len(records) > 0 {
		w.heard(r.adapter.Name, adapters.Log, now)
	}
	if r.known && r.adapter.Reading.Apart { // whether hooks told of it stands beside its log
		if d := w.session(r.adapter, cmp.Or(w.cfg.Agent, r.adapter.Name), r.id.Session); w.ready(d) != nil {
			return 0, time.Until(d.ask)
		}
	}
	var sheets []sheet
	add := func(i int, agent, name string, d event.Draft) {
		if n := len(sheets); n == 0 || sheets[n-1].agent != agent || sheets[n-1].session != name {
			sheets = append(sheets, sheet{agent: agent, session: name})
		}
		s := &sheets[len(sheets)-1]
		s.drafts = append(s.drafts, d)
		s.upTo = i
	}
	for i := range records {
		for _, d := range w.tell(f, r, &records[i]) {
			agent, name := w.whose(r, &d)
			add(i, agent, name, d)
		}
	}
	done := 0
	for i := range sheets {
		s := &sheets[i]
		d := w.session(r.adapter, s.agent, s.session)
		if err := w.write(d, entry{at: now, drafts: s.drafts}); err != nil {
			w.stats.records.Add(int64(done))
			return done, time.Until(d.ask)
		}
		// A record that told in two sessions is told when the last is.
		if done = s.upTo + 1; i+1 < len(sheets) && sheets[i+1].upTo == s.upTo {
			done = s.upTo
		}
	}
	w.stats.records.Add(int64(len(records)))
	w.tidy(now)
	return len(records), 0
}

// own and watchSession are the agent and the session of what a watch tells of
// itself.
const (
	own          = "aep-wrap"
	watchSession = "watch"
)

// whose is the agent and the session that a draft is of.
func (w *Watch) whose(r *reading, d *event.Draft) (agent, name string) {
	if !r.known {
		return own, watchSession
	}
	return cmp.Or(w.cfg.Agent, r.adapter.Name), cmp.Or(d.Session, r.id.Session)
}

// tell gives the drafts of a record.
func (w *Watch) tell(f *follow.File, r *reading, rec *follow.Record) []event.Draft {
	place := f.Head + ":" + strconv.FormatInt(rec.Start, 10)
	if rec.Fault != "" {
		return w.refuse(r, place, string(rec.Fault), int(rec.End-rec.Start))
	}
	line := valid(rec.Line)
	record, err := event.ParseObject(line)
	if err != nil {
		return w.refuse(r, place, refusalReason(err), len(line))
	}
	if at := timeOf(record); !at.IsZero() {
		r.clock = at
	}
	at := r.clock
	if at.IsZero() {
		at = w.cfg.Now()
	}
	var out []event.Draft
	if !r.known {
		if w.identify(f, r, record); !r.known {
			if r.asked < identifyIn && !r.unknown {
				return nil
			}
			return w.strange(f, r, rec.Start)
		}
	}
	if r.id.Strange && (!r.warned || r.with == rec.Start) {
		r.warned, r.with = true, rec.Start
		w.say("%s is of a version or layout of %s that this was not made for (%s; made for %s): what is told may be wrong or less than there is",
			f.Path, r.adapter.Title, cmp.Or(token(r.id.Version), "no version"), r.adapter.Pinned)
		data := event.Fields{event.Meta("adapter", r.adapter.Name), event.Meta("made_for", r.adapter.Pinned)}
		if v := token(r.id.Version); v != "" {
			data = append(data, event.Meta("version", v))
		}
		out = append(out, event.Draft{Header: event.Header{Type: "x.aep-wrap.log.strange", Severity: event.Warning, Time: at}, Key: f.Head, Fields: data})
	}
	typ, _ := record["type"].(string)
	m := adapters.Moment{Channel: w.channel(r, at), Name: typ, Payload: record, Raw: line, Time: at, Session: r.id.Session}
	drafts, err := w.answering(r.adapter).drafts(m)
	if err != nil {
		return append(out, w.refuse(r, place, "adapter_fault", len(line))...)
	}
	for i := range drafts {
		d := drafts[i]
		if r.id.Step != "" {
			if strings.HasPrefix(d.Type, "run.") && !strings.HasPrefix(d.Type, "run.step.") {
				continue // a subagent's turn is no run
			}
			if d.Run == "" {
				d.Run = r.id.Run
			}
			if d.Subject == "" && strings.HasPrefix(d.Type, "delegation.subagent.") {
				d.Subject, d.Pair, d.Key = r.id.Step, r.id.Step, r.id.Step
			}
			if d.Step == "" && !strings.HasPrefix(d.Type, "delegation.") {
				d.Step = r.id.Step
			}
		}
		w.name(&d, place, i)
		if d.Time.IsZero() {
			d.Time = at
		}
		if w.repeats(r, &d) {
			continue
		}
		out = append(out, d)
	}
	return out
}

// name gives a fact that its vendor does not name the name of its place, so
// that every reading gives it the same id. What the session names itself (a
// request, by the tool that it is about) is left to it.
func (w *Watch) name(d *event.Draft, place string, i int) {
	placed(d, "log "+place+"/"+strconv.Itoa(i))
}

func placed(d *event.Draft, at string) {
	switch {
	case unnamed(d):
		d.Key = at
	case d.Key == "" && d.Link != (event.Link{}):
		d.Place = at
	}
}

// unnamed says whether neither its vendor nor the session names a fact. The
// session names a request by the tool that it is about, and a run's end by the
// run.
func unnamed(d *event.Draft) bool {
	return d.Key == "" && d.ID == "" && d.Link == (event.Link{}) && d.Pair == "" &&
		d.Type != "run.finished" && d.Type != "run.failed" && d.Type != "run.cancelled"
}

// repeats says whether a fact of a fork is one of the session that it was
// forked from.
func (w *Watch) repeats(r *reading, d *event.Draft) bool {
	if r.id.Fork == "" || d.Key == "" || r.id.Fork == r.id.Session || d.Type == "session.started" {
		return false
	}
	agent := cmp.Or(w.cfg.Agent, r.adapter.Name)
	parent := w.session(r.adapter, agent, r.id.Fork)
	if parent.peek(); parent.doubts(d.Time) {
		parent.relearn()
	}
	if !parent.gone.IsZero() && !d.Time.After(parent.gone) {
		return true
	}
	return parent.state != nil && parent.state.Seen(event.DeriveID(agent, r.id.Fork, d.Type, d.Key))
}

func (w *Watch) refuse(r *reading, place, reason string, bytes int) []event.Draft {
	n := w.stats.refused.Add(1)
	r.refused++
	w.counters.refused(adapters.Log, reason)
	w.cfg.Log.Warn("record refused", "place", place, "reason", reason, "bytes", bytes, "count", n)
	if !r.known {
		return nil
	}
	return []event.Draft{{Header: event.Header{Type: inputRefused, Severity: event.Warning, Time: r.clock}, Key: "log " + place,
		Fields: event.Fields{event.Meta("channel", string(adapters.Log)), event.Meta("reason", reason), event.Meta("bytes", int64(bytes))}}}
}

// ---- sessions

// errOwned says that a session is another process's for now.
var errOwned = errors.New("the session is owned by another process")

// watched is a session that is watched, and the desk at which it is told.
type watched struct {
	desk
	w       *Watch
	adapter *adapters.Adapter // nil for what a watch tells of itself

	state *session.State
	size  int64        // of the log when it was given up
	told  time.Time    // up to then another process told everything
	gone  time.Time    // up to then a log told everything that was pruned
	held  atomic.Int64 // hooks that wait for an answer
	used  int64
	at    time.Time // of the last use
	ask   time.Time // owned: not before then
	pause time.Duration
	dirty bool
	hooks hooksOf
}

func (w *Watch) session(a *adapters.Adapter, agent, name string) *watched {
	key := agent + "\x00" + name
	d := w.sessions[key]
	if d == nil {
		d = &watched{w: w, adapter: a, desk: desk{office: w.office, agent: agent, session: name}}
		w.mu.Lock()
		w.sessions[key] = d
		w.mu.Unlock()
	}
	w.tick++
	d.used = w.tick
	return d
}

// ready takes a session's log. An error says that nothing is told now, and
// that it is to be tried again.
func (w *Watch) ready(d *watched) error {
	now := w.cfg.Now()
	d.at = now
	if d.log != nil {
		return nil
	}
	if now.Before(d.ask) {
		return errOwned
	}
	err := d.open(now)
	if err == nil {
		d.pause = 0
		return nil
	}
	anew := d.pause == 0
	d.pause = min(max(2*d.pause, firstOwned), retryOwned)
	d.ask = now.Add(d.pause)
	if !errors.As(err, new(*jsonl.ErrOwned)) {
		w.say("cannot write the session log in %s: %v; reading waits", w.cfg.LogDir, reasonOf(err))
		return err
	}
	if anew {
		w.stats.owned.Add(1)
	}
	return errOwned
}

// write tells an entry in its session, as ready does.
func (w *Watch) write(d *watched, e entry) error {
	err := w.ready(d)
	if err != nil {
		e.abandon()
		return err
	}
	if !d.told.IsZero() {
		kept := e.drafts[:0:0]
		for _, x := range e.drafts {
			if x.Time.After(d.told) {
				kept = append(kept, x)
			}
		}
		e.drafts = kept
	}
	e.drafts = d.once(e.drafts, e.hook)
	if len(e.drafts) == 0 && e.command == nil {
		e.abandon()
		return nil
	}
	if slices.ContainsFunc(e.drafts, func(x event.Draft) bool { return d.doubts(x.Time) }) {
		d.relearn()
	}
	if err := d.put(e); err != nil {
		// What was bound is not written: the log says how it stands.
		w.cfg.Log.Error("session log", "session", d.session, "err", err)
		w.say("cannot write the session log in %s: %v; reading waits", w.cfg.LogDir, reasonOf(err))
		e.abandon()
		d.forget()
		d.close()
		if d.control != nil {
			go d.control.Holds().Close("") // it tells so, on this same way
		}
		d.sess, d.state, d.control = nil, nil, nil
		d.ask = w.cfg.Now().Add(retryOwned)
		return err
	}
	return nil
}

// open takes the session's log, and restores the session from it where it is
// not the one that was left.
func (d *watched) open(now time.Time) error {
	log, err := jsonl.OpenPath(jsonl.Path(d.w.cfg.LogDir, d.agent, d.session))
	if err != nil {
		return err
	}
	if log.Warning != "" {
		d.w.say("%s", log.Warning)
	}
	log.SyncEvery(-1) // Sync does it
	anew := d.sess == nil || log.Size() != d.size
	if anew {
		if err := d.restore(log.Replay); err != nil {
			_ = log.Close() // nothing was written
			return err
		}
	}
	watched := jsonl.IsWatched(log.Path())
	if err := jsonl.MarkWatched(log.Path()); err != nil {
		d.note.Warn("a session that is watched may be taken for one whose wrapper died", "session", d.session, "err", err)
	}
	d.w.mu.Lock()
	d.take(log)
	d.w.mu.Unlock()
	var owed []event.Draft
	if anew && !watched { // what a wrapper that died held is over
		owed = d.sess.Recover(now)
	}
	if anew && d.control != nil { // what was accepted for the model went with who had it
		owed = append(owed, d.sess.Bind(now, d.control.Recover(d.session))...)
		d.expireOrphans(now)
	}
	if err := d.tell(owed, nil); err != nil {
		d.forget()
		d.close()
		d.sess = nil
		return err
	}
	return nil
}

func (d *watched) restore(replay func(func([]byte) error) error) error {
	var last event.Event
	var newest, before time.Time // the two newest times
	var told []compacted
	d.control = d.w.target(d)
	state, err := d.recall(replay, func(e *event.Event) {
		if !e.Sequenced {
			return
		}
		if e.Type == queue.PrunedType {
			d.gone = e.Time
		}
		last = *e
		last.Data = nil
		if e.Type == compaction {
			told = append(told, compacted{at: e.Time})
		}
		switch {
		case e.Time.After(newest):
			newest, before = e.Time, newest
		case e.Time.Before(newest) && e.Time.After(before):
			before = e.Time
		}
	})
	if err != nil {
		return err
	}
	// Whoever ended the session told all of it up to the last thing that it told
	// before the end: the end itself may have been given long after, by who
	// found a session whose owner had died.
	if d.told = (time.Time{}); last.Type == "session.ended" || last.Type == "x.aep-wrap.session.exited" {
		if d.told = last.Time; last.Time.Equal(newest) {
			d.told = before
		}
	}
	if d.told.Before(d.gone) {
		d.told = d.gone
	}
	d.state = state
	d.hooks.restore(jsonl.Path(d.w.cfg.LogDir, d.agent, d.session), told)
	d.sess = session.New(session.Config{Agent: d.agent, Host: d.w.cfg.Host, Session: d.session, Traceparent: d.w.cfg.Traceparent, State: state, History: true,
		Steer: d.adapter != nil && d.adapter.Steer})
	return nil
}

// peek reads what a session's log says, without taking it.
func (d *watched) peek() {
	if d.state != nil {
		return
	}
	d.state = d.newState()
	if err := d.each(func(e *event.Event) {
		d.state.Fold(*e)
		if e.Type == queue.PrunedType {
			d.gone = e.Time
		}
	}); err != nil {
		d.note.Warn("a session's log cannot be read", "session", d.session, "err", err)
	}
}

// doubts says whether what happened then may have been told and be forgotten.
func (d *watched) doubts(at time.Time) bool {
	if d.state == nil || at.IsZero() { // now
		return false
	}
	forgot := d.state.Forgot()
	return !forgot.IsZero() && !at.After(forgot.Add(apart))
}

// relearn reads in the session's log what it told.
func (d *watched) relearn() {
	d.at = d.now()
	if err := d.state.Relearn(func(told func(string, time.Time)) error {
		return d.each(func(e *event.Event) { told(e.ID, e.Time) })
	}); err != nil {
		d.note.Warn("what was told long ago may be told twice", "session", d.session, "err", err)
	}
}

// each reads a session's log, and what is left of one that was pruned.
func (d *watched) each(fn func(*event.Event)) error {
	path := jsonl.Path(d.w.cfg.LogDir, d.agent, d.session)
	fold := func(line []byte) error {
		if e, err := event.Parse(line); err == nil {
			fn(&e)
		}
		return nil
	}
	if err := jsonl.Rest(path, fold); err != nil {
		return fmt.Errorf("what is left of a pruned log: %w", err)
	}
	r, err := jsonl.OpenReader(path, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		line, _, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil && !errors.Is(err, jsonl.ErrLong) {
			return err
		}
		_ = fold(line) // it gives nil
	}
}

// put binds, seals and writes an entry.
func (d *watched) put(e entry) error {
	e.drafts = append(e.drafts, d.losses(d.now(), false)...)
	if e.command != nil {
		d.record(e.command)
	}
	if d.control != nil {
		e.drafts = d.control.Before(d.session, e.drafts)
	}
	bound := d.sess.Bind(e.at, e.drafts)
	if e.hook && !slices.ContainsFunc(bound, asks) {
		bound = append(bound, d.again(e)...)
		e.hold = nil
	}
	return d.tell(bound, e.hold)
}

// tell seals and writes what was bound.
func (d *watched) tell(bound []event.Draft, hold *control.Hold) error {
	d.seal(bound, hold)
	if len(d.items) == 0 {
		return nil
	}
	if err := d.write(); err != nil {
		return err
	}
	d.w.mu.Lock()
	d.dirty = true
	d.w.mu.Unlock()
	d.offer(true)
	return nil
}

// close gives the session's lock up, for whoever wants it.
func (d *watched) close() {
	if d.log == nil {
		return
	}
	d.size = d.log.Size()
	if d.state != nil {
		d.state.Rest()
	}
	d.w.mu.Lock()
	defer d.w.mu.Unlock()
	if d.dirty {
		d.w.unsynced = append(d.w.unsynced, d.log.Path())
	}
	if err := d.leave(); err != nil {
		d.note.Error("session log", "session", d.session, "err", err)
	}
	d.log, d.dirty = nil, false
}

// tidy gives up sessions without news, and where there are too many those
// that were used longest ago.
func (w *Watch) tidy(now time.Time) {
	if now.Sub(w.tidied) < tidyEvery {
		return
	}
	w.tidied = now
	open := 0
	for _, d := range w.sessions {
		if d.log == nil {
			if d.state != nil && now.Sub(d.at) > idleAfter { // it was relearned for a fork
				d.state.Rest()
			}
			continue
		}
		switch held := d.held.Load() > 0; {
		case held && jsonl.Wanted(d.log.Path()):
			go d.control.Holds().Close("") // then it can have it
			open++
		case held:
			open++
		case jsonl.Wanted(d.log.Path()):
			d.close()
			d.ask = now.Add(yield)
		case now.Sub(d.at) > idleAfter:
			d.close()
		default:
			open++
		}
	}
	for ; open > w.maxOwned; open-- {
		if d := w.oldest(func(d *watched) bool { return d.log != nil && d.held.Load() == 0 }); d != nil {
			d.close()
		}
	}
	for len(w.sessions) > maxWatched {
		d := w.oldest(func(d *watched) bool { return d.log == nil })
		if d == nil {
			return
		}
		w.mu.Lock()
		delete(w.sessions, d.agent+"\x00"+d.session)
		w.mu.Unlock()
	}
}

func (w *Watch) oldest(which func(*watched) bool) (found *watched) {
	for _, d := range w.sessions {
		if which(d) && (found == nil || d.used < found.used) {
			found = d
		}
	}
	return found
}

// Idle is called when there is no news: sessions that had none for a while
// are given up.
func (w *Watch) Idle() {
	w.work.Lock()
	defer w.work.Unlock()
	w.tidy(w.cfg.Now())
}

// Sync brings what was told so far to the disk for good.
func (w *Watch) Sync() {
	w.mu.Lock()
	paths := w.unsynced
	w.unsynced = nil
	for _, d := range w.sessions {
		if d.log != nil && d.dirty {
			d.dirty = false
			paths = append(paths, d.log.Path()) // the log itself may be closed, unsynced, at any moment
		}
	}
	w.mu.Unlock()
	if len(paths) > manyLogs && syncAll(w.cfg.LogDir) {
		return
	}
	for _, p := range paths {
		f, err := os.Open(p)
		if err != nil {
			continue // whoever removed it meant to
		}
		if err := f.Sync(); err != nil {
			w.cfg.Log.Error("session log", "err", err)
		}
		f.Close()
	}
}

// CloseAll gives all sessions up.
func (w *Watch) CloseAll() {
	w.work.Lock()
	defer w.work.Unlock()
	for _, d := range w.sessions {
		d.close()
	}
}

// Tell tells a thing of the watch's own, under a name, and says whether it is
// told.
func (w *Watch) Tell(typ string, at time.Time, name string, data event.Fields) bool {
	w.work.Lock()
	defer w.work.Unlock()
	d := event.Draft{Header: event.Header{Type: typ, Severity: event.Warning, Time: at}, Key: name, Fields: data}
	if w.write(w.session(nil, own, watchSession), entry{at: w.cfg.Now(), drafts: []event.Draft{d}}) != nil {
		return false
	}
	if typ == inputRefused {
		w.refused(adapters.Channel(data.Str("channel")), data.Str("reason"))
	}
	return true
}
