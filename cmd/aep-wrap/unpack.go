package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

func newUnpackCmd(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "unpack DIR",
		Short: "Put the binaries and the hook directory's script into a directory, for a container without them",
		Long: `Copies this binary, the hook helper beside it, and the script of aep-wrap
hook-dir-script (as hookdir.sh) into DIR, executable by everybody. An init
container runs it on a volume that it shares with an agent's container, whose
image then needs nothing of aep-wrap.`,
		Example:     `  aep-wrap unpack /opt/aep`,
		Args:        cobra.ExactArgs(1),
		Annotations: map[string]string{noConfig: ""},
		RunE: func(_ *cobra.Command, args []string) error {
			if err := unpack(args[0]); err != nil {
				return fmt.Errorf("unpack: %w", err)
			}
			return nil
		},
	}
}

func unpack(dir string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := putProgram(strings.NewReader(hookDirScript), filepath.Join(dir, "hookdir.sh")); err != nil {
		return err
	}
	if err := copyProgram(self, filepath.Join(dir, "aep-wrap")); err != nil {
		return err
	}
	err = copyProgram(filepath.Join(filepath.Dir(self), "aep-hook"), filepath.Join(dir, "aep-hook"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil // aep-wrap is its own helper, only slower
	}
	return err
}

func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return putProgram(in, to)
}

// putProgram puts a program there whole: one that runs from there goes on.
func putProgram(in io.Reader, to string) error {
	out, err := os.CreateTemp(filepath.Dir(to), ".unpack-*")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Chmod(0o755), out.Close()); err != nil {
		return err
	}
	return os.Rename(out.Name(), to)
}
