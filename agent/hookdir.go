package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"aep-wrap/adapters"
	"aep-wrap/event"
)

// HookDirMark is the file by which a directory is known for one of hooks. While
// somebody takes them, what it says changes every second: who waits for an answer
// goes on when it no longer does.
const HookDirMark = ".aep-hooks"

// HookDirConfig says how a hook directory is watched.
type HookDirConfig struct {
	Dir      string
	Adapters []adapters.Adapter // by name; one alone needs no name
	Watch    *Watch
	Archive  string // where taken hooks go; "" deletes them
	Log      *slog.Logger
	Took     func(adapter string, held bool, d time.Duration) // as HookConfig.Took, from when a hook was written
	Poll     time.Duration                                    // beside the announcements: 250 ms
}

// How long a runtime that waits is left without a word while its hook cannot
// be told, and how long a reply may lie unread before nobody is there for it.
const (
	untold = 2 * time.Second
	unread = 5 * time.Second
	beat   = time.Second
	stale  = time.Minute // of a reply from before we came
)

// HookDir takes hooks that an agent elsewhere writes as files: one JSON object
// each, renamed into place as NAME.ADAPTER.EVENT.json. They are taken in the
// order in which they were written. A hook named NAME.ADAPTER.EVENT.held.json
// waits for NAME.ADAPTER.EVENT.held.reply, which is what the runtime hears;
// empty is no decision. Who reads a reply removes it. Who no longer waits
// renames the hook to NAME.ADAPTER.EVENT.json.
//
// A file goes only when what it tells is in its session's log and its reply is
// written: a crash in between has it taken again, under the same event ids, and
// a request that was held is held on.
type HookDir struct {
	cfg    HookDirConfig
	intake *intake
	held   sync.WaitGroup

	mu      sync.Mutex
	holding map[string]func() // hooks that are held; the function says that their runtime is gone
	silent  map[string]bool   // hooks that were answered, and are not told yet
	behind  map[string]bool   // sessions of which a hook of this round is not told yet
}

// NewHookDir makes the directory, where it is not there, and its mark.
func NewHookDir(c HookDirConfig) (*HookDir, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Poll <= 0 {
		c.Poll = 250 * time.Millisecond
	}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Access(c.Dir, unix.R_OK|unix.W_OK|unix.X_OK); err != nil {
		return nil, fmt.Errorf("hooks cannot be taken from it: %w (a directory of two users wants a group that both are in, and mode 2770)", err)
	}
	if c.Archive != "" {
		if err := os.MkdirAll(c.Archive, 0o700); err != nil {
			return nil, err
		}
	}
	h := &HookDir{cfg: c, intake: newIntake(), holding: map[string]func(){}, silent: map[string]bool{}}
	h.sweep()
	return h, h.beat()
}

// beat says that we live.
func (h *HookDir) beat() error {
	return h.write(HookDirMark, []byte(time.Now().UTC().Format(time.RFC3339Nano)+"\n"))
}

// beats says so until ctx ends.
func (h *HookDir) beats(ctx context.Context) {
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for failed := false; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		err := h.beat()
		if err != nil && !failed {
			h.cfg.Log.Warn("hook directory: who waits will not wait on", "dir", h.cfg.Dir, "err", err)
		}
		failed = err != nil
	}
}

// sweep removes replies that were never read.
func (h *HookDir) sweep() {
	replies, err := filepath.Glob(filepath.Join(h.cfg.Dir, "*.held.reply"))
	if err != nil {
		return // of the pattern alone
	}
	for _, path := range replies {
		if fi, err := os.Lstat(path); err == nil && fi.Mode().IsRegular() && time.Since(fi.ModTime()) > stale {
			_ = os.Remove(path)
		}
	}
}

// Run takes hooks until ctx ends, or with once those that are there. Hooks
// that wait by then are answered with no decision.
func (h *HookDir) Run(ctx context.Context, once bool) error {
	defer h.held.Wait()
	if once {
		_, err := h.round(ctx)
		return err
	}
	bctx, end := context.WithCancel(ctx)
	defer end()
	go h.beats(bctx)
	var news <-chan fsnotify.Event
	if w, err := fsnotify.NewBufferedWatcher(256); err == nil {
		defer w.Close()
		if err := w.Add(h.cfg.Dir); err == nil {
			news = w.Events
			go func() {
				for range w.Errors { // missed news: the poll is there
				}
			}()
		}
	}
	poll := time.NewTicker(h.cfg.Poll)
	defer poll.Stop()
	for {
		n, err := h.round(ctx)
		if err != nil {
			h.cfg.Log.Warn("hook directory", "dir", h.cfg.Dir, "err", err)
		}
		if n > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-poll.C:
		case _, ok := <-news:
			if !ok {
				news = nil
			}
			// What was written so far is looked at in one go.
			for drained := false; !drained; {
				select {
				case <-news:
				default:
					drained = true
				}
			}
		}
	}
}

// CatchUp takes the hooks that are there, before who reads the logs of their
// sessions begins: what hooks told, a log is not to tell under other names.
func (h *HookDir) CatchUp(ctx context.Context) {
	if _, err := h.round(ctx); err != nil {
		h.cfg.Log.Warn("hook directory", "dir", h.cfg.Dir, "err", err)
	}
}

// waiting is a hook's file.
type waiting struct {
	name string
	at   time.Time
}

// round takes what is there, and gives how much that was.
func (h *HookDir) round(ctx context.Context) (taken int, err error) {
	entries, err := os.ReadDir(h.cfg.Dir)
	if err != nil {
		return 0, err
	}
	h.letGo(entries)
	var files []waiting
	for _, e := range entries {
		name := e.Name()
		if name[0] == '.' || filepath.Ext(name) != ".json" || h.isHolding(name) {
			continue
		}
		if !e.Type().IsRegular() { // a link, say: what is behind it is not read
			if err := h.refuse(waiting{name, h.cfg.Watch.cfg.Now()}, "not_a_file", false); err != nil {
				return 0, err
			}
			continue
		}
		if fi, err := e.Info(); err == nil {
			files = append(files, waiting{name, fi.ModTime()})
		}
	}
	slices.SortFunc(files, func(a, b waiting) int {
		if c := a.at.Compare(b.at); c != 0 {
			return c
		}
		return strings.Compare(a.name, b.name)
	})
	h.behind = map[string]bool{}
	for _, f := range files {
		if ctx.Err() != nil {
			return taken, nil
		}
		ok, err := h.take(ctx, f)
		if err != nil {
			return taken, err
		}
		if ok {
			taken++
		}
	}
	return taken, nil
}

func (h *HookDir) isHolding(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.holding[name] != nil
}

// letGo ends the holds whose hook is no longer there: its runtime has stopped
// waiting.
func (h *HookDir) letGo(entries []os.DirEntry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.holding) == 0 {
		return
	}
	there := map[string]bool{}
	for _, e := range entries {
		there[e.Name()] = true
	}
	for name, gone := range h.holding {
		if !there[name] {
			gone()
		}
	}
}

// take takes one hook; false leaves it for later.
func (h *HookDir) take(ctx context.Context, f waiting) (bool, error) {
	path := filepath.Join(h.cfg.Dir, f.name)
	a, name, held := h.parse(f.name)
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case errors.Is(err, fs.ErrPermission): // of one file: what comes after it is not to wait
		return true, h.refuse(f, "unreadable", held)
	case err != nil:
		return false, err
	}
	read := h.intake.read(file, false)
	defer h.intake.back(read)
	file.Close()
	if a == nil && read.reason == "" {
		read.reason = "unknown_adapter"
	}
	switch read.reason {
	case "":
	case "truncated":
		return false, fmt.Errorf("%s cannot be read", path)
	default:
		return true, h.refuse(f, read.reason, held)
	}
	payload, err := event.ParseObject(valid(read.raw))
	if err != nil {
		return true, h.refuse(f, refusalReason(err), held)
	}
	if name == "" {
		name, _ = payload["hook_event_name"].(string)
	}
	hears := held && !h.silent[f.name]
	m := adapters.Moment{Channel: adapters.Hook, Name: name, Payload: payload, Raw: read.raw, Cut: read.cut, Time: f.at, Held: hears}
	// What cannot be told now is not overtaken by what came after it.
	of := a.Name + "\x00" + namedIn(payload)
	again, answer := time.Millisecond, (*Held)(nil)
	if !h.behind[of] {
		again, answer = h.cfg.Watch.Hook(a, m, strings.TrimSuffix(strings.TrimSuffix(f.name, ".json"), ".held"))
	}
	h.behind[of] = again > 0
	switch {
	case again > 0 && hears && time.Since(f.at) > untold:
		h.silent[f.name] = true
		return false, h.reply(f.name, nil)
	case again > 0:
		return false, nil
	case !hears:
		delete(h.silent, f.name)
		return true, h.done(f.name)
	case !answer.Waits():
		err := h.answer(ctx, ctx, f.name, answer)
		h.took(a.Name, false, f.at)
		return true, err
	}
	hctx, gone := context.WithCancel(ctx)
	h.mu.Lock()
	h.holding[f.name] = gone
	h.mu.Unlock()
	h.held.Go(func() {
		defer gone()
		if err := h.answer(ctx, hctx, f.name, answer); err != nil {
			h.cfg.Log.Warn("hook directory", "hook", f.name, "err", err)
		}
		h.took(a.Name, true, f.at)
		h.mu.Lock()
		delete(h.holding, f.name)
		h.mu.Unlock()
	})
	return true, nil
}

// namedIn is the session that a payload names; all that name none are one's.
func namedIn(payload map[string]any) string {
	for _, name := range []string{"session_id", "sessionId", "sessionID"} {
		if s, ok := payload[name].(string); ok {
			return s
		}
	}
	return ""
}

func (h *HookDir) took(adapter string, held bool, since time.Time) {
	if h.cfg.Took != nil {
		h.cfg.Took(adapter, held, max(0, time.Since(since)))
	}
}

// answer waits for what a hook is to hear, writes it, and sees to it that it is
// read. hears ends when its runtime no longer waits.
func (h *HookDir) answer(ctx, hears context.Context, file string, held *Held) error {
	reply := held.Answer(hears)
	if len(reply) == 0 && hears.Err() != nil && ctx.Err() == nil {
		held.Told(nil)
		return h.done(file)
	}
	err := h.reply(file, reply)
	if err == nil {
		err = h.done(file)
	}
	if err != nil {
		held.Told(err)
		return err
	}
	h.held.Go(func() { held.Told(h.unread(ctx, file)) })
	return nil
}

var errUnread = errors.New("nobody reads the reply")

// unread waits until a reply was read, and takes it away where nobody does.
func (h *HookDir) unread(ctx context.Context, file string) error {
	path := h.replyPath(file)
	for end := time.Now().Add(unread); time.Now().Before(end); {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil // whoever waits still finds it
		case <-time.After(h.cfg.Poll / 5):
		}
	}
	if os.Remove(path) != nil {
		return nil // at the last moment
	}
	return errUnread
}

// parse reads a file's name: whose hook it is, which, and whether it waits.
func (h *HookDir) parse(file string) (a *adapters.Adapter, name string, held bool) {
	parts := strings.Split(strings.TrimSuffix(file, ".json"), ".")
	if n := len(parts) - 1; n > 0 && parts[n] == "held" {
		held, parts = true, parts[:n]
	}
	for i := len(parts) - 1; i >= 0 && i >= len(parts)-2; i-- {
		for j := range h.cfg.Adapters {
			if h.cfg.Adapters[j].Name == parts[i] {
				if i == len(parts)-2 {
					name = parts[i+1]
				}
				return &h.cfg.Adapters[j], name, held
			}
		}
	}
	if len(h.cfg.Adapters) == 1 {
		return &h.cfg.Adapters[0], "", held
	}
	return nil, "", held
}

// refuse sets a file aside that is no hook, and tells of it.
func (h *HookDir) refuse(f waiting, reason string, held bool) error {
	h.cfg.Watch.say("the hook %s cannot be read (%s): it is set aside as %s.refused", filepath.Join(h.cfg.Dir, f.name), reason, f.name)
	if !h.cfg.Watch.Tell("x.aep-wrap.input.refused", f.at, "hook "+f.name, event.Fields{event.Meta("channel", string(adapters.Hook)), event.Meta("reason", reason)}) {
		return nil
	}
	if held {
		if err := h.reply(f.name, nil); err != nil {
			return err
		}
	}
	path := filepath.Join(h.cfg.Dir, f.name)
	return os.Rename(path, path+".refused")
}

// reply writes what a hook hears.
func (h *HookDir) reply(file string, answer []byte) error {
	return h.write(filepath.Base(h.replyPath(file)), answer)
}

// write writes a file whole or not at all. Who may read it, the directory says:
// its reader may be another user. That one could have laid a link where we
// write, to a file that only we may change.
func (h *HookDir) write(name string, content []byte) error {
	tmp := filepath.Join(h.cfg.Dir, "."+name+".tmp")
	_ = os.Remove(tmp)
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Chmod(0o644), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(h.cfg.Dir, name))
}

func (h *HookDir) replyPath(file string) string {
	return filepath.Join(h.cfg.Dir, strings.TrimSuffix(file, ".json")+".reply")
}

// done removes a hook that is told, or archives it.
func (h *HookDir) done(file string) error {
	path := filepath.Join(h.cfg.Dir, file)
	err := error(nil)
	if h.cfg.Archive != "" {
		err = os.Rename(path, filepath.Join(h.cfg.Archive, file))
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it no longer waits, and is told under its other name
		case !errors.Is(err, syscall.EXDEV):
			return err
		}
		raw, rerr := os.ReadFile(path)
		if rerr == nil {
			rerr = os.WriteFile(filepath.Join(h.cfg.Archive, file), raw, 0o600)
		}
		if rerr != nil {
			return rerr
		}
	}
	err = os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
