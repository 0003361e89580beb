package main

import (
	"log"
	"log/slog"
	"os"
	"sync"
)

// ownLogMax is how large our own log grows before the last one is put aside.
const ownLogMax = 4 << 20

// ownLog is where we say what cannot be said on the agent's screen. The file
// is opened at the first word, so a run without trouble writes none; when it
// cannot be opened the words are lost, and nothing else is.
type ownLog struct {
	path string
	once sync.Once
	file *os.File
}

func (o *ownLog) Write(b []byte) (int, error) {
	o.once.Do(func() {
		if fi, err := os.Stat(o.path); err == nil && fi.Size() > ownLogMax {
			_ = os.Rename(o.path, o.path+".1")
		}
		o.file, _ = os.OpenFile(o.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	})
	if o.file != nil {
		return o.file.Write(b)
	}
	return len(b), nil
}

// newOwnLog is a logger to ~/.aep/aep-wrap.log.
func (a *app) newOwnLog() *slog.Logger {
	h := slog.NewTextHandler(&ownLog{path: a.paths.ownLog()}, &slog.HandlerOptions{Level: slog.LevelInfo})
	l := slog.New(h).With("pid", os.Getpid())
	// net/http and others write to the standard logger, which writes to stderr:
	// that may be the agent's screen.
	log.SetOutput(slog.NewLogLogger(l.Handler(), slog.LevelWarn).Writer())
	log.SetFlags(0)
	return l
}
