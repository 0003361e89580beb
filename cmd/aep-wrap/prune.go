package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"aep-wrap/queue"
)

// keeping is how long, and how much of, session logs are kept; 0 is for ever,
// and all.
type keeping struct {
	age  time.Duration
	size int64
}

func newPruneCmd(a *app) *cobra.Command {
	var olderThan, maxSize string
	var o pruneOptions
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove session logs that are too old, or too many",
		Long: `Removes session logs, with all that is beside them, that were not written to for
--older-than, and then the oldest until all together are no more than --max-size.
Without either it goes by the settings keep-for and keep-size, as aep-wrap serve
does by itself, and by their defaults. Hooks that serve archived (setting archive)
go by age too, and directories that crashed launches left.

A session that somebody has is left alone. So is a log that a collector has not
taken in to its end: it is told, and aep-wrap flush sends it. --force removes such
a log as well, and says how many events went unsent.

Of a log that is removed a mark of a few hundred bytes stays for half a year,
without content: by it the session goes on in its order when it is taken up again,
and its history is not told anew when it is read again.

The exit code is 0 when all that was to go went, and 1 when something was kept
that is not wholly sent, or could not be removed.`,
		Example: `  aep-wrap prune --dry-run
  aep-wrap prune --older-than 30d
  aep-wrap prune --max-size 500MB --older-than 12h --json
  aep-wrap prune --older-than 90d --force`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.keep, o.archive, err = a.keeping(cmd.Flags(), olderThan, maxSize); err != nil {
				return err
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return a.prune(ctx, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&olderThan, "older-than", "", "logs not written to for this `time`, such as 30d, 12h or 2w; 0 is no limit")
	f.StringVar(&maxSize, "max-size", "", "the oldest, until all are no more than this `size`, such as 500MB or 2GiB; 0 is no limit")
	f.BoolVar(&o.dry, "dry-run", false, "remove nothing: say what would go")
	f.BoolVar(&o.force, "force", false, "logs that are not wholly sent too")
	return cmd
}

type pruneOptions struct {
	keep       keeping
	archive    string
	dry, force bool
}

// keeping gives the limits of a command line, or, where it has none, those of
// the settings.
func (a *app) keeping(flags *pflag.FlagSet, olderThan, maxSize string) (k keeping, archive string, err error) {
	c, _, errs := loadSettings(flags, a.Getenv, a.paths, true)
	if len(errs) > 0 {
		return k, "", usageError("%w", errs[0])
	}
	if olderThan == "" && maxSize == "" {
		return c.Keep, c.Archive, nil
	}
	if olderThan != "" {
		if k.age, err = parseAge(olderThan); err != nil {
			return k, "", usageError("--older-than %w", err)
		}
	}
	if maxSize != "" {
		if k.size, err = parseSize(maxSize); err != nil {
			return k, "", usageError("--max-size %w", err)
		}
	}
	if k == (keeping{}) {
		return k, "", usageError("prune: 0 is no limit, and no other is given: nothing would go")
	}
	return k, c.Archive, nil
}

// pruned is what aep-wrap prune tells.
type pruned struct {
	DryRun    bool      `json:"dry_run,omitempty"`
	Logs      int       `json:"logs"` // that went
	ByAge     int       `json:"by_age,omitempty"`
	BySize    int       `json:"by_size,omitempty"`
	Bytes     int64     `json:"bytes"`
	Unsent    int       `json:"unsent_events,omitempty"` // that went with them
	Kept      []keptLog `json:"kept,omitempty"`          // that were to go
	Left      int       `json:"left"`                    // logs that are still there
	LeftBytes int64     `json:"left_bytes"`
	Hooks     int       `json:"archived_hooks,omitempty"` // that went
	Why       string    `json:"why,omitempty"`
}

type keptLog struct {
	Log    string `json:"log"` // agent/session
	Why    string `json:"why"`
	Events int    `json:"unsent_events,omitempty"`
	Pid    int    `json:"pid,omitempty"`
	Error  string `json:"error,omitempty"`
}

func newPruned(p *queue.Pruned, dry bool) pruned {
	r := pruned{DryRun: dry, Logs: p.Logs(), ByAge: p.ByAge, BySize: p.BySize, Bytes: p.Bytes, Unsent: p.Lost, Left: p.Left, LeftBytes: p.LeftBytes}
	for _, k := range p.Kept {
		x := keptLog{Log: logName(k.Path), Why: string(k.Why), Events: k.Events, Pid: k.Pid}
		if k.Err != nil {
			x.Error = k.Err.Error()
		}
		r.Kept = append(r.Kept, x)
	}
	return r
}

// logName is a log's path as people are told it.
func logName(path string) string {
	return filepath.Join(filepath.Base(filepath.Dir(path)), strings.TrimSuffix(filepath.Base(path), ".jsonl"))
}

// tellKept is how many logs that were kept are named.
const tellKept = 8

// lines are what a person is told.
func (r *pruned) lines(limit int64) (out []string) {
	say := func(format string, args ...any) { out = append(out, visible(fmt.Sprintf(format, args...))) }
	verb := "removed"
	if r.DryRun {
		verb = "would remove"
	}
	if r.Logs == 0 && r.Hooks == 0 {
		say("nothing to remove; %s, %s", count(r.Left, "log"), bytesOf(r.LeftBytes))
	} else {
		var how []string
		if r.ByAge > 0 {
			how = append(how, fmt.Sprintf("%d by age", r.ByAge))
		}
		if r.BySize > 0 {
			how = append(how, fmt.Sprintf("%d by size", r.BySize))
		}
		line := fmt.Sprintf("%s %s", verb, count(r.Logs, "log"))
		if len(how) > 0 {
			line += fmt.Sprintf(" (%s), %s", strings.Join(how, ", "), bytesOf(r.Bytes))
		}
		if r.Hooks > 0 {
			line += fmt.Sprintf(", and %s", count(r.Hooks, "archived hook"))
		}
		say("%s; %s left, %s", line, count(r.Left, "log"), bytesOf(r.LeftBytes))
	}
	if r.Unsent > 0 {
		say("%s %s that no collector has", verb, count(r.Unsent, "event"))
	}
	unsent, owned := 0, 0
	for i := range r.Kept {
		k := &r.Kept[i]
		switch queue.Why(k.Why) {
		case queue.Owned:
			owned++
			continue
		case queue.Unsent:
			unsent++
		}
		if len(out) > tellKept {
			continue
		}
		switch queue.Why(k.Why) {
		case queue.Unsent:
			say("kept %s: %s unsent", k.Log, count(k.Events, "event"))
		case queue.NoLocks:
			say("kept %s: the file system has no locks, so that nobody knows whether it is in use", k.Log)
		case queue.Strange:
			say("kept %s: it is no session log of ours: is this the right --log-dir?", k.Log)
		default:
			say("kept %s: %s", k.Log, k.Error)
		}
	}
	if unsent > 0 {
		say("%s kept that a collector has not taken in: aep-wrap flush sends them, --force removes them", count(unsent, "log"))
	}
	if owned > 0 {
		say("%s kept that somebody has in use", count(owned, "log"))
	}
	if limit > 0 && r.LeftBytes > limit {
		say("this is still more than %s", bytesOf(limit))
	}
	return out
}

// wanting says whether something stayed that was to go, and that somebody has
// to do something about.
func (r *pruned) wanting() bool {
	for i := range r.Kept {
		if queue.Why(r.Kept[i].Why) != queue.Owned {
			return true
		}
	}
	return false
}

func (a *app) prune(ctx context.Context, o pruneOptions) error {
	l := o.keep.limits()
	l.DryRun, l.Force = o.dry, o.force
	if isTerminal(a.Stderr) && !a.cfg.Quiet && !a.cfg.JSON {
		last := time.Now()
		l.Tell = func(done, of int) {
			if time.Since(last) >= time.Second {
				last = time.Now()
				a.warn("looked at %d of %s", done, count(of, "log"))
			}
		}
	}
	p, err := queue.Prune(ctx, a.cfg.LogDir, l)
	r := newPruned(&p, o.dry)
	if err == nil {
		r.Hooks, err = a.pruneBeside(o)
	}
	if err != nil {
		r.Why = err.Error()
	}
	if rerr := a.tell(r, r.lines(o.keep.size)...); rerr != nil {
		return rerr
	}
	switch {
	case ctx.Err() != nil:
		return &exitError{code: 130}
	case err != nil && !a.cfg.JSON:
		return err
	case err != nil || r.wanting():
		return &exitError{code: 1}
	}
	return nil
}

func (k keeping) limits() queue.Limits { return queue.Limits{OlderThan: k.age, MaxSize: k.size} }

// pruneBeside removes what lies elsewhere: archived hooks that are too old, and
// what crashed launches left.
func (a *app) pruneBeside(o pruneOptions) (hooks int, err error) {
	if !o.dry {
		sweep(a.paths.socketDir(a.Getenv, "launch-0123456789/hook.sock"))
	}
	if o.archive == "" || o.keep.age == 0 {
		return 0, nil
	}
	dir := a.paths.expand(o.archive)
	files, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("archived hooks: %w", err)
	}
	for _, f := range files {
		fi, ierr := f.Info()
		// NAME.ADAPTER.EVENT.json: what else is there is not ours.
		if ierr != nil || !fi.Mode().IsRegular() || filepath.Ext(f.Name()) != ".json" || strings.Count(f.Name(), ".") < 3 ||
			time.Since(fi.ModTime()) <= o.keep.age {
			continue
		}
		if !o.dry {
			if rerr := os.Remove(filepath.Join(dir, f.Name())); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
				err = errors.Join(err, rerr)
				continue
			}
		}
		hooks++
	}
	return hooks, err
}

// The times of serve.
const (
	pruneEach  = time.Hour
	pruneSpare = time.Hour // of a log that was written to so lately the session may go on
)

// pruneEvery removes logs by the settings, at once and then each hour, until
// ctx ends.
func (a *app) pruneEvery(ctx context.Context, log *slog.Logger, say func(string), n *pruneTally) {
	k := a.cfg.Keep
	if k == (keeping{}) {
		return
	}
	each := pruneEach
	if k.age > 0 {
		each = min(each, max(k.age/4, time.Second))
	}
	tick := time.NewTicker(each)
	defer tick.Stop()
	for {
		a.pruneOnce(ctx, k, log, say, n)
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// pruneTally counts what serve removed, and what it keeps now though it is
// beyond the limits: nobody has it yet.
type pruneTally struct{ logs, bytes, hooks, unsent atomic.Int64 }

// pruneOnce prunes, and tells of logs that are kept because they are unsent
// when there are more of them than were told.
func (a *app) pruneOnce(ctx context.Context, k keeping, log *slog.Logger, say func(string), n *pruneTally) {
	l := k.limits()
	l.Spare = pruneSpare
	p, err := queue.Prune(ctx, a.cfg.LogDir, l)
	hooks := 0
	if err == nil {
		hooks, err = a.pruneBeside(pruneOptions{keep: k, archive: a.cfg.Archive})
	}
	n.logs.Add(int64(p.Logs()))
	n.bytes.Add(p.Bytes)
	n.hooks.Add(int64(hooks))
	if err != nil && ctx.Err() == nil {
		log.Warn("session logs that are too old or too many", "err", err)
	}
	if p.Logs()+hooks > 0 {
		log.Info("removed session logs", "by_age", p.ByAge, "by_size", p.BySize, "bytes", p.Bytes, "hooks", hooks, "left", p.Left, "left_bytes", p.LeftBytes)
	}
	unsent := 0
	for _, x := range p.Kept {
		switch x.Why {
		case queue.Unsent:
			unsent++
		case queue.Failed:
			log.Warn("a session log cannot be removed", "log", x.Path, "err", x.Err)
		}
	}
	if int64(unsent) > n.unsent.Swap(int64(unsent)) {
		say(fmt.Sprintf("%s beyond keep-for or keep-size kept that the collector has not taken in", count(unsent, "session log")))
	}
}

// ---- what people write

var ageUnits = map[string]time.Duration{
	"ms": time.Millisecond, "s": time.Second, "m": time.Minute, "min": time.Minute, "h": time.Hour,
	"d": 24 * time.Hour, "w": 7 * 24 * time.Hour, "y": 365 * 24 * time.Hour,
}

// parseAge reads a time such as 30d, 12h, 1d12h or 2w; 0 is none.
func parseAge(v string) (time.Duration, error) {
	bad := fmt.Errorf("%q: want a time such as 30d, 12h or 2w, or 0 for no limit", v)
	rest := strings.ToLower(strings.ReplaceAll(strings.TrimSpace(v), " ", ""))
	switch rest {
	case "":
		return 0, bad
	case "0":
		return 0, nil
	}
	sum := 0.0
	for rest != "" {
		n, unit, after, ok := amountOf(rest)
		d, known := ageUnits[unit]
		if !ok || !known {
			return 0, bad
		}
		sum += n * float64(d)
		rest = after
	}
	if sum >= math.MaxInt64 {
		return 0, bad
	}
	return time.Duration(sum), nil
}

// sizeUnits: MB is a million, as on a disk's box; MiB, and M as tools write it,
// are 1024 times 1024.
var sizeUnits = map[string]float64{
	"": 1, "b": 1,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
	"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
}

// parseSize reads a size such as 500MB, 2GiB or 1.5G; 0 is none.
func parseSize(v string) (int64, error) {
	bad := fmt.Errorf("%q: want a size such as 500MB or 2GiB, or 0 for no limit", v)
	n, unit, after, ok := amountOf(strings.ToLower(strings.ReplaceAll(strings.TrimSpace(v), " ", "")))
	scale, known := sizeUnits[unit]
	if !ok || !known || after != "" || n*scale >= math.MaxInt64 || n > 0 && n*scale < 1 {
		return 0, bad
	}
	return int64(n * scale), nil
}

// amountOf reads a number and the letters behind it.
func amountOf(s string) (n float64, unit, rest string, ok bool) {
	i := strings.IndexFunc(s, func(r rune) bool { return r != '.' && (r < '0' || r > '9') })
	if i < 0 {
		i = len(s)
	}
	n, err := strconv.ParseFloat(s[:i], 64)
	if err != nil {
		return 0, "", "", false
	}
	j := strings.IndexFunc(s[i:], func(r rune) bool { return !unicode.IsLetter(r) })
	if j < 0 {
		j = len(s) - i
	}
	return n, s[i : i+j], s[i+j:], true
}

// bytesOf is a size as people read it.
func bytesOf(n int64) string {
	const units = "KMGT"
	if n < 1<<10 {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/(1<<10), 0
	for v >= 1023.95 && i < len(units)-1 {
		v, i = v/(1<<10), i+1
	}
	return fmt.Sprintf("%.1f %ciB", v, units[i])
}
