package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"aep-wrap/collector/client"
	"aep-wrap/event"
	"aep-wrap/queue/jsonl"
)

func newSinkCmd(a *app) *cobra.Command {
	var out, filter string
	var rotate int64
	cmd := &cobra.Command{
		Use:   "sink --out DIR",
		Short: "Keep a collector's events in files, one per session",
		Long: `Follows a collector and writes each session to DIR/AGENT/SESSION.jsonl, each
event once, on the disk before it counts as kept. Ended in any way and started
again it goes on where it was: what the collector still holds, or a session's
log on its machine, is not lost, and nothing is written twice.

A file that reaches --rotate bytes is put aside, as SESSION.old/000001.jsonl and
so on, and the session goes on in a new one.`,
		Example: `  aep-wrap sink --out /var/lib/aep
  aep-wrap sink --out ./kept --collector https://collector.example --token-file token`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if out == "" {
				return usageError("sink: want --out DIR, where the files are kept")
			}
			if filter != "" {
				if _, err := event.CompileFilter([]byte(filter)); err != nil {
					return usageError("--filter: %w", err)
				}
			}
			if rotate < 0 {
				return usageError("--rotate %d: want a number of bytes, or 0 for never", rotate)
			}
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			cfg, err := a.follow()
			if err != nil {
				return err
			}
			cfg.Filter = filter
			return a.sink(ctx, cfg, out, rotate)
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "`DIR` to keep the files in")
	cmd.Flags().StringVar(&filter, "filter", "", "only events that match, as attr-match `JSON`")
	cmd.Flags().Int64Var(&rotate, "rotate", 256<<20, "size in `BYTES` at which a file is put aside (0: never)")
	return cmd
}

// sink keeps events until ctx is done.
func (a *app) sink(ctx context.Context, cfg client.Config, dir string, rotate int64) error {
	k, err := openKeeper(dir, a.warn)
	if err != nil {
		return err
	}
	k.rotate = rotate
	cfg.All, cfg.Whole, cfg.From = true, true, k.positions
	cfg.MaxWait = sinkWait
	cfg.Told, cfg.Flush = a.tellConnection(), k.flush
	err = client.Follow(ctx, cfg, k.keep)
	if cerr := k.close(); cerr != nil {
		return cerr
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// keeper writes sessions to files. The files themselves say what is in them:
// an event is looked up in its session's file before it is written, so that
// neither a replay nor a death between two steps can double it. The positions
// beside them tell a gap in what the collector still holds.
type keeper struct {
	dir       string
	lock      *os.File
	warn      func(string, ...any)
	positions map[string]event.Position
	owners    map[string]string // session → the agent in whose folder its file is

	open  map[string]*kept
	order []string // of the open files, the one used last at the end
	dirty map[string]*kept
	moved bool
	seed  maphash.Seed

	rotate int64 // bytes at which a file is put aside; 0 is never
}

// kept is one session's file and what is in it.
type kept struct {
	log *jsonl.Log
	has map[uint64]struct{}
}

// sinkWait is the longest pause between two tries: an endpoint that comes back
// holds the newest of each session only, and its emitters come back too.
const sinkWait = time.Second

// openFiles is how many files, and their events' ids, are kept at hand.
const openFiles = 128

func openKeeper(dir string, warn func(string, ...any)) (*keeper, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	lock, err := lockFile(filepath.Join(dir, ".sink.lock"))
	if errors.Is(err, errLocked) {
		return nil, fmt.Errorf("sink: another sink writes to %s", dir)
	}
	if err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	k := &keeper{dir: dir, lock: lock, warn: warn, positions: map[string]event.Position{}, owners: map[string]string{},
		open: map[string]*kept{}, dirty: map[string]*kept{}, seed: maphash.MakeSeed()}
	raw, err := os.ReadFile(k.positionsFile())
	if err == nil {
		err = json.Unmarshal(raw, &k.positions)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		warn("sink: %s cannot be read (%v): the files themselves say what is kept", k.positionsFile(), err)
	}
	return k, nil
}

func (k *keeper) positionsFile() string { return filepath.Join(k.dir, "positions.json") }

// keep writes one event, unless its file has it.
func (k *keeper) keep(e client.Event) error {
	path := k.path(&e.Header)
	f, err := k.file(path)
	if err != nil {
		return err
	}
	id := k.hash(e.Source, e.ID)
	if _, ok := f.has[id]; !ok {
		if _, err := f.log.Append(e.Line); err != nil {
			return fmt.Errorf("sink: %w", err)
		}
		f.has[id] = struct{}{}
		k.dirty[path] = f
		if k.rotate > 0 && f.log.Size() >= k.rotate {
			if err := k.putAside(path, f); err != nil {
				return fmt.Errorf("sink: %w", err)
			}
		}
	}
	if pos := e.Position(); e.Sequenced {
		if last, ok := k.positions[e.Session]; !ok || last.Less(pos) {
			k.positions[e.Session] = pos
			k.moved = true
		}
	}
	return nil
}

func (k *keeper) hash(source, id string) uint64 {
	return maphash.Comparable(k.seed, [2]string{source, id})
}

// path is the file of an event's session. What others say about a session, by
// commands, stands in its file too; what is about no session stands in one of
// its agent's.
func (k *keeper) path(h *event.Header) string {
	if h.Session == "" {
		return filepath.Join(k.dir, jsonl.SafeName(h.Agent)+".jsonl")
	}
	if h.Sequenced {
		k.owners[h.Session] = h.Agent
		return jsonl.Path(k.dir, h.Agent, h.Session)
	}
	if owner, ok := k.owners[h.Session]; ok {
		return jsonl.Path(k.dir, owner, h.Session)
	}
	name := jsonl.SafeName(h.Session) + ".jsonl"
	if agents, err := os.ReadDir(k.dir); err == nil {
		for _, d := range agents {
			p := filepath.Join(k.dir, d.Name(), name)
			if fi, err := os.Stat(p); err == nil && fi.Mode().IsRegular() {
				return p
			}
		}
	}
	return jsonl.Path(k.dir, h.Agent, h.Session)
}

// file opens a session's file, and reads what is in it.
func (k *keeper) file(path string) (*kept, error) {
	if f, ok := k.open[path]; ok {
		k.use(path)
		return f, nil
	}
	if len(k.order) >= openFiles {
		oldest := k.order[0]
		if err := k.flush(); err != nil {
			return nil, err
		}
		if err := k.open[oldest].log.Close(); err != nil {
			return nil, fmt.Errorf("sink: %w", err)
		}
		delete(k.open, oldest)
		k.order = k.order[1:]
	}
	log, err := jsonl.OpenPath(path)
	if err != nil {
		return nil, fmt.Errorf("sink: %w", err)
	}
	if log.Warning != "" {
		k.warn("sink: %s", log.Warning)
	}
	log.SyncEvery(0) // flush does
	f := &kept{log: log, has: map[uint64]struct{}{}}
	note := func(line []byte) error {
		if h, _, err := event.ParseHeader(line); err == nil {
			f.has[k.hash(h.Source, h.ID)] = struct{}{}
		}
		return nil
	}
	for _, part := range parts(path) {
		if err = readLog(part, note); err != nil {
			break
		}
	}
	if err == nil {
		err = log.Replay(note)
	}
	if err != nil {
		_ = log.Close()
		return nil, fmt.Errorf("sink: %w", err)
	}
	k.open[path] = f
	k.order = append(k.order, path)
	return f, nil
}

// partsDir is where the parts of a session's file are that were put aside.
func partsDir(path string) string { return strings.TrimSuffix(path, ".jsonl") + ".old" }

// parts are those that are there, the oldest first.
func parts(path string) []string {
	dir := partsDir(path)
	found, err := os.ReadDir(dir) // in the order of their names
	if err != nil {
		return nil
	}
	var out []string
	for _, f := range found {
		if strings.HasSuffix(f.Name(), ".jsonl") {
			out = append(out, filepath.Join(dir, f.Name()))
		}
	}
	return out
}

func readLog(path string, fn func(line []byte) error) error {
	r, err := jsonl.OpenReader(path, 0)
	if err != nil {
		return err
	}
	defer r.Close()
	for {
		line, _, err := r.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, jsonl.ErrLong):
			continue
		case err != nil:
			return err
		}
		if err := fn(line); err != nil {
			return err
		}
	}
}

// putAside makes what a session's file has a part, on the disk before it gets
// its name, and lets the session go on in a new file. What is in the parts is
// known still.
func (k *keeper) putAside(path string, f *kept) error {
	if err := f.log.Close(); err != nil {
		return err
	}
	dir := partsDir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	n := 0
	if old := parts(path); len(old) > 0 { // the user may have taken the first ones away
		n, _ = strconv.Atoi(strings.TrimSuffix(filepath.Base(old[len(old)-1]), ".jsonl"))
	}
	if err := os.Rename(path, filepath.Join(dir, fmt.Sprintf("%06d.jsonl", n+1))); err != nil {
		return err
	}
	log, err := jsonl.OpenPath(path)
	if err != nil {
		return err
	}
	log.SyncEvery(0)
	f.log = log
	delete(k.dirty, path)
	return nil
}

func (k *keeper) use(path string) {
	last := len(k.order) - 1
	if k.order[last] == path {
		return
	}
	for i, p := range k.order {
		if p == path {
			copy(k.order[i:], k.order[i+1:])
			k.order[last] = path
			return
		}
	}
}

// flush puts what was written on the disk, and then says how far it came.
func (k *keeper) flush() error {
	for path, f := range k.dirty {
		if err := f.log.Sync(); err != nil {
			return fmt.Errorf("sink: %w", err)
		}
		delete(k.dirty, path)
	}
	if !k.moved {
		return nil
	}
	if err := k.savePositions(); err != nil {
		return fmt.Errorf("sink: %w", err)
	}
	k.moved = false
	return nil
}

func (k *keeper) savePositions() error {
	raw, err := json.Marshal(k.positions)
	if err != nil {
		return err
	}
	tmp := k.positionsFile() + ".new"
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(raw, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return err
	}
	return os.Rename(tmp, k.positionsFile())
}

func (k *keeper) close() error {
	err := k.flush()
	for _, f := range k.open {
		if cerr := f.log.Close(); err == nil && cerr != nil {
			err = fmt.Errorf("sink: %w", cerr)
		}
	}
	k.lock.Close()
	return err
}
