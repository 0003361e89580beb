package follow

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// From says where reading begins.
type From string

// Start reads everything again; Now passes over what is there when following
// begins; Saved goes on where the last following ended, and reads a file that
// was never followed from its start.
const (
	Start From = "start"
	Now   From = "now"
	Saved From = "saved"
)

// Handler takes what files hold. All is called by one goroutine, but Sync.
type Handler interface {
	// Open tells of a file whose head is known, before its first record.
	Open(f *File)
	// Take takes records of a file, in their order, and says how many of them
	// are safe: written where a crash of this process loses nothing. Those
	// that are not come again after the given while.
	Take(f *File, records []Record) (safe int, again time.Duration)
	// Close tells that a file is gone, or was written anew.
	Close(f *File)
	// Idle is called now and then.
	Idle()
	// Sync brings what was taken so far to the disk for good.
	Sync()
}

// Config says what is followed.
type Config struct {
	Paths   []string               // files and directories
	Match   func(path string) bool // which files of a directory; nil is IsLog
	From    From
	Once    bool   // read what is there, and end
	Store   *Store // of cursors; nil keeps none
	Handler Handler
	Log     *slog.Logger
	Say     func(line string) // tells the user; may be nil

	Settle    time.Duration // how long news is gathered: 10 ms
	Poll      time.Duration // where no news is announced: 250 ms
	SlowPoll  time.Duration // beside the announcements: 5 s
	SaveEvery time.Duration // how often cursors are saved: 1 s
	Retry     time.Duration // how long a record that was not taken waits: 1 s
	MaxOpen   int           // descriptors of followed files; 0 is 1024
}

// grace is how long a file that nothing leads to any more is read on: whoever
// has it open may still write.
const grace = 5 * time.Second

// maxPast bounds how many files that went are remembered.
const maxPast = 1 << 10

// maxDepth bounds how deep directories are looked through.
const maxDepth = 16

// Follower follows files.
type Follower struct {
	cfg    Config
	roots  []string
	isRoot map[string]bool

	w    *fsnotify.Watcher // nil where there is none
	dirs map[string]*dir   // by path
	full bool              // no watch is left: told once

	files  map[string]*File          // by path
	inodes map[[2]uint64]*File       // by identity
	heads  map[string]map[*File]bool // those that are read, by their head
	opened int

	mu     sync.Mutex
	news   map[string]bool // paths that changed
	all    bool            // something was missed: look at everything
	wake   chan struct{}
	dirty  map[*File]bool
	past   []Cursor // of files that went, or were written anew
	kept   int      // how many of them are saved
	buf    []byte
	recs   []Record
	arena  []byte
	spans  [][2]int
	saved  time.Time
	saving chan struct{} // closed when the saving under way is done
	next   time.Time     // when a file's time comes

	statMu sync.Mutex
	stats  Stats
}

// Stats say how it stands.
type Stats struct {
	Files   int           // followed
	Dirs    int           // looked through
	Polled  int           // of them, without announcements
	Records int64         // taken
	Bytes   int64         // read
	Faults  int64         // records that could not be read
	Cut     int64         // strings that were passed over
	Behind  int           // files with something unread
	Lag     time.Duration // how long the oldest of it waits
	Unread  int64         // bytes of it
}

type dir struct {
	path    string
	root    bool
	depth   int
	watched bool
	remote  bool // its file system announces only what this machine does

	dev, ino uint64
}

// New makes a follower; Run starts it.
func New(c Config) (*Follower, error) {
	def := func(v *time.Duration, d time.Duration) {
		if *v <= 0 {
			*v = d
		}
	}
	def(&c.Settle, 10*time.Millisecond)
	def(&c.Poll, 250*time.Millisecond)
	def(&c.SlowPoll, 5*time.Second)
	def(&c.SaveEvery, time.Second)
	def(&c.Retry, time.Second)
	if c.MaxOpen <= 0 {
		c.MaxOpen = 1024
	}
	if c.Match == nil {
		c.Match = IsLog
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Say == nil {
		c.Say = func(string) {}
	}
	if c.From == "" {
		c.From = Saved
	}
	fo := &Follower{cfg: c, dirs: map[string]*dir{}, files: map[string]*File{}, inodes: map[[2]uint64]*File{}, heads: map[string]map[*File]bool{},
		isRoot: map[string]bool{}, news: map[string]bool{}, wake: make(chan struct{}, 1), dirty: map[*File]bool{}, buf: make([]byte, chunk)}
	for _, p := range c.Paths {
		abs, err := filepath.Abs(p)
		if err != nil {
			return nil, err
		}
		fo.roots = append(fo.roots, abs)
		fo.isRoot[abs] = true
	}
	return fo, nil
}

// Stats gives the counters.
func (fo *Follower) Stats() Stats {
	fo.statMu.Lock()
	defer fo.statMu.Unlock()
	return fo.stats
}

// Run follows until ctx ends, or with Once until what is there was read. What
// was taken is saved when it returns.
func (fo *Follower) Run(ctx context.Context) error {
	if !fo.cfg.Once {
		fo.watch(ctx)
	}
	defer fo.end()
	fo.lookEverywhere(fo.cfg.From == Now)
	poll := time.NewTicker(fo.cfg.Poll)
	defer poll.Stop()
	slow := time.Now()
	for {
		more := fo.work(ctx)
		fo.cfg.Handler.Idle()
		fo.save(false)
		if fo.cfg.Once && !more {
			return nil
		}
		if ctx.Err() != nil {
			return nil
		}
		if now := time.Now(); !fo.next.After(now) {
			fo.next = now.Add(time.Hour)
		}
		if !more {
			select {
			case <-ctx.Done():
				return nil
			case <-fo.wake:
				// News comes in crowds.
				select {
				case <-ctx.Done():
				case <-time.After(fo.cfg.Settle):
				}
			case <-poll.C:
			case <-time.After(time.Until(fo.next)):
			}
		}
		select {
		case <-poll.C:
		default:
		}
		fo.takeNews()
		if now := time.Now(); now.Sub(slow) >= fo.cfg.SlowPoll {
			slow = now
			fo.lookEverywhere(false)
		} else {
			fo.lookAtPolled()
		}
	}
}

func (fo *Follower) end() {
	for _, f := range fo.inodes {
		if f.opened {
			fo.cfg.Handler.Close(f)
		}
	}
	fo.save(true)
	for _, f := range fo.inodes {
		f.close()
	}
	if fo.w != nil {
		fo.w.Close()
	}
}

// ---- announcements

// watch starts listening for announcements. Without them everything is polled.
func (fo *Follower) watch(ctx context.Context) {
	w, err := fsnotify.NewBufferedWatcher(1024)
	if err != nil {
		fo.cfg.Say("no change is announced (" + err.Error() + "): everything is polled each " + fo.cfg.Poll.String() + instances())
		return
	}
	fo.w = w
	go func() {
		for {
			select {
			case <-ctx.Done():
				return
			case e, ok := <-w.Events:
				if !ok {
					return
				}
				fo.mu.Lock()
				fo.news[e.Name] = true
				fo.mu.Unlock()
			case err, ok := <-w.Errors:
				if !ok {
					return
				}
				fo.cfg.Log.Debug("announcements", "err", err)
				fo.mu.Lock()
				fo.all = true
				fo.mu.Unlock()
			}
			select {
			case fo.wake <- struct{}{}:
			default:
			}
		}
	}()
}

// takeNews looks at what was announced.
func (fo *Follower) takeNews() {
	fo.mu.Lock()
	news, all := fo.news, fo.all
	fo.news, fo.all = make(map[string]bool, len(news)), false
	fo.mu.Unlock()
	if all {
		fo.lookEverywhere(false)
		return
	}
	again, roots := map[string]bool{}, false
	for path := range news {
		if d := fo.dirs[path]; d != nil { // another may stand there by now, and what was watched is elsewhere
			fo.unwatch(d)
			roots = true
		}
	}
	for path := range news {
		if f := fo.files[path]; f != nil && fo.check(f) {
			continue
		}
		dir, name := filepath.Split(path)
		d := fo.dirs[filepath.Clean(dir)]
		fi, err := os.Lstat(path)
		switch {
		case strings.HasPrefix(name, ".."), err == nil && fi.Mode()&os.ModeSymlink != 0: // what links lead to may be another
			roots = true
			again[filepath.Clean(dir)] = true
		case err != nil:
			again[path] = fo.dirs[path] != nil
			if d != nil && !isDir(d.path) { // of a folder's own end we hear late, while a file of it is open
				again[d.path], roots = true, true
			}
			roots = roots || fo.isRoot[path]
		case fi.IsDir():
			roots = roots || d == nil || !d.root
			if d != nil && d.root && d.depth < maxDepth {
				fo.addDir(path, d.depth+1, true)
			}
			if known := fo.dirs[path]; known != nil {
				fo.addDir(path, known.depth, false)
				again[path] = true
			}
		case fi.Mode().IsRegular() && (fo.isRoot[path] || d != nil && d.root && fo.cfg.Match(path)):
			fo.found(path, fi, false)
		}
	}
	for path, known := range again {
		if d := fo.dirs[path]; known && d != nil {
			fo.lookInto(d, false)
		}
	}
	if roots {
		fo.lookForRoots()
	}
}

// ---- what there is

// lookEverywhere looks at all files and directories.
func (fo *Follower) lookEverywhere(passOver bool) {
	for _, f := range fo.files {
		fo.check(f)
	}
	fo.lookAtRoots(passOver)
	for _, d := range fo.sorted() {
		fo.lookInto(d, passOver)
	}
	fo.count()
}

func (fo *Follower) sorted() []*dir {
	out := make([]*dir, 0, len(fo.dirs))
	for _, d := range fo.dirs {
		out = append(out, d)
	}
	slices.SortFunc(out, func(a, b *dir) int { return strings.Compare(a.path, b.path) })
	return out
}

// lookAtPolled looks where no change is announced, and at files whose time has
// come.
func (fo *Follower) lookAtPolled() {
	polled := map[string]bool{}
	for _, d := range fo.sorted() {
		if !d.watched || d.remote {
			polled[d.path] = true
			fo.lookInto(d, false)
		}
	}
	now := time.Now()
	for _, f := range fo.inodes {
		switch {
		case !f.later.IsZero():
			if now.After(f.later) {
				fo.dirty[f] = true
			}
		case f.gone: // who has it open may still write
			fo.dirty[f] = true
		case len(polled) > 0 && polled[filepath.Dir(f.Path)]:
			fo.check(f)
		}
	}
	if len(polled) > 0 {
		fo.lookForRoots()
	}
}

// lookForRoots looks at the given paths, and into those that have come.
func (fo *Follower) lookForRoots() {
	known := map[string]bool{}
	for _, root := range fo.roots {
		known[root] = fo.dirs[root] != nil
	}
	fo.lookAtRoots(false)
	for root, was := range known {
		if d := fo.dirs[root]; d != nil && !was {
			fo.lookInto(d, false)
		}
	}
}

// lookAtRoots finds what the given paths lead to by now.
func (fo *Follower) lookAtRoots(passOver bool) {
	for _, root := range fo.roots {
		fo.awaitRoot(root)
		fi, err := os.Stat(root)
		// Where the path itself may come to lead elsewhere, its folder tells.
		link, lerr := os.Lstat(root)
		isLink := lerr == nil && link.Mode()&os.ModeSymlink != 0
		if isLink || err == nil && !fi.IsDir() {
			fo.addDir(filepath.Dir(root), 0, false)
		}
		switch {
		case err != nil:
		case fi.IsDir():
			fo.addDir(root, 0, true)
		case fi.Mode().IsRegular():
			fo.found(root, fi, passOver)
			if isLink {
				fo.behind(root)
			}
		}
	}
}

// awaitRoot has the coming of a root that is not there announced, by the nearest
// folder that is.
func (fo *Follower) awaitRoot(root string) {
	if _, err := os.Stat(root); err == nil {
		return
	}
	for last := ""; ; {
		at := filepath.Dir(root)
		for at != filepath.Dir(at) && !isDir(at) {
			at = filepath.Dir(at)
		}
		if at == last { // what came meanwhile is announced
			return
		}
		fo.addDir(at, 0, false)
		last = at
	}
}

func isDir(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.IsDir()
}

// addDir takes a directory in: all of it, or only as the place of a root.
func (fo *Follower) addDir(path string, depth int, whole bool) *dir {
	d := fo.dirs[path]
	if d == nil {
		fi, err := os.Stat(path)
		if err != nil || !fi.IsDir() {
			return nil
		}
		d = &dir{path: path, depth: depth, root: whole, remote: remote(path)}
		d.dev, d.ino = fileID(fi)
		fo.dirs[path] = d
	}
	d.root = d.root || whole
	if fo.w != nil && !d.watched {
		err := fo.w.Add(path)
		d.watched = err == nil
		if err != nil && !fo.full && outOfWatches(err) {
			fo.full = true
			fo.cfg.Say("no watch is left for " + path + " and others (" + watches() + "): they are polled each " + fo.cfg.Poll.String())
		}
	}
	return d
}

// unwatch ends the watch of a directory, which addDir begins anew.
func (fo *Follower) unwatch(d *dir) {
	if fo.w != nil && d.watched {
		_ = fo.w.Remove(d.path) // who moved or removed it has ended it
	}
	d.watched = false
}

// lookInto finds the files of a directory, and its directories.
func (fo *Follower) lookInto(d *dir, passOver bool) {
	fi, err := os.Stat(d.path)
	if err != nil || !fi.IsDir() {
		fo.unwatch(d)
		delete(fo.dirs, d.path)
		return
	}
	// Another may stand there by now, or be what a link leads to.
	if dev, ino := fileID(fi); dev != d.dev || ino != d.ino {
		d.dev, d.ino = dev, ino
		fo.unwatch(d)
		fo.addDir(d.path, d.depth, false)
	}
	if !d.root {
		return
	}
	entries, err := os.ReadDir(d.path)
	if err != nil {
		fo.cfg.Log.Debug("cannot look into a directory", "path", d.path, "err", err)
		return
	}
	for _, e := range entries {
		name := e.Name()
		path := filepath.Join(d.path, name)
		switch {
		case strings.HasPrefix(name, ".."): // the versions behind a mounted volume's links
		case e.IsDir():
			if d.depth < maxDepth && fo.dirs[path] == nil {
				if sub := fo.addDir(path, d.depth+1, true); sub != nil {
					fo.lookInto(sub, passOver)
				}
			}
		case fo.cfg.Match(path):
			fi, err := os.Stat(path) // a link counts as what it leads to
			if err != nil || !fi.Mode().IsRegular() {
				continue
			}
			fo.found(path, fi, passOver)
			if e.Type()&os.ModeSymlink != 0 {
				fo.behind(path)
			}
		}
	}
}

// found takes in what stands at a path.
func (fo *Follower) found(path string, fi os.FileInfo, passOver bool) {
	dev, ino := fileID(fi)
	key := [2]uint64{dev, ino}
	f := fo.inodes[key]
	if old := fo.files[path]; old != nil && old != f {
		fo.leave(path, old)
	}
	if f == nil {
		f = &File{Path: path, dev: dev, ino: ino, split: &splitter{}}
		if passOver {
			f.past = fi.Size()
		}
		if ext := filepath.Ext(path); packers[ext] != nil {
			f.packed = ext
		}
		fo.inodes[key] = f
		fo.dirty[f] = true
	} else if f.Path != path && !stands(f) { // it was renamed
		if fo.files[f.Path] == f {
			delete(fo.files, f.Path)
		}
		f.Path, f.unsaved, f.gone = path, f.opened, false
	}
	if fo.files[path] == nil {
		fo.files[path] = f
	}
	fo.noticed(f, fi)
}

// behind looks at what a link leads to: what is written there is announced
// there.
func (fo *Follower) behind(path string) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return
	}
	fo.addDir(filepath.Dir(real), 0, false)
	if f := fo.files[path]; f != nil {
		fo.files[real] = f
	}
}

// stands says whether a file is still at its path.
func stands(f *File) bool {
	fi, err := os.Stat(f.Path)
	if err != nil {
		return false
	}
	dev, ino := fileID(fi)
	return dev == f.dev && ino == f.ino
}

// noticed compares a file with how it was.
func (fo *Follower) noticed(f *File, fi os.FileInfo) {
	if fi.Size() != f.size || !fi.ModTime().Equal(f.mod) {
		f.size, f.mod = fi.Size(), fi.ModTime()
		fo.dirty[f] = true
	}
}

// check looks whether a file is still where it was, and changed.
func (fo *Follower) check(f *File) bool {
	fi, err := os.Stat(f.Path)
	if err == nil {
		if dev, ino := fileID(fi); dev == f.dev && ino == f.ino {
			fo.noticed(f, fi)
			return true
		}
	}
	// What is left of it is read by its descriptor, if there is one. It may
	// turn up under another name.
	fo.goes(f)
	return false
}

func (fo *Follower) goes(f *File) {
	if !f.gone {
		f.gone, f.goneAt = true, time.Now()
	}
	fo.dirty[f] = true
}

// leave takes a path from a file.
func (fo *Follower) leave(path string, f *File) {
	delete(fo.files, path)
	if f.Path == path {
		fo.goes(f)
	}
}

// drop forgets a file.
func (fo *Follower) drop(f *File) {
	if f.f != nil {
		f.close()
		fo.opened--
	}
	for path, o := range fo.files {
		if o == f {
			delete(fo.files, path)
		}
	}
	delete(fo.inodes, [2]uint64{f.dev, f.ino})
	delete(fo.dirty, f)
	if f.opened {
		fo.remember(f)
		fo.closed(f)
	}
}

// closed tells the Handler that what a file held is over.
func (fo *Follower) closed(f *File) {
	fo.cfg.Handler.Close(f)
	f.opened = false
	if same := fo.heads[f.Head]; len(same) > 1 {
		delete(same, f)
	} else {
		delete(fo.heads, f.Head)
	}
}

// ---- reading

// work reads a piece of each file that changed, and says whether there is
// more.
func (fo *Follower) work(ctx context.Context) (more bool) {
	files := make([]*File, 0, len(fo.dirty))
	for f := range fo.dirty {
		files = append(files, f)
	}
	// History is read in its order, as far as names tell it.
	slices.SortFunc(files, func(a, b *File) int { return cmp.Compare(a.Path, b.Path) })
	for _, f := range files {
		if ctx.Err() != nil {
			return false
		}
		again := fo.turn(f)
		// What a file held before it was followed is read in one go: what
		// another one tells may be a part of it.
		for again && !f.caught && ctx.Err() == nil {
			again = fo.turn(f)
		}
		f.caught = true
		if again {
			more = true
		} else {
			delete(fo.dirty, f)
		}
	}
	fo.count()
	return more
}

// turn reads a piece of a file, and says whether there is more.
func (fo *Follower) turn(f *File) bool {
	if now := time.Now(); now.Before(f.later) {
		return false
	}
	f.later = time.Time{}
	if f.gone && stands(f) {
		f.gone = false
	}
	if err := fo.openFile(f); err != nil {
		if !errors.Is(err, os.ErrNotExist) {
			fo.cfg.Log.Debug("cannot follow", "path", f.Path, "err", err)
			f.later = time.Now().Add(fo.cfg.Retry)
			return false
		}
		fo.drop(f)
		return false
	}
	if f.opened && !fo.still(f) {
		return true
	}
	if !f.opened {
		ok, err := f.look(fo.buf)
		if err != nil {
			fo.cfg.Log.Debug("cannot read", "path", f.Path, "err", err)
		}
		if !ok {
			if f.gone {
				fo.drop(f)
			}
			return false
		}
		fo.begin(f)
	}
	eof := fo.read(f)
	if eof && f.gone && f.later.IsZero() && (fo.cfg.Once || time.Since(f.goneAt) > grace) {
		fo.drop(f)
		return false
	}
	return !eof && f.later.IsZero()
}

// soon has files whose time has come looked at then.
func (fo *Follower) soon(at time.Time) {
	if at.Before(fo.next) {
		fo.next = at
	}
}

// openFile opens a file, and closes another where that makes too many.
func (fo *Follower) openFile(f *File) error {
	if f.f != nil {
		return nil
	}
	if err := f.open(); err != nil {
		return err
	}
	if fo.opened++; fo.opened <= fo.cfg.MaxOpen {
		return nil
	}
	for _, o := range fo.inodes { // any will do
		if o.f != nil && o != f && !o.gone {
			o.close()
			fo.opened--
			break
		}
	}
	return nil
}

// still says whether a file is the one that it was. One that was written anew
// begins anew.
func (fo *Follower) still(f *File) bool {
	fi, err := f.f.Stat()
	if err == nil && (f.packed != "" || fi.Size() >= f.offset) && f.same() {
		if !f.sameTorn() {
			f.seek(f.offset)
		}
		return true
	}
	fo.cfg.Log.Info("a log was written anew", "path", f.Path)
	fo.remember(f)
	fo.closed(f)
	f.past = 0
	f.seek(0)
	f.tailLen = 0
	return false
}

// remember keeps how far a file was read that goes: a copy of it, or itself
// under another name, may turn up.
func (fo *Follower) remember(f *File) {
	if !f.opened || f.offset == 0 || f.tailLen != int(min(f.offset, tailSize)) {
		return
	}
	if len(fo.past) >= maxPast {
		fo.past = slices.Delete(fo.past, 0, maxPast/2)
		fo.kept = max(fo.kept-maxPast/2, 0)
	}
	fo.past = append(fo.past, f.cursor())
}

// begin tells the Handler of a file, and goes to where reading begins.
func (fo *Follower) begin(f *File) {
	f.opened = true
	if fo.heads[f.Head] == nil {
		fo.heads[f.Head] = map[*File]bool{}
	}
	fo.heads[f.Head][f] = true
	f.seek(0)
	f.tailLen = 0
	fo.cfg.Handler.Open(f)
	f.First = nil
	if fo.cfg.From != Start {
		for _, c := range fo.candidates(f) {
			if fi, err := f.f.Stat(); err != nil || f.packed == "" && fi.Size() < c.Offset {
				continue
			}
			if tail, err := f.tailAt(c.Offset); err == nil && tail == c.Tail {
				f.seek(c.Offset)
				f.unsaved = c.Path != f.Path || c.Ino != f.ino
				return
			}
			f.tailLen = 0
		}
	}
	if f.past > 0 {
		if err := f.passOver(fo.buf); err != nil {
			fo.cfg.Log.Warn("what a log held already cannot be passed over, and is told", "path", f.Path, "err", err)
			f.seek(0)
			return
		}
		_, _ = f.tailAt(f.offset) // without it the file is known by its head alone
		f.unsaved = true
	}
}

// candidates are the cursors that a file may go on from, the farthest first.
// With Now they count only for a file that was there before.
func (fo *Follower) candidates(f *File) []Cursor {
	cs := fo.cfg.Store.of(f.Head)
	if f.past > 0 {
		return nil
	}
	for _, c := range fo.past {
		if c.Head == f.Head {
			cs = append(cs, c)
		}
	}
	for o := range fo.heads[f.Head] { // followed under another name just now
		if o != f && o.offset > 0 {
			cs = append(cs, o.cursor())
		}
	}
	slices.SortFunc(cs, func(a, b Cursor) int { return cmp.Compare(b.Offset, a.Offset) })
	return cs
}

// read reads a piece, has its records taken, and says whether that was the
// end of what there is.
func (fo *Follower) read(f *File) (eof bool) {
	fo.recs, fo.spans, fo.arena = fo.recs[:0], fo.spans[:0], fo.arena[:0]
	f.split.emit = func(r Record) {
		fo.spans = append(fo.spans, [2]int{len(fo.arena), len(fo.arena) + len(r.Line)})
		fo.arena = append(fo.arena, r.Line...)
		fo.recs = append(fo.recs, r)
	}
	n, err := f.read(fo.buf)
	b := fo.buf[:n]
	if err != nil {
		eof = true
		if !errors.Is(err, io.EOF) {
			fo.cfg.Log.Debug("cannot read on", "path", f.Path, "err", err)
			f.later = time.Now().Add(fo.cfg.Retry)
		}
		// NULs at the end may be what another machine's write has not yet
		// brought.
		for len(b) > 0 && b[len(b)-1] == 0 && f.packed == "" {
			b = b[:len(b)-1]
		}
	}
	f.split.feed(b)
	f.pos += int64(len(b))
	if len(b) > 0 {
		f.torn = append(f.torn[:0], b[max(0, len(b)-tailSize):]...)
	}
	for i, s := range fo.spans {
		fo.recs[i].Line = fo.arena[s[0]:s[1]:s[1]]
	}
	if len(fo.recs) > 0 {
		fo.take(f, eof)
	}
	if cap(fo.arena) > 2*chunk {
		fo.arena = nil
	}
	fo.statMu.Lock()
	fo.stats.Bytes += int64(len(b))
	fo.statMu.Unlock()
	return eof
}

func (fo *Follower) take(f *File, eof bool) {
	done, again := fo.cfg.Handler.Take(f, fo.recs)
	taken := fo.recs[:done]
	fo.statMu.Lock()
	fo.stats.Records += int64(done)
	for i := range taken {
		fo.stats.Cut += int64(taken[i].Cut)
		if taken[i].Fault != "" {
			fo.stats.Faults++
		}
	}
	fo.statMu.Unlock()
	if done > 0 {
		f.offset = taken[done-1].End
		f.unsaved = true
	}
	if done < len(fo.recs) {
		f.seek(fo.recs[done].Start)
		if done > 0 {
			f.offset = taken[done-1].End
		}
		if again <= 0 {
			again = fo.cfg.Retry
		}
		f.later = time.Now().Add(again)
		fo.soon(f.later)
	}
	if f.packed == "" || eof {
		if _, err := f.tailAt(f.offset); err != nil {
			f.tailLen = 0
		}
	}
}

// ---- cursors

// save keeps how far files were read, once what they hold is on the disk. It
// waits only at the end.
func (fo *Follower) save(last bool) {
	if fo.saving != nil {
		if !last {
			select {
			case <-fo.saving:
			default:
				return
			}
		} else {
			<-fo.saving
		}
		fo.saving = nil
	}
	if !last && time.Since(fo.saved) < fo.cfg.SaveEvery {
		return
	}
	fo.saved = time.Now()
	cs := slices.Clone(fo.past[fo.kept:])
	fo.kept = len(fo.past)
	for _, f := range fo.inodes {
		if f.unsaved && f.opened && f.tailLen == int(min(f.offset, tailSize)) {
			f.unsaved = false
			cs = append(cs, f.cursor())
		}
	}
	if len(cs) == 0 {
		return
	}
	done := make(chan struct{})
	fo.saving = done
	go func() {
		defer close(done)
		fo.cfg.Handler.Sync()
		if err := fo.cfg.Store.save(cs); err != nil {
			fo.cfg.Log.Warn("how far logs were read cannot be saved: after a restart they are read again", "err", err)
		}
	}()
	if last {
		<-done
		fo.saving = nil
	}
}

func (fo *Follower) count() {
	fo.statMu.Lock()
	defer fo.statMu.Unlock()
	s := &fo.stats
	s.Files, s.Dirs, s.Polled, s.Behind, s.Lag, s.Unread = len(fo.inodes), len(fo.dirs), 0, 0, 0, 0
	for _, d := range fo.dirs {
		if !d.watched || d.remote {
			s.Polled++
		}
	}
	now := time.Now()
	for f := range fo.dirty {
		s.Behind++
		s.Unread += max(0, f.size-f.pos)
		if !f.mod.IsZero() {
			s.Lag = max(s.Lag, now.Sub(f.mod))
		}
	}
}
