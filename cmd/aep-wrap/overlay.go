package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"aep-wrap/adapters"
)

// overlays are the folders of a launch that show others by links. What the
// agent puts there of its own is brought home when it has ended.
type overlays struct {
	dir  string // of the launch
	list []adapters.Overlay
	ours map[string][sha256.Size]byte // names that are no link and were there from the start, and what they held
}

// makeOverlays makes them in the launch's directory, where the files are
// already.
func makeOverlays(dir string, list []adapters.Overlay) (*overlays, error) {
	o := &overlays{dir: dir, list: slices.Clone(list), ours: map[string][sha256.Size]byte{}}
	// The innermost first: it hides the entry of its name in the one around it.
	slices.SortStableFunc(o.list, func(a, b adapters.Overlay) int { return len(b.Dir) - len(a.Dir) })
	for _, v := range o.list {
		if !filepath.IsLocal(v.Dir) || !filepath.IsAbs(v.Of) {
			return nil, fmt.Errorf("no place for its folder %s", v.Dir)
		}
		for _, name := range v.Make {
			if err := os.MkdirAll(filepath.Join(v.Of, name), 0o700); err != nil {
				return nil, err
			}
		}
		here := filepath.Join(dir, v.Dir)
		if err := os.MkdirAll(here, 0o700); err != nil {
			return nil, err
		}
		own, err := os.ReadDir(here)
		if err != nil {
			return nil, err
		}
		for _, e := range own {
			o.ours[filepath.Join(v.Dir, e.Name())] = o.sum(v.Dir, e.Name())
		}
		shown, err := os.ReadDir(v.Of)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range shown {
			if _, hidden := o.ours[filepath.Join(v.Dir, e.Name())]; hidden || v.Only != nil && !slices.Contains(v.Only, e.Name()) {
				continue
			}
			if err := os.Symlink(filepath.Join(v.Of, e.Name()), filepath.Join(here, e.Name())); err != nil {
				return nil, err
			}
		}
	}
	return o, nil
}

// sum is what a file of ours holds; all folders are alike.
func (o *overlays) sum(dir, name string) [sha256.Size]byte {
	b, err := os.ReadFile(filepath.Join(o.dir, dir, name))
	if err != nil {
		return [sha256.Size]byte{}
	}
	return sha256.Sum256(b)
}

// bringHome moves what the agent made in the overlays to the folders that they
// show. What cannot be moved is told, and the rest is.
func (o *overlays) bringHome() error {
	var errs []error
	for _, v := range o.list {
		here := filepath.Join(o.dir, v.Dir)
		entries, err := os.ReadDir(here)
		errs = append(errs, err)
		for _, e := range entries {
			if e.Type()&fs.ModeSymlink != 0 || v.Only != nil && !slices.Contains(v.Only, e.Name()) {
				continue
			}
			if was, ours := o.ours[filepath.Join(v.Dir, e.Name())]; ours {
				if was != o.sum(v.Dir, e.Name()) {
					errs = append(errs, fmt.Errorf("%s was changed, of which it was shown a copy", filepath.Join(v.Of, e.Name())))
				}
				continue
			}
			err := os.MkdirAll(v.Of, 0o700)
			if err == nil {
				err = move(filepath.Join(here, e.Name()), filepath.Join(v.Of, e.Name()))
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// move moves a file or folder, also to another file system. A file takes the
// place of the file that is there, by the same name or by a link of that name;
// a folder joins the one that is there.
func move(from, to string) error {
	if real, err := filepath.EvalSymlinks(to); err == nil {
		to = real
	}
	src, err := os.Lstat(from)
	if err != nil {
		return err
	}
	dst, err := os.Lstat(to)
	switch {
	case err == nil && src.IsDir() != dst.IsDir():
		return fmt.Errorf("%s stays as it is: one is a folder and the other is not", to)
	case err == nil && src.IsDir():
		entries, err := os.ReadDir(from)
		errs := []error{err}
		for _, e := range entries {
			errs = append(errs, move(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())))
		}
		return errors.Join(errs...)
	}
	if os.Rename(from, to) == nil {
		return nil
	}
	// Another file system: a copy beside the target, then into its place.
	if src.IsDir() {
		if err := os.Mkdir(to, src.Mode().Perm()); err != nil {
			return err
		}
		return move(from, to)
	}
	if !src.Mode().IsRegular() {
		return nil // a link, a socket: of no use elsewhere
	}
	return copyFile(from, to, src.Mode().Perm())
}

func copyFile(from, to string, mode fs.FileMode) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.CreateTemp(filepath.Dir(to), ".aep-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(out.Name())
		}
	}()
	_, err = io.Copy(out, in)
	err = errors.Join(err, out.Chmod(mode), out.Close())
	if err != nil {
		return err
	}
	return os.Rename(out.Name(), to)
}
