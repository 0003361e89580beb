package follow

import (
	"errors"

	"golang.org/x/sys/unix"
)

// remote: network mounts are polled slowly like all others.
func remote(string) bool { return false }

func outOfWatches(err error) bool { return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) }

func watches() string { return "each watch takes a descriptor: see ulimit -n" }

func instances() string { return "" }
