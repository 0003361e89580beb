package agent

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"aep-wrap/adapters"
	"aep-wrap/agent/follow"
	"aep-wrap/event"
	"aep-wrap/queue"
	"aep-wrap/queue/jsonl"
	"aep-wrap/redaction"
	"aep-wrap/session"
)

// The bounds of a watch.
const (
	identifyIn = 16                     // records in which a log must tell whose it is
	maxDesks   = 4096                   // sessions that are remembered at once
	tidyEvery  = 250 * time.Millisecond // how often sessions are looked through
	manyLogs   = 16                     // from which a file system is synced, not each log
	maxOwned   = 512                    // of them, with an open log
	deskIdle   = 30 * time.Second       // how long a session without news is owned
	retryOwned = time.Second            // how often an owned session is asked for
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
}

// Watch makes events of session logs and of hook directories that others
// write. It is a follow.Handler.
//
// What it tells of a session goes to that session's log first, whose lock it
// holds while it writes. A session whose lock another process has is left
// alone, and so is what that process told: the watch goes on when the lock is
// free. Event ids are derived from the vendor's ids, or from the record's place
// in its file, so that reading a thing again tells nothing new.
type Watch struct {
	cfg WatchConfig

	work     sync.Mutex // one record, or one hook, at a time
	maxOwned int        // sessions with an open log at once
	tidied   time.Time

	mu       sync.Mutex // Sync waits for no record
	desks    map[string]*desk
	unsynced []string // logs that were given up, and are not on the disk yet
	tick     int64
	said     sync.Map

	stats struct{ records, events, refused, unknown, owned, failed atomic.Int64 }
}

// WatchStats counts what passed and what did not.
type WatchStats struct {
	Records int64 // read
	Events  int64 // written to session logs
	Refused int64 // records that could not be read
	Unknown int64 // files of a layout that no adapter knows
	Owned   int64 // times that a session was left to its owner
	Failed  int64 // drafts that could not be sealed
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
	return &Watch{cfg: c, desks: map[string]*desk{}, maxOwned: owned}
}

// Stats gives the counters.
func (w *Watch) Stats() WatchStats {
	s := &w.stats
	return WatchStats{Records: s.records.Load(), Events: s.events.Load(), Refused: s.refused.Load(), Unknown: s.unknown.Load(),
		Owned: s.owned.Load(), Failed: s.failed.Load()}
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
	clock   time.Time // of the newest record that said
	unknown bool      // it was told that nobody knows it
	warned  bool      // it was told that its version is not known
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
	if r, ok := f.Data.(*reading); ok && !r.known && r.asked > 0 {
		if d := w.strange(f, r); d != nil {
			_ = w.write(own, watchSession, w.cfg.Now(), d) // it was said, and a later reading tells it again
		}
	}
	f.Data = nil
}

// strange tells once of a file that no adapter knows.
func (w *Watch) strange(f *follow.File, r *reading) []event.Draft {
	if r.unknown {
		return nil
	}
	r.unknown = true
	for i := range w.cfg.Adapters {
		if rd := w.cfg.Adapters[i].Reading; rd != nil && pathFits(f.Path, rd.Beside) {
			return nil
		}
	}
	w.stats.unknown.Add(1)
	w.say("no adapter knows the layout of %s: nothing is told of it", f.Path)
	at := r.clock
	if at.IsZero() {
		at = w.cfg.Now()
	}
	return []event.Draft{{Header: event.Header{Type: "x.aep-wrap.log.unknown", Severity: event.Warning, Time: at}, Key: f.Head,
		Fields: event.Fields{event.Meta("file", f.Head), event.Meta("records", r.asked)}}}
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
		if err := w.write(s.agent, s.session, now, s.drafts); err != nil {
			w.stats.records.Add(int64(done))
			return done, time.Until(w.desk(s.agent, s.session).ask)
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
			if r.asked < identifyIn || r.unknown {
				return nil
			}
			return w.strange(f, r)
		}
	}
	if r.id.Strange && !r.warned {
		r.warned = true
		w.say("%s is of a version or layout of %s that this was not made for (%s; made for %s): what is told may be wrong or less than there is",
			f.Path, r.adapter.Title, cmp.Or(token(r.id.Version), "no version"), r.adapter.Pinned)
		data := event.Fields{event.Meta("adapter", r.adapter.Name), event.Meta("made_for", r.adapter.Pinned)}
		if v := token(r.id.Version); v != "" {
			data = append(data, event.Meta("version", v))
		}
		out = append(out, event.Draft{Header: event.Header{Type: "x.aep-wrap.log.strange", Severity: event.Warning, Time: at}, Key: f.Head, Fields: data})
	}
	typ, _ := record["type"].(string)
	m := adapters.Moment{Channel: adapters.Log, Name: typ, Payload: record, Raw: line, Time: at, Session: r.id.Session}
	drafts, err := w.mapMoment(r.adapter, m)
	if err != nil {
		w.cfg.Log.Error("the adapter failed", "adapter", r.adapter.Name, "file", f.Path, "at", rec.Start, "err", err)
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
	if unnamed(d) {
		d.Key = "log " + place + "/" + strconv.Itoa(i)
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
	parent := w.desk(agent, r.id.Fork)
	parent.peek()
	return parent.state != nil && parent.state.Seen(event.DeriveID(agent, r.id.Fork, d.Type, d.Key))
}

func (w *Watch) mapMoment(a *adapters.Adapter, m adapters.Moment) (drafts []event.Draft, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return a.Map(m), nil
}

func (w *Watch) refuse(r *reading, place, reason string, bytes int) []event.Draft {
	n := w.stats.refused.Add(1)
	w.cfg.Log.Warn("record refused", "place", place, "reason", reason, "bytes", bytes, "count", n)
	if !r.known {
		return nil
	}
	return []event.Draft{{Header: event.Header{Type: "x.aep-wrap.input.refused", Severity: event.Warning, Time: r.clock}, Key: "log " + place,
		Fields: event.Fields{event.Meta("channel", string(adapters.Log)), event.Meta("reason", reason), event.Meta("bytes", int64(bytes))}}}
}

// Hook takes a hook's payload that was found in a directory: name is the
// file's, by which a fact without a name of its own is known. It says whether
// all of it is told.
func (w *Watch) Hook(a *adapters.Adapter, m adapters.Moment, name string) bool {
	w.work.Lock()
	defer w.work.Unlock()
	drafts, err := w.mapMoment(a, m)
	if err != nil {
		w.cfg.Log.Error("the adapter failed", "adapter", a.Name, "moment", m.Name, "err", err)
		return true
	}
	agent := cmp.Or(w.cfg.Agent, a.Name)
	for i := 0; i < len(drafts); {
		session := cmp.Or(drafts[i].Session, m.Session, "unknown")
		n := i
		for ; n < len(drafts) && cmp.Or(drafts[n].Session, m.Session, "unknown") == session; n++ {
			d := &drafts[n]
			if unnamed(d) {
				d.Key = "hook " + name + "/" + strconv.Itoa(n)
			}
			if d.Time.IsZero() {
				d.Time = m.Time
			}
		}
		if w.write(agent, session, m.Time, drafts[i:n]) != nil {
			return false
		}
		i = n
	}
	w.tidy(w.cfg.Now())
	return true
}

// ---- sessions

// errOwned says that a session is another process's for now.
var errOwned = errors.New("the session is owned by another process")

// desk is where one session is written.
type desk struct {
	w              *Watch
	agent, session string

	log   *jsonl.Log
	state *session.State
	sess  *session.Session
	size  int64     // of the log when it was given up
	told  time.Time // up to then another process told everything
	used  int64
	at    time.Time // of the last use
	ask   time.Time // owned: not before then
	asked time.Time // when the sinks were asked for losses
	dirty bool
}

func (w *Watch) desk(agent, name string) *desk {
	key := agent + "\x00" + name
	d := w.desks[key]
	if d == nil {
		d = &desk{w: w, agent: agent, session: name}
		w.mu.Lock()
		w.desks[key] = d
		w.mu.Unlock()
	}
	w.tick++
	d.used = w.tick
	return d
}

// write tells drafts in a session. An error says that nothing is told now, and
// that it is to be tried again.
func (w *Watch) write(agent, name string, now time.Time, drafts []event.Draft) error {
	d := w.desk(agent, name)
	d.at = now
	if d.log == nil {
		if now.Before(d.ask) {
			return errOwned
		}
		if err := d.open(now); err != nil {
			d.ask = now.Add(retryOwned)
			var owned *jsonl.ErrOwned
			if !errors.As(err, &owned) {
				w.say("cannot write the session log in %s: %v; reading waits", w.cfg.LogDir, reasonOf(err))
				return err
			}
			w.stats.owned.Add(1)
			return errOwned
		}
	}
	if !d.told.IsZero() {
		kept := drafts[:0:0]
		for _, x := range drafts {
			if x.Time.After(d.told) {
				kept = append(kept, x)
			}
		}
		drafts = kept
	}
	if len(drafts) == 0 {
		return nil
	}
	if err := d.put(now, drafts); err != nil {
		// What was bound is not written: the log says how it stands.
		w.cfg.Log.Error("session log", "session", name, "err", err)
		w.say("cannot write the session log in %s: %v; reading waits", w.cfg.LogDir, reasonOf(err))
		d.close()
		d.sess, d.state = nil, nil
		d.ask = now.Add(retryOwned)
		return err
	}
	return nil
}

// open takes the session's log, and restores the session from it where it is
// not the one that was left.
func (d *desk) open(now time.Time) error {
	log, err := jsonl.OpenPath(jsonl.Path(d.w.cfg.LogDir, d.agent, d.session))
	if err != nil {
		return err
	}
	if log.Warning != "" {
		d.w.say("%s", log.Warning)
	}
	log.SyncEvery(-1) // Sync does it
	if d.sess == nil || log.Size() != d.size {
		if err := d.restore(log.Replay); err != nil {
			_ = log.Close() // nothing was written
			return err
		}
	}
	for _, s := range d.w.cfg.Sinks {
		if err := s.Attach(d.agent, d.session, log); err != nil {
			d.w.cfg.Log.Warn("a sink cannot go on from the session's log", "session", d.session, "err", err)
		}
	}
	d.w.mu.Lock()
	d.log = log
	d.w.mu.Unlock()
	return nil
}

func (d *desk) restore(replay func(func([]byte) error) error) error {
	state := session.NewState()
	var last event.Event
	var newest, before time.Time // the two newest times
	err := replay(func(line []byte) error {
		e, err := event.Parse(line)
		if err != nil {
			return nil
		}
		state.Fold(e)
		if !e.Sequenced {
			return nil
		}
		e.Data, last = nil, e
		switch {
		case e.Time.After(newest):
			newest, before = e.Time, newest
		case e.Time.Before(newest) && e.Time.After(before):
			before = e.Time
		}
		return nil
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
	d.state = state
	d.sess = session.New(session.Config{Agent: d.agent, Host: d.w.cfg.Host, Session: d.session, Traceparent: d.w.cfg.Traceparent, State: state, History: true})
	return nil
}

// peek reads what a session's log says, without taking it.
func (d *desk) peek() {
	if d.state != nil {
		return
	}
	d.state = session.NewState()
	r, err := jsonl.OpenReader(jsonl.Path(d.w.cfg.LogDir, d.agent, d.session), 0)
	if err != nil {
		return
	}
	defer r.Close()
	for {
		line, _, err := r.Next()
		if err != nil && !errors.Is(err, jsonl.ErrLong) {
			return
		}
		if e, err := event.Parse(line); err == nil {
			d.state.Fold(e)
		}
	}
}

// put binds, seals and writes drafts.
func (d *desk) put(now time.Time, drafts []event.Draft) error {
	w := d.w
	if now.Sub(d.asked) > lossEvery {
		d.asked = now
		for _, s := range w.cfg.Sinks {
			for _, loss := range s.TakeLosses(d.agent, d.session) {
				drafts = append(drafts, loss.Draft())
			}
		}
	}
	bound := d.sess.Bind(now, drafts)
	items := make([]queue.Item, 0, len(bound))
	lines := make([][]byte, 0, len(bound))
	for i := range bound {
		e, err := w.cfg.Gate.Seal(&bound[i])
		if err != nil {
			w.stats.failed.Add(1)
			w.cfg.Log.Error("not sealed", "type", bound[i].Type, "session", d.session, "err", err)
			continue
		}
		line := e.AppendJSON(nil)
		lines = append(lines, line)
		items = append(items, queue.Item{Agent: e.Agent, Session: e.Session, ID: e.ID, Severity: e.Severity,
			Sequenced: e.Sequenced, Position: e.Position(), Line: line})
	}
	if len(lines) == 0 {
		return nil
	}
	refs, err := d.log.AppendBatch(nil, lines)
	if err != nil {
		return err
	}
	w.mu.Lock()
	d.dirty = true
	w.mu.Unlock()
	w.stats.events.Add(int64(len(items)))
	for i := range items {
		items[i].Log = refs[i]
		for _, s := range w.cfg.Sinks {
			s.Offer(items[i])
		}
	}
	return nil
}

// close gives the session's lock up, for whoever wants it.
func (d *desk) close() {
	if d.log == nil {
		return
	}
	d.size = d.log.Size()
	for _, s := range d.w.cfg.Sinks {
		s.Done(d.agent, d.session)
	}
	d.w.mu.Lock()
	log := d.log
	if d.dirty {
		d.w.unsynced = append(d.w.unsynced, log.Path())
	}
	d.log, d.dirty = nil, false
	d.w.mu.Unlock()
	if err := log.Close(); err != nil {
		d.w.cfg.Log.Error("session log", "session", d.session, "err", err)
	}
}

// tidy gives up sessions without news, and where there are too many those
// that were used longest ago.
func (w *Watch) tidy(now time.Time) {
	if now.Sub(w.tidied) < tidyEvery {
		return
	}
	w.tidied = now
	open := 0
	for _, d := range w.desks {
		if d.log == nil {
			continue
		}
		switch {
		case jsonl.Wanted(d.log.Path()):
			d.close()
			d.ask = now.Add(yield)
		case now.Sub(d.at) > deskIdle:
			d.close()
		default:
			open++
		}
	}
	for ; open > w.maxOwned; open-- {
		if d := w.oldest(func(d *desk) bool { return d.log != nil }); d != nil {
			d.close()
		}
	}
	for len(w.desks) > maxDesks {
		d := w.oldest(func(d *desk) bool { return d.log == nil })
		if d == nil {
			return
		}
		w.mu.Lock()
		delete(w.desks, d.agent+"\x00"+d.session)
		w.mu.Unlock()
	}
}

func (w *Watch) oldest(which func(*desk) bool) (found *desk) {
	for _, d := range w.desks {
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
	var logs []*jsonl.Log
	for _, d := range w.desks {
		if d.log != nil && d.dirty {
			d.dirty = false
			logs = append(logs, d.log)
		}
	}
	w.mu.Unlock()
	if len(logs)+len(paths) > manyLogs && syncAll(w.cfg.LogDir) {
		return
	}
	for _, l := range logs {
		if err := l.Sync(); err != nil {
			w.cfg.Log.Error("session log", "err", err)
		}
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
	for _, d := range w.desks {
		d.close()
	}
}

// Tell tells a thing of the watch's own, under a name, and says whether it is
// told.
func (w *Watch) Tell(typ string, at time.Time, name string, data event.Fields) bool {
	w.work.Lock()
	defer w.work.Unlock()
	return w.write(own, watchSession, w.cfg.Now(), []event.Draft{{Header: event.Header{Type: typ, Severity: event.Warning, Time: at}, Key: name, Fields: data}}) == nil
}
