package jsonl

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Erase rewrites the log at path line by line: erased gives what is left of one,
// nothing where the line goes. What sinks have taken in stays known, by event;
// what a crash left beside the log goes. The error is an *ErrOwned where the
// session, or the sending of its log, is somebody's.
func Erase(path string, erased func(line []byte) []byte) error {
	own, _, err := take(beside(path, ".lock"), path)
	if err != nil {
		return err
	}
	defer own.Release()
	base := beside(path, "")
	files, err := filepath.Glob(escape(base) + ".*")
	if err != nil {
		return err
	}
	saved := map[string]Position{}
	for _, file := range files {
		name, end := file[len(base)+1:], filepath.Ext(file)
		sink := strings.TrimSuffix(name, end)
		if end != ".pos" || strings.Contains(sink, ".") {
			continue // of another session, whose name begins as this one's
		}
		sending, _, err := take(strings.TrimSuffix(file, end)+".sending", path)
		if err != nil {
			return err
		}
		defer sending.Release()
		raw, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if at, err := ParsePosition(raw); err == nil {
			saved[file] = at // whoever goes on from one that is none begins anew
		}
	}
	if err := rewrite(path, erased); err != nil {
		return err
	}
	if err := os.Remove(beside(path, ".torn")); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for file, at := range saved {
		if at.Offset, err = Locate(path, at); err != nil {
			return err
		}
		if err := savePosition(file, at); err != nil {
			return err
		}
	}
	return nil
}

// rewrite puts another file in the log's place, whole or not at all.
func rewrite(path string, erased func([]byte) []byte) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var out []byte
	for line := range bytes.Lines(b) {
		if left := erased(bytes.TrimSpace(line)); len(left) > 0 {
			out = append(append(out, left...), '\n')
		}
	}
	tmp := beside(path, ".erasing")
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(out)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// escape makes a path safe in a glob pattern.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}
