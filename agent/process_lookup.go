package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// What keeps a command from being started, with the exit code that a shell
// gives for it: 127 and 126. A *LaunchError wraps one of them.
var (
	ErrNotFound      = errors.New("command not found")
	ErrNotExecutable = errors.New("cannot be executed")
)

// A LaunchError says which command could not be started, and why.
type LaunchError struct {
	Name string // as the user typed it
	Kind error  // ErrNotFound or ErrNotExecutable
	Why  string // what to know or do about it
}

func (e *LaunchError) Error() string { return fmt.Sprintf("%s: %v: %s", e.Name, e.Kind, e.Why) }
func (e *LaunchError) Unwrap() error { return e.Kind }

// ExitCode is the code that a shell exits with for such a command.
func (e *LaunchError) ExitCode() int {
	if e.Kind == ErrNotFound {
		return 127
	}
	return 126
}

// LookPath finds the file that a shell would run for name: name itself where
// it has a slash, else the first executable file of that name on path (a PATH
// value; an empty element is the current directory). It differs from
// exec.LookPath in that it takes what stands in the current directory when the
// user's PATH says so, and tells a file that is there but cannot be run (126)
// from one that is not there (127). Its error is a *LaunchError.
func LookPath(name, path string) (string, error) {
	if name == "" {
		return "", &LaunchError{Name: `""`, Kind: ErrNotFound, Why: "the command is an empty word"}
	}
	if strings.Contains(name, "/") {
		if err := executable(name); err != nil {
			return "", launchError(name, name, err)
		}
		return name, nil
	}
	var denied error
	for _, dir := range filepath.SplitList(path) {
		if dir == "" {
			dir = "."
		}
		file := filepath.Join(dir, name)
		if !strings.Contains(file, "/") {
			file = "./" + file // what Join cleaned away keeps it from being looked up again
		}
		err := executable(file)
		if err == nil {
			return file, nil
		}
		if denied == nil && !missing(err) && !errors.Is(err, syscall.EISDIR) {
			denied = launchError(name, file, err)
		}
	}
	if denied != nil {
		return "", denied
	}
	return "", &LaunchError{Name: name, Kind: ErrNotFound,
		Why: "no such file on PATH (a shell alias or function is not a command: give its file)"}
}

// missing says whether err means that there is no such file at all.
func missing(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ENAMETOOLONG)
}

func executable(file string) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return syscall.EISDIR
	}
	return unix.Access(file, unix.X_OK) // the kernel knows of capabilities, ACLs and noexec mounts
}

// launchError makes a *LaunchError of what the system said about file.
func launchError(name, file string, err error) *LaunchError {
	e := &LaunchError{Name: name, Kind: ErrNotExecutable}
	switch {
	case errors.Is(err, syscall.EISDIR):
		e.Why = file + " is a directory"
	case missing(err):
		if interp := interpreter(file); interp != "" {
			e.Why = fmt.Sprintf("the interpreter that %s names, %s, is not there", file, interp)
			break
		}
		if _, serr := os.Stat(file); serr == nil {
			e.Why = file + " is there, but the loader that it asks for is not"
			break
		}
		e.Kind, e.Why = ErrNotFound, "no such file"
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM):
		e.Why = fmt.Sprintf("permission denied for %s (is it executable, and its filesystem not mounted noexec?)", file)
	case errors.Is(err, syscall.ENOEXEC):
		e.Why = file + " is not a program of this system (exec format error)"
	case errors.Is(err, syscall.E2BIG):
		e.Why = "the arguments and the environment are too long for the system"
	default:
		e.Why = err.Error()
	}
	return e
}

// head is the beginning of a file, empty where it cannot be read.
func head(file string) []byte {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, 256)
	n, _ := f.Read(b)
	return b[:n]
}

// interpreter is what the first line of a script names.
func interpreter(file string) string {
	rest, ok := bytes.CutPrefix(head(file), []byte("#!"))
	if !ok {
		return ""
	}
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	if words := strings.Fields(string(line)); len(words) > 0 {
		return words[0]
	}
	return ""
}

// script says whether a file that the kernel cannot execute is text that a
// shell, and execvp, would hand to /bin/sh: no NUL in its first line.
func script(file string) bool {
	line, _, _ := bytes.Cut(head(file), []byte("\n"))
	return len(line) > 0 && bytes.IndexByte(line, 0) < 0 && !bytes.HasPrefix(line, []byte("#!"))
}

// asExec calls start with a file and its argv as a shell runs them: a file
// without a #! line is a shell script.
func asExec(file string, argv []string, start func(file string, argv []string) error) error {
	err := start(file, argv)
	if errors.Is(err, syscall.ENOEXEC) && script(file) {
		return start("/bin/sh", append([]string{"sh", file}, argv[min(1, len(argv)):]...))
	}
	return err
}

// Exec replaces this process by the command: for launches that are passed
// through and need nothing from us. It returns only when that fails.
func Exec(s Spec) error {
	if s.Dir != "" {
		if err := os.Chdir(s.Dir); err != nil {
			return err
		}
	}
	err := asExec(s.Path, s.Args, func(file string, argv []string) error {
		return syscall.Exec(file, argv, s.Env)
	})
	return launchError(s.name(), s.Path, err)
}
