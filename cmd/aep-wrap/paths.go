package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// paths are where this user's files lie: ~/.aep with its config, token, logs
// and run directory.
type paths struct {
	home string // the user's home, "" when unknown
	aep  string // the state directory
	note string // one line, when aep is not in the home
	file string // the configuration that --config or AEP_CONFIG names

	// alone says that aep is this process's own: nobody else finds it, so no
	// collector can be shared.
	alone bool
}

// findPaths places the state directory in the user's home, or, where there is
// no home to write in, in a directory of this user's own under the system's
// temporary one.
func findPaths(getenv func(string) string) paths {
	home := getenv("HOME")
	if filepath.IsAbs(home) {
		p := paths{home: home, aep: filepath.Join(home, ".aep")}
		// Somebody else's, as of the user behind a sudo, is left alone.
		err := privateDir(p.aep)
		if err == nil {
			return p
		}
		if fi, there := os.Stat(p.aep); there == nil && fi.IsDir() && !errors.Is(err, errForeign) {
			return p // it can be read: what cannot be written says so itself
		}
		p.fallBack(fmt.Sprintf("cannot make %s (%v)", filepath.Join(home, ".aep"), reason(err)))
		return p
	}
	var p paths
	why := "HOME is not set"
	if home != "" {
		why = fmt.Sprintf("HOME=%s is not an absolute path", home)
	}
	p.fallBack(why)
	return p
}

// fallBack places the state in this user's directory under the temporary one:
// the same for every start, unless somebody else has taken its name.
func (p *paths) fallBack(why string) {
	p.aep = filepath.Join(os.TempDir(), "aep-"+strconv.Itoa(os.Getuid()))
	err := privateDir(p.aep)
	if err != nil {
		fresh, ferr := os.MkdirTemp("", "aep-")
		if ferr != nil {
			p.note = fmt.Sprintf("%s, nor %s (%v): nothing is kept", why, p.aep, reason(err))
			return
		}
		p.aep, p.alone = fresh, true
	}
	p.note = why + ": tokens and logs go to " + p.aep
	if p.alone {
		p.note += fmt.Sprintf(" (%v), and no collector is joined", err)
	}
}

// reason is what the system said, without the path and the call.
func reason(err error) error {
	var e *os.PathError
	if errors.As(err, &e) {
		return e.Err
	}
	var s *os.SyscallError
	if errors.As(err, &s) {
		return s.Err
	}
	return err
}

func (p paths) config() string { return cmp.Or(p.file, filepath.Join(p.aep, "config.yaml")) }

// configGiven says whether somebody named the file.
func (p paths) configGiven() bool { return p.file != "" }

func (p paths) token() string  { return filepath.Join(p.aep, "token") }
func (p paths) run() string    { return filepath.Join(p.aep, "run") }
func (p paths) ownLog() string { return filepath.Join(p.aep, "aep-wrap.log") }

// expand makes "~/x" a path; "~/.aep/…" lies in the state directory.
func (p paths) expand(path string) string {
	if rest, ok := strings.CutPrefix(path, "~/.aep/"); ok {
		return filepath.Join(p.aep, rest)
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok && p.home != "" {
		return filepath.Join(p.home, rest)
	}
	return path
}

// socketLimit is the longest path that a unix socket may have everywhere we
// run: sun_path holds 104 bytes on macOS and 108 on Linux, a NUL included.
const socketLimit = 100

// socketDir is the directory of the user's sockets: ~/.aep/run, or, where that
// path is too long for a socket, one named after it beside the user's other
// runtime files. Everyone computes the same.
func (p paths) socketDir(getenv func(string) string, longest string) string {
	dir := p.run()
	if len(dir)+1+len(longest) <= socketLimit {
		return dir
	}
	sum := sha256.Sum256([]byte(dir))
	base := getenv("XDG_RUNTIME_DIR")
	if !filepath.IsAbs(base) || len(base) > 40 {
		base = "/tmp" // sticky: what is ours there stays ours
	}
	return filepath.Join(base, fmt.Sprintf("aep-%d-%s", os.Getuid(), hex.EncodeToString(sum[:6])))
}

// collectorSocket is where the per-user collector listens for wrappers.
func (p paths) collectorSocket(getenv func(string) string) string {
	const name = "collector.sock"
	return filepath.Join(p.socketDir(getenv, name), name)
}

// errForeign is another user's directory: what we wrote there would be in
// their way.
var errForeign = errors.New("belongs to user")

// privateDir makes dir readable by its user alone, and refuses one that is
// somebody else's: whoever owns the directory owns the sockets in it.
func privateDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	switch {
	case !fi.IsDir():
		return fmt.Errorf("%s is not a directory", dir)
	case ok && int(st.Uid) != os.Getuid():
		return fmt.Errorf("%s %w %d", dir, errForeign, st.Uid)
	case fi.Mode().Perm()&0o077 != 0:
		return os.Chmod(dir, 0o700)
	}
	return nil
}

// readPrivate reads a file of secrets, which nobody else may read. One that is
// not ours to change was given to us by a group of ours: that is how a container
// gets its secrets.
func readPrivate(path string) ([]byte, error) {
	fi, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	others := fs.FileMode(0o077)
	if st, ok := fi.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Getuid() {
		others = 0o037
	}
	if fi.Mode().Perm()&others != 0 {
		return nil, errors.New(path + " can be read by others: chmod 600 it")
	}
	return os.ReadFile(path)
}
