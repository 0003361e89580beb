package e2e

import (
	"strconv"

	"golang.org/x/sys/unix"
)

func slaveNumber(fd uintptr) (string, error) {
	n, err := unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	return strconv.Itoa(n), err
}
