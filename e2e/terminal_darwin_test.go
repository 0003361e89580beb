package e2e

import "golang.org/x/sys/unix"

const getTermios = unix.TIOCGETA
